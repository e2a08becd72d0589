/* zro.c -- see zro.h. */
#include "model/framework/zero_redundancy/zro.h"

#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"

/* ---- who has what ---- */

struct sized { int64_t numel; int index; };

/* Largest first; Python's sort is stable, so equals keep registration order. */
static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->numel != y->numel)
        return x->numel < y->numel ? 1 : -1;
    return x->index - y->index;
}

void zro_partition(const struct model *m, int64_t nranks, int64_t *owner, int *sorted)
{
    /* No more ranks than tensors ever get one. */
    int64_t ranks = nranks < m->ntensors ? nranks : m->ntensors;
    struct sized *by = room_new((size_t)m->ntensors + 1, sizeof *by);
    int64_t *load = room_new((size_t)ranks + 1, sizeof *load);

    for (int i = 0; i < m->ntensors; i++)
        by[i] = (struct sized){ m->tensors[i].numel, i };
    sort_stable(by, (size_t)m->ntensors, sizeof *by, by_size);
    for (int i = 0; i < m->ntensors; i++) {
        int64_t least = 0;
        for (int64_t r = 1; r < ranks; r++)
            if (load[r] < load[least])
                least = r;
        owner[by[i].index] = least;
        load[least] += by[i].numel;
        sorted[i] = by[i].index;
    }
    free(by);
    free(load);
}

void zro_open(struct zro *z, const struct local_model *local)
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    size_t n = (size_t)m->ntensors + 1;

    *z = (struct zro){ .on = p->strategy == STRAT_ZERO1, .m = m, .rank = local->data_rank,
                       .ranks = local->data_ranks < m->ntensors ? local->data_ranks : m->ntensors };
    if (!z->on)
        return;
    z->packed = p->ddp.parameters_as_bucket_view;
    z->owner = room_new(n, sizeof *z->owner);
    z->sorted = room_new(n, sizeof *z->sorted);
    zro_partition(m, local->data_ranks, z->owner, z->sorted);
}

void zro_close(struct zro *z)
{
    free(z->owner);
    free(z->sorted);
}

static int64_t owned_by(const struct zro *z, int64_t rank)
{
    int64_t sum = 0;

    for (int t = 0; t < z->m->ntensors; t++)
        sum += z->owner[t] == rank ? z->m->tensors[t].numel : 0;
    return sum;
}

int zro_ranks(const struct local_model *local, int64_t ranks[4])
{
    struct zro z;
    int64_t most = 0, *load;

    zro_open(&z, local);
    load = room_new((size_t)z.ranks, sizeof *load);
    for (int t = 0; t < z.m->ntensors; t++)
        load[z.owner[t]] += z.m->tensors[t].numel;
    for (int64_t r = 1; r < z.ranks; r++)
        if (load[r] > load[most])
            most = r;
    free(load);
    zro_close(&z);
    ranks[0] = 0;
    ranks[1] = most;
    return most > 0 ? 2 : 1;
}

/* ---- what it appends ---- */

/* _build_param_buckets: a rank's parameters are copied into one tensor, and each goes once it is a view of
 * it.  The buffer of parameters stands for both. */
void zro_pack(const struct zro *z, struct schedules *s, enum dtype kept)
{
    for (int64_t r = 0; r < z->ranks; r++) {
        int64_t bytes = owned_by(z, r) * dtype_bytes(kept);
        sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "pack parameters", bytes, bytes);
        sched_of(s, "rank", (int)r, 0);
        sched_act(s, ACT_ALLOC | ACT_FREE, sched_buf(s, CAT_PARAMS, "packed parameters", NULL, 0, 1, round512(bytes)), 0, 0);
    }
}

/* Of the parameters whose slices are appended next. */
static void broadcast_from(struct schedules *s, const struct plan *p, const struct zro_params *of, int64_t rank, int64_t elems)
{
    struct op *o = sched_coll(s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_BROADCAST, GROUP_DATA, of->kept, RED_NONE, elems);

    o->after = AFTER(STREAM_COMPUTE);
    o->flags |= lower_guard(p);
    sched_root(s, (int)rank);
    sched_of(s, "rank", (int)rank, 0);
    sched_act_as(s, ACT_RW, of->buf, 0, 0, sched_layout(s, 0));
}

/* _sync_params: every rank's updated parameters, one broadcast each or, with
 * parameters_as_bucket_view, one a rank. */
void zro_broadcast(const struct zro *z, struct schedules *s, const struct plan *p, const struct zro_params *of)
{
    for (int64_t r = 0; r < z->ranks; r++) {
        if (z->packed)
            broadcast_from(s, p, of, r, owned_by(z, r));
        for (int i = 0; i < z->m->ntensors; i++) {
            int t = z->sorted[i];
            if (z->owner[t] != r)
                continue;
            if (!z->packed)
                broadcast_from(s, p, of, r, z->m->tensors[t].numel);
            of->slice(of->of, t);
        }
    }
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "await parameters")->after = AFTER(STREAM_GROUP);
}
