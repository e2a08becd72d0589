/* lower_megatron_codes.c -- weights in 8 and 4 bits, and the scales of delayed scaling.
 *
 * Sources: Megatron-LM d98e8a64, core/fp8_utils.py, distributed/param_and_grad_buffer.py; Transformer Engine d0067d0d,
 * pytorch/{quantization,module/base,tensor/utils}.py.  Weights in bf16 are cast in the step's first forward and their codes kept
 * (is_first_microbatch).  With fp8_param_gather the optimizer casts its shard, what is gathered is codes, and each rank makes what products
 * read along columns of them (post_all_gather_processing()); mxfp8's are gathered in bf16, in the place of gradients, and cast behind that. */
#include "model/framework/megatron/lower_megatron.h"
#include "model/program/te_model.h"

static enum scaled format(const struct mega *z) { return plan_scaled(z->p); }

static bool looks_first(const struct mega *z)
{
    return format(z) == SCALED_NVFP4 || (format(z) == SCALED_FP8_TENSOR && z->p->megatron.fp8_recipe == FP8_TENSORWISE);
}

/* A block's at once, before its first kernel: in truth each before its own product. */
void megatron_cast_block(struct mega *z, int block, int by)
{
    int64_t n = te_cast_numel(z->local, block), ways = te_ways(z->p);

    if (looks_first(z))
        sched_copy(z->s, STREAM_COMPUTE, PHASE_FORWARD, "largest weights", 2 * n, 0);
    sched_copy(z->s, STREAM_COMPUTE, PHASE_FORWARD, "weights to codes", 2 * n, ways * dtype_scaled_bytes(format(z), n));
    if (block >= 0)
        sched_of(z->s, "block", block, by);
    sched_act(z->s, ACT_R, z->at->frozen >= 0 ? z->at->frozen : z->at->params, 0, 0);
    sched_act(z->s, ACT_W, z->weights, 0, 0);
}

/* reduce_and_update_fp8_tensors(): of all layers of the rank, whichever chunk has run; its kernel writes histories and scales. */
void megatron_agree(struct mega *z, enum phase phase)
{
    const struct megatron_options *o = &z->p->megatron;
    enum group over = o->tp_only_amax_red ? GROUP_TENSOR : sched_group_ranks(z->s, GROUP_STAGE) > 0 ? GROUP_STAGE : GROUP_DATA;
    int64_t n = te_layers(z->local) * (phase == PHASE_FORWARD ? TE_FORWARD_SCALES : TE_BACKWARD_SCALES);

    if (z->scales < 0)
        return;
    if (sched_group_ranks(z->s, over) > 1) {
        sched_coll(z->s, STREAM_GROUP, phase, COLL_ALL_REDUCE, over, DT_FP32, RED_MAX, n)->after = AFTER(STREAM_COMPUTE);
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await the largest numbers")->after = AFTER(STREAM_GROUP);
    }
    sched_copy(z->s, STREAM_COMPUTE, phase, "scales", 4 * n * (o->fp8_amax_history_len + 1), 4 * n * (o->fp8_amax_history_len + 2));
    sched_act(z->s, ACT_RW, z->scales, 0, 0);
}

/* Of weights whose optimizer ranks of the group share, the largest numbers: one of each, or of each of its blocks. */
static void agree_on_largest(struct mega *z, enum group over, bool experts)
{
    bool blocks = format(z) == SCALED_FP8_BLOCK;
    int64_t numbers = 0;

    for (int t = 0; t < z->m->ntensors; t++) {
        const struct tensor *x = &z->m->tensors[t];
        if (!x->frozen && te_is_cast(z->p, x) && megatron_shares_out(z, t) == experts)
            numbers += te_weights(x) * (blocks ? ceil_div(x->numel / te_weights(x), 128 * 128) : 1);
    }
    if (numbers == 0 || sched_group_ranks(z->s, over) <= 1)
        return;
    sched_coll(z->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, over, DT_FP32, RED_MAX, numbers)->after = AFTER(STREAM_COMPUTE);
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "await the largest parameters")->after = AFTER(STREAM_GROUP);
}

/* cast_master_weights_to_fp8(): by way of bf16.  A number for each weight, or for each of its blocks, is agreed on, before the cast or
 * (delayed) behind it; experts that ranks share out have an optimizer of their own. */
void megatron_cast_params(struct mega *z)
{
    bool delayed = z->scales >= 0;
    int64_t n = z->own_codes;

    if (!z->codes || format(z) == SCALED_MXFP8)
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "parameters to bf16", 4 * n, 2 * n);
    if (!delayed)
        sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "largest parameters", 2 * n, 0);
    else
        sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "parameters to codes", 2 * n, n);
    agree_on_largest(z, GROUP_DATA, false);
    agree_on_largest(z, GROUP_EXPERT_DATA, true);
    if (!delayed)
        sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "parameters to codes", 2 * n, n);
}

void megatron_turn(struct mega *z, enum phase phase, int64_t n)
{
    int64_t ways = te_ways(z->p);

    if (!z->codes || n == 0 || (format(z) != SCALED_MXFP8 && ways == 1))
        return;
    if (format(z) == SCALED_MXFP8)
        sched_copy(z->s, STREAM_COMPUTE, phase, "parameters to codes", 2 * n, ways * dtype_scaled_bytes(format(z), n));
    else
        sched_copy(z->s, STREAM_COMPUTE, phase, "transposed copies of parameters", n, dtype_scaled_bytes(format(z), n));
    sched_act(z->s, ACT_W, z->weights, 0, 0);
}
