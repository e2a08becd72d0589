/* recipe_liger.h -- which of Liger-Kernel's kernels and losses, or Apple's loss, a recipe asks for. */
#ifndef DPX_RECIPE_LIGER_H
#define DPX_RECIPE_LIGER_H

#include "model/exchange/recipe.h"

/* use_liger_kernel and liger_kernel_config (transformers, TRL), enable_liger_kernel (LLaMA-Factory), liger_* and cut_cross_entropy
 * (axolotl, whose plugins have to be listed) into p->liger and p->loss. */
int  recipe_liger(const json_t *config, enum recipe_form form, const char *where, struct plan *p, struct notes *notes);
/* Is `key` one of these? */
bool recipe_liger_reads(enum recipe_form form, const char *key);

#endif
