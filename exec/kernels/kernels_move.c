/* What the host's table and the reference's share: here device memory is the host's, every call is
 * done when it returns, and there is nothing to finish. */
#include "exec/kernels/exact_sum.h"
#include "exec/kernels/kernels_internal.h"

int move_zero(struct kernels *k, int64_t bytes, void *dst)
{
    (void)k;
    memset(dst, 0, (size_t)bytes);
    return 0;
}

int move_upload(struct kernels *k, int64_t bytes, void *dst, const void *host)
{
    (void)k;
    memcpy(dst, host, (size_t)bytes);
    return 0;
}

int move_download(struct kernels *k, int64_t bytes, void *host, const void *src)
{
    (void)k;
    memcpy(host, src, (size_t)bytes);
    return 0;
}

int move_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host)
{
    return k->ops.copy(k, n, dst, dt, host, DT_FP32, 1, false);
}

int move_finish(struct kernels *k)
{
    (void)k;
    return 0;
}

int move_sum(struct kernels *k, int64_t n, const float *x, double *sum)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        *sum += (double)x[i];
    return 0;
}

/* An exponent of all ones.  Integers only, so that the loop is vectorised. */
int move_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count)
{
    const uint32_t *wide = x;
    const uint16_t *narrow = x;
    int64_t found = 0;

    (void)k;
    for (int64_t i = 0; i < n && dt == DT_FP32; i++)
        found += (wide[i] & 0x7f800000u) == 0x7f800000u;
    for (int64_t i = 0; i < n && dt == DT_BF16; i++)
        found += (narrow[i] & 0x7f80u) == 0x7f80u;
    for (int64_t i = 0; i < n && dt == DT_FP16; i++)
        found += (narrow[i] & 0x7c00u) == 0x7c00u;
    *count += (double)found;
    return 0;
}

int move_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum)
{
    (void)k;
    exact_add_squares(sum, n, x, dt);
    return 0;
}
