/* lower_megatron.c -- a step of Megatron-LM: DistributedDataParallel with its buffers, and its optimizers.
 *
 * Sources (megatron-core 0.16.1): distributed/distributed_data_parallel.py, optimizer/optimizer.py, distrib_optimizer.py,
 * clip_grads.py, pipeline_parallel/schedules.py; Megatron-LM's training/training.py for the order of a step.  Kernels add
 * gradients to main_grad, a view of the chunk's buffer (gradient_accumulation_fusion), which is zeroed when a step begins and
 * reduced after its last backward, or beside it.
 *
 *     ddp      params 2, grads 4 (2), fp32 params and moments 12: 18 (16) bytes a parameter
 *     zero1    the same of parameters and gradients, 12/ranks of the rest: 6 + 12/ranks */
#include "model/framework/megatron/lower_megatron.h"
#include "model/program/te_model.h"

/* ---- passes ---- */

/* The bucket that a module's hook waits for when its forward begins: that of each of its parameters. */
static void await_module(struct mega *z, enum piece_id piece, int block, int module)
{
    for (int i = 0, n = program_ntensors(z->p, piece); i < n; i++) {
        int t = program_tensor(z->p, piece, block, i), first = program_tensor(z->p, piece, block, 0);
        if (z->m->tensors[t].module - z->m->tensors[first].module != module || z->at->of[t] < 0)
            continue;
        for (int k = z->at->of[t]; k <= z->at->last[t]; k++)
            megatron_await_bucket(z, k);
    }
}

/* Is the bucket of one of the module's parameters still to be waited for? */
static bool awaits(const struct mega *z, enum piece_id piece, int block, int module)
{
    for (int i = 0, n = program_ntensors(z->p, piece); i < n; i++) {
        int t = program_tensor(z->p, piece, block, i), first = program_tensor(z->p, piece, block, 0);
        if (z->m->tensors[t].module - z->m->tensors[first].module != module || z->at->of[t] < 0)
            continue;
        for (int k = z->at->of[t]; k <= z->at->last[t]; k++)
            if (z->at->pending[megatron_lead(z->at, k)] > 0)
                return true;
    }
    return false;
}

/* In the step's first forward a block's weights are cast once they have all come. */
static void cast_weights(struct mega *z, enum piece_id piece, int block, int by)
{
    for (int i = 0, n = z->at->waits ? program_ntensors(z->p, piece) : 0; i < n; i++) {
        int of = z->at->of[program_tensor(z->p, piece, block, i)];
        if (of >= 0)
            megatron_await_bucket(z, of);
    }
    megatron_cast_block(z, piece == PIECE_HEAD ? TENSOR_HEAD : block, by);
}

/* The module of a kernel, if its parameters' buckets are still to be waited for; -1: not. */
static int awaited(const struct mega *z, const struct walk_run *r, int k)
{
    const struct piece *q = &z->s->program.piece[r->piece];
    int module = k < q->nkernels[PASS_FORWARD] ? q->kernels[PASS_FORWARD][k].module : -1;

    return module >= 0 && awaits(z, r->piece, r->block, module) ? module : -1;
}

/* Multi-token prediction reads an embedding that a pipeline's last stage has for it. */
static void await_own_table(struct mega *z)
{
    for (int t = 0; t < z->m->ntensors; t++)
        if (z->m->tensors[t].role == ROLE_TOKENS && z->at->of[t] >= 0)
            megatron_await_bucket(z, z->at->of[t]);
}

/* A tied head's weight was waited for by the embedding. */
static void pre_run(void *mega, const struct walk_run *r)
{
    struct mega *z = mega;
    bool casts = r->k0 == 0 && r->forward && z->at->casts;
    int module;

    if (casts && (piece_is_block(r->piece) ? !program_unscaled(z->p, r->block) : r->piece == PIECE_HEAD && z->m->mtp > 0))
        cast_weights(z, r->piece, r->block, r->by);
    if (r->forward && z->at->waits && (module = awaited(z, r, r->k0)) >= 0)
        await_module(z, r->piece, r->block, module);
    if (r->forward && z->at->waits && r->piece == PIECE_HEAD && r->k0 == 0 && z->m->mtp > 0 && !z->at->embeds)
        await_own_table(z);
}

static void compute(void *mega, const struct walk_run *r)
{
    struct mega *z = mega;

    sched_act(z->s, ACT_R, z->at->params, 0, 0);
    if (z->at->frozen >= 0)
        sched_act(z->s, ACT_R, z->at->frozen, 0, 0);
    if (r->weights)
        sched_act(z->s, ACT_A, z->at->grads, 0, 0);
}

/* Buckets that the gradients of a kernel are in, the first or the next. */
struct ready { const struct mega *z; const struct kernel *kernel; enum piece_id piece; int block, i, bucket; };

static struct ready ready(const struct mega *z, const struct walk_run *r, int k)
{
    return (struct ready){ z, &z->s->program.piece[r->piece].kernels[PASS_BACKWARD][k], r->piece, r->block, 0, -1 };
}

/* Its lead; -1: there are no more. */
static int next_ready(struct ready *e)
{
    while (e->i < 4 && e->kernel->ready[e->i] >= 0) {
        int t = program_tensor(e->z->p, e->piece, e->block, e->kernel->ready[e->i]);
        e->bucket = e->bucket < 0 ? e->z->at->of[t] : e->bucket + 1;
        if (e->bucket <= e->z->at->last[t])
            return megatron_lead(e->z->at, e->bucket);
        e->bucket = -1;
        e->i++;
    }
    return -1;
}

/* Forward is cut before a module that waits, backward behind a kernel that makes a bucket's last gradient. */
static bool cut(void *mega, const struct walk_run *r, int k)
{
    struct mega *z = mega;
    bool full = false;

    if (r->forward)
        return awaited(z, r, k + 1) >= 0;
    struct ready e = ready(z, r, k);
    for (int b; (b = next_ready(&e)) >= 0;)
        full |= --z->at->pending[b] == 0;
    return full;
}

/* A bucket's hook reduces it when it is full. */
static void post_run(void *mega, const struct walk_run *r)
{
    struct mega *z = mega;

    megatron_hold(z, r);
    if (r->forward || !z->walk.cuts)
        return;
    struct ready e = ready(z, r, r->k1 - 1);
    for (int b; (b = next_ready(&e)) >= 0;)
        if (z->at->pending[b] == 0 && !z->at->reducing[b])
            megatron_reduce(z, z->at, b);
}

/* fp8_autocast ends with TransformerBlock.forward(); in backward, behind the first layer's. */
static void end_of_units(void *mega)
{
    struct mega *z = mega;

    megatron_agree(z, z->walk.forward ? PHASE_FORWARD : PHASE_BACKWARD);
}

void megatron_begin_pass(struct mega *z, bool hooks)
{
    struct mega_chunk *c = z->at = &z->chunk[z->walk.chunk];

    z->walk.cuts = z->walk.forward ? c->waits : hooks;
    z->walk.fate = z->walk.forward ? GRADS_DROP : GRADS_IN_PLACE;
    for (int b = 0; b < c->nbuckets && (!z->walk.forward || c->waits); b++)
        c->pending[b] = z->walk.forward ? 1 : c->bucket[b].led;
}

static void begin_pass(void *mega)
{
    struct mega *z = mega;

    if (walk_is_stage(&z->walk))
        megatron_begin_stage_pass(z);
    else
        megatron_begin_pass(z, z->walk.last && z->hooks);
}

static void post_forward(void *mega, struct at root)
{
    struct mega_chunk *c = ((struct mega *)mega)->at;

    (void)root;
    for (int b = 0; b < c->nbuckets && c->waits; b++)
        c->gathering[b] = false;
    c->waits = c->casts = false;
}

/* ---- a step ---- */

static void act_grads(struct mega *z, int what)
{
    for (int c = 0; c < z->nchunks; c++)
        sched_act(z->s, what, z->chunk[c].grads, 0, 0);
}

/* zero_grad_buffer(), optimizer.zero_grad(). */
static void zero_gradients(struct mega *z, bool first_step)
{
    int64_t bytes = 0;

    for (int c = 0; c < z->nchunks; c++)
        bytes += z->chunk[c].numel * dtype_bytes(z->r.grad);
    sched_copy(z->s, STREAM_COMPUTE, PHASE_FORWARD, "zero gradients", 0, bytes);
    sched_does(z->s, COPY_ZERO, 0);
    act_grads(z, ACT_W);
    if (z->wide >= 0 && !first_step)
        sched_act(z->s, ACT_FREE, z->wide, 0, 0);
}

/* prepare_grads(): the optimizer's parameters are in fp32, and so are their gradients, but for those that FusedAdam reads as they are. */
static void widen_gradients(struct mega *z)
{
    if (z->wide < 0)
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradients to fp32", z->own_elems * dtype_bytes(z->r.grad), z->own_elems * 4);
    sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->wide, 0, 0);
    act_grads(z, ACT_R);
}

static enum group of_one_model(const struct mega *z)
{
    if (z->instances > 1)
        return sched_group_ranks(z->s, GROUP_INSTANCE) > 0 ? GROUP_INSTANCE : GROUP_SHARD;
    return sched_group_ranks(z->s, GROUP_WORLD) > 0 ? GROUP_WORLD : z->sharded ? GROUP_DATA : GROUP_MODEL;
}

static int64_t main_gradients(const struct mega *z) { return z->own_elems * (z->wide >= 0 ? 4 : dtype_bytes(z->r.grad)); }

/* fp16: the main gradients are divided by the loss's scale and looked through for what is not finite, one number says so over the ranks that
 * have other gradients, and the host reads it (_unscale_main_grads_and_check_for_nan()). */
static void unscale(struct mega *z)
{
    if (z->p->precision != DT_FP16)
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale gradients", main_gradients(z), main_gradients(z));
    sched_does(z->s, COPY_OVERFLOW, 1);
    if (sched_group_ranks(z->s, of_one_model(z)) > 1) {
        sched_coll(z->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, of_one_model(z), DT_FP32, RED_MAX, 1)->after = AFTER(STREAM_COMPUTE);
        sched_moves(z->s, OF_OVERFLOW);
    }
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow")->after = AFTER(STREAM_COMPUTE) | AFTER(STREAM_GROUP);
}

/* get_grad_norm_fp32(): over the ranks that have other gradients, which are all with the distributed optimizer; the host reads
 * it.  Then clip_grad_by_total_norm_fp32(). */
static void norm(struct mega *z)
{
    enum group over = of_one_model(z);
    int64_t bytes = main_gradients(z);

    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", bytes, 0);
    sched_does(z->s, COPY_NORM, 1);
    if (sched_group_ranks(z->s, over) > 1) {
        sched_coll(z->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, over, DT_FP32, RED_SUM, 1)->after = AFTER(STREAM_COMPUTE);
        sched_moves(z->s, OF_NORM);
    }
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read the norm")->after = AFTER(STREAM_COMPUTE) | AFTER(STREAM_GROUP);
    if (z->p->clip > 0) {
        sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "clip gradients", bytes, bytes);
        sched_does(z->s, COPY_CLIP, 1);
    }
}

/* Experts that are shared out have an optimizer of their own, where the rank has some, and each gathers all of the model's buckets when it
 * has stepped (step_with_ready_grads(): model_chunk.start_param_sync()): recorded. */
static int optimizers(const struct mega *z) { return z->p->parallel.expert > 1 && model_routers(z->m) > 0 ? 2 : 1; }

static void turn_params(struct mega *z)
{
    for (int c = 0; c < z->nchunks; c++)
        for (int b = 0; b < z->chunk[c].nbuckets; b++)
            megatron_turn(z, PHASE_OPTIMIZER, megatron_codes_in(&z->chunk[c], b));
}

/* FusedAdam, then _copy_main_params_to_model_params(); without overlap_param_gather parameters are gathered at once. */
static void update(struct mega *z, bool first_step)
{
    megatron_adam(z, first_step);
    megatron_cast_params(z);
    if (z->local->data_ranks == 1)
        turn_params(z);
    if (!z->sharded || z->local->data_ranks == 1 || z->p->megatron.overlap_param_gather)
        return;
    for (int i = 0; i < optimizers(z); i++)
        for (int c = 0; c < z->nchunks; c++)
            for (int b = 0; b < z->chunk[c].nbuckets; b++) {
                megatron_gather(z, &z->chunk[c], b, PHASE_OPTIMIZER);
                z->chunk[c].gathering[b] = false;
            }
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "await parameters")->after = AFTER(STREAM_GATHER);
    turn_params(z);
}

/* In the first step hooks only count (is_first_batch), and nothing is gathered: weights are alike. */
static void begin(void *mega)
{
    struct mega *z = mega;
    bool first = z->walk.step == SCHED_FIRST;

    zero_gradients(z, first);
    z->hooks = z->p->megatron.overlap_grad_reduce && !first;
    for (int c = 0; c < z->nchunks; c++) {
        z->chunk[c].waits = z->p->megatron.overlap_param_gather && z->local->data_ranks > 1 && !first;
        z->chunk[c].casts = plan_scaled(z->p) && !z->codes;
    }
    z->walk.first_differs = z->chunk[0].waits || z->chunk[0].casts;
    z->walk.last_differs = z->hooks;
    if (walk_is_stage(&z->walk))
        megatron_begin_stage(z);
}

static void optimizer(void *mega)
{
    struct mega *z = mega;

    megatron_drain(z);
    megatron_finalize(z);
    widen_gradients(z);
    unscale(z);
    norm(z);
    update(z, z->walk.step == SCHED_FIRST);
}

/* ---- construction ---- */

/* initialize_model_weights' all-reduce of a tied embedding: the last stage's begins at zero. */
static void share_embedding(struct mega *z)
{
    for (int i = 0; i < z->nchunks; i++)
        for (int t = 0; t < z->m->ntensors; t++)
            if (megatron_has(&z->chunk[i], &z->m->tensors[t]) && z->local->partial[t] & MESH_AXIS(AXIS_PIPE))
                sched_coll(z->s, STREAM_REDUCE, PHASE_INIT, COLL_ALL_REDUCE, GROUP_TIED, z->r.kept, RED_SUM, z->m->tensors[t].numel);
}

/* train_step() of training/training.py averages the last stage's loss over all data-parallel ranks for its log.  Lists leave that entry out.
 * Where the optimizer has several instances nothing else uses this communicator, so its buffers are counted here. */
static void log_losses(struct mega *z)
{
    if (z->instances > 1 && z->chunk[z->nchunks - 1].heads)
        z->s->communicates |= 1u << plan_groups_find(&z->s->groups, GROUP_DATA);
}

/* Parameters are made, then moved into their buffer, tensor by tensor. */
static void init(void *mega)
{
    struct mega *z = mega;
    int64_t kept = te_buffer_bytes(z->local);
    int made[PLAN_MAX_CHUNKS], kernels = kept > 0 ? sched_buf(z->s, CAT_BUCKET, "buffers that kernels keep", NULL, 0, 1, kept) : -1;

    for (int c = 0; c < z->nchunks && z->sharded; c++)
        made[c] = sched_buf(z->s, CAT_PARAMS, "parameters as they were made", NULL, 0, 1, z->s->bufs[z->chunk[c].params].bytes);
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model")->flags = OPF_LOAD;
    for (int c = 0; c < z->nchunks; c++) {
        sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->sharded ? made[c] : z->chunk[c].params, 0, 0);
        if (z->chunk[c].frozen >= 0)
            sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->chunk[c].frozen, 0, 0);
    }
    share_embedding(z);
    for (int c = 0; c < z->nchunks; c++) {
        int64_t bytes = z->s->bufs[z->chunk[c].params].bytes;
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "buffers")->after = AFTER(STREAM_REDUCE);
        if (z->sharded)
            sched_act(z->s, ACT_ALLOC, z->chunk[c].params, 0, 0);
        sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->chunk[c].grads, 0, 0);
        if (!z->sharded)
            continue;
        sched_set(z->s, STREAM_COMPUTE, PHASE_INIT, "into the buffer", bytes, bytes);
        sched_act(z->s, ACT_R | ACT_FREE, made[c], 0, 0);
        sched_act(z->s, ACT_W, z->chunk[c].params, 0, 0);
    }
    megatron_copy_params(z);
    log_losses(z);
    const int codes[] = { z->weights, z->scales };
    for (int i = 0; i < 2; i++)
        if (codes[i] >= 0) {            /* likewise */
            sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, i ? "scales" : "codes of weights");
            sched_act(z->s, ACT_ALLOC | ACT_WRITE, codes[i], 0, 0);
        }
    if (kernels >= 0) {                 /* in the first step, in truth: none is full before */
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "kernels' buffers");
        sched_act(z->s, ACT_ALLOC, kernels, 0, 0);
    }
}

static const struct walk_hooks hooks = {
    .init = init, .begin = begin, .optimizer = optimizer, .begin_pass = begin_pass, .pre_forward = megatron_pre_forward,
    .post_forward = post_forward, .post_backward = megatron_post_backward, .end_of_units = end_of_units,
    .compute = compute, .pre_run = pre_run, .post_run = post_run, .cut = cut,
    .stage_act = megatron_stage_act, .end_of_stage = megatron_end_of_stage, .by_chunk = true, .grads = CAT_GRADS,
};

int lower_megatron(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct plan whole = *p;
    struct mega z = { .p = p, .local = local, .m = local->model, .s = s, .r = plan_recipe(p), .sharded = p->strategy == STRAT_ZERO1,
                      .instances = local->data_ranks / local->shard_ranks,
                      .codes = p->megatron.fp8_param_gather && plan_scaled(p) };
    int rc;

    whole.unit = UNIT_MODEL;
    walk_open(&z.walk, local, &whole, s, &hooks, &z);
    megatron_open(&z);
    rc = walk_steps(&z.walk);
    megatron_close(&z);
    return rc;
}
