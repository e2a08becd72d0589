/* What dpxplan sweep --json wrote, changed by its structure: a report of it, or one line. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <jansson.h>

#include "base/chart/chart_svg.h"
#include "reports/page/report.h"

const char *const fuzz_words[] = {
    "\"mode\": \"search\"", "\"over\": [\"nodes\"]", "\"over\": [\"seq\", \"nodes\"]", "\"at\": {\"nodes\": 16, \"seq\": \"8k\"}",
    "\"at\": {\"gpu\": \"h100\"}", "\"step_s\": 1e300", "\"low_s\": -1", "\"tokens_per_s\": 0", "\"efficiency\": 0.5",
    "\"memory_bytes\": 9007199254740993", "\"label\": \"<b>'\"", "\"why_not\": \"no\"", "\"verdict\": \"refused\"", "\"cost\": null", NULL
};

static bool has(const uint8_t *data, size_t size, const char *word)
{
    for (size_t i = 0; i + strlen(word) <= size; i++)
        if (!memcmp(data + i, word, strlen(word)))
            return true;
    return false;
}

/* `names`: a point may be called nan. */
static void check(const struct report_sweep *s, bool names)
{
    struct text text = { 0 };
    struct report r;

    report_make(NULL, s, NULL, &r);
    table_csv(r.table[TABLE_SWEEP], &text);
    table_html(r.table[TABLE_SWEEP], &text, 200);
    prose_html(r.words[WORDS_SWEEP], "<p>", "</p>", &text);
    must_hold(text.n > 0 && strlen(text.s) == text.n);
    text.n = 0;
    for (int i = 0; i < r.ncharts; i++)
        for (int look = CHART_FILE; look <= CHART_PAGE; look++)
            chart_svg(r.chart[i], (enum chart_look)look, look == CHART_FILE ? CHART_FILE_WIDTH : CHART_NARROW_WIDTH, &text);
    must_hold(r.ncharts <= 5 && (r.ncharts == 0 || names || (!strstr(text.s, "inf ") && !strstr(text.s, "nan"))));
    text_free(&text);
    report_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, 0, NULL);
    struct report_sweep *s;

    fuzz_quiet();
    if (!j)
        return fuzz_count(data, size, false);
    fuzz_said[0] = '\0';
    s = report_sweep_from(j, "fuzz");
    if (s)
        check(s, has(data, size, "nan") || has(data, size, "inf"));
    else
        must_hold(fuzz_said[0]);
    report_sweep_free(s);
    return fuzz_count(data, size, s != NULL);
}
