/* recorded_check.h -- what can be planned of a recorded model (model/arch/recorded.h). */
#ifndef DPX_RECORDED_CHECK_H
#define DPX_RECORDED_CHECK_H

#include "model/arch/recorded.h"
#include "model/plan/plan.h"

/* The precision of the program that a plan runs: "bf16", "autocast", "fp32"; another name is not recorded. */
const char *recorded_precision(const struct plan *p);

/* What of that program backward runs again; recomputes that are never recorded are nothing here, and refused. */
enum rec_again recorded_again(const struct plan *p);

/* Does it run the program that was recorded under the hooks of DeepSpeed's stage 3? */
bool recorded_stage3(const struct plan *p);

/* Refuses, with the key named, what its recording cannot answer.  0 where the model is of a family. */
int recorded_check(const struct plan *p, const char *where);

/* The dtype of what a unit hands on to the next. */
enum dtype recorded_hands(const struct plan *p);

#endif
