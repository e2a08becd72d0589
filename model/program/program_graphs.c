/* program_graphs.c -- see program_graphs.h.
 *
 * Scope "attn" is a block's attention half with the norm before it, "mlp" the other half of a block without experts, "moe" that of one
 * with experts; "moe_router" with "moe_preprocess" what of this comes before rows go to their experts, and in backward
 * what comes after their gradients are back: there the host waits for the numbers of rows, and a graph ends. */
#include "model/program/program_graphs.h"

#include <string.h>

#include "model/plan/graphs.h"

/* A kernel of the MLP half that belongs to the experts or brings rows to them: no router's. */
static bool is_experts(const struct piece *p, enum pass pass, int k)
{
    for (int i = 0; i < p->ncollectives[pass]; i++) {
        const struct collective *c = &p->collectives[pass][i];
        if (c->kernel == k && (c->waits || c->op == COLL_ALL_TO_ALL))
            return true;
    }
    return p->kernels[pass][k].name && !strncmp(p->kernels[pass][k].name, "experts", 7);
}

/* In forward the first of these kernels, in backward the last: the router's are on the other side. */
static int border(const struct piece *p, enum pass pass)
{
    int n = p->nkernels[pass], at = pass == PASS_FORWARD ? n : -1;

    for (int k = 0; k < n; k++)
        if (is_experts(p, pass, k) && (pass == PASS_BACKWARD || at == n))
            at = k;
    return at;
}

static bool has_experts(const struct plan *p, enum piece_id id)
{
    if (p->model.hybrid)
        return piece_mixer(id) == BLOCK_EXPERTS;
    return p->model.experts > 0 && id != PIECE_DENSE && id != PIECE_DENSE_RECOMPUTED;
}

static void mark(const struct plan *p, enum piece_id id, enum pass pass, struct piece *piece)
{
    int at = border(piece, pass);

    for (int k = 0; k < piece->nkernels[pass]; k++) {
        bool router = pass == PASS_FORWARD ? k < at : k > at, in;
        if (p->model.hybrid && piece_mixer(id) == BLOCK_MAMBA)
            in = graphs_hold(p, "mamba");
        else if (piece->kernels[pass][k].half == 0)
            in = graphs_hold(p, "attn");
        else if (!has_experts(p, id))
            in = graphs_hold(p, "mlp");
        else
            in = graphs_hold(p, "moe") || (router && graphs_hold(p, "moe_router"));
        piece->kernels[pass][k].captured = in;
    }
}

void program_mark_graphs(const struct plan *p, struct program *g)
{
    for (int id = 0; id < NPIECE && graphs_has(p); id++)
        for (int pass = 0; pass < NPASS; pass++) {
            if (piece_is_block((enum piece_id)id) && (!p->model.hybrid || piece_has_mixer((enum piece_id)id)))
                mark(p, (enum piece_id)id, (enum pass)pass, &g->piece[id]);
            for (int k = 0; graphs_of_step(p) && k < g->piece[id].nkernels[pass]; k++)
                g->piece[id].kernels[pass][k].captured = true;
        }
}
