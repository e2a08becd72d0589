/* host_memory.h -- what a tensor takes in host memory. */
#ifndef DPX_HOST_MEMORY_H
#define DPX_HOST_MEMORY_H

#include <stdint.h>

#include "model/lower/common/pinned.h"

/* Bytes of a pageable tensor, as pinned_bytes() says it of a pinned one. */
int64_t pageable_bytes(int64_t bytes);

#endif
