/* xxh64.h -- XXH64, a 64-bit hash of bytes: for telling files and texts apart, not against an adversary.
 *
 * The algorithm is xxHash's (its specification, xxhash_spec.md, section "XXH64 algorithm description"), with
 * seed 0: the value of two different inputs is the same with probability 2^-64.  Several GB/s. */
#ifndef DPX_XXH64_H
#define DPX_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t xxh64(const void *bytes, size_t n);

#endif
