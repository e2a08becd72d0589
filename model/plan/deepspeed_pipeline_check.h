/* deepspeed_pipeline_check.h -- what a pipeline of DeepSpeed's refuses: for parallel_check.c. */
#ifndef DPX_DEEPSPEED_PIPELINE_CHECK_H
#define DPX_DEEPSPEED_PIPELINE_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 with the key named. */
int deepspeed_check_pipeline(const struct plan *p, const char *where);

#endif
