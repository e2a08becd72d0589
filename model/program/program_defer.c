/* program_defer.c -- a backward of the head whose weight gradient comes later: Megatron-LM's defer_embedding_wgrad_compute.
 *
 * Source: core/tensor_parallel/layers.py (megatron-core 0.16.1): LinearWithGradAccumulationAndAsyncCommunication.backward() keeps the gradient of
 * its output (grad_output_buffer) in place of the product; core/utils.py, drain_embedding_wgrad_compute(), computes it behind the last backward.
 * Kernels [0, split) of PIECE_HEAD_SPLIT are the head's without that product, and the one behind them is the product. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/program/program_internal.h"

static const char deferred[] = "logits dW";

static int find_product(const struct piece *head)
{
    for (int i = 0; i < head->nkernels[PASS_BACKWARD]; i++)
        if (!strcmp(head->kernels[PASS_BACKWARD][i].name, deferred))
            return i;
    assert(!"a head without logits");
    return 0;
}

/* Where it was nothing runs: what it freed goes all the same. */
static void leave_out(struct kernel *k)
{
    k->name = "logits dW is deferred";
    k->kind = KC_COPY;
    k->flops = 0;
    k->bytes = k->sums = k->m = k->n = k->k = k->batch = 0;
    k->scaled = SCALED_NONE;
}

/* The product by itself: what it reads waits elsewhere (lower_megatron_pipeline.c). */
static struct kernel alone(const struct kernel *k, int moves)
{
    struct kernel out = *k;

    out.move0 = moves;
    out.nmoves = out.collective = 0;
    out.ready_bytes = 0;
    memset(out.ready, -1, sizeof out.ready);
    memset(out.peak, 0, sizeof out.peak);
    memset(out.net, 0, sizeof out.net);
    return out;
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *out = n > 0 ? malloc(n * size) : NULL;

    if (out)
        memcpy(out, from, n * size);
    return out;
}

int program_add_deferred(struct program *g)
{
    const struct piece *head = &g->piece[PIECE_HEAD];
    struct piece *to = &g->piece[PIECE_HEAD_SPLIT];
    int n = head->nkernels[PASS_BACKWARD], at = find_product(head), moves = 0, rc = -1, ncollectives = head->ncollectives[PASS_BACKWARD];
    struct kernel *k = calloc((size_t)n + 1, sizeof *k);

    for (int i = 0; i < n; i++)
        moves += head->kernels[PASS_BACKWARD][i].nmoves;
    if (k) {
        memcpy(k, head->kernels[PASS_BACKWARD], (size_t)n * sizeof *k);
        k[n] = alone(&k[at], moves);
        leave_out(&k[at]);
        to->split = n;
        rc = piece_take(to, PASS_BACKWARD, k, n + 1);
    }
    free(k);
    if (rc < 0)
        return fail("out of memory for a block program");
    to->moves[PASS_BACKWARD] = copy_of(head->moves[PASS_BACKWARD], (size_t)moves, sizeof(struct move));
    to->collectives[PASS_BACKWARD] = copy_of(head->collectives[PASS_BACKWARD], (size_t)ncollectives, sizeof(struct collective));
    if ((moves > 0 && !to->moves[PASS_BACKWARD]) || (ncollectives > 0 && !to->collectives[PASS_BACKWARD]))
        return fail("out of memory for a block program");
    to->ncollectives[PASS_BACKWARD] = ncollectives;
    return 0;
}
