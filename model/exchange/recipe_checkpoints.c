/* recipe_checkpoints.c -- see recipe_checkpoints.h. */
#include "model/exchange/recipe_checkpoints.h"

#include "base/fail.h"

/* Does the trainer checkpoint, and not FSDP's own wrapper alone (fsdp_config's activation_checkpointing: CheckpointImpl.NO_REENTRANT)? */
static bool trainer_checkpoints(const json_t *config, enum recipe_form form)
{
    const json_t *said = json_object_get(config, "gradient_checkpointing");

    if (form == RECIPE_FACTORY)
        return !json_is_true(json_object_get(config, "disable_gradient_checkpointing"));
    return form != RECIPE_AXOLOTL || (said && !json_is_null(said) && !json_is_false(said));
}

/* What says use_reentrant, or the trainer's default: axolotl's (utils/config, normalize_config()) is true unless preferences are trained, or
 * parameters named; LLaMA-Factory's is true; transformers' is false since 5. */
static bool checkpoints_reentrantly(const json_t *config, enum recipe_form form)
{
    const json_t *kwargs = json_object_get(config, "gradient_checkpointing_kwargs"), *said = json_object_get(kwargs, "use_reentrant");
    const json_t *factorys = json_object_get(config, "use_reentrant_gc");

    if (form == RECIPE_FACTORY)
        return !json_is_false(factorys);
    if (form != RECIPE_AXOLOTL || json_is_object(kwargs))
        return json_is_true(said);
    return !json_is_string(json_object_get(config, "rl")) && !json_is_array(json_object_get(config, "unfrozen_parameters"));
}

/* Reentrant checkpoints are planned of DDP's dense models.  Beside int8 layers it matters most which they are: these keep their input
 * through checkpoints that hooks make. */
static void choose(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes)
{
    if (p->recompute != RECOMPUTE_FULL || p->recompute_interval > 1 || !trainer_checkpoints(config, form) || !checkpoints_reentrantly(config, form))
        return;
    bool planned = p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->model.experts == 0 && p->qat.kind == QAT_NONE
                   && (p->kernels == KERNELS_TORCH_SDPA || p->kernels == KERNELS_TORCH_EAGER);
    if (planned)
        p->recompute = RECOMPUTE_REENTRANT;
    else
        notes_add(notes, "checkpoints with use_reentrant true are planned as those without it, which keep as much but for the gradient of one block's output");
}

/* transformers/trainer.py: "`fsdp_config['activation_checkpointing']` ... and the `activation_checkpointing` training argument can't both be set to True",
 * since 4.36.  LLaMA-Factory checkpoints by itself. */
int recipe_checkpoints_twice(enum recipe_form form, const char *where, const struct plan *p)
{
    if (form == RECIPE_FACTORY || p->strategy != STRAT_FSDP || p->recompute == RECOMPUTE_NONE)
        return 0;
    return fail("%s: gradient_checkpointing: true beside FSDP's own activation_checkpointing: true: transformers' Trainer stops at both: leave one out", where);
}

void recipe_choose_checkpoint(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes)
{
    choose(config, form, p, notes);
    if (p->train.base != BASE_INT8 || !recompute_whole(p->recompute) || p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH)
        return;
    notes_add(notes, "checkpoints with use_reentrant %s: int8 layers keep their inputs through those without it",
              p->recompute == RECOMPUTE_REENTRANT ? "true" : "false");
}
