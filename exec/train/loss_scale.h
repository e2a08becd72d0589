/* loss_scale.h -- what the loss is multiplied with in fp16, so that small gradients do not vanish: as much as overflow lets it be.
 *
 *     torch       torch.amp.GradScaler (2.15): an overflow halves it; 2000 steps in a row without one double it
 *     deepspeed   fp16's defaults of 0.19.8 (runtime/fp16/loss_scaler.py, DynamicLossScaler): the first overflow is let pass
 *                 (hysteresis 2), each further one halves it, and at 1 ends the run; every 1000 steps since the last overflow
 *                 it doubles, and one is let pass again.  Stage 0 (fp16/fused_optimizer.py): none is let pass, at 1 it stays
 *
 * All begin at 2^16, and a step with overflow leaves weights and optimizer states as they were. */
#ifndef DPX_LOSS_SCALE_H
#define DPX_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

enum loss_scale_rule { LOSS_SCALE_TORCH, LOSS_SCALE_DEEPSPEED, LOSS_SCALE_DEEPSPEED_0, NLOSS_SCALE_RULE };

#define LOSS_SCALE_FIRST 0x1p16

struct loss_scale {
    enum loss_scale_rule rule;
    double  scale;                  /* of the next step */
    int64_t since;                  /* steps without overflow since the last one, or since the first step */
    int64_t lets_pass;              /* overflows that cost nothing */
    int64_t skipped;                /* steps with overflow, all together */
};

struct loss_scale loss_scale_new(enum loss_scale_rule rule, double first);

/* After a step.  0, or -1 reported: the rule goes no lower. */
int loss_scale_next(struct loss_scale *l, bool overflow);

#endif
