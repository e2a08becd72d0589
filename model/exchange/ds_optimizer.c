/* ds_optimizer.c -- see ds_optimizer.h. */
#include "model/exchange/ds_optimizer.h"

#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_traits.h"

/* MuonWithAuxAdam; a file that names no version is taken for the first that is known to have it. */
static int read_muon(const json_t *params, const char *where, struct plan *p)
{
    const char *how = json_string_value(json_object_get(params, "ns_method"));

    if (how && strcmp(how, "gram"))
        return fail("%s: optimizer.params.ns_method: \"%s\" is not modelled; \"gram\", the default, is", where, how);
    if (json_is_true(json_object_get(params, "per_head_muon")))
        return fail("%s: optimizer.params.per_head_muon: Muon of each attention head is not modelled: leave it out", where);
    p->optimizer = OPTIMIZER_MUON;
    if (!p->framework_version[0])
        strcpy(p->framework_version, "0.19.8");
    return 0;
}

/* get_optimizer_configuration(), engine.py: FusedAdam, or with torch_adam PyTorch's; its foreach is on the GPU by default. */
static int read_form(const json_t *params, const char *where, struct plan *p)
{
    const json_t *torch = json_object_get(params, "torch_adam"), *foreach = json_object_get(params, "foreach");

    if (torch && !json_is_boolean(torch))
        return fail("%s: optimizer.params.torch_adam: expected true or false", where);
    if (foreach && !json_is_boolean(foreach) && !json_is_null(foreach))
        return fail("%s: optimizer.params.foreach: expected true, false or null", where);
    if (json_is_true(torch))
        p->optimizer_form = json_is_false(foreach) ? OPTIMIZER_LOOP : OPTIMIZER_FOREACH;
    return 0;
}

json_t *ds_optimizer_write(const struct plan *p)
{

    if (optimizer_traits(p->optimizer)->by != BY_TORCH)
        return NULL;
    bool torch = p->optimizer == OPTIMIZER_ADAMW && p->optimizer_form != OPTIMIZER_FUSED;
    json_t *params = json_pack("{s:s, s:s}", "lr", "auto", "weight_decay", "auto");

    if (p->optimizer == OPTIMIZER_ADAMW) {
        json_object_set_new(params, "betas", json_string("auto"));
        json_object_set_new(params, "eps", json_string("auto"));
    }
    if (torch)
        json_object_set_new(params, "torch_adam", json_true());
    if (torch && p->optimizer_form == OPTIMIZER_LOOP)
        json_object_set_new(params, "foreach", json_false());
    return json_pack("{s:s, s:o}", "type", p->optimizer == OPTIMIZER_MUON ? "Muon" : "AdamW", "params", params);
}

/* DeepSpeed's Adam is AdamW too by default (adam_w_mode) and has the same state. */
int ds_optimizer_read(const json_t *j, const char *where, struct plan *p)
{
    const json_t *type = json_object_get(j, "type");
    const char *s = json_string_value(type);

    const json_t *params = json_object_get(j, "params");

    if (j && !json_is_object(j) && !json_is_null(j))
        return fail("%s: optimizer: expected a mapping of type and params", where);
    if (params && !json_is_object(params) && !json_is_null(params))
        return fail("%s: optimizer.params: expected a mapping", where);
    if (!type && json_object_size(j) > 0)
        return fail("%s: optimizer.type: missing: beside it DeepSpeed takes params", where);
    if (!type || (s && (!strcmp(s, "AdamW") || !strcmp(s, "Adam") || !strcmp(s, "adamw")
                        || !strcmp(s, "adam") || !strcmp(s, "FusedAdam"))))
        return read_form(json_object_get(j, "params"), where, p);
    if (s && !strcasecmp(s, "muon"))
        return read_muon(json_object_get(j, "params"), where, p);
    if (s && knob_lacks("", "optimizer", s))
        return fail("%s: optimizer.type: %s; Adam, AdamW and Muon are", where, knob_lacks("", "optimizer", s));
    return fail("%s: optimizer.type: \"%s\" is not supported; Adam, AdamW and Muon are", where,
                s ? s : "?");
}
