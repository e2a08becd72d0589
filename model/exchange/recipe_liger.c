/* recipe_liger.c -- see recipe_liger.h.  transformers 5.24 (integrations/liger.py), LLaMA-Factory (model_utils/liger_kernel.py), axolotl
 * (integrations/liger, integrations/cut_cross_entropy). */
#include "model/exchange/recipe_liger.h"

#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/liger.h"

/* What is asked for: 1 or 0; -1: not said. */
enum ask { ROPE, NORM, GLU, CROSS_ENTROPY, FUSED_LINEAR, NASK };
struct asks { int of[NASK]; };

static const char *const axolotls[] = { "liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_cross_entropy",
                                        "liger_fused_linear_cross_entropy" };

/* Scripts take "true" as well. */
static bool is_true(const json_t *v)
{
    const char *s = json_string_value(v);

    return s ? !strcmp(s, "true") : json_is_true(v);
}

static int said(const json_t *in, const char *key)
{
    const json_t *v = json_object_get(in, key);

    return !v || json_is_null(v) ? -1 : is_true(v);
}

static bool is_among(const char *key, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

bool recipe_liger_reads(enum recipe_form form, const char *key)
{
    static const char *const trainers[] = { "use_liger_kernel", "liger_kernel_config" }, *const factorys[] = { "enable_liger_kernel" };
    static const char *const besides[] = { "liger_swiglu", "cut_cross_entropy", "plugins" };

    if (form == RECIPE_AXOLOTL)
        return is_among(key, axolotls, NASK) || is_among(key, besides, 3);
    return is_among(key, trainers, 2) || (form == RECIPE_FACTORY && is_among(key, factorys, 1));
}

/* Does a plugin of that name stand in the list? */
static bool has_plugin(const json_t *config, const char *part)
{
    const json_t *list = json_object_get(config, "plugins"), *name;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, name)
        if (json_is_string(name) && strstr(json_string_value(name), part))
            return true;
    return false;
}

/* ---- into the plan ---- */

static int set(struct plan *p, const char *where, const struct asks *asks, struct notes *notes)
{
    struct liger_options of;
    enum loss_kind loss;
    const char *lacks;

    if (!liger_usual(&p->model, &of, &loss, &lacks)) {
        notes_add(notes, "Liger-Kernel has no kernels for %s: none are taken", p->model.family);
        return 0;
    }
    bool fused = asks->of[FUSED_LINEAR] < 0 ? loss == LOSS_FUSED_LINEAR : asks->of[FUSED_LINEAR];
    bool in_place = asks->of[CROSS_ENTROPY] < 0 ? loss == LOSS_LIGER : asks->of[CROSS_ENTROPY];
    if (fused && in_place)
        return fail("%s: Liger-Kernel refuses it: \"cross_entropy and fused_linear_cross_entropy cannot both be True.\"", where);
    p->liger = (struct liger_options){ .rope = of.rope && asks->of[ROPE], .rms_norm = of.rms_norm && asks->of[NORM],
                                       .glu_activation = of.glu_activation && asks->of[GLU] };
    if (fused)
        p->loss = LOSS_FUSED_LINEAR;
    else if (in_place && !family_for(&p->model)->liger.replaces_nothing)
        p->loss = LOSS_LIGER;
    else if (in_place)
        notes_add(notes, "Liger-Kernel's cross_entropy of %s replaces a class that transformers 5 does not call: the loss stays transformers'",
                  p->model.family);
    if (lacks)
        notes_add(notes, "Liger-Kernel's %s for %s are not modelled: taken as transformers', which keep more", lacks, p->model.family);
    return 0;
}

/* ---- the forms ---- */

/* Arguments of apply_liger_kernel_to_FAMILY(), of which Python takes no other. */
static int check_kernels(const json_t *of, const char *where)
{
    static const char *const known[] = { "rope", "rms_norm", "layer_norm", "swiglu", "geglu", "cross_entropy", "fused_linear_cross_entropy" };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)of, key, v)
        if (!is_among(key, known, sizeof known / sizeof *known))
            return fail("%s: liger_kernel_config: %.60s is no kernel of Liger's", where, key);
    return 0;
}

/* _apply_liger_kernel_to_instance(**liger_kernel_config): what is not in the config is as the family's function has it. */
static int of_trainer(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    const json_t *said_of = json_object_get(config, "liger_kernel_config");
    int glu = said(said_of, "swiglu") >= 0 ? said(said_of, "swiglu") : said(said_of, "geglu");
    const struct asks asks = { { said(said_of, "rope"), said(said_of, "rms_norm"), glu, said(said_of, "cross_entropy"),
                                 said(said_of, "fused_linear_cross_entropy") } };

    if (said_of && !json_is_object(said_of) && !json_is_null(said_of))
        return fail("%s: liger_kernel_config: expected a mapping", where);
    return said(config, "use_liger_kernel") > 0 ? (check_kernels(said_of, where) < 0 ? -1 : set(p, where, &asks, notes)) : 0;
}

/* model_utils/liger_kernel.py knows fewer families. */
static int of_factory(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    const struct asks usual = { { -1, -1, -1, -1, -1 } };

    if (said(config, "enable_liger_kernel") <= 0)
        return of_trainer(config, where, p, notes);
    if (family_for(&p->model)->liger.factory)
        return set(p, where, &usual, notes);
    notes_add(notes, "LLaMA-Factory applies no Liger kernels to %s (\"Current model does not support liger kernel.\")", p->model.family);
    return 0;
}

/* Others than these do with a step what is not known here. */
static void list_plugins(const json_t *config, struct notes *notes)
{
    static const char *const known[] = { "liger", "cut_cross_entropy", "kernels.KernelsPlugin", "swanlab", "expert_parallel" };
    const json_t *list = json_object_get(config, "plugins"), *v;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        const char *name = json_string_value(v);
        bool is_known = !name;
        for (size_t k = 0; name && k < sizeof known / sizeof *known; k++)
            is_known = is_known || strstr(name, known[k]);
        if (!is_known)
            notes_add(notes, "plugins: %.80s is not known: what it does of a step is not planned", name);
    }
}

/* Each key is false unless it is set.  Without its plugin axolotl does not know a key; the plugin of Apple's loss takes it unless told. */
static int of_axolotl(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    bool liger = has_plugin(config, "liger"), cut = has_plugin(config, "cut_cross_entropy") && said(config, "cut_cross_entropy") != 0, any = false;
    struct asks asks;

    list_plugins(config, notes);
    for (int i = 0; i < NASK; i++) {
        asks.of[i] = said(config, axolotls[i]) > 0 || (i == GLU && said(config, "liger_swiglu") > 0);
        any |= asks.of[i] > 0;
    }
    if (any && !liger)
        notes_add(notes, "liger_*: axolotl takes these keys with its plugin alone (plugins: axolotl.integrations.liger.LigerPlugin): they do nothing");
    if (said(config, "cut_cross_entropy") > 0 && !cut)
        notes_add(notes, "cut_cross_entropy: axolotl takes it with its plugin alone (axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin): "
                         "it does nothing");
    if (cut && liger && asks.of[FUSED_LINEAR])
        return fail("%s: cut_cross_entropy and liger_fused_linear_cross_entropy both replace the model's forward: set one of them", where);
    if (any && liger && set(p, where, &asks, notes) < 0)
        return -1;
    if (cut)
        p->loss = LOSS_CUT;
    return 0;
}

int recipe_liger(const json_t *config, enum recipe_form form, const char *where, struct plan *p, struct notes *notes)
{
    if (form == RECIPE_AXOLOTL)
        return of_axolotl(config, where, p, notes);
    return form == RECIPE_FACTORY ? of_factory(config, where, p, notes) : of_trainer(config, where, p, notes);
}
