/* parallel_check.h -- which combinations of tensor, context and pipeline parallelism exist. */
#ifndef DPX_PARALLEL_CHECK_H
#define DPX_PARALLEL_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1: the degrees do not divide the ranks of the cluster.  Asked first: other keys count ranks by them. */
int parallel_check_ranks(const struct plan *p, const char *where);

/* 0, or -1 with what "parallel" asks for and its framework, the model or the number of ranks does not allow, or what no
 * lowering issues yet.  Ranges of single keys were checked. */
int parallel_check(const struct plan *p, const char *where);

/* Where attention's heads are dealt out over so many ranks: they divide, those of keys and values, too, unless these are repeated. */
int parallel_check_heads(const struct plan *p, int64_t ranks, bool repeats, const char *where);

#endif
