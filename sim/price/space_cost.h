/* space_cost.h -- seconds of entries outside of device memory: copies between device and host, work of the host's
 * threads, files; and what of the node's links and memory they take meanwhile.
 *
 * All ranks of a node are taken to do the same at the same time.  They share its DRAM, its disks and the links from its
 * GPUs to host memory (gpu.pcie each, one direction), which may be fewer than the GPUs. */
#ifndef DPX_SPACE_COST_H
#define DPX_SPACE_COST_H

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"
#include "sim/price/cost.h"

/* What entries outside of device memory share: the link from device to host memory, the one back, the node's DRAM. */
enum shared { SHARED_DOWN, SHARED_UP, SHARED_DRAM, NSHARED };
struct shares { double of[NSHARED]; };      /* what an entry takes of each while nothing disturbs it; at most 1 */

/* Copies between device and host memory; on ranks that are processes on cores both are the same memory. */
bool space_cost_over_link(const struct plan *p, const struct schedules *s, const struct op *o);

/* A read or a write of a file. */
bool space_cost_is_file(const struct op *o);

/* True, with *out set, where the entry has a price here: undisturbed by what else its rank does.  On ranks that are
 * processes on cores, the host stream and copies over a link have none: they are priced as on any other stream. */
bool space_cost(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out);

/* Bytes/s that a rank copies to pinned host memory, in one direction, while the node's other ranks do the same. */
double space_cost_link_rate(const struct plan *p);

/* Seconds in which a rank copies so many bytes to or from pinned host memory, while the node's other ranks do the same. */
struct cost space_cost_pinned(const struct plan *p, int64_t bytes);

/* Seconds that host memory takes of a rank which nothing has touched before, while it is written: half to twice. */
struct cost space_cost_touched(int64_t bytes);

/* Seconds in which a rank copies so many bytes to or from pageable host memory, while the node's other ranks do the same. */
struct cost space_cost_moved(const struct plan *p, int64_t bytes);

/* The shares that the entry takes, in `seconds`, of what its node's entries share; all 0 where space_cost() has no
 * price. */
struct shares space_cost_shares(const struct plan *p, const struct schedules *s, const struct op *o, double seconds);

/* Whether the cluster, or what was measured on it, says all that the entries of a schedule need.  0, or -1 with the missing key reported. */
int space_cost_known(const struct plan *p, const struct schedules *s, enum sched_id id);

#endif
