/* phases_nemo_megatron.c -- NeMo-RL's policy on Megatron-LM: the sections that a config of Megatron-Bridge would have, for the import of those
 * (nemo_rl/models/megatron/setup.py: _apply_parallelism_config() to _create_megatron_config(), August 2026).
 *
 * Log-probabilities are taken from the logits by its own code (put_loss()), and no loss of Megatron-LM's is fused.  Gradient buffers are freed, not moved,
 * outside of updates (models/policy/workers/megatron_policy_worker.py: offload_before_refit(), prepare_for_lp_inference()).  What
 * move_optimizer() moves is the optimizer's state: with use_precision_aware_optimizer weights in fp32 are in it, else they stay on the GPU. */
#include "sim/plan/phases_nemo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/megatron_import.h"
#include "sim/plan/named.h"

#define CFG "policy.megatron_cfg."

bool nemo_is_megatron(const struct importing *in)
{
    return json_is_true(form_value(in->f->doc, CFG "enabled"));
}

static int refuses(struct importing *in)
{
    static const struct { const char *path, *why; } on[] = {
        { CFG "fine_grained_activation_offloading", "activations of single modules in host memory are not modelled" },
        { CFG "optimizer.optimizer_cpu_offload", "an optimizer on the host is not modelled under Megatron-LM" },
        { CFG "distributed_data_parallel_config.use_custom_fsdp", "Megatron-LM's FSDP is not planned" },
    };
    const char *graphs = import_text(in, CFG "cuda_graph_impl", "none");
    bool together = import_flag(in, "policy.generation.colocated.enabled", true) && form_value(in->f->doc, "policy.generation");

    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (import_flag(in, on[i].path, false))
            return fail("%s: %s: %s", in->f->path, on[i].path, on[i].why);
    if (strcmp(graphs, "none") != 0)
        return fail("%s: " CFG "cuda_graph_impl: %.20s: CUDA graphs of a policy are not planned", in->f->path, graphs);
    if (import_count(in, CFG "mtp_num_layers", 0, 0) > 0)
        return fail("%s: " CFG "mtp_num_layers: multi-token prediction is not planned", in->f->path);
    if (together && !import_flag(in, CFG "optimizer.use_precision_aware_optimizer", true))
        return fail("%s: " CFG "optimizer.use_precision_aware_optimizer: false leaves weights in fp32 on the GPU when the engine has its turn, which is not planned",
                    in->f->path);
    return in->failed ? -1 : 0;
}

/* A policy in bfloat16 (_validate_dtype_config(), _apply_performance_config()), whose caches are given back between phases. */
static int check_values(struct importing *in)
{
    static const char *const dtypes[] = { "float32", "bfloat16", "float16" };
    static const char level[] = CFG "empty_unused_memory_level", between[] = CFG "pipeline_dtype", weights[] = CFG "optimizer.params_dtype";
    const char *handed = import_text(in, between, "bfloat16"), *word = import_text(in, weights, "float32");
    bool stages = import_count(in, CFG "pipeline_model_parallel_size", 1, 1) > 1, known = false;
    int64_t empties = import_count(in, level, 0, 1);

    for (size_t i = 0; i < 3; i++)
        known |= !strcmp(handed, dtypes[i]);
    if (!known || (stages && strcmp(handed, dtypes[1]) != 0))
        return fail("%s: %s: %.20s: what stages hand on is planned in bfloat16, as the policy's precision is", in->f->path, between, handed);
    if (strcmp(word, dtypes[0]) != 0 && strcmp(word, dtypes[1]) != 0)
        return fail("%s: %s: %.20s: float32 and bfloat16 are known", in->f->path, weights, word);
    if (!import_flag(in, CFG "optimizer.bf16", true) || import_flag(in, CFG "optimizer.fp16", false))
        return fail("%s: " CFG "optimizer.%s: NeMo-RL asks for bf16: true of a policy in bfloat16", in->f->path,
                    import_flag(in, CFG "optimizer.bf16", true) ? "fp16" : "bf16");
    if (empties > 2)
        return fail("%s: %s: expected 0, 1 or 2", in->f->path, level);
    if (empties == 2)
        notes_add(in->notes, "%s: 2: PyTorch's cache is given back before and behind each optimizer step, which then takes longer and reserves less than planned", level);
    if (!import_flag(in, CFG "apply_rope_fusion", true))
        notes_add(in->notes, CFG "apply_rope_fusion: false: rotary positions are planned as one kernel: by single operations they take longer, and keep more");
    return in->failed ? -1 : 0;
}

/* Fields that a section takes as they are. */
static json_t *section(struct importing *in, const char *path, const char *const *keys, size_t n)
{
    json_t *to = json_object();

    for (size_t i = 0; i < n; i++) {
        char at[120];
        snprintf(at, sizeof at, "%s%s", path, keys[i]);
        const json_t *v = form_value(in->f->doc, at);
        if (v && !json_is_null(v))
            json_object_set(to, keys[i], (json_t *)(uintptr_t)v);
    }
    return to;
}

static void set_recompute(struct importing *in, json_t *model)
{
    const char *how = import_text(in, CFG "recompute_granularity", "full");

    if (!import_flag(in, CFG "activation_checkpointing", false))
        return;
    json_object_set_new(model, "recompute_granularity", json_string(how));
    if (!strcmp(how, "full")) {
        json_object_set_new(model, "recompute_method", json_string("uniform"));
        json_object_set_new(model, "recompute_num_layers", json_integer(1));
    } else if (json_is_array(form_value(in->f->doc, CFG "recompute_modules")))
        json_object_set(model, "recompute_modules", (json_t *)(uintptr_t)form_value(in->f->doc, CFG "recompute_modules"));
}

static bool names(const json_t *list, const char *name)
{
    size_t i;
    const json_t *v;

    json_array_foreach(list, i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), name))
            return true;
    return false;
}

/* Megatron-Bridge's LoRA.  Where target_modules is empty all linear layers are adapted but those of exclude_modules, the output layer too
 * (src/megatron/bridge/peft/module_matcher.py).  NULL: there is none, or it is refused. */
static json_t *peft_of(struct importing *in)
{
    static const char *const keys[] = { "target_modules", "dim", "alpha", "dropout", "dropout_position", "a2a_experimental" };
    static const char *const layers[] = { "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2" };
    const json_t *targets = form_value(in->f->doc, CFG "peft.target_modules"), *without = form_value(in->f->doc, CFG "peft.exclude_modules");

    if (!import_flag(in, CFG "peft.enabled", false))
        return NULL;
    if (json_array_size(targets) == 0 && !names(without, "output_layer")) {
        import_refuse(in, CFG "peft.target_modules", "a list of layers: empty, or left out, it adapts the output layer too, which is not planned; with "
                                                     "exclude_modules: [output_layer] the others are");
        return NULL;
    }
    json_t *to = section(in, CFG "peft.", keys, sizeof keys / sizeof *keys), *left = json_array();
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (!names(without, layers[i]))
            json_array_append_new(left, json_string(layers[i]));
    if (json_array_size(targets) == 0)
        json_object_set(to, "target_modules", left);
    json_decref(left);
    return to;
}

/* What a mixture alone has.  NeMo-RL's usual file has it for every model. */
static void set_experts(struct importing *in, json_t *model)
{
    static const char *const keys[] = { "expert_model_parallel_size", "expert_tensor_parallel_size", "moe_token_dispatcher_type", "moe_shared_expert_overlap",
                                        "moe_permute_fusion", "moe_grouped_gemm" };
    json_t *own = section(in, CFG, keys, sizeof keys / sizeof *keys);

    /* As Megatron-Bridge's providers of mixtures have it (models/qwen/qwen3_moe_bridge.py, models/deepseek): NeMo-RL 0.5 names no dispatcher, and reads
     * moe_grouped_gemm from 0.7 on. */
    json_object_set_new(model, "moe_token_dispatcher_type", json_string("alltoall"));
    json_object_set_new(model, "moe_grouped_gemm", json_true());
    json_object_update(model, own);
    json_decref(own);
    if (import_flag(in, CFG "freeze_moe_router", false))
        notes_add(in->notes, CFG "freeze_moe_router: routers train in the plan: frozen they have neither gradients nor states");
    if (strcmp(import_text(in, CFG "moe_router_dtype", "none"), "none") != 0)
        notes_add(in->notes, CFG "moe_router_dtype: %.20s: the plan takes scores of routers in the model's 16 bits", import_text(in, CFG "moe_router_dtype", ""));
}

static json_t *model_of(struct importing *in, const struct model *is, int64_t seq)
{
    static const char *const keys[] = { "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
                                        "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "sequence_parallel",
                                        "apply_rope_fusion", "bias_activation_fusion", "gradient_accumulation_fusion", "attention_backend" };
    static const char *const codes[] = { "fp8", "fp8_recipe", "fp8_param" };
    json_t *m = section(in, CFG, keys, sizeof keys / sizeof *keys), *fp8;

    /* NeMo-RL's images have no APEX, whose kernel adds a weight's gradient to main_grad (0.6: false by name). */
    if (!json_object_get(m, "gradient_accumulation_fusion"))
        json_object_set_new(m, "gradient_accumulation_fusion", json_false());
    json_object_update_new(m, json_pack("{s:I, s:f, s:f, s:i, s:b, s:b}", "seq_length", (json_int_t)seq, "hidden_dropout", 0.0, "attention_dropout", 0.0,
                                        "make_vocab_size_divisible_by", 1, "cross_entropy_loss_fusion", 0, "bf16", 1));
    json_object_set_new(m, "calculate_per_token_loss", json_true());        /* _validate_training_config() */
    if (import_flag(in, CFG "fp8_cfg.enabled", false)) {
        fp8 = section(in, CFG "fp8_cfg.", codes, sizeof codes / sizeof *codes);
        json_object_update(m, fp8);
        json_decref(fp8);
    }
    if (is->experts > 0)
        set_experts(in, m);
    set_recompute(in, m);
    return m;
}

static json_t *sections_of(struct importing *in, const struct model *is, int64_t samples, int64_t micro, int64_t seq)
{
    static const char *const optimizer[] = { "optimizer", "use_distributed_optimizer", "use_precision_aware_optimizer", "clip_grad" };
    static const char *const ddp[] = { "grad_reduce_in_fp32", "overlap_grad_reduce", "overlap_param_gather" };
    json_t *by = section(in, CFG "distributed_data_parallel_config.", ddp, sizeof ddp / sizeof *ddp);

    json_object_set_new(by, "check_for_nan_in_grad", json_true());          /* _create_megatron_config() */
    json_object_set_new(by, "use_distributed_optimizer", json_boolean(import_flag(in, CFG "optimizer.use_distributed_optimizer", true)));
    json_t *all = json_pack("{s:o, s:o, s:o, s:{s:I, s:I}}", "model", model_of(in, is, seq), "ddp", by, "optimizer",
                     section(in, CFG "optimizer.", optimizer, sizeof optimizer / sizeof *optimizer), "train", "micro_batch_size", (json_int_t)micro,
                     "global_batch_size", (json_int_t)samples);
    json_t *peft = peft_of(in);
    if (peft)
        json_object_set_new(all, "peft", peft);
    return all;
}

/* ChunkedDistributedHiddenStatesToLogprobs.backward() (distributed/model_utils.py): of T tokens, width H and V rows of a rank's head logits are made again, and two products
 * of 2 T H V are in fp32, for which nothing allows TF32; the weight and a chunk's gradient of it, twice, are there in fp32. */
static void note_fused(struct importing *in, const struct plan *p, const char *key)
{
    double tokens = (double)(p->micro_batch * plan_rank_seq(p)), rows = (double)p->model.vocab / (double)p->parallel.tensor, head = (double)p->model.hidden * rows;
    double flop = 4 * tokens * head;
    char longer[120] = "";

    if (p->cluster.gpu.fp32 > 0)
        snprintf(longer, sizeof longer, ": %.2g s and more in an update of %" PRId64 " micro-batches", flop * (double)p->accumulation / p->cluster.gpu.fp32, p->accumulation);

    notes_add(in->notes, "%s: log-probabilities in chunks of hidden states: the loss is planned as Megatron-LM's own, of whole logits, %.2g GB in fp32; the chunks' backward has "
              "the head's weight and two gradients of it in fp32, %.2g GB", key, 4e-9 * tokens * rows, 12e-9 * head);
    notes_add(in->notes, "%s: not planned: two products in fp32 without TF32 in the chunks' backward, %.2g TFLOP a micro-batch on the last stage%s", key, flop * 1e-12, longer);
}

/* DistributedLogprob and ChunkedDistributedLogprob (distributed/model_utils.py) of logits that Float16Module hands out in fp32, unless that is put off. */
static int put_loss(struct importing *in, struct plan *p)
{
    static const char chunk[] = "policy.logprob_chunk_size", late[] = CFG "defer_fp32_logits", fused[] = CFG "use_fused_linear_logprobs";
    int64_t at_once = import_count(in, chunk, 1, 0);
    bool deferred = import_flag(in, late, false);

    if (import_flag(in, fused, false)) {
        note_fused(in, p, fused);
        return in->failed ? -1 : 0;
    }
    if (at_once > 0 && !deferred)
        return fail("%s: %s: NeMo-RL asks for %s: true beside it", in->f->path, chunk, late);
    p->loss = deferred ? LOSS_DISTRIBUTED_LATE : LOSS_DISTRIBUTED;
    p->megatron.logprob_chunk_size = at_once;           /* of a row; packed samples are one */
    if (at_once > 0 && import_flag(in, "policy.sequence_packing.enabled", false))
        p->megatron.logprob_chunk_size = ceil_div(at_once, p->micro_batch);
    return in->failed ? -1 : plan_check(p, in->f->path);
}

/* Of samples that are packed into a row the loss takes one after the other (SequencePackingLossWrapper), unless they are taken at once (fuse_loss).  Bytes of each
 * logit of the row, at its largest moment, less what is planned.  Of logits in 16 bits whole: the logits, what is kept of each sample, and three tensors of one
 * in fp32; or kept ones and two gradients of the row, as each sample's is made as wide.  In chunks: the logits, these two, and a sample's gradient. */
static double beside_plan(const struct plan *p)
{
    double n = (double)p->micro_batch, share = (double)p->megatron.logprob_chunk_size / (double)p->seq, slices = 2 + 2 / n - 24 * share;

    if (p->loss == LOSS_DISTRIBUTED_LATE && share > 0)
        return slices > 2 / n ? slices : 2 / n;
    return p->loss == LOSS_DISTRIBUTED_LATE ? (8 > 6 + 8 / n ? 8 : 6 + 8 / n) - 14 : 0;
}

static void note_loss(struct importing *in, const struct plan *p)
{
    bool packs = import_flag(in, "policy.sequence_packing.enabled", false) && !import_flag(in, "policy.sequence_packing.fuse_loss", false);
    bool own = p->loss == LOSS_DISTRIBUTED || p->loss == LOSS_DISTRIBUTED_LATE;
    double gb = packs && own && p->micro_batch > 1 ? 1e-9 * beside_plan(p) * (double)(p->micro_batch * plan_rank_seq(p)) * (double)p->model.vocab / (double)p->parallel.tensor : 0;
    char more[120] = "";

    if (gb > 0 || gb < 0)
        snprintf(more, sizeof more, "; of packed samples it takes one after the other, and holds up to %.2g GB %s on the last stage", gb < 0 ? -gb : gb, gb < 0 ? "less" : "more");
    notes_add(in->notes, "policy.megatron_cfg: read are the keys that Megatron-LM's step depends on; the loss is planned as %s%s",
              own ? "NeMo-RL's own" : "Megatron-LM's own, from logits in fp32", more);
}

/* `own`: the model is the one that the section names, whatever --model says. */
static int open_on(struct importing *in, bool own, struct plan *p)
{
    const struct plan_given *g = &in->a->plan;
    const char *name = import_text(in, "policy.model_name", NULL);

    if (own && !name)
        return fail("%s: value.model_name: not given", in->f->path);

    if (!name && !g->model && !g->model_doc)
        return fail("%s: policy.model_name: not given: say it, or give --model", in->f->path);
    if (named_cluster(in->cluster ? NULL : g->cluster, in->cluster ? in->cluster : g->cluster_doc, &p->cluster) < 0)
        return -1;
    return own ? named_model(name, NULL, &p->model) : named_model(g->model ? g->model : name, g->model_doc, &p->model);
}

int nemo_megatron(struct importing *in, int64_t samples, int64_t micro, bool own, struct plan *out)
{
    struct plan p = { .seq = 0 };
    json_t *sections, *options, *said = json_array(), *before;
    int64_t seq = import_count(in, "policy.max_total_sequence_length", 1, 1);
    int rc = -1;

    if (refuses(in) < 0 || check_values(in) < 0 || open_on(in, own, &p) < 0) {
        json_decref(said);
        return -1;
    }
    sections = sections_of(in, &p.model, samples, micro, seq);
    before = notes_divert(said);            /* what it says of sections is of a file that nobody wrote */
    options = in->failed ? NULL : megatron_options(NULL, sections, in->f->path);
    if (options)
        rc = megatron_import(options, in->f->path, &p);
    notes_divert(before);
    json_decref(said);
    json_decref(options);
    json_decref(sections);
    if (rc < 0 || nemo_environment(in, CFG "env_vars", &p) < 0) {
        plan_free(&p);
        return -1;
    }
    if (!own && p.model.head == HEAD_LOGITS && put_loss(in, &p) < 0) {
        plan_free(&p);
        return -1;
    }
    *out = p;
    if (!own)
        note_loss(in, out);
    return 0;
}
