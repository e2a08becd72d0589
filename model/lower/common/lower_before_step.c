/* lower_before_step.c -- what stands between a step's gradients and its optimizer: in fp16 the look for overflow, and the clip norm.
 *
 * fp16 trains under torch.amp.GradScaler (torch/amp/grad_scaler.py, 2.15): the loss is scaled; unscale_() divides the gradients and
 * notes whether one is not finite, before they are clipped; step() reads that note and calls the optimizer, or does not.  Of DTensors
 * the note, one fp32 number, is reduced to its largest over the ranks that have different gradients (torch/distributed/tensor/
 * _dispatch.py, found_inf_reduce_handler).  The papers say "loss scaling" and no more: theirs is the same, with the division in the
 * optimizer's kernel, as in all of dpx's.  A model whose weights themselves are in fp16 trains without it: GradScaler refuses its gradients. */
#include "model/lower/common/lower_internal.h"

/* Of states in other memories it is planned without: dpxrun refuses it. */
static bool scales_loss(const struct plan *p)
{
    bool whole = p->ddp.model_dtype == DT_FP16 && p->kernels != KERNELS_DPX && !plan_has_wide_adapters(p);

    return p->precision == DT_FP16 && p->ds.offload_optimizer.device == OFFLOAD_NONE && !whole;
}

uint8_t lower_guard(const struct plan *p) { return scales_loss(p) ? OPF_GUARDED : 0; }

static void agree(struct schedules *s, enum stream st, enum group over)
{
    sched_coll(s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, over, DT_FP32, RED_MAX, 1)->after = AFTER(st);
    sched_moves(s, OF_OVERFLOW);
}

static void look(struct schedules *s, const struct step_gradients *g)
{
    sched_copy(s, g->st, PHASE_OPTIMIZER, "look for overflow", g->bytes, g->p->kernels == KERNELS_DPX ? 0 : g->bytes);
    sched_does(s, COPY_OVERFLOW, 1);
    if (s->detailed || s->steps_on_host || g->st == STREAM_HOST)
        g->act(s, ACT_R, g->arg);
    for (int i = 0; i < g->n; i++)
        if (g->sums[i].elems > 0)
            agree(s, g->st, g->sums[i].over);
    if (sched_group_ranks(s, GROUP_PIPE) > 1)
        agree(s, g->st, GROUP_PIPE);
}

void lower_before_step(struct schedules *s, const struct step_gradients *g)
{
    bool exact = g->p->dialect == DIALECT_PAPER && g->p->deterministic;

    if (scales_loss(g->p))
        look(s, g);
    if (g->p->clip > 0)
        lower_clip_by_norm(s, g->st, g->bytes, g->sums, g->n, exact, g->act, g->arg);
    if (scales_loss(g->p))
        sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow")->after = AFTER(g->st) | AFTER(STREAM_GROUP);
}
