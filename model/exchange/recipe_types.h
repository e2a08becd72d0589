/* recipe_types.h -- what must stand at a key that decides: the frameworks' parsers take nothing else, and a reader that took it for the usual value
 * would plan another run. */
#ifndef DPX_RECIPE_TYPES_H
#define DPX_RECIPE_TYPES_H

#include "model/exchange/recipe.h"

/* 0, or -1 with the first key reported whose value is of another kind, or none of its words. */
int recipe_check_types(const json_t *config, enum recipe_form form, const char *where);

#endif
