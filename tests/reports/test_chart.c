/* test_chart.c -- charts as SVG: values stand where they belong, nothing short is lost, whatever is written stays text. */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_areas.h"
#include "base/chart/chart_json.h"
#include "base/chart/chart_page.h"

/* The SVG that a request gives, to be freed. */
static char *drawn(const char *request)
{
    static char *answer;

    if (chart_answer(request, &answer) != 0)
        fail_msg("%s: %s", request, answer);
    return answer;
}

/* The n-th number of an attribute; in an answer its quotes are escaped. */
static double of(const char *svg, const char *attribute, int n)
{
    char name[40];
    const char *at;

    snprintf(name, sizeof name, " %s=\\\"", attribute);
    assert_non_null(at = strstr(svg, name));
    at += strlen(name);
    double v[4] = { 0 };
    sscanf(at, "%lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3]);
    return v[n];
}

/* x from 0 to 10 and y from 0 to 100 are round, so that the axes are these; (5, 50) is the middle of the plot. */
static void a_point_stands_where_its_values_are(void **state)
{
    (void)state;
    char *svg = drawn("{\"kind\": \"points\", \"width\": 600, \"x\": {\"unit\": \"seconds\"}, \"y\": {\"unit\": \"seconds\"}, "
                      "\"series\": [{\"spots\": [[5, 50, null, null, 1], [0, 0], [10, 100]]}]}");
    assert_true(of(svg, "data-x", 0) == 0 && of(svg, "data-x", 1) == 10 && of(svg, "data-y", 1) == 100);
    assert_true(fabs(of(svg, "cx", 0) - of(svg, "data-plot", 0) - of(svg, "data-plot", 2) / 2) < 0.1);
    assert_true(fabs(of(svg, "cy", 0) - of(svg, "data-plot", 1) - of(svg, "data-plot", 3) / 2) < 0.1);
    free(svg);
}

/* Of 100,000 moments one holds 1000 bytes, the others 1: it lasts a hundredth of a pixel. */
static void a_peak_shorter_than_a_pixel_is_drawn(void **state)
{
    struct chart *c = chart_new(CHART_XY, "x", "x", "");
    enum { N = 100000, AT = 54321 };
    double *t = calloc(N, sizeof *t), *v = calloc(N, sizeof *v);
    static const char *const names[] = { "params" };
    struct text svg = { 0 };
    char top[32];

    (void)state;
    for (int i = 0; i < N; i++) {
        t[i] = i;
        v[i] = i == AT ? 1000 : 1;
    }
    chart_axis(c, AXIS_Y, "bytes", UNIT_BYTES, false);
    chart_areas(c, &(struct chart_areas){ N, 1, t, v, names, N, 0, NULL });
    chart_svg(c, CHART_FILE, CHART_FILE_WIDTH, &svg);
    const char *peak = strstr(svg.s, "class=\"peak\""), *cy;
    assert_non_null(peak);
    assert_non_null(cy = strstr(peak, "cy=\""));
    snprintf(top, sizeof top, "V%.1fH", strtod(cy + 4, NULL));      /* the area's edge is as high as the mark */
    assert_non_null(strstr(svg.s, top));
    assert_non_null(strstr(svg.s, "params 1000 B"));
    text_free(&svg);
    chart_free(c);
    free(t);
    free(v);
}

/* One value, or two next to each other; linear, close or with ticks (`how`). */
static void check_scale(double v, double w, enum measure u, int how)
{
    struct chart *c = chart_new(CHART_XY, "x", "x", "");
    int s = chart_series(c, "s", 0, MARK_POINTS);
    struct text svg = { 0 };

    chart_axis(c, AXIS_X, "x", u, false);
    chart_axis(c, AXIS_Y, "y", u, false);
    chart_spot(c, s, v, v);
    chart_spot(c, s, w, w);
    c->close = how == 1;
    if (how == 2)
        chart_tick(c, v, "v");
    for (int a = AXIS_X; a <= AXIS_Y; a++) {
        struct scale_of of = chart_scale(c, (enum axis)a);
        double near = 1e-6 * of.step;           /* ends are round numbers: what is so little beyond one does not move it */
        if (!(of.from < of.to && isfinite(of.to - of.from) && of.step > 0 && of.from <= v + near && w - near <= of.to))
            fail_msg("%g and %g, unit %d, axis %d: from %g to %g by %g", v, w, (int)u, a, of.from, of.to, of.step);
    }
    chart_svg(c, CHART_FILE, CHART_FILE_WIDTH, &svg);
    assert_null(strstr(svg.s, "nan"));
    assert_null(strstr(svg.s, "inf"));
    text_free(&svg);
    chart_free(c);
}

/* An axis has two ends also where 1 is less than the last digit of what stands on it. */
static void an_axis_of_one_value_has_two_ends(void **state)
{
    static const enum measure units[] = { UNIT_COUNT, UNIT_BYTES, UNIT_SECONDS, UNIT_SHARE, UNIT_TOKENS_S };

    (void)state;
    for (int power = -99; power < 100; power++)
        for (int sign = -1; sign <= 1; sign += 2)
            for (int k = 0; k < 5 * 3; k++) {
                double v = sign * 9.2 * pow(10, power - (power == 99));
                check_scale(v, v, units[k % 5], k / 5);
                check_scale(v, nextafter(v, INFINITY), units[k % 5], k / 5);
            }
}

static void texts_stay_texts(void **state)
{
    static const char mark[] = "<script>x</script>&\\\" onload=\\\"x";
    char request[1400];

    (void)state;
    for (int file = 0; file < 2; file++) {
        snprintf(request, sizeof request,
                 "{\"kind\": \"bars\", \"width\": 400, \"file\": %s, \"title\": \"%s\", \"caption\": \"%s\", \"x\": {\"label\": \"%s\", \"unit\": \"count\"}, "
                 "\"bars\": [{\"label\": \"%s\", \"words\": \"%s\", \"value\": 1, \"colour\": 2}]}", file ? "true" : "false", mark, mark, mark, mark, mark);
        char *svg = drawn(request);
        assert_null(strstr(svg, "<script"));
        assert_null(strstr(svg, "\\\" onload"));
        assert_non_null(strstr(svg, "&lt;script&gt;"));
        assert_true((strstr(svg, "var(--") == NULL) == (file > 0));
        free(svg);
    }
}

static void what_has_no_value_is_not_drawn(void **state)
{
    (void)state;
    char *svg = drawn("{\"kind\": \"points\", \"width\": 300, \"series\": [{\"line\": true, \"spots\": [[0, null], [1, 2, null, 3], [null, 1], [2, 1e308]]}]}");
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    free(svg);
    svg = drawn("{\"kind\": \"spans\", \"width\": 300}");
    assert_null(strstr(svg, "nan"));
    free(svg);
}

static void what_cannot_be_drawn_is_refused(void **state)
{
    static const char *const wrong[][2] = {
        { "{", "malformed JSON" }, { "[]", "a JSON object" }, { "{\"kind\": \"points\"}", "width" }, { "{\"kind\": \"points\", \"width\": 1e9}", "width" },
        { "{\"kind\": \"pie\", \"width\": 300}", "kind: points, areas, bars or spans" },
        { "{\"kind\": \"bars\", \"width\": 300, \"bars\": {}}", "bars: an array" },
        { "{\"kind\": \"bars\", \"width\": 300, \"bars\": [{\"value\": -1}]}", "value: a number from 0 on" },
        { "{\"kind\": \"bars\", \"width\": 300, \"bars\": [{\"value\": 1, \"colour\": 13}]}", "a colour is 0 to 12" },
        { "{\"kind\": \"bars\", \"width\": 300, \"bars\": [{\"value\": 1, \"colour\": -1}]}", "a colour is 0 to 12" },
        { "{\"kind\": \"spans\", \"width\": 300, \"rows\": [{}], \"spans\": [[1, 0, 0, 1]]}", "[row, colour, from, to]" },
        { "{\"kind\": \"spans\", \"width\": 300, \"rows\": [{}], \"spans\": [[0, 0, 1, 0]]}", "[row, colour, from, to]" },
        { "{\"kind\": \"spans\", \"width\": 300, \"range\": [1, 1]}", "range" },
        { "{\"kind\": \"areas\", \"width\": 300}", "until" },
        { "{\"kind\": \"areas\", \"width\": 300, \"areas\": {\"names\": [\"a\"], \"t\": [1, 0], \"v\": [[1], [1]], \"until\": 1}}", "ascending" },
        { "{\"kind\": \"areas\", \"width\": 300, \"areas\": {\"names\": [\"a\"], \"t\": [0], \"v\": [[1, 2]], \"until\": 1}}", "of each a number" },
        { "{\"kind\": \"points\", \"width\": 300, \"x\": {\"unit\": \"furlongs\"}}", "unit" },
        { "{\"kind\": \"points\", \"width\": 300, \"ticks\": [{\"at\": 2}, {\"at\": 1}]}", "ascending" },
        { "{\"kind\": \"points\", \"width\": 300, \"series\": [{\"spots\": [[1, 2, 3, 4, 999]]}]}", "form" },
        { "{\"kind\": \"points\", \"width\": 300, \"levels\": [{}]}", "levels" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *answer;
        assert_int_equal(chart_answer(wrong[i][0], &answer), 2);
        if (!strstr(answer, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], answer);
        free(answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_stands_where_its_values_are),
        cmocka_unit_test(a_peak_shorter_than_a_pixel_is_drawn),
        cmocka_unit_test(an_axis_of_one_value_has_two_ends),
        cmocka_unit_test(texts_stay_texts),
        cmocka_unit_test(what_has_no_value_is_not_drawn),
        cmocka_unit_test(what_cannot_be_drawn_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
