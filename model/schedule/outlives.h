/* outlives.h -- what a step leaves in its buffers for the next one, and what it leaves that nobody reads.
 *
 *     unsigned char *scratch = outlives_scratch(s, first);     first[b] + i: instance i of family b
 *     ... free(scratch);
 *
 * A buffer that lives between two steps may still hold nothing: DeepSpeed's bucket of gradients is written anew in every step before
 * anything reads it.  Whether that is so follows from the steady schedule: an instance is scratch where each entry that reads or adds to
 * bytes of it comes after entries of the same step that wrote these bytes.  What is not known counts as read: an act without a layout, one
 * that only uses the buffer; and a write that may be left out (OPF_GUARDED) does not count as one. */
#ifndef DPX_OUTLIVES_H
#define DPX_OUTLIVES_H

#include <stdint.h>

#include "model/schedule/schedule.h"

/* 1: scratch between two steps.  `first` has nbufs + 1 places and is filled.  The schedules must be detailed (layouts).  The caller's. */
unsigned char *outlives_scratch(const struct schedules *s, int64_t *first);

/* Bytes of what lives between two steps and is not scratch, in all memories: what a checkpoint of this rank has to hold. */
int64_t outlives_bytes(const struct schedules *s);

#endif
