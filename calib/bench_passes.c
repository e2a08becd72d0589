/* bench_passes.c -- what the executor does with memory outside of block programs: copies, sums,
 * casts, AdamW, norms.  Operands move on through a region that no cache of one core holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/bench.h"
#include "calib/words.h"
#include "exec/lanes.h"
#include "model/fail.h"

/* Each of the operands; and the passes timed at one size at most. */
static const int64_t REGION = 96 << 20;
enum { MOST = 200, LEAST = 7, NOPERANDS = 4 };

struct operands { char *at[NOPERANDS]; };

/* Bytes read and written for one element. */
static int64_t bytes_each(enum measured_pass pass, enum dtype t)
{
    int64_t e = dtype_bytes(t);

    switch (pass) {
    case MP_COPY: case MP_SCALE: case MP_RESCALE: return 2 * e;
    case MP_ADD:     return 3 * e;
    case MP_CAST:    return 4 + e;
    case MP_ZERO: case MP_SQUARES: return e;
    case MP_ADAMW:   return 6 * 4 + e + (t == DT_FP32 ? 0 : e);
    case NMEASURED_PASS: break;
    }
    return 0;
}

static int run_pass(struct bench *b, const struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
                    int64_t at)
{
    static const struct adamw adam = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                       .step = 10, .grad_scale = 1 };
    const struct kernel_ops *f = kernels_ops(b->k);
    void *x[NOPERANDS];
    double sum = 0;

    for (int i = 0; i < NOPERANDS; i++)
        x[i] = o->at[i] + at;
    switch (pass) {
    case MP_COPY:    return f->copy(b->k, n, x[0], t, x[1], t, 1, false);
    case MP_SCALE:   return f->copy(b->k, n, x[0], t, x[1], t, 0.5, false);
    case MP_RESCALE: return f->copy(b->k, n, x[1], t, x[1], t, 0.999, false);
    case MP_ADD:     return f->copy(b->k, n, x[0], t, x[1], t, 1, true);
    case MP_CAST:    return f->copy(b->k, n, x[0], t, x[1], DT_FP32, 1, false);
    case MP_ZERO:    memset(x[0], 0, (size_t)(n * dtype_bytes(t))); return 0;
    case MP_SQUARES: return f->sum_squares(b->k, n, x[1], t, &sum);
    case MP_ADAMW:
        return f->adamw(b->k, &adam, n, x[1], x[2], x[3], x[0], t, t == DT_FP32 ? NULL : x[0], t);
    case NMEASURED_PASS: break;
    }
    return fail("no pass %d", pass);
}

/* One after the other, each on memory that was not used for a while. */
static int measure(struct bench *b, const struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
                   double slice, double *s, int *count)
{
    int64_t span = round_up(n * 4, 4096), places = REGION / span;
    double from = lanes_now();

    for (int i = 0; i < 2; i++)
        if (run_pass(b, o, pass, t, n, i % places * span) < 0)
            return -1;
    *count = bench_reps(slice, (lanes_now() - from) / 2, LEAST, MOST);
    if (bench_barrier() < 0)
        return -1;
    for (int i = 0; i < *count; i++) {
        from = lanes_now();
        if (run_pass(b, o, pass, t, n, (i + 2) % places * span) < 0)
            return -1;
        s[i] = lanes_now() - from;
    }
    return 0;
}

static int one(struct bench *b, const struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
               double slice)
{
    struct series s = { .kind = SERIES_PASS, .name = pass_words[pass], .dtype = t, .ranks = b->nranks,
                        .per_node = b->per_node, .threads = b->threads, .bytes = n * bytes_each(pass, t),
                        .started = bench_wall_clock() };
    double seconds[MOST];
    int count, known = bench_known(b, &s);

    if (known)
        return known < 0 ? -1 : 0;
    if (measure(b, o, pass, t, n, slice, seconds, &count) < 0)
        return -1;
    return bench_keep(b, &s, seconds, count, false);
}

static int sweep(struct bench *b, const struct operands *o, enum dtype t, int64_t largest, double seconds)
{
    enum { FIRST = 1 << 10, SIZES = 8 };
    double slice = seconds / (SIZES * NMEASURED_PASS);

    for (int pass = 0; pass < NMEASURED_PASS; pass++)
        for (int64_t n = FIRST; n * 4 <= largest; n *= 4)
            if ((pass != MP_CAST || t != DT_FP32) && one(b, o, (enum measured_pass)pass, t, n, slice) < 0)
                return -1;
    return bench_flush(b);
}

int bench_passes(struct bench *b, enum dtype t, int64_t largest, double seconds)
{
    struct operands o = { { NULL } };
    int rc = 0;

    for (int i = 0; i < NOPERANDS && rc == 0; i++)
        if ((o.at[i] = bench_memory(REGION)))
            bench_fill(o.at[i], i ? DT_FP32 : t, REGION / 4, 1e-3, 2e-3);
        else
            rc = -1;
    if (rc == 0)
        rc = sweep(b, &o, t, largest, seconds);
    for (int i = 0; i < NOPERANDS; i++)
        free(o.at[i]);
    return rc;
}
