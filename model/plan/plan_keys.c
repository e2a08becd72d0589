/* plan_keys.c -- the table of plan.json's keys.
 *
 * Defaults are the frameworks' own: DistributedDataParallel.__init__,
 * FullyShardedDataParallel.__init__ (torch 2.15), fully_shard(), and DeepSpeed
 * 0.19.6's runtime/zero/config.py, runtime/constants.py, precision_config.py. */
#include "model/plan/plan_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DP_TORCH  CELL(STRAT_DP, DIALECT_TORCH)
#define DDP_TORCH CELL(STRAT_DDP, DIALECT_TORCH)
#define ZRO       CELL(STRAT_ZERO1, DIALECT_TORCH)
#define FSDP2     CELL(STRAT_FSDP, DIALECT_TORCH)
#define FSDP1     CELL(STRAT_FSDP, DIALECT_TORCH_FSDP1)
#define DS0       CELL(STRAT_DDP, DIALECT_DEEPSPEED)
#define DS1       CELL(STRAT_ZERO1, DIALECT_DEEPSPEED)
#define DS2       CELL(STRAT_ZERO2, DIALECT_DEEPSPEED)
#define DS3       CELL(STRAT_ZERO3, DIALECT_DEEPSPEED)
#define DS12      (DS1 | DS2)
#define DS123     (DS1 | DS2 | DS3)
#define DS        (DS0 | DS123)
#define P_DP      CELL(STRAT_DP, DIALECT_PAPER)
#define P_DDP     CELL(STRAT_DDP, DIALECT_PAPER)
#define P_ZERO1   CELL(STRAT_ZERO1, DIALECT_PAPER)
#define P_ZERO2   CELL(STRAT_ZERO2, DIALECT_PAPER)
#define P_ZERO3   CELL(STRAT_ZERO3, DIALECT_PAPER)
#define P_FSDP    CELL(STRAT_FSDP, DIALECT_PAPER)
#define PAPER     (P_DP | P_DDP | P_ZERO1 | P_ZERO2 | P_ZERO3 | P_FSDP)
#define TORCH     (DP_TORCH | DDP_TORCH | ZRO | FSDP2)
#define ALL       (PAPER | TORCH | FSDP1 | DS)

/* Element counts and distances: anything up to the largest int64. */
#define ANY INT64_MAX

static const char *const kernel_words[]    = { "dpx", "torch-eager", "torch-sdpa", NULL };
static const char *const dtype_words[]     = { "fp32", "bf16", "fp16", NULL };
static const char *const recompute_words[] = { "none", "selective", "full", NULL };
static const char *const prefetch_words[]  = { "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", NULL };
static const char *const sharding_words[]  = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                               "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", NULL };
static const char *const gather_words[]    = { "loss", "logits", NULL };
static const char *const optimizer_words[] = { "adamw", NULL };

#define AT(member) .offset = offsetof(struct plan, member)
#define INT(member, low, high, d)  .type = KEY_INT, AT(member), .lo = (low), .hi = (high), .def = (d)
#define REAL(member, low, high, d) .type = KEY_REAL, AT(member), .lo = (low), .hi = (high), .def = (d)
#define BOOL(member, d)            .type = KEY_BOOL, AT(member), .def = (d)
#define WORD(member, w, d)         .type = KEY_WORD, AT(member), .words = w, .def = (d)

static const struct plan_key keys[] = {
    { "", "kernels", WORD(kernels, kernel_words, KERNELS_DPX), .cells = PAPER,
      .about = "which kernels: decides activations and compute time" },
    { "", "kernels", WORD(kernels, kernel_words, KERNELS_TORCH_SDPA), .cells = ALL & ~PAPER,
      .computed = true, .about = "which kernels; torch-eager where transformers has no sdpa" },
    { "", "seq", INT(seq, 1, 1 << 24, 0), .cells = ALL, .required = true,
      .about = "tokens in a sample" },
    { "", "micro_batch", INT(micro_batch, 1, PLAN_MAX_BATCH, 1), .cells = ALL,
      .about = "samples per rank and micro-step" },
    { "", "accumulation", INT(accumulation, 1, PLAN_MAX_BATCH, 1), .cells = ALL,
      .about = "micro-steps per optimizer step" },
    { "", "precision", WORD(precision, dtype_words, DT_FP32), .cells = ALL, .computed = true,
      .about = "what compute runs in" },
    { "", "reduce_dtype", WORD(reduce_dtype, dtype_words, 0), .cells = ALL, .computed = true,
      .null = NULL_DEFAULT, .about = "gradients on the wire" },
    { "", "optimizer", .type = KEY_FIXED, .words = optimizer_words, .cells = ALL,
      .about = "the only optimizer so far" },
    { "", "clip", REAL(clip, 0, 1 << 30, 0), .cells = ALL & ~DS, .null = NULL_VALUE,
      .about = "largest global gradient norm, null: no clipping" },
    { "", "clip", REAL(clip, 0, 1 << 30, 1), .cells = DS, .null = NULL_VALUE, .computed = true,
      .about = "largest global gradient norm, null: no clipping" },
    { "", "dropout", REAL(dropout, 0, 1, 0), .cells = ALL, .computed = true,
      .about = "probability; the model config's own by default" },
    { "", "recompute", WORD(recompute, recompute_words, RECOMPUTE_NONE), .cells = ALL,
      .about = "activations recomputed in backward" },
    { "", "recompute_interval", INT(recompute_interval, 1, MODEL_MAX_LAYERS, 1), .cells = ALL,
      .about = "every k-th block is recomputed" },
    { "", "unit", .type = KEY_UNIT, .cells = FSDP1 | FSDP2 | P_ZERO2 | P_ZERO3 | P_FSDP | DS3,
      .computed = true, .about = "what is gathered, reduced and freed together" },
    { "", "shard_group", INT(shard_group, 1, SIZE_LIMIT, 0), .cells = ALL,
      .computed = true, .null = NULL_DEFAULT, .about = "ranks that share one copy" },
    { "", "sync_every_micro_step", BOOL(sync_every_micro_step, true), .cells = ALL,
      .computed = true, .about = "false: reduce after the last micro-step only (no_sync)" },
    { "", "deterministic", BOOL(deterministic, false), .cells = ALL,
      .about = "sums in rank order, then micro-step order" },
    { "", "framework_version", .type = KEY_TEXT, AT(framework_version), .cells = ALL & ~PAPER,
      .null = NULL_VALUE, .about = "null: the newest known, of DeepSpeed 0.19.6" },

    { "dp", "gather", .type = KEY_WORD_BOOL, AT(dp.gather_logits), .words = gather_words,
      .cells = DP_TORCH, .about = "what the model returns to device 0" },

    { "ddp", "bucket_cap_mb", REAL(ddp.bucket_cap_mb, 0, 1 << 30, -1), .above = true,
      .cells = DDP_TORCH | ZRO, .null = NULL_VALUE, .null_value = -1,
      .about = "MiB; null: 25 with a first bucket of 1" },
    { "ddp", "gradient_as_bucket_view", BOOL(ddp.gradient_as_bucket_view, false),
      .cells = DDP_TORCH | ZRO, .about = ".grad is a view of its bucket" },
    { "ddp", "static_graph", BOOL(ddp.static_graph, false), .cells = DDP_TORCH | ZRO,
      .about = "the graph never changes" },
    { "ddp", "find_unused_parameters", BOOL(ddp.find_unused_parameters, false),
      .cells = DDP_TORCH | ZRO, .about = "one more all-reduce; buckets are not rebuilt" },
    { "ddp", "broadcast_buffers", BOOL(ddp.broadcast_buffers, true), .cells = DDP_TORCH | ZRO,
      .about = "buffers from rank 0 at construction and at every forward" },
    { "ddp", "forward_sync_buffers", .type = KEY_FLAG, AT(ddp.forward_sync_buffers), .def = -1,
      .cells = DDP_TORCH | ZRO, .null = NULL_VALUE, .null_value = -1,
      .about = "at every forward only, replaces broadcast_buffers; null: as that one says" },
    { "ddp", "parameters_as_bucket_view", BOOL(ddp.parameters_as_bucket_view, false), .cells = ZRO,
      .about = "ZeroRedundancyOptimizer broadcasts one bucket per rank" },

    { "ddp", "model_dtype", WORD(ddp.model_dtype, dtype_words, -1), .cells = DDP_TORCH | ZRO,
      .null = NULL_VALUE, .null_value = -1,
      .about = "\"bf16\": model.to(bfloat16), without autocast; null: fp32 parameters" },

    { "fsdp", "reshard_after_forward", .type = KEY_RESHARD, AT(fsdp.reshard_after_forward),
      .lo = 2, .hi = SIZE_LIMIT, .def = -1, .cells = FSDP2, .null = NULL_VALUE, .null_value = -1,
      .about = "null or true: units are freed after forward; false, or ranks to reshard to" },
    { "fsdp", "root_reshard_after_forward", .type = KEY_RESHARD,
      AT(fsdp.root_reshard_after_forward), .lo = 2, .hi = SIZE_LIMIT, .def = -1, .cells = FSDP2,
      .null = NULL_VALUE, .null_value = -1,
      .about = "the same for the root's own call; null: it keeps its parameters" },
    { "fsdp", "sharding_strategy", WORD(fsdp.sharding_strategy, sharding_words, FSDP1_FULL_SHARD),
      .cells = FSDP1, .about = "FSDP1's ShardingStrategy" },
    { "fsdp", "backward_prefetch", WORD(fsdp.backward_prefetch, prefetch_words, PREFETCH_PRE),
      .cells = FSDP1, .null = NULL_VALUE, .null_value = PREFETCH_NONE,
      .about = "BackwardPrefetch; null: none" },
    { "fsdp", "forward_prefetch", BOOL(fsdp.forward_prefetch, false), .cells = FSDP1,
      .about = "gather the next unit before computing this one" },
    { "fsdp", "limit_all_gathers", BOOL(fsdp.limit_all_gathers, true), .cells = FSDP1,
      .about = "the issuing thread waits: at most two units in flight" },
    { "fsdp", "use_orig_params", BOOL(fsdp.use_orig_params, false), .cells = FSDP1,
      .about = "aligns every parameter in its FlatParameter" },

    { "deepspeed", "reduce_bucket_size", INT(ds.reduce_bucket_size, 1, (int64_t)1 << 50, 5e8), .cells = DS123,
      .about = "elements of the gradient bucket" },
    { "deepspeed", "allgather_bucket_size", INT(ds.allgather_bucket_size, 0, ANY, 5e8), .cells = DS12,
      .about = "elements; used only where torch lacks all_gather_into_tensor" },
    { "deepspeed", "overlap_comm", .type = KEY_FLAG, AT(ds.overlap_comm), .def = 0, .cells = DS12,
      .null = NULL_DEFAULT, .about = "reduce on a stream of its own" },
    { "deepspeed", "overlap_comm", .type = KEY_FLAG, AT(ds.overlap_comm), .def = 1, .cells = DS3,
      .null = NULL_DEFAULT, .about = "reduce on a stream of its own" },
    { "deepspeed", "reduce_scatter", BOOL(ds.reduce_scatter, true), .cells = DS123,
      .about = "each rank keeps its slices" },
    { "deepspeed", "use_multi_rank_bucket_allreduce",
      BOOL(ds.use_multi_rank_bucket_allreduce, true), .cells = DS12,
      .about = "one all-reduce a bucket instead of a reduce per owner" },
    { "deepspeed", "contiguous_gradients", BOOL(ds.contiguous_gradients, true), .cells = DS123,
      .about = "gradients are copied into one buffer" },
    { "deepspeed", "round_robin_gradients", BOOL(ds.round_robin_gradients, false), .cells = DS12,
      .about = "spreads gradients over the ranks" },
    { "deepspeed", "sub_group_size", INT(ds.sub_group_size, 0, ANY, 1e9), .cells = DS3,
      .about = "partition elements the optimizer takes at a time" },
    { "deepspeed", "stage3_prefetch_bucket_size",
      INT(ds.stage3_prefetch_bucket_size, 0, ANY, 5e7), .cells = DS3,
      .about = "elements fetched ahead at a time" },
    { "deepspeed", "stage3_param_persistence_threshold",
      INT(ds.stage3_param_persistence_threshold, 0, ANY, 1e5), .cells = DS3,
      .about = "smaller parameters stay gathered" },
    { "deepspeed", "stage3_model_persistence_threshold",
      INT(ds.stage3_model_persistence_threshold, 0, ANY, (double)INT64_MAX), .cells = DS3,
      .about = "elements that may stay gathered in all" },
    { "deepspeed", "stage3_max_live_parameters",
      INT(ds.stage3_max_live_parameters, 0, ANY, 1e9), .cells = DS3,
      .about = "elements beyond which nothing is prefetched" },
    { "deepspeed", "stage3_max_reuse_distance",
      INT(ds.stage3_max_reuse_distance, 0, ANY, 1e9), .cells = DS3,
      .about = "elements: a parameter used again sooner is kept" },
    { "deepspeed", "stage3_use_all_reduce_for_fetch_params",
      BOOL(ds.stage3_use_all_reduce_for_fetch_params, false), .cells = DS3,
      .about = "several parameters are fetched by all-reduce of a zeroed buffer" },
    { "deepspeed", "stage3_allgather_sequential",
      BOOL(ds.stage3_allgather_sequential, false), .cells = DS3,
      .about = "parameters are gathered one by one" },
    { "deepspeed", "grad_accum_dtype", .type = KEY_GRAD_ACCUM, AT(ds.grad_accum_fp32),
      .words = dtype_words, .cells = DS123, .null = NULL_VALUE,
      .about = "null: the model's; stage 2 has it from 0.19.8 on" },
    { "deepspeed", "check_grad_overflow", BOOL(ds.check_grad_overflow, true), .cells = DS12,
      .computed = true, .about = "bf16: look for overflow before the step" },
    { "deepspeed", "compute_grad_norm", BOOL(ds.compute_grad_norm, true), .cells = DS12,
      .about = "0.19.8: false: no gradient norm, which clipping needs" },
    { "deepspeed", "communication_data_type", WORD(ds.communication_dtype, dtype_words, -1),
      .cells = DS, .null = NULL_VALUE, .null_value = -1, .about = "null: the model's" },
    { "deepspeed", "gradient_predivide_factor", REAL(ds.prescale, 0, 1 << 30, 1), .above = true,
      .cells = DS, .about = "gradients are divided by it before the reduction" },
};

const struct plan_key *plan_key_at(int i)
{
    return i >= 0 && (size_t)i < sizeof keys / sizeof *keys ? &keys[i] : NULL;
}

static bool is_key(const struct plan_key *k, const char *object, const char *name)
{
    return !strcmp(k->object, object) && !strcmp(k->name, name);
}

const struct plan_key *plan_key_find(const char *object, const char *name, uint32_t cell)
{
    const struct plan_key *k;

    for (int i = 0; (k = plan_key_at(i)); i++)
        if ((k->cells & cell) && is_key(k, object, name))
            return k;
    return NULL;
}

uint32_t plan_key_cells(const char *object, const char *name)
{
    const struct plan_key *k;
    uint32_t cells = 0;

    for (int i = 0; (k = plan_key_at(i)); i++)
        if (is_key(k, object, name))
            cells |= k->cells;
    return cells;
}

void plan_cells_text(uint32_t cells, char *out, size_t size)
{
    size_t at = 0;

    if (size)
        out[0] = '\0';
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if ((cells & CELL(s, d)) && at < size) {
                int n = snprintf(out + at, size - at, "%s%s/%s", at ? ", " : "",
                                 strategy_name((enum strategy)s), dialect_name((enum dialect)d));
                at += (size_t)n;
            }
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Words longer than a row of the table are cut: no key is that long. */
int plan_distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    int nb = (int)strnlen(b, LONGEST), na = (int)strnlen(a, LONGEST);

    for (int j = 0; j <= nb; j++)
        row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

const char *plan_key_nearest(const char *object, const char *name, uint32_t cell)
{
    static const char *const fixed[] = { "dpx_plan", "model", "cluster", "strategy", "dialect" };
    const struct plan_key *k;
    const char *best = NULL;
    int least = 1 + (int)strnlen(name, 60) / 3;     /* a third of its letters may be wrong */

    for (int i = 0; (k = plan_key_at(i)); i++)
        if ((k->cells & cell) && !strcmp(k->object, object) && plan_distance(name, k->name) <= least) {
            least = plan_distance(name, k->name) - 1;
            best = k->name;
        }
    for (size_t i = 0; !object[0] && i < sizeof fixed / sizeof *fixed; i++)
        if (plan_distance(name, fixed[i]) <= least) {
            least = plan_distance(name, fixed[i]) - 1;
            best = fixed[i];
        }
    return best;
}

/* What frameworks have and plans do not yet.  `none` is the number that asks for
 * nothing (a partition over one rank, a threshold of 0). */
static const struct { const char *object, *name, *why; double none; } unsupported[] = {
    { "", "offload", "offloading is not supported yet", 0 },
    { "", "quantize", "quantised communication is not supported yet", 0 },
    { "", "tensor_parallel", "tensor parallelism is not supported yet", 1 },
    { "", "pipeline", "pipeline parallelism is not supported yet", 1 },
    { "", "pipeline_parallel", "pipeline parallelism is not supported yet", 1 },
    { "", "sequence_parallel", "sequence parallelism is not supported yet", 1 },
    { "", "context_parallel", "context parallelism is not supported yet", 1 },
    { "", "expert_parallel", "expert parallelism is not supported yet", 1 },
    { "ddp", "lazy_bucket_allocation", "buckets that are allocated during backward and freed after it "
      "are not supported yet", 0 },
    { "fsdp", "cpu_offload", "offloading is not supported yet", 0 },
    { "deepspeed", "offload_param", "offloading is not supported yet", 0 },
    { "deepspeed", "offload_optimizer", "offloading is not supported yet", 0 },
    { "deepspeed", "cpu_offload", "offloading is not supported yet", 0 },
    { "deepspeed", "cpu_offload_param", "offloading is not supported yet", 0 },
    { "deepspeed", "zenflow", "ZenFlow is not supported yet", 0 },
    { "deepspeed", "zero_quantized_weights", "ZeRO++ is not supported yet", 0 },
    { "deepspeed", "zero_quantized_nontrainable_weights", "ZeRO++ is not supported yet", 0 },
    { "deepspeed", "zero_quantized_gradients", "ZeRO++ is not supported yet", 0 },
    { "deepspeed", "zero_hpz_partition_size", "ZeRO++ is not supported yet", 1 },
    { "deepspeed", "zeropp_loco_param", "ZeRO++ is not supported yet", 0 },
    { "deepspeed", "mics_shard_size", "MiCS is not supported yet", -1 },
    { "deepspeed", "mics_hierarchical_params_gather", "MiCS is not supported yet", 0 },
    { "deepspeed", "stage3_module_granularity_threshold",
      "fetching whole subtrees is not supported yet", 0 },
    { "deepspeed", "parameter_alignment", "padding between the parameters of a flat buffer is not "
      "supported yet", 0 },
    { "deepspeed", "legacy_stage1", "the old stage 1 is not supported", 0 },
};

static bool asks_for_nothing(const json_t *v, double none)
{
    const char *device = json_string_value(json_object_get(v, "device"));

    if (json_is_null(v) || json_is_false(v))
        return true;
    if (json_is_number(v))
        return fabs(json_number_value(v) - none) < 0.5;
    return json_is_object(v) && ((device && !strcmp(device, "none")) || json_object_size(v) == 0);
}

const char *plan_unsupported(const char *object, const char *name, const json_t *value)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!strcmp(unsupported[i].object, object) && !strcmp(unsupported[i].name, name))
            return asks_for_nothing(value, unsupported[i].none) ? "" : unsupported[i].why;
    return NULL;
}
