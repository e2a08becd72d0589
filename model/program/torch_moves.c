/* torch_moves.c -- see torch_moves.h. */
#include "model/program/torch_moves.h"

#include <stdlib.h>

#include "base/fail.h"

enum { SETTLED = 1 << 24 };             /* names of tensors that stand for what settling moved */

/* The tape replays the embedding, some equal blocks and the head: parts, each forward and backward. */
struct parts {
    const struct tape *t;
    int part, head;                     /* what is copied, and the head, as parts of forward */
    int embed, block0, block1;          /* the others; block1 stands for all blocks */
};

static int part_of(const struct tape *t, int store) { return t->stores[store].part / NPASS * NPASS; }

/* The first store of a part's forward. */
static int first_store(const struct tape *t, int part)
{
    int i = 1;

    while (i < t->nstores && t->stores[i].part != part)
        i++;
    return i;
}

/* Made by a block, freed where the head's forward leaves autocast: a cached cast.  The last block's output
 * goes there too, but not that of a block before it.  Or freed where backward ends, with the loss: what a node keeps beside autograd.
 * A first block that differs keeps less of it, and makes its stores in another order. */
static enum left left_by(const struct parts *p, int store)
{
    const struct tape *t = p->t;
    int made = t->stores[store].part, by = t->stores[store].freed_by, twin = store;

    if (made != p->block0 && made != p->block1)
        return LEFT_NOT;
    if (tape_is_held(t, store))
        return LEFT_TO_END;
    if (by != p->head)
        return LEFT_NOT;
    if (made == p->block1)
        twin = first_store(t, p->block0) + store - first_store(t, p->block1);
    return t->stores[twin].freed_by == by && t->stores[twin].bytes == t->stores[store].bytes ? LEFT_TO_HEAD : LEFT_NOT;
}

static void add(struct move *to, struct kernel *k, struct move m)
{
    to[k->move0 + k->nmoves++] = m;
}

static void copy(const struct parts *p, struct move *to, struct kernel *k, struct move m)
{
    const struct store *st = &p->t->stores[m.tensor];

    if (m.kind == MOVE_ALLOC) {
        m.handed_on = st->freed_by < 0 || st->freed_by / NPASS * NPASS != p->part;
        m.left = (uint8_t)left_by(p, m.tensor);
    } else if (m.kind == MOVE_FREE && part_of(p->t, m.tensor) != p->part) {
        static const uint8_t frees[] = { MOVE_FREE_OTHERS, MOVE_FREE_LEFT, MOVE_FREE_HELD };
        m.kind = frees[left_by(p, m.tensor)];
        m.pass = (uint8_t)(st->part % NPASS);
        if (m.kind != MOVE_FREE_OTHERS && k->nmoves && to[k->move0 + k->nmoves - 1].kind == m.kind)
            return;                     /* one stands for all */
    }
    add(to, k, m);
}

/* ---- what the first block does otherwise ---- */

static bool crosses(const struct store *st, int made_by, int freed_by)
{
    return st->bytes && st->part / NPASS * NPASS == made_by && st->freed_by == freed_by;
}

/* A store that crosses from `made_by` to the pass `freed_by` and has no twin of its size and category among those
 * that cross from `made_by2` to `freed_by2`; the k-th of equal ones needs a k-th twin. */
static bool has_twin(const struct tape *t, int store, int made_by, int freed_by, int made_by2, int freed_by2)
{
    const struct store *st = &t->stores[store];
    int rank = 0;

    for (int i = 1; i <= store; i++)
        rank += crosses(&t->stores[i], made_by, freed_by) && t->stores[i].bytes == st->bytes && t->stores[i].cat == st->cat;
    for (int i = 1; i < t->nstores; i++)
        rank -= crosses(&t->stores[i], made_by2, freed_by2) && t->stores[i].bytes == st->bytes && t->stores[i].cat == st->cat;
    return rank <= 0;
}

/* What settling added to a kernel of the embedding: tensors of the embedding that the first block frees though no
 * other block frees its like, and those that other blocks free of the block before them. */
static void settle(const struct parts *p, struct move *to, struct kernel *k, enum pass pass)
{
    const struct tape *t = p->t;
    int by0 = p->block0 + (int)pass, by1 = p->block1 + (int)pass;

    for (int i = 1; i < t->nstores; i++) {
        const struct store *st = &t->stores[i];
        struct move m = { .bytes = st->bytes, .tensor = i, .mem = st->cat, .pass = (uint8_t)(st->part % NPASS) };
        if (crosses(st, p->embed, by0) && !has_twin(t, i, p->embed, by0, p->block0, by1)) {
            m.kind = MOVE_FREE;
            add(to, k, m);
        } else if (crosses(st, p->block0, by1) && !has_twin(t, i, p->block0, by1, p->embed, by0)) {
            m.kind = MOVE_ALLOC;
            m.tensor = SETTLED + i;
            m.handed_on = true;
            add(to, k, m);
        }
    }
}

int torch_moves(const struct tape *t, int part, int head, bool settles, struct piece *out, enum pass pass)
{
    const struct parts p = { t, part, head, 0, NPASS, head - NPASS };
    int n = out->nkernels[pass], room = 1 + t->nstores, at = 0;
    int settled = !settles ? -1 : pass == PASS_FORWARD ? n - 1 : 0;

    for (int i = 0; i < n; i++)
        room += out->kernels[pass][i].nmoves;
    struct move *to = malloc((size_t)room * sizeof *to);
    if (!to)
        return fail("out of memory for a block program");
    for (int i = 0; i < n; i++) {
        struct kernel *k = &out->kernels[pass][i];
        int first = k->move0, moves = k->nmoves;
        k->move0 = at;
        k->nmoves = 0;
        for (int m = first; m < first + moves; m++)
            copy(&p, to, k, t->moves[m]);
        if (i == settled)
            settle(&p, to, k, pass);
        at += k->nmoves;
    }
    out->moves[pass] = to;
    return 0;
}
