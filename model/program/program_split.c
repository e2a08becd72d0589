/* program_split.c -- backward in two: gradients of inputs first, those of weights later.
 *
 * Source: torch/distributed/pipelining/_backward.py (PyTorch 2.15).  stage_backward_input() asks autograd for the input's
 * gradient alone and retains the graph: no saved tensor goes, and a hook keeps what arrives at each node that leads to a
 * weight, the gradient of a product's or a norm's output.  stage_backward_weight() starts from these; the last of
 * them holds the graph, and with it what was saved.  The loss lies above the nodes that are kept: it goes at once. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/program/program_internal.h"

enum { CAPTURED = 1 << 29 };            /* names of captured gradients begin here */

struct halves {
    const struct plan *p;
    const struct piece *from;
    struct kernel *k; int ninput, nweight;      /* weights' kernels from `room` on */
    struct move *move[2]; int nmoves[2];        /* of inputs, of weights */
    struct move *late; int nlate;               /* what is freed with the graph */
    int64_t deferred, boundary, elem;
    int room;
    int *at;                                    /* of each kernel: its place among the inputs' */
    bool loss;                                  /* no product yet: this is the loss */
};

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

static bool is_weight(const struct kernel *k) { return ends_with(k->name, " dW") || (k->net[MEM_GRADS] > 0 && k->kind != KC_NORM); }
static bool is_both(const struct kernel *k)   { return k->net[MEM_GRADS] > 0 && !is_weight(k); }

static bool is_of_weights(const struct move *m)
{
    return m->mem == MEM_GRADS || m->kind == MOVE_GRAD || m->kind == MOVE_READY;
}

/* Moves of kernel k go to both halves, as they belong. */
static void deal_moves(struct halves *h, const struct kernel *k, struct kernel *input, struct kernel *weight)
{
    for (int i = k->move0; h->from->moves[PASS_BACKWARD] && i < k->move0 + k->nmoves; i++) {
        struct move m = h->from->moves[PASS_BACKWARD][i];
        bool frees = m.kind == MOVE_FREE || m.kind == MOVE_FREE_OTHERS;
        if (frees && m.mem == MEM_ACTIVATIONS && !(h->loss && input)) {
            h->late[h->nlate++] = m;
        } else if (weight && (!input || is_of_weights(&m))) {
            h->move[1][h->nmoves[1]++] = m;
            weight->nmoves++;
        } else if (input) {
            h->move[0][h->nmoves[0]++] = m;
            input->nmoves++;
        }
    }
}

static void one_move(struct halves *h, int half, struct kernel *k, enum move_kind kind, int tensor, int64_t bytes)
{
    if (!h->from->moves[PASS_BACKWARD] || bytes == 0)
        return;
    h->move[half][h->nmoves[half]++] = (struct move){ .bytes = bytes, .tensor = tensor, .kind = (uint8_t)kind,
                                                      .mem = MEM_TEMPORARIES, .pass = PASS_BACKWARD };
    k->nmoves++;
}

static struct kernel *new_weight(struct halves *h, const struct kernel *like)
{
    struct kernel *w = &h->k[h->room + h->nweight++];

    *w = *like;
    w->move0 = h->nmoves[1];
    w->nmoves = 0;
    w->ready_bytes = 0;
    memset(w->ready, -1, sizeof w->ready);
    w->net[MEM_ACTIVATIONS] = w->net[MEM_TEMPORARIES] = 0;
    return w;
}

static void take_ready(struct kernel *to, const struct kernel *from)
{
    int n = 0;

    while (n < 4 && to->ready[n] >= 0)
        n++;
    for (int i = 0; i < 4 && from->ready[i] >= 0; i++) {
        assert(n < 4);
        to->ready[n++] = from->ready[i];
    }
    to->ready_bytes += from->ready_bytes;
}

/* The gradient of a product's output: rows of dX times its inner dimension. */
static int64_t captured_bytes(const struct halves *h, const struct kernel *k)
{
    int64_t bytes = ends_with(k->name, " dX") ? k->m * k->k * (k->batch > 1 ? k->batch : 1) * h->elem : is_both(k) ? h->boundary : 0;

    return h->p->kernels == KERNELS_DPX ? bytes : round_up(bytes, 512);
}

static void keep_saved(struct halves *h, struct kernel *k)
{
    if (k->net[MEM_ACTIVATIONS] < 0 && !h->loss) {
        h->deferred += k->net[MEM_ACTIVATIONS];
        k->net[MEM_ACTIVATIONS] = 0;
    }
}

/* A kernel that runs among the inputs'; `weight`: the product or norm whose gradient of weights is its twin. */
static void input_kernel(struct halves *h, const struct kernel *k, struct kernel *weight)
{
    struct kernel *i = &h->k[h->ninput++];
    int64_t captured = weight ? captured_bytes(h, k) : 0;

    *i = *k;
    i->move0 = h->nmoves[0];
    i->nmoves = 0;
    i->ready_bytes = i->net[MEM_GRADS] = i->peak[MEM_GRADS] = 0;
    memset(i->ready, -1, sizeof i->ready);
    keep_saved(h, i);
    if (weight)
        take_ready(weight, k);
    deal_moves(h, k, i, weight);
    i->net[MEM_TEMPORARIES] += captured;
    i->peak[MEM_TEMPORARIES] += captured;
    if (!weight)
        return;
    weight->net[MEM_TEMPORARIES] -= captured;
    one_move(h, 0, i, MOVE_ALLOC, CAPTURED + h->nweight, captured);
    one_move(h, 1, weight, MOVE_FREE, CAPTURED + h->nweight, captured);
}

static void deal(struct halves *h)
{
    int n = h->from->nkernels[PASS_BACKWARD];
    struct kernel *weight = NULL;

    for (int j = 0; j < n; j++) {
        const struct kernel *k = &h->from->kernels[PASS_BACKWARD][j];
        h->at[j] = h->ninput;
        if (is_weight(k)) {
            h->loss = false;
            weight = new_weight(h, k);
            h->deferred += k->net[MEM_ACTIVATIONS];
            weight->net[MEM_TEMPORARIES] = k->net[MEM_TEMPORARIES];
            take_ready(weight, k);
            deal_moves(h, k, NULL, weight);
        } else if (is_both(k)) {        /* it reads the gradient and what was normed once more */
            struct kernel *w = new_weight(h, k);
            w->net[MEM_GRADS] = k->net[MEM_GRADS];
            w->peak[MEM_ACTIVATIONS] = w->peak[MEM_TEMPORARIES] = 0;
            w->bytes = 2 * h->boundary < k->bytes ? 2 * h->boundary : k->bytes;
            input_kernel(h, k, w);
            h->k[h->ninput - 1].bytes -= w->bytes;
            weight = w;                 /* an addition behind it may be where its gradients are ready */
        } else {
            bool twin = weight && ends_with(k->name, " dX") && weight->module == k->module;
            input_kernel(h, k, twin || k->ready[0] >= 0 ? weight : NULL);
            weight = twin ? NULL : weight;
        }
    }
    h->at[n] = h->ninput;
}

/* The graph goes: what was saved, once the last weight has its gradient. */
static void last_kernel(struct halves *h)
{
    struct kernel *k = &h->k[h->room + h->nweight++];

    *k = (struct kernel){ .name = "saved tensors", .kind = KC_COPY, .module = -1, .fn = FN_NONE, .move0 = h->nmoves[1],
                          .nmoves = h->nlate, .ready = { -1, -1, -1, -1 } };
    k->net[MEM_ACTIVATIONS] = h->deferred;
    if (h->nlate)
        memcpy(&h->move[1][h->nmoves[1]], h->late, (size_t)h->nlate * sizeof *h->late);
    h->nmoves[1] += h->nlate;
}

/* Collectives inside blocks run where their kernel does: among the inputs'. */
static int take_collectives(const struct halves *h, struct piece *to)
{
    const struct piece *from = h->from;
    int n = from->ncollectives[PASS_BACKWARD];

    if (n == 0)
        return 0;
    to->collectives[PASS_BACKWARD] = malloc((size_t)n * sizeof(struct collective));
    if (!to->collectives[PASS_BACKWARD])
        return fail("out of memory for a block program");
    for (int i = 0; i < n; i++) {
        struct collective *c = &to->collectives[PASS_BACKWARD][i];
        *c = from->collectives[PASS_BACKWARD][i];
        c->kernel = h->at[c->kernel];
        c->needed = c->needed > from->nkernels[PASS_BACKWARD] ? h->ninput : h->at[c->needed];
        if (c->needed <= c->kernel)
            c->needed = c->kernel + 1;
    }
    to->ncollectives[PASS_BACKWARD] = n;
    return 0;
}

static int join(struct halves *h, struct piece *to)
{
    int all = h->nmoves[0] + h->nmoves[1];

    memmove(&h->k[h->ninput], &h->k[h->room], (size_t)h->nweight * sizeof *h->k);
    for (int i = h->ninput; i < h->ninput + h->nweight; i++)
        h->k[i].move0 += h->nmoves[0];
    to->split = h->ninput;
    if (piece_take(to, PASS_BACKWARD, h->k, h->ninput + h->nweight) < 0)
        return -1;
    if (h->from->moves[PASS_BACKWARD]) {
        to->moves[PASS_BACKWARD] = malloc((size_t)(all + 1) * sizeof(struct move));
        if (!to->moves[PASS_BACKWARD])
            return fail("out of memory for a block program");
        memcpy(to->moves[PASS_BACKWARD], h->move[0], (size_t)h->nmoves[0] * sizeof(struct move));
        memcpy(to->moves[PASS_BACKWARD] + h->nmoves[0], h->move[1], (size_t)h->nmoves[1] * sizeof(struct move));
    }
    return take_collectives(h, to);
}

static int split(const struct plan *p, struct program *g, enum piece_id from, enum piece_id to)
{
    const struct piece *piece = &g->piece[from];
    int n = piece->nkernels[PASS_BACKWARD], moves = 0, rc = -1;
    struct halves h = { .p = p, .from = piece, .room = n + 1, .boundary = g->boundary, .loss = from == PIECE_HEAD,
                        .elem = dtype_bytes(plan_recipe(p).used) };

    for (int i = 0; i < n; i++)
        moves += piece->kernels[PASS_BACKWARD][i].nmoves;
    h.k = calloc((size_t)(2 * n + 3), sizeof *h.k);
    h.at = calloc((size_t)n + 1, sizeof *h.at);
    h.late = calloc((size_t)moves + 1, sizeof *h.late);
    for (int i = 0; i < 2; i++)
        h.move[i] = calloc((size_t)(2 * moves + n + 1), sizeof *h.move[i]);
    if (!h.k || !h.at || !h.late || !h.move[0] || !h.move[1]) {
        fail("out of memory for a block program");
    } else {
        deal(&h);
        last_kernel(&h);
        rc = join(&h, &g->piece[to]);
    }
    free(h.k);
    free(h.at);
    free(h.late);
    free(h.move[0]);
    free(h.move[1]);
    return rc;
}

int program_add_split(const struct plan *p, struct program *g)
{
    return split(p, g, PIECE_BLOCK, PIECE_BLOCK_SPLIT) < 0 ? -1 : split(p, g, PIECE_HEAD, PIECE_HEAD_SPLIT);
}
