/* experts_check.h -- which mixtures of experts are planned. */
#ifndef DPX_EXPERTS_CHECK_H
#define DPX_EXPERTS_CHECK_H

#include "model/plan/plan.h"

/* 0; or -1 with what is not planned for a model with experts named: its blocks, its attention, or a key of the plan. */
int experts_check(const struct plan *p, const char *where);

/* The same of parallel.expert; the plan's other degrees are known to divide its ranks. */
int experts_check_ranks(const struct plan *p, const char *where);

/* Why a mixture of experts is not planned with an optimizer: static; NULL: it is. */
const char *experts_optimizer_refused(const struct model *m, enum optimizer o);

/* Which experts compute a token, for people: of a plan, and of a model without one. */
const char *experts_routing_of(const struct plan *p);
const char *experts_routing(const struct model *m);

/* parallel.expert_imbalance at most, of a plan with expert parallelism. */
double experts_most_uneven(const struct plan *p);

/* What the ranks of parallel.expert have and compute, one line; empty without expert parallelism. */
void experts_ranks_words(const struct plan *p, char *to, size_t size);

/* That experts are not packed, where linear layers are; NULL: they are not. */
const char *experts_base_note(const struct plan *p);

/* What is assumed of a plan whose rows do not divide evenly; NULL: nothing. */
const char *experts_note(const struct plan *p);

/* Of a family whose routers transformers loads in fp32, where the plan keeps all parameters in bf16: what differs, in sentences, or NULL. */
const char *experts_router_note(const struct plan *p);

/* Of adapters of experts: what is not known of their time, a sentence, or NULL. */
const char *experts_adapters_note(const struct plan *p);

#endif
