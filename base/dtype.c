/* dtype.c -- names and widths of number formats; products and sums that say when they overflow. */
#include "base/dtype.h"

#include <string.h>

static const struct { const char *name; int64_t bytes; } table[NDTYPE] = {
    [DT_FP32]  = { "fp32", 4 },  [DT_BF16]  = { "bf16", 2 },
    [DT_FP16]  = { "fp16", 2 },  [DT_FP64]  = { "fp64", 8 },
    [DT_INT64] = { "int64", 8 }, [DT_INT32] = { "int32", 4 },
    [DT_UINT8] = { "uint8", 1 }, [DT_INT8]  = { "int8", 1 },
    [DT_FP8]   = { "fp8", 1 },
};

int64_t     dtype_bytes(enum dtype t) { return table[t].bytes; }
const char *dtype_name(enum dtype t)  { return table[t].name; }

int dtype_parse(const char *name)
{
    for (int t = 0; t < NDTYPE; t++)
        if (!strcmp(name, table[t].name))
            return t;
    return -1;
}

const char *scaled_name(enum scaled s)
{
    static const char *const names[NSCALED] = { "none", "fp8 by tensor", "fp8 by row", "fp8 by block", "mxfp8", "nvfp4" };

    return names[s];
}

int64_t dtype_scaled_bytes(enum scaled s, int64_t numel)
{
    switch (s) {
    case SCALED_FP8_BLOCK: return numel + 4 * ceil_div(numel, 128);
    case SCALED_MXFP8:     return numel + ceil_div(numel, 32);
    case SCALED_NVFP4:     return ceil_div(numel, 2) + ceil_div(numel, 16);
    default:               return numel;
    }
}

bool checked_mul(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out) && *out <= SIZE_LIMIT;
}

bool checked_add(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out) && *out <= SIZE_LIMIT;
}
