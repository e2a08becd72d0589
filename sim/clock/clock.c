/* clock.c -- the event loop of clock.h. */
#include "sim/clock/clock.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/clock/clock_internal.h"

/* A remainder below this share of the time is a rounding error, not work. */
#define REST 1e-15
/* What ends within this share of the time of an issue ends then: sums in another order are a tie all the same. */
#define TIE 1e-12
/* Entries that can be kept. */
#define KEPT_MOST 1e6

/* ---- what a start or an end changes ---- */

/* Are all dependencies done?  If so, *last is the one that ended last, or -1. */
static bool free_to_go(const struct actor *a, struct item *it, int *last)
{
    if (it->blocked_by >= 0 && a->items[it->blocked_by].state != DONE)
        return false;
    *last = -1;
    for (int d = it->dep0; d < it->dep0 + it->ndeps; d++) {
        const struct item *dep = &a->items[a->deps[d]];
        if (dep->state != DONE) {
            it->blocked_by = a->deps[d];
            return false;
        }
        if (*last < 0 || dep->end > a->items[*last].end)
            *last = a->deps[d];
    }
    return true;
}

static void expose(struct timeline *out, int coll, double s)
{
    out->exposed_by[coll / PLAN_GROUPS][coll % PLAN_GROUPS] += s;
    out->exposed_s += s;
}

/* How long compute was idle, since its last work, because another role had not reached the collective `cause`, or
 * one that `cause` waited for. */
static double waited_for_others(const struct actor *a, int cause)
{
    double s = 0;

    while (cause >= 0 && a->items[cause].end > a->compute_end) {
        const struct item *it = &a->items[cause];
        double from = it->since > a->compute_end ? it->since : a->compute_end;
        if (it->meet >= 0 && it->start > from)
            s += it->start - from;
        cause = it->cause >= 0 ? it->cause : it->issue_cause;
    }
    return s;
}

/* Seconds of [from, to) since the compute stream's last work. */
static double since_work(const struct actor *a, double from, double to)
{
    return fmax(to - fmax(from, a->compute_end), 0);
}

/* The compute stream had nothing to do until `until`, since `cause` was not done (-1: not issued). */
static void account_gap(struct actor *a, int cause, double until)
{
    double gap = until - a->compute_end;
    int coll = cause < 0 ? -1 : a->items[cause].coll;

    if (gap <= 0)
        return;
    if (coll < 0) {
        a->out->idle_s += gap;
        return;
    }
    const struct item *it = &a->items[cause];
    double others = waited_for_others(a, cause);
    double issuing = since_work(a, it->late_from, it->late_to) + since_work(a, it->end, until);      /* and of what waits for it */
    a->out->bubble_s += others;
    a->out->idle_s += issuing;
    expose(a->out, coll, gap - others - issuing);
}

/* An entry starts: when the issuing thread came to it, or when `cause` was done. */
static void start_after(struct actor *a, struct item *it, bool by_issue, int cause, double t)
{
    const struct item *was = cause >= 0 ? &a->items[cause] : NULL;

    it->start = it->since = t;
    it->cause = by_issue ? -1 : cause;
    it->late_from = by_issue ? it->issue_cause >= 0 ? a->items[it->issue_cause].end : 0 : was ? was->late_from : 0;
    it->late_to = by_issue ? t : was ? was->late_to : 0;
}

/* Which work outside of device memory an entry is; NAWAY: none. */
static enum away away_of(const struct schedules *s, const struct op *o)
{
    enum space from, to;

    if (!s->spaces || (o->kind != OP_COPY && o->kind != OP_OPTIMIZER))
        return NAWAY;
    if (stream_is_host((enum stream)o->stream))
        return o->stream == STREAM_DISK_READ ? AWAY_READ : o->stream == STREAM_DISK_WRITE ? AWAY_WRITE : AWAY_HOST;
    return !sched_crosses(s, o, &from, &to) ? NAWAY : from == SPACE_DEVICE ? AWAY_DOWN : AWAY_UP;
}

static void finish(struct clock *k, struct actor *a, struct item *it)
{
    const struct op *o = &a->s->ops[it->op];
    double t = k->t, took = t - it->start;

    it->state = DONE;
    it->end = t;
    if (a->lanes && it->meet < 0)
        clock_lanes_end(a, (int)(it - a->items), took, it->beside + (it->slow > 1 ? t - it->since : 0));
    bits_set(k->dirty, a->index);
    a->head[it->stream] = it->next;
    a->begun &= ~(1u << a->place[it->stream]);
    if (it->next < 0)
        a->pending &= ~(1u << it->stream);
    else
        a->waiting |= 1u << a->place[it->stream];
    a->out->busy_s[it->stream] += took;
    if (o->kind == OP_COLL)
        a->out->comm_s += took;
    enum away away = away_of(a->s, o);
    if (away < NAWAY)
        a->out->away_s[away] += took;
    if (it->stream != STREAM_COMPUTE)
        return;
    if (o->kind == OP_COLL)             /* nothing computes meanwhile */
        expose(a->out, it->coll, took);
    else
        *(o->phase == PHASE_OPTIMIZER ? &a->out->optimizer_s : &a->out->compute_s) += took;
    a->compute_end = t;
}

/* The issuing thread's wait. */
static bool pass_wait(struct actor *a)
{
    struct item *it = &a->items[a->blocked];
    int last;

    if (!free_to_go(a, it, &last))
        return false;
    it->start = a->issue_at;
    if (last >= 0 && a->items[last].end >= a->issue_at) {
        it->start = a->items[last].end;
        it->cause = last;
        a->issue_cause = last;
    }
    it->state = DONE;
    it->end = it->issued = a->issue_at = it->start;
    if (a->lanes)
        clock_lanes_wait(a, a->blocked);
    a->blocked = -1;
    return true;
}

/* Unrolls what streams need next. */
static void issue(struct clock *k, struct actor *a)
{
    while (a->blocked >= 0 ? pass_wait(a) : (a->want & ~a->pending) && clock_pull_next(k, a))
        ;
}

/* ---- meets ---- */

/* Something changes for the role now. */
static void touch(struct clock *k, const struct actor *a)
{
    bits_set(k->dirty, a->index);
    bits_set(k->touched, a->index);
}

static void meet_end(struct clock *k, int m)
{
    struct meet *meet = &k->meets[m];
    const struct actor *first = &k->actors[meet->who[0].actor];

    if (first->lanes)
        clock_lanes_meet(k, meet, k->t - first->items[meet->who[0].item].start, meet->beside + (meet->slow > 1 ? k->t - meet->since : 0));
    for (int i = 0; i < meet->nmembers; i++) {
        struct actor *a = &k->actors[meet->who[i].actor];
        touch(k, a);
        finish(k, a, &a->items[meet->who[i].item]);
    }
    clock_meet_free(k, m);
}

static void meet_begin(struct clock *k, int m)
{
    struct meet *meet = &k->meets[m];

    meet->since = k->t;
    meet->slow = 1;
    meet->end = k->t + meet->left;
    for (int i = 0; i < meet->nmembers; i++) {
        struct actor *a = &k->actors[meet->who[i].actor];
        struct item *it = &a->items[meet->who[i].item];
        touch(k, a);
        it->state = RUNNING;
        it->start = k->t;
        if (it->stream == STREAM_COMPUTE)
            a->out->bubble_s += k->t - a->compute_end;      /* since it arrived */
    }
    if (!(meet->left > 0)) {
        meet_end(k, m);
        return;
    }
    k->active = room_for(k->active, k->nactive, &k->room_active, sizeof *k->active);
    k->ends = room_for(k->ends, k->nactive, &k->room_ends, sizeof *k->ends);
    k->ends[k->nactive] = meet->end;
    meet->at = k->nactive;
    k->active[k->nactive++] = m;
}

/* ---- rates ---- */

/* From now on the rest of the work takes `slow` times as long. */
static void change_rate(double t, double *left, double *since, double *slow, double *end, double *beside, double to)
{
    if (*slow == to)
        return;
    *beside += *slow > 1 ? t - *since : 0;
    *left -= (t - *since) / *slow;
    *left = *left > 0 ? *left : 0;
    *since = t;
    *slow = to;
    *end = t + *left * to;
}

/* How much longer the part of `a` makes it take: the slowest part counts. */
static void meet_slow(struct clock *k, const struct actor *a, int m, double slow)
{
    struct meet *meet = &k->meets[m];
    double most = 1;

    for (int i = 0; i < meet->nmembers; i++) {
        if (meet->who[i].actor == a->index)
            meet->who[i].slow = slow;
        most = meet->who[i].slow > most ? meet->who[i].slow : most;
    }
    change_rate(k->t, &meet->left, &meet->since, &meet->slow, &meet->end, &meet->beside, most);
    k->ends[meet->at] = meet->end;
}

/* ---- the next event ---- */

static void set_next(struct clock *k, int actor, double t)
{
    int i = k->leaves + actor;

    k->least[i] = t;
    for (i /= 2; i > 0; i /= 2) {
        double a = k->least[2 * i], b = k->least[2 * i + 1], least = b < a ? b : a;
        if (k->least[i] == least)
            break;
        k->least[i] = least;
    }
}

/* ---- one role ---- */

/* Starts the head of a stream if it can.  False where it cannot. */
static bool start(struct clock *k, struct actor *a, int head)
{
    struct item *it = &a->items[head];
    int last;

    if (it->issued > k->t || !free_to_go(a, it, &last))
        return false;
    bool by_issue = last < 0 || it->issued - a->items[last].end > TIE * it->issued;
    a->wins += by_issue;
    a->waiting &= ~(1u << a->place[it->stream]);
    a->begun |= 1u << a->place[it->stream];
    start_after(a, it, by_issue, last, k->t);
    if (it->stream == STREAM_COMPUTE) {
        account_gap(a, by_issue ? it->issue_cause : last, k->t);
        if (it->meet >= 0 && a->compute_end < k->t)
            a->compute_end = k->t;              /* what follows is waiting for others */
    }
    if (it->meet >= 0) {
        it->state = ARRIVED;
        if (++k->meets[it->meet].arrived == k->meets[it->meet].nmembers)
            meet_begin(k, it->meet);
        return true;
    }
    it->state = RUNNING;
    it->slow = 1;
    it->end = k->t + it->left;
    if (!(it->left > 0))
        finish(k, a, it);                    /* nothing to do: the next may start at once */
    return true;
}

static void start_heads(struct clock *k, struct actor *a)
{
    for (unsigned left = a->waiting; left; left &= left - 1) {
        int u = __builtin_ctz(left);
        while ((a->waiting >> u & 1) && start(k, a, a->head[a->used[u]]))
            ;
    }
}

/* Finishes the entries and meets whose end is now. */
static void end_due(struct clock *k, struct actor *a)
{
    for (unsigned left = a->begun; left; left &= left - 1) {
        struct item *it = &a->items[a->head[a->used[__builtin_ctz(left)]]];
        if (it->meet < 0 && it->end - k->t <= REST * k->t)
            finish(k, a, it);
    }
    touch(k, a);
}

/* What a core is for: all but communication. */
static bool computes(const struct actor *a, int op) { return a->s->ops[op].kind != OP_COLL; }

/* Rates from now on, and the next event. */
static void look_forward(struct clock *k, struct actor *a)
{
    struct item *running[NSTREAM];
    int ops[NSTREAM], n = 0;
    double next = INFINITY;

    for (unsigned left = a->begun; left; left &= left - 1) {
        struct item *it = &a->items[a->head[a->used[__builtin_ctz(left)]]];
        if (it->state == RUNNING) {
            ops[n] = it->op;
            running[n++] = it;
        }
    }
    for (unsigned left = a->waiting; left; left &= left - 1) {
        const struct item *it = &a->items[a->head[a->used[__builtin_ctz(left)]]];
        if (it->issued > k->t && it->issued < next)
            next = it->issued;
    }
    for (int r = 0; r < n; r++) {
        struct item *it = running[r];
        double slow = n > 1 && a->role->slow ? contention_slow(a->role->slow, a->s, ops, n, r) : 1;
        if (a->lanes && n > 1)
            clock_lanes_beside(a, it, ops, n);
        if (a->role->crowd && computes(a, it->op))
            slow *= crowd_pace(a->role->crowd, a->asked, a->beside);
        if (it->meet >= 0) {
            meet_slow(k, a, it->meet, slow);
            continue;
        }
        change_rate(k->t, &it->left, &it->since, &it->slow, &it->end, &it->beside, slow);
        if (it->end < next)
            next = it->end;
    }
    set_next(k, a->index, next);
}

/* ---- all roles ---- */

/* The first from `from` on; k->n: none. */
static int first_of(const struct clock *k, struct bits b, int from)
{
    if (from >= k->n)
        return k->n;
    uint64_t mask = ~UINT64_C(0) << from % 64;
    if (k->words == 1)
        return b.word[0] & mask ? __builtin_ctzll(b.word[0] & mask) : k->n;

    for (int w = from / 64; w < k->words; w++, mask = ~UINT64_C(0))
        if (b.word[w] & mask)
            return 64 * w + __builtin_ctzll(b.word[w] & mask);
    return k->n;
}

static bool any_computes(const struct actor *a)
{
    for (unsigned left = a->begun; left; left &= left - 1) {
        const struct item *it = &a->items[a->head[a->used[__builtin_ctz(left)]]];
        if (it->state == RUNNING && computes(a, it->op))
            return true;
    }
    return false;
}

/* Where other roles compute than before, the pace of those that share their cores changes. */
static void share_cores(struct clock *k)
{
    for (int i = 0; i < k->n; i++)
        k->actors[i].computes = any_computes(&k->actors[i]);
    for (int i = 0; i < k->n; i++) {
        struct actor *a = &k->actors[i];
        double asked = 0, beside = 0;
        for (int j = 0; j < k->n; j++)
            if (k->actors[j].computes) {
                asked += a->role->crowd->by[j];
                beside += a->role->crowd->beside[j];
            }
        if (asked != a->asked || beside != a->beside)
            bits_set(k->touched, i);
        a->asked = asked;
        a->beside = beside;
    }
}

/* The same where there is one role. */
static void settle_alone(struct clock *k)
{
    struct actor *a = k->actors;

    while (k->dirty.word[0] && !k->failed) {
        k->dirty.word[0] = 0;
        issue(k, a);
        start_heads(k, a);
    }
    if (!k->touched.word[0])
        return;
    if (a->passed >= 0)
        clock_skip_boundary(k, a);
    if (a->role->crowd)
        share_cores(k);
    look_forward(k, a);
    k->touched.word[0] = 0;
    if (a->n > a->most && !a->whole)
        clock_pull_forget(k, a);
}

/* Everything that can happen at this moment. */
static void settle(struct clock *k)
{
    if (k->n == 1) {
        settle_alone(k);
        return;
    }
    for (int first; (first = first_of(k, k->dirty, 0)) < k->n && !k->failed; )
        for (int i = first; i < k->n; i = first_of(k, k->dirty, i + 1))
            while (bits_has(k->dirty, i) && !k->failed) {
                bits_clear(k->dirty, i);
                issue(k, &k->actors[i]);
                start_heads(k, &k->actors[i]);
            }
    for (int i = first_of(k, k->touched, 0); i < k->n; i = first_of(k, k->touched, i + 1))
        if (k->actors[i].passed >= 0)
            clock_skip_boundary(k, &k->actors[i]);
    if (k->actors[0].role->crowd)
        share_cores(k);
    for (int i = first_of(k, k->touched, 0); i < k->n; i = first_of(k, k->touched, i + 1)) {
        look_forward(k, &k->actors[i]);
        bits_clear(k->touched, i);
        if (k->actors[i].n > k->actors[i].most && !k->actors[i].whole)
            clock_pull_forget(k, &k->actors[i]);
    }
}

/* Four at a time, which do not wait for each other: this is looked for at every event. */
static double least_of(const double *v, int n)
{
    double least[4] = { INFINITY, INFINITY, INFINITY, INFINITY };
    int i = 0;

    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            least[j] = v[i + j] < least[j] ? v[i + j] : least[j];
    for (; i < n; i++)
        least[0] = v[i] < least[0] ? v[i] : least[0];
    least[0] = least[1] < least[0] ? least[1] : least[0];
    least[2] = least[3] < least[2] ? least[3] : least[2];
    return least[2] < least[0] ? least[2] : least[0];
}

/* A meet that runs is over. */
static void drop_active(struct clock *k, int i)
{
    k->active[i] = k->active[--k->nactive];
    k->ends[i] = k->ends[k->nactive];
    k->meets[k->active[i]].at = i;
}

/* Of the actors below number i of k->least, in their order, those that have an event now. */
static void end_all_due(struct clock *k, int i)
{
    while (k->least[i] - k->t <= REST * k->t) {
        if (i >= k->leaves) {
            end_due(k, &k->actors[i - k->leaves]);
            return;
        }
        end_all_due(k, 2 * i);
        i = 2 * i + 1;
    }
}

/* Advances to the next end or issue; false where there is none. */
static bool pass_time(struct clock *k)
{
    double t = k->least[1], meets = k->nactive > 0 ? least_of(k->ends, k->nactive) : INFINITY;

    t = meets < t ? meets : t;
    if (t == INFINITY)
        return false;
    k->t = t;
    end_all_due(k, 1);
    if (!(meets - t <= REST * t))
        return true;
    for (int i = k->nactive - 1; i >= 0; i--)
        if (k->ends[i] - t <= REST * t) {
            int m = k->active[i];
            drop_active(k, i);
            meet_end(k, m);
        }
    return true;
}

/* ---- results ---- */

static void keep(const struct actor *a, struct run *r)
{
    r->ran = calloc((size_t)a->n + 1, sizeof *r->ran);
    if (!r->ran)
        abort();
    r->n = a->n;
    for (int i = 0; i < a->n; i++) {
        const struct item *it = &a->items[i];
        r->ran[i] = (struct ran){ it->op, it->iteration, it->issued, it->start, it->end, it->cause };
    }
    r->total = *a->out;
}

static bool done(const struct actor *a)
{
    return a->pc >= a->end && !a->pending && a->blocked < 0;
}

/* What came last after the last work on the compute stream; the issuing thread wins ties. */
static void conclude(struct actor *a)
{
    double end = a->issue_at;
    int cause = a->issue_cause;

    for (int st = 0; st < NSTREAM; st++)
        if (a->last_on[st] >= 0 && a->items[a->last_on[st]].end > end) {
            end = a->items[a->last_on[st]].end;
            cause = a->last_on[st];
        }
    account_gap(a, cause, end);
    a->out->step_s = end;
}

static void clock_open(struct clock *k, const struct role *roles, int n, enum sched_id id, struct timeline *lines,
                       struct lanes *lanes, bool whole)
{
    k->n = n;
    k->free_meet = -1;
    memset(k->buckets, -1, sizeof k->buckets);
    k->words = (n + 63) / 64;
    k->actors = room_new((size_t)n, sizeof *k->actors);
    k->ranks = room_new((size_t)n, sizeof *k->ranks);
    for (k->leaves = 1; k->leaves < n; k->leaves *= 2)
        ;
    k->least = room_new(2 * (size_t)k->leaves, sizeof *k->least);
    for (int i = 0; i < 2 * k->leaves; i++)
        k->least[i] = INFINITY;
    k->dirty.word = room_new((size_t)k->words, sizeof *k->dirty.word);
    k->touched.word = room_new((size_t)k->words, sizeof *k->touched.word);
    for (int i = 0; i < n; i++) {
        k->ranks[i] = roles[i].s->rank;
        for (int j = 0; j < i; j++)
            assert(k->ranks[j] != k->ranks[i]);
        memset(&lines[i], 0, sizeof lines[i]);
        k->actors[i].index = i;
        k->actors[i].out = &lines[i];
        k->actors[i].whole = whole;
        clock_pull_open(&k->actors[i], &roles[i], n, id);
        clock_lanes_open(&k->actors[i], lanes ? &lanes[i] : NULL);
        clock_held_open(&k->actors[i]);
        touch(k, &k->actors[i]);
    }
}

static void clock_close(struct clock *k)
{
    clock_meet_close(k);
    clock_skip_close(k);
    free(k->actors);
    free(k->ranks);
    free(k->least);
    free(k->dirty.word);
    free(k->touched.word);
}

static bool run(const struct role *roles, int n, enum sched_id id, struct timeline *lines, struct run *kept,
                struct lanes *lanes, struct clock_result *out)
{
    struct clock k = { .why = out->why, .why_size = sizeof out->why };
    bool all = true;

    memset(out, 0, sizeof *out);
    clock_open(&k, roles, n, id, lines, lanes, kept != NULL);
    do
        settle(&k);
    while (!k.failed && pass_time(&k));
    for (int i = 0; i < n; i++)
        all &= done(&k.actors[i]);
    if (!all && !k.failed)
        clock_meet_deadlock(&k);
    for (int i = 0; i < n; i++) {
        conclude(&k.actors[i]);
        if (kept)
            keep(&k.actors[i], &kept[i]);
        if (lines[i].step_s > out->makespan_s)
            out->makespan_s = lines[i].step_s;
        clock_lanes_close(&k.actors[i]);
        clock_held_close(&k.actors[i]);
        clock_pull_close(&k.actors[i]);
    }
    clock_close(&k);
    return all && !k.failed;
}

bool clock_run(const struct role *roles, int n, enum sched_id id, struct timeline *lines, struct run *kept,
               struct clock_result *out)
{
    return run(roles, n, id, lines, kept, NULL, out);
}

bool clock_run_beside(const struct role *roles, int n, enum sched_id id, struct timeline *lines, struct lanes *lanes,
                      struct clock_result *out)
{
    return run(roles, n, id, lines, NULL, lanes, out);
}

bool clock_keeps(const struct role *roles, int n, enum sched_id id)
{
    double all = 0;

    for (int i = 0; i < n; i++)
        all += clock_entries(roles[i].s, roles[i].s->begin[id], roles[i].s->end[id]);
    return all <= KEPT_MOST;
}

bool clock_one(const struct schedules *s, enum sched_id id, const struct durations *d, const struct contention *c,
               struct timeline *out, struct run *kept)
{
    struct role role = { .s = s, .d = d, .slow = c };
    bool fits = !kept || clock_keeps(&role, 1, id);
    struct clock_result result;

    if (kept)
        memset(kept, 0, sizeof *kept);
    bool ran = clock_run(&role, 1, id, out, fits ? kept : NULL, &result);
    assert(ran);                    /* one role waits for no other */
    (void)ran;
    return fits;
}
