/* snapshot.h -- a plan's step as PyTorch's memory snapshot: what torch.cuda.memory._dump_snapshot() would write, for
 * pytorch.org/memory_viz and torch.cuda._memory_viz. */
#ifndef DPX_SNAPSHOT_H
#define DPX_SNAPSHOT_H

#include "model/memory/overhead.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

/* Into a pickle.  In the place of Python's stack each request has the schedule's entry: its words, its schedule, its number.
 * 0, or -1 with the reason reported: a plan without PyTorch's allocator, or a file that cannot be written. */
int snapshot_write(const struct plan *p, const struct schedules *s, const struct overhead *o, const char *path);

#endif
