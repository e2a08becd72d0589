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

/* The same of four numbers at once. */
static inline uint64_t hash_mix4(uint64_t h, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return hash_mix(h, a * 0xd6e8feb86659fd93u + b * 0xa0761d6478bd642fu + c * 0xe7037ed1a0b428dbu + d * 0x8ebc6af09c88c6e3u);
}

#endif
