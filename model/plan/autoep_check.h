/* autoep_check.h -- what DeepSpeed refuses of a mixture of experts, and of AutoEP and its own MoE layer, and what of them is not modelled. */
#ifndef DPX_AUTOEP_CHECK_H
#define DPX_AUTOEP_CHECK_H

#include "model/plan/plan.h"

/* Each 0, or -1 reported with the key named.  Of any mixture; */
int autoep_check(const struct plan *p, const char *where);

/* of one whose experts are shared out over ranks, of which `sharing` have the same. */
int autoep_check_ranks(const struct plan *p, int64_t sharing, const char *where);

#endif
