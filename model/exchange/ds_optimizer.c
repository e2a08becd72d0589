/* ds_optimizer.c -- see ds_optimizer.h. */
#include "model/exchange/ds_optimizer.h"

#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/plan/knob.h"

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

/* DeepSpeed's Adam is AdamW too by default (adam_w_mode) and has the same state. */
int ds_optimizer_read(const json_t *j, const char *where, struct plan *p)
{
    const json_t *type = json_object_get(j, "type");
    const char *s = json_string_value(type);

    if (!type || (s && (!strcmp(s, "AdamW") || !strcmp(s, "Adam") || !strcmp(s, "adamw")
                        || !strcmp(s, "adam") || !strcmp(s, "FusedAdam"))))
        return 0;
    if (s && !strcasecmp(s, "muon"))
        return read_muon(json_object_get(j, "params"), where, p);
    if (s && knob_lacks("", "optimizer", s))
        return fail("%s: optimizer.type: %s; Adam, AdamW and Muon are", where, knob_lacks("", "optimizer", s));
    return fail("%s: optimizer.type: \"%s\" is not supported; Adam, AdamW and Muon are", where,
                s ? s : "?");
}
