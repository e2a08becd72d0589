/* micro_step.h -- repeats of a schedule that are micro-steps, and the one from which on they all ask for the same. */
#ifndef DPX_MICRO_STEP_H
#define DPX_MICRO_STEP_H

#include <stdbool.h>

#include "model/allocator/caching_allocator.h"
#include "model/schedule/schedule.h"

/* Does every iteration of these entries name the same instances? */
bool micro_step_is(const struct schedules *s, int from, int to);
/* Has a micro-step left the counters as they were before it? */
bool micro_step_same(const struct caching_stats *before, const struct caching_stats *after);

#endif
