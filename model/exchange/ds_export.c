/* ds_export.c -- a plan as a DeepSpeed config. */
#include "model/exchange/ds_config.h"

#include <string.h>

#include "base/fail.h"
#include "model/plan/plan_keys.h"

const char *const ds_config_ours[] = { "kernels", "dropout", "recompute", "recompute_interval",
                                       "framework_version", NULL };

/* The rows of "deepspeed" that DeepSpeed keeps outside zero_optimization. */
static const char *section_of(const char *name)
{
    if (!strcmp(name, "grad_accum_dtype"))
        return "data_types";
    if (!strcmp(name, "check_grad_overflow"))
        return "bf16";
    if (!strcmp(name, "communication_data_type") || !strcmp(name, "gradient_predivide_factor"))
        return "";
    return "zero_optimization";
}

static void put(json_t *doc, const char *section, const char *name, json_t *v)
{
    json_t *into = section[0] ? json_object_get(doc, section) : doc;

    if (!into) {
        into = json_object();
        json_object_set_new(doc, section, into);
    }
    json_object_set_new(into, name, v);
}

static void export_options(const struct plan *p, json_t *doc)
{
    const struct plan_key *k;

    for (int i = 0; (k = plan_key_at(i)); i++) {
        if (!(k->cells & CELL(p->strategy, p->dialect)) || strcmp(k->object, "deepspeed"))
            continue;
        if (!strcmp(k->name, "check_grad_overflow") && p->precision != DT_BF16)
            continue;           /* a key of the section "bf16" */
        if (!strcmp(k->name, "compute_grad_norm") && !plan_has_deepspeed_0_19_8(p))
            continue;
        put(doc, section_of(k->name), k->name, plan_key_write(p, k));
    }
}

/* Only what differs from a default: an ordinary export has no such object. */
static void export_ours(const struct plan *p, json_t *doc)
{
    struct plan plain = *p;

    plan_defaults(&plain, p->strategy, p->dialect, p->precision);
    for (int i = 0; ds_config_ours[i]; i++) {
        const struct plan_key *k = plan_key_find("", ds_config_ours[i], CELL(p->strategy, p->dialect));
        json_t *v = plan_key_write(p, k), *usual = plan_key_write(&plain, k);
        bool version = !strcmp(ds_config_ours[i], "framework_version");
        if (version ? p->framework_version[0] != '\0' : !json_equal(v, usual))
            put(doc, "dpx", ds_config_ours[i], json_incref(v));
        json_decref(v);
        json_decref(usual);
    }
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
    doc = json_object();
    put(doc, "", "train_batch_size", json_integer(plan_global_batch(p)));
    put(doc, "", "train_micro_batch_size_per_gpu", json_integer(p->micro_batch));
    put(doc, "", "gradient_accumulation_steps", json_integer(p->accumulation));
    put(doc, "", "gradient_clipping", json_real(p->clip));
    put(doc, "optimizer", "type", json_string("AdamW"));
    put(doc, "bf16", "enabled", json_boolean(p->precision == DT_BF16));
    put(doc, "fp16", "enabled", json_boolean(p->precision == DT_FP16));
    put(doc, "zero_optimization", "stage", json_integer(stage_of[p->strategy]));
    export_options(p, doc);
    export_ours(p, doc);
    return doc;
}
