/* optimizer_traits.c -- one row an optimizer. */
#include "model/plan/optimizer_traits.h"

#include <assert.h>

static const struct optimizer_traits traits[NOPTIMIZER] = {
    [OPTIMIZER_ADAMW]        = { BY_TORCH, 32, 2, false },
    [OPTIMIZER_SGD]          = { BY_TORCH, 32, 1, false },
    [OPTIMIZER_ADAFACTOR]    = { BY_TORCH, 32, 0, false },
    [OPTIMIZER_MUON]         = { BY_TORCH, 32, 0, false },
    [OPTIMIZER_BNB_ADAMW8]   = { BY_BITSANDBYTES, 8, 2, false },
    [OPTIMIZER_BNB_LION]     = { BY_BITSANDBYTES, 32, 1, false },
    [OPTIMIZER_BNB_LION8]    = { BY_BITSANDBYTES, 8, 1, false },
    [OPTIMIZER_PAGED_ADAMW]  = { BY_BITSANDBYTES, 32, 2, true },
    [OPTIMIZER_PAGED_ADAMW8] = { BY_BITSANDBYTES, 8, 2, true },
    [OPTIMIZER_PAGED_LION]   = { BY_BITSANDBYTES, 32, 1, true },
    [OPTIMIZER_PAGED_LION8]  = { BY_BITSANDBYTES, 8, 1, true },
    [OPTIMIZER_AO_ADAMW8]    = { BY_TORCHAO, 8, 2, false },
    [OPTIMIZER_AO_ADAMW4]    = { BY_TORCHAO, 4, 2, false },
    [OPTIMIZER_AO_ADAMW]     = { BY_TORCHAO, 32, 2, false },
};

const struct optimizer_traits *optimizer_traits(enum optimizer o)
{
    assert(o < NOPTIMIZER && traits[o].bits > 0);
    return &traits[o];
}
