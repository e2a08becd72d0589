/* program_collective.c -- a collective becomes a kernel of a program that is built. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/program/program_internal.h"

/* Room for `more` elements at `at`, zeroed. */
static int open_gap(void *array, int n, int at, int more, size_t size)
{
    char **p = array, *grown = realloc(*p, (size_t)(n + more) * size);

    if (!grown)
        return fail("out of memory for a block program");
    memmove(grown + (size_t)(at + more) * size, grown + (size_t)at * size, (size_t)(n - at) * size);
    memset(grown + (size_t)at * size, 0, (size_t)more * size);
    *p = grown;
    return 0;
}

static int insert_kernel(struct piece *p, enum pass pass, const char *name, const struct collective *c)
{
    int n = p->nkernels[pass];
    struct kernel *k;

    if (open_gap(&p->kernels[pass], n, c->kernel, 1, sizeof *k) < 0)
        return -1;
    p->nkernels[pass]++;
    k = &p->kernels[pass][c->kernel];
    *k = (struct kernel){ .name = name, .kind = KC_COPY, .module = -1, .fn = FN_NONE, .ready = { -1, -1, -1, -1 } };
    if (n > 0) {                        /* of the half and the module, and with the places, of the one before it */
        k->half = c->kernel > 0 ? k[-1].half : k[1].half;
        k->module = c->kernel > 0 ? k[-1].module : k[1].module;
    }
    k->place0 = c->kernel > 0 ? k[-1].place0 + k[-1].nplaces : 0;
    return 0;
}

static int insert_collective(struct piece *p, enum pass pass, const struct collective *c)
{
    int n = p->ncollectives[pass], at = 0;

    for (int i = 0; i < n; i++) {
        struct collective *o = &p->collectives[pass][i];
        o->needed += o->needed >= c->kernel;
        if (o->kernel < c->kernel)
            at = i + 1;
        else
            o->kernel++;
    }
    if (open_gap(&p->collectives[pass], n, at, 1, sizeof *c) < 0)
        return -1;
    p->collectives[pass][at] = *c;
    p->ncollectives[pass]++;
    return 0;
}

/* Where passes are cut stays between the kernels where it was: a collective that is put in there comes behind it. */
static void move_cuts(struct program *g, enum piece_id piece, enum pass pass, const struct collective *c)
{
    struct piece *p = &g->piece[piece];
    int *const outside = &p->outside[pass], entered = pass == PASS_FORWARD ? *outside : p->nkernels[pass] - *outside;

    if (*outside > 0)
        *outside += (pass == PASS_FORWARD) == (c->kernel < entered);
    if (pass == PASS_BACKWARD)
        p->split += c->kernel < p->split;
    if (piece == PIECE_HEAD) {
        g->returns[pass] += c->kernel < g->returns[pass];
        g->heads[pass] += c->kernel < g->heads[pass];
        for (int i = 0; i < g->ncalls; i++) {
            g->call[pass][i].from += c->kernel < g->call[pass][i].from;
            g->call[pass][i].to += c->kernel < g->call[pass][i].to;
        }
    }
}

/* The last place of kernel k. */
static int add_place(struct piece *p, enum pass pass, int k, const struct place *one)
{
    struct kernel *of = &p->kernels[pass][k];
    int at = of->place0 + of->nplaces, all = 0;

    for (int i = 0; i < p->nkernels[pass]; i++)
        all += p->kernels[pass][i].nplaces;
    if (open_gap(&p->places[pass], all, at, 1, sizeof *one) < 0)
        return -1;
    p->places[pass][at] = *one;
    of->nplaces++;
    for (int i = k + 1; i < p->nkernels[pass]; i++)
        p->kernels[pass][i].place0++;
    return 0;
}

/* A temporary comes with the collective and goes with the kernel that needs it. */
static int own_buffer(struct piece *p, enum pass pass, const struct collective *c)
{
    struct kernel *k = p->kernels[pass];
    struct place place = { c->into, MEM_TEMPORARIES, true, c->own };

    assert(c->needed < p->nkernels[pass]);
    k[c->kernel].net[MEM_TEMPORARIES] = k[c->kernel].peak[MEM_TEMPORARIES] = c->own;
    k[c->needed].net[MEM_TEMPORARIES] -= c->own;
    if (!p->places[pass])
        return 0;
    assert(c->into != SLOT_NONE && c->into != c->from);
    if (add_place(p, pass, c->kernel, &place) < 0)
        return -1;
    place.comes = false;
    return add_place(p, pass, c->needed, &place);
}

int program_add_collective(struct program *g, enum piece_id piece, enum pass pass, const char *name,
                           const struct collective *c)
{
    struct piece *p = &g->piece[piece];

    assert(0 <= c->kernel && c->kernel <= p->nkernels[pass]);
    assert(c->kernel < c->needed && c->needed <= p->nkernels[pass] + 1 && c->own >= 0);
    move_cuts(g, piece, pass, c);
    if (insert_kernel(p, pass, name, c) < 0 || insert_collective(p, pass, c) < 0)
        return -1;
    if (c->own > 0 && own_buffer(p, pass, c) < 0)
        return -1;
    g->ncollectives++;
    program_measure(g);
    return 0;
}
