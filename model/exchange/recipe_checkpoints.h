/* recipe_checkpoints.h -- whether a recipe's checkpoints are reentrant (torch.utils.checkpoint's use_reentrant). */
#ifndef DPX_RECIPE_CHECKPOINTS_H
#define DPX_RECIPE_CHECKPOINTS_H

#include "model/exchange/recipe.h"

/* Of a plan that recomputes whole blocks: reentrant where that is planned and the recipe, or its trainer's default, says so; else a note. */
void recipe_choose_checkpoint(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes);

#endif
