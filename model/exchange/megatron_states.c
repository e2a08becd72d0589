/* megatron_states.c -- the precision-aware optimizer among Megatron-LM's options.
 *
 * --main-grads-dtype is no key of a plan: a training reads it where it decides whether gradients are added up and reduced in fp32
 * (training/arguments.py: accumulate_allreduce_grads_in_fp32), which is reduce_dtype.  In sections ddp.grad_reduce_in_fp32 says that.
 * What is refused, in its words: training/arguments.py, core/optimizer/optimizer_config.py, core/optimizer/__init__.py of core_v0.16.1. */
#include "model/exchange/megatron_read.h"

#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/plan/knob.h"

static const char *const formats[] = { "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype" };
enum { NFORMATS = sizeof formats / sizeof *formats };

static int read_format(const struct import *in, const char *name)
{
    const struct knob *k = knob_find("megatron", name, knob_cell(in->p));
    const char *word = json_string_value(json_object_get(in->from, name));

    if (!import_has(in, name))
        return 0;
    for (int i = 0; word && k->words[i]; i++)
        if (!strcmp(word, k->words[i])) {
            knob_set(in->p, k, i);
            return 0;
        }
    return fail("%s: %s: expected %s", in->where, name, strcmp(name, "main_params_dtype") ? "fp32, bf16, fp16 or fp8" : "fp32 or fp16");
}

/* Without it all are fp32. */
static int check_plain(const struct import *in)
{
    for (int i = 0; i <= NFORMATS; i++) {
        const char *name = i == NFORMATS ? "main_grads_dtype" : formats[i];
        if (import_has(in, name) && !import_says(in, name, "fp32"))
            return fail("%s: %s: can only be fp32 when not using precision-aware optimizer: use_precision_aware_optimizer", in->where, name);
    }
    return 0;
}

int megatron_read_states(const struct import *in)
{
    struct megatron_options *o = &in->p->megatron;
    bool narrow = import_says(in, "main_grads_dtype", "bf16"), sections = import_has(in, "in_sections");

    if (import_has(in, "no_store_param_remainders") && !sections)
        return fail("%s: no_store_param_remainders: Megatron-LM's command line has no such option", in->where);
    if (narrow && import_has(in, "accumulate_allreduce_grads_in_fp32"))
        return fail("%s: main_grads_dtype: can only be fp32 when --accumulate-allreduce-grads-in-fp32 is set", in->where);
    if (!import_has(in, "use_precision_aware_optimizer"))
        return check_plain(in);
    if (in->p->strategy != STRAT_ZERO1)
        return fail("%s: use_precision_aware_optimizer: only supported with distributed optimizer: use_distributed_optimizer", in->where);
    o->use_precision_aware_optimizer = true;
    for (int i = 0; i < NFORMATS; i++)
        if (read_format(in, formats[i]) < 0)
            return -1;
    o->store_param_remainders = !import_has(in, "no_store_param_remainders");
    if (narrow && !sections && in->p->precision == DT_BF16)
        in->p->reduce_dtype = DT_BF16;
    return 0;
}

void megatron_write_states(const struct plan *p, FILE *to)
{
    const struct megatron_options *o = &p->megatron;
    static const char *const words[] = { "fp32", "bf16", "fp16", "fp8" };

    if (!o->use_precision_aware_optimizer)
        return;
    fprintf(to, "--use-precision-aware-optimizer\n--main-params-dtype %s\n--exp-avg-dtype %s\n--exp-avg-sq-dtype %s\n",
            o->main_params_dtype == MAIN_FP16 ? "fp16" : "fp32", words[o->exp_avg_dtype], words[o->exp_avg_sq_dtype]);
    if (!o->store_param_remainders)
        notes_say("dpx: export to megatron: megatron.store_param_remainders: no option of Megatron-LM's command line says it: a field of OptimizerConfig does");
}
