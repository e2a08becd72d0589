/* optimizer_check.h -- what is refused of an optimizer that is not AdamW: for plan_check.c, and for what frameworks refuse of their own
 * (framework.h, check_optimizer). */
#ifndef DPX_OPTIMIZER_CHECK_H
#define DPX_OPTIMIZER_CHECK_H

#include "model/plan/plan.h"

/* Each 0, or -1 reported with the key named; word is what the plan calls its optimizer.  The framework's own check, or
 * optimizer_check_torch() where it has none. */
int optimizer_check(const struct plan *p, const char *where);

/* PyTorch's, torchao's and bitsandbytes' optimizers, stepped by a training loop of plain PyTorch. */
int optimizer_check_torch(const struct plan *p, const char *where, const char *word);

/* Those that dpx has kernels for; of whole tensors: rows and columns, blocks of 256. */
int optimizer_check_own(const struct plan *p, const char *where, const char *word);

/* Muon, of whole matrices. */
int optimizer_check_whole(const struct plan *p, const char *where);

#endif
