/* kernels_internal.h -- what the files of kernels_*.c share.
 *
 * kernels_open.c decides what calls are carried out with: the table of kernels_ref.c or
 * that of kernels_host.c, and which compilation of the inner loops (struct simd).  The
 * workspace has no layout: kernels run one at a time, and each cuts it from the start. */
#ifndef DPX_KERNELS_INTERNAL_H
#define DPX_KERNELS_INTERNAL_H

#include <string.h>

#include "exec/kernels/half.h"
#include "exec/kernels/kernels.h"
#include "exec/kernels/kernels_simd.h"

struct gemm;                            /* kernels_gemm.c: engine, stream, cached primitives */

struct kernels {
    struct kernel_ops  ops;             /* a copy, for its name */
    const struct simd *simd;
    struct gemm *gemm;                  /* NULL for the reference, and on a device */
    void *self;                         /* a device's own, released by close() */
    void (*close)(struct kernels *k);   /* NULL on the host; frees all but k itself */
    int      threads;
    char    *workspace;
    int64_t  bytes;
    char     name[64];
};

extern const struct kernel_ops kernels_ref_ops, kernels_host_ops;

/* Elements that a thread widens at a time: they stay in the first-level cache. */
enum { CHUNK = 1024 };
static inline int64_t chunk_at(int64_t i, int64_t n) { return n - i < CHUNK ? n - i : CHUNK; }

/* Where the workspace is being cut. */
struct cut { char *at; int64_t left; };

struct cut kernels_cut(struct kernels *k);
/* `bytes` from a cache line on, or NULL with the reason reported. */
void *kernels_take(struct cut *c, int64_t bytes, const char *what);

/* What dropout_drops() decides by: hash(seed, i) below the limit.  d NULL: drops nothing. */
struct dropout_rule { uint64_t seed; uint32_t limit; float keep; };
struct dropout_rule dropout_rule(const struct dropout *d);

/* ---- fp32 views of n elements from element `at` of an array of either dtype ---- */

/* The array itself, or its elements widened into tmp. */
static inline const float *floats(const struct simd *s, const void *x, enum dtype t, int64_t at, int64_t n,
                                  float *tmp)
{
    if (t == DT_FP32)
        return (const float *)x + at;
    (t == DT_FP16 ? s->widen_fp16 : s->widen)(n, (const uint16_t *)x + at, tmp);
    return tmp;
}

/* Where to write them: the array itself, or tmp, which floats_put() then narrows. */
static inline float *floats_into(void *y, enum dtype t, int64_t at, float *tmp)
{
    return t == DT_FP32 ? (float *)y + at : tmp;
}

static inline void floats_put(const struct simd *s, void *y, enum dtype t, int64_t at, int64_t n,
                              const float *from)
{
    if (t != DT_FP32)
        (t == DT_FP16 ? s->narrow_fp16 : s->narrow)(n, from, (uint16_t *)y + at);
    else if (from != (const float *)y + at)
        memcpy((float *)y + at, from, (size_t)n * sizeof *from);
}

/* n fp32 numbers as a format of 16 bits has them; `to` may be x. */
static inline void floats_round(const struct simd *s, enum dtype t, int64_t n, const float *x, float *to)
{
    uint16_t rounded[CHUNK];

    for (int64_t i = 0; i < n; i += CHUNK) {
        floats_put(s, rounded, t, 0, chunk_at(i, n), x + i);
        (t == DT_FP16 ? s->widen_fp16 : s->widen)(chunk_at(i, n), rounded, to + i);
    }
}

/* One element, of 16 or 32 bits. */
static inline float element_at(const void *x, enum dtype t, int64_t i)
{
    return t == DT_FP32 ? ((const float *)x)[i] : t == DT_FP16 ? half_from_fp16(((const uint16_t *)x)[i])
                                                               : half_from_bf16(((const uint16_t *)x)[i]);
}

static inline void element_put(void *y, enum dtype t, int64_t i, float v)
{
    if (t == DT_FP32)
        ((float *)y)[i] = v;
    else
        ((uint16_t *)y)[i] = t == DT_FP16 ? half_to_fp16(v) : half_to_bf16(v);
}

/* linear_dw(): torch.autocast in fp16.  (bf16, which has fp32's range, keeps the sums as they are: nothing overflows by it.) */
static inline bool linear_narrows(const struct linear *l) { return l->at == DT_FP16 && l->gt == DT_FP32; }

/* ---- kernels_host_rows.c, kernels_host_loss.c, kernels_attention.c, kernels_linear.c ---- */

int host_embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
               enum dtype wt, void *x, enum dtype at);
int host_embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                         enum dtype wt, void *x, enum dtype at, const struct dropout *d);
int host_embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                    const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into);
int host_embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                              const void *dx, enum dtype at, void *dtable, enum dtype gt,
                              enum grad_into into);
int host_norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
              const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats);
int host_norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                   const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                   void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into);
int host_cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                       const int32_t *labels, float *losses, double scale);

int host_embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                    const void *table, enum dtype wt, void *x, enum dtype at);
int host_embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                         const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into);
int host_logits_most(struct kernels *k, const struct cut_logits *l, const void *logits, float *most);
int host_logits_label(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                      float *at_label);
int host_logits_sum(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most, float *sum);
int host_logits_loss(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                     const struct logit_sums *of, float *losses, double scale);
int host_logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                      const int32_t *labels, float *losses, double scale);
int host_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into);

int host_attention(struct kernels *k, const struct attention *a, const void *qkv, void *o, float *lse);
int host_attention_back(struct kernels *k, const struct attention *a, const void *qkv, const void *o,
                        const float *lse, const void *dout, float *delta, void *dqkv);

int host_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                        float *o, float *lse);
int host_attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta);
int host_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                             const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                             int64_t ldkv);

int host_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                void *y, const void *residual, const struct dropout *d);
int host_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                   void *db, enum grad_into into);
int host_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                   bool add);

/* kernels_host_optim.c */
int host_adamw(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v, const void *g, enum dtype gt,
               void *out, enum dtype ot);
int host_sgd(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
             enum dtype ot);
int host_lion(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
              enum dtype ot);
int host_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                   enum dtype ot);

/* kernels_move.c: in both tables */
int move_zero(struct kernels *k, int64_t bytes, void *dst);
int move_upload(struct kernels *k, int64_t bytes, void *dst, const void *host);
int move_download(struct kernels *k, int64_t bytes, void *host, const void *src);
int move_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host);
int move_finish(struct kernels *k);
int move_sum(struct kernels *k, int64_t n, const float *x, double *sum);
int move_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count);
int move_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum);

/* Bytes of workspace that these need for shapes up to the given. */
int64_t gemm_workspace(int threads);
int64_t attention_workspace(int64_t seq, int64_t dim, int threads);
int64_t rows_workspace(int64_t n, int64_t h, int64_t vocab, int threads);

/* ---- kernels_gemm.c: matrix products on oneDNN ---- */

/* c[m, n] = dropout(a b / scales + bias) + residual, rows of c and residual ldc elements apart.
 * Elements of a are a_row, a_col apart, of which one is 1; so b's.  Operands are multiplied
 * in `as`, summed and scaled in fp32. */
struct product {
    int64_t m, n, k;
    const void *a, *b;
    void   *c;
    enum dtype ta, tb, tc, as;
    int64_t a_row, a_col, b_row, b_col, ldc;
    const void *bias;                   /* [n], or NULL */
    enum dtype tbias;
    const void *residual;               /* of dtype tc, or NULL; may be c */
    const struct dropout *drop;         /* or NULL */
    struct scales scales;
    bool    narrows;                    /* sums of fp16 operands are fp16 before what follows */
};

/* n sums of row `row`, from column j on, by reciprocals, as addmm_float8_unwrapped() of torchao hands them to _scaled_mm(). */
static inline void scales_apply(const struct scales *s, int64_t row, int64_t j, int64_t n, float *sum)
{
    float a, b;

    if (!s->a)
        return;
    a = 1 / s->a[s->each_a ? row : 0];
    b = 1 / s->b[0];
    for (int64_t i = 0; i < n; i++)
        sum[i] *= a * (s->each_b ? 1 / s->b[j + i] : b);
}

struct gemm *gemm_open(int threads);    /* NULL with the reason reported */
void         gemm_close(struct gemm *g);                /* accepts NULL */
void         gemm_name(char *into, size_t size);        /* "onednn 2.6.3" */
bool         gemm_widens(const struct gemm *g);         /* no bf16 product on this machine */
int          gemm_product(struct kernels *k, const struct product *p);

#endif
