/* A struct model to a Hugging Face config: what hf_config.c reads, written by the
 * same table.  Every field of the family's config class is stated, also those that have the default. */
#include "base/fail.h"
#include "model/arch/hf_act.h"
#include "model/arch/hf_rope.h"
#include "model/arch/recorded.h"
#include "model/arch/tied.h"
#include "model/arch/transformer.h"
#include "model/family/family.h"

static json_t *value_of(const struct model *m, const struct hf_key *k)
{
    const void *at = (const char *)m + k->at;

    switch (k->kind) {
    case HF_EXTRA:
    case HF_INT:  return json_integer(*(const int64_t *)at);
    case HF_BOOL: return json_boolean(*(const bool *)at);
    case HF_RATE: return json_real(*(const double *)at);
    case HF_REAL: return json_real(*(const double *)at);
    case HF_ACT:  return json_string(hf_act_name(m->act, m->act_code));
    case HF_SET:  break;
    }
    return NULL;
}

/* 0 in a soft-capping field or a window means none, which a config says with null. */
static bool is_null(const struct model *m, const struct hf_key *k)
{
    return (k->at == offsetof(struct model, window) && m->window == 0)
        || (k->at == offsetof(struct model, softcap) && m->softcap <= 0)
        || (k->at == offsetof(struct model, attn_softcap) && m->attn_softcap <= 0);
}

static bool is_left_out(const struct model *m, const struct hf_key *k)
{
    return k->kind == HF_EXTRA && *(const int64_t *)((const char *)m + k->at) == m->hidden / m->heads;
}

json_t *model_to_config(const struct model *of)
{
    struct model as = *of, *m = &as;
    const struct family *f = family_find(m->family);
    json_t *config;
    int rc = 0;

    as.tied = model_is_tied_below(of);
    if (m->recorded)
        return recorded_to_config(m->recorded);
    if (!f)
        return json_pack("{s:s,s:I}", "model_type", m->family, "params", (json_int_t)m->params);
    config = json_pack("{s:s,s:s}", "model_type", m->family, "_name_or_path", m->name);
    for (const struct hf_key *k = f->keys; !hf_key_end(k); k++)
        if (k->key && !is_left_out(m, k))
            rc |= json_object_set_new(config, k->key, is_null(m, k) ? json_null() : value_of(m, k));
    if (m->head != HEAD_LOGITS)         /* model_type decides the class, and this which head it has */
        rc |= json_object_set_new(config, "architectures", json_pack("[s]", m->head == HEAD_SCORE ? "ForSequenceClassification" : "ForTokenClassification"))
            | json_object_set_new(config, "num_labels", json_integer(1));
    if (m->position == POS_ROPE)
        rc |= hf_rope_write(m, f, config);
    if (f->write)
        rc |= f->write(m, config);
    if (rc == 0)
        return config;
    json_decref(config);
    fail("out of memory for the config of %s", m->name);
    return NULL;
}
