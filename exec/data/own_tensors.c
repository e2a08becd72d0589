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

struct own_run own_tensors_run(const struct own_tensors *o, int tensor, int64_t from, int64_t n)
{
    return (struct own_run){ o ? o->whole[tensor] : tensor, from, n };
}
