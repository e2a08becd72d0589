/* comm_direct.c -- every rank to every rank at once.
 *
 * Each rank receives all contributions to its chunk and adds them in rank order, then (for an
 * all-reduce) sends the sum to each other rank.  A sum depends on nothing but the contributions
 * and their order, and is made once: the same bits on all ranks and in every run. */
#include "exec/comm/comm_internal.h"

static int other(const struct flow *f, int k)
{
    return (f->rank + k) % f->n;
}

/* What rank i contributes to this rank's chunk arrives in part i of the area; multiplied
 * contributions for it leave from part n + i. */
static void exchange(struct flow *f, struct lane *l)
{
    struct part mine = flow_chunk(f, l, f->rank);

    for (int k = 1; k < f->n; k++)
        flow_recv(f, l, flow_area(f, l, other(f, f->n - k)), mine.elems, other(f, f->n - k));
    for (int k = 1; k < f->n; k++) {
        struct part p = flow_chunk(f, l, other(f, k));

        flow_send(f, l, flow_contribution(f, p, flow_area(f, l, f->n + other(f, k))), p.elems, other(f, k));
    }
}

static void add_up(struct flow *f, struct lane *l, void *sum)
{
    struct part mine = flow_chunk(f, l, f->rank);

    for (int i = 0; i < f->n; i++)
        f->m->x[i] = flow_area(f, l, i);
    f->m->x[f->rank] = flow_contribution(f, mine, flow_area(f, l, f->rank));
    reduce_ranks(f->a, sum, f->m->x, f->n, mine.elems);
}

static void spread(struct flow *f, struct lane *l)
{
    struct part mine = flow_chunk(f, l, f->rank);

    for (int k = 1; k < f->n; k++) {
        struct part p = flow_chunk(f, l, other(f, f->n - k));

        flow_recv(f, l, flow_into(f, p.at), p.elems, other(f, f->n - k));
    }
    for (int k = 1; k < f->n; k++)
        flow_send(f, l, flow_into(f, mine.at), mine.elems, other(f, k));
}

static int parts(const struct flow *f)
{
    return f->a->red == RED_PREMUL_SUM ? 2 * f->n : f->n;
}

static bool all_reduce_step(struct flow *f, struct lane *l)
{
    if (l->step == 0)
        exchange(f, l);
    if (l->step == 1) {
        add_up(f, l, flow_into(f, flow_chunk(f, l, f->rank).at));
        spread(f, l);
    }
    return l->step < 2;
}

int direct_all_reduce(struct flow *f)
{
    return flow_run(f, all_reduce_step, comm_chunk(f->a->elems, f->n, 0).elems, parts(f));
}

static bool reduce_scatter_step(struct flow *f, struct lane *l)
{
    struct part mine = flow_piece(f, l, (struct part){ 0, f->a->elems / f->n });

    if (l->step == 0)
        exchange(f, l);
    else
        add_up(f, l, flow_into(f, mine.at));
    return l->step == 0;
}

int direct_reduce_scatter(struct flow *f)
{
    return flow_run(f, reduce_scatter_step, f->a->elems / f->n, parts(f));
}

static bool all_gather_step(struct flow *f, struct lane *l)
{
    struct part mine = flow_piece(f, l, (struct part){ 0, f->a->elems / f->n });

    if (l->step == 1)
        return false;
    flow_copy(f, flow_into(f, flow_chunk(f, l, f->rank).at), flow_mine(f, mine.at), mine.elems);
    spread(f, l);
    return true;
}

int direct_all_gather(struct flow *f)
{
    return flow_run(f, all_gather_step, f->a->elems / f->n, 1);
}
