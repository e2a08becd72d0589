/* Every size at which a framework cuts, keeps or waits: a tiny model on both sides of it.  With the
 * frameworks' own values tiny models lie on one side only, and what happens on the other was once
 * wrong for every model of more than 250 MiB. */
#include "tests/model/flows.h"

#include "model/plan/knob.h"
#include "model/schedule/ledger.h"

enum {
    DP = CELL(STRAT_DP, DIALECT_TORCH), DDP = CELL(STRAT_DDP, DIALECT_TORCH), ZRO = CELL(STRAT_ZERO1, DIALECT_TORCH),
    DS0 = CELL(STRAT_DDP, DIALECT_DEEPSPEED), DS1 = CELL(STRAT_ZERO1, DIALECT_DEEPSPEED),
    DS2 = CELL(STRAT_ZERO2, DIALECT_DEEPSPEED), DS3 = CELL(STRAT_ZERO3, DIALECT_DEEPSPEED),
};

/* Nothing of the tiny models below has as many bytes or elements. */
static const int64_t beyond = 1 << 17;

static void set_broadcast(struct plan *p, int64_t v)    { p->limits.ddp_broadcast = v; }
static void set_bucket(struct plan *p, int64_t v)       { p->limits.ddp_bucket = p->limits.ddp_first_bucket = v; }
static void set_coalesce(struct plan *p, int64_t v)     { p->limits.dp_coalesce = v; }
static void set_all_reduce(struct plan *p, int64_t v)   { p->limits.ds_allreduce = v; }
static void set_reduce(struct plan *p, int64_t v)       { p->ds.reduce_bucket_size = v; }
static void set_sub_group(struct plan *p, int64_t v)    { p->ds.sub_group_size = v; }
static void set_prefetch(struct plan *p, int64_t v)     { p->ds.stage3_prefetch_bucket_size = v; }
static void set_persistence(struct plan *p, int64_t v)  { p->ds.stage3_param_persistence_threshold = v; }
static void set_kept(struct plan *p, int64_t v)         { p->ds.stage3_model_persistence_threshold = v; }
static void set_live(struct plan *p, int64_t v)         { p->ds.stage3_max_live_parameters = v; }

/* What was fetched ahead passes over its later uses and is kept whatever their distance. */
static void set_reuse(struct plan *p, int64_t v)
{
    p->ds.stage3_max_reuse_distance = v;
    p->ds.stage3_prefetch_bucket_size = 0;
}

/* The first bucket alone stays small, as without bucket_cap_mb. */
static void set_first_bucket(struct plan *p, int64_t v)
{
    set_bucket(p, beyond);
    p->limits.ddp_first_bucket = v;
}

static void set_cap(struct plan *p, int64_t v)
{
    p->ddp.bucket_cap_mb = (double)v / (1 << 20);
}

/* Up to PyTorch 2.4 the first bucket stays small though a cap is given. */
static void set_first_with_cap(struct plan *p, int64_t v)
{
    strcpy(p->framework_version, "2.4");
    set_cap(p, beyond);
    p->limits.ddp_first_bucket = v;
}

static const struct threshold {
    const char *name;
    uint64_t cells;
    void (*set)(struct plan *p, int64_t v);
    int64_t framework;              /* its own value; tiny models lie below it, unless it is low itself */
    bool stays;                     /* a rank keeps parameters: they must not be persistent from the start */
} thresholds[] = {
    { "chunks of DDP's first broadcast", DDP | ZRO, set_broadcast, (int64_t)250 << 20, false },
    { "DDP's buckets", DDP | ZRO, set_bucket, (int64_t)25 << 20, false },
    { "DDP's first bucket", DDP | ZRO, set_first_bucket, (int64_t)1 << 20, false },
    { "bucket_cap_mb", DDP | ZRO, set_cap, (int64_t)25 << 20, false },
    { "the first bucket up to PyTorch 2.4", DDP | ZRO, set_first_with_cap, (int64_t)1 << 20, false },
    { "what DataParallel coalesces", DP, set_coalesce, (int64_t)10 << 20, false },
    { "stage 0's all-reduces", DS0, set_all_reduce, 500000000, false },
    { "reduce_bucket_size", DS1 | DS2 | DS3, set_reduce, 500000000, false },
    { "sub_group_size", DS3, set_sub_group, 1000000000, false },
    { "stage3_prefetch_bucket_size", DS3, set_prefetch, 50000000, true },
    { "stage3_param_persistence_threshold", DS3, set_persistence, 100000, false },
    { "stage3_model_persistence_threshold", DS3, set_kept, INT64_MAX, false },
    { "stage3_max_live_parameters", DS3, set_live, 1000000000, true },
    { "stage3_max_reuse_distance", DS3, set_reuse, 1000000000, true },
};
enum { NTHRESHOLDS = sizeof thresholds / sizeof *thresholds };

/* 12 tensors a block; the widest has 11 * 8 = 88 and 32 * 8 = 256 elements. */
static const char tiny[] =
    "{'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 8, 'n_head': 2, 'n_positions': 8, 'vocab_size': 11}";

static struct model model;
static struct schedules s;

static void threshold_plan(const struct threshold *t, int strategy, int dialect, int64_t world, int64_t v,
                           struct plan *p)
{
    tiny_plan(p, &model, world, (enum strategy)strategy, (enum dialect)dialect, DT_FP32);
    p->accumulation = 2;
    if (p->ds.reduce_bucket_size > beyond)
        p->ds.reduce_bucket_size = beyond;      /* its own 5e8 elements would all be allocated */
    if (t->stays)
        p->ds.stage3_param_persistence_threshold = 0;
    t->set(p, v);
    plan_resolve(p);
}

/* What the thresholds change: how many collectives, optimizer passes and waits a run has. */
static int count_entry(const struct schedules *q, const struct op *o, int64_t iteration, void *arg)
{
    (void)q;
    (void)iteration;
    *(int *)arg += o->kind == OP_COLL || o->kind == OP_OPTIMIZER || o->kind == OP_WAIT;
    return 0;
}

static int entries_of(const struct plan *p)
{
    int n = 0;

    lowered(p, 0, &s);
    for (int id = 0; id < NSCHED; id++)
        sched_walk(&s, (enum sched_id)id, count_entry, &n);
    return n;
}

static void for_each_cell(void (*f)(const struct threshold *t, int strategy, int dialect))
{
    for (int i = 0; i < NTHRESHOLDS; i++)
        for (int st = 0; st < NSTRATEGY; st++)
            for (int d = 0; d < NDIALECT; d++)
                if (thresholds[i].cells & CELL(st, d))
                    f(&thresholds[i], st, d);
}

static void both_sides(const struct threshold *t, int strategy, int dialect)
{
    struct plan low, high;

    threshold_plan(t, strategy, dialect, 2, 1, &low);
    threshold_plan(t, strategy, dialect, 2, beyond, &high);
    if (entries_of(&low) == entries_of(&high))
        fail_msg("%s/%s: %s changes nothing", strategy_name((enum strategy)strategy),
                 dialect_name((enum dialect)dialect), t->name);
}

static void a_tiny_model_lies_on_both_sides_of_every_threshold(void **state)
{
    (void)state;
    for_each_cell(both_sides);
}

/* 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17 ...: sums of tensors' sizes, all even, are met and missed by one. */
static void every_value(const struct threshold *t, int strategy, int dialect)
{
    static const int64_t sizes[] = { 1, 2, 3, 4 };
    struct plan p;
    int k = 0;

    for (int64_t power = 2; power <= beyond; power *= 2)
        for (int64_t v = power - 1; v <= power + 1; v++) {
            threshold_plan(t, strategy, dialect, sizes[k++ % 4], v, &p);
            must_flow(&p, dialect == DIALECT_DEEPSPEED);
        }
}

static void data_flows_on_both_sides_of_every_threshold(void **state)
{
    (void)state;
    for_each_cell(every_value);
}

/* The constants are the frameworks': torch/nn/parallel/distributed.py (broadcast_bucket_size),
 * torch/csrc/distributed/c10d/reducer.hpp (kDefaultFirstBucketBytes, kDefaultBucketBytesCap),
 * torch/nn/parallel/comm.py (buffer_size=10485760), deepspeed/runtime/engine.py
 * (elements_per_buffer=500000000). */
static void what_no_option_changes_is_as_the_frameworks_have_it(void **state)
{
    struct plan p;

    (void)state;
    tiny_plan(&p, &model, 2, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    assert_int_equal(p.limits.ddp_broadcast, 262144000);
    assert_int_equal(p.limits.ddp_first_bucket, 1048576);
    assert_int_equal(p.limits.ddp_bucket, 26214400);
    assert_int_equal(p.limits.dp_coalesce, 10485760);
    assert_int_equal(p.limits.ds_allreduce, 500000000);
}

/* DeepSpeed's own gathers of updated parameters take all_gather_into_tensor, which cuts nothing. */
static void allgather_bucket_size_changes_nothing(void **state)
{
    struct plan p;

    (void)state;
    for (int st = STRAT_ZERO1; st <= STRAT_ZERO2; st++) {
        int n[2];
        for (int i = 0; i < 2; i++) {
            tiny_plan(&p, &model, 2, (enum strategy)st, DIALECT_DEEPSPEED, DT_FP32);
            p.ds.allgather_bucket_size = i ? 500000000 : 1;
            n[i] = entries_of(&p);
        }
        assert_int_equal(n[0], n[1]);
    }
}

static int begin(void **state)
{
    (void)state;
    tiny_model(tiny, &model);
    return 0;
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    model_free(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tiny_model_lies_on_both_sides_of_every_threshold),
        cmocka_unit_test(data_flows_on_both_sides_of_every_threshold),
        cmocka_unit_test(what_no_option_changes_is_as_the_frameworks_have_it),
        cmocka_unit_test(allgather_bucket_size_changes_nothing),
    };
    return cmocka_run_group_tests_name("model/thresholds", tests, begin, end);
}
