/* train_check.h -- what is refused beside adapters, frozen weights and packed bases; for plan_check.c. */
#ifndef DPX_TRAIN_CHECK_H
#define DPX_TRAIN_CHECK_H

#include "model/plan/plan.h"

/* Each 0, or -1 reported with the key named.  Of strategy, dialect and ranks; before a framework's own checks, whose refusals would
 * lead on to this one. */
int train_check_ranks(const struct plan *p, const char *where);

/* The rest. */
int train_check(const struct plan *p, const char *where);

/* Which tensors outside of blocks' own layers have adapters: any outside of blocks, the head, the embedding; experts' weights or routers. */
struct adapters_at { bool ends, head, embedding, experts; };
struct adapters_at train_adapters_at(const struct plan *p);

#endif
