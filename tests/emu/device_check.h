/* device_check.h -- arrays of kernels_check.h on an emulated device, and kernels there beside the
 * reference on the host. */
#ifndef DPX_DEVICE_CHECK_H
#define DPX_DEVICE_CHECK_H

#include "tests/exec/kernels_check.h"
#include "exec/device/device.h"

#include <emu.h>

/* ---- kernels ---- */

enum { WORKSPACE = 48 << 20 };

static struct {
    struct device *device;
    void *workspace;
    struct kernels *k, *ref_k;          /* on the device's compute stream; the reference */
    const struct kernel_ops *ops, *ref;
    struct array ref_workspace;
} gpu;

static inline void gpu_open(void)
{
    gpu.device = device_cuda_open(0);
    assert_non_null(gpu.device);
    gpu.workspace = device_map(gpu.device, WORKSPACE);
    assert_non_null(gpu.workspace);
    gpu.k = kernels_open_on(gpu.device, STREAM_COMPUTE, 1, gpu.workspace, WORKSPACE, false);
    assert_non_null(gpu.k);
    gpu.ops = kernels_ops(gpu.k);
    gpu.ref_workspace = array_new(1 << 20, DT_FP32);
    gpu.ref_k = kernels_open(1, gpu.ref_workspace.x, 4 << 20, true);
    gpu.ref = kernels_ops(gpu.ref_k);
}

static inline void gpu_close(void)
{
    kernels_close(gpu.k);
    kernels_close(gpu.ref_k);
    device_unmap(gpu.device, gpu.workspace, WORKSPACE);
    device_close(gpu.device);
    array_free(&gpu.ref_workspace);
}

/* Runs tests between the two; how many failed.  With delays before what is queued: what does not wait is
 * found out. */
#define gpu_tests(name, tests) \
    (gpu_begin(), gpu_end(cmocka_run_group_tests_name(name, tests, NULL, NULL)))

static inline void gpu_begin(void)
{
    setenv("DPX_EMU_DELAY", "1", 0);
    gpu_open();
}

static inline int gpu_end(int failed)
{
    gpu_close();
    struct emu_alive left = emu_alive();
    if (!left.device_memory && !left.pinned_memory && !left.streams && !left.events)
        return failed;
    print_error("not given back: %d of device memory, %d pinned, %d streams, %d events\n", left.device_memory,
                left.pinned_memory, left.streams, left.events);
    return failed + 1;
}

/* ---- arrays ---- */

/* A copy of an array on the device, between guards; it starts `skew` elements beyond a multiple of
 * 256 bytes. */
struct there { char *base; void *x; int64_t bytes, before; };

static inline struct there to_device_skewed(const struct array *a, int64_t skew)
{
    struct there t = { .bytes = a->n * dtype_bytes(a->t), .before = GUARD + skew * dtype_bytes(a->t) };
    int64_t all = t.before + t.bytes + GUARD;
    char *image = malloc((size_t)all);

    assert_non_null(image);
    t.base = device_map(gpu.device, all);
    assert_non_null(t.base);
    t.x = t.base + t.before;
    memset(image, GUARD_BYTE, (size_t)all);
    memcpy(image + t.before, a->x, (size_t)t.bytes);
    assert_int_equal(gpu.ops->upload(gpu.k, all, t.base, image), 0);
    memset(image, 0, (size_t)all);              /* upload() has what it needs */
    free(image);
    return t;
}

/* Where it may begin anywhere, one in four does. */
static inline struct there to_device(const struct array *a)
{
    return to_device_skewed(a, random_int(0, 3) ? 0 : random_int(1, 7));
}

static inline struct there ids_to_device(const int32_t *ids, int64_t n)
{
    struct array a = { .x = (void *)(uintptr_t)ids, .n = n, .t = DT_FP32 };

    return to_device(&a);
}

/* Its contents into a, its guards checked; then it is no more. */
static inline void from_device(struct there *t, struct array *a)
{
    int64_t all = t->before + t->bytes + GUARD;
    unsigned char *image = malloc((size_t)all);

    assert_non_null(image);
    assert_int_equal(gpu.ops->download(gpu.k, all, image, t->base), 0);
    for (int64_t i = 0; i < t->before; i++)
        assert_int_equal(image[i], GUARD_BYTE);
    for (int64_t i = t->before + t->bytes; i < all; i++)
        assert_int_equal(image[i], GUARD_BYTE);
    if (a)
        memcpy(a->x, image + t->before, (size_t)t->bytes);
    free(image);
    device_unmap(gpu.device, t->base, all);
}

static inline void drop_device(struct there *t) { from_device(t, NULL); }

#define OK(call) assert_int_equal((call), 0)

#endif
