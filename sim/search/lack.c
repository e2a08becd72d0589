/* lack.c -- the first memory that a plan does not fit into, in words, and larger clusters tried. */
#include "sim/search/lack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_choice.h"

bool lack_of(const struct plan *p, const struct evaluation *e, struct lack *out)
{
    const struct reserved *r = &e->reserved;
    int64_t outside = e->m.overhead.by[OVERHEAD_OUTSIDE];
    int node = e->m.elsewhere ? spaces_short(&e->m.spaces) : -1;

    *out = (struct lack){ .space = SPACE_DEVICE, .needed = e->m.needed, .available = e->m.available, .usable = e->m.available,
                          .headroom = p->cluster.headroom };
    if (e->m.fits)
        return false;
    if (node >= 0)
        spaces_why_not(&e->m.spaces, out->nodes, sizeof out->nodes);
    if (r->known) {
        out->card = true;
        out->available = r->limit + outside;
        out->headroom = 0;
    }
    if (out->needed > out->available)
        return true;
    if (node >= 0) {
        out->card = false;
        const struct space_account *a = &e->m.spaces.of[node];
        out->space = (enum space)node;
        out->needed = a->peak;
        out->available = a->available;
        out->headroom = 0;
    } else {
        out->reserved = true;
        out->refused = r->refused;
        out->needed = out->available + r->refused;
        out->taken = evaluation_taken(&e->m, &e->reserved);
    }
    return true;
}

void lack_words(const struct lack *l, char *to, size_t size)
{
    struct size_text over = size_text(l->needed - l->available);

    if (l->space != SPACE_DEVICE)
        snprintf(to, size, "lacks %s, %s too much", l->nodes, over.s);
    else if (l->reserved)
        snprintf(to, size, "would reserve %s with unlimited memory (%s usable): a request of %s finds no room, even in the whole card%s%s", size_text(l->taken).s,
                 size_text(l->usable).s, size_text(l->refused).s, l->nodes[0] ? "; " : "", l->nodes);
    else
        snprintf(to, size, "needs %s of %s usable, %s %s%s%s", size_text(l->needed).s, size_text(l->usable).s, over.s,
                 l->card ? "more than the whole card" : "too much", l->nodes[0] ? "; " : "", l->nodes);
}

/* Headroom is a share of the memory: more memory, more headroom.  With all that would be reserved there is room for certain; less may do,
 * for the allocator then gives back what it keeps. */
void lack_more_words(const struct lack *l, char *to, size_t size)
{
    int64_t over = l->reserved && l->taken > l->available ? l->taken - l->available : l->needed - l->available;
    int64_t more = (int64_t)ceil((double)over / (1 - l->headroom));

    snprintf(to, size, "%s%s more %s", l->reserved ? "at most " : l->card ? "at least " : "", size_text(more).s, l->space == SPACE_DEVICE ? "memory a GPU" : l->space == SPACE_DISK ?
             "disk space a node" : "host memory a node");
}

/* ---- more GPUs ---- */

enum { WAYS = 6, LABEL = 1000 };

static bool may(const struct search_options *o, const struct plan *p)
{
    return !o || ((o->strategies >> p->strategy & 1) && (o->dialects >> p->dialect & 1) &&
                  (o->recompute == 0 || (o->recompute >> p->recompute & 1)) && (!o->accept || o->accept(p, o->accept_what)));
}

static void recompute_all(struct plan *p)
{
    p->recompute = RECOMPUTE_FULL;
    p->recompute_interval = 1;
}

/* Fills `out` with variants that need less memory, as far as the options allow: with full recompute, then in the strategies that
 * shard everything; the plan itself comes first.  Returns how many. */
static int ways_of(const struct plan *p, const struct search_options *o, struct plan out[WAYS])
{
    static const struct { enum strategy s; enum dialect d; } shards[] = {
        { STRAT_FSDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH_FSDP1 }, { STRAT_ZERO3, DIALECT_DEEPSPEED }, { STRAT_ZERO3, DIALECT_PAPER },
    };
    int n = 0;

    out[n++] = *p;
    out[n] = *p;
    recompute_all(&out[n]);
    n += may(o, &out[n]);
    for (size_t i = 0; i < sizeof shards / sizeof *shards && plan_is_data_parallel(p); i++) {
        out[n] = *p;
        plan_defaults(&out[n], shards[i].s, shards[i].d, p->precision);
        if (o->settle)
            o->settle(&out[n], o->accept_what);
        out[n].kernels = p->kernels;
        out[n].accumulation = p->accumulation;
        out[n].clip = p->clip;
        out[n].dropout = p->dropout;
        recompute_all(&out[n]);
        n += optimizer_carry(p, &out[n]) && may(o, &out[n]);
    }
    return n;
}

/* The plan on other nodes, each rank with its samples. */
static bool fits_on(const struct plan *p, int64_t nodes)
{
    struct plan q = *p;                 /* shares the model; not freed */
    struct evaluation e;
    bool fits;

    q.cluster.nodes = nodes;
    q.cluster.world_size = nodes * q.cluster.gpus_per_node;
    if (p->shard_group == p->cluster.world_size)
        q.shard_group = q.cluster.world_size;
    if (plan_check(&q, "advice") < 0 || evaluate_allocated(&q, &e) < 0)
        return false;
    bool helps = e.m.ledger.peak.bytes <= q.cluster.memory;      /* else no allocator does */
    fits = (!helps || evaluation_reserve_within(&q, &e) == 0) && e.m.fits;
    evaluation_free(&e);
    return fits;
}

static bool is_whole(const struct plan *p) { return p->strategy == STRAT_DP || p->strategy == STRAT_DDP; }

void lack_more_gpus(const struct plan *p, const struct search_options *o, void (*name)(const struct plan *p, char *to, size_t size), char *to, size_t size)
{
    int64_t per = p->cluster.gpus_per_node, nodes = 0;
    struct plan way[WAYS];
    char ignored[256], label[LABEL];
    int n = ways_of(p, o, way), shards = 0, found = 0;

    for (int i = 0; i < n; i++)
        shards += !is_whole(&way[i]);
    struct fail_sink before = fail_divert(ignored, sizeof ignored);      /* a world that the dialect refuses is none */
    for (int64_t m = 2 * p->cluster.nodes; shards > 0 && !nodes && m * per <= LACK_MOST_GPUS; m *= 2)
        for (int i = 0; i < n && !nodes; i++)
            if (!is_whole(&way[i]) && fits_on(&way[i], m)) {
                nodes = m;
                found = i;
            }
    fail_restore(before);
    name(&way[found], label, sizeof label);
    if (nodes)
        snprintf(to, size, "use %" PRId64 " GPUs%s%s", nodes * per, found ? ", as " : "", found ? label : "");
    else if (shards == 0)
        snprintf(to, size, "shard it, or shorten sequences (each GPU holds all of it, so more do not help)");
    else
        snprintf(to, size, "%sshorten sequences%s (%d GPUs do not hold it either)",
                 knob_has(p, "parallel", "tensor") && p->parallel.tensor * p->parallel.pipeline == 1 ? "cut the model by parallel.tensor or parallel.pipeline, or "
                 : plan_keeps_whole(way[n - 1].strategy) ? "shard more, or " : "",
                 knob_has(p, "parallel", "context") ? ", or cut them by parallel.context" : "", LACK_MOST_GPUS);
}
