/* megatron_states.h -- what Adam keeps of a parameter in dialect megatron, as --use-precision-aware-optimizer has it.
 *
 * Sources: megatron-core 0.16.1, optimizer/optimizer_config.py, optimizer/__init__.py, distrib_optimizer.py; Transformer Engine 2.x,
 * pytorch/optimizers/fused_adam.py (_initialize_state(), step()), pytorch/csrc/quantizer.cpp.  Without it: fp32 parameters and two
 * moments in fp32, of which FusedAdam is given the first. */
#ifndef DPX_MEGATRON_STATES_H
#define DPX_MEGATRON_STATES_H

#include "model/plan/plan.h"

/* FusedAdam keeps the main parameters itself and reads gradients from their buffer (use_precision_aware_optimizer_no_fp8_or_ds_fp8):
 * with the precision-aware optimizer, but for fp8 recipes that scale at once beside fp32 parameters. */
bool megatron_adam_has_main(const struct plan *p);

/* Bytes an element of the main parameters: 4; fp16, or what bf16 parameters lack of fp32 (store_param_remainders): 2. */
int megatron_main_bytes(const struct plan *p);

/* Bytes an element of a moment: 4, 2 or 1; an 8-bit one is a Float8Tensor, which has a turned copy on GPUs whose products take rows of both
 * operands (is_non_tn_fp8_gemm_supported(): all but 10.0 to 11.x): 2. */
int megatron_moment_bytes(const struct plan *p, enum adam_state s);

/* Formats of main parameters and the two moments that a step turns to fp32 and back. */
int megatron_narrow_states(const struct plan *p, enum adam_state of[3]);

#endif
