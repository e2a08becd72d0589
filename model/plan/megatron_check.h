/* megatron_check.h -- what Megatron-LM refuses (training/arguments.py, transformer_config.py, pipeline_parallel/schedules.py of 0.16.1), or
 * what of it is not modelled yet; for plan_check.c and parallel_check.c. */
#ifndef DPX_MEGATRON_CHECK_H
#define DPX_MEGATRON_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 reported with the key named.  Of any plan; of one with parallel.pipeline. */
int megatron_check(const struct plan *p, const char *where);
int megatron_check_pipeline(const struct plan *p, const char *where);

/* What recompute of the attention core costs with Transformer Engine; NULL: nothing to say. */
const char *megatron_note(const struct plan *p);

#endif
