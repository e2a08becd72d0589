/* phases_nemo_config.c -- all of a NeMo-RL config: what other files say that it is over ("defaults"), and values that are other keys'. */
#include "sim/plan/phases_nemo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { DEEPEST = 16 };

/* `over` says more than `doc`: sections key by key, all else whole. */
static void merge(json_t *doc, const json_t *over)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)over, key, v) {
        json_t *mine = json_object_get(doc, key);
        if (json_is_object(mine) && json_is_object(v))
            merge(mine, v);
        else
            json_object_set(doc, key, v);
    }
}

/* The file of "defaults", whose path is from the one that names it. */
static json_t *with_defaults(const json_t *doc, const char *path, int depth)
{
    const char *name = json_string_value(json_object_get(doc, "defaults")), *slash = strrchr(path, '/');
    char from[1024];
    struct form_file f;

    if (!json_object_get(doc, "defaults"))
        return json_deep_copy(doc);
    snprintf(from, sizeof from, "%.*s%.400s", name && *name != '/' && slash ? (int)(slash - path) + 1 : 0, path, name ? name : "");
    if (!name || depth == DEEPEST) {
        fail("%s: defaults: the name of another config", path);
        return NULL;
    }
    if (form_open(from, &f) < 0) {
        fail("%s: defaults: %s: it has what this file leaves out: put it there", path, from);
        return NULL;
    }
    json_t *whole = f.doc ? with_defaults(f.doc, from, depth + 1) : NULL;
    form_close(&f);
    if (whole)
        merge(whole, doc);
    json_object_del(whole, "defaults");
    return whole;
}

static json_t *resolved(const json_t *root, const char *text, int depth);

/* "a, b" of ${mul:a, b}. */
static json_t *product(const json_t *root, const char *of, size_t n, int depth)
{
    const char *comma = memchr(of, ',', n);
    char part[2][160];
    json_t *v[2];

    if (!comma || n >= sizeof part[0])
        return NULL;
    snprintf(part[0], sizeof part[0], "%.*s", (int)(comma - of), of);
    snprintf(part[1], sizeof part[1], "%.*s", (int)(n - (size_t)(comma + 1 - of)), comma + 1);
    for (int i = 0; i < 2; i++)
        v[i] = resolved(root, part[i] + strspn(part[i], " "), depth + 1);
    double x[2] = { v[0] ? json_number_value(v[0]) : atof(part[0]), v[1] ? json_number_value(v[1]) : atof(part[1]) };
    json_decref(v[0]);
    json_decref(v[1]);
    return json_integer((json_int_t)(x[0] * x[1]));
}

/* What "${a.b}" stands for (new reference); NULL: the text is as it is. */
static json_t *resolved(const json_t *root, const char *text, int depth)
{
    size_t n = strlen(text);
    char path[200];

    if (depth == DEEPEST || n < 4 || n >= sizeof path || strncmp(text, "${", 2) != 0 || text[n - 1] != '}')
        return NULL;
    snprintf(path, sizeof path, "%.*s", (int)n - 3, text + 2);
    if (!strncmp(path, "mul:", 4))
        return product(root, path + 4, strlen(path + 4), depth);
    const json_t *v = form_value(root, path);
    json_t *deeper = json_is_string(v) ? resolved(root, json_string_value(v), depth + 1) : NULL;
    return deeper ? deeper : json_deep_copy(v);
}

static void resolve(json_t *root, json_t *in, int depth)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(in, next, key, v) {
        json_t *is = json_is_string(v) ? resolved(root, json_string_value(v), 0) : NULL;
        if (is)
            json_object_set_new(in, key, is);
        else if (json_is_object(v) && depth < DEEPEST)
            resolve(root, v, depth + 1);
    }
}

json_t *nemo_config(const json_t *doc, const char *path)
{
    json_t *whole = with_defaults(doc, path, 0);

    if (whole)
        resolve(whole, whole, 0);
    return whole;
}
