/* qat.c -- see qat.h. */
#include "model/plan/qat.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/float8.h"
#include "model/plan/framework.h"
#include "model/plan/loss_check.h"

static bool is_adapted(const struct model *m, const struct tensor *t)
{
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].adapter == ADAPTER_LORA_A && m->tensors[i].block == t->block && m->tensors[i].role == t->role)
            return true;
    return false;
}

/* Rows of any length. */
static bool is_taken(const struct plan *p, const struct tensor *t)
{
    if (t->role == ROLE_HEAD && loss_reads_head(p->loss))           /* which does not call it */
        return false;
    return p->qat.kind != QAT_NONE && t->adapter == ADAPTER_NONE && float8_is_linear(t) && (!training_is_lora(&p->train) || is_adapted(&p->model, t));
}

bool qat_converts(const struct plan *p, const struct tensor *t) { return is_taken(p, t) && t->shape[1] % p->qat.group == 0; }

int64_t qat_weight_scales(const struct plan *p, const struct tensor *t) { return p->qat.kind == QAT_MSLK ? 0 : t->numel / p->qat.group; }

bool qat_in_parts(const struct plan *p, const struct tensor *t)
{
    return t->role == ROLE_HEAD && (p->loss == LOSS_CHUNKED || p->loss == LOSS_LINEAR_CHUNKS);
}

/* There are eight parts. */
int64_t qat_token_scales(const struct plan *p, const struct tensor *t)
{
    int64_t tokens = p->micro_batch * p->seq;

    return qat_in_parts(p, t) && tokens >= 8 ? tokens / 8 : tokens;
}

/* ---- what is refused ---- */

/* What it is planned with alone and the plan has not; NULL: nothing. */
static const char *beside(const struct plan *p)
{
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return "kernels torch-sdpa or torch-eager";
    if (!plan_is_data_parallel(p))
        return "data parallelism (parallel)";
    if (p->float8.recipe != FLOAT8_NONE || p->train.base != BASE_PLAIN)
        return "weights in 16 bits or fp32 (fp8, base_dtype)";
    if (plan_recipe(p).autocast)
        return "one dtype without autocast, as torchtune trains (model_dtype, with adapters lora.narrow)";
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL)
        return "recompute none or full";
    if (p->activation_offload != OFFLOAD_NOTHING || p->fsdp.cpu_offload)
        return "nothing on the host (activation_offload, fsdp.cpu_offload)";
    if (!training_is_all(&p->train) && !training_is_lora(&p->train))
        return "train all or lora";
    if (p->qat.kind != QAT_MSLK)
        return loss_reads_head(p->loss) ? "a loss that calls the head, which rounds" : NULL;
    if (!training_is_all(&p->train) || p->precision != DT_BF16)
        return "train all and precision bf16, of 8da4w-mslk";
    if (p->loss == LOSS_CHUNKED || p->loss == LOSS_LINEAR_CHUNKS)
        return "a loss that calls the head once, or not at all, of 8da4w-mslk";
    return p->model.tied && !loss_reads_head(p->loss) ? "a head of its own, or a loss that reads the head's weight, of 8da4w-mslk" : NULL;
}

int qat_check(const struct plan *p, const char *where)
{
    const char *only = p->qat.kind == QAT_NONE ? NULL : beside(p);
    int n = 0, linear = 0;

    if (p->qat.kind == QAT_NONE)
        return 0;
    if (only)
        return fail("%s: qat: planned only with %s", where, only);
    if (p->model.experts > 0 || p->model.recorded || family_for(&p->model)->falcon)
        return fail("%s: qat: %s: modelled for layers that are nn.Linear, without experts", where, p->model.name);
    for (int t = 0; t < p->model.ntensors; t++) {
        const struct tensor *x = &p->model.tensors[t];
        n += qat_converts(p, x);
        linear += is_taken(p, x);
        if (is_taken(p, x) && !qat_converts(p, x) && p->qat.kind == QAT_MSLK)
            return fail("%s: qat_group: %s has rows of %" PRId64 ", which are not whole groups of %" PRId64 ": torchao's view of groups fails", where, x->name,
                        x->shape[1], p->qat.group);
        if (is_taken(p, x) && !qat_converts(p, x) && training_is_lora(&p->train))
            return fail("%s: qat_group: %s has rows of %" PRId64 ", which are not whole groups of %" PRId64 ": torchtune refuses that beside adapters "
                        "(\"in_dim must be divisible by group_size\")", where, x->name, x->shape[1], p->qat.group);
    }
    if (linear == 0)
        return fail("%s: qat: %s has no nn.Linear with a weight of its own", where, p->model.name);
    return n > 0 ? 0 : fail("%s: qat: no linear layer of %s has rows of whole groups of %" PRId64, where, p->model.name, p->qat.group);
}
