/* tape_te.c -- see tape_te.h. */
#include "model/program/tape_te.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"
#include "model/program/tape_te_cast.h"
#include "model/program/tape_te_loss.h"

static int64_t bytes_of(const struct tape *t, var v) { return tape_var_numel(t, v) * dtype_bytes(tape_var_dtype(t, v)); }

static var fresh(struct tape *t, int node, int64_t numel, enum dtype dt)
{
    return tape_var(t, tape_new(t, numel, dt), numel, dt, node, 0);
}

/* A gradient that autograd hands to DistributedDataParallel's hook. */
static int small_grad(struct tape *t, const struct node *n, int i)
{
    return tape_wants(n, i) ? tape_new(t, n->edges[i].numel, n->edges[i].dt) : 0;
}

static void drop_saved(struct tape *t, const struct node *n, int i)
{
    struct node *own = &t->nodes[n - t->nodes];

    if (i < own->nsaved) {
        tape_unref(t, own->saved[i]);
        own->saved[i] = 0;
    }
}

/* ---- norms ---- */

var te_norm(struct tape *t, const char *name, var x, int64_t rows, var w, var b, bool rms, const struct te_scaled *f, bool module)
{
    int64_t numel = tape_var_numel(t, x);
    bool codes = te_norm_casts(f);

    tape_pass(t, name, KC_NORM, bytes_of(t, x) + (codes ? numel : bytes_of(t, x)))->te_module = module ? TE_PYTHON_NORM : TE_PYTHON_NONE;
    struct node *n = tape_node_of(t, NODE_TE_NORM, name, KC_NORM, x);
    int node = t->nnodes - 1;

    n->te.module = module;
    tape_edge(t, n, w);
    if (b)
        tape_edge(t, n, b);
    tape_save_var(t, n, x);
    var y = tape_var(t, tape_new(t, numel, codes ? DT_UINT8 : tape_var_dtype(t, x)), numel, tape_var_dtype(t, x), node, 0);
    for (int i = 0; i < (rms ? 1 : 2); i++) {
        int number = tape_new(t, rows, DT_FP32);
        tape_save(t, &t->nodes[node], number);
        tape_unref(t, number);
    }
    return y;
}

/* One kernel reads the gradient and x and writes x's gradient and each multiprocessor's part of the weights'; a second adds these
 * up (transformer_engine/common/normalization). */
static void norm_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct kernel *k = tape_pass(t, n->name, KC_NORM, 3 * n->edges[0].numel * dtype_bytes(n->edges[0].dt));

    k->te_module = n->te.module ? TE_PYTHON_NORM : TE_PYTHON_NONE;
    for (int i = 0; i < n->nedges; i++)
        out[i] = small_grad(t, n, i);
}

/* ---- linear layers ---- */

static bool gathers(const struct te_linear *l) { return l->sequence && l->ranks > 1; }

/* What a product reads, and the numbers of its result.  module: a linear module of Transformer Engine is what calls it. */
struct operands { enum scaled format; enum dtype dt; bool module; };

static struct operands operands_of(const struct te_scaled *f, enum dtype dt, bool module)
{
    return (struct operands){ (enum scaled)f->format, dt, module };
}

static int64_t operand_bytes(struct operands o, int64_t numel)
{
    return o.format ? dtype_scaled_bytes(o.format, numel) : numel * dtype_bytes(o.dt);
}

/* As what, and as how many of it, an operand goes over a link. */
static enum dtype wire(struct operands o) { return o.format ? DT_UINT8 : o.dt; }
static int64_t wire_elems(struct operands o, int64_t numel) { return o.format ? dtype_scaled_bytes(o.format, numel) : numel; }

static struct kernel *product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, struct operands o)
{
    struct kernel *kernel = tape_pass(t, name, KC_GEMM, operand_bytes(o, m * k) + operand_bytes(o, n * k) + m * n * dtype_bytes(o.dt));

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = 1;
    kernel->flops = 2.0 * (double)m * (double)n * (double)k;
    kernel->scaled = (uint8_t)o.format;
    kernel->te_module = o.module ? TE_PYTHON_LINEAR : TE_PYTHON_NONE;
    return kernel;
}

/* One rank's part on its way to the next, by copy engines. */
static int pass_on(struct tape *t, int64_t elems, enum dtype dt)
{
    struct kernel *k = tape_pass(t, "copy of a part", KC_COPY, 0);

    return k->collective = tape_note_collective(t, &(struct collective){
        .op = COLL_ALL_TO_ALL, .group = GROUP_TENSOR, .dtype = (uint8_t)dt, .stream = STREAM_TENSOR, .onward = true, .engine = true,
        .elems = elems });
}

/* The share is copied to where the others' come to, one after the other. */
static void product_of_parts(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, struct operands o, int64_t ranks)
{
    int came = 0, next = 0;

    tape_pass(t, "own part", KC_COPY, 2 * operand_bytes(o, m / ranks * k));
    for (int64_t i = 0; i < ranks; i++, came = next) {
        next = i < ranks - 1 ? pass_on(t, wire_elems(o, m / ranks * k), wire(o)) : 0;
        tape_needs(t, came);
        product(t, name, m / ranks, n, k, o);
    }
}

/* Of two buffers: the product after the next takes the place of what is on its way; the sum needs the last. */
static void parts_of_product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, struct operands o, int64_t ranks)
{
    for (int64_t i = 0; i < ranks; i++) {
        product(t, name, m / ranks, n, k, o);
        if (i < ranks - 1) {
            int sent = pass_on(t, m / ranks * n, o.dt);
            tape_needs_at(t, sent, t->nout + (i < ranks - 2 ? 2 : 1));
        }
    }
    tape_pass(t, "sum of parts", KC_ELEMENTWISE, (m + m / ranks) * n * dtype_bytes(o.dt));
}

/* Into main_grad, read and written; or a tensor, of which hand_out() makes the room. */
static void weight_product(struct tape *t, const struct node *n, struct operands o)
{
    struct kernel *k = product(t, n->names.dw, n->k, n->n, n->m, o);

    k->te_module = TE_PYTHON_NONE;              /* backward is one function of Python: its other product stands for it */
    if (t->grads_apart)
        return;
    k->sums = 2 * n->n * n->k * t->main_grad;
    k->bytes = operand_bytes(o, n->m * n->k) + operand_bytes(o, n->m * n->n) + k->sums;
}

/* `kept`: codes of x; 0: x.  A frozen weight needs no input in backward; what a layer hands out it keeps all the same. */
static void linear_node(struct tape *t, enum node_kind kind, const struct te_linear *l, var x, int64_t rows, int kept)
{
    struct node *n = tape_node_of(t, kind, l->names.forward, KC_GEMM, x);

    n->names = l->names;
    n->m = rows, n->n = l->n, n->k = l->k, n->batch = 1;
    n->te = (struct te_node){ .ranks = l->ranks, .gathers = gathers(l), .overlaps = gathers(l) && l->overlaps, .buffered = l->buffered,
                              .zeroed = l->zeroed, .original = l->original, .frozen = l->frozen,
                              .core = l->core, .module = l->module, .scaled = l->scaled };
    for (int i = 0; i < 3; i++)
        if (l->weight[i])
            tape_edge(t, n, l->weight[i]);
    n->te.weights = n->nedges - 1;
    for (int i = 0; i < 3; i++)
        if (l->bias[i])
            tape_edge(t, n, l->bias[i]);
    if (l->frozen && !l->returned)
        return;
    if (kept)
        tape_save(t, n, kept);
    else
        tape_save_var(t, n, x);
}

/* A weight's gradient: nothing where it is in main_grad.  Weights that Megatron-LM keeps as one have one, handed out with the first. */
static int weight_grad(struct tape *t, const struct node *n, int i)
{
    int64_t numel = 0;

    for (int k = 1; i == 1 && t->grads_apart && k <= n->te.weights; k++)
        numel += n->edges[k].numel;
    return numel > 0 ? tape_new(t, numel, n->edges[1].dt) : tape_alloc(t, 0, 1, MEM_GRADS);
}

/* What backward hands out for its parameters; a bias's gradient is made beside the weight's product ("bgrad"). */
static void hand_out(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    for (int i = 1; i < n->nedges; i++)
        out[i] = !tape_wants(n, i) ? 0 : i <= n->te.weights ? weight_grad(t, n, i) : small_grad(t, n, i);
    for (int i = 1; i <= n->te.weights && n->te.zeroed && !t->grads_apart; i++)
        tape_pass(t, "zero wgrad", KC_COPY, n->edges[i].numel * dtype_bytes(n->edges[i].dt));
}

static int gather(struct tape *t, struct operands o, int64_t numel)
{
    return tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, wire(o), wire_elems(o, numel));
}

static int room_for(struct tape *t, struct operands o, int64_t numel) { return tape_new(t, wire_elems(o, numel), wire(o)); }

/* What ranks gather is cast along rows alone where only these can be gathered. */
static struct te_codes input_codes(struct tape *t, const struct te_linear *l, var x)
{
    const struct te_scaled *f = &l->scaled;
    bool rows = l->original || l->frozen || (gathers(l) && te_gathers_rows(f));
    unsigned ways = rows ? TE_ROWS : TE_ROWS | TE_COLUMNS;
    int64_t numel = tape_var_numel(t, x);

    return te_norm_casts(f) && !l->plain ? te_codes_of(t, f, t->vars[x].store, numel, ways)
                                         : te_cast(t, f, numel, tape_var_dtype(t, x), ways, !l->plain, gathers(l) ? l->ranks : 1);
}

/* What others read too is gathered in 16 bits, and cast behind that. */
static int gather_input(struct tape *t, const struct te_linear *l, bool shown, struct operands o, int64_t elems)
{
    struct operands as = shown ? (struct operands){ SCALED_NONE, o.dt, o.module } : o;

    gather(t, as, elems);
    int all = l->buffered && !l->frozen ? 0 : room_for(t, as, elems);
    if (shown && o.format)
        te_drop_codes(t, te_cast(t, &l->scaled, elems, o.dt, TE_ROWS, false, 1));
    return all;
}

var te_column(struct tape *t, const struct te_linear *l, var x) { return te_column_returning(t, l, x, NULL); }

var te_column_returning(struct tape *t, const struct te_linear *l, var x, var *read)
{
    struct operands o = operands_of(&l->scaled, tape_var_dtype(t, x), l->module);
    int64_t elems = tape_var_numel(t, x) * (gathers(l) ? l->ranks : 1), rows = elems / l->k;
    bool shown = read && l->returned && gathers(l) && !l->overlaps;
    struct te_codes c = { 0, 0 };
    int all = 0;

    if (o.format) {
        c = input_codes(t, l, x);
        linear_node(t, NODE_TE_COLUMN, l, x, rows, l->original ? 0 : c.columns ? c.columns : c.rows);
        if (!l->plain)
            tape_drop(t, x);
    }
    int node = t->nnodes - 1;
    if (gathers(l) && !l->overlaps)
        all = gather_input(t, l, shown, o, elems);
    if (gathers(l) && l->overlaps)
        product_of_parts(t, l->names.forward, rows, l->n, l->k, o, l->ranks);
    else
        product(t, l->names.forward, rows, l->n, l->k, o);
    if (!o.format) {
        linear_node(t, NODE_TE_COLUMN, l, x, rows, 0);
        node = t->nnodes - 1;
    }
    var y = fresh(t, node, rows * l->n, o.dt);
    if (shown) {
        t->nodes[node].nslots = 2;
        *read = tape_var(t, tape_share(t, all), elems, o.dt, node, 1);
    } else if (read) {
        *read = tape_hold(t, x);
    }
    tape_unref(t, all);
    te_drop_codes(t, c);
    return y;
}

static void column_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct te_scaled *f = &n->te.scaled;
    struct operands o = operands_of(f, n->edges[0].dt, n->te.module);
    int64_t elems = n->m * n->k;
    struct te_codes dy = { 0, 0 }, x = { 0, 0 };
    int all = 0, came = 0, reduce = 0, dx = 0, turned = 0;
    bool trains = !n->te.frozen;

    if (o.format)
        dy = te_cast(t, f, n->m * n->n, o.dt, trains || t->turns_frozen ? TE_ROWS | TE_COLUMNS : TE_ROWS, false, 1);
    if (n->te.original && trains)
        x = te_cast_again(t, f, n->edges[0].numel, o.dt, n->te.gathers ? n->te.ranks : 1);
    if (n->te.gathers && trains) {
        came = gather(t, o, elems);
        all = n->te.buffered || n->te.overlaps ? 0 : room_for(t, o, elems);
    }
    if (tape_wants(n, 0) || n->te.core) {
        product(t, n->names.dx, n->m, n->k, n->n, o);
        dx = n->te.overlaps ? 0 : tape_new(t, elems, o.dt);
        if (n->te.gathers) {
            reduce = tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, o.dt, elems);
            out[0] = tape_new(t, elems / n->te.ranks, o.dt);
        } else {
            reduce = n->te.ranks > 1 ? tape_issue(t, "all-reduce", COLL_ALL_REDUCE, RED_SUM, o.dt, elems) : 0;
            out[0] = tape_share(t, dx);
        }
    }
    tape_needs(t, came);
    if (n->te.gathers && trains)
        turned = te_turn(t, f, elems);
    if (trains)
        weight_product(t, n, o);
    hand_out(t, n, out);
    drop_saved(t, n, 0);
    tape_unref(t, all);
    tape_unref(t, turned);
    tape_unref(t, dx);
    te_drop_codes(t, dy);
    te_drop_codes(t, x);
    tape_needs(t, reduce);
}

var te_row(struct tape *t, const struct te_linear *l, var x)
{
    struct operands o = operands_of(&l->scaled, tape_var_dtype(t, x), l->module);
    int64_t rows = tape_var_numel(t, x) / l->k, elems = rows * l->n;
    struct te_codes c = { 0, 0 };
    bool parts = gathers(l) && l->overlaps;

    if (o.format)
        c = te_cast(t, &l->scaled, tape_var_numel(t, x), o.dt, l->original || l->frozen ? TE_ROWS : TE_ROWS | TE_COLUMNS, false, 1);
    if (parts)
        parts_of_product(t, l->names.forward, rows, l->n, l->k, o, l->ranks);
    else
        product(t, l->names.forward, rows, l->n, l->k, o);
    linear_node(t, NODE_TE_ROW, l, x, rows, l->original ? 0 : c.columns);
    te_drop_codes(t, c);
    int node = t->nnodes - 1;
    if (parts)
        return fresh(t, node, elems / l->ranks, o.dt);
    int y = tape_new(t, elems, o.dt);
    if (l->ranks > 1 && !gathers(l))
        tape_issue(t, "all-reduce", COLL_ALL_REDUCE, RED_SUM, o.dt, elems);
    if (!gathers(l))
        return tape_var(t, y, elems, o.dt, node, 0);
    tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, o.dt, elems);
    var mine = fresh(t, node, elems / l->ranks, o.dt);
    tape_unref(t, y);
    return mine;
}

/* y's gradient, of all positions: codes of a share are gathered along rows (the transposed copy is made of them all), or along both, the
 * columns beside the product that reads rows. */
struct row_gradient { struct te_codes mine; int rows, columns, rows_came, columns_came; };

static struct row_gradient gather_gradient(struct tape *t, const struct node *n, struct operands o)
{
    const struct te_scaled *f = &n->te.scaled;
    int64_t numel = n->m * n->n;
    bool twice = o.format && !te_gathers_rows(f) && !n->te.frozen;
    struct row_gradient g = { { 0, 0 }, 0, 0, 0, 0 };

    if (o.format)
        g.mine = te_cast(t, f, numel / n->te.ranks, o.dt, twice ? TE_ROWS | TE_COLUMNS : TE_ROWS, false, n->te.ranks);
    if (!n->te.overlaps) {
        g.rows_came = gather(t, o, numel);
        g.rows = room_for(t, o, numel);
    }
    if (twice) {
        g.columns_came = gather(t, o, numel);
        g.columns = n->te.overlaps ? 0 : room_for(t, o, numel);
    }
    return g;
}

static void row_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct operands o = operands_of(&n->te.scaled, n->edges[0].dt, n->te.module);
    struct row_gradient g = { { 0, 0 }, 0, 0, 0, 0 };
    struct te_codes x = { 0, 0 };
    bool trains = !n->te.frozen;

    if (n->te.gathers)
        g = gather_gradient(t, n, o);
    else if (o.format)
        g.mine = te_cast(t, &n->te.scaled, n->m * n->n, o.dt, trains || t->turns_frozen ? TE_ROWS | TE_COLUMNS : TE_ROWS, false, 1);
    if (n->te.original && trains)
        x = te_cast_again(t, &n->te.scaled, n->edges[0].numel, o.dt, 1);
    tape_needs(t, g.rows_came);
    if (tape_wants(n, 0) || n->te.core) {
        if (n->te.overlaps)
            product_of_parts(t, n->names.dx, n->m, n->k, n->n, o, n->te.ranks);
        else
            product(t, n->names.dx, n->m, n->k, n->n, o);
        out[0] = tape_new(t, n->m * n->k, o.dt);
    }
    tape_needs(t, g.columns_came);
    if (n->te.gathers && !g.columns && (trains || (t->turns_frozen && !n->te.overlaps)))
        g.columns = te_turn(t, &n->te.scaled, n->m * n->n);
    if (trains)
        weight_product(t, n, o);
    hand_out(t, n, out);
    drop_saved(t, n, 0);
    tape_unref(t, g.rows);
    tape_unref(t, g.columns);
    te_drop_codes(t, g.mine);
    te_drop_codes(t, x);
}

/* ---- between products ---- */

var te_bias_dropout_add(struct tape *t, const char *name, var x, var b, var residual, double p)
{
    int64_t numel = tape_var_numel(t, x);

    tape_pass(t, name, KC_ELEMENTWISE, 3 * bytes_of(t, x) + (p > 0 ? numel : 0));
    struct node *n = tape_node_of(t, NODE_TE_ADD, name, KC_ELEMENTWISE, x);
    int node = t->nnodes - 1;
    tape_edge(t, n, residual);
    if (b)
        tape_edge(t, n, b);
    var y = fresh(t, node, numel, tape_var_dtype(t, x));
    if (p > 0) {
        int mask = tape_new(t, numel, DT_UINT8);
        tape_save(t, &t->nodes[node], mask);
        tape_unref(t, mask);
        t->nodes[node].te.masked = true;
    }
    return y;
}

/* A bias that was added to every row gets the sum over them. */
static void sum_rows(struct tape *t, const struct node *n, int i, int64_t bytes, int out[TAPE_EDGES])
{
    if (!tape_wants(n, i))
        return;
    tape_pass(t, "bias gradient", KC_ELEMENTWISE, bytes);
    out[i] = small_grad(t, n, i);
}

static void add_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    int64_t bytes = n->edges[0].numel * dtype_bytes(n->edges[0].dt);

    out[1] = tape_wants(n, 1) ? tape_share(t, n->grad[0]) : 0;
    if (n->te.masked && tape_wants(n, 0)) {
        tape_pass(t, n->name, KC_ELEMENTWISE, 2 * bytes + n->edges[0].numel);
        out[0] = tape_new(t, n->edges[0].numel, n->edges[0].dt);
    } else if (tape_wants(n, 0)) {
        out[0] = tape_share(t, n->grad[0]);
    }
    sum_rows(t, n, 2, bytes, out);
}

var te_activation(struct tape *t, const char *name, var x, var b, bool gated)
{
    int64_t numel = tape_var_numel(t, x) / (gated ? 2 : 1);

    tape_pass(t, name, KC_ELEMENTWISE, bytes_of(t, x) + numel * dtype_bytes(tape_var_dtype(t, x)));
    struct node *n = tape_node_of(t, NODE_TE_ACTIVATION, name, KC_ELEMENTWISE, x);
    if (b)
        tape_edge(t, n, b);
    tape_save_var(t, n, x);
    n->k = numel;
    return fresh(t, t->nnodes - 1, numel, tape_var_dtype(t, x));
}

var te_weighted_activation(struct tape *t, const char *name, var x, var w)
{
    var y = te_activation(t, name, x, 0, true);
    struct node *n = &t->nodes[t->nnodes - 1];

    tape_edge(t, n, w);
    tape_save_var(t, n, w);
    n->te.weights = 1;
    return y;
}

static void activation_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];
    int64_t bytes = e->numel * dtype_bytes(e->dt);

    tape_pass(t, n->name, KC_ELEMENTWISE, 2 * bytes + n->k * dtype_bytes(e->dt));
    out[0] = tape_new(t, e->numel, e->dt);
    if (n->te.weights)
        out[1] = tape_new(t, n->edges[1].numel, n->edges[1].dt);
    else
        sum_rows(t, n, 1, bytes, out);
}

static var copied(struct tape *t, const char *name, enum kernel_class kc, enum node_kind kind, var x)
{
    tape_pass(t, name, kc, 2 * bytes_of(t, x));
    tape_node_of(t, kind, name, kc, x);
    return fresh(t, t->nnodes - 1, tape_var_numel(t, x), tape_var_dtype(t, x));
}

var te_rotate(struct tape *t, const char *name, var x) { return copied(t, name, KC_ELEMENTWISE, NODE_COPY, x); }

var te_contiguous(struct tape *t, const char *name, var x) { return copied(t, name, KC_COPY, NODE_PASS, x); }

/* ---- attention ---- */

/* FusedAttnFunc, flash-attn's function: q, k, v, the output, a row's log-sum-exp, the random generator's seed and offset.  Gradients lie
 * as what they belong to does: of packed q, k and v in one tensor. */
var te_attention(struct tape *t, var q, var k, var v, var sinks, int64_t numel, int64_t lse_numel, int64_t scratch, double flops)
{
    const var in[3] = { q, k, v };
    enum dtype dt = tape_var_dtype(t, q);
    struct kernel *kernel = tape_pass(t, "attention", KC_ATTENTION, numel * dtype_bytes(dt));

    kernel->flops = flops;
    kernel->te_module = TE_PYTHON_ATTENTION;
    struct node *n = tape_node(t, NODE_EACH, "attention", KC_ATTENTION);
    int node = t->nnodes - 1;
    for (int i = 0; i < 3 && in[i]; i++) {
        kernel->bytes += bytes_of(t, in[i]);
        tape_edge(t, n, in[i]);
        tape_save_var(t, n, in[i]);
    }
    if (sinks) {
        tape_edge(t, n, sinks);
        tape_save_var(t, n, sinks);
    }
    n->flops = flops;
    n->te.module = true;
    n->work = scratch;
    var y = fresh(t, node, numel, dt);
    tape_save_var(t, &t->nodes[node], y);
    const int kept[] = { tape_new(t, lse_numel, DT_FP32), tape_new(t, 2, DT_INT64) };
    for (int i = 0; i < 2; i++) {
        tape_save(t, &t->nodes[node], kept[i]);
        tape_unref(t, kept[i]);
    }
    return y;
}

/* ---- the embedding ---- */

var te_move(struct tape *t, enum te_moved how, var x, int64_t ranks)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t numel = tape_var_numel(t, x);
    struct node *n = tape_node_of(t, NODE_TE_MOVE, "collective", KC_COPY, x);
    int node = t->nnodes - 1;

    n->m = (int64_t)how;
    switch (how) {
    case TE_SUM:                /* in place */
        tape_issue(t, "all-reduce", COLL_ALL_REDUCE, RED_SUM, dt, numel);
        return tape_var(t, tape_share(t, t->vars[x].store), numel, dt, node, 0);
    case TE_SCATTER:
        tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, dt, numel);
        break;
    case TE_SPLIT:              /* of a view of one rank's share: clone_scatter_output_in_embedding */
        tape_pass(t, "own positions", KC_COPY, 2 * numel / ranks * dtype_bytes(dt));
        break;
    case TE_GATHER: case TE_GATHER_OWN:
        tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, numel * ranks);
        n->k = numel * ranks;
        return fresh(t, node, numel * ranks, dt);
    }
    return fresh(t, node, numel / ranks, dt);
}

static void move_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];

    if (n->m == TE_SUM) {
        out[0] = tape_share(t, n->grad[0]);
        return;
    }
    if (n->m == TE_GATHER)
        tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, e->dt, n->k);
    else if (n->m == TE_GATHER_OWN)
        tape_pass(t, "own positions", KC_COPY, 2 * e->numel * dtype_bytes(e->dt));
    else
        tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, e->dt, e->numel);
    out[0] = tape_new(t, e->numel, e->dt);
}

/* Which ids are another rank's, and the others from its first row on; then those rows are zeroed in place. */
var te_embedding(struct tape *t, const char *name, var ids, int64_t width, var w, int64_t ranks)
{
    int64_t rows = tape_var_numel(t, ids);
    int mask = 0, local = 0;

    if (ranks > 1) {
        tape_pass(t, "mask ids", KC_COPY, rows * (3 * 8 + 3));
        mask = tape_new(t, rows, DT_UINT8), local = tape_new(t, rows, DT_INT64);
    }
    var x = op_embedding(t, name, ids, width, w);
    int node = t->nnodes - 1;
    if (ranks == 1)
        return x;
    tape_pass(t, "mask rows", KC_COPY, rows * width * dtype_bytes(tape_var_dtype(t, x)));
    tape_save(t, &t->nodes[node], local);               /* of F.embedding, */
    tape_save(t, &t->nodes[node], mask);                /* and of the assignment to its rows */
    tape_unref(t, mask);
    tape_unref(t, local);
    return x;
}

void tape_run_te(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES])
{
    t->module = n->module;
    t->half = n->half;
    switch (n->kind) {
    case NODE_TE_NORM:       norm_back(t, n, out); break;
    case NODE_TE_COLUMN:     column_back(t, n, out); break;
    case NODE_TE_ROW:        row_back(t, n, out); break;
    case NODE_TE_ADD:        add_back(t, n, out); break;
    case NODE_TE_ACTIVATION: activation_back(t, n, out); break;
    case NODE_TE_MOVE:       move_back(t, n, out); break;
    case NODE_TE_LOSS:       te_loss_back(t, n, out, got); break;
    default:                 break;
    }
}
