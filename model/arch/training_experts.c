/* training_experts.c -- see training_experts.h. */
#include "model/arch/training_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/training_names.h"
#include "model/family/family.h"

/* ---- names that mean parameters ---- */

enum { ROUTER, GATE, UP, DOWN, NPARTS = FAMILY_EXPERT_PARTS };

/* Of the families that PEFT converts; NULL: this is none of them. */
static const char *const *converted(const struct model *m)
{
    const struct family *f = family_for(m);

    return m->experts > 0 && f->peft_experts[0] ? f->peft_experts : NULL;
}

static bool is_name_of(const char *name, const char *part)
{
    return training_ends_with(name, part, false);
}

/* Is one of the names the part's? */
static bool asks_for(const struct model *m, const char *targets, int part)
{
    const char *const *parts = converted(m);
    char name[TRAINING_LIST];

    if (!parts || training_is_expression(targets))
        return false;
    if (!strcmp(targets, "all-linear"))
        return true;
    for (int i = 0; training_name_at(targets, i, name); i++)
        if (is_name_of(name, parts[part]))
            return true;
    return false;
}

static bool is_named(const struct training *t, const struct tensor *x)
{
    char name[TRAINING_LIST];

    for (int i = 0; training_name_at(t->target_parameters, i, name); i++)
        if (training_ends_with(x->name, name, false))
            return true;
    return false;
}

int64_t training_wrapped_rank(const struct model *m, const struct training *t, const struct tensor *x)
{
    if (x->is_bias || !training_is_lora(t))
        return 0;
    if (t->grouped && x->role == ROLE_ROUTER)
        return 0;
    if (x->role == ROLE_EXPERTS_IN && asks_for(m, t->target_modules, GATE))
        return 2 * t->rank;
    if ((x->role == ROLE_EXPERTS_OUT && asks_for(m, t->target_modules, DOWN)) || (x->role == ROLE_ROUTER && asks_for(m, t->target_modules, ROUTER)))
        return t->rank;
    return is_named(t, x) ? t->rank : 0;
}

/* An expression that PEFT would take for parameters, of which it tries the names that they had. */
static bool means_parameters(const struct model *m, const char *expression)
{
    const char *const *parts = converted(m);
    char path[TRAINING_LIST];

    for (int i = 0; parts && i < m->nmodules; i++) {
        enum tensor_role role = m->tensors[m->modules[i].first].role;
        for (int k = 0; k < NPARTS; k++) {
            if (role != ROLE_ROUTER && !role_is_of_experts(role))
                continue;
            snprintf(path, sizeof path, role == ROLE_ROUTER ? "%s" : "%s.%s", m->modules[i].name, parts[k]);
            if ((role != ROLE_ROUTER || k == ROUTER) && training_whole_name_matches(expression, path) > 0)
                return true;
        }
    }
    return false;
}

int training_modules(const struct model *m, const char *targets, char out[TRAINING_LIST], const char *where)
{
    const char *const *parts = converted(m);
    char name[TRAINING_LIST];
    size_t n = 0;

    snprintf(out, TRAINING_LIST, "%s", targets);
    if (!parts)
        return 0;
    if (training_is_expression(targets))
        return !means_parameters(m, targets) ? 0 : fail("%s: lora.target_modules: \"%s\": of %s PEFT adapts parameters of experts or the router by "
                                                        "it: name them one by one", where, targets, m->family);
    if (asks_for(m, targets, GATE) != asks_for(m, targets, UP))
        return fail("%s: lora.target_modules: PEFT: \"Cannot convert PEFT target(s) %s without also targeting %s because they are fused into "
                    "gate_up_proj.\"", where, parts[asks_for(m, targets, GATE) ? GATE : UP], parts[asks_for(m, targets, GATE) ? UP : GATE]);
    if (!strcmp(targets, "all-linear")) {
        snprintf(out, TRAINING_LIST, "q_proj,k_proj,v_proj,o_proj");
        return 0;
    }
    out[0] = '\0';
    for (int i = 0; training_name_at(targets, i, name); i++) {
        bool part = false;
        for (int k = 0; k < NPARTS; k++)
            part |= is_name_of(name, parts[k]);
        if (!part)
            n += (size_t)snprintf(out + n, TRAINING_LIST - n, "%s%s", n ? "," : "", name);
    }
    return 0;
}

/* ---- checks ---- */

int training_check_parameters(const struct model *m, const struct training *t, const char *where)
{
    char name[TRAINING_LIST];
    bool wraps = t->target_parameters[0];

    for (int i = 0; training_name_at(t->target_parameters, i, name); i++) {
        bool found = false;
        for (int k = 0; k < m->ntensors; k++) {
            const struct tensor *x = &m->tensors[k];
            if (!training_ends_with(x->name, name, false))
                continue;
            found = true;
            if (!role_is_of_experts(x->role) || x->is_bias)
                return fail("%s: lora.target_parameters: \"%s\": adapters of experts' weights are planned, not of %s", where, name, x->name);
        }
        if (!found)
            return fail("%s: lora.target_parameters: \"%s\" is no parameter of %s", where, name, m->family);
    }
    for (int k = 0; k < NPARTS; k++)
        wraps |= asks_for(m, t->target_modules, k);
    if (wraps && t->dropout > 0)
        return fail("%s: lora.dropout: PEFT: \"lora.ParamWrapper does not work with lora_dropout != 0.\": 0 beside adapters of experts or routers",
                    where);
    return 0;
}

int training_check_mixture(const struct model *m, const struct training *t, const char *where)
{
    if (training_is_lora(t) && !t->modules_to_save[0] && family_for(m)->lora_mixture)
        return 0;
    return fail("%s: train: of a mixture of experts (%s) LoRA is planned, without modules to save, for mixtral, qwen3_moe, gpt_oss and llama4_text", where,
                m->family);
}
