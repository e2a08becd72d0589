/* step.c -- see step.h. */
#include "sim/clock/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"

void *step_room(const struct schedules *s, enum sched_id id, size_t size)
{
    size_t before = (size_t)s->begin[id] * size, all = ((size_t)s->end[id] + 1) * size;
    char *room = malloc(all);

    if (!room)
        abort();
    memset(room + before, 0, all - before);
    return room;
}

int step_open(const struct plan *p, const struct schedules *const *of, int n, struct cost_cache *cache,
              struct coll_memo *memo, struct step *out)
{
    *out = (struct step){ .p = p, .role = room_new((size_t)n, sizeof *out->role), .basis = BASIS_MEASURED };
    for (; out->n < n; out->n++) {
        struct step_role *r = &out->role[out->n];
        r->s = of[out->n];
        if (simulate_price(p, r->s, SCHED_STEADY, cache, memo, &r->prices) < 0) {
            step_close(out);
            return -1;
        }
        r->loops = clock_loops_new(r->s, SCHED_STEADY);
        simulate_contention(p, r->s, &r->prices, &r->slow);
        out->crowded = crowd_of(p, r->s->rank, &r->crowd);
        snprintf(r->name, sizeof r->name, "stage %d", out->n);
        out->basis = basis_worst(out->basis, r->prices.basis);
        out->outside |= r->prices.outside;
    }
    out->apart = out->crowded;
    return 0;
}

void step_close(struct step *st)
{
    for (int i = 0; i < st->n; i++) {
        simulate_priced_free(&st->role[i].prices);
        clock_loops_free(st->role[i].loops);
    }
    free(st->role);
    free(st->lines);
    *st = (struct step){ 0 };
}

/* ---- one role in a view ---- */

static unsigned part_of(const struct op *o)
{
    if (o->kind == OP_COLL)
        return STEP_COLLECTIVES;
    return o->kind == OP_COMPUTE && o->u.compute.pass == PASS_BACKWARD ? STEP_BACKWARD : STEP_REST;
}

/* What a role runs by, where that is not its own prices; what it owns. */
struct seen {
    struct durations  d;
    struct contention slow;
    double           *store;
    struct beside    *beside;
    struct op_held   *held;
};

/* A slow-down's excess over 1, times `part`. */
static void scale(double *slow, double part)
{
    *slow = 1 + part * (*slow - 1);
}

/* Products alone are what streams leave of 1. */
static void hold(const struct step_role *r, double part, struct seen *out)
{
    int n = r->s->end[SCHED_STEADY];

    out->slow.held = out->held = step_room(r->s, SCHED_STEADY, sizeof *out->held);
    for (int i = r->s->begin[SCHED_STEADY]; i < n; i++) {
        double alone = 1 - r->slow.held[i].streams;
        out->held[i].streams = r->slow.held[i].streams;
        for (int k = 0; k < 2; k++)
            out->held[i].products[k] = alone + part * (r->slow.held[i].products[k] - alone);
    }
}

static void slow_down(const struct step_role *r, double part, struct seen *out)
{
    int n = r->s->end[SCHED_STEADY];

    for (int op = 0; op < NCOLL; op++) {
        scale(&out->slow.compute_slow[op], part);
        scale(&out->slow.comm_slow[op], part);
    }
    scale(&out->slow.copy_slow, part);
    if (r->slow.held)
        hold(r, part, out);
    if (!r->slow.beside)
        return;
    out->slow.beside = out->beside = step_room(r->s, SCHED_STEADY, sizeof *out->beside);
    for (int i = r->s->begin[SCHED_STEADY]; i < n; i++) {
        out->beside[i] = r->slow.beside[i];
        for (int k = 0; k < 2; k++) {
            scale(&out->beside[i].compute[k], part);
            scale(&out->beside[i].comm[k], part);
        }
    }
}

static void see(const struct step_role *r, const struct step_view *as, struct seen *out)
{
    size_t n = (size_t)r->s->end[SCHED_STEADY];
    const struct priced *p = &r->prices;
    const double *ends = as->high ? p->high.work : p->low.work;
    double *work = out->store = malloc((2 * n + 1) * sizeof *work), *issue = work + n;     /* of other schedules it stays unset */

    if (!work)
        abort();
    out->slow = r->slow;
    for (int i = r->s->begin[SCHED_STEADY]; i < r->s->end[SCHED_STEADY]; i++) {
        work[i] = (part_of(&r->s->ops[i]) & as->parts ? ends : p->middle.work)[i];
        issue[i] = as->issue * p->middle.issue[i];
    }
    out->d = (struct durations){ work, issue };
    if (as->slow > 0 && as->slow != 1)
        slow_down(r, as->slow, out);
}

/* ---- all roles ---- */

/* As predicted. */
static struct role role_of(const struct step *st, int i, bool holds)
{
    const struct step_role *r = &st->role[i];

    return (struct role){ r->s, &r->prices.middle, &r->slow, r->name, st->crowded ? &r->crowd : NULL, holds, false, r->loops };
}

int step_run(const struct step *st, const struct step_view *as, struct timeline *lines, struct run *kept,
             double *makespan_s)
{
    struct role *roles = room_new((size_t)st->n, sizeof *roles);
    struct seen *seen = as ? room_new((size_t)st->n, sizeof *seen) : NULL;
    struct clock_result result;
    bool ran;

    for (int i = 0; i < st->n; i++) {
        const struct step_role *r = &st->role[i];
        roles[i] = role_of(st, i, !as && !kept);
        if (!as)
            continue;
        see(r, as, &seen[i]);
        roles[i].d = &seen[i].d;
        roles[i].slow = as->slow > 0 ? &seen[i].slow : NULL;
    }
    if (kept)
        memset(kept, 0, (size_t)st->n * sizeof *kept);
    ran = clock_run(roles, st->n, SCHED_STEADY, lines, kept && clock_keeps(roles, st->n, SCHED_STEADY) ? kept : NULL, &result);
    *makespan_s = result.makespan_s;
    for (int i = 0; as && i < st->n; i++) {
        free(seen[i].store);
        free(seen[i].beside);
        free(seen[i].held);
    }
    free(seen);
    free(roles);
    return ran ? 0 : fail("the step never ends: %s", result.why);
}

int step_held(const struct step *st, struct timeline *lines)
{
    struct role *roles = room_new((size_t)st->n, sizeof *roles);
    struct clock_result result;

    for (int i = 0; i < st->n; i++) {
        roles[i] = role_of(st, i, true);
        roles[i].waits = true;
    }
    bool ran = clock_run(roles, st->n, SCHED_STEADY, lines, NULL, &result);
    free(roles);
    return ran ? 0 : fail("the step never ends: %s", result.why);
}

bool step_keeps(const struct step *st)
{
    struct role *roles = room_new((size_t)st->n, sizeof *roles);

    for (int i = 0; i < st->n; i++)
        roles[i] = (struct role){ .s = st->role[i].s };
    bool keeps = clock_keeps(roles, st->n, SCHED_STEADY);
    free(roles);
    return keeps;
}

/* ---- parts ---- */

static double messages(const struct timeline *t)
{
    double s = 0;

    for (int g = 0; g < PLAN_GROUPS; g++)
        s += t->exposed_by[COLL_SEND][g] + t->exposed_by[COLL_RECV][g];
    return s;
}

void step_parts(const struct step *st, const struct timeline *lines, double makespan_s, struct timeline *line,
                struct stage_parts *out)
{
    double mean = 0;

    *out = (struct stage_parts){ .n = st->n };
    for (int i = 0; i < st->n; i++) {
        struct stage_part *of = &out->stage[i];
        of->bubble_s = lines[i].bubble_s + makespan_s - lines[i].step_s;
        of->messages_s = messages(&lines[i]);
        of->work_s = makespan_s - of->bubble_s - of->messages_s;
        mean += of->work_s / st->n;
        if (of->work_s > out->stage[out->busiest].work_s)
            out->busiest = i;
    }
    *line = lines[out->busiest];
    line->bubble_s = out->stage[out->busiest].bubble_s;
    line->step_s = makespan_s;
    out->imbalance_s = st->n > 1 ? out->stage[out->busiest].work_s - mean : 0;
    simulate_slowest(st->p, line);
}

static const double *known(const struct step *st, const struct step_view *as)
{
    for (int i = 0; as && i < st->nknown; i++) {
        const struct step_view *of = &st->known[i].as;
        if (of->parts == as->parts && of->high == as->high && !(of->slow < as->slow || of->slow > as->slow) &&
            !(of->issue < as->issue || of->issue > as->issue))
            return &st->known[i].s;
    }
    return NULL;
}

static void know(struct step *st, const struct step_view *as, double s)
{
    if (st->nknown == STEP_KNOWN || known(st, as))
        return;
    st->known[st->nknown].as = *as;
    st->known[st->nknown++].s = s;
}

double step_seconds(const struct step *st, const struct step_view *as)
{
    const double *was = known(st, as);

    if (was)
        return *was;
    struct timeline *lines = room_new((size_t)st->n, sizeof *lines), line;
    struct stage_parts parts;
    double makespan;
    int rc = step_run(st, as, lines, NULL, &makespan);

    if (rc == 0)
        step_parts(st, lines, makespan, &line, &parts);
    free(lines);
    return rc < 0 ? -1 : line.step_s;
}

/* ---- all views in one run ---- */

/* Those of simulate.c's intervals and of ties.c. */
static const struct step_view in_lanes[] = {
    { .slow = 1, .issue = 1 }, { .slow = 0, .issue = 1 }, { .slow = .5, .issue = 1 }, { .slow = 1.5, .issue = 1 },
    { .slow = 1, .issue = STEP_ISSUE_LOW }, { .slow = 1, .issue = STEP_ISSUE_HIGH },
    { STEP_COLLECTIVES, false, 1, 1 }, { STEP_COLLECTIVES, true, 1, 1 }, { STEP_WORK, false, 1, 1 }, { STEP_WORK, true, 1, 1 },
    { STEP_BACKWARD, false, 1, 1 }, { STEP_BACKWARD, true, 1, 1 }, { STEP_REST, false, 1, 1 }, { STEP_REST, true, 1, 1 },
};
enum { IN_LANES = sizeof in_lanes / sizeof *in_lanes, NOTHING_LOST = 1 };
_Static_assert(sizeof in_lanes / sizeof *in_lanes <= (size_t)LANES && (size_t)LANES <= (size_t)STEP_KNOWN,
               "each view has a lane, and is known");

/* Collectives, backward's kernels, the rest: bit i of a view's parts. */
static void fill_lanes(const struct step_role *r, uint8_t *part, struct lanes *out)
{
    const struct priced *p = &r->prices;

    *out = (struct lanes){ .work = { p->middle.work, p->low.work, p->high.work }, .part = part };
    for (int k = 0; k < IN_LANES; k++) {
        out->issue.s[k] = in_lanes[k].issue;
        out->slow.s[k] = in_lanes[k].slow;
        for (int i = 0; i < LANE_PARTS; i++)
            out->pick[i][k] = (uint8_t)(in_lanes[k].parts >> i & 1 ? 1 + in_lanes[k].high : 0);
    }
    for (int i = r->s->begin[SCHED_STEADY]; i < r->s->end[SCHED_STEADY]; i++)
        part[i] = (uint8_t)__builtin_ctz(part_of(&r->s->ops[i]));
}

/* Until all is done in lane k. */
static double makespan_in(const struct step *st, const struct lanes *lanes, int k)
{
    double s = 0;

    for (int i = 0; i < st->n; i++)
        s = lanes[i].end.s[k] > s ? lanes[i].end.s[k] : s;
    return s;
}

/* A view is run by itself where its lane may be off by more than UNSURE of the step, or where the clock jumped over nothing, by OF_WIDTH of
 * what the step's interval is wide at least, if that is more.  What streams cost each other depends on what runs beside what, which the clock knows of the predicted step alone:
 * where that costs more than MOST_LOST of the step the views are run, and so is one that is far from the step: by more than FAR of it
 * where the clock jumped over iterations, else so far that so much of what is lost is more than FAR * MOST_LOST of the step. */
#define UNSURE .005
#define OF_WIDTH .02
#define MOST_LOST .05
#define FAR .15

/* The most that a role does not know of the lane. */
static double unsure_s(const struct step *st, const struct lanes *lanes, int k)
{
    double s = 0;

    for (int i = 0; i < st->n; i++)
        s = fmax(s, lanes[i].unsure.s[k]);
    return s;
}

static double far_s(const struct step *st, const struct lanes *lanes, int k) { return fabs(makespan_in(st, lanes, k) - st->makespan_s); }

static bool jumped(const struct step *st, const struct lanes *lanes)
{
    int i = 0;

    while (i < st->n && !lanes[i].jumped)
        i++;
    return i < st->n;
}

static bool is_near(const struct step *st, const struct lanes *lanes, int k)
{
    double far = far_s(st, lanes, k), lost = jumped(st, lanes) ? MOST_LOST * st->makespan_s : st->makespan_s - st->free_s;
    return far * lost <= FAR * MOST_LOST * st->makespan_s * st->makespan_s;
}

/* Each part of the interval is at least as wide as its lanes that are near say, and their squares add (simulate.c). */
static double width_at_least(const struct step *st, const struct lanes *lanes)
{
    double low = 0, high = 0;

    for (int k = NOTHING_LOST + 1; k < IN_LANES; k++) {
        bool of_interval = in_lanes[k].parts != STEP_BACKWARD && in_lanes[k].parts != STEP_REST;         /* work counts as one */
        double far = is_near(st, lanes, k) && of_interval ? fmax(far_s(st, lanes, k) - unsure_s(st, lanes, k), 0) : 0;
        *(makespan_in(st, lanes, k) < st->makespan_s ? &low : &high) += far * far;
    }
    return sqrt(low) + sqrt(high);
}

static void know_lanes(struct step *st, const struct lanes *lanes)
{
    struct stage_parts parts;
    struct timeline line;

    step_parts(st, st->lines, st->makespan_s, &line, &parts);
    know(st, &in_lanes[LANE_PREDICTED], line.step_s);
    if (unsure_s(st, lanes, NOTHING_LOST) > UNSURE * st->makespan_s)
        return;
    st->free_s = makespan_in(st, lanes, NOTHING_LOST);
    double may = fmax(UNSURE * st->makespan_s, jumped(st, lanes) ? 0 : OF_WIDTH * width_at_least(st, lanes));
    for (int k = NOTHING_LOST + 1; k < IN_LANES && st->makespan_s - st->free_s <= MOST_LOST * st->makespan_s; k++) {
        struct timeline as = { .step_s = makespan_in(st, lanes, k), .compute_s = lanes[parts.busiest].worked.s[k] };
        simulate_slowest(st->p, &as);
        if (is_near(st, lanes, k) && unsure_s(st, lanes, k) <= may)
            know(st, &in_lanes[k], as.step_s);
    }
}

int step_predict(struct step *st)
{
    if (st->lines)
        return 0;
    struct lanes *lanes = room_new((size_t)st->n, sizeof *lanes);
    uint8_t **part = room_new((size_t)st->n, sizeof *part);
    struct role *roles = room_new((size_t)st->n, sizeof *roles);
    struct clock_result result;

    st->lines = room_new((size_t)st->n, sizeof *st->lines);
    for (int i = 0; i < st->n; i++) {
        const struct step_role *r = &st->role[i];
        roles[i] = role_of(st, i, true);
        part[i] = room_new((size_t)r->s->end[SCHED_STEADY] + 1, 1);
        fill_lanes(r, part[i], &lanes[i]);
    }
    bool ran = clock_run_beside(roles, st->n, SCHED_STEADY, st->lines, st->apart ? NULL : lanes, &result);
    st->makespan_s = result.makespan_s;
    if (ran && !st->apart)
        know_lanes(st, lanes);
    for (int i = 0; i < st->n; i++)
        free(part[i]);
    free(roles);
    free(part);
    free(lanes);
    return ran ? 0 : fail("the step never ends: %s", result.why);
}

double step_free_s(struct step *st)
{
    if (st->free_s > 0)
        return st->free_s;
    struct timeline *lines = room_new((size_t)st->n, sizeof *lines);
    int rc = step_run(st, &in_lanes[NOTHING_LOST], lines, NULL, &st->free_s);

    free(lines);
    return rc < 0 ? -1 : st->free_s;
}

/* ---- several views ---- */

struct viewing { const struct step *st; const struct step_view *views; double *out; };

static int view(void *of, int64_t i)
{
    const struct viewing *v = of;

    v->out[i] = step_seconds(v->st, &v->views[i]);
    return v->out[i] < 0 ? -1 : 0;
}

int step_views(struct step *st, const struct step_view *views, int n, double *out)
{
    bool all = true;
    int rc = 0;

    for (int i = 0; i < n; i++) {
        const double *s = known(st, &views[i]);
        all &= s != NULL;
        out[i] = s ? *s : 0;
    }
    if (!all)
        rc = parallel_each(n, 0, view, &(struct viewing){ st, views, out });
    for (int i = 0; rc == 0 && i < n; i++)
        know(st, &views[i], out[i]);
    return rc;
}

int step_alone(const struct step *st, struct timeline *line, struct stage_parts *out)
{
    struct role *roles = room_new((size_t)st->n, sizeof *roles);
    struct timeline *lines = room_new((size_t)st->n, sizeof *lines);
    struct clock_result result;

    for (int i = 0; i < st->n; i++)
        roles[i] = role_of(st, i, false);
    bool ran = clock_run(roles, st->n, SCHED_STEADY, lines, NULL, &result);
    if (ran)
        step_parts(st, lines, result.makespan_s, line, out);
    free(lines);
    free(roles);
    return ran ? 0 : fail("the step never ends: %s", result.why);
}

int step_time(const struct plan *p, const struct evaluation *e, struct cost_cache *cache, struct coll_memo *memo,
              struct timeline *line, struct stage_parts *out)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct step st;

    if (step_open(p, of, evaluation_roles(e, of), cache, memo, &st) < 0)
        return -1;
    int rc = step_alone(&st, line, out);
    step_close(&st);
    return rc;
}
