/* lower_zero12_groups.c -- the parameter groups of stages 1 and 2 (ds_parameter_groups()), and what a rank has of each.
 *
 * Those of experts are cut over the ranks that have the same experts (_configure_moe_settings, stage_1_and_2.py).  The flat parameters of
 * all groups are one buffer here, each group from a multiple of 512 bytes on, as its own allocation would be. */
#include "model/lower/deepspeed/lower_zero12.h"

#include <stdlib.h>

#include "base/fail.h"

static int64_t numel(const struct z12 *z, int t) { return z12_numel(z, t); }

/* ---- which tensor lies where ---- */

/* _round_robin_reorder: parameters 0, N, 2N, ...; 1, N+1, ... of a group. */
static int64_t place(struct z12 *z, int group, int64_t at, int *order, int *k)
{
    int64_t step = z->d.p->ds.round_robin_gradients ? z->d.n : 1;
    int n = z->d.m->ntensors;

    for (int64_t first = 0; first < step && first < n; first++)
        for (int64_t t = 0, i = 0; t < n; t++) {
            if (z->belongs[t] != group || z->d.m->tensors[t].frozen || i++ % step != first)
                continue;
            z->start[t] = at;
            at += numel(z, (int)t);
            order[(*k)++] = (int)t;
        }
    return at;
}

int z12_make_groups(struct z12 *z, int *order)
{
    const struct local_model *local = z->d.local;
    int64_t at = 0, whole = 512 / dtype_bytes(plan_recipe(z->d.p).kept);
    int k = 0;

    z->belongs = calloc((size_t)z->d.m->ntensors + 1, sizeof *z->belongs);
    z->ngroups = z->belongs ? ds_parameter_groups(z->d.p, z->d.m, z->belongs) : 0;
    z->group = calloc((size_t)z->ngroups + 1, sizeof *z->group);
    if (!z->belongs || !z->group)
        return fail("out of memory for parameter groups");
    for (int i = 0; i < z->ngroups; i++) {
        struct z12_group *g = &z->group[i];
        bool experts = i > 0;
        *g = (struct z12_group){ .among = experts ? GROUP_EXPERT_DATA : GROUP_DATA, .base = at,
                                 .n = experts ? local->expert_data_ranks : z->d.n,
                                 .rank = experts ? local->expert_data_rank : z->d.rank };
        g->padded = round_up(place(z, i, at, order, &k) - at, 2 * g->n);
        g->part = g->padded / g->n;
        at = z->ngroups > 1 ? round_up(at + g->padded, whole) : at + g->padded;
    }
    z->flat_numel = at;
    z->of = z->group;
    return 0;
}

/* ---- what this rank has ---- */

bool z12_in_partition(const struct z12 *z, int t, int64_t *from, int64_t *to)
{
    const struct z12_group *g = z12_group_of(z, t);
    int64_t left = z12_left(g) - z->start[t], right = left + g->part;

    *from = left > 0 ? left : 0;
    *to = right < numel(z, t) ? right : numel(z, t);
    return *from < *to;
}

static int64_t last_of(const struct z12 *z, int group)
{
    int64_t end = z->group[group].base;

    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z->belongs[t] == group && numel(z, t) > 0 && z->start[t] + numel(z, t) > end)
            end = z->start[t] + numel(z, t);
    return end;
}

void z12_measure(struct z12 *z)
{
    for (int i = 0; i < z->ngroups; i++) {
        struct z12_group *g = &z->group[i];
        int64_t left = z12_left(g), right = left + g->part, end = last_of(z, i);
        g->own_pad = end < left ? g->part : right > end ? right - end : 0;
    }
    for (int t = 0; t < z->d.m->ntensors; t++) {
        struct z12_group *g = &z->group[z->belongs[t]];
        int64_t from, to;
        if (!z12_in_partition(z, t, &from, &to))
            continue;
        g->nown++;
        z->own_at[t] = z->own_numel * z->d.e;
        z->own_numel += numel(z, t);
        if (to - from > g->own_largest)
            g->own_largest = to - from;
    }
    for (int i = 0; i < z->ngroups && !z->compact; i++)     /* there it is marked, and the norm leaves it out */
        if (z->group[i].own_pad > z->group[i].own_largest)
            z->group[i].own_largest = z->group[i].own_pad;
}
