/* comm_halving.c -- recursive halving and doubling, for n a power of two.
 *
 * Ranks whose numbers agree but for their low bits form a group, and their chunks lie side by
 * side.  At level d a rank works with the rank that differs from it in bit d: a sum halves
 * (levels n/2 ... 1) what both still hold, a gathering doubles it (1 ... n/2).
 *
 * With a root the same pairs make a binomial tree: rank r, v = r xor root, is handed its data by
 * r xor d where d is the lowest bit of v, and hands on at the levels below d. */
#include "exec/comm/comm_internal.h"

/* The first of the group of `size` ranks that r is in. */
static int group_first(int r, int size)
{
    return r & ~(size - 1);
}

/* That group's chunks. */
static struct part group_part(const struct flow *f, int r, int size)
{
    int first = group_first(r, size);
    struct part from = comm_chunk(f->a->elems, f->n, first);
    struct part to = comm_chunk(f->a->elems, f->n, first + size - 1);

    return (struct part){ from.at, to.at + to.elems - from.at };
}

/* ---- all-reduce, all-gather: in place, a level at a time ---- */

/* Sends the partner's half of what both hold and adds to this rank's.  At the first level
 * contributions come from `send`, later from `recv`, where the sums are. */
static bool halve_step(struct flow *f, struct lane *l)
{
    int d = f->level;
    bool first = d == f->n / 2;
    struct part keep = flow_piece(f, l, group_part(f, f->rank, d));
    struct part give = flow_piece(f, l, group_part(f, f->rank ^ d, d));
    void *sum = flow_into(f, keep.at), *got = flow_area(f, l, 0), *out = flow_into(f, give.at);

    if (l->step == 0) {
        flow_recv(f, l, got, keep.elems, f->rank ^ d);
        flow_send(f, l, first ? flow_contribution(f, give, out) : out, give.elems, f->rank ^ d);
        return true;
    }
    if (first)
        flow_add(f, sum, got, keep);
    else
        reduce_add(f->a->dtype, f->a->red, sum, got, sum, 1, keep.elems);
    return false;
}

/* Exchanges all that this rank has for all that the partner has. */
static bool double_step(struct flow *f, struct lane *l)
{
    int d = f->level;
    struct part have = flow_piece(f, l, group_part(f, f->rank, d));
    struct part get = flow_piece(f, l, group_part(f, f->rank ^ d, d));

    if (l->step == 1)
        return false;
    flow_recv(f, l, flow_into(f, get.at), get.elems, f->rank ^ d);
    flow_send(f, l, flow_into(f, have.at), have.elems, f->rank ^ d);
    return true;
}

/* The two halves may differ in length; both partners go by the longer. */
static int level_run(struct flow *f, step_fn *step, int d)
{
    struct part a = group_part(f, f->rank, d), b = group_part(f, f->rank ^ d, d);

    f->level = d;
    return flow_run(f, step, a.elems > b.elems ? a.elems : b.elems, 1);
}

static int double_all(struct flow *f)
{
    for (int d = 1; d < f->n; d *= 2)
        if (level_run(f, double_step, d) < 0)
            return -1;
    return 0;
}

int halving_all_reduce(struct flow *f)
{
    struct part mine = comm_chunk(f->a->elems, f->n, f->rank);

    for (int d = f->n / 2; d >= 1; d /= 2)
        if (level_run(f, halve_step, d) < 0)
            return -1;
    flow_average(f, flow_into(f, mine.at), mine.elems);
    return double_all(f);
}

int halving_all_gather(struct flow *f)
{
    struct part mine = comm_chunk(f->a->elems, f->n, f->rank);

    flow_copy(f, flow_into(f, mine.at), f->a->send, mine.elems);
    return double_all(f);
}

/* ---- parts that pass through staging ---- */

/* `count` neighbouring ranks' pieces of `len` elements, `stride` apart here: one message where
 * the pieces are whole chunks, so that they lie side by side at both ends. */
static void send_group(struct flow *f, struct lane *l, const void *from, int64_t stride, int64_t len,
                       int count, int to)
{
    if (f->npieces == 1)
        flow_send(f, l, from, len * count, to);
    else
        for (int i = 0; i < count; i++)
            flow_send(f, l, (const char *)from + i * stride * f->size, len, to);
}

static void recv_group(struct flow *f, struct lane *l, void *into, int64_t stride, int64_t len,
                       int count, int from)
{
    if (f->npieces == 1)
        flow_recv(f, l, into, len * count, from);
    else
        for (int i = 0; i < count; i++)
            flow_recv(f, l, (char *)into + i * stride * f->size, len, from);
}

static int64_t each(const struct flow *f)
{
    return f->a->elems / f->n;
}

/* ---- reduce-scatter ---- */

/* Partial sums of level d are in parts [n-2d, n-d) of the area, chunk after chunk; multiplied
 * contributions that are sent at the first level in parts [n, n + n/2). */
static void *partial(const struct flow *f, const struct lane *l, int d, int chunk)
{
    return flow_area(f, l, f->n - 2 * d + (chunk & (d - 1)));
}

static void add_level(const struct flow *f, struct lane *l, int d)
{
    int first = group_first(f->rank, d);

    for (int c = first; c < first + d; c++) {
        struct part p = flow_chunk(f, l, c);
        void *got = partial(f, l, d, c);

        if (d == f->n / 2)
            flow_add(f, got, got, p);
        else
            reduce_add(f->a->dtype, f->a->red, got, got, partial(f, l, 2 * d, c), 1, p.elems);
    }
}

static void send_contributions(struct flow *f, struct lane *l, int d)
{
    int first = group_first(f->rank ^ d, d);
    struct part p = flow_chunk(f, l, first);

    if (f->a->red != RED_PREMUL_SUM) {
        send_group(f, l, flow_mine(f, p.at), each(f), p.elems, d, f->rank ^ d);
        return;
    }
    for (int i = 0; i < d; i++)
        flow_contribution(f, flow_chunk(f, l, first + i), flow_area(f, l, f->n + i));
    send_group(f, l, flow_area(f, l, f->n), f->q, p.elems, d, f->rank ^ d);
}

static bool reduce_scatter_step(struct flow *f, struct lane *l)
{
    int d = f->n / 2 >> l->step, partner = f->rank ^ d;
    struct part mine = flow_piece(f, l, (struct part){ 0, each(f) });

    if (l->step > 0)
        add_level(f, l, d ? 2 * d : 1);
    if (d == 0) {
        flow_copy(f, flow_into(f, mine.at), partial(f, l, 1, f->rank), mine.elems);
        flow_average(f, flow_into(f, mine.at), mine.elems);
        return false;
    }
    recv_group(f, l, partial(f, l, d, 0), f->q, mine.elems, d, partner);
    if (l->step == 0)
        send_contributions(f, l, d);
    else
        send_group(f, l, partial(f, l, 2 * d, group_first(partner, d)), f->q, mine.elems, d, partner);
    return true;
}

int halving_reduce_scatter(struct flow *f)
{
    return flow_run(f, reduce_scatter_step, each(f), 2 * f->n);
}

/* ---- binomial trees ---- */

/* Ranks in this rank's subtree, itself included. */
static int subtree(const struct flow *f)
{
    int v = f->rank ^ f->a->root;

    return v ? v & -v : f->n;
}

static bool broadcast_step(struct flow *f, struct lane *l)
{
    int size = subtree(f);
    struct part p = flow_piece(f, l, (struct part){ 0, f->a->elems });

    if (l->step == 2)
        return false;
    if (l->step == 0 && f->rank != f->a->root)
        flow_recv(f, l, flow_into(f, p.at), p.elems, f->rank ^ size);
    else if (l->step == 0)
        flow_copy(f, flow_into(f, p.at), flow_mine(f, p.at), p.elems);
    else
        for (int d = size / 2; d >= 1; d /= 2)
            flow_send(f, l, flow_into(f, p.at), p.elems, f->rank ^ d);
    return true;
}

int halving_broadcast(struct flow *f)
{
    return flow_run(f, broadcast_step, f->a->elems, 1);
}

/* Step s receives the sum of the subtree at level 2^s; the last one sends up. */
static bool reduce_step(struct flow *f, struct lane *l)
{
    int size = subtree(f), d = 1 << l->step;
    bool root = f->rank == f->a->root;
    struct part p = flow_piece(f, l, (struct part){ 0, f->a->elems });
    void *got = flow_area(f, l, 0), *sum = root ? flow_into(f, p.at) : flow_area(f, l, 1);

    if (d == 2 && d <= size)
        flow_add(f, sum, got, p);
    else if (d > 2 && d <= size)
        reduce_add(f->a->dtype, f->a->red, sum, got, sum, 1, p.elems);
    if (d < size)
        flow_recv(f, l, got, p.elems, f->rank ^ d);
    else if (d == size && !root)
        flow_send(f, l, size == 1 ? flow_contribution(f, p, sum) : sum, p.elems, f->rank ^ size);
    else if (root)
        flow_average(f, sum, p.elems);
    return d < size || (d == size && !root);
}

int halving_reduce(struct flow *f)
{
    return flow_run(f, reduce_step, f->a->elems, 2);
}

/* Pieces of a subtree's chunks: at the root in the caller's buffer, elsewhere in the area. */
static bool scatter_step(struct flow *f, struct lane *l)
{
    int size = subtree(f), first = group_first(f->rank, size);
    bool root = f->rank == f->a->root;
    struct part mine = flow_piece(f, l, (struct part){ 0, each(f) });
    int64_t stride = root ? each(f) : f->q;

    if (l->step == 2)
        return false;
    if (l->step == 0) {
        if (!root)
            recv_group(f, l, flow_area(f, l, 0), f->q, mine.elems, size, f->rank ^ size);
        return true;
    }
    for (int d = size / 2; d >= 1; d /= 2) {
        int to = group_first(f->rank ^ d, d);

        send_group(f, l, root ? flow_mine(f, flow_chunk(f, l, to).at) : flow_area(f, l, to - first),
                   stride, mine.elems, d, f->rank ^ d);
    }
    flow_copy(f, flow_into(f, mine.at),
              root ? flow_mine(f, flow_chunk(f, l, f->rank).at) : flow_area(f, l, f->rank - first),
              mine.elems);
    return true;
}

int halving_scatter(struct flow *f)
{
    return flow_run(f, scatter_step, each(f), f->n);
}

static bool gather_step(struct flow *f, struct lane *l)
{
    int size = subtree(f), first = group_first(f->rank, size);
    bool root = f->rank == f->a->root;
    struct part mine = flow_piece(f, l, (struct part){ 0, each(f) });
    int64_t stride = root ? each(f) : f->q;

    if (l->step == 1 && !root)
        send_group(f, l, flow_area(f, l, 0), f->q, mine.elems, size, f->rank ^ size);
    if (l->step > 0)
        return l->step == 1 && !root;
    for (int d = 1; d < size; d *= 2) {
        int from = group_first(f->rank ^ d, d);

        recv_group(f, l, root ? flow_into(f, flow_chunk(f, l, from).at) : flow_area(f, l, from - first),
                   stride, mine.elems, d, f->rank ^ d);
    }
    flow_copy(f, root ? flow_into(f, flow_chunk(f, l, f->rank).at) : flow_area(f, l, f->rank - first),
              flow_mine(f, mine.at), mine.elems);
    return true;
}

int halving_gather(struct flow *f)
{
    return flow_run(f, gather_step, each(f), f->n);
}
