/* kept.h -- calibrations of types of GPU that come with dpx: exports of dpxcal in calib/measured/,
 * installed as share/dpx/measured/.
 *
 * They stand in where the user's own database knows nothing of the type.  $DPX_MEASURED names another
 * folder. */
#ifndef DPX_KEPT_H
#define DPX_KEPT_H

#include <stdbool.h>
#include <stddef.h>

#include "calib/store/db.h"

/* The file that is kept of a GPU of this name; false: there is none. */
bool kept_find(const char *gpu, char *path, size_t size);

/* Its calibrations, in a database in memory.  NULL reported.  db_close() it. */
struct db *kept_open(const char *path);

#endif
