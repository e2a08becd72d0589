/* tape_loss.c -- see tape_loss.h. */
#include "model/program/tape_loss.h"

static int make(struct tape *t, int64_t numel, enum dtype dt) { return tape_alloc(t, numel, dtype_bytes(dt), MEM_ACTIVATIONS); }

/* A new tensor that the last node saves. */
static int make_saved(struct tape *t, int64_t numel, enum dtype dt)
{
    int store = make(t, numel, dt);

    tape_save(t, &t->nodes[t->nnodes - 1], store);
    tape_unref(t, store);
    return store;
}

static var result(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_var(t, make(t, numel, dt), numel, dt, t->nnodes - 1, 0);
}

static void pass(struct tape *t, const char *name, enum kernel_class kc, int64_t bytes)
{
    (t->backward ? tape_kernel(t, name, kc) : tape_begin(t, name, kc))->bytes = bytes;
}

/* C[m, n] = A[m, k] B[k, n]; `adds` bytes an element: C is read and written in that. */
static void product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t size, int64_t adds)
{
    struct kernel *kernel = t->backward ? tape_kernel(t, name, KC_GEMM) : tape_begin(t, name, KC_GEMM);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = 1;
    kernel->flops = 2.0 * (double)m * (double)n * (double)k;
    kernel->sums = 2 * adds * m * n;
    kernel->bytes = (m * k + n * k + (adds ? 0 : m * n)) * size + kernel->sums;
}

/* ---- of logits ---- */

var op_nll(struct tape *t, var logp, var labels)
{
    tape_begin_saving(t, "nll loss", KC_LOSS)->bytes = tape_var_numel(t, labels) * 12;
    struct node *n = tape_node(t, NODE_COPY, "nll loss", KC_LOSS);
    tape_edge(t, n, logp);
    tape_save_var(t, n, logp);
    tape_save_var(t, n, labels);
    var loss = result(t, 1, DT_FP32);
    make_saved(t, 1, DT_FP32);                  /* total weight */
    return loss;
}

var op_mean(struct tape *t, const char *name, var x)
{
    pass(t, name, KC_LOSS, tape_var_bytes(t, x));
    tape_edge(t, tape_node(t, NODE_COPY, name, KC_LOSS), x);
    return result(t, 1, DT_FP32);
}

/* flash-attn, csrc/xentropy: forward reads the logits twice (maximum, then sum), backward reads them and writes their
 * gradient. */
var op_fused_loss(struct tape *t, const char *name, var logits, var labels, int64_t width, int numbers, bool named)
{
    int64_t rows = tape_var_numel(t, logits) / width;

    tape_begin_saving(t, name, KC_LOSS)->bytes = 2 * tape_var_bytes(t, logits);
    struct node *n = tape_node(t, NODE_EACH, name, KC_LOSS);
    tape_edge(t, n, logits);
    if (!named)
        tape_save_var(t, n, logits);
    tape_save_var(t, n, labels);
    var losses = result(t, rows, DT_FP32);
    for (int i = 0; i < numbers; i++)
        make_saved(t, rows, DT_FP32);
    var loss = op_mean(t, name, losses);
    tape_drop(t, losses);
    return loss;
}

var op_fused_loss_in_place(struct tape *t, const char *name, var logits, var labels, int64_t width)
{
    int64_t rows = tape_var_numel(t, logits) / width;

    tape_begin_saving(t, name, KC_LOSS)->bytes = 2 * tape_var_bytes(t, logits);
    struct node *n = tape_node(t, NODE_MADE, name, KC_LOSS);
    tape_edge(t, n, logits);
    tape_save_var(t, n, logits);                /* which become their gradient */
    tape_save_var(t, n, labels);
    var losses = result(t, rows, DT_FP32);
    make_saved(t, rows, DT_FP32);
    var loss = op_mean(t, name, losses);
    tape_drop(t, losses);
    return loss;
}

/* What aot_autograd of PyTorch 2.15 keeps: the logits, two numbers a row in fp32 and one in theirs.  Forward and backward read the logits twice. */
var op_entropy(struct tape *t, const char *name, var logits, int64_t width)
{
    int64_t rows = tape_var_numel(t, logits) / width;
    enum dtype dt = tape_var_dtype(t, logits);

    tape_begin_saving(t, name, KC_LOSS)->bytes = 2 * tape_var_bytes(t, logits);
    struct node *n = tape_node(t, NODE_COPY, name, KC_LOSS);
    tape_edge(t, n, logits);
    tape_save_var(t, n, logits);
    var each = result(t, rows, dt);
    make_saved(t, rows, DT_FP32);
    make_saved(t, rows, DT_FP32);
    make_saved(t, rows, dt);
    var mean = op_mean(t, name, each);
    tape_drop(t, each);
    return mean;
}

/* torch.logsumexp(): what is exponentiated is a tensor of its own; so are three each as large in backward, the last of which is the gradient
 * (logsumexp_backward(), FunctionsManual.cpp). */
static var log_sum_exp(struct tape *t, const char *name, var logits, int64_t rows)
{
    int64_t bytes = tape_var_bytes(t, logits);

    tape_begin_saving(t, name, KC_LOSS)->bytes = 6 * bytes;
    op_scratch(t, name, bytes);
    struct node *n = tape_node(t, NODE_COPY, name, KC_LOSS);
    tape_edge(t, n, logits);
    tape_save_var(t, n, logits);
    n->work = 2 * bytes;
    n->m = 4 * tape_var_numel(t, logits);       /* passes of backward */
    var out = result(t, rows, tape_var_dtype(t, logits));
    tape_save_var(t, &t->nodes[t->nnodes - 1], out);
    return out;
}

/* logsumexp(logits) - sum(softmax(logits) * logits), operation by operation; a sum's gradient is a view. */
var op_entropy_eager(struct tape *t, var logits, int64_t width)
{
    int64_t rows = tape_var_numel(t, logits) / width;
    enum dtype dt = tape_var_dtype(t, logits);
    var p = op_unary(t, "entropy softmax", KC_SOFTMAX, logits, SAVE_OUT), sum = log_sum_exp(t, "entropy logsumexp", logits, rows);
    var product = op_mul(t, "entropy product", p, logits);

    pass(t, "entropy sum", KC_LOSS, tape_var_bytes(t, product));
    tape_edge(t, tape_node(t, NODE_PASS, "entropy sum", KC_LOSS), product);
    var weighed = result(t, rows, dt);
    tape_drop(t, product);
    var each = op_add(t, "entropy", sum, weighed);
    tape_drop(t, sum);
    tape_drop(t, weighed);
    tape_drop(t, p);
    var mean = op_mean(t, "entropy", each);
    tape_drop(t, each);
    return mean;
}

/* ops/cross_entropy.py: a row is read twice, and its gradient written over it. */
var op_in_place_loss(struct tape *t, const char *name, var logits, int64_t width)
{
    int64_t rows = tape_var_numel(t, logits) / width;

    tape_begin_saving(t, name, KC_LOSS)->bytes = 3 * tape_var_bytes(t, logits);
    struct node *n = tape_node(t, NODE_MADE, name, KC_LOSS);
    int at = t->nnodes - 1;
    tape_edge(t, n, logits);
    tape_save_var(t, n, logits);
    int losses = make(t, rows, tape_var_dtype(t, logits));
    pass(t, name, KC_LOSS, rows * tape_elem(t, logits));
    int sum = make(t, 1, DT_FP32);
    tape_unref(t, losses);
    return tape_var(t, sum, 1, DT_FP32, at, 0);
}

/* ---- of hidden states and a weight ---- */

/* What x[..] is in products: itself, or a copy that the caller drops. */
static int narrowed(struct tape *t, int64_t numel, enum dtype from, enum dtype to)
{
    if (from == to)
        return 0;
    pass(t, "cast", KC_COPY, numel * (dtype_bytes(from) + dtype_bytes(to)));
    return make(t, numel, to);
}

/* The weight's gradient of some rows: added by the product itself (addmm with out=), or made, widened and added. */
static void add_weight_gradient(struct tape *t, const struct head_loss *h, int64_t rows, enum dtype dt)
{
    enum dtype wt = tape_var_dtype(t, h->w);
    int64_t all = h->n * h->k, size = dtype_bytes(dt);
    int x = narrowed(t, rows * h->k, tape_var_dtype(t, h->x), dt);

    if (dt != DT_FP32 && !h->narrow_sums) {
        product(t, h->names->dw, h->k, h->n, rows, size, dtype_bytes(wt));
        tape_unref(t, x);
        return;
    }
    product(t, h->names->dw, h->k, h->n, rows, size, 0);
    int made = make(t, all, dt), wide = narrowed(t, all, dt, DT_FP32);
    tape_unref(t, wide ? made : 0);
    pass(t, h->name, KC_ELEMENTWISE, all * (4 + 2 * dtype_bytes(wt)));
    tape_unref(t, wide ? wide : made);
    tape_unref(t, x);
}

/* fused_linear_cross_entropy_forward() of 0.8.5.  Where x and W are in the products' dtype, logits and x's gradient are written into tensors
 * that exist (_can_use_mm_out()); else each product has its own copies and result. */
static void one_chunk(struct tape *t, const struct head_loss *h, int64_t rows, enum dtype dt, bool direct, bool trains, var *cast)
{
    enum dtype xt = tape_var_dtype(t, h->x), wt = tape_var_dtype(t, h->w);
    int64_t all = h->n * h->k, size = dtype_bytes(dt);
    int x = narrowed(t, rows * h->k, xt, dt), w = narrowed(t, all, wt, dt);

    product(t, h->names->forward, rows, h->n, h->k, size, 0);
    int logits = direct ? 0 : make(t, rows * h->n, dt);
    tape_unref(t, x);
    tape_unref(t, w);
    pass(t, h->name, KC_LOSS, 3 * rows * h->n * size);
    w = 0;
    if (wt != dt && trains && !*cast)           /* a leaf that trains: autocast keeps its copy, not that of its transpose above */
        *cast = op_cast(t, h->w, dt);
    else if (wt != dt && !trains)
        w = narrowed(t, all, wt, dt);
    product(t, h->names->dx, rows, h->k, h->n, size, 0);
    if (!direct) {
        int dx = make(t, rows * h->k, dt);
        pass(t, "copy", KC_COPY, rows * h->k * (size + dtype_bytes(xt)));
        tape_unref(t, dx);
    }
    tape_unref(t, w);
    if (trains)
        add_weight_gradient(t, h, rows, dt);
    tape_unref(t, logits);
}

var op_linear_loss(struct tape *t, const struct head_loss *h, var *cast)
{
    enum dtype xt = tape_var_dtype(t, h->x), dt = h->autocast ? DT_BF16 : xt;
    int64_t rows = tape_var_numel(t, h->x) / h->k;
    bool trains = tape_wants_grad(t, h->w), direct = xt == dt && tape_var_dtype(t, h->w) == dt;

    tape_begin_saving(t, h->name, KC_COPY)->bytes = rows * h->k * tape_elem(t, h->x) + (trains ? h->n * h->k * tape_elem(t, h->w) : 0);   /* zeros */
    struct node *n = tape_node(t, NODE_MADE, h->name, KC_LOSS);
    int at = t->nnodes - 1;
    tape_edge(t, n, h->x);
    tape_edge(t, n, h->w);
    make_saved(t, rows * h->k, xt);
    if (trains)
        make_saved(t, h->n * h->k, tape_var_dtype(t, h->w));
    int losses = make(t, rows, DT_FP32), logits = direct ? make(t, h->chunk * h->n, dt) : 0;
    *cast = 0;
    for (int64_t done = 0; done < rows; done += h->chunk)
        one_chunk(t, h, rows - done < h->chunk ? rows - done : h->chunk, dt, direct, trains, cast);
    tape_unref(t, logits);
    pass(t, h->name, KC_LOSS, 4 * rows);
    int sum = make(t, 1, DT_FP32);
    tape_unref(t, losses);
    return tape_var(t, sum, 1, DT_FP32, at, 0);
}

/* cce.py and cce_backward.py (version 25.9): forward leaves the log-sum-exp, the labels' logits and, for the order in which backward takes
 * the vocabulary, the mean of each logit. */
var op_cut_loss(struct tape *t, const struct head_loss *h, var labels)
{
    int64_t rows = tape_var_numel(t, h->x) / h->k;

    struct kernel *k = tape_begin_saving(t, h->names->forward, KC_GEMM);
    k->m = rows, k->n = h->n, k->k = h->k, k->batch = 1;
    k->flops = 2.0 * (double)rows * (double)h->n * (double)h->k;
    k->bytes = (rows * h->k + h->n * h->k) * tape_elem(t, h->x) + 4 * (rows + h->n);
    struct node *n = tape_node(t, NODE_CUT_LOSS, h->name, KC_LOSS);
    int at = t->nnodes - 1;
    n->names = *h->names;
    n->m = rows, n->n = h->n, n->k = h->k;
    tape_edge(t, n, h->x);
    tape_edge(t, n, h->w);
    tape_save_var(t, n, h->x);
    tape_save_var(t, n, h->w);                  /* counted where it is on the host */
    tape_save_var(t, n, labels);
    make_saved(t, rows, DT_INT64);              /* which rows have a label */
    make_saved(t, rows, DT_FP32);               /* lse */
    make_saved(t, h->n, DT_FP32);               /* logit_avg */
    pass(t, h->name, KC_LOSS, 2 * rows * h->k * tape_elem(t, h->x) + 4 * rows);
    int dots = make(t, rows, DT_FP32);
    pass(t, h->name, KC_LOSS, 4 * rows);
    int sum = make(t, 1, DT_FP32);
    tape_unref(t, dots);
    return tape_var(t, sum, 1, DT_FP32, at, 0);
}

/* ---- backward ---- */

/* The gradients are there: they are multiplied by the loss's in place (element_mul_kernel; transformers' Trainer divides the loss by the
 * number of labels, so that it is not 1) and handed on. */
/* What forward kept is from here on a gradient like any other, and is freed as a temporary. */
static void count_as_gradient(struct tape *t, struct store *st)
{
    t->live[st->cat] -= st->bytes;
    t->live[MEM_TEMPORARIES] += st->bytes;
    st->cat = MEM_TEMPORARIES;
}

static void run_made(struct tape *t, const struct node *n, int out[])
{
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    for (int i = 0, made = 0; i < n->nedges; i++)
        if (tape_wants(n, i)) {
            out[i] = n->saved[made++];
            t->stores[out[i]].refs++;
            k->bytes += 2 * t->stores[out[i]].bytes;
            if (n->edges[i].tensor < 0)
                count_as_gradient(t, &t->stores[out[i]]);
        }
}

/* Zeros to add to, locks for 128 rows (or rows of W) and 64 columns; one kernel computes logits again and adds to both gradients, block by
 * block of 128: none is left out here as too small (filter_eps). */
static void run_cut(struct tape *t, const struct node *n, int out[])
{
    int64_t columns = (n->k + 63) / 64, size = dtype_bytes(n->edges[0].dt);
    int locks[2] = { 0 };

    pass(t, "order of the vocabulary", KC_LOSS, 16 * n->n);
    int order = tape_alloc(t, n->n, 8, MEM_TEMPORARIES), narrow = tape_alloc(t, n->n, 4, MEM_TEMPORARIES);
    tape_unref(t, order);
    for (int i = 0; i < 2; i++)
        if (tape_wants(n, i)) {
            const struct edge *e = &n->edges[i];
            pass(t, n->name, KC_COPY, e->numel * dtype_bytes(e->dt));
            out[i] = tape_alloc(t, e->numel, dtype_bytes(e->dt), e->tensor >= 0 ? MEM_GRADS : MEM_TEMPORARIES);
        }
    for (int i = 0; i < 2; i++)
        locks[i] = out[i] ? tape_alloc(t, ((i ? n->n : n->m) + 127) / 128 * columns, 4, MEM_TEMPORARIES) : 0;
    product(t, n->names.forward, n->m, n->n, n->k, size, 0);
    if (out[0])
        product(t, n->names.dx, n->m, n->k, n->n, size, size);
    if (out[1])
        product(t, n->names.dw, n->k, n->n, n->m, size, size);
    tape_unref(t, locks[0]);
    tape_unref(t, locks[1]);
    tape_unref(t, narrow);
}

void tape_run_loss(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    if (n->kind == NODE_CUT_LOSS)
        run_cut(t, n, out);
    else
        run_made(t, n, out);
}
