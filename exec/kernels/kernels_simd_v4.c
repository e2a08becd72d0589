/* For x86-64-v4: AVX-512.  What is included before the pragma is compiled as usual. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "exec/kernels/half.h"
#include "exec/kernels/kernels_simd.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=x86-64-v4"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#endif

#define SIMD_TABLE simd_v4
#define SIMD_NAME  "x86-64-v4"
#define SIMD_LANES 16
#define SIMD_FMA   1
#define SIMD_MULTIPLY_ADD(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define SIMD_SQRT(a) ((lanes)_mm512_sqrt_ps((__m512)(a)))
#define SIMD_FROM_FP16(p) ((lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p))))
#define SIMD_TO_FP16(p, a) _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph((__m512)(a), _MM_FROUND_TO_NEAREST_INT))
#include "exec/kernels/kernels_simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int simd_v4_is_for_x86;     /* a translation unit must declare something */
#endif
