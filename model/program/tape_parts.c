/* tape_parts.c -- see tape_parts.h. */
#include "model/program/tape_parts.h"

#include <stdlib.h>
#include <string.h>

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

/* One part, pulled from another rank. */
static int pull(struct tape *t, int64_t elems, enum dtype dt)
{
    tape_kernel(t, "copy of a part", KC_COPY);
    int c = tape_note_collective(t, &(struct collective){
        .op = COLL_ALL_TO_ALL, .group = GROUP_TENSOR, .dtype = (uint8_t)dt, .stream = STREAM_TENSOR, .onward = true, .engine = true,
        .elems = elems });
    t->out[t->nout - 1].collective = c;
    return c;
}

/* The last kernel becomes one of n; the others follow it by `another()`. */
static struct kernel first_part(struct tape *t, int64_t n, enum dtype dt)
{
    struct kernel *k = &t->out[t->nout - 1];

    k->m /= n;
    k->flops /= (double)n;
    k->bytes = k->batch * (k->m * k->k + k->n * k->k + k->m * k->n) * dtype_bytes(dt);
    return *k;
}

static void another(struct tape *t, const struct kernel *like)
{
    struct kernel *k = tape_kernel(t, like->name, like->kind);

    k->m = like->m, k->n = like->n, k->k = like->k, k->batch = like->batch;
    k->flops = like->flops, k->bytes = like->bytes, k->scaled = like->scaled;
    k->module = like->module, k->half = like->half;
}

int tape_gather_in_parts(struct tape *t, int64_t elems, enum dtype dt, int64_t ranks)
{
    tape_kernel(t, "own part", KC_COPY)->bytes = 2 * elems / ranks * dtype_bytes(dt);
    int all = tape_alloc(t, elems, dtype_bytes(dt), t->backward ? MEM_TEMPORARIES : MEM_ACTIVATIONS);
    t->gathered = (struct tape_gathered){ .store = all, .ranks = ranks, .elems = elems, .dt = dt, .kernel = t->nout };
    return all;
}

/* The next rank's copy of a part runs beside the product of the part after it, which is in the other of two buffers. */
static void scatter_parts(struct tape *t, enum dtype dt)
{
    int64_t n = t->scatters;
    struct kernel part = first_part(t, n, dt);

    t->pulled[0] = t->pulled[1] = 0;
    for (int64_t i = 1; i < n; i++) {
        int made = pull(t, part.m * part.n, dt);
        another(t, &part);
        tape_needs_at(t, t->pulled[0], t->nout - 1);
        t->pulled[0] = t->pulled[1];
        t->pulled[1] = made;
    }
    t->scattered = true;
}

void tape_product_in_parts(struct tape *t, int operand, enum dtype dt)
{
    if (t->gathered.store && operand == t->gathered.store) {
        struct kernel part = first_part(t, t->gathered.ranks, dt);
        for (int64_t i = 1; i < t->gathered.ranks; i++)
            another(t, &part);
    } else if (t->scatters > 1 && !t->backward) {
        scatter_parts(t, dt);
    }
}

/* Of n kernels from `from` on: how many are products. */
static int products_in(const struct tape *t, int from, int n)
{
    int products = 0;

    for (int i = from; i < from + n; i++)
        products += t->out[i].kind == KC_GEMM && t->out[i].m > 0;
    return products;
}

/* Of the kernels from t->gathered.kernel on, `made`, some are products in n parts each, product after product, others casts of weights; then
 * come n - 1 copies.  In order: the casts; a copy, the parts of what was there before it. */
static void order(struct tape *t, int made)
{
    int n = (int)t->gathered.ranks, from = t->gathered.kernel, at = 0, products = 0;
    struct kernel *was = malloc((size_t)(made + n - 1) * sizeof *was), *to = t->out + from;
    int *product = malloc((size_t)made * sizeof *product);

    if (!was || !product) {
        free(was);
        free(product);
        t->bad = true;
        return;
    }
    memcpy(was, to, (size_t)(made + n - 1) * sizeof *was);
    t->bad |= products_in(t, from, made) % n != 0;          /* each is in n parts */
    for (int i = 0; i < made; i++)
        if (was[i].kind == KC_GEMM && was[i].m > 0)
            product[products++] = i;
        else
            to[at++] = was[i];
    products /= n;
    for (int i = 0; i < n; i++) {
        if (i < n - 1) {
            t->colls[t->ncolls - (n - 1) + i].kernel = from + at;
            to[at++] = was[made + i];
        }
        if (i > 0)
            t->colls[t->ncolls - (n - 1) + i - 1].needed = from + at;
        for (int p = 0; p < products; p++)
            to[at++] = was[product[p * n + i]];
    }
    free(was);
    free(product);
}

void tape_parts_gathered(struct tape *t)
{
    int64_t n = t->gathered.ranks;

    if (!t->gathered.store)
        return;
    int made = tape_cut(t) - t->gathered.kernel;
    if (made > 0 && products_in(t, t->gathered.kernel, made) > 0 && !t->bad) {
        for (int64_t i = 1; i < n; i++)
            pull(t, t->gathered.elems / n, t->gathered.dt);
        tape_cut(t);
        order(t, made);
        tape_kernel(t, "parts gathered", KC_COPY);
    }
    t->gathered = (struct tape_gathered){ 0 };
}

bool tape_sum_parts(struct tape *t, int64_t elems, enum dtype dt)
{
    int64_t n = t->scatters;

    if (!t->scattered)
        return false;
    t->scattered = false;
    tape_kernel(t, "sum of parts", KC_ELEMENTWISE)->bytes = (elems + elems / n) * dtype_bytes(dt);
    for (int i = 0; i < 2; i++)
        tape_needs_at(t, t->pulled[i], t->nout - 1);
    return true;
}
