/* plan_value.c -- one value of plan.json in and out, by its row. */
#include "model/plan/plan_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

/* "plan.json: fsdp.forward_prefetch" */
static int refuse(const char *where, const struct plan_key *k, const char *what)
{
    return fail("%s: %s%s%s: %s", where, k->object, k->object[0] ? "." : "", k->name, what);
}

static void word_list(const struct plan_key *k, char *out, size_t size)
{
    int n = snprintf(out, size, "expected");

    for (int i = 0; k->words[i] && n > 0 && (size_t)n < size; i++)
        n += snprintf(out + n, size - (size_t)n, "%s \"%s\"", i ? " or" : "", k->words[i]);
    if (k->null == NULL_VALUE && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " or null");
}

static int read_word(const json_t *v, const char *where, const struct plan_key *k, int *out)
{
    const char *s = json_string_value(v);
    char expected[256];

    for (int i = 0; s && k->words[i]; i++)
        if (!strcmp(k->words[i], s)) {
            *out = i;
            return 0;
        }
    word_list(k, expected, sizeof expected);
    return refuse(where, k, expected);
}

/* 2^63 as a double: the first real that no int64_t holds. */
#define TWO_63 9223372036854775808.0

static int read_int(const json_t *v, const char *where, const struct plan_key *k, int64_t *out)
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

static int read_real(const json_t *v, const char *where, const struct plan_key *k, double *out)
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

static int read_reshard(const json_t *v, const char *where, const struct plan_key *k, int64_t *out)
{
    if (json_is_boolean(v)) {
        *out = json_is_true(v);
        return 0;
    }
    if (json_is_integer(v) && json_integer_value(v) == 1)
        return refuse(where, k, "1 rank means false: write false");
    return read_int(v, where, k, out);
}

static int read_grad_accum(const json_t *v, const char *where, const struct plan_key *k, struct plan *p)
{
    int t;

    if (read_word(v, where, k, &t) < 0)
        return -1;
    if (t != (int)p->precision && t != DT_FP32)
        return refuse(where, k, "expected \"fp32\", the plan's precision, or null");
    p->ds.grad_accum_fp32 = t != (int)p->precision;
    return 0;
}

static int read_unit(const json_t *v, const char *where, const struct plan_key *k, struct plan *p)
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

static int read_text(const json_t *v, const char *where, const struct plan_key *k, char *out, size_t size)
{
    const char *s = json_string_value(v);

    if (!s || strlen(s) >= size)
        return refuse(where, k, "expected a short string, such as \"2.15\"");
    strcpy(out, s);
    return 0;
}

static int read_bool(const json_t *v, const char *where, const struct plan_key *k, bool *out)
{
    if (!json_is_boolean(v))
        return refuse(where, k, "expected true or false");
    *out = json_is_true(v);
    return 0;
}

static int read_null(const char *where, const struct plan_key *k, struct plan *p)
{
    char *at = (char *)p + k->offset;
    int64_t whole = (int64_t)k->null_value;
    int word = (int)k->null_value;

    if (k->null == NULL_REFUSED)
        return refuse(where, k, "null is not a value of this key");
    if (k->null == NULL_DEFAULT)
        return 0;
    switch (k->type) {
    case KEY_INT: case KEY_RESHARD: memcpy(at, &whole, sizeof whole); break;
    case KEY_REAL:                  memcpy(at, &k->null_value, sizeof k->null_value); break;
    case KEY_WORD: case KEY_FLAG:   memcpy(at, &word, sizeof word); break;
    case KEY_TEXT:                  *at = '\0'; break;
    case KEY_GRAD_ACCUM: case KEY_BOOL: case KEY_WORD_BOOL:
                                    *(bool *)at = false; break;
    case KEY_UNIT: case KEY_FIXED:  break;
    }
    return 0;
}

int plan_key_read(const json_t *v, const char *where, const struct plan_key *k, struct plan *p)
{
    void *at = (char *)p + k->offset;
    bool truth = false;
    int word = 0;

    if (json_is_null(v))
        return read_null(where, k, p);
    switch (k->type) {
    case KEY_INT:        return read_int(v, where, k, at);
    case KEY_REAL:       return read_real(v, where, k, at);
    case KEY_BOOL:       return read_bool(v, where, k, at);
    case KEY_WORD:       return read_word(v, where, k, at);
    case KEY_UNIT:       return read_unit(v, where, k, p);
    case KEY_RESHARD:    return read_reshard(v, where, k, at);
    case KEY_GRAD_ACCUM: return read_grad_accum(v, where, k, p);
    case KEY_TEXT:       return read_text(v, where, k, at, sizeof p->framework_version);
    case KEY_FIXED:      return read_word(v, where, k, &word);
    case KEY_FLAG:
        if (read_bool(v, where, k, &truth) < 0)
            return -1;
        *(int *)at = truth;
        return 0;
    case KEY_WORD_BOOL:
        if (read_word(v, where, k, &word) < 0)
            return -1;
        *(bool *)at = word == 1;
        return 0;
    }
    return -1;
}

json_t *plan_key_write(const struct plan *p, const struct plan_key *k)
{
    const char *at = (const char *)p + k->offset;
    int64_t whole = 0;
    double real = 0;
    int word = 0;
    char unit[32];

    switch (k->type) {
    case KEY_INT:
        memcpy(&whole, at, sizeof whole);
        return json_integer(whole);
    case KEY_REAL:
        memcpy(&real, at, sizeof real);
        return k->null == NULL_VALUE && real <= k->null_value ? json_null() : json_real(real);
    case KEY_BOOL:
        return json_boolean(*(const bool *)at);
    case KEY_FLAG:
        memcpy(&word, at, sizeof word);
        return word < 0 ? json_null() : json_boolean(word);
    case KEY_WORD:
        memcpy(&word, at, sizeof word);
        return word < 0 || (k->null == NULL_VALUE && word == (int)k->null_value && word < 0)
             ? json_null() : json_string(k->words[word]);
    case KEY_WORD_BOOL:
        return json_string(k->words[*(const bool *)at]);
    case KEY_UNIT:
        plan_unit_text(p, unit, sizeof unit);
        return json_string(unit);
    case KEY_RESHARD:
        memcpy(&whole, at, sizeof whole);
        return whole < 0 ? json_null() : whole < 2 ? json_boolean(whole) : json_integer(whole);
    case KEY_GRAD_ACCUM:
        return *(const bool *)at ? json_string("fp32") : json_null();
    case KEY_TEXT:
        return *at ? json_string(at) : json_null();
    case KEY_FIXED:
        return json_string(k->words[0]);
    }
    return json_null();
}
