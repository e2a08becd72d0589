/* optimizer_check.c -- see optimizer_check.h. */
#include "model/plan/optimizer_check.h"

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/plan/framework.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_traits.h"

int optimizer_check_whole(const struct plan *p, const char *where)
{
    if (!plan_is_data_parallel(p) || p->parallel.expert > 1)
        return fail("%s: optimizer: muon orthogonalises whole matrices; of matrices that other ranks have a part of by tensor, context, "
                    "pipeline or expert parallelism it is not modelled: leave those out", where);
    return 0;
}

int optimizer_check_own(const struct plan *p, const char *where, const char *word)
{
    bool whole = p->optimizer == OPTIMIZER_ADAFACTOR || p->optimizer == OPTIMIZER_BNB_ADAMW8;

    if (!whole && p->optimizer != OPTIMIZER_SGD && p->optimizer != OPTIMIZER_BNB_LION)
        return fail("%s: optimizer: kernels \"dpx\" and dialect paper have adamw, sgd, lion_32bit, adafactor and adamw_bnb_8bit, not %s",
                    where, word);
    if (whole && p->strategy != STRAT_DDP)
        return fail("%s: optimizer: %s needs whole tensors, which %s divides among ranks: take strategy ddp", where, word,
                    strategy_name(p->strategy));
    if (whole && !plan_is_data_parallel(p))
        return fail("%s: optimizer: %s needs whole tensors: without tensor, context or pipeline parallelism", where, word);
    return 0;
}

int optimizer_check_torch(const struct plan *p, const char *where, const char *word)
{
    enum optimizer_library by = optimizer_traits(p->optimizer)->by;
    bool muon = p->optimizer == OPTIMIZER_MUON;

    if (optimizer_traits(p->optimizer)->whole && (!plan_is_data_parallel(p) || p->parallel.expert > 1))
        return fail("%s: optimizer: %s of tensors that other ranks have a part of is not modelled: leave \"parallel\" out", where, word);
    if (muon && optimizer_check_whole(p, where) < 0)
        return -1;
    if (p->optimizer != OPTIMIZER_SGD && p->optimizer_form != OPTIMIZER_FOREACH)
        return fail("%s: optimizer_form: %s has one form: leave it out", where, word);
    const char *in_bf16 = optimizer_traits(p->optimizer)->in_bf16;
    if (in_bf16 && plan_recipe(p).kept != DT_BF16)
        return fail("%s: optimizer: %s %s parameters kept in bf16: set %s.model_dtype to bf16", where, word, in_bf16,
                    p->strategy == STRAT_FSDP ? "fsdp" : "ddp");
    if (plan_recipe(p).kept != DT_FP32 && by != BY_TORCHAO && by != BY_BITSANDBYTES && !in_bf16 && !(muon && p->strategy == STRAT_FSDP))
        return fail("%s: optimizer: %s of parameters in %s is not modelled yet", where, word, dtype_name(plan_recipe(p).kept));
    if (p->fsdp.cpu_offload && knob_has(p, "fsdp", "cpu_offload"))
        return fail("%s: optimizer: with fsdp.cpu_offload only adamw is modelled", where);
    return p->kernels == KERNELS_DPX ? optimizer_check_own(p, where, word) : 0;
}

int optimizer_check(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);
    const char *word = knob_words("optimizer")[p->optimizer];

    if (p->optimizer == OPTIMIZER_ADAMW)
        return 0;
    return f->check_optimizer ? f->check_optimizer(p, where, word) : optimizer_check_torch(p, where, word);
}
