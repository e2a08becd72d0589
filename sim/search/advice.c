/* advice.c -- variants of a plan that might lower its peak, each lowered and compared. */
#include "sim/search/advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/page.h"
#include "base/size.h"
#include "base/sort.h"
#include "model/plan/elsewhere.h"
#include "model/plan/knob.h"
#include "model/plan/liger.h"
#include "model/plan/loss_check.h"
#include "model/plan/optimizer_choice.h"
#include "sim/search/enumerate.h"

/* ---- why ---- */

/* Which parameters stay in device memory. */
static const char *params_reason(const struct plan *p)
{
    bool packed = p->train.base != BASE_PLAIN, fsdp = p->strategy == STRAT_FSDP && !(p->dialect == DIALECT_TORCH_FSDP1 &&
                                                                                     p->fsdp.sharding_strategy == FSDP1_NO_SHARD);

    if (fsdp && packed && p->train.base != BASE_AO_NF4)
        return p->fsdp.cpu_offload ? "the codes' statistics, which FSDP does not shard, stay on every rank"
                                   : "a rank's share of the codes stays there, and all of their statistics, which FSDP does not shard";
    if (fsdp || p->strategy == STRAT_ZERO3)
        return "a rank's share of them stays there";
    return packed ? "all of them stay on every rank, as codes and statistics" : "whole parameters stay on every rank";
}

static const char *reason(const struct plan *p, enum category c, const char *peak_at)
{
    switch (c) {
    case CAT_PARAMS:          return params_reason(p);
    case CAT_GRADS:           return "gradients stay until the optimizer step";
    case CAT_OPTIMIZER:       return "optimizer states stay all the time";
    case CAT_ACTIVATIONS:     return p->model.recorded ? "backward needs what every unit's forward kept" : "backward needs what every block's forward kept";
    case CAT_TEMPORARIES:     return !p->model.recorded && strstr(peak_at, "head") ? "logits, their softmax and its gradient are all there at once"
                                                             : "kernels need their operands and results together";
    case CAT_UNSHARDED:       return "parameters are gathered for use";
    case CAT_UNSHARDED_GRADS: return "full gradients exist until they are reduced";
    case CAT_ALL_GATHER:      return "an all-gather's output exists beside the parameters it is copied into";
    case CAT_REDUCE_SCATTER:  return "gradients are copied into the input of the reduce-scatter";
    case CAT_BUCKET:          return "the buckets that gradients are reduced in stay allocated";
    case CAT_OVERHEAD:
    case NCAT:                break;
    }
    return "workspaces";
}

static void print_why(const struct plan *plan, const struct evaluation *e, FILE *to)
{
    const struct peak *p = &e->m.ledger.peak;
    bool told[NCAT] = { false };

    fprintf(to, "The peak of %s comes in the %s step, at %s.", size_text(e->m.needed).s, sched_name(p->sched), e->peak_at);
    for (int k = 0; k < 3; k++) {
        int most = -1;
        for (int c = 0; c < NCAT; c++)
            if (!told[c] && p->by[c] > 0 && (most < 0 || p->by[c] > p->by[most]))
                most = c;
        if (most < 0 || p->by[most] < e->m.needed / 20)
            break;
        told[most] = true;
        fprintf(to, " %.0f %% of it is %s (%s): %s.", 100.0 * (double)p->by[most] / (double)e->m.needed,
                category_name((enum category)most), size_text(p->by[most]).s,
                reason(plan, (enum category)most, e->peak_at));
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

static bool fused_optimizer(struct plan *p)
{
    if (!knob_has(p, "", "optimizer_form") || p->optimizer_form == OPTIMIZER_FUSED)
        return false;
    p->optimizer_form = OPTIMIZER_FUSED;
    return true;
}

/* Liger-Kernel's, which has no logits, where it has one for the family. */
static bool loss_without_logits(struct plan *p)
{
    struct liger_options kernels;
    enum loss_kind usual;
    const char *lacks;

    if (!knob_find("", "loss", knob_cell(p)) || loss_reads_head(p->loss) ||
        !liger_usual(&p->model, &kernels, &usual, &lacks) || usual != LOSS_FUSED_LINEAR)
        return false;
    p->loss = LOSS_FUSED_LINEAR;
    p->logits_kept = LOGITS_DROPPED;
    p->logits_until = UNTIL_NEXT_LOGITS;
    return true;
}

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
    if (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH || p->ddp.gradient_as_bucket_view || !p->ddp.wrapped)
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

/* As many samples a step as that plan has; false where they cannot be dealt out. */
static bool same_batch(struct plan *p, const struct plan *was)
{
    int64_t each = p->micro_batch * plan_batch_ranks(p), batch = plan_global_batch(was);

    if (batch % each || batch / each > PLAN_MAX_BATCH)
        return false;
    p->accumulation = batch / each;
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

    if (p->dialect == DIALECT_TORCH && s >= STRAT_ZERO1)        /* what people take instead of DDP, rather than ZeroRedundancyOptimizer */
        s = STRAT_FSDP;
    if (s == p->strategy || !dialect_has(p->dialect, s) || p->cluster.world_size == 1)
        return false;
    plan_defaults(p, s, p->dialect, p->precision);
    p->kernels = was.kernels;
    p->recompute = was.recompute;
    p->recompute_interval = was.recompute_interval;
    p->dropout = was.dropout;
    p->clip = was.clip;
    return same_batch(p, &was) && optimizer_carry(&was, p);
}

/* Within nodes, with as many samples a step; norms on a share of the positions, as torchtitan and Megatron-LM's published runs have them. */
static bool more_tensor(struct plan *p)
{
    int64_t tensor = 2 * (p->parallel.tensor > 1 ? p->parallel.tensor : 1), data = plan_data_ranks(p);

    if (!knob_find("parallel", "tensor", knob_cell(p)) || p->dialect == DIALECT_DEEPSPEED || tensor > p->cluster.gpus_per_node ||
        plan_batch_ranks(p) % 2 || 2 * p->accumulation > PLAN_MAX_BATCH)
        return false;
    p->shard_group = p->shard_group >= data || p->shard_group < 2 ? data / 2 : p->shard_group / 2;
    p->parallel.tensor = tensor;
    p->parallel.sequence = true;
    p->accumulation *= 2;
    plan_resolve(p);
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

static bool activations_here(struct plan *p)
{
    if (p->activation_offload == OFFLOAD_NOTHING)
        return false;
    p->activation_offload = OFFLOAD_NOTHING;
    return true;
}

static bool all_here(struct plan *p)
{
    struct plan was = *p;

    *p = enumerate_in_place(p);
    return !enumerate_same_place(p, &was);
}

/* `peak`: of the memory that the plan lacks, else of device memory with what comes on top of the schedule. */
struct tried { const char *words; char what[48]; int64_t peak; bool fits; json_t *plan; };

/* The memory of a node that an evaluated plan lacks while device memory is enough; SPACE_DEVICE: none. */
static enum space short_of(const struct evaluation *e)
{
    int s = e->m.elsewhere && e->m.needed <= e->m.available ? spaces_short(&e->m.spaces) : -1;

    return s < 0 ? SPACE_DEVICE : (enum space)s;
}

static int64_t peak_in(const struct evaluation *e, enum space s)
{
    return s == SPACE_DEVICE ? e->m.needed : e->m.elsewhere ? e->m.spaces.of[s].peak : 0;
}

static int by_peak(const void *a, const void *b)
{
    int64_t x = ((const struct tried *)a)->peak, y = ((const struct tried *)b)->peak;
    return x < y ? -1 : x > y;
}

static const struct change changes[] = {
    { "take AdamW's fused form", fused_optimizer },
    { "take loss fused-linear, without logits", loss_without_logits },
    { "recompute activations of every block", recompute_full },
    { "halve the micro-batch, double the accumulation", half_micro_batch },
    { "set gradient_as_bucket_view", bucket_view },
    { "lower reduce_bucket_size to 5e7", small_bucket },
    { "shard over all ranks", flat_sharding },
    { "reshard after forward", reshard },
    { "make every block a unit", unit_block },
    { "shard more", shard_more },
    { "double parallel.tensor and the accumulation", more_tensor },
    { "offload optimizer states to the CPU", optimizer_elsewhere },
    { "offload optimizer states and parameters to the CPU", all_elsewhere },
    { "keep activations in device memory", activations_here },
    { "keep all in device memory", all_here },
};
#define NCHANGES (sizeof changes / sizeof *changes)

struct judge { bool (*accept)(const struct plan *p, const void *what); const void *what; bool plans; };

/* What each change that applies, to a plan that is taken, would leave at the peak in a memory; returns how many do.  `first`: up to the first
 * that fits, and of others no more than that they do not. */
static int try_all(const struct plan *p, enum space s, const struct judge *j, bool first, struct tried tried[NCHANGES])
{
    char ignored[256];
    int n = 0;

    struct fail_sink before = fail_divert(ignored, sizeof ignored);      /* a change that a dialect refuses is no advice */
    for (size_t i = 0; i < NCHANGES && !(first && n > 0 && tried[n - 1].fits); i++) {
        struct plan q = *p;             /* shares the model; not freed */
        struct evaluation f;
        if (!changes[i].apply(&q) || plan_check(&q, "advice") < 0 || (j->accept && !j->accept(&q, j->what)) ||
            evaluate_allocated(&q, &f) < 0)
            continue;
        bool asked = !first || f.m.ledger.peak.bytes <= q.cluster.memory;       /* else no allocator helps */
        if ((asked && evaluation_reserve_within(&q, &f) < 0) ||
            (s != SPACE_DEVICE && f.m.needed > f.m.available)) {        /* moves what is short to the device */
            evaluation_free(&f);
            continue;
        }
        tried[n] = (struct tried){ .words = changes[i].words, .peak = peak_in(&f, s),
                                   .fits = f.m.fits,
                                   .plan = j->plans ? plan_to_json(&q) : NULL };
        if (q.strategy != p->strategy)
            snprintf(tried[n].what, sizeof tried[n].what, " with %s", strategy_name(q.strategy));
        n++;
        evaluation_free(&f);
    }
    fail_restore(before);
    return n;
}

bool advice_accepted(const struct plan *p, bool (*accept)(const struct plan *p, const void *what), const void *what,
                     char *to, size_t size)
{
    struct tried tried[NCHANGES];
    struct judge j = { .accept = accept, .what = what };
    struct evaluation e;

    if (evaluate_allocated(p, &e) < 0)
        return false;
    enum space s = short_of(&e);
    evaluation_free(&e);
    int n = try_all(p, s, &j, true, tried);
    for (int i = 0; i < n; i++)         /* in the order of the table: the cheapest first */
        if (tried[i].fits) {
            snprintf(to, size, "%s%s (%s%s)", tried[i].words, tried[i].what, size_text(tried[i].peak).s,
                     s == SPACE_DEVICE ? "" : s == SPACE_DISK ? " of disk space" : " of host memory");
            return true;
        }
    return false;
}

bool advice_that_fits(const struct plan *p, char *to, size_t size)
{
    return advice_accepted(p, NULL, NULL, to, size);
}

static void print_ways(const struct plan *p, const struct evaluation *e, FILE *to)
{
    struct tried tried[NCHANGES];
    enum space s = short_of(e);
    int64_t now = peak_in(e, s);
    int n = try_all(p, s, &(struct judge){ 0 }, false, tried);

    if (s != SPACE_DEVICE)
        fprintf(to, "What is short is a node's %s, not device memory.\n", s == SPACE_DISK ? "disk space" : "host memory");
    sort_stable(tried, (size_t)n, sizeof *tried, by_peak);
    for (int i = 0, told = 0; i < n && told < 4 && tried[i].peak < now; i++, told++)
        fprintf(to, "%s " PAGE_HANG "%s%s: %s, %s less\n", told ? "             " : "To lower it: ", tried[i].words, tried[i].what,
                size_text(tried[i].peak).s, size_text(now - tried[i].peak).s);
}

json_t *advice_json(const struct plan *p, const struct evaluation *e, bool plans)
{
    struct tried tried[NCHANGES];
    enum space s = short_of(e);
    int n = try_all(p, s, &(struct judge){ .plans = plans }, false, tried);
    json_t *ways = json_array();
    char *why = NULL;
    size_t size;
    FILE *f = open_memstream(&why, &size);

    if (!f)
        abort();
    print_why(p, e, f);
    fclose(f);
    sort_stable(tried, (size_t)n, sizeof *tried, by_peak);
    for (int i = 0; i < n; i++)
        if (tried[i].peak < peak_in(e, s))
            json_array_append_new(ways, json_pack("{s:o, s:I, s:b, s:o*}", "change", json_sprintf("%s%s", tried[i].words, tried[i].what),
                                                  "peak_bytes", (json_int_t)tried[i].peak, "fits", tried[i].fits, "plan", tried[i].plan));
        else
            json_decref(tried[i].plan);
    json_t *doc = json_pack("{s:s, s:s, s:I, s:o}", "why", why, "space", space_name(s), "peak_bytes", (json_int_t)peak_in(e, s),
                            "to_lower_it", ways);
    free(why);
    return doc;
}

void advice_print(const struct plan *p, const struct evaluation *e, FILE *to)
{
    print_why(p, e, to);
    print_ways(p, e, to);
}
