/* enumerate.c -- nested choices, outermost first: cell, micro-batch, recompute, then
 * the options of the dialect.  Each choice is a function that tries its values and
 * hands on; what a dialect refuses is dropped at the end by plan_check(). */
#include "sim/search/enumerate.h"

#include <string.h>

#include "base/fail.h"

struct walk {
    const struct search_options *o;
    int (*take)(const struct plan *p, void *arg);
    void *arg;
    char refusal[256], first[256];      /* why a plan was refused: the last one, the first one */
    bool taken;
};

static int offer(struct walk *w, const struct plan *p)
{
    struct plan q = *p;
    int ok;

    fail_capture(w->refusal, sizeof w->refusal);
    plan_resolve(&q);
    ok = plan_check(&q, "search");
    fail_capture(NULL, 0);
    if (ok < 0) {
        if (!w->first[0])
            memcpy(w->first, w->refusal, sizeof w->first);
        return 0;
    }
    w->taken = true;
    return w->take(&q, w->arg);
}

/* ---- torch ---- */

static int torch_ddp(struct walk *w, struct plan *p)
{
    static const double caps[] = { -1, 50, 100, 200 };
    int rc = 0;

    for (int view = 0; view <= 1 && !rc; view++)
        for (size_t c = 0; c < sizeof caps / sizeof *caps && !rc; c++) {
            p->ddp.gradient_as_bucket_view = view;
            p->ddp.bucket_cap_mb = caps[c];
            rc = offer(w, p);
        }
    return rc;
}

/* fully_shard: units, what is kept after forward, flat or hybrid. */
static int fsdp2_units(struct walk *w, struct plan *p)
{
    static const struct { enum unit_kind kind; int64_t blocks; } units[] = {
        { UNIT_BLOCK, 1 }, { UNIT_BLOCKS, 2 }, { UNIT_BLOCKS, 4 }, { UNIT_BLOCKS, 8 },
        { UNIT_HALF_BLOCK, 1 }, { UNIT_MODEL, 1 },
    };
    int64_t per_node = p->cluster.gpus_per_node;
    int rc = 0;

    for (size_t u = 0; u < sizeof units / sizeof *units && !rc; u++) {
        if (units[u].kind == UNIT_BLOCKS && units[u].blocks >= p->model.layers)
            continue;
        p->unit = units[u].kind;
        p->unit_blocks = units[u].blocks;
        for (int keep = 0; keep <= 2 && !rc; keep++) {
            p->fsdp.reshard_after_forward = keep == 0 ? -1 : keep == 1 ? 0 : per_node;
            if (keep == 2 && (per_node < 2 || per_node >= p->shard_group || p->shard_group % per_node))
                continue;
            rc = offer(w, p);
        }
    }
    return rc;
}

static int fsdp1_options(struct walk *w, struct plan *p)
{
    bool hybrid = p->shard_group < p->cluster.world_size;
    int rc = 0;

    for (int grad_op = 0; grad_op <= 1 && !rc; grad_op++)
        for (int unit = 0; unit <= 1 && !rc; unit++)
            for (int prefetch = 0; prefetch <= 2 && !rc; prefetch++) {
                p->fsdp.sharding_strategy = hybrid ? (grad_op ? FSDP1_HYBRID_SHARD_ZERO2 : FSDP1_HYBRID_SHARD)
                                                   : (grad_op ? FSDP1_SHARD_GRAD_OP : FSDP1_FULL_SHARD);
                p->unit = unit ? UNIT_MODEL : UNIT_BLOCK;
                /* Nothing ahead, the default, or forward as well. */
                p->fsdp.backward_prefetch = prefetch ? PREFETCH_PRE : PREFETCH_NONE;
                p->fsdp.forward_prefetch = prefetch == 2;
                rc = offer(w, p);
            }
    return rc;
}

static int sharded(struct walk *w, struct plan *p)
{
    int64_t world = p->cluster.world_size, per_node = p->cluster.gpus_per_node;
    int rc = 0;

    for (int64_t group = world; group >= 1 && !rc; ) {
        p->shard_group = group;
        rc = p->dialect == DIALECT_TORCH_FSDP1 ? fsdp1_options(w, p) : fsdp2_units(w, p);
        /* All ranks, then nodes by halves down to one node. */
        if (group % (2 * per_node) == 0)
            group /= 2;
        else if (group > per_node && per_node > 1 && world % per_node == 0)
            group = per_node;
        else
            break;
    }
    return rc;
}

/* ---- DeepSpeed ---- */

/* Stage 3's schedules are the longest by far: two corners of its throttles, what the
 * defaults do and what saves memory. */
static int deepspeed_3(struct walk *w, struct plan *p)
{
    int rc = 0;

    for (int frugal = 0; frugal <= 1 && !rc; frugal++) {
        p->ds.stage3_max_live_parameters = frugal ? 300000000 : 1000000000;
        p->ds.stage3_max_reuse_distance = frugal ? 0 : 1000000000;
        rc = offer(w, p);
    }
    return rc;
}

static int deepspeed(struct walk *w, struct plan *p)
{
    static const int64_t buckets[] = { 500000000, 50000000 };
    int rc = 0;

    if (p->strategy == STRAT_DDP)
        return offer(w, p);
    for (size_t b = 0; b < sizeof buckets / sizeof *buckets && !rc; b++) {
        p->ds.reduce_bucket_size = buckets[b];
        if (p->strategy == STRAT_ZERO3)
            rc = deepspeed_3(w, p);
        for (int overlap = 0; overlap <= 1 && !rc && p->strategy != STRAT_ZERO3; overlap++) {
            p->ds.overlap_comm = overlap;
            rc = offer(w, p);
        }
    }
    return rc;
}

static int paper_units(struct walk *w, struct plan *p)
{
    static const enum unit_kind units[] = { UNIT_BLOCK, UNIT_HALF_BLOCK, UNIT_MODEL };
    int rc = 0;

    for (size_t u = 0; u < sizeof units / sizeof *units && !rc; u++) {
        p->unit = units[u];
        p->unit_blocks = 1;
        rc = offer(w, p);
    }
    return rc;
}

/* ---- what every dialect has ---- */

static int options(struct walk *w, struct plan *p)
{
    if (p->dialect == DIALECT_DEEPSPEED)
        return deepspeed(w, p);
    if (p->dialect == DIALECT_PAPER)
        return p->strategy >= STRAT_ZERO2 ? paper_units(w, p) : offer(w, p);
    if (p->strategy == STRAT_FSDP)
        return sharded(w, p);
    return p->strategy == STRAT_DP ? offer(w, p) : torch_ddp(w, p);
}

static int synchronised(struct walk *w, struct plan *p)
{
    int rc = 0;

    if (p->accumulation == 1 || !plan_sync_is_choice(p->strategy, p->dialect))
        return options(w, p);
    for (int every = 0; every <= 1 && !rc; every++) {
        p->sync_every_micro_step = every;
        rc = options(w, p);
    }
    return rc;
}

static int recomputed(struct walk *w, struct plan *p)
{
    static const int64_t intervals[] = { 1, 2, 4 };
    int rc = 0;

    for (int r = 0; r < NRECOMPUTE && !rc; r++) {
        if (!(w->o->recompute >> r & 1))
            continue;
        for (size_t i = 0; i < (r == RECOMPUTE_NONE ? 1 : 3) && !rc; i++) {
            if (intervals[i] > p->model.layers)
                break;
            p->recompute = (enum recompute)r;
            p->recompute_interval = intervals[i];
            rc = synchronised(w, p);
        }
    }
    return rc;
}

/* FSDP1 would reduce in param_dtype, FSDP2 in fp32 (plan.c): as candidates they reduce alike, else half of what
 * sets them apart is that one of them sends half as much. */
static enum dtype as_fsdp2(const struct plan *p)
{
    struct plan q = *p;

    plan_defaults(&q, STRAT_FSDP, DIALECT_TORCH, p->precision);
    return q.reduce_dtype;
}

static int cell(struct walk *w, enum strategy s, enum dialect d)
{
    const struct search_options *o = w->o;
    int64_t each = o->global_batch / o->cluster->world_size;
    int64_t least = (each + PLAN_MAX_BATCH - 1) / PLAN_MAX_BATCH;
    int rc = 0;

    for (int64_t b = least; b <= each && b <= PLAN_MAX_BATCH && !rc; b++) {
        struct plan p = { .model = *o->model, .cluster = *o->cluster, .seq = o->seq, .micro_batch = b };
        if (each % b || (o->micro_batch && b != o->micro_batch))
            continue;
        plan_defaults(&p, s, d, o->precision);
        p.accumulation = each / b;
        p.kernels = o->kernels;
        if (d == DIALECT_TORCH_FSDP1)
            p.reduce_dtype = as_fsdp2(&p);
        rc = recomputed(w, &p);
    }
    return rc;
}

int enumerate(const struct search_options *o, int (*take)(const struct plan *p, void *arg), void *arg)
{
    struct walk w = { .o = o, .take = take, .arg = arg };
    int rc = 0;

    for (int s = 0; s < NSTRATEGY && !rc; s++)
        for (int d = 0; d < NDIALECT && !rc; d++)
            if ((o->strategies >> s & 1) && (o->dialects >> d & 1) && dialect_has((enum dialect)d, (enum strategy)s))
                rc = cell(&w, (enum strategy)s, (enum dialect)d);
    if (!rc && !w.taken && w.first[0])
        return fail("nothing to search: %s", w.first + (strncmp(w.first, "search: ", 8) ? 0 : 8));
    return rc;
}
