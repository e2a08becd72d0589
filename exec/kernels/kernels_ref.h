/* kernels_ref.h -- what the files of the reference share: elements of any dtype as fp64. */
#ifndef DPX_KERNELS_REF_H
#define DPX_KERNELS_REF_H

#include "exec/kernels/half.h"
#include "exec/kernels/kernels_internal.h"

static inline double get(const void *x, enum dtype t, int64_t i)
{
    switch (t) {
    case DT_FP64: return ((const double *)x)[i];
    case DT_BF16: return (double)half_from_bf16(((const uint16_t *)x)[i]);
    case DT_FP16: return (double)half_from_fp16(((const uint16_t *)x)[i]);
    default:      return (double)((const float *)x)[i];
    }
}

static inline void put(void *x, enum dtype t, int64_t i, double value)
{
    switch (t) {
    case DT_FP64: ((double *)x)[i] = value; break;
    case DT_BF16: ((uint16_t *)x)[i] = half_to_bf16((float)value); break;
    case DT_FP16: ((uint16_t *)x)[i] = half_to_fp16((float)value); break;
    default:      ((float *)x)[i] = (float)value; break;
    }
}

static inline void put_grad(void *x, enum dtype t, int64_t i, double value, enum grad_into into)
{
    put(x, t, i, into == GRAD_ADD ? get(x, t, i) + value : value);
}

/* A number as a format of 16 bits has it; fp32: as it is. */
static inline double rounded(enum dtype t, double value)
{
    switch (t) {
    case DT_BF16: return (double)half_from_bf16(half_to_bf16((float)value));
    case DT_FP16: return (double)half_from_fp16(half_to_fp16((float)value));
    default:      return value;
    }
}

/* A sum of linear_dw(). */
static inline void put_sum(const struct linear *l, void *x, int64_t i, double sum, enum grad_into into)
{
    put_grad(x, l->gt, i, linear_narrows(l) ? rounded(l->at, sum) : sum, into);
}

static inline double dropped(const struct dropout *d, int64_t i, double x)
{
    if (!d || !(d->p > 0))
        return x;
    return dropout_drops(d, i) ? 0 : x / (1 - d->p);
}

/* ---- kernels_ref_cut.c ---- */

int ref_embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                   const void *table, enum dtype wt, void *x, enum dtype at);
int ref_embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                        const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into);
int ref_residual(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b, enum dtype wt,
                 const void *residual, const struct dropout *d);
int ref_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into);
int ref_logits_most(struct kernels *k, const struct cut_logits *l, const void *logits, float *most);
int ref_logits_label(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                     float *at_label);
int ref_logits_sum(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most, float *sum);
int ref_logits_loss(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                    const struct logit_sums *of, float *losses, double scale);
int ref_logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                     const int32_t *labels, float *losses, double scale);

/* ---- kernels_ref_part.c ---- */

int ref_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv, float *o,
                       float *lse);
int ref_attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta);
int ref_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv,
                            const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                            int64_t ldkv);
int ref_copy_runs(struct kernels *k, const struct runs *r, void *dst, const void *src);

/* ---- kernels_ref_optim.c ---- */

int ref_adamw(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v, const void *g, enum dtype gt,
              void *out, enum dtype ot);
int ref_sgd(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
            enum dtype ot);
int ref_lion(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
             enum dtype ot);
int ref_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                  enum dtype ot);

#endif
