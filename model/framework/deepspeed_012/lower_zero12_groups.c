/* lower_zero12_groups.c -- the parameter groups of stages 1 and 2 (ds_parameter_groups()), and what a rank has of each.
 *
 * Those of experts are cut over the ranks that have the same experts (_configure_moe_settings, stage_1_and_2.py); with Muon there are two, its
 * matrices and what AdamW steps.  In the flat order of all groups each begins at a multiple of 512 bytes, as its own allocation does. */
#include "model/framework/deepspeed_012/lower_zero12.h"

#include <stdlib.h>

#include "base/fail.h"

/* ---- which tensor lies where ---- */

/* _muon_param_groups(): the half of Muon, then that of AdamW; an empty one is none. */
static int assign_halves(struct z12 *z)
{
    const struct model *m = z->d.m;
    bool has[2] = { false, false };

    for (int t = 0; t < m->ntensors; t++)
        if (!m->tensors[t].frozen)
            has[!plan_orthogonalises(z->d.p, &m->tensors[t])] = true;
    z->muon = has[0];
    for (int t = 0; t < m->ntensors; t++)
        z->belongs[t] = has[0] && has[1] && !m->tensors[t].frozen && !plan_orthogonalises(z->d.p, &m->tensors[t]);
    return has[0] && has[1] ? 2 : 1;
}

static bool is_smaller(const struct tensor *a, const struct tensor *b)
{
    for (int i = 0; i < 3; i++)
        if (a->shape[i] != b->shape[i])
            return a->shape[i] < b->shape[i];
    return false;
}

int z12_members(const struct z12 *z, int group, int *out)
{
    const struct tensor *all = z->d.m->tensors;
    int n = 0;

    for (int t = 0; t < z->d.m->ntensors; t++) {
        int at = n;
        if (z->belongs[t] != group || all[t].frozen)
            continue;
        for (; z->muon && group == 0 && at > 0 && is_smaller(&all[out[at - 1]], &all[t]); at--)
            out[at] = out[at - 1];
        out[at] = t;
        n++;
    }
    return n;
}

/* _round_robin_reorder: parameters 0, N, 2N, ...; 1, N+1, ... of a group. */
static int64_t place(struct z12 *z, int group, int64_t at, int *order, int *k)
{
    int64_t step = z->d.p->ds.round_robin_gradients ? z->d.n : 1;
    int n = z12_members(z, group, z->members);

    for (int64_t first = 0; first < step && first < n; first++)
        for (int64_t i = first; i < n; i += step) {
            int t = z->members[i];
            z->start[t] = at;
            at += z12_numel(z, t);
            order[(*k)++] = t;
        }
    return at;
}

int z12_make_groups(struct z12 *z, int *order)
{
    const struct local_model *local = z->d.local;
    int64_t at = 0, whole = 512 / dtype_bytes(plan_recipe(z->d.p).kept);
    int k = 0;

    z->belongs = calloc((size_t)z->d.m->ntensors + 1, sizeof *z->belongs);
    z->members = calloc((size_t)z->d.m->ntensors + 1, sizeof *z->members);
    if (z->belongs && z->members)
        z->ngroups = z->d.p->optimizer == OPTIMIZER_MUON ? assign_halves(z) : ds_parameter_groups(z->d.p, z->d.m, z->belongs);
    z->group = calloc((size_t)z->ngroups + 1, sizeof *z->group);
    if (!z->belongs || !z->members || !z->group)
        return fail("out of memory for parameter groups");
    for (int i = 0; i < z->ngroups; i++) {
        struct z12_group *g = &z->group[i];
        bool experts = i > 0 && z->d.p->parallel.expert > 1;
        *g = (struct z12_group){ .among = experts ? GROUP_EXPERT_DATA : GROUP_DATA, .base = at,
                                 .orthogonal = z->muon && i == 0, .n = experts ? local->expert_data_ranks : z->d.n,
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
    *to = right < z12_numel(z, t) ? right : z12_numel(z, t);
    return *from < *to;
}

static int64_t last_of(const struct z12 *z, int group)
{
    int64_t end = z->group[group].base;

    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z->belongs[t] == group && z12_numel(z, t) > 0 && z->start[t] + z12_numel(z, t) > end)
            end = z->start[t] + z12_numel(z, t);
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
        z->own_numel += z12_numel(z, t);
        g->whole += g->orthogonal ? z12_numel(z, t) : 0;
        if (to - from > g->own_largest)
            g->own_largest = to - from;
    }
    for (int i = 0; i < z->ngroups && !z->compact; i++)     /* there it is marked, and the norm leaves it out */
        if (z->group[i].own_pad > z->group[i].own_largest)
            z->group[i].own_largest = z->group[i].own_pad;
}

/* ---- the rank with the most ---- */

/* Elements of whole tensors that touch a rank's partitions, for each rank in turn: two fingers over a group's tensors, which `order` has
 * from `first` on, and its ranks. */
static void add_touching(struct z12 *z, const int *order, int first, int n, const struct z12_group *g, int64_t world, int64_t *sum)
{
    int64_t inside = 0, each = world / g->n;        /* so many ranks have each place */
    int64_t times = g->orthogonal ? 4 : 1;          /* momentum, that of the step, and the update are as large as the gradient */
    int lo = first, hi = first;

    for (int64_t r = 0; r < g->n; r++) {
        int64_t left = g->base + r * g->part;
        for (; hi < n && z->start[order[hi]] < left + g->part; hi++)
            inside += z12_numel(z, order[hi]);
        for (; lo < hi && z->start[order[lo]] + z12_numel(z, order[lo]) <= left; lo++)
            inside -= z12_numel(z, order[lo]);
        for (int64_t k = 0; k < each; k++)
            sum[each * r + k] += times * inside;
    }
}

/* Whole tensors stay on every rank whose partition they touch, so the rank with the most is one next to a large tensor.  Experts' places
 * are of runs of parallel.expert ranks. */
int zero12_ranks(const struct local_model *local, int64_t ranks[4])
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    struct z12 z = { .d = { .p = p, .m = m, .local = local, .n = local->data_ranks } };
    int64_t best = 0;
    int *order = calloc((size_t)m->ntensors + 1, sizeof *order);
    int64_t *sum = calloc((size_t)z.d.n + 1, sizeof *sum);

    ranks[0] = 0;
    z.start = calloc((size_t)m->ntensors + 1, sizeof *z.start);
    if (p->strategy == STRAT_DDP || !z.start || !order || !sum || z12_make_groups(&z, order) < 0)
        goto out;
    for (int i = 0, first = 0, n; i < z.ngroups; i++, first = n) {
        for (n = first; n < m->ntrainable && z.belongs[order[n]] == i; n++)
            ;
        add_touching(&z, order, first, n, &z.group[i], z.d.n, sum);
    }
    for (int64_t r = 1; r < z.d.n; r++)
        if (sum[r] > sum[best])
            best = r;
out:
    free(z.start);
    free(z.group);
    free(z.belongs);
    free(z.members);
    free(order);
    free(sum);
    ranks[1] = best;
    return best ? 2 : 1;
}
