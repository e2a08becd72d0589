/* knob_value.c -- one value of a plan: as a number, in and out of JSON, against its row's range. */
#include "model/plan/knob.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/knob_rules.h"

/* ---- as a number ---- */

double knob_get(const struct plan *p, const struct knob *k)
{
    const char *at = (const char *)p + k->offset;
    int64_t whole = 0;
    double real = 0;
    int word = 0;

    switch (k->type) {
    case KNOB_INT: case KNOB_RESHARD:
        memcpy(&whole, at, sizeof whole);
        return (double)whole;
    case KNOB_REAL:
        memcpy(&real, at, sizeof real);
        return real;
    case KNOB_FLAG: case KNOB_WORD:
        memcpy(&word, at, sizeof word);
        return word;
    case KNOB_BOOL: case KNOB_WORD_BOOL: case KNOB_GRAD_ACCUM:
        return *(const bool *)at;
    case KNOB_UNIT:
        return p->unit;
    case KNOB_LIST:
        return *at != '\0';
    case KNOB_TEXT: case KNOB_FIXED:
        break;
    }
    return 0;
}

/* 2^63 as a double: the first real that no int64_t holds. */
#define TWO_63 9223372036854775808.0

void knob_set(struct plan *p, const struct knob *k, double v)
{
    char *at = (char *)p + k->offset;
    int64_t whole = v >= TWO_63 ? INT64_MAX : (int64_t)v;   /* (double)INT64_MAX is 2^63 */
    int word = (int)whole;

    switch (k->type) {
    case KNOB_INT: case KNOB_RESHARD: memcpy(at, &whole, sizeof whole); break;
    case KNOB_REAL:                   memcpy(at, &v, sizeof v); break;
    case KNOB_FLAG: case KNOB_WORD:   memcpy(at, &word, sizeof word); break;
    case KNOB_BOOL: case KNOB_WORD_BOOL: case KNOB_GRAD_ACCUM:
                                      *(bool *)at = v > 0; break;
    case KNOB_UNIT:
        p->unit = (enum unit_kind)word;
        p->unit_blocks = 1;
        break;
    case KNOB_TEXT:                   *at = '\0'; break;
    case KNOB_LIST:                   *at = v > 0 ? *at : '\0'; break;
    case KNOB_FIXED:                  break;
    }
}

double knob_default(const struct plan *p, const struct knob *k)
{
    return k->usual ? k->usual(p) : k->def;
}

void knob_follow(struct plan *p, bool (*given)(const void *arg, const struct knob *k), const void *arg)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (k->follows && (k->cells & knob_cell(p)) && !(given && given(arg, k)))
            knob_set(p, k, knob_default(p, k));
}

/* ---- ranges ---- */

static int out_of_range(const char *where, const struct knob *k, double v)
{
    return fail("%s: %s%s%s: %.15g is out of range (%s%" PRId64 " to %" PRId64 ")", where,
                k->object, k->object[0] ? "." : "", k->name, v, k->above ? "above " : "",
                k->lo, k->hi);
}

void knob_reset_idle(struct plan *p)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->cells & knob_cell(p)) && knob_idle(p, k))
            knob_set(p, k, knob_default(p, k));
}

static bool has_default(const struct plan *p, const struct knob *k)
{
    double v = knob_get(p, k), usual = knob_default(p, k);

    if (k->type == KNOB_TEXT || k->type == KNOB_LIST)
        return ((const char *)p)[k->offset] == '\0';
    return !(v < usual) && !(v > usual);
}

int knob_check(const struct plan *p, const struct knob *k, const char *where)
{
    const char *at = (const char *)p + k->offset;
    int64_t whole;
    double real;
    int word, nwords = 0;

    if (knob_idle(p, k) && !has_default(p, k))
        return fail("%s: %s%s%s: says nothing in this plan: %s; leave it out", where, k->object, k->object[0] ? "." : "", k->name,
                    knob_idle_because(k->idle));

    if (k->type == KNOB_INT) {
        memcpy(&whole, at, sizeof whole);
        if (whole < k->lo || whole > k->hi)
            return out_of_range(where, k, (double)whole);
    }
    if (k->type == KNOB_WORD) {
        memcpy(&word, at, sizeof word);
        while (k->words[nwords])
            nwords++;
        if (word >= nwords || word < (k->null == KNOB_NULL_VALUE ? -1 : 0))
            return fail("%s: %s: no such word", where, k->name);
    }
    if (k->type == KNOB_REAL) {
        memcpy(&real, at, sizeof real);
        if (k->null == KNOB_NULL_VALUE && real <= k->null_value && isfinite(real))
            return 0;
        if (!isfinite(real) || real < (double)k->lo || real > (double)k->hi
            || (k->above && real <= (double)k->lo))
            return out_of_range(where, k, real);
    }
    return 0;
}

/* ---- JSON ---- */

/* "plan.json: fsdp.forward_prefetch" */
static int refuse(const char *where, const struct knob *k, const char *what)
{
    return fail("%s: %s%s%s: %s", where, k->object, k->object[0] ? "." : "", k->name, what);
}

static void word_list(const struct knob *k, char *out, size_t size)
{
    int n = snprintf(out, size, "expected");

    for (int i = 0; k->words[i] && n > 0 && (size_t)n < size; i++)
        n += snprintf(out + n, size - (size_t)n, "%s \"%s\"", i ? " or" : "", k->words[i]);
    if (k->null == KNOB_NULL_VALUE && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " or null");
}

static int read_word(const json_t *v, const char *where, const struct knob *k, int *out)
{
    const char *s = json_string_value(v);
    char expected[256];

    for (int i = 0; s && k->words[i]; i++)
        if (!strcmp(k->words[i], s)) {
            *out = i;
            return 0;
        }
    if (s && knob_lacks(k->object, k->name, s))
        return refuse(where, k, knob_lacks(k->object, k->name, s));
    word_list(k, expected, sizeof expected);
    return refuse(where, k, expected);
}

static int read_int(const json_t *v, const char *where, const struct knob *k, int64_t *out)
{
    char why[96];
    double r = json_real_value(v);

    if (json_is_integer(v)) {
        *out = json_integer_value(v);
    } else if (json_is_real(v) && r >= 0 && r < TWO_63 && r == (double)(int64_t)r) {
        *out = (int64_t)r;
    } else {
        return refuse(where, k, "expected a whole number, not negative");
    }
    if (*out >= k->lo && *out <= k->hi)
        return 0;
    snprintf(why, sizeof why, "%" PRId64 " is not in %" PRId64 " .. %" PRId64, *out, k->lo, k->hi);
    return refuse(where, k, why);
}

static int read_real(const json_t *v, const char *where, const struct knob *k, double *out)
{
    char why[96];

    if (!json_is_number(v))
        return refuse(where, k, "expected a number");
    *out = json_number_value(v);
    if (*out >= (double)k->lo && *out <= (double)k->hi && !(k->above && *out <= (double)k->lo))
        return 0;
    snprintf(why, sizeof why, "%g is not %s %" PRId64 " and at most %" PRId64, *out,
             k->above ? "above" : "at least", k->lo, k->hi);
    return refuse(where, k, why);
}

static int read_reshard(const json_t *v, const char *where, const struct knob *k, int64_t *out)
{
    if (json_is_boolean(v)) {
        *out = json_is_true(v);
        return 0;
    }
    if (json_is_integer(v) && json_integer_value(v) == 1)
        return refuse(where, k, "1 rank means false: write false");
    return read_int(v, where, k, out);
}

static int read_grad_accum(const json_t *v, const char *where, const struct knob *k, struct plan *p)
{
    int t;

    if (read_word(v, where, k, &t) < 0)
        return -1;
    if (t != (int)p->precision && t != DT_FP32)
        return refuse(where, k, "expected \"fp32\", the plan's precision, or null");
    p->ds.grad_accum_fp32 = t != (int)p->precision;
    return 0;
}

static int read_unit(const json_t *v, const char *where, const struct knob *k, struct plan *p)
{
    static const struct { const char *word; enum unit_kind unit; } words[] = {
        { "model", UNIT_MODEL }, { "block", UNIT_BLOCK }, { "half-block", UNIT_HALF_BLOCK },
        { "tensor", UNIT_TENSOR }, { "module", UNIT_MODULE },
    };
    const char *s = json_string_value(v);
    int64_t n = 0;
    int end = 0;

    p->unit_blocks = 1;
    for (size_t i = 0; s && i < sizeof words / sizeof *words; i++)
        if (!strcmp(s, words[i].word)) {
            p->unit = words[i].unit;
            return 0;
        }
    if (!s || s[0] < '1' || s[0] > '9' || sscanf(s, "%5" SCNd64 " blocks%n", &n, &end) != 1
        || end == 0 || s[end] != '\0')
        return refuse(where, k, "expected \"model\", \"<n> blocks\", \"block\", \"half-block\", "
                                "\"tensor\" or \"module\"");
    p->unit = n == 1 ? UNIT_BLOCK : UNIT_BLOCKS;
    p->unit_blocks = n;
    return 0;
}

static int read_text(const json_t *v, const char *where, const struct knob *k, char *out)
{
    const char *s = json_string_value(v);
    char why[96];

    if (s && strlen(s) < (size_t)k->hi) {
        strcpy(out, s);
        return 0;
    }
    snprintf(why, sizeof why, "expected %s of at most %" PRId64 " characters", k->words[0], k->hi - 1);
    return refuse(where, k, why);
}

/* One of the words that stand for a list; or an array of names. */
static int read_list(const json_t *v, const char *where, const struct knob *k, char *out)
{
    char expected[256], list[256] = "";
    size_t i, n = 0;
    json_t *name;

    for (int w = 1; json_is_string(v) && k->words[w]; w++)
        if (k->words[w][0] && !strcmp(json_string_value(v), k->words[w])) {
            strcpy(out, w == 1 ? "" : k->words[w]);
            return 0;
        }
    snprintf(expected, sizeof expected, "expected an array of %s", k->words[0]);
    for (int w = 1; k->words[w] && strlen(expected) < sizeof expected - 64; w++)
        if (k->words[w][0])
            snprintf(expected + strlen(expected), 64, ", or \"%s\"", k->words[w]);
    if (!json_is_array(v) || json_array_size(v) == 0)
        return refuse(where, k, expected);
    json_array_foreach((json_t *)(uintptr_t)v, i, name) {
        const char *s = json_string_value(name);
        if (!s || !s[0] || strpbrk(s, ",\n"))
            return refuse(where, k, expected);
        if (n + strlen(s) + 2 > sizeof list || n + strlen(s) + 2 > (size_t)k->hi)
            return refuse(where, k, "these names are too long together");
        n += (size_t)sprintf(list + n, "%s%s", n ? "," : "", s);
    }
    strcpy(out, list);
    return 0;
}

static json_t *write_list(const char *list, const struct knob *k)
{
    json_t *out;

    for (int w = 1; k->words[w]; w++)
        if (k->words[w][0] && !strcmp(w == 1 ? "" : k->words[w], list))
            return json_string(k->words[w]);
    if (!list[0])
        return json_null();
    out = json_array();
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        json_array_append_new(out, json_stringn(list, n));
    }
    return out;
}

static int read_bool(const json_t *v, const char *where, const struct knob *k, bool *out)
{
    if (!json_is_boolean(v))
        return refuse(where, k, "expected true or false");
    *out = json_is_true(v);
    return 0;
}

static int read_null(const char *where, const struct knob *k, struct plan *p)
{
    if (k->null == KNOB_NULL_REFUSED)
        return refuse(where, k, "null is not a value of this key");
    if (k->null == KNOB_NULL_VALUE)
        knob_set(p, k, k->null_value);
    return 0;
}

int knob_read(const json_t *v, const char *where, const struct knob *k, struct plan *p)
{
    void *at = (char *)p + k->offset;
    bool truth = false;
    int word = 0;

    if (json_is_null(v))
        return read_null(where, k, p);
    switch (k->type) {
    case KNOB_INT:        return read_int(v, where, k, at);
    case KNOB_REAL:       return read_real(v, where, k, at);
    case KNOB_BOOL:       return read_bool(v, where, k, at);
    case KNOB_WORD:       return read_word(v, where, k, at);
    case KNOB_UNIT:       return read_unit(v, where, k, p);
    case KNOB_RESHARD:    return read_reshard(v, where, k, at);
    case KNOB_GRAD_ACCUM: return read_grad_accum(v, where, k, p);
    case KNOB_TEXT:       return read_text(v, where, k, at);
    case KNOB_LIST:       return read_list(v, where, k, at);
    case KNOB_FIXED:      return read_word(v, where, k, &word);
    case KNOB_FLAG:
        if (read_bool(v, where, k, &truth) < 0)
            return -1;
        *(int *)at = truth;
        return 0;
    case KNOB_WORD_BOOL:
        if (read_word(v, where, k, &word) < 0)
            return -1;
        *(bool *)at = word == 1;
        return 0;
    }
    return -1;
}

json_t *knob_write(const struct plan *p, const struct knob *k)
{
    const char *at = (const char *)p + k->offset;
    int64_t whole = 0;
    double real = 0;
    int word = 0;
    char unit[32];

    switch (k->type) {
    case KNOB_INT:
        memcpy(&whole, at, sizeof whole);
        return json_integer(whole);
    case KNOB_REAL:
        memcpy(&real, at, sizeof real);
        return k->null == KNOB_NULL_VALUE && real <= k->null_value ? json_null() : json_real(real);
    case KNOB_BOOL:
        return json_boolean(*(const bool *)at);
    case KNOB_FLAG:
        memcpy(&word, at, sizeof word);
        return word < 0 ? json_null() : json_boolean(word);
    case KNOB_WORD:
        memcpy(&word, at, sizeof word);
        return word < 0 || (k->null == KNOB_NULL_VALUE && word == (int)k->null_value && word < 0)
             ? json_null() : json_string(k->words[word]);
    case KNOB_WORD_BOOL:
        return json_string(k->words[*(const bool *)at]);
    case KNOB_UNIT:
        plan_unit_text(p, unit, sizeof unit);
        return json_string(unit);
    case KNOB_RESHARD:
        memcpy(&whole, at, sizeof whole);
        return whole < 0 ? json_null() : whole < 2 ? json_boolean(whole) : json_integer(whole);
    case KNOB_GRAD_ACCUM:
        return *(const bool *)at ? json_string("fp32") : json_null();
    case KNOB_TEXT:
        return *at ? json_string(at) : json_null();
    case KNOB_LIST:
        return write_list(at, k);
    case KNOB_FIXED:
        return json_string(k->words[0]);
    }
    return json_null();
}

json_t *knob_object_at(json_t *doc, const char *path)
{
    char name[64];
    int n = (int)strcspn(path, ".");
    json_t *into;

    if (!path[0])
        return doc;
    snprintf(name, sizeof name, "%.*s", n, path);
    into = json_object_get(doc, name);
    if (!into) {
        into = json_object();
        json_object_set_new(doc, name, into);
    }
    return knob_object_at(into, path + n + (path[n] == '.'));
}
