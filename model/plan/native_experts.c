/* native_experts.c -- see native_experts.h. */
#include "model/plan/native_experts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

bool native_experts_has(const struct plan *p)
{
    return p->parallel.expert > 1 && p->ds.moe_layer == MOE_NATIVE;
}

/* "model.layers.3.mlp" of the module "model.layers.3.mlp.experts". */
static int mlp_length(const struct module *of)
{
    const char *last = strrchr(of->name, '.');

    assert(last);
    return (int)(last - of->name);
}

/* One expert's matrix, of the tensor that all have together. */
static void add(struct model *m, const struct tensor *all, int64_t expert, const char *name)
{
    struct tensor *t = &m->tensors[m->ntensors++];
    const struct module *of = &m->modules[all->module];

    *t = *all;
    t->ndim = 2;
    t->shape[0] = all->shape[1];
    t->shape[1] = all->shape[2];
    t->shape[2] = 1;
    t->numel = t->shape[0] * t->shape[1];
    snprintf(t->name, sizeof t->name, "%.*s.deepspeed_moe.experts.deepspeed_experts.%d.%s.weight", mlp_length(of), of->name, (int)expert, name);
    m->ntrainable++;
}

/* Three tensors: gates, downs, ups (titan_experts.c). */
static void add_experts(struct model *m, const struct tensor *three)
{
    static const struct { int at; const char *name; } order[] = { { 0, "gate_proj" }, { 2, "up_proj" }, { 1, "down_proj" } };

    m->modules[three->module].first = m->ntensors;
    m->modules[three->module].ntensors = 3 * (int)three->shape[0];
    for (int64_t e = 0; e < three->shape[0]; e++)
        for (size_t i = 0; i < sizeof order / sizeof *order; i++)
            add(m, &three[order[i].at], e, order[i].name);
}

/* TopKGate's wg. */
static void rename_gate(const struct model *m, struct tensor *t)
{
    const struct module *of = &m->modules[t->module];
    const char *mlp = strstr(of->name, ".mlp");

    assert(mlp);
    snprintf(t->name, sizeof t->name, "%.*s.mlp.deepspeed_moe.gate.wg.weight", (int)(mlp - of->name), of->name);
}

int native_experts_split(struct model *m, uint8_t **partial)
{
    int blocks = 0, old = m->ntensors, each = 0;
    struct tensor *from = m->tensors;

    for (int i = 0; i < old; i++) {
        blocks += from[i].role == ROLE_EXPERTS_IN;
        each = from[i].role == ROLE_EXPERTS_IN ? 3 * ((int)from[i].shape[0] - 1) : each;
    }
    struct tensor *to = calloc((size_t)(old + blocks * each) + 1, sizeof *to);
    uint8_t *sums = calloc((size_t)(old + blocks * each) + 1, 1);
    if (!to || !sums) {
        free(to);
        free(sums);
        return fail("out of memory for a rank's experts");
    }
    m->tensors = to;
    m->ntensors = m->ntrainable = 0;
    for (int i = 0; i < old; i++) {
        if (from[i].role == ROLE_EXPERTS_IN) {
            add_experts(m, &from[i]);
            i += 2;
            continue;
        }
        if (i == m->modules[from[i].module].first)
            m->modules[from[i].module].first = m->ntensors;
        sums[m->ntensors] = (*partial)[i];
        to[m->ntensors] = from[i];
        if (from[i].role == ROLE_ROUTER)
            rename_gate(m, &to[m->ntensors]);
        m->ntensors++;
        m->ntrainable++;
    }
    m->per_block += each;
    free(from);
    free(*partial);
    *partial = sums;
    return 0;
}
