/* loss_check.h -- which losses a plan can have: all, but where logits, or the weight that a loss reads, are not what it takes. */
#ifndef DPX_LOSS_CHECK_H
#define DPX_LOSS_CHECK_H

#include "model/plan/plan.h"

/* NeMo-RL's log-probabilities of logits that are cut by vocabulary. */
bool loss_is_distributed(enum loss_kind loss);
/* Does it read the head's weight itself, so that there are no logits? */
bool loss_is_of_actor(enum loss_kind loss);
bool loss_reads_head(enum loss_kind loss);

/* Does the model hand out a rank's part of the logits, under tensor parallelism? */
bool loss_cuts_logits(const struct plan *p);

/* Of logits_kept: bytes of a micro-step's logits on a rank, 0: none are, or it is a pipeline's schedule that has them (stage_ports.h). */
int64_t loss_kept_bytes(const struct plan *p);

/* The same where they are there from the first head on, and where only until backward ends: of each micro-step. */
int64_t loss_stays_bytes(const struct plan *p);
int64_t loss_leaves_bytes(const struct plan *p);

/* Refuses, with the key named. */
int loss_check(const struct plan *p, const char *where);

#endif
