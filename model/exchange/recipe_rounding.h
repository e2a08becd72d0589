/* recipe_rounding.h -- axolotl's fake quantisation (qat). */
#ifndef DPX_RECIPE_ROUNDING_H
#define DPX_RECIPE_ROUNDING_H

#include "model/exchange/recipe.h"

/* Are inputs rounded to int8 and weights to int4, but no embedding? */
bool recipe_rounds_to_int4(const json_t *qat);

/* p->qat, of a recipe that has such a section.  0, or -1 with the key named. */
int recipe_read_rounding(const json_t *config, const char *where, struct plan *p, struct notes *notes);

#endif
