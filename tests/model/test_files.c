/* test_files.c -- files read whole, and what is no file. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/files.h"

static char folder[] = "/tmp/dpx-files-XXXXXX", path[64];

static void write_text(const char *to, const char *text)
{
    FILE *f = fopen(to, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* json.dumps writes what JSON has no numbers for; inside strings the words are words. */
static void pythons_infinities_are_read_outside_of_strings(void **state)
{
    char why[256];

    (void)state;
    write_text(path, "{\"a\": [Infinity, -Infinity,NaN], \"b\": \"NaN, \\\" Infinity,\", \"c\": 1,"
                                      "\n\"Infinity\":NaN}");
    json_t *j = files_read_json_python(path);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "a"), 0)), "Infinity");
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "a"), 1)), "-Infinity");
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "a"), 2)), "NaN");
    assert_string_equal(json_string_value(json_object_get(j, "b")), "NaN, \" Infinity,");
    assert_string_equal(json_string_value(json_object_get(j, "Infinity")), "NaN");
    assert_int_equal(json_integer_value(json_object_get(j, "c")), 1);
    json_decref(j);

    static const char *const bad[] = { "{\"a\": Infinite}", "{\"a\": NaNs}", "{\"a\": Infinity", "{\"a\": +NaN}", "" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(path, bad[i]);
        fail_capture(why, sizeof why);
        assert_null(files_read_json_python(path));
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "malformed JSON"));
    }
    write_text(path, "{\"a\": NaN}");
    fail_capture(why, sizeof why);
    assert_null(files_read_json_file(path));          /* our own files are JSON */
    fail_capture(NULL, 0);
}

static void read_fails(const char *file, const char *reason)
{
    char said[256];

    fail_capture(said, sizeof said);
    assert_null(files_read_json_file(file));
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, reason));
}

static void what_cannot_be_read_is_said(void **state)
{
    (void)state;

    read_fails(folder, "is a folder, not a regular file");
    read_fails("/nonexistent.json", "No such file");
    write_text(path, "{\"a\": 1,\n \"a\": 2}");
    read_fails(path, ":2:4: malformed JSON: duplicate object key");
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pythons_infinities_are_read_outside_of_strings),
        cmocka_unit_test(what_cannot_be_read_is_said),
    };
    return cmocka_run_group_tests_name("model/files", tests, make_folder, remove_folder);
}
