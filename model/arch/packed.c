/* packed.c -- see packed.h. */
#include "model/arch/packed.h"

#include "base/dtype.h"

enum { BLOCK_4 = 64, BLOCK_MAXIMA = 256, CODES_4 = 16, CODES_8 = 256, BIAS_BYTES = 2 };

static int64_t blocks(const struct tensor *t) { return ceil_div(t->numel, BLOCK_4); }

int64_t packed_codes(const struct tensor *t)
{
    if (t->is_bias)
        return t->numel * BIAS_BYTES;
    return t->packed == BASE_INT8 || t->packed == BASE_AO_INT8 ? t->numel : ceil_div(t->numel, 2);
}

int64_t packed_maxima(const struct tensor *t)
{
    return t->packed == BASE_NF4_DOUBLE && !t->is_bias ? 4 * blocks(t) : 0;
}

int packed_parts(const struct tensor *t, int64_t bytes[PACKED_PARTS])
{
    if (t->packed == BASE_PLAIN)
        return 0;
    bytes[0] = packed_codes(t);
    if (t->is_bias)
        return 1;
    switch (t->packed) {
    case BASE_INT8:
        bytes[1] = 4 * t->shape[t->in_out];     /* rows are those of [out, in] */
        return 2;
    case BASE_AO_INT8:
        bytes[1] = 4 * t->shape[t->in_out];
        bytes[2] = t->shape[t->in_out];
        return 3;
    case BASE_NF4:
        bytes[1] = 4 * blocks(t);
        bytes[2] = 4 * CODES_4;
        return 3;
    case BASE_NF4_DOUBLE:
        bytes[1] = blocks(t);
        bytes[2] = 4 * ceil_div(blocks(t), BLOCK_MAXIMA);
        bytes[3] = 4 * CODES_8;
        bytes[4] = 4;
        bytes[5] = 4 * CODES_4;
        return 6;
    case BASE_PLAIN: case NBASE:
        break;
    }
    return 0;
}
