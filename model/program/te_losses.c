/* te_losses.c -- see te_losses.h. */
#include "model/program/te_losses.h"

#include "model/plan/loss_check.h"
#include "model/program/tape_actor.h"
#include "model/program/tape_te_loss.h"
#include "model/program/torch_parts.h"

static enum te_loss loss_kind(const struct plan *p)
{
    return p->loss == LOSS_FUSED ? TE_LOSS_TE : p->loss == LOSS_COMPILED ? TE_LOSS_NATIVE : TE_LOSS_PLAIN;
}

/* verl's patched forward, in the output layer's place. */
static var actor_losses(struct torch_model *b, const struct te_linear *l, var x, var labels)
{
    struct tape *t = b->t;
    var all = b->sequence && b->ranks > 1 ? te_move(t, TE_GATHER, x, b->ranks) : tape_hold(t, x);
    struct head_loss h = { .names = &l->names, .name = "actor loss", .x = all, .w = l->weight[0], .n = l->n, .k = l->k };
    var loss = tape_actor_kernel(t, &h, labels, b->ranks);

    t->module = -1;
    tape_drop(t, all);
    return loss;
}

/* NeMo-RL: Megatron-LM's Float16Module hands out logits in fp32 (fp32_output), or the loss makes them so while the loop has those of 16 bits. */
static var distributed_losses(struct torch_model *b, var logits, var labels)
{
    struct tape *t = b->t;
    bool late = b->p->loss == LOSS_DISTRIBUTED_LATE;
    int64_t at_once = b->p->megatron.logprob_chunk_size;
    var losses;

    if (at_once > 0) {
        losses = te_chunked_loss(t, logits, labels, at_once * (tape_var_numel(t, logits) / plan_rank_seq(b->p)), b->ranks);
        tape_drop(t, logits);
        return losses;
    }
    var wide = op_cast(t, logits, DT_FP32);
    if (!late)
        tape_drop(t, logits);
    losses = te_parallel_loss(t, TE_LOSS_DISTRIBUTED, wide, labels, b->ranks);
    tape_drop(t, wide);
    if (late)
        tape_drop(t, logits);
    return losses;
}

/* The output layer is tensor_parallel.ColumnParallelLinear with either set of kernels. */
var te_losses(struct torch_model *b, const struct te_linear *l, var x, var labels)
{
    if (b->p->loss == LOSS_ACTOR_KERNEL)
        return actor_losses(b, l, x, labels);
    var logits = te_column(b->t, l, x);

    b->t->module = -1;
    if (b->p->megatron.scale_logits)        /* MuP: LanguageModule._scale_logits() */
        logits = tmp(b->t, logits, op_mul_const(b->t, "scale logits", logits, 0));
    if (loss_is_distributed(b->p->loss))
        return distributed_losses(b, logits, labels);
    var losses = te_parallel_loss(b->t, loss_kind(b->p), logits, labels, b->ranks);
    tape_drop(b->t, logits);
    return losses;
}
