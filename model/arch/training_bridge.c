/* training_bridge.c -- see training_bridge.h. */
#include "model/arch/training_bridge.h"

#include <string.h>

#include "base/fail.h"
#include "base/dtype.h"
#include "model/arch/training_names.h"

bool training_bridge_adapts(const struct training *t, const char *layer)
{
    const char *of = t->target_modules[0] ? t->target_modules : BRIDGE_TARGETS;
    char name[TRAINING_LIST];

    for (int i = 0; training_name_at(of, i, name); i++)
        if (!strcmp(name, layer))
            return true;
    return false;
}

static int check(const struct training *t, const char *where)
{
    char name[TRAINING_LIST];

    if (strcmp(t->what, "lora"))
        return fail("%s: train: dialect megatron trains all or \"lora\", Megatron-Bridge's: patterns of tensor names are not planned there",
                    where);
    for (int i = 0; training_name_at(t->target_modules, i, name); i++)
        if (!training_bridge_adapts(&(struct training){ .target_modules = "" }, name))
            return fail("%s: lora.target_modules: \"%s\": with dialect megatron layers are Megatron-Bridge's: %s", where, name, BRIDGE_TARGETS);
    if (t->target_parameters[0] || t->modules_to_save[0] || t->base != BASE_PLAIN || t->narrow)
        return fail("%s: %s: PEFT's alone: Megatron-Bridge's LoRA has none", where, t->target_parameters[0] ? "lora.target_parameters"
                    : t->modules_to_save[0] ? "lora.modules_to_save" : t->base != BASE_PLAIN ? "base_dtype" : "lora.narrow");
    return 0;
}

/* Elements of all adapters, A [rank, in] and B [out, rank] of each layer; -1: more than 2^60. */
static int64_t adapters(const struct model *m, const struct training *t, int *tensors)
{
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim, f = (m->mlp == MLP_GATED ? 2 : 1) * m->ffn, all;
    const struct { const char *name; int64_t sides; } layer[] = {
        { "linear_qkv", m->hidden + q + 2 * kv }, { "linear_proj", q + m->hidden },
        { "linear_fc1", m->hidden + f }, { "linear_fc2", m->ffn + m->hidden },
    };
    int64_t sides = 0;

    *tensors = 0;
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        if (training_bridge_adapts(t, layer[i].name)) {
            sides += layer[i].sides;
            *tensors += 2 * (int)m->layers;
        }
    return checked_mul(m->layers * sides, t->rank, &all) ? all : -1;
}

int training_bridge_apply(struct model *m, const struct training *t, const char *where)
{
    int tensors;
    int64_t all, params;

    if (check(t, where) < 0)
        return -1;
    all = adapters(m, t, &tensors);
    if (all < 0 || !checked_add(m->params, all, &params))
        return fail("%s: lora.rank: %lld makes more than 2^60 parameters", where, (long long)t->rank);
    for (int i = 0; i < m->ntensors; i++)
        m->tensors[i].frozen = true;
    m->active += all;
    m->params = params;
    m->trainable = all;
    m->ntrainable = tensors;
    m->training = *t;
    return 0;
}
