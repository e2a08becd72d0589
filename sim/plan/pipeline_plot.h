/* pipeline_plot.h -- a pipeline's step drawn: stages as rows, time to the right, by the passes of passes.h. */
#ifndef DPX_PIPELINE_PLOT_H
#define DPX_PIPELINE_PLOT_H

#include "sim/clock/trace.h"

struct pipeline_span {
    char   kind;                    /* PASS_IS_... */
    int    number;                  /* as struct pass_part */
    double start, end;              /* seconds */
};

/* The passes of a stage in order of time; *out is the caller's to free().  Returns how many. */
int64_t pipeline_plot_spans(const struct trace_role *stage, struct pipeline_span **out);

/* One row of `width` columns each: F, f forward and B, b backward (every second pass in lower case), W, w the second half of
 * backward, O optimizer. */
void pipeline_plot_print(const struct trace_role *stages, int n, double step_s, int width, FILE *to);

/* The same to a .svg.  0, or -1 with the reason reported. */
int  pipeline_plot_figure(const struct trace_role *stages, int n, double step_s, const char *path);

#endif
