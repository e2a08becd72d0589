/* hf_value.h -- typed values of a Hugging Face config, refused by name.
 *
 *     struct hf c = { root, "config.json", NULL };
 *     if (hf_int(&c, "num_hidden_layers", 12, MODEL_MAX_LAYERS, &layers) < 0)
 *         return -1;              (file, field, value and range are reported)
 *
 * A missing field takes the default.  null is refused, as transformers does,
 * unless the function says otherwise. */
#ifndef DPX_HF_VALUE_H
#define DPX_HF_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct hf {
    const json_t *root;         /* the object that holds the fields */
    const char   *where;        /* file or built-in name, for messages */
    const char   *section;      /* the object's own key if it is nested, or NULL */
};

/* Reports `"key" is <value>: must be <wanted>` and returns -1. */
int hf_refuse(const struct hf *c, const char *key, const char *wanted);

bool hf_has(const struct hf *c, const char *key);       /* there, null or not */
bool hf_is_null(const struct hf *c, const char *key);   /* there, and null */

/* An integer from 1 to max. */
int hf_int(const struct hf *c, const char *key, int64_t dflt, int64_t max, int64_t *out);
int hf_bool(const struct hf *c, const char *key, bool dflt, bool *out);
/* A number with lo <= value, and value < hi where hi > lo. */
int hf_real(const struct hf *c, const char *key, double dflt, double lo, double hi,
            double *out);
/* A string, valid as long as the config; dflt may be NULL. */
int hf_string(const struct hf *c, const char *key, const char *dflt, const char **out);
/* A nested object; an empty one, with out->root NULL, if missing or null. */
int hf_section(const struct hf *c, const char *key, struct hf *out);

#endif
