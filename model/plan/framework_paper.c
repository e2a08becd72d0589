/* framework_paper.c -- the papers' own: a parameter server, an all-reduce, ZeRO (arXiv 1910.02054), FSDP (2304.11277), and what of
 * Megatron (1909.08053), rings (2310.01889) and pipelines goes with them. */
#include "model/plan/framework.h"

const struct framework_tool framework_paper_tool = { .name = "paper" };

static const struct unit_tried units[] = { { UNIT_BLOCK, 1 }, { UNIT_HALF_BLOCK, 1 }, { UNIT_MODEL, 1 } };

/* A parameter server reduces each micro-step, and so do those that shard gradients. */
const struct framework framework_paper = {
    .tool = &framework_paper_tool,
    .syncs = OF_STRATEGY(STRAT_DP) | OF_STRATEGY(STRAT_ZERO2) | OF_STRATEGY(STRAT_ZERO3) | OF_STRATEGY(STRAT_FSDP),
    .sync_is_choice = OF_STRATEGY(STRAT_DDP) | OF_STRATEGY(STRAT_ZERO1), .group_is_choice = OF_STRATEGY(STRAT_FSDP),
    .unit = UNIT_BLOCK, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCKS) | OF_UNIT(UNIT_BLOCK) | OF_UNIT(UNIT_HALF_BLOCK),
    .units_text = "model, <n> blocks, block, half-block", .unit_tries = units, .nunit_tries = sizeof units / sizeof *units,
    .context_method = CONTEXT_RING,     /* Liu et al. 2023; norms are run on all positions: Shoeybi et al. 2019 */
};
