/* form_torchtune.c -- torchtune's recipes (0.6 and later; recipes/configs/): a YAML whose parts name their class in
 * `_component_`.  Ten recipes of supervised fine-tuning are one plan: FSDP2 over all GPUs (one GPU: no wrapping), every
 * block a unit, weights and states in `dtype`, without autocast. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/form/form_rows.h"

static const struct form_row rows[] = {
    { "model._component_", ROW_READ, NULL },
    { "model.lora_attn_modules", ROW_READ, NULL }, { "model.apply_lora_to_mlp", ROW_READ, NULL }, { "model.apply_lora_to_output", ROW_READ, NULL },
    { "model.lora_rank", ROW_READ, NULL }, { "model.lora_alpha", ROW_READ, NULL }, { "model.lora_dropout", ROW_READ, NULL },
    { "model.quantize_base", ROW_READ, NULL },
    { "model.vocab_size", ROW_READ, NULL }, { "model.num_layers", ROW_READ, NULL }, { "model.num_heads", ROW_READ, NULL }, { "model.num_kv_heads", ROW_READ, NULL },
    { "model.embed_dim", ROW_READ, NULL }, { "model.max_seq_len", ROW_READ, NULL }, { "model.intermediate_dim", ROW_READ, NULL },
    { "model.attn_dropout", ROW_REFUSED, "attention's dropout is not planned of torchtune" }, { "model.norm_eps", ROW_SILENT, NULL }, { "model.rope_base", ROW_SILENT, NULL },
    { "model.use_dora", ROW_READ, NULL },
    { "tokenizer.max_seq_len", ROW_READ, NULL }, { "tokenizer._component_", ROW_SILENT, NULL }, { "tokenizer.path", ROW_SILENT, NULL },
    { "tokenizer.merges_file", ROW_SILENT, NULL }, { "tokenizer.merges_path", ROW_SILENT, NULL }, { "tokenizer.vocab_path", ROW_SILENT, NULL },
    { "tokenizer.prompt_template", ROW_SILENT, NULL }, { "checkpointer.*", ROW_SILENT, NULL },
    { "batch_size", ROW_SETS, "micro_batch" }, { "gradient_accumulation_steps", ROW_SETS, "accumulation" },
    { "dtype", ROW_READ, NULL }, { "optimizer._component_", ROW_READ, NULL }, { "optimizer.fused", ROW_READ, NULL },
    { "optimizer.lr", ROW_SILENT, NULL }, { "optimizer.weight_decay", ROW_SILENT, NULL }, { "optimizer.betas", ROW_SILENT, NULL },
    { "optimizer.eps", ROW_SILENT, NULL }, { "optimizer_in_bwd", ROW_READ, NULL },
    { "clip_grad_norm", ROW_READ, NULL }, { "loss._component_", ROW_READ, NULL }, { "loss.ignore_index", ROW_SILENT, NULL }, { "loss.num_output_chunks", ROW_READ, NULL },
    { "loss.beta", ROW_SILENT, NULL }, { "loss.label_smoothing", ROW_REFUSED, "label smoothing keeps copies of the logits, which are not planned" },
    { "enable_activation_checkpointing", ROW_READ, NULL }, { "enable_activation_offloading", ROW_READ, NULL },
    { "activation_offloading_use_streams", ROW_READ, NULL },
    { "compile", ROW_REFUSED, "torch.compile of each block is not planned in 16-bit training without autocast: compile=False is" },
    { "fsdp_cpu_offload", ROW_READ, NULL }, { "fsdp.cpu_offload", ROW_MATTERS, "the recipe reads fsdp_cpu_offload alone, so nothing waits on the host" }, { "fsdp_reshard_after_forward", ROW_READ, NULL },
    { "custom_sharded_layers", ROW_READ, NULL },
    { "ac_mode", ROW_READ, NULL }, { "ac_option", ROW_READ, NULL },
    { "tensor_parallel_dim", ROW_READ, NULL }, { "tensor_parallel_plan.*", ROW_SILENT, NULL },
    { "context_parallel_dim", ROW_READ, NULL },
    { "data_parallel_replicate_dim", ROW_READ, NULL }, { "data_parallel_shard_dim", ROW_READ, NULL },
    { "enable_fp8_training", ROW_REFUSED, "torchtune's float8 is not planned" }, { "fp8_recipe_name", ROW_SILENT, NULL },
    { "dataset.packed", ROW_READ, NULL }, { "dataset._component_", ROW_SILENT, NULL }, { "dataset.source", ROW_SILENT, NULL },
    { "dataset.data_files", ROW_SILENT, NULL }, { "dataset.split", ROW_SILENT, NULL }, { "dataset.name", ROW_SILENT, NULL }, { "dataset.column", ROW_SILENT, NULL },
    { "dataset.column_map", ROW_SILENT, NULL }, { "dataset.column_map.*", ROW_SILENT, NULL }, { "dataset.conversation_column", ROW_SILENT, NULL },
    { "dataset.conversation_style", ROW_SILENT, NULL }, { "dataset.train_on_input", ROW_SILENT, NULL }, { "dataset.masking_strategy", ROW_SILENT, NULL },
    { "dataset.new_system_prompt", ROW_SILENT, NULL }, { "dataset.split_across_pack", ROW_SILENT, NULL }, { "dataset.add_eos", ROW_SILENT, NULL },
    { "dataset.filter_fn", ROW_SILENT, NULL }, { "dataset.seed", ROW_SILENT, NULL }, { "dataset.partition", ROW_SILENT, NULL }, { "dataset.subset", ROW_SILENT, NULL },
    { "dataset.message_transform.*", ROW_SILENT, NULL }, { "dataset.image_dir", ROW_SILENT, NULL }, { "dataset.image_tag", ROW_SILENT, NULL }, { "dataset_val.*", ROW_SILENT, NULL },
    { "early_exit_loss.*", ROW_REFUSED, "losses of blocks before the last are not planned" }, { "layer_dropout.*", ROW_REFUSED, "blocks that some samples skip are not planned" },
    { "teacher_model.*", ROW_REFUSED, "distillation holds a second model" }, { "quantizer._component_", ROW_READ, NULL }, { "quantizer.groupsize", ROW_READ, NULL },
    { "fake_quant_after_n_steps", ROW_MATTERS, "steps before it round nothing: the plan's steps are those after it" },
    { "rlhf_loss.*", ROW_REFUSED, "PPO holds several models" }, { "num_generations", ROW_REFUSED, "GRPO's phases are not read from torchtune's form" },
    { "output_dir", ROW_SILENT, NULL }, { "seed", ROW_SILENT, NULL }, { "shuffle", ROW_SILENT, NULL }, { "epochs", ROW_SILENT, NULL },
    { "max_steps_per_epoch", ROW_SILENT, NULL }, { "resume_from_checkpoint", ROW_SILENT, NULL }, { "save_adapter_weights_only", ROW_SILENT, NULL },
    { "lr_scheduler.*", ROW_SILENT, NULL }, { "lr_warmup_steps", ROW_SILENT, NULL }, { "device", ROW_READ, NULL },
    { "metric_logger.*", ROW_SILENT, NULL }, { "log_*", ROW_SILENT, NULL }, { "profiler.*", ROW_SILENT, NULL },
    { "low_cpu_ram", ROW_SILENT, NULL }, { "run_val_every_n_steps", ROW_SILENT, NULL }, { "batch_size_val", ROW_SILENT, NULL },
    { "cudnn_deterministic_mode", ROW_MATTERS, "deterministic kernels, which take longer, and memory that PyTorch fills" }, { "enable_async_checkpointing", ROW_SILENT, NULL }, { "keep_last_n_checkpoints", ROW_SILENT, NULL },
    { "save_every_n_steps", ROW_SILENT, NULL }, { "save_last_epoch_only", ROW_SILENT, NULL }, { "model_type", ROW_SILENT, NULL },
};

static bool claims(const struct form_file *f)
{
    return json_is_string(form_value(f->doc, "model._component_")) && json_is_string(form_value(f->doc, "optimizer._component_"));
}

/* "torchtune.models.llama3_1.qlora_llama3_1_8b": the builder's name. */
static const char *builder(const struct form_file *f)
{
    const char *component = json_string_value(form_value(f->doc, "model._component_")), *dot = component ? strrchr(component, '.') : NULL;

    return dot ? dot + 1 : component ? component : "";
}

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* The builder's name without what it makes adapters of. */
static const char *base_builder(const struct form_file *f)
{
    const char *name = builder(f);

    return name + (begins(name, "lora_") ? 5 : begins(name, "qlora_") ? 6 : 0);
}

/* Models of pictures, and Llama 4, whose builders make its towers too. */
static int check(const struct form_file *f)
{
    const char *component = json_string_value(form_value(f->doc, "model._component_"));

    if (component && (strstr(component, "vision") || strstr(component, "llama4") || strstr(component, "clip")))
        return fail("%s: model._component_: %.80s: a model of pictures is not planned" RECORDED_WAY, f->path, component);
    static const char *const sizes[] = { "vocab_size", "num_layers", "num_heads", "num_kv_heads", "embed_dim", "intermediate_dim" };
    for (size_t i = 0; strcmp(base_builder(f), "llama2") && i < sizeof sizes / sizeof *sizes; i++)
        if (json_object_get(json_object_get(f->doc, "model"), sizes[i]))
            return fail("%s: model.%s: %.80s makes a model of one size, and takes none", f->path, sizes[i], builder(f));
    return 0;
}

/* The builder that takes all sizes (torchtune/models/llama2/_component_builders.py); of the MLP's it makes one: 4 x (2/3 of the hidden size), up to a
 * multiple of 256. */
static json_t *llama2(const struct form_file *f)
{
    static const char *const names[][2] = {
        { "model.vocab_size", "vocab_size" }, { "model.num_layers", "num_hidden_layers" }, { "model.num_heads", "num_attention_heads" },
        { "model.num_kv_heads", "num_key_value_heads" }, { "model.embed_dim", "hidden_size" }, { "model.max_seq_len", "max_position_embeddings" },
    };
    int64_t hidden = json_integer_value(form_value(f->doc, "model.embed_dim")), ffn = json_integer_value(form_value(f->doc, "model.intermediate_dim"));
    json_t *out = json_pack("{s:s, s:s, s:f, s:b}", "model_type", "llama", "_name_or_path", "llama2", "rms_norm_eps", 1e-5, "tie_word_embeddings", 0);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = form_value(f->doc, names[i][0]);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24) {
            fail("%s: %s: expected a number of torchtune's builder llama2, which takes all sizes", f->path, names[i][0]);
            json_decref(out);
            return NULL;
        }
        json_object_set(out, names[i][1], (json_t *)(uintptr_t)v);
    }
    json_object_set_new(out, "intermediate_size", json_integer(ffn > 0 ? ffn : (4 * (2 * hidden / 3) + 255) / 256 * 256));
    return out;
}

/* torchtune builds Phi-3 and Phi-4 with layers of q, k, v, gate and up of their own, where transformers' have two fused ones: Llama's blocks
 * (torchtune/models/phi3/_component_builders.py). */
static json_t *config(const struct form_file *f)
{
    static const struct { const char *builder; int layers, hidden, heads, kv_heads, ffn, vocab, context; } of[] = {
        { "phi3_mini", 32, 3072, 32, 32, 8192, 32064, 4096 }, { "phi4_14b", 40, 5120, 40, 10, 17920, 100352, 16384 },
    };

    if (!strcmp(base_builder(f), "llama2"))
        return llama2(f);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(base_builder(f), of[i].builder))
            return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "model_type", "llama", "_name_or_path", of[i].builder, "num_hidden_layers", of[i].layers, "hidden_size",
                             of[i].hidden, "num_attention_heads", of[i].heads, "num_key_value_heads", of[i].kv_heads, "intermediate_size", of[i].ffn,
                             "vocab_size", of[i].vocab, "max_position_embeddings", of[i].context, "rms_norm_eps", 1e-5);
    fail("%s: model._component_: %.80s is not known: give --model", f->path, builder(f));
    return NULL;
}

/* Builders by their name without lora_, qlora_; sizes as their modules state them (torchtune/models/). */
static const char *model(const struct form_file *f)
{
    static const struct { const char *builder, *model; } models[] = {
        { "llama2_7b", "llama-2-7b" }, { "llama2_13b", "llama-2-13b" }, { "llama2_70b", "llama-2-70b" },
        { "llama3_8b", "llama-3-8b" }, { "llama3_70b", "llama-3-70b" },
        { "llama3_1_8b", "llama-3.1-8b" }, { "llama3_1_70b", "llama-3.1-70b" }, { "llama3_1_405b", "llama-3.1-405b" },
        { "llama3_2_1b", "llama-3.2-1b" }, { "llama3_2_3b", "llama-3.2-3b" }, { "llama3_3_70b", "llama-3.3-70b" },
        { "mistral_7b", "mistral-7b" }, { "gemma_2b", "gemma-2b" }, { "gemma_7b", "gemma-7b" },
        { "gemma2_2b", "gemma-2-2b" }, { "gemma2_9b", "gemma-2-9b" }, { "gemma2_27b", "gemma-2-27b" },
        { "qwen2_0_5b", "qwen2.5-0.5b" }, { "qwen2_1_5b", "qwen2.5-1.5b" }, { "qwen2_7b", "qwen2.5-7b" },      /* the same shapes */
        { "qwen2_5_0_5b", "qwen2.5-0.5b" }, { "qwen2_5_1_5b_base", "qwen2.5-1.5b" }, { "qwen2_5_1_5b_instruct", "qwen2.5-1.5b" },
        { "qwen2_5_3b", "qwen2.5-3b" }, { "qwen2_5_7b_base", "qwen2.5-7b" }, { "qwen2_5_7b_instruct", "qwen2.5-7b" },
        { "qwen2_5_14b_base", "qwen2.5-14b" }, { "qwen2_5_14b_instruct", "qwen2.5-14b" }, { "qwen2_5_32b_base", "qwen2.5-32b" },
        { "qwen2_5_32b_instruct", "qwen2.5-32b" }, { "qwen2_5_72b_base", "qwen2.5-72b" }, { "qwen2_5_72b_instruct", "qwen2.5-72b" },
        { "qwen3_0_6b_base", "qwen3-0.6b" }, { "qwen3_0_6b_instruct", "qwen3-0.6b" }, { "qwen3_1_7b_base", "qwen3-1.7b" },
        { "qwen3_1_7b_instruct", "qwen3-1.7b" }, { "qwen3_4b_base", "qwen3-4b" }, { "qwen3_4b_instruct", "qwen3-4b" },
        { "qwen3_8b_base", "qwen3-8b" }, { "qwen3_8b_instruct", "qwen3-8b" }, { "qwen3_14b_base", "qwen3-14b" },
        { "qwen3_14b_instruct", "qwen3-14b" }, { "qwen3_32b", "qwen3-32b" },
    };
    const char *name = base_builder(f);

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(name, models[i].builder))
            return models[i].model;
    return NULL;
}

/* lora_attn_modules and the switches for the MLP and the head, as PEFT calls the modules. */
static void read_adapters(struct form_reading *r)
{
    const json_t *names = form_value(r->file->doc, "model.lora_attn_modules"), *name;
    static const struct { const char *torchtune, *peft; } of[] = { { "q_proj", "q_proj" }, { "k_proj", "k_proj" }, { "v_proj", "v_proj" },
                                                                    { "output_proj", "o_proj" } };
    json_t *targets = json_array();
    size_t i;

    if (names && !json_is_array(names))
        form_fail(r, "model.lora_attn_modules: expected a list of q_proj, k_proj, v_proj, output_proj");
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        size_t k = 0;
        while (k < sizeof of / sizeof *of && !(json_is_string(name) && !strcmp(json_string_value(name), of[k].torchtune)))
            k++;
        if (k < sizeof of / sizeof *of)
            json_array_append_new(targets, json_string(of[k].peft));
        else
            form_fail(r, "model.lora_attn_modules: %.40s is none of torchtune's: q_proj, k_proj, v_proj, output_proj",
                      json_is_string(name) ? json_string_value(name) : "a value");
    }
    if (form_true(r, "model.apply_lora_to_mlp", false)) {
        json_array_append_new(targets, json_string("gate_proj"));
        json_array_append_new(targets, json_string("up_proj"));
        json_array_append_new(targets, json_string("down_proj"));
    }
    if (form_true(r, "model.apply_lora_to_output", false))
        json_array_append_new(targets, json_string("lm_head"));
    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.target_modules", targets);
    form_set(r, "lora.rank", json_integer(form_count(r, "model.lora_rank", 8)));
    form_set(r, "lora.alpha", json_real(form_number(r, "model.lora_alpha", 16)));
    form_set(r, "lora.dropout", json_real(form_number(r, "model.lora_dropout", 0)));
    if (form_true(r, "model.use_dora", false))
        form_set(r, "lora.use_dora", json_true());
    if (begins(builder(r->file), "qlora_") || form_true(r, "model.quantize_base", false))
        form_set(r, "base_dtype", json_string("nf4-torchao"));
    bool narrow = !form_value(r->file->doc, "dtype") || strcmp(form_text(r, "dtype", ""), "fp32") != 0;
    if (narrow && form_true(r, "model.use_dora", false))
        form_set(r, "lora.narrow", json_true());
    else if (narrow)
        form_narrow_adapters(r, "torchtune");
}

/* qat_distributed.py and qat_single_device.py round in every nn.Linear, qat_lora_finetune_distributed.py in those with adapters. */
static void read_rounding(struct form_reading *r)
{
    static const char *const names[] = { "torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer", NULL };

    if (!form_value(r->file->doc, "quantizer"))
        return;
    form_word(r, "quantizer._component_", names, -1);
    form_set(r, "qat", json_string("8da4w"));
    form_set(r, "qat_group", json_integer(form_count(r, "quantizer.groupsize", 256)));
}

static void read_optimizer(struct form_reading *r)
{
    const char *name = form_text(r, "optimizer._component_", "torch.optim.AdamW");
    static const struct { const char *name, *ours; } of[] = {
        { "torch.optim.AdamW", "adamw" }, { "torch.optim.Adam", "adamw" }, { "torch.optim.SGD", "sgd" },
        { "bitsandbytes.optim.PagedAdamW8bit", "paged_adamw_8bit" }, { "bitsandbytes.optim.PagedAdamW", "paged_adamw_32bit" },
        { "bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit" }, { "torchao.prototype.low_bit_optim.AdamW8bit", "adamw_torch_8bit" },
        { "torchao.optim.AdamW8bit", "adamw_torch_8bit" }, { "torchao.prototype.low_bit_optim.AdamW4bit", "adamw_torch_4bit" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(name, of[i].name)) {
            form_set(r, "optimizer", json_string(of[i].ours));
            if (i < 3)
                form_set(r, "optimizer_form", json_string(form_of_adamw(r)));
            return;
        }
    form_fail(r, "optimizer._component_: %.80s is not modelled", name);
}

static void read_memory(struct form_reading *r)
{
    static const char *const modes[] = { "full", "selective", NULL };
    static const char *const losses[] = { "torch.nn.CrossEntropyLoss", "torchtune.modules.loss.CEWithChunkedOutputLoss",
                                          "torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.modules.loss.RKLLoss", NULL };
    static const char *const ours[] = { "fp32", "chunked", "linear-chunks" };       /* TransformerDecoder.unembed(): output(h).float() */
    bool on = form_true(r, "enable_activation_checkpointing", false) || form_value(r->file->doc, "ac_mode");
    int mode = form_word(r, "ac_mode", modes, 0), loss = form_word(r, "loss._component_", losses, 1);

    if (on)
        form_set(r, "recompute", json_string("full"));
    if (mode == 1)
        form_set(r, "recompute_interval", json_integer(form_count(r, "ac_option", 1)));
    if (form_true(r, "enable_activation_offloading", false))
        form_set(r, "activation_offload", json_string(form_true(r, "activation_offloading_use_streams", true) ? "streams" : "save_on_cpu-pinned"));
    if (loss < 3)
        form_set(r, "loss", json_string(ours[loss]));
    if (form_count(r, "loss.num_output_chunks", 8) != 8)
        form_fail(r, "loss.num_output_chunks: its eight chunks are planned, which are usual");
}

static void read_mesh(struct form_reading *r, const struct plan *p)
{
    int64_t replicate = form_count(r, "data_parallel_replicate_dim", 1), shard = form_integer(r, "data_parallel_shard_dim", -1);

    if (form_count(r, "tensor_parallel_dim", 1) > 1)
        form_fail(r, "tensor_parallel_dim: torchtune's losses in chunks or in bf16 are not planned beside tensor parallelism");
    if (form_count(r, "context_parallel_dim", 1) > 1)
        form_fail(r, "context_parallel_dim: torchtune's context parallelism is not read yet");
    if (shard != -1 && (shard < 1 || shard > p->cluster.world_size || shard * replicate != p->cluster.world_size) && p->cluster.world_size > 1)
        form_fail(r, "data_parallel_shard_dim: %lld x data_parallel_replicate_dim %lld are not the %lld ranks of --cluster, where torchtune stops", (long long)shard,
                  (long long)replicate, (long long)p->cluster.world_size);
    if (replicate > 1)
        form_set(r, "shard_group", json_integer(p->cluster.world_size / replicate));
}

/* Rows of several samples have a mask of blocks (data/_collate.py), which attention hands to flex_attention(), compiled (modules/attention_utils.py);
 * Gemma 2's own attention takes none. */
static void read_rows(struct form_reading *r, const struct plan *p)
{
    static const char *const devices[] = { "cuda", NULL };

    form_word(r, "device", devices, 0);
    if (!form_true(r, "dataset.packed", false))
        return;
    if (begins(base_builder(r->file), "gemma2"))
        form_fail(r, "dataset.packed: torchtune's Gemma 2 takes no mask of blocks (NotImplementedError)");
    notes_add(r->notes, "dataset.packed: samples of a row of %lld tokens are kept apart by a mask of blocks, and attention is flex_attention(), compiled: planned is "
              "PyTorch's causal attention over the whole row, which computes more and keeps about as much", (long long)p->seq);
}

/* modules/attention.py: k and v are expanded and flattened before scaled_dot_product_attention(), which keeps the copies. */
static void note_copies(const struct plan *p, struct notes *notes)
{
    const struct model *m = &p->model;

    if (m->heads != m->kv_heads && p->recompute == RECOMPUTE_NONE)
        notes_add(notes, "model: torchtune copies keys and values out to all %lld heads, which stay until backward: up to %.3g GB more than is planned",
                  (long long)m->heads, (double)(m->layers * (m->heads - m->kv_heads) * m->head_dim * p->micro_batch * p->seq) * 2 * 2e-9);
}

/* Units of their own.  Losses in chunks call the head's module for each of eight, which gathers it anew, forward and backward: behind the model
 * (modules/loss/cross_entropy_loss.py, compute_cross_entropy()), which is planned, or inside (modules/transformer.py, chunked_output()), which is not. */
static void read_units(struct form_reading *r, const struct plan *p)
{
    const json_t *names = form_value(r->file->doc, "custom_sharded_layers"), *each;
    const char *loss = form_text(r, "loss._component_", "");
    bool embed = false, head = false, parts = !strcmp(loss, "torchtune.modules.loss.CEWithChunkedOutputLoss"), whole = !strcmp(loss, "torch.nn.CrossEntropyLoss");
    double bytes = (double)(p->model.vocab * p->model.hidden) * 2;
    size_t i;

    if (names && !json_is_array(names))
        form_fail(r, "custom_sharded_layers: expected a list of names");
    json_array_foreach((json_t *)(uintptr_t)names, i, each) {
        const char *name = json_string_value(each);
        if (!name || (strcmp(name, "tok_embeddings") && strcmp(name, "output")))
            form_fail(r, "custom_sharded_layers: %.60s: units of tok_embeddings and output are read", name ? name : "?");
        embed = embed || (name && !strcmp(name, "tok_embeddings"));
        head = head || (name && !strcmp(name, "output"));
    }
    if (p->cluster.world_size == 1 || (!embed && !head))
        return;
    if (p->model.tied || (!embed && whole))
        notes_add(r->notes, "custom_sharded_layers is not in the plan: units of their own for embedding and head");
    else if (embed && !(head && parts))
        form_set(r, "fsdp.root_units", json_string(head ? "embed-head" : "embed"));
    else if (head)
        notes_add(r->notes, "custom_sharded_layers: output: the model calls the head's unit for each of 8 chunks, which gathers it anew, forward and backward; planned in "
                  "the root's unit, once: %.3g GB more are gathered in a micro-step", 15 * bytes * 1e-9);
    if (embed && head && !parts && !p->model.tied)              /* shard_model() gives it what blocks have; the root's is False */
        form_set(r, "fsdp.root_reshard_after_forward", json_boolean(form_true(r, "fsdp_reshard_after_forward", true)));
}

/* Gemma2FinalNorm (models/gemma2/_component_builders.py) caps what the head is given, where transformers caps the logits; losses cap nothing. */
static void note_cap(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    if (begins(base_builder(f), "gemma2"))
        notes_add(notes, "model: torchtune caps the hidden states before the head, and no logits: planned without final_logit_softcapping; the tanh keeps %.2g GB more "
                  "than is planned", 2e-9 * (double)(p->micro_batch * p->seq * p->model.hidden));
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const dtypes[] = { "fp32", "bf16", NULL };
    bool alone = p->cluster.world_size == 1, lora = strstr(builder(f), "lora_") != NULL;
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    int dtype = form_word(&r, "dtype", dtypes, 1);
    const char *kept = dtype ? "bf16" : "fp32";
    form_set(&r, "strategy", json_string(alone ? "ddp" : "fsdp"));
    form_set(&r, "dialect", json_string("torch"));
    form_set(&r, "precision", json_string(kept));
    if (dtype)
        form_set(&r, alone ? "ddp.model_dtype" : "fsdp.model_dtype", json_string("bf16"));
    form_set(&r, "clip", form_value(f->doc, "clip_grad_norm") ? json_real(form_number(&r, "clip_grad_norm", 1)) : json_null());
    if (!form_value(f->doc, "batch_size"))
        form_set(&r, "micro_batch", json_integer(2));
    if (!alone && form_true(&r, "fsdp_cpu_offload", false)) {
        form_set(&r, "fsdp.cpu_offload", json_true());
        form_set(&r, "host_threads", json_integer(0));      /* training.set_torch_num_threads(): the cores, shared by the ranks */
    }
    if (!alone && form_value(f->doc, "fsdp_reshard_after_forward"))
        form_set(&r, "fsdp.reshard_after_forward", json_boolean(form_true(&r, "fsdp_reshard_after_forward", true)));
    read_mesh(&r, p);
    read_rows(&r, p);
    read_units(&r, p);
    if (form_value(f->doc, "tokenizer.max_seq_len"))
        form_set(&r, "seq", json_integer(form_count(&r, "tokenizer.max_seq_len", 1)));
    else if (p->seq == 0)
        form_fail(&r, "tokenizer.max_seq_len: not given, so samples are as long as the data: give --seq");
    if (lora)
        read_adapters(&r);
    read_rounding(&r);
    read_optimizer(&r);
    read_memory(&r);
    if (form_true(&r, "optimizer_in_bwd", false)) {
        form_set(&r, "ddp.optimizer_in_backward", json_true());
        if (!alone)
            form_fail(&r, "optimizer_in_bwd: an optimizer that steps within backward is planned on one GPU: optimizer_in_bwd=False is on more");
    }
    if (begins(base_builder(f), "gemma2"))
        p->model.softcap = 0;
    if (form_end(&r, p) < 0)
        return -1;
    note_cap(f, p, notes);
    if (!alone && strstr(f->path, "single_device"))
        notes_add(notes, "torchtune's single-device recipes run on one GPU: the plan has the %lld of --cluster", (long long)p->cluster.world_size);
    note_copies(p, notes);
    return 0;
}

const struct form form_torchtune = {
    .name = "torchtune", .sign = "model._component_ and optimizer._component_",
    .claims = claims, .check = check, .model = model, .config = config, .read = read, .rows = rows, .nrows = FORM_COUNT(rows),
};
