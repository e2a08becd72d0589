/* fail.c -- one line for an error, on stderr or where the caller diverts it. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

/* Bytes of a message.  Of a longer one (a name from a file has any length) the beginning, which says
 * where, and the end, which says what would be right. */
enum { MOST = 1500, HEAD = 1000, TAIL = 450 };

/* Per thread: a search asks many plans at once. */
static _Thread_local char  *captured;
static _Thread_local size_t capacity;

/* Leaves out of `text`, n bytes of UTF-8, what is too long. */
static void shorten(char *text, size_t n)
{
    char mark[48];
    size_t head = HEAD, tail = n - TAIL;

    if (n <= MOST)
        return;
    while (((unsigned char)text[head] & 0xc0) == 0x80)          /* not inside a character */
        head--;
    while (((unsigned char)text[tail] & 0xc0) == 0x80)
        tail++;
    int length = snprintf(mark, sizeof mark, "...[%zu bytes]...", tail - head);
    memmove(text + head + length, text + tail, n - tail + 1);
    memcpy(text + head, mark, (size_t)length);
}

static _Thread_local void (*clears)(void);

void fail_clears(void (*clear)(void)) { clears = clear; }

void fail_clear(void)
{
    if (clears)
        clears();
}

/* What this thread printed, too. */
static _Thread_local char  *copy_to;
static _Thread_local size_t copy_size;

void fail_copies(char *to, size_t size)
{
    copy_to = to;
    copy_size = size;
    to[0] = '\0';
}

void fail_copied(const char *line)
{
    size_t n = copy_to ? strlen(copy_to) : 0;

    if (copy_to)
        snprintf(copy_to + n, copy_size - n, "%s%s", n ? "\n" : "", line);
}

/* What was said, in one line, on stderr or where it is captured. */
static void tell(const char *text)
{
    char room[4 * MOST], *line = room;
    size_t size = 4 * strlen(text) + 1;         /* an escape has at most four bytes for one */

    if (size > sizeof room && !(line = malloc(size))) {
        line = room;                            /* out of memory: without its end */
        size = sizeof room;
    }
    shorten(line, printable_copy(line, size, text));
    if (captured)
        snprintf(captured, capacity, "%s", line);
    else {
        fail_clear();
        fprintf(stderr, "dpx: %s\n", line);
        fail_copied(line);
    }
    if (line != room)
        free(line);
}

int fail(const char *fmt, ...)
{
    char room[MOST], *text = room;
    va_list ap, again;

    if (captured && capacity < 2)               /* nobody reads it */
        return -1;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(room, sizeof room, fmt, ap);
    if (n >= (int)sizeof room && (text = malloc((size_t)n + 1)))
        vsnprintf(text, (size_t)n + 1, fmt, again);
    tell(n < 0 ? fmt : text ? text : room);
    if (text != room)
        free(text);
    va_end(again);
    va_end(ap);
    return -1;
}

void fail_capture(char *into, size_t size)
{
    captured = into;
    capacity = size;
    if (into && size)
        into[0] = '\0';
}

struct fail_sink fail_divert(char *into, size_t size)
{
    struct fail_sink before = { captured, capacity };

    fail_capture(into, size);
    return before;
}

void fail_restore(struct fail_sink before)
{
    captured = before.into;
    capacity = before.size;
}
