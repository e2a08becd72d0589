/* executor.c -- dry runs, issuing a schedule, and the order that its waits make.
 *
 * The order is kept twice.  `need` is what a task really waits for.  `now` is all that is
 * known to be done when it starts, waits of waits included: where a block of memory goes
 * next is decided by that, long before anything runs. */
#include "exec/run/executor_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "exec/kernels/rope.h"
#include "model/memory/evaluate.h"
#include "model/program/workspace.h"

/* ---- order ---- */

/* Collectives of a group follow each other; sends and receives have their stream's order alone. */
static bool takes_turns(const struct op *o)
{
    return o->kind == OP_COLL && !coll_is_message((enum coll_op)o->u.coll.op);
}

/* What entry `o` waits for, and what is done when it starts. */
static void enter(struct executor *x, const struct op *o)
{
    struct order *d = &x->order;

    x->now = d->lane[o->stream];
    when_join(&x->now, &d->issue);
    memset(&x->need, 0, sizeof x->need);
    for (int s = 0; s < NSTREAM; s++)
        if (s != o->stream && (o->after & AFTER(s))) {
            x->need.done[s] = d->lane[s].done[s];
            when_join(&x->now, &d->lane[s]);
        }
    for (int i = 0; i < 2; i++)
        if (o->wait[i]) {
            when_join(&x->need, &d->event_need[o->wait[i]]);
            when_join(&x->now, &d->event[o->wait[i]]);
        }
    if (takes_turns(o))
        when_join(&x->now, &d->group[o->u.coll.group]);
    x->entered = x->now;
}

/* The entry's tasks are all appended. */
static void leave(struct executor *x, const struct op *o)
{
    struct order *d = &x->order;
    struct when *lane = &d->lane[o->stream];

    if (o->record) {
        d->event[o->record] = *lane;
        memset(&d->event_need[o->record], 0, sizeof *d->event_need);
        d->event_need[o->record].done[o->stream] = lane->done[o->stream];
    }
    if (takes_turns(o))
        d->group[o->u.coll.group] = *lane;
}

/* Messages of a direction of a pair of ranks match in their order (order_check.c): they are launched in it. */
static int line_of(const struct executor *x, const struct op *o)
{
    int64_t peer = mesh_member(&sched_group(x->s, o)->of, x->s->rank, o->u.coll.peer);

    return 1 + (int)(o->u.coll.op == COLL_RECV ? x->s->world_size + peer : peer);
}

void executor_put(struct executor *x, const struct op *o, int (*run)(struct task *), void *self)
{
    struct when *lane = &x->order.lane[o->stream];
    struct task t = { .run = run, .self = self, .need = x->need, .group = -1, .what = o->what,
                      .position = x->position };

    memcpy(t.comes, x->comes, sizeof t.comes);
    if (takes_turns(o)) {
        t.group = o->u.coll.group;
        t.ticket = x->order.ticket[o->u.coll.group]++;
    }
    if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op)) {
        t.line = line_of(x, o);
        t.turn = x->order.turn[t.line - 1]++;
    }
    *lane = x->now;
    lane->done[o->stream]++;
    x->now = *lane;
    memset(x->comes, 0, sizeof x->comes);
    if (x->lanes)
        lanes_put(x->lanes, (enum stream)o->stream, &t);
    else
        free(self);
}

/* ---- one entry ---- */

/* An entry that only frees uses no memory: its buffers go as soon as its dependencies are done, not when its lane gets to run. */
static bool only_frees(const struct op *o, const struct act *a)
{
    return o->kind == OP_MEMORY && !(o->flags & OPF_LOAD) && a->what == ACT_FREE;
}

static void touch(struct executor *x, const struct op *o, int64_t iteration)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &x->s->acts[k];
        const struct when *until = only_frees(o, a) ? &x->entered : &x->order.lane[o->stream];
        for (int j = 0; buf_is_place(&x->s->bufs[a->buf]) && j < a->n; j++)
            when_join(&inst_of(x, a, iteration, j)->last, until);
    }
}

static int issue_acts(struct executor *x, const struct op *o, int64_t iteration, int bit)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &x->s->acts[k];
        if (!(a->what & bit))
            continue;
        if (bit == ACT_FREE)
            inst_free(x, a, iteration);
        else if (inst_alloc(x, o, a, iteration) < 0)
            return -1;
    }
    return 0;
}

static bool comes_any(const struct executor *x)
{
    for (int m = 0; m < NSPACE; m++)
        if (x->comes[m])
            return true;
    return false;
}

/* The issuing thread waits itself. */
static int issue_wait(struct executor *x)
{
    when_join(&x->order.issue, &x->now);
    x->order.lane[STREAM_ISSUE] = x->order.issue;
    for (int m = 0; m < NSPACE; m++)
        arena_settled(x->in[m], &x->order.issue);
    if (x->lanes && lanes_wait(x->lanes, &x->need) < 0)
        return -1;
    return 0;
}

static int issue_work(struct executor *x, const struct op *o, int64_t iteration)
{
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:   return executor_issue_compute(x, o, iteration);
    case OP_COLL:      return executor_issue_coll(x, o, iteration);
    case OP_COPY:      return (o->flags & OPF_LOAD) ? executor_issue_load(x, o, iteration) : executor_issue_copy(x, o, iteration);
    case OP_OPTIMIZER: return executor_issue_optimizer(x, o, iteration);
    case OP_WAIT:      return issue_wait(x);
    case OP_MEMORY:
        if (o->stream == STREAM_ISSUE)
            return issue_wait(x);
        if (o->flags & OPF_LOAD)
            return executor_issue_load(x, o, iteration);
        if (o->after || o->wait[0] || o->record || comes_any(x))
            executor_put(x, o, NULL, NULL);
        return 0;
    case OP_REPEAT: case OP_END:
        break;
    }
    return fail("entry of unknown kind %d", o->kind);
}

/* In the planner's words. */
static void say_over(struct executor *x, const struct op *o, int64_t iteration)
{
    struct exec_over *v = &x->over;
    const char *what;

    v->sched = x->id;
    v->op = (int)(o - x->s->ops);
    v->iteration = iteration;
    evaluation_op_largest_new(x->s, v->op, &what, &v->bytes);
    snprintf(v->buffer, sizeof v->buffer, "%s", what);
    evaluation_op_in_words(x->s, v->op, iteration, v->where, sizeof v->where);
}

static int issue(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct executor *x = arg;

    enter(x, o);
    memset(x->comes, 0, sizeof x->comes);
    arena_mark(x->arena);
    if (x->recording)
        x->ran[x->position] = (struct exec_ran){ x->position, (int)(o - s->ops), iteration,
                                                 lanes_now() - x->began, NAN, NAN, 0 };
    if (issue_acts(x, o, iteration, ACT_ALLOC) < 0 || issue_work(x, o, iteration) < 0) {
        if (x->over.over)
            say_over(x, o, iteration);
        return -1;
    }
    leave(x, o);
    touch(x, o, iteration);
    issue_acts(x, o, iteration, ACT_FREE);
    if (x->recording)
        x->ran[x->position].bytes = arena_meter(x->arena)->most;
    x->position++;
    return 0;
}

/* ---- whole schedules ---- */

static int issue_schedule(struct executor *x, enum sched_id id)
{
    x->id = id;
    x->position = 0;
    x->micro = 0;
    for (int m = 0; m < NSPACE && x->repeats && id == SCHED_STEADY; m++)
        arena_repeat(x->in[m]);
    return sched_walk(x->s, id, issue, x);
}

static int count_entries(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)s, (void)o, (void)iteration;
    ++*(int64_t *)arg;
    return 0;
}

static int prepare_record(struct executor *x, enum sched_id id)
{
    int64_t n = 0;

    sched_walk(x->s, id, count_entries, &n);
    if (n > x->room_ran) {
        free(x->ran);
        x->ran = room_new((size_t)n, sizeof *x->ran);
        x->room_ran = n;
    }
    x->nran = n;
    return lanes_record(x->lanes, 64 * n);      /* kernels of an entry are tasks */
}

/* From tasks to entries: from the start of the first task to the end of the last. */
static void gather_record(struct executor *x)
{
    for (int s = 0; s < NSTREAM; s++) {
        int64_t n;
        const struct task_time *t = lanes_recorded(x->lanes, (enum stream)s, &n);
        for (int64_t i = 0; t && i < n; i++) {
            struct exec_ran *r = &x->ran[t[i].position];
            if (isnan(r->start))
                r->start = t[i].start - x->began;
            r->end = t[i].end - x->began;
        }
    }
}

static int wait_all(struct executor *x)
{
    struct when all = { { 0 } };

    for (int s = 0; s < NSTREAM; s++)
        if (s != STREAM_ISSUE)
            all.done[s] = x->order.lane[s].done[s];
    if (lanes_wait(x->lanes, &all) < 0)
        return -1;
    when_join(&x->order.issue, &all);
    return 0;
}

static void begin_step(struct executor *x, struct exec_step *step)
{
    x->step = step;
    x->norm_local = x->norm_sum = 0;
    memset(&x->exact, 0, sizeof x->exact);
    x->norm_taken = x->norm_new = x->overflow = false;
    x->guarded = 0;
    memset(x->norm_of, 0, (size_t)x->p->model.ntensors * sizeof *x->norm_of);
    if (step)
        step->loss_sum = 0, step->loss_tokens = 0, step->bad.found = false;
}

int executor_run(struct executor *x, enum sched_id id, struct exec_step *step)
{
    int rc;

    begin_step(x, step);
    if (x->recording && prepare_record(x, id) < 0)
        return -1;
    x->began = lanes_now();
    rc = issue_schedule(x, id);
    if (rc < 0)
        lanes_stop(x->lanes);
    else
        rc = wait_all(x);
    if (rc == 0)
        rc = kernels_ops(x->kernels[STREAM_COMPUTE])->finish(x->kernels[STREAM_COMPUTE]);   /* losses */
    if (rc < 0 && lanes_why(x->lanes)[0])
        fail("%s", lanes_why(x->lanes));
    if (rc < 0)
        return -1;
    if (x->recording)
        gather_record(x);
    if (step) {
        step->grad_norm = x->norm_taken ? executor_norm_value(x) : NAN;
        step->norm_taken = x->norm_taken;
        step->skipped = x->overflow;
        step->guarded_taken = x->guarded;
    }
    return rc;
}

/* Nothing has been issued. */
static void forget_order(struct executor *x)
{
    struct order *d = &x->order;
    struct when *event = d->event, *need = d->event_need;
    int64_t *turn = d->turn;
    size_t n = (size_t)x->s->nevents + 1;

    memset(event, 0, n * sizeof *event);
    memset(need, 0, n * sizeof *need);
    memset(turn, 0, 2 * (size_t)x->s->world_size * sizeof *turn);
    *d = (struct order){ .event = event, .event_need = need, .turn = turn };
}

static void forget_state(struct executor *x)
{
    forget_order(x);
    instances_reset(x);
    executor_compute_reset(x);
}

/* Whether an arena is larger than it was. */
static bool grew(struct executor *x)
{
    bool more = false;

    for (int m = 0; m < NSPACE; m++) {
        more |= arena_extent(x->in[m]) > x->dry_extent[m];
        x->dry_extent[m] = arena_extent(x->in[m]);
        x->dry_peak[m] = arena_meter(x->in[m])->peak;
    }
    return more;
}

/* Where all arenas' blocks lie. */
static uint64_t layouts(const struct executor *x)
{
    uint64_t h = HASH_BEGIN;

    for (int m = 0; m < NSPACE; m++)
        h = hash_mix(h, arena_layout(x->in[m]));
    return h;
}

/* The schedule of dry step i, after those before it left blocks at left[].  Of early steps no more than until one leaves blocks
 * where the step before left them: those behind it would do the same. */
static enum sched_id dry_schedule(const struct executor *x, enum sched_id last, int i, const uint64_t *left)
{
    bool again = i < 3 || left[i - 1] != left[i - 2];

    if (i == 0)
        return SCHED_INIT;
    if (last == SCHED_STEADY || (last == SCHED_EARLY && !again))
        return SCHED_STEADY;
    return sched_of_step(x->s, i);
}

/* Dry steps until one leaves blocks where an earlier one left them, and at most `most`.  1: it did, or no step fits; 0: none
 * did; -1 reported. */
static int dry_steps(struct executor *x, int most)
{
    uint64_t *left = room_new((size_t)most, sizeof *left);
    enum sched_id id = SCHED_INIT;
    int found = 0;

    for (int i = 0, since = 0; i < most && !found; i++) {
        id = dry_schedule(x, id, i, left);
        begin_step(x, NULL);
        if (issue_schedule(x, id) < 0) {
            found = x->over.over ? 1 : -1;
            break;
        }
        if (grew(x) || id != SCHED_STEADY)
            since = i;                  /* of the steps from here on none has needed more */
        left[i] = layouts(x);
        for (int k = since; k < i && !found; k++)
            found = left[k] == left[i];
    }
    free(left);
    return found;
}

/* Addresses do not depend on time: what a dry run finds is what will be.  A step that leaves blocks where an earlier one
 * left them is followed by the same steps again, so that what has been seen since is all there is.  One that only needs no
 * more than those before may still leave other holes.
 *
 * Where many small blocks outlive the step, among blocks that do not, the best fit moves them with every step and comes back
 * to a layout after thousands (hpZ: parameters gathered at the end of a step while secondary partitions are there).  Then
 * steps repeat the places of the step before instead. */
static int dry_run(struct executor *x)
{
    enum { BEST_FIT = 128, REPEATING = 1024 };
    int found = dry_steps(x, BEST_FIT);

    if (found == 0) {
        x->repeats = true;
        for (int m = 0; m < NSPACE; m++) {
            arena_reset(x->in[m]);
            x->dry_extent[m] = 0;
        }
        forget_state(x);
        found = dry_steps(x, REPEATING);
    }
    return found == 0 ? fail("the arena's layout did not repeat within %d steps of a dry run", REPEATING) : found < 0 ? -1 : 0;
}

/* ---- in the place of steps that another run has made ---- */

/* The schedules up to step `step`, issued as the dry run issued them: of early and steady steps no more than change places. */
static int skip_schedules(struct executor *x, int64_t step)
{
    enum { MOST = 1024 };
    uint64_t *left = room_new(MOST, sizeof *left);
    enum sched_id id = SCHED_INIT, last = sched_of_step(x->s, step);
    int rc = 0;

    for (int i = 0; i < MOST && i <= step && rc == 0; i++) {
        enum sched_id next = dry_schedule(x, id, i, left);
        if (next == SCHED_STEADY && (last != SCHED_STEADY || id == SCHED_STEADY))
            break;
        id = next;
        begin_step(x, NULL);
        rc = issue_schedule(x, id);
        left[i] = layouts(x);
    }
    free(left);
    return rc;
}

/* What lives is held from here on. */
static int hold_what_lives(struct executor *x)
{
    const struct op o = { .kind = OP_MEMORY, .stream = STREAM_COMPUTE, .what = "what a checkpoint holds" };

    enter(x, &o);
    for (int m = 0; m < NSPACE; m++)
        x->comes[m] = arena_meter(x->in[m])->live;
    x->position = -1;
    executor_put(x, &o, NULL, NULL);
    return wait_all(x);
}

int executor_skip(struct executor *x, int64_t step)
{
    struct lanes *lanes = x->lanes;
    int rc;

    x->lanes = NULL;                    /* as in a dry run: nothing is executed */
    rc = skip_schedules(x, step);
    x->lanes = lanes;
    forget_order(x);
    instances_all_done(x);
    for (int m = 0; m < NSPACE; m++)
        arena_all_done(x->in[m]);
    return rc < 0 ? -1 : hold_what_lives(x);
}

/* Entries that work where they cannot would write to the wrong memory. */
static int check_spaces(const struct schedules *s)
{
    char why[256];

    return s->spaces == 0 || schedules_check(s, why, sizeof why) ? 0 : fail("the schedule is broken: %s", why);
}

struct executor *executor_new(const struct executor_args *a)
{
    struct executor *x = room_new(1, sizeof *x);

    x->a = *a;
    x->d = a->device ? a->device : device_host();
    x->p = a->plan;
    x->s = a->schedules;
    x->recipe = plan_recipe(a->plan);
    x->norm_of = room_new((size_t)a->plan->model.ntensors, sizeof *x->norm_of);
    x->amax_local = room_new((size_t)a->plan->model.ntensors, sizeof *x->amax_local);
    x->amax = room_new((size_t)a->plan->model.ntensors, sizeof *x->amax);
    x->order.event = room_new((size_t)x->s->nevents + 1, sizeof *x->order.event);
    x->order.event_need = room_new((size_t)x->s->nevents + 1, sizeof *x->order.event_need);
    x->order.turn = room_new(2 * (size_t)x->s->world_size, sizeof *x->order.turn);
    if (check_spaces(x->s) < 0 || exec_memory_open(x) < 0 || instances_open(x) < 0 ||
        executor_compute_open(x) < 0)
        goto bad;
    forget_state(x);
    if (dry_run(x) < 0)
        goto bad;
    return x;
bad:
    executor_free(x);
    return NULL;
}

/* ---- for real ---- */

static uint16_t streams_used(const struct schedules *s)
{
    uint16_t used = AFTER(STREAM_COMPUTE);

    for (int i = 0; i < s->nops; i++)
        used |= (uint16_t)AFTER(s->ops[i].stream);
    return used;
}

static int open_workspace(struct executor *x)
{
    bool async = device_async(x->d);

    x->workspace_bytes = async ? workspace_device(x->p) : workspace_kernels(x->p, x->a.threads);
    x->workspace = device_map(x->d, x->workspace_bytes);
    if (!x->workspace)
        return -1;
    if (!async)                     /* a page fault must not fall into a timed step */
        memset(x->workspace, 0, (size_t)x->workspace_bytes);
    return 0;
}

/* The compute stream has the plan's threads and workspace; the others only copy. */
static int open_kernels(struct executor *x, uint16_t used)
{
    if (open_workspace(x) < 0)
        return -1;
    for (int s = 0; s < NSTREAM; s++) {
        bool compute = s == STREAM_COMPUTE;
        if (!(used & AFTER(s)) || s == STREAM_ISSUE || s == STREAM_DISK_READ || s == STREAM_DISK_WRITE)
            continue;
        x->kernels[s] = s == STREAM_HOST ? kernels_open(x->a.threads, NULL, 0, x->a.reference) :
                        kernels_open_on(x->d, (enum stream)s, compute ? x->a.threads : 1,
                                        compute ? x->workspace : NULL, compute ? x->workspace_bytes : 0,
                                        x->a.reference);
        if (!x->kernels[s])
            return -1;
    }
    return 0;
}

static int64_t frequencies_bytes(const struct executor *x)
{
    return (x->p->model.rotary_dim / 2 + 1) * (int64_t)sizeof(float);
}

/* Of rotary positions: kernels read them where they compute. */
static int open_frequencies(struct executor *x)
{
    struct kernels *k = x->kernels[STREAM_COMPUTE];
    int64_t bytes = frequencies_bytes(x);
    float *f = rope_frequencies(&x->p->model, x->p->seq);
    int rc = -1;

    if (!f)
        return -1;
    x->inv_freq = device_map(x->d, bytes);
    if (x->inv_freq && kernels_ops(k)->upload(k, bytes, x->inv_freq, f) == 0)
        rc = kernels_ops(k)->finish(k);
    free(f);
    return rc;
}

static void disk_goes_on(void *lanes) { lanes_alive(lanes); }

int executor_map(struct executor *x)
{
    uint16_t used = streams_used(x->s);

    forget_state(x);
    if (exec_memory_map(x) < 0 || open_kernels(x, used) < 0)
        return -1;
    if (x->p->model.position == POS_ROPE && open_frequencies(x) < 0)
        return -1;
    x->lanes = lanes_open_on(x->d, used, x->a.stop);
    if (!x->lanes)
        return -1;
    lanes_count_busy(x->lanes, x->a.busy);
    if (x->a.guarded)
        lanes_on_release(x->lanes, exec_memory_poison, x);
    if (x->store)
        store_on_progress(x->store, disk_goes_on, x->lanes);
    return 0;
}

void executor_free(struct executor *x)
{
    if (!x)
        return;
    lanes_close(x->lanes);
    for (int s = 0; s < NSTREAM; s++)
        kernels_close(x->kernels[s]);
    instances_close(x);
    exec_memory_close(x);
    device_unmap(x->d, x->workspace, x->workspace_bytes);
    device_unmap(x->d, x->inv_freq, frequencies_bytes(x));
    executor_compute_close(x);
    free(x->norm_of);
    free(x->amax_local);
    free(x->amax);
    free(x->order.event);
    free(x->order.event_need);
    free(x->order.turn);
    free(x->reads.v);
    free(x->writes.v);
    free(x->ran);
    free(x);
}

const struct exec_over *executor_over(const struct executor *x) { return &x->over; }
int64_t executor_extent(const struct executor *x) { return executor_extent_in(x, SPACE_DEVICE); }
int64_t executor_allocated_peak(const struct executor *x) { return executor_allocated_peak_in(x, SPACE_DEVICE); }
int64_t executor_held_peak(const struct executor *x) { return executor_held_peak_in(x, SPACE_DEVICE); }
const struct arena_meter *executor_meter(const struct executor *x) { return executor_meter_in(x, SPACE_DEVICE); }
struct lanes *executor_lanes(const struct executor *x) { return x->lanes; }

int executor_record(struct executor *x, bool on)
{
    x->recording = on;
    return on ? 0 : lanes_record(x->lanes, 0);
}

const struct exec_ran *executor_ran(const struct executor *x, int64_t *n)
{
    *n = x->nran;
    return x->ran;
}

const struct exec_count *executor_count(const struct executor *x, enum coll_op op, int group, enum dtype t)
{
    return &x->count[op][group][t];
}

const struct exec_count *executor_moved(const struct executor *x, enum space from, enum space to)
{
    return &x->moved[from][to];
}

const char *executor_note(const struct executor *x)
{
    return x->p->precision == DT_BF16 ? kernels_note(x->kernels[STREAM_COMPUTE]) : NULL;
}

const char *executor_kernels(const struct executor *x) { return kernels_ops(x->kernels[STREAM_COMPUTE])->name; }

double executor_class_seconds(const struct executor *x, enum kernel_class c) { return x->class_s[c]; }
