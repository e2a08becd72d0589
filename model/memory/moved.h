/* moved.h -- bytes that a schedule copies from one memory to another: over PCIe, within host memory, to files and back. */
#ifndef DPX_MOVED_H
#define DPX_MOVED_H

#include "model/schedule/schedule.h"

struct moved { int64_t count, bytes; };             /* copies, and what they write */
struct moved_table { struct moved of[NSPACE][NSPACE]; };    /* [from][to] */

/* Whether an entry is a copy between buffers of two memories; from which to which.  Copies of what is no buffer of the
 * schedule (a module that moves to the device) are none, nor are those whose work is part of another entry. */
bool moved_buffers(const struct schedules *s, const struct op *o, enum space *from, enum space *to);

/* Adds `times` runs of a schedule, repeats included. */
void moved_add(const struct schedules *s, enum sched_id id, int64_t times, struct moved_table *to);

#endif
