/* bench_codes.c -- what sends fewer bytes: casts to fp16, codes of fp16 numbers (ZeRO++), products with narrow matrices and their
 * orthonormal columns (PowerSGD).  As the executor calls them; fp16 numbers are those that a gradient of a thousandth has. */
#include <math.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/lanes.h"
#include "model/schedule/measured.h"

enum { MOST = 100, LEAST = 7, FIRST = 1 << 10, SMALLER = 4, GROUP = 1 << 10, ARRAYS = 2 };

static const enum measured_pass passes[] = {
    MP_CAST_FP16, MP_QUANTIZE8, MP_DEQUANTIZE8, MP_QUANTIZE4, MP_DEQUANTIZE4, MP_REQUANTIZE4, MP_MEAN_FP16,
    MP_NARROW_P, MP_NARROW_Q, MP_NARROW_M, MP_ORTHOGONAL,
};
enum { NPASSES = sizeof passes / sizeof *passes };

/* wide, halves, sums, codes: so many numbers in fp32, fp16, fp16 and codes, through which the calls of a series move on.  The scales of
 * ARRAYS arrays, and the narrow matrices, of at most `most` numbers, stay where they are. */
struct operands { float *wide, *scales, *p, *q; uint16_t *halves, *sums; uint8_t *codes; int64_t most, numbers; };

static struct quant codes_of(int64_t n, int bits, int arrays) { return (struct quant){ n, n / GROUP, bits, arrays, ARRAYS }; }

/* A square matrix of n numbers, a power of 4. */
static int64_t side(int64_t n) { return llround(sqrt((double)n)); }

/* n: numbers of an array, of M, or of the narrow matrix. */
static int64_t bytes_of(enum measured_pass pass, int64_t n)
{
    int64_t scales = 4 * (n / GROUP);

    switch (pass) {
    case MP_CAST_FP16:   return 6 * n;
    case MP_QUANTIZE8: case MP_DEQUANTIZE8: return 3 * n + scales;
    case MP_QUANTIZE4: case MP_DEQUANTIZE4: return 2 * n + n / 2 + scales;
    case MP_REQUANTIZE4: return (ARRAYS + 1) * (n / 2 + scales);
    case MP_MEAN_FP16:   return (ARRAYS + 1) * 2 * n;
    case MP_NARROW_P: case MP_NARROW_Q: case MP_NARROW_M: return 4 * (n + 2 * MEASURED_RANK * side(n));
    default:             return 2 * 4 * n;
    }
}

static int run_codes(struct bench *b, const struct operands *o, enum measured_pass pass, int64_t n, int64_t at)
{
    const struct kernel_ops *f = kernels_ops(b->k);
    struct quant q = codes_of(n, pass == MP_QUANTIZE8 || pass == MP_DEQUANTIZE8 ? 8 : 4, pass == MP_REQUANTIZE4 ? ARRAYS : 1);

    if (pass != MP_MEAN_FP16)
        q.nodes = 1;
    switch (pass) {
    case MP_QUANTIZE8: case MP_QUANTIZE4:     return f->quantize(b->k, &q, o->halves + at, o->codes + at, o->scales);
    case MP_DEQUANTIZE8: case MP_DEQUANTIZE4: return f->dequantize(b->k, &q, o->codes + at, o->scales, o->halves + at);
    case MP_REQUANTIZE4: return f->requantize(b->k, &q, o->codes + at, o->scales, (uint8_t *)(o->sums + at), o->p);
    default:             return f->mean(b->k, &q, 0.5, o->halves + at, o->sums + at);
    }
}

static int run_narrow(struct bench *b, const struct operands *o, enum measured_pass pass, int64_t n, int64_t at)
{
    const struct kernel_ops *f = kernels_ops(b->k);
    int64_t m = side(n), r = MEASURED_RANK;
    struct linear l = { .n = m, .in = m, .out = r, .in_out = true, .at = DT_FP32, .wt = DT_FP32, .gt = DT_FP32, .ldx = m, .ldy = r };

    switch (pass) {
    case MP_NARROW_P: return f->linear(b->k, &l, o->wide + at, o->q, NULL, o->p, NULL, NULL);
    case MP_NARROW_Q: return f->linear_dw(b->k, &l, o->wide + at, o->p, o->q, NULL, GRAD_SET);
    case MP_NARROW_M: return f->linear_dx(b->k, &l, o->p, o->q, o->wide + at, false);
    default:          return f->orthonormal(b->k, n / r, r, o->wide + at);
    }
}

static int run_pass(struct bench *b, const struct operands *o, enum measured_pass pass, int64_t n, int64_t at)
{
    if (pass == MP_CAST_FP16)
        return kernels_ops(b->k)->copy(b->k, n, o->halves + at, DT_FP16, o->wide + at, DT_FP32, 1, false);
    return pass < MP_NARROW_P ? run_codes(b, o, pass, n, at) : run_narrow(b, o, pass, n, at);
}

/* Samples from the third call on. */
static int repeat(struct bench *b, const struct operands *o, enum measured_pass pass, int64_t n, int from, int to, struct bench_span *span)
{
    int64_t places = o->numbers / (ARRAYS * n);

    for (int i = from; i < to; i++)
        if (bench_begin(b, STREAM_COMPUTE) < 0 || run_pass(b, o, pass, n, i % places * n) < 0 || bench_end(b, &span[i]) < 0)
            return -1;
    return bench_settle(b) < 0 || kernels_ops(b->k)->finish(b->k) < 0 ? -1 : 0;
}

static int one(struct bench *b, const struct operands *o, enum measured_pass pass, enum dtype t, int64_t n, double slice)
{
    struct series s = { .kind = SERIES_PASS, .name = pass_words[pass], .dtype = t, .ranks = b->nranks, .per_node = b->per_node,
                        .threads = b->threads, .bytes = bytes_of(pass, n), .started = bench_wall_clock() };
    struct bench_span span[MOST + 2];
    double seconds[MOST], from = lanes_now();
    int count, known = bench_known(b, &s);

    if (known)
        return known < 0 ? -1 : 0;
    if (repeat(b, o, pass, n, 0, 2, span) < 0)
        return -1;
    count = bench_reps(slice, (lanes_now() - from) / 2, LEAST, MOST);
    if (bench_barrier() < 0 || repeat(b, o, pass, n, 2, count + 2, span) < 0)
        return -1;
    bench_seconds(span + 2, count, seconds);
    return bench_keep(b, &s, seconds, count, false);
}

static int open_operands(struct bench *b, struct operands *o)
{
    int64_t n = o->numbers, few = o->most;

    if (!(o->wide = bench_map(b, 4 * n)) || !(o->halves = bench_map(b, 2 * n)) || !(o->sums = bench_map(b, 2 * n))
        || !(o->codes = bench_map(b, n)) || !(o->scales = bench_map(b, 4 * few)) || !(o->p = bench_map(b, 4 * few))
        || !(o->q = bench_map(b, 4 * few)))
        return -1;
    if (bench_fill_on(b, o->wide, DT_FP32, n, 1e-3, 0) < 0 || bench_fill_on(b, o->p, DT_FP32, few, 1, 0) < 0
        || bench_fill_on(b, o->q, DT_FP32, few, 1, 0) < 0 || bench_fill_on(b, o->scales, DT_FP32, few, 1e-3, 2e-3) < 0)
        return -1;
    return run_pass(b, o, MP_CAST_FP16, n, 0);
}

static void close_operands(struct bench *b, struct operands *o)
{
    bench_unmap(b, o->wide, 4 * o->numbers);
    bench_unmap(b, o->halves, 2 * o->numbers);
    bench_unmap(b, o->sums, 2 * o->numbers);
    bench_unmap(b, o->codes, o->numbers);
    bench_unmap(b, o->scales, 4 * o->most);
    bench_unmap(b, o->p, 4 * o->most);
    bench_unmap(b, o->q, 4 * o->most);
}

int bench_codes(struct bench *b, enum dtype t, int64_t largest, double seconds)
{
    struct operands o = { .most = largest / 4 / SMALLER, .numbers = largest / 4 };
    int sizes = 0, rc = open_operands(b, &o);

    for (int64_t n = FIRST; n <= o.most; n *= 4)
        sizes++;
    for (int i = 0; i < NPASSES && rc == 0; i++)
        for (int64_t n = FIRST; n <= o.most && rc == 0; n *= 4)
            rc = one(b, &o, passes[i], t, n, seconds / (NPASSES * sizes));
    if (rc == 0)
        rc = bench_flush(b);
    close_operands(b, &o);
    return rc;
}
