/* For x86-64-v3: AVX2, FMA and F16C.  What is included before the pragma is compiled as usual. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "exec/kernels/half.h"
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
#define SIMD_FROM_FP16(p) ((lanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p))))
#define SIMD_TO_FP16(p, a) _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph((__m256)(a), _MM_FROUND_TO_NEAREST_INT))
#include "exec/kernels/kernels_simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int simd_v3_is_for_x86;     /* a translation unit must declare something */
#endif
