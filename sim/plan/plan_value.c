/* plan_value.c -- see plan_value.h. */
#include "sim/plan/plan_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"

enum { KEY = 96 };

bool plan_value_is_cluster(const char *key)
{
    return !strcmp(key, "cluster") || !strncmp(key, "cluster.", 8);
}

const struct knob *plan_value_row(const char *key)
{
    char name[KEY];
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++) {
        knob_key_text(k, name, sizeof name);
        if (!strcmp(name, key))
            return k;
    }
    return NULL;
}

bool plan_value_is_head(const char *key)
{
    return !strcmp(key, "model") || !strcmp(key, "strategy") || !strcmp(key, "dialect") || plan_value_is_cluster(key);
}

/* What people type for nothing, as a value of a key that has a word of its own for it: 0 for false, off for none. */
static bool is_off(const char *text)
{
    static const char *const words[] = { "false", "none", "off", "no", "0", NULL };

    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

static bool is_on(const char *text) { return !strcmp(text, "true") || !strcmp(text, "on") || !strcmp(text, "yes") || !strcmp(text, "1"); }

static bool has_word(const struct knob *k, const char *word)
{
    for (int w = 0; k->type == KNOB_WORD && k->words[w]; w++)
        if (!strcmp(k->words[w], word))
            return true;
    return false;
}

/* The key's own word for a value that asks for nothing; `text` where there is none. */
static const char *own_word(const struct knob *k, const char *text)
{
    bool truth = k && (k->type == KNOB_BOOL || k->type == KNOB_FLAG);

    if (truth && (is_off(text) || is_on(text)))
        return is_on(text) ? "true" : "false";
    if (!k || !is_off(text) || has_word(k, text))
        return text;
    if (has_word(k, "none"))
        return "none";
    return k->null == KNOB_NULL_VALUE && (k->type == KNOB_REAL || k->type == KNOB_WORD) && strcmp(text, "0") ? "null" : text;
}

static bool is_memory(const char *key)
{
    return !strcmp(key, "cluster.memory_bytes") || !strcmp(key, "cluster.node.memory_bytes") || !strcmp(key, "cluster.node.disk_bytes");
}

static json_t *number(const char *key, const char *text)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    int64_t n;
    bool bytes = strstr(key, "_bytes") != NULL;

    if (json_is_real(j) && fabs(json_real_value(j)) < 1e18 && !(fabs(fmod(json_real_value(j), 1)) > 0)) {    /* 1e9 is whole */
        n = (int64_t)json_real_value(j);
        json_decref(j);
        return json_integer(n);
    }
    if (is_memory(key) && json_is_integer(j) && json_integer_value(j) < MEMORY_LEAST) {
        size_too_small(key, json_integer_value(j));
        json_decref(j);
        return NULL;
    }
    if (json_is_number(j) || json_is_null(j))
        return j;
    json_decref(j);
    int rc = !strcmp(key, "seq") ? length_parse(key, text, &n) : bytes ? size_parse(key, text, &n)
                                                                      : count_parse(key, text, &n);
    return rc < 0 ? NULL : json_integer(n);
}

static bool is_cluster_text(const char *key)
{
    static const char *const texts[] = { "cluster", "cluster.gpu", "cluster.name", "cluster.calibration", "cluster.failures.rate", NULL };

    for (int i = 0; texts[i]; i++)
        if (!strcmp(key, texts[i]))
            return true;
    return false;
}

static bool is_cluster_truth(const char *key) { return !strcmp(key, "cluster.host") || !strcmp(key, "cluster.storage.training_network"); }

static bool is_text(const char *key)
{
    const struct knob *k = plan_value_row(key);

    return (plan_value_is_head(key) && !plan_value_is_cluster(key)) || is_cluster_text(key) || !strncmp(key, "environment.", 12) || (k && (k->words || k->type == KNOB_TEXT || k->type == KNOB_UNIT));
}

/* "q_proj,v_proj": names of a list; a word that stands for one is itself. */
static json_t *names_of(const struct knob *k, const char *text)
{
    json_t *names;

    for (int w = 1; k->words[w]; w++)
        if (!strcmp(k->words[w], text))
            return json_string(text);
    names = json_array();
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        json_array_append_new(names, json_stringn(text, n));
    }
    return names;
}

json_t *plan_value_of(const char *key, const char *text)
{
    const struct knob *k = plan_value_row(key);
    json_t *j;

    if (!*text) {
        fail("%s: a value is missing", key);
        return NULL;
    }
    text = own_word(k, text);
    if (is_cluster_truth(key) && (is_on(text) || is_off(text)))
        return json_boolean(is_on(text));
    if (is_text(key)) {
        j = strcmp(text, "null") && k && k->type == KNOB_LIST ? names_of(k, text) : strcmp(text, "null") ? json_string(text) : json_null();
        if (!j)
            fail("%s: '%.60s' is not UTF-8", key, text);
        return j;
    }
    if (!k || k->type == KNOB_INT || k->type == KNOB_REAL)
        return number(key, text);
    j = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!j)
        fail("%s: '%.60s' is not true, false, null or a number", key, text);
    return j;
}

void plan_value_put(json_t *doc, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    char name[KEY];

    if (!dot) {
        json_object_set_new(doc, path, value);
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
    json_t *in = json_object_get(doc, name);
    if (!json_is_object(in)) {
        in = json_object();
        json_object_set_new(doc, name, in);
    }
    plan_value_put(in, dot + 1, value);
}
