/* kernels_ref.h -- what the files of the reference share: an element of an array of any dtype, as a double. */
#ifndef DPX_KERNELS_REF_H
#define DPX_KERNELS_REF_H

#include "exec/kernels/half.h"
#include "exec/kernels/kernels_internal.h"

static inline double get(const void *x, enum dtype t, int64_t i)
{
    switch (t) {
    case DT_FP64: return ((const double *)x)[i];
    case DT_BF16: return (double)half_from_bf16(((const uint16_t *)x)[i]);
    default:      return (double)((const float *)x)[i];
    }
}

static inline void put(void *x, enum dtype t, int64_t i, double value)
{
    switch (t) {
    case DT_FP64: ((double *)x)[i] = value; break;
    case DT_BF16: ((uint16_t *)x)[i] = half_to_bf16((float)value); break;
    default:      ((float *)x)[i] = (float)value; break;
    }
}

/* kernels_ref_part.c */
int ref_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv, float *o,
                       float *lse);
int ref_attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta);
int ref_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv,
                            const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                            int64_t ldkv);
int ref_copy_runs(struct kernels *k, const struct runs *r, void *dst, const void *src);

#endif
