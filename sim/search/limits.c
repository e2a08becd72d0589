/* limits.c -- bisection over blocks, micro-batches and GPUs. */
#include "sim/search/limits.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob_rules.h"
#include "model/plan/optimizer_choice.h"
#include "sim/search/enumerate.h"

/* ---- model states of one synthetic unit ---- */

/* Bytes of parameters, gradients and optimizer states of the fullest rank. */
static int states(const struct plan *p, int64_t *bytes)
{
    struct evaluation e;

    if (evaluate_allocated(p, &e) < 0)
        return -1;
    *bytes = e.m.ledger.most[CAT_PARAMS] + e.m.ledger.most[CAT_GRADS] + e.m.ledger.most[CAT_OPTIMIZER];
    evaluation_free(&e);
    return 0;
}

static int synthetic_states(int64_t params, int64_t world, enum strategy s, enum dialect d,
                            enum dtype precision, int64_t *bytes)
{
    struct plan p = { .seq = 1, .micro_batch = 1, .accumulation = 1 };
    int rc = -1;

    if (model_synthetic(params, &p.model) < 0)
        return -1;
    if (cluster_load("h100", &p.cluster) == 0) {
        p.cluster.nodes = p.cluster.world_size = world;     /* only the count matters */
        plan_defaults(&p, s, d, precision);
        p.clip = 0;
        rc = states(&p, bytes);
    }
    plan_free(&p);
    return rc;
}

int limit_states(int64_t memory, int64_t world, enum strategy s, enum dialect d, enum dtype precision,
                 struct limit *out)
{
    int64_t low = 0, high = 1, bytes;

    *out = (struct limit){ .strategy = s, .dialect = d };
    for (;;) {                          /* low fits (or is 0), high does not */
        if (synthetic_states(high, world, s, d, precision, &bytes) < 0)
            return -1;
        if (bytes > memory)
            break;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (synthetic_states(mid, world, s, d, precision, &bytes) < 0)
            return -1;
        *(bytes <= memory ? &low : &high) = mid;
    }
    out->max_params = low;
    if (low > 0 && synthetic_states(low, world, s, d, precision, &bytes) < 0)
        return -1;
    out->bytes_per_param = low > 0 ? (double)bytes / (double)low : 0;
    return 0;
}

/* ---- a real family on a real cluster ---- */

/* Each question: does it fit at n?  Monotone, so the largest n is bisected. */
struct question {
    const struct plan *base;
    enum strategy s;
    enum dialect d;
    enum dtype precision;
    enum elsewhere how;
};

bool limit_narrow(const struct model *m, enum strategy s, enum dialect d, enum dtype precision)
{
    return m->experts > 0 && s == STRAT_DDP && d == DIALECT_TORCH && precision == DT_BF16;
}

static int prepare(const struct plan *base, const struct question *q, struct plan *p)
{
    *p = *base;                         /* shares the model */
    plan_defaults(p, q->s, q->d, q->precision);
    bool own = q->d == DIALECT_MEGATRON && !kernels_are_megatron(base->kernels);
    p->kernels = own ? (enum kernel_set)knob_usual_kernels(p) : base->kernels;
    knob_follow(p, NULL, NULL);         /* of the kernels */
    enumerate_as_trainers_do(p, false);
    if (limit_narrow(&base->model, q->s, q->d, q->precision)) {
        p->ddp.model_dtype = DT_BF16;
        plan_resolve(p);
    }
    p->accumulation = base->accumulation;
    p->recompute = base->recompute;
    p->recompute_interval = base->recompute_interval;
    if (!optimizer_carry(base, p))
        return fail("limits: optimizer: %s/%s has no such one", strategy_name(q->s), dialect_name(q->d));
    elsewhere_set(p, q->how);
    return plan_check(p, "limits");
}

static void what_is_short(bool device, int space, char *to, size_t size)
{
    snprintf(to, size, "%s%s%s", device ? "device memory" : "", device && space >= 0 ? " and " : "",
             space < 0 ? "" : space == SPACE_DISK ? "disk space of a node" : "host memory of a node");
}

/* Bytes of a device that a plan which fits takes, and there are; both 0 where other memories end it, too. */
struct taken { int64_t bytes, of; };

/* 1 fits, 0 does not, and `why` (NULL: not asked) says what is short; -1 cannot be asked.  *taken (may be NULL): of one that fits. */
static int fits(const struct plan *p, double *bytes_per_param, struct taken *taken, char *why, size_t size)
{
    struct evaluation e;

    if (evaluate_allocated(p, &e) < 0)
        return -1;
    int space = e.m.elsewhere ? spaces_short(&e.m.spaces) : -1;
    bool more = e.m.ledger.peak.bytes > p->cluster.memory;      /* than the device has: no allocator helps */
    if (space < 0 && !more && evaluation_reserve_within(p, &e) < 0) {
        evaluation_free(&e);
        return -1;
    }
    int yes = space < 0 && !more && e.m.fits;
    if (yes && taken)
        *taken = e.m.elsewhere ? (struct taken){ 0 } : (struct taken){ evaluation_taken(&e.m, &e.reserved), e.m.available };
    if (!yes && why)
        what_is_short(space < 0 || more, space, why, size);
    if (bytes_per_param)
        *bytes_per_param = (double)(e.m.ledger.most[CAT_PARAMS] + e.m.ledger.most[CAT_GRADS] +
                                    e.m.ledger.most[CAT_OPTIMIZER]) / (double)p->model.params;
    evaluation_free(&e);
    return yes;
}

static int fits_layers(const struct question *q, int64_t layers, struct taken *taken, struct limit *out)
{
    struct plan p = *q->base;
    struct model m;
    int rc = -1;

    if (model_with_layers(&q->base->model, layers, &m) < 0)
        return -1;
    p.model = m;
    p.micro_batch = 1;
    struct plan ready;
    if (prepare(&p, q, &ready) == 0)
        rc = fits(&ready, &out->bytes_per_param, taken, out->then_short, sizeof out->then_short);
    out->max_params = m.params;
    model_free(&m);
    return rc;
}

static int fits_micro_batch(const struct question *q, int64_t b)
{
    struct plan p = *q->base, ready;

    p.micro_batch = b;
    return prepare(&p, q, &ready) < 0 ? -1 : fits(&ready, NULL, NULL, NULL, 0);
}

static int fits_gpus(const struct question *q, int64_t gpus)
{
    struct plan p = *q->base, ready;
    int64_t per = q->base->cluster.gpus_per_node;

    p.micro_batch = 1;
    p.cluster.nodes = gpus <= per ? 1 : gpus / per;
    p.cluster.gpus_per_node = gpus <= per ? gpus : per;
    p.cluster.world_size = p.cluster.nodes * p.cluster.gpus_per_node;
    p.shard_group = p.cluster.world_size;
    return prepare(&p, q, &ready) < 0 ? -1 : fits(&ready, NULL, NULL, NULL, 0);
}

/* With disks thousands of blocks fit, and each question takes seconds: one in 64 is near enough. */
static int64_t grain(const struct question *q, int64_t low)
{
    return q->how == ELSEWHERE_DISK && low > 64 ? low / 64 : 1;
}

/* A recorded model has no blocks to vary, nor has one whose pattern says what each is: does it fit as it is? */
static int model_as_it_is(const struct question *q, struct limit *out)
{
    struct plan p = *q->base, ready;

    p.micro_batch = 1;
    int yes = prepare(&p, q, &ready) < 0 ? -1 : fits(&ready, &out->bytes_per_param, NULL, out->then_short, sizeof out->then_short);
    out->max_params = yes == 1 ? p.model.params : 0;
    out->max_layers = yes == 1 ? p.model.layers : 0;
    return yes < 0 ? -1 : 0;
}

/* Of a mixture whose first blocks have no experts, as many as lead to one that has: with fewer it is none. */
static int64_t least_layers(const struct model *m)
{
    int64_t n = 1;

    while (m->experts > 0 && n < m->layers && !model_has_experts(m, n - 1))
        n++;
    return n;
}

/* Blocks `low` fit, `high` do not (or are more than a model has).  Each block takes as much as another: where two numbers of them fit the
 * largest follows, and is asked with its neighbour; from few blocks, of which little follows, no more than four times as many.  What is
 * asked decides: one that takes more than there should be may fit (by giving the cache back), and so may others beyond it, asked in
 * strides. */
struct layers { int64_t low, high; struct taken at_low, before; int64_t below, stride; bool missed; };

static int64_t next_layers(struct layers *l)
{
    int64_t each = l->below > 0 && l->low > l->below ? (l->at_low.bytes - l->before.bytes) / (l->low - l->below) : 0;
    int64_t more = each > 0 ? (l->at_low.of - l->at_low.bytes) / each : 0;
    bool open = l->high > MODEL_MAX_LAYERS && 2 * l->low < l->high;

    if (l->missed || each <= 0)                     /* doubled first: what is far too large is also slow to ask about */
        return open ? 2 * l->low : l->low + (l->high - l->low) / 2;
    l->stride = more >= 1 ? 0 : l->stride > 0 ? 2 * l->stride : 1;
    more = more >= 1 ? more : l->stride;
    more = more < 3 * l->low ? more : 3 * l->low;
    return more < l->high - l->low ? l->low + more : l->high - 1;
}

/* Of the largest model asked about so far that fits, what it has is kept: to ask again takes as long. */
static int largest_model(const struct question *q, struct limit *out)
{
    int64_t least = least_layers(&q->base->model);
    struct layers l = { .low = least - 1, .high = MODEL_MAX_LAYERS + 1 };
    struct limit fits = *out;

    for (int64_t n = least; l.high - l.low > grain(q, l.low); n = next_layers(&l)) {
        struct taken t = { 0 };
        int yes = fits_layers(q, n, &t, out);
        if (yes < 0)
            return -1;
        if (yes) {
            l = (struct layers){ n, l.high, t, l.at_low, l.low >= least ? l.low : 0, l.stride, false };
            fits = *out;
        } else {
            l.missed = n > l.low + 1;
            l.high = n;
        }
    }
    out->max_layers = l.low < least ? 0 : l.low;
    out->max_params = l.low < least ? 0 : fits.max_params;
    out->bytes_per_param = l.low < least ? 0 : fits.bytes_per_param;
    return 0;
}

static int largest_micro_batch(const struct question *q, struct limit *out)
{
    int64_t low = 0, high = 1;
    int yes;

    while ((yes = fits_micro_batch(q, high)) == 1 && high < 1 << 20) {
        low = high;
        high *= 2;
    }
    while (yes >= 0 && high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        yes = fits_micro_batch(q, mid);
        if (yes >= 0)
            *(yes ? &low : &high) = mid;
    }
    out->max_micro_batch = low;
    return yes < 0 && low == 0 ? -1 : 0;
}

static bool is_data_parallel(enum strategy s, enum dialect d)
{
    return s == STRAT_DP && d == DIALECT_TORCH;
}

int64_t limit_next_gpus(int64_t n, int64_t per) { return n < per && 2 * n > per ? per : 2 * n; }

/* Powers of two up to a node, then doubling nodes, then bisected between. */
static int fewest_gpus(const struct question *q, int64_t *min)
{
    int64_t per = q->base->cluster.gpus_per_node, no = 0, yes_at = 0;
    int64_t most = is_data_parallel(q->s, q->d) ? per : 65536;

    for (int64_t n = 1; n <= most; n = limit_next_gpus(n, per)) {
        int yes = fits_gpus(q, n);
        if (yes < 0)
            return -1;
        if (yes) {
            yes_at = n;
            break;
        }
        no = n;
    }
    int64_t grain = no >= per ? per : 1;
    while (yes_at - no > grain) {
        int64_t mid = no + (yes_at - no) / 2 / grain * grain;
        int yes = fits_gpus(q, mid);
        if (yes < 0)
            return -1;
        *(yes ? &yes_at : &no) = mid;
    }
    *min = yes_at;
    return 0;
}

/* Where no number of GPUs is enough: with full recompute; 0 where the cell has none. */
static int64_t fewest_with_recompute(const struct question *q)
{
    struct plan base = *q->base;
    struct question full = *q;
    int64_t min = 0;

    base.recompute = RECOMPUTE_FULL;
    base.recompute_interval = 1;
    full.base = &base;
    return fewest_gpus(&full, &min) < 0 ? 0 : min;
}

int limit_real(const struct plan *base, enum strategy s, enum dialect d, enum dtype precision, enum elsewhere how,
               struct limit *out)
{
    struct plan one_node = *base;
    struct question q = { base, s, d, precision, how };

    if (is_data_parallel(s, d)) {
        one_node.cluster.nodes = 1;
        one_node.cluster.world_size = one_node.cluster.gpus_per_node;
        q.base = &one_node;
    }
    *out = (struct limit){ .strategy = s, .dialect = d };
    if ((base->model.recorded || base->model.hybrid ? model_as_it_is : largest_model)(&q, out) < 0 || largest_micro_batch(&q, out) < 0 || fewest_gpus(&q, &out->min_gpus) < 0)
        return -1;
    bool other = out->min_gpus == 0 && (base->recompute != RECOMPUTE_FULL || base->recompute_interval > 1);
    out->min_gpus_recompute = other ? fewest_with_recompute(&q) : 0;
    return 0;
}

int limit_plan(const struct plan *base, const struct limit *l, enum dtype precision, enum elsewhere how, struct plan *out)
{
    struct plan p = *base;
    struct question q = { &p, l->strategy, l->dialect, precision, how };

    if (is_data_parallel(l->strategy, l->dialect)) {
        p.cluster.nodes = 1;
        p.cluster.world_size = p.cluster.gpus_per_node;
    }
    p.micro_batch = l->max_micro_batch;
    return prepare(&p, &q, out);
}
