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
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float f;

    memcpy(&f, &bits, sizeof f);
    f *= 0x1p112f;                      /* exponents differ by 112; what fp16 has denormal is exact here */
    if ((h & 0x7c00) == 0x7c00)
        f = h & 0x3ff ? NAN : INFINITY;
    return h & 0x8000 ? -f : f;
}

/* To the nearest, to even when halfway; from 65520 on infinite; NaN stays NaN. */
static inline uint16_t half_to_fp16(float f)
{
    uint32_t bits, sign;
    float least;

    memcpy(&bits, &f, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x47800000)             /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (bits >= 0x38800000)             /* 2^-14, the least that is normal */
        return (uint16_t)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
    least = fabsf(f) + 0.5f;            /* fp32's last place there is fp16's least number, 2^-24 */
    memcpy(&bits, &least, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000));
}

#endif
