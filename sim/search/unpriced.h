/* unpriced.h -- plans whose step cannot be priced, since the cluster does not say how fast what they move data to is.
 *
 * What a plan moves data to does not depend on its micro-batch or recompute: of plans that keep the same elsewhere one is lowered, and
 * says it for all of them. */
#ifndef DPX_UNPRICED_H
#define DPX_UNPRICED_H

#include "model/plan/plan.h"
#include "model/program/program.h"

struct unpriced {
    struct unpriced_place *of;
    int64_t n, room;
};

/* 1: the plan's step can be priced, as far as places go; 0: it cannot, *why says why, and lives as long as `all`; -1: reported. */
int  unpriced_ask(struct unpriced *all, const struct plan *p, const struct program *g, const char **why);
void unpriced_free(struct unpriced *all);

#endif
