/* zero3_flow.c -- which modules backward comes to where not everything trains: those whose output needs a gradient; and
 * which of them say that they are done: those that read something that needs one.
 *
 * parameter_offload.py hangs both hooks on autograd's graph (PreBackwardFunctionForModule on outputs,
 * PostBackwardFunctionModule on inputs).  In blocks behind the first one everything needs a gradient, for each block has
 * something that trains; so it does in the head.  What is found here is so of the embedding and of the first block. */
#include "model/framework/deepspeed_3/zero3_tree.h"

#include "model/arch/training.h"
#include "model/program/program.h"

/* What needs a gradient so far. */
struct flow {
    const struct model *m;
    bool requires;                  /* the embedding's output, whatever trains */
    bool hidden, normed, q, k, v, branch, mlp, inner;
    bool has_norm, has_mlp_norm;    /* normed, mlp: else what is there without a norm */
    int  norms;                     /* of q and k, without weights */
    bool last;                      /* what the last module made */
};

static bool trains(const struct model *m, int module)
{
    const struct module *of = &m->modules[module];

    for (int t = of->first; t < of->first + of->ntensors; t++)
        if (!m->tensors[t].frozen)
            return true;
    return false;
}

static bool reads(const struct flow *f, enum tensor_role role)
{
    bool sum = f->hidden || f->branch;

    switch (role) {
    case ROLE_TOKENS: case ROLE_POSITIONS:
        return false;
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV:
        return f->has_norm ? f->normed : f->hidden;
    case ROLE_Q_NORM:
        return f->q;
    case ROLE_K_NORM:
        return f->k;
    case ROLE_ATTN_OUT:
        return f->q || f->k || f->v;
    case ROLE_NORM_ATTN_POST:
        return f->branch;
    case ROLE_NORM_MLP:
        return f->m->parallel ? f->hidden : sum || f->inner;
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP:
        return f->has_mlp_norm ? f->mlp : f->m->parallel ? f->normed : sum;
    case ROLE_DOWN: case ROLE_NORM_MLP_POST:
        return f->inner;
    default:
        return sum;
    }
}

static void makes(struct flow *f, enum tensor_role role, bool needs)
{
    switch (role) {
    case ROLE_TOKENS: case ROLE_POSITIONS:
        f->hidden |= needs || (f->requires && role == ROLE_TOKENS);
        f->last = f->hidden;
        return;
    case ROLE_NORM_ATTN:
        f->normed = needs;
        f->has_norm = true;
        break;
    case ROLE_Q: case ROLE_Q_NORM: f->q |= needs; break;
    case ROLE_K: case ROLE_K_NORM: f->k |= needs; break;
    case ROLE_V:                   f->v |= needs; break;
    case ROLE_QKV:                 f->q |= needs; break;
    case ROLE_ATTN_OUT: case ROLE_NORM_ATTN_POST:
        f->branch |= needs;
        break;
    case ROLE_NORM_MLP:
        f->mlp = needs;
        f->has_mlp_norm = true;
        break;
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN: case ROLE_NORM_MLP_POST:
        f->inner |= needs;
        break;
    default:
        f->hidden |= needs;
        break;
    }
    f->last = needs;
}

/* A module with weights, or (its role is that of the weight before) an adapter's B. */
static void own_weights(struct flow *f, struct z3_node *x)
{
    const struct tensor *first = &f->m->tensors[f->m->modules[x->module].first];
    bool in = first->adapter == ADAPTER_LORA_B || reads(f, first->role), out = in || trains(f->m, x->module);

    x->dead_in = !in;
    x->dead_out = !out && !(first->role == ROLE_TOKENS && f->requires);
    makes(f, first->role, out);
}

/* A module without weights hands on what it reads; one with parts reads what its first part reads, and makes what its last part makes. */
static void walk(struct flow *f, struct z3_tree *t)
{
    for (int i = 0; i < t->norder; i++) {
        int k = t->order[i];
        struct z3_node *x = k ? &t->node[(k < 0 ? -k : k) - 1] : NULL;        /* 0: the blocks */
        bool whole = k > 0 ? t->order[i + 1] == -k : k < 0 && t->order[i - 1] == -k;
        if (k == 0)
            f->hidden = f->last = true;
        else if (k > 0 && whole && x->module >= 0)
            own_weights(f, x);
        else if (k > 0 && whole && x->rotary)       /* q's norm, then k's */
            x->dead_in = x->dead_out = !(f->norms++ ? f->k : f->q);
        else if (k > 0 && whole)
            x->dead_in = x->dead_out = !f->last;
        else if (k < 0 && !whole)
            x->dead_out = !f->last;
    }
    for (int i = t->norder - 2; i >= 0; i--)
        if (t->order[i] > 0 && t->order[i + 1] > 0)
            t->node[t->order[i] - 1].dead_in = t->node[t->order[i + 1] - 1].dead_in;
}

void z3_flow(const struct local_model *local, struct z3_tree *outer, struct z3_tree *block)
{
    const struct plan *p = local->plan;
    struct flow f = { .m = local->model, .requires = program_input_requires_grad(p) };

    if (training_is_all(&local->model->training))
        return;
    walk(&f, outer);
    f = (struct flow){ .m = local->model, .hidden = !program_first_differs(p) };
    walk(&f, block);
}
