/* kineto.h -- a trace of PyTorch's profiler beside a plan's prediction.
 *
 *     int status = kineto_cmd("rank0.pt.trace.json.gz", "plan.json", NULL, stdout, NULL);
 *
 * The trace is one rank's, of a DDP or FSDP run (torch.profiler, which is Kineto,
 * export_chrome_trace).  Its collectives, compute kernels and steps are found and
 * held against the same phases of the plan: calls, bytes and time of each collective,
 * how much of it no compute hides, whether backward runs ahead with all-gathers. */
#ifndef DPX_KINETO_H
#define DPX_KINETO_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

/* Prints the comparison to `table` and gives it as a document (new reference) to `doc`; either may be NULL.  Returns the exit
 * status: 0; 1 when something failed; 2, with one line on stderr, when the trace or the
 * plan cannot be read or the trace holds nothing to compare.  `plan` may be NULL: then
 * the trace stands alone.  `db`: the database of calibrations, NULL for the usual one. */
int kineto_cmd(const char *trace, const char *plan, const char *db, FILE *table, json_t **doc);

#endif
