/* trace.h -- one simulated step as a Chrome/Perfetto trace, and as a chart in the
 * terminal. */
#ifndef DPX_TRACE_H
#define DPX_TRACE_H

#include <stdio.h>

#include "sim/clock/timeline.h"

/* A rank that stands for all that do the same, as it ran. */
struct trace_role {
    const struct schedules *s;
    const struct run *r;
    int64_t     before;             /* bytes live when the step begins */
    const char *name;               /* "stage 1"; NULL: "one rank" */
};

/* Roles as processes, streams as rows, entries as slices (microseconds) with their unit, bytes and FLOPs as
 * arguments, counters (`allocated`: in issue order, for each memory that is used, and of device memory by category, too; `held`: by
 * the clock) and the critical path within the role as a flow.  Loads in Perfetto and chrome://tracing.  0, or -1 with the
 * reason reported; what stood in `path` is replaced only by a whole file. */
int trace_write(const struct trace_role *roles, int n, const char *path);

/* Streams as rows, time to the right: what runs in each 1/width of the step. */
void trace_gantt_print(const struct schedules *s, const struct run *r, int width, FILE *to);

#endif
