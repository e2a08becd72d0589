/* loss_scaling.c -- see loss_scaling.h.  torch's scale is fp32; DeepSpeed's is a number of Python's. */
#include "model/plan/loss_scaling.h"

#include <float.h>

#include "model/plan/framework.h"

static const struct loss_scaling rules[NLOSS_SCALING_RULE] = {
    [LOSS_SCALING_TORCH]       = { 2000, 0, 0, FLT_MIN, FLT_MAX, true },
    [LOSS_SCALING_DEEPSPEED]   = { 1000, 1, 1, 1, DBL_MAX, true },
    [LOSS_SCALING_DEEPSPEED_0] = { 1000, 1, 0, 1, DBL_MAX, false },
};

const struct loss_scaling *loss_scaling_rule(enum loss_scaling_rule rule) { return &rules[rule]; }

const struct loss_scaling *loss_scaling_of(const struct plan *p)
{
    return &rules[framework_of(p)->loss_scaling];
}
