/* titan_check.h -- what torchtitan 0.2.2 and PyTorch refuse of tensor, context and pipeline parallelism around DDP and FSDP2, or what of it is
 * not modelled yet; for framework_torch.c and framework_fsdp.c. */
#ifndef DPX_TITAN_CHECK_H
#define DPX_TITAN_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 reported with the key named; of a plan whose ranks have more than one on that axis.  Context parallelism is
 * torch.distributed.tensor.experimental.context_parallel. */
int titan_check_tensor(const struct plan *p, const char *where);
int titan_check_context(const struct plan *p, const char *where);
int titan_check_pipeline(const struct plan *p, const char *where);

/* torchtitan's expert parallelism: `sharing` ranks share the experts of each. */
int titan_check_experts(const struct plan *p, int64_t sharing, const char *where);

#endif
