/* exec_compute.c -- a segment of a block program: for each kernel the places that come, the
 * parameters it reads, where its gradients go, a task, the places that go. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"
#include "model/arch/packed.h"

/* The segment being issued. */
struct segment {
    struct executor *x;
    const struct op *op;
    const struct piece *piece;
    enum piece_id id;
    enum pass pass;
    int block;                      /* -1 embedding, -2 head */
    struct context *ctx;
    struct flight *flight;
};

/* ---- places ---- */

int executor_compute_open(struct executor *x)
{
    x->staged = x->p->parallel.pipeline > 1;
    x->steps = x->staged ? x->p->accumulation : 1;
    x->nctx = CTX_BLOCK0 + x->p->model.layers;
    x->nflights = x->steps * (x->staged ? x->p->parallel.virtual_stages : 1);
    x->ctx = room_new((size_t)(x->steps * x->nctx), sizeof *x->ctx);
    x->flight = room_new((size_t)x->nflights, sizeof *x->flight);
    return 0;
}

void executor_compute_close(struct executor *x)
{
    free(x->ctx);
    free(x->flight);
}

void executor_compute_reset(struct executor *x)
{
    for (int64_t i = 0; i < x->steps * x->nctx; i++)
        for (int k = 0; k < NSLOT; k++)
            x->ctx[i].at[k] = -1;
    for (int64_t i = 0; i < x->nflights; i++)
        x->flight[i] = (struct flight){ -1, -1, -1 };
}

bool executor_compute_idle(const struct executor *x)
{
    for (int64_t i = 0; i < x->steps * x->nctx; i++)
        for (int k = 0; k < NSLOT; k++)
            if (x->ctx[i].at[k] >= 0)
                return false;
    for (int64_t i = 0; i < x->nflights; i++)
        if (x->flight[i].ids >= 0 || x->flight[i].dx >= 0 || x->flight[i].handed >= 0)
            return false;
    return true;
}

static bool is_block(enum piece_id id) { return piece_is_block(id) || id == PIECE_BLOCK_SPLIT; }

static struct context *context_of(const struct executor *x, const struct op *o, enum piece_id id, int block)
{
    struct context *of_step = &x->ctx[x->staged ? o->step * x->nctx : 0];

    return &of_step[is_block(id) ? CTX_BLOCK0 + block : id == PIECE_EMBED ? CTX_EMBED : CTX_HEAD];
}

static struct flight *flight_of(const struct executor *x, const struct op *o)
{
    return &x->flight[x->staged ? o->chunk * x->steps + o->step : 0];
}

/* Of a stage without embedding or head: what it receives, and what it sends. */
static bool is_edge(enum piece_id id) { return id == PIECE_RECEIVED || id == PIECE_SENT; }

static int64_t *place_in(struct context *ctx, struct flight *flight, enum piece_id id, int slot)
{
    return slot == SLOT_IDS ? &flight->ids : slot == SLOT_DX ? &flight->dx : is_edge(id) ? &flight->handed : &ctx->at[slot];
}

static int64_t *place_of(const struct segment *g, int slot) { return place_in(g->ctx, g->flight, g->id, slot); }

/* What a piece hands on is no longer its own when its last kernel is issued. */
int64_t executor_compute_place(const struct executor *x, const struct op *o, int block, enum slot slot)
{
    enum piece_id id = (enum piece_id)o->u.coll.piece;
    int64_t at = *place_in(context_of(x, o, id, block), flight_of(x, o), id, slot);

    return at < 0 && slot == SLOT_Y ? flight_of(x, o)->handed : at;
}

static enum category category_of(uint8_t mem)
{
    return mem == MEM_ACTIVATIONS ? CAT_ACTIVATIONS : CAT_TEMPORARIES;
}

static int places_come(const struct segment *g, const struct kernel *k, bool fresh[NSLOT])
{
    for (int i = 0; i < k->nplaces; i++) {
        const struct place *p = &g->piece->places[g->pass][k->place0 + i];
        if (!p->comes)
            continue;
        int64_t *at = place_of(g, p->slot);
        assert(*at < 0);
        *at = executor_take(g->x, p->bytes, category_of(p->mem));
        if (*at < 0)
            return -1;
        fresh[p->slot] = true;
    }
    return 0;
}

static void places_go(const struct segment *g, const struct kernel *k)
{
    for (int i = 0; i < k->nplaces; i++) {
        const struct place *p = &g->piece->places[g->pass][k->place0 + i];
        int64_t *at = place_of(g, p->slot);
        if (p->comes)
            continue;
        assert(*at >= 0);
        executor_give(g->x, *at, &g->x->order.lane[STREAM_COMPUTE]);
        *at = -1;
    }
}

/* What the piece before left is this one's input. */
static void enter_piece(struct segment *g)
{
    if (is_edge(g->id))
        return;
    if (g->pass == PASS_FORWARD && g->op->u.compute.k0 == 0 && g->id != PIECE_EMBED) {
        g->ctx->at[SLOT_X] = g->flight->handed;
        g->flight->handed = -1;
    }
    if (g->pass == PASS_FORWARD && g->op->u.compute.k0 == 0 && g->id == PIECE_EMBED)
        g->x->micro++;
}

static void leave_piece(struct segment *g)
{
    if (g->pass == PASS_FORWARD && g->op->u.compute.k1 == g->piece->nkernels[PASS_FORWARD] && g->id != PIECE_HEAD &&
        !is_edge(g->id)) {
        g->flight->handed = g->ctx->at[SLOT_Y];
        g->ctx->at[SLOT_Y] = -1;
    }
}

/* ---- parameters ---- */

/* The tensor of a kernel's role in the segment's piece; -1 none.  A tied head's is the token embedding. */
static int role_tensor(const struct segment *g, const struct kernel *k, bool bias)
{
    enum tensor_role role = (enum tensor_role)k->role;
    const struct model *m = &g->x->p->model;
    int in = g->block == -1 ? TENSOR_EMBED : g->block == -2 ? TENSOR_HEAD : g->block;

    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].role == role && m->tensors[t].is_bias == bias && m->tensors[t].block == in && m->tensors[t].adapter == k->adapter)
            return t;
    if (role == ROLE_HEAD && m->tied && !bias)
        for (int t = 0; t < m->ntensors; t++)
            if (m->tensors[t].role == ROLE_TOKENS)
                return t;
    return -1;
}

static bool reads_parameters(const struct kernel *k)
{
    switch ((enum kernel_fn)k->fn) {
    case FN_EMBED: case FN_POSITIONS: case FN_NORM: case FN_LINEAR: case FN_NORM_BACK: case FN_LINEAR_DX:
    case FN_EMBED_ROWS: case FN_LINEAR_PART: case FN_NORM_BACK_KEPT: case FN_UNPACK: case FN_FLOAT8_W:
        return true;
    case FN_RESIDUAL:
        return k->adapter == ADAPTER_NONE;      /* behind an adapter the product had the bias already */
    default:
        return false;
    }
}

/* Elements of a tensor as a rank has it: of a packed one its codes' bytes, which the rest of its parts follow. */
static int64_t kept_elements(const struct tensor *t) { return t->packed != BASE_PLAIN && !t->is_bias ? packed_codes(t) : t->numel; }

static const void *parameter(const struct segment *g, int tensor, enum dtype *dt)
{
    struct executor *x = g->x;

    for (int i = 0; i < x->reads.n; i++) {
        const struct view *v = &x->reads.v[i];
        if (v->tensor == tensor && v->holds == HOLDS_PARAM && v->from == 0 && v->n == kept_elements(tensor_of(x, tensor))) {
            *dt = v->dtype;
            return x->lanes ? view_at(x, v, 0) : (void *)x;
        }
    }
    fail("the schedule's entry \"%s\" has no buffer with all of %s", g->op->what, tensor_of(x, tensor)->name);
    return NULL;
}

static int find_parameters(const struct segment *g, const struct kernel *k, struct kernel_call *c)
{
    for (int b = 0; b < 2 && reads_parameters(k); b++) {
        int t = role_tensor(g, k, b);
        bool codes = t >= 0 && tensor_of(g->x, t)->packed != BASE_PLAIN && !b;      /* their kernel alone reads them */
        c->weight = codes || (t >= 0 && k->fn == FN_FLOAT8_W) ? tensor_of(g->x, t) : c->weight;
        if (t >= 0 && (k->fn == FN_UNPACK ? codes : !codes) && !(c->param[b] = parameter(g, t, &c->param_dt)))
            return -1;
    }
    return 0;
}

/* ---- gradients ---- */

/* Bytes of a gradient in memory of its own, as the program counts them. */
static int64_t grad_bytes(const struct executor *x, int tensor, enum dtype dt)
{
    return round_up(tensor_of(x, tensor)->numel * dtype_bytes(dt), 512);
}

static struct view *destination(const struct segment *g, int tensor)
{
    struct executor *x = g->x;

    for (int i = 0; i < x->writes.n; i++) {
        struct view *v = &x->writes.v[i];
        if (v->tensor == tensor && v->holds == HOLDS_GRAD && v->from == 0 && v->n == tensor_of(x, tensor)->numel)
            return v;
    }
    return NULL;
}

enum dtype executor_grad_dtype(const struct executor *x)
{
    return x->recipe.autocast ? DT_FP32 : x->recipe.used;
}

/* The head's part of a tied weight's gradient, waiting for the embedding's. */
static int64_t *tied_part(const struct segment *g) { return &context_of(g->x, g->op, PIECE_HEAD, 0)->at[SLOT_NONE]; }

static bool is_tied_head(const struct segment *g, const struct kernel *k)
{
    return k->fn == FN_LINEAR_DW && k->role == ROLE_HEAD && g->x->p->model.tied;
}

/* Of a pass that the head's was part of; in a pipeline's V each has buffers of its own. */
static bool is_tied_embedding(const struct segment *g, const struct kernel *k)
{
    return !g->x->staged && (k->fn == FN_EMBED_BACK || k->fn == FN_EMBED_ROWS_BACK) && g->x->p->model.tied;
}

/* Memory of its own for a gradient that a kernel makes. */
static int64_t new_grad(const struct segment *g, int tensor)
{
    struct executor *x = g->x;

    return executor_take(x, grad_bytes(x, tensor, executor_grad_dtype(x)), (enum category)g->op->u.compute.grads);
}

/* Where kernel k leaves the gradient of one tensor; *own: memory that is given back after it. */
static int grad_place(const struct segment *g, const struct kernel *k, int tensor, struct kernel_call *c,
                      struct grad_out *out, int64_t *own)
{
    struct executor *x = g->x;
    enum grad_fate fate = (enum grad_fate)g->op->u.compute.fate;
    struct view *to = destination(g, tensor);
    int64_t at;

    *out = (struct grad_out){ .dt = executor_grad_dtype(x), .into = GRAD_SET, .wanted = true };
    if (!to && !is_tied_head(g, k))
        return fail("the schedule's entry \"%s\" has no buffer for the gradient of %s", g->op->what,
                    tensor_of(x, tensor)->name);
    if (fate == GRADS_IN_PLACE) {
        if (!to)
            return fail("the schedule has no buffer for the gradient of %s", tensor_of(x, tensor)->name);
        out->p = view_at(x, to, 0);
        out->dt = to->dtype;
        out->into = (to->what & ACT_ADD) || is_tied_embedding(g, k) ? GRAD_ADD : GRAD_SET;
        return 0;
    }
    if (is_tied_embedding(g, k)) {          /* the sum of both parts is the gradient */
        at = *tied_part(g);
        *tied_part(g) = -1;
        out->into = GRAD_ADD;
    } else if ((at = new_grad(g, tensor)) < 0) {
        return -1;
    }
    out->p = arena_at(x->arena, at);
    if (is_tied_head(g, k)) {
        *tied_part(g) = at;
        return 0;
    }
    if (fate == GRADS_KEEP && to->inst->granted) {
        to->inst->piece[to->slice] = at;
        to->at = at;
        return 0;
    }
    c->hand[c->nhand].to = view_at(x, to, 0);       /* handed out, then gone */
    c->hand[c->nhand].dt = to->dtype;
    c->hand[c->nhand].from = out->p;
    c->hand[c->nhand].st = out->dt;
    c->hand[c->nhand].n = to->n;
    c->hand[c->nhand++].add = (to->what & ACT_ADD) != 0;
    *own = at;
    return 0;
}

/* Whether a kernel makes the gradient of its role's weight, or bias. */
static bool makes_gradient(const struct segment *g, const struct kernel *k, bool bias)
{
    switch ((enum kernel_fn)k->fn) {
    case FN_NORM_BACK: case FN_EMBED_BACK: case FN_EMBED_ROWS_BACK: case FN_POSITIONS_BACK:
    case FN_GRAD_KEPT:
        return true;
    case FN_LINEAR_DB:
        return bias;
    case FN_LINEAR_DW:              /* where a kernel of its own adds the bias, it makes that gradient too */
        return !bias || tensor_ranks(g->x) == 1 || (k->role != ROLE_ATTN_OUT && k->role != ROLE_DOWN);
    default:
        return false;
    }
}

/* own[]: memory of gradients that goes after the kernel. */
static int find_gradients(const struct segment *g, const struct kernel *k, struct kernel_call *c, int64_t own[2])
{
    own[0] = own[1] = -1;
    for (int b = 0; b < 2; b++) {
        int t = makes_gradient(g, k, b) ? role_tensor(g, k, b) : -1;
        if (t >= 0 && !tensor_of(g->x, t)->frozen && grad_place(g, k, t, c, &c->grad[b], &own[b]) < 0)
            return -1;
    }
    return 0;
}

/* ---- one kernel, one segment ---- */

static int run_kernel(struct task *t)
{
    const struct kernel_call *c = t->self;
    struct kernels *k = c->x->kernels[STREAM_COMPUTE];

    if (c->x->a.no_compute)
        return 0;
    double began = lanes_now();
    if (executor_kernel_run(c) < 0)
        return -1;
    if (!device_async(c->x->d))
        c->x->class_s[c->k->kind] += lanes_now() - began;
    for (int i = 0; i < c->nhand; i++)
        if (kernels_ops(k)->copy(k, c->hand[i].n, c->hand[i].to, c->hand[i].dt, c->hand[i].from, c->hand[i].st, 1,
                                 c->hand[i].add) < 0)
            return -1;
    return 0;
}

/* Random numbers are the whole model's. */
static int whole_block(const struct segment *g)
{
    return g->block >= 0 && g->x->a.share ? (int)local_share_block(g->x->a.share, g->block) : g->block;
}

static int issue_kernel(const struct segment *g, const struct kernel *k)
{
    struct executor *x = g->x;
    struct kernel_call *c = room_new(1, sizeof *c);
    int64_t own[2];

    *c = (struct kernel_call){ .x = x, .op = g->op, .k = k, .step = x->step, .block = whole_block(g),
                               .micro = x->staged ? g->op->step : x->micro - 1, .param_dt = DT_FP32 };
    if (places_come(g, k, c->fresh) < 0 || find_parameters(g, k, c) < 0 || find_gradients(g, k, c, own) < 0) {
        free(c);
        return -1;
    }
    for (int s = 1; s < NSLOT; s++)
        c->at[s] = *place_of(g, s) >= 0 ? arena_at(x->arena, *place_of(g, s)) : NULL;
    executor_put(x, g->op, run_kernel, c);
    memset(&x->need, 0, sizeof x->need);        /* the lane is a FIFO: the first has waited */
    places_go(g, k);
    for (int b = 0; b < 2; b++)
        if (own[b] >= 0)
            executor_give(x, own[b], &x->order.lane[STREAM_COMPUTE]);
    return 0;
}

/* From the other of a V's two stages on this rank; the edge of the stage that had it has nothing to do. */
static void hand_over(struct executor *x, const struct op *o, enum piece_id id, enum pass pass)
{
    struct flight *here = flight_of(x, o), *there = &x->flight[!o->chunk * x->steps + o->step];
    bool comes = id == (pass == PASS_FORWARD ? PIECE_RECEIVED : PIECE_SENT);
    int64_t *to = pass == PASS_FORWARD ? &here->handed : &here->dx, *from = pass == PASS_FORWARD ? &there->handed : &there->dx;

    if (!comes)
        return;
    assert(*to < 0 && *from >= 0);
    *to = *from;
    *from = -1;
}

int executor_issue_compute(struct executor *x, const struct op *o, int64_t iteration)
{
    enum piece_id id = (enum piece_id)o->u.compute.piece;
    bool block = is_block(id);
    int number = o->unit + o->unit_by * (int)iteration;
    struct segment g = { .x = x, .op = o, .piece = &x->s->program.piece[id], .id = id,
                         .pass = (enum pass)o->u.compute.pass,
                         .block = block ? number : id == PIECE_EMBED ? -1 : -2,
                         .ctx = context_of(x, o, id, number), .flight = flight_of(x, o) };

    if (o->flags & OPF_LOCAL) {
        hand_over(x, o, id, g.pass);
        return 0;
    }
    views_clear(&x->reads);
    views_clear(&x->writes);
    views_of(x, o, iteration, ACT_READ, &x->reads);
    views_of(x, o, iteration, ACT_WRITE | ACT_ADD, &x->writes);
    enter_piece(&g);
    for (int k = o->u.compute.k0; k < o->u.compute.k1; k++)
        if (issue_kernel(&g, &g.piece->kernels[g.pass][k]) < 0)
            return -1;
    leave_piece(&g);
    return 0;
}
