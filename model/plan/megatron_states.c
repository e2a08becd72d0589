/* megatron_states.c -- see megatron_states.h. */
#include "model/plan/megatron_states.h"

bool megatron_adam_has_main(const struct plan *p)
{
    const struct megatron_options *o = &p->megatron;

    return o->use_precision_aware_optimizer && (o->main_params_dtype != MAIN_FP32 || o->fp8_format == FP8_OFF || o->fp8_recipe == FP8_DELAYED);
}

int megatron_main_bytes(const struct plan *p)
{
    const struct megatron_options *o = &p->megatron;

    return megatron_adam_has_main(p) && (o->main_params_dtype == MAIN_FP16 || o->store_param_remainders) ? 2 : 4;
}

int megatron_moment_bytes(const struct plan *p, enum adam_state s)
{
    int arch = p->cluster.gpu.sm_arch;

    return s == ADAM_FP32 ? 4 : s == ADAM_FP8 && arch >= 100 && arch < 120 ? 1 : 2;
}

int megatron_narrow_states(const struct plan *p, enum adam_state of[3])
{
    const struct megatron_options *o = &p->megatron;
    const enum adam_state all[] = { o->main_params_dtype == MAIN_FP16 ? ADAM_FP16 : ADAM_FP32, o->exp_avg_dtype, o->exp_avg_sq_dtype };
    int n = 0;

    for (int i = 0; i < 3 && o->use_precision_aware_optimizer; i++)
        if (all[i] != ADAM_FP32)
            of[n++] = all[i];
    return n;
}
