/* recipe_compile.c -- see recipe_compile.h.  transformers 5.23 (training_args.py), accelerate 1.14 (accelerator.py, prepare_model()): torch.compile() of
 * what DistributedDataParallel has wrapped.
 *
 * The graph has embedding, blocks, head and loss.  DDPOptimizer cuts it (model/program/torch_split.h), and a block keeps in it what it keeps by itself:
 * transformers' llama-1b of 2 and 3 layers in bf16 and under autocast, cut at 25 MiB, and uncut in bf16 (AOTAutograd and the partitioner of torch 2.15 on
 * fake tensors, as tests/golden/memory/record_torch_compile.py has them).  Uncut under autocast it keeps the sum before each half's norm in fp32, where a
 * block by itself has its input and the attention's product in bf16: 2 bytes more a token and hidden unit. */
#include "model/exchange/recipe_compile.h"

#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"

bool compiles_whole(const struct plan *p)
{
    return p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && family_for(&p->model)->compiles && p->kernels == KERNELS_TORCH_SDPA &&
           p->loss == LOSS_FP32 && !training_is_lora(&p->train);
}

int compile_whole_model(struct plan *p, const char *key, const char *where, struct notes *notes)
{
    if (p->recompute == RECOMPUTE_REENTRANT)
        return fail("%s: %s: a compiled model beside checkpoints with use_reentrant true (axolotl's and LLaMA-Factory's default) is not planned: with use_reentrant "
                    "false (LLaMA-Factory: use_reentrant_gc: false), or without this key, it is", where, key);
    if (!compiles_whole(p))
        return fail("%s: %s: a model that torch.compile compiles as a whole is planned under DistributedDataParallel or on one GPU alone, of some "
                    "families, with sdpa, its own loss and no adapters: without this key the rest of the step is", where, key);
    p->kernels = KERNELS_TORCH_COMPILE;
    p->loss = LOSS_COMPILED;
    bool more = !p->ddp.wrapped && plan_recipe(p).autocast && p->recompute == RECOMPUTE_NONE;
    double bytes = 2.0 * (double)p->micro_batch * (double)p->seq * (double)(p->model.hidden * p->model.layers);
    notes_add(notes, "%s: the whole model is one graph%s: planned as kernels \"torch-compile\" and loss \"compiled\", block by block", key,
              p->ddp.wrapped ? ", cut where a bucket of DistributedDataParallel is full" : "");
    if (more)
        notes_add(notes, "%s: uncut under autocast the graph keeps %.3g GB of fp32 sums more than planned", key, bytes / 1e9);
    return 0;
}

static bool is_set(const json_t *v) { return v && !json_is_null(v) && !json_is_false(v); }

int recipe_read_compile(const json_t *config, enum recipe_form form, const char *where, struct plan *p, struct notes *notes)
{
    static const char *const plain[] = { "default", "max-autotune-no-cudagraphs" };
    const json_t *on = json_object_get(config, "torch_compile"), *of = json_object_get(config, "torch_compile_backend"),
                 *how = json_object_get(config, "torch_compile_mode");
    const char *backend = json_string_value(of), *mode = json_string_value(how);
    const char *key = is_set(on) ? "torch_compile" : is_set(of) ? "torch_compile_backend" : is_set(how) ? "torch_compile_mode" : NULL;

    if (!key || form == RECIPE_TITAN)
        return 0;
    if (form == RECIPE_TRL)
        return fail("%s: %s: a compiled model is not planned beside TRL's loss: without this key the rest of the step is", where, key);
    if (is_set(of) && (!backend || strcmp(backend, "inductor")))
        return fail("%s: torch_compile_backend: inductor's kernels are planned, no other backend's", where);
    if (is_set(how) && (!mode || (strcmp(mode, plain[0]) && strcmp(mode, plain[1]))))
        return fail("%s: torch_compile_mode: CUDA graphs of a whole model are not planned: \"default\" or \"max-autotune-no-cudagraphs\" has none", where);
    return compile_whole_model(p, key, where, notes);
}
