/* measured_for.h -- what the database knows of the machines that a plan is for. */
#ifndef DPX_MEASURED_FOR_H
#define DPX_MEASURED_FOR_H

#include <stdbool.h>

#include "model/cluster/cluster.h"
#include "model/schedule/measured.h"

/* `path` NULL: the usual database.  `must`: a named one must be readable; else a database need not
 * exist and, unreadable, only costs a warning.  1: cluster->measured points to *out, which is to be freed after the
 * last use (measured_device_free); 0: nothing fits these machines, this precision and number of
 * ranks; -1 with the reason reported, also where several could be meant or the one that is named is not there.
 *
 * Where the usual database knows nothing of a type of GPU, what came with dpx stands in (kept.h), for plans of
 * dpx's own kernels.
 *
 * On this host a rank computes with the threads that dpxrun would give it.  What was timed with
 * another number of threads or ranks is used all the same, since it is nearer to the truth than a
 * datasheet, and said: in a line on stderr, and in out->warning. */
int measured_for(const char *path, bool must, enum dtype precision, enum kernel_set kernels, struct cluster *c,
                 struct measured_device *out);
/* For ranks of so many threads; 0: as above. */
int measured_for_threads(const char *path, bool must, enum dtype precision, enum kernel_set kernels, int64_t threads,
                         struct cluster *c, struct measured_device *out);

#endif
