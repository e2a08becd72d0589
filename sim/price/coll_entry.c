/* coll_entry.c -- see coll_entry.h. */
#include "sim/price/coll_entry.h"

#include "model/cluster/mesh.h"
#include "sim/price/coll_cost.h"

/* What a synchronous step waits for is the slowest pair. */
static bool on_one_node(const struct plan *p, const struct mesh_group *g, int64_t a, int64_t b)
{
    int64_t per_node = p->cluster.gpus_per_node, low = a < b ? a : b, apart = a < b ? b - a : a - b;
    int64_t alike = g->ndigits == 1 ? g->digit[0].stride : 1;           /* ranks side by side that do the same */

    if (g->ndigits != 1 || g->nplaces || alike * g->digit[0].size != p->cluster.world_size)
        return a / per_node == b / per_node;
    int64_t first = low / alike * alike % per_node, last = first + alike - 1;
    return (last >= per_node ? per_node - 1 : last) + apart < per_node;
}

void coll_entry_shape(const struct plan *p, const struct schedules *s, const struct op *o, int64_t *ranks,
                      int64_t *per_node)
{
    const struct mesh_group *g = &sched_group(s, o)->of;

    if (!coll_is_message((enum coll_op)o->u.coll.op)) {
        coll_group_shape(p, &s->groups, o->u.coll.group, ranks, per_node);
        return;
    }
    *ranks = 2;
    *per_node = on_one_node(p, g, s->rank, mesh_member(g, s->rank, o->u.coll.peer)) ? 2 : 1;
}

int64_t coll_entry_bytes(const struct plan *p, const struct schedules *s, const struct op *o, int64_t ranks,
                         int64_t per_node)
{
    const struct mesh_group *group = &sched_group(s, o)->of;
    int64_t size = dtype_bytes(o->u.coll.dtype), sent[2] = { 0, 0 }, received[2] = { 0, 0 };
    int peers = 0;

    if (o->u.coll.op != COLL_ALL_TO_ALL || !o->u.coll.parts)
        return o->u.coll.elems * size;
    for (int64_t i = 0; i < ranks; i++) {
        const struct coll_part *part = &s->coll_parts[o->u.coll.parts + i];
        int64_t peer = mesh_member(group, s->rank, i);
        peers += part->sent > 0;
        int away = peer / p->cluster.gpus_per_node != s->rank / p->cluster.gpus_per_node;
        if (peer != s->rank) {
            sent[away] += part->sent * size;
            received[away] += part->received * size;
        }
    }
    /* A ring goes as its slowest hop: where it leaves nodes, one rank of each sends to another.  And where nodes cut groups unevenly this
     * rank's may lie within one, while the slowest, which the entry's shape is of, has no two ranks on a node. */
    if ((peers == 1 || per_node == 1) && ranks > per_node) {
        sent[1] += sent[0];
        received[1] += received[0];
        sent[0] = received[0] = 0;
    }
    return coll_equal_bytes(ranks, per_node, sent[0] > received[0] ? sent[0] : received[0],
                            sent[1] > received[1] ? sent[1] : received[1]);
}

int64_t coll_entry_turns(const struct schedules *s, const struct op *o, int64_t ranks)
{
    int peers = 0;

    if (o->u.coll.op != COLL_ALL_TO_ALL || !o->u.coll.parts)
        return 1;
    for (int64_t i = 0; i < ranks; i++)
        peers += s->coll_parts[o->u.coll.parts + i].sent > 0;
    return peers == 1 && ranks > 2 ? ranks - 1 : 1;
}
