/* knob_values.h -- every value of a knob in a plan that accepts it: walks the variants of a cell until one does. */
#ifndef DPX_TESTS_KNOB_VALUES_H
#define DPX_TESTS_KNOB_VALUES_H

#include "tests/model/plans.h"

#include <stdlib.h>

#include "model/arch/training.h"
#include "model/plan/knob.h"

static char said[1024];
static struct model llama, mixtral, latent, neox;      /* neox: its layers are q, k and v in one */
static struct cluster cluster, node;       /* two nodes of 8; one: DataParallel is one process */

/* ---- plans to try a knob in ---- */

/* What some knobs ask of others, a bit each, above the precision. */
enum { VARIANT_STEPS = 4, VARIANT_RECOMPUTE = 8, VARIANT_GROUPS = 16, VARIANT_NEWEST = 32, VARIANT_WIRE = 64,
       VARIANT_SCALE = 128, VARIANT_CPU = 256, VARIANT_NVME = 512,
       VARIANT_GRID = 1024, VARIANT_AXIS = 16, VARIANTS = VARIANT_GRID + 4 * VARIANT_AXIS };     /* then an axis, above the bits below 16 */

/* Cuts the plan along the first, second or third of its axes. */
static void cut_along(struct plan *p, int axis)
{
    int64_t *degree[] = { NULL, &p->parallel.tensor, &p->parallel.context, &p->parallel.pipeline };

    if (axis && knob_find("parallel", "tensor", knob_cell(p)))
        *degree[axis] = 2;
    if (p->parallel.pipeline > 1) {
        p->parallel.pipeline_schedule = PIPELINE_LOOPED_BFS;    /* any number of chunks */
        p->accumulation = p->accumulation > 2 ? p->accumulation : 2;
        p->unit = p->unit == UNIT_MODEL ? UNIT_BLOCK : p->unit;
        p->parallel.first_stage_less = p->parallel.last_stage_less = 1;
    }
    if (p->dialect == DIALECT_MEGATRON)
        p->parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
    if (p->dialect == DIALECT_DEEPSPEED && p->parallel.pipeline > 1) {
        p->parallel.pipeline_schedule = PIPELINE_1F1B;      /* TrainSchedule; partition_method deals the blocks */
        p->parallel.first_stage_less = p->parallel.last_stage_less = 0;
    }
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = p->dialect == DIALECT_MEGATRON && axis == 3 ? 2 : 1;
}

/* DeepSpeed asks for folders. */
static void offload(struct plan *p, enum offload_device to)
{
    bool disk = p->strategy == STRAT_ZERO3 && to == OFFLOAD_NVME;

    p->ds.offload_optimizer.device = to;
    if (p->strategy == STRAT_ZERO3)
        p->ds.offload_param.device = to;
    strcpy(p->ds.offload_optimizer.nvme_path, disk ? "/nvme/a" : "");
    strcpy(p->ds.offload_param.nvme_path, disk ? "/nvme/b" : "");
}

static bool plan_in(struct plan *p, int s, int d, int variant)
{
    int axis = variant >= VARIANT_GRID ? (variant - VARIANT_GRID) / VARIANT_AXIS : 0;
    enum dtype t = (enum dtype)(variant & 3);

    *p = (struct plan){ .model = llama, .cluster = s == STRAT_DP ? node : cluster, .seq = 512, .micro_batch = 2 };
    if (t > DT_FP16)
        return false;
    if ((variant & VARIANT_NEWEST) && d == DIALECT_DEEPSPEED)
        strcpy(p->framework_version, "0.19.8");
    plan_defaults(p, (enum strategy)s, (enum dialect)d, t);
    if (variant & VARIANT_STEPS)
        p->accumulation = 4;
    if (variant & VARIANT_RECOMPUTE)
        p->recompute = RECOMPUTE_FULL;
    if ((variant & VARIANT_GROUPS) && plan_group_is_choice((enum strategy)s, (enum dialect)d)) {
        p->shard_group = cluster.gpus_per_node;
        p->fsdp.sharding_strategy = FSDP1_HYBRID_SHARD;
    }
    if (variant & VARIANT_NEWEST)
        p->clip = 0;
    if (variant & VARIANT_WIRE)
        p->reduce_dtype = t;
    if (variant & VARIANT_SCALE)
        p->ds.reduce_scatter = false;
    if ((variant & (VARIANT_CPU | VARIANT_NVME)) && knob_find("deepspeed.offload_optimizer", "device", knob_cell(p)))
        offload(p, variant & VARIANT_NVME ? OFFLOAD_NVME : OFFLOAD_CPU);
    variant %= VARIANT_GRID;
    if (axis)
        cut_along(p, axis);
    p->fsdp.cpu_offload = (variant & VARIANT_CPU) && s == STRAT_FSDP && (d == DIALECT_TORCH || d == DIALECT_TORCH_FSDP1);
    plan_resolve(p);
    return true;
}

/* Writes the i-th value to be tried; false after the last. */
static bool nth_value(struct plan *p, const struct knob *k, int i)
{
    static const double counts[] = { 1, 2, 3, 4, 8, 1000003 }, reals[] = { 0.25, 2, 7.5 };
    const char *version;
    int nwords = 0;

    switch (k->type) {
    case KNOB_INT:
        if (i >= 6)
            return false;
        knob_set(p, k, counts[i]);
        return true;
    case KNOB_REAL:
        if (i >= 3)
            return false;
        knob_set(p, k, reals[i]);
        return true;
    case KNOB_BOOL: case KNOB_FLAG: case KNOB_WORD_BOOL: case KNOB_GRAD_ACCUM:
        knob_set(p, k, i);
        return i < 2;
    case KNOB_WORD:
        while (k->words[nwords])
            nwords++;
        knob_set(p, k, i);
        return i < nwords;
    case KNOB_UNIT:
        knob_set(p, k, i);
        p->unit_blocks = p->unit == UNIT_BLOCKS ? 2 : 1;
        return i <= UNIT_MODULE;
    case KNOB_RESHARD:
        knob_set(p, k, (double)i - 1);
        return i < 6;
    case KNOB_TEXT:
        if (!strcmp(k->name, "pipeline_model_parallel_layout")) {      /* of four stages */
            snprintf((char *)p + k->offset, (size_t)k->hi, "Et|(t|)*2t*%dL", (int)p->model.layers - 3);
            return i < 1;
        }
        if (!strcmp(k->object, "environment")) {
            snprintf((char *)p + k->offset, (size_t)k->hi, "%s", strcmp(k->name, "PYTORCH_ALLOC_CONF") ? ":4096:2:16:8" : "max_split_size_mb:64");
            return i < 1;
        }
        if (strcmp(k->name, "framework_version")) {
            snprintf((char *)p + k->offset, (size_t)k->hi, "/nvme/%d", i);
            return i < 2;
        }
        if (!(version = plan_version_at(p->dialect, i, NULL)))
            return false;
        snprintf((char *)p + k->offset, (size_t)k->hi, "%s", version);
        return true;
    case KNOB_LIST:
        if (i > 1)
            return false;
        /* "lora" or "all-linear", where there is such a word; names of llama's */
        snprintf((char *)p + k->offset, (size_t)k->hi, "%s", i == 0 && k->words[1] && k->words[2] ? k->words[2] :
                 !strcmp(k->name, "train") ? (p->dialect == DIALECT_MEGATRON ? "lora" : "*.weight") : !strcmp(k->name, "modules_to_save") ? "norm"
                 : !strcmp(k->name, "target_parameters") ? "experts.down_proj" : p->dialect == DIALECT_MEGATRON ? "linear_qkv,linear_fc2"
                 : "q_proj,down_proj");
        return true;
    case KNOB_FIXED:
        break;
    }
    return false;
}

/* Some plan was refused as "not modelled yet": its key has values, but no lowering. */
static bool not_modelled;

static bool accepted(const struct plan *p)
{
    int rc;

    fail_capture(said, sizeof said);
    rc = plan_check(p, "t");
    fail_capture(NULL, 0);
    not_modelled |= rc < 0 && strstr(said, "not modelled yet");
    return rc == 0;
}

static bool same_value(const struct plan *a, const struct plan *b, const struct knob *k)
{
    json_t *x = knob_write(a, k), *y = knob_write(b, k);
    bool same = json_equal(x, y);

    json_decref(x);
    json_decref(y);
    return same;
}

static bool of_training(const struct knob *k)
{
    bool units = k->offset == offsetof(struct plan, fsdp.wrap_adapters) || k->offset == offsetof(struct plan, fsdp.autocast_adapter_dtype);

    return units || (k->offset >= offsetof(struct plan, train) && k->offset < offsetof(struct plan, train) + sizeof(struct training));
}

/* What trains is in the model's tensors: a model of the plan's own, that plan_free() frees. */
static void take_model(struct plan *p)
{
    struct training t = p->train;
    struct model m;

    t.bridge = p->train.bridge = p->dialect == DIALECT_MEGATRON && !training_is_all(&t);

    if (!strcmp(t.target_modules, "query_key_value")) {
        assert_int_equal(model_with_layers(&neox, 2, &m), 0);
    } else if (t.target_parameters[0]) {               /* which only a mixture of experts has */
        struct model whole;
        assert_int_equal(model_load("mixtral-8x7b", &whole), 0);
        assert_int_equal(model_with_layers(&whole, 2, &m), 0);
        model_free(&whole);
    } else {
        assert_int_equal(model_with_layers(&llama, llama.layers, &m), 0);
    }
    assert_int_equal(training_apply(&m, &t, "t"), 0);
    p->model = m;
}

/* A plan in which keys of expert parallelism say something. */
static void with_experts(struct plan *p, const struct knob *k)
{
    bool cut = k->offset == offsetof(struct plan, parallel.expert_tensor);

    p->model = mixtral;
    p->kernels = p->dialect == DIALECT_MEGATRON ? KERNELS_TE : KERNELS_TORCH_SDPA;
    p->precision = DT_BF16;
    if (k->offset != offsetof(struct plan, parallel.expert))
        p->parallel.expert = 2;
    p->parallel.sequence |= cut;
    p->parallel.tensor = cut ? 2 : p->parallel.tensor;
    p->parallel.expert_tensor = p->parallel.tensor;
}

/* Keys of 8- and 4-bit floats say something beside them alone, on GPUs that have them. */
static void in_few_bits(struct plan *p, const struct knob *k)
{
    const size_t at = k->offset;
    struct megatron_options *o = &p->megatron;

    o->use_precision_aware_optimizer |= at > offsetof(struct plan, megatron.use_precision_aware_optimizer) &&
                                        at <= offsetof(struct plan, megatron.store_param_remainders);
    if (at <= offsetof(struct plan, megatron.fp8_format) || at > offsetof(struct plan, megatron.num_layers_at_end_in_bf16))
        return;
    p->cluster.gpu = *gpu_find("b200");
    o->fp8_format = at == offsetof(struct plan, megatron.fp4_format) ? FP8_OFF : FP8_HYBRID;
    o->fp8_param_gather = at == offsetof(struct plan, megatron.reuse_grad_buf_for_mxfp8_param_ag);
    o->first_last_layers_bf16 = at > offsetof(struct plan, megatron.first_last_layers_bf16);
    o->fp8_recipe = o->fp8_param_gather ? FP8_MXFP8 : at >= offsetof(struct plan, megatron.first_last_layers_bf16) ? FP8_TENSORWISE : FP8_DELAYED;
}

/* What a knob of the schedule needs beside it to say something. */
static void for_schedule(const struct knob *k, int d, struct plan *plain)
{
    if (k->offset == offsetof(struct plan, activation_offload) && d != DIALECT_MEGATRON)
        plain->kernels = KERNELS_DPX;
    if (k->offset == offsetof(struct plan, parallel.context_balance) && d == DIALECT_MEGATRON)
        plain->parallel.context_balance = false;
    if (k->offset == offsetof(struct plan, recompute_interval) && d == DIALECT_MEGATRON)
        plain->recompute_interval = 2;
    if (k->offset == offsetof(struct plan, megatron.recompute_num_layers))
        plain->recompute = RECOMPUTE_FULL;
    if (k->offset == offsetof(struct plan, megatron.recompute_modules))
        plain->recompute = RECOMPUTE_SELECTIVE;
    if (k->offset == offsetof(struct plan, megatron.pipeline_layout))
        plain->parallel.first_stage_less = plain->parallel.last_stage_less = 0;
    if (k->offset == offsetof(struct plan, megatron.a2a_ranks) && plain->parallel.context > 1) {
        plain->parallel.context = 4;
        knob_follow(plain, NULL, NULL);
    }
}

/* The same of adapters, frozen weights and 8-bit floats. */
static void for_training(const struct knob *k, int s, int d, struct plan *plain)
{
    if (of_training(k) && d == DIALECT_MEGATRON)
        plain->precision = DT_BF16, plain->kernels = KERNELS_TE;
    else if (of_training(k))
        plain->kernels = KERNELS_TORCH_SDPA;
    if (of_training(k) && strcmp(k->name, "train"))
        strcpy(plain->train.what, "lora");
    if (k->offset == offsetof(struct plan, train.qkv_parts)) {
        plain->model = neox;
        strcpy(plain->train.target_modules, "query_key_value");
    }
    if (k->offset == offsetof(struct plan, train.base) && s == STRAT_FSDP)
        plain->fsdp.model_dtype = plain->precision = DT_BF16;
    if (k->offset == offsetof(struct plan, train.base_head)) {
        plain->fsdp.model_dtype = plain->precision = DT_BF16;
        plain->train.base = BASE_NF4;
    }
    if (of_training(k) && d == DIALECT_TORCH_FSDP1)
        plain->fsdp.use_orig_params = true;
    if (k->offset == offsetof(struct plan, train.target_parameters)) {
        plain->precision = DT_BF16;
        plain->ddp.model_dtype = s == STRAT_DDP ? DT_BF16 : plain->ddp.model_dtype;
    }
    if (k->offset == offsetof(struct plan, train.base) && d == DIALECT_TORCH_FSDP1)
        plain->fsdp.wrap_adapters = true;
    if (k->offset == offsetof(struct plan, fsdp.autocast_adapter_dtype)) {
        plain->fsdp.model_dtype = plain->precision = DT_BF16;
        plain->train.base = BASE_NF4;
    }
    if (k->offset == offsetof(struct plan, train.dora))
        plain->train.narrow = true;
    if (k->offset == offsetof(struct plan, train.narrow) || k->offset == offsetof(struct plan, train.dora))
        plain->fsdp.model_dtype = plain->ddp.model_dtype = plain->precision = DT_BF16;
    if (!strncmp(k->name, "qat", 3)) {
        plain->fsdp.model_dtype = plain->ddp.model_dtype = plain->precision = DT_BF16;
        plain->kernels = KERNELS_TORCH_SDPA;
        plain->qat.kind = k->offset == offsetof(struct plan, qat.kind) ? QAT_NONE : QAT_8DA4W;
    }
    if (strcmp(k->object, "megatron") && (!strncmp(k->name, "fp8", 3) || strstr(k->name, "float8"))) {
        plain->kernels = KERNELS_TORCH_SDPA;
        plain->precision = DT_BF16;
        plain->float8.recipe = k->offset == offsetof(struct plan, float8.recipe) ? FLOAT8_NONE : FLOAT8_TENSORWISE;
        plain->fsdp.float8_all_gather = k->offset == offsetof(struct plan, fsdp.float8_precomputed);
    }
}

/* The same of one framework's own knobs, and of experts. */
static void for_framework(const struct knob *k, int d, struct plan *plain)
{
    if (k->offset == offsetof(struct plan, logits_until)) {
        plain->logits_kept = LOGITS_AS_MADE;
        plain->kernels = plain->kernels == KERNELS_DPX ? KERNELS_TORCH_EAGER : plain->kernels;
    }
    if (k->offset == offsetof(struct plan, ddp.optimizer_in_backward)) {
        assert_int_equal(cluster_load("1xh100", &plain->cluster), 0);
        plain->ddp.wrapped = false;
        plain->shard_group = 1;
        plain->optimizer_form = OPTIMIZER_FUSED;
        plain->accumulation = 1;
        plain->clip = 0;
    }
    if (!strcmp(k->object, "ddp.PowerSGDState"))
        plain->ddp.comm_hook = HOOK_POWERSGD;
    if (k->offset == offsetof(struct plan, parallel.async_tensor) || k->offset == offsetof(struct plan, compile_mode))
        plain->kernels = KERNELS_TORCH_COMPILE;
    if (k->offset == offsetof(struct plan, megatron.cuda_graph_scope)) {
        plain->megatron.cuda_graph_impl = GRAPHS_LOCAL;
        plain->megatron.check_for_nan_in_loss_and_grad = false;
    }
    if (k->offset == offsetof(struct plan, parallel.virtual_stages))
        plain->parallel.virtual_stages = 1;
    if (k->offset == offsetof(struct plan, parallel.pipeline_schedule) && d == DIALECT_MEGATRON)
        plain->parallel.pipeline_schedule = PIPELINE_LOOPED_BFS;
    if (k->offset == offsetof(struct plan, parallel.first_stage_less) && d == DIALECT_MEGATRON)
        plain->parallel.first_stage_less = 0;
    if (k->offset == offsetof(struct plan, parallel.last_stage_less) && d == DIALECT_MEGATRON)
        plain->parallel.last_stage_less = 0;
    if (!strncmp(k->name, "expert", 6) && !strcmp(k->object, "parallel"))
        with_experts(plain, k);
    if (k->offset == offsetof(struct plan, fsdp.ignores_experts)) {
        with_experts(plain, k);
        plain->cluster = node;
        plain->shard_group = plain->parallel.expert = 8;
        plain->fsdp.model_dtype = DT_BF16;
    }
    if (k->offset == offsetof(struct plan, fsdp.grouped_experts)) {
        with_experts(plain, k);
        plain->parallel.expert = 1;
    }
    if (!strncmp(k->name, "moe_", 4)) {
        with_experts(plain, k);
        plain->parallel.expert = d == DIALECT_DEEPSPEED ? 2 : 1;
        plain->ds.moe_layer = strcmp(k->name, "moe_layer") ? MOE_NATIVE : MOE_AUTOEP;
        plain->megatron.moe_expert_capacity_factor = strstr(k->name, "_pad_") ? 1.5 : -1;
        plain->megatron.moe_aux_loss_coeff = strstr(k->name, "_balancing_") ? 0.01 : 0;
        plain->megatron.fp8_format = strstr(k->name, "_padding_") ? FP8_HYBRID : FP8_OFF;
    }
    bool defers = k->offset == offsetof(struct plan, megatron.defer_embedding_wgrad_compute), limits = k->offset == offsetof(struct plan, megatron.wgrad_deferral_limit);
    if (defers || limits) {
        plain->kernels = KERNELS_TE;
        plain->parallel.pipeline_schedule = PIPELINE_1F1B;
        plain->parallel.virtual_stages = 1;
        plain->megatron.defer_embedding_wgrad_compute = limits;
    }
    if (k->offset == offsetof(struct plan, megatron.apply_rope_fusion)) {
        plain->model = latent;
        plain->kernels = KERNELS_TE;
    }
    if (k->offset == offsetof(struct plan, megatron.logprob_chunk_size)) {
        plain->loss = LOSS_DISTRIBUTED_LATE;
        plain->kernels = KERNELS_TE;
        plain->precision = DT_BF16;
    }
    plain->parallel.sequence |= k->offset == offsetof(struct plan, megatron.tp_comm_overlap);
    plain->megatron.overlap_grad_reduce = k->offset == offsetof(struct plan, megatron.overlap_param_gather);
    in_few_bits(plain, k);
}

/* Calls `try` with plans of the cell that have values of the knob other than its default, in the first
 * variant in which it says yes to one; how many it said yes to. */
static int in_cell(const struct knob *k, int s, int d, bool (*try)(const struct plan *p, const struct knob *k))
{
    struct plan p, plain;
    int yes = 0;

    not_modelled = false;
    for (int v = 0; v < VARIANTS && !yes; v++) {
        if (!plan_in(&plain, s, d, v))
            continue;
        for_schedule(k, d, &plain);
        for_training(k, s, d, &plain);
        for_framework(k, d, &plain);
        p = plain;
        for (int i = 0; nth_value(&p, k, i); i++, p = plain) {
            if (p.parallel.tensor != plain.parallel.tensor || p.parallel.context != plain.parallel.context ||
                p.parallel.pipeline != plain.parallel.pipeline)
                knob_follow(&p, NULL, NULL);
            plan_resolve(&p);
            if (of_training(k))
                take_model(&p);
            yes += !same_value(&p, &plain, k) && accepted(&p) && try(&p, k);
            if (of_training(k))
                plan_free(&p);
        }
    }
    return yes;
}

/* The models and clusters above; false: one is not built in. */
static bool knob_models_load(void)
{
    struct model whole;

    if (model_load("mixtral-8x7b", &mixtral) < 0 || model_load("moonlight-16b-a3b", &latent) < 0 || model_load("pythia-160m", &neox) < 0 || model_load("llama-3.1-8b", &whole) < 0 || model_with_layers(&whole, 6, &llama) < 0 ||
        cluster_load("2x8xh100", &cluster) < 0 || cluster_load("8xh100", &node) < 0)
        return false;
    model_free(&whole);
    return true;
}

#endif
