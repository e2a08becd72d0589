/* The language model of a multimodal config: "text_config", completed by what
 * transformers takes from around it. */
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_text.h"
#include "model/family/family.h"

/* Of a "text_config" without model_type. */
static const char *default_text(const char *outer)
{
    const struct family *f;

    for (int i = 0; outer && (f = family_at(i)); i++)
        for (int k = 0; k < FAMILY_NAMES && f->text_of[k]; k++)
            if (!strcmp(f->text_of[k], outer))
                return f->name;
    return NULL;
}

/* The family whose blocks a text model has. */
static const char *same_as(const char *type)
{
    const struct family *f;

    for (int i = 0; type && (f = family_at(i)); i++)
        if (f->text_as && !strcmp(f->text_as, type))
            return f->name;
    return NULL;
}

static const char *type_of(const json_t *config)
{
    return json_string_value(json_object_get(config, "model_type"));
}

bool hf_has_text(const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");

    return (text && !json_is_null(text)) || default_text(type_of(config));
}

/* Where the text model is silent, the whole model's statement holds. */
static int inherit(json_t *text, const json_t *config, const char *key)
{
    json_t *v = json_object_get(config, key);

    return !v || json_is_null(v) || json_object_get(text, key) ? 0 : json_object_set(text, key, v);
}

json_t *hf_text_config(const struct hf *c)
{
    struct hf section;
    const char *type = default_text(type_of(c->root));
    json_t *text;
    int rc;

    if (hf_section(c, "text_config", &section) < 0)
        return NULL;
    if (!section.root) {
        hf_refuse(c, "text_config", "an object: it holds the language model of a multimodal one");
        return NULL;
    }
    text = json_copy((json_t *)(uintptr_t)section.root);
    rc = inherit(text, c->root, "tie_word_embeddings") | inherit(text, c->root, "_name_or_path");
    if (type && !json_object_get(text, "model_type"))
        rc |= json_object_set_new(text, "model_type", json_string(type));
    if (same_as(type_of(text)))
        rc |= json_object_set_new(text, "model_type", json_string(same_as(type_of(text))));
    if (rc == 0)
        return text;
    json_decref(text);
    fail("out of memory for %s", c->where);
    return NULL;
}
