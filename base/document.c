/* document.c -- JSON out: numbers that a double cannot hold are written so that every reader accepts them. */
#include "base/document.h"

#include <stdint.h>

#define EXACT (INT64_C(1) << 53)

/* The value in the place of `v` (new reference), or NULL: it stays. */
static json_t *plain(json_t *v);

static void in_object(json_t *object)
{
    const char *key;
    json_t *v, *better;
    void *next;

    json_object_foreach_safe(object, next, key, v)
        if ((better = plain(v)))
            json_object_set_new(object, key, better);
}

static void in_array(json_t *array)
{
    json_t *v, *better;
    size_t i;

    json_array_foreach(array, i, v)
        if ((better = plain(v)))
            json_array_set_new(array, i, better);
}

static json_t *plain(json_t *v)
{
    if (json_is_object(v))
        in_object(v);
    else if (json_is_array(v))
        in_array(v);
    else if (json_is_integer(v) && (json_integer_value(v) > EXACT || json_integer_value(v) < -EXACT))
        return json_real((double)json_integer_value(v));
    return NULL;
}

char *document_text(json_t *doc, int indent)
{
    plain(doc);
    return json_dumps(doc, JSON_INDENT((size_t)indent) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17) | (indent ? 0 : JSON_COMPACT));
}
