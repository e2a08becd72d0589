/* megatron_layers.c -- see megatron_layers.h. */
#include "model/exchange/megatron_layers.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

enum { NESTED = 32, MOST = 4096, TEXT = 2 * MOST + 8 };     /* no model has more layers: MODEL_MAX_LAYERS */

/* A text that is being read, and what its lists came to: the one read last lies at the end. */
struct reader { const char *at; unsigned char *item; size_t n; int depth; bool wrong; };

/* Of an expression: a number, or a list of so many at the end of what has been read. */
struct value { bool is_list; int64_t number; size_t items; };

static struct value sum(struct reader *r);

static struct value wrong(struct reader *r)
{
    r->wrong = true;
    return (struct value){ 0 };
}

static bool takes(struct reader *r, char c)
{
    r->at += strspn(r->at, " ");
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

static struct value number(struct reader *r)
{
    struct value v = { 0 };

    if (!isdigit((unsigned char)*r->at))
        return wrong(r);
    for (; isdigit((unsigned char)*r->at); r->at++)
        v.number = v.number < MOST ? v.number * 10 + (*r->at - '0') : MOST;
    return v;
}

static struct value list(struct reader *r)
{
    struct value v = { .is_list = true };

    while (!r->wrong && !takes(r, ']')) {
        struct value x = sum(r);
        if (x.is_list || x.number > 1 || r->n == MOST)
            return wrong(r);
        r->item[r->n++] = (unsigned char)x.number;
        v.items++;
        if (!takes(r, ',') && *r->at != ']')
            return wrong(r);
    }
    return v;
}

static struct value atom(struct reader *r)
{
    struct value v;

    if (r->wrong || r->depth == NESTED)
        return wrong(r);
    r->depth++;
    if (takes(r, '[')) {
        v = list(r);
    } else if (takes(r, '(')) {
        v = sum(r);
        r->wrong |= !takes(r, ')');
    } else {
        v = number(r);
    }
    r->depth--;
    return v;
}

/* A list n times over. */
static struct value repeated(struct reader *r, struct value v, int64_t n)
{
    size_t all = v.items * (size_t)n;

    if (r->n - v.items + all > MOST)
        return wrong(r);
    for (int64_t i = 1; i < n; i++)
        memcpy(r->item + r->n - v.items + (size_t)i * v.items, r->item + r->n - v.items, v.items);
    r->n = r->n - v.items + all;
    v.items = all;
    return v;
}

static struct value product(struct reader *r)
{
    struct value v = atom(r);

    while (!r->wrong && takes(r, '*')) {
        struct value by = atom(r);
        if (r->wrong || (v.is_list && by.is_list))
            return wrong(r);
        if (!v.is_list && !by.is_list)
            v.number = v.number * by.number < MOST ? v.number * by.number : MOST;
        else
            v = v.is_list ? repeated(r, v, by.number) : repeated(r, by, v.number);
    }
    return v;
}

static struct value sum(struct reader *r)
{
    struct value v = product(r);

    while (!r->wrong && takes(r, '+')) {
        struct value more = product(r);
        if (r->wrong || v.is_list != more.is_list)
            return wrong(r);
        v.items += more.items;
        v.number = v.number + more.number < MOST ? v.number + more.number : MOST;
    }
    return v;
}

/* One text of the words that a command line cut it into, or that YAML has in a list. */
static bool text_of(const json_t *v, char out[TEXT])
{
    bool whole = json_is_array(v);
    size_t n = 0, i;
    const json_t *x;

    if (json_is_string(v))
        return snprintf(out, TEXT, "%s", json_string_value(v)) < TEXT;
    json_array_foreach((json_t *)(uintptr_t)v, i, x)
        whole = whole && json_is_integer(x);
    if (whole)
        n += (size_t)snprintf(out, TEXT, "[");
    json_array_foreach((json_t *)(uintptr_t)v, i, x) {
        if (json_is_integer(x))
            n += (size_t)snprintf(out + n, TEXT - n, "%" JSON_INTEGER_FORMAT "%s", json_integer_value(x), whole ? "," : "");
        else
            n += (size_t)snprintf(out + n, TEXT - n, "%s", json_is_string(x) ? json_string_value(x) : "?");
        if (n + 2 >= TEXT)
            return false;
    }
    if (whole)
        memcpy(out + n, "]", 2);
    return n > 0;
}

int megatron_layers_read(const json_t *v, const char *where, const char *name, int64_t layers, int64_t *every, unsigned char *of)
{
    char text[TEXT];
    unsigned char item[MOST];
    struct reader r = { .at = text, .item = item };
    struct value x = { 0 };

    *every = json_integer_value(v);
    if (json_is_integer(v) && *every > 0)
        return 0;
    *every = 0;
    if (text_of(v, text))
        x = sum(&r);
    if (!x.is_list || r.wrong || r.at[strspn(r.at, " ")])
        return fail("%s: %s: expected a number from 1 on, or a list of 0 and 1 for each layer, such as ([0]*3+[1]*58)", where, name);
    if ((int64_t)r.n != layers)
        return fail("%s: %s: %zu layers, but the model has %" PRId64, where, name, r.n, layers);
    memcpy(of, item, r.n);
    return 0;
}
