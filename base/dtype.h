/* dtype.h -- the number formats of training, and checked 64-bit arithmetic.
 *
 * Every size in dpx is an int64_t count of bytes or elements.  A product or sum
 * that does not fit is refused, never wrapped. */
#ifndef DPX_DTYPE_H
#define DPX_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum dtype { DT_FP32, DT_BF16, DT_FP16, DT_FP64, DT_INT64, DT_INT32, DT_UINT8, DT_INT8, DT_FP8, NDTYPE };

/* Bytes of one element: 4, 2, 2, 8, 8, 4, 1, 1, 1.  DT_FP8: e4m3 or e5m2. */
int64_t     dtype_bytes(enum dtype t);
/* "fp32", "bf16", "fp16", "fp64", "int64", "int32", "uint8", "int8", "fp8". */
const char *dtype_name(enum dtype t);
/* The dtype of that name, or -1. */
int         dtype_parse(const char *name);

/* Formats of a product's operands that are narrower than its result, by what shares a scale: a tensor; a row (torchao); 128 numbers of an
 * activation and 128 x 128 of a weight (DeepSeek-V3); 32 numbers, a power of two (OCP MX); 16 numbers of 4 bits. */
enum scaled { SCALED_NONE, SCALED_FP8_TENSOR, SCALED_FP8_ROW, SCALED_FP8_BLOCK, SCALED_MXFP8, SCALED_NVFP4, NSCALED };

/* What has a scale of its own where a matrix is rounded to 8-bit floats; FLOAT8_BY_NONE: it is not rounded. */
enum float8_by { FLOAT8_BY_NONE, FLOAT8_BY_TENSOR, FLOAT8_BY_ROWS, FLOAT8_BY_COLUMNS };

static inline int64_t float8_scales(enum float8_by by, int64_t rows, int64_t cols)
{
    return by == FLOAT8_BY_ROWS ? rows : by == FLOAT8_BY_COLUMNS ? cols : by == FLOAT8_BY_TENSOR;
}

/* "none", "fp8 by tensor", "fp8 by row", "fp8 by block", "mxfp8", "nvfp4". */
const char *scaled_name(enum scaled s);
/* Bytes of so many numbers with their scales, those of a whole tensor or row left out: 1; 1 + 4/128; 1 + 1/32; 1/2 + 1/16 each. */
int64_t     dtype_scaled_bytes(enum scaled s, int64_t numel);

/* Largest byte or element count dpx works with: 2^60, so that a sum of a few
 * of them still fits an int64_t. */
#define SIZE_LIMIT ((int64_t)1 << 60)

/* a*b (a+b) into *out; false when negative or above SIZE_LIMIT. */
bool checked_mul(int64_t a, int64_t b, int64_t *out);
bool checked_add(int64_t a, int64_t b, int64_t *out);

/* Ceiling of a/b, and a rounded up to a multiple of b.  a >= 0, b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
/* The smallest power of two that is not below n > 0, at most 2^62; of 0: 0. */
static inline int64_t round_up_power(int64_t n)
{
    int64_t p = n > 0;

    while (p < n && p < (int64_t)1 << 62)
        p *= 2;
    return p;
}

#endif
