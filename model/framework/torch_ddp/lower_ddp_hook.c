/* lower_ddp_hook.c -- what a communication hook does with a bucket.
 *
 * Sources (PyTorch 2.15): torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py; the reducer
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
        ddp_describe_buckets(d, b, order, d->at->ntrainable, first, HOLDS_GRAD, d->r.wire_reduce);
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
    sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_DATA, d->r.wire_reduce, RED_SUM, elems)->after = after;
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
