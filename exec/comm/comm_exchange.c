/* comm_exchange.c -- all-to-all: part i of what a rank sends goes to rank i.
 *
 * Piece i of every part moves at once.  Ranks may have different numbers of pieces where parts are
 * unequal: both sides of a part know its length and stop at its end. */
#include "exec/comm/comm_internal.h"

/* The part for, or from, rank i. */
static struct part part_of(const struct flow *f, int i, bool received)
{
    struct part p = { 0, 0 };

    for (int k = 0; k <= i; k++) {
        struct coll_part row = comm_part(f->a, f->n, k);
        p.at += p.elems;
        p.elems = received ? row.received : row.sent;
    }
    return p;
}

static void swap(struct flow *f, struct lane *l, int to, int from)
{
    struct part out = flow_piece(f, l, part_of(f, to, false)), in = flow_piece(f, l, part_of(f, from, true));

    flow_recv(f, l, flow_into(f, in.at), in.elems, from);
    flow_send(f, l, flow_mine(f, out.at), out.elems, to);
}

static void keep_own(const struct flow *f, const struct lane *l)
{
    struct part out = flow_piece(f, l, part_of(f, f->rank, false)), in = flow_piece(f, l, part_of(f, f->rank, true));

    flow_copy(f, flow_into(f, in.at), flow_mine(f, out.at), out.elems);
}

/* Rounds 1 ... n-1, after the rank's own part. */
static bool round_step(struct flow *f, struct lane *l)
{
    int i = l->step + 1;

    if (l->step == 0)
        keep_own(f, l);
    if (i < f->n)
        swap(f, l, (f->rank + i) % f->n, (f->rank - i + f->n) % f->n);
    return i < f->n;
}

static bool pair_step(struct flow *f, struct lane *l)
{
    int i = l->step + 1;

    if (l->step == 0)
        keep_own(f, l);
    if (i < f->n)
        swap(f, l, f->rank ^ i, f->rank ^ i);
    return i < f->n;
}

static bool at_once_step(struct flow *f, struct lane *l)
{
    if (l->step == 1)
        return false;
    keep_own(f, l);
    for (int i = 1; i < f->n; i++)
        swap(f, l, (f->rank + i) % f->n, (f->rank - i + f->n) % f->n);
    return true;
}

static int run(struct flow *f, step_fn *step)
{
    int64_t q = flow_longest(f), longest = 0;

    for (int i = 0; i < f->n; i++) {
        struct coll_part row = comm_part(f->a, f->n, i);
        longest = row.sent > longest ? row.sent : longest;
        longest = row.received > longest ? row.received : longest;
    }
    return flow_run_pieces(f, step, q, ceil_div(longest, q));
}

int exchange_in_rounds(struct flow *f) { return run(f, round_step); }
int exchange_in_pairs(struct flow *f)  { return run(f, pair_step); }
int exchange_at_once(struct flow *f)   { return run(f, at_once_step); }
