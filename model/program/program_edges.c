/* program_edges.c -- pieces that stand for the embedding and the head where a pipeline's stage has neither: what
 * it receives and what it sends.
 *
 * Blocks leave what they found; the embedding leaves what the head takes: the first block's input, the last block's
 * output and what is made once for all blocks.  A stage's edges leave and take the same, kernel by kernel as it
 * happens (enum stage_edge).  Nothing is computed. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/program/program_internal.h"

static int64_t rounded(const struct plan *p, int64_t bytes)
{
    return p->kernels == KERNELS_DPX ? bytes : round_up(bytes, 512);
}

/* `but`: bytes of the boundary tensor that a kernel of its own makes or frees; 0: there is none, or it was left out. */
struct edge_moves { struct move *at; int n; int64_t but; };

/* What a piece makes and frees stays its own. */
static bool frees(const struct piece *p, int32_t tensor)
{
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < p->nkernels[pass]; i++)
            for (int j = 0; j < p->kernels[pass][i].nmoves; j++) {
                const struct move *m = &p->moves[pass][p->kernels[pass][i].move0 + j];
                if (m->kind == MOVE_FREE && m->tensor == tensor)
                    return true;
            }
    return false;
}

static bool taken(struct edge_moves *to, const struct piece *from, const struct move *m, bool makes)
{
    bool is = makes ? m->kind == MOVE_ALLOC && m->handed_on && !frees(from, m->tensor) : m->kind == MOVE_FREE_OTHERS;

    if (!is || m->mem == MEM_GRADS)
        return false;
    if (m->bytes != to->but || to->but == 0)
        return true;
    to->but = 0;
    return false;
}

/* Appends to kernel k the moves of a piece's pass that make, or free, what other pieces free or made. */
static void take(struct kernel *k, struct edge_moves *to, const struct piece *from, enum pass pass, bool makes)
{
    for (int i = 0; from->moves[pass] && i < from->nkernels[pass]; i++) {
        const struct kernel *f = &from->kernels[pass][i];
        for (int j = f->move0; j < f->move0 + f->nmoves; j++)
            if (taken(to, from, &from->moves[pass][j], makes)) {
                to->at[to->n++] = from->moves[pass][j];
                k->nmoves++;
            }
    }
}

static int all_moves(const struct piece *p)
{
    int n = 0;

    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; p->moves[pass] && i < p->nkernels[pass]; i++)
            n += p->kernels[pass][i].nmoves;
    return n;
}

static void one_move(struct kernel *k, struct edge_moves *to, enum move_kind kind, enum mem mem, enum pass pass, int64_t bytes)
{
    to->at[to->n++] = (struct move){ .bytes = bytes, .tensor = kind == MOVE_ALLOC ? EDGE_RECEIVED : EDGE_SENT,
                                     .kind = (uint8_t)kind, .mem = (uint8_t)mem, .pass = (uint8_t)pass, .handed_on = true };
    k->nmoves++;
}

static void kernel(struct kernel *k, const char *name, const struct edge_moves *moves, int64_t act, int64_t temporary)
{
    *k = (struct kernel){ .name = name, .kind = KC_COPY, .module = -1, .fn = FN_NONE, .move0 = moves->n,
                          .ready = { -1, -1, -1, -1 } };
    k->net[MEM_ACTIVATIONS] = act;
    k->net[MEM_TEMPORARIES] = temporary;
    for (int m = 0; m < NMEM; m++)
        k->peak[m] = k->net[m] > 0 ? k->net[m] : 0;
}

static int give(struct piece *out, enum pass pass, const struct kernel *k, int n, struct edge_moves *moves, bool has)
{
    if (piece_take(out, pass, k, n) < 0)
        return -1;
    if (!has) {
        free(moves->at);
        return 0;
    }
    out->moves[pass] = moves->at;
    return 0;
}

static struct edge_moves room_for_moves(const struct piece *a, const struct piece *b)
{
    return (struct edge_moves){ calloc((size_t)(all_moves(a) + (b ? all_moves(b) : 0)) + 2, sizeof(struct move)), 0, 0 };
}

/* What the model's first block frees where it differs, its input apart: of what is made once for all blocks it reads the last. */
static void free_as_first(struct kernel *k, struct edge_moves *to, const struct piece *first, int64_t boundary)
{
    to->but = boundary;
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; first->moves[pass] && i < first->nkernels[pass]; i++)
            for (int j = 0; j < first->kernels[pass][i].nmoves; j++) {
                const struct move *m = &first->moves[pass][first->kernels[pass][i].move0 + j];
                if (m->mem != MEM_ACTIVATIONS || !taken(to, first, m, false))
                    continue;
                to->at[to->n++] = *m;
                k->nmoves++;
                k->net[MEM_ACTIVATIONS] -= m->bytes;
            }
    to->but = 0;
}

static void sums(const struct program *g, enum piece_id id, int64_t *act, int64_t *temporary)
{
    *act = *temporary = 0;
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g->piece[id].nkernels[pass]; i++) {
            *act += g->piece[id].kernels[pass][i].net[MEM_ACTIVATIONS];
            *temporary += g->piece[id].kernels[pass][i].net[MEM_TEMPORARIES];
        }
}

/* What is received and sent, for the executor. */
static int edge_place(struct program *g, enum piece_id piece, enum pass pass, struct place place)
{
    g->piece[piece].kernels[pass][EDGE_TENSORS].nplaces = 1;
    return piece_places(&g->piece[piece], pass, &place);
}

static int edge_places(struct program *g)
{
    int64_t b = g->boundary;

    return edge_place(g, PIECE_RECEIVED, PASS_FORWARD, (struct place){ SLOT_Y, MEM_ACTIVATIONS, true, b }) < 0
           || edge_place(g, PIECE_SENT, PASS_FORWARD, (struct place){ SLOT_X, MEM_ACTIVATIONS, false, b }) < 0
           || edge_place(g, PIECE_SENT, PASS_BACKWARD, (struct place){ SLOT_DX, MEM_TEMPORARIES, true, b }) < 0
           || edge_place(g, PIECE_RECEIVED, PASS_BACKWARD, (struct place){ SLOT_DX, MEM_TEMPORARIES, false, b }) < 0 ? -1 : 0;
}

int program_add_edges(const struct plan *p, struct program *g)
{
    const struct piece *embed = &g->piece[PIECE_EMBED], *head = &g->piece[PIECE_HEAD];
    int64_t b = rounded(p, g->boundary), act, temporary;
    bool moves = p->kernels != KERNELS_DPX, differs = program_first_differs(p);
    const struct piece *first = &g->piece[program_recomputes_all(p) ? PIECE_FIRST_RECOMPUTED : PIECE_FIRST];
    struct kernel k[2];
    struct edge_moves m = room_for_moves(embed, NULL);

    if (!m.at)
        return fail("out of memory for a block program");
    sums(g, PIECE_EMBED, &act, &temporary);
    kernel(&k[EDGE_TENSORS], "received", &m, b, 0);
    one_move(&k[EDGE_TENSORS], &m, MOVE_ALLOC, MEM_ACTIVATIONS, PASS_FORWARD, b);
    kernel(&k[EDGE_REST], "stage", &m, act - b, 0);
    m.but = b;
    take(&k[EDGE_REST], &m, embed, PASS_FORWARD, true);
    if (give(&g->piece[PIECE_RECEIVED], PASS_FORWARD, k, 2, &m, moves) < 0 || !(m = room_for_moves(embed, differs ? first : NULL)).at)
        return -1;
    kernel(&k[EDGE_TENSORS], "gradient sent", &m, 0, temporary);
    take(&k[EDGE_TENSORS], &m, embed, PASS_FORWARD, false);
    take(&k[EDGE_TENSORS], &m, embed, PASS_BACKWARD, false);
    if (differs && moves)
        free_as_first(&k[EDGE_TENSORS], &m, first, b);
    if (differs) {                      /* the first stage's embedding gets no gradient: another stage's received input does */
        one_move(&k[EDGE_TENSORS], &m, MOVE_FREE_OTHERS, MEM_TEMPORARIES, PASS_BACKWARD, b);
        k[EDGE_TENSORS].net[MEM_TEMPORARIES] -= b;
    }
    if (give(&g->piece[PIECE_RECEIVED], PASS_BACKWARD, k, 1, &m, moves) < 0 || !(m = room_for_moves(head, NULL)).at)
        return -1;
    sums(g, PIECE_HEAD, &act, &temporary);
    kernel(&k[EDGE_TENSORS], "sent", &m, -b, 0);
    one_move(&k[EDGE_TENSORS], &m, MOVE_FREE_OTHERS, MEM_ACTIVATIONS, PASS_FORWARD, b);
    if (give(&g->piece[PIECE_SENT], PASS_FORWARD, k, 1, &m, moves) < 0 || !(m = room_for_moves(head, NULL)).at)
        return -1;
    kernel(&k[EDGE_TENSORS], "gradient received", &m, 0, b);
    one_move(&k[EDGE_TENSORS], &m, MOVE_ALLOC, MEM_TEMPORARIES, PASS_BACKWARD, b);
    kernel(&k[EDGE_REST], "stage", &m, act + b, temporary - b);
    m.but = b;
    take(&k[EDGE_REST], &m, head, PASS_FORWARD, false);
    take(&k[EDGE_REST], &m, head, PASS_BACKWARD, false);
    m.but = b;
    take(&k[EDGE_REST], &m, head, PASS_FORWARD, true);
    take(&k[EDGE_REST], &m, head, PASS_BACKWARD, true);
    if (give(&g->piece[PIECE_SENT], PASS_BACKWARD, k, 2, &m, moves) < 0)
        return -1;
    return moves ? 0 : edge_places(g);
}
