/* elsewhere.h -- the usual ways to keep a plan's states elsewhere than in device memory, by the names of its cell's knobs.
 *
 * DeepSpeed's ZeRO-Offload and ZeRO-Infinity, FSDP's CPU offload. */
#ifndef DPX_ELSEWHERE_H
#define DPX_ELSEWHERE_H

#include <stdbool.h>

#include "model/plan/plan.h"

enum elsewhere {
    ELSEWHERE_NOTHING,
    ELSEWHERE_OPTIMIZER,        /* optimizer states in host memory; FSDP's, which takes parameters along */
    ELSEWHERE_ALL,              /* parameters as well */
    ELSEWHERE_DISK,             /* both in files, in the folder that DeepSpeed's documentation names, with buffers that
                                 * hold the largest partition */
    NELSEWHERE
};

extern const char *const elsewhere_words[];     /* "none", "optimizer", "all", "nvme", ended by NULL */

/* Has a strategy of a dialect such a way? */
bool elsewhere_has(enum strategy s, enum dialect d, enum elsewhere how);

/* Changes the plan; false, with nothing changed, where its cell has no such way. */
bool elsewhere_set(struct plan *p, enum elsewhere how);

/* What such a plan still needs where it is launched, in one sentence, or NULL. */
const char *elsewhere_note(const struct plan *p);

#endif
