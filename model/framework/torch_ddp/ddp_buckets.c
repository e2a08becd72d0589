/* ddp_buckets.c -- the reducer's buckets in order of registration and of first arrival. */
#include "model/framework/torch_ddp/ddp_buckets.h"

#include <stdlib.h>

#include "model/lower/common/lower_internal.h"

static void *room(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);

    if (!p)
        abort();
    return p;
}

void buckets_assign(const struct model *m, const int *order, int n, int64_t element, const int64_t limit[2],
                    struct buckets *b)
{
    size_t all = (size_t)m->ntensors;
    int64_t filled = 0;

    *b = (struct buckets){ .of = room(all, sizeof *b->of), .tensors = room(all, sizeof *b->tensors),
                           .numel = room(all, sizeof *b->numel), .at = room(all, sizeof *b->at) };
    for (int i = 0; i < n; i++) {
        int t = order[i];
        b->of[t] = b->n;
        b->at[t] = b->numel[b->n];
        b->tensors[b->n]++;
        b->numel[b->n] += m->tensors[t].numel;
        filled += m->tensors[t].numel * element;
        if (filled >= limit[b->n > 0]) {
            b->n++;
            filled = 0;
        }
    }
    if (b->tensors[b->n] > 0)
        b->n++;
}

void buckets_reverse(struct buckets *b, int ntensors)
{
    for (int t = 0; t < ntensors; t++)
        b->of[t] = b->n - 1 - b->of[t];
    for (int i = 0, j = b->n - 1; i < j; i++, j--) {
        int tensors = b->tensors[i];
        int64_t numel = b->numel[i];
        b->tensors[i] = b->tensors[j];
        b->numel[i] = b->numel[j];
        b->tensors[j] = tensors;
        b->numel[j] = numel;
    }
}

void buckets_free(struct buckets *b)
{
    free(b->of);
    free(b->tensors);
    free(b->numel);
    free(b->at);
    *b = (struct buckets){ 0 };
}

static int add_ready(const struct plan *p, const struct program *g, enum piece_id piece, int64_t block,
                     int *order, int n)
{
    const struct piece *q = &g->piece[piece];

    for (int k = 0; k < q->nkernels[PASS_BACKWARD]; k++)
        for (int i = 0; i < 4; i++)
            if (q->kernels[PASS_BACKWARD][k].ready[i] >= 0)
                order[n++] = program_tensor(p, piece, block, q->kernels[PASS_BACKWARD][k].ready[i]);
    return n;
}

void buckets_ready_order(const struct local_model *local, const struct program *g, int from, int to, bool embeds, bool heads, int *order)
{
    const struct plan *p = local->plan;
    int n = heads ? add_ready(p, g, PIECE_HEAD, 0, order, 0) : 0;

    for (int64_t b = to - 1; b >= from; b--)
        n = add_ready(p, g, program_piece_of_block(p, b), b, order, n);
    if (embeds)
        add_ready(p, g, PIECE_EMBED, 0, order, n);
}
