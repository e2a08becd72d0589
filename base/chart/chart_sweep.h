/* chart_sweep.h -- a sweep as a figure: one column over the last axis, a curve for each combination of the others.
 *
 *     struct chart_sweep s = { .naxes = 2, .key = keys, .value = values, .n = counts, .points = 40, .at = look, .of = &rows };
 *     struct chart *c = chart_sweep(&s, "throughput", "Tokens a second", "", "tokens/s", UNIT_TOKENS_S);
 *
 * Numbers lie where they are, on a logarithmic axis where they span a factor of 16; words lie side by side.  Throughput over a
 * wide axis has a logarithmic axis, too: a straight line where it scales. */
#ifndef DPX_CHART_SWEEP_H
#define DPX_CHART_SWEEP_H

#include "base/chart/chart.h"

enum { CHART_SWEEP_AXES = 8, CHART_SWEEP_SERIES = 10 };

struct chart_sweep {
    int naxes;
    const char *key[CHART_SWEEP_AXES];              /* as it was typed: "nodes" */
    const char *const *value[CHART_SWEEP_AXES];
    int n[CHART_SWEEP_AXES];
    int64_t points;                                 /* that there are; the last axis runs fastest */
    /* The column at a point, with NaN for what there is not: a gap in its curve. */
    struct spot (*at)(void *of, int64_t point);
    void *of;
};

/* A new chart of the first ten curves; its caption says so where there are more. */
struct chart *chart_sweep(const struct chart_sweep *s, const char *id, const char *title, const char *caption, const char *y,
                          enum measure unit);

/* "nodes 4, seq 8192": the point's place on the axes from..to. */
void chart_sweep_place(const struct chart_sweep *s, int64_t point, int from, int to, char *out, size_t size);

/* A value of an axis as a number, 8k as 8192; false: it is a word. */
bool chart_sweep_number(const char *text, double *out);

#endif
