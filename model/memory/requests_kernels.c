/* requests_kernels.c -- what the kernels of a piece ask of the allocator, one by one, and which of it is theirs alone: a tensor that one makes
 * and a later one frees, with nothing else in between, is known by the step that makes it.  Each piece is looked at once a walk. */
#include "model/memory/requests_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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

static bool is_product(const struct kernel *k) { return k->kind == KC_GEMM || (k->kind == KC_ATTENTION && k->m > 0); }

struct list { struct steps s; int n; const struct move *moves; const struct request_options *o; };

static void add(struct list *l, const struct kernel *k, int move)
{
    bool touches = move == WORKSPACE && !l->o->workspace_kept, asks = touches || (move >= 0 && l->moves[move].kind == MOVE_ALLOC);
    int i = l->n++, asked = l->s.of[i].asked;

    l->s.of[i] = (struct step){ .move = move, .mate = touches ? i : NONE, .asked = asked, .captured = k->captured,
                                .grads = asks && !touches && l->moves[move].mem == MEM_GRADS };
    l->s.of[i + 1].asked = asked + asks;
    if (touches)
        l->s.does[i] = (struct caching_step){ l->o->workspace, i, CACHING_TOUCH };
}

/* What it makes is made by its moves up to the last that makes something; behind them a product has its workspace. */
static void add_kernel(struct list *l, const struct kernel *k)
{
    int outputs = 0;
    bool hands_out = false;

    for (int i = 0; i < k->nmoves; i++) {
        outputs = l->moves[k->move0 + i].kind == MOVE_ALLOC ? i + 1 : outputs;
        hands_out |= l->moves[k->move0 + i].kind == MOVE_READY;
    }
    for (int i = 0; i < outputs; i++)
        add(l, k, k->move0 + i);
    if (is_product(k) && l->o->workspace > 0)
        add(l, k, WORKSPACE);
    for (int i = outputs; i < k->nmoves; i++)
        add(l, k, k->move0 + i);
    if (hands_out)
        add(l, k, KERNEL_ENDS);
}

static void pair(struct steps *s, const struct move *m, int made, int freed)
{
    s->of[made].mate = freed;
    s->of[freed].mate = made;
    s->of[freed].grads = s->of[made].grads;
    s->does[made] = (struct caching_step){ m->bytes, made, CACHING_MALLOC };
    s->does[freed] = (struct caching_step){ m->bytes, made, CACHING_FREE };
}

static struct steps steps_of(const struct piece *p, enum pass pass, const struct request_options *o)
{
    struct list l = { .moves = p->moves[pass], .o = o };
    int nkernels = p->nkernels[pass], nmoves = 0;

    for (int k = 0; k < nkernels; k++) {
        assert(p->kernels[pass][k].move0 == nmoves);
        nmoves += p->kernels[pass][k].nmoves;
    }
    size_t most = (size_t)(nmoves + 2 * nkernels + 1);
    l.s = (struct steps){ .of = room_new(most, sizeof *l.s.of), .does = room_new(most, sizeof *l.s.does),
                          .block = room_new(most, sizeof *l.s.block), .own_end = room_new(most, sizeof *l.s.own_end),
                          .first = room_new((size_t)nkernels + 1, sizeof *l.s.first) };
    int *step = room_new((size_t)nmoves + 1, sizeof *step);             /* of each move */
    for (int k = 0; k < nkernels; k++) {
        l.s.first[k] = l.n;
        add_kernel(&l, &p->kernels[pass][k]);
    }
    l.s.first[nkernels] = l.n;
    for (int i = 0; i < l.n; i++)
        if (l.s.of[i].move >= 0)
            step[l.s.of[i].move] = i;
    for (int i = 0; i < nmoves; i++) {
        int end = end_of(p->moves[pass], i, nmoves);
        if (end != NONE)
            pair(&l.s, &p->moves[pass][i], step[i], step[end]);
    }
    free(step);
    return l.s;
}

struct steps *requests_steps(struct walk *w, int piece, enum pass pass)
{
    struct steps *s = &w->steps[piece][pass];

    if (!s->of)
        *s = steps_of(&w->s->program.piece[piece], pass, &w->o);
    return s;
}

/* What was looked for in the last run holds for the same run. */
void requests_run_of(struct steps *s, int from, int to, bool in_place)
{
    if (s->run.from == from && s->run.to == to && s->run.in_place == in_place)
        return;
    s->run.from = from;
    s->run.to = to;
    s->run.in_place = in_place;
    memset(s->own_end + from, 0, (size_t)(to - from) * sizeof *s->own_end);
}

int requests_look_for_end(const struct steps *s, int i)
{
    const struct step *at = s->of + i, *end = s->of + s->run.to;
    const bool in_place = s->run.in_place, captured = at->captured;
    const unsigned from = (unsigned)s->run.from, n = (unsigned)s->run.to - from;

    while (at < end && (unsigned)at->mate - from < n && !(in_place & at->grads) && at->captured == captured)
        at++;
    return (int)(at - s->of);
}

void requests_steps_end(struct walk *w)
{
    for (int i = 0; i < NPIECE * NPASS; i++) {
        struct steps *s = &w->steps[i / NPASS][i % NPASS];
        free(s->of);
        free(s->does);
        free(s->block);
        free(s->own_end);
        free(s->first);
    }
}
