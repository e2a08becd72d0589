/* The file that disk is: what was written comes back, nothing is left behind, and what cannot be is said. */
#include "tests/exec/scratch.h"

#include "exec/device/store.h"

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct store *s = store_open(scratch_folder, 1 << 20);
    char in[3000], out[3000];

    assert_non_null(s);
    for (int i = 0; i < 3000; i++)
        in[i] = (char)(i * 7 + i / 256);
    for (int64_t at = 0; at < 5; at++)
        assert_int_equal(store_write(s, at * 200000 + 17, in + 100 * at, 1000 + at), 0);
    for (int64_t at = 4; at >= 0; at--) {
        memset(out, 0, sizeof out);
        assert_int_equal(store_read(s, at * 200000 + 17, out, 1000 + at), 0);
        assert_memory_equal(out, in + 100 * at, (size_t)(1000 + at));
    }
    assert_int_equal(store_bytes_written(s), 5 * 1000 + 0 + 1 + 2 + 3 + 4);
    assert_int_equal(store_bytes_read(s), 5 * 1000 + 0 + 1 + 2 + 3 + 4);
    store_close(s);
}

/* scratch_remove() fails if a file is there; and it has none even while it is open. */
static void the_file_has_no_name(void **state)
{
    (void)state;
    struct store *s = store_open(scratch_folder, 4096);

    assert_non_null(s);
    assert_int_equal(rmdir(scratch_folder), 0);
    assert_int_equal(store_write(s, 0, "abc", 3), 0);
    store_close(s);
    assert_int_equal(mkdir(scratch_folder, 0700), 0);
}

static void reading_beyond_the_end_is_an_error(void **state)
{
    (void)state;
    struct store *s = store_open(scratch_folder, 100);
    char to[64];

    assert_non_null(s);
    assert_int_equal(store_read(s, 36, to, 64), 0);
    capture();
    assert_int_equal(store_read(s, 37, to, 64), -1);
    heard("it ends before that");
    store_close(s);
}

static void a_disk_that_is_too_small_is_found_out_at_once(void **state)
{
    (void)state;
    capture();
    assert_null(store_open(scratch_folder, (int64_t)1 << 60));
    heard("no room for 1152921504606846976 bytes");
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    capture();
    assert_null(store_open("/nowhere/at/all", 100));
    heard("/nowhere/at/all: no file can be made in it: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(the_file_has_no_name),
        cmocka_unit_test(reading_beyond_the_end_is_an_error),
        cmocka_unit_test(a_disk_that_is_too_small_is_found_out_at_once),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests_name("exec/store", tests, scratch_make, scratch_remove);
}
