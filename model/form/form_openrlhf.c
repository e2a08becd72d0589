/* form_openrlhf.c -- OpenRLHF's supervised training and reward models (openrlhf.cli.train_sft, train_rm): a command whose options have sections (--ds.zero_stage, 0.10 and
 * later) or none (--zero_stage, before).  Its other programs are refused.
 *
 * It is DeepSpeed with the config of openrlhf/utils/deepspeed/deepspeed_utils.py, which is made here and read as any other. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/transformer.h"
#include "model/exchange/ds_config.h"
#include "model/form/form_rows.h"

/* Names with their sections, and those before. */
static const char *const names[][2] = {
    { "model.model_name_or_path", "pretrain" }, { "data.max_len", "max_len" }, { "train.batch_size", "train_batch_size" },
    { "train.micro_batch_size", "micro_train_batch_size" }, { "ds.zero_stage", "zero_stage" }, { "ds.param_dtype", "param_dtype" },
    { "ds.adam_offload", "adam_offload" }, { "ds.overlap_comm", "overlap_comm" }, { "ds.zpg", "zpg" },
    { "ds.grad_accum_dtype", "grad_accum_dtype" }, { "model.gradient_checkpointing_enable", "gradient_checkpointing" },
    { "max_norm", "max_norm" }, { "ds.lora.rank", "lora_rank" }, { "ds.lora.alpha", "lora_alpha" }, { "ds.lora.target_modules", "target_modules" },
    { "ds.lora.dropout", "lora_dropout" }, { "ds.load_in_4bit", "load_in_4bit" }, { "bf16", "bf16" },
    { "ds.attn_implementation", "attn_implementation" },
};
enum { MODEL, LENGTH, BATCH, MICRO, STAGE, DTYPE, OFFLOAD, OVERLAP, HPZ, GRAD_DTYPE, AGAIN, CLIP, RANK, ALPHA, TARGETS, DROPOUT, FOUR, BF16, ATTENTION };

/* Both spellings of what is read, then the rest. */
static const struct form_row rows[] = {
    { "model.model_name_or_path", ROW_READ, NULL }, { "data.max_len", ROW_READ, NULL }, { "train.batch_size", ROW_READ, NULL },
    { "train.micro_batch_size", ROW_READ, NULL }, { "ds.zero_stage", ROW_READ, NULL }, { "ds.param_dtype", ROW_READ, NULL },
    { "ds.adam_offload", ROW_READ, NULL }, { "ds.overlap_comm", ROW_READ, NULL }, { "ds.zpg", ROW_READ, NULL },
    { "ds.grad_accum_dtype", ROW_READ, NULL }, { "model.gradient_checkpointing_enable", ROW_READ, NULL }, { "max_norm", ROW_READ, NULL },
    { "ds.lora.rank", ROW_READ, NULL }, { "ds.lora.alpha", ROW_READ, NULL }, { "ds.lora.target_modules", ROW_READ, NULL },
    { "ds.lora.dropout", ROW_READ, NULL }, { "ds.load_in_4bit", ROW_READ, NULL }, { "bf16", ROW_READ, NULL },
    { "pretrain", ROW_READ, NULL }, { "max_len", ROW_READ, NULL }, { "train_batch_size", ROW_READ, NULL },
    { "micro_train_batch_size", ROW_READ, NULL }, { "zero_stage", ROW_READ, NULL }, { "param_dtype", ROW_READ, NULL },
    { "adam_offload", ROW_READ, NULL }, { "overlap_comm", ROW_READ, NULL }, { "zpg", ROW_READ, NULL },
    { "grad_accum_dtype", ROW_READ, NULL }, { "gradient_checkpointing", ROW_READ, NULL }, { "lora_rank", ROW_READ, NULL },
    { "lora_alpha", ROW_READ, NULL }, { "target_modules", ROW_READ, NULL }, { "lora_dropout", ROW_READ, NULL },
    { "load_in_4bit", ROW_READ, NULL }, { "ds.use_liger_kernel", ROW_REFUSED, "Liger-Kernel's layers are not planned of this form" },
    { "use_liger_kernel", ROW_REFUSED, "Liger-Kernel's layers are not planned of this form" }, { "ds_tensor_parallel_size", ROW_READ, NULL },
    { "deepcompile", ROW_REFUSED, "DeepCompile's passes are not planned" }, { "torch_compile", ROW_REFUSED, "compiled models are not planned of this form" },
    { "aux_loss_coef", ROW_MATTERS, "a loss that balances experts" }, { "full_determinism", ROW_MATTERS, "deterministic kernels, which take longer" },
    { "gradient_checkpointing_use_reentrant", ROW_SILENT, NULL }, { "pretrain_mode", ROW_SILENT, NULL }, { "multiturn", ROW_SILENT, NULL },
    { "save_hf_ckpt", ROW_SILENT, NULL }, { "disable_ds_ckpt", ROW_SILENT, NULL }, { "use_ds_universal_ckpt", ROW_SILENT, NULL },
    { "max_ckpt_num", ROW_SILENT, NULL }, { "max_ckpt_mem", ROW_SILENT, NULL }, { "disable_fast_tokenizer", ROW_SILENT, NULL },
    { "dataset_probs", ROW_SILENT, NULL }, { "eval_dataset", ROW_SILENT, NULL }, { "eval_split", ROW_SILENT, NULL }, { "train_split", ROW_SILENT, NULL },
    { "tokenizer_chat_template", ROW_SILENT, NULL }, { "wandb_org", ROW_SILENT, NULL }, { "wandb_group", ROW_SILENT, NULL },
    { "wandb_project", ROW_SILENT, NULL }, { "wandb_run_name", ROW_SILENT, NULL }, { "use_tensorboard", ROW_SILENT, NULL },
    { "ds.tensor_parallel_size", ROW_READ, NULL }, { "ds.ring_attn_size", ROW_READ, NULL }, { "ring_attn_size", ROW_READ, NULL },
    { "ds.deepcompile", ROW_REFUSED, "DeepCompile's passes are not planned" },
    { "ref.offload", ROW_MATTERS, "the reference model waits in host memory" },
    { "model.aux_loss_coef", ROW_MATTERS, "a loss that balances experts" }, { "ckpt.*", ROW_SILENT, NULL },
    { "logger.*", ROW_SILENT, NULL }, { "eval.*", ROW_SILENT, NULL }, { "adam.*", ROW_SILENT, NULL }, { "muon.*", ROW_SILENT, NULL },
    { "data.dataset", ROW_SILENT, NULL }, { "data.dataset_split", ROW_SILENT, NULL }, { "data.max_samples", ROW_SILENT, NULL },
    { "data.multiturn", ROW_SILENT, NULL }, { "data.input_key", ROW_SILENT, NULL }, { "data.output_key", ROW_SILENT, NULL },
    { "data.input_template", ROW_SILENT, NULL }, { "data.apply_chat_template", ROW_SILENT, NULL },
    { "data.tokenizer_chat_template", ROW_SILENT, NULL }, { "data.disable_fast_tokenizer", ROW_SILENT, NULL },
    { "data.chosen_key", ROW_SILENT, NULL }, { "data.rejected_key", ROW_SILENT, NULL }, { "data.prompt_key", ROW_SILENT, NULL },
    { "data.dataset_probs", ROW_SILENT, NULL }, { "data.num_workers", ROW_SILENT, NULL }, { "lr_scheduler", ROW_SILENT, NULL },
    { "lr_warmup_ratio", ROW_SILENT, NULL }, { "min_lr_ratio", ROW_SILENT, NULL }, { "train.max_epochs", ROW_SILENT, NULL },
    { "train.seed", ROW_SILENT, NULL }, { "local_rank", ROW_SILENT, NULL }, { "use_ms", ROW_SILENT, NULL },
    { "ds.packing_samples", ROW_SILENT, NULL }, { "ds.attn_implementation", ROW_READ, NULL },
    { "ds.use_universal_ckpt", ROW_SILENT, NULL }, { "model.beta", ROW_SILENT, NULL }, { "model.label_smoothing", ROW_SILENT, NULL },
    { "model.ipo_enable", ROW_SILENT, NULL }, { "model.nll_loss_coef", ROW_SILENT, NULL },
    { "model.pretrain_mode_enable", ROW_SILENT, NULL }, { "model.gradient_checkpointing_reentrant", ROW_SILENT, NULL },
    { "model.loss_type", ROW_SILENT, NULL }, { "optim", ROW_READ, NULL }, { "optimizer", ROW_READ, NULL }, { "save_path", ROW_SILENT, NULL },
    { "save_steps", ROW_SILENT, NULL }, { "ckpt_path", ROW_SILENT, NULL }, { "logging_steps", ROW_SILENT, NULL },
    { "eval_steps", ROW_SILENT, NULL }, { "load_checkpoint", ROW_SILENT, NULL }, { "max_epochs", ROW_SILENT, NULL },
    { "learning_rate", ROW_SILENT, NULL }, { "dataset", ROW_SILENT, NULL }, { "dataset_split", ROW_SILENT, NULL },
    { "input_key", ROW_SILENT, NULL }, { "output_key", ROW_SILENT, NULL }, { "input_template", ROW_SILENT, NULL },
    { "max_samples", ROW_SILENT, NULL }, { "packing_samples", ROW_SILENT, NULL }, { "flash_attn", ROW_SILENT, NULL },
    { "attn_implementation", ROW_READ, NULL }, { "apply_chat_template", ROW_SILENT, NULL }, { "beta", ROW_SILENT, NULL },
    { "use_wandb", ROW_SILENT, NULL }, { "chosen_key", ROW_SILENT, NULL }, { "rejected_key", ROW_SILENT, NULL },
    { "seed", ROW_SILENT, NULL }, { "l2", ROW_SILENT, NULL }, { "adam_betas", ROW_SILENT, NULL },
};

static const json_t *said(const struct form_file *f, int which)
{
    const json_t *v = form_value(f->doc, names[which][0]);

    return v ? v : form_value(f->doc, names[which][1]);
}

bool form_openrlhf_runs(const struct form_file *f, const char *what)
{
    char module[64];

    snprintf(module, sizeof module, "openrlhf.cli.%s", what);
    if (form_runs(f, module))
        return true;
    snprintf(module, sizeof module, "openrlhf/cli/%s.py", what);
    if (form_runs(f, module))
        return true;
    snprintf(module, sizeof module, "%s.py", what);         /* before 0.3 they lay in examples/; the batch's name is no other program's */
    return form_runs(f, module) && form_value(f->doc, "micro_train_batch_size");
}

static bool claims(const struct form_file *f)
{
    static const char *const all[] = { "train_sft", "train_dpo", "train_rm", "train_kto", "train_kd", "train_ppo_ray", "train_prm" };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (form_openrlhf_runs(f, all[i]))
            return true;
    return false;
}

static const char *model(const struct form_file *f)
{
    const char *name = json_string_value(said(f, MODEL));

    return name ? name : json_string_value(form_value(f->doc, "actor.model_name_or_path"));
}

static int64_t count(const struct form_file *f, int which, int64_t usual)
{
    const json_t *v = said(f, which);

    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= PLAN_MAX_BATCH ? (int64_t)json_integer_value(v) : usual;
}

/* As get_train_ds_config() makes it. */
static json_t *config(const struct form_file *f, const struct plan *p)
{
    const char *dtype = json_string_value(said(f, DTYPE)), *wide = json_string_value(said(f, GRAD_DTYPE));
    bool half = dtype && !strcmp(dtype, "fp16");
    const json_t *clip = said(f, CLIP);
    json_t *zero = json_pack("{s:I, s:{s:s, s:b}, s:I}", "stage", (json_int_t)count(f, STAGE, 2), "offload_optimizer", "device",
                             said(f, OFFLOAD) ? "cpu" : "none", "pin_memory", 1, "zero_hpz_partition_size", (json_int_t)count(f, HPZ, 1));
    json_t *ds = json_pack("{s:o, s:{s:b}, s:f, s:I, s:I}", "zero_optimization", zero, half ? "fp16" : "bf16", "enabled", 1, "gradient_clipping",
                           json_is_number(clip) ? json_number_value(clip) : 1.0, "train_micro_batch_size_per_gpu", (json_int_t)p->micro_batch,
                           "gradient_accumulation_steps", (json_int_t)p->accumulation);

    if (said(f, OVERLAP)) {
        json_object_set_new(zero, "overlap_comm", json_true());
        json_object_set_new(zero, "contiguous_gradients", json_true());
    }
    if (wide)
        json_object_set_new(ds, "data_types", json_pack("{s:s}", "grad_accum_dtype", wide));
    return ds;
}

static int read_training(const struct form_file *f, struct plan *p)
{
    const json_t *targets = said(f, TARGETS), *alpha = said(f, ALPHA), *dropout = said(f, DROPOUT);
    struct training t = training_default();
    const char *name = json_string_value(targets);

    if (count(f, RANK, 0) == 0 && said(f, FOUR))        /* models/actor.py loads the base in codes, whether adapters train or not */
        return fail("%s: ds.load_in_4bit: weights in NF4 without adapters (ds.lora.rank), which take no gradient, are not planned", f->path);
    if (count(f, RANK, 0) == 0)
        return training_apply(&p->model, &t, f->path);
    strcpy(t.what, "lora");
    t.rank = count(f, RANK, 0);
    t.alpha = json_is_number(alpha) ? json_number_value(alpha) : 16;
    t.dropout = json_is_number(dropout) ? json_number_value(dropout) : 0;
    snprintf(t.target_modules, sizeof t.target_modules, "%s", name ? name : json_is_array(targets) ? "" : "all-linear");
    for (size_t i = 0, n = 0; i < json_array_size(targets); i++)
        n += (size_t)snprintf(t.target_modules + n, sizeof t.target_modules - n, "%s%.40s", i ? "," : "",
                              json_string_value(json_array_get(targets, i)) ? json_string_value(json_array_get(targets, i)) : "");
    t.base = said(f, FOUR) ? BASE_NF4_DOUBLE : BASE_PLAIN;
    return training_apply(&p->model, &t, f->path);
}

/* What would change who holds what, and is not planned: -1 reported. */
static int check_unplanned(const struct form_file *f)
{
    static const int counts[] = { LENGTH, BATCH, MICRO, STAGE, HPZ, RANK }, numbers[] = { CLIP, ALPHA, DROPOUT };
    static const char *const shared[] = { "ds.tensor_parallel_size", "ds_tensor_parallel_size", "ds.ring_attn_size", "ring_attn_size" };
    static const char *const optimizers[] = { "optim", "optimizer" };              /* the second: of its forks */
    const char *dtype = json_string_value(said(f, DTYPE));

    if (dtype && strcmp(dtype, "bf16") != 0 && strcmp(dtype, "fp16") != 0)         /* convert_to_torch_dtype() */
        return fail("%s: param_dtype: \"%.40s\" is not one of OpenRLHF's: bf16, fp16", f->path, dtype);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *v = said(f, counts[i]);
        if (v && (!json_is_integer(v) || json_integer_value(v) < (counts[i] == RANK ? 0 : 1) || json_integer_value(v) > PLAN_MAX_BATCH))
            return fail("%s: %s: expected a whole number from %d to %d", f->path, names[counts[i]][form_value(f->doc, names[counts[i]][0]) ? 0 : 1],
                        counts[i] == RANK ? 0 : 1, (int)PLAN_MAX_BATCH);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (said(f, numbers[i]) && !json_is_number(said(f, numbers[i])))
            return fail("%s: %s: expected a number", f->path, names[numbers[i]][form_value(f->doc, names[numbers[i]][0]) ? 0 : 1]);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (json_number_value(form_value(f->doc, shared[i])) > 1)
            return fail("%s: %s: ranks that share a sample are not planned of OpenRLHF", f->path, shared[i]);
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const json_t *v = form_value(f->doc, optimizers[i]);
        const char *name = json_is_string(v) ? json_string_value(v) : "";
        if (v && strcasecmp(name, "adam") != 0 && (i == 0 || strcasecmp(name, "adamw") != 0))
            return fail("%s: %s: \"%.40s\" is not modelled: adam", f->path, optimizers[i], name);
    }
    return 0;
}

/* Other programs than train_sft and train_rm run a second model, or one with another head. */
static int check(const struct form_file *f)
{
    if (form_openrlhf_runs(f, "train_prm"))
        return fail("%s: openrlhf: a reward for each step of a response, a head of the vocabulary with a loss of its own, is not planned: train_sft and train_rm are", f->path);
    if (form_openrlhf_runs(f, "train_ppo_ray"))
        return fail("%s: openrlhf: train_ppo_ray has several models that take turns: dpxplan phases plans them", f->path);
    return form_openrlhf_runs(f, "train_sft") || form_openrlhf_runs(f, "train_rm") ? 0 : fail("%s: openrlhf: a step with a second model on the same GPUs is not planned: train_sft and train_rm are", f->path);
}

/* train_rm: the head is one number (models/model.py: get_llm_for_sequence_regression()), and each sample two sequences in one batch
 * (trainer/rm_trainer.py: concatenated_forward()). */
static int as_pairs(const struct form_file *f, struct plan *p, struct notes *notes)
{
    struct model scored;

    if (json_number_value(said(f, RANK)) > 0)
        return fail("%s: ds.lora.rank: adapters beside a reward model's head, which PEFT would freeze without being told, are not planned of OpenRLHF", f->path);
    if (model_with_head(&p->model, HEAD_SCORE, &scored) < 0)
        return -1;
    model_free(&p->model);
    p->model = scored;
    notes_add(notes, "each sample is a chosen and a rejected sequence, which run as one batch");
    return 0;
}

/* models/actor.py casts logits to fp32, log_probs_from_logits() has flash-attn's cross-entropy of them, and the loop's `output` names them: beside their gradient
 * and its cast 2.5 copies.  Before 0.7 (12 April 2025) GPTLMLoss had nn.CrossEntropyLoss over them: four, with log_softmax's result and two gradients. */
static void put_loss(const struct form_file *f, struct plan *p, struct notes *notes)
{
    p->loss = LOSS_FUSED_FP32;
    p->logits_kept = LOGITS_IN_FP32;
    if (form_value(f->doc, names[MODEL][1]))
        notes_add(notes, "%s: an option of before 0.10: the loss is planned as since 0.7 (April 2025); before, nn.CrossEntropyLoss held 1.5 copies of the logits "
                  "more, %.3g GB", names[MODEL][1], 1.5 * (double)(p->micro_batch * p->seq) * (double)p->model.vocab * 4 / 1e9);
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    bool pairs = form_openrlhf_runs(f, "train_rm");
    int64_t global = count(f, BATCH, 128) * (pairs ? 2 : 1), micro = pairs ? 2 * count(f, MICRO, 1) : count(f, MICRO, 8), ranks = p->cluster.world_size;

    if (check_unplanned(f) < 0 || (pairs && as_pairs(f, p, notes) < 0))
        return -1;
    if (global % (micro * ranks))
        return fail("%s: train.batch_size: %lld is not a multiple of micro_batch_size %lld x %lld GPUs", f->path, (long long)global, (long long)micro,
                    (long long)ranks);
    if (p->accumulation == 0)
        p->accumulation = global / (micro * ranks);
    if (p->micro_batch == 0)
        p->micro_batch = micro;
    if (p->seq == 0)
        p->seq = count(f, LENGTH, pairs ? 512 : 2048);
    if (read_training(f, p) < 0)
        return -1;
    json_t *ds = config(f, p);
    int rc = ds_config_read(ds, f->path, p, notes);
    json_decref(ds);
    if (rc < 0)
        return -1;
    p->recompute = said(f, AGAIN) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    p->recompute_interval = 1;
    if (!pairs)
        put_loss(f, p, notes);
    const char *attention = json_string_value(said(f, ATTENTION));
    if (attention && !strcmp(attention, "eager"))
        p->kernels = KERNELS_TORCH_EAGER;
    form_list_rest(f, rows, FORM_COUNT(rows), notes);
    p->ds.zero_init = p->strategy == STRAT_ZERO3;       /* HfDeepSpeedConfig (models/actor.py, models/model.py) */
    if (training_is_all(&p->train) && p->strategy != STRAT_DDP && !deepspeed_groups_beside(p))
        p->ds.decay_groups = true;                      /* get_optimizer_grouped_parameters() */
    plan_resolve(p);
    form_put_attention(p, names[ATTENTION][0], attention ? attention : "flash_attention_2", notes);
    return plan_check(p, f->path);
}

const struct form form_openrlhf = {
    .name = "OpenRLHF", .sign = "a command of openrlhf.cli.train_sft, train_rm or train_ppo_ray",
    .claims = claims, .check = check, .model = model, .read = read, .rows = rows, .nrows = FORM_COUNT(rows),
};
