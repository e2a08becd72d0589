/* Casts to 8-bit floats and their scales against torch's and torchao's (tests/golden/float8/casts.jsonl, record_casts.py). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "exec/kernels/fp8.h"
#include "tests/check.h"

#define GOLDEN "tests/golden/float8/casts.jsonl"

/* How many numbers of so many hexadecimal digits the line has under that name, and the i-th. */
static size_t count(const json_t *line, const char *key, size_t digits) { return strlen(json_string_value(json_object_get(line, key))) / digits; }

static uint32_t at(const json_t *line, const char *key, size_t digits, size_t i)
{
    char word[9] = "";

    memcpy(word, json_string_value(json_object_get(line, key)) + digits * i, digits);
    return (uint32_t)strtoul(word, NULL, 16);
}

static void same(const char *what, size_t i, uint32_t got, uint32_t want)
{
    if (got != want)
        fail_msg("%s %zu: %x, there %x", what, i, got, want);
}

static void one_format(const struct fp8_kind *t, const json_t *line)
{
    assert_int_equal(count(line, "codes", 8), 256);
    for (size_t i = 0; i < 256; i++) {
        float f = fp8_decode(t, (uint8_t)i), want = fp8_of_bits(at(line, "codes", 8, i));
        if (!isnan(f) || !isnan(want))
            same("code", i, fp8_bits(f), fp8_bits(want));
        if (!isnan(f))
            same("code there and back", i, fp8_encode(t, f), (uint32_t)i);
    }
    assert_true(count(line, "x", 8) > 700);
    for (size_t i = 0; i < count(line, "x", 8); i++) {
        float x = fp8_of_bits(at(line, "x", 8, i));
        uint32_t sign = isnan(x) ? 0x7f : 0xff;
        same("cast", i, fp8_encode(t, x) & sign, at(line, "cast", 2, i) & sign);
        same("saturated", i, fp8_saturated(t, x) & sign, at(line, "saturated", 2, i) & sign);
    }
    assert_true(count(line, "amax", 8) > 200);
    for (size_t i = 0; i < count(line, "amax", 8); i++) {
        float amax = fp8_of_bits(at(line, "amax", 8, i));
        same("scale", i, fp8_bits(fp8_scale(t, amax, 0)), at(line, "scale", 8, i));
        same("power of two", i, fp8_bits(fp8_scale(t, amax, 1)), at(line, "power", 8, i));
    }
}

static void casts_and_scales_are_torchs(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    (void)state;

    assert_non_null(f);
    for (int i = 0; i < 2; i++) {
        json_t *line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(line);
        assert_string_equal(json_string_value(json_object_get(line, "format")), i ? "e5m2" : "e4m3");
        one_format(i ? &fp8_e5m2 : &fp8_e4m3, line);
        json_decref(line);
    }
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(casts_and_scales_are_torchs) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
