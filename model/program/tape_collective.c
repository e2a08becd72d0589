/* tape_collective.c -- see tape_collective.h. */
#include "model/program/tape_collective.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"
#include "model/program/tape_parts.h"

/* ---- kernels ---- */

/* Of forward, or of backward; of a compiled graph too. */
static struct kernel *begin(struct tape *t, const char *name)
{
    if (t->backward)
        return tape_kernel(t, name, KC_COPY);
    struct kernel *k = tape_begin(t, name, KC_COPY);
    return tape_is_fused(t, KC_COPY) ? tape_kernel(t, name, KC_COPY) : k;
}

int tape_issue(struct tape *t, const char *name, enum coll_op op, enum red_op red, enum dtype dt, int64_t elems)
{
    struct kernel *k = begin(t, name);

    if (k != &t->skipped)
        k->collective = tape_note_collective(t, &(struct collective){
            .op = (uint8_t)op, .group = GROUP_TENSOR, .dtype = (uint8_t)dt, .red = (uint8_t)red, .stream = STREAM_TENSOR,
            .elems = elems });
    return k->collective;
}

static void pass_over(struct tape *t, const char *name, int64_t bytes)
{
    begin(t, name)->bytes = bytes;
}

static int gather(struct tape *t, int64_t numel, enum dtype dt, int64_t ranks, bool apart, bool parts)
{
    int64_t all = numel * ranks;

    if (parts && tape_is_fused(t, KC_COPY))
        return tape_gather_in_parts(t, all, dt, ranks);
    tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, all);
    int y = tape_new(t, all, dt);
    if (apart && tape_is_fused(t, KC_COPY)) {
        int joined = tape_derive(t, all, dtype_bytes(dt), &y, 1, KC_COPY);
        tape_unref(t, y);
        y = joined;
    } else if (apart) {
        pass_over(t, "join parts", 2 * all * dtype_bytes(dt));
        int joined = tape_new(t, all, dt);
        tape_unref(t, y);
        y = joined;
    }
    return y;
}

/* Selective checkpoints keep a reduce-scatter's result (torchtitan's list of operators).  A compiled graph then sorts nothing. */
static int scatter(struct tape *t, int x, int64_t numel, enum dtype dt, int64_t ranks)
{
    bool kept = t->cached && !t->backward && !t->stopped;
    int sorted = 0, y;

    if (tape_sum_parts(t, numel, dt)) {
        y = tape_new(t, numel / ranks, dt);
        if (t->caches)
            tape_keep_result(t, y);
        return y;
    }
    if (!(kept && t->compiled)) {
        pass_over(t, "sort parts", numel * dtype_bytes(dt) + (t->compiled ? tape_leaf_bytes(t, x) : numel * dtype_bytes(dt)));
        sorted = tape_new(t, numel, dt);
    }
    if (kept) {
        y = tape_kept_result(t);
    } else {
        tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, dt, numel);
        y = tape_new(t, numel / ranks, dt);
        if (t->caches && !t->backward)
            tape_keep_result(t, y);
    }
    tape_unref(t, sorted);
    return y;
}

static int sum(struct tape *t, enum red_op red, int64_t numel, enum dtype dt)
{
    tape_issue(t, "all-reduce", COLL_ALL_REDUCE, red, dt, numel);
    return tape_new(t, numel, dt);
}

/* The sum in place of its part. */
static int summed(struct tape *t, enum red_op red, int part, int64_t numel, enum dtype dt)
{
    int y = sum(t, red, numel, dt);

    tape_unref(t, part);
    return y;
}

/* ---- moving ---- */

var tape_collective(struct tape *t, enum tape_moved how, var x, int64_t ranks, bool apart, bool parts)
{
    int64_t numel = tape_var_numel(t, x);
    enum dtype dt = t->vars[x].float8 ? DT_FP8 : tape_var_dtype(t, x);
    struct node *n = tape_node_of(t, NODE_COLLECTIVE, "collective", KC_COPY, x);
    int node = t->nnodes - 1, y = 0;

    n->m = (int64_t)how, n->n = parts, n->k = ranks, n->batch = apart;
    n->apart = how == MOVED_GATHER || how == MOVED_SUM_BACK;
    if (how == MOVED_GATHER)
        tape_need(t, x);
    switch (how) {
    case MOVED_GATHER:      y = gather(t, numel, dt, ranks, apart, parts); numel *= ranks; break;
    case MOVED_GATHER_LAST: y = gather(t, numel, dt, ranks, true, false); numel *= ranks; break;
    case MOVED_SCATTER:     y = scatter(t, t->vars[x].store, numel, dt, ranks); numel /= ranks; break;
    case MOVED_SUM:         y = sum(t, RED_SUM, numel, dt); break;
    case MOVED_SUM_BACK:    y = tape_share(t, t->vars[x].store); break;
    }
    var made = tape_var(t, y, numel, tape_var_dtype(t, x), node, 0);
    t->vars[made].float8 = t->vars[x].float8;
    return made;
}

static void move_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];

    switch ((enum tape_moved)n->m) {
    case MOVED_GATHER:      out[0] = scatter(t, n->grad[0], e->numel * n->k, e->dt, n->k); break;
    case MOVED_SCATTER:     out[0] = gather(t, e->numel / n->k, n->float8.cast_gradient ? DT_FP8 : e->dt, n->k, n->batch, n->n); break;
    case MOVED_SUM:         out[0] = tape_share(t, n->grad[0]); break;
    case MOVED_SUM_BACK:    out[0] = sum(t, RED_SUM, e->numel, e->dt); break;
    case MOVED_GATHER_LAST:
        pass_over(t, "own columns", 2 * e->numel * dtype_bytes(e->dt));
        out[0] = tape_new(t, e->numel, e->dt);
        break;
    }
}

/* ---- the embedding ---- */

/* MaskPartial of _ops/_embedding_ops.py: ids below and above the rank's rows, their mask, ids from the rank's first row. */
var tape_masked_embedding(struct tape *t, const char *name, var ids, int64_t width, var w, int64_t whole)
{
    int64_t rows = tape_var_numel(t, ids);

    pass_over(t, "mask ids", rows * (3 * 8 + 3));
    int below = tape_new(t, rows, DT_UINT8), above = tape_new(t, rows, DT_UINT8), mask = tape_new(t, rows, DT_UINT8);
    tape_unref(t, below);
    tape_unref(t, above);
    int copied = tape_new(t, rows, DT_INT64), local = tape_new(t, rows, DT_INT64);
    tape_unref(t, copied);
    var x = op_embedding(t, name, ids, width, w);
    struct node *n = &t->nodes[t->nnodes - 1];
    n->k = whole;
    tape_unref(t, local);
    pass_over(t, "mask rows", rows * width * dtype_bytes(tape_var_dtype(t, x)));
    tape_unref(t, mask);
    return x;
}

/* ---- the loss ---- */

var tape_parallel_loss(struct tape *t, var logits, var labels)
{
    int64_t numel = tape_var_numel(t, logits), rows = tape_var_numel(t, labels), bytes = 4 * numel;
    struct node *n = tape_node_of(t, NODE_PARALLEL_LOSS, "loss", KC_LOSS, logits);
    int node = t->nnodes - 1;

    tape_begin(t, "maximum", KC_LOSS)->bytes = bytes;
    int most = summed(t, RED_MAX, tape_new(t, rows, DT_FP32), rows, DT_FP32);
    tape_begin(t, "subtract maximum", KC_LOSS)->bytes = 2 * bytes;
    int shifted = tape_new(t, numel, DT_FP32);
    tape_begin(t, "exp", KC_LOSS)->bytes = 2 * bytes;
    int exps = tape_new(t, numel, DT_FP32);
    tape_begin(t, "sum of exp", KC_LOSS)->bytes = bytes;
    int part = tape_new(t, rows, DT_FP32);
    tape_unref(t, exps);
    int total = summed(t, RED_SUM, part, rows, DT_FP32);
    tape_begin(t, "log", KC_LOSS)->bytes = 8 * rows;
    int log = tape_new(t, rows, DT_FP32);
    tape_begin(t, "log-softmax", KC_LOSS)->bytes = 2 * bytes;
    int logp = tape_new(t, numel, DT_FP32);
    const int done[] = { shifted, most, total, log };
    for (int i = 0; i < 4; i++)
        tape_unref(t, done[i]);

    pass_over(t, "mask labels", rows * (3 * 8 + 3));
    int safe = tape_new(t, rows, DT_INT64), mask = tape_new(t, rows, DT_UINT8), local = tape_new(t, rows, DT_INT64);
    tape_begin(t, "label's part", KC_LOSS)->bytes = 16 * rows;
    part = tape_new(t, rows, DT_FP32);
    tape_unref(t, mask);
    int found = sum(t, RED_SUM, rows, DT_FP32);
    tape_begin(t, "mean loss", KC_LOSS)->bytes = 4 * rows;
    int negated = tape_new(t, rows, DT_FP32), chosen = tape_new(t, rows, DT_FP32), weight = tape_new(t, 1, DT_FP32);
    var loss = tape_var(t, tape_new(t, 1, DT_FP32), 1, DT_FP32, node, 0);
    n = &t->nodes[node];
    tape_save(t, n, logp);
    tape_save_var(t, n, labels);
    tape_save(t, n, weight);
    const int gone[] = { safe, local, part, found, negated, chosen, logp, weight };
    for (int i = 0; i < 8; i++)
        tape_unref(t, gone[i]);
    n->dt = DT_FP32;
    return loss;
}

/* exp(log-probability), less one at the label, times the loss's gradient. */
static void loss_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    int64_t numel = n->edges[0].numel, bytes = 4 * numel;

    tape_kernel(t, "loss at labels", KC_LOSS)->bytes = bytes;
    int at_labels = tape_new(t, numel, DT_FP32);
    tape_kernel(t, "exp", KC_LOSS)->bytes = 2 * bytes;
    int exps = tape_new(t, numel, DT_FP32);
    tape_kernel(t, "add", KC_LOSS)->bytes = 3 * bytes;
    tape_unref(t, exps);
    tape_kernel(t, "scale", KC_LOSS)->bytes = 2 * bytes;
    out[0] = tape_new(t, numel, DT_FP32);
    tape_unref(t, at_labels);
}

void tape_run_collective(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    t->module = n->module;
    t->half = n->half;
    if (n->kind == NODE_PARALLEL_LOSS)
        loss_back(t, n, out);
    else
        move_back(t, n, out);
}
