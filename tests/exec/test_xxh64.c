/* test_xxh64.c -- the hash by published values (xxHash's own sanity checks), and what same_run.h promises of files. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/data/xxh64.h"
#include "exec/process/same_run.h"
#include "tests/check.h"

static void values_are_the_published_ones(void **state)
{
    (void)state;
    static const char text[] = "Nobody inspects the spammish repetition";

    assert_true(xxh64("", 0) == 0xef46db3751d8e999u);
    assert_true(xxh64("a", 1) == 0xd24ec4f1a98c6e5bu);
    assert_true(xxh64("abc", 3) == 0x44bc2cf5ad770999u);
    assert_true(xxh64(text, strlen(text)) == 0xfbcea83c8a378bf1u);
}

static void every_byte_counts_at_any_length(void **state)
{
    (void)state;
    unsigned char bytes[100];

    for (size_t n = 1; n <= sizeof bytes; n++)
        for (size_t i = 0; i < n; i++) {
            memset(bytes, 7, sizeof bytes);
            uint64_t before = xxh64(bytes, n);
            bytes[i] ^= 1;
            assert_true(xxh64(bytes, n) != before);
        }
}

static char path[] = "/tmp/dpx-same-XXXXXX";

/* A file of `size` bytes, zeros but for one at `at`. */
static char *hash_with(int64_t size, int64_t at)
{
    FILE *f = fopen(path, "w");
    json_t *j;
    char *text;

    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), size), 0);
    if (at >= 0 && fseek(f, at, SEEK_SET) == 0)
        fputc(1, f);
    assert_int_equal(fclose(f), 0);
    j = same_run_file(path);
    text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

static bool seen(int64_t size, int64_t at)
{
    char *a = hash_with(size, -1), *b = hash_with(size, at);
    bool differs = strcmp(a, b) != 0;

    free(a);
    free(b);
    return differs;
}

#define MiB ((int64_t)1 << 20)

static void every_byte_of_a_file_up_to_64_MiB_is_compared(void **state)
{
    (void)state;

    for (int64_t at = 0; at < 64 * MiB; at += 9 * MiB + 12345)
        assert_true(seen(64 * MiB, at));
    assert_true(seen(64 * MiB, 64 * MiB - 1));
    assert_true(seen(1, 0));
}

/* 257 blocks of 256 KiB of 1 GiB: their distance is (1 GiB - 256 KiB) / 256 = 4 MiB - 1 KiB. */
static void of_a_larger_one_the_begin_the_end_and_blocks_between_are(void **state)
{
    (void)state;

    assert_true(seen(1024 * MiB, 0));
    assert_true(seen(1024 * MiB, 1024 * MiB - 1));
    assert_true(seen(1024 * MiB, 100 * (4 * MiB - 1024)));
    assert_true(seen(1024 * MiB, 100 * (4 * MiB - 1024) + 256 * 1024 - 1));
    assert_false(seen(1024 * MiB, 100 * (4 * MiB - 1024) + 256 * 1024));
}

static void no_file_and_an_unreadable_one_have_a_value_too(void **state)
{
    (void)state;
    json_t *j = same_run_file(NULL);

    assert_true(json_is_null(j));
    j = same_run_file("/nonexistent");
    assert_string_equal(json_string_value(j), "/nonexistent: No such file or directory");
    json_decref(j);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);

    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_published_ones),
        cmocka_unit_test(every_byte_counts_at_any_length),
        cmocka_unit_test(every_byte_of_a_file_up_to_64_MiB_is_compared),
        cmocka_unit_test(of_a_larger_one_the_begin_the_end_and_blocks_between_are),
        cmocka_unit_test(no_file_and_an_unreadable_one_have_a_value_too),
    };
    return cmocka_run_group_tests_name("exec/xxh64", tests, make_file, remove_file);
}
