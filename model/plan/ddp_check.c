/* ddp_check.c -- what DDP's communication hooks ask of a plan. */
#include "model/plan/ddp_check.h"

#include "base/fail.h"
#include "model/plan/knob.h"

/* PowerSGDState.__init__(), and which reductions the lowering has. */
static int check_powersgd(const struct plan *p, const char *where)
{
    const struct powersgd_options *o = &p->ddp.powersgd;

    if ((o->error_feedback || o->warm_start) && o->start <= 1)
        return fail("%s: ddp.PowerSGDState.start_powerSGD_iter: above 1 with use_error_feedback or warm_start, since DDP rebuilds its buckets "
                    "after the first reduction, as PyTorch requires", where);
    if (o->start <= 1)
        return fail("%s: ddp.PowerSGDState.start_powerSGD_iter: below 2 it is not modelled yet", where);
    if (p->accumulation > 1 && p->sync_every_micro_step)
        return fail("%s: ddp.comm_hook: powerSGD_hook, which counts reductions, is modelled with one a step: set sync_every_micro_step to "
                    "false", where);
    if (p->ddp.static_graph)
        return fail("%s: ddp.comm_hook: powerSGD_hook with ddp.static_graph, which rebuilds buckets later, is not modelled yet", where);
    return 0;
}

/* A hook sends something else than the bucket; DDP's reducer is the same. */
int ddp_check_hook(const struct plan *p, const char *where)
{
    if (!knob_has(p, "ddp", "comm_hook") || p->ddp.comm_hook == HOOK_NONE)
        return 0;
    if (!plan_is_data_parallel(p))
        return fail("%s: ddp.comm_hook: with \"parallel\" it is not modelled yet", where);
    if (p->deterministic)
        return fail("%s: deterministic: it has the bits of ddp without a hook, and ddp.comm_hook rounds what is summed", where);
    return p->ddp.comm_hook == HOOK_POWERSGD ? check_powersgd(p, where) : 0;
}
