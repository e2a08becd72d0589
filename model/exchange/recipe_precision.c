/* recipe_precision.c -- see recipe_precision.h.  transformers 5.24 (training_args.py: mixed_precision; integrations/deepspeed.py:
 * trainer_config_process()), accelerate 1.15 (DeepSpeedPlugin.set_mixed_precision()), LLaMA-Factory (extras/misc.py: infer_optim_dtype()), axolotl
 * (core/builders/base.py, utils/trainer.py). */
#include "model/exchange/recipe_precision.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/exchange/recipe_notes.h"

static enum dtype dtype_of(const char *word) { return !word ? DT_FP32 : !strcasecmp(word, "bf16") ? DT_BF16 : !strcasecmp(word, "fp16") ? DT_FP16 : DT_FP32; }

/* bf16: full of axolotl's. */
static bool is_full(const struct recipe_precision *of)
{
    const char *bf16 = json_string_value(json_object_get(of->config, "bf16"));

    return of->form == RECIPE_AXOLOTL && bf16 && !strcmp(bf16, "full");
}

/* accelerate launch hands its mixed_precision on as ACCELERATE_MIXED_PRECISION, which TrainingArguments take where neither flag is set.  axolotl sets
 * that variable itself. */
static enum dtype launched(const struct recipe_precision *of)
{
    return of->form == RECIPE_AXOLOTL ? DT_FP32 : dtype_of(json_string_value(json_object_get(of->launch, "mixed_precision")));
}

/* Without the flags LLaMA-Factory leaves frozen weights in the checkpoint's dtype, and so the products: what trains is made fp32 (model/adapter.py), and
 * PEFT casts what goes in and comes out.  Full fine-tuning is in fp32 throughout. */
static int as_checkpoint(struct recipe_precision *of, struct plan *p, struct notes *notes)
{
    if (of->fsdp)
        return fail("%s: bf16: neither bf16 nor fp16 is given: LLaMA-Factory's adapters in fp32 beside weights in the checkpoint's dtype, without autocast, are not "
                    "planned beside FSDP: bf16: true", of->where);
    p->precision = DT_BF16;
    of->bare = true;
    notes_add(notes, "neither bf16 nor fp16 is given: LLaMA-Factory loads and computes in the checkpoint's own dtype, taken as bf16, without autocast");
    return 0;
}

int recipe_choose_precision(struct recipe_precision *of, struct plan *p, struct notes *notes)
{
    bool full = is_full(of);

    of->flags = p->precision;
    of->mixed = full ? DT_FP32 : of->flags != DT_FP32 ? of->flags : launched(of);
    if (full)
        notes_add(notes, "bf16: full: axolotl turns no autocast on: weights in 16 bits compute in 16 bits, planned as under autocast");
    of->bare = full && of->adapts;
    if (of->flags != DT_FP32 || of->deepspeed)
        return 0;
    if (of->mixed != DT_FP32) {
        p->precision = of->mixed;
        notes_add(notes, "accelerate's mixed_precision %s is the Trainer's, as neither bf16 nor fp16 is set", dtype_name(of->mixed));
        return 0;
    }
    return of->form == RECIPE_FACTORY && of->adapts ? as_checkpoint(of, p, notes) : 0;
}

void recipe_fill_deepspeed(const struct recipe_precision *of, json_t *ds)
{
    static const char *const section_of[] = { [DT_BF16] = "bf16", [DT_FP16] = "fp16" };

    if (of->mixed != DT_FP32 && !json_object_get(ds, section_of[of->mixed]))
        json_object_set_new(ds, section_of[of->mixed], json_pack("{s:b}", "enabled", 1));
}

int recipe_check_deepspeed(const struct recipe_precision *of, const struct plan *p, bool filled)
{
    static const char *const words[] = { [DT_FP32] = "neither bf16 nor fp16", [DT_BF16] = "bf16", [DT_FP16] = "fp16" };

    if (is_full(of) && p->precision == DT_FP32)
        return fail("%s: bf16: full: beside it accelerate leaves DeepSpeed in fp32, whose file has no bf16 with \"enabled\": \"auto\": bf16: true", of->where);
    if (!filled && p->precision != of->flags && of->launch && p->precision != DT_FP32)
        return fail("%s: deepspeed: the recipe has %s and accelerate's config %s, where the Trainer stops (\"Please correct the following DeepSpeed config "
                    "values that mismatch TrainingArguments values\"): %s: true in the recipe (--%s)", of->where, words[of->flags], words[p->precision],
                    words[p->precision], words[p->precision]);
    if (!filled && p->precision != of->flags)
        return fail("%s: deepspeed: the recipe has %s and DeepSpeed's config %s, where the Trainer stops (\"Please correct the following DeepSpeed config "
                    "values that mismatch TrainingArguments values\"): \"enabled\": \"auto\" in its sections bf16 and fp16", of->where, words[of->flags],
                    words[p->precision]);
    if (of->form == RECIPE_FACTORY && of->adapts && p->precision == DT_FP32 && (p->strategy != STRAT_ZERO3 || p->train.base != BASE_PLAIN))
        return fail("%s: bf16: neither bf16 nor fp16 is given: LLaMA-Factory's adapters in fp32 beside weights in the checkpoint's dtype are not planned beside "
                    "DeepSpeed: bf16: true", of->where);
    return 0;
}

/* PEFT's layers cast their input to the adapters' dtype (tuners/lora/layer.py, _cast_input_dtype()), each for itself, and keep it for lora_A's gradient. */
void recipe_note_bare(const struct recipe_precision *of, const struct plan *p, struct notes *notes)
{
    int64_t inputs = 0;

    for (int i = 0; i < p->model.ntensors; i++)
        inputs += p->model.tensors[i].adapter == ADAPTER_LORA_A && p->train.rank > 0 ? p->model.tensors[i].numel / p->train.rank : 0;
    if (p->recompute != RECOMPUTE_NONE)
        inputs /= p->model.layers;              /* of one block at a time */
    if (of->bare && !p->train.narrow)
        notes_add(notes, "without autocast the adapters, in fp32, keep copies of their inputs in fp32 and multiply in it, where the plan has 16 bits: up to %.3g "
                  "GB more", (double)inputs * (double)(p->micro_batch * p->seq) * 4e-9);
}

/* ---- the dtype that the model is loaded in ---- */

static const char *stated(const json_t *config, enum recipe_form form)
{
    const char *key = recipe_key(config, form, SAYS_DTYPE);

    return key ? json_string_value(json_object_get(config, key)) : NULL;
}

bool recipe_loads_narrow(const json_t *config, enum recipe_form form, struct notes *notes)
{
    const char *dtype = stated(config, form);

    if (dtype && !strcmp(dtype, "auto"))
        notes_add(notes, "dtype auto: the checkpoint's own, taken as 16 bits");
    return recipe_asks_checkpoint(config, form) || (dtype && strcmp(dtype, "float32") != 0);
}

void recipe_keep_wide(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes)
{
    const char *dtype = stated(config, form);
    int *kept = p->strategy == STRAT_FSDP ? &p->fsdp.model_dtype : p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH ? &p->ddp.model_dtype : NULL;
    bool wide = form == RECIPE_TRL && p->train.base == BASE_PLAIN && (dtype ? !strcmp(dtype, "float32") : !recipe_asks_checkpoint(config, form));

    if (wide && kept && *kept >= 0) {
        *kept = -1;
        notes_add(notes, "dtype: the model is loaded in fp32, in which frozen weights stay: model_dtype null");
    }
}
