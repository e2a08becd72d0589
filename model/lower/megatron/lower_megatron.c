/* lower_megatron.c -- a step of Megatron-LM: DistributedDataParallel with its buffers, and its optimizers.
 *
 * Sources (megatron-core 0.16.1): distributed/distributed_data_parallel.py, optimizer/optimizer.py, distrib_optimizer.py,
 * clip_grads.py, pipeline_parallel/schedules.py; Megatron-LM's training/training.py for the order of a step.  Kernels add
 * gradients to main_grad, a view of the chunk's buffer (gradient_accumulation_fusion), which is zeroed when a step begins and
 * reduced after its last backward, or beside it.
 *
 *     ddp      params 2, grads 4 (2), fp32 params and moments 12: 18 (16) bytes a parameter
 *     zero1    the same of parameters and gradients, 12/ranks of the rest: 6 + 12/ranks */
#include "model/lower/common/micro_steps.h"
#include "model/lower/megatron/lower_megatron.h"
#include "model/program/te_model.h"

static const char *name_of(enum piece_id piece)
{
    return piece == PIECE_EMBED ? "embedding" : piece == PIECE_HEAD ? "head" : "block";
}

static int kept(const struct mega *z, enum piece_id piece, int block)
{
    return piece_is_block(piece) ? z->kept_blocks + block : z->kept_ends;
}

/* ---- forward ---- */

static void forward_segment(struct mega *z, enum piece_id piece, int block, int by, int k0, int k1)
{
    sched_compute(z->s, PHASE_FORWARD, piece, PASS_FORWARD, k0, k1, GRADS_DROP, CAT_GRADS);
    sched_of(z->s, name_of(piece), block, by);
    sched_act(z->s, ACT_R, z->at->params, 0, 0);
}

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

/* A tied head's weight was waited for by the embedding. */
static void forward_gathering(struct mega *z, enum piece_id piece, int block)
{
    const struct piece *q = &z->s->program.piece[piece];
    int n = q->nkernels[PASS_FORWARD], from = 0;

    for (int k = 0; k < n; k++) {
        int module = q->kernels[PASS_FORWARD][k].module;
        if (module < 0 || !awaits(z, piece, block, module))
            continue;
        if (k > from)
            forward_segment(z, piece, block, 0, from, k);
        from = k;
        await_module(z, piece, block, module);
    }
    forward_segment(z, piece, block, 0, from, n);
}

/* In the step's first forward a block's weights are cast once they have all come. */
static void cast_weights(struct mega *z, enum piece_id piece, int block, int by)
{
    for (int i = 0, n = z->at->waits ? program_ntensors(z->p, piece) : 0; i < n; i++)
        megatron_await_bucket(z, z->at->of[program_tensor(z->p, piece, block, i)]);
    megatron_cast_block(z, piece == PIECE_HEAD ? TENSOR_HEAD : block, by);
}

static void forward_piece(struct mega *z, enum piece_id piece, int block, int by)
{
    if (z->at->casts && piece_is_block(piece) && !program_unscaled(z->p, block))
        cast_weights(z, piece, block, by);
    if (z->at->casts && piece == PIECE_HEAD && z->m->mtp > 0)
        cast_weights(z, piece, block, by);
    if (z->at->waits)
        forward_gathering(z, piece, block);
    else
        forward_segment(z, piece, block, by, 0, -1);
    sched_act(z->s, ACT_ALLOC, z->acts[piece], kept(z, piece, block), by);
}

/* Of a block of the chunk whose turn it is. */
static enum piece_id piece_of(const struct mega *z, int block) { return program_piece_in_chunk(z->p, block, block - z->at->from); }

static void forward_block(void *arg, int block, int by)
{
    struct mega *z = arg;

    forward_piece(z, piece_of(z, block), block, by);
}

static bool is_stage(const struct mega *z) { return z->p->parallel.pipeline > 1; }

void megatron_forward(struct mega *z)
{
    struct mega_chunk *c = z->at;

    for (int b = 0; b < c->nbuckets && c->waits; b++)
        c->pending[b] = 1;
    if (c->embeds)
        forward_piece(z, PIECE_EMBED, 0, 0);
    if (!is_stage(z) && !c->waits)
        units_blocks_emit(z->local, z->s, false, forward_block, z);
    else
        for (int b = c->from; b < c->to; b++)
            forward_block(z, b, 0);
    megatron_agree(z, PHASE_FORWARD);           /* fp8_autocast ends with TransformerBlock.forward() */
    if (c->heads)
        forward_piece(z, PIECE_HEAD, 0, 0);
    for (int b = 0; b < c->nbuckets && c->waits; b++)
        c->gathering[b] = false;
    c->waits = c->casts = false;
}

/* ---- backward ---- */

static void backward_segment(struct mega *z, enum piece_id piece, int block, int by, int k0, int k1)
{
    sched_compute(z->s, PHASE_BACKWARD, piece, PASS_BACKWARD, k0, k1, GRADS_IN_PLACE, CAT_GRADS);
    sched_of(z->s, name_of(piece), block, by);
    sched_act(z->s, ACT_R, z->at->params, 0, 0);
    sched_act(z->s, ACT_A, z->at->grads, 0, 0);
}

static void backward_piece(struct mega *z, enum piece_id piece, int block, int by)
{
    backward_segment(z, piece, block, by, 0, -1);
    sched_act(z->s, ACT_FREE, z->acts[piece], kept(z, piece, block), by);
}

static void backward_block(void *arg, int block, int by)
{
    struct mega *z = arg;

    backward_piece(z, piece_of(z, block), block, by);
}

/* Cut after every kernel that makes a bucket's last gradient: its hook reduces the bucket. */
static void backward_hooked(struct mega *z, enum piece_id piece, int block)
{
    const struct piece *q = &z->s->program.piece[piece];
    int n = q->nkernels[PASS_BACKWARD], from = 0;

    for (int k = 0; k < n; k++) {
        const struct kernel *kernel = &q->kernels[PASS_BACKWARD][k];
        bool full = false;
        for (int i = 0; i < 4 && kernel->ready[i] >= 0; i++) {
            int t = program_tensor(z->p, piece, block, kernel->ready[i]);
            for (int bucket = z->at->of[t]; bucket <= z->at->last[t]; bucket++)
                full |= --z->at->pending[megatron_lead(z->at, bucket)] == 0;
        }
        if (!full && k < n - 1)
            continue;
        backward_segment(z, piece, block, 0, from, k + 1);
        if (k == n - 1)
            sched_act(z->s, ACT_FREE, z->acts[piece], kept(z, piece, block), 0);
        from = k + 1;
        for (int i = 0; i < 4 && kernel->ready[i] >= 0; i++) {
            int t = program_tensor(z->p, piece, block, kernel->ready[i]);
            for (int bucket = z->at->of[t]; bucket <= z->at->last[t]; bucket++)
                if (z->at->pending[megatron_lead(z->at, bucket)] == 0 && !z->at->reducing[megatron_lead(z->at, bucket)])
                    megatron_reduce(z, z->at, megatron_lead(z->at, bucket));
        }
    }
}

void megatron_backward(struct mega *z, bool hooks)
{
    struct mega_chunk *c = z->at;

    for (int b = 0; b < c->nbuckets; b++)
        c->pending[b] = c->bucket[b].led;
    if (c->heads && hooks)
        backward_hooked(z, PIECE_HEAD, 0);
    else if (c->heads)
        backward_piece(z, PIECE_HEAD, 0, 0);
    if (!is_stage(z) && !hooks)
        units_blocks_emit(z->local, z->s, true, backward_block, z);
    for (int b = c->to - 1; b >= c->from && (is_stage(z) || hooks); b--)
        if (hooks)
            backward_hooked(z, piece_of(z, b), b);
        else
            backward_block(z, b, 0);
    megatron_agree(z, PHASE_BACKWARD);          /* behind the first layer's backward */
    if (c->embeds && hooks)
        backward_hooked(z, PIECE_EMBED, 0);
    else if (c->embeds)
        backward_piece(z, PIECE_EMBED, 0, 0);
}

/* ---- a step ---- */

static void micro_pass(void *arg, const struct micro *m)
{
    struct mega *z = arg;

    if (m->pass == MICRO_FORWARD)
        megatron_forward(z);
    else
        megatron_backward(z, m->last && z->hooks);
}

static void micro_steps(struct mega *z)
{
    struct micro_order order = { .steps = z->p->accumulation, .first_differs = z->at->waits || z->at->casts, .last_differs = z->hooks };

    micro_steps_emit(z->s, &order, &(struct micro_calls){ .emit = micro_pass }, z);
}

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
static int step(struct mega *z, enum sched_id id)
{
    bool first = id == SCHED_FIRST;
    int rc = 0;

    sched_begin(z->s, id);
    zero_gradients(z, first);
    z->hooks = z->p->megatron.overlap_grad_reduce && !first;
    z->at = &z->chunk[0];
    for (int c = 0; c < z->nchunks; c++) {
        z->chunk[c].waits = z->p->megatron.overlap_param_gather && z->local->data_ranks > 1 && !first;
        z->chunk[c].casts = plan_scaled(z->p) && !z->codes;
    }
    if (is_stage(z))
        rc = megatron_pipeline(z, first);
    else
        micro_steps(z);
    megatron_finalize(z);
    widen_gradients(z);
    unscale(z);
    norm(z);
    update(z, first);
    lower_read_loss(z->s);
    sched_end(z->s, id);
    return rc;
}

/* ---- construction ---- */

/* initialize_model_weights' all-reduce of a tied embedding: the last stage's begins at zero. */
static void share_embedding(struct mega *z)
{
    for (int i = 0; i < z->nchunks; i++)
        for (int t = 0; t < z->m->ntensors; t++)
            if (z->chunk[i].of[t] >= 0 && z->local->partial[t] & MESH_AXIS(AXIS_PIPE))
                sched_coll(z->s, STREAM_REDUCE, PHASE_INIT, COLL_ALL_REDUCE, GROUP_TIED, z->r.kept, RED_SUM, z->m->tensors[t].numel);
}

/* Parameters are made, then moved into their buffer, tensor by tensor. */
static void init(struct mega *z)
{
    int64_t kept = te_buffer_bytes(z->local);
    int made[PLAN_MAX_CHUNKS], kernels = kept > 0 ? sched_buf(z->s, CAT_BUCKET, "buffers that kernels keep", NULL, 0, 1, kept) : -1;

    for (int c = 0; c < z->nchunks && z->sharded; c++)
        made[c] = sched_buf(z->s, CAT_PARAMS, "parameters as they were made", NULL, 0, 1, z->s->bufs[z->chunk[c].params].bytes);
    sched_begin(z->s, SCHED_INIT);
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model")->flags = OPF_LOAD;
    for (int c = 0; c < z->nchunks; c++)
        sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->sharded ? made[c] : z->chunk[c].params, 0, 0);
    share_embedding(z);
    for (int c = 0; c < z->nchunks; c++) {
        int64_t bytes = z->s->bufs[z->chunk[c].params].bytes;
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "buffers")->after = AFTER(STREAM_REDUCE);
        if (z->sharded)
            sched_act(z->s, ACT_ALLOC, z->chunk[c].params, 0, 0);
        sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->chunk[c].grads, 0, 0);
        if (!z->sharded)
            continue;
        sched_copy(z->s, STREAM_COMPUTE, PHASE_INIT, "into the buffer", bytes, bytes);
        sched_does(z->s, COPY_SET, 1);
        sched_act(z->s, ACT_R | ACT_FREE, made[c], 0, 0);
        sched_act(z->s, ACT_W, z->chunk[c].params, 0, 0);
    }
    megatron_copy_params(z);
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
    sched_end(z->s, SCHED_INIT);
}

int lower_megatron(const struct local_model *local, struct schedules *s)
{
    struct mega z = { .p = local->plan, .local = local, .m = local->model, .s = s, .r = plan_recipe(local->plan),
                      .sharded = local->plan->strategy == STRAT_ZERO1,
                      .codes = local->plan->megatron.fp8_param_gather && plan_scaled(local->plan) };
    int rc;

    megatron_open(&z);
    init(&z);
    rc = step(&z, SCHED_FIRST);
    if (rc == 0)
        rc = step(&z, SCHED_STEADY);
    megatron_close(&z);
    return rc;
}
