/* contention.c -- see contention.h. */
#include "sim/clock/contention.h"

/* Of products and streams, as this compute entry has them. */
static double mixed(const struct contention *c, const double of[2], int compute)
{
    double share = c->streams ? c->streams[compute] : 0;

    return of[0] + share * (of[1] - of[0]);
}

/* Compute, while this collective runs.  Copy engines hold no multiprocessor. */
static double compute_slow(const struct contention *c, int compute, const struct op *coll)
{
    enum coll_op op = coll->u.coll.op;

    if (!c->held)
        return c->compute_slow[op];
    const struct op_held *of = &c->held[compute];
    double products = coll->flags & OPF_ENGINE ? 1 - of->streams : of->products[op != COLL_ALL_REDUCE];
    return products + of->streams * c->compute_slow[op];
}

static bool on_disk(const struct op *o) { return o->stream == STREAM_DISK_READ || o->stream == STREAM_DISK_WRITE; }

/* Copies over PCIe have engines of their own; what the host and its disks do is not on the device at all. */
static bool on_multiprocessors(const struct op *o)
{
    return o->stream != STREAM_H2D && o->stream != STREAM_D2H && !stream_is_host(o->stream);
}

/* How much longer entry `me` takes while `other` runs. */
static double slow_beside(const struct contention *c, const struct schedules *s, int me, int other)
{
    const struct op *m = &s->ops[me], *o = &s->ops[other];
    bool mine = m->stream == STREAM_COMPUTE, its = o->stream == STREAM_COMPUTE;

    if (on_disk(m) || on_disk(o))           /* files take no core */
        return 1;
    if (mine && o->kind == OP_COLL)
        return c->beside ? mixed(c, c->beside[other].compute, me) : compute_slow(c, me, o);
    if (m->kind == OP_COLL && its)
        return c->beside ? mixed(c, c->beside[me].comm, other) : c->comm_slow[m->u.coll.op];
    /* Threads on cores: to a collective a copy is what compute is, by bytes. */
    if (c->adds && c->beside && m->kind != OP_COLL && o->kind == OP_COLL)
        return c->beside[other].compute[1];
    if (c->adds && c->beside && m->kind == OP_COLL && o->kind != OP_COLL)
        return c->beside[me].comm[1];
    if (m->kind == OP_COLL && o->kind == OP_COLL)
        return c->shares_link[m->u.coll.group][o->u.coll.group] ? 2 : 1;
    return c->adds || (mine != its && on_multiprocessors(m) && on_multiprocessors(o)) ? c->copy_slow : 1;
}

/* Of what is shared, the one that is asked for most sets the pace. */
static double slow_of_shared(const struct contention *c, const int *running, int n, int me)
{
    const struct shares *mine = &c->shares[running[me]];
    double worst = 1;

    for (int i = 0; i < NSHARED; i++) {
        double sum = 0;
        for (int k = 0; k < n && mine->of[i] > 0; k++)
            sum += c->shares[running[k]].of[i];
        worst = sum > worst ? sum : worst;
    }
    return worst;
}

/* Of several collectives beside compute the worst counts, since they hold the same SMs.  Threads on cores
 * add up, but a collective waits for its turn only once, whether compute or a copy has the core. */
double contention_slow(const struct contention *c, const struct schedules *s, const int *running, int n, int me)
{
    const struct op *mine = &s->ops[running[me]];
    double slow = 1, worst = 1;

    if (n == 2 && !c->adds) {               /* most often */
        slow = slow_beside(c, s, running[me], running[!me]);
        if (slow < 1 && mine->stream == STREAM_COMPUTE && s->ops[running[!me]].kind == OP_COLL)
            slow = 1;
        return c->shares ? slow * slow_of_shared(c, running, n, me) : slow;
    }
    for (int k = 0; k < n; k++) {
        const struct op *other = &s->ops[running[k]];
        if (k == me)
            continue;
        double by = slow_beside(c, s, running[me], running[k]);
        bool turn = mine->kind == OP_COLL && other->kind != OP_COLL;
        if (c->adds && turn)
            worst = by > worst ? by : worst;
        else if (c->adds)
            slow += by - 1;
        else if (mine->stream == STREAM_COMPUTE && other->kind == OP_COLL)
            worst = by > worst ? by : worst;
        else
            slow *= by;
    }
    slow = c->adds ? slow + worst - 1 : slow * worst;
    return c->shares ? slow * slow_of_shared(c, running, n, me) : slow;
}
