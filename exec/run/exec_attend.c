/* exec_attend.c -- one rank's attention, forward and backward: all samples at once, or one by one where dropout counts other ranks' heads. */
#include "exec/run/executor_internal.h"

static void *place(void *p, int64_t elems, enum dtype dt) { return (char *)p + elems * dtype_bytes(dt); }

/* Samples from s on, as many as a->batch. */
static int attend_some(const struct kernel_call *c, struct kernels *k, const struct attention *a, int64_t s)
{
    int64_t n = s * a->seq, o = n * a->heads * a->dim;
    const void *qkv = place(c->at[SLOT_QKV], n * a->ld, a->at);
    void *out = place(c->at[SLOT_ATTN], o, a->at);
    float *lse = (float *)c->at[SLOT_LSE] + n * a->heads;

    if (c->k->fn == FN_ATTENTION)
        return kernels_ops(k)->attention(k, a, qkv, out, lse);
    return kernels_ops(k)->attention_back(k, a, qkv, out, lse, place(c->at[SLOT_DA], o, a->at),
                                          (float *)c->at[SLOT_DELTA] + n * a->heads, place(c->at[SLOT_DQKV], n * a->ld, a->at));
}

/* Scores of a sample's other heads, which other ranks have, lie between those of its own and the next sample's:
 * dropout, which counts them, takes a sample at a time. */
int exec_attend(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct attention one = *a;

    if (a->drop.p <= 0 || tensor_ranks(c->x) == 1)
        return attend_some(c, k, a, 0);
    one.batch = 1;
    for (int64_t s = 0; s < a->batch; s++, one.drop.first += tensor_ranks(c->x) * a->heads * a->seq * a->seq)
        if (attend_some(c, k, &one, s) < 0)
            return -1;
    return 0;
}
