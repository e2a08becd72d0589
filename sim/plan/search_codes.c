/* search_codes.c -- see search_codes.h. */
#include "sim/plan/search_codes.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"

struct offer { struct plan plan; double step_s; };

/* Seconds of a step; negative: DeepSpeed refuses it, or it does not fit. */
static double step_of(const struct search_options *o, const struct plan *p)
{
    struct evaluation e;
    struct timing t;
    char why[512];
    double s = -1;

    struct fail_sink before = fail_divert(why, sizeof why);
    if (plan_check(p, "search") == 0 && (!o->accept || o->accept(p, o->accept_what)) && evaluate(p, &e) == 0) {
        if (e.m.fits && simulate_plan(p, &e, &t, NULL) == 0)
            s = t.line.step_s;
        evaluation_free(&e);
    }
    fail_restore(before);
    return s;
}

/* The fastest plan of a cell. */
static const struct plan *fastest(const struct search_result *r, enum strategy s, enum dialect d)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (r->found[i].plan.strategy == s && r->found[i].plan.dialect == d && !r->found[i].elsewhere)
            return &r->found[i].plan;
    return NULL;
}

/* *out becomes the plan, where it takes less than the first one found and than what is there. */
static void consider(const struct search_options *o, const struct search_result *r, struct plan p, struct offer *out)
{
    plan_resolve(&p);
    double s = step_of(o, &p);
    if (s > 0 && s < (out->step_s > 0 ? out->step_s : r->found[0].step_s))
        *out = (struct offer){ p, s };
}

/* ZeRO++; int4 gradients in fp16 alone: of others DeepSpeed's kernels read the bits as fp16. */
static void consider_zeropp(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    const struct plan *f = fastest(r, STRAT_ZERO3, DIALECT_DEEPSPEED);
    int64_t node = o->cluster->gpus_per_node;

    for (int i = 0; f && i < (f->precision == DT_FP16 ? 4 : 2); i++) {
        struct plan p = *f;
        p.ds.zero_quantized_weights = true;
        p.ds.zero_hpz_partition_size = i & 1 && node > 1 ? node : 1;
        p.ds.zero_quantized_gradients = i & 2;
        consider(o, r, p, out);
    }
}

/* DDP's hooks; PowerSGD of rank 4, the largest of those that its documentation calls usual. */
static void consider_hooks(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    const struct plan *f = fastest(r, STRAT_DDP, DIALECT_TORCH);

    for (int hook = HOOK_BF16; f && hook <= HOOK_POWERSGD; hook++) {
        struct plan p = *f;
        p.ddp.comm_hook = (enum comm_hook)hook;
        p.ddp.powersgd.rank = 4;
        consider(o, r, p, out);
    }
}

/* Transformer Engine's 8-bit floats, in linear layers: by tensor, from Blackwell on in blocks of 32. */
static void consider_fp8(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    for (int s = STRAT_DDP; s <= STRAT_ZERO1; s++) {
        const struct plan *f = fastest(r, (enum strategy)s, DIALECT_MEGATRON);
        if (!f || f->kernels != KERNELS_TE)
            continue;
        struct plan p = *f;
        p.megatron.fp8_format = FP8_HYBRID;
        p.megatron.fp8_recipe = gpu_lacks_scaled(&p.cluster.gpu, SCALED_MXFP8) ? FP8_DELAYED : FP8_MXFP8;
        p.megatron.fp8_param_gather = s == STRAT_ZERO1;
        p.megatron.reuse_grad_buf_for_mxfp8_param_ag = s == STRAT_ZERO1 && p.megatron.fp8_recipe == FP8_MXFP8;
        consider(o, r, p, out);
    }
}

static bool find(const struct search_options *o, const struct search_result *r, struct offer *out)
{
    *out = (struct offer){ .step_s = 0 };
    if (r->nfit > 0 && o->cluster->nodes > 1) {
        consider_zeropp(o, r, out);
        consider_hooks(o, r, out);
    }
    if (r->nfit > 0)
        consider_fp8(o, r, out);
    return out->step_s > 0;
}

const char *search_codes_changes(const struct plan *p)
{
    static const char *const hook[NCOMM_HOOK] = { [HOOK_FP16] = "gradients rounded to fp16", [HOOK_BF16] = "gradients rounded to bf16",
                                                  [HOOK_POWERSGD] = "gradients of matrices as products of two narrow ones" };
    bool gradients = plan_quantised_node(p) > 0;

    if (plan_scaled(p))
        return p->megatron.fp4_format ? "4-bit floats in the products of linear layers" : "8-bit floats in the products of linear layers";
    if (p->ddp.comm_hook != HOOK_NONE)
        return hook[p->ddp.comm_hook];
    if (!plan_quantises(p))
        return NULL;
    if (!p->ds.zero_quantized_weights)
        return "int4 gradients";
    return gradients ? "int8 parameters, int4 gradients" : "int8 parameters";
}

static void words(const struct search_result *r, const struct offer *of, char *to, size_t size)
{
    char label[160];

    knob_label(&of->plan, label, sizeof label);
    snprintf(to, size, "%s: %s would take %.4g s a step, %.1f %% less than the first; it changes the numerics: %s.",
             plan_scaled(&of->plan) ? "Products can be of 8 bits" : "The network can be relieved", label, of->step_s, 100 * (1 - of->step_s / r->found[0].step_s), search_codes_changes(&of->plan));
}

void search_codes_words(const struct search_options *o, const struct search_result *r, char *to, size_t size)
{
    struct offer of;

    to[0] = '\0';
    if (find(o, r, &of))
        words(r, &of, to, size);
}

json_t *search_codes_json(const struct search_options *o, const struct search_result *r)
{
    char text[400], label[160];
    struct offer of;

    if (!find(o, r, &of))
        return json_null();
    words(r, &of, text, sizeof text);
    knob_label(&of.plan, label, sizeof label);
    return json_pack("{s:s, s:s, s:f, s:f, s:s, s:o}", "why", text, "label", label, "step_s", of.step_s, "saves_s",
                     r->found[0].step_s - of.step_s, "changes", search_codes_changes(&of.plan), "plan", plan_to_json(&of.plan));
}
