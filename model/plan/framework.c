/* framework.c -- which framework has which cell: README.md's table. */
#include "model/plan/framework.h"

#include <string.h>

static const struct framework_tool *const tools[NDIALECT] = {
    [DIALECT_PAPER] = &framework_paper_tool, [DIALECT_TORCH] = &framework_torch_tool, [DIALECT_TORCH_FSDP1] = &framework_fsdp1_tool,
    [DIALECT_DEEPSPEED] = &framework_deepspeed_tool, [DIALECT_MEGATRON] = &framework_megatron_tool,
};

static const struct framework *const table[NSTRATEGY][NDIALECT] = {
    [STRAT_DP]    = { [DIALECT_PAPER] = &framework_paper_dp, [DIALECT_TORCH] = &framework_torch_dp },
    [STRAT_DDP]   = { [DIALECT_PAPER] = &framework_paper, [DIALECT_TORCH] = &framework_torch_ddp,
                      [DIALECT_DEEPSPEED] = &framework_deepspeed_0, [DIALECT_MEGATRON] = &framework_megatron },
    [STRAT_ZERO1] = { [DIALECT_PAPER] = &framework_paper, [DIALECT_TORCH] = &framework_torch_zro,
                      [DIALECT_DEEPSPEED] = &framework_deepspeed_12, [DIALECT_MEGATRON] = &framework_megatron },
    [STRAT_ZERO2] = { [DIALECT_PAPER] = &framework_paper, [DIALECT_DEEPSPEED] = &framework_deepspeed_12 },
    [STRAT_ZERO3] = { [DIALECT_PAPER] = &framework_paper, [DIALECT_DEEPSPEED] = &framework_deepspeed_3 },
    [STRAT_FSDP]  = { [DIALECT_PAPER] = &framework_paper, [DIALECT_TORCH] = &framework_fsdp2, [DIALECT_TORCH_FSDP1] = &framework_fsdp1 },
};

const struct framework *framework_at(enum strategy s, enum dialect d) { return table[s][d]; }
const struct framework *framework_of(const struct plan *p)            { return table[p->strategy][p->dialect]; }
const struct framework_tool *framework_tool(enum dialect d)           { return tools[d]; }

const char *dialect_name(enum dialect d) { return tools[d]->name; }

int dialect_parse(const char *s)
{
    for (int d = 0; d < NDIALECT; d++)
        if (!strcmp(tools[d]->name, s))
            return d;
    return -1;
}

bool dialect_has(enum dialect d, enum strategy s) { return table[s][d] != NULL; }
bool dialect_is_torch(enum dialect d)             { return tools[d]->torch; }

const char *plan_version_at(enum dialect d, int i, const char **about)
{
    if (i >= tools[d]->nversions)
        return NULL;
    if (about)
        *about = tools[d]->versions[i].about;
    return tools[d]->versions[i].version;
}
