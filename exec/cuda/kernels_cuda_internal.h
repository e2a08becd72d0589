/* kernels_cuda_internal.h -- what the files of kernels_cuda*.c share.
 *
 * Of the workspace cuBLASLt has the first 32 MiB; the rest is k->workspace, which a call cuts
 * from its start as the host's do: calls of a stream run one after the other.  Sums and their
 * results lie in memory of the kernels' own, since streams without a workspace make them too. */
#ifndef DPX_KERNELS_CUDA_INTERNAL_H
#define DPX_KERNELS_CUDA_INTERNAL_H

#include "exec/cuda/device_cuda.h"
#include "exec/cuda/elements.h"
#include "exec/cuda/gemm_cuda.h"
#include "exec/cuda/kernels_cuda.h"
#include "exec/kernels/exact_sum.h"
#include "exec/kernels/kernels_internal.h"

enum { SLOTS = 64 };                    /* results that wait for finish() at most */

/* A result on the device: a double, an exact sum, or the largest of magnitudes. */
union sum_slot { double sum; struct exact_sum exact; float most; };

/* Where a slot goes: the other pointers are NULL. */
struct result { double *sum; struct exact_sum *exact; float *most; };

/* The device's memory: slots, then ELEMENTS_WORKSPACE for the sums on their way. */
enum { OWN_BYTES = SLOTS * (int)sizeof(union sum_slot) + ELEMENTS_WORKSPACE };

/* Pinned memory of the host, made when it is first needed.  `up` is a ring: an upload takes what
 * follows the one before, and waits for the stream only at the ring's end. */
struct staging {
    char   *slots, *up, *down;
    int64_t up_at;
};
enum { STAGING_UP = 8 << 20, STAGING_DOWN = 4 << 20 };

struct kernels_cuda {
    struct device      *device;
    struct CUstream_st *stream;
    struct gemm_cuda   *gemm;           /* NULL without a workspace */
    union sum_slot         *slots;          /* on the device, zero where none waits */
    void               *sums;           /* behind them */
    struct result       result[SLOTS];
    int                 nresults;
    struct staging      pinned;
};

static inline struct kernels_cuda *cuda_kernels(const struct kernels *k) { return k->self; }
static inline struct CUstream_st  *cuda_stream_of(const struct kernels *k) { return cuda_kernels(k)->stream; }

static inline struct cuda_drop cuda_drop(const struct dropout *d)
{
    struct dropout_rule r = dropout_rule(d);

    return (struct cuda_drop){ r.seed, r.limit, r.keep };
}

/* ---- kernels_cuda_linear.c ---- */

int cuda_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                void *y, const void *residual, const struct dropout *d);
int cuda_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                   void *db, enum grad_into into);
int cuda_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into);
int cuda_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                   bool add);

/* Bytes of casts and strips, behind cuBLASLt's: struct kernels_cuda_need. */
int64_t linear_cuda_workspace(int64_t widest, int64_t cast);

/* ---- kernels_cuda_host.c: what goes between host and device ---- */

int cuda_zero(struct kernels *k, int64_t bytes, void *dst);
int cuda_upload(struct kernels *k, int64_t bytes, void *dst, const void *host);
int cuda_download(struct kernels *k, int64_t bytes, void *host, const void *src);
int cuda_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host);
int cuda_finish(struct kernels *k);
int cuda_sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum);
int cuda_sum(struct kernels *k, int64_t n, const float *x, double *sum);
int cuda_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count);
int cuda_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum);
int cuda_largest(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most);

/* ---- kernels_cuda_optim.c ---- */

int cuda_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                   enum dtype ot);
int cuda_adamw8(struct kernels *k, const struct adamw *a, const struct adamw8 *s, const void *g, enum dtype gt, void *out, enum dtype ot);
int cuda_pack(struct kernels *k, const struct packed_weight *w, const float *x);
int cuda_unpack(struct kernels *k, const struct packed_weight *w, void *x, enum dtype at);

/* Takes the device's memory and zeroes the slots; waits, and gives all memory back. */
int  cuda_host_open(struct kernels_cuda *c);
void cuda_host_close(struct kernels_cuda *c);

#endif
