/* unpriced.h -- plans that keep data in files of disks whose size or speed the cluster does not say: known before they are lowered.
 *
 *     struct unpriced u = { 0 };
 *     if (unpriced_is(&u, &plan, program, why)) ...       not lowered; `why` says what the cluster lacks
 *     unpriced_free(&u);
 *
 * Whether a plan has files follows from its tensors and options, not from its batch, nor from what is recomputed: of plans that differ
 * only in these the first is lowered. */
#ifndef DPX_UNPRICED_H
#define DPX_UNPRICED_H

#include <stdbool.h>
#include <stdint.h>

#include "model/plan/plan.h"
#include "model/program/program.h"

struct unpriced {
    struct plan_asked { struct plan plan; bool yes; char why[256]; } *asked;
    int64_t n, room;
};

/* `why` is set where it is one; a plan that cannot be lowered is none. */
bool unpriced_is(struct unpriced *u, const struct plan *p, const struct program *g, char why[256]);
void unpriced_free(struct unpriced *u);

#endif
