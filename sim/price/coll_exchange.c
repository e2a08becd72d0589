/* coll_exchange.c -- all-to-all, and one message from rank to rank. */
#include "sim/price/coll_count.h"

/* Bytes that leave the node that sends most to others, and its number of ranks. */
static double leaving(const struct coll_net *n, double s, double *flows)
{
    *flows = n->nodes > 1 ? n->ranks - (n->nodes - 1) * n->per_node : n->per_node;
    return *flows * coll_leaving((int64_t)n->ranks, (int64_t)n->per_node) * s;
}

static void all_parts(const struct coll_net *n, double s, struct coll_figures *f)
{
    f->sent = f->peak = coll_share(n) * s;
    f->total = (n->ranks - 1) * s;
}

/* In round i a rank sends to rank + i and receives from rank - i:
 * (p-1)(alpha + S/p beta) [MPICH, Open MPI: pairwise]. */
static bool aa_pairwise(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, flows, out = leaving(n, s, &flows);

    f->steps = p - 1;
    f->time_s = coll_latency(n, p - 1, p - g) + coll_move(n, (g - 1) / p * s, 0, 1) + coll_move(n, 0, out, flows);
    all_parts(n, s, f);
    return true;
}

/* All parts at once, as NCCL's group of sends and receives: alpha + (p-1)/p S beta; what stays in
 * the node and what leaves it use different wires. */
static bool aa_direct(const struct coll_net *n, double s, struct coll_figures *f)
{
    double flows, out = leaving(n, s, &flows);

    f->steps = 1;
    f->time_s = coll_latency(n, 1, 1) + coll_move(n, (n->per_node - 1) / n->ranks * s, out, flows);
    all_parts(n, s, f);
    return true;
}

/* In round i the parts whose distance has bit i go 2^i ranks on, half of the buffer:
 * ceil(lg p)(alpha + S/2 beta) [Bruck 1997; MPICH below 256 bytes]. */
static bool aa_bruck(const struct coll_net *n, double s, struct coll_figures *f)
{
    double d = coll_levels(n->ranks), far = coll_levels(n->nodes), g = n->per_node;

    f->steps = d;
    f->time_s = coll_latency(n, d, far) + (d - far) * coll_move(n, s / 2, 0, 1) + far * coll_move(n, 0, g * s / 2, g);
    f->sent = f->peak = d * s / 2;
    f->total = n->ranks * d * s / 2;
    return true;
}

/* alpha + S beta; between nodes where there is more than one. */
static bool message(const struct coll_net *n, double s, struct coll_figures *f)
{
    f->steps = 1;
    f->time_s = coll_latency(n, 1, 1) + (n->nodes > 1 ? coll_move(n, 0, s, 1) : coll_move(n, s, 0, 1));
    f->sent = f->peak = f->total = s;
    return true;
}

static bool received(const struct coll_net *n, double s, struct coll_figures *f)
{
    message(n, s, f);
    f->sent = 0;
    return true;
}

const struct coll_algo coll_exchange_algos[] = {
    { COLL_ALL_TO_ALL, "pairwise", "O(N)", "O(1)", aa_pairwise, "with one rank after the other" },
    { COLL_ALL_TO_ALL, "direct", "O(1)", "O(1)", aa_direct, "with all ranks at once" },
    { COLL_ALL_TO_ALL, "bruck", "O(log N)", "O(log N)", aa_bruck, "half of the buffer to twice the distance each time" },
    { COLL_SEND, "message", "O(1)", "O(1)", message, "from one rank to another" },
    { COLL_RECV, "message", "O(1)", "O(1)", received, "from one rank to another" },
    { 0 }
};
