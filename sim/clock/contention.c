/* contention.c -- see contention.h.
 *
 * Entries are unrolled, but of a long repeat only the first few iterations: once two in
 * a row pass the same boundary in the same state (the same entries at the head of every
 * stream, with the same work left), all later ones will, and the rest is one jump of the
 * clock.  Where that never happens, all is unrolled after all. */
#include "sim/clock/contention.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNROLLED = 8, REGIONS = 64, MOST = 1000000 };

/* One entry of the unrolled schedule. */
struct item {
    int     op;
    int64_t iteration;
    double  left;                   /* seconds of undisturbed work that remain */
    double  issue;                  /* on the issuing thread, before it */
    double  issued, start, end;
    int     next;                   /* on its stream, in issue order; -1 */
    int     dep0;                   /* its dependencies: deps[dep0 .. dep0+ndeps) */
    uint8_t ndeps, stream, state;
    int     cause, coll;            /* as in timeline.c */
    int     blocked_by;             /* a dependency that was not done when last asked, -1 */
    int     issue_coll;             /* what the issuing thread had waited for before it, -1 */
};

enum { WAITING, RUNNING, DONE };

/* Streams at the end of an iteration, relative to it. */
struct snapshot {
    double t, left[NSTREAM];
    int    head[NSTREAM];
    int    next_issue;              /* likewise */
    double issue_ahead;             /* issue_at - t */
    uint8_t running[NSTREAM];
    struct timeline sums;
};

/* A repeat of which only some iterations were unrolled. */
struct region {
    int first, length;              /* first entry, entries of an iteration */
    int boundary;                   /* its last entry on the compute stream, within an iteration */
    unsigned streams;               /* that its body uses, one bit each */
    int64_t left_out;               /* iterations that were not unrolled */
    double issue;                   /* issuing one iteration */
    int seen;                       /* iterations whose end has a snapshot */
    struct snapshot last;
};

struct fluid {
    const struct schedules *s;
    const struct durations *d;
    const struct contention *c;
    struct item *items;
    int n, room;
    int *deps;
    int ndeps, deps_room;
    struct region *regions;
    int nregions, cap_regions, passed;           /* regions; the one whose boundary was just passed, -1 */
    bool whole;                     /* unroll everything */
    double issue_more;              /* issuing of what was left out, before the next entry */
    /* while unrolling: the last entry of each kind so far */
    int last_on[NSTREAM], last_in[PLAN_GROUPS], *recorded;     /* ... each event */
    /* while running */
    double t, compute_end;
    int head[NSTREAM];              /* first entry of each stream that is not done, -1 */
    uint8_t used[NSTREAM];          /* the streams that have entries, and how many */
    int nused;
    int next_issue;                 /* the first entry whose time of issue is not known: its
                                     * issuing thread may be blocked before it */
    double issue_at;                /* when it will be issued, unless it is blocked */
    int issue_coll;                 /* the collective that blocked it last, until charged; -1 */
    struct timeline *out;
};

static void *more(void *array, int n, int *room, size_t size)
{
    if (n < *room)
        return array;
    *room = *room ? 2 * *room : size > 256 ? 8 : 2048;
    array = realloc(array, (size_t)*room * size);
    if (!array)
        abort();
    return array;
}

/* ---- unrolling ---- */

static void depend(struct fluid *f, struct item *it, int on)
{
    if (on < 0)
        return;
    f->deps = more(f->deps, f->ndeps, &f->deps_room, sizeof *f->deps);
    f->deps[f->ndeps++] = on;
    it->ndeps++;
}

static void unroll(struct fluid *f, int op, int64_t iteration)
{
    const struct op *o = &f->s->ops[op];
    int i = f->n;

    f->items = more(f->items, f->n, &f->room, sizeof *f->items);
    struct item *it = &f->items[f->n++];
    *it = (struct item){ .op = op, .iteration = iteration, .left = f->d->work[op], .next = -1,
                         .issue = f->d->issue[op] + f->issue_more,
                         .issue_coll = -1, .blocked_by = -1, .dep0 = f->ndeps, .stream = o->stream, .cause = -1, .coll = -1 };
    f->issue_more = 0;
    if (o->stream != STREAM_ISSUE) {
        int before = f->last_on[o->stream];
        if (before >= 0) {
            f->items[before].next = i;
        } else {
            f->head[o->stream] = i;
            f->used[f->nused++] = o->stream;
        }
        it->coll = before >= 0 && o->stream != STREAM_COMPUTE ? f->items[before].coll : -1;
        depend(f, it, before);
    }
    if (o->kind == OP_COLL) {
        depend(f, it, f->last_in[o->u.coll.group]);
        f->last_in[o->u.coll.group] = i;
        it->coll = o->u.coll.op * PLAN_GROUPS + o->u.coll.group;
    }
    for (unsigned st = 0, mask = o->after; mask; st++, mask >>= 1)
        if (mask & 1)
            depend(f, it, f->last_on[st]);
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            depend(f, it, f->recorded[o->wait[w]]);
    if (o->stream != STREAM_ISSUE)
        f->last_on[o->stream] = i;
    if (o->record)
        f->recorded[o->record] = i;
}

/* Does the issuing thread wait in its body? */
static bool waits(const struct region *r)
{
    return r->streams >> STREAM_ISSUE & 1;
}

/* Notes the repeat whose first UNROLLED iterations are items [first, f->n), if there is
 * work on the compute stream by which to tell its iterations apart. */
static bool add_region(struct fluid *f, int first, int64_t left_out)
{
    f->regions = more(f->regions, f->nregions, &f->cap_regions, sizeof *f->regions);
    struct region *r = &f->regions[f->nregions];
    int length = (f->n - first) / UNROLLED;

    *r = (struct region){ .first = first, .length = length, .boundary = -1, .left_out = left_out };
    for (int i = first + length; i < first + 2 * length; i++) {
        const struct item *it = &f->items[i];
        if (it->stream == STREAM_COMPUTE && it->left > 0)
            r->boundary = i - first - length;
        r->issue += it->issue;
        r->streams |= 1u << it->stream;
    }
    if (r->boundary < 0)
        return false;
    if (!waits(r))                  /* else the issuing thread jumps with the clock */
        f->issue_more += (double)left_out * r->issue;
    f->nregions++;
    return true;
}

static void unroll_range(struct fluid *f, int from, int to, int64_t iteration)
{
    for (int i = from; i < to && f->n <= MOST; i++) {
        const struct op *o = &f->s->ops[i];
        if (o->kind != OP_REPEAT) {
            unroll(f, i, iteration);
            continue;
        }
        int64_t n = o->u.repeat.n, k = 0;
        int first = f->n;
        bool fold = !f->whole && f->nregions < REGIONS && n > UNROLLED + 2;
        for (; k < (fold ? UNROLLED : n) && f->n <= MOST; k++)
            unroll_range(f, i + 1, o->u.repeat.other, k);
        if (fold && !add_region(f, first, n - UNROLLED))
            for (; k < n && f->n <= MOST; k++)
                unroll_range(f, i + 1, o->u.repeat.other, k);
        i = o->u.repeat.other;
    }
}

/* ---- running ---- */

/* Are all dependencies done?  If so, *last is the one that ended last, or -1. */
static bool free_to_go(const struct fluid *f, struct item *it, int *last)
{
    if (it->blocked_by >= 0 && f->items[it->blocked_by].state != DONE)
        return false;
    *last = -1;
    for (int k = it->dep0; k < it->dep0 + it->ndeps; k++) {
        const struct item *dep = &f->items[f->deps[k]];
        if (dep->state != DONE) {
            it->blocked_by = f->deps[k];
            return false;
        }
        if (*last < 0 || dep->end > f->items[*last].end)
            *last = f->deps[k];
    }
    return true;
}

static void account_gap(struct fluid *f, int coll, double since)
{
    double gap = since - f->compute_end;

    if (gap <= 0)
        return;
    if (coll >= 0) {
        f->out->exposed_by[coll / PLAN_GROUPS][coll % PLAN_GROUPS] += gap;
        f->out->exposed_s += gap;
    } else {
        f->out->idle_s += gap;
    }
}

static void finish(struct fluid *f, struct item *it)
{
    const struct op *o = &f->s->ops[it->op];

    it->state = DONE;
    it->end = f->t;
    for (int k = 0; k < f->nregions; k++) {
        const struct region *r = &f->regions[k];
        int at = (int)(it - f->items) - r->first;
        if (r->left_out > 0 && at >= 0 && at < UNROLLED * r->length && at % r->length == r->boundary)
            f->passed = k;
    }
    if (it->stream != STREAM_ISSUE)
        f->head[it->stream] = it->next;
    f->out->busy_s[it->stream] += it->end - it->start;
    if (o->kind == OP_COLL)
        f->out->comm_s += it->end - it->start;
    if (it->stream == STREAM_COMPUTE) {
        *(o->phase == PHASE_OPTIMIZER ? &f->out->optimizer_s : &f->out->compute_s) += it->end - it->start;
        f->compute_end = f->t;
    }
}

/* The issuing thread runs ahead of the clock: the times at which entries are issued are
 * known up to the next one for which it waits itself. */
static bool issue(struct fluid *f)
{
    bool moved = false;
    int last;

    while (f->next_issue < f->n) {
        struct item *it = &f->items[f->next_issue];
        if (it->stream == STREAM_ISSUE) {
            if (f->issue_at > f->t || !free_to_go(f, it, &last))
                break;                      /* not there yet, or it waits */
            it->start = f->t;
            if (last >= 0 && f->items[last].end >= f->issue_at) {
                it->cause = last;           /* it was blocked */
                f->issue_coll = f->items[last].coll;
            }
            f->issue_at = f->t;
            finish(f, it);
        }
        it->issued = f->issue_at;
        it->issue_coll = f->issue_coll;
        if (it->stream == STREAM_COMPUTE)
            f->issue_coll = -1;
        if (++f->next_issue < f->n)
            f->issue_at += f->items[f->next_issue].issue;
        moved = true;
    }
    return moved;
}

static bool start_heads(struct fluid *f)
{
    bool moved = false;
    int last;

    for (int u = 0; u < f->nused; u++) {
        int st = f->used[u];
        while (f->head[st] >= 0 && f->head[st] < f->next_issue && f->items[f->head[st]].state == WAITING) {
            struct item *it = &f->items[f->head[st]];
            if (it->issued > f->t || !free_to_go(f, it, &last))
                break;
            bool by_issue = last < 0 || f->items[last].end < it->issued;
            it->state = RUNNING;
            it->start = f->t;
            it->cause = by_issue ? -1 : last;
            if (st == STREAM_COMPUTE)
                account_gap(f, by_issue ? it->issue_coll : f->items[last].coll, f->t);
            moved = true;
            if (it->left > 0)
                break;
            finish(f, it);              /* nothing to do: the next may start at once */
        }
    }
    return moved;
}

/* Of products and streams, as this compute entry has them. */
static double mixed(const struct fluid *f, const double of[2], int compute)
{
    double share = f->c->streams ? f->c->streams[compute] : 0;

    return of[0] + share * (of[1] - of[0]);
}

/* How much longer entry `me` takes while `other` runs. */
static double slow_beside(const struct fluid *f, int me, int other)
{
    const struct op *m = &f->s->ops[me], *o = &f->s->ops[other];
    bool mine = m->stream == STREAM_COMPUTE, its = o->stream == STREAM_COMPUTE;
    const struct contention *c = f->c;

    if (mine && o->kind == OP_COLL)
        return c->beside ? mixed(f, c->beside[other].compute, me) : c->compute_slow[o->u.coll.op];
    if (m->kind == OP_COLL && its)
        return c->beside ? mixed(f, c->beside[me].comm, other) : c->comm_slow[m->u.coll.op];
    /* Threads on cores: to a collective a copy is what compute is, by bytes. */
    if (c->adds && c->beside && m->kind != OP_COLL && o->kind == OP_COLL)
        return c->beside[other].compute[1];
    if (c->adds && c->beside && m->kind == OP_COLL && o->kind != OP_COLL)
        return c->beside[me].comm[1];
    if (m->kind == OP_COLL && o->kind == OP_COLL)
        return c->shares_link[m->u.coll.group][o->u.coll.group] ? 2 : 1;
    return mine != its || c->adds ? c->copy_slow : 1;
}

/* How much longer the running entry of running[me_at] takes now.  Of several collectives beside
 * compute the worst counts, since they hold the same SMs; threads on cores add up, but a collective waits
 * for its turn, whoever has it. */
static double slow_down(const struct fluid *f, const int *running, int n, int me_at)
{
    int me = f->items[f->head[running[me_at]]].op;
    double slow = 1, worst = 1;

    for (int k = 0; k < n; k++) {
        int other = f->items[f->head[running[k]]].op;
        if (k == me_at)
            continue;
        double by = slow_beside(f, me, other);
        bool turn = f->s->ops[me].kind == OP_COLL && f->s->ops[other].kind != OP_COLL;
        if (f->c->adds && turn)
            worst = by > worst ? by : worst;
        else if (f->c->adds)
            slow += by - 1;
        else if (running[me_at] == STREAM_COMPUTE && f->s->ops[other].kind == OP_COLL)
            worst = by > worst ? by : worst;
        else
            slow *= by;
    }
    return f->c->adds ? slow + worst - 1 : slow * worst;
}

/* The head of a stream that the repeat does not use stands still, at an entry after it. */
static struct snapshot snapshot_at(const struct fluid *f, const struct region *r, int base)
{
    struct snapshot s = { .t = f->t, .sums = *f->out, .next_issue = f->next_issue - base,
                          .issue_ahead = f->issue_at - f->t };
    int end = r->first + UNROLLED * r->length;

    for (int u = 0; u < f->nused; u++) {
        int st = f->used[u], head = f->head[st];
        bool idle = !(r->streams >> st & 1) && (head < 0 || head >= end);
        s.head[st] = idle ? INT_MAX : head < 0 ? INT_MIN : head - base;
        s.running[st] = head >= 0 && f->items[head].state == RUNNING;
        s.left[st] = s.running[st] ? f->items[head].left : 0;
    }
    return s;
}

static bool same_state(const struct fluid *f, const struct region *r, const struct snapshot *a,
                       const struct snapshot *b)
{
    for (int u = 0; u < f->nused; u++) {
        int st = f->used[u];
        if (a->head[st] != b->head[st] || a->head[st] < -r->length || a->running[st] != b->running[st] ||
            fabs(a->left[st] - b->left[st]) > 1e-12 * a->t)
            return false;
    }
    return true;
}

/* Will the issuing thread be to the next iterations what it was to the last one?  It is,
 * when it waits in the body and is as far ahead as before; or when it waits nowhere and
 * has issued all that could run next and is not slower than the streams; or when it alone
 * sets the pace. */
static bool same_issuing(const struct fluid *f, const struct region *r, const struct snapshot *a,
                         const struct snapshot *b, int base)
{
    double by = a->t - b->t, tolerance = 1e-12 * a->t;
    int until = base + 2 * r->length;

    if (waits(r))
        return a->next_issue == b->next_issue && fabs(a->issue_ahead - b->issue_ahead) <= tolerance;
    if (until >= f->next_issue)
        return false;
    return (f->items[until].issued <= f->t && r->issue <= by) || fabs(r->issue - by) <= tolerance;
}

static void add_times(struct timeline *to, const struct timeline *now, const struct timeline *then, double k, int groups)
{
    to->compute_s += k * (now->compute_s - then->compute_s);
    to->optimizer_s += k * (now->optimizer_s - then->optimizer_s);
    to->exposed_s += k * (now->exposed_s - then->exposed_s);
    to->idle_s += k * (now->idle_s - then->idle_s);
    to->comm_s += k * (now->comm_s - then->comm_s);
    for (int st = 0; st < NSTREAM; st++)
        to->busy_s[st] += k * (now->busy_s[st] - then->busy_s[st]);
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < groups; g++)
            to->exposed_by[op][g] += k * (now->exposed_by[op][g] - then->exposed_by[op][g]);
}

/* The end of an iteration: if it is in the state of the one before, jump over all that
 * was not unrolled.  What runs goes on with the work it has left. */
static void at_boundary(struct fluid *f, struct region *r)
{
    int at = f->head[STREAM_COMPUTE] < 0 ? -1 : f->head[STREAM_COMPUTE] - r->first;
    int base = r->first + (at < 0 ? 0 : at / r->length) * r->length;

    if (at < 2 * r->length || at >= (UNROLLED - 2) * r->length)
        return;                     /* the first iterations may wait for what came before the repeat */
    struct snapshot now = snapshot_at(f, r, base);
    double by = now.t - r->last.t, k = (double)r->left_out;
    if (r->seen++ > 0 && same_state(f, r, &now, &r->last) && same_issuing(f, r, &now, &r->last, base)) {
        struct timeline was = *f->out;
        int end = r->first + UNROLLED * r->length;
        add_times(f->out, &was, &r->last.sums, k, f->s->groups.n);
        /* What has a time of issue to come keeps its distance to the clock. */
        for (int i = r->first; i < end && i < f->next_issue; i++)
            if (f->items[i].state == WAITING && f->items[i].issued > f->t)
                f->items[i].issued += k * by;
        if (waits(r))
            f->issue_at += k * by;
        f->t += k * by;
        f->compute_end += k * by;
        for (int u = 0; u < f->nused; u++) {
            struct item *it = f->head[f->used[u]] < 0 ? NULL : &f->items[f->head[f->used[u]]];
            if (it && it->state == RUNNING)
                it->start += k * by;
        }
        r->left_out = 0;
    }
    r->last = now;
}

/* Lets time pass until something ends or the issuing thread issues. */
static bool pass_time(struct fluid *f)
{
    double slow[NSTREAM], dt = -1;
    int running[NSTREAM], n = 0, first = -1;
    double wake = -1;               /* when the next entry is issued for which a stream is ready */

    for (int u = 0; u < f->nused; u++) {
        int head = f->head[f->used[u]];
        if (head >= 0 && f->items[head].state == RUNNING)
            running[n++] = f->used[u];
        else if (head >= 0 && head < f->next_issue && f->items[head].issued > f->t &&
                 (wake < 0 || f->items[head].issued < wake))
            wake = f->items[head].issued;
    }
    if (f->next_issue < f->n && f->issue_at > f->t && (wake < 0 || f->issue_at < wake))
        wake = f->issue_at;         /* the issuing thread comes to an entry of its own */
    for (int k = 0; k < n; k++) {
        slow[k] = n > 1 ? slow_down(f, running, n, k) : 1;
        double need = f->items[f->head[running[k]]].left * slow[k];
        if (dt < 0 || need < dt) {
            dt = need;
            first = k;
        }
    }
    if (wake >= 0 && (dt < 0 || wake - f->t < dt)) {
        dt = wake - f->t;
        first = -1;
    }
    if (dt < 0)
        return false;
    f->t = first < 0 ? wake : f->t + dt;
    for (int k = 0; k < n; k++) {
        struct item *it = &f->items[f->head[running[k]]];
        if (k != first)
            it->left -= dt / slow[k];
        /* What ends together ends now: a rest of a rounding error is no work. */
        if (k == first || it->left <= 1e-15 * f->t)
            finish(f, it);
    }
    if (f->passed >= 0) {
        at_boundary(f, &f->regions[f->passed]);
        f->passed = -1;
    }
    return true;
}

static void keep(const struct fluid *f, struct run *r)
{
    r->ran = calloc((size_t)f->n + 1, sizeof *r->ran);
    if (!r->ran)
        abort();
    r->n = f->n;
    for (int i = 0; i < f->n; i++) {
        const struct item *it = &f->items[i];
        r->ran[i] = (struct ran){ it->op, it->iteration, it->issued, it->start, it->end, it->cause };
    }
    r->total = *f->out;
}

static void release(struct fluid *f)
{
    free(f->items);
    free(f->deps);
    free(f->recorded);
    free(f->regions);
}

/* False when iterations were left out that the clock never jumped over, or when there
 * are too many entries to unroll. */
static bool run(const struct schedules *s, enum sched_id id, const struct durations *d,
                const struct contention *c, bool whole, struct timeline *out, struct run *kept)
{
    struct fluid f = { .s = s, .d = d, .c = c, .out = out, .passed = -1, .issue_coll = -1, .whole = whole || kept };
    double end;
    int coll;

    memset(out, 0, sizeof *out);
    for (int k = 0; k < NSTREAM; k++)
        f.last_on[k] = f.head[k] = -1;
    for (int k = 0; k < s->groups.n; k++)
        f.last_in[k] = -1;
    f.recorded = malloc(((size_t)s->nevents + 1) * sizeof *f.recorded);
    if (!f.recorded)
        abort();
    for (int k = 0; k <= s->nevents; k++)
        f.recorded[k] = -1;
    unroll_range(&f, s->begin[id], s->end[id], 0);
    if (f.n > MOST) {
        release(&f);
        return false;
    }
    if (f.n > 0)
        f.issue_at = f.items[0].issue;
    do {
        bool moved;
        do {
            moved = issue(&f);
            moved = start_heads(&f) || moved;
        } while (moved);
    } while (pass_time(&f));
    out->step_s = f.t;
    /* What came last after the last work on the compute stream; ties as timeline.c has them. */
    end = f.n > 0 ? f.items[f.n - 1].issued : 0;
    coll = f.issue_coll;
    for (int st = 0; st < NSTREAM; st++)
        if (f.last_on[st] >= 0 && f.items[f.last_on[st]].end > end) {
            end = f.items[f.last_on[st]].end;
            coll = f.items[f.last_on[st]].coll;
        }
    account_gap(&f, coll, end);
    if (kept)
        keep(&f, kept);
    bool all = true;
    for (int k = 0; k < f.nregions; k++)
        all &= f.regions[k].left_out == 0;
    release(&f);
    return all;
}

bool contention_run(const struct schedules *s, enum sched_id id, const struct durations *d,
                    const struct contention *c, struct timeline *out, struct run *kept)
{
    if (kept)
        memset(kept, 0, sizeof *kept);
    if (run(s, id, d, c, false, out, kept) || run(s, id, d, c, true, out, kept))
        return true;
    if (!kept)
        timeline_run(s, id, d, out);
    return false;
}
