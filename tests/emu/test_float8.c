/* The launchers of float8.cu beside the host's (kernels_float8.c, which exec/test_kernels_float8.c holds against single numbers), to the bit:
 * random numbers, zeros, denormals, infinities and NaN, of rows anywhere in memory. */
#include "tests/emu/launch_check.h"

#include "exec/cuda/float8.h"
#include "exec/kernels/fp8.h"
#include "exec/kernels/kernels_float8.h"

static struct kernels alone = { .threads = 1 };

static struct cuda_strided there_of(const struct strided *s) { return (struct cuda_strided){ s->rows, s->cols, s->ld }; }

static enum dtype any_dtype(void) { return random_int(0, 2) ? coin() ? DT_BF16 : DT_FP32 : DT_FP16; }

static enum float8_by any_by(void) { return (enum float8_by)random_int(FLOAT8_BY_TENSOR, FLOAT8_BY_COLUMNS); }

static struct strided any_matrix(void)
{
    struct strided s = { random_int(1, 90), random_int(1, 200), 0 };

    if (random_int(0, 3) == 0)
        s.rows = 1 + (coin() ? random_int(0, 2) : 0), s.cols = random_int(8000, 20000);
    else if (coin())
        s.cols = 16 * random_int(1, 20);
    s.ld = s.cols + (coin() ? 16 * random_int(0, 2) : random_int(0, 9));
    return s;
}

/* Now and then what is no common number: of 12 kinds of matrices one has infinities, one NaN, one both. */
static double number_of(int kind, double size)
{
    int one_in = kind < 3 ? (int)random_int(0, 40) : 1;

    if (!one_in)
        return kind == 0 || (kind == 2 && coin()) ? (double)INFINITY : (double)NAN;
    return kind == 3 ? 0 : kind == 4 ? ldexp(random_real(), -130) : size * random_real();
}

static struct array numbers(const struct strided *s, enum dtype t, double size)
{
    struct array a = array_new((s->rows - 1) * s->ld + s->cols, t);

    for (int64_t i = 0, kind = random_int(0, 11); i < a.n; i++)
        array_set(&a, i, number_of((int)kind, size));
    return a;
}

/* To the bit, but that one NaN is as good as another. */
static void same_floats(const char *what, const struct there *got, struct array *want)
{
    struct array a = look(got);
    size_t e = (size_t)dtype_bytes(a.t);

    for (int64_t i = 0; i < a.n; i++)
        if (memcmp((char *)a.x + (size_t)i * e, (char *)want->x + (size_t)i * e, e) && !(isnan(array_get(&a, i)) && isnan(array_get(want, i))))
            fail_msg("%s: number %" PRId64 " of %" PRId64 " is %.9g, not %.9g", what, i, a.n, array_get(&a, i), array_get(want, i));
    array_free(&a);
    array_free(want);
}

/* As the sign of a NaN's code is the NaN's own. */
static void same_codes(const char *what, const struct there *got, struct array *want, const struct fp8_kind *t)
{
    struct array a = look(got);

    for (int64_t i = 0; i < a.n; i++) {
        uint8_t x = ((uint8_t *)a.x)[i], y = ((uint8_t *)want->x)[i];
        if (x != y && !((x & 0x7f) >= t->least_nan && (y & 0x7f) >= t->least_nan))
            fail_msg("%s: code %" PRId64 " of %" PRId64 " is %02x, not %02x", what, i, a.n, x, y);
    }
    array_free(&a);
    array_free(want);
}

static void largest_magnitudes_and_scales_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 90; i++) {
        struct strided s = any_matrix();
        struct cuda_strided m = there_of(&s);
        enum float8_by by = any_by();
        struct array x = numbers(&s, any_dtype(), ldexp(1, (int)random_int(-14, 14)));
        struct array most = array_new(float8_scales(by, s.rows, s.cols), DT_FP32), scale = array_like(&most);
        struct there dx = to_device(&x, any_skew()), dmost = to_device(&most, any_skew());
        enum float8_format f = coin() ? FLOAT8_E5M2 : FLOAT8_E4M3;
        bool powers = coin();
        OK(float8_amax(&alone, &s, by, x.x, x.t, most.x));
        OK(float8_cuda_amax(&m, by, dx.x, x.t, dmost.x, false, NULL));
        memcpy(scale.x, most.x, (size_t)most.n * sizeof(float));
        same_floats("largest magnitudes", &dmost, &most);
        OK(float8_to_scales(&alone, f, scale.n, scale.x, powers));
        OK(float8_cuda_scales(f == FLOAT8_E5M2, scale.n, dmost.x, powers, NULL));
        same_floats("scales", &dmost, &scale);
        gone(&dx), gone(&dmost);
        array_free(&x);
    }
}

/* The larger of what is there and what is found: of all parts of an array. */
static void largest_magnitudes_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct strided all = { 1, random_int(3, 30000), 0 };
        struct array x = numbers(&all, any_dtype(), 3), most = array_new(1, DT_FP32);
        int64_t first = random_int(1, all.cols - 1);
        array_set(&most, 0, 0);
        struct cuda_strided part[2] = { { 1, first, first }, { 1, all.cols - first, all.cols - first } };
        struct there dx = to_device(&x, 0), dmost = to_device(&most, 0);
        OK(float8_cuda_amax(&part[0], FLOAT8_BY_TENSOR, dx.x, x.t, dmost.x, true, NULL));
        OK(float8_cuda_amax(&part[1], FLOAT8_BY_TENSOR, (char *)dx.x + first * dtype_bytes(x.t), x.t, dmost.x, true, NULL));
        OK(float8_largest(&alone, first, x.x, x.t, most.x));
        OK(float8_largest(&alone, all.cols - first, (char *)x.x + first * dtype_bytes(x.t), x.t, most.x));
        same_floats("largest", &dmost, &most);
        gone(&dx), gone(&dmost);
        array_free(&x);
    }
}

static void check_cast(const struct strided *s, enum float8_by by, enum dtype t, enum dtype yt, enum float8_format f)
{
    const struct fp8_kind *kind = f == FLOAT8_E5M2 ? &fp8_e5m2 : &fp8_e4m3;
    struct cuda_strided m = there_of(s);
    struct array x = numbers(s, t, 4), scale = array_random(float8_scales(by, s->rows, s->cols), DT_FP32, ldexp(1, (int)random_int(-9, 20)));
    struct array codes = array_new(s->rows * s->cols, DT_UINT8), wide = array_new(s->rows * s->cols, yt);
    struct there dx = to_device(&x, any_skew()), dscale = to_device(&scale, any_skew());
    struct there dcodes = to_device(&codes, any_skew()), dwide = to_device(&wide, any_skew());

    OK(float8_cast(&alone, f, s, by, x.x, t, scale.x, codes.x, DT_FP8));
    OK(float8_cuda_cast(f == FLOAT8_E5M2, &m, by, dx.x, t, dscale.x, 1, dcodes.x, DT_FP8, NULL));
    OK(float8_cast(&alone, f, s, by, x.x, t, scale.x, wide.x, yt));
    OK(float8_cuda_cast(f == FLOAT8_E5M2, &m, by, dx.x, t, dscale.x, 1, dwide.x, yt, NULL));
    same_codes("codes", &dcodes, &codes, kind);
    same_floats("numbers of a cast", &dwide, &wide);
    gone(&dx), gone(&dscale), gone(&dcodes), gone(&dwide);
    array_free(&x), array_free(&scale);
}

static void casts_are_the_hosts_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 120; i++) {
        struct strided s = any_matrix();
        check_cast(&s, any_by(), any_dtype(), coin() ? DT_BF16 : DT_FP32, coin() ? FLOAT8_E5M2 : FLOAT8_E4M3);
    }
}

/* What FSDP2 gathers: a shard's codes, with a scale that the host knows, and back. */
static void codes_that_are_gathered_are_the_hosts(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        struct strided s = { 1, random_int(1, 20000), 0 };
        struct cuda_strided m = { 1, s.cols, s.cols };
        struct array x = numbers(&s, any_dtype(), 4), codes = array_new(s.cols, DT_UINT8), back = array_new(s.cols, any_dtype());
        float scale = (float)ldexp(1 + random_real() / 2, (int)random_int(-2, 12));
        struct there dx = to_device(&x, any_skew()), dcodes = to_device(&codes, any_skew()), dback = to_device(&back, any_skew());
        OK(float8_codes(&alone, s.cols, x.x, x.t, scale, codes.x));
        OK(float8_cuda_cast(false, &m, FLOAT8_BY_TENSOR, dx.x, x.t, NULL, scale, dcodes.x, DT_FP8, NULL));
        OK(float8_numbers(&alone, s.cols, codes.x, back.x, back.t));
        OK(float8_cuda_numbers(s.cols, dcodes.x, dback.x, back.t, NULL));
        same_codes("gathered codes", &dcodes, &codes, &fp8_e4m3);
        same_floats("numbers of codes", &dback, &back);
        gone(&dx), gone(&dcodes), gone(&dback);
        array_free(&x);
    }
}

/* Each of the 256. */
static void each_code_has_its_number(void **state)
{
    struct array codes = array_new(256, DT_UINT8), back = array_new(256, DT_FP32);

    (void)state;
    for (int i = 0; i < 256; i++)
        ((uint8_t *)codes.x)[i] = (uint8_t)i;
    struct there dcodes = to_device(&codes, 0), dback = to_device(&back, 0);
    OK(float8_numbers(&alone, 256, codes.x, back.x, DT_FP32));
    OK(float8_cuda_numbers(256, dcodes.x, dback.x, DT_FP32, NULL));
    same_floats("numbers of all codes", &dback, &back);
    gone(&dcodes), gone(&dback);
    array_free(&codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_magnitudes_and_scales_are_the_hosts),
        cmocka_unit_test(largest_magnitudes_add_up),
        cmocka_unit_test(casts_are_the_hosts_to_the_bit),
        cmocka_unit_test(codes_that_are_gathered_are_the_hosts),
        cmocka_unit_test(each_code_has_its_number),
    };

    alone.simd = simd_best();
    return cmocka_run_group_tests_name("emu/float8", tests, NULL, NULL);
}
