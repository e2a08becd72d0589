/* comm_nccl_pairs.c -- messages of a group on communicators of their own.
 *
 * What is launched on one NCCL communicator runs one after the other on the device, whatever the streams: two ranks
 * that both send first would wait for ever.  So each direction of each pair of ranks that exchange messages has
 * a communicator, in which the sender is rank 0.  There messages match by the order in which they are launched, which is the
 * schedule's on both sides (lanes.h, order_check.h): a call's tag is not looked at. */
#include <stdlib.h>

#include "base/room.h"
#include "exec/comm/comm_internal.h"
#include "exec/cuda/comm_nccl.h"

struct pairs {
    struct comm  base;                  /* its `self` is this */
    struct comm *group;
    struct comm **to, **from;           /* by rank of the group; NULL: no messages */
};

static int pairs_call(struct comm *c, const struct coll_call *a)
{
    struct pairs *p = c->self;
    bool sends = a->op == COLL_SEND;
    struct coll_call one = *a;
    struct comm *pair;

    if (!coll_is_message(a->op))
        return comm_call(p->group, a);
    pair = (sends ? p->to : p->from)[a->root];
    if (!pair)
        return fail("%s: no communicator was opened for rank %d and %d of the group", coll_name(a->op), c->rank, a->root);
    one.root = sends ? 1 : 0;
    return comm_call(pair, &one);
}

static void pairs_close(struct comm *c)
{
    struct pairs *p = c->self;

    for (int i = 0; i < c->nranks; i++) {
        comm_close(p->to[i]);
        comm_close(p->from[i]);
    }
    comm_close(p->group);
    free(p->to);
    free(p->from);
    free(p);
}

static const struct comm_ops pairs_ops = { .name = "nccl", .call = pairs_call, .close = pairs_close };

struct comm *comm_nccl_pairs(struct comm *group)
{
    struct pairs *p = room_new(1, sizeof *p);

    p->base = (struct comm){ .ops = &pairs_ops, .rank = group->rank, .nranks = group->nranks, .self = p };
    p->group = group;
    p->to = room_new((size_t)group->nranks, sizeof(struct comm *));
    p->from = room_new((size_t)group->nranks, sizeof(struct comm *));
    return &p->base;
}

void comm_nccl_pair(struct comm *pairs, bool sends, int peer, struct comm *pair)
{
    struct pairs *p = pairs->self;

    (sends ? p->to : p->from)[peer] = pair;
}
