/* matrix_plans.h -- the plans of the strategy matrix: every cell of strategies and dialects, and
 * what may vary within one.
 *
 * Axes: world size, subject (model, precision, clipping, dropout), accumulation, recompute, unit,
 * and a list of variants: options of the cell's own, one or two at a time.  All combinations that
 * plan_check() and can_run() accept are the whole matrix; a covering set of it has every pair of
 * values of two axes that the whole has.  All have one global batch. */
#ifndef DPX_TESTS_MPI_MATRIX_PLANS_H
#define DPX_TESTS_MPI_MATRIX_PLANS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/can_run.h"
#include "model/plan/knob.h"

enum { BATCH = 96, SEQ = 8 };           /* 96: what 4 micro-steps on 1, 2, 3, 4, 6, 8 ranks divide */

/* ---- subjects: odd sizes, so that shards have padding and end inside tensors; the last model's tensors have partitions of
 * whole eights on 1, 2, 4 and 8 ranks, as ZeRO++'s codes ask ---- */

static const char *const configs[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 18, \"n_head\": 2, \"n_positions\": 11,"
    " \"vocab_size\": 37, \"resid_pdrop\": 0.2, \"embd_pdrop\": 0.2, \"attn_pdrop\": 0.2}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, \"hidden_size\": 12, \"intermediate_size\": 29,"
    " \"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"vocab_size\": 41,"
    " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}",
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 2, \"n_positions\": 16,"
    " \"vocab_size\": 64, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}",
};
enum { EIGHTS = 2, NCONFIGS = sizeof configs / sizeof *configs };
static struct model model[NCONFIGS];

static const struct subject {
    const char *name; int model; enum dtype t; double clip, dropout;
} subjects[] = {
    { "gpt2",               0, DT_FP32, 0,   0 },
    { "llama clipped",      1, DT_FP32, 0.3, 0 },
    { "gpt2 with dropout",  0, DT_FP32, 0.3, 0.2 },
    { "gpt2 in bf16",       0, DT_BF16, 0.3, 0 },
    { "llama in bf16",      1, DT_BF16, 0,   0 },
    { "gpt2 of eights",     2, DT_FP32, 0.3, 0 },
    { "gpt2 of eights in bf16", 2, DT_BF16, 0, 0 },
};
enum { NSUBJECTS = sizeof subjects / sizeof *subjects };

static void models_load(void)
{
    for (int i = 0; i < NCONFIGS; i++) {
        json_t *j = json_loads(configs[i], 0, NULL);
        if (!j || model_from_config(j, "matrix", &model[i]) < 0)
            exit(2);
        json_decref(j);
    }
}

static void models_free(void)
{
    for (int i = 0; i < NCONFIGS; i++)
        model_free(&model[i]);
}

/* ---- variants ---- */

static void as_it_is(struct plan *p)        { (void)p; }
static void sync_each(struct plan *p)       { p->sync_every_micro_step = true; }
static void sync_last(struct plan *p)       { p->sync_every_micro_step = false; }
static void half_groups(struct plan *p)     { p->shard_group = p->cluster.world_size / 2; }

static void small_ddp_buckets(struct plan *p)   { p->ddp.bucket_cap_mb = 0.004; }
static void bucket_views(struct plan *p)        { p->ddp.gradient_as_bucket_view = true; }
static void views_of_small(struct plan *p)      { bucket_views(p); small_ddp_buckets(p); }
static void static_graph(struct plan *p)        { p->ddp.static_graph = true; }
static void find_unused(struct plan *p)         { p->ddp.find_unused_parameters = true; }
static void fp16_hook(struct plan *p)       { small_ddp_buckets(p); p->ddp.comm_hook = HOOK_FP16; }
static void bf16_hook(struct plan *p)       { p->ddp.comm_hook = HOOK_BF16; }
static void fp16_hook_views(struct plan *p) { fp16_hook(p); bucket_views(p); }
static void bf16_hook_last(struct plan *p)  { bf16_hook(p); views_of_small(p); sync_last(p); }
/* Whole reductions in the first two steps, compressed ones in the third, which no loss of three steps sees. */
static void powersgd(struct plan *p)
{
    sync_last(p);
    small_ddp_buckets(p);
    p->ddp.comm_hook = HOOK_POWERSGD;
    p->ddp.powersgd.start = 2;
}
static void powersgd_cold(struct plan *p)
{
    powersgd(p);
    bucket_views(p);
    p->ddp.powersgd.rank = 3;
    p->ddp.powersgd.least_rate = 1;
    p->ddp.powersgd.warm_start = p->ddp.powersgd.error_feedback = false;
}
static void param_buckets(struct plan *p)       { p->ddp.parameters_as_bucket_view = true; }

/* What no plan can set: where frameworks cut by constants of theirs.  Tensors here have up to 1296
 * elements, models some 20,000. */
static void broadcast_chunks(struct plan *p)    { p->limits.ddp_broadcast = 3000; }
static void broadcast_each(struct plan *p)      { p->limits.ddp_broadcast = 1; }
static void default_buckets(struct plan *p) { p->limits.ddp_first_bucket = 300; p->limits.ddp_bucket = 4000; }
static void always_small_first(struct plan *p)
{
    strcpy(p->framework_version, "2.4");
    small_ddp_buckets(p);
    p->limits.ddp_first_bucket = 300;
}

static void coalesced_parts(struct plan *p) { p->limits.dp_coalesce = 3000; }
static void many_all_reduces(struct plan *p)    { p->limits.ds_allreduce = 700; }

static void keep_units(struct plan *p)      { p->fsdp.reshard_after_forward = 0; }
static void reshard_to_two(struct plan *p)  { p->fsdp.reshard_after_forward = 2; }
static void free_root(struct plan *p)       { p->fsdp.root_reshard_after_forward = 1; }
static void half_kept(struct plan *p)       { half_groups(p); keep_units(p); }
static void half_sync_last(struct plan *p)  { half_groups(p); sync_last(p); }
static void kept_sync_last(struct plan *p)  { keep_units(p); sync_last(p); }
static void reduce_bf16(struct plan *p)     { p->reduce_dtype = DT_BF16; }
static void reduce_fp32(struct plan *p)     { p->reduce_dtype = DT_FP32; }

static void grad_op(struct plan *p)         { p->fsdp.sharding_strategy = FSDP1_SHARD_GRAD_OP; }
static void no_shard(struct plan *p)        { p->fsdp.sharding_strategy = FSDP1_NO_SHARD; }
static void hybrid(struct plan *p)      { half_groups(p); p->fsdp.sharding_strategy = FSDP1_HYBRID_SHARD; }
static void fsdp1_offload(struct plan *p)
{
    p->fsdp.cpu_offload = true;
    p->sync_every_micro_step = p->accumulation == 1;
}
static void fsdp1_offload_keep(struct plan *p)      { fsdp1_offload(p); grad_op(p); p->fsdp.use_orig_params = true; }
static void fsdp1_offload_hybrid(struct plan *p)    { fsdp1_offload(p); hybrid(p); }
static void hybrid2(struct plan *p)     { hybrid(p); p->fsdp.sharding_strategy = FSDP1_HYBRID_SHARD_ZERO2; }
static void post(struct plan *p)            { p->fsdp.backward_prefetch = PREFETCH_POST; }
static void no_prefetch(struct plan *p)     { p->fsdp.backward_prefetch = PREFETCH_NONE; }
static void forward_too(struct plan *p)     { p->fsdp.forward_prefetch = true; }
static void unlimited(struct plan *p)       { p->fsdp.limit_all_gathers = false; }
static void orig_params(struct plan *p)     { p->fsdp.use_orig_params = true; }
static void grad_op_post_last(struct plan *p)   { grad_op(p); post(p); sync_last(p); }
static void hybrid_forward(struct plan *p)  { hybrid(p); forward_too(p); unlimited(p); }
static void hybrid_last(struct plan *p)     { hybrid(p); sync_last(p); no_prefetch(p); }

static void small_buckets(struct plan *p)   { p->ds.reduce_bucket_size = 700; }
static void overlapped(struct plan *p)      { p->ds.overlap_comm = !p->ds.overlap_comm; }
static void small_overlapped(struct plan *p)    { small_buckets(p); overlapped(p); }
static void all_reduced(struct plan *p)     { p->ds.reduce_scatter = false; }
static void all_reduced_small(struct plan *p)   { all_reduced(p); small_overlapped(p); }
static void reduce_per_owner(struct plan *p)    { p->ds.use_multi_rank_bucket_allreduce = false; }
static void per_owner_small(struct plan *p) { reduce_per_owner(p); small_buckets(p); }
static void scattered(struct plan *p)       { p->ds.contiguous_gradients = false; }
static void scattered_small(struct plan *p) { scattered(p); small_buckets(p); }
static void round_robin(struct plan *p)     { p->ds.round_robin_gradients = true; small_buckets(p); }
static void wire_fp32(struct plan *p)       { p->ds.communication_dtype = DT_FP32; }
static void predivided(struct plan *p)      { p->ds.prescale = 2; p->ds.reduce_scatter = false; }
static void grads_fp32(struct plan *p)      { p->ds.grad_accum_fp32 = true; }
static void compact(struct plan *p)         { grads_fp32(p); strcpy(p->framework_version, "0.19.8"); }
static void compact_small(struct plan *p)   { compact(p); small_buckets(p); }
static void compact_wire_fp32(struct plan *p)   { compact(p); wire_fp32(p); small_overlapped(p); }
static void compact_scattered(struct plan *p)   { compact(p); scattered_small(p); overlapped(p); }
static void compact_all_reduced(struct plan *p) { compact(p); all_reduced_small(p); }
static void compact_per_owner(struct plan *p)   { compact(p); per_owner_small(p); }
static void compact_round_robin(struct plan *p) { compact(p); round_robin(p); overlapped(p); }

/* Stages 1 and 2 with offload_optimizer, beside other options. */
static void host_step(struct plan *p)       { p->ds.offload_optimizer.device = OFFLOAD_CPU; }
static void host_step_owner(struct plan *p) { host_step(p); per_owner_small(p); }
static void host_step_compact(struct plan *p)   { host_step(p); compact_wire_fp32(p); }

static void host_step_pageable(struct plan *p)
{
    host_step(p);
    round_robin(p);
    overlapped(p);
    p->ds.offload_optimizer.pin_memory = false;
    strcpy(p->framework_version, "0.19.8");
}
static void overflow_unseen(struct plan *p) { p->ds.check_grad_overflow = false; }
static void nothing_stays(struct plan *p)   { p->ds.stage3_param_persistence_threshold = 0; }
static void all_stays(struct plan *p)       { p->ds.stage3_param_persistence_threshold = 1 << 20; }
static void few_stay(struct plan *p)
{
    all_stays(p);
    p->ds.stage3_model_persistence_threshold = 2000;
}

static void no_fetch_ahead(struct plan *p)  { nothing_stays(p); p->ds.stage3_prefetch_bucket_size = 0; }
static void few_live(struct plan *p)        { nothing_stays(p); p->ds.stage3_max_live_parameters = 1500; }
static void no_reuse(struct plan *p)        { no_fetch_ahead(p); p->ds.stage3_max_reuse_distance = 0; }
static void hpz_pairs(struct plan *p)       { no_reuse(p); p->ds.zero_hpz_partition_size = 2; }
static void hpz_all(struct plan *p)         { few_live(p); p->ds.zero_hpz_partition_size = 64; }
/* ZeRO++, on two nodes where there are as many ranks on each; vectors stay. */
static void two_nodes(struct plan *p)
{
    if (p->cluster.world_size % 2 == 0) {
        p->cluster.nodes = 2;
        p->cluster.gpus_per_node = p->cluster.world_size / 2;
    }
    p->ds.stage3_param_persistence_threshold = 200;
}
static void int8_gathers(struct plan *p)    { two_nodes(p); p->ds.zero_quantized_weights = true; }
static void int4_reductions(struct plan *p) { two_nodes(p); p->ds.zero_quantized_gradients = true; }
static void zeropp(struct plan *p)
{
    int8_gathers(p);
    p->ds.zero_quantized_gradients = true;
    p->ds.stage3_prefetch_bucket_size = p->ds.stage3_max_reuse_distance = 0;
    p->ds.zero_hpz_partition_size = p->cluster.gpus_per_node;
}
static void small_fetch(struct plan *p)     { nothing_stays(p); p->ds.stage3_prefetch_bucket_size = 900; }
static void sub_groups(struct plan *p)      { p->ds.sub_group_size = 900; }
static void fetch_by_reduce(struct plan *p)
{
    nothing_stays(p);
    p->ds.stage3_use_all_reduce_for_fetch_params = true;
}

static void one_by_one(struct plan *p)      { nothing_stays(p); p->ds.stage3_allgather_sequential = true; }

/* Offload: states of the optimizer, parameters, in host memory and on disk.  Tensors of this size are below what
 * DeepSpeed swaps. */
static void host_states(struct plan *p)     { sub_groups(p); p->ds.offload_optimizer.device = OFFLOAD_CPU; }
static void params_on_host(struct plan *p)     { nothing_stays(p); p->ds.offload_param.device = OFFLOAD_CPU; }
static void host_all(struct plan *p)        { host_states(p); params_on_host(p); small_buckets(p); }
static void twin_flow(struct plan *p)       { host_states(p); p->ds.offload_optimizer.ratio = 0.5; }
static void disk_states(struct plan *p)
{
    host_states(p);
    p->ds.offload_optimizer.device = OFFLOAD_NVME;
    strcpy(p->ds.offload_optimizer.nvme_path, "/local");
    p->limits.ds_aio_least = 512;
    p->limits.ds_aio_align = 64;
}

static void disk_pipelined(struct plan *p)
{
    disk_states(p);
    params_on_host(p);
    p->ds.offload_optimizer.pipeline_read = p->ds.offload_optimizer.pipeline_write = true;
    p->ds.offload_optimizer.buffer_count = 8;
}

static void disk_all(struct plan *p)
{
    disk_states(p);
    params_on_host(p);
    p->ds.offload_param.device = OFFLOAD_NVME;
    strcpy(p->ds.offload_param.nvme_path, "/local");
    p->ds.offload_param.max_in_cpu = 3000;
}

static void host_copies(struct plan *p)     { p->ds.offload_optimizer.device = OFFLOAD_CPU; }
static void host_copies_small(struct plan *p)   { host_copies(p); small_overlapped(p); }

/* The papers' ZeRO-Offload and ZeRO-Infinity. */
static void all_on_host(struct plan *p)     { host_copies(p); p->ds.offload_param.device = OFFLOAD_CPU; }
static void states_in_files(struct plan *p) { p->ds.offload_optimizer.device = OFFLOAD_NVME; }
static void all_in_files(struct plan *p)    { states_in_files(p); p->ds.offload_param.device = OFFLOAD_NVME; }

enum {
    DDPS = CELL(STRAT_DDP, DIALECT_TORCH) | CELL(STRAT_ZERO1, DIALECT_TORCH),
    ZRO = CELL(STRAT_ZERO1, DIALECT_TORCH),
    DP_TORCH = CELL(STRAT_DP, DIALECT_TORCH),
    FSDP2 = CELL(STRAT_FSDP, DIALECT_TORCH),
    FSDP1 = CELL(STRAT_FSDP, DIALECT_TORCH_FSDP1),
    HALVES = FSDP2 | CELL(STRAT_FSDP, DIALECT_PAPER),
    DS0 = CELL(STRAT_DDP, DIALECT_DEEPSPEED), DS1 = CELL(STRAT_ZERO1, DIALECT_DEEPSPEED),
    DS2 = CELL(STRAT_ZERO2, DIALECT_DEEPSPEED), DS3 = CELL(STRAT_ZERO3, DIALECT_DEEPSPEED),
    DS12 = DS1 | DS2, DS123 = DS12 | DS3,
    P23 = CELL(STRAT_ZERO2, DIALECT_PAPER) | CELL(STRAT_ZERO3, DIALECT_PAPER) | CELL(STRAT_FSDP, DIALECT_PAPER),
    P3 = P23 & ~CELL(STRAT_ZERO2, DIALECT_PAPER),
};

static const struct variant { const char *name; void (*set)(struct plan *p); uint64_t cells; } variants[] = {
    { "", as_it_is, 0xffffffffu },
    { "syncing each micro-step", sync_each, 0xffffffffu },
    { "syncing the last micro-step", sync_last, 0xffffffffu },
    { "groups of half the ranks", half_groups, HALVES },
    { "small buckets", small_ddp_buckets, DDPS },
    { "bucket views", bucket_views, DDPS },
    { "small bucket views", views_of_small, DDPS },
    { "static graph", static_graph, DDPS },
    { "find unused parameters", find_unused, DDPS },
    { "fp16 hook", fp16_hook, DDPS },
    { "bf16 hook", bf16_hook, DDPS },
    { "fp16 hook, bucket views", fp16_hook_views, DDPS },
    { "bf16 hook, bucket views, no_sync", bf16_hook_last, DDPS },
    { "PowerSGD", powersgd, DDPS },
    { "PowerSGD, cold, bucket views", powersgd_cold, DDPS },
    { "parameters as bucket view", param_buckets, ZRO },
    { "the first broadcast in chunks", broadcast_chunks, DDPS },
    { "the first broadcast tensor by tensor", broadcast_each, DDPS },
    { "default buckets that are small", default_buckets, DDPS },
    { "a first bucket that is always small", always_small_first, DDPS },
    { "coalesced in parts", coalesced_parts, DP_TORCH },
    { "all-reduces of few gradients", many_all_reduces, DS0 },
    { "units kept after forward", keep_units, FSDP2 },
    { "units kept, syncing the last", kept_sync_last, FSDP2 },
    { "resharded to two", reshard_to_two, FSDP2 },
    { "root freed", free_root, FSDP2 },
    { "hybrid, units kept", half_kept, FSDP2 },
    { "hybrid, syncing the last", half_sync_last, FSDP2 },
    { "reducing in bf16", reduce_bf16, FSDP2 | FSDP1 },
    { "reducing in fp32", reduce_fp32, FSDP2 | FSDP1 },
    { "SHARD_GRAD_OP", grad_op, FSDP1 },
    { "NO_SHARD", no_shard, FSDP1 },
    { "HYBRID_SHARD", hybrid, FSDP1 },
    { "HYBRID_SHARD_ZERO2", hybrid2, FSDP1 },
    { "BACKWARD_POST", post, FSDP1 },
    { "no backward prefetch", no_prefetch, FSDP1 },
    { "forward prefetch", forward_too, FSDP1 },
    { "gathers unlimited", unlimited, FSDP1 },
    { "original parameters", orig_params, FSDP1 },
    { "SHARD_GRAD_OP, BACKWARD_POST, syncing the last", grad_op_post_last, FSDP1 },
    { "CPUOffload", fsdp1_offload, FSDP1 },
    { "CPUOffload, SHARD_GRAD_OP, original parameters", fsdp1_offload_keep, FSDP1 },
    { "CPUOffload, HYBRID_SHARD", fsdp1_offload_hybrid, FSDP1 },
    { "HYBRID_SHARD, forward prefetch, unlimited", hybrid_forward, FSDP1 },
    { "HYBRID_SHARD, no prefetch, syncing the last", hybrid_last, FSDP1 },
    { "small buckets", small_buckets, DS123 },
    { "the other overlap_comm", overlapped, DS123 },
    { "small buckets, the other overlap_comm", small_overlapped, DS123 },
    { "no reduce_scatter", all_reduced, DS123 },
    { "no reduce_scatter, small buckets", all_reduced_small, DS123 },
    { "a reduce per owner", reduce_per_owner, DS12 },
    { "a reduce per owner, small buckets", per_owner_small, DS12 },
    { "gradients not contiguous", scattered, DS123 },
    { "gradients not contiguous, small buckets", scattered_small, DS123 },
    { "round robin", round_robin, DS12 },
    { "fp32 on the wire", wire_fp32, DS0 | DS123 },
    { "predivided", predivided, DS0 | DS123 },
    { "gradients summed in fp32", grads_fp32, DS1 | DS3 },
    { "gradients summed in the fp32 partition", compact, DS12 },
    { "in the fp32 partition, small buckets", compact_small, DS2 },
    { "in the fp32 partition, fp32 on the wire, overlapped", compact_wire_fp32, DS2 },
    { "in the fp32 partition, not contiguous, overlapped", compact_scattered, DS2 },
    { "in the fp32 partition, no reduce_scatter", compact_all_reduced, DS2 },
    { "in the fp32 partition, a reduce per owner", compact_per_owner, DS2 },
    { "in the fp32 partition, round robin, overlapped", compact_round_robin, DS2 },
    { "the step on the host, a reduce per owner", host_step_owner, DS12 },
    { "the step on the host, not pinned, round robin", host_step_pageable, DS12 },
    { "the step on the host, gradients summed in the fp32 partition", host_step_compact, DS12 },
    { "overflow not looked for", overflow_unseen, DS12 },
    { "no parameter stays", nothing_stays, DS3 },
    { "all parameters stay", all_stays, DS3 },
    { "few parameters stay", few_stay, DS3 },
    { "nothing fetched ahead", no_fetch_ahead, DS3 },
    { "little fetched ahead", small_fetch, DS3 },
    { "few live parameters", few_live, DS3 },
    { "no reuse", no_reuse, DS3 },
    { "sub-groups", sub_groups, DS3 },
    { "fetched by all-reduce", fetch_by_reduce, DS3 },
    { "fetched one by one", one_by_one, DS3 },
    { "states on the host", host_states, DS3 },
    { "parameters on the host", params_on_host, DS3 },
    { "states and parameters on the host", host_all, DS3 },
    { "half of the states on the host", twin_flow, DS3 },
    { "states on disk", disk_states, DS3 },
    { "states on the host, by the papers", host_copies, P23 },
    { "states in files, by the papers", states_in_files, P23 },
    { "states and parameters on the host, by the papers", all_on_host, P3 },
    { "states and parameters in files, by the papers", all_in_files, P3 },
    { "states and parameters on disk", disk_all, DS3 },
    { "the partition's states on the host", host_copies, DS12 },
    { "the partition's states on the host, small buckets", host_copies_small, DS12 },
    { "states on disk, pipelined, parameters on the host", disk_pipelined, DS3 },
    { "secondary partitions of pairs", hpz_pairs, DS3 },
    { "secondary partitions of all ranks, few live parameters", hpz_all, DS3 },
    { "int8 gathers", int8_gathers, DS3 },
    { "int4 reductions", int4_reductions, DS3 },
    { "int8 gathers, int4 reductions, secondary partitions", zeropp, DS3 },
};
enum { NVARIANTS = sizeof variants / sizeof *variants };

/* ---- axes ---- */

enum axis { AXIS_WORLD, AXIS_SUBJECT, AXIS_ACCUMULATION, AXIS_RECOMPUTE, AXIS_UNIT, AXIS_VARIANT, NAXES };

static const int64_t world_sizes[] = { 1, 2, 3, 4, 6, 8 };
static const int64_t accumulations[] = { 1, 4 };
static const struct { const char *name; enum recompute what; int64_t interval; } recomputes[] = {
    { "", RECOMPUTE_NONE, 1 }, { "recomputed", RECOMPUTE_FULL, 1 },
    { "every second recomputed", RECOMPUTE_FULL, 2 }, { "attention recomputed", RECOMPUTE_SELECTIVE, 1 },
};
static const struct { enum unit_kind kind; int64_t blocks; } unit_kinds[] = {
    { UNIT_BLOCK, 1 }, { UNIT_MODEL, 1 }, { UNIT_BLOCKS, 2 }, { UNIT_HALF_BLOCK, 1 }, { UNIT_MODULE, 1 },
};
static const int axis_size[NAXES] = { 6, NSUBJECTS, 2, 4, 5, NVARIANTS };

struct choice { enum strategy s; enum dialect d; int at[NAXES]; };

/* What mpi_matrix.c compares the others with. */
static inline bool is_reference(const struct choice *c)
{
    return c->s == STRAT_DDP && c->d == DIALECT_PAPER && c->at[AXIS_VARIANT] == 0;
}

static inline bool codes(const struct variant *v) { return v->set == int8_gathers || v->set == int4_reductions || v->set == zeropp; }

/* Model and cluster are borrowed: never plan_free() it. */
static bool matrix_plan(const struct choice *c, struct plan *p)
{
    const struct subject *on = &subjects[c->at[AXIS_SUBJECT]];
    const struct variant *v = &variants[c->at[AXIS_VARIANT]];
    struct plan before;

    memset(p, 0, sizeof *p);
    p->model = model[on->model];
    p->cluster.world_size = p->cluster.gpus_per_node = world_sizes[c->at[AXIS_WORLD]];
    p->cluster.nodes = 1;
    p->seq = SEQ;
    plan_defaults(p, c->s, c->d, on->t);
    p->kernels = KERNELS_DPX;
    p->clip = on->clip;
    p->dropout = on->dropout;
    p->accumulation = accumulations[c->at[AXIS_ACCUMULATION]];
    p->micro_batch = BATCH / (p->cluster.world_size * p->accumulation);
    p->recompute = recomputes[c->at[AXIS_RECOMPUTE]].what;
    p->recompute_interval = recomputes[c->at[AXIS_RECOMPUTE]].interval;
    if (p->ds.reduce_bucket_size > 1 << 16)
        p->ds.reduce_bucket_size = 1 << 16;             /* all of the model, and memory to spare */
    if (!knob_find("", "unit", CELL(c->s, c->d)) || c->d == DIALECT_DEEPSPEED) {
        if (c->at[AXIS_UNIT] != 0)
            return false;
    } else {
        p->unit = unit_kinds[c->at[AXIS_UNIT]].kind;
        p->unit_blocks = unit_kinds[c->at[AXIS_UNIT]].blocks;
    }
    if ((on->model == EIGHTS) != codes(v) && !is_reference(c))
        return false;                       /* that model is for codes alone */
    if (codes(v) && (p->cluster.world_size & (p->cluster.world_size - 1)))
        return false;
    before = *p;
    v->set(p);
    plan_resolve(p);
    if (!(v->cells & CELL(c->s, c->d)) || (v->set != as_it_is && !memcmp(&before, p, sizeof before)))
        return false;
    return plan_check(p, "matrix") == 0 && can_run(p) == 0;
}

/* FSDP1's hybrid sharding in groups of one rank never averages between replicas: they drift apart,
 * as they do in PyTorch (lower_fsdp1.c). */
static bool drifts_apart(const struct plan *p)
{
    return p->dialect == DIALECT_TORCH_FSDP1 && p->shard_group == 1 && p->cluster.world_size > 1;
}

static inline void matrix_words(const struct choice *c, const struct plan *p, char *to, size_t size)
{
    char unit[32] = "";

    if (knob_find("", "unit", CELL(c->s, c->d)))
        plan_unit_text(p, unit, sizeof unit);
    snprintf(to, size, "%s/%s on %d, %s, accumulation %d%s%s%s%s%s%s", strategy_name(c->s),
             dialect_name(c->d), (int)p->cluster.world_size, subjects[c->at[AXIS_SUBJECT]].name,
             (int)p->accumulation, *unit ? ", unit " : "", unit, c->at[AXIS_RECOMPUTE] ? ", " : "",
             recomputes[c->at[AXIS_RECOMPUTE]].name,
             c->at[AXIS_VARIANT] ? ", " : "", variants[c->at[AXIS_VARIANT]].name);
}

/* ---- the sets ---- */

struct choices { struct choice *c; int n, room; };

static void choices_add(struct choices *to, const struct choice *c)
{
    if (to->n == to->room) {
        to->room = to->room ? 2 * to->room : 1024;
        to->c = realloc(to->c, (size_t)to->room * sizeof *to->c);
        if (!to->c)
            abort();
    }
    to->c[to->n++] = *c;
}

/* The next combination, the last axis fastest; false after the last. */
static bool advance(struct choice *c)
{
    for (int a = NAXES; a-- > 0; c->at[a] = 0)
        if (++c->at[a] < axis_size[a])
            return true;
    return false;
}

static void whole_cell(enum strategy s, enum dialect d, struct choices *out)
{
    struct choice c = { .s = s, .d = d };
    struct plan p;
    char why[512];

    if (!dialect_has(d, s))
        return;
    fail_capture(why, sizeof why);
    do {
        if ((variants[c.at[AXIS_VARIANT]].cells & CELL(s, d)) && matrix_plan(&c, &p) && !drifts_apart(&p))
            choices_add(out, &c);
    } while (advance(&c));
    fail_capture(NULL, 0);
}

enum { MOST = NVARIANTS };              /* values of an axis */
typedef bool pairs[NAXES][NAXES][MOST][MOST];

static int uncovered(const struct choice *c, pairs covered)
{
    int n = 0;

    for (int a = 0; a < NAXES; a++)
        for (int b = a + 1; b < NAXES; b++)
            n += !covered[a][b][c->at[a]][c->at[b]];
    return n;
}

enum { FEW_RANKS = 4 };                 /* more take longest on few cores */

/* Of plans with as many new pairs: one rank alone sends nothing, and many take long. */
static int liked(int64_t ranks) { return ranks == 1 || ranks > 7 ? 0 : 7 - (int)ranks; }

/* Greedy: always the plan of that many ranks with most new pairs, of equals the best liked, as long as it brings `least`. */
static void cover(const struct choices *all, int64_t from_ranks, int64_t to_ranks, int least, pairs covered, struct choices *out)
{
    for (;;) {
        int best = -1, most = 8 * least - 1;
        for (int i = 0; i < all->n; i++) {
            int64_t ranks = world_sizes[all->c[i].at[AXIS_WORLD]];
            int n = ranks < from_ranks || ranks > to_ranks ? 0 : uncovered(&all->c[i], covered);
            if (8 * n + liked(ranks) > most)
                most = 8 * n + liked(ranks), best = i;
        }
        if (best < 0)
            return;
        choices_add(out, &all->c[best]);
        for (int a = 0; a < NAXES; a++)
            for (int b = a + 1; b < NAXES; b++)
                covered[a][b][all->c[best].at[a]][all->c[best].at[b]] = true;
    }
}

/* Every pair that plans of up to FEW_RANKS ranks have, then of more ranks what brings `least` new pairs: 1 is all pairs. */
static void covering_set(const struct choices *all, int least, struct choices *out)
{
    static pairs covered;

    memset(covered, 0, sizeof covered);
    cover(all, 1, FEW_RANKS, 1, covered, out);
    cover(all, FEW_RANKS + 1, INT64_MAX, least, covered, out);
}

/* SOME: the covering set, but with more than FEW_RANKS ranks only what brings six pairs or more; PAIRS: all of it; PLAIN: all of the first subject,
 * GPT-2 in fp32; WHOLE: of every subject. */
enum extent { SOME, PAIRS, PLAIN, WHOLE };

/* All of them, whatever their number of ranks. */
static inline void matrix_choose(enum extent extent, struct choices *out)
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct choices all = { 0 }, some = { 0 };
            whole_cell((enum strategy)s, (enum dialect)d, &all);
            if (extent <= PAIRS)
                covering_set(&all, extent == SOME ? 6 : 1, &some);
            const struct choices *from = extent <= PAIRS ? &some : &all;
            for (int i = 0; i < from->n; i++)
                if (extent != PLAIN || from->c[i].at[AXIS_SUBJECT] == 0)
                    choices_add(out, &from->c[i]);
            free(all.c);
            free(some.c);
        }
}

/* ---- a list on paper: chosen by one process, read by the ranks of every launch ---- */

static inline void matrix_print(const struct choices *chosen)
{
    for (int i = 0; i < chosen->n; i++) {
        const struct choice *c = &chosen->c[i];
        printf("%d %d", (int)c->s, (int)c->d);
        for (int a = 0; a < NAXES; a++)
            printf(" %d", c->at[a]);
        printf("\n");
    }
}

static bool read_choice(FILE *f, struct choice *c)
{
    int s, d;
    bool good = fscanf(f, "%d %d", &s, &d) == 2 && s >= 0 && s < NSTRATEGY && d >= 0 && d < NDIALECT;

    for (int a = 0; good && a < NAXES; a++)
        good = fscanf(f, "%d", &c->at[a]) == 1 && c->at[a] >= 0 && c->at[a] < axis_size[a];
    if (good)
        c->s = (enum strategy)s, c->d = (enum dialect)d;
    return good;
}

/* Those for one number of ranks.  False: no such file. */
static inline bool matrix_read(const char *path, int64_t ranks, struct choices *out)
{
    FILE *f = fopen(path, "r");
    struct choice c;

    if (!f)
        return false;
    while (read_choice(f, &c))
        if (world_sizes[c.at[AXIS_WORLD]] == ranks)
            choices_add(out, &c);
    fclose(f);
    return true;
}

#endif
