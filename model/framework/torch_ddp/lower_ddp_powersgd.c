/* lower_ddp_powersgd.c -- PowerSGD as DDP's communication hook: what it keeps of a bucket from step to step, and its passes and
 * collectives.
 *
 * Source (PyTorch 2.15): torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.  Reductions before start_powerSGD_iter are of whole
 * buckets; PowerSGD's matrices come with the end of the first step here, which is before they do there and changes no peak. */
#include <stdlib.h>

#include "base/room.h"
#include "model/lower/common/lower_internal.h"
#include "model/framework/torch_ddp/lower_ddp.h"

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

/* Columns of a tensor's two narrow matrices; 0: it is reduced as it is (_should_compress()). */
static int64_t narrow_rank(const struct ddp *d, const struct tensor *t)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;
    int64_t n = t->shape[0], m = t->numel / n, r = least(least(n, m), o->rank);

    return (double)((n + m) * r) * o->least_rate < (double)t->numel ? r : 0;
}

static void add_tensor(const struct ddp *d, const struct tensor *t, struct low_rank *to)
{
    int64_t n = t->shape[0], m = t->numel / n, r = narrow_rank(d, t), unused = 0;

    if (r == 0) {
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

/* ---- which matrices they are, and for the executor which tensors ---- */

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->numel == b->numel && a->shape[0] == b->shape[0];
}

/* Appends the matrices of a bucket's n tensors: Ps and Qs follow each other by shape, in the order in which shapes first come
 * (powerSGD_hook(): shape_to_tensors). */
static void describe_matrices(struct ddp *d, const struct buckets *b, const int *of, int n)
{
    bool *done = room_new((size_t)n + 1, sizeof *done);
    int64_t p = 0, q = 0;

    for (int i = 0; i < n; i++)
        for (int k = i; k < n && !done[i]; k++) {
            const struct tensor *t = &d->m->tensors[of[k]];
            int64_t r = narrow_rank(d, t);
            if ((k > i && done[k]) || r == 0 || !same_shape(t, &d->m->tensors[of[i]]))
                continue;
            sched_narrow(d->s, &(struct narrow){ t->shape[0], t->numel / t->shape[0], r, b->at[of[k]], p, q });
            p += t->shape[0] * r;
            q += t->numel / t->shape[0] * r;
            done[k] = k > i;
        }
    free(done);
}

/* A layout of the tensors that are reduced as they are: in the bucket, or one behind the other. */
static int describe_rest(struct ddp *d, const struct buckets *b, const int *of, int n, bool in_bucket)
{
    int64_t at = 0, e = dtype_bytes(d->r.grad);
    int layout = sched_layout(d->s, 0);

    for (int i = 0; i < n; i++) {
        const struct tensor *t = &d->m->tensors[of[i]];
        if (narrow_rank(d, t) > 0)
            continue;
        sched_slice(d->s, HOLDS_GRAD, d->r.grad, of[i], 0, t->numel, (in_bucket ? b->at[of[i]] : at) * e);
        at += t->numel;
    }
    return layout;
}

/* PowerSGD's buffers of bucket i begin at `first`. */
static void describe(struct ddp *d, const struct buckets *b, const int *order, int i, int first)
{
    int n = 0, *of = room_new((size_t)d->at->ntrainable + 1, sizeof *of), bucket = d->at->bucket0_steady + i;

    for (int k = 0; k < d->at->ntrainable; k++)
        if (b->of[order[k]] == i)
            of[n++] = order[k];
    sched_holds(d->s, first + SGD_ERROR, d->s->bufs[bucket].layout);
    sched_holds(d->s, first + SGD_INPUT, d->s->bufs[bucket].layout);
    sched_holds(d->s, first + SGD_REST, describe_rest(d, b, of, n, false));
    d->at->rest[i] = describe_rest(d, b, of, n, true);
    d->at->narrow0[i] = d->s->nnarrows;
    describe_matrices(d, b, of, n);
    free(of);
}

void ddp_powersgd_declare(struct ddp *d)
{
    static const char *const what[NSGD] = { "PowerSGD's error", "new error", "bucket before compression", "uncompressed tensors", "Ps", "Qs" };
    struct ddp_module *of = d->at;
    const struct buckets *b = d->keeps_first_buckets ? &of->first : &of->steady;

    of->powersgd = d->s->nbufs;
    for (int i = 0; i < b->n; i++) {
        struct low_rank l = low_rank_of(d, b, i);
        int64_t elems[NSGD] = { b->numel[i], b->numel[i], b->numel[i], l.rest_elems, l.p, l.q };
        for (int k = 0; k < NSGD; k++)
            sched_buf(d->s, CAT_BUCKET, what[k], "bucket", of->number_steady + i, 1, round512(elems[k] * dtype_bytes(d->r.grad)));
        describe(d, b, d->keeps_first_buckets ? of->registered : of->order, i, of->powersgd + NSGD * i);
    }
}

/* ---- entries ---- */

struct sgd {
    struct ddp *d;
    int bucket, buf;                /* the bucket, and the first of its PowerSGD buffers */
    int64_t e, n;                   /* bytes of an element; elements of the bucket */
    struct low_rank l;
};

static struct sgd sgd_of(struct ddp *d, int bucket)
{
    return (struct sgd){ .d = d, .bucket = bucket, .buf = d->at->powersgd + NSGD * bucket, .e = dtype_bytes(d->r.grad),
                         .n = d->at->now->numel[bucket], .l = low_rank_of(d, d->at->now, bucket) };
}

/* A pass over the elements of buffers that it reads and writes, in kernels. */
static void copies(const struct sgd *g, enum stream stream, const char *what, int64_t reads, int64_t writes, int64_t kernels,
                   enum copy_fn fn, double scale)
{
    ddp_hook_pass(g->d, g->bucket, stream, what, reads * g->e, writes * g->e, fn, scale);
    sched_kernels(g->d->s, kernels);
}

/* The same over the bucket's matrices. */
static void matrices(const struct sgd *g, enum stream stream, const char *what, int64_t reads, int64_t writes, int64_t kernels,
                     enum copy_fn fn, double scale)
{
    copies(g, stream, what, reads, writes, kernels, fn, scale);
    sched_narrows(g->d->s, fn, g->d->at->narrow0[g->bucket], (int)g->l.matrices, scale);
}

static void use(const struct sgd *g, int what, int buf) { sched_act(g->d->s, what, g->buf + buf, 0, 0); }
static void use_bucket(const struct sgd *g, int what) { sched_act(g->d->s, what, ddp_bucket_buf(g->d, g->bucket), 0, 0); }

/* Qs are drawn on the CPU and copied to the device, which the issuing thread waits for: without a warm start in every step.  Ps and Qs
 * come with it, or are there. */
static void draw(const struct sgd *g, enum phase phase, int comes)
{
    sched_copy(g->d->s, STREAM_H2D, phase, "random Qs", g->l.q * g->e, g->l.q * g->e)->after = AFTER(STREAM_COMPUTE);
    sched_of(g->d->s, "bucket", ddp_bucket_number(g->d, g->bucket), 0);
    sched_narrows(g->d->s, COPY_DRAW_Q, g->d->at->narrow0[g->bucket], (int)g->l.matrices, 1);
    sched_kernels(g->d->s, g->l.matrices);
    use(g, comes | ACT_USE, SGD_P);
    use(g, comes | ACT_WRITE, SGD_Q);
    sched_op(g->d->s, OP_WAIT, STREAM_ISSUE, phase, "random Qs")->after = AFTER(STREAM_H2D);
}

/* Half of the power iteration: factors are made orthonormal, and their products with the bucket's matrices are the other factors. */
static const struct half { const char *makes_orthogonal, *multiplies; int of, gives; enum copy_fn orthogonal, product; } half_of_q = {
    "orthogonalise Qs", "P = M Q", SGD_Q, SGD_P, COPY_ORTHOGONAL_Q, COPY_P_OF_Q,
}, half_of_p = {
    "orthogonalise Ps", "Q = M' P", SGD_P, SGD_Q, COPY_ORTHOGONAL_P, COPY_Q_OF_P,
};

static void multiply(const struct sgd *g, enum stream stream, const struct half *h)
{
    const struct low_rank *l = &g->l;
    bool q = h->of == SGD_Q;

    matrices(g, stream, h->makes_orthogonal, q ? l->moved_q : l->moved_p, 0, l->kernels, h->orthogonal, 1);
    use(g, ACT_RW, h->of);
    matrices(g, stream, h->multiplies, l->elems + (q ? l->q : l->p), q ? l->p : l->q, l->matrices, h->product, 1);
    use_bucket(g, ACT_R);
    use(g, ACT_R, h->of);
    use(g, ACT_W, h->gives);
}

/* Up to the first collective: on the compute stream. */
static void project(const struct sgd *g)
{
    const struct powersgd_options *o = &g->d->p->ddp.powersgd;
    const struct low_rank *l = &g->l;

    if (o->error_feedback) {
        copies(g, STREAM_COMPUTE, "add the error", 2 * g->n, g->n, 1, COPY_ADD, 1);
        use(g, ACT_R, SGD_ERROR);
        use_bucket(g, ACT_A);
        copies(g, STREAM_COMPUTE, "keep the bucket", g->n, g->n, 1, COPY_SET, 1);
        use_bucket(g, ACT_R);
        use(g, ACT_ALLOC | ACT_WRITE, SGD_INPUT);
    }
    copies(g, STREAM_COMPUTE, "concatenate uncompressed tensors", l->rest_elems, l->rest_elems, 1, COPY_SET, 1);
    use_bucket(g, ACT_R);
    use(g, ACT_ALLOC | ACT_WRITE, SGD_REST);
    if (!o->warm_start)
        draw(g, PHASE_REDUCE, ACT_ALLOC);
    multiply(g, STREAM_COMPUTE, &half_of_q);
}

/* The three callbacks. */
static void exchange(const struct sgd *g)
{
    const struct low_rank *l = &g->l;
    double average = 1.0 / (double)g->d->local->data_ranks;

    ddp_all_reduce(g->d, g->bucket, g->buf + SGD_REST, l->rest_elems, AFTER(STREAM_COMPUTE));
    copies(g, STREAM_REDUCE, "divide and copy back", 2 * l->rest_elems, 2 * l->rest_elems, 1 + l->rest, COPY_SET, average);
    use(g, ACT_R, SGD_REST);
    sched_act_as(g->d->s, ACT_W, ddp_bucket_buf(g->d, g->bucket), 0, 0, g->d->at->rest[g->bucket]);
    ddp_all_reduce(g->d, g->bucket, g->buf + SGD_P, l->p, AFTER(STREAM_COMPUTE) | AFTER(STREAM_REDUCE));
    multiply(g, STREAM_REDUCE, &half_of_p);
    ddp_all_reduce(g->d, g->bucket, g->buf + SGD_Q, l->q, AFTER(STREAM_REDUCE));
    matrices(g, STREAM_REDUCE, "divide Qs", l->q, l->q, 1, COPY_SCALE_Q, average);
    use(g, ACT_RW, SGD_Q);
    matrices(g, STREAM_REDUCE, "M = P Q'", l->p + l->q, l->elems, l->matrices, COPY_M_OF_BOTH, 1);
    use(g, ACT_R, SGD_P);
    use(g, ACT_R, SGD_Q);
    use_bucket(g, ACT_RW);
}

void ddp_powersgd_reduce(struct ddp *d, int bucket)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;
    struct sgd g = sgd_of(d, bucket);

    project(&g);
    exchange(&g);
    sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "torch.cuda.synchronize")->after =
        AFTER(STREAM_COMPUTE) | AFTER(STREAM_GROUP) | AFTER(STREAM_REDUCE);
    if (o->error_feedback) {
        copies(&g, STREAM_REDUCE, "what was lost", 2 * g.n, g.n, 1, COPY_LOST, 1);
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

void ddp_powersgd_begins(struct ddp *d)
{
    const struct powersgd_options *o = &d->p->ddp.powersgd;

    d->compresses = true;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "PowerSGD's matrices");
    for (int b = 0; b < d->at->now->n; b++) {
        if (o->error_feedback)
            sched_act(d->s, ACT_ALLOC, d->at->powersgd + NSGD * b + SGD_ERROR, 0, 0);
        for (int k = SGD_P; k <= SGD_Q && o->warm_start; k++)
            sched_act(d->s, ACT_ALLOC, d->at->powersgd + NSGD * b + k, 0, 0);
    }
    for (int b = 0; b < d->at->now->n; b++) {
        struct sgd g = sgd_of(d, b);
        if (o->error_feedback) {
            ddp_hook_pass(d, b, STREAM_COMPUTE, "no error yet", 0, g.n * g.e, COPY_ZERO, 1);
            use(&g, ACT_W, SGD_ERROR);
        }
        if (o->warm_start)
            draw(&g, PHASE_INIT, 0);
    }
}
