/* bench_overlap.c -- how much slower kernels and collectives are while both run: a thread runs a
 * row of collectives as the executor's communication threads do, while the main thread repeats a
 * kernel until the last is done.  Beside them the same alone, just before.
 *
 * Twice: one call after the other, which tells what kernels lose; and calls with a rest before each,
 * as they come in training, where a unit's compute lies between two collectives.  On shared cores
 * that is another matter: a thread that has slept is let in at once, one that never sleeps waits for its
 * time slice (Linux gives it 3 to 4 ms later, at every hop of a ring). */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "calib/bench.h"
#include "calib/words.h"
#include "exec/lanes.h"
#include "model/fail.h"

/* Shapes of a small model's block: operands and results of a few megabytes. */
enum { TOKENS = 512, WIDTH = 768, HEADS = 12, DIM = 64, SEQ = 256, WORDS = 8192 };
enum { MOST = 4000, CALLS_LEAST = 4, CALLS_MOST = 400, KERNELS_LEAST = 6, LEAST = 5, NTEXTS = 64 };

/* What a collective loses beside kernels is time (waits for its turn) more than rate, so that one
 * size would not do; of copies the rate is all. */
static const int64_t sizes[] = { 1 << 20, 8 << 20 };
enum { NSIZES = sizeof sizes / sizeof *sizes, RESTED = 40 };
/* A block's compute, about. */
static const struct timespec REST = { 0, 5000000 };
static const enum coll_op ops[] = { COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER, NCOLL };
static const enum kernel_class classes[] = { KC_GEMM, KC_ATTENTION, KC_NORM, KC_ELEMENTWISE, KC_LOSS, KC_EMBEDDING,
                                             KC_COPY };

struct overlap {
    struct bench *b;
    enum dtype t;
    char *x, *y, *w, *send, *recv;
    float *stats;
    int32_t *ids;
    enum coll_op op;                    /* NCOLL: copies */
    int64_t bytes;                      /* of a call's full buffer */
    struct kernels *copier;             /* the other stream's: one thread, no workspace */
    int     ncalls, ncall_s, nkernel_s;
    bool    rests;                      /* before each call */
    double  each;                       /* seconds of a call alone */
    double *call_s, *kernel_s;
    atomic_bool done;
    bool    failed;
    char    why[256];
    char    texts[NTEXTS][64]; int ntexts;
};

static int run_kernel(struct overlap *o, enum kernel_class kind)
{
    struct linear l = { .n = TOKENS, .in = WIDTH, .out = WIDTH, .in_out = true, .at = o->t, .wt = o->t, .gt = o->t,
                        .ldx = WIDTH, .ldy = WIDTH };
    struct attention a = { .batch = TOKENS / SEQ, .seq = SEQ, .heads = HEADS, .kv_heads = HEADS, .dim = DIM,
                           .ld = 3 * HEADS * DIM, .scale = 0.125, .at = o->t };
    struct kernels *k = o->b->k;
    const struct kernel_ops *f = kernels_ops(k);

    switch (kind) {
    case KC_GEMM:        return f->linear(k, &l, o->x, o->w, NULL, o->y, NULL, NULL);
    case KC_ATTENTION:   return f->attention(k, &a, o->x, o->y, o->stats);
    case KC_NORM:        return f->norm(k, NORM_LAYER, TOKENS, WIDTH, 1e-5, o->x, o->w, o->w, o->t, o->y, o->t, o->stats);
    case KC_ELEMENTWISE: return f->activation(k, ACT_GELU, 4 * TOKENS * WIDTH, NULL, o->x, o->y, o->t);
    case KC_LOSS:        return f->cross_entropy(k, TOKENS / 4, WORDS, o->y, o->t, o->ids, o->stats, 1e-3);
    case KC_EMBEDDING:   return f->embed(k, TOKENS, WIDTH, o->ids, o->x, o->t, o->y, o->t);
    case KC_COPY:        return f->copy(k, 4 * TOKENS * WIDTH, o->y, o->t, o->x, o->t, 0.5, true);
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
                           .recv = o->op == COLL_ALL_REDUCE ? o->send : o->recv };

    if (o->op == NCOLL)
        return kernels_ops(o->copier)->copy(o->copier, elems, o->recv, o->t, o->send, o->t, 1, false);
    return comm_call(o->b->comm, &c);
}

static int run_calls(struct overlap *o)
{
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
        rc = run_kernel(o, kind);
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

/* Longer, where the calls were over before a few kernels were done. */
static int together(struct overlap *o, enum kernel_class kind)
{
    for (int tries = 0; tries < 3; tries++) {
        if (together_once(o, kind) < 0)
            return -1;
        if (common(o->nkernel_s) >= 3 || 2 * o->ncalls > CALLS_MOST)
            break;
        o->ncalls *= 2;
    }
    return 0;
}

static int alone(struct overlap *o, enum kernel_class kind, double seconds)
{
    double begun, from;

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

static const char *other_name(const struct overlap *o) { return o->op == NCOLL ? "other copy" : coll_name(o->op); }

static struct series series_of(const struct overlap *o, const char *name, const char *beside)
{
    return (struct series){ .kind = SERIES_OVERLAP, .name = name, .beside = beside, .dtype = o->t,
                            .algorithm = o->op == NCOLL ? "" : "ring", .ranks = o->b->nranks,
                            .per_node = o->b->per_node, .threads = o->b->threads, .bytes = o->bytes,
                            .started = bench_wall_clock() };
}

static int keep(struct overlap *o, const char *name, const char *beside, const double *s, int n, bool slowest)
{
    struct series of = series_of(o, name, beside);

    n = common(n);
    return n < 1 ? fail("overlap: no sample of %s", name) : bench_keep(o->b, &of, s, n, slowest);
}

static double mean(const double *s, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += s[i];
    return n ? sum / n : 0;
}

/* As many calls as take so long alone, at least. */
static void plan_calls(struct overlap *o, double seconds)
{
    o->ncalls = bench_reps(seconds, o->each, CALLS_LEAST, CALLS_MOST);
    o->ncall_s = 0;
}

/* What ran alone, just before it ran beside `other`; kept until it is written. */
static const char *alone_before(struct overlap *o, const char *other)
{
    char *to = o->texts[o->ntexts++ % NTEXTS];

    snprintf(to, sizeof o->texts[0], "alone before %s", other);
    return to;
}

/* What the calls take when they have rested before. */
static int rested(struct overlap *o, enum kernel_class kind)
{
    char *beside = o->texts[o->ntexts++ % NTEXTS];
    int rc;

    snprintf(beside, sizeof o->texts[0], "%s, rested", class_words[kind]);
    o->ncalls = o->ncalls < RESTED ? o->ncalls : RESTED;
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
    plan_calls(o, fmax(slice / 4, KERNELS_LEAST * mean(o->kernel_s, o->nkernel_s)));
    if (bench_barrier() < 0 || run_calls(o) < 0 || keep(o, other, none_other, o->call_s, o->ncall_s, true) < 0)
        return -1;
    if (together(o, kind) < 0 || keep(o, name, other, o->kernel_s, o->nkernel_s, false) < 0 ||
        keep(o, other, name, o->call_s, o->ncall_s, true) < 0)
        return -1;
    return rested(o, kind);
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

static int open_operands(struct overlap *o)
{
    int64_t bytes = 16 << 20;

    o->x = bench_memory(bytes);
    o->y = bench_memory(bytes);
    o->w = bench_memory(bytes);
    o->send = bench_memory(bytes);
    o->recv = bench_memory(bytes);
    o->stats = bench_memory(1 << 20);
    o->ids = bench_memory(TOKENS * (int64_t)sizeof *o->ids);
    o->call_s = calloc(CALLS_MOST, sizeof *o->call_s);
    o->kernel_s = calloc(MOST, sizeof *o->kernel_s);
    if (!o->x || !o->y || !o->w || !o->send || !o->recv || !o->stats || !o->ids || !o->call_s || !o->kernel_s)
        return -1;
    for (int i = 0; i < TOKENS; i++)
        o->ids[i] = i * 7;
    bench_fill(o->x, o->t, bytes / 4, 0.5, 0);
    bench_fill(o->y, o->t, bytes / 4, 0.5, 0);
    bench_fill(o->w, o->t, bytes / 4, 0.05, 0);
    bench_fill(o->send, o->t, bytes / 4, 0.5, 0);
    o->copier = kernels_open(1, NULL, 0, false);
    return o->copier ? 0 : -1;
}

static void close_operands(struct overlap *o)
{
    kernels_close(o->copier);
    free(o->x);
    free(o->y);
    free(o->w);
    free(o->send);
    free(o->recv);
    free(o->stats);
    free(o->ids);
    free(o->call_s);
    free(o->kernel_s);
}

/* One operation at one size, beside all classes. */
static int pairs(struct overlap *o, double slice)
{
    int rc = warm_up(o);

    for (size_t c = 0; c < sizeof classes / sizeof *classes && rc == 0; c++)
        rc = pair(o, classes[c], slice);
    return rc < 0 ? -1 : bench_flush(o->b);
}

int bench_overlap(struct bench *b, enum dtype t, double seconds)
{
    enum { NOPS = sizeof ops / sizeof *ops, NCLASSES = sizeof classes / sizeof *classes };
    struct overlap o = { .b = b, .t = t };
    double slice = seconds / (((NOPS - 1) * NSIZES + 1) * NCLASSES);
    int rc = open_operands(&o);

    for (int i = 0; i < NOPS && rc == 0; i++)
        for (int k = ops[i] == NCOLL ? NSIZES - 1 : 0; k < NSIZES && rc == 0; k++) {
            o.op = ops[i];
            o.bytes = sizes[k];
            rc = pairs(&o, slice);
        }
    close_operands(&o);
    return rc;
}
