#include "model/fail.h"

#include <stdarg.h>
#include <stdio.h>

/* Per thread: a search asks many plans at once. */
static _Thread_local char  *captured;
static _Thread_local size_t capacity;

int fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (captured) {
        vsnprintf(captured, capacity, fmt, ap);
    } else {
        fputs("dpx: ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
    }
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
