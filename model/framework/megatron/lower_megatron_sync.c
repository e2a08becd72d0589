/* lower_megatron_sync.c -- how Megatron-LM reduces gradients and gathers parameters.
 *
 * Sources (megatron-core 0.16.1): distributed/param_and_grad_buffer.py, _ParamAndGradBucketGroup; finalize_model_grads.py.  A
 * bucket's gradients are looked at (check_for_nan_in_grad), scaled by 1/ranks and summed, or averaged by the collective; what the
 * distributed optimizer shards is reduce-scattered in place, the buffer staying whole.  Of several instances of it (shard_group) each
 * does so alone, and a rank's share is then summed over them, one bucket after the other on a stream of their own. */
#include "model/framework/megatron/lower_megatron.h"

/* The host reads what the device has computed. */
static void read_back(struct mega *z, enum phase phase, const char *why)
{
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, phase, why)->after = AFTER(STREAM_COMPUTE);
}

static int64_t numel_of(const struct mega_chunk *c, int bucket) { return c->bucket[bucket].to - c->bucket[bucket].from; }

static enum group group_of(const struct mega *z, const struct mega_chunk *c, int bucket)
{
    return c->bucket[bucket].experts ? GROUP_EXPERT_DATA : z->instances > 1 ? GROUP_SHARD : GROUP_DATA;
}

static void reduce_bucket(struct mega *z, struct mega_chunk *c, int bucket)
{
    const struct megatron_options *o = &z->p->megatron;
    int64_t numel = numel_of(c, bucket), bytes = numel * dtype_bytes(z->r.grad), ranks = megatron_ranks(z, &c->bucket[bucket]);
    /* Experts' gradients have the tokens of all ranks that share them out in them: they are divided by as many as the others'. */
    double scale = (o->ddp_average_in_collective ? (double)(ranks * z->instances) : 1) / (double)z->local->data_ranks;

    if (o->check_for_nan_in_loss_and_grad) {
        sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "norm of the bucket", bytes, 0);
        sched_of(z->s, "bucket", bucket, 0);
        read_back(z, PHASE_REDUCE, "is the bucket finite?");
    }
    if (z->local->data_ranks == 1)
        return;
    if (scale != 1 && !o->calculate_per_token_loss) {
        sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "scale gradients", bytes, bytes);
        sched_of(z->s, "bucket", bucket, 0);
        sched_does(z->s, COPY_SET, scale);
        sched_act(z->s, ACT_RW, c->grads, 0, 0);
    }
    if (ranks == 1)
        return;
    sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, z->sharded ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, group_of(z, c, bucket), z->r.wire_reduce,
               o->ddp_average_in_collective ? RED_AVG : RED_SUM, numel)->after = AFTER(STREAM_COMPUTE);
    sched_of(z->s, "bucket", bucket, 0);
    sched_act(z->s, ACT_RW, c->grads, 0, 0);
}

/* The rank's share of a bucket over the instances of the optimizer. */
static void reduce_across(struct mega *z, struct mega_chunk *c, int bucket)
{
    if (z->instances == 1)
        return;
    sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA, z->r.wire_reduce,
               z->p->megatron.ddp_average_in_collective ? RED_AVG : RED_SUM, numel_of(c, bucket) / megatron_ranks(z, &c->bucket[bucket]));
    sched_of(z->s, "bucket", bucket, 0);
    sched_act(z->s, ACT_RW, c->grads, 0, 0);
}

/* One that goes with another goes when that one does. */
void megatron_reduce(struct mega *z, struct mega_chunk *c, int bucket)
{
    if (megatron_lead(c, bucket) != bucket)
        return;
    c->reducing[bucket] = true;
    for (int b = bucket; b < c->bucket[bucket].end; b++)
        reduce_bucket(z, c, b);
    for (int b = bucket; b < c->bucket[bucket].end; b++)
        reduce_across(z, c, b);
}

/* What is not under way is reduced, and all is waited for: finish_grad_sync().  Where no hook has counted yet (is_first_batch), and behind a
 * pipeline's first stage none ever does, it begins every reduction unless a handle says that the schedule has; of several instances there is no
 * handle, and what the schedule began is reduced, and scaled, a second time (recorded). */
static void finish_reductions(struct mega *z)
{
    for (int i = 0; i < z->nchunks; i++) {
        struct mega_chunk *c = &z->chunk[i];
        for (int b = 0; b < c->nbuckets; b++) {
            if (!c->reducing[b] || (z->instances > 1 && c->called))
                megatron_reduce(z, c, b);
            c->reducing[b] = false;
        }
        c->called = false;
    }
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await buckets")->after = AFTER(STREAM_REDUCE);
}

/* Codes as bytes; mxfp8's parameters in 16 bits, into the gradients' buffer. */
static void gather_bucket(struct mega *z, struct mega_chunk *c, int bucket, enum phase phase)
{
    bool codes = c->bucket[bucket].codes && plan_scaled(z->p) != SCALED_MXFP8;
    int64_t numel = numel_of(c, bucket);

    sched_coll(z->s, STREAM_GATHER, phase, COLL_ALL_GATHER, group_of(z, c, bucket), codes ? DT_UINT8 : z->r.wire_gather, RED_NONE,
               codes ? dtype_scaled_bytes(plan_scaled(z->p), numel) : numel)->after = AFTER(STREAM_COMPUTE);
    sched_of(z->s, "bucket", bucket, 0);
    sched_act(z->s, ACT_RW, c->bucket[bucket].codes && !codes ? c->grads : c->params, 0, 0);
}

void megatron_gather(struct mega *z, struct mega_chunk *c, int bucket, enum phase phase)
{
    if (megatron_lead(c, bucket) != bucket)
        return;
    c->gathering[bucket] = true;
    if (megatron_ranks(z, &c->bucket[bucket]) == 1)
        return;
    for (int b = c->bucket[bucket].end - 1; b >= bucket; b--)
        gather_bucket(z, c, b, phase);
    z->s->ops[z->s->nops - 1].record = c->gathered[bucket];
}

int64_t megatron_codes_in(const struct mega_chunk *c, int bucket)
{
    return c->bucket[bucket].codes ? numel_of(c, bucket) : 0;
}

/* finish_param_sync(): buckets are needed from the last one on. */
void megatron_await_bucket(struct mega *z, int of)
{
    struct mega_chunk *c = z->at;
    int bucket = megatron_lead(c, of);

    if (c->pending[bucket] == 0)
        return;                         /* was waited for in this forward */
    if (!c->gathering[bucket])
        megatron_gather(z, c, bucket, PHASE_FORWARD);
    if (megatron_ranks(z, &c->bucket[bucket]) > 1) {
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "await parameters")->wait[0] = c->gathered[bucket];
        sched_of(z->s, "bucket", bucket, 0);
    }
    c->pending[bucket] = 0;
    megatron_turn(z, PHASE_FORWARD, megatron_codes_in(c, bucket));
    if (bucket > 0 && !c->gathering[bucket - 1])
        megatron_gather(z, c, bucket - 1, PHASE_FORWARD);
}

/* ---- finalize_model_grads() ---- */

/* Norms' gradients of a share of the positions, and of q's and k's norms: flattened, summed, copied back. */
static void sum_partial(struct mega *z)
{
    int64_t bytes = z->partial * dtype_bytes(z->r.grad);

    if (z->sums < 0)
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "flatten partial gradients", bytes, bytes);
    sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->sums, 0, 0);
    sched_coll(z->s, STREAM_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TENSOR, z->r.grad, RED_SUM, z->partial)->after =
        AFTER(STREAM_COMPUTE);
    sched_act(z->s, ACT_RW, z->sums, 0, 0);
    sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "copy sums back", bytes, bytes)->after = AFTER(STREAM_TENSOR);
    sched_act(z->s, ACT_R | ACT_FREE, z->sums, 0, 0);
}

/* The whole gradient of an embedding that the pipeline's first and last stage both have. */
static void sum_tied(struct mega *z)
{
    for (int i = 0; i < z->nchunks; i++)
        for (int t = 0; t < z->m->ntensors; t++)
            if (z->chunk[i].of[t] >= 0 && z->local->partial[t] & MESH_AXIS(AXIS_PIPE)) {
                sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TIED, z->r.grad, RED_SUM, z->m->tensors[t].numel)->after =
                    AFTER(STREAM_COMPUTE);
                sched_act(z->s, ACT_RW, z->chunk[i].grads, 0, 0);
                sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await the embedding's gradient")->after = AFTER(STREAM_REDUCE);
            }
}

/* calculate_per_token_loss: the pipeline's last rank has counted the batch's tokens; all divide what they have by their number, which
 * the host reads. */
static void divide_by_tokens(struct mega *z)
{
    if (!z->p->megatron.calculate_per_token_loss)
        return;
    if (z->p->parallel.pipeline > 1) {
        sched_coll(z->s, STREAM_GROUP, PHASE_REDUCE, COLL_BROADCAST, GROUP_PIPE, DT_INT32, RED_NONE, 1)->after = AFTER(STREAM_COMPUTE);
        sched_root(z->s, (int)z->p->parallel.pipeline - 1);
    }
    if (z->local->data_ranks > 1)
        sched_coll(z->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_DATA, DT_INT32, RED_SUM, 1)->after = AFTER(STREAM_COMPUTE);
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "read the tokens")->after = AFTER(STREAM_COMPUTE) | AFTER(STREAM_GROUP);
    for (int i = 0; i < z->nchunks; i++) {
        int64_t bytes = z->chunk[i].numel * dtype_bytes(z->r.grad);
        sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "divide by the tokens", bytes, bytes);
        sched_act(z->s, ACT_RW, z->chunk[i].grads, 0, 0);
    }
}

/* _update_router_expert_bias(): the tokens that came to each expert of each router, in the model's 16 bits (Float16Module); then the biases go
 * up or down by a step. */
static void update_routers(struct mega *z)
{
    enum group over = sched_group_ranks(z->s, GROUP_STAGE) > 0 ? GROUP_STAGE : GROUP_DATA;
    int64_t n = z->m->route_groups > 0 ? model_routers(z->m) * z->m->experts : 0;

    if (n == 0)
        return;
    if (sched_group_ranks(z->s, over) > 1) {
        sched_coll(z->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, over, z->r.used, RED_SUM, n)->after = AFTER(STREAM_COMPUTE);
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await the tokens of experts")->after = AFTER(STREAM_GROUP);
    }
    sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "router biases", 6 * n, 4 * n);
}

void megatron_finalize(struct mega *z)
{
    finish_reductions(z);
    sum_partial(z);
    sum_tied(z);
    update_routers(z);
    divide_by_tokens(z);
}
