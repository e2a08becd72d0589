/* test_size.c -- sizes, counts and lengths in text, both ways. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "base/duration.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/room.h"
#include "base/size.h"

#include <string.h>

static char said[256];

static int64_t bytes(const char *text)
{
    int64_t n = -1;

    assert_int_equal(size_parse("--memory", text, &n), 0);
    return n;
}

static int64_t count(const char *text)
{
    int64_t n = -1;

    assert_int_equal(count_parse("--ranks", text, &n), 0);
    return n;
}

/* Refused, with `why` in the message, the option named, and nothing stored. */
static void refused(const char *text, const char *why)
{
    int64_t n = 42;

    fail_capture(said, sizeof said);
    assert_int_equal(size_parse("--memory", text, &n), -1);
    fail_capture(NULL, 0);
    assert_int_equal(n, 42);
    assert_ptr_equal(strstr(said, "--memory: "), said);
    if (!strstr(said, why))
        fail_msg("'%s' gave: %s", text, said);
}

static void units_are_powers_of_1000_and_of_1024(void **state)
{
    (void)state;
    assert_int_equal(bytes("25MiB"), 25 * 1048576);
    assert_int_equal(bytes("80GB"), INT64_C(80000000000));
    assert_int_equal(bytes("80GiB"), INT64_C(80) << 30);
    assert_int_equal(bytes("2TiB"), INT64_C(2) << 40);
    assert_int_equal(bytes("3kB"), 3000);
    assert_int_equal(bytes("3KiB"), 3072);
    assert_int_equal(bytes("7 b"), 7);
    assert_int_equal(bytes("25 mib"), bytes("25MiB"));
}

static void numbers_may_have_points_and_exponents(void **state)
{
    (void)state;
    assert_int_equal(bytes("0"), 0);
    assert_int_equal(bytes("1.5e9"), 1500000000);
    assert_int_equal(bytes("15E+8"), 1500000000);
    assert_int_equal(bytes("1500000e-3"), 1500);
    assert_int_equal(bytes(".5GiB"), INT64_C(1) << 29);
    assert_int_equal(bytes("0.000000001e9"), 1);
    assert_int_equal(count("8B"), INT64_C(8000000000));
    assert_int_equal(count("8.03b"), INT64_C(8030000000));
    assert_int_equal(count("124M"), 124000000);
    assert_int_equal(count("1T"), INT64_C(1000000000000));
}

/* 2^53 + 1 is the first whole number that a double does not hold. */
static void whole_numbers_stay_exact(void **state)
{
    (void)state;
    assert_int_equal(bytes("9007199254740993"), INT64_C(9007199254740993));
    assert_int_equal(bytes("9.007199254740993e15"), INT64_C(9007199254740993));
    assert_int_equal(bytes("999999999999999999"), INT64_C(999999999999999999));
}

static void a_fraction_of_a_unit_is_rounded_to_the_byte(void **state)
{
    (void)state;
    assert_int_equal(bytes("1.3GiB"), 1395864371);      /* 1395864371.2 */
    assert_int_equal(bytes("0.0005kB"), 1);
    assert_int_equal(bytes("0.0004kB"), 0);
}

static void two_to_the_60_is_the_last_size(void **state)
{
    (void)state;
    assert_int_equal(bytes("1152921504606846976"), SIZE_LIMIT);
    assert_int_equal(bytes("1024PiB"), SIZE_LIMIT);
    refused("1152921504606846977", "too large");
    refused("1024.000000000001PiB", "too large");
    refused("18446744073709551617", "too large");       /* 2^64 + 1 would wrap to 1 */
    refused("99999999999999999999999999999999999999999999", "too large");
    refused("1e400", "too large");
    refused("1e99999999999999999999", "too large");
}

static void junk_is_refused(void **state)
{
    (void)state;
    refused("", "not a number");
    refused(".", "not a number");
    refused("+1", "not a number");
    refused(" 1", "not a number");
    refused("nan", "not a number");
    refused("inf", "not a number");
    refused("GiB", "not a number");
    refused("-1", "negative");
    refused("-0", "negative");
    refused("0x10", "unknown unit");
    refused("1.2.3", "unknown unit");
    refused("1e", "unknown unit");
    refused("25M", "unknown unit 'M'");         /* MB or MiB?  5 % apart: ask */
    refused("1GiBs", "unknown unit");
    refused("1.5", "not a whole number");
    refused("1.5B", "not a whole number");
    refused("1e-400", "not a whole number");
}

/* Every option that takes a unit: bytes, counts, lengths, times, numbers, money.  Each reads the value that it proposes. */
static void what_was_meant_is_proposed(void **state)
{
    static const struct { int (*parse)(const char *what, const char *text, int64_t *out); const char *wrote, *meant; } of[] = {
        { size_parse, "80G", "80GB" }, { size_parse, "80 g", "80GB" }, { size_parse, "80gigs", "80GB" }, { size_parse, "80Gi", "80GiB" },
        { size_parse, "1.5T", "1.5TB" }, { size_parse, "512K", "512kB" }, { size_parse, "25M", "25MB" }, { size_parse, "1GiBs", "1GiB" },
        { count_parse, "15trillion", "15T" }, { count_parse, "1.5tn", "1.5T" }, { count_parse, "2Bn", "2B" }, { count_parse, "2G", "2B" },
        { count_parse, "15e12tok", "15e12" }, { count_parse, "10thousand", "10K" }, { count_parse, "3mio", "3M" }, { count_parse, "15TT", "15T" },
        { length_parse, "8kb", "8k" }, { length_parse, "8Ki", "8k" }, { length_parse, "8192tokens", "8192" }, { length_parse, "8192t", "8192" },
    };
    static const struct { const char *wrote, *meant; } times[] = { { "1h30", "90min" }, { "1h30m", "90min" }, { "1:30:00", "90min" }, { "2months", "60d" } };
    char want[64];
    int64_t n;
    double s;
    (void)state;

    fail_capture(said, sizeof said);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(of[i].parse("--x", of[i].wrote, &n), -1);
        snprintf(want, sizeof want, "did you mean %s?", of[i].meant);
        if (!strstr(said, want))
            fail_msg("%s: %s", of[i].wrote, said);
        assert_int_equal(of[i].parse("--x", of[i].meant, &n), 0);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        assert_int_equal(duration_parse("--x", times[i].wrote, &s), -1);
        snprintf(want, sizeof want, "did you mean %s?", times[i].meant);
        if (!strstr(said, want))
            fail_msg("%s: %s", times[i].wrote, said);
        assert_int_equal(duration_parse("--x", times[i].meant, &s), 0);
    }
    assert_int_equal(duration_parse("--x", "2hrs", &s), 0);
    assert_true(s == 7200);
    fail_capture(NULL, 0);
    refused("80,5GB", "with a point");
    refused("80GB/s", "expected bytes");
    refused("80Gbit", "expected bytes");
}

/* A currency is letters or a sign: what else stands beside digits was a wrong price, "2,10" a price of 2. */
static void a_price_is_one_number_and_one_currency(void **state)
{
    static const struct { const char *text; double x; const char *sign; } good[] = {
        { "2.10", 2.1, "" }, { "$2.10", 2.1, "$" }, { "2.10 EUR", 2.1, "EUR" }, { "\u20ac2", 2, "\u20ac" }, { "US$3", 3, "US$" } };
    static const char *const bad[] = { "2,10", "1,000", "2.10/h", "2.10$/h", "2.10 per hour", "2.10%", "2;10", "2'10", "(2)" };
    char sign[8];
    double x;
    (void)state;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(opts_money("--price", good[i].text, &x, &sign), 0);
        assert_true(x == good[i].x);
        assert_string_equal(sign, good[i].sign);
    }
    fail_capture(said, sizeof said);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (opts_money("--price", bad[i], &x, &sign) == 0)
            fail_msg("%s is %g in %s", bad[i], x, sign);
    fail_capture(NULL, 0);
}

static void sizes_print_with_two_decimals(void **state)
{
    (void)state;
    assert_string_equal(size_text(0).s, "0 B");
    assert_string_equal(size_text(1023).s, "1023 B");
    assert_string_equal(size_text(1024).s, "1.00 KiB");
    assert_string_equal(size_text(INT64_C(24) << 30).s, "24.00 GiB");
    assert_string_equal(size_text(INT64_C(80000000000)).s, "74.51 GiB");
    assert_string_equal(size_text(SIZE_LIMIT).s, "1.00 EiB");
    assert_string_equal(size_text(-2048).s, "-2.00 KiB");
}

/* A byte less than a MiB must not print as 1024.00 KiB. */
static void rounding_up_enters_the_next_unit(void **state)
{
    (void)state;
    assert_string_equal(size_text((1 << 20) - 1).s, "1.00 MiB");
    assert_string_equal(size_text((1 << 20) - 1024).s, "1023.00 KiB");
    assert_string_equal(count_text(999999).s, "1.00M");
}

static void counts_print_in_thousands(void **state)
{
    (void)state;
    assert_string_equal(count_text(999).s, "999");
    assert_string_equal(count_text(124439808).s, "124.44M");
    assert_string_equal(count_text(INT64_C(8030261248)).s, "8.03B");
    assert_string_equal(count_text(INT64_C(1000000000000)).s, "1.00T");
}

/* Ten thousand numbers, one by one: each is where it was put, and room at least doubles, so that it moves 14 times at most. */
static void an_array_grows_and_keeps_what_it_has(void **state)
{
    int64_t *a = NULL, room = 0, moves = 0;

    (void)state;
    for (int64_t n = 0; n < 10000; n++) {
        int64_t before = room;
        a = room_for(a, n, &room, sizeof *a);
        assert_true(n < room && (room == before || room >= 2 * before));
        moves += room != before;
        a[n] = n * n;
    }
    for (int64_t n = 0; n < 10000; n++)
        assert_int_equal(a[n], n * n);
    assert_true(moves <= 14);
    assert_ptr_equal(room_for(a, room - 1, &room, sizeof *a), a);
    free(a);
}

static void a_k_of_tokens_is_1024(void **state)
{
    (void)state;
    int64_t n;
    assert_int_equal(length_parse("--seq", "8k", &n), 0);
    assert_int_equal(n, 8192);
    assert_int_equal(length_parse("--seq", "128K", &n), 0);
    assert_int_equal(n, 131072);
    assert_int_equal(length_parse("--seq", "8192", &n), 0);
    assert_int_equal(n, 8192);
    fail_capture((char[256]){ 0 }, 256);
    assert_int_equal(length_parse("--seq", "8B", &n), -1);
    assert_int_equal(length_parse("--seq", "1.3k", &n), -1);     /* 1331.2 */
    fail_capture(NULL, 0);
}

/* --memory 80 would be 80 bytes. */
static void a_memory_without_its_unit_is_refused(void **state)
{
    static const struct { int64_t bytes; const char *says; } cases[] = { { 80, "did you mean 80GB?" }, { 40960, "did you mean 40960MB?" } };

    (void)state;
    fail_capture(said, sizeof said);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(size_too_small("--memory", cases[i].bytes), -1);
        assert_non_null(strstr(said, cases[i].says));
    }
    fail_capture(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_without_its_unit_is_refused),
        cmocka_unit_test(a_k_of_tokens_is_1024),
        cmocka_unit_test(an_array_grows_and_keeps_what_it_has),
        cmocka_unit_test(units_are_powers_of_1000_and_of_1024),
        cmocka_unit_test(numbers_may_have_points_and_exponents),
        cmocka_unit_test(whole_numbers_stay_exact),
        cmocka_unit_test(a_fraction_of_a_unit_is_rounded_to_the_byte),
        cmocka_unit_test(two_to_the_60_is_the_last_size),
        cmocka_unit_test(junk_is_refused),
        cmocka_unit_test(what_was_meant_is_proposed),
        cmocka_unit_test(a_price_is_one_number_and_one_currency),
        cmocka_unit_test(sizes_print_with_two_decimals),
        cmocka_unit_test(rounding_up_enters_the_next_unit),
        cmocka_unit_test(counts_print_in_thousands),
    };
    return cmocka_run_group_tests_name("model/size", tests, NULL, NULL);
}
