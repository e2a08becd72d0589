/* program_torch.c -- pieces from the transformers modelling code run on a tape. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/hybrid.h"
#include "model/program/program_internal.h"
#include "model/program/tape_internal.h"
#include "model/program/te_again.h"
#include "model/program/te_model.h"
#include "model/program/te_mtp.h"
#include "model/program/torch_moves.h"
#include "model/program/torch_parts.h"
#include "model/program/torch_split.h"

/* The last block stands for all.  Two are traced; three where the first one differs, for then the second one frees what is
 * made once for all blocks, of which the first keeps nothing. */
enum { EMBED, BLOCK0, SECOND, LAST, HEAD, NPART };

struct part {
    int node0, node1;                   /* nodes of its forward */
    int kernel0[NPASS], kernel1[NPASS];
    var out;
    struct torch_region again[TORCH_REGIONS];   /* what backward runs again */
    int nagain;
    struct te_region module[TE_REGIONS];        /* the same of Megatron's modules */
    int nmodules;
    int64_t outlives;                   /* see struct piece */
    int graph[TORCH_USES], ngraphs;     /* first nodes of the graphs behind the first */
};

struct run {
    struct tape        t;
    struct torch_model b;
    struct torch_splits splits;
    struct part        part[NPART];
    enum recompute     recompute;
    bool               compiles;        /* blocks, each by itself */
    int                taken[NPART];    /* results of a selective checkpoint that its second run needs; -1: not known */
    struct plan        as;              /* its layers all of the kind that is traced, */
    int                traced;          /* the first of which this is */
    bool               unscaled;
    const struct local_model *local;
    bool               megatron, stages;        /* its layers; embedding and head are on different ranks */
    int                returns[NPASS];  /* kernels when the model returned, and when backward came to it */
    int                heads[NPASS];    /* the same of the head's module */
    int                calls[HEAD_CALLS][2][NPASS];     /* the same of each call of such by the loss, and of its return */
};

static bool is_traced(const struct run *r, int part) { return part != SECOND || program_first_differs(r->local->plan); }

static void reverse(struct kernel *k, int n)
{
    for (int i = 0; i < n / 2; i++) {
        struct kernel swap = k[i];
        k[i] = k[n - 1 - i];
        k[n - 1 - i] = swap;
    }
}

/* [a][b] -> [b][a]. */
static void rotate(struct kernel *k, int a, int b)
{
    reverse(k, a);
    reverse(k + a, b);
    reverse(k, a + b);
}

/* The tape's number of a pass over a part. */
static int section(int id, enum pass pass) { return id * NPASS + (int)pass; }

/* What a compiled graph makes and frees before its first kernel. */
static void begin_graph(struct run *r, int half)
{
    if (!r->t.compiled)
        return;
    r->t.half = half;
    r->t.module = -1;
    tape_kernel(&r->t, "compiled graph", KC_COPY);
}

static void begin_part(struct run *r, int id)
{
    struct part *p = &r->part[id];

    r->b.block = id == EMBED ? TENSOR_EMBED : id == HEAD ? TENSOR_HEAD : r->b.traced;
    r->b.nagain_modules = 0;
    r->t.part = section(id, PASS_FORWARD);
    r->t.compiled = r->compiles && id != EMBED && id != HEAD;
    p->kernel0[PASS_FORWARD] = tape_cut(&r->t);
    p->node0 = r->t.nnodes;
    r->t.ncast = 0;
    torch_splits_begin(&r->splits);
    begin_graph(r, 0);
}

static void end_part(struct run *r, int id, int store0)
{
    struct part *p = &r->part[id];

    memcpy(p->module, r->b.again_module, sizeof p->module);
    p->nmodules = r->b.nagain_modules;
    p->kernel1[PASS_FORWARD] = tape_cut(&r->t);
    p->node1 = r->t.nnodes;
    p->ngraphs = r->splits.ngraphs;
    memcpy(p->graph, r->splits.graph, sizeof p->graph);
    tape_keep(&r->t, store0);
}

static var block(struct run *r, var x) { return r->megatron ? te_block(&r->b, x) : torch_block(&r->b, x); }

static var checkpointed_block(struct run *r, var x, struct torch_region *again)
{
    struct tape *t = &r->t;
    int taken = r->compiles ? r->taken[t->part / NPASS] : -1;     /* the partitioner keeps what backward needs */
    const var cos = r->b.cos, sin = r->b.sin, bias = r->b.bias;
    const var args[TORCH_ARGS] = { x, torch_mask(&r->b), cos, sin, r->b.positions, r->b.other_mask, bias };

    *again = (struct torch_region){ .node0 = t->nnodes };
    for (int i = 0; i < TORCH_ARGS; i++)
        again->args[i] = tape_hold(t, args[i]);
    if (torch_casts_tables(&r->b)) {            /* FSDP's hook runs before the checkpoint */
        static const int cast[] = { 2, 3, 6 };
        t->half = 0;
        for (int i = 0; i < 3; i++) {
            tape_drop(t, again->args[cast[i]]);
            again->args[cast[i]] = args[cast[i]] ? op_cast(t, args[cast[i]], r->b.dt) : 0;
        }
        r->b.cos = again->args[2];
        r->b.sin = again->args[3];
        r->b.bias = again->args[6];
        again->node0 = t->nnodes;
    }
    t->nsavers = 0;
    t->forget = true;
    again->cache0 = t->ncache;
    if (r->recompute == RECOMPUTE_OP)
        tape_selective(t, -1);
    t->most_results = taken;
    again->out = block(r, x);
    tape_unselective(t);
    t->most_results = -1;
    again->cache1 = t->ncache;
    t->forget = false;
    r->b.cos = cos;
    r->b.sin = sin;
    r->b.bias = bias;
    again->node1 = t->nnodes;
    again->savers = t->nsavers;
    return again->out;
}

static var forward_block(struct run *r, int id, var x)
{
    struct part *p = &r->part[id];
    int store0 = r->t.nstores;

    begin_part(r, id);
    if (recompute_whole(r->recompute)) {
        x = checkpointed_block(r, x, &p->again[0]);
        p->nagain = 1;
    } else {
        r->b.selective = r->recompute == RECOMPUTE_SELECTIVE;
        r->b.apart = r->recompute == RECOMPUTE_MODULES;
        r->b.nregions = 0;
        x = block(r, x);
        memcpy(p->again, r->b.region, sizeof p->again);
        p->nagain = r->b.nregions;
    }
    tape_need(&r->t, x);
    end_part(r, id, store0);
    return x;
}

static void forward(struct run *r, bool autocast)
{
    tape_reset(&r->t);
    torch_model_init(&r->b, &r->t, r->local);
    r->b.stages = r->stages;
    r->b.traced = r->traced;
    r->b.unscaled = r->unscaled;
    r->b.autocast = autocast;
    r->b.as = &r->as;
    r->b.splits = &r->splits;
    r->t.autocast = autocast;
    r->t.at_end = r->compiles && r->as.strategy == STRAT_DDP;
    r->t.turns_frozen = r->megatron && plan_version(r->local->plan) > 0 && plan_version(r->local->plan) < 14;
    r->b.kernel = attention_choice(&r->as);
    r->t.holds_beside = torch_holds_int8_inputs(r->local->model) && r->recompute != RECOMPUTE_REENTRANT;      /* nor does a node without a graph */
    r->t.away = program_saves_on_host(r->local->plan);

    int store0 = r->t.nstores;
    begin_part(r, EMBED);
    var x = r->megatron ? te_embed(&r->b) : torch_embed(&r->b);
    end_part(r, EMBED, store0);
    for (int i = BLOCK0; i < HEAD; i++)
        x = is_traced(r, i) ? forward_block(r, i, x) : x;
    store0 = r->t.nstores;
    begin_part(r, HEAD);
    r->b.nregions = 0;
    r->b.again = recompute_whole(r->recompute);
    x = r->megatron ? te_head(&r->b, x) : torch_head(&r->b, x);
    end_part(r, HEAD, store0);
    r->part[HEAD].nagain = r->megatron ? r->b.nregions : 0;
    memcpy(r->part[HEAD].again, r->b.region, sizeof r->part[HEAD].again);
    r->part[HEAD].out = x;
}

static var run_again(struct run *r, const struct torch_region *g)
{
    struct torch_model *b = &r->b;

    if (r->t.part / NPASS == HEAD && recompute_whole(r->recompute))
        return te_mtp_layer(b, g->args[0], g->args[1]);
    if (r->recompute == RECOMPUTE_SELECTIVE) {
        b->mask = g->args[3];
        b->bias = g->args[4];
        return torch_attention_core(b, g->args[0], g->args[1], g->args[2]);
    }
    b->mask = g->args[1];
    b->cos = g->args[2];
    b->sin = g->args[3];
    b->bias = g->args[6];
    return r->recompute == RECOMPUTE_MODULES ? torch_run_module(b, g->module, g->args[0]) : block(r, tape_hold(&r->t, g->args[0]));
}

/* CheckpointFunction.backward() runs all of its region, before anything else: torch's with use_reentrant, and Megatron's own
 * (core/tensor_parallel/random.py). */
static bool is_reentrant(const struct run *r) { return r->megatron || r->recompute == RECOMPUTE_REENTRANT; }

/* Up to torch 2.0 the whole region ran again. */
static bool stops_early(const struct run *r) { return !is_reentrant(r) && !plan_torch_before(r->b.p, 2001); }

/* torch.utils.checkpoint, not reentrant: the first node that needs a saved tensor
 * runs the region again, up to the last tensor that is saved; nodes before it that
 * saved nothing run first. */
static void backward_again(struct run *r, const struct torch_region *g)
{
    struct tape *t = &r->t;
    int node0 = t->nnodes, store0 = t->nstores, beside = t->nbeside;
    int k0 = t->compiled ? t->nout : tape_cut(t);       /* a compiled graph is open: what it takes first is counted with its begin */

    t->nsavers = 0;
    t->stop_after = stops_early(r) ? g->savers : 0;
    t->holds_beside = torch_holds_int8_inputs(r->local->model);
    if (r->recompute == RECOMPUTE_OP)
        tape_selective(t, g->cache0);
    r->b.again_node = node0;
    r->b.again_store = store0;
    r->b.outlives = 0;
    var out = run_again(r, g);
    r->part[t->part / NPASS].outlives = r->b.outlives;
    r->b.again_node = 0;
    r->taken[t->part / NPASS] = t->at_cache - g->cache0;
    tape_unselective(t);
    torch_leave_autocast(&r->b);
    tape_drop(t, r->b.weights);
    r->b.weights = 0;
    if (!is_reentrant(r))
        tape_drop_beside(t, beside);    /* its graph is gone: the hooks have what is saved */
    t->stop_after = 0;
    t->stopped = t->stopping = false;
    tape_keep(t, store0);
    tape_graft(t, g->out, out);
    int gradient = is_reentrant(r) ? tape_hold_gradient(t, out) : 0;    /* CheckpointFunction.backward() has names for both until it returns */
    if (!is_reentrant(r))
        tape_drop(t, out);
    int k1 = tape_cut(t);
    t->unpacked = !is_reentrant(r);     /* else the second run saves as any forward does */
    if (!t->compiled && !is_reentrant(r))
        tape_backward_unsaved(t, node0);
    int k2 = tape_cut(t);
    if (!t->bad)
        rotate(t->out + k0, k1 - k0, k2 - k1);
    /* Running a whole block again is part of backward's first half, the MLP's. */
    for (int i = k0; i < k2 && recompute_whole(r->recompute); i++)
        t->out[i].half = 1;
    tape_backward(t, node0, t->nnodes);
    t->unpacked = false;
    if (is_reentrant(r))
        tape_drop(t, out);
    tape_drop_beside(t, beside);
    tape_drop_store(t, gradient);
    tape_drop_cache(t, g->cache0, g->cache1);
    for (int i = 0; i < TORCH_ARGS; i++)
        tape_drop(t, g->args[i]);
}

/* A number of parameters, with no embedding to reach in backward. */
static bool is_synthetic(const struct plan *p)
{
    return model_next_tensor(&p->model, TENSOR_EMBED, -1) < 0;
}

/* Backward down to where a module returned in forward, if it did, and how many kernels there are then.  Returns the node behind. */
static int backward_to(struct run *r, const int returned[2], int end, int kernels[NPASS])
{
    if (returned[1] == 0)
        return end;
    tape_backward(&r->t, returned[1], end);
    kernels[PASS_FORWARD] = returned[0];
    kernels[PASS_BACKWARD] = tape_cut(&r->t);
    return returned[1];
}

/* The same of calls of the head's module, the last one first. */
static int backward_calls(struct run *r, int end)
{
    for (int i = r->b.ncalls - 1; i >= 0; i--) {
        end = backward_to(r, r->b.called[i][1], end, r->calls[i][1]);
        end = backward_to(r, r->b.called[i][0], end, r->calls[i][0]);
    }
    return end;
}

/* Backward of a block's graphs but the first one, whose last node's follower it returns. */
static int backward_graphs(struct run *r, const struct part *p)
{
    int end = p->node1;

    for (int g = p->ngraphs - 1; g >= 0; g--) {
        tape_backward(&r->t, p->graph[g], end);
        tape_need_grads(&r->t, p->graph[g]);
        tape_hand_out(&r->t);
        begin_graph(r, 1);
        end = p->graph[g];
    }
    return end;
}

static void backward(struct run *r)
{
    struct tape *t = &r->t;

    for (int i = NPART - 1; i >= 0; i--) {
        struct part *p = &r->part[i];
        if (!is_traced(r, i))
            continue;
        p->kernel0[PASS_BACKWARD] = tape_cut(t);
        t->part = section(i, PASS_BACKWARD);
        t->compiled = r->compiles && i != EMBED && i != HEAD;
        begin_graph(r, 1);
        r->b.block = i == EMBED ? TENSOR_EMBED : i == HEAD ? TENSOR_HEAD : r->b.traced;
        if (i == EMBED && (program_first_differs(r->b.p) || program_input_requires_grad(r->b.p) || is_synthetic(r->b.p)))
            tape_kernel(t, "backward ends", KC_COPY);       /* nothing of it trains */
        if (i == HEAD)
            tape_seed(t, p->out);
        if (i == HEAD && (r->b.returned[1] > 0 || r->b.headed[1] > 0)) {
            int end = backward_to(r, r->b.returned, backward_calls(r, p->node1), r->returns);
            end = backward_to(r, r->b.headed, end, r->heads);
            tape_backward(t, p->node0, end);
        } else if (p->nmodules > 0) {
            te_backward(&r->b, p->module, p->nmodules, p->node0, p->node1);
        } else if (r->recompute == RECOMPUTE_NONE || i < BLOCK0 || (i == HEAD && p->nagain == 0)) {
            tape_backward(t, p->node0, backward_graphs(r, p));
        } else {
            int end = p->node1;
            for (int g = p->nagain - 1; g >= 0; g--) {
                tape_backward(t, p->again[g].node1, end);
                r->b.block = i == HEAD ? TENSOR_HEAD - 1 : r->b.block;       /* multi-token prediction's */
                backward_again(r, &p->again[g]);
                end = p->again[g].node0;
            }
            tape_backward(t, p->node0, end);
        }
        tape_need_grads(t, p->node0);
        tape_hand_out(t);
        if (i == EMBED) {
            tape_drop(t, r->b.ids);
            tape_drop(t, r->b.labels);
            for (int f = 0; f < TORCH_BUFFERS; f++)
                tape_drop(t, r->b.lasting[f]);
            tape_drop(t, r->part[HEAD].out);
            tape_drop_beside(t, 0);
            tape_finish(t);
        }
        p->kernel1[PASS_BACKWARD] = tape_cut(t);
    }
}

static void net_of(const struct run *r, int part, int pass, int64_t net[NMEM])
{
    const struct part *p = &r->part[part];

    memset(net, 0, NMEM * sizeof *net);
    for (int i = p->kernel0[pass]; i < p->kernel1[pass]; i++)
        for (int m = 0; m < NMEM; m++)
            net[m] += r->t.out[i].net[m];
}

/* What one block frees (or keeps) that the others do not: the model's input to the blocks has more names than what blocks
 * hand on.  That is the first block, counted with the embedding; or, where the first differs, the second, counted with the first. */
static void settle(struct run *r, int pass)
{
    int odd = is_traced(r, SECOND) ? SECOND : BLOCK0;
    struct part *e = &r->part[odd == SECOND ? BLOCK0 : EMBED];
    struct kernel *at = &r->t.out[pass == PASS_FORWARD ? e->kernel1[pass] - 1 : e->kernel0[pass]];
    int64_t first[NMEM], other[NMEM];

    net_of(r, odd, pass, first);
    net_of(r, LAST, pass, other);
    for (int m = 0; m < MEM_GRADS; m++)
        at->net[m] += first[m] - other[m];
}

/* Bytes that a block's forward leaves until backward is over. */
static int64_t held_by(const struct run *r, int part)
{
    const struct tape *t = &r->t;
    int64_t sum = 0;

    for (int i = 1; i < t->nstores; i++)
        sum += tape_is_held(t, i) && t->stores[i].part == section(part, PASS_FORWARD) ? t->stores[i].bytes : 0;
    return sum;
}

/* Which gradients that a block hands out are of experts' weights. */
static void mark_experts(const struct run *r, struct piece *out)
{
    const struct model *m = r->local->model;
    int first = model_next_tensor(m, r->b.traced, -1), n = 0;

    for (int k = 0; k < out->nkernels[PASS_BACKWARD]; k++)
        n += out->kernels[PASS_BACKWARD][k].nmoves;
    for (int i = 0; i < n; i++) {
        struct move *x = &out->moves[PASS_BACKWARD][i];
        x->experts = x->kind == MOVE_READY && x->param >= 0 && role_is_of_experts(m->tensors[first + x->param].role);
    }
}

static int take(const struct run *r, int part, struct piece *out)
{
    const struct part *p = &r->part[part];

    out->outlives = p->outlives;
    out->held = held_by(r, part);
    bool second = is_traced(r, SECOND);
    const struct torch_trace of = { &r->t, part * NPASS, HEAD * NPASS, LAST * NPASS, (second ? SECOND : BLOCK0) * NPASS,
                                    part == (second ? BLOCK0 : EMBED) };

    for (int pass = 0; pass < NPASS; pass++)
        if (piece_take(out, (enum pass)pass, r->t.out + p->kernel0[pass],
                       p->kernel1[pass] - p->kernel0[pass]) < 0 ||
            piece_collectives(out, (enum pass)pass, r->t.colls) < 0 ||
            torch_moves(&of, out, (enum pass)pass) < 0)
            return -1;
    if (r->local->plan->parallel.expert > 1 && part != EMBED && part != HEAD)
        mark_experts(r, out);
    return 0;
}

static bool is_dense(enum piece_id id) { return id == PIECE_DENSE || id == PIECE_DENSE_RECOMPUTED; }

/* Blocks with a mask, or without, where a plan has both; with experts, or without; in 16 bits beside others. */
static void all_of_kind(struct run *r, const struct plan *p, enum piece_id plain)
{
    r->as = *p;
    if (program_attends_twice(p) && program_piece_windowed(p, plain))
        r->as.model.window_from = r->as.model.full_every = 0;
    else if (program_attends_twice(p))
        r->as.model.window = 0;
    const struct model *m = r->local->model;
    r->unscaled = plain == PIECE_UNSCALED || (piece_has_mixer(plain) && (plain - PIECE_MIXER) % 4 >= 2);
    r->traced = 0;
    while (m->hybrid && program_kind_of_block(p, r->traced, false) != plain)
        r->traced++;
    while (model_blocks_differ(m) && model_has_experts(m, r->traced) == is_dense(plain))
        r->traced++;
}

/* Two passes: the first finds out what outlives its forward.  Where graphs are cut, another one before finds out where. */
static int trace(struct run *r, const struct plan *p, bool autocast, enum recompute recompute)
{
    r->recompute = recompute;
    r->compiles = p->kernels == KERNELS_TORCH_COMPILE;
    for (int i = 0; i < NPART; i++) {
        r->taken[i] = -1;
        r->part[i].outlives = 0;
    }
    torch_splits_init(&r->splits, p);
    for (int pass = r->splits.on ? -1 : 0; pass < 2; pass++) {
        r->t.learning = pass <= 0;
        if (pass == 0 && r->t.cap_kept > 0)         /* graphs that are not cut have other stores */
            memset(r->t.kept, 0, (size_t)r->t.cap_kept * sizeof *r->t.kept);
        if (pass == 0 && r->splits.on)
            torch_splits_decide(&r->splits);
        forward(r, autocast);
        backward(r);
        if (r->t.bad)
            return fail("the activations of this plan exceed 2^60 bytes: reduce micro_batch, seq or the model");
    }
    for (int pass = 0; pass < NPASS; pass++)
        settle(r, pass);
    return 0;
}

/* What one block leaves behind over both passes, but for what goes when backward is over: autocast's copies of its
 * weights, which go when autocast is left, in the head's forward. */
static void left_behind(const struct piece *b, int64_t net[NMEM])
{
    memset(net, 0, NMEM * sizeof *net);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < b->nkernels[pass]; i++)
            for (int m = 0; m < MEM_GRADS; m++)
                net[m] += b->kernels[pass][i].net[m];
    net[MEM_ACTIVATIONS] -= b->held;
}

/* The head's forward frees what blocks leave, were they of the kind that it was traced behind or not.  The list has
 * room: torch_moves() leaves some for every tensor. */
static void free_left(struct piece *head)
{
    struct kernel *last = &head->kernels[PASS_FORWARD][head->nkernels[PASS_FORWARD] - 1];
    struct move *moves = head->moves[PASS_FORWARD];

    for (int i = 0; i < last->move0 + last->nmoves; i++)
        if (moves[i].kind == MOVE_FREE_LEFT)
            return;
    moves[last->move0 + last->nmoves++] = (struct move){ .kind = MOVE_FREE_LEFT };
}

/* The ends were traced with two blocks of one kind, or a first one and two; the plan has others. */
static void settle_ends(const struct plan *p, struct program *g, enum piece_id traced)
{
    struct piece *h = &g->piece[PIECE_HEAD], *e = &g->piece[PIECE_EMBED];
    struct kernel *last = &h->kernels[PASS_FORWARD][h->nkernels[PASS_FORWARD] - 1];
    struct kernel *very_last = &e->kernels[PASS_BACKWARD][e->nkernels[PASS_BACKWARD] - 1];
    int64_t blocks[NPIECE] = { 0 };

    for (int64_t b = 0; b < p->model.layers; b++)
        blocks[program_piece_of_block(p, b)]++;
    blocks[traced] -= 2;
    if (program_first_differs(p))
        blocks[program_piece_of_block(p, 0)]--;
    for (int id = PIECE_BLOCK; id < PIECE_HEAD; id++) {
        int64_t net[NMEM];
        left_behind(&g->piece[id], net);
        if (blocks[id] > 0 && net[MEM_ACTIVATIONS] > 0)
            free_left(h);
        very_last->net[MEM_ACTIVATIONS] -= blocks[id] * g->piece[id].held;
        for (int m = 0; m < MEM_GRADS; m++) {
            last->net[m] -= blocks[id] * net[m];
            h->saved -= m == MEM_ACTIVATIONS ? blocks[id] * net[m] : 0;
        }
    }
}

static int take_ends(const struct run *r, struct program *g)
{
    for (int pass = 0; pass < NPASS; pass++) {
        g->returns[pass] = r->b.returned[0] > 0 ? r->returns[pass] - r->part[HEAD].kernel0[pass] : 0;
        g->heads[pass] = r->b.headed[0] > 0 ? r->heads[pass] - r->part[HEAD].kernel0[pass] : 0;
        for (int i = 0, n = r->b.ncalls; i < n; i++) {
            const int (*of)[NPASS] = r->calls[pass == PASS_FORWARD ? i : n - 1 - i];
            g->call[pass][i].from = of[pass == PASS_FORWARD ? 0 : 1][pass] - r->part[HEAD].kernel0[pass];
            g->call[pass][i].to = of[pass == PASS_FORWARD ? 1 : 0][pass] - r->part[HEAD].kernel0[pass];
        }
    }
    g->ncalls = r->b.ncalls;
    return take(r, EMBED, &g->piece[PIECE_EMBED]) < 0 || take(r, HEAD, &g->piece[PIECE_HEAD]) < 0 ? -1 : 0;
}

/* The blocks of a trace, and the first, where it differs and is of this kind. */
static int take_blocks(const struct run *r, const struct plan *p, struct program *out, enum piece_id id)
{
    bool recomputed = piece_is_recomputed(id);
    enum piece_id first = recomputed ? PIECE_FIRST_RECOMPUTED : PIECE_FIRST;

    if (program_first_differs(p) && id == program_kind_of_block(p, 0, recomputed) && take(r, BLOCK0, &out->piece[first]) < 0)
        return -1;
    return take(r, LAST, &out->piece[id]);
}

/* Does some block run once, or is one looked at that does: cut into two (program_split.c), or for which rank of a context group is the
 * fuller one (build_in_context())? */
static bool has_plain(const struct plan *p)
{
    return !program_recomputes_all(p) || pipeline_splits(p->parallel.pipeline_schedule) || p->parallel.context > 1;
}

/* Blocks of one kind, and the ends if they are asked for. */
static int build_kind(struct run *r, const struct plan *p, struct program *out, enum piece_id plain,
                      enum piece_id again, bool ends)
{
    bool autocast = plan_recipe(p).autocast, all = program_recomputes_all(p);

    all_of_kind(r, p, plain);
    if (p->recompute != RECOMPUTE_NONE)
        if (trace(r, p, autocast, p->recompute) < 0 || take_blocks(r, p, out, again) < 0 ||
            (ends && all && take_ends(r, out) < 0))
            return -1;
    if (!has_plain(p))
        return 0;
    if (trace(r, p, autocast, RECOMPUTE_NONE) < 0 || take_blocks(r, p, out, plain) < 0 ||
        (ends && !all && take_ends(r, out) < 0))
        return -1;
    return 0;
}

/* Of blocks of one mixer each: is one of this piece?  The one that the ends are taken with: with attention, where there is such. */
static bool has_piece(const struct plan *p, enum piece_id plain)
{
    for (int64_t b = 0; p->model.hybrid && b < p->model.layers; b++)
        if (program_kind_of_block(p, b, false) == plain)
            return true;
    return false;
}

static int64_t usual_block(const struct plan *p)
{
    for (int64_t b = 0; b < p->model.layers; b++)
        if (hybrid_kind(&p->model, b) == BLOCK_ATTENTION)
            return b;
    return 0;
}

/* The ends are taken with blocks that hold a mask, where a plan has some; where the first block is a piece of its own, with those of its kind. */
int program_build_torch(const struct local_model *local, bool stages, struct program *out)
{
    static const enum piece_id kinds[][2] = { { PIECE_WINDOWED, PIECE_WINDOWED_RECOMPUTED }, { PIECE_BLOCK, PIECE_BLOCK_RECOMPUTED },
                                              { PIECE_DENSE, PIECE_DENSE_RECOMPUTED }, { PIECE_UNSCALED, PIECE_UNSCALED_RECOMPUTED } };
    const struct plan *p = local->plan;
    const struct model *m = &p->model;
    bool unscaled = program_unscaled(p, 0) || program_unscaled(p, m->layers - 1);
    const bool has[] = { program_attends_twice(p), !m->hybrid, model_blocks_differ(m), unscaled && !m->hybrid };
    bool all = program_recomputes_all(p);
    enum piece_id whole = m->hybrid ? program_kind_of_block(p, usual_block(p), false) : PIECE_BLOCK;
    enum piece_id plain = program_first_differs(p) ? program_kind_of_block(p, 0, false) : has[0] ? PIECE_WINDOWED : whole, ends = plain;
    struct run *r = calloc(1, sizeof *r);
    int rc = 0;

    if (!r)
        return fail("out of memory for a block program");
    r->local = local;
    r->megatron = kernels_are_megatron(p->kernels);
    r->stages = stages;
    tape_init(&r->t, 512);
    for (int i = 0; i < 4 && rc == 0; i++) {
        rc = has[i] ? build_kind(r, p, out, kinds[i][0], kinds[i][1], kinds[i][0] == plain) : 0;
        ends = kinds[i][0] == plain && all ? kinds[i][1] : ends;
    }
    for (int id = PIECE_MIXER; id < PIECE_FIRST && rc == 0; id += 2) {
        rc = has_piece(p, (enum piece_id)id) ? build_kind(r, p, out, (enum piece_id)id, (enum piece_id)(id + 1), id == (int)plain) : 0;
        ends = id == (int)plain && all ? (enum piece_id)(id + 1) : ends;
    }
    if (rc == 0) {
        settle_ends(p, out, ends);
        out->boundary = round_up(p->micro_batch * p->seq / (local->share.sequence ? local->share.tensor_ranks : 1)
                                 * p->model.hidden * dtype_bytes(r->b.dt), 512);
    }
    tape_free(&r->t);
    free(r);
    return rc;
}
