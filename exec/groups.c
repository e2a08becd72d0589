#include "exec/groups.h"

#include <stdlib.h>
#include <string.h>

#include "model/fail.h"

int groups_members(const struct schedules *s, enum group g, int rank, int *out)
{
    int n = (int)s->group_size[g], world = (int)s->world_size;
    int first = rank / (n ? n : 1) * n, step = 1;

    if (g == GROUP_REPLICA && n > 0) {
        step = world / n;
        first = rank % step;
    }
    for (int i = 0; i < n; i++)
        out[i] = first + i * step;
    return n;
}

static bool is_used(const struct schedules *s, enum group g)
{
    for (int i = 0; i < s->nops; i++)
        if (s->ops[i].kind == OP_COLL && s->ops[i].u.coll.group == g)
            return true;
    return false;
}

int64_t groups_staging(const struct schedules *s)
{
    int64_t bytes = 0;

    for (int g = 0; g < NGROUP; g++)
        if (is_used(s, (enum group)g))
            bytes += comm_staging((int)s->group_size[g]);
    return bytes;
}

static struct comm *open_null(int rank, const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return comm_null_open(i, n);
    fail("rank %d is not in its own group", rank);
    return NULL;
}

static int open_one(const struct schedules *s, enum group g, bool null, const atomic_bool *stop, int *ranks,
                    struct groups *out)
{
    int n = groups_members(s, g, (int)s->rank, ranks);
    int64_t staging = comm_staging(n);

    if (null) {
        out->comm[g] = open_null((int)s->rank, ranks, n);
        return out->comm[g] ? 0 : -1;
    }
    out->staging[g] = malloc((size_t)staging + 1);
    if (!out->staging[g])
        return fail("no memory for %lld bytes of staging", (long long)staging);
    memset(out->staging[g], 0, (size_t)staging);
    out->comm[g] = comm_mpi_open(&(struct comm_args){ .ranks = ranks, .nranks = n, .staging = out->staging[g],
                                                      .stop = stop, .name = group_name(g) });
    return out->comm[g] ? 0 : -1;
}

int groups_open(const struct schedules *s, bool null, const atomic_bool *stop, struct groups *out)
{
    int *ranks = malloc((size_t)(s->world_size + 1) * sizeof *ranks);
    int rc = ranks ? 0 : fail("out of memory for process groups");

    memset(out, 0, sizeof *out);
    for (int g = 0; g < NGROUP && rc == 0; g++)
        if (is_used(s, (enum group)g))
            rc = open_one(s, (enum group)g, null, stop, ranks, out);
    free(ranks);
    if (rc < 0)
        groups_close(out);
    return rc;
}

void groups_close(struct groups *g)
{
    for (int i = 0; i < NGROUP; i++) {
        comm_close(g->comm[i]);
        free(g->staging[i]);
    }
    memset(g, 0, sizeof *g);
}
