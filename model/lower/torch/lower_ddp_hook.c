/* lower_ddp_hook.c -- what a communication hook does with a bucket.
 *
 * Sources (PyTorch 2.15): torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py and powerSGD_hook.py; the reducer
 * copies gradients into a bucket as they are and leaves dividing by N to the hook (reducer.cpp, mark_variable_ready_dense()).
 *
 * A hook is called where the reducer would reduce.  It casts and computes on the compute stream; what it has for later, decompression
 * or PowerSGD's second half, are callbacks of a future.  NCCL's future is completed when the collective is issued, so that a callback
 * is issued at once, on a stream of its own that waits for the collective: here STREAM_REDUCE.  PowerSGD's last callback synchronises
 * the device, so that nothing of backward is issued meanwhile. */
#include "model/lower/common/lower_internal.h"
#include "model/lower/torch/lower_ddp.h"

/* PowerSGD's buffers of a bucket. */
enum { SGD_ERROR, SGD_NEW_ERROR, SGD_INPUT, SGD_REST, SGD_P, SGD_Q, NSGD };

/* A bucket's tensors as powerSGD_hook() divides them: matrices n x m that become n x r and m x r, and the rest. */
struct low_rank {
    int64_t matrices, rest;         /* tensors */
    int64_t elems, rest_elems;
    int64_t p, q;                   /* elements of all Ps, of all Qs */
    int64_t moved_p, moved_q;       /* elements that are read and written to make their columns orthogonal, */
    int64_t kernels;                /* in so many kernels, of Ps and of Qs alike */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* _orthogonalize() of an a x r matrix: Gram-Schmidt for r <= 2 or 16 bits.  A column is read for its norm, read and written; with c
 * columns behind it col * rest, its sum, that sum * col and rest -= that are a kernel each.  Else torch.linalg.qr(): each of r
 * reflections is applied to the columns behind it, for R and again for Q: two kernels a column each time (LAPACK's larfg, larf). */
static void orthogonalise(const struct ddp *d, int64_t a, int64_t r, int64_t *moved, int64_t *kernels)
{
    bool columns = r <= 2 || dtype_bytes(d->r.grad) == 2;

    for (int64_t c = r - 1; c >= 0 && columns; c--) {
        *moved += 3 * a + (c > 0 ? 2 * a + 7 * a * c : 0);
        *kernels += c > 0 ? 6 : 2;
    }
    if (!columns) {
        *moved += 2 * a * r * (r + 1);
        *kernels += 4 * r;
    }
}

static void add_tensor(const struct ddp *d, const struct tensor *t, struct low_rank *to)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;
    int64_t n = t->shape[0], m = t->numel / n, r = least(least(n, m), o->rank), unused = 0;

    if ((double)((n + m) * r) * o->least_rate >= (double)t->numel) {
        to->rest++;
        to->rest_elems += t->numel;
        return;
    }
    to->matrices++;
    to->elems += t->numel;
    to->p += n * r;
    to->q += m * r;
    orthogonalise(d, n, r, &to->moved_p, &to->kernels);
    orthogonalise(d, m, r, &to->moved_q, &unused);
}

static struct low_rank low_rank_of(const struct ddp *d, const struct buckets *b, int bucket)
{
    struct low_rank all = { 0 };

    for (int i = 0; i < d->at->ntrainable; i++)
        if (b->of[d->at->registered[i]] == bucket)
            add_tensor(d, &d->m->tensors[d->at->registered[i]], &all);
    return all;
}

/* ---- buffers ---- */

static bool casts(const struct ddp *d)
{
    return d->p->ddp.comm_hook != HOOK_NONE && d->r.wire_reduce != d->r.grad;
}

static int declare_compressed(struct ddp *d, const struct buckets *b, const int *order, int number)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n && casts(d); i++)
        sched_buf(d->s, CAT_BUCKET, "compressed bucket", "bucket", number + i, 1, round512(b->numel[i] * dtype_bytes(d->r.wire_reduce)));
    if (casts(d))
        ddp_describe_buckets(d, b, order, d->at->ntrainable, first, HOLDS_GRAD, d->r.wire_reduce);
    return first;
}

static int declare_powersgd(struct ddp *d, const struct buckets *b, int number)
{
    static const char *const what[NSGD] = { "PowerSGD's error", "new error", "bucket before compression", "uncompressed tensors", "Ps", "Qs" };
    int first = d->s->nbufs;

    for (int i = 0; i < b->n; i++) {
        struct low_rank l = low_rank_of(d, b, i);
        int64_t elems[NSGD] = { b->numel[i], b->numel[i], b->numel[i], l.rest_elems, l.p, l.q };
        for (int k = 0; k < NSGD; k++)
            sched_buf(d->s, CAT_BUCKET, what[k], "bucket", number + i, 1, round512(elems[k] * dtype_bytes(d->r.grad)));
    }
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

void ddp_hook_declare(struct ddp *d)
{
    struct ddp_module *of = d->at;

    of->completing_first = declare_completing(d, &of->first, of->number_first);
    of->completing_steady = d->keeps_first_buckets ? of->completing_first : declare_completing(d, &of->steady, of->number_steady);

    of->compressed_first = declare_compressed(d, &of->first, of->registered, of->number_first);
    of->compressed_steady = d->keeps_first_buckets ? of->compressed_first
                          : declare_compressed(d, &of->steady, of->order, of->number_steady);
    if (d->p->ddp.comm_hook == HOOK_POWERSGD)
        of->powersgd = declare_powersgd(d, d->keeps_first_buckets ? &of->first : &of->steady, of->number_steady);
}

/* ---- entries ---- */

static int number_of(const struct ddp *d, int bucket)
{
    return (d->at->now == &d->at->first ? d->at->number_first : d->at->number_steady) + bucket;
}

static void all_reduce(struct ddp *d, int bucket, int buf, int64_t elems, uint16_t after)
{
    sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_DATA, d->r.wire_reduce, RED_SUM, elems)->after = after;
    sched_of(d->s, "bucket", number_of(d, bucket), 0);
    sched_act(d->s, ACT_RW, buf, 0, 0);
}

static void pass(struct ddp *d, int bucket, enum stream stream, const char *what, int64_t reads, int64_t writes, enum copy_fn fn, double scale)
{
    sched_copy(d->s, stream, PHASE_REDUCE, what, reads, writes)->after = stream == STREAM_REDUCE ? AFTER(STREAM_GROUP) : 0;
    sched_does(d->s, fn, scale);
    sched_of(d->s, "bucket", number_of(d, bucket), 0);
}

/* default_hooks._allreduce_fut(); _compress_hook() of gradients that are in its dtype already. */
static void whole(struct ddp *d, int bucket)
{
    int64_t bytes = d->at->now->numel[bucket] * dtype_bytes(d->r.grad);

    pass(d, bucket, STREAM_COMPUTE, "divide", bytes, bytes, COPY_SET, 1.0 / (double)d->local->data_ranks);
    sched_act(d->s, ACT_RW, ddp_bucket_buf(d, bucket), 0, 0);
    all_reduce(d, bucket, ddp_bucket_buf(d, bucket), d->at->now->numel[bucket], AFTER(STREAM_COMPUTE));
}

/* default_hooks._compress_hook() */
static void compressed(struct ddp *d, int bucket)
{
    int64_t n = d->at->now->numel[bucket], bytes = n * dtype_bytes(d->r.grad), narrow = n * dtype_bytes(d->r.wire_reduce);
    int buf = (d->at->now == &d->at->first ? d->at->compressed_first : d->at->compressed_steady) + bucket;

    pass(d, bucket, STREAM_COMPUTE, "compress", bytes, narrow, COPY_SET, 1);
    sched_act(d->s, ACT_R, ddp_bucket_buf(d, bucket), 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_WRITE, buf, 0, 0);
    pass(d, bucket, STREAM_COMPUTE, "divide", narrow, narrow, COPY_SET, 1.0 / (double)d->local->data_ranks);
    sched_act(d->s, ACT_RW, buf, 0, 0);
    all_reduce(d, bucket, buf, n, AFTER(STREAM_COMPUTE));
    pass(d, bucket, STREAM_REDUCE, "decompress", narrow, bytes, COPY_SET, 1);
    sched_act(d->s, ACT_R | ACT_FREE, buf, 0, 0);
    sched_act(d->s, ACT_W, ddp_bucket_buf(d, bucket), 0, 0);
}

/* ---- powerSGD_hook() ---- */

struct sgd {
    struct ddp *d;
    int bucket, buf;                /* the bucket, and the first of its PowerSGD buffers */
    int64_t e, n;                   /* bytes of an element; elements of the bucket */
    struct low_rank l;
};

/* A pass over matrices: elements that it reads and writes, in kernels. */
static void matrices(const struct sgd *g, enum stream stream, const char *what, int64_t reads, int64_t writes, int64_t kernels)
{
    pass(g->d, g->bucket, stream, what, reads * g->e, writes * g->e, COPY_LOW_RANK, 1);
    sched_kernels(g->d->s, kernels);
}

static void use(const struct sgd *g, int what, int buf) { sched_act(g->d->s, what, g->buf + buf, 0, 0); }
static void use_bucket(const struct sgd *g, int what) { sched_act(g->d->s, what, ddp_bucket_buf(g->d, g->bucket), 0, 0); }

/* Without a warm start every step draws Qs on the CPU and copies them to the device, which the issuing thread waits for. */
static void draw(const struct sgd *g)
{
    sched_copy(g->d->s, STREAM_H2D, PHASE_REDUCE, "random Qs", g->l.q * g->e, g->l.q * g->e)->after = AFTER(STREAM_COMPUTE);
    sched_kernels(g->d->s, g->l.matrices);
    use(g, ACT_ALLOC | ACT_USE, SGD_P);
    use(g, ACT_ALLOC | ACT_WRITE, SGD_Q);
    sched_op(g->d->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "random Qs")->after = AFTER(STREAM_H2D);
}

/* Up to the first collective: on the compute stream. */
static void project(const struct sgd *g)
{
    const struct powersgd_options *o = &g->d->p->ddp.powersgd;
    const struct low_rank *l = &g->l;

    if (o->error_feedback) {
        pass(g->d, g->bucket, STREAM_COMPUTE, "add the error", 2 * g->n * g->e, g->n * g->e, COPY_LOW_RANK, 1);
        use(g, ACT_R, SGD_ERROR);
        use_bucket(g, ACT_RW);
        pass(g->d, g->bucket, STREAM_COMPUTE, "keep the bucket", g->n * g->e, g->n * g->e, COPY_LOW_RANK, 1);
        use_bucket(g, ACT_R);
        use(g, ACT_ALLOC | ACT_WRITE, SGD_INPUT);
    }
    matrices(g, STREAM_COMPUTE, "concatenate uncompressed tensors", l->rest_elems, l->rest_elems, 1);
    use_bucket(g, ACT_R);
    use(g, ACT_ALLOC | ACT_WRITE, SGD_REST);
    if (!o->warm_start)
        draw(g);
    matrices(g, STREAM_COMPUTE, "orthogonalise Qs", l->moved_q, 0, l->kernels);
    use(g, ACT_RW, SGD_Q);
    matrices(g, STREAM_COMPUTE, "P = M Q", l->elems + l->q, l->p, l->matrices);
    use_bucket(g, ACT_R);
    use(g, ACT_R, SGD_Q);
    use(g, ACT_W, SGD_P);
}

/* The three callbacks. */
static void exchange(const struct sgd *g)
{
    const struct low_rank *l = &g->l;

    all_reduce(g->d, g->bucket, g->buf + SGD_REST, l->rest_elems, AFTER(STREAM_COMPUTE));
    matrices(g, STREAM_REDUCE, "divide and copy back", 2 * l->rest_elems, 2 * l->rest_elems, 1 + l->rest);
    use(g, ACT_R, SGD_REST);
    use_bucket(g, ACT_RW);
    all_reduce(g->d, g->bucket, g->buf + SGD_P, l->p, AFTER(STREAM_COMPUTE) | AFTER(STREAM_REDUCE));
    matrices(g, STREAM_REDUCE, "orthogonalise Ps", l->moved_p, 0, l->kernels);
    use(g, ACT_RW, SGD_P);
    matrices(g, STREAM_REDUCE, "Q = M' P", l->elems + l->p, l->q, l->matrices);
    use_bucket(g, ACT_R);
    use(g, ACT_R, SGD_P);
    use(g, ACT_W, SGD_Q);
    all_reduce(g->d, g->bucket, g->buf + SGD_Q, l->q, AFTER(STREAM_REDUCE));
    matrices(g, STREAM_REDUCE, "divide Qs", l->q, l->q, 1);
    use(g, ACT_RW, SGD_Q);
    matrices(g, STREAM_REDUCE, "M = P Q'", l->p + l->q, l->elems, l->matrices);
    use(g, ACT_R, SGD_P);
    use(g, ACT_R, SGD_Q);
    use_bucket(g, ACT_RW);
}

static void low_rank(struct ddp *d, int bucket)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;
    struct sgd g = { .d = d, .bucket = bucket, .buf = d->at->powersgd + NSGD * bucket, .e = dtype_bytes(d->r.grad),
                     .n = d->at->now->numel[bucket], .l = low_rank_of(d, d->at->now, bucket) };

    project(&g);
    exchange(&g);
    sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "torch.cuda.synchronize")->after =
        AFTER(STREAM_COMPUTE) | AFTER(STREAM_GROUP) | AFTER(STREAM_REDUCE);
    if (o->error_feedback) {
        pass(d, bucket, STREAM_REDUCE, "what was lost", 2 * g.n * g.e, g.n * g.e, COPY_LOW_RANK, 1);
        use(&g, ACT_ALLOC | ACT_FREE, SGD_NEW_ERROR);
        use(&g, ACT_R, SGD_INPUT);
        use_bucket(&g, ACT_R);
        use(&g, ACT_W, SGD_ERROR);
    }
    sched_op(d->s, OP_MEMORY, STREAM_REDUCE, PHASE_REDUCE, "hook returns");     /* its variables go, the dictionaries' entries stay */
    use(&g, ACT_FREE, SGD_REST);
    if (o->error_feedback)
        use(&g, ACT_FREE, SGD_INPUT);
    if (!o->warm_start) {
        use(&g, ACT_FREE, SGD_P);
        use(&g, ACT_FREE, SGD_Q);
    }
}

void ddp_hook_begins(struct ddp *d)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;

    if (d->p->ddp.comm_hook != HOOK_POWERSGD)
        return;
    d->compresses = true;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "PowerSGD's matrices");
    for (int b = 0; b < d->at->now->n; b++) {
        if (o->error_feedback)
            sched_act(d->s, ACT_ALLOC, d->at->powersgd + NSGD * b + SGD_ERROR, 0, 0);
        for (int k = SGD_P; k <= SGD_Q && o->warm_start; k++)
            sched_act(d->s, ACT_ALLOC, d->at->powersgd + NSGD * b + k, 0, 0);
    }
}

static void hook(struct ddp *d, int bucket)
{
    if (d->compresses)
        low_rank(d, bucket);
    else if (casts(d))
        compressed(d, bucket);
    else
        whole(d, bucket);
}

void ddp_reduce(struct ddp *d, int bucket)
{
    int completing = (d->at->now == &d->at->first ? d->at->completing_first : d->at->completing_steady) + bucket;
    bool stays = d->view || !d->fresh;

    if (!d->hooked) {
        all_reduce(d, bucket, ddp_bucket_buf(d, bucket), d->at->now->numel[bucket], AFTER(STREAM_COMPUTE));
        return;
    }
    if (stays) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "hook");
        sched_act(d->s, ACT_ALLOC, completing, 0, 0);
    }
    hook(d, bucket);
    if (stays) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "post hooks return");
        sched_act(d->s, ACT_FREE, completing, 0, 0);
    }
}
