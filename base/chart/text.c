/* text.c -- text that grows; UTF-8 read with care, escaped for HTML, CSV and Markdown. */
#include "base/chart/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT 0xFFFDu

static void grow(struct text *t, size_t more)
{
    if (t->n + more + 1 <= t->room)
        return;
    t->room = 2 * (t->n + more) + 256;
    t->s = realloc(t->s, t->room);
    if (!t->s)
        abort();
}

static void text_bytes(struct text *t, const char *s, size_t n)
{
    grow(t, n);
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

void text_put(struct text *t, const char *s) { text_bytes(t, s, strlen(s)); }

void text_add(struct text *t, const char *fmt, ...)
{
    va_list a, again;
    int n;

    va_start(a, fmt);
    va_copy(again, a);
    n = vsnprintf(NULL, 0, fmt, a);
    va_end(a);
    grow(t, (size_t)n);
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void text_free(struct text *t)
{
    free(t->s);
    memset(t, 0, sizeof *t);
}

/* ---- characters ---- */

/* Turn the direction of what follows: a name could rearrange the words beside it. */
static bool turns_direction(unsigned c)
{
    return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0x200E || c == 0x200F;
}

static bool harmful(unsigned c)
{
    return (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7F && c < 0xA0) || turns_direction(c)
        || (c >= 0xD800 && c < 0xE000) || (c & 0xFFFE) == 0xFFFE || c > 0x10FFFF;
}

/* Bytes that follow the first one of a UTF-8 sequence; -1: it cannot begin one. */
static int following(unsigned char first)
{
    if (first < 0x80)
        return 0;
    if (first >= 0xC2 && first < 0xE0)
        return 1;
    if (first >= 0xE0 && first < 0xF0)
        return 2;
    return first >= 0xF0 && first < 0xF5 ? 3 : -1;
}

/* The next character: its code point, 0xFFFD for what a page must not hold; *s moves past it. */
static unsigned text_next(const char **s)
{
    static const unsigned least[] = { 0, 0x80, 0x800, 0x10000 };
    const unsigned char *p = (const unsigned char *)*s;
    int n = following(*p);
    unsigned c = n <= 0 ? *p : *p & (0x3Fu >> n);

    *s += 1;
    if (n < 0)
        return REPLACEMENT;
    for (int i = 1; i <= n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return REPLACEMENT;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    *s += n;
    return c < least[n] || harmful(c) ? REPLACEMENT : c;
}

static void text_char(struct text *t, unsigned c)
{
    char b[4];

    if (c < 0x80) {
        b[0] = (char)c;
        text_bytes(t, b, 1);
    } else if (c < 0x800) {
        b[0] = (char)(0xC0 | c >> 6);
        b[1] = (char)(0x80 | (c & 0x3F));
        text_bytes(t, b, 2);
    } else if (c < 0x10000) {
        b[0] = (char)(0xE0 | c >> 12);
        b[1] = (char)(0x80 | (c >> 6 & 0x3F));
        b[2] = (char)(0x80 | (c & 0x3F));
        text_bytes(t, b, 3);
    } else {
        b[0] = (char)(0xF0 | c >> 18);
        b[1] = (char)(0x80 | (c >> 12 & 0x3F));
        b[2] = (char)(0x80 | (c >> 6 & 0x3F));
        b[3] = (char)(0x80 | (c & 0x3F));
        text_bytes(t, b, 4);
    }
}

static int columns_of(unsigned c)
{
    return c >= 0x1100 && c != REPLACEMENT && !(c >= 0x2000 && c < 0x2E80) ? 2 : 1;
}

int text_columns(const char *s)
{
    int n = 0;

    while (*s)
        n += columns_of(text_next(&s));
    return n;
}

void text_cut(struct text *t, const char *s, int columns)
{
    bool cut = text_columns(s) > columns;
    int left = cut ? columns - 1 : columns;

    while (*s) {
        unsigned c = text_next(&s);
        left -= columns_of(c);
        if (left < 0)
            break;
        text_char(t, c);
    }
    if (cut)
        text_char(t, 0x2026);
}

/* ---- formats ---- */

void text_html(struct text *t, const char *s)
{
    while (*s) {
        unsigned c = text_next(&s);
        switch (c) {
        case '&':  text_put(t, "&amp;");  break;
        case '<':  text_put(t, "&lt;");   break;
        case '>':  text_put(t, "&gt;");   break;
        case '"':  text_put(t, "&quot;"); break;
        case '\'': text_put(t, "&#39;");  break;
        case '\n': case '\t': text_put(t, " "); break;
        default:   text_char(t, c);
        }
    }
}

void text_csv(struct text *t, const char *s)
{
    bool formula = *s && strchr("=+-@\t", *s), quote = formula || strpbrk(s, ",\"\r\n '");

    if (quote)
        text_put(t, "\"");
    if (formula)
        text_put(t, "'");
    while (*s) {
        unsigned c = text_next(&s);
        text_put(t, c == '"' ? "\"" : "");
        text_char(t, c);
    }
    if (quote)
        text_put(t, "\"");
}

void text_markdown(struct text *t, const char *s)
{
    while (*s) {
        unsigned c = text_next(&s);
        if (c == '\n' || c == '\t')
            c = ' ';
        if (c == '<' || c == '&' || c == '>') {
            text_put(t, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
            continue;
        }
        if (c < 0x80 && c && (strchr("\\`*_[]|~", (int)c) || (c == ':' && *s == '/')))
            text_put(t, "\\");
        text_char(t, c);
    }
}

/* ---- copies ---- */

struct kept { struct kept *next; char s[]; };

const char *text_keep(struct kept **k, const char *s)
{
    size_t n = strlen(s) + 1;
    struct kept *new = malloc(sizeof *new + n);

    if (!new)
        abort();
    memcpy(new->s, s, n);
    new->next = *k;
    *k = new;
    return new->s;
}

void text_kept_free(struct kept *k)
{
    while (k) {
        struct kept *next = k->next;
        free(k);
        k = next;
    }
}
