/* framework_paper.c -- the papers' own: a parameter server, an all-reduce, ZeRO (arXiv 1910.02054), FSDP (2304.11277), and what of
 * Megatron (1909.08053), rings (2310.01889) and pipelines goes with them. */
#include "model/plan/framework.h"

#include "base/fail.h"
#include "model/plan/optimizer_check.h"
#include "model/plan/parallel_check.h"

const struct framework_tool framework_paper_tool = { .name = "paper" };

/* ---- what is refused ---- */

/* What the papers leave open, or ranks of several axes would need. */
static int check_offload(const struct plan *p, const char *where)
{
    bool states = p->ds.offload_optimizer.device != OFFLOAD_NONE, disk = p->ds.offload_optimizer.device == OFFLOAD_NVME;
    bool params = p->ds.offload_param.device != OFFLOAD_NONE;

    if (!states && !params)
        return 0;
    if (!states)
        return fail("%s: deepspeed.offload_param: AdamW would need parameters on the device again: set offload_optimizer, too", where);
    if (!plan_is_data_parallel(p))
        return fail("%s: deepspeed.offload_optimizer: with tensor, context or pipeline parallelism it is not modelled yet", where);
    if (disk && p->deterministic)
        return fail("%s: deterministic: with gradients on disks it is not modelled yet", where);
    return 0;
}

static int check_train(const struct plan *p, const char *where)
{
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE)
        return fail("%s: train: adapters and frozen weights beside deepspeed.offload_optimizer are not supported yet in dialect paper", where);
    return 0;
}

static int check_optimizer(const struct plan *p, const char *where, const char *word)
{
    if (optimizer_check_own(p, where, word) < 0)
        return -1;
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE)
        return fail("%s: optimizer: with deepspeed.offload_optimizer only adamw is modelled", where);
    return 0;
}

/* Megatron's block, by our own kernels. */
static int check_tensor(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    bool embed_norm = false;

    for (int t = 0; t < m->ntensors; t++)
        embed_norm |= m->tensors[t].role == ROLE_EMBED_NORM;
    if (p->kernels != KERNELS_DPX)
        return fail("%s: kernels: in dialect paper parallel.tensor is modelled for \"dpx\"", where);
    if (p->strategy == STRAT_DP)
        return fail("%s: parallel.tensor: a parameter server with it is not modelled yet", where);
    if (m->parallel || m->norm_place != NORM_FIRST || embed_norm)
        return fail("%s: parallel.tensor: %s: it is modelled for two norms, each before its half of a block", where, m->name);
    return 0;
}

/* Ring attention, all-gather and Ulysses by our own kernels. */
static int check_context(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t ranks = of->tensor * of->context;

    if (p->kernels != KERNELS_DPX)
        return fail("%s: kernels: in dialect paper parallel.context is modelled for \"dpx\"", where);
    if (p->strategy == STRAT_DP)
        return fail("%s: parallel.context: a parameter server with it is not modelled yet", where);
    if (of->context_method != CONTEXT_ULYSSES)
        return 0;
    if (of->context_balance)
        return fail("%s: parallel.context_balance: with ulysses every rank has all positions of its heads: there is nothing to balance", where);
    return parallel_check_heads(p, ranks, false, where);
}

/* A stage adds its micro-steps' gradients up in the order of their backwards, and ddp from the first to the last. */
static int check_pipeline(const struct plan *p, const char *where)
{
    if (!p->deterministic)
        return 0;
    if (p->parallel.pipeline_schedule == PIPELINE_LOOPED_BFS)
        return fail("%s: deterministic: looped-bfs runs backward from the last micro-step to the first, and ddp adds gradients up from the "
                    "first to the last: other bits", where);
    if (p->model.tied)
        return fail("%s: deterministic: %s ties its head to its embedding: two stages add up their parts of its gradient over all micro-steps, and "
                    "ddp adds up both parts of each: other bits", where, p->model.name);
    return 0;
}

/* ---- the row ---- */

static const struct unit_tried units[] = { { UNIT_BLOCK, 1 }, { UNIT_HALF_BLOCK, 1 }, { UNIT_MODEL, 1 } };

/* Parameters and gradients that ranks hold whole, or shares of: the latter are reduced after each micro-step. */
#define PAPER .tool = &framework_paper_tool, .unit = UNIT_BLOCK, \
              .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCKS) | OF_UNIT(UNIT_BLOCK) | OF_UNIT(UNIT_HALF_BLOCK), \
              .units_text = "model, <n> blocks, block, half-block", .unit_tries = units, .nunit_tries = sizeof units / sizeof *units, \
              .check = check_offload, .check_train = check_train, .check_optimizer = check_optimizer, \
              .check_tensor = check_tensor, .check_context = check_context, .fills_partly = true, .plain_host = true, \
              .runs_tensor = true, .runs_context = true, .context_method = CONTEXT_RING     /* Liu et al. 2023 */

const struct framework framework_paper = {
    PAPER, .syncs = OF_STRATEGY(STRAT_ZERO2) | OF_STRATEGY(STRAT_ZERO3) | OF_STRATEGY(STRAT_FSDP),
    .sync_is_choice = OF_STRATEGY(STRAT_DDP) | OF_STRATEGY(STRAT_ZERO1), .group_is_choice = OF_STRATEGY(STRAT_FSDP),
    .check_pipeline = check_pipeline,
};

/* A parameter server reduces each micro-step. */
const struct framework framework_paper_dp = { PAPER, .syncs = EVERY_STRATEGY, .meets_tied_grads = true };
