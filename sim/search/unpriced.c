/* unpriced.c -- see unpriced.h. */
#include "sim/search/unpriced.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/schedule/schedule.h"
#include "sim/price/space_cost.h"
#include "sim/search/enumerate.h"

struct unpriced_place { struct plan plan; bool priced; char why[256]; };

/* Does the cluster lack a rate that the plan may need? */
static bool may_lack(const struct plan *p)
{
    const struct cluster *c = &p->cluster;
    bool files = p->ds.offload_optimizer.device == OFFLOAD_NVME || p->ds.offload_param.device == OFFLOAD_NVME;
    bool known = c->node.dram > 0 && c->gpu.pcie > 0 && (!files || (c->node.disk_read > 0 && c->node.disk_write > 0));

    return !known && !c->is_host;
}

static int look(struct unpriced_place *of, const struct program *g)
{
    struct schedules s = { 0 };
    struct fail_sink before;
    int rc = lower_using(&of->plan, 0, g, &s);

    if (rc == 0) {
        before = fail_divert(of->why, sizeof of->why);
        of->priced = space_cost_known(&of->plan, &s, SCHED_STEADY) == 0;
        fail_restore(before);
    }
    schedules_free(&s);
    return rc;
}

int unpriced_ask(struct unpriced *all, const struct plan *p, const struct program *g, const char **why)
{
    struct unpriced_place *of;

    if (!may_lack(p))
        return 1;
    for (int64_t i = 0; i < all->n; i++)
        if (knob_cell(&all->of[i].plan) == knob_cell(p) && enumerate_same_place(&all->of[i].plan, p)) {
            *why = all->of[i].why;
            return all->of[i].priced;
        }
    all->of = room_for(all->of, all->n, &all->room, sizeof *all->of);
    of = &all->of[all->n];
    *of = (struct unpriced_place){ .plan = *p };
    if (look(of, g) < 0)
        return -1;
    all->n++;
    *why = of->why;
    return of->priced;
}

void unpriced_free(struct unpriced *all)
{
    free(all->of);
    *all = (struct unpriced){ 0 };
}
