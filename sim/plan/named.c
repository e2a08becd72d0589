/* named.c -- a model and a cluster, as a command names them. */
#include "sim/plan/named.h"

#include "model/arch/hf_notes.h"

int named_model(const char *name, const json_t *doc, struct model *out)
{
    if (!doc)
        return model_load(name, out);
    if (model_from_config(doc, "model", out) < 0)
        return -1;
    hf_notes_say(doc, "model", out->family);
    return 0;
}

int named_cluster(const char *name, const json_t *doc, struct cluster *out)
{
    return doc ? cluster_from_json(doc, "cluster", out) : cluster_load(name, out);
}
