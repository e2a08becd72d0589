/* yaml.c -- libyaml's events become json_t.  Events, not documents: an alias
 * lets a few bytes expand to gigabytes, so what aliases copy is counted. */
#include "base/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/fail.h"
#include "base/input.h"

enum { DEEPEST = 64, MOST_COPIED = 1 << 16 };

struct reader {
    yaml_parser_t parser;
    const char   *where;
    json_t       *anchors;      /* by name, the value last anchored so */
    int64_t       copied;       /* values that aliases stand for */
};

static json_t *refuse_at(const struct reader *r, const yaml_mark_t *at, const char *what)
{
    fail("%s:%zu:%zu: %s", r->where, at->line + 1, at->column + 1, what);
    return NULL;
}

static bool next(struct reader *r, yaml_event_t *e)
{
    if (yaml_parser_parse(&r->parser, e))
        return true;
    refuse_at(r, &r->parser.problem_mark, r->parser.problem ? r->parser.problem : "not YAML");
    return false;
}

/* ---- scalars: the resolver of YAML 1.1, as PyYAML has it ---- */

static bool is_one_of(const char *s, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(s, words[i]))
            return true;
    return false;
}

static const char *const nulls[]  = { "", "~", "null", "Null", "NULL", NULL };
static const char *const truths[] = { "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON",
                                      NULL };
static const char *const lies[]   = { "false", "False", "FALSE", "no", "No", "NO", "off", "Off",
                                      "OFF", NULL };

/* Digits, one point, one exponent: not strtod()'s "inf", "nan" or hexadecimal. */
static bool looks_like_number(const char *s, bool *whole)
{
    bool digit = false;

    *whole = true;
    s += *s == '-' || *s == '+';
    for (; *s >= '0' && *s <= '9'; s++)
        digit = true;
    if (*s == '.') {
        *whole = false;
        for (s++; *s >= '0' && *s <= '9'; s++)
            digit = true;
    }
    if (!digit)
        return false;
    if (*s == 'e' || *s == 'E') {
        *whole = false;
        s++;
        s += *s == '-' || *s == '+';
        if (*s < '0' || *s > '9')
            return false;
        while (*s >= '0' && *s <= '9')
            s++;
    }
    return *s == '\0';
}

/* YAML 1.1, which PyYAML reads, has 500_000: its digits, 24 at most. */
static bool without_underscores(const char *s, char out[32])
{
    size_t n = 0;

    if (!strchr(s, '_') || s[0] < '1' || s[0] > '9')
        return false;
    for (; *s && n < 24; s++)
        if (*s >= '0' && *s <= '9')
            out[n++] = *s;
        else if (*s != '_')
            return false;
    out[n] = '\0';
    return *s == '\0';
}

static json_t *resolve(const char *s)
{
    char digits[32];
    bool whole;
    double real;
    long long n;

    if (is_one_of(s, nulls))
        return json_null();
    if (is_one_of(s, truths))
        return json_true();
    if (is_one_of(s, lies))
        return json_false();
    if (without_underscores(s, digits))
        s = digits;
    if (!looks_like_number(s, &whole))
        return json_string(s);
    errno = 0;
    n = strtoll(s, NULL, 10);
    if (whole && errno == 0)
        return json_integer(n);
    real = strtod(s, NULL);
    return isfinite(real) ? json_real(real) : json_string(s);
}

static json_t *scalar(struct reader *r, const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    json_t *j;

    if (e->data.scalar.tag)
        return refuse_at(r, &e->start_mark, "tags are not supported");
    if (strlen(s) != e->data.scalar.length)
        return refuse_at(r, &e->start_mark, "a string with a zero byte");
    j = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? resolve(s) : json_string(s);
    return j ? j : refuse_at(r, &e->start_mark, "not UTF-8");
}

/* ---- collections ---- */

static json_t *node(struct reader *r, yaml_event_t *first, int depth);

static json_t *sequence(struct reader *r, int depth)
{
    json_t *list = json_array(), *item;
    yaml_event_t e;

    for (;;) {
        if (!next(r, &e))
            break;
        if (e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return list;
        }
        if (!(item = node(r, &e, depth)))
            break;
        json_array_append_new(list, item);
    }
    json_decref(list);
    return NULL;
}

/* Takes the value.  A key may stand twice where it says the same: PyYAML takes the last. */
static int set(struct reader *r, json_t *object, const char *name, json_t *value, const yaml_event_t *key)
{
    const json_t *before = json_object_get(object, name);

    if (before && !json_equal(before, value)) {
        json_decref(value);
        refuse_at(r, &key->start_mark, "this key was given before, with another value");
        return -1;
    }
    if (json_object_set_new(object, name, value) == 0)
        return 0;
    refuse_at(r, &key->start_mark, "a key that is not UTF-8");
    return -1;
}

/* "<<": keys that stand neither here nor in what was merged before.  Takes the value. */
static int merge(struct reader *r, json_t *merged, json_t *value, const yaml_event_t *key)
{
    bool list = json_is_array(value);
    size_t n = list ? json_array_size(value) : 1;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = json_object_update_missing(merged, list ? json_array_get(value, i) : value);
    json_decref(value);
    if (rc < 0)
        refuse_at(r, &key->start_mark, "a merge key takes mappings");
    return rc;
}

/* The key of a pair into the object, or what a merge key has into `merged`; takes the event. */
static int pair(struct reader *r, json_t *object, json_t *merged, yaml_event_t *key, int depth)
{
    const char *name = key->type == YAML_SCALAR_EVENT ? (const char *)key->data.scalar.value : "";
    yaml_event_t e;
    json_t *value;
    int rc = -1;

    if (key->type != YAML_SCALAR_EVENT || key->data.scalar.anchor || key->data.scalar.tag)
        refuse_at(r, &key->start_mark, "a key must be a plain string");
    else if (strlen(name) != key->data.scalar.length)
        refuse_at(r, &key->start_mark, "a key with a zero byte");
    else if (next(r, &e) && (value = node(r, &e, depth)))
        rc = strcmp(name, "<<") != 0 ? set(r, object, name, value, key) : merge(r, merged, value, key);
    yaml_event_delete(key);
    return rc;
}

static json_t *mapping(struct reader *r, int depth)
{
    json_t *object = json_object(), *merged = json_object();
    bool ended = false, good = true;
    yaml_event_t e;

    while (good && !ended && (good = next(r, &e))) {
        if ((ended = e.type == YAML_MAPPING_END_EVENT))
            yaml_event_delete(&e);
        else
            good = pair(r, object, merged, &e, depth) == 0;
    }
    json_object_update_missing(object, merged);
    json_decref(merged);
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

/* ---- anchors ---- */

static int64_t count_values(const json_t *j)
{
    int64_t n = 1;
    const char *key;
    json_t *v;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)j, key, v)
        n += count_values(v);
    json_array_foreach((json_t *)(uintptr_t)j, i, v)
        n += count_values(v);
    return n;
}

static json_t *alias(struct reader *r, const yaml_event_t *e)
{
    const json_t *j = json_object_get(r->anchors, (const char *)e->data.alias.anchor);

    if (!j)
        return refuse_at(r, &e->start_mark, "an alias of what has no anchor before it");
    r->copied += count_values(j);
    return r->copied <= MOST_COPIED ? json_deep_copy(j) : refuse_at(r, &e->start_mark, "aliases stand for more than 65536 values");
}

static const yaml_char_t *anchor_of(const yaml_event_t *e)
{
    return e->type == YAML_SCALAR_EVENT ? e->data.scalar.anchor : e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.anchor
         : e->type == YAML_MAPPING_START_EVENT ? e->data.mapping_start.anchor : NULL;
}

/* The value that starts with this event; takes the event. */
static json_t *node(struct reader *r, yaml_event_t *first, int depth)
{
    json_t *j = NULL;

    if (depth > DEEPEST)
        refuse_at(r, &first->start_mark, "nested too deeply");
    else if (first->type == YAML_SCALAR_EVENT)
        j = scalar(r, first);
    else if (first->type == YAML_ALIAS_EVENT)
        j = alias(r, first);
    else if (first->type == YAML_SEQUENCE_START_EVENT && !first->data.sequence_start.tag)
        j = sequence(r, depth + 1);
    else if (first->type == YAML_MAPPING_START_EVENT && !first->data.mapping_start.tag)
        j = mapping(r, depth + 1);
    else
        refuse_at(r, &first->start_mark, "tags are not supported");
    if (j && anchor_of(first) && json_object_set(r->anchors, (const char *)anchor_of(first), j) < 0) {
        json_decref(j);
        j = refuse_at(r, &first->start_mark, "an anchor that is not UTF-8");
    }
    yaml_event_delete(first);
    return j;
}

/* Passes the event of the expected type; a file without a document is empty. */
static bool expect(struct reader *r, yaml_event_type_t type, const char *what)
{
    yaml_event_t e;
    bool as_expected;

    if (!next(r, &e))
        return false;
    as_expected = e.type == type;
    if (!as_expected)
        refuse_at(r, &e.start_mark, what);
    yaml_event_delete(&e);
    return as_expected;
}

static json_t *document(struct reader *r)
{
    yaml_event_t e;
    json_t *j;

    if (!expect(r, YAML_STREAM_START_EVENT, "not YAML")
        || !expect(r, YAML_DOCUMENT_START_EVENT, "the file is empty") || !next(r, &e)
        || !(j = node(r, &e, 0)))
        return NULL;
    if (expect(r, YAML_DOCUMENT_END_EVENT, "expected the end of the document")
        && expect(r, YAML_STREAM_END_EVENT, "more than one document"))
        return j;
    json_decref(j);
    return NULL;
}

json_t *yaml_read(const char *text, size_t size, const char *where)
{
    struct reader r = { .where = where, .anchors = json_object() };
    json_t *j;

    if (!r.anchors || !yaml_parser_initialize(&r.parser)) {
        json_decref(r.anchors);
        fail("%s: out of memory", where);
        return NULL;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    j = document(&r);
    yaml_parser_delete(&r.parser);
    json_decref(r.anchors);
    return j;
}

json_t *yaml_read_file(const char *path)
{
    size_t n;
    char *text = input_text(path, 1 << 20, &n);         /* no config is a megabyte */
    json_t *j = text ? yaml_read(text, n, path) : NULL;

    free(text);
    return j;
}

/* ---- writing ---- */

/* A string that must be quoted: one that resolves to another type, or has a
 * character that YAML takes for syntax. */
static bool needs_quotes(const char *s)
{
    json_t *j = resolve(s);
    bool other = !json_is_string(j);

    json_decref(j);
    return other || strpbrk(s, ":#{}[],&*!|>'\"%@`\n\t\\") || s[0] == '-' || s[0] == '?' || s[0] == ' '
        || s[strlen(s) - 1] == ' ';
}

/* JSON's escapes are a subset of YAML's double-quoted ones. */
static void write_scalar(const json_t *j, FILE *to)
{
    const char *s = json_string_value(j);

    if (s && !needs_quotes(s))
        fputs(s, to);
    else
        json_dumpf(j, to, JSON_ENCODE_ANY);
}

static void write_indented(const json_t *j, FILE *to, int depth)
{
    const char *name;
    json_t *v, *item;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)j, name, v) {
        fprintf(to, "%*s%s:", 2 * depth, "", name);
        if (json_is_object(v) && json_object_size(v)) {
            fputc('\n', to);
            write_indented(v, to, depth + 1);
        } else if (json_is_array(v) && json_array_size(v)) {
            fputc('\n', to);
            json_array_foreach(v, i, item) {
                fprintf(to, "%*s- ", 2 * depth + 2, "");
                write_scalar(item, to);
                fputc('\n', to);
            }
        } else {
            fputc(' ', to);
            write_scalar(v, to);
            fputc('\n', to);
        }
    }
}

void yaml_write(const json_t *j, FILE *to)
{
    if (json_is_object(j) && json_object_size(j)) {
        write_indented(j, to, 0);
    } else {
        write_scalar(j, to);
        fputc('\n', to);
    }
}
