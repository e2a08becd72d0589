/* exact_sum.c -- sums of squares as wide integers. */
#include "exec/kernels/exact_sum.h"

#include <math.h>
#include <string.h>

enum { LIMBS = NORM_LIMBS - 1, LOWEST = -320, BETWEEN_CARRIES = 1 << 28 };

static void add_square(struct exact_sum *s, uint32_t bits)
{
    uint32_t exponent = bits >> 23 & 0xff, mantissa = bits & 0x7fffff;

    if (exponent == 0xff) {
        s->limb[LIMBS]++;
        return;
    }
    if (exponent)
        mantissa |= 0x800000;
    else
        exponent = 1;                   /* subnormal */
    /* mantissa * 2^(exponent-150), squared */
    uint64_t square = (uint64_t)mantissa * mantissa;
    int at = 2 * ((int)exponent - 150) - LOWEST, shift = at % 32;
    int64_t *l = &s->limb[at / 32];
    uint64_t low = (square & 0xffffffff) << shift, high = (square >> 32) << shift;
    l[0] += (int64_t)(low & 0xffffffff);
    l[1] += (int64_t)(low >> 32) + (int64_t)(high & 0xffffffff);
    l[2] += (int64_t)(high >> 32);
}

void exact_carry(struct exact_sum *s)
{
    for (int i = 0; i + 1 < LIMBS; i++) {
        s->limb[i + 1] += s->limb[i] >> 32;
        s->limb[i] &= 0xffffffff;
    }
}

void exact_add_squares(struct exact_sum *s, int64_t n, const void *x, enum dtype t)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        if (t == DT_FP32)
            memcpy(&bits, (const float *)x + i, sizeof bits);
        else
            bits = (uint32_t)((const uint16_t *)x)[i] << 16;
        add_square(s, bits);
        if (i % BETWEEN_CARRIES == BETWEEN_CARRIES - 1)
            exact_carry(s);
    }
    exact_carry(s);
}

double exact_value(const struct exact_sum *s)
{
    struct exact_sum c = *s;
    double sum = 0;

    exact_carry(&c);
    if (c.limb[LIMBS])
        return NAN;
    for (int i = LIMBS - 1; i >= 0; i--)    /* from above: rounding is that of the leading limbs */
        sum += ldexp((double)c.limb[i], 32 * i + LOWEST);
    return sum;
}
