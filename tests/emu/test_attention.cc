/* The backward of test_attention.c on a device with less or more shared memory than the emulated one. */
#include "exec/cuda/attention_internal.cuh"

static attn call_within(const struct launch_attention *c, int shared)
{
    return { (int)c->ld, (int)c->batch, (int)c->seq, (int)c->heads, (int)c->kv_heads, (int)c->dim, c->scale,
             c->scale * LOG2E, c->dim % 8 == 0 && c->ld % 8 == 0, c->drop, shared, 0 };
}

extern "C" int attention_backward_within(const struct launch_attention *c, int shared, const void *qkv,
                                         const float *lse, const void *dout, const float *delta, void *dqkv,
                                         struct CUstream_st *s)
{
    attn a = call_within(c, shared);

    if (c->at == LAUNCH_FP32)
        return attention_backward_fp32(a, { (const float *)qkv, (const float *)dout, lse, delta,
                                            (float *)dqkv }, s);
    return attention_backward_bf16(a, { (const bf16 *)qkv, (const bf16 *)dout, lse, delta, (bf16 *)dqkv }, s);
}

extern "C" int attention_forward_within(const struct launch_attention *c, int shared, const void *qkv,
                                        void *o, float *lse, struct CUstream_st *s)
{
    attn a = call_within(c, shared);

    return c->at == LAUNCH_BF16 ? attention_forward_bf16(a, (const bf16 *)qkv, (bf16 *)o, lse, s)
                                : attention_forward_fp32(a, (const float *)qkv, (float *)o, lse, s);
}
