/* titan_experts.h -- a plan's mixture of experts as torchtitan, and DeepSpeed's AutoEP, register its parameters. */
#ifndef DPX_TITAN_EXPERTS_H
#define DPX_TITAN_EXPERTS_H

#include "model/plan/plan.h"

/* The model of all ranks: transformers' but for its experts, whose gate and up projections are tensors of their own (GroupedExperts of
 * torchtitan b5bcd76c, models/common/moe.py: w1, w2, w3; DeepSpeed's, moe/ep_experts.py, has the same, and its
 * layer registers the router before them).  0, or -1 reported and nothing to free. */
int titan_experts_model(const struct plan *p, struct model *out);

#endif
