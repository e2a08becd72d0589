/* can_run.c -- one refusal for each thing that dpxrun has no kernels or collectives for. */
#include "model/plan/can_run.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/framework.h"
#include "model/family/family.h"
#include "model/arch/training.h"

static int refuse(const struct plan *p, const char *what)
{
    return fail("%s: dpxrun has no kernels for %s", p->model.name, what);
}

static int check_model(const struct plan *p)
{
    const struct model *m = &p->model;
    const struct family *family = family_for(m);

    if (m->position == POS_ALIBI)
        return refuse(p, "ALiBi positions");
    if (m->parallel)
        return refuse(p, "attention and MLP in parallel");
    if (m->qk_norm)
        return refuse(p, "norms of q and k");
    if (m->norm_place != NORM_FIRST || m->softcap > 0 || m->attn_softcap > 0)
        return refuse(p, "norms after attention and MLP, or soft-capping (gemma 2)");
    if (m->act == ACT_RELU2)
        return refuse(p, "squared ReLU");
    if (m->nope_every > 0)
        return refuse(p, "layers without positions");
    if (m->window > 0 && m->window < p->seq)
        return refuse(p, "a sliding window shorter than the sequence");
    if (family->not_run)
        return refuse(p, family->not_run);
    if (m->fused_gate_up || m->qkv_grouped)
        return refuse(p, m->qkv_grouped ? "q, k and v interleaved by group" : "gate and up in one matrix");
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].role == ROLE_EMBED_NORM)
            return refuse(p, "a norm after the embedding");
    if (family->extra_positions > 0)
        return refuse(p, "positions that do not begin at 0 (OPT)");
    return 0;
}

/* By our own kernels, hence in the dialect that plans them. */
static int check_tensor(const struct plan *p)
{
    if (p->parallel.tensor <= 1 || framework_of(p)->runs_tensor)
        return 0;
    return fail("parallel.tensor %" PRId64 ": dpxrun runs it in dialect paper", p->parallel.tensor);
}

/* PyTorch's ring is a schedule of PyTorch's kernels. */
static int check_context(const struct plan *p)
{
    if (p->parallel.context <= 1 || framework_of(p)->runs_context)
        return 0;
    return fail("parallel.context %" PRId64 ": dpxrun runs it in dialects paper and deepspeed", p->parallel.context);
}

int can_run_axes(const struct plan *p)
{
    if (framework_of(p)->not_run)
        return fail("dialect %s: %s", framework_of(p)->tool->name, framework_of(p)->not_run);
    return check_tensor(p) < 0 || check_context(p) < 0 ? -1 : 0;
}

/* What its loss scaling has not been tried with. */
static const char *beside_fp16(const struct plan *p)
{
    const struct deepspeed_options *ds = &p->ds;

    if (!plan_is_data_parallel(p))
        return "tensor, context or pipeline parallelism";
    if (p->strategy == STRAT_DP)
        return "strategy dp";
    if (p->dialect == DIALECT_TORCH_FSDP1)
        return "dialect torch-fsdp1 (FSDP2, dialect torch, has it)";
    if (p->deterministic)
        return "\"deterministic\"";
    if (ds->offload_optimizer.device != OFFLOAD_NONE || ds->offload_param.device != OFFLOAD_NONE || p->fsdp.cpu_offload ||
        p->activation_offload != OFFLOAD_NOTHING)
        return "states or activations in other memories than the device's";
    if (ds->zero_quantized_weights || ds->zero_quantized_gradients || ds->zero_quantized_nontrainable_weights)
        return "ZeRO++'s codes";
    return comm_hook(p->ddp.comm_hook)->not_fp16;
}

static int check_fp16(const struct plan *p)
{
    const char *beside = p->precision == DT_FP16 ? beside_fp16(p) : NULL;

    if (beside)
        return fail("precision fp16: dpxrun does not train in it with %s; bf16 and fp32 do", beside);
    if (p->reduce_dtype == DT_FP16 && p->precision != DT_FP16 && !(comm_hook(p->ddp.comm_hook)->casts && comm_hook(p->ddp.comm_hook)->sends == DT_FP16))
        return fail("reduce_dtype fp16: dpxrun reduces in it with precision fp16 alone");
    return 0;
}

int can_run(const struct plan *p)
{
    if (can_run_axes(p) < 0)
        return -1;
    if (p->kernels != KERNELS_DPX)
        return fail("the plan has PyTorch's kernels (\"%s\"), and dpxrun runs its own: leave out --kernels",
                    kernels_name(p->kernels));
    if (comm_hook(p->ddp.comm_hook)->not_run)
        return fail("ddp.comm_hook: %s", comm_hook(p->ddp.comm_hook)->not_run);
    if (check_fp16(p) < 0)
        return -1;
    if (framework_of(p)->check_run && framework_of(p)->check_run(p) < 0)
        return -1;
    if (p->strategy == STRAT_DP && p->dp.gather_logits)
        return fail("gather \"logits\": dpxrun gathers losses");
    return check_model(p);
}
