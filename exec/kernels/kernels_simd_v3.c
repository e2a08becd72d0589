/* For x86-64-v3: AVX2 and FMA.  What is included before the pragma is compiled as usual. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "exec/kernels/kernels_simd.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v3"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#endif

#define SIMD_TABLE simd_v3
#define SIMD_NAME  "x86-64-v3"
#define SIMD_LANES 8
#define SIMD_FMA   1
#define SIMD_MULTIPLY_ADD(a, b, c) ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define SIMD_SQRT(a) ((lanes)_mm256_sqrt_ps((__m256)(a)))
#include "exec/kernels/kernels_simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int simd_v3_is_for_x86;     /* a translation unit must declare something */
#endif
