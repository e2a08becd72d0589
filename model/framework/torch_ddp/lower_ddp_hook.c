/* lower_ddp_hook.c -- what a communication hook does with a bucket.
 *
 * Sources (PyTorch 2.15): torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py, quantization_hooks.py; the reducer
 * copies gradients into a bucket as they are and leaves dividing by N to the hook (reducer.cpp, mark_variable_ready_dense()).
 *
 * A hook is called where the reducer would reduce.  It casts and computes on the compute stream; what it has for later, decompression
 * or PowerSGD's second half (lower_ddp_powersgd.c), are callbacks of a future.  NCCL's future is completed when the collective is issued, so that a callback
 * is issued at once, on a stream of its own that waits for the collective: here STREAM_REDUCE.  PowerSGD's last callback synchronises
 * the device, so that nothing of backward is issued meanwhile. */
#include "model/lower/common/lower_internal.h"
#include "model/framework/torch_ddp/lower_ddp.h"

/* ---- buffers ---- */

static bool casts(const struct ddp *d)
{
    return d->r.wire_reduce != d->r.grad;
}

static int declare_compressed(struct ddp *d, const struct buckets *b, const int *order, int number)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n && casts(d); i++)
        sched_buf(d->s, CAT_BUCKET, "compressed bucket", "bucket", number + i, 1, round512(b->numel[i] * dtype_bytes(d->r.wire_reduce)));
    if (casts(d))
        ddp_describe_buckets(d, b, order, d->at->ntrainable, first, HOLDS_GRAD, (int)d->r.wire_reduce);
    return first;
}

/* The gradient that completes a bucket stays, where it did not become .grad, until AccumulateGrad's post hooks return, of which the
 * reducer is one: autograd's engine keeps it for them (torch/csrc/autograd/engine.cpp, call_function(): inputs_copy). */
static int declare_completing(struct ddp *d, const struct buckets *b, int number)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n && d->hooked && (d->view || d->p->accumulation > 1); i++) {
        int64_t bytes = 0;
        for (int k = 0; k < d->at->ntrainable; k++)
            if (b->of[d->at->order[k]] == i)
                bytes = ddp_grad_bytes(d, d->at->order[k]);
        sched_buf(d->s, CAT_GRADS, "gradient that completes a bucket", "bucket", number + i, 1, round512(bytes));
    }
    return first;
}

static void declare_casts(struct ddp *d)
{
    struct ddp_module *of = d->at;

    of->compressed_first = declare_compressed(d, &of->first, of->registered, of->number_first);
    of->compressed_steady = d->keeps_first_buckets ? of->compressed_first
                          : declare_compressed(d, &of->steady, of->order, of->number_steady);
}

/* ---- entries ---- */

int ddp_bucket_number(const struct ddp *d, int bucket)
{
    return (d->at->now == &d->at->first ? d->at->number_first : d->at->number_steady) + bucket;
}

void ddp_all_reduce(struct ddp *d, int bucket, int buf, int64_t elems, uint16_t after)
{
    sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_DATA, d->hooked ? d->r.wire_reduce : (enum dtype)d->at->now->dtype[bucket], RED_SUM,
               elems)->after = after;
    sched_of(d->s, "bucket", ddp_bucket_number(d, bucket), 0);
    sched_act(d->s, ACT_RW, buf, 0, 0);
}

void ddp_hook_pass(struct ddp *d, int bucket, enum stream stream, const char *what, int64_t reads, int64_t writes, enum copy_fn fn, double scale)
{
    sched_copy(d->s, stream, PHASE_REDUCE, what, reads, writes)->after = stream == STREAM_REDUCE ? AFTER(STREAM_GROUP) : 0;
    sched_does(d->s, fn, scale);
    sched_of(d->s, "bucket", ddp_bucket_number(d, bucket), 0);
}

/* default_hooks._allreduce_fut(); _compress_hook() of gradients that are in its dtype already. */
static void whole(struct ddp *d, int bucket)
{
    int64_t bytes = d->at->now->numel[bucket] * dtype_bytes(d->r.grad);

    ddp_hook_pass(d, bucket, STREAM_COMPUTE, "divide", bytes, bytes, COPY_SET, 1.0 / (double)d->local->data_ranks);
    sched_act(d->s, ACT_RW, ddp_bucket_buf(d, bucket), 0, 0);
    ddp_all_reduce(d, bucket, ddp_bucket_buf(d, bucket), d->at->now->numel[bucket], AFTER(STREAM_COMPUTE));
}

/* default_hooks._compress_hook() */
static void compressed(struct ddp *d, int bucket)
{
    int64_t n = d->at->now->numel[bucket], bytes = n * dtype_bytes(d->r.grad), narrow = n * dtype_bytes(d->r.wire_reduce);
    int buf = (d->at->now == &d->at->first ? d->at->compressed_first : d->at->compressed_steady) + bucket;

    ddp_hook_pass(d, bucket, STREAM_COMPUTE, "compress", bytes, narrow, COPY_SET, 1);
    sched_act(d->s, ACT_R, ddp_bucket_buf(d, bucket), 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_WRITE, buf, 0, 0);
    ddp_hook_pass(d, bucket, STREAM_COMPUTE, "divide", narrow, narrow, COPY_SET, 1.0 / (double)d->local->data_ranks);
    sched_act(d->s, ACT_RW, buf, 0, 0);
    ddp_all_reduce(d, bucket, buf, n, AFTER(STREAM_COMPUTE));
    ddp_hook_pass(d, bucket, STREAM_REDUCE, "decompress", narrow, bytes, COPY_SET, 1);
    sched_act(d->s, ACT_R | ACT_FREE, buf, 0, 0);
    sched_act(d->s, ACT_W, ddp_bucket_buf(d, bucket), 0, 0);
}

static void cast(struct ddp *d, int bucket) { (casts(d) ? compressed : whole)(d, bucket); }

/* Reductions before start_powerSGD_iter are of whole buckets. */
static void low_rank(struct ddp *d, int bucket) { (d->compresses ? ddp_powersgd_reduce : whole)(d, bucket); }

/* ---- bytes, with a scale for each row ---- */

/* quantization_perchannel_hook(): rows of 512, of which the last is padded (a whole one where 512 divides n).  A row's range gives its
 * scale and zero point, 2 numbers, which all ranks gather; then they gather the bytes.  Each rank makes numbers of everybody's bytes, row
 * by row in Python, and adds them up.
 *
 * What the hook returns is a tensor of its own, which the bucket's future keeps until the next one is there, and the bucket's views of it
 * until the reducer has copied it out (reducer.cpp, finalize_backward(): populate_bucket_views_out()). */
enum { ROW = 512 };
enum { ROWS_PADDED, ROWS_RANGES, ROWS_ALL_RANGES, ROWS_FLAT_RANGES, ROWS_NUMBERS, ROWS_CLAMPED, ROWS_BYTES, ROWS_ALL_BYTES,
                ROWS_FLAT_BYTES, ROWS_SUM, ROWS_FLOATS, ROWS_SCALED, ROWS_NEW, ROWS_KEPT, NROWS_BUF };
/* PerChannelMinMaxObserver: aminmax, two copies, its check (3, of which the issuing thread awaits the last), calculate_qparams() and stack. */
enum { RANGE_KERNELS = 20 };

static int64_t rows_of(int64_t n) { return n / ROW + 1; }

static int declare_bucket_rows(struct ddp *d, int number, int64_t n)
{
    static const char *const what[NROWS_BUF] = {
        "padded bucket", "ranges of rows", "ranges of all ranks", "gathered ranges", "rows in steps", "clamped rows", "bytes of rows",
        "bytes of all ranks", "gathered bytes", "sum of all ranks", "bytes as numbers", "scaled rows", "reduced bucket",
        "reduced bucket of the step before",
    };
    int64_t padded = rows_of(n) * ROW, ranges = 8 * rows_of(n), all = d->local->data_ranks;
    int64_t bytes[NROWS_BUF] = {
        4 * padded, ranges, all * round512(ranges), all * ranges, 4 * padded, 4 * padded, padded, all * round512(padded), all * padded,
        4 * padded, 4 * padded, 4 * padded, 4 * n, 4 * n,
    };
    int first = d->s->nbufs;

    for (int k = 0; k < NROWS_BUF; k++)
        sched_buf(d->s, CAT_BUCKET, what[k], "bucket", number, 1, round512(bytes[k]));
    for (int64_t r = 0; r < all; r++)           /* lists: a tensor for each rank */
        sched_part(d->s, first + ROWS_ALL_RANGES, round512(ranges));
    for (int64_t r = 0; r < all; r++)
        sched_part(d->s, first + ROWS_ALL_BYTES, round512(padded));
    return first;
}

static int declare_rows_of(struct ddp *d, const struct buckets *b, int number)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n; i++)
        declare_bucket_rows(d, number + i, b->numel[i]);
    return first;
}

static void declare_rows(struct ddp *d)
{
    struct ddp_module *of = d->at;

    of->compressed_first = declare_rows_of(d, &of->first, of->number_first);
    of->compressed_steady = d->keeps_first_buckets ? of->compressed_first : declare_rows_of(d, &of->steady, of->number_steady);
}

struct rows {
    struct ddp *d;
    int     bucket, buf;            /* the first of its buffers */
    int64_t n, rows, all;           /* elements, rows, ranks */
};

static struct rows rows_at(struct ddp *d, int bucket)
{
    int first = d->at->now == &d->at->first ? d->at->compressed_first : d->at->compressed_steady;
    int64_t n = d->at->now->numel[bucket];

    return (struct rows){ d, bucket, first + NROWS_BUF * bucket, n, rows_of(n), d->local->data_ranks };
}

static void use(const struct rows *g, int what, int buf) { sched_act(g->d->s, what, g->buf + buf, 0, 0); }

static void pass(const struct rows *g, enum stream stream, const char *what, int64_t reads, int64_t writes, int64_t kernels, enum copy_fn fn)
{
    ddp_hook_pass(g->d, g->bucket, stream, what, reads, writes, fn, 1);
    sched_kernels(g->d->s, kernels);
}

/* dist.all_gather() into a list of zeros: into one flat tensor, and from there into the list, on the group's stream
 * (ProcessGroupNCCL::allgather()). */
static void gather(const struct rows *g, enum stream stream, enum dtype t, int64_t elems, int from, int list, int flat)
{
    int64_t bytes = g->all * elems * dtype_bytes(t);
    struct schedules *s = g->d->s;

    pass(g, stream, "room for all ranks'", 0, bytes, g->all, COPY_ZERO);
    use(g, ACT_ALLOC | ACT_WRITE, list);
    use(g, ACT_ALLOC, flat);
    sched_coll(s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_GATHER, GROUP_DATA, t, RED_NONE, g->all * elems)->after = AFTER(stream);
    sched_of(s, "bucket", ddp_bucket_number(g->d, g->bucket), 0);
    use(g, ACT_R, from);
    use(g, ACT_W, flat);
    pass(g, STREAM_GROUP, "copy into the list", bytes, bytes, g->all, COPY_SET);
    use(g, ACT_R | ACT_FREE, flat);
    use(g, ACT_W, list);
}

static void ranges_of(const struct rows *g)
{
    int64_t numbers = 4 * g->rows * ROW;

    pass(g, STREAM_COMPUTE, "pad to whole rows", 4 * g->n, numbers + 4 * g->n, 2, COPY_SET);
    sched_act(g->d->s, ACT_R, ddp_bucket_buf(g->d, g->bucket), 0, 0);
    use(g, ACT_ALLOC | ACT_WRITE, ROWS_PADDED);
    pass(g, STREAM_COMPUTE, "ranges of rows", numbers, 8 * g->rows, RANGE_KERNELS, COPY_SET);
    use(g, ACT_R, ROWS_PADDED);
    use(g, ACT_ALLOC | ACT_WRITE, ROWS_RANGES);
    sched_op(g->d->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "a range is none")->after = AFTER(STREAM_COMPUTE);
}

/* Of each row x / scale, round, + zero point, and the copy; then all are clamped and cast. */
static void make_bytes(const struct rows *g)
{
    int64_t padded = g->rows * ROW;

    pass(g, STREAM_REDUCE, "rows in steps", 4 * 4 * padded, 5 * 4 * padded, 4 * g->rows + 1, COPY_SET);
    use(g, ACT_R, ROWS_PADDED);
    use(g, ACT_R, ROWS_ALL_RANGES);
    use(g, ACT_ALLOC | ACT_WRITE, ROWS_NUMBERS);
    pass(g, STREAM_REDUCE, "clamp, cast to bytes", 2 * 4 * padded, 4 * padded + padded, 2, COPY_SET);
    use(g, ACT_R | ACT_FREE, ROWS_NUMBERS);
    use(g, ACT_ALLOC | ACT_FREE, ROWS_CLAMPED);
    use(g, ACT_ALLOC | ACT_WRITE, ROWS_BYTES);
}

/* Of each rank's rows - zero point, scale *, and the copy, from bytes as numbers to a tensor of zeros; then they are added. */
static void add_up(const struct rows *g)
{
    int64_t numbers = 4 * g->rows * ROW;

    pass(g, STREAM_REDUCE, "numbers of all ranks' bytes", g->all * (g->rows * ROW + 5 * numbers), numbers + g->all * 6 * numbers,
         1 + g->all * (3 * g->rows + 3), COPY_SET);
    use(g, ACT_R, ROWS_ALL_BYTES);
    use(g, ACT_R, ROWS_ALL_RANGES);
    use(g, ACT_ALLOC | ACT_WRITE, ROWS_SUM);
    use(g, ACT_ALLOC | ACT_FREE, ROWS_FLOATS);
    use(g, ACT_ALLOC | ACT_FREE, ROWS_SCALED);
}

static int result(const struct ddp *d) { return d->walk.step == SCHED_FIRST ? ROWS_KEPT : ROWS_NEW; }

static void bytes_of_rows(struct ddp *d, int bucket)
{
    struct rows g = rows_at(d, bucket);

    ranges_of(&g);
    gather(&g, STREAM_COMPUTE, DT_FP32, 2 * g.rows, ROWS_RANGES, ROWS_ALL_RANGES, ROWS_FLAT_RANGES);
    make_bytes(&g);
    gather(&g, STREAM_REDUCE, DT_UINT8, g.rows * ROW, ROWS_BYTES, ROWS_ALL_BYTES, ROWS_FLAT_BYTES);
    add_up(&g);
    use(&g, ACT_FREE, ROWS_BYTES);
    ddp_hook_pass(d, bucket, STREAM_REDUCE, "mean", 4 * g.n, 4 * g.n, COPY_SET, 1.0 / (double)g.all);
    use(&g, ACT_R | ACT_FREE, ROWS_SUM);
    use(&g, ACT_ALLOC | ACT_WRITE, result(d));
    sched_act(d->s, ACT_W, ddp_bucket_buf(d, bucket), 0, 0);    /* the bucket's views are of the result from now on */
    sched_op(d->s, OP_MEMORY, STREAM_REDUCE, PHASE_REDUCE, "hook returns");
    use(&g, ACT_FREE, ROWS_PADDED);
    use(&g, ACT_FREE, ROWS_RANGES);
    use(&g, ACT_FREE, ROWS_ALL_RANGES);
    use(&g, ACT_FREE, ROWS_ALL_BYTES);
}

/* The reducer has copied the results out: those of the step before go.  Where .grad is a view of the bucket, into the bucket itself. */
static void rows_settle(struct ddp *d)
{
    int64_t all = 4 * d->at->trainable;

    if (d->view) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "copy results into buckets", all, all);
        sched_does(d->s, COPY_SET, 1);
        sched_kernels(d->s, d->at->ntrainable);
    } else {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "results of the step before");
    }
    for (int b = 0; b < d->at->now->n; b++) {
        struct rows g = rows_at(d, b);
        if (d->view) {
            use(&g, ACT_R, result(d));
            sched_act(d->s, ACT_W, ddp_bucket_buf(d, b), 0, 0);
        }
        if (d->walk.step != SCHED_FIRST)
            use(&g, ACT_FREE, ROWS_NEW);
    }
}

/* The first buckets go, and their results; those of the next come here, before they do there. */
static void rows_begin(struct ddp *d)
{
    struct ddp_module *of = d->at;

    if (d->keeps_first_buckets)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "results of buckets");
    for (int b = 0; b < of->first.n; b++)
        sched_act(d->s, ACT_FREE, of->compressed_first + NROWS_BUF * b + ROWS_KEPT, 0, 0);
    for (int b = 0; b < of->steady.n; b++)
        sched_act(d->s, ACT_ALLOC, of->compressed_steady + NROWS_BUF * b + ROWS_KEPT, 0, 0);
}

/* ---- the hooks ---- */

static const struct code {
    void (*declare)(struct ddp *d);                 /* what it needs of the module's buckets; */
    void (*begins)(struct ddp *d);                  /* what it keeps from step to step comes; */
    void (*reduce)(struct ddp *d, int bucket);      /* a bucket is full; */
    void (*settle)(struct ddp *d);                  /* all were awaited and copied out */
} codes[NCOMM_HOOK] = {
    [HOOK_FP16]     = { declare_casts, NULL, cast, NULL },
    [HOOK_BF16]     = { declare_casts, NULL, cast, NULL },
    [HOOK_POWERSGD] = { ddp_powersgd_declare, ddp_powersgd_begins, low_rank, NULL },
    [HOOK_ROWS]     = { declare_rows, rows_begin, bytes_of_rows, rows_settle },
};

static const struct code *code_of(const struct ddp *d) { return &codes[d->p->ddp.comm_hook]; }

void ddp_hook_declare(struct ddp *d)
{
    struct ddp_module *of = d->at;

    of->completing_first = declare_completing(d, &of->first, of->number_first);
    of->completing_steady = d->keeps_first_buckets ? of->completing_first : declare_completing(d, &of->steady, of->number_steady);

    if (d->hooked && code_of(d)->declare)
        code_of(d)->declare(d);
}

void ddp_hook_begins(struct ddp *d)
{
    if (d->hooked && code_of(d)->begins)
        code_of(d)->begins(d);
}

void ddp_hook_settle(struct ddp *d)
{
    if (d->hooked && code_of(d)->settle)
        code_of(d)->settle(d);
}

void ddp_reduce(struct ddp *d, int bucket)
{
    int completing = (d->at->now == &d->at->first ? d->at->completing_first : d->at->completing_steady) + bucket;
    bool stays = d->view || !d->fresh;

    if (!d->hooked) {
        ddp_all_reduce(d, bucket, ddp_bucket_buf(d, bucket), d->at->now->numel[bucket], AFTER(STREAM_COMPUTE));
        return;
    }
    if (stays) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "hook");
        sched_act(d->s, ACT_ALLOC, completing, 0, 0);
    }
    code_of(d)->reduce(d, bucket);
    if (stays) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "post hooks return");
        sched_act(d->s, ACT_FREE, completing, 0, 0);
    }
}
