/* opts_json.c -- a table of options filled from a JSON object: the same rows, the same parsers, the same refusals. */
#include "base/opts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/opts_internal.h"

enum { KEY = 48, WHAT = 96, MOST_ROWS = 64 };

/* "global-batch" is "global_batch", "PLAN.json" is "plan". */
static const char *key_of(const struct opt *o, char key[KEY])
{
    size_t n = 0;

    for (; n < KEY - 1 && o->name[n] && o->name[n] != '.'; n++) {
        char c = o->name[n];
        key[n] = c == '-' ? '_' : o->positional && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    key[n] = '\0';
    return key;
}

static int refuse_unknown(const char *where, const struct opt *opts, const json_t *request)
{
    char keys[MOST_ROWS][KEY];
    const char *words[MOST_ROWS + 1], *key;
    json_t *v;
    int n = 0;

    for (const struct opt *o = opts; o->name; o++)
        if (!o->example) {
            assert(n < MOST_ROWS);
            words[n] = key_of(o, keys[n]);
            n++;
        }
    words[n] = NULL;
    json_object_foreach((json_t *)request, key, v) {
        int i = 0;
        while (i < n && strcmp(words[i], key))
            i++;
        if (i < n)
            continue;
        const char *near = opts_nearest_word(key, words);
        char all[1024];
        return fail("%s: unknown key \"%.60s\"; %s%s%s", where, key, near ? "did you mean " : "there are ",
                    near ? near : opts_join(all, sizeof all, words, ", "), near ? "?" : "");
    }
    return 0;
}

/* What stands for a value on a command line (new reference); NULL: nothing does. */
static json_t *text_of(const json_t *v)
{
    char text[64];

    if (json_is_string(v))
        return json_string(json_string_value(v));
    if (json_is_integer(v))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(text, sizeof text, "%.17g", json_real_value(v));
    else if (json_is_boolean(v) || json_is_null(v))
        snprintf(text, sizeof text, "%s", json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
    else
        return NULL;
    return json_string(text);
}

/* The same of a list: its elements with commas between them. */
static json_t *joined(const json_t *list)
{
    json_t *all = json_string(""), *one, *v;
    size_t i;

    json_array_foreach((json_t *)list, i, v) {
        if (!(one = text_of(v))) {
            json_decref(all);
            return NULL;
        }
        json_t *more = json_sprintf("%s%s%s", json_string_value(all), i ? "," : "", json_string_value(one));
        json_decref(all);
        json_decref(one);
        all = more;
    }
    return all;
}

/* {"nodes": 4, "gpu": ["a100", "h100"]}: "nodes=4" and "gpu=a100,h100", which stay in `kept`. */
static int take_pairs(const struct opt *o, const char *what, const json_t *v, json_t *kept)
{
    const char *key;
    json_t *x;

    if (!json_is_object(v))
        return fail("%s: must be an object: {\"seq\": \"8k\", \"nodes\": 4}", what);
    json_object_foreach((json_t *)v, key, x) {
        json_t *text = json_is_array(x) ? joined(x) : text_of(x);
        if (!text)
            return fail("%s: \"%.60s\" must be a text, a number, true, false or null", what, key);
        json_t *pair = json_sprintf("%s=%s", key, json_string_value(text));
        json_decref(text);
        json_array_append_new(kept, pair);
        if (opts_set_value(o, what, json_string_value(pair)) < 0)
            return -1;
    }
    return 0;
}

/* Texts, or one. */
static int take_many(const struct opt *o, const char *what, const json_t *v, json_t *kept)
{
    json_t *one;
    size_t i;

    if (json_is_string(v))
        return opts_set_value(o, what, json_string_value(v));
    if (!json_is_array(v))
        return fail("%s: must be a list of texts", what);
    json_array_foreach((json_t *)v, i, one) {
        if (!json_is_string(one))
            return fail("%s: must be a list of texts", what);
        json_array_append(kept, one);
        if (opts_set_value(o, what, json_string_value(one)) < 0)
            return -1;
    }
    return 0;
}

static int take(const struct opt *o, const char *what, const json_t *v, json_t *kept)
{
    if (o->many)
        return take_many(o, what, v, kept);
    if (o->flag) {
        *o->flag = json_is_true(v);
        return json_is_boolean(v) ? 0 : fail("%s: must be true or false", what);
    }
    if (o->doc && (json_is_object(v) || json_is_array(v))) {
        *o->doc = v;
        return 0;
    }
    if (o->pairs)
        return take_pairs(o, what, v, kept);
    json_t *text = json_is_boolean(v) ? NULL : json_is_array(v) && o->set ? joined(v) : text_of(v);
    if (!text)
        return fail("%s: must be %s", what, o->doc ? "an object, or a text that names one" : o->set ? "a list of words" :
                    o->str || o->word ? "a text" : "a number");
    json_array_append_new(kept, text);
    if (o->doc && !strcmp(json_string_value(text), "-"))
        return fail("%s: standard input is not read here; give the document itself", what);
    return opts_set_value(o, what, json_string_value(text));
}

int opts_json(const char *where, const struct opt *opts, json_t *request, json_t *kept)
{
    char key[KEY], what[WHAT];

    assert(json_is_array(kept));
    if (!json_is_object(request))
        return fail("%s: a request is a JSON object", where);
    if (refuse_unknown(where, opts, request) < 0)
        return -1;
    for (const struct opt *o = opts; o->name; o++) {
        const json_t *v = json_object_get(request, key_of(o, key));
        bool given = v && !json_is_null(v) && !o->example;
        if (!given && o->required)
            return fail("%s: \"%s\" is missing: %s", where, key, o->help);
        snprintf(what, sizeof what, "%s: %s", where, key);
        if (given && take(o, what, v, kept) < 0)
            return -1;
    }
    return 0;
}

/* ---- the table itself ---- */

static const char *kind_of(const struct opt *o)
{
    return o->flag ? "flag" : o->i ? "count" : o->bytes ? "bytes" : o->length ? "length" : o->num ? "number" : o->word ? "word" :
           o->set ? "words" : o->pairs ? "pairs" : o->many ? "texts" : o->doc ? "document" : "text";
}

/* What help says in parentheses: "8" of " (default 8)"; NULL where it says nothing. */
static json_t *default_of(const struct opt *o)
{
    static const char before[] = " (default ";
    char text[128];
    size_t n = strlen(opts_default_text(o, text, sizeof text));

    return n > sizeof before ? json_stringn(text + sizeof before - 1, n - sizeof before) : json_null();
}

json_t *opts_table_json(const struct opt *opts)
{
    json_t *rows = json_array();
    char key[KEY], value[512];

    for (const struct opt *o = opts; o->name; o++) {
        if (o->example)
            continue;
        json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:b, s:b}", "key", key_of(o, key), "about", o->help, "kind", kind_of(o),
                                "value", o->flag ? "" : opts_value_name(o, value, sizeof value), "default", default_of(o), "group", o->group,
                                "often", o->often, "required", o->required);
        json_t *words = o->words ? json_array() : NULL;
        for (int i = 0; words && o->words[i]; i++)
            json_array_append_new(words, json_string(o->words[i]));
        if (words)
            json_object_set_new(row, "words", words);
        json_array_append_new(rows, row);
    }
    return rows;
}
