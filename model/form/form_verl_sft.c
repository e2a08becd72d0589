/* form_verl_sft.c -- verl's supervised fine-tuning (verl.trainer.fsdp_sft_trainer, August 2026): a command of hydra's words over
 * verl/trainer/config/sft_trainer.yaml, whose values are the defaults here.
 *
 * FSDP2 (or FSDP1) over all ranks: weights in model_dtype (fp32), compute in bf16, gradients reduced in fp32, blocks recomputed, the root gathered
 * again in backward.  data.train_batch_size samples a step, over all ranks; the loss is a cross-entropy in fp32 (autocast) of shifted logits. */
#include <string.h>

#include "base/fail.h"
#include "model/form/form_verl.h"

static const struct form_row rows[] = {
    { "model.partial_pretrain", ROW_READ, NULL }, { "model.strategy", ROW_READ, NULL }, { "model.enable_gradient_checkpointing", ROW_READ, NULL },
    { "model.fsdp_config.model_dtype", ROW_READ, NULL }, { "model.fsdp_config.cpu_offload", ROW_REFUSED, "parameters on the host are not read of this form" },
    { "model.fsdp_config.offload_params", ROW_REFUSED, "parameters on the host are not read of this form" },
    { "model.fsdp_config.wrap_policy.min_num_params", ROW_REFUSED, "units of a size are not read: blocks are units" },
    { "model.lora_rank", ROW_READ, NULL }, { "model.lora_alpha", ROW_READ, NULL }, { "model.target_modules", ROW_READ, NULL },
    { "model.lora_adapter_path", ROW_REFUSED, "adapters train, and what they are is in that folder: give lora_rank and target_modules" },
    { "model.use_liger", ROW_READ, NULL }, { "model.trust_remote_code", ROW_SILENT, NULL },
    { "model.external_lib", ROW_SILENT, NULL }, { "model.use_shm", ROW_SILENT, NULL },
    { "ulysses_sequence_parallel_size", ROW_READ, NULL }, { "use_remove_padding", ROW_READ, NULL },
    { "data.train_batch_size", ROW_READ, NULL }, { "data.micro_batch_size_per_gpu", ROW_READ, NULL }, { "data.micro_batch_size", ROW_READ, NULL },
    { "data.max_length", ROW_READ, NULL }, { "data.train_files", ROW_SILENT, NULL }, { "data.val_files", ROW_SILENT, NULL },
    { "data.prompt_key", ROW_SILENT, NULL }, { "data.response_key", ROW_SILENT, NULL }, { "data.prompt_dict_keys", ROW_SILENT, NULL },
    { "data.response_dict_keys", ROW_SILENT, NULL }, { "data.multiturn.*", ROW_SILENT, NULL }, { "data.truncation", ROW_SILENT, NULL },
    { "data.balance_dp_token", ROW_SILENT, NULL }, { "data.custom_cls.*", ROW_SILENT, NULL }, { "data.train_max_samples", ROW_SILENT, NULL },
    { "data.val_max_samples", ROW_SILENT, NULL }, { "data.chat_template", ROW_SILENT, NULL }, { "data.use_shm", ROW_SILENT, NULL },
    { "optim.clip_grad", ROW_READ, NULL }, { "optim.lr", ROW_SILENT, NULL }, { "optim.betas", ROW_SILENT, NULL }, { "optim.weight_decay", ROW_SILENT, NULL },
    { "optim.lr_warmup_steps_ratio", ROW_SILENT, NULL }, { "optim.lr_scheduler", ROW_SILENT, NULL }, { "optim.warmup_steps_ratio", ROW_SILENT, NULL },
    { "trainer.*", ROW_SILENT, NULL },
};

/* verl.trainer.sft_trainer, the newer one, has its engine and the model's path where this form has model.strategy and model.partial_pretrain. */
static bool of_engines(const struct form_file *f)
{
    return form_runs(f, "verl.trainer.sft_trainer") || (form_value(f->doc, "engine") && form_value(f->doc, "model.path") && form_value(f->doc, "optim"));
}

static bool claims(const struct form_file *f)
{
    return form_runs(f, "verl.trainer.fsdp_sft_trainer") || form_value(f->doc, "model.partial_pretrain") || of_engines(f);
}

static const char *model(const struct form_file *f)
{
    const char *named = json_string_value(form_value(f->doc, "model.partial_pretrain"));

    return named ? named : "~/models/gemma-1.1-7b-it";
}

static int check(const struct form_file *f)
{
    return of_engines(f) ? fail("%s: verl's trainer of engines (verl.trainer.sft_trainer) is not read: verl.trainer.fsdp_sft_trainer is", f->path) : 0;
}

/* Without padding; with it every rank has whole samples.  Loss: of the tokens that the rank has, without a copy of the logits. */
static bool read_ulysses(struct form_reading *r, const struct plan *p, bool two)
{
    int64_t ranks = form_count(r, "ulysses_sequence_parallel_size", 1);

    if (form_true(r, "use_remove_padding", false))         /* fsdp_sft_trainer.py: use_sp */
        notes_add(r->notes, ranks == 1 ? "use_remove_padding: does nothing where ulysses_sequence_parallel_size is 1: samples are filled up to data.max_length" :
                  "use_remove_padding is not in the plan: samples run without padding: shorter ones than data.max_length take less than planned");
    if (ranks == 1)
        return false;
    if (p->cluster.world_size % ranks)
        form_fail(r, "ulysses_sequence_parallel_size: %lld does not divide the %lld GPUs", (long long)ranks, (long long)p->cluster.world_size);
    if (!form_true(r, "use_remove_padding", false))
        form_fail(r, "ulysses_sequence_parallel_size: verl has it with use_remove_padding alone");
    form_set(r, "parallel.context", json_integer(ranks));
    if (two)                            /* FSDP1 has no other */
        form_set(r, "parallel.context_method", json_string("ulysses"));
    form_set(r, "kernels", json_string("torch-sdpa"));
    return true;
}

static void read_batch(struct form_reading *r, const struct plan *p)
{
    int64_t micro = p->micro_batch > 0 ? p->micro_batch : form_count(r, "data.micro_batch_size_per_gpu", 4);

    if (form_count(r, "data.micro_batch_size", 0) > 0)
        notes_add(r->notes, "data.micro_batch_size: verl's trainer reads data.micro_batch_size_per_gpu alone (4 where it is not given)");
    form_set(r, "seq", json_integer(form_count(r, "data.max_length", 1024)));
    form_set(r, "micro_batch", json_integer(micro));
    if (p->accumulation == 0)
        form_set(r, "accumulation", json_integer(form_micro_steps(r, p, "data.train_batch_size", form_count(r, "data.train_batch_size", 256), micro)));
}

static void read_adapters(struct form_reading *r)
{
    const json_t *targets = form_value(r->file->doc, "model.target_modules");

    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.rank", json_integer(form_count(r, "model.lora_rank", 8)));
    form_set(r, "lora.alpha", json_real(form_number(r, "model.lora_alpha", 16)));
    form_set(r, "lora.target_modules", targets ? json_deep_copy(targets) : json_string("all-linear"));
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const strategies[] = { "fsdp2", "fsdp", NULL }, *const dtypes[] = { "fp32", "float32", "bf16", "bfloat16", NULL };
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    bool two = form_word(&r, "model.strategy", strategies, 0) == 0, narrow = form_word(&r, "model.fsdp_config.model_dtype", dtypes, 0) > 1;
    bool adapts = form_integer(&r, "model.lora_rank", 0) > 0;
    form_set(&r, "strategy", json_string("fsdp"));
    form_set(&r, "dialect", json_string(two ? "torch" : "torch-fsdp1"));
    form_set(&r, "precision", json_string("bf16"));
    form_set(&r, "reduce_dtype", json_string("fp32"));
    if (two)
        verl_read_units(&r, p, true);
    if (narrow || adapts)                       /* beside adapters bf16 may be usual */
        form_set(&r, "fsdp.model_dtype", json_string(narrow ? "bf16" : "fp32"));
    if (adapts && !two)
        form_set(&r, "fsdp.wrap_adapters", json_true());
    if (adapts)
        read_adapters(&r);
    bool shares = read_ulysses(&r, p, two);
    read_batch(&r, p);
    if (form_true(&r, "model.enable_gradient_checkpointing", true))
        form_set(&r, "recompute", json_string("full"));
    form_set(&r, "loss", json_string("fp32"));
    verl_read_liger(&r, p, "model.use_liger");
    form_set(&r, "optimizer_form", json_string("foreach"));
    form_set(&r, "clip", json_real(form_number(&r, "optim.clip_grad", 1)));
    form_set(&r, "logits_kept", json_string(shares ? "as-made" : "as-made-shifted"));   /* _compute_loss_and_backward() names them, and shift_logits, through backward */
    form_set(&r, "logits_until", json_string("backward"));
    if (form_end(&r, p) < 0)
        return -1;
    form_put_attention(p, "attention", "flash_attention_2", notes);     /* fsdp_sft_trainer.py asks for no other */
    return 0;
}

const struct form form_verl_sft = {
    .name = "verl SFT", .sign = "a command of verl.trainer.fsdp_sft_trainer; model.partial_pretrain",
    .claims = claims, .check = check, .model = model, .read = read, .rows = rows, .nrows = FORM_COUNT(rows),
};
