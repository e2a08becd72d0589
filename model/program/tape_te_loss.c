/* tape_te_loss.c -- see tape_te_loss.h. */
#include "model/program/tape_te_loss.h"

#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

static void sum_over_ranks(struct tape *t, enum red_op red, int64_t elems, int64_t ranks)
{
    if (ranks > 1)
        tape_issue(t, "all-reduce", COLL_ALL_REDUCE, red, DT_FP32, elems);
}

/* Passes over the fp32 copy of the logits: in bytes an element, those that have a kernel of their own in core/tensor_parallel/cross_entropy.py,
 * or what inductor makes of core/fusions/fused_cross_entropy.py. */
static int softmax(struct tape *t, enum te_loss kind, int64_t numel, int64_t rows, int64_t ranks)
{
    bool plain = kind == TE_LOSS_PLAIN;

    tape_pass(t, "logits to fp32", KC_LOSS, (2 + 4) * numel);
    int all = tape_new(t, numel, DT_FP32);
    if (plain)
        tape_pass(t, "maximum", KC_LOSS, 4 * numel);
    int most = tape_new(t, rows, DT_FP32);
    sum_over_ranks(t, RED_MAX, rows, ranks);
    if (plain) {
        tape_pass(t, "subtract maximum", KC_LOSS, 8 * numel);
        tape_pass(t, "exp", KC_LOSS, 8 * numel);
        tape_pass(t, "sum of exp", KC_LOSS, 4 * numel);
        sum_over_ranks(t, RED_SUM, rows, ranks);
        sum_over_ranks(t, RED_SUM, rows, ranks);
    } else {
        tape_pass(t, "exp and its sum", KC_LOSS, 8 * numel);
        sum_over_ranks(t, RED_SUM, 2 * rows, ranks);
    }
    tape_pass(t, "softmax", KC_LOSS, 8 * numel);
    tape_unref(t, most);
    return all;
}

/* nemo_rl/distributed/model_utils.py, _compute_distributed_log_softmax(): the caller still has the logits while their differences, these' exponentials
 * and the result are made, each a tensor of its own. */
static int log_softmax(struct tape *t, int64_t numel, int64_t rows, int64_t ranks)
{
    tape_pass(t, "maximum", KC_LOSS, 4 * numel);
    int most = tape_new(t, rows, DT_FP32);
    sum_over_ranks(t, RED_MAX, rows, ranks);
    tape_pass(t, "subtract maximum", KC_LOSS, 8 * numel);
    int less = tape_new(t, numel, DT_FP32);
    tape_pass(t, "exp", KC_LOSS, 8 * numel);
    int powers = tape_new(t, numel, DT_FP32);
    tape_pass(t, "sum of exp", KC_LOSS, 4 * numel);
    int sum = tape_new(t, rows, DT_FP32);
    tape_unref(t, powers);
    sum_over_ranks(t, RED_SUM, rows, ranks);
    tape_pass(t, "log-softmax", KC_LOSS, 8 * numel);
    int all = tape_new(t, numel, DT_FP32);
    tape_unref(t, less);
    tape_unref(t, sum);
    tape_unref(t, most);
    return all;
}

/* Of log-probabilities, which go. */
static int exponential(struct tape *t, int all, int64_t numel)
{
    tape_pass(t, "softmax", KC_LOSS, 8 * numel);
    int softmax = tape_new(t, numel, DT_FP32);
    tape_unref(t, all);
    return softmax;
}

/* DistributedLogprob.forward(): what backward wants is made beside the log-probabilities. */
static int distributed(struct tape *t, int64_t numel, int64_t rows, int64_t ranks)
{
    int all = log_softmax(t, numel, rows, ranks);

    sum_over_ranks(t, RED_SUM, rows, ranks);
    return exponential(t, all, numel);
}

/* The next elements of logits of 16 bits, in fp32. */
static int widened(struct tape *t, int64_t numel, int64_t size)
{
    tape_pass(t, "logits to fp32", KC_LOSS, (size + 4) * numel);
    return tape_new(t, numel, DT_FP32);
}

static int64_t next(const int64_t numel, int64_t done, int64_t at_once) { return numel - done < at_once ? numel - done : at_once; }

var te_chunked_loss(struct tape *t, var logits, var labels, int64_t at_once, int64_t ranks)
{
    int64_t numel = tape_var_numel(t, logits), rows = tape_var_numel(t, labels), size = dtype_bytes(tape_var_dtype(t, logits));
    struct node *n = tape_node_of(t, NODE_TE_LOSS, "loss", KC_LOSS, logits);
    int node = t->nnodes - 1, mask = tape_new(t, rows, DT_UINT8), targets = tape_new(t, rows, DT_INT64);

    n->m = TE_LOSS_CHUNKED;
    n->n = at_once, n->k = rows, n->batch = ranks;
    n->dt = DT_FP32;
    for (int64_t done = 0, part; done < numel; done += part) {
        part = next(numel, done, at_once);
        int64_t some = rows * part / numel;
        int wide = widened(t, part, size), all = log_softmax(t, part, some, ranks);
        tape_unref(t, all);
        tape_unref(t, wide);
        sum_over_ranks(t, RED_SUM, some, ranks);
    }
    tape_save_var(t, &t->nodes[node], logits);
    tape_save(t, &t->nodes[node], mask);
    tape_save(t, &t->nodes[node], targets);
    tape_unref(t, mask);
    tape_unref(t, targets);
    return tape_var(t, tape_new(t, rows, DT_FP32), rows, DT_FP32, node, 0);
}

/* Which token a row has chosen is a row of numbers of 8 bytes, made by one_hot(), then times what is this rank's, then in fp32. */
static void chunks_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];
    int64_t size = dtype_bytes(e->dt);

    tape_pass(t, "zeros", KC_COPY, size * e->numel);
    out[0] = tape_new(t, e->numel, e->dt);
    for (int64_t done = 0, part; done < e->numel; done += part) {
        part = next(e->numel, done, n->n);
        int wide = widened(t, part, size), softmax = exponential(t, log_softmax(t, part, n->k * part / e->numel, n->batch), part);
        tape_pass(t, "one-hot", KC_LOSS, 8 * part);
        int hot = tape_new(t, part, DT_INT64);
        tape_pass(t, "chosen", KC_LOSS, 16 * part);
        int chosen = tape_new(t, part, DT_INT64);
        tape_unref(t, hot);
        tape_pass(t, "chosen to fp32", KC_LOSS, 12 * part);
        int grad = tape_new(t, part, DT_FP32);
        tape_pass(t, "less softmax, times gradient", KC_LOSS, 20 * part);
        tape_pass(t, "into gradient", KC_COPY, (4 + size) * part);
        tape_unref(t, softmax);
        tape_unref(t, chosen);
        tape_unref(t, wide);
        tape_unref(t, grad);
    }
}

var te_parallel_loss(struct tape *t, enum te_loss kind, var logits, var labels, int64_t ranks)
{
    int64_t numel = tape_var_numel(t, logits), rows = tape_var_numel(t, labels), size = dtype_bytes(tape_var_dtype(t, logits));
    struct node *n = tape_node_of(t, NODE_TE_LOSS, "loss", KC_LOSS, logits);
    int node = t->nnodes - 1, kept[3] = { 0 };

    n->m = kind;
    n->dt = DT_FP32;
    if (kind == TE_LOSS_TE) {           /* the gradient is made in forward */
        tape_pass(t, "online softmax", KC_LOSS, size * numel);
        int numbers = tape_new(t, 3 * rows, DT_FP32), all = 0;
        if (ranks > 1) {
            tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, DT_FP32, 3 * rows * ranks);
            all = tape_new(t, 3 * rows * ranks, DT_FP32);
        }
        tape_pass(t, "cross-entropy", KC_LOSS, (size + 4) * numel);
        kept[0] = tape_new(t, numel, DT_FP32);
        tape_unref(t, numbers);
        tape_unref(t, all);
    } else {
        kept[0] = kind == TE_LOSS_DISTRIBUTED ? distributed(t, numel, rows, ranks) : softmax(t, kind, numel, rows, ranks);
        kept[1] = tape_new(t, rows, DT_UINT8);
        kept[2] = tape_new(t, rows, DT_INT64);
    }
    for (int i = 0; i < 3; i++) {
        tape_save(t, &t->nodes[node], kept[i]);
        tape_unref(t, kept[i]);
    }
    return tape_var(t, tape_new(t, rows, DT_FP32), rows, DT_FP32, node, 0);
}

/* In place of what forward kept. */
void te_loss_back(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];

    if (n->m == TE_LOSS_CHUNKED) {
        chunks_back(t, n, out);
        return;
    }
    if (n->m == TE_LOSS_NATIVE) {
        tape_pass(t, "loss backward", KC_LOSS, e->numel * (4 + dtype_bytes(e->dt)));
        out[0] = tape_new(t, e->numel, e->dt);
        return;
    }
    if (n->m == TE_LOSS_DISTRIBUTED) {          /* neg(), then mul_() */
        tape_pass(t, "loss backward", KC_LOSS, 8 * e->numel);
        out[0] = tape_new(t, e->numel, DT_FP32);
        tape_pass(t, "times gradient", KC_LOSS, 8 * e->numel);
        return;
    }
    tape_pass(t, "loss backward", KC_LOSS, 8 * e->numel);
    out[0] = tape_share(t, n->saved[0]);
    got[0] = DT_FP32;
}
