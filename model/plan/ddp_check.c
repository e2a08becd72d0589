/* ddp_check.c -- what DDP's communication hooks, and a model that it does not wrap, ask of a plan. */
#include "model/plan/ddp_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/training.h"
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
    return 0;
}

/* A hook that keeps something of a bucket: of which reduction, and from when on. */
static int check_once(const struct plan *p, const char *where)
{
    const char *word = comm_hook(p->ddp.comm_hook)->word;

    if (p->accumulation > 1 && p->sync_every_micro_step)
        return fail("%s: ddp.comm_hook: %s is modelled with one reduction of a bucket a step: set sync_every_micro_step to false", where, word);
    if (p->ddp.static_graph)
        return fail("%s: ddp.comm_hook: %s with ddp.static_graph, which rebuilds buckets later, is not modelled yet", where, word);
    return 0;
}

/* An optimizer whose step of one parameter holds nothing beside it. */
static bool steps_alone(const struct plan *p)
{
    switch (p->optimizer) {
    case OPTIMIZER_ADAMW:
        return p->optimizer_form == OPTIMIZER_FUSED;
    case OPTIMIZER_BNB_ADAMW8: case OPTIMIZER_BNB_LION: case OPTIMIZER_BNB_LION8: case OPTIMIZER_PAGED_ADAMW: case OPTIMIZER_PAGED_ADAMW8:
    case OPTIMIZER_PAGED_LION: case OPTIMIZER_PAGED_LION8:
        return true;
    default:
        return false;
    }
}

/* torchtune, training/_optim_utils.py, and its full_finetune_single_device recipe: "Gradient accumulation is not supported with optimizer in
 * bwd.", "Gradient clipping is not supported with optimizer in bwd." */
static int check_in_backward(const struct plan *p, const char *where)
{
    if (p->accumulation > 1)
        return fail("%s: ddp.optimizer_in_backward: a gradient is gone before the next micro-step could add to it: accumulation 1", where);
    if (p->clip > 0)
        return fail("%s: ddp.optimizer_in_backward: clip: a norm needs all gradients at once: set it to null", where);
    if (!training_is_all(&p->train) || p->parallel.pipeline > 1)
        return fail("%s: ddp.optimizer_in_backward: modelled where the whole model trains", where);
    if (!steps_alone(p))
        return fail("%s: ddp.optimizer_in_backward: modelled with AdamW in one kernel (optimizer_form fused) and bitsandbytes' optimizers", where);
    return 0;
}

int ddp_check_alone(const struct plan *p, const char *where)
{
    const struct ddp_options *o = &p->ddp;

    if (!knob_has(p, "ddp", "wrapped") || o->wrapped)
        return 0;
    if (p->cluster.world_size > 1)
        return fail("%s: ddp.wrapped: false is one GPU, and there are %" PRId64, where, p->cluster.world_size);
    if (o->gradient_as_bucket_view || o->static_graph || o->find_unused_parameters || o->comm_hook != HOOK_NONE)
        return fail("%s: ddp.%s: without DistributedDataParallel (ddp.wrapped false) there is none", where, o->gradient_as_bucket_view ?
                    "gradient_as_bucket_view" : o->static_graph ? "static_graph" : o->find_unused_parameters ? "find_unused_parameters" : "comm_hook");
    return o->optimizer_in_backward ? check_in_backward(p, where) : 0;
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
    if (comm_hook(p->ddp.comm_hook)->fp32 && plan_recipe(p).grad != DT_FP32)
        return fail("%s: ddp.comm_hook: %s is modelled of gradients in fp32, and these are in %s", where,
                    comm_hook(p->ddp.comm_hook)->word, dtype_name(plan_recipe(p).grad));
    if (comm_hook(p->ddp.comm_hook)->once && check_once(p, where) < 0)
        return -1;
    return p->ddp.comm_hook == HOOK_POWERSGD ? check_powersgd(p, where) : 0;
}
