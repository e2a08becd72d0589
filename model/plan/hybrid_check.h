/* hybrid_check.h -- what is refused of models whose blocks have one mixer each (hybrid.h); for plan_check.c. */
#ifndef DPX_HYBRID_CHECK_H
#define DPX_HYBRID_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 reported with the key named. */
int hybrid_check(const struct plan *p, const char *where);

#endif
