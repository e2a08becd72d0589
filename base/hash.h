/* hash.h -- one number for a list of numbers.
 *
 *     uint64_t h = hash_mix(HASH_BEGIN, a);
 *     h = hash_mix(h, b);
 *
 * Not for keys that an attacker chooses: the multiplier is public (2^64 over the golden ratio). */
#ifndef DPX_HASH_H
#define DPX_HASH_H

#include <stdint.h>

#define HASH_BEGIN UINT64_C(1469598103934665603)

static inline uint64_t hash_mix(uint64_t h, uint64_t v)
{
    h ^= v;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

#endif
