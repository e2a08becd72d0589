/* form_factory1.c -- LLaMA-Factory's second command line (USE_V1; src/llamafactory/v1 of August 2026): `model`, with plugins as sections.
 *
 * Full fine-tuning under DeepSpeed by its own config, or under its FSDP2: weights in fp32, compute in bf16, gradients reduced in fp32 in every micro-step; a unit a block, an untied
 * embedding on its own, the root gathered again in backward (plugins/trainer_plugins/distributed/fsdp2.py).  Without dist_config it is
 * DistributedDataParallel of a model in fp32, without autocast.  Blocks are checkpointed unless the file says otherwise.
 * The model gets labels, and so makes a loss of its own, beside the trainer's, which copies the shifted logits in fp32 (core/base_trainer.py). */
#include <string.h>

#include "base/fail.h"
#include "base/files.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/recipe.h"
#include "model/form/form_bound.h"
#include "model/form/form_rows.h"
#include "model/plan/attention.h"

static const struct form_row rows[] = {
    { "model", ROW_READ, NULL }, { "model_class", ROW_READ, NULL }, { "cutoff_len", ROW_READ, NULL }, { "micro_batch_size", ROW_READ, NULL },
    { "global_batch_size", ROW_READ, NULL }, { "max_grad_norm", ROW_READ, NULL }, { "bf16", ROW_READ, NULL },
    { "enable_activation_checkpointing", ROW_READ, NULL }, { "flash_attn", ROW_READ, NULL }, { "batching_strategy", ROW_READ, NULL },
    { "dist_config.name", ROW_READ, NULL }, { "dist_config.config_file", ROW_READ, NULL }, { "dist_config.reshard_after_forward", ROW_READ, NULL }, { "dist_config.offload_params", ROW_READ, NULL },
    { "dist_config.pin_memory", ROW_READ, NULL }, { "dist_config.dcp_path", ROW_SILENT, NULL }, { "mp_replicate_size", ROW_READ, NULL },
    { "mp_shard_size", ROW_READ, NULL }, { "dp_size", ROW_READ, NULL }, { "dist_timeout", ROW_SILENT, NULL },
    { "cp_size", ROW_READ, NULL }, { "cp_mode", ROW_SILENT, NULL }, { "kernel_config.name", ROW_READ, NULL },
    { "peft_config.*", ROW_REFUSED, "adapters and frozen layers of this form are not planned: each adapter is an FSDP2 unit of its own" },
    { "quant_config.*", ROW_REFUSED, "packed weights of this form are not planned" },
    { "optim_config.*", ROW_REFUSED, "another optimizer than AdamW is not planned of this form" },
    { "export_dir", ROW_REFUSED, "the file merges adapters: nothing trains" },
    { "init_config.*", ROW_SILENT, NULL }, { "train_dataset", ROW_SILENT, NULL }, { "eval_dataset", ROW_SILENT, NULL }, { "output_dir", ROW_SILENT, NULL },
    { "learning_rate", ROW_SILENT, NULL }, { "num_train_epochs", ROW_SILENT, NULL }, { "max_steps", ROW_SILENT, NULL }, { "seed", ROW_SILENT, NULL },
    { "batching_workers", ROW_SILENT, NULL }, { "lr_scheduler_config.*", ROW_SILENT, NULL }, { "full_determinism", ROW_MATTERS, "deterministic kernels take longer" },
    { "save_steps", ROW_SILENT, NULL }, { "save_epochs", ROW_SILENT, NULL }, { "save_ckpt_as_hf", ROW_SILENT, NULL }, { "save_total_limit", ROW_SILENT, NULL },
    { "logging_steps", ROW_SILENT, NULL }, { "resume_from_checkpoint", ROW_SILENT, NULL }, { "custom_chat_template", ROW_SILENT, NULL },
    { "trust_remote_code", ROW_SILENT, NULL }, { "sample_backend", ROW_SILENT, NULL }, { "max_new_tokens", ROW_SILENT, NULL },
    { "pref_loss", ROW_REFUSED, "preference training holds a second model, and two sequences of a sample" },
};

static bool claims(const struct form_file *f) { return recipe_is_factorys_second(f->doc); }

static const char *model(const struct form_file *f) { return json_string_value(form_value(f->doc, "model")); }

static int check(const struct form_file *f)
{
    const char *of = json_string_value(form_value(f->doc, "model_class"));

    return of && strcmp(of, "llm") ? fail("%s: model_class: %.40s is not planned: llm is", f->path, of) : 0;
}

struct batch { int64_t seq, micro, steps; };

static struct batch read_batch(struct form_reading *r, const struct plan *p)
{
    int64_t micro = p->micro_batch > 0 ? p->micro_batch : form_count(r, "micro_batch_size", 1), ranks = p->cluster.world_size;
    int64_t global = form_count(r, "global_batch_size", micro * ranks);
    static const char *const strategies[] = { "normal", "padding_free", "dynamic_batching", "dynamic_padding_free", NULL };

    if (form_word(r, "batching_strategy", strategies, 0) > 0)
        notes_add(r->notes, "batching_strategy: planned are micro_batch_size samples of cutoff_len tokens");
    if (p->accumulation == 0 && global % (micro * ranks))
        form_fail(r, "global_batch_size: %lld is not a multiple of micro_batch_size %lld x %lld ranks", (long long)global, (long long)micro, (long long)ranks);
    return (struct batch){ form_count(r, "cutoff_len", 2048), micro, global >= micro * ranks ? global / (micro * ranks) : 1 };
}

static void set_batch(struct form_reading *r, struct batch b)
{
    form_set(r, "seq", json_integer(b.seq));
    form_set(r, "micro_batch", json_integer(b.micro));
    form_set(r, "accumulation", json_integer(b.steps));
    form_set(r, "sync_every_micro_step", json_true());
}

/* v1/accelerator/interface.py, DistributedStrategy: two meshes, each of all ranks; a size that is not given is what is left. */
static void check_meshes(struct form_reading *r, int64_t ranks)
{
    static const char *const pairs[][2] = { { "mp_replicate_size", "mp_shard_size" }, { "cp_size", "dp_size" } };

    for (size_t i = 0; i < 2 && ranks > 1; i++) {
        int64_t one = form_count(r, pairs[i][0], 1), other = form_count(r, pairs[i][1], 0);
        if (other > 0 && one * other != ranks)
            form_fail(r, "%s: %lld x %s %lld are not the cluster's %lld GPUs, where LLaMA-Factory stops", pairs[i][1], (long long)other, pairs[i][0], (long long)one,
                      (long long)ranks);
    }
}

static void read_sharing(struct form_reading *r, const struct plan *p, bool fsdp)
{
    int64_t replicate = form_count(r, "mp_replicate_size", 1);
    bool reshards = form_true(r, "dist_config.reshard_after_forward", true), half = form_true(r, "bf16", true);

    check_meshes(r, p->cluster.world_size);
    form_set(r, "strategy", json_string(fsdp ? "fsdp" : "ddp"));
    form_set(r, "dialect", json_string("torch"));
    form_set(r, "precision", json_string(fsdp && half ? "bf16" : "fp32"));
    if (!fsdp) {
        notes_add(r->notes, "without dist_config the model trains in fp32, whatever bf16 says");
        return;
    }
    form_set(r, "reduce_dtype", json_string("fp32"));
    form_set(r, "fsdp.reshard_after_forward", json_boolean(reshards));
    form_set(r, "fsdp.root_reshard_after_forward", json_boolean(reshards));
    if (form_true(r, "dist_config.offload_params", false)) {
        form_set(r, "fsdp.cpu_offload", json_true());
        form_set(r, "fsdp.pin_memory", json_boolean(form_true(r, "dist_config.pin_memory", true)));
    }
    if (p->cluster.world_size % replicate)
        form_fail(r, "mp_replicate_size: %lld does not divide the cluster's %lld GPUs", (long long)replicate, (long long)p->cluster.world_size);
    else if (replicate > 1)
        form_set(r, "shard_group", json_integer(p->cluster.world_size / replicate));
    if (!p->model.tied)
        form_set(r, "fsdp.root_units", json_string("embed"));
}

/* plugins/model_plugins/kernels/liger_kernel_ops.py: of models that plans have it knows Qwen3, and leaves others as they are.  A model that trains has
 * its logits (require_logits), so the loss that it makes is Liger-Kernel's of logits, within what form_bound() says of it. */
static void read_liger(struct form_reading *r, const struct model *m)
{
    static const char *const keys[] = { "liger.rope", "liger.rms_norm", "liger.glu_activation" }, *const types[] = { "qwen3", "qwen3_moe" };
    bool known = false;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)       /* _LIGER_FN_BY_MODEL_TYPE */
        known = known || !strcmp(m->family, types[i]);
    if (!known) {
        notes_add(r->notes, "kernel_config.name: liger_kernel: LLaMA-Factory has no Liger kernels for %s and leaves the model as it is", m->family);
        return;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        form_set(r, keys[i], json_true());
}

/* ---- dist_config: deepspeed ---- */

/* plugins/model_plugins/deepspeed_utils.py, infer_deepspeed_mixed_precision(): bf16, unless the config says that it is off; never fp16. */
static int settle_config(json_t *ds, const char *path, struct plan *p)
{
    const json_t *fp16 = json_object_get(json_object_get(ds, "fp16"), "enabled"), *bf16 = json_object_get(json_object_get(ds, "bf16"), "enabled");

    for (size_t i = 0; i < 2; i++) {        /* accelerate's _prepare_deepspeed() */
        static const char *const own[] = { "optimizer", "scheduler" };
        if (json_object_get(ds, own[i]))
            return fail("%s: %s: LLaMA-Factory's second form makes one of its own, and accelerate refuses two (\"You cannot specify %s in the config "
                        "file and in the code at the same time\")", path, own[i], i ? "a scheduler" : "an optimizer");
    }
    if (json_is_true(fp16))
        return fail("%s: fp16: LLaMA-Factory's second form refuses it (\"DeepSpeed only supports bf16 mixed precision for now\")", path);
    bool on = json_is_true(bf16) || (!json_is_false(bf16) && !json_is_false(fp16));
    json_object_set_new(ds, "fp16", json_pack("{s:b}", "enabled", 0));
    json_object_set_new(ds, "bf16", json_pack("{s:b}", "enabled", on));
    p->precision = on ? DT_BF16 : DT_FP32;
    return 0;
}

/* plugins/trainer_plugins/distributed/deepspeed.py: accelerate's DeepSpeedPlugin around torch.optim.AdamW of one group; the config clips.  With
 * stage 3 the model is loaded under zero.Init. */
static int read_deepspeed(const struct form_file *f, struct batch b, struct plan *p, struct notes *notes)
{
    const char *name = json_string_value(form_value(f->doc, "dist_config.config_file"));
    char path[512];

    if (!name || strlen(name) >= sizeof path)
        return fail("%s: dist_config.config_file: DeepSpeed's config is required", f->path);
    files_find_above(f->path, name, path, sizeof path);
    json_t *ds = files_read_json_file(path);
    if (!ds)
        return -1;
    p->micro_batch = b.micro;
    p->accumulation = p->accumulation > 0 ? p->accumulation : b.steps;
    p->seq = p->seq > 0 ? p->seq : b.seq;
    int rc = settle_config(ds, path, p);
    rc = rc < 0 ? -1 : ds_config_read(ds, f->path, p, notes);
    json_decref(ds);
    if (rc < 0)
        return -1;
    if (p->strategy == STRAT_DDP)
        return fail("%s: dist_config.config_file: DeepSpeed's stage 0 is not planned of this form: stages 1 to 3", f->path);
    p->ds.zero_init = p->strategy == STRAT_ZERO3;
    if (p->ds.offload_optimizer.device == OFFLOAD_NONE)     /* else accelerate makes it DeepSpeedCPUAdam */
        p->optimizer_form = OPTIMIZER_FOREACH;
    for (size_t i = 0; i < 2; i++) {
        static const char *const others[] = { "max_grad_norm", "bf16" };
        if (form_value(f->doc, others[i]))
            notes_add(notes, "%s is not followed: with DeepSpeed its own config says it", others[i]);
    }
    return 0;
}

/* What the others set in a plan's JSON, of one that is read already. */
static int end_deepspeed(struct form_reading *r, struct batch b, int attention, struct plan *p)
{
    int rc = r->failed ? -1 : read_deepspeed(r->file, b, p, r->notes);

    if (rc == 0) {
        p->kernels = attention == 2 ? KERNELS_TORCH_EAGER : KERNELS_TORCH_SDPA;
        p->recompute = form_true(r, "enable_activation_checkpointing", true) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        p->recompute_interval = 1;
        p->loss = LOSS_FP32;
        form_list_rest(r->file, rows, FORM_COUNT(rows), r->notes);
        plan_resolve(p);
        rc = r->failed ? -1 : plan_check(p, r->file->path);
    }
    json_decref(r->plan);
    return rc;
}

static int end(struct form_reading *r, struct batch b, int attention, struct plan *p)
{
    read_sharing(r, p, form_value(r->file->doc, "dist_config.name") && p->cluster.world_size > 1);
    set_batch(r, b);
    form_set(r, "kernels", json_string(attention == 2 ? "torch-eager" : "torch-sdpa"));
    form_set(r, "loss", json_string("fp32"));
    form_set(r, "optimizer_form", json_string("foreach"));
    form_set(r, "clip", json_real(form_number(r, "max_grad_norm", 1)));
    if (form_true(r, "enable_activation_checkpointing", true))
        form_set(r, "recompute", json_string("full"));
    return form_end(r, p);
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const engines[] = { "fsdp2", "deepspeed", NULL }, *const kernels[] = { "auto", "liger_kernel", NULL };
    static const char *const attentions[] = { "sdpa", "flash_attention_2", "eager", NULL };
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    bool deepspeed = form_word(&r, "dist_config.name", engines, 0) == 1;
    if (form_word(&r, "kernel_config.name", kernels, 0) == 1)
        read_liger(&r, &p->model);
    int attention = form_word(&r, "flash_attn", attentions, 0);
    if (form_count(&r, "cp_size", 1) > 1)
        form_fail(&r, "cp_size: positions of one sample on several ranks are not planned of this form");
    if (p->model.experts > 0)
        form_fail(&r, "kernel_config: a mixture's kernels of this form are not planned");
    struct batch b = read_batch(&r, p);
    int rc = deepspeed ? end_deepspeed(&r, b, attention, p) : end(&r, b, attention, p);
    if (rc == 0 && attention == 1 && attention_takes(p, ATTENTION_BY_FLASH_2))
        p->attention = ATTENTION_BY_FLASH_2;
    else if (rc == 0 && attention == 1)
        notes_add(notes, "flash_attn: planned with PyTorch's scaled_dot_product_attention, whose fused kernels keep as much");
    return rc < 0 ? -1 : form_bound(f, p, 3 * 4 * (double)p->micro_batch * (double)p->seq * (double)p->model.vocab,
                                    "loss: the model makes one of its own beside the trainer's, which copies the logits in fp32 twice", notes);
}

const struct form form_factory1 = {
    .name = "LLaMA-Factory v1", .sign = "model with train_dataset, dist_config, kernel_config or quant_config",
    .claims = claims, .check = check, .model = model, .read = read, .allocator = form_factorys_allocator, .rows = rows, .nrows = FORM_COUNT(rows),
};
