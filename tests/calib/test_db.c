/* test_db.c -- the database file: schema, versions, locks, full disks, damaged files. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <sys/mount.h>

#include "calib/store/query.h"
#include "calib/store/schema.h"

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A database with one run and two steps, closed. */
static const char *filled(const char *name)
{
    const char *path = in_scratch(name);
    struct run_start start = some_run();
    struct db *db = db_open(path);

    assert_int_equal(record_run(db, &start, 2), 1);
    db_close(db);
    return path;
}

__attribute__((format(printf, 1, 2)))
static void says(const char *format, ...)
{
    char words[200];
    va_list ap;

    va_start(ap, format);
    vsnprintf(words, sizeof words, format, ap);
    va_end(ap);
    if (!strstr(said, words) || strchr(said, '\n'))
        fail_msg("'%s' does not say '%s' in one line", said, words);
}

/* The schema that this program writes. */
#define NOW schema_now.version

static void the_usual_place_is_made(void **state)
{
    (void)state;
    char path[512];
    struct stat s;

    setenv("XDG_DATA_HOME", in_scratch("a/b"), 1);
    db_close(db_open(NULL));
    assert_int_equal(stat(in_scratch("a/b/dpx/dpx.db"), &s), 0);
    unsetenv("XDG_DATA_HOME");
    setenv("HOME", in_scratch("me"), 1);
    db_close(db_open(NULL));
    assert_int_equal(stat(in_scratch("me/.local/share/dpx/dpx.db"), &s), 0);

    setenv("XDG_DATA_HOME", "not/absolute", 1);
    assert_int_equal(db_default_path(path, sizeof path), 0);
    assert_string_equal(path, in_scratch("me/.local/share/dpx/dpx.db"));
    assert_int_equal(db_default_path(path, 10), -1);
    unsetenv("HOME");
    assert_null(db_open(NULL));
    says("neither XDG_DATA_HOME nor HOME");
}

static void a_place_that_cannot_be_is_named(void **state)
{
    (void)state;
    assert_null(db_open(in_scratch("no/such/folder.db")));
    says("No such file or directory");
    assert_null(db_open(""));
    says("path is empty");
    assert_null(db_open(scratch));
    says(scratch);
    assert_null(db_open_reader(in_scratch("none.db")));
    says("No such file or directory");
    assert_int_equal(access(in_scratch("none.db"), F_OK), -1);
}

static void a_new_database_has_the_present_schema(void **state)
{
    (void)state;
    struct db *db = db_open(filled("new.db"));
    struct query q;
    struct texts *t = NULL;
    int64_t v;

    assert_int_equal(db_value(db, "PRAGMA user_version", &v), 0);
    assert_int_equal(v, schema_now.version);
    assert_int_equal(db_value(db, "PRAGMA foreign_keys", &v), 0);
    assert_int_equal(v, 1);
    assert_int_equal(db_value(db, "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND NOT strict"
                                  " AND name NOT LIKE 'sqlite_%'", &v), 0);
    assert_int_equal(v, 0);
    query_open(&q, db, "PRAGMA journal_mode");
    assert_true(query_row(&q));
    assert_string_equal(query_get_text(&q, &t), "wal");
    query_close(&q);
    query_texts_free(t);
    assert_null(db_note(db));
    db_close(db);
}

/* An empty file is what is left of one that was killed before its first commit. */
static void an_empty_file_is_a_new_database(void **state)
{
    (void)state;
    const char *path = in_scratch("empty.db");
    struct run_start start = some_run();
    struct db *db;

    write_file(path, "", 0);
    db = db_open(path);
    assert_int_equal(record_run(db, &start, 1), 1);
    db_close(db);
}

static void every_view_can_be_asked(void **state)
{
    (void)state;
    static const char *const views[] = { "runs", "steps", "phases", "comms", "entries", "calibrations", "measured",
                                         "collectives", "overlaps", "fits" };
    struct db *db = db_open_reader(filled("views.db"));
    char sql[64];
    int64_t v;

    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        snprintf(sql, sizeof sql, "SELECT count(*) FROM (SELECT * FROM %s)", views[i]);
        assert_int_equal(db_value(db, sql, &v), 0);
    }
    /* Two steps are left of a killed run: one steady, 1.25 s, where 1 s was predicted. */
    assert_int_equal(db_value(db, "SELECT error * 1000 FROM runs", &v), 0);
    assert_int_equal(v, 250);
    assert_int_equal(db_value(db, "SELECT within FROM runs", &v), 0);
    assert_int_equal(v, 1);
    db_close(db);
}

static void a_prediction_cannot_be_mended(void **state)
{
    (void)state;
    struct db *db = db_open(filled("final.db"));

    assert_int_equal(db_exec(db, "UPDATE prediction SET step_s = 2"), -1);
    assert_int_equal(db_exec(db, "UPDATE comm SET predicted_bytes = 2"), -1);
    assert_int_equal(db_exec(db, "UPDATE phase SET predicted_s = 2"), -1);
    db_fail(db, "mending");
    says("a prediction is not changed afterwards");
    assert_int_equal(db_exec(db, "DELETE FROM run"), 0);
    assert_int_equal(steps_of(db_path(db), 1), -1);
    db_close(db);
}

static void another_programs_database_is_left_alone(void **state)
{
    (void)state;
    const char *path = in_scratch("other.db");
    struct db *db = db_open(path);

    assert_int_equal(db_exec(db, "PRAGMA application_id = 1234"), 0);
    db_close(db);
    assert_null(db_open(path));
    says("a database of another program");
    assert_null(db_open_reader(path));
    says("a database of another program");
}

static void a_newer_schema_is_refused(void **state)
{
    (void)state;
    const char *path = filled("newer.db");
    struct db *db = db_open(path);

    char later[40];
    snprintf(later, sizeof later, "PRAGMA user_version = %d", NOW + 2);
    assert_int_equal(db_exec(db, later), 0);
    db_close(db);
    assert_null(db_open(path));
    says("has schema %d, made by a newer dpx; this one knows up to %d", NOW + 2, NOW);
    assert_null(db_open_reader(path));
    says("has schema %d", NOW + 2);
}

/* The next version, as it might be: one that works, one with a mistake at its end. */
static void an_older_schema_is_brought_up_in_one_transaction(void **state)
{
    (void)state;
    static const char works[] = "CREATE TABLE next (id INTEGER PRIMARY KEY, machine INTEGER"
                                " REFERENCES machine) STRICT; ALTER TABLE run ADD COLUMN probe_s REAL";
    static const char breaks[] = "CREATE TABLE more (id INTEGER PRIMARY KEY) STRICT;"
                                 "INSERT INTO nowhere VALUES (1)";
    const char *steps[64] = { NULL };           /* those before NOW are not asked for */
    struct db *db = db_open(filled("older.db"));
    int64_t v;

    steps[NOW] = works;
    steps[NOW + 1] = breaks;
    assert_int_equal(schema_upgrade(db, &(struct schema){ .steps = steps, .version = NOW + 2 }), -1);
    says("bringing schema %d to %d: no such table: nowhere", NOW, NOW + 2);
    assert_int_equal(db_value(db, "PRAGMA user_version", &v), 0);
    assert_int_equal(v, NOW);
    assert_int_equal(db_value(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('next', 'more')",
                              &v), 0);
    assert_int_equal(v, 0);

    assert_int_equal(schema_upgrade(db, &(struct schema){ .steps = steps, .version = NOW + 1 }), 0);
    assert_int_equal(db_value(db, "SELECT count(*) + (SELECT count(*) FROM step) FROM next", &v), 0);
    assert_int_equal(v, 2);
    assert_int_equal(db_value(db, "PRAGMA user_version", &v), 0);
    assert_int_equal(v, NOW + 1);
    db_close(db);
    assert_null(db_open(in_scratch("older.db")));
    says("has schema %d", NOW + 1);
}

static void a_reader_does_not_upgrade(void **state)
{
    (void)state;
    const char *const steps[64] = { NULL };
    struct db *db = db_open_reader(filled("reader.db"));

    assert_int_equal(schema_upgrade(db, &(struct schema){ .steps = steps, .version = NOW + 1 }), -1);
    says("has schema %d and needs %d", NOW, NOW + 1);
    assert_int_equal(db_exec(db, "DELETE FROM step"), -1);
    db_close(db);
}

static void what_is_no_database_is_left_alone(void **state)
{
    (void)state;
    static const char text[] = "step,loss\n1,5.5\n2,5.25\n and so on, for more than the hundred bytes of "
                               "a header, so that it is not taken for an empty one\n";
    const char *path = in_scratch("loss.csv");
    char now[256] = "";
    FILE *f;

    write_file(path, text, sizeof text - 1);
    assert_null(db_open(path));
    says("not an SQLite database; nothing was changed");
    assert_null(db_open_reader(path));
    f = fopen(path, "r");
    assert_int_equal(fread(now, 1, sizeof now - 1, f), sizeof text - 1);
    fclose(f);
    assert_string_equal(now, text);
}

static void half_a_database_is_said_to_be_damaged(void **state)
{
    (void)state;
    const char *path = filled("half.db");
    struct stat s;

    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(truncate(path, s.st_size / 2), 0);
    assert_null(db_open(path));
    says("the file is damaged");
    says("nothing was changed");
    assert_null(db_open_reader(path));
    says("the file is damaged");
}

/* Permissions do not stop root. */
static int as_nobody(void)
{
    return geteuid() == 0 ? setgid(65534) || setuid(65534) : 0;
}

static int open_read_only(void)
{
    if (as_nobody() || db_open(in_scratch("locked/read.db")))
        return 1;
    if (!strstr(said, "read-only") && !strstr(said, "Permission denied"))
        return 2;
    if (db_open(in_scratch("locked/new.db")) || (!strstr(said, "read-only") && !strstr(said, "Permission denied")))
        return 4;
    return steps_of(in_scratch("locked/read.db"), 1) == 2 ? 0 : 3;
}

static void a_read_only_place_can_be_read(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_scratch("locked"), 0755), 0);
    assert_int_equal(chmod(filled("locked/read.db"), 0444), 0);
    assert_int_equal(chmod(in_scratch("locked"), 0555), 0);
    assert_int_equal(in_child(open_read_only), 0);
    /* The file may be written, its folder not: there is no place for a log. */
    assert_int_equal(chmod(in_scratch("locked/read.db"), 0666), 0);
    assert_int_equal(in_child(open_read_only), 0);
    assert_int_equal(chmod(in_scratch("locked"), 0755), 0);
}

/* Fills the disk with runs until one fails; what was committed must be there. */
static int fill_disk(void)
{
    struct db *db = db_open(in_scratch("small/full.db"));
    struct run_start start = some_run();
    int64_t n = 0;

    while (db && record_run(db, &start, 10) > 0)
        n++;
    if (!strstr(said, "the disk is full; nothing recorded before is lost"))
        return 1;
    if (n < 5 || steps_of(in_scratch("small/full.db"), n) != 10)
        return 2;
    db_close(db);
    return steps_of(in_scratch("small/full.db"), n) == 10 ? 0 : 3;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    int rc;

    assert_int_equal(mkdir(in_scratch("small"), 0755), 0);
    if (mount("dpx-test", in_scratch("small"), "tmpfs", 0, "size=1m") < 0)
        skip();
    rc = in_child(fill_disk);
    umount(in_scratch("small"));
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_place_is_made),
        cmocka_unit_test(a_place_that_cannot_be_is_named),
        cmocka_unit_test(a_new_database_has_the_present_schema),
        cmocka_unit_test(an_empty_file_is_a_new_database),
        cmocka_unit_test(every_view_can_be_asked),
        cmocka_unit_test(a_prediction_cannot_be_mended),
        cmocka_unit_test(another_programs_database_is_left_alone),
        cmocka_unit_test(a_newer_schema_is_refused),
        cmocka_unit_test(an_older_schema_is_brought_up_in_one_transaction),
        cmocka_unit_test(a_reader_does_not_upgrade),
        cmocka_unit_test(what_is_no_database_is_left_alone),
        cmocka_unit_test(half_a_database_is_said_to_be_damaged),
        cmocka_unit_test(a_read_only_place_can_be_read),
        cmocka_unit_test(a_full_disk_loses_nothing),
    };
    return cmocka_run_group_tests_name("calib/db", tests, scratch_make, scratch_remove);
}
