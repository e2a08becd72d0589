/* recipe_compile.h -- torch_compile of transformers' TrainingArguments, and accelerate's dynamo_config without regional compilation: one graph of the
 * whole model. */
#ifndef DPX_RECIPE_COMPILE_H
#define DPX_RECIPE_COMPILE_H

#include <jansson.h>

#include "base/notes.h"
#include "model/exchange/recipe.h"

/* Keys torch_compile, torch_compile_backend and torch_compile_mode, where the plan is read but for them: kernels, loss.  0, or -1 reported. */
int recipe_read_compile(const json_t *config, enum recipe_form form, const char *where, struct plan *p, struct notes *notes);

/* Is a model of the plan's family planned so, its loss and kernels being the usual ones? */
bool compiles_whole(const struct plan *p);

/* Kernels and loss of a model that is compiled as a whole under DistributedDataParallel or on one GPU, `key` asking for it.  0, or -1 reported. */
int compile_whole_model(struct plan *p, const char *key, const char *where, struct notes *notes);

#endif
