/* zero3_trace.c -- the hooks of a forward and backward pass over the tree of modules, recompute included. */
#include "model/framework/deepspeed_3/zero3_trace.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/arch/training.h"
#include "model/framework/deepspeed_3/zero3_tree.h"
#include "model/plan/loss_check.h"
#include "model/program/torch_model.h"

/* ---- modules ---- */

struct builder {
    const struct ds *d;
    struct z3_trace *t;
    struct z3_tree   outer, block;
    int              root, outer0, block0;      /* indices of ids in t->modules */
};

/* Its index among the modules of its piece, as kernels count them. */
static int kernel_module(const struct model *m, int module)
{
    int n = 0;

    if (m->modules[module].block >= 0)
        for (int i = module - 1; i >= 0 && m->modules[i].block == m->modules[module].block; i--)
            n++;
    else
        for (int i = 0; i < module; i++)
            n += m->modules[i].block == m->modules[module].block;
    return n;
}

/* Tensors of all modules below `path`, which follow one another. */
static void add_below(const struct model *m, const char *path, struct z3_module *own)
{
    int end = 0;

    own->all_first = m->ntensors;
    for (int i = 0; i < m->nmodules; i++) {
        const struct module *q = &m->modules[i];
        if (!zero3_tree_below(q, path))
            continue;
        own->all_first = q->first < own->all_first ? q->first : own->all_first;
        end = q->first + q->ntensors > end ? q->first + q->ntensors : end;
    }
    own->all_n = end > own->all_first ? end - own->all_first : 0;
}

static struct z3_module own_tensors(const struct builder *b, const struct z3_node *x, int block)
{
    const struct model *m = b->d->m;
    struct z3_module own = { .kernel_module = -1, .bit = 1 };

    if (x->module >= 0) {
        const struct module *q = &m->modules[x->module];
        own.first = q->first + block * m->per_block;
        own.n = q->ntensors;
        own.kernel_module = x->no_hook ? -1 : kernel_module(m, x->module);      /* of two calls the first one's */
        for (int i = x->module + 1; x->leaf && i < m->nmodules && zero3_tree_below(&m->modules[i], x->path); i++) {
            own.n += m->modules[i].ntensors;
            own.more_modules++;
        }
    } else if (m->tied && !strcmp(x->path, "lm_head")) {
        while (own.first < m->ntensors && m->tensors[own.first].role != ROLE_TOKENS)
            own.first++;
        own.n = own.first < m->ntensors;        /* a synthetic model has none */
        own.kernel_module = MODULE_TIED;
        own.bit = 2;
    } else if (x->external >= 0) {
        own.first = m->modules[x->external].first + block * m->per_block;
        own.n = 1;
        own.bit = 2;
        own.external = true;
    } else {
        add_below(m, x->path, &own);
        return own;
    }
    own.all_first = own.first;
    own.all_n = own.n;
    return own;
}

/* A loss that reads the head's weight has stage 3 gather it where the model asks for it, and from there on take it for the whole model's own:
 * the module around the layers, which PEFT has two more around. */
static int asks_for_head(const struct builder *b)
{
    if (!loss_reads_head(b->d->p->loss))
        return -1;
    return training_is_lora(&b->d->m->training) ? b->outer0 + 1 : b->root;
}

static int head_weight(const struct builder *b)
{
    const struct model *m = b->d->m;
    int t = m->ntensors - 1;

    while (t > 0 && (m->tensors[t].role != ROLE_HEAD || m->tensors[t].is_bias || m->tensors[t].adapter != ADAPTER_NONE))
        t--;
    return t;
}

/* Ids: the root, the outer nodes, then per block the block itself and its nodes. */
static int make_modules(struct builder *b)
{
    int layers = b->d->layers, per = b->block.n + 1;

    b->root = 0;
    b->outer0 = 1;
    b->block0 = 1 + b->outer.n;
    b->t->nmodules = b->block0 + layers * per;
    b->t->modules = calloc((size_t)b->t->nmodules, sizeof *b->t->modules);
    if (!b->t->modules)
        return fail("out of memory for the module trace");
    b->t->modules[b->root].kernel_module = -1;
    b->t->modules[b->root].all_n = b->d->m->ntensors;
    for (int i = 0; i < b->outer.n; i++)
        b->t->modules[b->outer0 + i] = own_tensors(b, &b->outer.node[i], 0);
    if (asks_for_head(b) >= 0) {
        struct z3_module *own = &b->t->modules[asks_for_head(b)];
        own->first = head_weight(b);
        own->n = 1;
        own->bit = 2;
        own->external = true;
    }
    for (int i = 0; i < b->block.n; i++) {
        struct z3_module own = own_tensors(b, &b->block.node[i], 0);
        for (int k = 0; k < layers; k++) {
            b->t->modules[b->block0 + k * per] = (struct z3_module){ .kernel_module = -1, .all_first = b->d->block0 + k * b->d->per_block,
                                                                     .all_n = b->d->per_block };
            b->t->modules[b->block0 + k * per + 1 + i] = own;
            own.first += b->d->per_block;
            own.all_first += b->d->per_block;
        }
    }
    return 0;
}

/* ---- events ---- */

struct z3_event *z3_trace_event(struct z3_trace *t, enum z3_kind kind, int module, int block)
{
    t->events = room_for(t->events, t->nevents, &t->cap_events, sizeof *t->events);
    t->events[t->nevents] = (struct z3_event){ .kind = (uint8_t)kind, .module = module, .block = block, .kernel = -1 };
    if (kind == Z3_FETCH) {
        t->nsteps++;
        t->nuses += t->modules[module].n;
    }
    return &t->events[t->nevents++];
}

static struct z3_event *event(struct builder *b, enum z3_kind kind, int module, int block) { return z3_trace_event(b->t, kind, module, block); }

static void border(struct builder *b, enum z3_kind kind, enum piece_id piece, enum pass pass, int block)
{
    struct z3_event *e = event(b, kind, 0, block);

    e->piece = (uint8_t)piece;
    e->pass = (uint8_t)pass;
}

static int block_id(const struct builder *b, int block, int node)
{
    return b->block0 + block * (b->block.n + 1) + node + 1;     /* node -1: the block itself */
}

/* Position of a tensor in the order in which gradients become ready. */
static int ready_at(const struct ds *d, enum piece_id piece, int tensor)
{
    for (int i = 0; i < d->nready[piece]; i++)
        if (d->ready[piece][i].tensor == tensor)
            return i;
    return d->nready[piece];
}

/* DeepSpeed replaces nn.functional.linear (zero/linear.py, LinearFunctionForZeroStage3), whose
 * gradients come in the order of its arguments, input, weight, bias; norms' do by themselves. */
static bool weight_before_bias(const struct ds *d)
{
    return !torch_own_linear(d->m);
}

/* Does the gradient of t come after that of u, another tensor of the same module? */
static bool after(const struct ds *d, int t, int at, int u, int u_at)
{
    const struct tensor *x = d->m->tensors;

    if (weight_before_bias(d) && x[t].is_bias != x[u].is_bias && !role_is_of_experts(x[t].role))     /* which no linear layers are */
        return x[t].is_bias;
    return at > u_at;
}

/* The module's gradients in autograd's order; a leaf's in that of its parameters, once it is through (stage3.py,
 * _leaf_module_hooks). */
static void grads(struct builder *b, int id, enum piece_id piece, int block)
{
    const struct z3_module *own = &b->t->modules[id];
    int offset = piece_is_block(piece) ? block * b->d->per_block : 0;
    int order[8], at[8], n = 0;

    for (int k = 0; own->bit == 1 && k < own->n && n < 8; k++) {
        if (b->d->m->tensors[own->first + k].frozen)
            continue;
        int t = own->first + k, where = ready_at(b->d, piece, t - offset), i = n++;
        for (; i > 0 && !own->more_modules && after(b->d, order[i - 1], at[i - 1], t, where); i--) {
            at[i] = at[i - 1];
            order[i] = order[i - 1];
        }
        at[i] = where;
        order[i] = t;
    }
    for (int i = 0; i < n; i++)
        event(b, Z3_GRAD, id, block)->tensor = order[i];
}

/* Does a block call this module?  llama4's layers have a window where they have rotary positions. */
static bool is_called(const struct builder *b, int block, const struct z3_node *x) { return !x->rotary || model_windowed(b->d->m, block); }

/* The kernel after which a module's first gradient is there. */
static int first_ready(const struct builder *b, int id, enum piece_id piece, int block)
{
    const struct z3_module *own = &b->t->modules[id];
    int first = INT_MAX;

    for (int k = 0; own->bit == 1 && k < own->n; k++) {
        int at = b->d->m->tensors[own->first + k].frozen ? INT_MAX : ready_at(b->d, piece, own->first + k - block * b->d->per_block);
        first = at < first ? at : first;
    }
    return first;
}

/* One node's opening (k > 0) or closing in a block's forward. */
static void forward_node(struct builder *b, int block, int k)
{
    int node = abs(k) - 1;
    const struct z3_node *x = &b->block.node[node];

    if (!is_called(b, block, x))
        return;
    if (!x->function)
        event(b, k > 0 ? Z3_FETCH : Z3_RELEASE, block_id(b, block, node), block);
    if (x->asks >= 0 && (k > 0) == (x->module < 0))
        event(b, Z3_ASK, block_id(b, block, node), block)->tensor = b->d->m->modules[x->asks].first + block * b->d->per_block;
}

/* Has backward nothing to do with what a node makes, reads? */
static bool dead_out(const struct z3_node *x, int block) { return block == 0 && x->dead_out; }
static bool dead_in(const struct z3_node *x, int block) { return block == 0 && x->dead_in; }

static void forward_block(struct builder *b, int block)
{
    enum piece_id piece = ds_piece(b->d, block);

    border(b, Z3_ENTER, piece, PASS_FORWARD, block);
    event(b, Z3_FETCH, block_id(b, block, -1), block);
    for (int i = 0; i < b->block.norder; i++)
        forward_node(b, block, b->block.order[i]);
    event(b, Z3_RELEASE, block_id(b, block, -1), block);
    border(b, Z3_LEAVE, piece, PASS_FORWARD, block);
}

/* The node whose saved tensor backward needs first: an active dropout's mask, the scores by which experts are combined, else
 * the input of the last module with parameters. */
static int first_needed(const struct builder *b)
{
    for (int i = b->block.norder - 1; i >= 0; i--) {
        const struct z3_node *x = &b->block.node[abs(b->block.order[i]) - 1];
        if (b->block.order[i] < 0 && (x->module >= 0 || x->saves || (x->dropout && b->d->p->dropout > 0)))
            return -b->block.order[i] - 1;
    }
    return -1;
}

/* torch.utils.checkpoint, not reentrant: the block's forward again, without the
 * block's own hook, until the tensor that is needed is there. */
static void recompute(struct builder *b, int block, int until)
{
    for (int i = 0; i < b->block.norder; i++) {
        forward_node(b, block, b->block.order[i]);
        if (b->block.order[i] == until + 1)
            return;
    }
}

static void backward_fetch(struct builder *b, int id, const struct z3_node *x, int block, bool late)
{
    struct z3_event *e;

    if (x && (x->no_hook || x->function || dead_out(x, block)))
        return;
    b->t->modules[id].has_backward = true;
    e = event(b, Z3_FETCH, id, block);
    e->backward = true;
    e->late = late;
}

static void backward_release(struct builder *b, int id, const struct z3_node *x, int block)
{
    if (!x || !(x->no_release || x->function || dead_in(x, block)))
        event(b, Z3_RELEASE, id, block)->backward = true;
}

static void backward_block(struct builder *b, int block)
{
    enum piece_id piece = ds_piece(b->d, block);
    bool again = piece_is_recomputed(piece) && recompute_whole(b->d->p->recompute);
    int until = again ? first_needed(b) : -1, around = -1;      /* a module with weights and modules below, whose gradients come among these' */

    border(b, Z3_ENTER, piece, PASS_BACKWARD, block);
    backward_fetch(b, block_id(b, block, -1), NULL, block, false);
    for (int i = b->block.norder - 1; i >= 0; i--) {
        int k = b->block.order[i], node = abs(k) - 1, id = block_id(b, block, node);
        if (!is_called(b, block, &b->block.node[node]))
            continue;
        if (k < 0) {
            backward_fetch(b, id, &b->block.node[node], block, node == until);
            if (node == until)
                recompute(b, block, until);
            if (b->block.order[i - 1] != -k && b->block.node[node].module >= 0) {
                around = id;
                continue;
            }
            if (around >= 0 && first_ready(b, around, piece, block) < first_ready(b, id, piece, block)) {
                grads(b, around, piece, block);
                around = -1;
            }
            if (!b->block.node[node].no_hook)
                grads(b, id, piece, block);
        } else {
            if (around == id) {
                grads(b, id, piece, block);
                around = -1;
            }
            backward_release(b, id, &b->block.node[node], block);
        }
    }
    if (block > 0 || !program_first_differs(b->d->p))
        backward_release(b, block_id(b, block, -1), NULL, block);
    border(b, Z3_LEAVE, piece, PASS_BACKWARD, block);
}

/* The loss is computed before the weight is released. */
static void read_head(struct builder *b)
{
    event(b, Z3_ASK, asks_for_head(b), 0)->tensor = head_weight(b);
    border(b, Z3_LEAVE, PIECE_HEAD, PASS_FORWARD, 0);
}

static void head_gradient(struct builder *b, int id)
{
    if (id == asks_for_head(b) && !b->d->m->tensors[head_weight(b)].frozen)
        event(b, Z3_GRAD, id, 0)->tensor = head_weight(b);
}

/* Forward, then backward; the root's hooks are outermost. */
static void forward(struct builder *b)
{
    border(b, Z3_ENTER, PIECE_EMBED, PASS_FORWARD, 0);
    event(b, Z3_FETCH, b->root, 0);
    for (int i = 0; i < b->outer.norder; i++) {
        int k = b->outer.order[i];
        if (k < 0 && b->outer0 - k - 1 == asks_for_head(b))
            read_head(b);
        if (k != 0) {
            event(b, k > 0 ? Z3_FETCH : Z3_RELEASE, b->outer0 + abs(k) - 1, 0);
            continue;
        }
        border(b, Z3_LEAVE, PIECE_EMBED, PASS_FORWARD, 0);
        for (int block = 0; block < b->d->layers; block++)
            forward_block(b, block);
        border(b, Z3_ENTER, PIECE_HEAD, PASS_FORWARD, 0);
    }
    if (asks_for_head(b) == b->root)
        read_head(b);
    event(b, Z3_RELEASE, b->root, 0);
    if (asks_for_head(b) < 0)
        border(b, Z3_LEAVE, PIECE_HEAD, PASS_FORWARD, 0);
}

static void backward(struct builder *b)
{
    enum piece_id piece = PIECE_HEAD;

    border(b, Z3_ENTER, PIECE_HEAD, PASS_BACKWARD, 0);
    backward_fetch(b, b->root, NULL, 0, false);
    head_gradient(b, b->root);
    for (int i = b->outer.norder - 1; i >= 0; i--) {
        int k = b->outer.order[i], node = abs(k) - 1;
        if (k == 0) {
            border(b, Z3_LEAVE, PIECE_HEAD, PASS_BACKWARD, 0);
            for (int block = b->d->layers - 1; block >= 0; block--)
                backward_block(b, block);
            piece = PIECE_EMBED;
            border(b, Z3_ENTER, PIECE_EMBED, PASS_BACKWARD, 0);
        } else if (k < 0) {
            backward_fetch(b, b->outer0 + node, &b->outer.node[node], 0, false);
            head_gradient(b, b->outer0 + node);
            grads(b, b->outer0 + node, piece, 0);
        } else {
            backward_release(b, b->outer0 + node, &b->outer.node[node], 0);
        }
    }
    border(b, Z3_LEAVE, PIECE_EMBED, PASS_BACKWARD, 0);
}

int z3_trace_build(const struct ds *d, struct z3_trace *t)
{
    struct builder *b;

    *t = (struct z3_trace){ 0 };
    if (d->m->recorded)
        return z3_trace_recorded(d, t);
    b = calloc(1, sizeof *b);
    if (!b)
        return fail("out of memory for the module trace");
    b->d = d;
    b->t = t;
    z3_trees(d->local, &b->outer, &b->block);
    if (make_modules(b) < 0) {
        free(b);
        return -1;
    }
    forward(b);
    t->backward = t->nevents;
    backward(b);
    free(b);
    return 0;
}

/* Blocks are alike: of each piece its first pass counts. */
void z3_trace_hooks(const struct z3_trace *t, uint16_t hooks[NPIECE][NPASS][NPASS])
{
    bool counted[NPIECE][NPASS] = { 0 }, counts = false;
    uint16_t *of = NULL;

    memset(hooks, 0, NPIECE * sizeof *hooks);
    for (int i = 0; i < t->nevents; i++) {
        const struct z3_event *e = &t->events[i];
        if (e->kind == Z3_ENTER) {
            counts = !counted[e->piece][e->pass];
            counted[e->piece][e->pass] = true;
            of = hooks[e->piece][e->pass];
        }
        if (counts && (e->kind == Z3_FETCH || e->kind == Z3_RELEASE))
            of[e->backward ? PASS_BACKWARD : PASS_FORWARD]++;
    }
}

void z3_trace_free(struct z3_trace *t)
{
    free(t->events);
    free(t->modules);
    for (int64_t i = 0; i < t->nlists; i++)
        free(t->lists[i]);
    free(t->lists);
    *t = (struct z3_trace){ 0 };
}
