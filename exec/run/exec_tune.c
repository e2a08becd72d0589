/* exec_tune.c -- what fine-tuning adds to kernel calls: where a packed weight's parts lie, and the dropout of adapters. */
#include "exec/kernels/rng.h"
#include "exec/run/executor_internal.h"
#include "model/arch/packed.h"

struct packed_weight exec_packed(const struct tensor *t, void *at)
{
    int64_t bytes[PACKED_PARTS];
    struct packed_weight w = { .n = t->numel };
    bool coded = t->packed == BASE_NF4_DOUBLE;
    char *part[PACKED_PARTS], *next = at;
    int n = packed_parts(t, bytes);

    for (int i = 0; i < n; next += round_up(bytes[i], 512), i++)
        part[i] = next;
    w.codes = (uint8_t *)part[0];
    w.coded = coded ? (uint8_t *)part[1] : NULL;
    w.maxima = (float *)(void *)part[coded ? 2 : 1];
    w.map = coded ? (float *)(void *)part[3] : NULL;
    w.mean = coded ? (float *)(void *)part[4] : NULL;
    w.values = (float *)(void *)part[n - 1];
    return w;
}

struct dropout exec_adapter_dropout(const struct kernel_call *c, enum slot low, int64_t in)
{
    uint64_t index = ((uint64_t)c->step->number * 4096 + (uint64_t)(c->block + 2)) * 8 + (uint64_t)(low - SLOT_LOW_Q);

    return (struct dropout){ .p = c->x->p->train.dropout, .key = rng_key(c->x->a.seed, RNG_ADAPTER, index),
                             .first = c->step->samples[c->micro] * c->x->p->seq * in };
}
