/* tape_actor.c -- see tape_actor.h.  Tensors of a number a row, which live for some kernels, are left out but for those that are kept. */
#include "model/program/tape_actor.h"

#include "model/program/tape_collective.h"

static struct kernel *product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t size)
{
    struct kernel *kernel = tape_either(t, name, KC_GEMM);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = 1;
    kernel->flops = 2.0 * (double)m * (double)n * (double)k;
    kernel->bytes = (m * k + n * k + m * n) * size;
    return kernel;
}

/* One pass that reads so many bytes of each of `numel` elements, and the tensor that it makes. */
static int made(struct tape *t, const char *name, int64_t numel, int64_t reads, enum dtype dt)
{
    tape_pass(t, name, KC_LOSS, numel * (reads + dtype_bytes(dt)));
    return tape_new(t, numel, dt);
}

/* hidden_states @ vocab_weights.t(), / temperature, .to(torch.float32). */
static int wide_logits(struct tape *t, const struct gemm_names *names, int64_t rows, int64_t n, int64_t k, enum dtype dt)
{
    int64_t size = dtype_bytes(dt);

    product(t, names->forward, rows, n, k, size);
    int logits = tape_new(t, rows * n, dt), cool = made(t, "temperature", rows * n, size, dt);
    tape_unref(t, logits);
    int wide = made(t, "logits to fp32", rows * n, size, DT_FP32);
    tape_unref(t, cool);
    return wide;
}

/* _fused_linear_for_ppo_fwd(). */
static void chunk_forward(struct tape *t, const struct head_loss *h, int64_t rows, enum dtype dt)
{
    int64_t all = rows * h->n;
    int logits = wide_logits(t, h->names, rows, h->n, h->k, dt);
    int probs = made(t, "softmax", all, 4, DT_FP32), logp = made(t, "log-softmax", all, 4, DT_FP32);

    tape_pass(t, "gather", KC_LOSS, 16 * rows);
    tape_pass(t, "maximum", KC_LOSS, 4 * all);                  /* logsumexp() */
    int less = made(t, "subtract maximum", all, 4, DT_FP32);
    tape_pass(t, "exp", KC_LOSS, 8 * all);
    tape_pass(t, "sum of exp", KC_LOSS, 4 * all);
    tape_unref(t, less);
    int weighed = made(t, "entropy", all, 8, DT_FP32);
    tape_pass(t, "sum", KC_LOSS, 4 * all);
    tape_unref(t, weighed);
    tape_unref(t, logp);
    tape_unref(t, probs);
    tape_unref(t, logits);
}

static struct node *begin(struct tape *t, enum node_kind kind, const struct head_loss *h, var labels)
{
    struct node *n = tape_node(t, kind, h->name, KC_LOSS);

    n->names = *h->names;
    n->m = tape_var_numel(t, h->x) / h->k, n->n = h->n, n->k = h->k;
    tape_edge(t, n, h->x);
    tape_edge(t, n, h->w);
    tape_save_var(t, n, h->x);
    tape_save_var(t, n, h->w);                  /* counted where it is on the host */
    tape_save_var(t, n, labels);
    return n;
}

var tape_actor_chunks(struct tape *t, const struct head_loss *h, var labels)
{
    enum dtype dt = tape_var_dtype(t, h->x);
    int64_t rows = tape_var_numel(t, h->x) / h->k;

    tape_begin_saving(t, h->name, KC_COPY)->bytes = 2 * rows * dtype_bytes(dt);
    begin(t, NODE_ACTOR_CHUNKS, h, labels);
    int at = t->nnodes - 1, logp = tape_new(t, rows, dt), entropy = tape_new(t, rows, dt);
    for (int64_t done = 0; done < rows; done += ACTOR_CHUNK)
        chunk_forward(t, h, rows - done < ACTOR_CHUNK ? rows - done : ACTOR_CHUNK, dt);
    tape_unref(t, entropy);
    return tape_var(t, logp, rows, dt, at, 0);
}

/* _fused_linear_for_ppo_bwd(): both products, whether or not the weight trains. */
static void chunk_backward(struct tape *t, const struct node *n, int64_t rows, int *dx, int *dw)
{
    enum dtype dt = n->edges[0].dt;
    int64_t all = rows * n->n, size = dtype_bytes(dt);
    int logits = wide_logits(t, &n->names, rows, n->n, n->k, dt), probs = made(t, "softmax", all, 4, DT_FP32);
    int hot = made(t, "one-hot", all, 0, DT_FP32), less = made(t, "one-hot less softmax", all, 8, DT_FP32);
    int of = made(t, "times gradient", all, 4, DT_FP32);

    tape_unref(t, less);
    int sum = made(t, "add gradient", all, 4, DT_FP32);         /* 0 += */
    tape_unref(t, of);
    int narrow = made(t, "logits' gradient", all, 4, dt), cool = made(t, "temperature", all, size, dt);
    tape_unref(t, narrow);
    tape_unref(t, sum);
    product(t, n->names.dx, rows, n->k, n->n, size);
    *dx = tape_new(t, rows * n->k, dt);
    product(t, n->names.dw, n->n, n->k, rows, size);
    *dw = tape_new(t, n->n * n->k, dt);
    tape_unref(t, cool);
    tape_unref(t, hot);
    tape_unref(t, probs);
    tape_unref(t, logits);
}

static int gradient(struct tape *t, const struct node *n, int i, enum dtype dt)
{
    bool counts = n->edges[i].tensor >= 0 && !t->main_grad;

    return tape_alloc(t, (i ? n->n : n->m) * n->k, dtype_bytes(dt), counts ? MEM_GRADS : MEM_TEMPORARIES);
}

/* Zeros, to which each chunk's gradients are added: names hold those of a chunk until the next's are there. */
static void run_chunks(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    enum dtype dt = n->edges[0].dt;
    int64_t size = dtype_bytes(dt);
    int had[2] = { 0 };

    for (int i = 0; i < 2; i++)
        if (tape_wants(n, i)) {
            tape_pass(t, "zeros", KC_COPY, n->edges[i].numel * size);
            out[i] = gradient(t, n, i, dt);
        }
    for (int64_t done = 0; done < n->m; done += ACTOR_CHUNK) {
        int64_t rows = n->m - done < ACTOR_CHUNK ? n->m - done : ACTOR_CHUNK;
        int came[2];
        chunk_backward(t, n, rows, &came[0], &came[1]);
        for (int i = 0; i < 2; i++) {
            tape_unref(t, had[i]);
            had[i] = came[i];
            if (out[i])
                tape_pass(t, "add gradient", KC_ELEMENTWISE, 3 * (i ? n->n : rows) * n->k * size);
        }
    }
    tape_unref(t, had[0]);
    tape_unref(t, had[1]);
}

/* ---- Triton's ---- */

static void sum_over_ranks(struct tape *t, enum red_op red, int64_t elems) { tape_issue(t, "all-reduce", COLL_ALL_REDUCE, red, DT_FP32, elems); }

/* efficient_entropy_forward(): of each part of the vocabulary a row's largest logit, its sum and its entropy's, then those of rows. */
static void kernel_forward(struct tape *t, const struct head_loss *h, int64_t rows, int64_t ranks)
{
    int64_t parts = (h->n + ACTOR_READS - 1) / ACTOR_READS;
    int of[4] = { 0 };

    for (int i = 0; i < 3; i++)
        of[i] = tape_new(t, rows * parts, DT_FP32);
    product(t, h->names->forward, rows, h->n, h->k, tape_elem(t, h->x));
    if (ranks > 0)
        of[3] = made(t, "copy of maxima", rows * parts, 4, DT_FP32);
    if (ranks > 1) {
        sum_over_ranks(t, RED_MAX, rows * parts);
        sum_over_ranks(t, RED_SUM, rows);
    }
    tape_pass(t, h->name, KC_LOSS, 4 * rows * (3 * parts + 5));
    if (ranks > 1)
        sum_over_ranks(t, RED_SUM, 2 * rows);
    if (ranks > 0)
        tape_pass(t, h->name, KC_LOSS, 4 * rows * 6);
    for (int i = 0; i < 4; i++)
        tape_unref(t, of[i]);
}

var tape_actor_kernel(struct tape *t, const struct head_loss *h, var labels, int64_t ranks)
{
    int64_t rows = tape_var_numel(t, h->x) / h->k;

    tape_begin_saving(t, h->name, KC_LOSS)->bytes = 4 * rows;
    begin(t, NODE_ACTOR_KERNEL, h, labels);
    int at = t->nnodes - 1, logp = tape_new(t, rows, DT_FP32), entropy = tape_new(t, rows, DT_FP32);
    for (int i = 1; i <= 2; i++) {              /* the largest logit; two sums */
        int kept = tape_new(t, i * rows, DT_FP32);
        tape_save(t, &t->nodes[at], kept);
        tape_unref(t, kept);
    }
    kernel_forward(t, h, rows, ranks);
    tape_unref(t, entropy);
    return tape_var(t, logp, rows, DT_FP32, at, 0);
}

/* efficient_entropy_backward(), _Split_Dlogits_N: the kernel computes whole parts, the last one's columns are copied; each part's dX but the first is made and
 * added. */
static void run_kernel(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    enum dtype dt = n->edges[0].dt;
    int64_t size = dtype_bytes(dt);
    int dx = gradient(t, n, 0, dt), dw = gradient(t, n, 1, dt), logits = tape_new(t, n->m * ACTOR_COLUMNS, dt);

    for (int64_t done = 0; done < n->n; done += ACTOR_COLUMNS) {
        int64_t columns = n->n - done < ACTOR_COLUMNS ? n->n - done : ACTOR_COLUMNS;
        product(t, n->names.forward, n->m, ACTOR_COLUMNS, n->k, size);
        if (columns < ACTOR_COLUMNS) {
            int cut = made(t, "copy columns", n->m * columns, size, dt);
            tape_unref(t, logits);
            logits = cut;
        }
        product(t, n->names.dx, n->m, n->k, columns, size);
        if (done > 0) {
            int of = tape_new(t, n->m * n->k, dt);
            tape_pass(t, "add gradient", KC_ELEMENTWISE, 3 * n->m * n->k * size);
            tape_unref(t, of);
        }
        product(t, n->names.dw, columns, n->k, n->m, size);
    }
    tape_unref(t, logits);
    for (int i = 0; i < 2; i++) {
        int of = i ? dw : dx;
        if (tape_wants(n, i))
            out[i] = of;
        else
            tape_unref(t, of);
    }
}

/* ---- TRL's ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* 0: it is in that dtype. */
static int cast_of(struct tape *t, int64_t numel, enum dtype from, enum dtype to)
{
    return from == to ? 0 : made(t, "cast", numel, dtype_bytes(from), to);
}

/* The buffer has all columns of a tile, whatever the vocabulary is. */
static int tile_buffer(struct tape *t, int64_t rows, enum dtype dt) { return tape_new(t, least(rows, LOGPROB_ROWS) * LOGPROB_COLUMNS, dt); }

/* Each tile of logits is folded into sums of its rows. */
static void fold_tiles(struct tape *t, const struct head_loss *h, int64_t rows, enum dtype dt)
{
    enum dtype xt = tape_var_dtype(t, h->x), wt = tape_var_dtype(t, h->w);
    int64_t size = dtype_bytes(dt);
    int x = 0;

    for (int64_t row = 0; row < rows; row += LOGPROB_ROWS) {
        int64_t m = least(rows - row, LOGPROB_ROWS);
        int had = x;
        x = cast_of(t, m * h->k, xt, dt);
        tape_unref(t, had);
        for (int64_t column = 0; column < h->n; column += LOGPROB_COLUMNS) {
            int64_t n = least(h->n - column, LOGPROB_COLUMNS);
            int w = cast_of(t, n * h->k, wt, dt);
            product(t, h->names->forward, m, n, h->k, size);
            tape_unref(t, w);
            tape_pass(t, h->name, KC_LOSS, m * n * size + 60 * m);
        }
    }
    tape_unref(t, x);
}

var tape_actor_tiles(struct tape *t, const struct head_loss *h, var labels)
{
    enum dtype dt = h->autocast ? DT_BF16 : tape_var_dtype(t, h->x);
    int64_t rows = tape_var_numel(t, h->x) / h->k;

    tape_begin_saving(t, h->name, KC_COPY)->bytes = 28 * rows;
    begin(t, NODE_CHUNKED_LOGPROB, h, labels)->low = dt;
    int at = t->nnodes - 1, sums = tape_new(t, 7 * rows, DT_FP32), buffer = tile_buffer(t, rows, dt), logp, kept[2];

    fold_tiles(t, h, rows, dt);
    for (int i = 0; i < 2; i++) {               /* log Z and the entropy */
        kept[i] = made(t, h->name, rows, 8, DT_FP32);
        tape_save(t, &t->nodes[at], kept[i]);
    }
    logp = made(t, h->name, rows, 8, DT_FP32);
    tape_unref(t, made(t, h->name, rows, 12, DT_UINT8));        /* is the label the largest? */
    const int gone[] = { sums, buffer, kept[0], kept[1] };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        tape_unref(t, gone[i]);
    return tape_var(t, logp, rows, DT_FP32, at, 0);
}

/* A product whose result is added to sums in fp32. */
static void add_product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t size)
{
    product(t, name, m, n, k, size)->bytes += m * n * (2 * dtype_bytes(DT_FP32) - size);
}

/* Each tile once more, its gradient in its place, and both products; names hold casts until the next are there. */
static void run_tiles(struct tape *t, const struct node *n)
{
    enum dtype dt = n->low;
    int64_t size = dtype_bytes(dt);
    int x = 0, w = 0;

    for (int64_t row = 0; row < n->m; row += LOGPROB_ROWS) {
        int64_t rows = least(n->m - row, LOGPROB_ROWS);
        int had = x;
        x = cast_of(t, rows * n->k, n->edges[0].dt, dt);
        tape_unref(t, had);
        for (int64_t column = 0; column < n->n; column += LOGPROB_COLUMNS) {
            int64_t columns = least(n->n - column, LOGPROB_COLUMNS);
            had = w;
            w = cast_of(t, columns * n->k, n->edges[1].dt, dt);
            tape_unref(t, had);
            product(t, n->names.forward, rows, columns, n->k, size);
            tape_pass(t, n->name, KC_LOSS, 2 * rows * columns * size);
            if (tape_wants(n, 0))
                add_product(t, n->names.dx, rows, n->k, columns, size);
            if (tape_wants(n, 1))
                add_product(t, n->names.dw, columns, n->k, rows, size);
        }
    }
    tape_unref(t, x);
    tape_unref(t, w);
}

/* Both sums are in fp32, and cast when all tiles are in them. */
static void run_logprob(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    int sums[2] = { 0 };

    for (int i = 0; i < 2; i++)
        if (tape_wants(n, i)) {
            tape_pass(t, "zeros", KC_COPY, n->edges[i].numel * 4);
            sums[i] = n->edges[i].dt == DT_FP32 ? gradient(t, n, i, DT_FP32) : tape_new(t, n->edges[i].numel, DT_FP32);
        }
    int buffer = tile_buffer(t, n->m, n->low);
    run_tiles(t, n);
    for (int i = 0; i < 2; i++) {
        if (sums[i] && n->edges[i].dt != DT_FP32) {
            tape_pass(t, "cast", KC_COPY, n->edges[i].numel * (4 + dtype_bytes(n->edges[i].dt)));
            out[i] = gradient(t, n, i, n->edges[i].dt);
        } else {
            out[i] = sums[i];
            sums[i] = 0;
        }
    }
    tape_unref(t, buffer);
    tape_unref(t, sums[0]);
    tape_unref(t, sums[1]);
}

void tape_run_actor(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    t->module = n->module;
    if (n->kind == NODE_CHUNKED_LOGPROB)
        run_logprob(t, n, out);
    else if (n->kind == NODE_ACTOR_CHUNKS)
        run_chunks(t, n, out);
    else
        run_kernel(t, n, out);
}
