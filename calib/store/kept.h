/* kept.h -- fits of types of GPU that come with dpx: calib/measured/, installed as share/dpx/measured/ (kept_file.h says what is in a
 * file).
 *
 * They stand in where the user's own database knows nothing of the type, for plans of dpx's own kernels.  $DPX_MEASURED names another
 * folder. */
#ifndef DPX_KEPT_H
#define DPX_KEPT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "model/schedule/measured.h"

/* The file that is kept of a GPU of this name; false: there is none. */
bool kept_find(const char *gpu, char *path, size_t size);

/* What the file has of that GPU for plans of this precision.  1: found; 0: nothing; -1 reported: it is another GPU's, too.  A file is read once a process, by whichever
 * thread is first, and again when another file has taken its place.  The arrays stay until the process ends. */
int kept_read(const char *gpu, const char *path, enum dtype precision, struct measured_device *out);

#endif
