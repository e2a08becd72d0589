/* te_again.c -- see te_again.h. */
#include "model/program/te_again.h"

#include <string.h>

#include "model/program/te_latent.h"
#include "model/program/te_model.h"
#include "model/program/te_moe.h"

static void core_attn(struct torch_model *b, const var in[], var out[]) { out[0] = te_core(b, in[0], in[1], in[2]); }
static void mlp(struct torch_model *b, const var in[], var out[]) { out[0] = te_mlp(b, in[0]); }
static void moe(struct torch_model *b, const var in[], var out[]) { out[0] = te_moe(b, in[0]); }
static void shared_experts(struct torch_model *b, const var in[], var out[]) { out[0] = te_shared_experts(b, in[0]); }
static void input_norm(struct torch_model *b, const var in[], var out[]) { out[0] = te_norm_of(b, "norm", in[0], ROLE_NORM_ATTN); }
static void pre_mlp_norm(struct torch_model *b, const var in[], var out[]) { out[0] = te_norm_of(b, "mlp norm", in[0], ROLE_NORM_MLP); }
static void moe_act(struct torch_model *b, const var in[], var out[]) { out[0] = te_moe_act(b, in[0], in[1]); }
static void mla_up_proj(struct torch_model *b, const var in[], var out[]) { te_latent_up(b, in, out); }

static const struct {
    const char *name;           /* among recompute_modules */
    void      (*run)(struct torch_model *b, const var in[], var out[]);
    bool        empties;        /* CheckpointWithoutOutput */
} modules[NTE_MODULE] = {
    [TE_CORE_ATTN] = { "core_attn", core_attn, false },
    [TE_MLP] = { "mlp", mlp, false },
    [TE_MOE] = { "moe", moe, false },
    [TE_SHARED_EXPERTS] = { "shared_experts", shared_experts, false },
    [TE_INPUT_NORM] = { "layernorm", input_norm, true },
    [TE_PRE_MLP_NORM] = { "layernorm", pre_mlp_norm, true },
    [TE_MOE_ACT] = { "moe_act", moe_act, true },
    [TE_MLA_UP_PROJ] = { "mla_up_proj", mla_up_proj, true },
};

/* A norm that is part of a linear layer is no module (IdentityOp).  Within a module that runs again, whose first run keeps nothing, there is
 * nothing to keep less of; in its second run there is. */
static bool runs_again(const struct torch_model *b, enum te_module module)
{
    if (!b->selective || b->t->forget || !plan_recomputes_module(b->p, modules[module].name))
        return false;
    return module == TE_INPUT_NORM ? !te_is_part_of_layer(b, ROLE_NORM_ATTN) : module != TE_PRE_MLP_NORM || !te_is_part_of_layer(b, ROLE_NORM_MLP);
}

void te_module(struct torch_model *b, enum te_module module, const var in[TE_MODULE_VARS], var out[TE_MODULE_VARS], int *region)
{
    struct tape *t = b->t;

    if (region)
        *region = -1;
    if (!runs_again(b, module)) {
        modules[module].run(b, in, out);
        return;
    }
    if (region)
        *region = b->nagain_modules;
    struct te_region *r = &b->again_module[b->nagain_modules++];
    *r = (struct te_region){ .module = module, .block = b->block, .half = t->half, .node0 = t->nnodes };
    for (int i = 0; i < TE_MODULE_VARS; i++)
        r->in[i] = tape_hold(t, in[i]);
    t->forget = true;
    modules[module].run(b, in, out);
    t->forget = false;
    memcpy(r->out, out, sizeof r->out);
    for (int i = 0; i < TE_MODULE_VARS; i++)
        r->storage[i] = modules[module].empties ? t->vars[out[i]].store : 0;
    r->node1 = r->hook = t->nnodes;
}

void te_discard(struct torch_model *b, int region)
{
    struct tape *t = b->t;

    if (region < 0)
        return;
    struct te_region *r = &b->again_module[region];
    r->hook = t->nnodes;
    for (int i = 0; i < TE_MODULE_VARS; i++)
        tape_empty(t, r->storage[i]);
}

/* ---- backward ---- */

/* A module's second run: its nodes, its result, and what of it runs again in turn. */
struct second {
    int node0, node1;
    var out[TE_MODULE_VARS];
    struct te_region within[TE_REGIONS];
    int n;
};

static void run_again(struct torch_model *b, const struct te_region *r, struct second *s)
{
    struct tape *t = b->t;
    int store0 = t->nstores, block = b->block;

    b->block = r->block;
    b->nagain_modules = 0;
    t->half = r->half;
    t->module = -1;
    *s = (struct second){ .node0 = t->nnodes };
    modules[r->module].run(b, r->in, s->out);
    s->node1 = t->nnodes;
    s->n = b->nagain_modules;
    memcpy(s->within, b->again_module, sizeof s->within);
    for (int i = 0; i < TE_MODULE_VARS; i++)
        tape_refill(t, r->storage[i]);
    tape_keep(t, store0);
    b->block = block;
}

/* torch.autograd.backward(outputs, args), within the checkpoint's own backward, which has names for both until it returns. */
static void back_through(struct torch_model *b, const struct te_region *r, const struct second *s)
{
    struct tape *t = b->t;
    int gradient[TE_MODULE_VARS], block = b->block;

    b->block = r->block;
    for (int i = 0; i < TE_MODULE_VARS; i++) {
        if (r->out[i])
            tape_graft(t, r->out[i], s->out[i]);
        gradient[i] = tape_hold_gradient(t, s->out[i]);
    }
    te_backward(b, s->within, s->n, s->node0, s->node1);
    for (int i = 0; i < TE_MODULE_VARS; i++) {
        tape_drop_store(t, gradient[i]);
        tape_drop(t, s->out[i]);
        tape_drop(t, r->in[i]);
    }
    b->block = block;
}

/* Where a module has something done in backward, twice its node, and one more for a hook: it comes before whatever else is at that node. */
static int turn_of(const struct te_region *r, bool ran)
{
    return ran ? 2 * r->node1 : 2 * r->hook + modules[r->module].empties;
}

/* The module whose turn comes first, backward; -1: all are done. */
static int next_of(const struct te_region *regions, int n, const bool ran[], const bool done[])
{
    int next = -1;

    for (int i = 0; i < n; i++)
        if (!done[i] && (next < 0 || turn_of(&regions[i], ran[i]) > turn_of(&regions[next], ran[next])))
            next = i;
    return next;
}

void te_backward(struct torch_model *b, const struct te_region *regions, int n, int node0, int node1)
{
    struct second second[TE_REGIONS];
    bool ran[TE_REGIONS] = { false }, done[TE_REGIONS] = { false };
    int end = node1;

    for (int i; (i = next_of(regions, n, ran, done)) >= 0;) {
        int at = turn_of(&regions[i], ran[i]) / 2;
        tape_backward(b->t, at, end);
        end = at;
        if (!ran[i]) {
            run_again(b, &regions[i], &second[i]);
            ran[i] = true;
        } else {
            back_through(b, &regions[i], &second[i]);
            done[i] = true;
            end = regions[i].node0;
        }
    }
    tape_backward(b->t, node0, end);
}
