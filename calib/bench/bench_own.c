/* bench_own.c -- what the executor itself takes: handing tasks from lane to lane, waking a lane that
 * waits, issuing entries and kernels, meeting in a collective.
 *
 * On a device a hand-over is between the end of one task's work there and the start of the next one's;
 * what a kernel costs the issuing thread includes its launch, by the lane's own thread, since a step of
 * short kernels is as long as the slower of the two threads takes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/room.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/lanes.h"
#include "exec/run/executor.h"
#include "model/lower/lower.h"

enum { MOST = 400, TASKS = 200 };

static struct series series_of(const struct bench *b, enum own_word what)
{
    return (struct series){ .kind = SERIES_OWN, .name = own_words[what], .dtype = DT_FP32, .ranks = b->nranks,
                            .per_node = b->per_node, .threads = b->threads, .started = bench_wall_clock() };
}

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){ 0, microseconds * 1000 }, NULL);
}

static int nothing(struct task *t)
{
    (void)t;
    return 0;
}

/* About as long as the shortest kernels: a waiting lane has gone to sleep by then. */
static int a_while(struct task *t)
{
    double from = lanes_now();

    (void)t;
    while (lanes_now() - from < 300e-6)
        ;
    return 0;
}

/* On a device: one ballast, or a word. */
struct work { struct bench *b; struct kernels *k; bool a_while; };
static char *word;                      /* the device's: 64 bytes for each stream */

static int queued(struct task *t)
{
    struct work *w = t->self;

    if (w->a_while && kernels_ops(w->k)->zero(w->k, w->b->timer.ballast_bytes, w->b->timer.ballast) < 0)
        return -1;
    return kernels_ops(w->k)->zero(w->k, 64, word);
}

static void put(struct bench *b, struct lanes *l, enum stream s, struct kernels *k, bool long_one,
                const struct task *of)
{
    struct task t = *of;

    if (device_async(b->device)) {
        struct work *w = room_new(1, sizeof *w);
        *w = (struct work){ b, k, long_one };
        t.self = w;
        t.run = queued;
    } else {
        t.run = long_one ? a_while : nothing;
    }
    lanes_put(l, s, &t);
}

/* ---- lanes ---- */

/* Tasks that were queued: from the end of one to the start of the next. */
static int handover(struct bench *b, struct lanes *l)
{
    struct when all = { .done = { [STREAM_COMPUTE] = TASKS } };
    struct series s = series_of(b, OWN_HANDOVER);
    double d[TASKS];
    int64_t n;

    for (int i = 0; i < TASKS; i++)
        put(b, l, STREAM_COMPUTE, b->k, i == 0, &(struct task){ .group = -1, .what = "empty", .position = i });
    if (lanes_wait(l, &all) < 0)
        return -1;
    const struct task_time *t = lanes_recorded(l, STREAM_COMPUTE, &n);
    for (int64_t i = 1; i < n; i++)
        d[i - 1] = t[i].start - t[i - 1].end;
    return n < 2 ? fail("lanes recorded nothing") : bench_keep(b, &s, d, (int)n - 1, false);
}

enum { TURNS = 60, WAKES = 2 * TURNS - 1 };

/* Tasks of two lanes in turn, each waiting for the one before; seconds from the end of one to the start of the next. */
static int wake_in_turn(struct bench *b, struct lanes *l, struct kernels *other, double d[WAKES])
{
    struct when need = { .done = { [STREAM_COMPUTE] = TASKS } };
    int64_t na, nb;
    int n = 0;

    for (int i = 0; i < TURNS; i++) {
        struct task t = { .need = need, .group = -1, .what = "turn", .position = i };
        put(b, l, STREAM_COMPUTE, b->k, true, &t);
        t.need.done[STREAM_COMPUTE] = ++need.done[STREAM_COMPUTE];
        put(b, l, STREAM_REDUCE, other, true, &t);
        ++need.done[STREAM_REDUCE];
    }
    if (lanes_wait(l, &need) < 0)
        return -1;
    const struct task_time *x = lanes_recorded(l, STREAM_COMPUTE, &na), *y = lanes_recorded(l, STREAM_REDUCE, &nb);
    x += na - TURNS;
    for (int i = 0; i < TURNS; i++) {
        d[n++] = y[i].start - x[i].end;
        if (i + 1 < TURNS)
            d[n++] = x[i + 1].start - y[i].end;
    }
    return 0;
}

/* Ranks are timed in turn, while the others sleep: on a shared core a wake-up would otherwise include the other rank's time slice, in
 * which that rank does useful work. */
static int wake(struct bench *b, struct lanes *l, struct kernels *other)
{
    struct series s = series_of(b, OWN_WAKE);
    double d[WAKES];
    int rc = bench_meet_asleep();

    for (int r = 0; r < b->nranks && rc == 0; r++) {
        rc = r == b->rank ? wake_in_turn(b, l, other, d) : 0;
        if (bench_meet_asleep() < 0)
            rc = -1;
    }
    return rc < 0 ? -1 : bench_keep(b, &s, d, WAKES, false);
}

static int time_lanes(struct bench *b)
{
    atomic_bool stop = false;           /* closing lanes sets it */
    bool cuda = device_async(b->device);
    struct kernels *other = cuda ? kernels_open_on(b->device, STREAM_REDUCE, 1, NULL, 0, false) : NULL;
    struct lanes *l = !cuda || other ? lanes_open_on(b->device, AFTER(STREAM_COMPUTE) | AFTER(STREAM_REDUCE), &stop) : NULL;
    int rc = l ? lanes_record(l, 2 * TASKS) : -1;

    word = rc == 0 ? bench_map(b, 64) : NULL;
    if (!word)
        rc = -1;
    if (rc == 0)
        rc = handover(b, l);
    if (rc == 0)
        rc = wake(b, l, other);
    lanes_close(l);
    kernels_close(other);
    bench_unmap(b, word, 64);
    return rc;
}

/* ---- a collective on its own ---- */

static int one_call(struct bench *b, struct coll_call *c, double *seconds)
{
    struct bench_span span;

    c->stream = device_cuda_stream(b->device, STREAM_GATHER);
    if (bench_begin(b, STREAM_GATHER) < 0 || comm_call(b->comm, c) < 0 || bench_end(b, &span) < 0 || bench_settle(b) < 0)
        return -1;
    *seconds = span.to - span.from;
    return 0;
}

/* Ranks have slept, as they do while others compute: beyond the time of one in a row. */
static int cold(struct bench *b)
{
    enum { ELEMS = 16 << 10, BYTES = ELEMS * 4, N = 40 };
    struct series s = series_of(b, OWN_COLD);
    float *x = b->comm ? bench_map(b, BYTES) : NULL;
    struct coll_call c = { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM, .elems = round_up(ELEMS, b->nranks) };
    double d[N], row[N];
    struct summary of;
    int rc = x ? 0 : -1;

    if (!b->comm)                       /* one device alone: no rank to meet */
        return 0;
    c.elems -= c.elems > ELEMS ? b->nranks : 0;
    c.send = c.recv = x;
    for (int i = 0; i < N && rc == 0; i++)
        rc = one_call(b, &c, &row[i]);
    for (int i = 0; i < N && rc == 0; i++) {
        nap(2000);
        rc = one_call(b, &c, &d[i]);
    }
    bench_unmap(b, x, BYTES);
    if (rc < 0)
        return -1;
    series_summarize(row, N, &of);
    for (int i = 0; i < N; i++)
        d[i] = d[i] > of.median ? d[i] - of.median : 0;
    return bench_keep(b, &s, d, N, false);
}

/* ---- issuing ---- */

/* Entries and kernels of the steady schedule. */
static int count(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    int64_t *n = arg;

    (void)s, (void)iteration;
    if (o->kind == OP_COMPUTE)
        n[0] += o->u.compute.k1 - o->u.compute.k0;
    n[1]++;
    return 0;
}

struct issuing {
    struct plan p;
    struct schedules s;
    struct comm *comm[PLAN_GROUPS];
    struct weights *weights;
    struct executor *x;
    atomic_bool stop;
    int32_t *ids;
    int64_t samples[64];
};

/* Many blocks of little memory: only their number matters. */
static int small_model(struct model *m)
{
    json_t *c = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", 64, "n_head", 2, "n_layer", 24,
                          "vocab_size", 64, "n_positions", 64);
    int rc = c ? model_from_config(c, "calibration", m) : fail("out of memory");

    json_decref(c);
    return rc;
}

static int open_issuing(struct issuing *w, struct bench *b, enum strategy strategy, int64_t accumulation)
{
    struct executor_args a = { .plan = &w->p, .schedules = &w->s, .comm = w->comm, .stop = &w->stop,
                               .device = b->device, .threads = b->threads, .no_compute = true, .limit = INT64_MAX, .seed = 1 };

    if (small_model(&w->p.model) < 0 || cluster_of_host(&w->p.cluster, 2) < 0)
        return -1;
    w->p.seq = 64;
    plan_defaults(&w->p, strategy, DIALECT_TORCH, DT_FP32);
    w->p.kernels = KERNELS_DPX;
    w->p.accumulation = accumulation;
    w->s.detailed = true;
    if (plan_check(&w->p, "calibration") < 0 || lower(&w->p, 0, &w->s) < 0)
        return -1;
    for (int g = 0; g < w->s.groups.n; g++)
        if (!(w->comm[g] = comm_null_open(0, (int)w->s.groups.group[g].ranks)))
            return -1;
    w->weights = weights_from_seed(&w->p.model, 1);
    w->ids = room_new((size_t)(accumulation * w->p.seq), sizeof *w->ids);
    a.weights = w->weights;
    if (!w->weights || !(w->x = executor_new(&a)) || executor_map(w->x) < 0)
        return -1;
    return 0;
}

static void close_issuing(struct issuing *w)
{
    executor_free(w->x);
    weights_close(w->weights);
    for (int g = 0; g < PLAN_GROUPS; g++)
        comm_close(w->comm[g]);
    schedules_free(&w->s);
    plan_free(&w->p);
    free(w->ids);
    free(w);
}

static int step(struct issuing *w, enum sched_id id, int64_t number)
{
    struct exec_step s = { .number = number, .ids = w->ids, .labels = w->ids, .samples = w->samples,
                           .adamw = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = number } };

    return executor_run(w->x, id, &s);
}

/* Seconds of steps in which kernels and collectives do nothing; counts of one. */
static int empty_steps(struct bench *b, enum strategy strategy, int64_t accumulation, int n, double *seconds,
                       int64_t counts[2])
{
    struct issuing *w = room_new(1, sizeof *w);
    int rc = open_issuing(w, b, strategy, accumulation);

    counts[0] = counts[1] = 0;
    if (rc == 0)
        rc = step(w, SCHED_INIT, 0);
    if (rc == 0)
        rc = step(w, SCHED_FIRST, 1);
    for (int i = 0; i < n && rc == 0; i++) {
        double from = lanes_now();
        rc = step(w, SCHED_STEADY, i + 2);
        seconds[i] = lanes_now() - from;
    }
    if (rc == 0)
        sched_walk(&w->s, SCHED_STEADY, count, counts);
    close_issuing(w);
    return rc;
}

/* What it takes the host to hand a short kernel to the driver; nothing on the host itself. */
static int launch_time(struct bench *b, double *each)
{
    enum { N = 200 };
    char *to = device_async(b->device) ? bench_map(b, 64) : NULL;
    double from;
    int rc = 0;

    *each = 0;
    if (!device_async(b->device))
        return 0;
    if (!to || bench_settle(b) < 0)
        return -1;
    from = lanes_now();
    for (int i = 0; i < N && rc == 0; i++)
        rc = kernels_ops(b->k)->zero(b->k, 64, to);
    *each = (lanes_now() - from) / N;
    if (rc == 0)
        rc = bench_settle(b);
    bench_unmap(b, to, 64);
    return rc;
}

static double positive(double x) { return x > 1e-8 ? x : 1e-8; }

/* An empty step of K kernels and E entries takes K a + E e + c: three plans that differ in both tell
 * the three.  Accumulation adds kernels and a few entries; units that are gathered and reduced add
 * entries. */
static void solve(const double s[3], const int64_t counts[3][2], double out[3])
{
    double k1 = (double)(counts[1][0] - counts[0][0]), e1 = (double)(counts[1][1] - counts[0][1]);
    double k2 = (double)(counts[2][0] - counts[0][0]), e2 = (double)(counts[2][1] - counts[0][1]);
    double det = k1 * e2 - k2 * e1;

    assert(det != 0);
    out[0] = positive(((s[1] - s[0]) * e2 - (s[2] - s[0]) * e1) / det);
    out[1] = positive((k1 * (s[2] - s[0]) - k2 * (s[1] - s[0])) / det);
    out[2] = positive(s[0] - out[0] * (double)counts[0][0] - out[1] * (double)counts[0][1]);
}

static int issuing(struct bench *b)
{
    enum { N = 20 };
    static const struct { enum strategy strategy; int64_t accumulation; } plans[3] = {
        { STRAT_DDP, 1 }, { STRAT_DDP, 9 }, { STRAT_FSDP, 1 },
    };
    static const enum own_word whats[3] = { OWN_ISSUE_KERNEL, OWN_ISSUE_ENTRY, OWN_STEP };
    double t[3][N], each[3][N], launch;
    int64_t counts[3][2];

    if (launch_time(b, &launch) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (empty_steps(b, plans[i].strategy, plans[i].accumulation, N, t[i], counts[i]) < 0)
            return -1;
    for (int i = 0; i < N; i++) {
        double out[3];
        solve((double[]){ t[0][i], t[1][i], t[2][i] }, (const int64_t (*)[2])counts, out);
        for (int w = 0; w < 3; w++)
            each[w][i] = out[w] + (whats[w] == OWN_ISSUE_KERNEL ? launch : 0);
    }
    for (int w = 0; w < 3; w++) {
        struct series s = series_of(b, whats[w]);
        if (bench_keep(b, &s, each[w], N, false) < 0)
            return -1;
    }
    return 0;
}

int bench_own(struct bench *b, double seconds)
{
    struct series last = series_of(b, OWN_STEP);
    int known = bench_known(b, &last);

    (void)seconds;                      /* two seconds in all */
    if (known)
        return known < 0 ? -1 : 0;
    if (bench_alone(b) < 0 || time_lanes(b) < 0 || cold(b) < 0 || issuing(b) < 0)
        return -1;
    return bench_flush(b);
}
