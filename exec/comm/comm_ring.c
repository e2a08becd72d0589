/* comm_ring.c -- collectives around a ring: rank r sends to r+1 and receives from r-1.
 *
 * The chunk that ends on rank c starts at rank c+1 and is added to at each hop, so that its sum
 * is made along one path and all ranks see the same bits.  With a root the ring is a chain. */
#include "exec/comm/comm_internal.h"

static int next(const struct flow *f) { return (f->rank + 1) % f->n; }
static int prev(const struct flow *f) { return (f->rank + f->n - 1) % f->n; }

/* Step s sends chunk r-1-s and receives chunk r-2-s.  Until step n-1 what is received is added
 * to, and sent on; then chunk r is complete here, and from there on complete chunks go around:
 * 2(n-1) steps.  The sums are made in `recv`. */
static bool all_reduce_step(struct flow *f, struct lane *l)
{
    int s = l->step, last = f->n - 1;
    struct part out = flow_chunk(f, l, f->rank - 1 - s), in = flow_chunk(f, l, f->rank - 2 - s);
    const void *from = flow_into(f, out.at);

    if (s == 0)
        from = flow_contribution(f, out, flow_into(f, out.at));
    else if (s <= last)
        flow_add(f, flow_into(f, out.at), flow_area(f, l, 0), out);
    if (s == last)
        flow_average(f, flow_into(f, out.at), out.elems);
    if (s == 2 * last)
        return false;
    flow_recv(f, l, s < last ? flow_area(f, l, 0) : flow_into(f, in.at), in.elems, prev(f));
    flow_send(f, l, from, out.elems, next(f));
    return true;
}

int ring_all_reduce(struct flow *f)
{
    return flow_run(f, all_reduce_step, comm_chunk(f->a->elems, f->n, 0).elems, 1);
}

/* Chunk by chunk straight from where it was received. */
static bool all_gather_step(struct flow *f, struct lane *l)
{
    struct part out = flow_chunk(f, l, f->rank - l->step), in = flow_chunk(f, l, f->rank - l->step - 1);

    if (l->step == f->n - 1)
        return false;
    if (l->step == 0)
        flow_copy(f, flow_into(f, out.at), flow_mine(f, out.at - f->rank * (f->a->elems / f->n)), out.elems);
    flow_recv(f, l, flow_into(f, in.at), in.elems, prev(f));
    flow_send(f, l, flow_into(f, out.at), out.elems, next(f));
    return true;
}

int ring_all_gather(struct flow *f)
{
    return flow_run(f, all_gather_step, f->a->elems / f->n, 1);
}

/* As the all-reduce's first half, but `send` is the caller's: sums are made where they were
 * received, in one half of the area, while the other receives. */
static bool reduce_scatter_step(struct flow *f, struct lane *l)
{
    int s = l->step, last = f->n - 1;
    struct part out = flow_chunk(f, l, f->rank - 1 - s), in = flow_chunk(f, l, f->rank - 2 - s);
    struct part mine = flow_piece(f, l, (struct part){ 0, f->a->elems / f->n });
    void *got = flow_area(f, l, (s + 1) % 2);
    const void *from = got;

    if (s == 0)
        from = flow_contribution(f, out, got);
    else
        flow_add(f, s == last ? flow_into(f, mine.at) : got, got, out);
    if (s == last) {
        flow_average(f, flow_into(f, mine.at), mine.elems);
        return false;
    }
    flow_recv(f, l, flow_area(f, l, s % 2), in.elems, prev(f));
    flow_send(f, l, from, out.elems, next(f));
    return true;
}

int ring_reduce_scatter(struct flow *f)
{
    return flow_run(f, reduce_scatter_step, f->a->elems / f->n, 2);
}

/* ---- chains ---- */

/* root, root+1, ..., root-1; a piece is passed on while the next arrives. */
static bool broadcast_step(struct flow *f, struct lane *l)
{
    int hop = (f->rank - f->a->root + f->n) % f->n;
    struct part p = flow_piece(f, l, (struct part){ 0, f->a->elems });

    if (l->step == 0 && hop > 0)
        flow_recv(f, l, flow_into(f, p.at), p.elems, prev(f));
    else if (l->step == 0)
        flow_copy(f, flow_into(f, p.at), flow_mine(f, p.at), p.elems);
    else if (l->step == 1 && hop < f->n - 1)
        flow_send(f, l, flow_into(f, p.at), p.elems, next(f));
    else
        return false;
    return true;
}

int ring_broadcast(struct flow *f)
{
    return flow_run(f, broadcast_step, f->a->elems, 1);
}

/* root+1, ..., root-1, root: each adds its own and passes it on. */
static bool reduce_step(struct flow *f, struct lane *l)
{
    bool first = prev(f) == f->a->root, end = f->rank == f->a->root;
    struct part p = flow_piece(f, l, (struct part){ 0, f->a->elems });
    void *got = flow_area(f, l, 0);
    const void *from = got;

    if (l->step == 2)
        return false;
    if (l->step == 0) {
        if (!first)
            flow_recv(f, l, got, p.elems, prev(f));
        return true;
    }
    if (first)
        from = flow_contribution(f, p, got);
    else
        flow_add(f, end ? flow_into(f, p.at) : got, got, p);
    if (end)
        flow_average(f, flow_into(f, p.at), p.elems);
    else
        flow_send(f, l, from, p.elems, next(f));
    return true;
}

int ring_reduce(struct flow *f)
{
    return flow_run(f, reduce_step, f->a->elems, 1);
}
