/* liger.h -- what Liger-Kernel puts in the place of transformers' operations, by family (monkey_patch.py of liger-kernel 0.8.5). */
#ifndef DPX_LIGER_H
#define DPX_LIGER_H

#include "model/plan/plan.h"

/* What apply_liger_kernel_to_<family>() does unless told: its kernels and *loss.  False: Liger-Kernel does not know the family.  *lacks, if
 * any: what it replaces besides and is not modelled. */
bool liger_usual(const struct model *m, struct liger_options *kernels, enum loss_kind *loss, const char **lacks);
/* Does backward of its RMSNorm overwrite the gradient that it reads? */
bool liger_norm_in_place(const struct model *m);

/* Refuses kernels that a plan cannot have, with the key named. */
int  liger_check(const struct plan *p, const char *where);

#endif
