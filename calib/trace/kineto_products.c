/* kineto_products.c -- see kineto_products.h: "Input Dims" are there where the profiler ran with record_shapes. */
#include "calib/trace/kineto_products.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "base/sort.h"

/* Elements of a tensor; 0: not said, or more than 2^48. */
static int64_t elements_of(const struct trace_dims *d, int from)
{
    int64_t product = d->n > from;

    for (int i = from; i < d->n && product > 0; i++)
        product = d->of[i] < 1 || d->of[i] > (INT64_C(1) << 48) / product ? 0 : product * d->of[i];
    return product;
}

static void keep(struct kineto_operators *o, int64_t external, int32_t product)
{
    o->at = room_for(o->at, o->n, &o->cap, sizeof *o->at);
    o->at[o->n++] = (struct kineto_operator){ external, product };
}

static void keep_product(struct kineto *k, struct kineto_operators *o, int64_t external, struct kineto_product p)
{
    k->product = room_for(k->product, k->nproducts, &k->cap_products, sizeof *k->product);
    k->product[k->nproducts++] = p;
    keep(o, external, (int32_t)k->nproducts);
}

/* The gradient of the output, the input and the weight: rows, channels out, and in with the window.  A transposed one is the other way round. */
static void add_convolution(struct kineto *k, struct kineto_operators *o, const struct trace_event *e)
{
    const struct trace_dims *y = &e->args.input[0], *x = &e->args.input[1], *w = &e->args.input[2];

    if (y->n < 3 || x->n != y->n || w->n != y->n || elements_of(y, 0) == 0 || elements_of(x, 0) == 0 || elements_of(w, 0) == 0)
        return;
    if (y->of[1] != w->of[0] || elements_of(y, 2) > elements_of(x, 2)) {
        const struct trace_dims *swap = y;
        y = x;
        x = swap;
    }
    int64_t groups = x->of[1] / w->of[1];
    if (groups > 0)
        keep_product(k, o, e->args.external, (struct kineto_product){ .m = elements_of(y, 2) * y->of[0], .n = w->of[0] / groups, .k = elements_of(w, 1),
                                                                      .batch = groups, .convolution = true });
}

/* mm, addmm, bmm, baddbmm, _scaled_mm, _grouped_mm: two factors, before them what is added to. */
static void add_matrices(struct kineto *k, struct kineto_operators *o, const struct trace_event *e)
{
    int first = strstr(e->name, "add") != NULL;
    const struct trace_dims *a = &e->args.input[first], *b = a + 1;

    if (a->n < 2 || b->n < 2 || elements_of(a, 0) == 0 || elements_of(b, 0) == 0 || a->of[a->n - 1] != b->of[b->n - 2])
        return;
    keep_product(k, o, e->args.external, (struct kineto_product){ .m = a->of[a->n - 2], .n = b->of[b->n - 1], .k = a->of[a->n - 1],
                                                                  .batch = a->n == 3 && b->n == 3 ? a->of[0] : 1 });
}

void kineto_products_add(struct kineto *k, struct kineto_operators *o, const struct trace_event *e)
{
    if (e->args.external < 0 || k->nproducts == INT32_MAX)
        return;
    if (!strncmp(e->name, "aten::_cudnn_rnn", strlen("aten::_cudnn_rnn")))
        keep(o, e->args.external, KINETO_PARTS);
    else if (!strcmp(e->name, "aten::convolution_backward"))
        add_convolution(k, o, e);
    else if (strstr(e->name, "mm"))
        add_matrices(k, o, e);
}

static int by_external(const void *a, const void *b)
{
    const struct kineto_operator *x = a, *y = b;

    return (x->external > y->external) - (x->external < y->external);
}

void kineto_products_sort(struct kineto_operators *o)
{
    if (o->n > 1)
        sort_stable(o->at, (size_t)o->n, sizeof *o->at, by_external);
}

int32_t kineto_products_find(const struct kineto_operators *o, int64_t external)
{
    const struct kineto_operator wanted = { .external = external };
    const struct kineto_operator *found = o->n ? bsearch(&wanted, o->at, (size_t)o->n, sizeof *o->at, by_external) : NULL;

    return found ? found->product : 0;
}
