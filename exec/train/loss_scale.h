/* loss_scale.h -- what the loss is multiplied with in fp16, step by step: as much as overflow lets it be (model/plan/loss_scaling.h). */
#ifndef DPX_LOSS_SCALE_H
#define DPX_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/plan/loss_scaling.h"

struct loss_scale {
    const struct loss_scaling *rule;
    double  scale;                  /* of the next step */
    int64_t since;                  /* steps without overflow since the last one, or since the first step */
    int64_t lets_pass;              /* overflows that cost nothing */
    int64_t skipped;                /* steps with overflow, all together */
};

struct loss_scale loss_scale_new(const struct loss_scaling *rule, double first);

/* After a step.  0, or -1 reported: the rule goes no lower. */
int loss_scale_next(struct loss_scale *l, bool overflow);

#endif
