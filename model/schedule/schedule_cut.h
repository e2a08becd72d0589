/* schedule_cut.h -- communication inside blocks: compute entries are cut where their program has a
 * collective (struct collective of model/program/program.h).
 *
 * An entry of kernels [k0,k1) becomes parts that add up to it.  A part ends behind each kernel that is a
 * collective, and an entry for the collective follows it: it waits for the compute stream as far as it has been
 * issued, hence for the kernel after which it stands.  A part begins with each kernel that is the first to need
 * a collective's result, and waits for that.  Where that kernel is in a later entry of the same pass, that entry
 * waits; where it is behind the pass, or the rest of the pass is not run, the next compute entry waits.
 *
 * The first part allocates the entry's buffers and waits for what the entry waits for; the last part frees
 * its buffers and records its event.  Activations
 * and temporaries are those of the program's spans, which add up as well.  So readers of schedules and lowerings
 * need no case for it. */
#ifndef DPX_SCHEDULE_CUT_H
#define DPX_SCHEDULE_CUT_H

#include "model/schedule/schedule.h"

/* Of finished schedules; nothing where their program has no collectives. */
void schedules_cut(struct schedules *s);

#endif
