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

/* Buckets of one dtype: the one that is open (0: none), what it holds, whether one was closed. */
struct of_dtype { int open; int64_t filled; bool later; };

/* Puts bucket i of *b in place[i]. */
static void reorder(struct buckets *b, const int *place, const int *order, int n, int ntensors)
{
    struct buckets from = *b;

    b->tensors = room((size_t)ntensors, sizeof *b->tensors);
    b->numel = room((size_t)ntensors, sizeof *b->numel);
    b->dtype = room((size_t)ntensors, sizeof *b->dtype);
    for (int i = 0; i < b->n; i++) {
        b->tensors[place[i]] = from.tensors[i];
        b->numel[place[i]] = from.numel[i];
        b->dtype[place[i]] = from.dtype[i];
    }
    for (int i = 0; i < n; i++)
        b->of[order[i]] = place[b->of[order[i]]];
    free(from.tensors);
    free(from.numel);
    free(from.dtype);
}

/* dtype NULL: all have elements of so many bytes. */
static void assign(const struct model *m, const int *order, int n, const uint8_t *dtype, int64_t element, const int64_t limit[2], bool by_arrival,
                   struct buckets *b)
{
    size_t all = (size_t)m->ntensors;
    struct of_dtype kind[NDTYPE] = { 0 };
    int *place = room(all, sizeof *place), met[NDTYPE], nmet = 0, closed = 0;

    *b = (struct buckets){ .of = room(all, sizeof *b->of), .tensors = room(all, sizeof *b->tensors), .numel = room(all, sizeof *b->numel),
                           .at = room(all, sizeof *b->at), .dtype = room(all, sizeof *b->dtype) };
    for (int i = 0; i < n; i++) {
        int t = order[i], d = dtype ? dtype[t] : 0;
        struct of_dtype *k = &kind[d];
        if (k->open == 0) {
            if (!k->later)
                met[nmet++] = d;
            b->dtype[b->n] = (uint8_t)d;
            k->open = ++b->n;
        }
        b->of[t] = k->open - 1;
        b->at[t] = b->numel[k->open - 1];
        b->tensors[k->open - 1]++;
        b->numel[k->open - 1] += m->tensors[t].numel;
        k->filled += m->tensors[t].numel * (dtype ? dtype_bytes((enum dtype)d) : element);
        if (k->filled >= limit[k->later]) {
            place[k->open - 1] = closed++;
            *k = (struct of_dtype){ .later = true };
        }
    }
    while (nmet-- > 0)
        if (kind[met[nmet]].open)
            place[kind[met[nmet]].open - 1] = closed++;
    if (by_arrival)
        reorder(b, place, order, n, m->ntensors);
    free(place);
}

void buckets_assign(const struct model *m, const int *order, int n, int64_t element, const int64_t limit[2], struct buckets *b)
{
    assign(m, order, n, NULL, element, limit, false, b);
}

void buckets_assign_mixed(const struct model *m, const int *order, int n, const uint8_t *dtype, const int64_t limit[2], bool by_arrival,
                          struct buckets *b)
{
    assign(m, order, n, dtype, 0, limit, by_arrival, b);
}

void buckets_reverse(struct buckets *b, int ntensors)
{
    for (int t = 0; t < ntensors; t++)
        b->of[t] = b->n - 1 - b->of[t];
    for (int i = 0, j = b->n - 1; i < j; i++, j--) {
        int tensors = b->tensors[i];
        int64_t numel = b->numel[i];
        uint8_t dtype = b->dtype[i];
        b->tensors[i] = b->tensors[j];
        b->numel[i] = b->numel[j];
        b->dtype[i] = b->dtype[j];
        b->tensors[j] = tensors;
        b->numel[j] = numel;
        b->dtype[j] = dtype;
    }
}

void buckets_free(struct buckets *b)
{
    free(b->of);
    free(b->tensors);
    free(b->numel);
    free(b->at);
    free(b->dtype);
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
