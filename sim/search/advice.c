#include "sim/search/advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/plan/elsewhere.h"
#include "sim/search/enumerate.h"

/* ---- why ---- */

static const char *reason(enum category c, const char *peak_at)
{
    switch (c) {
    case CAT_PARAMS:          return "whole parameters stay on every rank";
    case CAT_GRADS:           return "gradients stay until the optimizer step";
    case CAT_OPTIMIZER:       return "optimizer states stay all the time";
    case CAT_ACTIVATIONS:     return "backward needs what every block's forward kept";
    case CAT_TEMPORARIES:     return strstr(peak_at, "head") ? "logits, their softmax and its gradient are all there at once"
                                                             : "kernels need their operands and results together";
    case CAT_UNSHARDED:       return "parameters are gathered for use";
    case CAT_UNSHARDED_GRADS: return "full gradients exist until they are reduced";
    case CAT_ALL_GATHER:      return "an all-gather's output exists beside the parameters it is copied into";
    case CAT_REDUCE_SCATTER:  return "gradients are copied into the input of the reduce-scatter";
    case CAT_BUCKET:          return "the communication bucket is allocated in full, whatever the model's size";
    case CAT_OVERHEAD:
    case NCAT:                break;
    }
    return "workspaces";
}

static void print_why(const struct evaluation *e, FILE *to)
{
    const struct peak *p = &e->m.ledger.peak;
    bool told[NCAT] = { false };

    fprintf(to, "The peak of %s comes in the %s step, at %s.", size_text(p->bytes).s, sched_name(p->sched), e->peak_at);
    for (int k = 0; k < 3; k++) {
        int most = -1;
        for (int c = 0; c < NCAT; c++)
            if (!told[c] && p->by[c] > 0 && (most < 0 || p->by[c] > p->by[most]))
                most = c;
        if (most < 0 || p->by[most] * 20 < p->bytes)
            break;
        told[most] = true;
        fprintf(to, " %.0f%% of it is %s (%s): %s.", 100.0 * (double)p->by[most] / (double)p->bytes,
                category_name((enum category)most), size_text(p->by[most]).s,
                reason((enum category)most, e->peak_at));
    }
    fputc('\n', to);
    for (int i = 0; i < e->schedules.nnotes; i++)
        fprintf(to, "%s\n", e->schedules.notes[i]);
}

/* ---- what would lower it ---- */

/* A change of one option; false when it does not apply to this plan. */
struct change {
    const char *words;
    bool (*apply)(struct plan *p);
};

static bool recompute_full(struct plan *p)
{
    if ((p->recompute == RECOMPUTE_FULL || p->recompute == RECOMPUTE_OFFLOAD) && p->recompute_interval == 1)
        return false;
    p->recompute = RECOMPUTE_FULL;
    p->recompute_interval = 1;
    return true;
}

static bool half_micro_batch(struct plan *p)
{
    if (p->micro_batch < 2 || p->micro_batch % 2)
        return false;
    p->micro_batch /= 2;
    p->accumulation *= 2;
    return true;
}

static bool bucket_view(struct plan *p)
{
    if (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH || p->ddp.gradient_as_bucket_view)
        return false;
    return p->ddp.gradient_as_bucket_view = true;
}

static bool small_bucket(struct plan *p)
{
    if (p->dialect != DIALECT_DEEPSPEED || p->ds.reduce_bucket_size <= 50000000)
        return false;
    p->ds.reduce_bucket_size = 50000000;
    return true;
}

static bool flat_sharding(struct plan *p)
{
    if (p->shard_group >= p->cluster.world_size)
        return false;
    p->shard_group = p->cluster.world_size;
    return true;
}

static bool reshard(struct plan *p)
{
    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH || p->fsdp.reshard_after_forward != 0)
        return false;
    p->fsdp.reshard_after_forward = 1;
    return true;
}

static bool unit_block(struct plan *p)
{
    if (p->unit != UNIT_MODEL && p->unit != UNIT_BLOCKS)
        return false;
    p->unit = UNIT_BLOCK;
    p->unit_blocks = 1;
    return true;
}

/* The next strategy that shards more, with its dialect's defaults and this
 * plan's batch. */
static bool shard_more(struct plan *p)
{
    static const enum strategy next[NSTRATEGY] = {
        [STRAT_DP] = STRAT_DDP, [STRAT_DDP] = STRAT_ZERO1, [STRAT_ZERO1] = STRAT_ZERO2,
        [STRAT_ZERO2] = STRAT_ZERO3, [STRAT_ZERO3] = STRAT_ZERO3, [STRAT_FSDP] = STRAT_FSDP,
    };
    struct plan was = *p;
    enum strategy s = next[p->strategy];

    if (p->dialect == DIALECT_TORCH && s > STRAT_ZERO1)
        s = STRAT_FSDP;
    if (s == p->strategy || !dialect_has(p->dialect, s) || p->cluster.world_size == 1)
        return false;
    plan_defaults(p, s, p->dialect, p->precision);
    p->kernels = was.kernels;
    p->recompute = was.recompute;
    p->recompute_interval = was.recompute_interval;
    p->dropout = was.dropout;
    return true;
}

/* FSDP has no other way than all. */
static bool optimizer_elsewhere(struct plan *p)
{
    struct plan was = *p;
    bool all_alone = elsewhere_has(p->strategy, p->dialect, ELSEWHERE_ALL) && !elsewhere_has(p->strategy, p->dialect, ELSEWHERE_DISK);

    return !all_alone && elsewhere_set(p, ELSEWHERE_OPTIMIZER) && !enumerate_same_place(p, &was);
}

static bool all_elsewhere(struct plan *p)
{
    struct plan was = *p;

    return elsewhere_set(p, ELSEWHERE_ALL) && !enumerate_same_place(p, &was);
}

struct tried { const char *words; char what[48]; int64_t peak, needed; bool fits; };

static int by_peak(const void *a, const void *b)
{
    int64_t x = ((const struct tried *)a)->peak, y = ((const struct tried *)b)->peak;
    return x < y ? -1 : x > y;
}

static const struct change changes[] = {
    { "recompute activations of every block", recompute_full },
    { "halve the micro-batch, double the accumulation", half_micro_batch },
    { "set gradient_as_bucket_view", bucket_view },
    { "lower reduce_bucket_size to 5e7", small_bucket },
    { "shard over all ranks", flat_sharding },
    { "reshard after forward", reshard },
    { "make every block a unit", unit_block },
    { "shard more", shard_more },
    { "offload optimizer states to the CPU", optimizer_elsewhere },
    { "offload optimizer states and parameters to the CPU", all_elsewhere },
};
#define NCHANGES (sizeof changes / sizeof *changes)

/* What each change that applies would leave at the peak; returns how many do. */
static int try_all(const struct plan *p, struct tried tried[NCHANGES])
{
    char ignored[256];
    int n = 0;

    struct fail_sink before = fail_divert(ignored, sizeof ignored);      /* a change that a dialect refuses is no advice */
    for (size_t i = 0; i < NCHANGES; i++) {
        struct plan q = *p;             /* shares the model; not freed */
        struct evaluation f;
        if (!changes[i].apply(&q) || plan_check(&q, "advice") < 0 || evaluate(&q, &f) < 0)
            continue;
        tried[n] = (struct tried){ .words = changes[i].words, .peak = f.m.ledger.peak.bytes,
                                   .needed = f.m.needed, .fits = f.m.fits };
        if (q.strategy != p->strategy)
            snprintf(tried[n].what, sizeof tried[n].what, " with %s", strategy_name(q.strategy));
        n++;
        evaluation_free(&f);
    }
    fail_restore(before);
    return n;
}

bool advice_that_fits(const struct plan *p, char *to, size_t size)
{
    struct tried tried[NCHANGES];
    int n = try_all(p, tried);

    for (int i = 0; i < n; i++)         /* in the order of the table: the cheapest first */
        if (tried[i].fits) {
            snprintf(to, size, "%s%s (%s)", tried[i].words, tried[i].what, size_text(tried[i].needed).s);
            return true;
        }
    return false;
}

static void print_ways(const struct plan *p, const struct evaluation *e, FILE *to)
{
    struct tried tried[NCHANGES];
    int n = try_all(p, tried);

    qsort(tried, (size_t)n, sizeof *tried, by_peak);
    for (int i = 0, told = 0; i < n && told < 4 && tried[i].peak < e->m.ledger.peak.bytes; i++, told++)
        fprintf(to, "%s %s%s: %s, %s less\n", told ? "             " : "To lower it: ", tried[i].words, tried[i].what,
                size_text(tried[i].peak).s, size_text(e->m.ledger.peak.bytes - tried[i].peak).s);
}

void advice_print(const struct plan *p, const struct evaluation *e, FILE *to)
{
    print_why(e, to);
    print_ways(p, e, to);
}
