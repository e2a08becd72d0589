/* For the CPU that the compiler targets by itself. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SIMD_TABLE simd_base
#define SIMD_NAME  "baseline"
#define SIMD_LANES 4
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define SIMD_FMA 1
#else
#define SIMD_FMA 0
#endif
#define SIMD_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define SIMD_SQRT(a) ((lanes){ sqrtf((a)[0]), sqrtf((a)[1]), sqrtf((a)[2]), sqrtf((a)[3]) })
#include "exec/kernels/kernels_simd_body.h"

#if defined(__x86_64__)
/* clang's __builtin_cpu_supports() does not know it. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const struct simd *simd_best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &simd_v4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && has_f16c())
        return &simd_v3;
#endif
    return &simd_base;
}
