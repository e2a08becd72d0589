/* megatron_experts_check.h -- what Megatron-LM refuses of a mixture of experts, whose experts are Transformer Engine's grouped linear
 * layers, and what of it is not modelled. */
#ifndef DPX_MEGATRON_EXPERTS_CHECK_H
#define DPX_MEGATRON_EXPERTS_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 reported with the key named. */
int megatron_experts_check(const struct plan *p, const char *where);

#endif
