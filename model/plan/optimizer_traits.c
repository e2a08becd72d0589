/* optimizer_traits.c -- one row an optimizer. */
#include "model/plan/optimizer_traits.h"

#include <assert.h>

static const char no_word[] = "transformers' trainer has no word for it";
static const char dtensor[] = "is not modelled: take adamw, sgd or adamw_torch_8bit, or strategy ddp";

static const struct optimizer_traits traits[NOPTIMIZER] = {
    [OPTIMIZER_ADAMW]        = { BY_TORCH, 32, 2, false, .title = "AdamW", .words = "AdamW", .kept = "exp_avg, exp_avg_sq", .moments = 2 },
    [OPTIMIZER_SGD]          = { BY_TORCH, 32, 1, false, .title = "SGD", .words = "SGD", .kept = "momentum", .moments = 1 },
    [OPTIMIZER_ADAFACTOR]    = { BY_TORCH, 32, 0, false, .title = "Adafactor", .words = "Adafactor",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_MUON]         = { BY_TORCH, 32, 0, false, .title = "Muon, AdamW", .words = "Muon",
                                 .not_recorded = "muon asks what each matrix is for, which a recording does not say: take adamw",
                                 .no_trainer = no_word },
    [OPTIMIZER_BNB_ADAMW8]   = { BY_BITSANDBYTES, 8, 2, false, .title = "8-bit AdamW", .words = "8-bit AdamW (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_BNB_LION]     = { BY_BITSANDBYTES, 32, 1, false, .title = "Lion", .words = "Lion (bitsandbytes)", .moments = 1,
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_BNB_LION8]    = { BY_BITSANDBYTES, 8, 1, false, .title = "8-bit Lion", .words = "8-bit Lion (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_PAGED_ADAMW]  = { BY_BITSANDBYTES, 32, 2, true, .title = "paged AdamW", .words = "paged AdamW (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_PAGED_ADAMW8] = { BY_BITSANDBYTES, 8, 2, true, .title = "paged 8-bit AdamW", .words = "paged 8-bit AdamW (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_PAGED_LION]   = { BY_BITSANDBYTES, 32, 1, true, .title = "paged Lion", .words = "paged Lion (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_PAGED_LION8]  = { BY_BITSANDBYTES, 8, 1, true, .title = "paged 8-bit Lion", .words = "paged 8-bit Lion (bitsandbytes)",
                                 .not_fsdp2 = dtensor },
    [OPTIMIZER_AO_ADAMW8]    = { BY_TORCHAO, 8, 2, false, .title = "8-bit AdamW", .words = "8-bit AdamW (torchao)", .by_element = true },
    [OPTIMIZER_AO_ADAMW4]    = { BY_TORCHAO, 4, 2, false, .title = "4-bit AdamW", .words = "4-bit AdamW (torchao)", .by_element = true },
    [OPTIMIZER_AO_ADAMW]     = { BY_TORCHAO, 32, 2, false, .title = "AdamW, rounded by chance", .words = "bf16 AdamW (torchao)",
                                 .kept = "exp_avg, exp_avg_sq", .no_trainer = no_word, .in_bf16 = "rounds", .by_element = true },
    /* flashoptim of March 2026 with master_weight_bits 24 and 32; Transformer Engine 2.x's FusedAdam with master_weights and store_param_remainders */
    [OPTIMIZER_FLASH_ADAMW]  = { BY_OTHERS, 8, 2, false, .title = "FlashAdamW", .words = "FlashAdamW (8 bits of the master weights beside)",
                                 .kept = "codes, scales, error bits", .no_trainer = no_word, .in_bf16 = "corrects", .by_element = true },
    [OPTIMIZER_FLASH_ADAMW32] = { BY_OTHERS, 8, 2, false, .title = "FlashAdamW", .words = "FlashAdamW (16 bits of the master weights beside)",
                                 .kept = "codes, scales, error bits", .no_trainer = no_word, .in_bf16 = "corrects", .by_element = true },
    [OPTIMIZER_TE_ADAMW]     = { BY_OTHERS, 32, 2, false, .title = "FusedAdam", .words = "FusedAdam (Transformer Engine, with remainders)",
                                 .kept = "exp_avg, exp_avg_sq, remainders", .no_trainer = no_word, .in_bf16 = "keeps remainders of", .by_element = true },
    [OPTIMIZER_TE_ADAMW16]   = { BY_OTHERS, 16, 2, false, .title = "FusedAdam", .words = "bf16 FusedAdam (Transformer Engine, with remainders)",
                                 .kept = "exp_avg, exp_avg_sq, remainders", .no_trainer = no_word, .in_bf16 = "keeps remainders of", .by_element = true },
    /* pytorch_optimizer 4.1.0 */
    [OPTIMIZER_SOAP]         = { BY_TORCH, 32, 0, false, .title = "SOAP", .words = "SOAP (the time of its decompositions is left out)",
                                 .kept = "exp_avg, exp_avg_sq, preconditioners", .whole = true,
                                 .not_fsdp2 = "fails: it adds their products to plain tensors (\"aten.lerp_.Scalar got mixed torch.Tensor and "
                                              "DTensor\"): take strategy ddp",
                                 .not_recorded = "soap of a tensor of more than two dimensions is not modelled: take adamw",
                                 .no_trainer = no_word,
                                 .note = "SOAP: every 10th step also makes QR decompositions, the first eigendecompositions: their time, and "
                                         "cuSOLVER's workspaces, are not in the figures." },
};

const struct optimizer_traits *optimizer_traits(enum optimizer o)
{
    assert(o < NOPTIMIZER && traits[o].bits > 0);
    return &traits[o];
}
