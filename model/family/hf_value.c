/* hf_value.c -- values of a config by type; a wrong one is refused with its key and its file. */
#include "model/family/hf_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

/* What the user wrote, on one line and not too long.  json_dumps() escapes
 * line ends and whatever is not ASCII. */
static void show(const json_t *v, char *into, size_t size)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

    if (!text)
        snprintf(into, size, "missing");
    else if (strlen(text) < size)
        snprintf(into, size, "%s", text);
    else
        snprintf(into, size, "%.*s...", (int)size - 4, text);
    free(text);
}

int hf_refuse(const struct hf *c, const char *key, const char *wanted)
{
    char value[48];

    show(json_object_get(c->root, key), value, sizeof value);
    return fail("%s: \"%s%s%s\" is %s: must be %s", c->where, c->section ? c->section : "",
                c->section ? "." : "", key, value, wanted);
}

bool hf_has(const struct hf *c, const char *key)
{
    return json_object_get(c->root, key) != NULL;
}

bool hf_is_null(const struct hf *c, const char *key)
{
    return json_is_null(json_object_get(c->root, key));
}

int hf_int(const struct hf *c, const char *key, int64_t dflt, int64_t max, int64_t *out)
{
    const json_t *v = json_object_get(c->root, key);
    char wanted[64];

    *out = v ? json_integer_value(v) : dflt;
    if (!v || (json_is_integer(v) && *out >= 1 && *out <= max))
        return 0;
    snprintf(wanted, sizeof wanted, "an integer from 1 to %" PRId64, max);
    return hf_refuse(c, key, wanted);
}

int hf_bool(const struct hf *c, const char *key, bool dflt, bool *out)
{
    const json_t *v = json_object_get(c->root, key);

    *out = v ? json_is_true(v) : dflt;
    return !v || json_is_boolean(v) ? 0 : hf_refuse(c, key, "true or false");
}

int hf_real(const struct hf *c, const char *key, double dflt, double lo, double hi,
            double *out)
{
    const json_t *v = json_object_get(c->root, key);
    char wanted[80];

    *out = v ? json_number_value(v) : dflt;
    if (!v || (json_is_number(v) && *out >= lo && (hi <= lo || *out < hi)))
        return 0;
    if (hi > lo)
        snprintf(wanted, sizeof wanted, "a number from %g to below %g", lo, hi);
    else
        snprintf(wanted, sizeof wanted, "a number not below %g", lo);
    return hf_refuse(c, key, wanted);
}

int hf_string(const struct hf *c, const char *key, const char *dflt, const char **out)
{
    const json_t *v = json_object_get(c->root, key);

    *out = v ? json_string_value(v) : dflt;
    return !v || json_is_string(v) ? 0 : hf_refuse(c, key, "a string");
}

int hf_section(const struct hf *c, const char *key, struct hf *out)
{
    const json_t *v = json_object_get(c->root, key);

    *out = (struct hf){ json_is_object(v) ? v : NULL, c->where, key };
    return !v || json_is_null(v) || json_is_object(v) ? 0 : hf_refuse(c, key, "an object");
}
