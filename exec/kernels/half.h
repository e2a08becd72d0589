/* half.h -- the 16-bit formats, one number at a time.
 *
 * bf16 is the upper half of fp32; fp16 is IEEE 754's binary16.  For reading and writing
 * files; what the kernels compute with is theirs. */
#ifndef DPX_HALF_H
#define DPX_HALF_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers in files are little-endian, and read and written as they are in memory");

static inline float half_from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To the nearest, to even when halfway; NaN stays NaN. */
static inline uint16_t half_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (isnan(f))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float half_from_fp16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    float f;

    if (exponent == 31)
        f = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        f = ldexpf((float)fraction, -24);
    else
        f = ldexpf((float)(fraction + 1024), exponent - 25);
    return h & 0x8000 ? -f : f;
}

#endif
