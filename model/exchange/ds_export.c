/* ds_export.c -- a plan as a DeepSpeed config. */
#include "model/exchange/ds_config.h"

#include <string.h>

#include "base/fail.h"
#include "model/exchange/ds_optimizer.h"
#include "model/plan/knob.h"
#include "model/plan/native_experts.h"

/* The section for what DeepSpeed takes from the model, or from its own version. */
static const char OURS[] = "dpx";

static void put(json_t *doc, const char *section, const char *name, json_t *v)
{
    json_object_set_new(knob_object_at(doc, section), name, v);
}

/* What DeepSpeed has only in some versions or precisions, or beside other values. */
static bool has_now(const struct plan *p, const struct knob *k)
{
    if (knob_idle(p, k) || (!strcmp(k->object, "parallel") && knob_get(p, k) <= 1))
        return false;
    if (!strcmp(k->name, "compute_grad_norm"))
        return plan_has_deepspeed_0_19_8(p);
    return strcmp(k->ds.section, "bf16") || p->precision == DT_BF16;
}

/* The keys of the plan itself, or those of its object "deepspeed" and the objects within, under DeepSpeed's names. */
static void export_rows(const struct plan *p, bool own, json_t *doc)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (knob_concerns(k, &k->ds, knob_cell(p)) && strcmp(k->ds.section, OURS) &&
            (k->object[0] == '\0') == own && has_now(p, k))
            put(doc, k->ds.section, knob_spelt(k, &k->ds), k->type == KNOB_REAL ? json_real(knob_get(p, k)) : knob_write(p, k));
}

/* Only what differs from a default: an ordinary export has no such object. */
static void export_ours(const struct plan *p, json_t *doc)
{
    struct plan plain = *p;
    const struct knob *k;

    plan_defaults(&plain, p->strategy, p->dialect, p->precision);
    plain.framework_version[0] = '\0';
    for (int i = 0; (k = knob_at(i)); i++) {
        json_t *v, *usual;
        if (!knob_concerns(k, &k->ds, knob_cell(p)) || strcmp(k->ds.section, OURS) ||
            (!strcmp(k->name, "optimizer_form") && json_object_get(doc, "optimizer")))          /* which says it */
            continue;
        v = knob_write(p, k);
        usual = knob_write(&plain, k);
        if (!json_equal(v, usual))
            put(doc, OURS, knob_spelt(k, &k->ds), json_incref(v));
        json_decref(v);
        json_decref(usual);
    }
}

/* Without a folder DeepSpeed fails when it makes the files' paths. */
static bool lacks_path(const struct plan *p)
{
    const struct deepspeed_options *ds = &p->ds;
    const char *section = NULL;

    if (ds->offload_param.device == OFFLOAD_NVME && !ds->offload_param.nvme_path[0])
        section = "offload_param";
    if (p->strategy == STRAT_ZERO3 && ds->offload_optimizer.device == OFFLOAD_NVME && !ds->offload_optimizer.nvme_path[0])
        section = "offload_optimizer";
    return section && fail("export to deepspeed: deepspeed.%s.nvme_path: DeepSpeed needs it for device nvme", section) < 0;
}

json_t *ds_config_export(const struct plan *p)
{
    static const int stage_of[NSTRATEGY] = { [STRAT_DDP] = 0, [STRAT_ZERO1] = 1,
                                             [STRAT_ZERO2] = 2, [STRAT_ZERO3] = 3 };
    json_t *doc;

    if (p->dialect != DIALECT_DEEPSPEED) {
        fail("export to deepspeed: dialect: a %s/%s plan is not DeepSpeed's",
             strategy_name(p->strategy), dialect_name(p->dialect));
        return NULL;
    }
    if (p->deterministic) {
        fail("export to deepspeed: deterministic: DeepSpeed has no such reduction");
        return NULL;
    }
    if (native_experts_has(p)) {
        fail("export to deepspeed: deepspeed.moe_layer: num_experts, ep_size, k, capacity_factor, min_capacity and drop_tokens are arguments of "
             "deepspeed.moe.layer.MoE in the model's code: the configuration has none of them");
        return NULL;
    }
    if (lacks_path(p))
        return NULL;
    doc = json_object();
    put(doc, "", "train_batch_size", json_integer(plan_global_batch(p)));
    export_rows(p, true, doc);
    json_t *optimizer = p->ds.decay_groups ? NULL : ds_optimizer_write(p);     /* of a file it would have one parameter group */
    if (optimizer)
        json_object_set_new(doc, "optimizer", optimizer);
    put(doc, "bf16", "enabled", json_boolean(p->precision == DT_BF16));
    put(doc, "fp16", "enabled", json_boolean(p->precision == DT_FP16));
    put(doc, "zero_optimization", "stage", json_integer(stage_of[p->strategy]));
    export_rows(p, false, doc);
    if (p->parallel.expert > 1) {
        put(doc, "expert_parallel", "enabled", json_true());
        put(doc, "expert_parallel", "preset_model", json_string(p->model.family));
    }
    if (p->parallel.pipeline > 1)
        put(doc, "pipeline", "activation_checkpoint_interval", json_integer(p->recompute == RECOMPUTE_FULL));
    export_ours(p, doc);
    return doc;
}
