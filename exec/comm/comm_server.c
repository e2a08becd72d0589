/* comm_server.c -- a star: all through the root's own link.  The root adds contributions in
 * rank order. */
#include "exec/comm/comm_internal.h"

static bool is_root(const struct flow *f)
{
    return f->rank == f->a->root;
}

static int64_t each(const struct flow *f)
{
    return f->a->elems / f->n;
}

/* The lane's piece of a whole buffer of `elems`. */
static struct part whole(const struct flow *f, const struct lane *l, int64_t elems)
{
    return flow_piece(f, l, (struct part){ 0, elems });
}

static void send_to_all(struct flow *f, struct lane *l, const void *from, int64_t elems)
{
    for (int k = 1; k < f->n; k++)
        flow_send(f, l, from, elems, (f->rank + k) % f->n);
}

/* Contributions to elements p: at the root, rank i's into part i of the area. */
static void collect(struct flow *f, struct lane *l, struct part p)
{
    if (!is_root(f))
        flow_send(f, l, flow_contribution(f, p, flow_area(f, l, 0)), p.elems, f->a->root);
    else
        for (int i = 0; i < f->n; i++)
            if (i != f->rank)
                flow_recv(f, l, flow_area(f, l, i), p.elems, i);
}

static void add_up(struct flow *f, struct lane *l, void *sum, struct part p)
{
    for (int i = 0; i < f->n; i++)
        f->m->x[i] = flow_area(f, l, i);
    f->m->x[f->rank] = flow_contribution(f, p, flow_area(f, l, f->rank));
    reduce_ranks(f->a, sum, f->m->x, f->n, p.elems);
}

static bool all_reduce_step(struct flow *f, struct lane *l)
{
    struct part p = whole(f, l, f->a->elems);

    if (l->step == 0) {
        collect(f, l, p);
    } else if (l->step == 1 && is_root(f)) {
        add_up(f, l, flow_into(f, p.at), p);
        send_to_all(f, l, flow_into(f, p.at), p.elems);
    } else if (l->step == 1) {
        flow_recv(f, l, flow_into(f, p.at), p.elems, f->a->root);
    }
    return l->step < 2;
}

int server_all_reduce(struct flow *f)
{
    return flow_run(f, all_reduce_step, f->a->elems, f->n);
}

/* Chunk by chunk: collected in step 2c, its sum handed to rank c in step 2c+1. */
static bool reduce_scatter_step(struct flow *f, struct lane *l)
{
    int c = l->step / 2;
    struct part p = flow_chunk(f, l, c), mine = whole(f, l, each(f));
    void *sum = c == f->rank ? flow_into(f, mine.at) : flow_area(f, l, 0);

    if (c == f->n)
        return false;
    if (l->step % 2 == 0)
        collect(f, l, p);
    else if (is_root(f)) {
        add_up(f, l, sum, p);
        if (c != f->rank)
            flow_send(f, l, sum, p.elems, c);
    } else if (c == f->rank)
        flow_recv(f, l, sum, p.elems, f->a->root);
    return true;
}

int server_reduce_scatter(struct flow *f)
{
    return flow_run(f, reduce_scatter_step, each(f), f->n);
}

/* ---- with a root by nature ---- */

static bool broadcast_step(struct flow *f, struct lane *l)
{
    struct part p = whole(f, l, f->a->elems);

    if (l->step == 1)
        return false;
    if (is_root(f)) {
        flow_copy(f, flow_into(f, p.at), flow_mine(f, p.at), p.elems);
        send_to_all(f, l, flow_into(f, p.at), p.elems);
    } else {
        flow_recv(f, l, flow_into(f, p.at), p.elems, f->a->root);
    }
    return true;
}

int server_broadcast(struct flow *f)
{
    return flow_run(f, broadcast_step, f->a->elems, 1);
}

static bool reduce_step(struct flow *f, struct lane *l)
{
    struct part p = whole(f, l, f->a->elems);

    if (l->step == 0)
        collect(f, l, p);
    else if (is_root(f))
        add_up(f, l, flow_into(f, p.at), p);
    return l->step == 0;
}

int server_reduce(struct flow *f)
{
    return flow_run(f, reduce_step, f->a->elems, f->n);
}

static bool scatter_step(struct flow *f, struct lane *l)
{
    struct part mine = whole(f, l, each(f));

    if (l->step == 1)
        return false;
    if (!is_root(f)) {
        flow_recv(f, l, flow_into(f, mine.at), mine.elems, f->a->root);
        return true;
    }
    for (int k = 1; k < f->n; k++) {
        struct part p = flow_chunk(f, l, f->rank + k);

        flow_send(f, l, flow_mine(f, p.at), p.elems, (f->rank + k) % f->n);
    }
    flow_copy(f, flow_into(f, mine.at), flow_mine(f, flow_chunk(f, l, f->rank).at), mine.elems);
    return true;
}

int server_scatter(struct flow *f)
{
    return flow_run(f, scatter_step, each(f), 1);
}

static bool gather_step(struct flow *f, struct lane *l)
{
    struct part mine = whole(f, l, each(f));

    if (l->step == 1)
        return false;
    if (!is_root(f)) {
        flow_send(f, l, flow_mine(f, mine.at), mine.elems, f->a->root);
        return true;
    }
    for (int k = 1; k < f->n; k++) {
        struct part p = flow_chunk(f, l, f->rank + k);

        flow_recv(f, l, flow_into(f, p.at), p.elems, (f->rank + k) % f->n);
    }
    flow_copy(f, flow_into(f, flow_chunk(f, l, f->rank).at), flow_mine(f, mine.at), mine.elems);
    return true;
}

int server_gather(struct flow *f)
{
    return flow_run(f, gather_step, each(f), 1);
}

/* All parts to the root, then the whole buffer from it to each, chunk after chunk: also each
 * rank's own, as a server that answers all alike does. */
static bool all_gather_step(struct flow *f, struct lane *l)
{
    struct part p = flow_chunk(f, l, l->step - 1);

    if (l->step == 0)
        return gather_step(f, l);
    if (l->step == f->n + 1)
        return false;
    if (is_root(f))
        send_to_all(f, l, flow_into(f, p.at), p.elems);
    else
        flow_recv(f, l, flow_into(f, p.at), p.elems, f->a->root);
    return true;
}

int server_all_gather(struct flow *f)
{
    return flow_run(f, all_gather_step, each(f), 1);
}
