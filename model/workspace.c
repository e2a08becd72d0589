#include "model/workspace.h"

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* The widest row of activations, logits aside. */
static int64_t widest_row(const struct model *m)
{
    int64_t qkv = (m->heads + 2 * m->kv_heads) * m->head_dim;

    return largest(largest(m->ffn, qkv), largest(m->hidden, m->head_dim));
}

int64_t workspace_kernels(const struct plan *p, int threads)
{
    const struct model *m = &p->model;
    int64_t widest = widest_row(m);
    int64_t t = round_up(p->seq, 64), d = round_up(m->head_dim, 16), n = p->micro_batch * p->seq;
    int64_t products = ((7 + (int64_t)threads) << 20) + 256;
    int64_t attention = 4 * threads * (5 * t * d + 192 * d + 34816) + 64;
    int64_t norms = 4 * (2 + 5 * (int64_t)threads) * round_up(widest, 16) + 64;
    int64_t rows = 4 * (round_up(m->vocab + 1, 16) + round_up(n, 16)) + 64;

    return largest(largest(products, attention), largest(norms, rows));
}

int64_t workspace_device(const struct plan *p)
{
    int64_t products = (int64_t)32 << 20, stages = (int64_t)16 << 20;

    return products + stages + 4 * (2 * 512 + 8) * round_up(widest_row(&p->model), 16);
}

int64_t workspace_staging(int64_t ranks)
{
    return ranks > 1 ? (int64_t)8 << 20 : 0;
}
