/* requests_lives.c -- tensors that live within the kernels of a piece: made by one, freed by a later one, and nothing else in between.
 *
 * An entry that runs both kernels holds such a tensor by the number of the move that makes it: nobody else asks for it.  Each piece is
 * looked at once a walk. */
#include "model/memory/requests_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/room.h"

/* The move that frees what move `i` of n makes; NONE: something else is done with it, or another one may ask for it. */
static int end_of(const struct move *m, int i, int n)
{
    if (m[i].kind != MOVE_ALLOC || m[i].handed_on || m[i].left)
        return NONE;
    for (int k = i + 1; k < n; k++) {
        bool named = m[k].kind == MOVE_ALLOC || m[k].kind == MOVE_FREE || m[k].kind == MOVE_GRAD || m[k].kind == MOVE_READY;
        if (named && m[k].tensor == m[i].tensor)
            return m[k].kind == MOVE_FREE ? k : NONE;
    }
    return NONE;
}

static void find(struct lives *l, const struct piece *p, enum pass pass)
{
    int nkernels = p->nkernels[pass], n = 0;

    for (int k = 0; k < nkernels; k++) {
        assert(p->kernels[pass][k].move0 == n);         /* so that those of some kernels are from the first's to the last's */
        n += p->kernels[pass][k].nmoves;
    }
    l->mate = room_new((size_t)n + 1, sizeof *l->mate);
    l->block = room_new((size_t)n + 1, sizeof *l->block);
    l->outputs = room_new((size_t)nkernels + 1, sizeof *l->outputs);
    for (int i = 0; i < n; i++)
        l->mate[i] = NONE;
    for (int i = 0; i < n; i++) {
        int end = end_of(p->moves[pass], i, n);
        if (end != NONE) {
            l->mate[i] = end;
            l->mate[end] = i;
        }
    }
    for (int k = 0; k < nkernels; k++)
        for (int i = 0; i < p->kernels[pass][k].nmoves; i++)
            if (p->moves[pass][p->kernels[pass][k].move0 + i].kind == MOVE_ALLOC)
                l->outputs[k] = i + 1;
}

struct lives *requests_lives(struct walk *w, int piece, enum pass pass)
{
    struct lives *l = &w->lives[piece][pass];

    if (!l->mate)
        find(l, &w->s->program.piece[piece], pass);
    return l;
}

void requests_lives_end(struct walk *w)
{
    for (int i = 0; i < NPIECE * NPASS; i++) {
        struct lives *l = &w->lives[i / NPASS][i % NPASS];
        free(l->mate);
        free(l->block);
        free(l->outputs);
    }
}
