/* The launchers of codes.cu beside the host's quantisers (kernels_codes.c, which test_kernels_codes.c holds against DeepSpeed's), to the
 * bit: random, constant, zero, denormal, infinite and NaN groups.  That of columns.cu beside the host's columns. */
#include "tests/emu/launch_check.h"

#include "exec/cuda/codes.h"
#include "exec/cuda/columns.h"
#include "exec/kernels/kernels_codes.h"
#include "exec/kernels/kernels_columns.h"
#include "model/schedule/schedule.h"

static struct kernels alone = { .threads = 1 };

static struct cuda_quant there_of(const struct quant *q)
{
    return (struct cuda_quant){ q->elems, q->groups, q->bits, q->ranks, q->nodes };
}

/* A number of a group of that kind. */
static uint16_t number_of(int kind)
{
    switch (kind) {
    case 0:  return half_to_fp16((float)random_real());
    case 1:  return half_to_fp16(0.3f);
    case 2:  return coin() ? 0 : 0x8000;
    case 3:  return (uint16_t)random_int(0, 1023);                              /* denormal */
    case 4:  return random_int(0, 9) ? half_to_fp16((float)random_real()) : 0x7c00;     /* an infinity */
    case 5:  return random_int(0, 9) ? half_to_fp16((float)random_real()) : 0x7e00;     /* a NaN */
    default: return 0x7e00;
    }
}

static struct array numbers(int64_t groups, int64_t each)
{
    struct array a = array_new(groups * each, DT_FP16);

    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0, kind = random_int(0, 6); j < each; j++)
            ((uint16_t *)a.x)[g * each + j] = number_of((int)kind);
    return a;
}

/* Equal, but that one NaN is as good as another. */
static void same_halves(const char *what, const struct there *got, struct array *want)
{
    struct array a = look(got);

    for (int64_t i = 0; i < a.n; i++) {
        uint16_t x = ((uint16_t *)a.x)[i], y = ((uint16_t *)want->x)[i];
        if (x != y && !((x & 0x7fff) > 0x7c00 && (y & 0x7fff) > 0x7c00))
            fail_msg("%s: number %" PRId64 " is %04x, not %04x", what, i, x, y);
    }
    array_free(&a);
    array_free(want);
}

static void check_codes(const struct quant *q)
{
    struct array x = numbers(q->groups, q->elems / q->groups), codes = array_new(q->elems * q->bits / 8, DT_UINT8);
    struct array scales = array_new(q->groups, DT_FP32), back = array_new(q->elems, DT_FP16);
    struct there dx = to_device(&x, 2 * random_int(0, 3)), dcodes = to_device(&codes, random_int(0, 3)), dscales = to_device(&scales, 0);
    struct there dback = to_device(&back, 2 * random_int(0, 3));

    OK(codes_quantize(&alone, q, x.x, codes.x, scales.x));
    OK(codes_cuda_quantize(there_of(q), dx.x, dcodes.x, dscales.x, NULL));
    OK(codes_dequantize(&alone, q, codes.x, scales.x, back.x));
    OK(codes_cuda_dequantize(there_of(q), dcodes.x, dscales.x, dback.x, NULL));
    compare_bits("codes", &dcodes, &codes);
    compare_bits("scales", &dscales, &scales);
    same_halves("numbers of codes", &dback, &back);
    gone(&dx), gone(&dcodes), gone(&dscales), gone(&dback);
    array_free(&x), array_free(&codes), array_free(&scales);
}

static void codes_are_the_hosts_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int ranks = 1 + (i & 1), nodes = 1 + (i >> 1 & 1);
        int64_t groups = ranks * nodes * random_int(1, 9), each = 2 * random_int(1, 900);
        check_codes(&(struct quant){ groups * each, groups, i & 4 ? 4 : 8, ranks, nodes });
    }
}

static void sums_of_codes_are_the_hosts_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int ranks = (int)random_int(1, 4), bits = i & 1 ? 4 : 8;
        int64_t groups = random_int(1, 5), each = 2 * random_int(1, 700), n = groups * each;
        struct quant all = { ranks * n, ranks * groups, bits, 1, 1 }, q = { n, groups, bits, ranks, 1 };
        struct array x = numbers(ranks * groups, each), codes = array_new(all.elems * bits / 8, DT_UINT8);
        struct array scales = array_new(all.groups, DT_FP32), sum = array_new(n * bits / 8, DT_UINT8), kept = array_new(groups, DT_FP32);
        OK(codes_quantize(&alone, &all, x.x, codes.x, scales.x));
        struct there dcodes = to_device(&codes, 0), dscales = to_device(&scales, 0), dsum = to_device(&sum, 0), dkept = to_device(&kept, 0);
        OK(codes_requantize(&alone, &q, codes.x, scales.x, sum.x, kept.x));
        OK(codes_cuda_requantize(there_of(&q), dcodes.x, dscales.x, dsum.x, dkept.x, NULL));
        compare_bits("codes of a sum", &dsum, &sum);
        compare_bits("scales of a sum", &dkept, &kept);
        gone(&dcodes), gone(&dscales), gone(&dsum), gone(&dkept);
        array_free(&x), array_free(&codes), array_free(&scales), array_free(&sum), array_free(&kept);
    }
}

static void means_of_nodes_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int64_t n = random_int(1, 3000);
        struct quant q = { n, 1, 8, 1, (int)random_int(1, 4) };
        struct array x = numbers(q.nodes, n), y = array_new(n, DT_FP16);
        struct there dx = to_device(&x, 0), dy = to_device(&y, 0);
        OK(codes_mean(&alone, &q, 0.25, x.x, y.x));
        OK(codes_cuda_mean(there_of(&q), 0.25f, dx.x, dy.x, NULL));
        same_halves("a mean", &dy, &y);
        gone(&dx), gone(&dy);
        array_free(&x);
    }
}

/* Between fp16 and the other formats, any length at any address. */
static void copies_cast_to_and_from_fp16(void **state)
{
    static const enum dtype of[] = { DT_FP32, DT_BF16, DT_FP16 };

    (void)state;
    for (int i = 0; i < 60; i++) {
        enum dtype dt = of[i % 3], st = i % 3 == 2 ? of[i / 3 % 3] : DT_FP16;
        int64_t n = random_int(1, 5000);
        struct array src = st == DT_FP16 ? numbers(1, n) : array_random(n, st, 3), dst = dt == DT_FP16 ? numbers(1, n) : array_random(n, dt, 3);
        struct there ds = to_device(&src, random_int(0, 9)), dd = to_device(&dst, random_int(0, 9));
        float scale = i & 1 ? 0.25f : 1;
        OK(elements_copy(n, dd.x, dt, ds.x, st, scale, i & 8, NULL));
        OK(ref->copy(NULL, n, dst.x, dt, src.x, st, (double)scale, i & 8));
        struct array got = look(&dd);
        for (int64_t k = 0; k < n; k++) {
            float x = 0, y = 0;
            OK(ref->copy(NULL, 1, &x, DT_FP32, (char *)got.x + k * dtype_bytes(dt), dt, 1, false));
            OK(ref->copy(NULL, 1, &y, DT_FP32, (char *)dst.x + k * dtype_bytes(dt), dt, 1, false));
            if (!(isnan(x) && isnan(y)) && memcmp(&x, &y, sizeof x))
                fail_msg("element %" PRId64 " is %g, not %g", k, (double)x, (double)y);
        }
        gone(&ds), gone(&dd);
        array_free(&got), array_free(&src), array_free(&dst);
    }
}

/* ---- columns ---- */

static double product_of(const float *a, int64_t rows, int64_t cols, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t r = 0; r < rows; r++)
        sum += (double)a[r * cols + i] * (double)a[r * cols + j];
    return sum;
}

/* Of the host's and the device's columns, which may take their fp64 sums in other orders: some roundings of fp32. */
static void assert_same_columns(const struct array *got, const struct array *want, int64_t rows, int64_t cols)
{
    const float *x = got->x, *y = want->x;

    for (int64_t k = 0; k < rows * cols; k++)
        if (!(isnan(x[k]) && isnan(y[k])) && !(fabsf(x[k] - y[k]) <= 1e-5f))
            fail_msg("%" PRId64 " x %" PRId64 ": element %" PRId64 " is %g, not %g", rows, cols, k, (double)x[k], (double)y[k]);
    for (int64_t i = 0; i < cols && !isnan(x[0]); i++)
        for (int64_t j = 0; j <= i; j++)
            assert_true(fabs(product_of(x, rows, cols, i, j) - (i == j)) <= 1e-5);
}

/* Twice: each rank must have the same bits.  More rows than a block has threads, and fewer; so many more than columns that no
 * column is nearly in the span of those before it. */
static void columns_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        int64_t cols = 1 + i % 7, rows = 40 * cols + random_int(0, i % 2 ? 1500 : 200);
        struct array a = array_random(rows * cols, DT_FP32, ldexp(1, (int)random_int(-20, 20)));
        struct there once = to_device(&a, random_int(0, 9)), again = to_device(&a, 0);
        OK(columns_cuda_orthonormal(rows, cols, once.x, NULL));
        OK(columns_cuda_orthonormal(rows, cols, again.x, NULL));
        OK(columns_orthonormal(&alone, rows, cols, a.x));
        struct array x = look(&once), y = look(&again);
        assert_same_columns(&x, &a, rows, cols);
        assert_memory_equal(x.x, y.x, (size_t)(rows * cols) * sizeof(float));
        gone(&once), gone(&again);
        array_free(&a), array_free(&x), array_free(&y);
    }
}

/* A square matrix, whose last reflection has nothing below it; zeros, which up to two columns become NaN and more become unit vectors. */
static void square_and_zero_columns_are_the_hosts(void **state)
{
    (void)state;
    for (int64_t cols = 1; cols <= 6; cols++)
        for (int zero = 0; zero < 2; zero++) {
            int64_t rows = zero ? 50 : cols;
            struct array a = array_new(rows * cols, DT_FP32);
            for (int64_t k = 0; k < rows * cols; k++)       /* diagonally dominant: far from singular */
                ((float *)a.x)[k] = zero ? 0 : (float)((k / cols == k % cols ? 4 : 0) + random_real());
            struct there d = to_device(&a, 0);
            OK(columns_cuda_orthonormal(rows, cols, d.x, NULL));
            OK(columns_orthonormal(&alone, rows, cols, a.x));
            struct array x = look(&d);
            assert_same_columns(&x, &a, rows, cols);
            gone(&d);
            array_free(&a), array_free(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_hosts_to_the_bit),
        cmocka_unit_test(sums_of_codes_are_the_hosts_to_the_bit),
        cmocka_unit_test(means_of_nodes_are_the_hosts),
        cmocka_unit_test(copies_cast_to_and_from_fp16),
        cmocka_unit_test(columns_are_the_hosts),
        cmocka_unit_test(square_and_zero_columns_are_the_hosts),
    };
    return cmocka_run_group_tests_name("emu/codes", tests, NULL, NULL);
}
