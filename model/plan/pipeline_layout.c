/* pipeline_layout.c -- Megatron-LM's layouts of a pipeline: see pipeline_layout.h. */
#include "model/plan/pipeline_layout.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

struct reader {
    const char *where;
    struct pipeline_layout *out;
    int64_t ends[2];                    /* E and L that came */
    int64_t read;                       /* letters, all told: (...)*n could be made as long as one likes */
};

/* Longest text once it is written out. */
enum { MOST_LETTERS = 1 << 16 };

#define KEY "megatron.pipeline_model_parallel_layout"

static int letter(struct reader *r, char c)
{
    struct pipeline_layout *l = r->out;

    if (++r->read > MOST_LETTERS)
        return fail("%s: " KEY ": longer than %d letters once it is written out", r->where, (int)MOST_LETTERS);
    if (r->ends[1] > 0)
        return fail("%s: " KEY ": the loss (L) has to end the last stage", r->where);
    if (c == 'E' && (r->ends[0]++ > 0 || l->stages > 1 || l->layers > 0))
        return fail("%s: " KEY ": the embedding (E) has to begin the first stage", r->where);
    if (c != 'E' && r->ends[0] == 0)
        return fail("%s: " KEY ": the embedding (E) has to begin the first stage", r->where);
    if (l->mtp > 0 && c != 'm' && c != 'L')
        return fail("%s: " KEY ": multi-token prediction (m) comes right before the loss (L): on another stage it is not modelled yet", r->where);
    if (c == '|' && l->stages == LAYOUT_STAGES)
        return fail("%s: " KEY ": more than %d stages", r->where, (int)LAYOUT_STAGES);
    if (c == '|')
        l->blocks[l->stages++] = 0;
    r->ends[1] += c == 'L';
    l->mtp += c == 'm';
    l->blocks[l->stages - 1] += c == 't';
    l->layers += c == 't';
    return 0;
}

/* "*12" at `at`: 12, and its end; else 1. */
static int64_t times(const char *at, const char *end, const char **next)
{
    int64_t n = 0;

    *next = at;
    if (end - at < 2 || *at != '*' || !strchr("0123456789", at[1]))
        return 1;
    for (at++; at < end && strchr("0123456789", *at) && n < MOST_LETTERS; at++)
        n = 10 * n + (*at - '0');
    *next = at;
    return n;
}

static int read_part(struct reader *r, const char *at, const char *end, bool inner)
{
    while (at < end) {
        const char *first = at, *last = at + 1, *next;
        bool part = *at == '(';
        if (*at == ',') {
            at++;
            continue;
        }
        if (part && (inner || !(last = memchr(at, ')', (size_t)(end - at))) || last == at + 1))
            return fail("%s: " KEY ": a part between parentheses, such as (tt|)*4, has no other within", r->where);
        if (!part && !strchr("EtL|m", *at))
            return fail("%s: " KEY ": \"%c\": expected E, t, m, L, | and *N", r->where, *at);
        int64_t n = times(last + part, end, &next);
        if (part && next == last + 1)
            return fail("%s: " KEY ": a part between parentheses needs its number, such as (tt|)*4", r->where);
        for (int64_t i = 0; i < n; i++)
            if (part ? read_part(r, first + 1, last, true) < 0 : letter(r, *first) < 0)
                return -1;
        at = next;
    }
    return 0;
}

int pipeline_layout_read(const char *text, const char *where, struct pipeline_layout *out)
{
    struct reader r = { .where = where, .out = out };

    out->stages = 1;
    out->mtp = 0;
    out->layers = out->blocks[0] = 0;
    if (read_part(&r, text, text + strlen(text), false) < 0)
        return -1;
    if (r.ends[0] == 0 || r.ends[1] == 0)
        return fail("%s: " KEY ": it needs one embedding (E) and one loss (L)", where);
    return 0;
}

/* ---- writing ---- */

struct writer { char *out; size_t size, n; };

static void put(struct writer *w, const char *format, int64_t n)
{
    char word[32];
    int len = n < 0 ? snprintf(word, sizeof word, "%s", format) : snprintf(word, sizeof word, format, n);

    if (w->n + (size_t)len < w->size)
        memcpy(w->out + w->n, word, (size_t)len + 1);
    w->n += (size_t)len;
}

static void put_blocks(struct writer *w, int64_t n)
{
    if (n == 1)
        put(w, "t", -1);
    else if (n > 1)
        put(w, "t*%" PRId64, n);
}

int pipeline_layout_text(const struct pipeline_layout *l, char *out, size_t size)
{
    struct writer w = { out, size, 0 };
    const int64_t *blocks = l->blocks;
    int stages = l->stages;

    put(&w, "E", -1);
    for (int s = 0; s < stages; s++) {
        int same = s + 1;
        while (s > 0 && same < stages - 1 && blocks[same] == blocks[s])
            same++;
        if (s > 0 && same - s > 1 && s < stages - 1) {
            put(&w, "(", -1);
            put_blocks(&w, blocks[s]);
            put(&w, "|)*%" PRId64, same - s);
            s = same - 1;
            continue;
        }
        put_blocks(&w, blocks[s]);
        for (int i = 0; i < l->mtp && s == stages - 1; i++)
            put(&w, "m", -1);
        put(&w, s == stages - 1 ? "L" : "|", -1);
    }
    return w.n < size ? 0 : -1;
}
