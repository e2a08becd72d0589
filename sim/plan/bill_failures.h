/* bill_failures.h -- how often a job is interrupted, as asked or as its cluster states.
 *
 *     struct failures f;
 *     if (bill_failures(asked->mtbf, &plan->cluster.runs, &f) < 0)
 *         return -1;
 *
 * `mtbf`: a published rate by name ("llama3"), a time of one GPU with its share of everything ("50000h"), or times by cause
 * ("gpu=60000h,node=20000h,network=2000h"); NULL: as the cluster states. */
#ifndef DPX_BILL_FAILURES_H
#define DPX_BILL_FAILURES_H

#include "model/cluster/cluster.h"
#include "sim/bill/failures.h"

/* Nothing is stated: *out is all 0.  0, or -1 reported. */
int bill_failures(const char *mtbf, const struct cluster_runs *stated, struct failures *out);

#endif
