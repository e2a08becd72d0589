/* coll_entry.h -- what is asked of the prices for an entry of a schedule that communicates: among how many ranks,
 * how many of them in a node, and how many bytes. */
#ifndef DPX_COLL_ENTRY_H
#define DPX_COLL_ENTRY_H

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

/* Ranks that the entry is among, and the most of them that share a node: of its group in its slowest instance
 * (coll_group_shape), or the two of a send or receive.  Where two ranks stand for all pairs that exchange the same
 * (neighbours along the slowest axis of the mesh), they are on one node if all pairs are. */
void coll_entry_shape(const struct plan *p, const struct schedules *s, const struct op *o, int64_t *ranks,
                      int64_t *per_node);

/* Bytes of the full buffer; of an all-to-all with unequal parts, those of one with equal parts that takes as long
 * (coll_equal_bytes).  `ranks` and `per_node` are the entry's shape. */
int64_t coll_entry_bytes(const struct plan *p, const struct schedules *s, const struct op *o, int64_t ranks,
                         int64_t per_node);

/* Turns of the ring that the entry is one of (userbuffers, a context's keys and values): ranks - 1; 1: of none. */
int64_t coll_entry_turns(const struct schedules *s, const struct op *o, int64_t ranks);

#endif
