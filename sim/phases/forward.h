/* forward.h -- a forward without gradients, as the schedule of a training plan has it.
 *
 *     the plan has recompute full and one micro-step: each block's forward then runs without gradients (torch.utils.checkpoint), and
 *     keeps its input alone
 *     struct forward f;
 *     if (evaluate_allocated(&plan, &e) < 0 || forward_of(&plan, &e, &f) < 0)
 *         return 2;
 *
 * Memory is that of the steady schedule's forward entries, less what training alone has: gradients and their buffers, optimizer states, and
 * the inputs that blocks keep for backward, but one.  The head's forward is counted as in training: what it keeps for backward may
 * be freed earlier, so that the figure is an upper bound there.  Time is that until the last of these entries is done.
 *
 * Through a pipeline one micro-step takes all stages' time; the next ones come as fast as the stage that takes longest.  Memory is its fullest
 * stage's. */
#ifndef DPX_FORWARD_H
#define DPX_FORWARD_H

#include "model/plan/plan.h"
#include "sim/price/cost.h"

struct forward {
    int64_t params;                 /* on the device between two forwards */
    int64_t peak;                   /* with them */
    int64_t outside;                /* NCCL */
    int64_t host;                   /* of a node: what the plan itself keeps there (cpu_offload) */
    struct cost time, next;         /* of one micro-step; of each other one behind it */
};

/* What a rank of a training plan holds at the end of its first micro-step's forward, all of its own included. */
struct schedules;
int64_t forward_keeps(const struct schedules *s);

/* Of the plan's evaluation (evaluate_allocated()).  0, or -1 reported. */
struct evaluation;
int forward_of(const struct plan *p, const struct evaluation *e, struct forward *out);

#endif
