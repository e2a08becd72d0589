/* space_cost.h -- seconds of entries outside of device memory: copies over PCIe, work of the host's threads, files.
 *
 * All ranks of a node are taken to do the same at the same time: each has its share of the node's DRAM and disks, and
 * a PCIe link of its own (gpu.pcie, one direction). */
#ifndef DPX_SPACE_COST_H
#define DPX_SPACE_COST_H

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"
#include "sim/price/cost.h"

/* Copies between device and host memory; on ranks that are processes on cores both are the same memory. */
bool space_cost_over_link(const struct plan *p, const struct schedules *s, const struct op *o);

/* True, with *out set, where the entry has a price here.  On ranks that are processes on cores, the host stream and
 * copies over a link have none: they are priced as on any other stream. */
bool space_cost(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out);

/* Whether the cluster says all that the entries of a schedule need.  0, or -1 with the missing key reported. */
int space_cost_known(const struct plan *p, const struct schedules *s, enum sched_id id);

#endif
