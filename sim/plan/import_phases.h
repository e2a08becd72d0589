/* import_phases.h -- dpxplan import of a recipe whose step of training has a second model in it, as DPO has a reference model: a phase plan
 * (dpxplan phases) in the place of a plan of one step, which could not say it. */
#ifndef DPX_IMPORT_PHASES_H
#define DPX_IMPORT_PHASES_H

#include <stdbool.h>

#include "sim/plan/convert.h"

/* false also where the file cannot be opened: convert_import() reports it. */
bool import_is_of_phases(const struct import_args *a);
/* Says what was understood and whether it fits, and writes the phase plan to `out` (NULL: standard output).  An exit status. */
int  import_phases(const struct import_args *a, const char *out);

#endif
