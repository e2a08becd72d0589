/* form_automodel.c -- NVIDIA NeMo Automodel's recipes (examples/llm_finetune, August 2026): FSDP2 of a Hugging Face model
 * over a mesh of pp, dp, cp and tp (nemo_automodel/components/distributed).
 *
 * Weights are kept in model.torch_dtype ("auto": bf16), compute is bf16, gradients are reduced in fp32
 * (parallelizer.py's mp_policy).  dp is what the other axes leave; the step scheduler's arithmetic is
 * global_batch_size / (local_batch_size x dp) micro-steps.  The recipe (TrainFinetuneRecipeForNextTokenPrediction) and the class of
 * the model decide what runs: those of pictures, embeddings, classes, diffusion and drafts are refused by name. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_notes.h"
#include "model/arch/recorded.h"
#include "model/family/family.h"
#include "model/form/form_automodel_kernels.h"
#include "model/form/form_bound.h"
#include "model/plan/modules_apart.h"
#include "model/plan/root_units.h"

static const struct form_row rows[] = {
    { "step_scheduler.global_batch_size", ROW_READ, NULL }, { "step_scheduler.local_batch_size", ROW_READ, NULL },
    { "step_scheduler.ckpt_every_steps", ROW_SILENT, NULL }, { "step_scheduler.val_every_steps", ROW_SILENT, NULL },
    { "step_scheduler.num_epochs", ROW_SILENT, NULL }, { "step_scheduler.max_steps", ROW_SILENT, NULL },
    { "step_scheduler.gc_every_steps", ROW_SILENT, NULL }, { "step_scheduler.log_remote_every_steps", ROW_SILENT, NULL },
    { "step_scheduler.save_checkpoint_every_epoch", ROW_SILENT, NULL },
    { "model._target_", ROW_READ, NULL }, { "model.pretrained_model_name_or_path", ROW_READ, NULL },
    { "model.torch_dtype", ROW_READ, NULL },
    { "model.config.pretrained_model_name_or_path", ROW_READ, NULL }, { "model.config._target_", ROW_SILENT, NULL },
    { "model.config", ROW_READ, NULL }, { "model.trust_remote_code", ROW_SILENT, NULL },
    { "model.config.trust_remote_code", ROW_SILENT, NULL }, { "model.attn_implementation", ROW_READ, NULL },
    { "model.force_hf", ROW_READ, NULL },
    { "model.load_base_model", ROW_SILENT, NULL }, { "model.use_cache", ROW_SILENT, NULL },
    { "model.use_liger_kernel", ROW_READ, NULL },
    { "model.output_hidden_states", ROW_READ, NULL },
    { "model.num_hidden_layers", ROW_REFUSED, "another number of layers than the model has: give its config.json with --model" },
    { "model.backend.dispatcher", ROW_READ, NULL },
    { "model.backend.enable_deepep", ROW_MATTERS, "Automodel ignores it, and warns: dispatcher and experts say so" },
    { "model.backend.attn", ROW_READ, NULL },
    { "model.backend.linear", ROW_MATTERS, "linear layers are planned with PyTorch's kernels" },
    { "model.backend.rms_norm", ROW_READ, NULL },
    { "model.backend.experts", ROW_MATTERS, "experts' products are planned as grouped products" },
    { "model.backend.rope_fusion", ROW_MATTERS, "rotary embedding is planned unfused" },
    { "model.backend.te_fp8.*", ROW_REFUSED, "Transformer Engine's products in 8 bits are not planned of this form" },
    { "model.backend.compile_attn", ROW_MATTERS, "attention is planned uncompiled: compiled (of attn sdpa alone) it keeps and moves less" },
    { "model.backend._target_", ROW_SILENT, NULL }, { "model.backend.enable_hf_state_dict_adapter", ROW_SILENT, NULL },
    { "model.backend.enable_fsdp_optimizations", ROW_MATTERS, "gathers and reductions of micro-steps but the last are left out" },
    { "model.backend.fake_balanced_gate", ROW_SILENT, NULL },
    { "model.backend.gate_precision", ROW_MATTERS, "the router computes in fp32" },
    { "distributed.strategy", ROW_READ, NULL }, { "distributed._target_", ROW_READ, NULL }, { "distributed.dp_size", ROW_READ, NULL },
    { "distributed.dp_replicate_size", ROW_READ, NULL }, { "distributed.tp_size", ROW_READ, NULL },
    { "distributed.cp_size", ROW_READ, NULL },
    { "distributed.pp_size", ROW_READ, NULL }, { "distributed.ep_size", ROW_READ, NULL },
    { "distributed.sequence_parallel", ROW_READ, NULL },
    { "distributed.activation_checkpointing", ROW_READ, NULL },
    { "distributed.defer_fsdp_grad_sync", ROW_READ, NULL },
    { "distributed.mp_policy._target_", ROW_SILENT, NULL }, { "distributed.mp_policy.param_dtype", ROW_READ, NULL },
    { "distributed.mp_policy.reduce_dtype", ROW_READ, NULL },
    { "distributed.mp_policy.output_dtype", ROW_MATTERS, "residuals are planned in bf16" },
    { "distributed.mp_policy.cast_forward_inputs", ROW_SILENT, NULL },
    { "distributed.autocast_dtype", ROW_REFUSED, "autocast beside FSDP2 is not planned" },
    { "distributed.enable_async_tensor_parallel", ROW_MATTERS, "products of tensor-parallel layers overlap with their collectives" },
    { "distributed.enable_compile", ROW_REFUSED, "torch.compile of each block is not planned: enable_compile: false is" },
    { "distributed.enable_fsdp2_prefetch", ROW_MATTERS, "backward gathers two units ahead" },
    { "distributed.fsdp2_backward_prefetch_depth", ROW_MATTERS, "backward gathers as many units ahead" },
    { "distributed.fsdp2_forward_prefetch_depth", ROW_MATTERS, "forward gathers as many units ahead" },
    { "distributed.tp_plan", ROW_MATTERS, "tensors are cut as torchtitan cuts them" },
    { "distributed.patch_is_packed_sequence", ROW_SILENT, NULL }, { "distributed.reshard_after_forward", ROW_READ, NULL },
    { "distributed.pipeline.pp_schedule", ROW_READ, NULL }, { "distributed.pipeline.pp_microbatch_size", ROW_READ, NULL },
    { "distributed.pipeline.layers_per_stage", ROW_READ, NULL }, { "distributed.pipeline.scale_grads_in_schedule", ROW_SILENT, NULL },
    { "distributed.pipeline.round_virtual_stages_to_pp_multiple", ROW_READ, NULL },
    { "distributed.pipeline.patch_inner_model", ROW_SILENT, NULL }, { "distributed.pipeline.patch_causal_lm_model", ROW_READ, NULL },
    { "distributed.moe.reshard_after_forward", ROW_READ, NULL }, { "distributed.moe.wrap_outer_model", ROW_READ, NULL },
    { "distributed.moe.ignore_router_for_ac", ROW_READ, NULL },
    { "distributed.offload_policy._target_", ROW_READ, NULL }, { "distributed.offload_policy.pin_memory", ROW_READ, NULL },
    { "parallelizer.activation_checkpointing", ROW_REFUSED, "recompute in the place of older recipes is not read: distributed.activation_checkpointing is" },
    { "loss_fn._target_", ROW_READ, NULL }, { "loss_fn.reduction", ROW_SILENT, NULL }, { "loss_fn.fp32_upcast", ROW_READ, NULL },
    { "loss_fn.ignore_index", ROW_SILENT, NULL }, { "loss_fn.chunk_len", ROW_SILENT, NULL },
    { "optimizer._target_", ROW_READ, NULL }, { "optimizer.lr", ROW_SILENT, NULL }, { "optimizer.betas", ROW_SILENT, NULL },
    { "optimizer.eps", ROW_SILENT, NULL }, { "optimizer.weight_decay", ROW_SILENT, NULL }, { "optimizer.foreach", ROW_READ, NULL },
    { "optimizer.fused", ROW_READ, NULL },
    { "optimizer.master_weights", ROW_READ, NULL }, { "optimizer.exp_avg_dtype", ROW_READ, NULL }, { "optimizer.exp_avg_sq_dtype", ROW_READ, NULL },
    { "optimizer.store_param_remainders", ROW_READ, NULL }, { "optimizer.adam_w_mode", ROW_SILENT, NULL }, { "optimizer.bias_correction", ROW_SILENT, NULL },
    { "optimizer.master_weight_dtype", ROW_REFUSED, "master weights beside remainders are in fp32" },
    { "optimizer.master_weight_bits", ROW_READ, NULL }, { "optimizer.quantize", ROW_READ, NULL },
    { "optimizer.check_numerics", ROW_REFUSED, "a pass over the weights before the first step is not planned" },
    { "clip_grad_norm.max_norm", ROW_READ, NULL },
    { "packed_sequence.packed_sequence_size", ROW_READ, NULL }, { "packed_sequence.split_across_pack", ROW_SILENT, NULL },
    { "packed_sequence.max_packs", ROW_SILENT, NULL }, { "packed_sequence.packing_strategy", ROW_READ, NULL },
    { "dataset.seq_length", ROW_READ, NULL }, { "dataset.seq_len", ROW_READ, NULL }, { "dataset.sequence_length", ROW_READ, NULL },
    { "dataset.pad_to_max_length", ROW_SILENT, NULL }, { "dataset.truncation", ROW_READ, NULL }, { "dataset.padding", ROW_READ, NULL },
    { "dataset.chat_template", ROW_SILENT, NULL }, { "dataset.answer_only_loss_mask", ROW_SILENT, NULL }, { "dataset.column_mapping.*", ROW_SILENT, NULL },
    { "dataset", ROW_SILENT, NULL }, { "validation_dataset.*", ROW_SILENT, NULL }, { "validation_dataloader.*", ROW_SILENT, NULL },
    { "dataloader.*", ROW_SILENT, NULL },
    { "peft._target_", ROW_READ, NULL }, { "peft.dim", ROW_READ, NULL }, { "peft.alpha", ROW_READ, NULL },
    { "peft.dropout", ROW_READ, NULL },
    { "peft.target_modules", ROW_READ, NULL }, { "peft.match_all_linear", ROW_READ, NULL },
    { "peft.exclude_modules", ROW_READ, NULL },
    { "peft.use_dora", ROW_REFUSED, "DoRA is not planned" },
    { "peft.lora_dtype", ROW_MATTERS, "adapters of another dtype than the plan's" },
    { "peft.lora_A_init", ROW_SILENT, NULL }, { "peft.dropout_position", ROW_READ, NULL }, { "peft.use_triton", ROW_SILENT, NULL },
    { "peft.use_memory_efficient_lora", ROW_READ, NULL },
    { "quantization.load_in_8bit", ROW_REFUSED, "weights in 8 bits are not planned of this form" },
    { "quantization.load_in_4bit", ROW_READ, NULL }, { "quantization.bnb_4bit_use_double_quant", ROW_READ, NULL },
    { "quantization.bnb_4bit_quant_type", ROW_READ, NULL }, { "quantization.bnb_4bit_compute_dtype", ROW_READ, NULL },
    { "quantization.bnb_4bit_quant_storage", ROW_READ, NULL }, { "quantization._target_", ROW_SILENT, NULL },
    { "fp8", ROW_SILENT, NULL }, { "fp8.enabled", ROW_READ, NULL }, { "fp8.recipe_name", ROW_READ, NULL },
    { "fp8.enable_fsdp_float8_all_gather", ROW_READ, NULL }, { "fp8.precompute_float8_dynamic_scale_for_fsdp", ROW_READ, NULL },
    { "fp8.force_recompute_fp8_weight_in_bwd", ROW_SILENT, NULL }, { "fp8.filter_fqns", ROW_READ, NULL },      /* torchao 0.18: no effect */
    { "fp8.emulate", ROW_REFUSED, "products of 8-bit floats that are emulated are not planned" },
    { "compile.enabled", ROW_READ, NULL }, { "compile", ROW_SILENT, NULL },
    { "compile.fullgraph", ROW_SILENT, NULL }, { "compile.backend", ROW_SILENT, NULL }, { "compile.mode", ROW_SILENT, NULL }, { "compile.dynamic", ROW_SILENT, NULL },
    { "qat.enabled", ROW_REFUSED, "quantisation-aware training is not modelled" }, { "neftune.noise_alpha", ROW_MATTERS, "noise is added to embeddings: two more copies of them for a moment" },
    { "teacher_model.*", ROW_REFUSED, "distillation holds a second model" },
    { "recipe", ROW_READ, NULL }, { "recipe._target_", ROW_READ, NULL }, { "model.dtype", ROW_READ, NULL },
    { "dataset._target_", ROW_SILENT, NULL }, { "dataset.dataset_name", ROW_SILENT, NULL }, { "dataset.path_or_dataset", ROW_SILENT, NULL },
    { "dataset.path_or_dataset_id", ROW_SILENT, NULL }, { "dataset.split", ROW_SILENT, NULL }, { "dataset.num_samples", ROW_SILENT, NULL },
    { "dataset.vocab_size", ROW_SILENT, NULL },             /* of mock data */
    { "dataset.tokenizer.*", ROW_SILENT, NULL }, { "dataset.shuffle_seed", ROW_SILENT, NULL }, { "dataset.paths", ROW_SILENT, NULL },
    { "dataset.index_mapping_dir", ROW_SILENT, NULL }, { "dataset.splits_to_build", ROW_SILENT, NULL }, { "moe_metrics.*", ROW_SILENT, NULL }, { "nvtx", ROW_SILENT, NULL },
    { "optimizer.compress_state_dict", ROW_SILENT, NULL }, { "distributed.pipeline.dtype", ROW_SILENT, NULL },
    { "model.backend.rope", ROW_MATTERS, "rotary embedding is planned with transformers' operations" },
    { "skypilot.*", ROW_SILENT, NULL },
    { "seed", ROW_SILENT, NULL }, { "dist_env.*", ROW_SILENT, NULL }, { "rng.*", ROW_SILENT, NULL },
    { "checkpoint.*", ROW_SILENT, NULL }, { "lr_scheduler.*", ROW_SILENT, NULL }, { "wandb.*", ROW_SILENT, NULL },
    { "ci.*", ROW_SILENT, NULL },
    { "mlflow.*", ROW_SILENT, NULL }, { "comet.*", ROW_SILENT, NULL }, { "slurm.*", ROW_SILENT, NULL }, { "tokenizer.*", ROW_SILENT, NULL },
    { "benchmark.*", ROW_SILENT, NULL }, { "flow_matching.*", ROW_REFUSED, "training by diffusion is not planned" },
    { "freeze_config.*", ROW_REFUSED, "a model with towers for pictures or sound is not planned" RECORDED_WAY }, { "profiling.*", ROW_SILENT, NULL },
};

static bool claims(const struct form_file *f)
{
    const char *target = json_string_value(form_value(f->doc, "model._target_"));

    return form_value(f->doc, "step_scheduler.local_batch_size")
        && ((target && !strncmp(target, "nemo_automodel.", 15)) || form_value(f->doc, "model.pretrained_model_name_or_path"));
}

static const char *model(const struct form_file *f)
{
    const char *named = json_string_value(form_value(f->doc, "model.pretrained_model_name_or_path"));

    return named ? named : json_string_value(form_value(f->doc, "model.config.pretrained_model_name_or_path"));
}

/* from_config() of a config class of transformers, with the fields of a config.json: "transformers.models.qwen3_moe.configuration_qwen3_moe.Qwen3MoeConfig"
 * is of model_type qwen3_moe. */
static json_t *config(const struct form_file *f)
{
    static const char folder[] = "transformers.models.";
    const json_t *stated = form_value(f->doc, "model.config");
    const char *class = json_string_value(form_value(stated, "_target_"));

    if (!class || strncmp(class, folder, sizeof folder - 1)) {
        fail("%s: NeMo Automodel's file names no model: give --model", f->path);
        return NULL;
    }
    class += sizeof folder - 1;
    json_t *out = json_deep_copy(stated);
    json_object_del(out, "_target_");
    json_object_set_new(out, "model_type", json_stringn(class, strcspn(class, ".")));
    return out;
}

/* A size of the mesh: "none" and null leave it to the others. */
static int64_t axis(struct form_reading *r, const char *path)
{
    const json_t *v = form_value(r->file->doc, path);
    const char *s = json_string_value(v);

    return !v || (s && (!strcmp(s, "none") || !strcmp(s, "None"))) ? 0 : form_count(r, path, 1);
}

static int64_t at_least_one(int64_t n) { return n > 0 ? n : 1; }

/* Sets the mesh; the data-parallel ranks. */
static int64_t read_mesh(struct form_reading *r, const struct plan *p)
{
    int64_t tp = at_least_one(axis(r, "distributed.tp_size")), cp = at_least_one(axis(r, "distributed.cp_size"));
    int64_t pp = at_least_one(axis(r, "distributed.pp_size")), ep = at_least_one(axis(r, "distributed.ep_size"));
    int64_t replicate = at_least_one(axis(r, "distributed.dp_replicate_size")), dp = axis(r, "distributed.dp_size");
    int64_t world = p->cluster.world_size, others = form_ranks(tp, cp, pp);

    if (others > world || world % others || (dp > 0 && dp * others != world) || world / others % replicate) {
        form_fail(r, "distributed: tp %lld x cp %lld x pp %lld and dp %lld are not the cluster's %lld GPUs", (long long)tp, (long long)cp, (long long)pp,
                  (long long)dp, (long long)world);
        return 1;
    }
    dp = world / others;
    form_set(r, "parallel.tensor", json_integer(tp));
    form_set(r, "parallel.context", json_integer(cp));
    form_set(r, "parallel.pipeline", json_integer(pp));
    if (tp > 1) {                       /* optimized_tp_plans.py; MaskedCrossEntropy takes logits.full_tensor() */
        form_set(r, "parallel.sequence", json_boolean(form_true(r, "distributed.sequence_parallel", false)));
        form_set(r, "parallel.inputs_apart", json_true());
        form_set(r, "parallel.loss_parallel", json_false());
    }
    if (dp * cp * tp % ep)
        form_fail(r, "distributed.ep_size: %lld does not divide the %lld GPUs of a stage", (long long)ep, (long long)(dp * cp * tp));
    if (ep > 1)
        form_set(r, "parallel.expert", json_integer(ep));
    form_set(r, "shard_group", json_integer(dp / replicate * cp));
    return dp;
}

/* DDP, and one GPU, have no mesh: sizes that are stated must be 1. */
static int64_t read_no_mesh(struct form_reading *r, const struct plan *p)
{
    static const char *const sizes[] = { "distributed.tp_size", "distributed.cp_size", "distributed.pp_size", "distributed.ep_size", "distributed.dp_replicate_size" };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (axis(r, sizes[i]) > 1)
            form_fail(r, "%s: %lld, but %s", sizes[i], (long long)axis(r, sizes[i]), p->cluster.world_size == 1 ? "the cluster has one GPU" : "DDP has no mesh");
    return p->cluster.world_size;
}

/* calculate_virtual_stages(): as many stages as layers_per_stage makes, rounded to a multiple of the ranks; else one a rank, of looped schedules two. */
static int64_t stages_of_rank(struct form_reading *r, const struct plan *p, int64_t ranks, bool looped)
{
    static const char *const ways[] = { "none", "up", "down", NULL };
    int64_t per = form_count(r, "distributed.pipeline.layers_per_stage", 0), stages = per > 0 ? ceil_div(p->model.layers, per) : ranks * (looped ? 2 : 1);
    int way = form_word(r, "distributed.pipeline.round_virtual_stages_to_pp_multiple", ways, 0);

    if (stages % ranks && way == 0)
        form_fail(r, "distributed.pipeline.layers_per_stage: %lld makes %lld stages, which do not divide by %lld ranks (round_virtual_stages_to_pp_multiple "
                  "is not given)", (long long)per, (long long)stages, (long long)ranks);
    stages = (stages / ranks + (way == 1 && stages % ranks > 0)) * ranks;
    if (looped ? stages < 2 * ranks : stages != ranks)
        form_fail(r, "distributed.pipeline.layers_per_stage: %lld makes %lld stages of %lld ranks: 1f1b and gpipe have one a rank, interleaved1f1b two at "
                  "least", (long long)per, (long long)stages, (long long)ranks);
    return stages / ranks;
}

/* Without the outer model the root is no FSDP module: Automodel's own hooks reduce with the step's last backward (fsdp_mixin.py). */
static void read_reductions(struct form_reading *r)
{
    if (axis(r, "distributed.ep_size") > 1 && !form_true(r, "distributed.moe.wrap_outer_model", true))
        form_set(r, "parallel.pipeline_reduce_last", json_true());
    if (!form_true(r, "distributed.defer_fsdp_grad_sync", true))
        form_fail(r, "distributed.defer_fsdp_grad_sync: gradients that a stage reduces after each micro-batch are not planned: true is");
}

static void read_pipeline(struct form_reading *r, const struct plan *p, int64_t local, int64_t steps)
{
    static const char *const words[] = { "1f1b", "interleaved1f1b", "gpipe", "1F1B", "Interleaved1F1B", "GPipe", NULL };
    static const char *const ours[] = { "1f1b", "interleaved", "gpipe", "1f1b", "interleaved", "gpipe" };
    int64_t each = form_count(r, "distributed.pipeline.pp_microbatch_size", 1);
    int schedule = form_word(r, "distributed.pipeline.pp_schedule", words, 0);

    form_set(r, "parallel.pipeline_schedule", json_string(ours[schedule]));
    if (steps > 1)          /* schedule.step() for each batch of the step */
        form_set(r, "parallel.pipeline_flushes", json_integer(steps));
    if (local % each)
        form_fail(r, "distributed.pipeline.pp_microbatch_size: %lld samples do not divide by %lld", (long long)local, (long long)each);
    form_set(r, "micro_batch", json_integer(each));
    form_set(r, "accumulation", json_integer(local / each * steps));
    form_set(r, "parallel.virtual_stages", json_integer(stages_of_rank(r, p, axis(r, "distributed.pp_size"), !strcmp(ours[schedule], "interleaved"))));
    form_set(r, "parallel.first_stage_less_layers", json_integer(0));       /* generate_hf_model_fqn_per_model_part() */
    form_set(r, "parallel.last_stage_less_layers", json_integer(0));
    read_reductions(r);
}

/* apply_cp() gives Transformer Engine's attention its ring (p2p), and all else a warning; "magi" deals positions out by the work they are.  Own classes of dense
 * decoders have that attention for rows of documents alone (models/qwen2/model.py), else PyTorch's. */
static void read_context(struct form_reading *r, const struct plan *p)
{
    bool dense = axis(r, "distributed.ep_size") <= 1, documents = automodel_own_dense(r, &p->model) && automodel_rows_of_documents(r->file);
    const char *attn = form_text(r, "model.backend.attn", dense && !documents ? "" : "te");

    if (axis(r, "distributed.cp_size") <= 1 || (dense && !(documents && !strcmp(attn, "te"))))
        return;
    if (strcmp(attn, "te") != 0)
        form_fail(r, "model.backend.attn: %s %.40s: te is", !strcmp(attn, "magi") ? "the exchange of keys and values under cp_size is not planned of" :
                  "Automodel exchanges no keys and values under cp_size with", attn);
    form_set(r, "parallel.context_method", json_string("ring"));
    notes_add(r->notes, "distributed.cp_size: Transformer Engine's ring of keys and values is planned as PyTorch's, with PyTorch's kernels");
}

static void read_batch(struct form_reading *r, const struct plan *p, int64_t dp)
{
    int64_t local = form_count(r, "step_scheduler.local_batch_size", 1);
    int64_t global = form_count(r, "step_scheduler.global_batch_size", 32);      /* StepSchedulerConfig */
    int64_t steps = global / at_least_one(local * dp);

    if (steps < 1 || global % (local * dp)) {
        form_fail(r, "step_scheduler.global_batch_size: %lld is not a multiple of local_batch_size %lld x %lld data-parallel ranks", (long long)global,
                  (long long)local, (long long)dp);
    } else if (at_least_one(axis(r, "distributed.pp_size")) > 1) {
        read_pipeline(r, p, local, steps);
    } else {
        form_set(r, "micro_batch", json_integer(local));
        form_set(r, "accumulation", json_integer(steps));
        form_set(r, "sync_every_micro_step", json_boolean(steps == 1 || !form_true(r, "distributed.defer_fsdp_grad_sync", true)));
    }
}

static void read_length(struct form_reading *r, const struct plan *p)
{
    static const char *const keys[] = { "packed_sequence.packed_sequence_size", "dataset.seq_length", "dataset.seq_len", "dataset.sequence_length" };
    static const char *const strategies[] = { "thd", "neat", NULL };

    form_word(r, "packed_sequence.packing_strategy", strategies, 0);

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = form_value(r->file->doc, keys[i]);
        if (v && !json_is_integer(v))
            form_fail(r, "%s: expected a whole number", keys[i]);
        if (json_is_integer(v) && json_integer_value(v) > 0) {
            form_set(r, "seq", json_integer(form_count(r, keys[i], 1)));
            return;
        }
    }
    if (p->seq == 0)
        form_fail(r, "packed_sequence.packed_sequence_size: none, so samples are as long as the data: give --seq");
}

/* Is the module one of a list of names and patterns, as wildcard_match() takes them: a pattern is of its whole name? */
static bool is_among(const char *module, const char *leaf, const json_t *list)
{
    const json_t *one;
    size_t i;

    if (json_is_string(list))
        return !strcmp(leaf, json_string_value(list)) || fnmatch(json_string_value(list), module, 0) == 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
        if (json_is_string(one) && is_among(module, leaf, one))
            return true;
    return false;
}

static bool is_linear(const struct tensor *t)
{
    return t->ndim == 2 && !t->is_bias && t->role != ROLE_TOKENS && t->role != ROLE_POSITIONS;
}

/* FusedLinearCrossEntropy multiplies by the head's weight; a stage whose outer forward is not patched returns logits, of which MaskedCrossEntropy is taken in its
 * place (_maybe_downgrade_loss_fn()). */
static bool loss_takes_head(struct form_reading *r)
{
    bool fused = strstr(form_text(r, "loss_fn._target_", ""), "FusedLinearCrossEntropy") != NULL;

    return fused && (axis(r, "distributed.pp_size") <= 1 || form_true(r, "distributed.pipeline.patch_causal_lm_model", true));
}

/* The names, without what is before their last dot, of the linear layers that ModuleMatcher picks: all of them,
 * those among the targets ("*_proj" where there are none), or all but the excluded. */
static json_t *adapted(struct form_reading *r, const struct model *m, int64_t rank, int64_t *trains)
{
    const json_t *targets = form_value(r->file->doc, "peft.target_modules"), *but = form_value(r->file->doc, "peft.exclude_modules");
    bool all = form_true(r, "peft.match_all_linear", false), none = json_is_array(targets) && json_array_size(targets) == 0;
    json_t *chosen = json_object(), *left = json_object(), *out = json_array(), *v, *usual = json_string("*_proj");
    but = json_is_array(but) && json_array_size(but) == 0 ? NULL : but;
    bool head, unread = loss_takes_head(r);
    const char *leaf;

    if ((targets && !none && but) || (all && ((targets && !none) || but)))
        form_fail(r, "peft.%s: Automodel's ModuleMatcher refuses it beside %s", but ? "exclude_modules" : "target_modules", all ? "match_all_linear" : "target_modules");
    targets = targets && !none ? targets : but ? NULL : usual;
    for (int k = 0; k < m->nmodules; k++) {
        const struct module *of = &m->modules[k];
        const char *dot = strrchr(of->name, '.');
        leaf = dot ? dot + 1 : of->name;
        if (!is_linear(&m->tensors[of->first]))
            continue;
        if (unread && m->tensors[of->first].role == ROLE_HEAD)
            continue;
        bool picked = all || (targets ? is_among(of->name, leaf, targets) : !is_among(of->name, leaf, but));
        const int64_t *shape = m->tensors[of->first].shape;
        *trains += picked ? rank * (shape[0] + shape[1]) : 0;
        json_object_set_new(picked ? chosen : left, leaf, json_true());
    }
    head = all || (targets ? is_among("lm_head", "lm_head", targets) : !is_among("lm_head", "lm_head", but));
    if (head && unread)                 /* _get_lm_head_weight() */
        notes_add(r->notes, "peft: lm_head is among the layers with adapters, but FusedLinearCrossEntropy multiplies by its weight alone: its adapter of %lld "
                  "parameters gets no gradient and is left out", (long long)(rank * (m->vocab + m->hidden)));
    if (head && !unread && m->tied) {   /* a layer all the same */
        *trains += rank * (m->vocab + m->hidden);
        json_object_set_new(chosen, "lm_head", json_true());
    }
    json_object_foreach(chosen, leaf, v) {
        if (json_object_get(left, leaf))
            form_fail(r, "peft.target_modules: adapters of some blocks' %s alone are not planned", leaf);
        json_array_append_new(out, json_string(leaf));
    }
    json_decref(chosen);
    json_decref(left);
    json_decref(usual);
    if (json_array_size(out) == 0)
        form_fail(r, "peft.target_modules: it names no linear layer of %s", m->name);
    return out;
}

/* What trains: rank x (in + out) of each layer that is picked.  Adapters have the dtype of the weights beside them (LinearLoRA). */
static int64_t read_adapters(struct form_reading *r, const struct plan *p, bool wide)
{
    int64_t rank = form_count(r, "peft.dim", 8), trains = 0;

    if (!strstr(form_text(r, "peft._target_", "PeftConfig"), "PeftConfig"))
        form_fail(r, "peft._target_: %.80s is not planned: PeftConfig is", form_text(r, "peft._target_", ""));
    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.rank", json_integer(rank));
    form_set(r, "lora.alpha", json_real(form_number(r, "peft.alpha", 32)));
    form_set(r, "lora.dropout", json_real(form_number(r, "peft.dropout", 0)));
    form_set(r, "lora.target_modules", adapted(r, &p->model, rank, &trains));
    if (form_number(r, "peft.dropout", 0) > 0)
        form_set(r, "lora.dropout_position", json_string(form_word(r, "peft.dropout_position", (const char *const[]){ "post", "pre", NULL }, 0) ? "pre" : "post"));
    form_true(r, "peft.use_memory_efficient_lora", true);
    if (form_true(r, "quantization.load_in_4bit", false)) {
        form_set(r, "base_dtype", json_string(form_true(r, "quantization.bnb_4bit_use_double_quant", true) ? "nf4-double" : "nf4"));
        if (!p->model.tied && !form_true(r, "model.force_hf", false))       /* _init_model_bnb_streaming(), which names no layer to leave out */
            form_set(r, "base_head", json_true());
    }
    if (!wide)
        form_narrow_adapters(r, "Automodel");
    return trains;
}

/* flashoptim.FlashAdamW keeps 8 bits of a 24-bit master, 16 of one of 32, beside weights in bf16.  Transformer Engine's FusedAdam is planned with master weights of
 * which it stores the low half (without that it keeps them whole), and moments both in fp32 or both in bf16. */
static void read_optimizer(struct form_reading *r)
{
    static const char *const names[] = { "torch.optim.Adam", "torch.optim.AdamW", "flashoptim.FlashAdamW",
                                         "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", "transformer_engine.pytorch.optimizers.FusedAdam", NULL };
    static const char *const dtypes[] = { "torch.float32", "float32", "fp32", "torch.bfloat16", "bfloat16", "bf16", NULL };
    int name = form_word(r, "optimizer._target_", names, 1);
    bool narrow = form_word(r, "optimizer.exp_avg_dtype", dtypes, 0) > 2;

    if (name < 2) {
        form_set(r, "optimizer_form", json_string(form_of_adamw(r)));
        return;
    }
    int64_t bits = form_count(r, "optimizer.master_weight_bits", 24);
    if (name == 2 && !form_true(r, "optimizer.quantize", true))
        form_fail(r, "optimizer.quantize: FlashAdamW's states are planned in codes of 8 bits, which is usual: true");
    if (name == 2 && bits != 24 && bits != 32)
        form_fail(r, "optimizer.master_weight_bits: 24, its usual number, and 32 are planned");
    if (name > 2 && (!form_true(r, "optimizer.master_weights", false) || !form_true(r, "optimizer.store_param_remainders", false)))
        form_fail(r, "optimizer._target_: Transformer Engine's FusedAdam is planned with master_weights and store_param_remainders: true");
    if (name > 2 && narrow != (form_word(r, "optimizer.exp_avg_sq_dtype", dtypes, 0) > 2))
        form_fail(r, "optimizer.exp_avg_sq_dtype: planned in the dtype of exp_avg");
    form_set(r, "optimizer", json_string(name == 2 ? bits == 24 ? "flash_adamw" : "flash_adamw_32bit" : narrow ? "te_adamw_bf16" : "te_adamw"));
}

/* Automodel's own classes of dense decoders checkpoint attention, MLP and norms each by itself; so does its DDP of several ranks any class. */
static bool checkpoints_apart(struct form_reading *r, const struct plan *p, bool ddp)
{
    return p->model.experts == 0 && (automodel_own_dense(r, &p->model) || (ddp && p->cluster.world_size > 1));
}

static void read_recompute(struct form_reading *r, const struct plan *p, bool ddp)
{
    const json_t *again = form_value(r->file->doc, "distributed.activation_checkpointing");
    bool apart = checkpoints_apart(r, p, ddp);

    if (json_is_true(again) || (json_is_string(again) && !strcmp(json_string_value(again), "full"))) {
        bool planned = modules_apart_fit(&p->model);
        form_set(r, "recompute", json_string(apart && planned ? "modules" : "full"));
        if (apart)
            notes_add(r->notes, "distributed.activation_checkpointing: attention, MLP and norms of %s are checkpoints of their own (apply_submodule_checkpointing()): "
                      "%s", ddp ? "each block under DDP" : "Automodel's own class", planned ? "each keeps its input" : "planned as one of the block: a lower bound");
    } else if (json_is_string(again) && !strcmp(json_string_value(again), "selective")) {
        form_set(r, "recompute", json_string("op"));
    } else if (again && !json_is_false(again)) {
        form_fail(r, "distributed.activation_checkpointing: expected true, false, full or selective");
    }
}

static void read_kernels(struct form_reading *r)
{
    static const char *const losses[] = {
        "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy", "nemo_automodel.components.loss.chunked_ce.ChunkedCrossEntropy",
        "nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy", "nemo_automodel.components.loss.te_parallel_ce.TEParallelCrossEntropy", NULL };
    static const char *const ours[] = { "fp32", "chunked", "cut-cross-entropy", "fused" };
    int loss = form_word(r, "loss_fn._target_", losses, 0);
    bool downgraded = loss == 2 && !loss_takes_head(r);

    if (downgraded)
        notes_add(r->notes, "loss_fn._target_: a stage of a model that is not patched (patch_causal_lm_model: false) hands out logits: Automodel takes "
                  "MaskedCrossEntropy in place of FusedLinearCrossEntropy");
    if (!strcmp(form_text(r, "model.attn_implementation", ""), "eager"))
        form_set(r, "kernels", json_string("torch-eager"));
    form_set(r, "loss", json_string(downgraded ? "fp32" : loss == 0 && !form_true(r, "loss_fn.fp32_upcast", true) ? "bf16" : ours[loss]));
    read_optimizer(r);
    form_set(r, "clip", json_real(form_number(r, "clip_grad_norm.max_norm", 1)));
}

/* _forward_backward_step() (recipes/llm/train_ft.py) names the model's `out` while backward runs: of tensor parallelism a rank's part, which the loss gathers to
 * tensors of its own.  A pipeline's schedule is let return the outputs of all micro-batches, whatever the loss; else ChunkedCrossEntropy and
 * TEParallelCrossEntropy save the logits themselves until their own gradient is there. */
static void read_kept_logits(struct form_reading *r, const struct plan *p)
{
    static const char *const beside[] = { "fp32", "bf16", "liger-cross-entropy" };
    const char *loss = json_string_value(json_object_get(r->plan, "loss"));

    for (size_t i = 0; p->model.head == HEAD_LOGITS && i < sizeof beside / sizeof *beside; i++)
        if (!strcmp(loss, beside[i]) || axis(r, "distributed.pp_size") > 1)
            form_set(r, "logits_kept", json_string("as-made"));
    if (json_object_get(r->plan, "logits_kept") && axis(r, "distributed.pp_size") <= 1)
        form_set(r, "logits_until", json_string("backward"));
}

/* apply_fp8_to_model(): the head is converted, too, unless filter_fqns names it.  Scales are made ahead with one scale a tensor and float8 gathers alone. */
static void read_float8(struct form_reading *r)
{
    static const char *const recipes[] = { "tensorwise", "rowwise", "rowwise_with_gw_hp", NULL };
    const json_t *names = form_value(r->file->doc, "fp8.filter_fqns");
    bool gathers = form_true(r, "fp8.enable_fsdp_float8_all_gather", false), ahead = form_true(r, "fp8.precompute_float8_dynamic_scale_for_fsdp", false);

    if (!form_true(r, "fp8.enabled", false))
        return;
    if (names && !json_is_array(names))
        form_fail(r, "fp8.filter_fqns: expected a list");
    int recipe = form_word(r, "fp8.recipe_name", recipes, 0);
    form_set(r, "fp8", json_string(recipes[recipe]));
    form_set(r, "fp8_filter", json_is_array(names) && json_array_size(names) > 0 ? json_deep_copy(names) : json_string("none"));
    if (recipe == 0 && gathers) {
        form_set(r, "fsdp.enable_fsdp_float8_all_gather", json_true());
        form_set(r, "fsdp.precompute_float8_dynamic_scale_for_fsdp", json_boolean(ahead));
    }
}

/* infrastructure.py: torch.compile() of the whole model, but not of one that FSDP2 has. */
static void read_compile(struct form_reading *r, bool ddp)
{
    if (!form_true(r, "compile.enabled", false))
        return;
    if (ddp)
        form_fail(r, "compile.enabled: torch.compile of the whole model is not planned: compile.enabled: false is");
    notes_add(r->notes, "compile.enabled: Automodel compiles no model that FSDP2 has since 10 April 2026 (distributed.enable_compile does): planned as it runs, "
              "uncompiled; earlier releases compiled it");
}

/* What runs is the recipe's, and what has weights the model's class: others than these are no language model's step. */
static int check_recipe(const struct form_file *f)
{
    static const char *const recipes[] = { "TrainFinetuneRecipeForNextTokenPrediction", "BenchmarkingRecipeForNextTokenPrediction" };
    static const char *const classes[] = { "NeMoAutoModelForCausalLM.", "gpt2.build_gpt2_model" };
    const char *recipe = json_string_value(form_value(f->doc, "recipe")), *target = json_string_value(form_value(f->doc, "model._target_"));
    bool good = false;

    if (!recipe)
        recipe = json_string_value(form_value(f->doc, "recipe._target_"));
    for (int i = 0; i < 2; i++)
        good = good || !recipe || strstr(recipe, recipes[i]);
    if (!good)
        return fail("%s: recipe: %.60s is not planned: %s and %s are%s", f->path, recipe, recipes[0], recipes[1], strstr(recipe, "VLM") ? RECORDED_WAY : "");
    if (target && !strstr(target, classes[0]) && !strstr(target, classes[1]))
        return fail("%s: model._target_: %.80s is not planned: NeMoAutoModelForCausalLM is" RECORDED_WAY, f->path, target);
    return 0;
}

/* Takes the fields of a config.json out of the document, whose rows are Automodel's keys.  One that no config class of transformers has is told; sizes over
 * those of a config that is named make another model. */
static void take_config(struct form_reading *r, json_t *doc, const struct model *m)
{
    static const char *const own[] = { "_target_", "pretrained_model_name_or_path", "trust_remote_code" };
    static const char *const sizes[] = { "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads",
                                         "num_experts", "n_routed_experts", "moe_intermediate_size" };
    json_t *model = json_object_get(doc, "model"), *config = json_object_get(model, "config"), *rest = json_object(), *v;
    json_t *fields = json_object();
    const char *key;

    json_object_foreach(config, key, v) {
        bool ours = *key == '_';                /* of no config.json: unknown, or one of these */
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            ours = ours || !strcmp(key, own[i]);
        json_object_set(ours ? rest : fields, key, v);
    }
    for (size_t i = 0; json_object_get(rest, own[1]) && i < sizeof sizes / sizeof *sizes; i++)
        if (json_object_get(fields, sizes[i]))
            form_fail(r, "model.config.%s: another size than the model has: give its config.json with --model, and leave it out", sizes[i]);
    if (json_object_size(fields) > 0)
        hf_notes_say(fields, r->file->path, m->family);
    if (config)
        json_object_set(model, "config", rest);
    json_decref(rest);
    json_decref(fields);
}

/* Where it is not given all blocks but the last one are freed (parallelizer.py, apply_fsdp2_sharding_recursively(): `enum_id < len(flat_layer_items) - 1`); of
 * a stage's chunk, too: its pp_enabled looks for "pp" in the mesh of data parallelism, which never has it.
 * Experts that a rank has alone are none of FSDP's parameters (moe/parallelizer.py, apply_fsdp(): ignored_params); in fp32 their forward makes a copy of 16
 * bits, which autograd keeps (moe/experts.py), as a unit's would be. */
static void read_units(struct form_reading *r, const struct plan *p, bool wide)
{
    int64_t experts = axis(r, "distributed.ep_size"), stages = at_least_one(axis(r, "distributed.pp_size"));
    const json_t *all = form_value(r->file->doc, "distributed.reshard_after_forward");

    if (experts <= 1 && (!all || json_is_null(all))) {
        form_set(r, "fsdp.keeps_last_unit", json_true());
        if (stages > 1)
            form_set(r, "fsdp.reshard_after_forward", json_true());
    }
    if (experts > 1 && experts * stages == p->cluster.world_size && !wide)
        form_set(r, "fsdp.ignores_experts", json_true());
}

/* MoEParallelizerConfig's own is false; FSDP2Config's, where it is given, goes over it (infrastructure.py). */
static void read_reshard(struct form_reading *r)
{
    static const char all[] = "distributed.reshard_after_forward", experts[] = "distributed.moe.reshard_after_forward";
    bool mixture = axis(r, "distributed.ep_size") > 1, stated = form_value(r->file->doc, all) && !json_is_null(form_value(r->file->doc, all));
    bool own = form_true(r, experts, false);

    if (stated || mixture)
        form_set(r, "fsdp.reshard_after_forward", json_boolean(stated ? form_true(r, all, true) : own));
    if (mixture && !stated && !form_value(r->file->doc, experts))
        notes_add(r->notes, "%s: not given: with ep_size a mixture's weights stay gathered after forward (MoEParallelizerConfig)", experts);
}

static void read_offload(struct form_reading *r)
{
    const char *policy = form_text(r, "distributed.offload_policy._target_", "OffloadPolicy");
    bool pins = form_true(r, "distributed.offload_policy.pin_memory", true);

    if (!strstr(policy, "OffloadPolicy"))
        form_fail(r, "distributed.offload_policy._target_: %.60s: CPUOffloadPolicy and OffloadPolicy, which is none, are planned", policy);
    if (!strstr(policy, "CPUOffloadPolicy"))
        return;
    form_set(r, "fsdp.cpu_offload", json_true());
    if (!pins)
        form_set(r, "fsdp.pin_memory", json_false());
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const strategies[] = { "fsdp2", "ddp", NULL };
    static const char *const dtypes[] = { "bf16", "bfloat16", "torch.bfloat16", "auto", "float32", "fp32", "torch.float32", NULL };
    static const char *const policies[] = { "bfloat16", "bf16", "torch.bfloat16", "float32", "fp32", "torch.float32", NULL };
    struct form_file own = *f;
    struct form_reading r;
    int64_t trains = 0;

    own.doc = json_deep_copy(f->doc);
    form_begin(&r, &own, rows, FORM_COUNT(rows), notes);
    take_config(&r, own.doc, &p->model);
    automodel_check_values(&r);
    const char *named = form_value(f->doc, "model.dtype") ? "model.dtype" : "model.torch_dtype";
    int strategy = form_word(&r, "distributed.strategy", strategies, 0), dtype = form_word(&r, named, dtypes, 3);
    if (dtype == 3 && !strstr(form_text(&r, "model._target_", ""), "from_config"))
        notes_add(notes, "%s: auto%s: weights are as the checkpoint has them: planned in bf16", named,
                  form_value(f->doc, named) ? "" : " (usual)");
    if (form_word(&r, "distributed.mp_policy.param_dtype", policies, 0) > 2)
        form_fail(&r, "distributed.mp_policy.param_dtype: compute in fp32 is not read");
    bool ddp = strategy == 1 || p->cluster.world_size == 1;
    form_set(&r, "strategy", json_string(ddp ? "ddp" : "fsdp"));
    form_set(&r, "dialect", json_string("torch"));
    form_set(&r, "precision", json_string("bf16"));
    bool adapts = form_value(f->doc, "peft._target_") || form_value(f->doc, "peft.dim");
    if (dtype < 4 || adapts)            /* beside adapters bf16 is usual */
        form_set(&r, ddp ? "ddp.model_dtype" : "fsdp.model_dtype", json_string(dtype < 4 ? "bf16" : "fp32"));
    if (!ddp) {
        form_set(&r, "reduce_dtype", json_string(form_word(&r, "distributed.mp_policy.reduce_dtype", policies, 3) > 2 ? "fp32" : "bf16"));
        read_offload(&r);
        read_reshard(&r);
        read_units(&r, p, dtype > 3);
    }
    read_batch(&r, p, ddp ? read_no_mesh(&r, p) : read_mesh(&r, p));
    read_context(&r, p);
    read_length(&r, p);
    read_kernels(&r);
    automodel_read_norms(&r, p, &(struct automodel_mesh){ at_least_one(axis(&r, "distributed.tp_size")), at_least_one(axis(&r, "distributed.cp_size")),
                                                          at_least_one(axis(&r, "distributed.pp_size")) });
    read_kept_logits(&r, p);
    read_recompute(&r, p, ddp);
    read_float8(&r);
    read_compile(&r, ddp);
    if (adapts)
        trains = read_adapters(&r, p, dtype > 3);
    int rc = form_end(&r, p);
    json_decref(own.doc);
    if (rc < 0)
        return -1;
    automodel_put_attention(f, p, notes);
    if (!ddp)
        p->fsdp.root_units = root_units_of_automodel(p);
    double more = automodel_note_costs(f, p, notes);
    if (more > 0 && form_bound_holds(f, p, more, "what distributed.moe.ignore_router_for_ac and model.output_hidden_states keep") < 0)
        return -1;
    if (!ddp && p->fsdp.root_units != ROOT_TOGETHER)
        notes_add(notes, "fsdp.root_units \"embed-head\": units of their own since 27 August 2026; for an earlier release set \"together\"");
    return trains == 0 || trains == p->model.trainable ? 0
         : fail("%s: peft.target_modules: adapters of %lld parameters in Automodel, which knows no experts' weights by these names; a plan's would have %lld",
                f->path, (long long)trains, (long long)p->model.trainable);
}

const struct form form_automodel = {
    .name = "NeMo Automodel", .sign = "step_scheduler.local_batch_size with model.pretrained_model_name_or_path",
    .claims = claims, .check = check_recipe, .model = model, .config = config, .read = read, .rows = rows, .nrows = FORM_COUNT(rows),
};
