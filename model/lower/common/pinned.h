/* pinned.h -- page-locked memory as PyTorch's caching host allocator hands it out, for lower_*.c.
 *
 * A block is the next power of two of what is asked for.  It is never given back: when its tensor goes it is kept,
 * and the next tensor of the same power of two gets it (aten/src/ATen/core/CachingHostAllocator.h, PyTorch 2.15). */
#ifndef DPX_PINNED_H
#define DPX_PINNED_H

#include "model/schedule/schedule.h"

/* Bytes that pinning a tensor of so many takes. */
int64_t pinned_bytes(int64_t bytes);

/* Of a pageable one: as many. */
int64_t pageable_bytes(int64_t bytes);

/* Blocks that no tensor has, by their power of two.  Zeroed: none. */
struct pinned { struct { int family, free, made; } of[63]; };

/* The last entry has freed a pinned tensor of `bytes`, or one before it has: its block is kept. */
void pinned_keep(struct pinned *p, struct schedules *s, int64_t bytes);

/* A tensor of `bytes` is about to be pinned: where a kept block fits, an entry hands it over. */
void pinned_take(struct pinned *p, struct schedules *s, enum phase ph, int64_t bytes);

#endif
