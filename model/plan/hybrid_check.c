/* hybrid_check.c -- see hybrid_check.h.  Blocks run as transformers has them, with Mamba-2's fused kernels (mamba_ssm and causal_conv1d), which it takes
 * where they are installed: its own code in PyTorch keeps several times as much, and nobody trains so. */
#include "model/plan/hybrid_check.h"

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/training.h"
#include "model/family/hybrid.h"
#include "model/plan/optimizer_traits.h"

static const char *refuses_framework(const struct plan *p)
{
    if (p->model.experts > 0 && p->dialect != DIALECT_MEGATRON)
        return "blocks of experts beside Mamba-2's are planned in dialect megatron so far";
    bool torch = p->dialect == DIALECT_TORCH && (p->strategy == STRAT_FSDP || p->strategy == STRAT_DDP || p->strategy == STRAT_ZERO1);
    bool deepspeed = p->dialect == DIALECT_DEEPSPEED && (p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2);

    if (p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_ZERO3)
        return "the fused kernels read weights of modules that are never called, which DeepSpeed's stage 3 gathers when they are touched: not followed: take "
               "zero2, or fsdp";
    if (p->dialect == DIALECT_MEGATRON || torch || deepspeed || (p->dialect == DIALECT_TORCH_FSDP1 && p->strategy == STRAT_FSDP))
        return NULL;
    return "planned for fsdp, ddp and zero1 in dialect torch, fsdp in torch-fsdp1, zero1 and zero2 in deepspeed, and in dialect megatron";
}

/* Keys of which blocks with attention and an MLP are assumed. */
static int check_keys(const struct plan *p, const char *where)
{
    bool megatron = p->dialect == DIALECT_MEGATRON;
    const struct { bool asked; const char *key, *why; } keys[] = {
        { p->cluster.is_host, "cluster", "Mamba-2's kernels run on GPUs" },
        { megatron ? p->kernels != KERNELS_TE : p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER, "kernels",
          "Mamba-2 mixers are planned with mamba_ssm's fused kernels beside torch-sdpa and torch-eager, in dialect megatron beside te" },
        { !megatron && p->parallel.tensor > 1, "parallel.tensor", "tensor parallelism of Mamba-2 mixers is not planned: no plan of transformers or torchtitan cuts them" },
        { p->parallel.context > 1, "parallel.context", "a scan over other ranks' positions is not planned" },
        { p->parallel.expert > 1 && p->model.experts == 0, "parallel.expert", "it has no experts" },
        { p->parallel.pipeline > 1, "parallel.pipeline", "stages of blocks of several kinds are not planned yet" },
        { !training_is_all(&p->train) || p->train.base != BASE_PLAIN, "train", "adapters and frozen weights of blocks of several kinds are not planned yet" },
        { p->megatron.mtp_num_layers > 0, "megatron.mtp_num_layers", "multi-token prediction by layers of several kinds is not planned" },
        { p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL, "recompute", "none or full: parts of such blocks are not planned yet" },
        { p->activation_offload != OFFLOAD_NOTHING, "activation_offload", "not planned of blocks of several kinds yet" },
        { p->unit != UNIT_BLOCK && p->unit != UNIT_MODEL, "unit", "\"block\" or \"model\": its blocks have one mixer each" },
        { p->liger.rope || p->liger.rms_norm || p->liger.glu_activation, "liger", "Liger-Kernel has no kernels for its blocks" },
        { p->float8.recipe != FLOAT8_NONE, "fp8", "8-bit floats in blocks of several kinds are not planned yet" },
        { optimizer_traits(p->optimizer)->not_recorded != NULL, "optimizer", "what it does with Mamba-2's tensors is not modelled: take adamw" },
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].asked)
            return fail("%s: %s: %s (%s): %s", where, keys[i].key, p->model.family, p->model.name, keys[i].why);
    return 0;
}

int hybrid_check(const struct plan *p, const char *where)
{
    const char *why = p->model.hybrid ? refuses_framework(p) : NULL;

    if (!p->model.hybrid)
        return 0;
    if (!why && p->dialect != DIALECT_MEGATRON)
        notes_say_once("dpx: %s: note: Mamba-2 mixers are planned with the kernels of mamba-ssm and causal-conv1d and without a cache (use_cache false): else "
                       "transformers runs them operation by operation, which keeps several times as much", p->model.name);
    return why ? fail("%s: strategy: %s (%s): %s", where, p->model.family, p->model.name, why) : check_keys(p, where);
}
