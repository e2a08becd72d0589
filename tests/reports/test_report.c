/* test_report.c -- the page, its tables and its sentences against the database they come from.
 *
 *     test_report --write FILE MODEL       leaves a database of made-up runs (for test_page.sh) */
#include "tests/check.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/fail.h"
#include "calib/store/query.h"
#include "reports/page/report.h"
#include "tests/reports/fixture.h"
#include "tests/reports/report_bed.h"

#define NASTY                                                                                                \
    "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>`touch dpx-was-here`'; system('x') "   \
    "%d%n 模型\xE2\x80\xAE"

static void make(const char *name, const char *model, const char *host)
{
    struct db *db = db_open(in_scratch(name));

    if (!db || made_database(db, model, host) < 0)
        fail_msg("%s", said);
    db_close(db);
}

/* ---- every number, from SQL ---- */

static sqlite3 *sql;

/* The first column of the first row; NaN: none, or NULL.  %s of `text` is the first ?, `run` the second. */
static double ask(const char *statement, int64_t run, const char *text)
{
    sqlite3_stmt *s = NULL;
    double v = NAN;

    if (sqlite3_prepare_v2(sql, statement, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", statement, sqlite3_errmsg(sql));
    if (sqlite3_bind_parameter_index(s, ":run"))
        sqlite3_bind_int64(s, sqlite3_bind_parameter_index(s, ":run"), run);
    if (sqlite3_bind_parameter_index(s, ":text"))
        sqlite3_bind_text(s, sqlite3_bind_parameter_index(s, ":text"), text, -1, SQLITE_TRANSIENT);
    if (sqlite3_step(s) == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL)
        v = sqlite3_column_double(s, 0);
    sqlite3_finalize(s);
    return v;
}

/* Where the columns of each table come from: "%s" is the column. */
static const struct source { const char *table, *column, *statement;
} sources[] = {
    { "runs", "step_p10_s", "SELECT step_p10_s FROM run WHERE id = :run" },
    { "runs", "step_p90_s", "SELECT step_p90_s FROM run WHERE id = :run" },
    { "runs", "*", "SELECT %s FROM runs WHERE run = :run" },
    { "plans", "*", "SELECT %s FROM runs WHERE run = :run" },
    { "memory", "run", "SELECT :run" },
    { "memory", "available_bytes", "SELECT available_bytes FROM run WHERE id = :run" },
    { "memory", "rank",
      "SELECT rank FROM part WHERE run = :run AND :text LIKE rank || '.%%' ORDER BY rank DESC" },
    { "memory", "*",
      "SELECT sum(%s) FROM part WHERE run = :run AND :text IN (rank || '.together',"
      " rank || '.' || replace(category, ' ', '_'))" },
    { "comm", "run", "SELECT :run" },
    { "comm", "*",
      "SELECT sum(%s) FROM comm WHERE run = :run AND :text IN ('together',"
      " op || '.' || process_group || '.' || dtype)" },
    { "phases", "run", "SELECT :run" },
    { "phases", "late_s",
      "SELECT sum(measured_s) - sum(predicted_s) FROM phase WHERE run = :run AND :text IN"
      " ('together', replace(name, ' ', '_'))" },
    { "phases", "*",
      "SELECT sum(%s) FROM phase WHERE run = :run AND :text IN ('together', replace(name, ' ', '_'))" },
    { "exposure", "run", "SELECT :run" },
    { "exposure", "step", "SELECT max(step) FROM entry WHERE run = :run AND schedule = 'steady'" },
    { "exposure", "measured_s", "SELECT sum(end_s - start_s) FROM entry WHERE run = :run AND what = :text" },
    { "exposure", "predicted_s",
      "SELECT sum(predicted_end_s - predicted_start_s) FROM entry WHERE run = :run AND what = :text" },
    { "exposure", "share",
      "SELECT sum(end_s - start_s) / (SELECT max(end_s) FROM entry WHERE run = :run)"
      " FROM entry WHERE run = :run AND what = :text" },
    { "exposure", "predicted_share",
      "SELECT sum(predicted_end_s - predicted_start_s) / (SELECT max(predicted_end_s)"
      " FROM entry WHERE run = :run) FROM entry WHERE run = :run AND what = :text" },
    { "exposure", "exposed_s",
      "SELECT sum(end_s - start_s - (SELECT sum(max(0, min(c.end_s, e.end_s)"
      " - max(c.start_s, e.start_s))) FROM entry c WHERE c.run = :run AND c.stream = 'compute'))"
      " FROM entry e WHERE run = :run AND what = :text" },
    { "exposure", "predicted_exposed_s",
      "SELECT sum(predicted_end_s - predicted_start_s - (SELECT sum(max(0,"
      " min(c.predicted_end_s, e.predicted_end_s) - max(c.predicted_start_s, e.predicted_start_s)))"
      " FROM entry c WHERE c.run = :run AND c.stream = 'compute')) FROM entry e WHERE run = :run AND what = "
      ":text" },
    { "steps", "run", "SELECT :run" },
    { "steps", "*", "SELECT %s FROM step WHERE run = :run AND step = :text" },
    { "scaling", "micro_batch",
      "SELECT json_extract(document, '$.micro_batch') FROM run JOIN plan p ON p.id = plan WHERE run.id = "
      ":run" },
    { "scaling", "efficiency",
      "SELECT r.tokens_per_s / r.world_size / (SELECT tokens_per_s FROM runs o WHERE o.world_size"
      " = 1 AND o.strategy = r.strategy AND o.dialect = r.dialect) FROM runs r WHERE run = :run" },
    { "scaling", "*", "SELECT %s FROM runs WHERE run = :run" },
    { "collectives", "*",
      "SELECT %s FROM (SELECT *, us / 1e6 AS median_s FROM collectives) WHERE series = :run" },
    { "fits", "points",
      "SELECT count(*) FROM collectives WHERE op = (SELECT op FROM collectives WHERE series = :run)" },
    { "fits", "ranks", "SELECT ranks FROM collectives WHERE series = :run" },
#define SUMS "FROM (SELECT sum(w) AS w, sum(w * bytes) AS x, sum(w * t) AS y, sum(w * bytes * bytes) AS xx," \
    " sum(w * bytes * t) AS xy FROM (SELECT bytes, us / 1e6 AS t, 1e12 / us / us AS w FROM collectives" \
    " WHERE op = (SELECT op FROM collectives WHERE series = :run)))"
    { "fits", "start_s", "SELECT (y * xx - x * xy) / (w * xx - x * x) " SUMS },
    { "fits", "rate_gbs", "SELECT (w * xx - x * x) / (w * xy - x * y) / 1e9 " SUMS },
    { "gemm", "*", "SELECT %s FROM measured WHERE series = :run" },
    { "facts", "lead",
      "SELECT a / b - 1 FROM (SELECT max(tokens_per_s) AS a, (SELECT tokens_per_s FROM runs WHERE"
      " world_size = 2 ORDER BY tokens_per_s DESC LIMIT 1 OFFSET 1) AS b FROM runs WHERE world_size = 2)" },
    { "facts", "fills",
      "SELECT 1.0 * v.allocated_bytes / available_bytes FROM run JOIN runs v ON v.run = id WHERE id = :run" },
    { "facts", "bar", "SELECT sum(measured_s) FROM phase WHERE run = :run AND measured_s > 0" },
    { "facts", "late", "SELECT 1 / (1 - max(crowd)) - 1 FROM calibration" },
    { "facts", "spread", "SELECT (step_p90_s - step_p10_s) / 2 / step_s FROM run WHERE id = :run" },
};

static double from_sql(const char *table, const char *row, const char *column)
{
    char statement[1200];
    bool fact = !strcmp(table, "facts");
    const char *what = fact ? row : column;
    const char *number = fact ? strchr(row, '.') + 1 : row, *rest = strchr(row, '.');

    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const struct source *s = &sources[i];
        bool same = fact ? !strncmp(s->column, what, strlen(s->column)) : !strcmp(s->column, what);
        if (strcmp(s->table, table) || !(same || !strcmp(s->column, "*")))
            continue;
        snprintf(statement, sizeof statement, s->statement, column);
        return ask(statement, strtoll(number, NULL, 10), rest ? rest + 1 : "");
    }
    fail_msg("the page's %s/%s/%s is in no table", table, row, column);
    return NAN;
}

/* "1.29 s" back into 1.29; *digit: half of its last digit. */
static double value_of(const char *shown_text, double *digit)
{
    static const struct { const char *unit; double is; } units[] = {
        { "KiB", 1024 }, { "MiB", 1048576 }, { "GiB", 1073741824 }, { "TiB", 1099511627776 }, { "ms", 1e-3 },
        { "µs", 1e-6 }, { "ns", 1e-9 }, { "%", 0.01 }, { "k tokens/s", 1e3 }, { "M tokens/s", 1e6 } };
    char *end;
    double v = strtod(shown_text, &end), scale = 1;
    const char *point = memchr(shown_text, '.', (size_t)(end - shown_text));

    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].unit))
            scale = units[i].is;
    *digit = 0.5001 * scale * pow(10, point ? -(double)strspn(point + 1, "0123456789") : 0);
    return v * scale;
}

/* What a number claims to be is what SQL says, to the digit that is shown. */
static void check_number(const char *key, const char *shown_text)
{
    char table[64], row[128], column[64];
    double digit, v = value_of(shown_text, &digit);

    if (sscanf(key, "%63[^/]/%127[^/]/%63[^/]", table, row, column) != 3)
        fail_msg("%s is no place in a table", key);
    double want = from_sql(table, row, column);
    if (!(fabs(v - want) <= digit))
        fail_msg("%s: the page says %s, the database %.9g", key, shown_text, want);
}

/* Calls f for each element of the page that has a text right behind its tag. */
static void each_text(const char *page, void (*f)(const char *tag, const char *text))
{
    static char tag[4096], text[1 << 16];

    for (const char *s = strchr(page, '<'); s; s = strchr(s, '<')) {
        const char *end = strchr(s, '>'), *next = end ? strchr(end, '<') : NULL;
        if (!next)
            return;
        assert_true((size_t)(end - s) < sizeof tag && (size_t)(next - end) < sizeof text);
        snprintf(tag, sizeof tag, "%.*s", (int)(end - s + 1), s);
        snprintf(text, sizeof text, "%.*s", (int)(next - end - 1), end + 1);
        f(tag, text);
        s = next;
    }
}

static int nnumbers;

static void number_in(const char *tag, const char *text)
{
    char key[256];
    const char *q = strstr(tag, "data-q=\"");

    if (!q)
        return;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(q + 8, "\""), q + 8);
    check_number(key, text);
    nnumbers++;
}

/* Digits are allowed in names, ticks, captions and titles, in the names of intervals, and nowhere else
 * without saying where they come from. */
static void no_stray_digit(const char *tag, const char *text)
{
    static const char *const known[] = { "90 %", "10 %", "10th", "90th" };
    static char rest[1 << 16];

    if (strstr(tag, "data-q=") || strstr(tag, "name") || strstr(tag, "class=\"tick\"") ||
        strstr(tag, "class=\"tip") || strstr(tag, "class=\"legend\"") || !strncmp(tag, "<style", 6) ||
        !strncmp(tag, "<title", 6))
        return;
    snprintf(rest, sizeof rest, "%s", text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (char *at; (at = strstr(rest, known[i])); )
            memset(at, 'x', strlen(known[i]));
    for (char *at; (at = strstr(rest, "&#39;")); )
        memset(at, 'x', 5);
    if (strpbrk(rest, "0123456789"))
        fail_msg("a number of no known origin: %s%s", tag, text);
}

static void every_number_is_in_the_database(void **state)
{
    char path[600];

    (void)state;
    make("all.db", "gpt2", "node7");
    assert_int_equal(report_of("all.db", "all", NULL, 0), 0);
    char *page = slurp(in_scratch("all/index.html"));
    snprintf(path, sizeof path, "%s", in_scratch("all.db"));
    assert_int_equal(sqlite3_open_v2(path, &sql, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    nnumbers = 0;
    each_text(page, number_in);
    each_text(page, no_stray_digit);
    assert_true(nnumbers > 400);
    sqlite3_close(sql);
    assert_null(strstr(page, "nan"));
    free(page);
}

/* ---- what the page is ---- */

static void the_page_needs_nothing_else(void **state)
{
    static const char *const figures[] = { "memory",
                                           "collectives-bytes",
                                           "phases",
                                           "scatter",
                                           "scaling-throughput",
                                           "scaling-efficiency",
                                           "scaling-memory",
                                           "pareto",
                                           "loss",
                                           "bandwidth",
                                           "gemm" };
    char name[64];

    (void)state;
    char *page = slurp(in_scratch("all/index.html"));
    assert_null(strstr(page, "http:"));
    assert_null(strstr(page, "https:"));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "url("));
    assert_null(strstr(page, "@import"));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        snprintf(name, sizeof name, "<figure id=\"%s\">", figures[i]);
        if (!strstr(page, name))
            fail_msg("there is no %s", name);
        snprintf(name, sizeof name, "all/figures/%s.svg", figures[i]);
        assert_int_equal(access(in_scratch(name), R_OK), 0);
    }
    assert_non_null(strstr(page, "<figure id=\"timeline-"));
    assert_non_null(strstr(page, "<figure id=\"memory-step-"));
    /* The names of what was done stand behind their boxes. */
    assert_non_null(strstr(page, "<title>all_gather block</title>"));
    free(page);
}

static void the_words_say_which_plan(void **state)
{
    (void)state;
    char *words = slurp(in_scratch("all/summary.md"));
    /* Throughput falls with the run's number in these made-up runs. */
    assert_non_null(strstr(words, "Use ddp (torch), run 1"));
    assert_non_null(strstr(words, "Next is zero1 (torch), run 2"));
    assert_non_null(strstr(words, "run 1 is slower than predicted"));
    assert_non_null(strstr(words, "fsdp (torch), run 5: no prediction was made"));
    free(words);
}

/* "localhost" is written down with the memory that was free then. */
static void free_memory_makes_no_other_plan(void **state)
{
    (void)state;
    static const struct made same = { "gpt2", "ddp", "torch", "node7", 2, 1, true, true };
    struct db *db = db_open(in_scratch("free.db"));
    struct comparison c;
    char change[200];

    for (int i = 1; i <= 2; i++) {
        assert_int_equal(made_run(db, &same), i);
        snprintf(change, sizeof change, "UPDATE plan SET document = json_set(document, '$.cluster.host', json('true'), "
                 "'$.cluster.memory_bytes', %d, '$.cluster.gpu', json('{\"memory_bytes\": %d}')) WHERE id = %d", i, i, i);
        assert_int_equal(db_exec(db, change), 0);
    }
    assert_int_equal(compare_read(db, NULL, 0, &c), 0);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.run[0].rec.row.id, 2);           /* the newest */
    compare_free(&c);
    /* Of GPUs it is what was asked for. */
    assert_int_equal(db_exec(db, "UPDATE plan SET document = json_remove(document, '$.cluster.host')"), 0);
    assert_int_equal(compare_read(db, NULL, 0, &c), 0);
    assert_int_equal(c.n, 2);
    compare_free(&c);
    db_close(db);
}

/* Of 0.8125 s predicted, 0.75 to 0.90625. */
static void nowhere_is_said_only_where_steps_are_close(void **state)
{
    (void)state;
    static const struct made one = { "gpt2", "ddp", "torch", "node7", 2, 1, true, true };
    struct db *db = db_open(in_scratch("close.db"));
    char *words;

    assert_int_equal(made_run(db, &one), 1);
    assert_int_equal(db_exec(db, "UPDATE run SET step_s = 0.8, step_p10_s = 0.79, step_p90_s = 0.81;"
                                 "UPDATE part SET bytes = predicted_bytes WHERE predicted_bytes IS NOT NULL;"
                                 "UPDATE memory SET allocated_bytes = 700000000"), 0);
    assert_int_equal(report_of("close.db", "close", NULL, 0), 0);
    words = slurp(in_scratch("close/summary.md"));
    assert_non_null(strstr(words, "Nowhere: every run's median step lies within"));
    free(words);

    assert_int_equal(db_exec(db, "UPDATE run SET step_s = 0.55, step_p10_s = 0.5"), 0);
    assert_int_equal(report_of("close.db", "close", NULL, 0), 0);
    words = slurp(in_scratch("close/summary.md"));
    assert_null(strstr(words, "Nowhere"));
    assert_non_null(strstr(words, "Steps differ by up to **32.3 %** (faster than predicted: "));      /* 0.55 / 0.8125 - 1 */
    free(words);
    db_close(db);
}

/* Causes follow from the sign, and what all runs lack is said once. */
static void a_faster_run_was_not_on_a_busier_machine(void **state)
{
    (void)state;
    static const char *const strategy[] = { "ddp", "zero1", "fsdp" };
    struct db *db = db_open(in_scratch("sign.db"));
    char *words;

    for (int i = 0; i < 3; i++)
        assert_int_equal(made_run(db, &(struct made){ "gpt2", strategy[i], "torch", "node7", 2, 1, true, true }), i + 1);
    assert_int_equal(report_of("sign.db", "sign", NULL, 0), 0);
    words = slurp(in_scratch("sign/summary.md"));
    const char *once = strstr(words, "All runs: predictions of time rest on datasheet figures");
    assert_non_null(once);
    assert_null(strstr(once + strlen("All runs: predictions of time rest on"), "rest on datasheet"));
    free(words);
    assert_int_equal(db_exec(db, "DROP TRIGGER prediction_is_final; UPDATE prediction SET basis = 'measured';"
                                 "UPDATE run SET step_s = 0.5, step_p10_s = 0.49, step_p90_s = 0.51"), 0);
    assert_int_equal(report_of("sign.db", "sign", NULL, 0), 0);
    words = slurp(in_scratch("sign/summary.md"));
    assert_non_null(strstr(words, "is faster than predicted"));
    assert_null(strstr(words, "busier"));
    free(words);
    db_close(db);
}

/* Where single steps vary by more than two runs differ, none of the two is recommended for its speed. */
static void a_tie_is_no_recommendation(void **state)
{
    (void)state;
    static const char *const strategy[] = { "ddp", "fsdp" };
    struct db *db = db_open(in_scratch("tie.db"));
    char *words;

    for (int i = 0; i < 2; i++)
        assert_int_equal(made_run(db, &(struct made){ "gpt2", strategy[i], "torch", "node7", 2, 1, true, true }), i + 1);
    assert_int_equal(db_exec(db, "UPDATE run SET tokens_per_s = 500 - 10 * id, step_s = 1, step_p10_s = 0.9, step_p90_s = 1.1;"
                                 "UPDATE memory SET allocated_bytes = 700000000 - 100000000 * run"), 0);
    assert_int_equal(report_of("tie.db", "tie", NULL, 0), 0);
    words = slurp(in_scratch("tie/summary.md"));
    assert_non_null(strstr(words, "ddp (torch), run 1 and fsdp (torch), run 2 cannot be told apart by these runs: "));
    assert_non_null(strstr(words, "Use fsdp (torch), run 2, which needs less memory"));
    assert_null(strstr(words, "fastest"));
    free(words);
    assert_int_equal(db_exec(db, "UPDATE run SET step_p10_s = 0.99 * step_s, step_p90_s = 1.005 * step_s, step_s = id"), 0);
    assert_int_equal(db_exec(db, "UPDATE run SET step_p10_s = 0.99 * step_s, step_p90_s = 1.005 * step_s"), 0);
    assert_int_equal(report_of("tie.db", "tie", NULL, 0), 0);
    words = slurp(in_scratch("tie/summary.md"));
    assert_non_null(strstr(words, "Use ddp (torch), run 1: it is the fastest of those that ran"));
    assert_null(strstr(words, "told apart"));
    free(words);
    db_close(db);
}

/* Whether or not a run lies within its interval, which is wide for that very reason. */
static void a_busy_machine_is_said(void **state)
{
    (void)state;
    static const struct made one = { "gpt2", "ddp", "torch", "node7", 2, 1, true, true };
    struct db *db = db_open(in_scratch("busy.db"));
    char *words;

    assert_int_equal(made_run(db, &one), 1);
    assert_int_equal(made_calibration(db, "node7"), 0);
    assert_int_equal(db_exec(db, "UPDATE run SET step_s = 0.8, step_p10_s = 0.79, step_p90_s = 0.81;"
                                 "UPDATE series SET min_s = median_s, samples = 7"), 0);
    assert_int_equal(report_of("busy.db", "busy", NULL, 0), 0);
    words = slurp(in_scratch("busy/summary.md"));
    assert_null(strstr(words, "was busy"));
    assert_null(strstr(words, "used the machine meanwhile"));
    assert_null(strstr(words, "The machine was busy"));
    free(words);
    assert_int_equal(db_exec(db, "UPDATE calibration SET crowd = 0.5; UPDATE run SET step_p10_s = 0.6, step_p90_s = 1"), 0);
    assert_int_equal(report_of("busy.db", "busy", NULL, 0), 0);
    words = slurp(in_scratch("busy/summary.md"));
    assert_non_null(strstr(words, "node7 was busy when it was calibrated: its times are up to **2.00 times** as long as when it is quiet"));
    assert_true(strstr(words, "The machine was busy, as is told below") < strstr(words, "| Plan |"));  /* the verdict says it, too */
    assert_non_null(strstr(words, "The machine was busy, as is told below"));
    assert_non_null(strstr(words, "ddp (torch), run 1: its steps vary by **25.0 %** either way"));      /* (1 - .6) / 2 / .8 */
    free(words);
    db_close(db);
}

/* ---- hostile names ---- */

static const char *const tags[] = {
    "html",  "head",  "meta", "link", "title",    "style",   "body",   "header",   "h1",     "h2",
    "h3",    "p",     "bdi",  "b",    "main",     "section", "ul",     "li",       "figure", "figcaption",
    "svg",   "rect",  "text", "line", "polyline", "polygon", "circle", "div",      "table",  "caption",
    "thead", "tbody", "tr",   "th",   "td",       "span",    "footer", "!DOCTYPE", "g",     "path",
    "use",   "defs",  NULL
};

static void known_tag(const char *tag, const char *text)
{
    const char *name = tag + 1 + (tag[1] == '/');
    size_t n = strcspn(name, " >/");

    (void)text;
    for (int i = 0; tags[i]; i++)
        if (strlen(tags[i]) == n && !strncmp(tags[i], name, n)) {
            for (const char *on = strstr(tag, " on"); on; on = strstr(on + 1, " on"))
                if (on[3 + strspn(on + 3, "abcdefghijklmnopqrstuvwxyz")] == '=')
                    fail_msg("an event in %s", tag);
            return;
        }
    fail_msg("a tag that is not ours: %s", tag);
}

static void no_name_becomes_markup(void **state)
{
    (void)state;
    make("nasty.db", NASTY, "</text><svg onload=x>");
    assert_int_equal(report_of("nasty.db", "nasty", NULL, 0), 0);
    char *page = slurp(in_scratch("nasty/index.html"));
    /* Inside an attribute a '>' would be escaped, so that the tags are those of the page. */
    assert_non_null(strstr(page, "aria-label=\"Memory at"));
    each_text(page, known_tag);
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_non_null(strstr(page, "模型"));
    assert_null(strstr(page, "\xE2\x80\xAE"));
    assert_int_equal(access("dpx-was-here", F_OK), -1);
    assert_int_equal(access(in_scratch("nasty/figures/dpx-was-here"), F_OK), -1);
    free(page);
    char *words = slurp(in_scratch("nasty/summary.md"));
    assert_null(strstr(words, "<script"));
    assert_null(strstr(words, "<img"));
    free(words);
}

/* ---- little, and much ---- */

static void an_empty_database_is_a_page(void **state)
{
    (void)state;
    db_close(db_open(in_scratch("empty.db")));
    assert_int_equal(report_of("empty.db", "empty", NULL, 0), 0);
    char *page = slurp(in_scratch("empty/index.html"));
    assert_non_null(strstr(page, "The database holds no run yet"));
    assert_non_null(strstr(page, "Loss curves: no run recorded a step"));
    free(page);
}

static void one_run_without_a_prediction_is_a_page(void **state)
{
    const struct made one = { "gpt2", "ddp", "torch", "node7", 1, 4, false, true };
    struct db *db = db_open(in_scratch("one.db"));

    (void)state;
    assert_int_equal(made_run(db, &one), 1);
    db_close(db);
    assert_int_equal(report_of("one.db", "one", NULL, 0), 0);
    char *page = slurp(in_scratch("one/index.html"));
    assert_non_null(strstr(page, "Only one plan finished: "));
    assert_non_null(strstr(page, "There is nothing to compare"));
    assert_non_null(strstr(page, "Scaling curves: no plan ran with more than one number of ranks"));
    assert_null(strstr(page, "nan"));
    free(page);
}

static void a_run_that_only_began_is_a_page(void **state)
{
    const struct made one = { "gpt2", "zero3", "paper", "node7", 2, 4, true, false };
    struct db *db = db_open(in_scratch("open.db"));

    (void)state;
    assert_int_equal(made_run(db, &one), 1);
    db_close(db);
    assert_int_equal(report_of("open.db", "open", NULL, 0), 0);
    char *page = slurp(in_scratch("open/index.html"));
    assert_non_null(strstr(page, "none of these runs finished"));
    assert_null(strstr(page, "nan"));
    free(page);
}

/* Sums of what a database holds stay at the largest number: 2^63 - 1, as a double 2^63. */
static void the_largest_counts_do_not_overflow(void **state)
{
    const struct made one = { "gpt2", "ddp", "torch", "node7", 2, 4, true, true };
    struct db *db = db_open(in_scratch("largest.db"));
    sqlite3 *s;

    (void)state;
    assert_int_equal(made_run(db, &one), 1);
    db_close(db);
    assert_int_equal(sqlite3_open(in_scratch("largest.db"), &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, "UPDATE comm SET count = 9223372036854775807, bytes = 9223372036854775807;"
                                     "UPDATE part SET bytes = 9223372036854775807;"
                                     "UPDATE run SET available_bytes = 9223372036854775807", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
    assert_int_equal(report_of("largest.db", "largest", NULL, 0), 0);
    char *csv = slurp(in_scratch("largest/csv/comm.csv")), *together = strstr(csv, "1.together,");
    assert_non_null(together);
    assert_non_null(strstr(together, ",9.2233720368547758e+18,"));
    assert_null(strstr(together, ",-"));
    free(csv);
    csv = slurp(in_scratch("largest/csv/memory.csv"));
    together = strstr(csv, "1.0.together,");
    assert_non_null(together);
    assert_non_null(strstr(together, ",9.2233720368547758e+18,9.2233720368547758e+18\r\n"));
    free(csv);
    char *page = slurp(in_scratch("largest/index.html"));
    assert_null(strstr(page, "-8.00 EiB"));
    free(page);
}

static void runs_can_be_asked_for(void **state)
{
    const int64_t ids[] = { 5, 6, 5 }, none[] = { 99 };
    struct db *db;
    struct comparison c;

    (void)state;
    assert_int_equal(report_of("all.db", "asked", ids, 3), 0);
    char *words = slurp(in_scratch("asked/summary.md"));
    assert_non_null(strstr(words, "No plan is recommended"));      /* two ranks and one */
    free(words);
    db = db_open_reader(in_scratch("all.db"));
    assert_int_equal(compare_read(db, none, 1, &c), -1);
    assert_non_null(strstr(said, "there is no run 99"));
    db_close(db);
}

static int many_runs(sqlite3 *db)
{
    return sqlite3_exec(
        db,
        "BEGIN; WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 10000)"
        " INSERT INTO run (started, machine, plan, world_size, seed, options, outcome, step_s, step_p10_s, "
        "step_p90_s,"
        " tokens_per_s) SELECT started + n, machine, plan, world_size, n, options, outcome, step_s * (1 + n "
        "% 97 / 100.0),"
        " step_p10_s, step_p90_s, tokens_per_s FROM i JOIN run r ON r.id = 1 + n % 4;"
        " INSERT INTO prediction SELECT r.id, basis, step_s * (1 + seed % 13 / 10.0), low_s, high_s, rank, "
        "held_bytes,"
        " allocated_bytes, process_bytes FROM run r JOIN (SELECT run AS of, basis, low_s, high_s, rank, "
        "held_bytes,"
        " allocated_bytes, process_bytes FROM prediction WHERE run = 1) ON r.id > 7;"
        " INSERT INTO step SELECT r.id, step, schedule, loss, seconds, lr, grad_norm, tokens FROM run r JOIN"
        " (SELECT * FROM step WHERE run = 1) ON r.id > 7; COMMIT",
        NULL, NULL, NULL);
}

static void ten_thousand_runs_take_seconds(void **state)
{
    char path[600];

    (void)state;
    make("many.db", "gpt2", "node7");
    snprintf(path, sizeof path, "%s", in_scratch("many.db"));
    assert_int_equal(sqlite3_open(path, &sql), SQLITE_OK);
    assert_int_equal(many_runs(sql), SQLITE_OK);
    assert_true(ask("SELECT count(*) FROM run", 0, "") > 10000);
    sqlite3_close(sql);
    /* Processor time: the machine may be busy with other things. */
    clock_t began = clock();
    assert_int_equal(report_of("many.db", "many", NULL, 0), 0);
    double s = (double)(clock() - began) / CLOCKS_PER_SEC;
    print_message("10,000 runs: %.2f s of processor time\n", s);
    assert_true(s < 5);
}

/* Pinned memory of 1000 bytes, predicted and measured: a row of its own, which the device's sum leaves out. */
static void other_memories_have_rows_of_their_own(void **state)
{
    const struct made one = { "gpt2", "ddp", "torch", "node7", 2, 4, true, true };
    char *csv[2];
    sqlite3 *s;

    (void)state;
    for (int with = 0; with < 2; with++) {
        if (with == 0) {
            struct db *db = db_open(in_scratch("elsewhere.db"));
            assert_int_equal(made_run(db, &one), 1);
            db_close(db);
        } else {
            assert_int_equal(sqlite3_open(in_scratch("elsewhere.db"), &s), SQLITE_OK);
            assert_int_equal(sqlite3_exec(s, "INSERT INTO part VALUES (1, 0, 'pinned memory', 99, 1000, 1000)", NULL, NULL,
                                          NULL), SQLITE_OK);
            sqlite3_close(s);
        }
        assert_int_equal(report_of("elsewhere.db", with ? "elsewhere" : "before", NULL, 0), 0);
        csv[with] = slurp(in_scratch(with ? "elsewhere/csv/memory.csv" : "before/csv/memory.csv"));
    }
    char *was = strstr(csv[0], "1.0.together,"), *is = strstr(csv[1], "1.0.together,");
    assert_non_null(was);
    assert_non_null(is);
    assert_memory_equal(was, is, strcspn(was, "\r\n"));
    assert_null(strstr(csv[0], "pinned"));
    char *row = strstr(csv[1], "1.0.pinned_memory,");
    assert_non_null(row);
    /* And no bound: what a rank may use is of device memory. */
    assert_memory_equal(row + strcspn(row, "\r\n") - strlen(",1000,1000,"), ",1000,1000,", strlen(",1000,1000,"));
    free(csv[0]);
    free(csv[1]);
}

static void a_place_that_cannot_be_written_is_said(void **state)
{
    (void)state;
    assert_int_equal(report_of("empty.db", "empty.db/below", NULL, 0), -1);
    assert_non_null(strstr(said, "empty.db"));
}

static int write_database(const char *path, const char *model)
{
    struct db *db = db_open(path);
    int rc = db ? made_database(db, model, "node7") : -1;

    db_close(db);
    return rc < 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all_tests[] = {
        cmocka_unit_test(every_number_is_in_the_database),
        cmocka_unit_test(the_page_needs_nothing_else),
        cmocka_unit_test(the_words_say_which_plan),
        cmocka_unit_test(free_memory_makes_no_other_plan),
        cmocka_unit_test(nowhere_is_said_only_where_steps_are_close),
        cmocka_unit_test(a_faster_run_was_not_on_a_busier_machine),
        cmocka_unit_test(a_tie_is_no_recommendation),
        cmocka_unit_test(a_busy_machine_is_said),
        cmocka_unit_test(no_name_becomes_markup),
        cmocka_unit_test(an_empty_database_is_a_page),
        cmocka_unit_test(one_run_without_a_prediction_is_a_page),
        cmocka_unit_test(a_run_that_only_began_is_a_page),
        cmocka_unit_test(the_largest_counts_do_not_overflow),
        cmocka_unit_test(runs_can_be_asked_for),
        cmocka_unit_test(ten_thousand_runs_take_seconds),
        cmocka_unit_test(other_memories_have_rows_of_their_own),
        cmocka_unit_test(a_place_that_cannot_be_written_is_said),
    };

    if (argc == 4 && !strcmp(argv[1], "--write"))
        return write_database(argv[2], argv[3]);
    return cmocka_run_group_tests_name("reports/report", all_tests, scratch_make, scratch_remove);
}
