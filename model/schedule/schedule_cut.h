/* schedule_cut.h -- communication inside blocks: compute entries are cut where their program has a
 * collective (struct collective of model/program/program.h).
 *
 * An entry of kernels [k0,k1) becomes parts that add up to it.  A part ends behind each kernel that is a
 * collective, and an entry for the collective follows it: it waits for the compute stream as far as it has been
 * issued, hence for the kernel after which it stands.  A part begins with each kernel that is the first to need
 * a collective's result, and waits for that.  Where that kernel is in a later entry of the same pass, it is
 * there that the wait is; where it is behind the pass, or the pass is not gone on with, the next compute entry
 * waits.
 *
 * Buffers that the entry allocates come with its first part, those that it frees go with its last; what
 * its first waits for, the first waits for, and the event that it records the last records.  Activations
 * and temporaries are those of the program's spans, which add up as well.  So each reader of schedules has
 * what it had, and collectives besides: none of them knows of the cutting, nor does any lowering. */
#ifndef DPX_SCHEDULE_CUT_H
#define DPX_SCHEDULE_CUT_H

#include "model/schedule/schedule.h"

/* Of finished schedules; nothing where their program has no collectives. */
void schedules_cut(struct schedules *s);

#endif
