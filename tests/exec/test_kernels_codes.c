/* Quantisers: DeepSpeed's codes and scales to the bit (golden/quant, a script from its CUDA source), what rounding may cost by arithmetic,
 * and fp16 itself. */
#include <stdio.h>

#include "model/schedule/schedule.h"
#include "tests/exec/kernels_check.h"

static struct both open_for(int threads)
{
    return open_both(&(struct kernels_need){ .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1,
                                             .threads = threads });
}

/* ---- fp16 ---- */

static float power_of_two(int e) { return ldexpf(1, e); }

static void every_half_is_a_float_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1 << 16; h++) {
        float f = half_from_fp16((uint16_t)h);
        int e = h >> 10 & 31, m = h & 1023;
        if (e == 31 && m) {
            assert_true(isnan(f) && isnan(half_from_fp16(half_to_fp16(f))));
            continue;
        }
        float want = e == 31 ? INFINITY : e ? (float)(1024 + m) * power_of_two(e - 25) : (float)m * power_of_two(-24);
        assert_true(!(fabsf(f) < want) && !(fabsf(f) > want));
        assert_int_equal(!!signbit(f), h >> 15);
        assert_int_equal(half_to_fp16(f), h);
    }
}

/* Between two neighbours the nearer one, halfway the even one; 65520 is halfway to 2^16. */
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = half_from_fp16((uint16_t)h), high = half_from_fp16((uint16_t)(h + 1)), middle = (low + high) / 2;
        assert_int_equal(half_to_fp16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(half_to_fp16(nextafterf(middle, 0)), h);
        assert_int_equal(half_to_fp16(-nextafterf(middle, INFINITY)), 0x8000 | (h + 1));
    }
    assert_int_equal(half_to_fp16(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(half_to_fp16(65520), 0x7c00);
    assert_int_equal(half_to_fp16(-3e38f), 0xfc00);
}

static void copies_cast_to_and_from_fp16(void **state)
{
    struct both b = open_for(2);
    float x[3] = { 1, 1e-7f, 70000 }, back[3] = { 5, 5, 5 };
    uint16_t h[3], narrow[3];

    (void)state;
    for (int host = 0; host < 2; host++) {
        const struct kernel_ops *f = host ? b.host.ops : b.ref.ops;
        struct kernels *k = host ? b.host.k : b.ref.k;
        assert_int_equal(f->copy(k, 3, h, DT_FP16, x, DT_FP32, 0.5, false), 0);
        assert_int_equal(h[0], 0x3800);
        assert_int_equal(h[1], 1);                      /* 5e-8 is nearest to 2^-24 */
        assert_int_equal(h[2], 0x7846);                 /* 35000 is between 34976 and 35008 */
        assert_int_equal(f->copy(k, 3, narrow, DT_BF16, h, DT_FP16, 1, false), 0);
        assert_int_equal(narrow[0], 0x3f00);
        back[0] = 5;
        assert_int_equal(f->copy(k, 1, back, DT_FP32, h, DT_FP16, 2, true), 0);
        assert_close((double)back[0], 6, 0);
    }
    close_both(&b);
}

/* ---- as DeepSpeed ---- */

enum { MOST = 1024 };

/* The next line's hexadecimal words; how many. */
static int words(FILE *f, uint32_t *out)
{
    char *line = NULL, *at;
    size_t room = 0;
    int n = 0, used;

    assert_true(getline(&line, &room, f) > 0);
    at = line;
    while (n < MOST && sscanf(at, "%" SCNx32 "%n", &out[n], &used) == 1) {
        at += used;
        n++;
    }
    free(line);
    return n;
}

static int halves_of(FILE *f, uint16_t *out)
{
    uint32_t w[MOST];
    int n = words(f, w);

    for (int i = 0; i < n; i++)
        out[i] = (uint16_t)w[i];
    return n;
}

static int bytes_of(FILE *f, uint8_t *out)
{
    uint32_t w[MOST];
    int n = words(f, w);

    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)w[i];
    return n;
}

static bool same_half(uint16_t a, uint16_t b) { return a == b || ((a & 0x7fff) > 0x7c00 && (b & 0x7fff) > 0x7c00); }

static void assert_codes(const char *what, const uint8_t *got, const uint8_t *want, int n, const float *scales, const uint32_t *want_scales,
                         int groups)
{
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s: code %d is %02x, not %02x", what, i, got[i], want[i]);
    for (int i = 0; i < groups; i++) {
        uint32_t bits;
        memcpy(&bits, &scales[i], sizeof bits);
        if (bits != want_scales[i])
            fail_msg("%s: scale %d is %08" PRIx32 ", not %08" PRIx32, what, i, bits, want_scales[i]);
    }
}

/* The lines that follow a heading. */
static void check_quantise(const struct opened *d, FILE *f, const char *what, int bits, int groups, int ranks, int nodes, bool back)
{
    uint16_t x[MOST], numbers[MOST], want_numbers[MOST];
    uint8_t want[MOST], codes[MOST];
    uint32_t want_scales[MOST];
    float scales[MOST];
    int n = halves_of(f, x), bytes = bytes_of(f, want);
    struct quant q = { n, groups, bits, ranks, nodes };

    assert_int_equal(words(f, want_scales), groups);
    assert_int_equal(d->ops->quantize(d->k, &q, x, codes, scales), 0);
    assert_codes(what, codes, want, bytes, scales, want_scales, groups);
    if (!back)
        return;
    assert_int_equal(halves_of(f, want_numbers), n);
    assert_int_equal(d->ops->dequantize(d->k, &q, codes, scales, numbers), 0);
    for (int i = 0; i < n; i++)
        if (!same_half(numbers[i], want_numbers[i]))
            fail_msg("%s: number %d is %04x, not %04x", what, i, numbers[i], want_numbers[i]);
}

static void check_reduce(const struct opened *d, FILE *f, const char *what, int ranks, int groups)
{
    uint8_t codes[MOST], want[MOST], sum[MOST];
    uint32_t bits[MOST], want_scales[MOST];
    float scales[MOST], sum_scales[MOST];
    int n = bytes_of(f, codes), of = words(f, bits), out = bytes_of(f, want);
    struct quant q = { 2 * n / ranks, groups / ranks, 4, ranks, 1 };

    assert_int_equal(of, groups);
    assert_int_equal(words(f, want_scales), groups / ranks);
    memcpy(scales, bits, (size_t)of * 4);
    assert_int_equal(d->ops->requantize(d->k, &q, codes, scales, sum, sum_scales), 0);
    assert_codes(what, sum, want, out, sum_scales, want_scales, groups / ranks);
}

static void codes_and_scales_are_deepspeeds(void **state)
{
    struct both b = open_for(2);
    char what[128], *line = NULL;
    size_t room = 0;
    int x, y, z, blocks = 0;

    (void)state;
    for (int host = 0; host < 2; host++) {
        const struct opened d = host ? b.host : b.ref;
        FILE *f = fopen("tests/golden/quant/vectors.txt", "r");
        assert_non_null(f);
        while (getline(&line, &room, f) > 0) {
            snprintf(what, sizeof what, "%.*s", (int)strcspn(line, "\n"), line);
            blocks += *line != '#';
            if (sscanf(line, "quantise %d bits %d groups", &x, &y) == 2)
                check_quantise(&d, f, what, x, y, 1, 1, true);
            else if (sscanf(line, "swizzle %d ranks %d nodes %d groups", &x, &y, &z) == 3)
                check_quantise(&d, f, what, 4, z, x, y, false);
            else if (sscanf(line, "reduce %d ranks %d groups", &x, &y) == 2)
                check_reduce(&d, f, what, x, y);
            else if (*line != '#')
                fail_msg("cannot read \"%s\"", what);
        }
        fclose(f);
    }
    assert_int_equal(blocks, 2 * (10 * 4 + 3 * 2));
    free(line);
    close_both(&b);
}

/* ---- by arithmetic ---- */

/* Of a group whose largest magnitude is m the step is s = m / 2^(bits-1): a number is off by s/2, or, since +m would be code
 * 2^(bits-1), which does not exist, above the middle of the last step by up to s; and by half a place of fp16. */
static void rounding_costs_at_most_a_step(void **state)
{
    struct both b = open_for(1);

    (void)state;
    for (int i = 0; i < 300; i++) {
        int bits = coin() ? 8 : 4;
        int64_t groups = random_int(1, 5), each = 8 * random_int(1, 20), n = groups * each;
        uint16_t x[800], back[800];
        uint8_t codes[800];
        float scales[5], size = power_of_two((int)random_int(-12, 14));
        struct quant q = { n, groups, bits, 1, 1 };
        for (int64_t j = 0; j < n; j++)
            x[j] = half_to_fp16(size * (float)random_real());
        assert_int_equal(b.host.ops->quantize(b.host.k, &q, x, codes, scales), 0);
        assert_int_equal(b.host.ops->dequantize(b.host.k, &q, codes, scales, back), 0);
        for (int64_t g = 0; g < groups; g++) {
            double most = 0;
            for (int64_t j = g * each; j < (g + 1) * each; j++)
                most = fmax(most, fabs((double)half_from_fp16(x[j])));
            double step = most / (1 << (bits - 1));
            assert_close((double)scales[g], most > 0 ? step : 1, 1e-6);
            for (int64_t j = g * each; j < (g + 1) * each; j++) {
                double v = (double)half_from_fp16(x[j]), off = fabs(v - (double)half_from_fp16(back[j]));
                double place = fmax(fabs(v) + step, 0x1p-14) * 0x1p-11;
                double may = v > most - step / 2 ? step : step / 2;
                if (off > may * (1 + 1e-6) + place)
                    fail_msg("%g is off by %g, the step is %g", v, off, step);
            }
        }
    }
    close_both(&b);
}

/* Equal arrays of l ranks: the sum is l times one; the mean of M sums divided by l M is one again. */
static void what_all_ranks_have_stays(void **state)
{
    struct both b = open_for(1);
    enum { N = 64, L = 4, M = 2 };
    uint16_t x[N], numbers[N], all[M * N], mean[N];
    uint8_t codes[L * N / 2], sum[N / 2];
    float scales[L], sum_scale;
    struct quant one = { N, 1, 4, 1, 1 }, add = { N, 1, 4, L, 1 }, average = { N, 0, 0, 1, M };

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = half_to_fp16((float)(i % 16 - 8));           /* the codes themselves: m = 8, s = 1 */
    for (int r = 0; r < L; r++)
        assert_int_equal(b.host.ops->quantize(b.host.k, &one, x, codes + r * N / 2, &scales[r]), 0);
    assert_int_equal(b.host.ops->requantize(b.host.k, &add, codes, scales, sum, &sum_scale), 0);
    assert_int_equal(b.host.ops->dequantize(b.host.k, &one, sum, &sum_scale, numbers), 0);
    for (int i = 0; i < N; i++)
        assert_close((double)half_from_fp16(numbers[i]), (double)(L * half_from_fp16(x[i])), 0);
    memcpy(all, numbers, sizeof numbers);
    memcpy(all + N, numbers, sizeof numbers);
    assert_int_equal(b.host.ops->mean(b.host.k, &average, 1.0 / (L * M), all, mean), 0);
    assert_memory_equal(mean, x, sizeof x);
    close_both(&b);
}

/* Part p of the array, rank p's, goes to the p % l-th rank of the sender's node, as the p / l-th of what that one sends across. */
static void parts_go_to_their_rank_of_the_node_first(void **state)
{
    struct both b = open_for(1);
    enum { L = 3, M = 2, EACH = 8, N = L * M * EACH };
    uint16_t x[N], back[N];
    uint8_t codes[N / 2];
    float scales[L * M];
    struct quant q = { N, L * M, 4, L, M }, plain = { N, L * M, 4, 1, 1 };

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = half_to_fp16((float)(1 + i / EACH));
    assert_int_equal(b.host.ops->quantize(b.host.k, &q, x, codes, scales), 0);
    assert_int_equal(b.host.ops->dequantize(b.host.k, &plain, codes, scales, back), 0);
    for (int r = 0; r < L; r++)
        for (int m = 0; m < M; m++)             /* 7/8 of the part's number: +m is code 7 of 8 */
            assert_close((double)half_from_fp16(back[(r * M + m) * EACH]), 0.875 * (1 + r + L * m), 0);
    close_both(&b);
}

static void codes_do_not_depend_on_threads(void **state)
{
    struct both one = open_for(1), two = open_for(2);
    enum { N = 32768 };
    uint16_t *x = malloc(2 * N);
    uint8_t *a = malloc(N), *c = malloc(N);
    float p[64], r[64];
    struct quant q = { N, 64, 8, 1, 1 };

    (void)state;
    assert_true(x && a && c);
    for (int i = 0; i < N; i++)
        x[i] = half_to_fp16((float)random_real());
    assert_int_equal(one.host.ops->quantize(one.host.k, &q, x, a, p), 0);
    assert_int_equal(two.host.ops->quantize(two.host.k, &q, x, c, r), 0);
    assert_memory_equal(a, c, N);
    assert_memory_equal(p, r, sizeof p);
    free(x), free(a), free(c);
    close_both(&one), close_both(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_a_float_and_back),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(copies_cast_to_and_from_fp16),
        cmocka_unit_test(codes_and_scales_are_deepspeeds),
        cmocka_unit_test(rounding_costs_at_most_a_step),
        cmocka_unit_test(what_all_ranks_have_stays),
        cmocka_unit_test(parts_go_to_their_rank_of_the_node_first),
        cmocka_unit_test(codes_do_not_depend_on_threads),
    };

    return cmocka_run_group_tests_name("exec/kernels_codes", tests, NULL, NULL);
}
