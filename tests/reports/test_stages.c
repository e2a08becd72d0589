/* test_stages.c -- a pipeline in the report: its figure, its bubble in words. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "calib/store/query.h"
#include "calib/store/runs_stages.h"
#include "tests/reports/fixture.h"
#include "tests/reports/report_bed.h"

/* Two stages of a step of 4 s, one micro-step: F 0 to 1, its message 1 to 2 (the receiver has waited for it since 0), F and B
 * of stage 1 from 2 to 3, the message back, called at 3, until 3.5, B until 4. */
static void a_pipeline(struct db *db, int64_t id)
{
    static const struct { int rank; const char *kind, *what, *pass; double start, met, end; } row[] = {
        { 0, "compute", "forward", "forward", 0, NAN, 1 },      { 0, "collective", "send", "message", 1, 1, 2 },
        { 0, "collective", "recv", "message", 2, 3, 3.5 },      { 0, "compute", "backward", "backward", 3.5, NAN, 4 },
        { 2, "collective", "recv", "message", 0, 1, 2 },        { 2, "compute", "forward", "forward", 2, NAN, 2.5 },
        { 2, "compute", "backward", "backward", 2.5, NAN, 3 },  { 2, "collective", "send", "message", 3, 3, 3.5 },
    };
    static const struct run_stage stages[] = { { 0, 0, { 1.5, 1.5, 1 }, { 1.5, 1, 1.5 } }, { 1, 2, { 2, 1, 1 }, { 1.25, 1.25, 1.5 } } };
    enum { N = sizeof row / sizeof *row };
    struct run_entry e[N];

    for (int i = 0; i < N; i++)
        e[i] = (struct run_entry){ .step = 3, .rank = row[i].rank, .position = i, .entry = i, .schedule = "steady",
                                   .stream = strcmp(row[i].kind, "compute") ? "next" : "compute", .kind = row[i].kind,
                                   .what = row[i].what, .unit = "block", .pass = row[i].pass, .start_s = row[i].start,
                                   .end_s = row[i].end, .met_s = row[i].met, .predicted_start_s = row[i].start,
                                   .predicted_end_s = row[i].end };
    assert_int_equal(runs_entries(db, id, e, N), 0);
    assert_int_equal(runs_stages_predicted(db, id, stages, 2), 0);
    assert_int_equal(runs_stages_measured(db, id, stages, 2), 0);
}

/* The drawn spans whose names begin so, in order: "row:from-to ", times to a tenth of a second. */
static int spans_in(const char *svg, const char *title, char *out, size_t size)
{
    double left, top, across, down, from, to, x, y, wide;
    int n = 0;

    assert_int_equal(sscanf(strstr(svg, "data-plot="), "data-plot=\"%lf %lf %lf %lf\" data-x=\"%lf %lf", &left, &top, &across, &down, &from, &to), 6);
    out[0] = '\0';
    for (const char *at = svg, *named; (at = strstr(at, "<rect x=")); at++) {
        if (sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &wide) != 3 || !(named = strchr(at, '>')) ||
            strncmp(named, "><title>", 8) || strncmp(named + 8, title, strlen(title)))
            continue;
        double begin = from + (x - left) / across * (to - from), end = begin + wide / across * (to - from);
        snprintf(out + strlen(out), size - strlen(out), "%.0f:%g-%g ", floor((y - top) / 18), round(10 * begin) / 10, round(10 * end) / 10);
        n++;
    }
    return n;
}

/* Rows: 0 "predicted", 1 and 2 its stages, 3 "measured", 4 and 5 its stages.  A message covers its lane from when both ranks had
 * come; as measured bubble is the rest: stage 0 waits from 2 to 3 (its send has ended), stage 1 from 0 to 1 and at the end.
 * Shares: (1/4 + 1/4)/2 = 25 % predicted, (1.5/4 + 1.5/4)/2 = 37.5 % measured. */
static void stages_have_a_figure_a_table_and_words(void **state)
{
    (void)state;
    static const struct made pipe = { "gpt2", "ddp", "paper", "node7", 4, 1, true, true };
    struct db *db = db_open(in_scratch("pipe.db"));
    char spans[512];

    assert_int_equal(made_run(db, &pipe), 1);
    assert_int_equal(db_exec(db, "UPDATE plan SET document = json_set(document, '$.parallel', json('{\"pipeline\": 2,"
                                 " \"pipeline_schedule\": \"1f1b\"}'))"), 0);
    a_pipeline(db, 1);
    db_close(db);
    assert_int_equal(report_of("pipe.db", "pipe", NULL, 0), 0);
    char *page = slurp(in_scratch("pipe/index.html")), *words = slurp(in_scratch("pipe/summary.md"));
    assert_non_null(strstr(page, "<figure id=\"stages-1\">"));
    assert_non_null(strstr(words, "ddp (paper), pp 2 1f1b, run 1: the bubble was predicted to be **25.0 %** of the stages' time and was "
                                  "**37.5 %**"));
    assert_non_null(strstr(words, "Stage **0** works most, **1.50 s** of **4.00 s**; predicted was stage **1**."));
    free(page);
    free(words);
    char *all = slurp(in_scratch("pipe/figures/stages-1.svg"));
    assert_int_equal(spans_in(all, "forward", spans, sizeof spans), 4);
    assert_string_equal(spans, "1:0-1 2:2-2.5 4:0-1 5:2-2.5 ");
    assert_int_equal(spans_in(all, "messages", spans, sizeof spans), 8);
    assert_string_equal(spans, "1:1-2 1:2-3.5 2:0-2 2:3-3.5 4:1-2 4:3-3.5 5:1-2 5:3-3.5 ");
    assert_int_equal(spans_in(all, "bubble", spans, sizeof spans), 4);
    assert_string_equal(spans, "2:3.5-4 4:2-3 5:0-1 5:3.5-4 ");
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_a_figure_a_table_and_words),
    };

    return cmocka_run_group_tests_name("reports/stages", tests, scratch_make, scratch_remove);
}
