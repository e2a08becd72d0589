/* test_sweep.c -- a sweep in the report: every figure is the file's, in its place; what is no sweep is refused. */
#include "tests/check.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tests/reports/report_bed.h"

/* Throughput of a point is 1000 n + seq / 1024, so that each says where it belongs. */
static const char *write_sweep(const char *name, const char *points)
{
    static const char all[] =
        "{ \"at\": { \"seq\": \"2k\", \"nodes\": 1 }, \"label\": \"ddp <b>\", \"gpus\": 8, \"verdict\": \"fits\", \"step_s\": 1.5, "
        "\"low_s\": 1.25, \"high_s\": 1.75, \"tokens_per_s\": 1002, \"efficiency\": 1, \"memory_bytes\": 1048576 },"
        "{ \"at\": { \"seq\": \"2k\", \"nodes\": 16 }, \"label\": \"ddp\", \"gpus\": 128, \"verdict\": \"tight\", \"step_s\": 2.5, "
        "\"low_s\": 2.25, \"high_s\": 2.75, \"tokens_per_s\": 16002, \"efficiency\": 0.75, \"memory_bytes\": 2097152 },"
        "{ \"at\": { \"seq\": \"4k\", \"nodes\": 1 }, \"why_not\": \"no\", \"gpus\": null, \"verdict\": \"refused\", \"step_s\": null, "
        "\"tokens_per_s\": null, \"efficiency\": null, \"memory_bytes\": null }";
    FILE *f = fopen(in_scratch(name), "w");

    assert_non_null(f);
    fprintf(f, "{ \"dpx\": 1, \"mode\": \"eval\", \"over\": [\"seq\", \"nodes\"], \"points\": [%s], \"done\": 3, \"of\": 4 }\n",
            points ? points : all);
    fclose(f);
    return in_scratch(name);
}

static void is_number(double is, double wanted) { assert_true(isnan(wanted) ? isnan(is) : is == wanted); }

static void is_spot(const struct spot *p, double x, double y, double low, double high)
{
    is_number(p->x, x);
    is_number(p->y, y);
    is_number(p->low, low);
    is_number(p->high, high);
}

static void figures_and_table_are_those_of_the_file(void **state)
{
    (void)state;
    struct report_sweep *s = report_sweep_read(write_sweep("sweep.json", NULL));
    struct report r;

    assert_non_null(s);
    report_make(NULL, s, NULL, &r);
    assert_int_equal(r.ncharts, 4);             /* throughput, step, efficiency, memory: no price */
    for (int i = 0; i < r.ncharts; i++) {
        const struct chart *c = r.chart[i];
        if (!strcmp(c->id, "sweep-step_s")) {
            is_spot(&c->series[0].spot[0], 1, 1.5, 1.25, 1.75);
            is_spot(&c->series[0].spot[1], 16, 2.5, 2.25, 2.75);
            is_spot(&c->series[1].spot[0], 1, NAN, NAN, NAN);
            assert_true(c->axis[AXIS_X].log);       /* 1 to 16 */
            assert_string_equal(c->series[0].name, "seq 2k");
        }
        if (!strcmp(c->id, "sweep-tokens_per_s")) {
            is_spot(&c->series[0].spot[0], 1, 1002, NAN, NAN);
            is_spot(&c->series[0].spot[1], 16, 16002, NAN, NAN);
        }
    }
    report_free(&r);
    report_sweep_free(s);
}

static void the_page_says_which_point_is_fastest(void **state)
{
    (void)state;
    struct report_sweep *s = report_sweep_read(write_sweep("sweep.json", NULL));
    struct report r;

    report_make(NULL, s, NULL, &r);
    assert_int_equal(report_write(&r, "", in_scratch("page")), 0);
    char *page = slurp(in_scratch("page/index.html")), *csv = slurp(in_scratch("page/csv/sweep.csv"));
    assert_non_null(strstr(page, "<bdi class=\"name\">seq 2k, nodes 16</bdi>, with <b data-q=\"sweep/2/tokens_per_s\">16.0k tokens/s</b>"));
    assert_non_null(strstr(page, "ddp &lt;b&gt;"));
    assert_null(strstr(page, "From the database"));
    assert_non_null(strstr(csv, "\r\n3,\"seq 4k, nodes 1\",refused,"));
    assert_int_equal(access(in_scratch("page/csv/runs.csv"), F_OK), -1);
    free(page);
    free(csv);
    report_free(&r);
    report_sweep_free(s);
}

static void what_is_no_sweep_is_refused(void **state)
{
    (void)state;
    static const struct { const char *points, *words; } wrong[] = {
        { "", "no \"points\"" },
        { "{ \"at\": { \"seq\": 1 } }", "points[0].at.nodes is neither a number nor a word" },
        { "{ \"at\": { \"seq\": 1, \"nodes\": 1 } }, { \"at\": { \"seq\": 2, \"nodes\": 1 } }, { \"at\": { \"seq\": 1, \"nodes\": 1 } }",
          "points[2] is not where" },
        { "{ \"at\": 7 }", "points[0].at.seq" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        said[0] = '\0';
        assert_null(report_sweep_read(write_sweep("wrong.json", wrong[i].points)));
        if (!strstr(said, wrong[i].words))
            fail_msg("%s instead of %s", said, wrong[i].words);
    }
    assert_null(report_sweep_read(in_scratch("nowhere.json")));
    assert_non_null(strstr(said, "nowhere.json"));
}

int main(void)
{
    const struct CMUnitTest all_tests[] = {
        cmocka_unit_test(figures_and_table_are_those_of_the_file),
        cmocka_unit_test(the_page_says_which_point_is_fastest),
        cmocka_unit_test(what_is_no_sweep_is_refused),
    };

    return cmocka_run_group_tests_name("reports/sweep", all_tests, scratch_make, scratch_remove);
}
