/* phases_nemo.h -- what the pages of NeMo-RL share (phases_nemo.c, phases_nemo_known.c, phases_nemo_megatron.c). */
#ifndef DPX_PHASES_NEMO_H
#define DPX_PHASES_NEMO_H

#include "sim/plan/phases_import.h"

/* Notes of keys that NeMo-RL has not, and of those that it has and no plan. */
void nemo_tell_unknown(struct importing *in);
/* ModelOpt's weights, and what vLLM is asked for beside vllm_cfg, that are not planned: -1 reported. */
int  nemo_refuses_beside(struct importing *in);

/* Is "policy" on Megatron-LM? */
bool nemo_is_megatron(const struct importing *in);
/* Its plan, of so many samples a step, `micro` in a micro-step; `own`: --model does not name its model.  0; or -1 reported, and nothing to free. */
int  nemo_megatron(struct importing *in, int64_t samples, int64_t micro, bool own, struct plan *out);

#endif
