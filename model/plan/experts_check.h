/* experts_check.h -- which mixtures of experts are planned. */
#ifndef DPX_EXPERTS_CHECK_H
#define DPX_EXPERTS_CHECK_H

#include "model/plan/plan.h"

/* Elements of a parameter group of experts, at most: max_group_size of split_params_into_different_moe_groups_for_optimizer(),
 * deepspeed/moe/utils.py of 0.19.6 and 0.19.8. */
#define EXPERTS_DEEPSPEED_GROUP INT64_C(178956971)

/* 0; or -1 with what is not planned for a model with experts named: its blocks, its attention, or a key of the plan. */
int experts_check(const struct plan *p, const char *where);

/* The same of parallel.expert; the plan's other degrees are known to divide its ranks. */
int experts_check_ranks(const struct plan *p, const char *where);

/* Which experts compute a token, for people. */
const char *experts_routing(const struct model *m);

/* What is assumed of a plan whose rows do not divide evenly; NULL: nothing. */
const char *experts_note(const struct plan *p);

#endif
