/* attention.h -- launchers of rotary positions and of causal attention: attention.cu.
 *
 * The layouts, the log-sum-exp and dropout's bits are those of exec/kernels/kernels.h.  Pointers are the
 * device's; a launcher queues on the stream and returns a cudaError_t, 0 for success, with
 * nothing queued where it refuses its arguments.
 *
 * No workspace: the only scratch is `delta`.  Results are equal on every run: nothing is summed
 * by atomics.  Any dim up to ATTENTION_DIM and any ld; where heads begin at multiples of 16
 * bytes (dim and ld of 8 elements of 16 bits, of 4 in fp32) 16 bytes are moved at a time, else one
 * element.  dim is computed as the next of 32, 64, 80, 96, 128, 256 in 16 bits, and of 64, 128,
 * 256 in fp32. */
#ifndef DPX_CUDA_ATTENTION_H
#define DPX_CUDA_ATTENTION_H

#include "exec/cuda/launch.h"

enum { ATTENTION_DIM = 256 };

#ifdef __cplusplus
extern "C" {
#endif

/* struct attention's numbers. */
struct launch_attention {
    int64_t batch, seq, heads, kv_heads, dim, ld;
    float   scale;              /* above 0 */
    enum launch_dtype at;
    struct launch_drop drop;
    int64_t first;              /* position of a sample's first token */
};

/* struct attention_part's, its struct score_places (read with dropout alone), and pitches of rows of dq and of dk, dv. */
struct launch_part {
    const void *kv;
    int64_t ld, from, keys, ldq, ldkv;
    bool    causal, fresh;
    struct { int64_t heads, seq, run, row[2], key[2]; } at;
};

/* rotary: even, at most dim; inv_freq[rotary / 2] */
int attention_rotary(const struct launch_attention *a, int64_t rotary, const float *inv_freq, void *qkv,
                     bool inverse, struct CUstream_st *s);

int attention_forward(const struct launch_attention *a, const void *qkv, void *o, float *lse,
                      struct CUstream_st *s);

/* Three kernels: delta, then dq, then dk and dv.  dqkv may not be qkv. */
int attention_backward(const struct launch_attention *a, const void *qkv, const void *o, const float *lse,
                       const void *dout, float *delta, void *dqkv, struct CUstream_st *s);

/* delta = sum of dout * o over a head's row. */
int attention_deltas(const struct launch_attention *a, const void *o, const void *dout, float *delta, struct CUstream_st *s);

/* Attention in parts (attention_part.cu): attention_part() and attention_part_back() of kernels.h.  Arithmetic is fp32 without
 * tensor cores in 16 bits as well.  Backward is two kernels: dq, then dk and dv. */
int attention_part_forward(const struct launch_attention *a, const struct launch_part *p, const void *qkv, float *o, float *lse,
                           struct CUstream_st *s);
int attention_part_backward(const struct launch_attention *a, const struct launch_part *p, const void *qkv, const float *lse,
                            const void *dout, const float *delta, float *dq, void *dkv, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif

#endif
