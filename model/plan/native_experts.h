/* native_experts.h -- DeepSpeed's own mixture, deepspeed.moe.layer.MoE: every expert a module of the model's code. */
#ifndef DPX_NATIVE_EXPERTS_H
#define DPX_NATIVE_EXPERTS_H

#include "model/plan/plan.h"

/* Experts of one rank, at most: torch.cat() and chunk() of more are not followed. */
enum { NATIVE_EXPERTS = 64 };

/* Has the plan it, and not AutoEP? */
bool native_experts_has(const struct plan *p);

/* Of a rank's model, whose experts' three tensors a block are of all its experts: three matrices for each, in registration order (gate, up, down
 * of one, then of the next; Experts of moe/experts.py copies the module that it is given).  `partial` is as struct local_model has it, and
 * grows with the table.  0, or -1 reported. */
int native_experts_split(struct model *m, uint8_t **partial);

#endif
