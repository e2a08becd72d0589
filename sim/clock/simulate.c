/* simulate.c -- prices every entry, runs the clock with contention, and forms a step's figures and interval. */
#include "sim/clock/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/arch/sample.h"
#include "model/memory/evaluate.h"
#include "sim/clock/crowd.h"
#include "sim/clock/jitter.h"
#include "sim/clock/overlap.h"
#include "sim/clock/step.h"
#include "sim/price/coll_cost.h"
#include "sim/price/coll_entry.h"
#include "sim/price/flops.h"
#include "sim/price/gpu_rates.h"
#include "sim/price/measured_cost.h"
#include "sim/price/space_cost.h"

/* ---- durations ---- */

struct shape { int64_t ranks, per_node; double latest; };      /* latest: jitter_largest(ranks) */

/* The ranks that an entry is among: its group's, or the two of a send or receive. */
static struct shape shape_of(const struct plan *p, const struct schedules *s, const struct op *o,
                             const struct shape shapes[PLAN_GROUPS])
{
    struct shape of = shapes[o->u.coll.group];

    if (coll_is_message((enum coll_op)o->u.coll.op)) {
        coll_entry_shape(p, s, o, &of.ranks, &of.per_node);
        of.latest = of.latest > 0 ? jitter_largest(2) : 0;
    }
    return of;
}

/* As it was timed on these machines, if it was; ranks that meet for it and sleepers that wake
 * (slept()) are not in a sweep. */
static bool own_coll(const struct plan *p, const struct schedules *s, const struct op *o, const struct shape *g,
                     int64_t bytes, struct cost *c)
{
    struct coll_query q = { .op = (enum coll_op)o->u.coll.op, .dtype = (enum dtype)o->u.coll.dtype, .star = s->star,
                            .ranks = g->ranks, .per_node = g->per_node, .bytes = bytes };
    struct estimate e;

    if (!p->cluster.measured || g->ranks < 2 || !measured_coll(&p->cluster, &q, &e))
        return false;
    *c = (struct cost){ e.s, e.s / (1 + e.error), e.s * (1 + e.error), BASIS_MEASURED, e.outside, 0 };
    return true;
}

/* What either loses while both run. */
static struct beside beside_of(const struct plan *p, const struct schedules *s, const struct op *o,
                               const struct shape *g, int64_t bytes, double alone_s)
{
    static const enum kernel_class of[2] = { KC_GEMM, KC_ELEMENTWISE };
    struct coll_query q = { .op = (enum coll_op)o->u.coll.op, .dtype = (enum dtype)o->u.coll.dtype, .star = s->star,
                            .ranks = g->ranks, .per_node = g->per_node, .bytes = bytes };
    struct beside b;

    for (int i = 0; i < 2; i++)
        if (g->ranks < 2 || !measured_beside(&p->cluster, &q, of[i], alone_s, &b.compute[i], &b.comm[i])) {
            b.compute[i] = overlap_compute(&p->cluster, of[i], q.op);
            b.comm[i] = overlap_comm(&p->cluster, of[i], q.op);
        }
    if (o->flags & OPF_ENGINE)              /* products keep their multiprocessors; memory is shared */
        b.compute[0] = b.comm[0] = 1;
    return b;
}

static int coll_price(const struct plan *p, const struct schedules *s, const struct op *o,
                      const struct shape *g, int64_t bytes, struct coll_memo *m, struct cost *c)
{
    int op = (o->u.coll.op + (s->star ? NCOLL : 0)) * NDTYPE + o->u.coll.dtype + 1;     /* 0: an empty place */
    uint64_t h = ((uint64_t)bytes * 0x9e3779b97f4a7c15u >> 40) +
                 (uint64_t)op * 31 + (uint64_t)g->ranks * 7 + (uint64_t)g->per_node;
    size_t at = h % (sizeof m->met / sizeof *m->met);

    if (m->met[at].op == op && m->met[at].bytes == bytes && m->met[at].ranks == g->ranks &&
        m->met[at].per_node == g->per_node) {
        *c = m->met[at].cost;
        return 0;
    }
    if (!own_coll(p, s, o, g, bytes, c) &&
        (s->star ? coll_star_cost : coll_cost)(&p->cluster, o->u.coll.op, g->ranks, g->per_node, bytes, c) < 0)
        return -1;
    m->met[at].op = op;
    m->met[at].bytes = bytes;
    m->met[at].ranks = g->ranks;
    m->met[at].per_node = g->per_node;
    m->met[at].cost = *c;
    return 0;
}

/* A thread that sleeps until another stream is done has to wake up first. */
static bool waits_for_others(const struct op *o)
{
    return o->stream != STREAM_ISSUE && (o->after || o->wait[0]) && o->kind != OP_MEMORY;
}

/* A collective that waited for another stream finds all its ranks asleep.  One that its own stream came to
 * (the next of a row; all on the compute stream, as DataParallel's) does not. */
static void slept(const struct measured_time *cold, struct cost *c)
{
    c->s += cold->s;
    c->low_s += cold->s / (1 + cold->spread);
    c->high_s += cold->s * (1 + cold->spread);
}

static void later(struct cost *c, double s)
{
    c->s += s;
    c->low_s += s;
    c->high_s += s;
}

/* Ranks that enter a ring at different times do so once: from its second turn on each waits for the one before it, which is as late as it is. */
static void enter_once(const struct plan *p, const struct schedules *s, const struct op *o, const struct shape *g, struct cost *c)
{
    if (g->ranks > 1 && c->basis > BASIS_TRACED)
        c->high_s -= coll_skew_s(&p->cluster) * (1 - 1 / (double)coll_entry_turns(s, o, g->ranks));
}

/* Ranks meet at a collective: the last of n is late by so many standard deviations of what each did on
 * its own since they met before.  `variance` is that, and begins anew.  Of ranks that share cores the spread is not their own:
 * it is how the operating system dealt out the core, and what one is late by the other is early by; `latest` is 0. */
static double skew(const struct shape *g, double *variance)
{
    double s = g->latest * sqrt(*variance);

    if (g->ranks > 1)
        *variance = 0;
    return s;
}

/* Collectives' kernels take multiprocessors from products, and nothing was measured in their place. */
static bool holds_sms(const struct plan *p)
{
    return !p->cluster.is_host && !gpu_is_host(&p->cluster.gpu) && p->cluster.gpu.sm_arch > 0 && p->cluster.world_size > 1;
}

/* Does the calibration say what collectives and kernels lose to each other?  That of one GPU alone has copies beside kernels only. */
static bool overlaps_measured(const struct cluster *c)
{
    for (int i = 0; c->measured && i < c->measured->noverlap; i++)
        if (c->is_host || c->measured->overlap[i].op != NCOLL)
            return true;
    return false;
}

int simulate_price(const struct plan *p, const struct schedules *s, enum sched_id id, struct cost_cache *cache,
          struct coll_memo *memo, struct priced *out)
{
    size_t n = (size_t)s->end[id];      /* what comes before this schedule stays unset */
    const struct measured_device *own = p->kernels == KERNELS_DPX ? p->cluster.measured : NULL;
    bool overlaps = overlaps_measured(&p->cluster);
    double apart = 0;

    if (space_cost_known(p, s, id) < 0)
        return -1;
    double *store = malloc(((own ? 5 : 4) * n + 1) * sizeof *store);
    struct beside *beside = overlaps ? step_room(s, id, sizeof *beside) : NULL;
    struct shares *shares = s->spaces && !p->cluster.is_host ? step_room(s, id, sizeof *shares) : NULL;
    struct op_held *held = !overlaps && holds_sms(p) ? step_room(s, id, sizeof *held) : NULL;
    const int left[2] = { overlap_left(&p->cluster, COLL_ALL_REDUCE), overlap_left(&p->cluster, COLL_ALL_GATHER) };
    struct shape shapes[PLAN_GROUPS];

    if (!store)
        abort();
    for (int g = 0; g < s->groups.n; g++) {
        coll_group_shape(p, &s->groups, g, &shapes[g].ranks, &shapes[g].per_node);
        shapes[g].latest = own && !(crowd_timed(own, p->cluster.nodes) > 1) ? jitter_largest(shapes[g].ranks) : 0;
    }
    double *middle = store, *low = middle + n, *high = low + n, *issue = high + n, *streams = own ? issue + n : NULL;
    *out = (struct priced){ { middle, issue }, { low, issue }, { high, issue }, store, beside, shares, held,
                            streams, BASIS_MEASURED, false };
    for (int i = s->begin[id]; i < s->end[id]; i++) {
        const struct op *o = &s->ops[i];
        struct cost c = { .basis = BASIS_MEASURED };
        struct shape g = { 0 };
        int64_t bytes = 0;
        issue[i] = 0;
        if (o->kind == OP_COLL) {
            g = shape_of(p, s, o, shapes);
            bytes = coll_entry_bytes(p, s, o, g.ranks, g.per_node);
        }
        if (streams)
            streams[i] = op_streams(cache, s, o);
        if (held && o->stream == STREAM_COMPUTE)
            op_held(cache, s, o, left, &held[i]);
        if (o->kind != OP_REPEAT && o->kind != OP_END) {
            if (o->kind != OP_COLL)
                op_cost(cache, s, o, &c);
            else if (coll_price(p, s, o, &g, bytes, memo, &c) < 0) {
                simulate_priced_free(out);
                return -1;
            }
            if (o->kind == OP_COLL)
                enter_once(p, s, o, &g, &c);
            issue[i] = op_issue_cost(cache, s, o);
            if (own && waits_for_others(o) && o->kind != OP_COLL)
                later(&c, own->own.wake.s);
            if (p->cluster.measured && o->kind == OP_COLL && waits_for_others(o) && g.ranks > 1 &&
                c.basis == BASIS_MEASURED)
                slept(&p->cluster.measured->own.cold, &c);
        }
        if (own && o->stream == STREAM_COMPUTE)
            apart += c.variance;
        if (own && o->kind == OP_COLL)
            later(&c, skew(&g, &apart));
        if (beside && o->kind == OP_COLL)
            beside[i] = beside_of(p, s, o, &g, bytes, c.s);
        if (shares && (o->kind == OP_COPY || o->kind == OP_OPTIMIZER))
            shares[i] = space_cost_shares(p, s, o, c.s);
        out->outside |= c.outside;
        middle[i] = c.s;
        low[i] = c.low_s;
        high[i] = c.high_s;
        if (c.s > 0)
            out->basis = basis_worst(out->basis, c.basis);
    }
    return 0;
}

void simulate_priced_free(struct priced *p)
{
    free(p->store);
    free(p->beside);
    free(p->shares);
    free(p->held);
    p->store = NULL;
    p->beside = NULL;
    p->shares = NULL;
    p->held = NULL;
}

/* ---- contention ---- */

/* Groups whose ranks are all in one node share its links; groups that span nodes share
 * the adapters; one of each do not meet. */
static void shared_links(const struct plan *p, const struct plan_groups *groups, bool shares[PLAN_GROUPS][PLAN_GROUPS])
{
    bool crosses[PLAN_GROUPS], used[PLAN_GROUPS];

    for (int g = 0; g < groups->n; g++) {
        int64_t ranks, per_node;
        coll_group_shape(p, groups, g, &ranks, &per_node);
        crosses[g] = ranks > per_node;
        used[g] = ranks > 1;
    }
    for (int g = 0; g < groups->n; g++)
        for (int h = 0; h < groups->n; h++)
            shares[g][h] = g != h && used[g] && used[h] && crosses[g] == crosses[h];
}

/* A cast or division on a side stream is a kernel that asks for every multiprocessor, as compute does.  Two
 * such kernels realise 21 % of the ideal gain (ConCCL, arXiv 2412.14335: products beside communication
 * kernels on MI300X): T = 2C - 0.21 C where both take C, hence both run 1.79 times longer. */
#define COPY_SLOW 1.79

void simulate_contention(const struct plan *p, const struct schedules *s, const struct priced *prices, struct contention *out)
{
    bool on_host = p->cluster.is_host || gpu_is_host(&p->cluster.gpu);

    memset(out, 0, sizeof *out);
    out->held = prices ? prices->held : NULL;
    for (int op = 0; op < NCOLL; op++) {
        out->compute_slow[op] = overlap_compute(&p->cluster, out->held ? KC_ELEMENTWISE : KC_GEMM, (enum coll_op)op);
        out->comm_slow[op] = overlap_comm(&p->cluster, KC_GEMM, (enum coll_op)op);
    }
    out->copy_slow = on_host ? 1 : COPY_SLOW;
    shared_links(p, &s->groups, out->shares_link);
    out->shares = prices ? prices->shares : NULL;
    if (prices && prices->beside) {
        out->beside = prices->beside;
        out->streams = prices->streams;
        out->adds = p->cluster.is_host;
    }
    const struct measured_device *m = p->cluster.measured;
    double both[2];
    if (prices && m && (p->kernels == KERNELS_DPX || m->traced[p->kernels]) && measured_beside_copy(m, KC_GEMM, &both[0], &both[1]))
        out->copy_slow = sqrt(both[0] * both[1]);
}

/* ---- the step ---- */

/* What was measured on the machine itself was measured on all its ranks, the slowest among them. */
void simulate_slowest(const struct plan *p, struct timeline *t)
{
    if (p->cluster.measured && p->kernels == KERNELS_DPX)
        return;
    t->slowest_s = jitter_slowest_s(&p->cluster, t->compute_s + t->optimizer_s);
    t->step_s += t->slowest_s;
}

/* One cudaMalloc or cudaFree, and how much longer at most: 100,000 random ones of up to 2 MB and their frees took 7.6 and 6.6 s
 * (rapidsai/rmm#283, #284, 2020: 35 us a call).  Larger ones take longer, 1.2 ms for 64 MB by one account
 * (rtj1/cuda-mempool). */
#define DEVICE_CALL 35e-6
#define ERROR_OF_CALL 30

double simulate_retry_s(const struct reserved *r) { return r->steady_retries > 0 ? (double)r->steady_calls * DEVICE_CALL : 0; }

/* Of what streams lose to each other this share is not known: it is measured with a few kernels and sizes
 * in the place of all. */
#define ERROR_OF_LOSS .5
/* And of the wait for the slowest rank: spreads of 5 % and of 8 % of a type have been published (jitter.h). */
#define ERROR_OF_SLOWEST .5

/* The same plan published in two editions of one source differs by 6.3 %, a mixture of experts by 12.6 % (628 steps that judges kept aside, November
 * 2026; torchtitan's of tests/accuracy, eager, by 6.8 %, Megatron's by 2.7).  90 % lie within 1.645 times as much.  Of a dense model no interval is
 * narrower than that: which edition will run is not known.  Of a mixture routing, its balance and the exchange of rows change from version to
 * version, and no entry's interval has that: it is one more error. */
#define EDITIONS_OF_DENSE    (1.645 * .063)
#define EDITIONS_OF_MIXTURES (1.645 * .126)

/* Seconds of a step that go at the machine's pace: all but waiting for a link between nodes. */
static double paced(const struct plan *p, const struct plan_groups *groups, const struct timeline *line)
{
    double s = line->step_s;

    for (int g = 0; g < groups->n; g++) {
        int64_t ranks, per_node;
        coll_group_shape(p, groups, g, &ranks, &per_node);
        for (int op = 0; op < NCOLL && ranks > per_node; op++)
            s -= line->exposed_by[op][g];
    }
    return s;
}

enum { ENDS = 8 };

/* Low and high end of each part that errs apart; how many views. */
static int interval_views(const struct step *st, struct step_view views[ENDS])
{
    /* Backward's kernels have shapes of their own; of one calibration all work errs together. */
    static const unsigned parts[2][ENDS / 2] = { { STEP_COLLECTIVES, STEP_BACKWARD, STEP_REST }, { STEP_COLLECTIVES, STEP_WORK } };
    bool measured = st->p->cluster.measured && st->basis == BASIS_MEASURED;
    int n = 0;

    for (int i = 0; parts[measured][i]; i++)
        for (int high = 0; high < 2; high++)
            views[n++] = (struct step_view){ parts[measured][i], high, 1, 1 };
    for (int high = 0; high < 2 && !measured; high++)
        views[n++] = (struct step_view){ .slow = 1, .issue = high ? STEP_ISSUE_HIGH : STEP_ISSUE_LOW };
    return n;
}

/* An error that may be larger than the time it is of: as a ratio below, so that the time stays positive. */
static double ratio_square(double ratio) { return log(ratio) * log(ratio); }

/* The machine itself between then and now: its drift either way; and what others' work made longer then may be gone. */
static void machine_errs(const struct step *st, const struct timing *out, double *less, double *more)
{
    const struct plan *p = st->p;
    const struct measured_device *m = st->basis == BASIS_MEASURED ? p->cluster.measured : NULL;

    if (!m)
        return;
    double share = paced(p, &st->role[0].s->groups, &out->line) / out->line.step_s;
    *less += ratio_square(fmax(1 + m->drift * share, 1 / (1 - m->late * share)));
    *more += ratio_square(1 + m->drift * share);
}

/* Work, collectives, what they lose to each other, the issuing thread, the wait for the slowest rank, and where it was measured the
 * machine itself err apart.  Each by a ratio, since a time is positive, and squares of their logarithms add. */
static void interval(const struct step *st, const double *ends, int n, struct timing *out)
{
    double step = out->line.step_s, less = 0, more = 0;
    const double either[] = { ERROR_OF_SLOWEST * out->line.slowest_s, ERROR_OF_LOSS * (step - out->line.slowest_s - out->free_s) };

    machine_errs(st, out, &less, &more);
    bool published = st->basis != BASIS_MEASURED && st->basis != BASIS_TRACED;
    if (st->p->model.experts > 0 && published) {
        less += EDITIONS_OF_MIXTURES * EDITIONS_OF_MIXTURES;
        more += EDITIONS_OF_MIXTURES * EDITIONS_OF_MIXTURES;
    }
    for (int i = 0; i < 2; i++) {
        less += ratio_square(step / (step - either[i]));        /* at most half of the step */
        more += ratio_square((step + either[i]) / step);
    }
    for (int i = 0; i < n; i += 2) {
        less += ratio_square(step / ends[i]);
        more += ratio_square(ends[i + 1] / step);
    }
    if (published) {
        less = fmax(less, EDITIONS_OF_DENSE * EDITIONS_OF_DENSE);
        more = fmax(more, EDITIONS_OF_DENSE * EDITIONS_OF_DENSE);
    }
    out->low_s = jitter_as_everywhere(step * exp(-sqrt(less)));
    out->high_s = jitter_as_everywhere(step * exp(sqrt(more)));
}

double simulate_retries_s(const struct evaluation *e)
{
    double s = simulate_retry_s(&e->reserved);

    for (int i = 0; i < e->nstages; i++)
        s = fmax(s, simulate_retry_s(&e->stage[i].reserved));
    return s;
}

/* The device is at rest meanwhile: idle time. */
static void add_retries(const struct evaluation *e, struct timing *t)
{
    t->retry_s = simulate_retries_s(e);
    t->line.step_s += t->retry_s;
    t->line.idle_s += t->retry_s;
    t->low_s += t->retry_s;
    t->high_s += t->retry_s * ERROR_OF_CALL;
}

static void ratios(const struct plan *p, struct timing *out)
{
    out->tokens_per_s = (double)(plan_global_batch(p) * p->seq) / out->line.step_s;
    double each = out->tokens_per_s / (double)p->cluster.world_size;
    out->tflops_per_gpu = each * flops_per_token(&p->model, p->seq, FLOPS_PALM) / 1e12;
    out->mfu = flops_mfu(p, FLOPS_PALM, each);
    out->hfu = flops_hfu(p, FLOPS_PALM, each);
}

/* Every entry as it ran (without skipping the same to 1e-12), or none where they are too many; each stage's step is the whole. */
static int keep_entries(const struct step *st, struct run *kept)
{
    struct timeline *lines = room_new((size_t)st->n, sizeof *lines);
    double makespan = st->makespan_s;
    int rc = 0;

    memset(kept, 0, (size_t)st->n * sizeof *kept);
    if (step_keeps(st))
        rc = step_run(st, NULL, lines, kept, &makespan);

    for (int i = 0; rc == 0 && i < st->n; i++)
        kept[i].total.step_s = makespan;
    free(lines);
    return rc;
}

static int time_step(struct step *st, struct timing *out, struct run *kept)
{
    struct step_view views[ENDS];
    double ends[ENDS];
    int n = interval_views(st, views);

    out->basis = st->basis;
    out->outside = st->outside;
    if (step_predict(st) < 0 || step_views(st, views, n, ends) < 0 || (out->free_s = step_free_s(st)) < 0 ||
        (kept && keep_entries(st, kept) < 0))
        return -1;
    step_parts(st, st->lines, st->makespan_s, &out->line, &out->stages);
    interval(st, ends, n, out);
    return 0;
}

/* What a stage holds at most, of what a steady step holds on top of what it finds. */
static int64_t held_by(const struct memory_verdict *m, int64_t steady)
{
    int64_t held = steady + m->needed - m->ledger.peak.bytes;

    for (int c = 0; c < NCAT; c++)
        held += m->ledger.persistent[c];
    return m->ledger.peak.sched != SCHED_STEADY && m->needed > held ? m->needed : held;
}

static bool all_held(const struct timeline *lines, int n)
{
    int i = 0;

    while (i < n && lines[i].held_known)
        i++;
    return i == n;
}

/* The same of every stage: by the clock; where it does not know, by a run for that alone; where that does not either, of entries that are kept;
 * where these are too many as allocated, or what the clock saw, if that is more. */
static int held_of_stages(const struct step *st, const struct evaluation *e, const struct timeline *lines, int64_t *out)
{
    struct timeline *again = NULL;
    struct run *kept = NULL;
    bool all = all_held(lines, st->n);
    int rc = 0;

    if (!all && step_keeps(st)) {
        again = room_new((size_t)st->n, sizeof *again);
        rc = step_held(st, again);
        all = rc == 0 && all_held(again, st->n);
        lines = all ? again : lines;
    }
    if (!all && rc == 0) {
        kept = room_new((size_t)st->n, sizeof *kept);
        rc = keep_entries(st, kept);
    }
    for (int i = 0; i < st->n; i++) {
        const struct memory_verdict *m = e->nstages ? &e->stage[i].m : &e->m;
        int64_t at;
        if (all)
            out[i] = held_by(m, lines[i].held_peak);
        else if (rc == 0 && kept[i].n > 0)
            out[i] = held_by(m, held_peak(st->role[i].s, &kept[i], &at));
        else
            out[i] = held_by(m, lines[i].held_peak) > m->needed ? held_by(m, lines[i].held_peak) : m->needed;
        if (kept)
            run_free(&kept[i]);
    }
    free(kept);
    free(again);
    return rc;
}

static int time_all(struct step *st, const struct evaluation *e, struct timing *out, struct run *kept)
{
    memset(out, 0, sizeof *out);
    if (time_step(st, out, kept) < 0)
        return -1;
    add_retries(e, out);
    ratios(st->p, out);
    return 0;
}

int simulate_interval(struct step *st, const struct evaluation *e, struct timing *out) { return time_all(st, e, out, NULL); }

int simulate_step(struct step *st, const struct evaluation *e, struct timing *out, struct run *kept)
{
    int64_t held[EVALUATION_STAGES];
    int rc = time_all(st, e, out, kept);

    if (rc == 0)
        rc = held_of_stages(st, e, st->lines, held);
    for (int i = 0; i < st->n && rc == 0; i++) {
        out->stages.stage[i].held_bytes = held[i];
        out->held_bytes = held[i] > out->held_bytes ? held[i] : out->held_bytes;
    }
    for (int i = 0; i < st->n && rc < 0 && kept; i++)
        run_free(&kept[i]);
    return rc;
}

int simulate_stages(const struct plan *p, const struct evaluation *e, struct timing *out, struct run *kept)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct cost_cache *cache = cost_cache_new(p);
    struct coll_memo memo = { 0 };
    struct step st;
    int rc = step_open(p, of, evaluation_roles(e, of), cache, &memo, &st);

    memset(out, 0, sizeof *out);
    if (rc == 0) {
        rc = simulate_step(&st, e, out, kept);
        step_close(&st);
    }
    cost_cache_free(cache);
    return rc;
}

int simulate_waits(const struct plan *p, const struct evaluation *e, bool *waits)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct cost_cache *cache = cost_cache_new(p);
    int64_t held[EVALUATION_STAGES];
    struct coll_memo memo = { 0 };
    struct step st;
    int n = evaluation_roles(e, of), rc = step_open(p, of, n, cache, &memo, &st);
    struct timeline *lines = room_new((size_t)n, sizeof *lines);
    double makespan;

    *waits = false;
    if (rc == 0) {
        rc = step_run(&st, NULL, lines, NULL, &makespan) < 0 ? -1 : held_of_stages(&st, e, lines, held);
        step_close(&st);
    }
    for (int i = 0; rc == 0 && i < n; i++)
        *waits |= e->m.fits && held[i] > e->m.available;
    free(lines);
    cost_cache_free(cache);
    return rc;
}

int simulate_plan(const struct plan *p, const struct evaluation *e, struct timing *out, struct run *kept)
{
    int n = e->nstages ? e->nstages : 1, mine = e->nstages ? e->fullest : 0;
    struct run *runs = kept ? room_new((size_t)n, sizeof *runs) : NULL;
    int rc = simulate_stages(p, e, out, runs);

    for (int i = 0; rc == 0 && i < n && kept; i++)
        if (i == mine)
            *kept = runs[i];
        else
            run_free(&runs[i]);
    free(runs);
    return rc;
}

bool simulate_waits_for_memory(const struct evaluation *e, const struct timing *t)
{
    return e->m.fits && t->held_bytes > e->m.available;
}

static json_t *away_json(const struct timeline *l)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "to_host_s", l->away_s[AWAY_DOWN], "from_host_s", l->away_s[AWAY_UP],
                     "host_s", l->away_s[AWAY_HOST], "disk_read_s", l->away_s[AWAY_READ], "disk_write_s",
                     l->away_s[AWAY_WRITE]);
}

/* Exposed communication over one axis of the ranks. */
static void exposed_into(json_t *doc, const struct schedules *s, const struct timeline *l, enum group is, const char *key)
{
    int g = plan_groups_find(&s->groups, is);
    double exposed = 0;

    for (int op = 0; op < NCOLL && g >= 0; op++)
        exposed += l->exposed_by[op][g];
    if (g >= 0)
        json_object_set_new(doc, key, json_real(exposed));
}

/* Parts of a pipeline's step: the busiest stage's, and every stage's own. */
static void stages_into(json_t *doc, const struct timing *t)
{
    json_t *stages = json_array();

    for (int i = 0; i < t->stages.n; i++) {
        const struct stage_part *of = &t->stages.stage[i];
        json_array_append_new(stages, json_pack("{s:i, s:f, s:f, s:f}", "stage", i, "work_s", of->work_s,
                                                "messages_s", of->messages_s, "bubble_s", of->bubble_s));
    }
    json_object_set_new(doc, "bubble_s", json_real(t->line.bubble_s));
    json_object_set_new(doc, "imbalance_s", json_real(t->stages.imbalance_s));
    json_object_set_new(doc, "messages_s", json_real(t->stages.stage[t->stages.busiest].messages_s));
    json_object_set_new(doc, "busiest_stage", json_integer(t->stages.busiest));
    json_object_set_new(doc, "stages", stages);
}

/* Of CPU cores no peak is known, and nothing that is a share of one. */
static json_t *of_peak(double value, double peak) { return peak > 0 ? json_real(value) : json_null(); }

/* The `time` object of eval and search (new reference). */
static json_t *timing_json(const struct plan *p, const struct schedules *s, const struct timing *t)
{
    double peak = flops_peak(&p->cluster, p->precision);
    json_t *by = json_object();

    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < s->groups.n; g++)
            if (t->line.exposed_by[op][g] > 0) {
                char key[64];
                snprintf(key, sizeof key, "%s %s", coll_name((enum coll_op)op), s->groups.group[g].name);
                json_object_set_new(by, key, json_real(t->line.exposed_by[op][g]));
            }
    json_t *doc = json_pack("{s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:o, s:f, s:o, s:o, s:s, s:f, s:f, s:s, s:b, s:s}",
        "step_s", t->line.step_s, "compute_s", t->line.compute_s, "exposed_comm_s", t->line.exposed_s,
        "exposed_by", by, "optimizer_s", t->line.optimizer_s, "idle_s", t->line.idle_s, "slowest_rank_s", t->line.slowest_s,
        "no_contention_s", t->free_s, "tokens_per_s", sample_has_tokens(&p->model) ? json_real(t->tokens_per_s) : json_null(), "tflops_per_gpu", t->tflops_per_gpu,
        "mfu", of_peak(t->mfu, peak), "hfu", of_peak(t->hfu, peak), "flop_convention", flop_convention_of(&p->model, FLOPS_PALM),
        "low_s", t->low_s, "high_s", t->high_s, "basis", basis_name(t->basis),
        "outside_calibrated_range", t->outside, "kernels", kernels_name(p->kernels));
    json_object_set_new(doc, "peak_flops", of_peak(peak, peak));
    exposed_into(doc, s, &t->line, GROUP_TENSOR, "exposed_tensor_s");
    exposed_into(doc, s, &t->line, GROUP_CONTEXT, "exposed_context_s");
    if (!sample_has_tokens(&p->model))
        json_object_set_new(doc, "samples_per_s", json_real(sample_rate(&p->model, p->seq, t->tokens_per_s)));
    if (t->retry_s > 0)
        json_object_set_new(doc, "retry_s", json_real(t->retry_s));
    if (t->stages.n > 1)
        stages_into(doc, t);
    if (s->spaces)
        json_object_set_new(doc, "away", away_json(&t->line));
    return doc;
}

void simulate_timing_into(json_t *doc, const struct plan *p, const struct evaluation *e, const struct timing *t)
{
    json_t *memory = json_object_get(doc, "memory"), *roles = json_object_get(memory, "roles");

    for (int i = 0; i < e->nstages; i++)
        json_object_set_new(json_array_get(roles, (size_t)i), "peak_bytes", json_integer(t->stages.stage[i].held_bytes));
    json_object_set_new(doc, "time", timing_json(p, &e->schedules, t));
    json_object_set_new(memory, "peak_bytes", json_integer(t->held_bytes));
    json_object_set_new(memory, "waits_for_memory", json_boolean(simulate_waits_for_memory(e, t)));
}
