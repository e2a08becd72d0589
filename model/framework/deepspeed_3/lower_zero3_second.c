/* lower_zero3_second.c -- ZeRO++'s secondary partitions (hpZ): Init._partition_param_sec of partition_parameters.py.
 *
 * When a parameter is partitioned, at construction or when it is released, each rank of a run of G keeps 1/G of it as well;
 * the step drops these copies, for they are old then.  As long as a parameter has one it is gathered in the run alone. */
#include "base/room.h"
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <stdlib.h>

static int64_t ranks_of(const struct ds *d)
{
    return d->p->ds.zero_hpz_partition_size < d->n ? d->p->ds.zero_hpz_partition_size : d->n;
}

/* The padded parameter's elements over the ranks of the run. */
static int64_t part_elems(const struct ds *d, const struct tensor *t)
{
    return ceil_div(t->numel, d->n) * (d->n / ranks_of(d));
}

static int64_t part_bytes(const struct ds *d, const struct tensor *t) { return round512(part_elems(d, t) * d->e); }

void z3_second_setup(struct z3 *z)
{
    size_t tensors = (size_t)z->d.m->ntensors;
    int64_t ranks = ranks_of(&z->d);

    z->second.there = room_new(tensors, sizeof *z->second.there);
    z->second.list = room_new(tensors, sizeof *z->second.list);
    z->second.on = z->d.p->ds.zero_hpz_partition_size > 1 && z->d.n > 1;
    z->second.cut = (struct z3_cut){ .n = ranks, .rank = z->d.rank % ranks, .times = z->d.n / ranks,
                                      .among = GROUP_SECONDARY };
}

void z3_second_declare(struct z3 *z)
{
    if (!z->second.on)
        return;
    ds_declare(&z->d, &z->second.part, CAT_PARAMS, "secondary partition", 1, part_bytes);
    z->second.part.holds = HOLDS_PARAM;
    z->second.part.dtype = z->d.dt;
}

void z3_second_free(struct z3 *z)
{
    ds_undeclare(&z->second.part);
    free(z->second.there);
    free(z->second.list);
}

void z3_second_act(struct z3 *z, int what, int t)
{
    int64_t from, n = z3_part_of(z, &z->second.cut, t, z->second.cut.rank, &from);

    ds_act_part(&z->d, &z->second.part, what, t, from, n, 0);
}

/* Zeroed, then copied; the issuing thread waits for both, parameter by parameter. */
void z3_second_keep(struct z3 *z, enum phase ph, int t)
{
    struct ds *d = &z->d;
    int64_t from, n = z3_part_of(z, &z->second.cut, t, z->second.cut.rank, &from);

    if (!z->second.on || z->second.there[t])
        return;
    sched_set(d->s, STREAM_COMPUTE, ph, "secondary partition", n * d->e, (part_elems(d, &d->m->tensors[t]) + n) * d->e);
    if (ph == PHASE_INIT)
        ds_act(d, &z->copy, ACT_R, t, 0);
    else
        z3_use(z, ACT_R, t);
    z3_second_act(z, ACT_ALLOC | ACT_W, t);
    z3_block(z, STREAM_COMPUTE, ph, "await the secondary partition");
    z->second.there[t] = 1;
}

void z3_second_drop(struct z3 *z)
{
    bool any = false;

    for (int t = 0; t < z->d.m->ntensors && z->second.on; t++) {
        if (!z->second.there[t] || z->d.m->tensors[t].frozen)   /* invalidate_secondary_tensor: fp16_groups alone */
            continue;
        if (!any)
            sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop secondary partitions");
        any = true;
        ds_act(&z->d, &z->second.part, ACT_FREE, t, 0);
        z->second.there[t] = 0;
    }
}
