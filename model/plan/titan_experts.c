/* titan_experts.c -- see titan_experts.h. */
#include "model/plan/titan_experts.h"
#include "model/arch/recorded.h"
#include "model/arch/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"

/* One of GroupedExperts' tensors, of half of what gate and up have together; in its module, behind the last. */
static void add(struct model *m, const struct tensor *like, const char *name, enum tensor_role role, bool half)
{
    struct tensor *t = &m->tensors[m->ntensors++];

    *t = *like;
    t->role = role;
    t->shape[like->ndim == 3] /= half ? 2 : 1;
    t->numel /= half ? 2 : 1;
    snprintf(t->name, sizeof t->name, "%.*s.%s", (int)(sizeof t->name - 8), m->modules[like->module].name, name);
    m->ntrainable += !t->frozen;
}

/* prime-rl's MultiLoRAGroupedExperts: gate and up have a lora_A and a lora_B each. */
static void add_adapters(struct model *m, const struct tensor *both)
{
    bool a = both->adapter == ADAPTER_LORA_A;

    add(m, both, a ? "w1_A" : "w1_B", ROLE_EXPERTS_IN, true);
    add(m, both, a ? "w3_A" : "w3_B", ROLE_EXPERTS_UP, true);
    m->modules[both->module].ntensors++;
}

/* GptOssGroupedExperts' weights are [expert, out, in]. */
static void turn(struct tensor *t)
{
    int64_t in = t->shape[1];

    if (!t->in_out)
        return;
    t->shape[1] = t->shape[2];
    t->shape[2] = in;
    t->in_out = false;
}

/* AutoEPMoELayer registers its router, one tensor, before its experts, which qwen3_moe has the other way round. */
static bool goes_ahead(const struct plan *p, int t)
{
    const struct model *m = &p->model;

    return p->dialect == DIALECT_DEEPSPEED && t >= 2 && t < m->ntensors && m->tensors[t].role == ROLE_ROUTER && m->tensors[t - 2].role == ROLE_EXPERTS_IN;
}

static void keep(struct model *m, const struct tensor *x)
{
    m->modules[x->module].first = m->ntensors;
    m->tensors[m->ntensors++] = *x;
    m->ntrainable += !x->frozen;
}

/* AutoEPMoELayer has the gate in its router: TokenChoiceTopKRouter. */
static void put_in_router(struct model *m, struct tensor *t)
{
    struct module *of = &m->modules[t->module];
    const char *last = strrchr(of->name, '.');
    char name[sizeof of->name];

    snprintf(name, sizeof name, "%.*s.router%.20s", (int)(last - of->name) < 60 ? (int)(last - of->name) : 60, of->name, last);
    memcpy(of->name, name, sizeof name);
    snprintf(t->name, sizeof t->name, "%.90s.weight", name);
}

int titan_experts_model(const struct plan *p, struct model *out)
{
    const struct model *m = &p->model;
    const struct tensor *both = NULL;
    bool whole = family_for(m)->experts_in_out;     /* GptOssGroupedExperts has gate and up together, too */

    *out = *m;
    out->ntensors = out->ntrainable = 0;
    out->per_block += whole ? 0 : 1;
    out->tensors = calloc((size_t)(m->ntensors + 3 * m->layers), sizeof *out->tensors);
    out->modules = calloc((size_t)m->nmodules, sizeof *out->modules);
    json_incref(out->rope_scaling);
    recorded_share(out->recorded);
    hybrid_share(out->hybrid);
    if (!out->tensors || !out->modules) {
        model_free(out);
        return fail("out of memory for torchtitan's tensor table");
    }
    for (int i = 0; i < m->nmodules; i++)
        out->modules[i] = m->modules[i];
    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        if (x->role == ROLE_ROUTER && goes_ahead(p, t))
            continue;
        if (x->role == ROLE_EXPERTS_IN && goes_ahead(p, t + 2))
            keep(out, &m->tensors[t + 2]);
        if (t == m->modules[x->module].first)
            out->modules[x->module].first = out->ntensors;
        if (x->role == ROLE_EXPERTS_IN && tensor_is_adapter(x)) {
            out->per_block += x->block == model_first_alike(m, x->block);
            add_adapters(out, x);
        } else if (x->role == ROLE_EXPERTS_IN && !whole) {
            both = x;
            add(out, x, "w1_EFD", ROLE_EXPERTS_IN, true);
        } else if (x->role == ROLE_EXPERTS_OUT && !tensor_is_adapter(x) && !whole) {
            add(out, x, "w2_EDF", ROLE_EXPERTS_OUT, false);
            add(out, both, "w3_EFD", ROLE_EXPERTS_UP, true);
            out->modules[x->module].ntensors++;
        } else {
            out->tensors[out->ntensors] = *x;
            if (role_is_of_experts(x->role))
                turn(&out->tensors[out->ntensors]);
            out->ntrainable += !x->frozen;
            out->ntensors++;
        }
    }
    for (int t = 0; t < out->ntensors && p->dialect == DIALECT_DEEPSPEED; t++)
        if (out->tensors[t].role == ROLE_ROUTER)
            put_in_router(out, &out->tensors[t]);
    return 0;
}
