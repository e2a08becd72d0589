/* list_parallel.h -- `dpxplan list parallel`: which strategies can have which parallelism. */
#ifndef DPX_LIST_PARALLEL_H
#define DPX_LIST_PARALLEL_H

#include <jansson.h>

/* Appends its rows to an array: { "feature", "keys", "cells" }. */
int list_parallel(json_t *to);

#endif
