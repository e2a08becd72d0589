/* recipe_checkpoints.h -- whether a recipe's checkpoints are the Trainer's or FSDP's, and reentrant (torch.utils.checkpoint's use_reentrant). */
#ifndef DPX_RECIPE_CHECKPOINTS_H
#define DPX_RECIPE_CHECKPOINTS_H

#include "model/exchange/recipe.h"

/* Of a plan that recomputes whole blocks: reentrant where that is planned and the recipe, or its trainer's default, says so; else a note. */
void recipe_choose_checkpoint(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes);
/* Of a recipe that asks for the Trainer's checkpoints, whose sharing is in the plan already: -1 with a line where FSDP makes them, too, and the Trainer stops. */
int recipe_checkpoints_twice(enum recipe_form form, const char *where, const struct plan *p);

#endif
