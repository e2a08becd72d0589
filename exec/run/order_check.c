/* order_check.c -- each rank's collectives are hashed by group and its messages by pair; ranks that differ are named. */
#include "exec/run/order_check.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/run/groups.h"

struct hash { int group; uint64_t h; };

/* FNV-1a, 64 bits. */
static void mix(struct hash *h, uint64_t v)
{
    for (int i = 0; i < 8; i++, v >>= 8)
        h->h = (h->h ^ (v & 0xff)) * 0x100000001b3u;
}

/* Unequal parts are compared by pairs of ranks, as messages are. */
static bool has_parts(const struct op *o) { return o->u.coll.op == COLL_ALL_TO_ALL && o->u.coll.parts; }

static int add(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct hash *h = arg;

    (void)s, (void)iteration;
    if (o->kind != OP_COLL || o->u.coll.group != h->group || coll_is_message((enum coll_op)o->u.coll.op))
        return 0;
    mix(h, (uint64_t)o->u.coll.op | (uint64_t)o->u.coll.dtype << 8 | (uint64_t)o->u.coll.red << 16);
    mix(h, has_parts(o) ? 0 : (uint64_t)o->u.coll.elems);
    if (o->u.coll.op != COLL_ALL_TO_ALL)
        mix(h, (uint64_t)o->u.coll.root);
    return 0;
}

/* The hash of the collectives of groups.group[g], in issue order, repeats unrolled. */
static uint64_t hash_of(const struct schedules *s, int g)
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

/* ---- messages: what one sends is what the other receives ---- */

enum { OF_PARTS = -1 };                 /* tag of an all-to-all's */

struct message { bool received; int peer, group, tag; int64_t index, elems; uint8_t dtype; };

struct messages { struct message *m; int64_t n, room; };

static void push(struct messages *l, const struct op *o, bool received, int64_t peer, int tag, int64_t elems)
{
    l->m = room_for(l->m, l->n, &l->room, sizeof *l->m);
    l->m[l->n] = (struct message){ received, (int)peer, o->u.coll.group, tag, l->n, elems, o->u.coll.dtype };
    l->n++;
}

static int collect(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    const struct mesh_group *g = &sched_group(s, o)->of;
    if (coll_is_message((enum coll_op)o->u.coll.op))
        push(arg, o, o->u.coll.op == COLL_RECV, mesh_member(g, s->rank, o->u.coll.peer), o->u.coll.tag, o->u.coll.elems);
    for (int64_t i = 0; has_parts(o) && i < sched_group(s, o)->ranks; i++) {
        push(arg, o, false, mesh_member(g, s->rank, i), OF_PARTS, s->coll_parts[o->u.coll.parts + i].sent);
        push(arg, o, true, mesh_member(g, s->rank, i), OF_PARTS, s->coll_parts[o->u.coll.parts + i].received);
    }
    return 0;
}

/* By pair of ranks, in order: MPI would match them by their tags, NCCL by the order alone. */
static int by_match(const void *a, const void *b)
{
    const struct message *x = a, *y = b;

    if (x->received != y->received)
        return x->received - y->received;
    if (x->peer != y->peer)
        return x->peer - y->peer;
    if (x->group != y->group)
        return x->group - y->group;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* out[r]: what this rank sends to rank r, out[world + r]: what it receives from there; 0 nothing. */
static void message_hashes(const struct schedules *s, uint64_t *out)
{
    struct messages l = { 0 };

    for (int id = 0; id < NSCHED; id++)
        sched_walk(s, (enum sched_id)id, collect, &l);
    if (l.n > 0)
        qsort(l.m, (size_t)l.n, sizeof *l.m, by_match);
    for (int64_t i = 0; i < l.n; i++) {
        const struct message *m = &l.m[i];
        uint64_t *at = &out[(m->received ? s->world_size : 0) + m->peer];
        struct hash h = { 0, *at ? *at : 0xcbf29ce484222325u };
        mix(&h, (uint64_t)(uint32_t)m->tag | (uint64_t)m->dtype << 32 | (uint64_t)m->group << 40);
        mix(&h, (uint64_t)m->elems);
        *at = h.h;
    }
    free(l.m);
}

static int compare_messages(const struct schedules *s, const uint64_t *all)
{
    int64_t n = s->world_size;

    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++)
            if (all[a * 2 * n + b] != all[b * 2 * n + n + a])
                return fail("ranks %d and %d disagree about what the first sends to the second: do they have the "
                            "same plan and the same dpx?", (int)a, (int)b);
    return 0;
}

static int check_messages(const struct schedules *s, MPI_Comm control)
{
    size_t n = (size_t)s->world_size;
    uint64_t *mine = calloc(2 * n, sizeof *mine), *all = NULL;
    int rank, any = 0, rc = 0;

    MPI_Comm_rank(control, &rank);
    if (!mine)
        return fail("out of memory to compare ranks");
    message_hashes(s, mine);
    for (size_t i = 0; i < 2 * n; i++)
        any |= mine[i] != 0;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, control);
    if (any && rank == 0 && !(all = malloc(2 * n * n * sizeof *all)))
        abort();
    if (any && MPI_Gather(mine, 2 * (int)n, MPI_UINT64_T, all, 2 * (int)n, MPI_UINT64_T, 0, control) != MPI_SUCCESS)
        rc = fail("MPI_Gather failed");
    else if (any && rank == 0)
        rc = compare_messages(s, all);
    free(mine);
    free(all);
    return rc;
}

int order_check(const struct schedules *s, MPI_Comm control)
{
    uint64_t mine[PLAN_GROUPS] = { 0 }, *all;
    int *ranks, rank, rc = 0;

    if (control == MPI_COMM_NULL)
        return 0;
    for (int g = 0; g < s->groups.n; g++)
        mine[g] = hash_of(s, g);
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
    if (check_messages(s, control) < 0)
        rc = -1;
    MPI_Bcast(&rc, 1, MPI_INT, 0, control);
    return rc;
}
