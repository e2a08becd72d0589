/* The backward of test_attention.c on a device with less or more shared memory than the emulated one. */
#include "exec/cuda/attention_internal.cuh"

static attn call_within(const struct launch_attention *c, int shared)
{
    return { (int)c->ld, (int)c->batch, (int)c->seq, (int)c->heads, (int)c->kv_heads, (int)c->dim, c->scale,
             c->scale * LOG2E, c->dim % 8 == 0 && c->ld % 8 == 0, c->drop, shared, 0 };
}

template <class T>
static int backward_as(const attn &a, const void *qkv, const float *lse, const void *dout, const float *delta, void *dqkv, cudaStream_t s)
{
    return attention_backward_in(a, back_arrays<T>{ (const T *)qkv, (const T *)dout, lse, delta, (T *)dqkv }, s);
}

template <class T> static int forward_as(const attn &a, const void *qkv, void *o, float *lse, cudaStream_t s)
{
    return attention_forward_in(a, (const T *)qkv, (T *)o, lse, s);
}

extern "C" int attention_backward_within(const struct launch_attention *c, int shared, const void *qkv,
                                         const float *lse, const void *dout, const float *delta, void *dqkv,
                                         struct CUstream_st *s)
{
    attn a = call_within(c, shared);

    return BY_DTYPE(c->at, backward_as, a, qkv, lse, dout, delta, dqkv, s);
}

extern "C" int attention_forward_within(const struct launch_attention *c, int shared, const void *qkv,
                                        void *o, float *lse, struct CUstream_st *s)
{
    attn a = call_within(c, shared);

    return BY_DTYPE(c->at, forward_as, a, qkv, o, lse, s);
}
