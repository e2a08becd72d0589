/* half.h -- the 16-bit formats, one number at a time.
 *
 * bf16 is the upper half of fp32; fp16 is IEEE 754's binary16.  For files, collectives and all of fp16; what the
 * kernels widen and narrow bf16 with is theirs. */
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

/* The exponent's bias is 15, fp32's 127: between them are 112.  A denormal is so many times 2^-24, the last bit of 1/2 in fp32: it is put
 * there and 1/2 taken off, since to multiply fp32's denormals by 2^112 takes an Intel processor twenty times as long, and most
 * gradients in fp16 are denormal. */
static inline float half_from_fp16(uint16_t h)
{
    uint32_t size = h & 0x7fff, sign = (uint32_t)(h & 0x8000) << 16, bits = size + 0x3f000000, small;
    float f;

    memcpy(&f, &bits, sizeof f);
    f -= 0.5f;
    memcpy(&small, &f, sizeof small);
    bits = (size << 13) + (112u << 23) + (size >= 0x7c00 ? 112u << 23 : 0);
    bits = (size < 0x400 ? small : bits) | sign;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To the nearest, to even when halfway; from 65520 on infinity; NaN stays NaN.  Below 2^-14 the sum with 1/2, of which fp32 has
 * 2^-24 as its last bit, leaves the denormal's bits behind. */
static inline uint16_t half_to_fp16(float f)
{
    uint32_t bits, sign, small, normal;
    float x;

    memcpy(&bits, &f, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    memcpy(&x, &bits, sizeof x);
    x += 0.5f;
    memcpy(&small, &x, sizeof small);
    small -= 0x3f000000;
    normal = (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    return (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : bits >= 0x47800000 ? 0x7c00 : bits < 0x38800000 ? small : normal));
}

#endif
