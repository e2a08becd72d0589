/* bounds_internal.h -- what bounds.c and bounds_units.c share. */
#ifndef DPX_BOUNDS_INTERNAL_H
#define DPX_BOUNDS_INTERNAL_H

#include "sim/search/bounds.h"

/* What blocks keep for backward leaves the device. */
bool bounds_leave(const struct plan *p);
/* FSDP whose units stay whole between a forward and its backward: all blocks are at the end of a forward. */
bool bounds_stays_whole(const struct plan *p);
/* FSDP that reduces gradients in a step's last micro-step alone. */
bool bounds_grads_stay_whole(const struct plan *p);
/* Bytes of each element of a gradient that waits for others. */
int64_t bounds_grad_bytes(const struct plan *p);

/* FSDP2 cuts every tensor by rows, which may not divide: does it cut nothing else?  And the elements of its first rank, of what trains
 * or of what does not. */
bool    bounds_rows(const struct plan *p);
int64_t bounds_row_share(const struct plan *p, bool trains);

/* Beside bounds_states(), bytes: the fullest moment of a unit of FSDP; and the head's weights, or all that is one unit with them, while
 * the head runs. */
int64_t bounds_units(const struct plan *p, const struct program *g);
int64_t bounds_head_whole(const struct plan *p);
/* While the head runs in forward, beside that. */
int64_t bounds_head_gathered(const struct plan *p);

#endif
