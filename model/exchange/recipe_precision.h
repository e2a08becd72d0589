/* recipe_precision.h -- the number format of a recipe's step, which is not the recipe's bf16 and fp16 alone: accelerate's config has one, and so has
 * DeepSpeed's file; and LLaMA-Factory and axolotl train without autocast, too. */
#ifndef DPX_RECIPE_PRECISION_H
#define DPX_RECIPE_PRECISION_H

#include <jansson.h>

#include "base/notes.h"
#include "model/exchange/recipe.h"

struct recipe_precision {
    const json_t    *config, *launch;       /* launch: accelerate's config; NULL: none */
    enum recipe_form form;
    const char      *where;
    bool             adapts, deepspeed, fsdp;       /* PEFT's adapters train; who shares */
    enum dtype       flags;                 /* what the Trainer's bf16 and fp16 say */
    enum dtype       mixed;                 /* accelerate's mixed precision: that, or else its own config's */
    bool             bare;                  /* 16 bits without autocast, beside adapters in fp32 */
};

/* From `flags` on: fills `mixed` and `bare`, and p->precision for all but DeepSpeed.  0, or -1 reported. */
int recipe_choose_precision(struct recipe_precision *of, struct plan *p, struct notes *notes);

/* DeepSpeed's file as accelerate completes it; ds is changed. */
void recipe_fill_deepspeed(const struct recipe_precision *of, json_t *ds);
/* Once the file is read: the Trainer stops where the file says otherwise than its flags.  `filled`: the file had no section of it.  0, or -1 reported. */
int recipe_check_deepspeed(const struct recipe_precision *of, const struct plan *p, bool filled);

/* What adapters in fp32 keep without autocast, once the plan is made. */
void recipe_note_bare(const struct recipe_precision *of, const struct plan *p, struct notes *notes);

/* Are the weights that train loaded in 16 bits?  TRL's dtype. */
bool recipe_loads_narrow(const json_t *config, enum recipe_form form, struct notes *notes);
/* A model that is loaded in fp32 stays so beside adapters: by TRL's dtype or without it (ModelConfig.dtype, trainer/utils.py), and by PEFT's
 * examples/sft (utils.py). */
void recipe_keep_wide(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes);

#endif
