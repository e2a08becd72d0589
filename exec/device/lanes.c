/* lanes.c -- see lanes.h.  One mutex for all lanes: tasks are a millisecond each, threads a handful.  done[] changes under the
 * mutex only.  Each thread sleeps on its own condition, and a thread that changes something wakes only those that can now go on: a
 * rank's threads share a core, and a thread that wakes in vain takes some microseconds of it from compute. */
#include "exec/device/lanes.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/room.h"

enum { QUEUE = 2048 };
_Static_assert(DEVICE_MARKS >= 2 * QUEUE, "a mark lives as long as its task is in the queue");

/* A thread that sleeps until it can go on. */
struct sleeper { pthread_cond_t change; bool sleeps; };

struct lane {
    struct lanes *all;
    enum stream   s;
    pthread_t     thread, reaper;
    struct sleeper runs, reaps;
    bool          started, reaping; /* a reaper only on an asynchronous device */
    struct task  *queue;            /* ring */
    int           waiting[QUEUE];   /* lists of releases: index + 1 of the first */
    int64_t       put, taken;       /* tasks in all */
    int64_t       launched;         /* asynchronous: from taken to put */
    int64_t       marked;           /* the device's number of task 0: other lanes were here before */
    struct task_time *times;
    int64_t       ntimes;
};

/* Hangs at a task that it waits for: lane s, task number c, in list c % QUEUE. */
struct release { struct when last; int64_t offset, bytes; enum space in; int next; };

/* The last collective of a process group that was launched. */
struct launched { int64_t tickets; enum stream s; int64_t number; };

struct lanes {
    struct device  *d;
    pthread_mutex_t lock;
    struct sleeper  issues;             /* the issuing thread, until all of `awaited` is done, or lane `full` has a place */
    const struct when *awaited;
    const struct lane *full;
    struct lane     lane[NSTREAM];
    struct when     done;
    int64_t         ticket[PLAN_GROUPS];     /* collectives finished */
    struct when     launched;           /* asynchronous: each is done, or on its way */
    struct launched last[PLAN_GROUPS];
    int64_t        *turn; int nlines;   /* of a line: tasks launched */
    atomic_bool    *stop;
    atomic_int     *busy;               /* NULL: not counted */
    bool            closing;
    int64_t         held[NSPACE], held_peak[NSPACE];
    struct release *releases; int nreleases, spare; int64_t room;   /* spare: list of unused ones */
    void          (*on_release)(void *arg, enum space in, int64_t offset, int64_t bytes);
    void           *on_release_arg;
    int64_t         progress, max_times;
    bool            recording;
    char            why[512];           /* the first task that failed */
};

double lanes_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- held bytes ---- */

static void hold(struct lanes *l, const int64_t comes[NSPACE])
{
    for (int m = 0; m < NSPACE; m++) {
        l->held[m] += comes[m];
        if (l->held[m] > l->held_peak[m])
            l->held_peak[m] = l->held[m];
    }
}

static void let_go(struct lanes *l, const struct release *r)
{
    l->held[r->in] -= r->bytes;
    if (l->on_release)
        l->on_release(l->on_release_arg, r->in, r->offset, r->bytes);
}

/* Goes now, or hangs at one task that is not done. */
static void place_release(struct lanes *l, int i, const struct when *done)
{
    struct release *r = &l->releases[i];

    for (int s = 0; s < NSTREAM; s++)
        if (r->last.done[s] > done->done[s]) {
            int *list = &l->lane[s].waiting[r->last.done[s] % QUEUE];
            r->next = *list;
            *list = i + 1;
            return;
        }
    let_go(l, r);
    r->next = l->spare;
    l->spare = i + 1;
}

/* Task `number` of lane s is done.  Called before that is published: the thread that may take the place
 * next has not started. */
static void settle(struct lanes *l, enum stream s, const struct when *done)
{
    int *list = &l->lane[s].waiting[done->done[s] % QUEUE], i = *list;

    *list = 0;
    while (i) {
        int next = l->releases[i - 1].next;
        place_release(l, i - 1, done);
        i = next;
    }
}

static int new_release(struct lanes *l)
{
    int i = l->spare - 1;

    if (i >= 0) {
        l->spare = l->releases[i].next;
        return i;
    }
    l->releases = room_for(l->releases, l->nreleases, &l->room, sizeof *l->releases);
    return l->nreleases++;
}

void lanes_release(struct lanes *l, enum space in, const struct when *last, int64_t offset, int64_t bytes)
{
    pthread_mutex_lock(&l->lock);
    int i = new_release(l);
    l->releases[i] = (struct release){ .last = *last, .offset = offset, .bytes = bytes, .in = in };
    place_release(l, i, &l->done);
    pthread_mutex_unlock(&l->lock);
}

void lanes_count_busy(struct lanes *l, atomic_int *busy) { l->busy = busy; }

void lanes_on_release(struct lanes *l, void (*f)(void *, enum space, int64_t, int64_t), void *arg)
{
    l->on_release = f;
    l->on_release_arg = arg;
}

/* ---- a lane ---- */

static bool ready(const struct lanes *l, const struct task *t)
{
    return when_before(&t->need, &l->done) && (t->group < 0 || l->ticket[t->group] == t->ticket);
}

static bool launchable(const struct lanes *l, const struct task *t)
{
    return when_before(&t->need, &l->launched) && (t->group < 0 || l->last[t->group].tickets == t->ticket) &&
           (t->line == 0 || l->turn[t->line] == t->turn);
}

static bool stopped(const struct lane *n) { return atomic_load(n->all->stop); }
static struct task *task_at(const struct lane *n, int64_t number) { return &n->queue[number % QUEUE]; }

/* The lane's next task is there and may start; of an asynchronous device: may be launched; is launched and may be waited for. */
static bool can_run(const struct lane *n)
{
    return n->put > n->taken && (stopped(n) || ready(n->all, task_at(n, n->taken)));
}

static bool can_launch(const struct lane *n)
{
    return n->put > n->launched && (stopped(n) || launchable(n->all, task_at(n, n->launched)));
}

static bool can_reap(const struct lane *n)
{
    return n->launched > n->taken && (stopped(n) || ready(n->all, task_at(n, n->taken)));
}

static bool can_issue(const struct lanes *l)
{
    return l->full ? l->full->put - l->full->taken < QUEUE : when_before(l->awaited, &l->done);
}

static void nap(struct sleeper *s, pthread_mutex_t *lock)
{
    s->sleeps = true;
    pthread_cond_wait(&s->change, lock);
    s->sleeps = false;
}

static void wake(struct sleeper *s, bool can)
{
    if (s->sleeps && can)
        pthread_cond_signal(&s->change);
}

/* Under the lock, after any change. */
static void wake_who_can(struct lanes *l)
{
    for (int s = 0; s < NSTREAM; s++) {
        struct lane *n = &l->lane[s];
        if (!n->queue)
            continue;
        wake(&n->runs, l->closing || (n->reaping ? can_launch(n) : can_run(n)));
        wake(&n->reaps, l->closing || can_reap(n));
    }
    wake(&l->issues, l->issues.sleeps && can_issue(l));
}

static void finished(struct lane *n, const struct task *t, double start, double end)
{
    struct lanes *l = n->all;
    struct when done = l->done;

    done.done[n->s]++;
    settle(l, n->s, &done);
    l->done = done;
    if (stream_is_host(n->s))           /* never on its way without being done */
        l->launched.done[n->s] = done.done[n->s];
    l->progress++;
    if (t->group >= 0)
        l->ticket[t->group]++;
    if (l->recording && t->position >= 0 && n->ntimes < l->max_times)
        n->times[n->ntimes++] = (struct task_time){ t->position, start, end };
    n->taken++;
    wake_who_can(l);
}

/* The first reason is reported: what fails after it is a consequence. */
static void failed(struct lanes *l, const char *why)
{
    pthread_mutex_lock(&l->lock);
    if (!atomic_load(l->stop))
        snprintf(l->why, sizeof l->why, "%s", why);
    pthread_mutex_unlock(&l->lock);
    lanes_stop(l);
}

/* On the host; the others carry messages, or files. */
static bool computes(enum stream s)
{
    return s == STREAM_COMPUTE || s == STREAM_COPY_IN || s == STREAM_H2D || s == STREAM_D2H || s == STREAM_HOST;
}

static int run_task(const struct lane *n, struct task *t)
{
    atomic_int *busy = computes(n->s) ? n->all->busy : NULL;
    int rc;

    if (!t->run)
        return 0;
    if (busy)
        atomic_fetch_add_explicit(busy, 1, memory_order_relaxed);
    rc = t->run(t);
    if (busy)
        atomic_fetch_sub_explicit(busy, 1, memory_order_relaxed);
    return rc;
}

static void *work(void *arg)
{
    struct lane *n = arg;
    struct lanes *l = n->all;
    char why[sizeof l->why];

    fail_capture(why, sizeof why);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->closing && !can_run(n))
            nap(&n->runs, &l->lock);
        if (l->closing)
            break;
        struct task *t = task_at(n, n->taken);
        hold(l, t->comes);
        pthread_mutex_unlock(&l->lock);
        double start = lanes_now();
        if (!atomic_load(l->stop) && run_task(n, t) < 0)
            failed(l, why);
        double end = lanes_now();
        free(t->self);
        pthread_mutex_lock(&l->lock);
        finished(n, t, start, end);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- a lane of an asynchronous device ---- */

/* What the device must wait for itself: of other lanes, and not done yet.  Collectives of one group
 * follow each other whatever their lanes: the arena counts on it. */
static struct when pending(const struct lane *n, const struct task *t)
{
    const struct lanes *l = n->all;
    struct when need = t->need;

    if (t->group >= 0 && l->last[t->group].number > need.done[l->last[t->group].s])
        need.done[l->last[t->group].s] = l->last[t->group].number;
    for (int s = 0; s < NSTREAM; s++)
        if (s == (int)n->s || need.done[s] <= l->done.done[s])
            need.done[s] = 0;
    return need;
}

static int launch_task(const struct lane *n, struct task *t, const struct when *need, bool timed)
{
    struct device *d = n->all->d;
    int64_t number = n->marked + n->launched + 1;

    for (int s = 0; s < NSTREAM; s++)
        if (need->done[s] && device_after(d, n->s, (enum stream)s, n->all->lane[s].marked + need->done[s]) < 0)
            return -1;
    if (timed && device_begin(d, n->s, number) < 0)
        return -1;
    if (t->run && t->run(t) < 0)
        return -1;
    return device_mark(d, n->s, number);
}

static void launched(struct lane *n, const struct task *t)
{
    struct lanes *l = n->all;

    l->launched.done[n->s] = ++n->launched;
    if (t->group >= 0)
        l->last[t->group] = (struct launched){ t->ticket + 1, n->s, n->launched };
    if (t->line > 0)
        l->turn[t->line]++;
    wake_who_can(l);
}

static bool is_timed(const struct lanes *l, const struct task *t) { return l->recording && t->position >= 0; }

static void *launch(void *arg)
{
    struct lane *n = arg;
    struct lanes *l = n->all;
    char why[sizeof l->why];

    fail_capture(why, sizeof why);
    if (device_enter(l->d) < 0)
        failed(l, why);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->closing && !can_launch(n))
            nap(&n->runs, &l->lock);
        if (l->closing)
            break;
        struct task *t = task_at(n, n->launched);
        struct when need = pending(n, t);
        bool timed = is_timed(l, t);
        pthread_mutex_unlock(&l->lock);
        if (!atomic_load(l->stop) && launch_task(n, t, &need, timed) < 0)
            failed(l, why);
        free(t->self);
        t->self = NULL;
        pthread_mutex_lock(&l->lock);
        launched(n, t);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* The task at the head of the queue, which has been launched: waits for it.  Stopped, it may have no mark. */
static int reap_task(const struct lane *n, bool timed, double *start, double *end)
{
    const struct lanes *l = n->all;
    int64_t number = n->marked + n->taken + 1;

    if (atomic_load(l->stop))
        return 0;
    if (device_wait(l->d, n->s, number, l->stop) < 0)
        return -1;
    return timed && !atomic_load(l->stop) ? device_times(l->d, n->s, number, start, end) : 0;
}

static void *reap(void *arg)
{
    struct lane *n = arg;
    struct lanes *l = n->all;
    char why[sizeof l->why];

    fail_capture(why, sizeof why);
    if (device_enter(l->d) < 0)
        failed(l, why);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        double start = 0, end = 0;
        while (!l->closing && !can_reap(n))
            nap(&n->reaps, &l->lock);
        if (l->closing)
            break;
        const struct task *t = task_at(n, n->taken);
        hold(l, t->comes);
        bool timed = is_timed(l, t);
        pthread_mutex_unlock(&l->lock);
        if (reap_task(n, timed, &start, &end) < 0)
            failed(l, why);
        pthread_mutex_lock(&l->lock);
        finished(n, t, start, end);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the issuing thread ---- */

static bool start(struct lanes *l, enum stream s)
{
    struct lane *n = &l->lane[s];
    bool async = device_async(l->d) && !stream_is_host(s);

    *n = (struct lane){ .all = l, .s = s, .queue = calloc(QUEUE, sizeof *n->queue), .marked = l->d->marked[s] };
    if (!n->queue)
        return false;
    pthread_cond_init(&n->runs.change, NULL);
    pthread_cond_init(&n->reaps.change, NULL);
    n->reaping = async && pthread_create(&n->reaper, NULL, reap, n) == 0;
    n->started = n->reaping == async && pthread_create(&n->thread, NULL, async ? launch : work, n) == 0;
    return n->started;
}

struct lanes *lanes_open(uint16_t used, atomic_bool *stop) { return lanes_open_on(device_host(), used, stop); }

struct lanes *lanes_open_on(struct device *d, uint16_t used, atomic_bool *stop)
{
    struct lanes *l = calloc(1, sizeof *l);

    if (!l) {
        fail("out of memory for the streams");
        return NULL;
    }
    l->d = d;
    l->stop = stop;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->issues.change, NULL);
    int s = 0;
    /* Under the lock: a thread that cannot enter the device stops all lanes, and must find them whole. */
    pthread_mutex_lock(&l->lock);
    while (s < NSTREAM && (s == STREAM_ISSUE || !(used & AFTER(s)) || start(l, (enum stream)s)))
        s++;
    pthread_mutex_unlock(&l->lock);
    if (s < NSTREAM) {
        fail("cannot start a thread for the %s stream", stream_name((enum stream)s));
        lanes_close(l);
        return NULL;
    }
    return l;
}

void lanes_close(struct lanes *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    atomic_store(l->stop, true);
    wake_who_can(l);
    pthread_mutex_unlock(&l->lock);
    for (int s = 0; s < NSTREAM; s++) {
        struct lane *n = &l->lane[s];
        if (n->started)
            pthread_join(n->thread, NULL);
        if (n->reaping)
            pthread_join(n->reaper, NULL);
        for (; n->taken < n->put; n->taken++)
            free(n->queue[n->taken % QUEUE].self);
        if (n->queue) {
            pthread_cond_destroy(&n->runs.change);
            pthread_cond_destroy(&n->reaps.change);
        }
        free(n->queue);
        free(n->times);
    }
    pthread_cond_destroy(&l->issues.change);
    pthread_mutex_destroy(&l->lock);
    free(l->releases);
    free(l->turn);
    free(l);
}

static void open_lines(struct lanes *l, int upto)
{
    if (upto <= l->nlines)
        return;
    l->turn = realloc(l->turn, (size_t)upto * sizeof *l->turn);
    if (!l->turn)
        abort();
    memset(l->turn + l->nlines, 0, (size_t)(upto - l->nlines) * sizeof *l->turn);
    l->nlines = upto;
}

void lanes_put(struct lanes *l, enum stream s, const struct task *t)
{
    struct lane *n = &l->lane[s];

    assert(n->started);
    pthread_mutex_lock(&l->lock);
    open_lines(l, t->line + 1);
    for (l->full = n; !can_issue(l);)
        nap(&l->issues, &l->lock);
    l->full = NULL;
    *task_at(n, n->put++) = *t;
    wake_who_can(l);
    pthread_mutex_unlock(&l->lock);
}

int lanes_wait(struct lanes *l, const struct when *need)
{
    pthread_mutex_lock(&l->lock);
    for (l->awaited = need; !can_issue(l);)
        nap(&l->issues, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return atomic_load(l->stop) ? -1 : 0;
}

void lanes_stop(struct lanes *l)
{
    /* Under the lock: a lane that has just found it not set would sleep through this. */
    pthread_mutex_lock(&l->lock);
    atomic_store(l->stop, true);
    wake_who_can(l);
    pthread_mutex_unlock(&l->lock);
}

/* ---- what was measured ---- */

int64_t lanes_held_peak(const struct lanes *l, enum space in) { return l->held_peak[in]; }
void    lanes_held_reset(struct lanes *l) { memcpy(l->held_peak, l->held, sizeof l->held); }

int lanes_record(struct lanes *l, int64_t n)
{
    for (int s = 0; s < NSTREAM; s++) {
        struct lane *a = &l->lane[s];
        if (!a->started)
            continue;
        a->ntimes = 0;
        if (n > l->max_times || !a->times) {
            free(a->times);
            a->times = calloc((size_t)(n + 1), sizeof *a->times);
            if (!a->times)
                return fail("out of memory for the times of %lld entries", (long long)n);
        }
    }
    if (n > l->max_times)
        l->max_times = n;
    l->recording = n > 0;
    return n > 0 ? device_anchor(l->d) : 0;
}

const struct task_time *lanes_recorded(const struct lanes *l, enum stream s, int64_t *n)
{
    *n = l->lane[s].ntimes;
    return l->lane[s].times;
}

const char *lanes_why(const struct lanes *l) { return l->why; }

int64_t lanes_progress(struct lanes *l)
{
    pthread_mutex_lock(&l->lock);
    int64_t done = l->progress;
    pthread_mutex_unlock(&l->lock);
    return done;
}

void lanes_alive(struct lanes *l)
{
    pthread_mutex_lock(&l->lock);
    l->progress++;
    pthread_mutex_unlock(&l->lock);
}

const char *lanes_at(struct lanes *l, enum stream s, int32_t *position)
{
    const struct lane *n = &l->lane[s];
    const char *what = NULL;

    pthread_mutex_lock(&l->lock);
    if (n->started && n->put > n->taken) {
        const struct task *t = &n->queue[n->taken % QUEUE];
        *position = t->position;
        what = t->what;
    }
    pthread_mutex_unlock(&l->lock);
    return what;
}
