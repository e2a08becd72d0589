/* pipeline_plot.h -- a pipeline's step drawn: stages as rows, time to the right.
 *
 * A *pass* is a run of entries of the compute stream: the forward or the backward of one micro-step over one chunk,
 * or the optimizer.  A forward goes through its blocks upwards and a backward downwards: where it does not, and where
 * an entry is of a "micro-step", another pass begins. */
#ifndef DPX_PIPELINE_PLOT_H
#define DPX_PIPELINE_PLOT_H

#include "sim/clock/trace.h"

struct pipeline_span {
    char   kind;                    /* 'F', 'B', 'O' */
    int    number;                  /* of its micro-step, where an entry says it; else among those of its kind */
    double start, end;              /* seconds */
};

/* The passes of a stage in order of time; *out is the caller's to free().  Returns how many. */
int64_t pipeline_plot_spans(const struct trace_role *stage, struct pipeline_span **out);

/* One row of `width` columns each: F, f forward and B, b backward (every second pass in lower case), O optimizer. */
void pipeline_plot_print(const struct trace_role *stages, int n, double step_s, int width, FILE *to);

/* The same to a .svg or .png.  0, or -1 with the reason reported. */
int  pipeline_plot_figure(const struct trace_role *stages, int n, double step_s, const char *path);

#endif
