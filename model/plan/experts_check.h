/* experts_check.h -- which mixtures of experts are planned. */
#ifndef DPX_EXPERTS_CHECK_H
#define DPX_EXPERTS_CHECK_H

#include "model/plan/plan.h"

/* 0; or -1 with what is not planned for a model with experts named: its blocks, its attention, or a key of the plan. */
int experts_check(const struct plan *p, const char *where);

/* The same of parallel.expert; the plan's other degrees are known to divide its ranks. */
int experts_check_ranks(const struct plan *p, const char *where);

/* Which experts compute a token, for people. */
const char *experts_routing(const struct model *m);

/* What is assumed of a plan whose rows do not divide evenly; NULL: nothing. */
const char *experts_note(const struct plan *p);

#endif
