/* fp8.h -- the 8-bit floats of training, one number at a time: e4m3 (weights, activations) and e5m2 (gradients).
 *
 * As torch.float8_e4m3fn and torch.float8_e5m2: e4m3 has no infinity, its largest number is 448 and 0x7f is NaN; e5m2 is the upper
 * half of fp16.  Casts round to the nearest, to even when halfway; what is above the range becomes 448 in e4m3 (so torch 2.15, also of
 * infinity; the format has NaN there) and infinity in e5m2.  torchao clamps to the range before it casts (to_fp8_saturated(), torchao 0.18):
 * that is fp8_saturated().  For the host and for kernels of a device. */
#ifndef DPX_FP8_H
#define DPX_FP8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FP8_BOTH static __host__ __device__ inline
#else
#define FP8_BOTH static inline
#endif

struct fp8_kind {
    int   mantissa, bias;               /* bits; what is added to the exponent */
    float most;                         /* the largest number */
    uint8_t above;                      /* the code of what rounds to more */
    uint8_t least_nan;                  /* NaN are this code and those above */
};

static const struct fp8_kind fp8_e4m3 = { 3, 7, 448, 0x7e, 0x7f }, fp8_e5m2 = { 2, 15, 57344, 0x7c, 0x7d };

FP8_BOTH float fp8_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

FP8_BOTH uint32_t fp8_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The larger of two magnitudes, of which NaN is the largest: by their bits. */
FP8_BOTH float fp8_larger(float a, float b) { return fp8_bits(a) > fp8_bits(b) ? a : b; }

/* 2^(127 - bias) is what the two exponents differ by, exact for denormals too. */
FP8_BOTH float fp8_decode(const struct fp8_kind *t, uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24, least = code & 0x7f;
    float f = fp8_of_bits(least << (23 - t->mantissa)) * fp8_of_bits((uint32_t)(254 - t->bias) << 23);

    if (least >= t->least_nan)
        f = NAN;
    else if (least == t->above && t->above == 0x7c)
        f = INFINITY;
    return fp8_of_bits(fp8_bits(f) | sign);
}

/* Below the smallest normal number, the sum with a power of two whose last bit in fp32 is the smallest denormal leaves the code behind. */
FP8_BOTH uint8_t fp8_encode(const struct fp8_kind *t, float f)
{
    int      shift = 23 - t->mantissa;
    uint32_t bits = fp8_bits(f) & 0x7fffffff, sign = fp8_bits(f) >> 24 & 0x80, code;

    if (bits > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (bits < (uint32_t)(128 - t->bias) << 23) {
        uint32_t sum = (uint32_t)(151 - t->bias - t->mantissa) << 23;
        code = fp8_bits(fp8_of_bits(bits) + fp8_of_bits(sum)) - sum;
    } else
        code = (bits - ((uint32_t)(127 - t->bias) << 23) + ((1u << (shift - 1)) - 1) + (bits >> shift & 1)) >> shift;
    return (uint8_t)(sign | (code > t->above ? t->above : code));
}

FP8_BOTH uint8_t fp8_saturated(const struct fp8_kind *t, float f)
{
    return fp8_encode(t, f > t->most ? t->most : f < -t->most ? -t->most : f);
}

/* What a tensor whose largest magnitude is amax is multiplied by before it is cast (amax_to_scale(), torchao 0.18): in fp64, then rounded to
 * fp32; with power_of_two down to one (round_scales_to_power_of_2), by the exponent's bits. */
FP8_BOTH float fp8_scale(const struct fp8_kind *t, float amax, int power_of_two)
{
    float scale = (float)((double)t->most / ((double)amax < 1e-12 ? 1e-12 : (double)amax));      /* of NaN NaN */

    return power_of_two ? fp8_of_bits(fp8_bits(scale) & 0xff800000) : scale;
}

#endif
