#include "tests/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/fail.h"
#include "model/files.h"

static char folder[] = "/tmp/dpx-files-XXXXXX", path[64], link_path[64], beside[64];

static int write_text(const char *to, const char *text)
{
    struct output o;

    if (output_open(&o, to) < 0)
        return -1;
    fputs(text, o.f);
    return output_close(&o);
}

static void holds(const char *file, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(file, "r");

    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static void a_whole_file_takes_the_old_ones_place(void **state)
{
    (void)state;
    struct output o;

    assert_int_equal(write_text(path, "old"), 0);
    assert_int_equal(output_open(&o, path), 0);
    fputs("new", o.f);
    fflush(o.f);
    holds(path, "old");                 /* until it is complete */
    assert_int_equal(output_close(&o), 0);
    holds(path, "new");
    assert_int_equal(access(beside, F_OK), -1);
}

/* json.dumps writes what JSON has no numbers for; inside strings the words are words. */
static void pythons_infinities_are_read_outside_of_strings(void **state)
{
    char why[256];

    (void)state;
    assert_int_equal(write_text(path, "{\"a\": [Infinity, -Infinity,NaN], \"b\": \"NaN, \\\" Infinity,\", \"c\": 1,"
                                      "\n\"Infinity\":NaN}"), 0);
    json_t *j = json_read_python(path);
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
        assert_int_equal(write_text(path, bad[i]), 0);
        fail_capture(why, sizeof why);
        assert_null(json_read_python(path));
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "malformed JSON"));
    }
    assert_int_equal(write_text(path, "{\"a\": NaN}"), 0);
    fail_capture(why, sizeof why);
    assert_null(json_read_file(path));          /* our own files are JSON */
    fail_capture(NULL, 0);
}

static void a_symbolic_link_stays_one(void **state)
{
    (void)state;
    struct stat st;

    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(write_text(link_path, "through"), 0);
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    holds(path, "through");
}

/* Renaming onto a device would replace it, which root may. */
static void a_device_stays_a_device(void **state)
{
    (void)state;
    char said[256];
    struct stat st;

    assert_int_equal(write_text("/dev/null", "gone"), 0);
    fail_capture(said, sizeof said);
    assert_int_equal(write_text("/dev/full", "no room"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "/dev/full"));
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void read_fails(const char *file, const char *reason)
{
    char said[256];

    fail_capture(said, sizeof said);
    assert_null(json_read_file(file));
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, reason));
}

static void what_cannot_be_read_is_said(void **state)
{
    (void)state;

    read_fails(folder, "Is a directory");
    read_fails("/nonexistent.json", "No such file");
    assert_int_equal(write_text(path, "{\"a\": 1,\n \"a\": 2}"), 0);
    read_fails(path, ":2:4: malformed JSON: duplicate object key");
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(beside, sizeof beside, "%s/a.tmp", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(link_path);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_takes_the_old_ones_place),
        cmocka_unit_test(pythons_infinities_are_read_outside_of_strings),
        cmocka_unit_test(a_symbolic_link_stays_one),
        cmocka_unit_test(a_device_stays_a_device),
        cmocka_unit_test(what_cannot_be_read_is_said),
    };
    return cmocka_run_group_tests_name("model/files", tests, make_folder, remove_folder);
}
