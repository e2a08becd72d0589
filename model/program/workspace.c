/* workspace.c -- bytes of scratch memory of kernels and collectives on the host. */
#include "model/program/workspace.h"

#include "model/arch/training.h"

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* The widest row of activations, logits aside. */
static int64_t widest_row(const struct model *m)
{
    int64_t qkv = (m->heads + 2 * m->kv_heads) * m->head_dim;

    return largest(largest(largest(m->ffn, qkv), largest(m->hidden, m->head_dim)), training_is_lora(&m->training) ? m->training.rank : 0);
}

int64_t workspace_kernels(const struct plan *p, int threads)
{
    const struct model *m = &p->model;
    int64_t widest = widest_row(m);
    int64_t t = round_up(plan_attention_seq(p), 64), d = round_up(m->head_dim, 16), n = p->micro_batch * plan_rank_seq(p);
    int64_t products = ((7 + (int64_t)threads) << 20) + 256;
    int64_t attention = 4 * threads * (5 * t * d + 192 * d + 34816) + 64;
    int64_t norms = 4 * (2 + 5 * (int64_t)threads) * round_up(widest, 16) + 64;
    int64_t rows = 4 * (round_up(m->vocab + 1, 16) + round_up(n, 16)) + 64;

    return largest(largest(products, attention), largest(norms, rows));
}

/* Weights that stay fp32 while products are in 16 bits (torch.autocast) are cast one at a time. */
static int64_t casts(const struct plan *p, int64_t widest)
{
    const struct model *m = &p->model;
    int64_t largest_weight = largest(largest(m->vocab, m->ffn), widest) * m->hidden;

    return plan_recipe(p).autocast ? round_up(2 * largest_weight, 64) + round_up(2 * widest, 64) : 0;
}

int64_t workspace_device(const struct plan *p)
{
    const struct model *m = &p->model;
    int64_t n = p->micro_batch * plan_rank_seq(p), widest = widest_row(m);
    int64_t products = (int64_t)32 << 20, strip = casts(p, widest) + largest((int64_t)4 << 20, 4 * widest);
    int64_t columns = 4 * widest * (n < 256 ? n : 256), norms = 8 * m->hidden * (n < 512 ? n : 512);
    int64_t embeddings = 4 * (2 * (m->vocab + 1) + 2 * n + (m->vocab + 1023) / 1024 + 20 + n / 256 * m->hidden);

    return products + round_up(largest(largest(strip, columns), largest(norms, embeddings)), 256);
}

int64_t workspace_staging(int64_t ranks)
{
    return ranks > 1 ? (int64_t)8 << 20 : 0;
}
