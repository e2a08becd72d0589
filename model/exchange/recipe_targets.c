/* recipe_targets.c -- see recipe_targets.h. */
#define _GNU_SOURCE                             /* strcasestr() */
#include "model/exchange/recipe_targets.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/training_names.h"

/* LLaMA-Factory (model_utils/misc.py, find_all_linear_modules()) goes by the class's name, axolotl (loaders/adapter.py, find_all_linear_names()) by
 * the class: Llama4Router is nn.Linear's child. */
static int all_linear(const struct recipe_asks *asks, const struct model *m, struct training *t)
{
    char all[TRAINING_LIST], *names = t->target_modules;

    if (m->experts == 0) {
        strcpy(names, "all-linear");
        return 0;
    }
    if (training_linear_names(m, asks->form == RECIPE_AXOLOTL, all) < 0)
        return fail("%s: names of all linear layers of %s are longer than %d letters", asks->where, m->family, TRAINING_LIST - 1);
    strcpy(names, all);
    if (asks->all && asks->targets[0] && strlen(all) + strlen(asks->targets) + 2 > TRAINING_LIST)
        return fail("%s: lora_target_modules: with all linear layers longer than %d letters", asks->where, TRAINING_LIST - 1);
    if (asks->all && asks->targets[0])
        strcat(strcat(names, ","), asks->targets);
    return 0;
}

/* Checkpoints of Llama 4 whose experts were made nn.Linear, for bitsandbytes to pack: said by a key, and in their names. */
static bool is_linearized(const struct recipe_asks *asks)
{
    const char *model = json_string_value(json_object_get(asks->config, "base_model"));

    return asks->form == RECIPE_AXOLOTL && (json_is_true(json_object_get(asks->config, "llama4_linearized_experts")) ||
                                            (model && strcasestr(model, "linearized")));
}

/* axolotl's and TRL's; a text, or a list. */
static int parameters(const struct recipe_asks *asks, struct training *t)
{
    const json_t *v = json_object_get(asks->config, "lora_target_parameters");
    char *names = t->target_parameters;
    size_t n = 0;

    if (asks->form != RECIPE_AXOLOTL && asks->form != RECIPE_TRL)
        return 0;
    for (size_t i = 0; v && !json_is_null(v) && i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!name || !*name || n + strlen(name) + 2 > TRAINING_LIST)
            return fail("%s: lora_target_parameters: expected names of parameters, %d letters together", asks->where, TRAINING_LIST - 1);
        n += (size_t)snprintf(names + n, TRAINING_LIST - n, "%s%s", n ? "," : "", name);
    }
    return 0;
}

static bool is_a_module(const struct model *m, const char *name)
{
    for (int k = 0; k < m->nmodules; k++)
        if (training_ends_with(m->modules[k].name, name, false))
            return true;
    return *training_tied_head(m) && !strcmp(training_tied_head(m), name);
}

/* PEFT asks that one of the names be a module's (tuners_utils.py, inject_adapter()): the others are left out, and said.  Where none is, the
 * list stays, and is refused with the rest of the plan. */
static void keep_modules(const struct recipe_asks *asks, const struct model *m, struct training *t)
{
    char name[TRAINING_LIST], kept[TRAINING_LIST] = "", left[TRAINING_LIST] = "";

    for (int i = 0; !training_is_expression(asks->targets) && training_name_at(asks->targets, i, name); i++) {
        char *to = is_a_module(m, name) ? kept : left;
        strcat(strcat(to, to[0] ? "," : ""), name);         /* together no longer than the list that they are from */
    }
    strcpy(t->target_modules, kept[0] ? kept : asks->targets);
    if (kept[0] && left[0])
        notes_add(asks->notes, "lora_target_modules: no layer of %s is called %s: PEFT makes no adapters of it", m->family, left);
}

int recipe_targets(const struct recipe_asks *asks, const struct model *m, struct training *t)
{
    if (m->experts > 0 && is_linearized(asks))
        return fail("%s: base_model: experts that are linear layers, packed as these are (axolotl's linearized checkpoints), are not modelled: "
                    "transformers' own are parameters that stay in 16 bits", asks->where);
    if (m->experts > 0 && json_is_true(json_object_get(asks->config, "use_kt")))
        return fail("%s: use_kt: ktransformers computes experts on the host: not modelled", asks->where);
    if (asks->form == RECIPE_AXOLOTL && m->experts > 0 && json_is_true(json_object_get(asks->config, "quantize_moe_experts")))
        return fail("%s: quantize_moe_experts: experts' weights in 4 or 8 bits are not modelled: without it transformers keeps them in 16", asks->where);
    if (parameters(asks, t) < 0)
        return -1;
    if (asks->all || !strcmp(asks->targets, "all"))
        return all_linear(asks, m, t);
    keep_modules(asks, m, t);
    return 0;
}
