/* recipe_targets.h -- which layers a recipe's adapters are for. */
#ifndef DPX_RECIPE_TARGETS_H
#define DPX_RECIPE_TARGETS_H

#include "model/exchange/recipe.h"

struct recipe_asks {
    const json_t    *config;
    const char      *where;
    enum recipe_form form;
    const char      *targets;           /* names of the recipe, separated by commas; LLaMA-Factory's "all" */
    struct notes    *notes;
    bool             all;               /* axolotl's lora_target_linear */
};

/* Fills t->target_modules.  "all" is PEFT's all-linear, but of a mixture of experts: LLaMA-Factory and axolotl name the model's nn.Linear layers,
 * which no experts are.  0, or -1 with the key reported: more names than fit, experts' weights in 4 bits or
 * computed on the host.  t->target_parameters too. */
int recipe_targets(const struct recipe_asks *asks, const struct model *m, struct training *t);

#endif
