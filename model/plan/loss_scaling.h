/* loss_scaling.h -- how a framework moves the number that the loss is multiplied with in fp16, so that small gradients do not vanish.
 *
 *     torch       torch.amp.GradScaler (2.15): an overflow halves it; 2000 steps in a row without one double it.  Also of the papers
 *     deepspeed   fp16's defaults of 0.19.8 (runtime/fp16/loss_scaler.py, DynamicLossScaler): the first overflow is let pass
 *                 (hysteresis 2), each further one halves it, and at 1 ends the run; every 1000 steps since the last overflow
 *                 it doubles, and one is let pass again.  Stage 0 (fp16/fused_optimizer.py): none is let pass, at 1 it stays
 *
 * All begin at 2^16, and a step with overflow leaves weights and optimizer states as they were. */
#ifndef DPX_LOSS_SCALING_H
#define DPX_LOSS_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "model/plan/plan.h"

enum loss_scaling_rule { LOSS_SCALING_TORCH, LOSS_SCALING_DEEPSPEED, LOSS_SCALING_DEEPSPEED_0, NLOSS_SCALING_RULE };

/* Doubled, up to `most`, after every `window` steps without overflow, of which the first `uncounted` do not count; `passes` overflows
 * are let pass; no lower than `least`, where one more `ends` the run. */
struct loss_scaling { int64_t window, uncounted, passes; double least, most; bool ends; };

#define LOSS_SCALING_FIRST 0x1p16

const struct loss_scaling *loss_scaling_rule(enum loss_scaling_rule rule);
const struct loss_scaling *loss_scaling_of(const struct plan *p);

#endif
