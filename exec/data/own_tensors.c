/* own_tensors.c -- rows, columns and blocks of a rank's own tensors as places in the whole model's. */
#include "exec/data/own_tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

struct own_tensors {
    const struct local_model *local;
    int *whole;                         /* of each of the rank's tensors: the whole model's */
};

/* The tensor of that name, looked for from `first` on: a rank's are in the model's order, but for a copy of a tied one. */
static int named(const struct model *m, const char *name, int first)
{
    for (int i = 0; i < m->ntensors; i++)
        if (!strcmp(m->tensors[(first + i) % m->ntensors].name, name))
            return (first + i) % m->ntensors;
    assert(!"a rank's tensor is one of the model's");
    return -1;
}

struct own_tensors *own_tensors_new(const struct local_model *local)
{
    struct own_tensors *o = calloc(1, sizeof *o);
    int next = 0;

    if (o)
        *o = (struct own_tensors){ local, calloc((size_t)local->model->ntensors + 1, sizeof *o->whole) };
    if (!o || !o->whole) {
        own_tensors_free(o);
        fail("out of memory for the table of a rank's tensors");
        return NULL;
    }
    for (int t = 0; t < local->model->ntensors; t++) {
        o->whole[t] = named(local->whole, local->model->tensors[t].name, next);
        next = o->whole[t] + 1;
    }
    return o;
}

void own_tensors_free(struct own_tensors *o)
{
    if (!o)
        return;
    free(o->whole);
    free(o);
}

/* Row or column i of the rank's, counted in the whole; *left: how many of the rank's follow it there, itself included. */
static int64_t in_whole(const struct local_cut *c, int64_t i, int64_t *left)
{
    int r = 0;

    while (i >= c->run[r].n)
        i -= c->run[r++].n;
    assert(r < c->nruns);
    *left = c->run[r].n - i;
    return c->run[r].from + i;
}

struct own_run own_tensors_run(const struct own_tensors *o, int tensor, int64_t from, int64_t n)
{
    struct own_run run = { o ? o->whole[tensor] : tensor, from, n };
    struct local_cut c = { .dim = -1 };
    int64_t left = n;

    if (o)
        c = local_share_cut(o->local->whole, &o->local->whole->tensors[run.tensor], &o->local->share);
    if (c.dim == 0) {                   /* whole rows */
        int64_t width = o->local->model->tensors[tensor].shape[1];
        run.from = in_whole(&c, from / width, &left) * width + from % width;
        left = left * width - from % width;
    } else if (c.dim == 1) {            /* parts of rows */
        int64_t mine = o->local->model->tensors[tensor].shape[1], width = o->local->whole->tensors[run.tensor].shape[1];
        run.from = from / mine * width + in_whole(&c, from % mine, &left);
    }
    run.n = left < n ? left : n;
    return run;
}
