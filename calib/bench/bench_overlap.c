/* bench_overlap.c -- how much slower kernels and collectives are while both run: a thread runs a
 * row of collectives as the executor's communication threads do, while the main thread repeats a
 * kernel until the last is done.  Beside them the same alone, just before.
 *
 * Twice: one call after the other, which tells what kernels lose; and calls with a rest before each,
 * as they come in training, where a unit's compute lies between two collectives.  On shared cores
 * that is another matter: a thread that has slept is let in at once, one that never sleeps waits for its
 * time slice (Linux gives it 3 to 4 ms later, at every hop of a ring).
 *
 * On a device both are queued, on two streams, and of what ran there counts what began and ended while
 * the other stream was busy. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/fail.h"
#include "base/room.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/lanes.h"

/* Shapes of a small model's block: operands and results of a few megabytes; on a device, of LARGER times
 * as many tokens. */
enum { LARGER = 16, TOKENS = 512, WIDTH = 768, HEADS = 12, DIM = 64, SEQ = 256, WORDS = 8192 };
enum { BYTES = 16 << 20, STATS = 1 << 20 };     /* of an operand, unless larger; of row statistics */
enum { MOST = 4000, CALLS_LEAST = 4, CALLS_MOST = 400, KERNELS_LEAST = 6, LEAST = 5, NTEXTS = 64 };

/* What a collective loses beside kernels is time (waits for its turn) more than rate, so that one
 * size would not do; of copies the rate is all. */
static const int64_t sizes[] = { 1 << 20, 8 << 20 };
enum { NSIZES = sizeof sizes / sizeof *sizes, RESTED = 40, RESTED_LEAST = 8 };
/* A block's compute, about. */
static const struct timespec REST = { 0, 5000000 };
static const enum coll_op ops[] = { COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER, NCOLL };
/* Products and what lives off memory; in little time only the first of each. */
static const enum kernel_class classes[] = { KC_GEMM, KC_ELEMENTWISE, KC_ATTENTION, KC_NORM, KC_LOSS, KC_EMBEDDING,
                                             KC_COPY };
enum { NCLASSES = sizeof classes / sizeof *classes, FEW = 2 };
#define SHORT_SLICE .08

struct overlap {
    struct bench *b;
    enum dtype t;
    char *x, *y, *w, *send, *recv;
    float *stats;
    int32_t *ids;
    enum coll_op op;                    /* NCOLL: copies */
    int64_t bytes;                      /* of a call's full buffer */
    struct kernels *copier;             /* the other stream's: one thread, no workspace */
    int64_t larger, tokens;
    int     ncalls, ncall_s, nkernel_s;
    bool    rests;                      /* before each call */
    double  each;                       /* seconds of a call alone */
    double *call_s, *kernel_s;
    struct bench_span *call, *kernel;   /* a device's */
    atomic_bool done;
    bool    failed;
    char    why[256];
    char    texts[NTEXTS][64]; int ntexts;
};

static double mean(const double *s, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += s[i];
    return n ? sum / n : 0;
}

static int run_kernel(struct overlap *o, enum kernel_class kind)
{
    struct linear l = { .n = o->tokens, .in = WIDTH, .out = WIDTH, .in_out = true, .at = o->t, .wt = o->t, .gt = o->t,
                        .ldx = WIDTH, .ldy = WIDTH };
    struct attention a = { .batch = o->tokens / SEQ, .seq = SEQ, .heads = HEADS, .kv_heads = HEADS, .dim = DIM,
                           .ld = 3 * HEADS * DIM, .scale = 0.125, .at = o->t };
    struct kernels *k = o->b->k;
    const struct kernel_ops *f = kernels_ops(k);

    switch (kind) {
    case KC_GEMM:        return f->linear(k, &l, o->x, o->w, NULL, o->y, NULL, NULL);
    case KC_ATTENTION:   return f->attention(k, &a, o->x, o->y, o->stats);
    case KC_NORM:        return f->norm(k, NORM_LAYER, o->tokens, WIDTH, 1e-5, o->x, o->w, o->w, o->t, o->y, o->t, o->stats);
    case KC_ELEMENTWISE: return f->activation(k, ACT_GELU, 4 * o->tokens * WIDTH, NULL, o->x, o->y, o->t);
    case KC_LOSS:        return f->cross_entropy(k, o->tokens / 4, WORDS, o->y, o->t, o->ids, o->stats, 1e-3);
    case KC_EMBEDDING:   return f->embed(k, o->tokens, WIDTH, o->ids, o->x, o->t, o->y, o->t);
    case KC_COPY:        return f->copy(k, 4 * o->tokens * WIDTH, o->y, o->t, o->x, o->t, 0.5, true);
    case KC_SOFTMAX: case NKERNEL_CLASS: break;
    }
    return fail("no kernel of class %d", kind);
}

static int run_call(struct overlap *o)
{
    int64_t elems = o->bytes / dtype_bytes(o->t);
    bool reduces = o->op != COLL_ALL_GATHER;
    struct coll_call c = { .op = o->op, .dtype = o->t, .red = reduces ? RED_AVG : RED_NONE, .algo = ALGO_RING,
                           .elems = round_up(elems, o->b->nranks), .send = o->send,
                           .recv = o->op == COLL_ALL_REDUCE ? o->send : o->recv,
                           .stream = device_cuda_stream(o->b->device, STREAM_GATHER) };

    if (o->op == NCOLL)
        return kernels_ops(o->copier)->copy(o->copier, elems, o->recv, o->t, o->send, o->t, 1, false);
    return comm_call(o->b->comm, &c);
}

/* What the other stream is: copies before an all-gather, or collectives. */
static enum stream other_stream(const struct overlap *o) { return o->op == NCOLL ? STREAM_COPY_IN : STREAM_GATHER; }

/* On a device: n calls, queued. */
static int queue_calls(struct overlap *o, int n)
{
    for (int i = 0; i < n; i++)
        if (bench_begin(o->b, other_stream(o)) < 0 || run_call(o) < 0 || bench_end(o->b, &o->call[o->ncall_s++]) < 0)
            return -1;
    return 0;
}

static int queue_kernels(struct overlap *o, enum kernel_class kind, int n)
{
    for (int i = 0; i < n; i++)
        if (bench_begin(o->b, STREAM_COMPUTE) < 0 || run_kernel(o, kind) < 0 ||
            bench_end(o->b, &o->kernel[o->nkernel_s++]) < 0)
            return -1;
    return 0;
}

static int run_calls(struct overlap *o)
{
    if (device_async(o->b->device)) {
        if (queue_calls(o, o->ncalls) < 0 || bench_settle(o->b) < 0)
            return -1;
        bench_seconds(o->call, o->ncall_s, o->call_s);
        return 0;
    }
    for (int i = 0; i < o->ncalls; i++) {
        if (o->rests)
            nanosleep(&REST, NULL);
        double from = lanes_now();
        if (run_call(o) < 0)
            return -1;
        o->call_s[o->ncall_s++] = lanes_now() - from;
    }
    return 0;
}

static void *other_thread(void *arg)
{
    struct overlap *o = arg;

    fail_capture(o->why, sizeof o->why);
    o->failed = run_calls(o) < 0;
    atomic_store(&o->done, true);
    return NULL;
}

/* Kernels until the calls are done; one that was not finished by then ran partly alone, and counts
 * only where it is the only one. */
static int together_once(struct overlap *o, enum kernel_class kind)
{
    pthread_t thread;
    int rc = 0;

    atomic_store(&o->done, false);
    o->ncall_s = o->nkernel_s = 0;
    if (bench_barrier() < 0)
        return -1;
    if (pthread_create(&thread, NULL, other_thread, o) != 0)
        return fail("no thread for collectives");
    while (rc == 0 && !atomic_load(&o->done)) {
        double from = lanes_now();
        atomic_store(&o->b->busy, 1);
        rc = run_kernel(o, kind);
        atomic_store(&o->b->busy, 0);
        if (o->nkernel_s == 0 || (o->nkernel_s < MOST && !atomic_load(&o->done)))
            o->kernel_s[o->nkernel_s++] = lanes_now() - from;
    }
    pthread_join(thread, NULL);
    if (o->failed)
        return fail("%s", o->why);
    return rc;
}

/* The fewest samples that any rank has. */
static int common(int n) { return (int)-bench_max(-n); }

/* Seconds of those of n that lie within what the other stream was busy; the first has begun and the
 * last has ended with it. */
static int within(const struct bench_span *of, int n, const struct bench_span *other, int nother, double *s)
{
    double from = other[0].from, to = other[nother - 1].to;
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (of[i].from >= from && of[i].to <= to)
            s[kept++] = of[i].to - of[i].from;
    return kept;
}

/* As many of each as take about as long, and a quarter more kernels, since both will be slower; in
 * turns, so that both streams have work from the beginning. */
static int together_queued(struct overlap *o, enum kernel_class kind)
{
    double each = mean(o->kernel_s, o->nkernel_s);
    int most = BENCH_BATCH - o->ncalls - 1, wanted = (int)(1.25 * o->ncalls * o->each / fmax(each, 1e-7));
    int n = (int)-bench_max(-(wanted < KERNELS_LEAST ? KERNELS_LEAST : wanted > most ? most : wanted)), done = 0;

    o->ncall_s = o->nkernel_s = 0;
    if (bench_barrier() < 0)
        return -1;
    for (int i = 0; i < o->ncalls; i++, done = n * i / o->ncalls)
        if (queue_calls(o, 1) < 0 || queue_kernels(o, kind, n * (i + 1) / o->ncalls - done) < 0)
            return -1;
    if (bench_settle(o->b) < 0)
        return -1;
    int calls = within(o->call, o->ncall_s, o->kernel, o->nkernel_s, o->call_s);
    o->nkernel_s = within(o->kernel, o->nkernel_s, o->call, o->ncall_s, o->kernel_s);
    o->ncall_s = calls;
    return 0;
}

/* Longer, where the calls were over before a few kernels were done. */
static int together(struct overlap *o, enum kernel_class kind)
{
    if (device_async(o->b->device))
        return together_queued(o, kind);
    for (int tries = 0; tries < 3; tries++) {
        if (together_once(o, kind) < 0)
            return -1;
        if (common(o->nkernel_s) >= 3 || 2 * o->ncalls > CALLS_MOST)
            break;
        o->ncalls *= 2;
    }
    return 0;
}

static int alone_queued(struct overlap *o, enum kernel_class kind, double seconds)
{
    double begun = lanes_now();
    int n;

    o->nkernel_s = 0;
    if (queue_kernels(o, kind, LEAST) < 0 || bench_settle(o->b) < 0)
        return -1;
    n = bench_reps(seconds, (lanes_now() - begun) / LEAST, LEAST, BENCH_BATCH - 1);
    o->nkernel_s = 0;
    if (bench_barrier() < 0 || queue_kernels(o, kind, n) < 0 || bench_settle(o->b) < 0)
        return -1;
    bench_seconds(o->kernel, n, o->kernel_s);
    return 0;
}

static int alone(struct overlap *o, enum kernel_class kind, double seconds)
{
    double begun, from;

    if (device_async(o->b->device))
        return alone_queued(o, kind, seconds);
    o->nkernel_s = 0;
    if (run_kernel(o, kind) < 0 || bench_barrier() < 0)
        return -1;
    for (begun = from = lanes_now(); o->nkernel_s < LEAST || (o->nkernel_s < MOST && from - begun < seconds); ) {
        if (run_kernel(o, kind) < 0)
            return -1;
        double to = lanes_now();
        o->kernel_s[o->nkernel_s++] = to - from;
        from = to;
    }
    return 0;
}

/* As many calls as take so long, at least. */
static void plan_calls(struct overlap *o, double seconds, double each)
{
    o->ncalls = bench_reps(seconds, each, CALLS_LEAST, CALLS_MOST);
    o->ncall_s = 0;
}

/* How many calls take so long beside the kernel: on shared cores that is a hundred times what a short one takes
 * alone, so a few are tried.  On a device as many as alone. */
static int plan_together(struct overlap *o, enum kernel_class kind, double seconds)
{
    if (device_async(o->b->device))
        return 0;
    o->ncalls = CALLS_LEAST;
    if (together_once(o, kind) < 0)
        return -1;
    plan_calls(o, seconds, mean(o->call_s, o->ncall_s));
    return 0;
}

static const char *other_name(const struct overlap *o) { return o->op == NCOLL ? "other copy" : coll_name(o->op); }

static struct series series_of(const struct overlap *o, const char *name, const char *beside)
{
    return (struct series){ .kind = SERIES_OVERLAP, .name = name, .beside = beside, .dtype = o->t,
                            .algorithm = o->op == NCOLL ? "" : device_async(o->b->device) ? "nccl" : "ring", .ranks = o->b->nranks,
                            .per_node = o->b->per_node, .threads = o->b->threads, .bytes = o->bytes,
                            .started = bench_wall_clock() };
}

static int keep(struct overlap *o, const char *name, const char *beside, const double *s, int n, bool slowest)
{
    struct series of = series_of(o, name, beside);

    n = common(n);
    if (n < 1 && device_async(o->b->device))    /* over before the other had begun: not measured */
        return 0;
    return n < 1 ? fail("overlap: no sample of %s", name) : bench_keep(o->b, &of, s, n, slowest);
}

/* What ran alone, just before it ran beside `other`; kept until it is written. */
static const char *alone_before(struct overlap *o, const char *other)
{
    char *to = o->texts[o->ntexts++ % NTEXTS];

    snprintf(to, sizeof o->texts[0], "alone before %s", other);
    return to;
}

/* What the calls take when they have rested before; as many as fit, after those without rests. */
static int rested(struct overlap *o, enum kernel_class kind, double slice)
{
    char *beside = o->texts[o->ntexts++ % NTEXTS];
    int rc;

    if (device_async(o->b->device))     /* threads do not carry them there: streams have no time slices */
        return 0;
    snprintf(beside, sizeof o->texts[0], "%s, rested", class_words[kind]);
    o->ncalls = bench_reps(slice, 1e-9 * (double)REST.tv_nsec + mean(o->call_s, o->ncall_s), RESTED_LEAST, RESTED);
    o->rests = true;
    rc = together_once(o, kind);
    o->rests = false;
    return rc < 0 ? -1 : keep(o, other_name(o), beside, o->call_s, o->ncall_s, true);
}

/* Means are compared, not medians: where cores are shared, a kernel either waits for a time slice or
 * does not. */
static int pair(struct overlap *o, enum kernel_class kind, double slice)
{
    const char *name = class_words[kind], *other = other_name(o), *none = alone_before(o, other);
    const char *none_other = alone_before(o, name);
    struct series s = series_of(o, name, other);
    int known = bench_known(o->b, &s);

    if (known)
        return known < 0 ? -1 : 0;
    if (alone(o, kind, slice / 3) < 0 || keep(o, name, none, o->kernel_s, o->nkernel_s, false) < 0)
        return -1;
    double least = KERNELS_LEAST * mean(o->kernel_s, o->nkernel_s);
    plan_calls(o, fmax(slice / 4, least), o->each);
    if (bench_barrier() < 0 || run_calls(o) < 0 || keep(o, other, none_other, o->call_s, o->ncall_s, true) < 0)
        return -1;
    if (plan_together(o, kind, fmax(slice, least)) < 0 || together(o, kind) < 0)
        return -1;
    if (keep(o, name, other, o->kernel_s, o->nkernel_s, false) < 0 || keep(o, other, name, o->call_s, o->ncall_s, true) < 0)
        return -1;
    return rested(o, kind, slice);
}

/* What one call takes alone. */
static int warm_up(struct overlap *o)
{
    o->ncalls = 3;
    o->ncall_s = 0;
    if (bench_barrier() < 0 || run_calls(o) < 0)
        return -1;
    o->each = o->call_s[2];
    return 0;
}

static int open_memory(struct overlap *o, int64_t bytes)
{
    char **const to[] = { &o->x, &o->y, &o->w, &o->send, &o->recv };
    static const double scale[] = { 0.5, 0.5, 0.05, 0.5, 0 };

    for (int i = 0; i < 5; i++)
        if (!(*to[i] = bench_map(o->b, bytes)) ||
            (scale[i] > 0 && bench_fill_on(o->b, *to[i], o->t, bytes / 4, scale[i], 0) < 0))
            return -1;
    o->stats = bench_map(o->b, STATS);
    o->ids = bench_map(o->b, LARGER * TOKENS * (int64_t)sizeof *o->ids);
    return o->stats && o->ids ? 0 : -1;
}

static int open_operands(struct overlap *o)
{
    int32_t ids[LARGER * TOKENS];

    o->call_s = room_new(BENCH_BATCH, sizeof *o->call_s);
    o->kernel_s = room_new(MOST, sizeof *o->kernel_s);
    o->call = room_new(BENCH_BATCH, sizeof *o->call);
    o->kernel = room_new(BENCH_BATCH, sizeof *o->kernel);
    for (int i = 0; i < LARGER * TOKENS; i++)
        ids[i] = i % TOKENS * 7;
    if (open_memory(o, BYTES * o->larger) < 0 || bench_put(o->b, o->ids, ids, sizeof ids) < 0)
        return -1;
    o->copier = kernels_open_on(o->b->device, STREAM_COPY_IN, 1, NULL, 0, false);
    return o->copier ? 0 : -1;
}

static void close_operands(struct overlap *o)
{
    char *const of[] = { o->x, o->y, o->w, o->send, o->recv };

    for (int i = 0; i < 5; i++)
        bench_unmap(o->b, of[i], BYTES * o->larger);
    bench_unmap(o->b, o->stats, STATS);
    bench_unmap(o->b, o->ids, LARGER * TOKENS * (int64_t)sizeof *o->ids);
    kernels_close(o->copier);
    free(o->call_s);
    free(o->kernel_s);
    free(o->call);
    free(o->kernel);
}

/* One operation at one size, beside all classes. */
static int pairs(struct overlap *o, int nclasses, double slice)
{
    int rc = warm_up(o);

    for (int c = 0; c < nclasses && rc == 0; c++)
        rc = pair(o, classes[c], slice);
    return rc < 0 ? -1 : bench_flush(o->b);
}

int bench_overlap(struct bench *b, enum dtype t, double seconds)
{
    enum { NOPS = sizeof ops / sizeof *ops, PAIRS = (NOPS - 1) * NSIZES + 1 };
    int64_t larger = device_async(b->device) && bench_operand(b, LARGER * BYTES) >= LARGER * BYTES / 2 ? LARGER : 1;
    struct overlap o = { .b = b, .t = t, .larger = larger, .tokens = larger * TOKENS };
    int nclasses = seconds / (PAIRS * NCLASSES) < SHORT_SLICE ? FEW : NCLASSES;
    double slice = seconds / (PAIRS * nclasses);
    int rc = open_operands(&o);

    for (int i = 0; i < NOPS && rc == 0; i++)
        for (int k = ops[i] == NCOLL ? NSIZES - 1 : 0; k < NSIZES && rc == 0 && (b->comm || ops[i] == NCOLL); k++) {
            o.op = ops[i];
            o.bytes = sizes[k] * larger;
            rc = pairs(&o, nclasses, slice);
        }
    close_operands(&o);
    return rc;
}
