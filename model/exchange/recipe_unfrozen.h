/* recipe_unfrozen.h -- axolotl's unfrozen_parameters: patterns of the weights that train. */
#ifndef DPX_RECIPE_UNFROZEN_H
#define DPX_RECIPE_UNFROZEN_H

#include <jansson.h>

#include "base/notes.h"
#include "model/arch/transformer.h"

/* Of a model without adapters: t->what becomes what the patterns leave to train.  With adapters (m has them) they have to name all of these.
 * 0, or -1 with a reason: no weight is named; blocks differ in what trains; an expression that dpx does not read. */
int recipe_unfrozen(const json_t *config, const char *where, const struct model *m, bool adapts, struct training *t, struct notes *notes);

#endif
