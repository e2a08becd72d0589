/* host_memory.h -- what a tensor takes in host memory. */
#ifndef DPX_HOST_MEMORY_H
#define DPX_HOST_MEMORY_H

#include <stdint.h>

/* Bytes of a pinned tensor of PyTorch: the next power of two (CachingHostAllocator.h, 2.15), 0 for none. */
int64_t pinned_bytes(int64_t bytes);

/* Of a pageable one: as many. */
int64_t pageable_bytes(int64_t bytes);

#endif
