/* ddp_check.h -- rules of torch.distributed.algorithms.ddp_comm_hooks, and of one GPU without DDP; for plan_check(). */
#ifndef DPX_DDP_CHECK_H
#define DPX_DDP_CHECK_H

#include "model/plan/plan.h"

/* 0, or -1 where PyTorch or the lowering refuses ddp.comm_hook beside the plan's other options, with the key named. */
int ddp_check_hook(const struct plan *p, const char *where);

/* The same of ddp.wrapped false, and ddp.optimizer_in_backward beside it. */
int ddp_check_alone(const struct plan *p, const char *where);

#endif
