/* lower_zero3_pass.c -- stage 3's forward and backward: kernels between the hooks of
 * modules, cut where a module with parameters begins or ends and where a gradient
 * meets a full bucket. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <assert.h>

static enum pass pass(const struct z3 *z) { return z->run.forward ? PASS_FORWARD : PASS_BACKWARD; }

static const struct piece *program_piece(const struct z3 *z) { return &z->d.s->program.piece[z->run.piece]; }

static int ready_kernel(const struct z3 *z, int t)
{
    const struct ds *d = &z->d;

    for (int i = 0; i < d->nready[z->run.piece]; i++)
        if (ds_handed(d, z->run.piece, z->run.block, &d->ready[z->run.piece][i]) == t)
            return d->ready[z->run.piece][i].kernel;
    return -1;
}

static const struct ds_ready *ready(const struct z3 *z) { return &z->d.ready[z->run.piece][z->next_ready]; }

/* The last entry makes room for a gradient; `what`: and also leaves it there. */
static void born(struct z3 *z, int t, int what)
{
    if (!z->grad_live[t])
        what |= ACT_ALLOC;
    if (what)
        ds_act(&z->d, &z->grads, what, t, 0);
    z->grad_live[t] = 1;
}

void z3_compute(void *zero3, const struct walk_run *r)
{
    struct z3 *z = zero3;
    const struct ds *d = &z->d;
    const struct z3_module *m = z->using >= 0 ? &z->trace.modules[z->using] : NULL;

    for (int i = 0; m && i < m->n; i++)
        if (z->coord.status[z3_own_tensor(m, i)] == Z3_AVAILABLE)
            z3_use(z, ACT_R, z3_own_tensor(m, i));
    if (r->forward)
        return;
    if (r->piece == PIECE_HEAD && d->tied_kernel >= r->k0 && d->tied_kernel < r->k1)
        born(z, d->tied, 0);        /* the embedding's is added before it is handed out */
    for (; z->next_ready < d->nready[r->piece] && ready(z)->kernel < r->k1; z->next_ready++)
        born(z, ds_handed(&z->d, z->run.piece, z->run.block, ready(z)), ACT_W);
}

/* Kernels up to k1, and the gradients that they complete. */
static void compute(struct z3 *z, int k1) { walk_to(&z->d.walk, &z->run, k1); }

/* Gradients that became ready since: their kernels, then into the bucket. */
static void settle(struct z3 *z)
{
    int k = z->run.k0;

    if (z->npending == 0)
        return;
    for (int i = 0; i < z->npending; i++)
        if (ready_kernel(z, z->pending[i]) >= k)
            k = ready_kernel(z, z->pending[i]) + 1;
    compute(z, k);
    for (int i = 0; i < z->npending; i++)
        z3_drop_kept_data(z, z->pending[i]);
    z3_add_grads(z, z->pending, z->npending);
    z->npending = 0;
}

static void gradient(struct z3 *z, int t)
{
    int64_t waiting = 0;

    for (int i = 0; i < z->npending; i++)
        waiting += z3_numel(z, z->pending[i]);
    if (!z3_flushes(z, t, waiting)) {
        z->pending[z->npending++] = t;
        return;
    }
    settle(z);
    compute(z, ready_kernel(z, t) + 1);      /* it exists while the bucket is reduced */
    z3_drop_kept_data(z, t);
    z3_flush(z);
    z3_add_grads(z, &t, 1);
}

static bool is_of(const struct kernel *k, const struct z3_module *m)
{
    return k->module == m->kernel_module || (k->module > m->kernel_module && k->module <= m->kernel_module + m->more_modules);
}

/* The first kernel of a module from here on, forward's again or backward's; if there is none, where
 * we are, or (it is the one that is not needed again) the end of what is done again. */
static int kernel_of(const struct z3 *z, const struct z3_module *m, bool again)
{
    int module = m->kernel_module;
    const struct piece *p = program_piece(z);
    int end = again ? z->recomputed[z->run.piece] : p->nkernels[pass(z)];

    for (int k = z->run.k0; module != -1 && k < end; k++)
        if (is_of(&p->kernels[pass(z)][k], m))
            return k;
    return again && module != -1 && end > z->run.k0 ? end : z->run.k0;
}

static bool runs_again(const struct z3 *z) { return piece_is_recomputed(z->run.piece) && recompute_whole(z->d.p->recompute); }

static void fetch(struct z3 *z, const struct z3_event *e)
{
    const struct z3_module *m = &z->trace.modules[e->module];
    bool again = !z->run.forward && !e->backward;

    settle(z);
    if (!e->late)
        compute(z, e->kernel >= 0 ? e->kernel : kernel_of(z, m, again));
    z3_coord_fetch(&z->coord, e);
    if (again || (z->run.forward && !runs_again(z)))
        z3_module_saves(z, m, again);
    if (m->n > 0)
        z->using = e->module;
}

static void release(struct z3 *z, const struct z3_event *e)
{
    const struct piece *p = program_piece(z);
    const struct z3_module *m = &z->trace.modules[e->module];
    int k;

    settle(z);
    for (k = z->run.k0; m->kernel_module != -1 && k < p->nkernels[pass(z)]; k++)
        if (!is_of(&p->kernels[pass(z)][k], m))
            break;
    compute(z, e->kernel > k ? e->kernel : k);
    for (int i = 0; i < m->n && e->backward; i++)       /* those that have no gradient */
        z3_drop_kept_data(z, z3_own_tensor(m, i));
    z3_coord_release(&z->coord, e);
    if (z->using == e->module)
        z->using = -1;
}

static void enter(struct z3 *z, const struct z3_event *e)
{
    assert(e->piece == z->run.piece && e->block == z->run.block);
    z->next_ready = 0;
    z->using = -1;
}

static void leave(struct z3 *z)
{
    int n = program_piece(z)->nkernels[pass(z)];

    settle(z);
    z->using = -1;
    compute(z, n);
}

static void run_event(struct z3 *z, const struct z3_event *e)
{
    switch ((enum z3_kind)e->kind) {
    case Z3_ENTER:   enter(z, e); break;
    case Z3_LEAVE:   leave(z); break;
    case Z3_FETCH:   fetch(z, e); break;
    case Z3_RELEASE: release(z, e); break;
    case Z3_GRAD:    gradient(z, e->tensor); break;
    case Z3_ASK:     z3_coord_ask(&z->coord, e); break;
    }
}

void z3_run_events(struct z3 *z, int end)
{
    while (z->next_event < end)
        run_event(z, &z->trace.events[z->next_event++]);
}

void z3_pass(void *zero3, const struct walk_run *r)
{
    struct z3 *z = zero3;
    const struct z3_event *e = &z->trace.events[z->next_event];

    z->run = *r;
    while (e->kind != Z3_LEAVE)
        e++;
    z3_run_events(z, (int)(e - z->trace.events) + 1);
}
