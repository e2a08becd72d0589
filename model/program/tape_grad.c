/* tape_grad.c -- what the backward of each kind of node allocates, in the order in
 * which PyTorch's derivative formulas do, and where gradients of parameters end. */
#include <assert.h>

#include "model/program/tape_actor.h"
#include "model/program/tape_adapter.h"
#include "model/program/tape_adapter_row.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_exchange.h"
#include "model/program/tape_experts.h"
#include "model/program/tape_float8.h"
#include "model/program/tape_internal.h"
#include "model/program/tape_liger.h"
#include "model/program/tape_loss.h"
#include "model/program/tape_mamba.h"
#include "model/program/tape_packed.h"
#include "model/program/tape_parts.h"
#include "model/program/tape_put.h"
#include "model/program/tape_qat.h"
#include "model/program/tape_ring.h"
#include "model/program/tape_te.h"
#include "model/program/tape_te_context.h"
#include "model/program/tape_te_adapter.h"
#include "model/program/tape_te_bias.h"
#include "model/program/tape_te_grouped.h"
#include "model/program/tape_te_latent.h"
#include "model/program/tape_te_mtp.h"
#include "model/program/tape_te_ring.h"

/* A gradient of operand i, in dtype dt. */
static int grad(struct tape *t, const struct node *n, int i, enum dtype dt)
{
    const struct edge *e = &n->edges[i];

    if (!tape_wants(n, i))
        return 0;                               /* it has no use */
    return tape_alloc(t, e->numel, dtype_bytes(dt), e->tensor >= 0 && !t->main_grad ? MEM_GRADS : MEM_TEMPORARIES);
}

static int temp(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_alloc(t, numel, dtype_bytes(dt), MEM_TEMPORARIES);
}

static enum dtype dt_of(const struct node *n, int i) { return n->edges[i].dt; }

static int64_t bytes_of(const struct node *n, int i)
{
    return n->edges[i].numel * dtype_bytes(dt_of(n, i));
}

/* The same gradient for every operand. */
static void run_pass(struct tape *t, const struct node *n, int out[], enum dtype got[])
{
    for (int i = 0; i < n->nedges; i++) {
        if (!tape_wants(n, i))
            continue;
        bool made = n->edges[i].tensor >= 0 && t->stores[n->grad[0]].derived;         /* Gemma's 1 + w of a weight in fp32, compiled */
        out[i] = made ? tape_fused_weight_gradient(t, &n->edges[i], &n->grad[0], 1) : tape_share(t, n->grad[0]);
        got[i] = n->dt;
    }
}

/* Bytes of the largest tensor that forward saved for this node, up to its operand's. */
static int64_t saved_bytes(const struct tape *t, const struct node *n)
{
    int64_t most = 0;

    for (int i = 0; i < n->nsaved; i++)
        if (n->saved[i] && t->stores[n->saved[i]].bytes > most)
            most = t->stores[n->saved[i]].bytes;
    return most < bytes_of(n, 0) ? most : bytes_of(n, 0);
}

static void run_each(struct tape *t, const struct node *n, int out[])
{
    struct kernel *k = tape_back(t, n, n->name);

    bool weights = false;
    k->flops = 2 * n->flops;
    k->chunks = n->kind == NODE_COPY ? (int)n->batch : 0;
    k->adds = n->adds;
    k->te_module = n->te.module ? TE_PYTHON_ATTENTION : TE_PYTHON_NONE;     /* te_attention() */
    for (int i = 0; i < n->nedges; i++) {
        out[i] = grad(t, n, i, dt_of(n, i));
        k->bytes += 2 * bytes_of(n, i);
        weights |= i > 0 && tape_wants(n, i);
    }
    /* The gradient comes in and goes out; what forward saved is read beside it.  A layer norm's
     * weights get theirs in a second kernel that reads gradient and input again. */
    if ((n->kind == NODE_COPY || n->kind == NODE_EACH) && n->m > n->edges[0].numel)
        k->bytes += (n->m - n->edges[0].numel) * dtype_bytes(dt_of(n, 0));
    if (n->kind == NODE_COPY)
        k->bytes += saved_bytes(t, n);
    else if (n->kind == NODE_LAYER_NORM)
        k->bytes += bytes_of(n, 0) * (weights ? 3 : 1);
    if (n->work)
        tape_unref(t, temp(t, n->work, DT_UINT8));
}

/* Of a table of which the rank has a share: DTensor's gradient is of the whole, n->k elements, on every rank. */
static void run_embedding(struct tape *t, const struct node *n, int out[])
{
    const struct edge *e = &n->edges[0];
    int whole = 0;

    if (n->k > e->numel) {
        tape_back(t, n, n->name)->bytes = 2 * n->k * dtype_bytes(e->dt);
        whole = temp(t, n->k, e->dt);
        tape_back(t, n, "own rows")->bytes = 2 * bytes_of(n, 0);
        out[0] = grad(t, n, 0, e->dt);
        tape_unref(t, whole);
    } else {
        run_each(t, n, out);
    }
}

static enum dtype wider(const struct node *n)
{
    return dtype_bytes(dt_of(n, 0)) >= dtype_bytes(dt_of(n, 1)) ? dt_of(n, 0) : dt_of(n, 1);
}

/* a*b: each gradient is the incoming one times the other, in the wider dtype. */
static void run_mul(struct tape *t, const struct node *n, int out[], enum dtype got[])
{
    tape_back(t, n, n->name)->bytes = 3 * (bytes_of(n, 0) + bytes_of(n, 1));
    for (int i = 0; i < 2; i++) {
        got[i] = wider(n);
        out[i] = grad(t, n, i, got[i]);
    }
}

/* x[rows, w] times one number a row, or times a vector of w numbers: the second
 * gradient is a product of x's size, then summed. */
static void run_mul_reduced(struct tape *t, const struct node *n, int out[], enum dtype got[])
{
    bool alone = n->kind == NODE_MUL_ROWS && !tape_wants(n, 1);

    got[0] = wider(n);
    tape_back(t, n, n->name)->bytes = alone ? n->edges[0].numel * (dtype_bytes(n->dt) + dtype_bytes(got[0])) : (tape_wants(n, 1) ? 5 : 2) * bytes_of(n, 0);
    out[0] = grad(t, n, 0, got[0]);
    if (!tape_wants(n, 1))
        return;
    int product = temp(t, n->edges[0].numel, got[0]);
    out[1] = grad(t, n, 1, dt_of(n, 1));
    tape_unref(t, product);
}

/* grad * (e * x^(e-1)). */
static int power(struct tape *t, const struct node *n)
{
    int raised = temp(t, n->edges[0].numel, dt_of(n, 0));
    int scaled = temp(t, n->edges[0].numel, dt_of(n, 0));
    int out = grad(t, n, 0, dt_of(n, 0));

    tape_unref(t, raised);
    tape_unref(t, scaled);
    return out;
}

static void run_power(struct tape *t, const struct node *n, int out[])
{
    tape_back(t, n, n->name)->bytes = 7 * bytes_of(n, 0);
    out[0] = power(t, n);
}

static void run_rms(struct tape *t, const struct node *n, int out[])
{
    tape_back(t, n, n->name)->bytes = 8 * bytes_of(n, 0);
    int spread = temp(t, n->edges[0].numel, dt_of(n, 0));       /* of the mean */
    out[0] = power(t, n);
    tape_unref(t, spread);
}

static void gemm(struct kernel *k, const struct node *n, int64_t rows, int64_t cols, int64_t inner,
                 enum dtype dt)
{
    k->m = rows, k->n = cols, k->k = inner, k->batch = n->batch;
    k->apart = n->kind == NODE_LINEAR && n->te.weights > 0;
    k->flops = n->flops;
    k->bytes = n->batch * (rows * inner + cols * inner + rows * cols) * dtype_bytes(dt);
}

static void run_linear(struct tape *t, const struct node *n, int out[])
{
    bool parts = t->gathered.store && n->grad[0] == t->gathered.store;

    for (int i = 0; i < 2; i++) {
        bool weight = (i == 0) == (n->weight_first && !parts);
        if (weight && tape_wants(n, 1)) {
            gemm(tape_back(t, n, n->names.dw), n, n->k, n->n, n->m, dt_of(n, 1));
            bool into = n->te.weights && !t->grads_apart;
            if (into) {                 /* main_grad, read and written */
                t->out[t->nout - 1].sums = n->edges[1].numel * 2 * t->main_grad;
                t->out[t->nout - 1].bytes += n->edges[1].numel * (2 * t->main_grad - dtype_bytes(dt_of(n, 1)));
            }
            if (n->te.weights && t->grads_apart && t->out[t->nout - 1].apart)
                t->out[t->nout - 1].te_module = TE_PYTHON_GRADS;
            out[1] = into ? tape_alloc(t, 0, 1, MEM_GRADS) : grad(t, n, 1, dt_of(n, 1));
        } else if (!weight && tape_wants(n, 0)) {
            gemm(tape_back(t, n, n->names.dx), n, n->m, n->k, n->n, dt_of(n, 0));
            t->out[t->nout - 1].te_module = t->out[t->nout - 1].apart ? TE_PYTHON_LINEAR : TE_PYTHON_NONE;
            out[0] = grad(t, n, 0, dt_of(n, 0));
            if (parts) {
                tape_product_in_parts(t, n->grad[0], dt_of(n, 0));
                tape_parts_gathered(t);
            }
        }
    }
    if (n->nedges > 2 && tape_wants(n, 2)) {
        struct kernel *k = tape_back(t, n, n->names.db);
        k->kind = KC_ELEMENTWISE;
        k->bytes = n->m * n->n * dtype_bytes(dt_of(n, 2));
        out[2] = grad(t, n, 2, dt_of(n, 2));
    }
}

static void run_matmul(struct tape *t, const struct node *n, int out[])
{
    bool merges = n->kc == KC_GEMM;             /* tape_merge() */

    if (tape_wants(n, 1))
        gemm(tape_back(t, n, merges ? "experts merge dB" : "attention dB"), n, n->k, n->n, n->m, dt_of(n, 1));
    out[1] = grad(t, n, 1, dt_of(n, 1));
    if (tape_wants(n, 0))
        gemm(tape_back(t, n, merges ? "experts merge dA" : "attention dA"), n, n->m, n->k, n->n, dt_of(n, 0));
    out[0] = grad(t, n, 0, dt_of(n, 0));
}

/* A kernel for each parameter's gradient. */
static void run_in_place(struct tape *t, const struct node *n, int out[])
{
    tape_back(t, n, n->name)->bytes = 2 * bytes_of(n, 0) + saved_bytes(t, n);
    out[0] = tape_share(t, n->grad[0]);
}

static void run_listed(struct tape *t, const struct node *n, int out[])
{
    for (int i = 0; i < (int)n->batch && n->m >= 0; i++) {
        const struct edge e = { .tensor = (int)n->m + i, .numel = n->k, .dt = n->dt };
        struct kernel *k = tape_back(t, n, n->name);
        k->module += i;
        k->bytes = 2 * e.numel * dtype_bytes(e.dt);
        tape_grad_arrived(t, &e, tape_alloc(t, e.numel, dtype_bytes(e.dt), MEM_GRADS));
    }
    if (n->edges[0].node)
        out[0] = tape_share(t, n->grad[0]);
}

void tape_run(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES])
{
    for (int i = 0; i < n->nedges; i++)
        got[i] = dt_of(n, i);
    if (tape_node_is_fused(t, n) && n->kind != NODE_PASS) {
        tape_run_fused(t, n, out);
        return;
    }
    switch (n->kind) {
    case NODE_PASS:           run_pass(t, n, out, got); break;
    case NODE_IN_PLACE:       run_in_place(t, n, out); break;
    case NODE_MUL:            run_mul(t, n, out, got); break;
    case NODE_MUL_ROWS: case NODE_SCALE:
                              run_mul_reduced(t, n, out, got); break;
    case NODE_LINEAR:         run_linear(t, n, out); break;
    case NODE_MATMUL:         run_matmul(t, n, out); break;
    case NODE_RMS:            run_rms(t, n, out); break;
    case NODE_POWER:          run_power(t, n, out); break;
    case NODE_MADE: case NODE_CUT_LOSS:
                              tape_run_loss(t, n, out); break;
    case NODE_ADAPTER_PARTS: case NODE_SPREAD:
                              tape_run_adapter(t, n, out); break;
    case NODE_ADAPTER_ROW:    tape_run_adapter_row(t, n, out); break;
    case NODE_MAMBA:          tape_run_mamba(t, n, out, got); break;
    case NODE_ACTOR_CHUNKS: case NODE_ACTOR_KERNEL: case NODE_CHUNKED_LOGPROB:
                              tape_run_actor(t, n, out); break;
    case NODE_LIGER_NORM: case NODE_LIGER_GLU: case NODE_LIGER_ROPE:
                              tape_run_liger(t, n, out); break;
    case NODE_LISTED:         run_listed(t, n, out); break;
    case NODE_COLLECTIVE: case NODE_PARALLEL_LOSS:
                              tape_run_collective(t, n, out); break;
    case NODE_RING:           tape_run_ring(t, n, out); break;
    case NODE_EXCHANGE: case NODE_EXCHANGE_LISTS: case NODE_GATHER_LIST: case NODE_GATHER_JOINED:
    case NODE_SUM_IN_PLACE:
                              tape_run_exchange(t, n, out); break;
    case NODE_PACKED:         tape_run_packed(t, n, out); break;
    case NODE_TE_NORM: case NODE_TE_COLUMN: case NODE_TE_ROW: case NODE_TE_ADD: case NODE_TE_ACTIVATION:
    case NODE_TE_MOVE: case NODE_TE_LOSS:
                              tape_run_te(t, n, out, got); break;
    case NODE_TE_COLUMNS: case NODE_TE_ATTACHED:
                              tape_run_te_mtp(t, n, out); break;
    case NODE_TE_BIAS:        tape_run_te_bias(t, n, out); break;
    case NODE_TE_ADAPTER:     te_adapter_move_back(t, n, out); break;
    case NODE_TE_GROUPED: case NODE_TE_PAD:
                              tape_run_te_grouped(t, n, out); break;
    case NODE_TE_LATENT:      tape_run_te_latent(t, n, out); break;
    case NODE_TE_RING:        tape_run_te_ring(t, n, out); break;
    case NODE_DISPATCH:       tape_run_dispatch(t, n, out); break;
    case NODE_FLOAT8: case NODE_FLOAT8_BACK:
                              tape_run_float8(t, n, out); break;
    case NODE_TE_GATHERED: case NODE_TE_HEADS: case NODE_TE_POSITIONS: case NODE_TE_SINKS:
                              tape_run_te_context(t, n, out); break;
    case NODE_CLAMP:          tape_run_clamp(t, n, out); break;
    case NODE_MSLK:           tape_run_mslk(t, n, out); break;
    case NODE_PUT:            tape_put_backward(t, n, out); break;
    case NODE_WEIGH:          tape_weigh_backward(t, n, out, got); break;
    case NODE_EMBEDDING:      run_embedding(t, n, out); break;
    case NODE_COPY: case NODE_EACH: case NODE_LAYER_NORM: case NODE_JOIN:
                              run_each(t, n, out); break;
    }
}

void tape_validate(struct tape *t, const struct node *n, int out[TAPE_EDGES],
                   const enum dtype got[TAPE_EDGES])
{
    for (int i = 0; i < n->nedges; i++) {
        if (n->kind == NODE_WEIGH && i == 1)
            tape_weigh_rows(t, n, out);
        if (!out[i] || got[i] == dt_of(n, i))
            continue;
        tape_back(t, n, "cast")->bytes = n->edges[i].numel * (dtype_bytes(got[i]) + dtype_bytes(dt_of(n, i)));
        int cast = grad(t, n, i, dt_of(n, i));
        tape_unref(t, out[i]);
        out[i] = cast;
    }
}

/* InputBuffer::accumulate() adds in place only into a tensor whose storage has no other reference.  What a
 * linear layer of PyTorch's hands out for its weight is a view (the transpose of a transpose), whose base
 * refers to it too: the sum is a third tensor.  A cast's gradient is a tensor of its own and takes the sum. */
static int tied_sum(struct tape *t, int64_t bytes, int g)
{
    tape_kernel(t, "tied grad add", KC_ELEMENTWISE)->bytes = 3 * bytes;
    int sum = t->tied_is_view ? tape_alloc(t, bytes, 1, MEM_GRADS) : g;
    if (t->tied_is_view)
        tape_unref(t, g);
    tape_unref(t, t->tied_grad);
    return sum;
}

/* In fp32, as FSDP2 has the gradients that it adds up over other ranks than its own. */
static int widened(struct tape *t, const struct edge *e, int g)
{
    if (e->dt == DT_FP32)
        return g;
    tape_kernel(t, "upcast gradient", KC_COPY)->bytes = e->numel * (4 + dtype_bytes(e->dt));
    int wide = tape_alloc(t, e->numel, 4, MEM_GRADS);
    tape_unref(t, g);
    return wide;
}

/* Megatron's hook: param.main_grad.add_(param.grad); param.grad = None (core/distributed/distributed_data_parallel.py).  What a product
 * has added by itself has no bytes; of a tied weight autograd adds up both gradients first, the head's being zeros. */
static int add_to_main(struct tape *t, const struct edge *e, int g)
{
    bool waits = t->tied_waits && e->tensor == TAPE_TIED && !t->tied_grad && t->stores[g].exact > 0, added = t->tied_grad && t->stores[t->tied_grad].exact > 0;

    if (waits)                          /* a token table's, of multi-token prediction: the embedding's is added to it */
        return g;
    int none = tape_alloc(t, 0, 1, MEM_GRADS);
    if (t->stores[g].exact > 0 && e->tensor == TAPE_TIED && t->tied_grad && added) {
        tape_kernel(t, "tied grad add", KC_ELEMENTWISE)->bytes = 3 * e->numel * dtype_bytes(e->dt);
    } else if (t->stores[g].exact > 0 && e->tensor == TAPE_TIED && t->tied_grad) {
        tape_kernel(t, "tied grad add", KC_ELEMENTWISE)->bytes = 3 * e->numel * dtype_bytes(e->dt);
        int sum = tape_alloc(t, e->numel, dtype_bytes(e->dt), MEM_TEMPORARIES);
        tape_unref(t, g);
        g = sum;
    }
    if (t->stores[g].exact > 0)
        tape_kernel(t, "main grad add", KC_ELEMENTWISE)->bytes = t->stores[g].exact / dtype_bytes(e->dt) * (dtype_bytes(e->dt) + 2 * t->main_grad);
    tape_unref(t, g);
    return none;
}

void tape_grad_arrived(struct tape *t, const struct edge *e, int g)
{
    struct store *st;
    int tensor = e->tensor;

    if (t->main_grad)
        g = add_to_main(t, e, g);
    if (tensor == TAPE_COPY) {
        tape_unref(t, g);
        return;
    }
    if (t->main_grad && t->stores[g].exact > 0) {
        t->tied_grad = g;                       /* add_to_main() has left it */
        return;
    }
    st = &t->stores[g];

    if (e->wide)
        g = widened(t, e, g);
    st = &t->stores[g];

    if (st->cat != MEM_GRADS) {                 /* handed on as it was */
        t->live[st->cat] -= st->bytes;
        t->live[MEM_GRADS] += st->bytes;
        st->cat = MEM_GRADS;
        tape_move(t, MOVE_GRAD, g);
    }
    if (tensor == TAPE_TIED) {
        if (!t->tied_grad) {
            t->tied_grad = g;                   /* waits for the other use */
            t->tied_is_view = t->linear_views && t->out[t->nout - 1].kind == KC_GEMM;
            return;
        }
        if (t->main_grad)
            tape_unref(t, t->tied_grad);
        else
            g = tied_sum(t, t->stores[g].bytes, g);
        tensor = t->tied;
    }
    if (t->out[t->nout - 1].ready[3] >= 0)      /* more than one kernel hands out: another, which runs nothing */
        tape_kernel(t, "ready", KC_COPY);
    struct kernel *k = &t->out[t->nout - 1];
    k->ready_bytes += t->stores[g].bytes;
    tape_move(t, MOVE_READY, g);
    if (k->nmoves > 0)
        t->moves[t->nmoves - 1].param = (int16_t)tensor;
    for (int i = 0; i < 4; i++)
        if (k->ready[i] < 0) {
            k->ready[i] = tensor;
            return;
        }
}
