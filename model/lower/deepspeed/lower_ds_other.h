/* lower_ds_other.h -- DeepSpeed without its ZeRO optimizer; for lower_*.c only. */
#ifndef DPX_LOWER_DS_OTHER_H
#define DPX_LOWER_DS_OTHER_H

#include "model/lower/deepspeed/lower_ds.h"

/* Stage 0: FP16_Optimizer, or the optimizer itself in fp32. */
int lower_ds_stage0(const struct local_model *local, struct schedules *s);

/* Stage 1 in bf16 with grad_accum_dtype fp32: BF16_Optimizer. */
int lower_ds_bf16(const struct local_model *local, struct schedules *s);

#endif
