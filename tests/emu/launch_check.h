/* launch_check.h -- arrays on the emulated device for tests that call launchers themselves, and the
 * reference's table beside them. */
#ifndef DPX_LAUNCH_CHECK_H
#define DPX_LAUNCH_CHECK_H

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "tests/exec/kernels_check.h"
#include "exec/cuda/elements.h"
#include "exec/kernels/kernels_internal.h"

#define OK(call) assert_int_equal((int)(call), 0)

/* What the launchers are beside; it needs no workspace for what is tested here. */
static const struct kernel_ops *const ref = &kernels_ref_ops;

/* A copy of an array on the device, `skew` elements behind a multiple of 256 bytes, between guards. */
struct there { char *base; void *x; int64_t n, before; enum dtype t; };

static inline int64_t there_bytes(const struct there *d)
{
    return d->before + d->n * dtype_bytes(d->t) + GUARD;
}

static inline struct there to_device(const struct array *a, int64_t skew)
{
    struct there d = { .n = a->n, .t = a->t, .before = GUARD + skew * dtype_bytes(a->t) };
    void *base = NULL;

    OK(cudaMalloc(&base, (size_t)there_bytes(&d)));
    d.base = base;
    d.x = d.base + d.before;
    OK(cudaMemset(d.base, GUARD_BYTE, (size_t)there_bytes(&d)));
    OK(cudaMemcpy(d.x, a->x, (size_t)(a->n * dtype_bytes(a->t)), cudaMemcpyHostToDevice));
    return d;
}

static inline struct there ids_to_device(const int32_t *ids, int64_t n)
{
    struct array a = { .x = (void *)(uintptr_t)ids, .n = n, .t = DT_INT32 };

    return to_device(&a, 0);
}

/* Exactly so many bytes, a multiple of 4; NaN. */
static inline struct there scratch(int64_t bytes)
{
    struct array a = array_new(bytes / 4, DT_FP32);
    struct there d = to_device(&a, 0);

    array_free(&a);
    return d;
}

/* Waits; its contents into a new array of the host, its guards checked. */
static inline struct array look(const struct there *d)
{
    struct array a = array_new(d->n, d->t);
    unsigned char *image = malloc((size_t)there_bytes(d));
    int64_t end = d->before + d->n * dtype_bytes(d->t);

    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(image, d->base, (size_t)there_bytes(d), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < there_bytes(d); i++)
        if ((i < d->before || i >= end) && image[i] != GUARD_BYTE)
            fail_msg("byte %" PRId64 " was written, the array is %" PRId64 " ... %" PRId64, i, d->before,
                     end);
    memcpy(a.x, image + d->before, (size_t)(d->n * dtype_bytes(d->t)));
    free(image);
    return a;
}

static inline void gone(struct there *d)
{
    struct array a = look(d);

    array_free(&a);
    OK(cudaFree(d->base));
}

/* The device's array is what the reference has, within a rounding or so; then neither is any more. */
static inline void compare(const char *what, struct there *d, struct array *want, double tol, double size)
{
    struct array got = look(d);

    assert_same(what, &got, want, tol, size);
    array_free(&got);
    array_free(want);
    OK(cudaFree(d->base));
}

/* The same to the bit. */
static inline void compare_bits(const char *what, const struct there *d, const struct array *want)
{
    struct array got = look(d);

    for (int64_t i = 0; i < want->n; i++)
        if (memcmp((char *)got.x + i * dtype_bytes(want->t), (char *)want->x + i * dtype_bytes(want->t),
                   (size_t)dtype_bytes(want->t)) != 0)
            fail_msg("%s: element %" PRId64 " of %" PRId64 " is %.9g, not %.9g", what, i, want->n,
                     array_get(&got, i), array_get(want, i));
    array_free(&got);
}

/* Results of 16 bits may fall to a neighbour. */
static inline double tolerance(enum dtype t) { return half_tol(t, 1e-5); }

/* Of sums of terms about 1: the spacing of 16 bits follows from the result's own size. */
static inline double of_terms(enum dtype t, double size) { return half_size(t, 1e-3 * size, size); }

/* Half of all arrays begin anywhere. */
static inline int64_t any_skew(void) { return coin() ? 0 : random_int(1, 8); }

/* What the host would make of fp32 numbers. */
static inline void narrow(const struct array *from, const struct array *into)
{
    for (int64_t i = 0; i < into->n; i++)
        array_set(into, i, array_get(from, i));
}

static inline struct array widened(const struct array *from)
{
    struct array a = array_new(from->n, DT_FP32);

    narrow(from, &a);
    return a;
}

#define RUN(name, tests) run_all(name, sizeof(tests) / sizeof *(tests), \
                                 cmocka_run_group_tests_name(name, tests, NULL, NULL))

static inline int run_all(const char *name, size_t tests, int failed)
{
    printf("%s: %d passed, %d failed\n", name, (int)tests - failed, failed);
    fflush(stdout);
    return failed;
}

#endif
