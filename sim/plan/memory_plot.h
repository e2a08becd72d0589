/* memory_plot.h -- memory over the entries of a schedule, drawn in a terminal. */
#ifndef DPX_MEMORY_PLOT_H
#define DPX_MEMORY_PLOT_H

#include <stdio.h>

#include "model/schedule/schedule.h"

/* Live bytes (allocated meter) entry by entry, with a line at `limit` bytes
 * (<= 0: none), in so many columns.  Repeats are unrolled up to 65536 entries. */
void memory_plot(const struct schedules *s, enum sched_id id, int64_t before, int64_t limit, int width, FILE *to);

#endif
