/* requests_tensors.c -- the tensors that kernels made and that are there: by age, by micro-step, and by who made them.
 *
 * In a pipeline tensors of one name are there of many micro-steps and of several stages: a kernel frees those of its own. */
#include "model/memory/requests_internal.h"

#include <stdlib.h>

#include "base/room.h"

/* Micro-steps that have chains of their own, at most. */
enum { STEPS = 512 };

/* ---- chains ---- */

static int chain_of_step(const struct walk *w, int32_t step) { return step < 0 ? 0 : step % w->nsteps; }

static struct ends *chain_of(struct walk *w, enum chain c, const struct made *t)
{
    int step = chain_of_step(w, t->step);

    return c == ALL ? &w->all : c == STEP ? &w->of_step[step] : &w->own[(int64_t)(t->owner - EMBEDDING) * w->nsteps + step];
}

static void chain_in(struct walk *w, enum chain c, int i)
{
    struct ends *e = chain_of(w, c, &w->tensors[i]);

    w->tensors[i].in[c] = (struct link){ .older = e->newest, .newer = NONE };
    *(e->newest == NONE ? &e->oldest : &w->tensors[e->newest].in[c].newer) = i;
    e->newest = i;
}

static void chain_out(struct walk *w, enum chain c, int i)
{
    struct ends *e = chain_of(w, c, &w->tensors[i]);
    struct link l = w->tensors[i].in[c];

    *(l.older == NONE ? &e->oldest : &w->tensors[l.older].in[c].newer) = l.newer;
    *(l.newer == NONE ? &e->newest : &w->tensors[l.newer].in[c].older) = l.older;
}

/* ---- all ---- */

static struct ends *new_chains(int64_t n)
{
    struct ends *e = room_new((size_t)n, sizeof *e);

    for (int64_t i = 0; i < n; i++)
        e[i] = (struct ends){ NONE, NONE };
    return e;
}

void requests_tensors_begin(struct walk *w)
{
    int64_t steps = w->p->parallel.pipeline > 1 ? w->p->accumulation : 1;

    w->nsteps = (int)(steps < 1 ? 1 : steps < STEPS ? steps : STEPS);
    w->own = new_chains((w->p->model.layers - EMBEDDING) * w->nsteps);
    w->of_step = new_chains(w->nsteps);
    w->all = (struct ends){ NONE, NONE };
    w->unused = NONE;
}

void requests_tensors_end(struct walk *w)
{
    free(w->tensors);
    free(w->own);
    free(w->of_step);
}

void requests_tensor_add(struct walk *w, const struct made *t)
{
    int i = w->unused;

    if (i != NONE) {
        w->unused = w->tensors[i].in[ALL].older;
    } else {
        w->tensors = room_for(w->tensors, w->ntensors, &w->cap_tensors, sizeof *w->tensors);
        i = w->ntensors++;
    }
    w->tensors[i] = *t;
    for (int c = 0; c < NCHAIN; c++)
        chain_in(w, (enum chain)c, i);
    w->ngrads += t->mem == MEM_GRADS;
}

void requests_tensor_forget(struct walk *w, int i)
{
    w->ngrads -= w->tensors[i].mem == MEM_GRADS;
    for (int c = 0; c < NCHAIN; c++)
        chain_out(w, (enum chain)c, i);
    w->tensors[i].in[ALL].older = w->unused;
    w->unused = i;
}

/* Chains are by micro-steps modulo a number: all are made anew, by age. */
void requests_tensors_shift(struct walk *w, int64_t steps)
{
    int next = w->all.oldest;

    for (int i = next; i != NONE; i = w->tensors[i].in[ALL].newer) {
        chain_out(w, STEP, i);
        chain_out(w, OWN, i);
    }
    for (int i = next; i != NONE; i = w->tensors[i].in[ALL].newer) {
        w->tensors[i].step += (int32_t)steps;
        chain_in(w, STEP, i);
        chain_in(w, OWN, i);
    }
}

/* ---- which one ---- */

const struct ends *requests_of_owner(const struct walk *w, int owner)
{
    return &w->own[(int64_t)(owner - EMBEDDING) * w->nsteps + chain_of_step(w, w->step)];
}

int requests_find(const struct walk *w, int owner, int32_t tensor)
{
    int i = requests_of_owner(w, owner)->newest;

    while (i != NONE && (w->tensors[i].tensor != tensor || !requests_is_of_pass(w, &w->tensors[i])))
        i = w->tensors[i].in[OWN].older;
    return i;
}

/* Of these bytes and that pass, the newest.  The embedding and the head know each other's by name.  One of the embedding's own, the last to
 * go back, where a block took another's for it: of one token rotary tables are as large as what the head hands on. */
int requests_find_other(const struct walk *w, const struct move *m, int owner)
{
    int own = NONE;
    int any = owner == HEAD ? requests_find(w, EMBEDDING, m->tensor) : owner == EMBEDDING ? requests_find(w, HEAD, m->tensor) : NONE;

    if (any != NONE)
        return any;
    for (int i = w->of_step[chain_of_step(w, w->step)].newest; i != NONE; i = w->tensors[i].in[STEP].older) {
        const struct made *t = &w->tensors[i];
        bool mine = t->owner == owner, same = t->pass == m->pass && t->mem == m->mem;
        if (!requests_is_of_pass(w, t) || !t->handed_on || t->left || t->bytes != m->bytes || (mine && owner != EMBEDDING))
            continue;
        if (same && !mine)
            return i;
        if (mine)
            own = same && own == NONE ? i : own;
        else if (any == NONE)
            any = i;
    }
    return own != NONE ? own : any;
}
