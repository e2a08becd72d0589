/* zero_check.h -- what DeepSpeed's ZeRO++ refuses, for plan_check.c only. */
#ifndef DPX_ZERO_CHECK_H
#define DPX_ZERO_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 with the reason reported; `where` names the plan.  Secondary partitions and codes on the wire, as far as the plan alone can
 * tell: sizes are the lowering's. */
int zero_check(const struct plan *p, const char *where);

#endif
