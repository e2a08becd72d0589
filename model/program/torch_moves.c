/* torch_moves.c -- see torch_moves.h. */
#include "model/program/torch_moves.h"

#include <stdlib.h>

#include "base/fail.h"

enum { SETTLED = 1 << 24 };             /* names of tensors that stand for what settling moved */

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
 * goes there too, but not that of a block before it.  Or freed where backward ends, with the loss: what a node keeps beside autograd. */
static enum left left_by(const struct torch_trace *p, int store)
{
    const struct tape *t = p->t;
    int made = t->stores[store].part, by = t->stores[store].freed_by, twin = store;

    if (made % NPASS != PASS_FORWARD || made == 0 || made >= p->head)
        return LEFT_NOT;
    if (tape_is_held(t, store))
        return LEFT_TO_END;
    if (by != p->head)
        return LEFT_NOT;
    if (made == p->last)
        twin = first_store(t, p->odd) + store - first_store(t, p->last);
    return t->stores[twin].freed_by == by && t->stores[twin].bytes == t->stores[store].bytes ? LEFT_TO_HEAD : LEFT_NOT;
}

static void add(struct move *to, struct kernel *k, struct move m)
{
    to[k->move0 + k->nmoves++] = m;
}

static void copy(const struct torch_trace *p, struct move *to, struct kernel *k, struct move m)
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

/* ---- what one block does otherwise ---- */

/* A store that the pass `by` frees and a part before that one made. */
static bool crosses(const struct store *st, int by)
{
    return st->bytes && st->freed_by == by && st->part / NPASS < by / NPASS;
}

/* A store that crosses to `by` and has no twin of its size and category among those that cross to `by2`; the k-th of
 * equal ones needs a k-th twin. */
static bool has_twin(const struct tape *t, int store, int by, int by2)
{
    const struct store *st = &t->stores[store];
    int rank = 0;

    for (int i = 1; i <= store; i++)
        rank += crosses(&t->stores[i], by) && t->stores[i].bytes == st->bytes && t->stores[i].cat == st->cat;
    for (int i = 1; i < t->nstores; i++)
        rank -= crosses(&t->stores[i], by2) && t->stores[i].bytes == st->bytes && t->stores[i].cat == st->cat;
    return rank <= 0;
}

/* What settling added to a kernel: tensors that the odd block frees though no other block frees its like, and those
 * that other blocks free of the block before them. */
static void settle(const struct torch_trace *p, struct move *to, struct kernel *k, enum pass pass)
{
    const struct tape *t = p->t;
    int odd = p->odd + (int)pass, last = p->last + (int)pass;

    for (int i = 1; i < t->nstores; i++) {
        const struct store *st = &t->stores[i];
        struct move m = { .bytes = st->bytes, .tensor = i, .mem = st->cat, .pass = (uint8_t)(st->part % NPASS) };
        if (crosses(st, odd) && !has_twin(t, i, odd, last)) {
            m.kind = part_of(t, i) == p->part ? MOVE_FREE : MOVE_FREE_OTHERS;
            add(to, k, m);
        } else if (crosses(st, last) && !has_twin(t, i, last, odd)) {
            m.kind = MOVE_ALLOC;
            m.tensor = SETTLED + i;
            m.handed_on = true;
            add(to, k, m);
        }
    }
}

int torch_moves(const struct torch_trace *p, struct piece *out, enum pass pass)
{
    int n = out->nkernels[pass], room = 1 + p->t->nstores, at = 0;
    int settled = !p->settles ? -1 : pass == PASS_FORWARD ? n - 1 : 0;

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
            copy(p, to, k, p->t->moves[m]);
        if (i == settled)
            settle(p, to, k, pass);
        at += k->nmoves;
    }
    struct move *taken = realloc(to, (size_t)(at + 1) * sizeof *to);      /* most of the room was for what settling may add */
    out->moves[pass] = taken ? taken : to;
    return 0;
}
