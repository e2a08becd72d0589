/* measured_kept.h -- what came with dpx of a type of GPU, for a plan's cluster (kept.h); no database is asked. */
#ifndef DPX_MEASURED_KEPT_H
#define DPX_MEASURED_KEPT_H

#include <stdbool.h>

#include "model/cluster/cluster.h"
#include "model/schedule/measured.h"

/* true: cluster->measured points to *out, which is to be freed after the last use (measured_device_free).  Times of dpx's own
 * kernels alone, so that no file is opened for plans of others; a file that cannot be used costs a warning. */
bool measured_kept(enum dtype precision, enum kernel_set kernels, struct cluster *c, struct measured_device *out);

#endif
