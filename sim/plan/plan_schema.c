/* plan_schema.c -- plan.json as a JSON Schema (draft 2020-12), from the table of knobs.
 *
 * A key that several cells have with different values takes what any of them does: which cell has which is `dpxplan list keys`, and
 * the program says it of a plan.  So a plan that the schema refuses is refused by dpxplan, not the other way round. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/plan/knob.h"
#include "sim/plan/plan_schema.h"

static bool has_text(const json_t *list, const char *text)
{
    const json_t *x;
    size_t i;

    json_array_foreach((json_t *)list, i, x)
        if (json_is_string(x) && strcmp(json_string_value(x), text) == 0)
            return true;
    return false;
}

static void add_type(json_t *key, const char *type)
{
    json_t *types = json_object_get(key, "type");

    if (!has_text(types, type))
        json_array_append_new(types, json_string(type));
}

/* Words that another row of the key has as well stand once; a row that takes any text or number takes the list away. */
static void add_words(json_t *key, const char *const *words)
{
    json_t *all = json_object_get(key, "enum");

    if (!all) {
        all = json_array();
        json_object_set_new(key, "enum", all);
    }
    for (int i = 0; words[i]; i++)
        if (words[i][0] && !has_text(all, words[i]))
            json_array_append_new(all, json_string(words[i]));
}

static void widen(json_t *key, const char *bound, double x, bool least)
{
    const json_t *now = json_object_get(key, bound);

    if (!now || (least ? x < json_number_value(now) : x > json_number_value(now)))
        json_object_set_new(key, bound, json_real(x));
}

static void add_number(json_t *key, const struct knob *k, const char *type)
{
    add_type(key, type);
    widen(key, "minimum", (double)k->lo, true);
    if (k->hi == INT64_MAX)
        add_type(key, "null");                      /* no limit (plan_json.c) */
    else if (k->hi > k->lo)
        widen(key, "maximum", (double)k->hi, false);
}

static void add_row(json_t *key, const struct knob *k)
{
    static const char *const fixed_end[] = { NULL };
    const char *one[2] = { k->words ? k->words[0] : NULL, NULL };

    switch (k->type) {
    case KNOB_INT:       add_number(key, k, "number"); break;       /* 5e8 is a whole number too */
    case KNOB_REAL:      add_number(key, k, "number"); break;
    case KNOB_BOOL:      add_type(key, "boolean"); break;
    case KNOB_FLAG:      add_type(key, "boolean"); break;
    case KNOB_RESHARD:   add_type(key, "boolean"); add_type(key, "integer"); add_type(key, "null"); break;
    case KNOB_WORD: case KNOB_WORD_BOOL:
        add_type(key, "string");
        add_words(key, k->words);
        break;
    case KNOB_FIXED:
        add_type(key, "string");
        add_words(key, k->words ? one : fixed_end);
        break;
    case KNOB_UNIT: case KNOB_TEXT: case KNOB_GRAD_ACCUM:
        add_type(key, "string");
        break;
    case KNOB_LIST:
        add_type(key, "string");
        add_type(key, "array");
        break;
    }
    if (k->null != KNOB_NULL_REFUSED || k->type == KNOB_TEXT || k->type == KNOB_LIST || k->type == KNOB_GRAD_ACCUM)
        add_type(key, "null");
}

/* null, numbers and truth values are not among the words. */
static void finish(json_t *key)
{
    json_t *all = json_object_get(key, "enum"), *types = json_object_get(key, "type");

    if (all && (has_text(types, "number") || has_text(types, "integer") || has_text(types, "boolean") || has_text(types, "array")))
        json_object_del(key, "enum");
    else if (all && has_text(types, "null") && !json_is_null(json_array_get(all, json_array_size(all) - 1)))
        json_array_append_new(all, json_null());
}

/* Keys that begin with "//" are for people. */
static json_t *object_of(void)
{
    return json_pack("{s:[s,s], s:{}, s:{s:{}}, s:b}", "type", "object", "null", "properties", "patternProperties", "^//", "additionalProperties", false);
}

/* The object at "deepspeed.aio", made on the way. */
static json_t *object_at(json_t *schema, const char *path)
{
    while (path[0]) {
        int n = (int)strcspn(path, ".");
        char name[64];
        snprintf(name, sizeof name, "%.*s", n, path);
        json_t *properties = json_object_get(schema, "properties");
        if (!json_object_get(properties, name))
            json_object_set_new(properties, name, object_of());
        schema = json_object_get(properties, name);
        path += n + (path[n] == '.');
    }
    return schema;
}

static json_t *names_of(int n, const char *(*name)(int i))
{
    json_t *all = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_string(name(i)));
    return all;
}

static const char *strategy_at(int i) { return strategy_name((enum strategy)i); }
static const char *dialect_at(int i)  { return dialect_name((enum dialect)i); }

static void add_heads(json_t *schema)
{
    json_t *p = json_object_get(schema, "properties");

    json_object_set_new(p, "$schema", json_pack("{s:s}", "type", "string"));
    json_object_set_new(p, "dpx_plan", json_pack("{s:i}", "const", 1));
    json_object_set_new(p, "model", json_pack("{s:[s,s], s:s}", "type", "string", "object", "description",
                                              "a name that dpx knows, a config.json beside the plan, or its content"));
    json_object_set_new(p, "cluster", json_pack("{s:[s,s], s:s}", "type", "string", "object", "description",
                                                "4x8xh100, a name that dpx knows, a cluster file beside the plan, or its content"));
    json_object_set_new(p, "strategy", json_pack("{s:o}", "enum", names_of(NSTRATEGY, strategy_at)));
    json_object_set_new(p, "dialect", json_pack("{s:o}", "enum", names_of(NDIALECT, dialect_at)));
}

json_t *plan_schema(void)
{
    json_t *schema = object_of(), *key, *required = json_pack("[s,s,s,s]", "dpx_plan", "model", "cluster", "strategy");
    const struct knob *k;

    json_object_set_new(schema, "type", json_string("object"));
    add_heads(schema);
    for (int i = 0; (k = knob_at(i)); i++) {
        json_t *into = json_object_get(object_at(schema, k->object), "properties");
        if (!(key = json_object_get(into, k->name))) {
            key = json_pack("{s:[], s:s}", "type", "description", k->about);
            json_object_set_new(into, k->name, key);
        }
        add_row(key, k);
        if (k->required && !k->object[0] && !has_text(required, k->name))
            json_array_append_new(required, json_string(k->name));
    }
    for (int i = 0; (k = knob_at(i)); i++)
        if ((key = json_object_get(json_object_get(object_at(schema, k->object), "properties"), k->name)))
            finish(key);
    /* a job's other variables are told, and change nothing */
    json_object_set_new(object_at(schema, "environment"), "additionalProperties", json_pack("{s:[s,s,s]}", "type", "string", "integer", "null"));
    json_object_set_new(schema, "required", required);
    json_object_set_new(schema, "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));
    json_object_set_new(schema, "title", json_string("a plan of dpx"));
    return schema;
}
