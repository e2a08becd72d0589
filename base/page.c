/* page.c -- a stream that gathers a line, cuts it at words and hands it on. */
#define _GNU_SOURCE             /* fopencookie() */
#include "base/page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/terminal.h"

enum { LEAST = 60, USUAL = 100, DEEPER = 2 };

struct page { FILE *self, *to; int width; char *line; size_t n; int64_t room; struct page *next; };

/* This thread's, the last one first: a stream does not say what it was made of. */
static _Thread_local struct page *pages;

static const struct page *page_of(FILE *f)
{
    const struct page *p = pages;

    while (p && p->self != f)
        p = p->next;
    return p;
}

int page_width(FILE *f)
{
    const struct page *p = page_of(f);
    int n = p ? p->width : terminal_width(f, USUAL);

    return n < LEAST ? LEAST : n;
}

const char *page_ink(FILE *f, enum terminal_ink ink)
{
    const struct page *p = page_of(f);

    return terminal_ink(p ? p->to : f, ink);
}

/* Bytes of the letter or of the escape sequence at s, and the columns that it takes. */
static size_t letter(const char *s, size_t n, int *columns)
{
    size_t length = 1;

    *columns = 0;
    if (s[0] == PAGE_HANG[0])
        return 1;
    if (s[0] == '\033') {
        while (length < n && s[length - 1] != 'm')
            length++;
        return length;
    }
    *columns = 1;
    while (length < n && ((unsigned char)s[length] & 0xc0) == 0x80)
        length++;
    return length;
}

int page_columns(const char *text, size_t n)
{
    int sum = 0, one;

    for (size_t at = 0; at < n; sum += one)
        at += letter(text + at, n - at, &one);
    return sum;
}

static void put(const char *s, size_t n, FILE *to)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != PAGE_HANG[0])
            fputc(s[i], to);
}

/* A line may end at a blank, but not between a number and its %. */
static bool may_end(const char *s, size_t n, size_t at) { return s[at] == ' ' && s[at - 1] != ' ' && (at + 1 >= n || s[at + 1] != '%'); }

/* Bytes of s that fit into the columns, up to a blank; where not even its first word does, that word. */
static size_t fitting(const char *s, size_t n, int columns)
{
    size_t best = 0, at = 0, lead = strspn(s, " ");
    int used = 0, one;

    while (at < n) {
        if (at > lead && may_end(s, n, at)) {
            if (used > columns && best)
                return best;
            best = at;
            if (used > columns)
                return best;
        }
        at += letter(s + at, n - at, &one);
        used += one;
    }
    return used <= columns || !best ? n : best;
}

/* Where the line goes on: under its mark, unless that leaves less than a third of the width. */
static int hang(const struct page *p)
{
    const char *mark = memchr(p->line, PAGE_HANG[0], p->n);
    int under = mark ? page_columns(p->line, (size_t)(mark - p->line)) : 0;

    return mark && under <= 2 * p->width / 3 ? under : (int)strspn(p->line, " ") + DEEPER;
}

static void put_line(struct page *p)
{
    int indent = hang(p);
    const char *s = p->line;
    size_t left, n;

    while (p->n > 0 && (p->line[p->n - 1] == ' ' || p->line[p->n - 1] == PAGE_HANG[0]))
        p->n--;
    left = p->n;
    n = fitting(s, left, p->width);

    put(s, n, p->to);
    for (s += n, left -= n; left > 0; s += n, left -= n) {
        size_t blanks = strspn(s, " ");
        s += blanks;
        left -= blanks;
        if (left == 0)
            break;
        n = fitting(s, left, p->width - indent);
        fprintf(p->to, "\n%*s", indent, "");
        put(s, n, p->to);
    }
    p->n = 0;
}

static ssize_t page_write(void *of, const char *text, size_t n)
{
    struct page *p = of;

    for (size_t i = 0; i < n; i++) {
        p->line = room_for(p->line, (int64_t)p->n, &p->room, 1);
        if (text[i] != '\n') {
            p->line[p->n++] = text[i];
            continue;
        }
        p->line[p->n] = '\0';
        put_line(p);
        fputc('\n', p->to);
    }
    return (ssize_t)n;
}

static int page_end(void *of)
{
    struct page *p = of, **at = &pages;

    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    if (p->n > 0) {
        p->line = room_for(p->line, (int64_t)p->n, &p->room, 1);
        p->line[p->n] = '\0';
        put_line(p);
    }
    free(p->line);
    free(p);
    return 0;
}

FILE *page_open(FILE *to)
{
    struct page *p = room_new(1, sizeof *p);
    FILE *f;

    *p = (struct page){ .to = to, .width = page_width(to) };
    f = fopencookie(p, "w", (cookie_io_functions_t){ .write = page_write, .close = page_end });
    if (f) {
        setvbuf(f, NULL, _IOLBF, 0);
        p->self = f;
        p->next = pages;
        pages = p;
        return f;
    }
    free(p);
    fail("no memory for what is printed");
    return NULL;
}

void page_close(FILE *page) { fclose(page); }
