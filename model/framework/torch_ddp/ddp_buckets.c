/* ddp_buckets.c -- the reducer's buckets in order of registration and of first arrival; the greedy partition of parameters. */
#include "model/framework/torch_ddp/ddp_buckets.h"

#include <stdlib.h>

#include "base/sort.h"
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

struct sized { int64_t numel; int index; };

/* Largest first; Python's sort is stable, so equals keep registration order. */
static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->numel != y->numel)
        return x->numel < y->numel ? 1 : -1;
    return x->index - y->index;
}

void zro_partition(const struct model *m, int64_t nranks, int64_t *owner, int *sorted)
{
    /* No more ranks than tensors ever get one. */
    int64_t ranks = nranks < m->ntensors ? nranks : m->ntensors;
    struct sized *by = room((size_t)m->ntensors, sizeof *by);
    int64_t *load = room((size_t)ranks, sizeof *load);

    for (int i = 0; i < m->ntensors; i++)
        by[i] = (struct sized){ m->tensors[i].numel, i };
    sort_stable(by, (size_t)m->ntensors, sizeof *by, by_size);
    for (int i = 0; i < m->ntensors; i++) {
        int64_t least = 0;
        for (int64_t r = 1; r < ranks; r++)
            if (load[r] < load[least])
                least = r;
        owner[by[i].index] = least;
        load[least] += by[i].numel;
        sorted[i] = by[i].index;
    }
    free(by);
    free(load);
}

int zro_ranks(const struct local_model *local, int64_t ranks[4])
{
    const struct model *m = local->model;
    size_t n = (size_t)m->ntensors + 1;
    int64_t *owner = calloc(n, sizeof *owner), *load = calloc(n, sizeof *load), most = 0;
    int *sorted = calloc(n, sizeof *sorted);

    if (!owner || !load || !sorted)
        abort();
    zro_partition(m, local->data_ranks, owner, sorted);
    for (int t = 0; t < m->ntensors; t++)
        load[owner[t]] += m->tensors[t].numel;
    for (int r = 1; r < m->ntensors; r++)
        if (load[r] > load[most])
            most = r;
    free(owner);
    free(load);
    free(sorted);
    ranks[0] = 0;
    ranks[1] = most;
    return most > 0 ? 2 : 1;
}
