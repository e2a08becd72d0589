#include "exec/run/order_check.h"

#include <stdlib.h>

#include "base/fail.h"
#include "exec/run/groups.h"

struct hash { int group; uint64_t h; };

/* FNV-1a, 64 bits. */
static void mix(struct hash *h, uint64_t v)
{
    for (int i = 0; i < 8; i++, v >>= 8)
        h->h = (h->h ^ (v & 0xff)) * 0x100000001b3u;
}

static int add(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct hash *h = arg;

    (void)s, (void)iteration;
    if (o->kind != OP_COLL || o->u.coll.group != h->group)
        return 0;
    mix(h, (uint64_t)o->u.coll.op | (uint64_t)o->u.coll.dtype << 8 | (uint64_t)o->u.coll.red << 16);
    mix(h, (uint64_t)o->u.coll.elems);
    mix(h, (uint64_t)o->u.coll.root);
    return 0;
}

uint64_t order_hash(const struct schedules *s, int g)
{
    struct hash h = { g, 0xcbf29ce484222325u };

    for (int id = 0; id < NSCHED; id++)
        sched_walk(s, (enum sched_id)id, add, &h);
    return h.h;
}

/* On rank 0: the first pair of one group that differs. */
static int compare(const struct schedules *s, const uint64_t *all, int *ranks)
{
    for (int r = 0; r < (int)s->world_size; r++)
        for (int g = 0; g < s->groups.n; g++) {
            int n = groups_members(s, g, r, ranks);
            if (n > 0 && all[r * PLAN_GROUPS + g] != all[ranks[0] * PLAN_GROUPS + g])
                return fail("ranks %d and %d disagree about the order of the %s group's collectives: do they "
                            "have the same plan and the same dpx?", ranks[0], r, s->groups.group[g].name);
        }
    return 0;
}

int order_check(const struct schedules *s, MPI_Comm control)
{
    uint64_t mine[PLAN_GROUPS] = { 0 }, *all;
    int *ranks, rank, rc = 0;

    if (control == MPI_COMM_NULL)
        return 0;
    for (int g = 0; g < s->groups.n; g++)
        mine[g] = order_hash(s, g);
    all = malloc((size_t)s->world_size * sizeof mine);
    ranks = malloc((size_t)s->world_size * sizeof *ranks);
    MPI_Comm_rank(control, &rank);
    if (!all || !ranks)
        rc = fail("out of memory to compare ranks");
    else if (MPI_Gather(mine, PLAN_GROUPS, MPI_UINT64_T, all, PLAN_GROUPS, MPI_UINT64_T, 0, control) != MPI_SUCCESS)
        rc = fail("MPI_Gather failed");
    else if (rank == 0)
        rc = compare(s, all, ranks);
    free(all);
    free(ranks);
    MPI_Bcast(&rc, 1, MPI_INT, 0, control);
    return rc;
}
