/* What goes between host and device: arrays through pinned memory, and results.
 *
 * A result is summed up in a slot on the device, which every call for the same variable adds to (or the
 * largest is kept there).  finish() fetches the slots, waits, adds them to the variables and zeroes them again. */
#include "exec/cuda/kernels_cuda_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>

#include "exec/cuda/float8.h"
#include "exec/kernels/fp8.h"
#include "exec/kernels/half.h"

static_assert(NORM_LIMBS == 21, "the limbs that elements_exact_squares() adds to");

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- opening ---- */

static int zero_slots(struct kernels_cuda *c)
{
    return CUDA_OK(cudaMemsetAsync(c->slots, 0, SLOTS * sizeof *c->slots, c->stream));
}

int cuda_host_open(struct kernels_cuda *c)
{
    char *own = device_map(c->device, OWN_BYTES);

    if (!own)
        return -1;
    c->slots = (union sum_slot *)(void *)own;
    c->sums = own + SLOTS * sizeof *c->slots;
    return zero_slots(c);
}

void cuda_host_close(struct kernels_cuda *c)
{
    if (!c->slots)
        return;
    device_drain(c->device, c->stream, NULL);
    device_unmap(c->device, c->slots, OWN_BYTES);
    device_unpin(c->device, c->pinned.slots, SLOTS * (int64_t)sizeof *c->slots);
    device_unpin(c->device, c->pinned.up, STAGING_UP);
    device_unpin(c->device, c->pinned.down, STAGING_DOWN);
}

/* *area, made if it is not there; NULL reported. */
static char *pinned(struct kernels_cuda *c, char **area, int64_t bytes)
{
    if (!*area)
        *area = device_pin(c->device, bytes);
    return *area;
}

/* ---- arrays ---- */

int cuda_zero(struct kernels *k, int64_t bytes, void *dst)
{
    return bytes > 0 ? CUDA_OK(cudaMemsetAsync(dst, 0, (size_t)bytes, cuda_stream_of(k))) : 0;
}

/* The next part of the ring: as much as is wanted, or what there is up to its end; `unit` divides
 * it.  At the end all uploads before must have been done with it. */
static char *next_up(struct kernels_cuda *c, int64_t wanted, int64_t unit, int64_t *bytes)
{
    if (!pinned(c, &c->pinned.up, STAGING_UP))
        return NULL;
    if (STAGING_UP - c->pinned.up_at < unit) {
        if (device_drain(c->device, c->stream, NULL) < 0)
            return NULL;
        c->pinned.up_at = 0;
    }
    char *to = c->pinned.up + c->pinned.up_at;
    *bytes = least(wanted, (STAGING_UP - c->pinned.up_at) / unit * unit);
    c->pinned.up_at += round_up(*bytes, 64);
    return to;
}

int cuda_upload(struct kernels *k, int64_t bytes, void *dst, const void *host)
{
    struct kernels_cuda *c = cuda_kernels(k);

    for (int64_t at = 0, n; at < bytes; at += n) {
        char *by = next_up(c, bytes - at, 1, &n);
        if (!by)
            return -1;
        memcpy(by, (const char *)host + at, (size_t)n);
        if (device_store(c->device, c->stream, (char *)dst + at, by, n) < 0)
            return -1;
    }
    return 0;
}

int cuda_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host)
{
    struct kernels_cuda *c = cuda_kernels(k);

    if (dt == DT_FP32)
        return cuda_upload(k, n * 4, dst, host);
    for (int64_t at = 0, bytes; at < n; at += bytes / 2) {
        char *by = next_up(c, 2 * (n - at), 2, &bytes);
        uint16_t *to = (uint16_t *)(void *)by;
        if (!by)
            return -1;
        for (int64_t i = 0; i < bytes / 2; i++)
            to[i] = dt == DT_FP16 ? half_to_fp16(host[at + i]) : half_to_bf16(host[at + i]);
        if (device_store(c->device, c->stream, (uint16_t *)dst + at, by, bytes) < 0)
            return -1;
    }
    return 0;
}

int cuda_download(struct kernels *k, int64_t bytes, void *host, const void *src)
{
    struct kernels_cuda *c = cuda_kernels(k);
    char *by = bytes > 0 ? pinned(c, &c->pinned.down, STAGING_DOWN) : NULL;

    for (int64_t at = 0, n; at < bytes; at += n) {
        n = least(bytes - at, STAGING_DOWN);
        if (!by || device_fetch(c->device, c->stream, by, (const char *)src + at, n) < 0 ||
            device_drain(c->device, c->stream, NULL) < 0)
            return -1;
        memcpy((char *)host + at, by, (size_t)n);
    }
    return 0;
}

/* ---- results ---- */

int cuda_finish(struct kernels *k)
{
    struct kernels_cuda *c = cuda_kernels(k);
    int64_t bytes = c->nresults * (int64_t)sizeof *c->slots;
    const union sum_slot *there = NULL;

    if (bytes > 0) {
        char *by = pinned(c, &c->pinned.slots, SLOTS * (int64_t)sizeof *c->slots);
        if (!by || device_fetch(c->device, c->stream, by, c->slots, bytes) < 0)
            return -1;
        there = (const union sum_slot *)(void *)by;
    }
    if (device_drain(c->device, c->stream, NULL) < 0)
        return -1;
    for (int i = 0; i < c->nresults; i++) {
        struct result to = c->result[i];
        if (to.sum)
            *to.sum += there[i].sum;
        for (int j = 0; to.exact && j < NORM_LIMBS; j++)
            to.exact->limb[j] += there[i].exact.limb[j];
        if (to.exact)
            exact_carry(to.exact);
        if (to.most)
            *to.most = fp8_larger(*to.most, there[i].most);
    }
    c->nresults = 0;
    return bytes > 0 ? zero_slots(c) : 0;
}

/* The variable's slot on the device, its own from now on; NULL reported. */
static union sum_slot *slot_for(struct kernels *k, struct result to)
{
    struct kernels_cuda *c = cuda_kernels(k);

    for (int i = 0; i < c->nresults; i++)
        if (c->result[i].sum == to.sum && c->result[i].exact == to.exact && c->result[i].most == to.most)
            return &c->slots[i];
    if (c->nresults == SLOTS && cuda_finish(k) < 0)
        return NULL;
    c->result[c->nresults] = to;
    return &c->slots[c->nresults++];
}

typedef int sum_fn(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace,
                   struct CUstream_st *s);

static int add_up(struct kernels *k, sum_fn *fn, const char *what, int64_t n, const void *x, enum dtype dt,
                  double *sum)
{
    struct kernels_cuda *c = cuda_kernels(k);
    union sum_slot *to = slot_for(k, (struct result){ .sum = sum });

    return to ? cuda_ok(fn(1, &(struct cuda_run){ x, n }, dt, &to->sum, c->sums, c->stream), what) : -1;
}

int cuda_sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum)
{
    return add_up(k, elements_sum_squares, "sum of squares", n, x, dt, sum);
}

int cuda_sum(struct kernels *k, int64_t n, const float *x, double *sum)
{
    return add_up(k, elements_sum, "sum", n, x, DT_FP32, sum);
}

int cuda_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count)
{
    return add_up(k, elements_not_finite, "looking for what is not finite", n, x, dt, count);
}

int cuda_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum)
{
    union sum_slot *to = slot_for(k, (struct result){ .exact = sum });

    return to ? cuda_ok(elements_exact_squares(1, &(struct cuda_run){ x, n }, dt, to->exact.limb,
                                               cuda_stream_of(k)), "exact sum of squares") : -1;
}

int cuda_largest(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most)
{
    union sum_slot *to = slot_for(k, (struct result){ .most = most });
    struct cuda_strided all = { 1, n, n };

    return to ? cuda_ok(float8_cuda_amax(&all, FLOAT8_BY_TENSOR, x, dt, &to->most, true, cuda_stream_of(k)), "largest magnitude") : -1;
}
