/* bench_passes.c -- what the executor does with memory outside of block programs: copies, sums,
 * casts, AdamW, norms; of a device also copies to and from pinned memory of the host, by themselves and
 * both ways at once.  Operands move on through a region that no cache of one core holds; a device's
 * second-level cache is larger, and its region with it. */
#include <string.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/lanes.h"

/* Each of the operands; and the passes timed at one size at most, and in one batch: sums of squares are
 * numbers of the host, of which a device keeps 64 until finish(). */
static const int64_t REGION_HOST = 96 << 20, REGION_CUDA = 512 << 20;
enum { MOST = 200, LEAST = 7, NOPERANDS = 4, BATCH = 32 };

struct operands { char *at[NOPERANDS]; int64_t region; double sum; };

/* Of plans in fp32: what a hook sends (ddp.comm_hook). */
static enum dtype narrow_of(enum dtype t) { return t == DT_FP32 ? DT_BF16 : t; }

/* Bytes read and written for one element. */
static int64_t bytes_each(enum measured_pass pass, enum dtype t)
{
    int64_t e = dtype_bytes(t);

    switch (pass) {
    case MP_COPY: case MP_SCALE: case MP_RESCALE: return 2 * e;
    case MP_ADD:     return 3 * e;
    case MP_CAST:    return 4 + dtype_bytes(narrow_of(t));
    case MP_ZERO: case MP_SQUARES: return e;
    case MP_ADAMW:   return 6 * 4 + e + (t == DT_FP32 ? 0 : e);
    case MP_TO_HOST: case MP_FROM_HOST: case MP_HOST_ADAMW: case MP_DISK_READ: case MP_DISK_WRITE: return 1;
    default: break;                     /* bench_codes.c's */
    }
    return 0;
}

static int run_pass(struct bench *b, struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
                    int64_t at)
{
    static const struct adamw adam = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                       .step = 10, .grad_scale = 1 };
    const struct kernel_ops *f = kernels_ops(b->k);
    void *x[NOPERANDS];

    for (int i = 0; i < NOPERANDS; i++)
        x[i] = o->at[i] + at;
    switch (pass) {
    case MP_COPY:    return f->copy(b->k, n, x[0], t, x[1], t, 1, false);
    case MP_SCALE:   return f->copy(b->k, n, x[0], t, x[1], t, 0.5, false);
    case MP_RESCALE: return f->copy(b->k, n, x[1], t, x[1], t, 0.999, false);
    case MP_ADD:     return f->copy(b->k, n, x[0], t, x[1], t, 1, true);
    case MP_CAST:    return f->copy(b->k, n, x[0], narrow_of(t), x[1], DT_FP32, 1, false);
    case MP_ZERO:    return f->zero(b->k, n * dtype_bytes(t), x[0]);
    case MP_SQUARES: return f->sum_squares(b->k, n, x[1], t, &o->sum);
    case MP_ADAMW:
        return f->adamw(b->k, &adam, n, x[1], x[2], x[3], x[0], t, t == DT_FP32 ? NULL : x[0], t);
    default: break;                     /* what crosses, and bench_host.c's, bench_codes.c's */
    }
    return fail("no pass %d", pass);
}

/* From the first to the last; times are there on return. */
static int repeat(struct bench *b, struct operands *o, enum measured_pass pass, enum dtype t, int64_t n, int from,
                  int to, struct bench_span *span)
{
    int64_t skip = round_up(n * 4, 4096), places = o->region / skip;

    for (int i = from; i < to; i++) {
        if (bench_begin(b, STREAM_COMPUTE) < 0 || run_pass(b, o, pass, t, n, i % places * skip) < 0 ||
            bench_end(b, &span[i]) < 0)
            return -1;
        if ((i - from) % BATCH == BATCH - 1 && (bench_settle(b) < 0 || kernels_ops(b->k)->finish(b->k) < 0))
            return -1;
    }
    return bench_settle(b) < 0 || kernels_ops(b->k)->finish(b->k) < 0 ? -1 : 0;
}

/* One after the other, each on memory that was not used for a while. */
static int measure(struct bench *b, struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
                   double slice, double *s, int *count)
{
    struct bench_span span[MOST + 2];
    double from = lanes_now();

    if (repeat(b, o, pass, t, n, 0, 2, span) < 0)
        return -1;
    *count = bench_reps(slice, (lanes_now() - from) / 2, LEAST, MOST);
    if (bench_barrier() < 0 || repeat(b, o, pass, t, n, 2, *count + 2, span) < 0)
        return -1;
    bench_seconds(span + 2, *count, s);
    return 0;
}

static int one(struct bench *b, struct operands *o, enum measured_pass pass, enum dtype t, int64_t n,
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

static int sweep(struct bench *b, struct operands *o, enum dtype t, int64_t largest, double seconds)
{
    enum { FIRST = 1 << 10, SIZES = 8 };
    double slice = seconds / (SIZES * NMEASURED_PASS);

    for (int pass = 0; pass < NMEASURED_PASS; pass++)
        for (int64_t n = FIRST; n * 4 <= largest && bytes_each((enum measured_pass)pass, t) > 1; n *= 4)
            if (one(b, o, (enum measured_pass)pass, t, n, slice) < 0)
                return -1;
    return bench_flush(b);
}

/* ---- to the host and back ---- */

struct crossing { char *pinned; char *there; int64_t bytes; };

static int cross(struct bench *b, const struct crossing *c, bool to_host, int64_t bytes)
{
    enum stream s = to_host ? STREAM_D2H : STREAM_H2D;
    struct CUstream_st *on = device_cuda_stream(b->device, s);
    char *pinned = c->pinned + (to_host ? 0 : c->bytes), *there = c->there + (to_host ? 0 : c->bytes);

    return to_host ? device_fetch(b->device, on, pinned, there, bytes) : device_store(b->device, on, there, pinned, bytes);
}

static int timed_cross(struct bench *b, const struct crossing *c, bool to_host, int64_t bytes, struct bench_span *span)
{
    if (bench_begin(b, to_host ? STREAM_D2H : STREAM_H2D) < 0 || cross(b, c, to_host, bytes) < 0)
        return -1;
    return bench_end(b, span);
}

/* `both`: a copy of each direction in turn, on streams of their own; only the one asked for is kept. */
static int crossings(struct bench *b, const struct crossing *c, bool to_host, bool both, int64_t bytes, int n,
                     double *s)
{
    struct bench_span span[MOST], other[MOST];

    for (int i = 0; i < n; i++)
        if (timed_cross(b, c, to_host, bytes, &span[i]) < 0 ||
            (both && timed_cross(b, c, !to_host, bytes, &other[i]) < 0))
            return -1;
    if (bench_settle(b) < 0)
        return -1;
    bench_seconds(span, n, s);
    return 0;
}

static int one_crossing(struct bench *b, const struct crossing *c, enum dtype t, bool to_host, bool both,
                        int64_t bytes, double slice)
{
    const char *name = pass_words[to_host ? MP_TO_HOST : MP_FROM_HOST];
    const char *other = pass_words[to_host ? MP_FROM_HOST : MP_TO_HOST];
    struct series s = { .kind = both ? SERIES_OVERLAP : SERIES_PASS, .name = name, .beside = both ? other : NULL,
                        .dtype = t, .ranks = b->nranks, .per_node = b->per_node, .threads = b->threads, .bytes = bytes,
                        .started = bench_wall_clock() };
    double seconds[MOST];
    int n, known = bench_known(b, &s);

    if (known)
        return known < 0 ? -1 : 0;
    if (crossings(b, c, to_host, both, bytes, 2, seconds) < 0)
        return -1;
    n = bench_reps(slice, (both ? 2 : 1) * seconds[1], LEAST, MOST);
    if (bench_barrier() < 0 || crossings(b, c, to_host, both, bytes, n, seconds) < 0)
        return -1;
    return bench_keep(b, &s, seconds, n, false);
}

static int to_and_fro(struct bench *b, enum dtype t, int64_t largest, double seconds)
{
    enum { FIRST = 1 << 12, SIZES = 8 };
    struct crossing c = { .pinned = device_pin(b->device, 2 * largest), .there = bench_map(b, 2 * largest),
                          .bytes = largest };
    int rc = c.pinned && c.there ? 0 : -1;

    if (rc == 0)
        memset(c.pinned, 0, (size_t)(2 * largest));
    for (int way = 0; way < 4; way++)
        for (int64_t bytes = FIRST; bytes <= largest && rc == 0; bytes *= 4)
            rc = one_crossing(b, &c, t, way & 1, way & 2, bytes, seconds / (4 * SIZES));
    if (rc == 0)
        rc = bench_flush(b);
    bench_unmap(b, c.there, 2 * largest);
    device_unpin(b->device, c.pinned, 2 * largest);
    return rc;
}

/* ---- all ---- */

int bench_passes(struct bench *b, enum dtype t, int64_t largest, double seconds)
{
    bool cuda = device_async(b->device);
    struct operands o = { .region = cuda ? bench_operand(b, REGION_CUDA) : REGION_HOST };
    int rc = 0;

    largest = largest < o.region ? largest : o.region;
    for (int i = 0; i < NOPERANDS && rc == 0; i++)
        if (!(o.at[i] = bench_map(b, o.region)) ||
            bench_fill_on(b, o.at[i], i ? DT_FP32 : t, o.region / 4, 1e-3, 2e-3) < 0)
            rc = -1;
    if (rc == 0)
        rc = sweep(b, &o, t, largest, (cuda ? 0.5 : 0.75) * seconds);
    for (int i = 0; i < NOPERANDS; i++)
        bench_unmap(b, o.at[i], o.region);
    if (rc == 0)
        rc = bench_codes(b, t, largest, 0.25 * seconds);
    return rc == 0 && cuda ? to_and_fro(b, t, largest, 0.25 * seconds) : rc;
}
