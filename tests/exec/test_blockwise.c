/* Codes in blocks against bitsandbytes' (tests/golden/tune/codes.jsonl): its tables, weights in NF4, AdamW with moments in 8 bits; and what
 * rounding may cost, by arithmetic. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/kernels/blockwise.h"
#include "exec/kernels/blockwise_code.h"
#include "tests/exec/kernels_check.h"

#define GOLDEN "tests/golden/tune/codes.jsonl"

static struct both open_for(int threads)
{
    return open_both(&(struct kernels_need){ .n = 1, .widest_in = 1, .widest_out = 1, .vocab = 1, .seq = 1, .dim = 1,
                                             .threads = threads });
}

/* record_codes.py's numbers(). */
static float number(int64_t seed, int64_t i)
{
    uint64_t h = ((uint64_t)i * 2654435761 + (uint64_t)seed * 40503) & 0xffffffff;

    h = ((h ^ h >> 15) * 2246822519) & 0xffffffff;
    float x = (float)((int64_t)(h >> 8) - (1 << 23)) * 0x1p-23f;
    return x * x * x;
}

static float *numbers(int64_t seed, int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = number(seed, i);
    return x;
}

static int64_t integer(const json_t *c, const char *key) { return json_integer_value(json_object_get(c, key)); }

/* Bytes that the line has in hexadecimal are these. */
static void same_codes(const json_t *c, const char *key, const uint8_t *got, int64_t n)
{
    const char *want = json_string_value(json_object_get(c, key));
    unsigned byte;

    assert_int_equal(strlen(want), 2 * n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(sscanf(want + 2 * i, "%2x", &byte), 1);
        if (byte != got[i])
            fail_msg("%s of %s, %lld numbers: byte %lld is %d, there %u", key, json_string_value(json_object_get(c, "what")),
                     (long long)integer(c, "n"), (long long)i, got[i], byte);
    }
}

static void same_floats(const json_t *c, const char *key, const float *got, double within)
{
    const json_t *want = json_object_get(c, key);

    for (size_t i = 0; i < json_array_size(want); i++) {
        double w = json_real_value(json_array_get(want, i));
        if (!(fabs((double)got[i] - w) <= within * fabs(w)))
            fail_msg("%s[%zu] of %s is %.9g, there %.9g", key, i, json_string_value(json_object_get(c, "what")), (double)got[i], w);
    }
}

static void check_map(const json_t *c)
{
    assert_int_equal(json_array_size(json_object_get(c, "values")), 256);
    same_floats(c, "values", blockwise_map(json_is_true(json_object_get(c, "signed"))), 0);
}

/* Parts with nothing between them. */
static struct packed_weight weight_new(int64_t n, bool coded)
{
    int64_t blocks = ceil_div(n, 64);

    return (struct packed_weight){ .n = n, .codes = calloc((size_t)ceil_div(n, 2), 1), .coded = coded ? calloc((size_t)blocks, 1) : NULL,
                                   .maxima = calloc((size_t)blocks, 4), .map = calloc(256, 4), .mean = calloc(1, 4), .values = calloc(16, 4) };
}

static void weight_free(struct packed_weight *w)
{
    void *all[] = { w->codes, w->coded, w->maxima, w->map, w->mean, w->values };

    for (int i = 0; i < 6; i++)
        free(all[i]);
}

static void check_nf4(const json_t *c, bool coded)
{
    int64_t n = integer(c, "n");
    float *x = numbers(integer(c, "seed"), n), *back = calloc((size_t)n, sizeof *back);
    struct packed_weight w = weight_new(n, coded);
    struct both b = open_for(2);

    assert_int_equal(b.host.ops->pack(b.host.k, &w, x), 0);
    same_codes(c, "codes", w.codes, ceil_div(n, 2));
    if (coded) {
        same_codes(c, "coded", w.coded, ceil_div(n, 64));
        assert_close((double)*w.mean, json_real_value(json_object_get(c, "mean")), 2e-7);
    }
    same_floats(c, "maxima", w.maxima, coded ? 1e-6 : 0);
    assert_int_equal(b.host.ops->unpack(b.host.k, &w, back, DT_FP32), 0);
    same_floats(c, "back", back, 0);
    weight_free(&w);
    close_both(&b);
    free(x);
    free(back);
}

static void check_adamw8(const json_t *c)
{
    int64_t n = integer(c, "n"), seed = integer(c, "seed"), blocks = ceil_div(n, 256);
    struct adamw a = { .lr = json_real_value(json_object_get(c, "lr")), .beta1 = json_real_value(json_object_get(c, "beta1")),
                       .beta2 = json_real_value(json_object_get(c, "beta2")), .eps = json_real_value(json_object_get(c, "eps")),
                       .weight_decay = json_real_value(json_object_get(c, "weight_decay")), .grad_scale = 1 };
    struct adamw8 s = { n, numbers(seed, n), calloc((size_t)n, 1), calloc((size_t)n, 1), calloc((size_t)blocks, 4), calloc((size_t)blocks, 4) };
    struct both b = open_for(2);

    for (a.step = 1; a.step <= integer(c, "steps"); a.step++) {
        float *g = numbers(seed + 100 * a.step, n);
        assert_int_equal(b.host.ops->adamw8(b.host.k, &a, &s, g, DT_FP32, NULL, DT_FP32), 0);
        free(g);
    }
    same_codes(c, "code1", s.code1, n);
    same_codes(c, "code2", s.code2, n);
    same_floats(c, "max1", s.max1, 1e-6);
    same_floats(c, "max2", s.max2, 1e-6);
    same_floats(c, "p", s.p, 1e-5);
    close_both(&b);
    free(s.p), free(s.code1), free(s.code2), free(s.max1), free(s.max2);
}

static void codes_are_those_of_bitsandbytes(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *c;
    int maps = 0, weights = 0, steps = 0;

    (void)state;
    assert_non_null(json_object_get(head, "bitsandbytes"));
    while ((c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        const char *what = json_string_value(json_object_get(c, "what"));
        if (!strcmp(what, "map"))
            check_map(c), maps++;
        else if (!strcmp(what, "adamw8"))
            check_adamw8(c), steps++;
        else
            check_nf4(c, !strcmp(what, "nf4-double")), weights++;
        json_decref(c);
    }
    assert_true(maps == 2 && weights >= 7 && steps >= 4);
    json_decref(head);
    fclose(f);
}

/* Moments in 32 bits, one step from zero: m = 0.1 g, v = 0.05 g^2, and both corrections cancel: p falls by lr g/|g|, then by the decay. */
static void small_tensors_keep_moments_in_32_bits(void **state)
{
    const struct adamw a = { 0.25, 0.9, 0.95, 0, 0.2, 1, 1 };
    struct both b = open_for(1);
    float p[2] = { 2, 2 }, m[2] = { 0 }, v[2] = { 0 }, g[2] = { -10, 3 };
    uint16_t out[2];
    struct adamw8 s = { 2, p, NULL, NULL, m, v };

    (void)state;
    assert_int_equal(b.host.ops->adamw8(b.host.k, &a, &s, g, DT_FP32, out, DT_BF16), 0);
    assert_close((double)m[0], -1, 1e-6);
    assert_close((double)v[1], 0.45, 1e-6);
    assert_close((double)p[0], 2.25 * 0.95, 1e-6);
    assert_close((double)p[1], 1.75 * 0.95, 1e-6);
    assert_int_equal(out[0], half_to_bf16(p[0]));
    close_both(&b);
}

/* The widest gaps of NF4 are 0.3038 (below -0.6961) and 0.2770; half of that times a block's largest magnitude is the worst. */
static void a_weight_comes_back_within_half_a_gap(void **state)
{
    enum { N = 6400 };
    float *x = numbers(21, N), back[N];
    uint16_t narrow[N];
    struct packed_weight w = weight_new(N, false);
    struct both b = open_for(2);

    (void)state;
    b.host.ops->pack(b.host.k, &w, x);
    b.host.ops->unpack(b.host.k, &w, back, DT_FP32);
    b.ref.ops->unpack(b.ref.k, &w, narrow, DT_BF16);
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(x[i] - back[i]) <= 0.15191f * w.maxima[i / 64]);
        assert_int_equal(narrow[i], half_to_bf16(back[i]));
    }
    weight_free(&w);
    close_both(&b);
    free(x);
}

/* A block of zeros divides by nothing: it stays zeros. */
static void zeros_stay_zeros(void **state)
{
    const struct adamw a = { 0.1, 0.9, 0.95, 1e-8, 0, 1, 1 };
    float p[256] = { 1 }, g[256] = { 0 }, max1 = 0, max2 = 0, x[64] = { 0 }, back[64];
    uint8_t c1[256] = { 0 }, c2[256] = { 0 };
    struct adamw8 s = { 256, p, c1, c2, &max1, &max2 };
    struct packed_weight w = weight_new(64, true);
    struct both b = open_for(1);

    (void)state;
    for (int i = 0; i < 3; i++)
        b.host.ops->adamw8(b.host.k, &a, &s, g, DT_FP32, NULL, DT_FP32);
    assert_true(p[0] >= 1 && p[0] <= 1 && max1 <= 0 && max2 <= 0);
    b.host.ops->pack(b.host.k, &w, x);
    b.host.ops->unpack(b.host.k, &w, back, DT_FP32);
    for (int i = 0; i < 64; i++)
        assert_true(back[i] >= 0 && back[i] <= 0);
    weight_free(&w);
    close_both(&b);
}

static void same_code(bool is_signed, float x)
{
    int got = blockwise_code_of(is_signed, x), want = blockwise_code(blockwise_map(is_signed), x);

    if (got != want)
        fail_msg("%s table: the code of %.9g is %d, by the search %d", is_signed ? "signed" : "unsigned", (double)x, got, want);
}

/* Every 997th float, NaN and infinities among them, and those beside each value and beside each middle of two values. */
static void thresholds_give_the_codes_of_the_search(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const float *map = blockwise_map(is_signed);
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
            uint32_t b = (uint32_t)bits;
            float x;
            memcpy(&x, &b, sizeof x);
            same_code(is_signed, x);
        }
        for (int i = 0; i < 255; i++) {
            float at[] = { map[i], (map[i] + map[i + 1]) * 0.5f, map[i + 1] };
            for (int j = 0; j < 3; j++) {
                same_code(is_signed, nextafterf(at[j], -2));
                same_code(is_signed, at[j]);
                same_code(is_signed, nextafterf(at[j], 2));
            }
        }
        for (int i = 0; i < 6; i++)
            same_code(is_signed, ((const float[]){ 0.0f, -0.0f, 1e-45f, -1e-45f, INFINITY, -INFINITY })[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_bitsandbytes),
        cmocka_unit_test(small_tensors_keep_moments_in_32_bits),
        cmocka_unit_test(a_weight_comes_back_within_half_a_gap),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(thresholds_give_the_codes_of_the_search),
    };

    return cmocka_run_group_tests_name("exec/blockwise", tests, NULL, NULL);
}
