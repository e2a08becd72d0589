/* unpriced.c -- see unpriced.h. */
#include "sim/search/unpriced.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/price/space_cost.h"

static bool has_files(const struct plan *p)
{
    return p->ds.offload_optimizer.device == OFFLOAD_NVME || p->ds.offload_param.device == OFFLOAD_NVME;
}

/* What plans have in common that have the same files. */
static struct plan of_files(const struct plan *p)
{
    struct plan key = *p;

    key.micro_batch = key.accumulation = key.recompute_interval = 1;
    key.recompute = RECOMPUTE_NONE;
    return key;
}

/* In the order in which they are missed: spaces_judge(), then the prices. */
static bool lacks_a_figure(const struct plan *p, const struct schedules *s)
{
    int64_t bytes;

    return ((s->spaces & IN_HOST) && cluster_host_memory(&p->cluster, &bytes) < 0) ||
           ((s->spaces & IN(SPACE_DISK)) && cluster_disk(&p->cluster, &bytes) < 0) || space_cost_known(p, s, SCHED_STEADY) < 0;
}

static const struct plan_asked *asked(const struct unpriced *u, const struct plan *key)
{
    for (int64_t i = 0; i < u->n; i++)
        if (!memcmp(&u->asked[i].plan, key, sizeof *key))
            return &u->asked[i];
    return NULL;
}

bool unpriced_is(struct unpriced *u, const struct plan *p, const struct program *g, char why[256])
{
    if (!has_files(p))
        return false;
    struct plan key = of_files(p);
    const struct plan_asked *was = asked(u, &key);

    if (!was) {
        struct schedules s = { 0 };
        u->asked = room_for(u->asked, u->n, &u->room, sizeof *u->asked);
        struct plan_asked *a = &u->asked[u->n++];
        *a = (struct plan_asked){ .plan = key };
        struct fail_sink before = fail_divert(a->why, sizeof a->why);
        a->yes = evaluate_schedules(p, g, &s) == 0 && lacks_a_figure(p, &s);
        fail_restore(before);
        schedules_free(&s);
        was = a;
    }
    if (was->yes)
        memcpy(why, was->why, sizeof was->why);
    return was->yes;
}

void unpriced_free(struct unpriced *u)
{
    free(u->asked);
    *u = (struct unpriced){ 0 };
}
