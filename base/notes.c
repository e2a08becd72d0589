#include "base/notes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"

enum { ROOM = sizeof ((struct notes *)0)->text / sizeof ((struct notes *)0)->text[0] };

void notes_add(struct notes *to, const char *fmt, ...)
{
    va_list ap;

    if (!to)
        return;
    if (to->n < ROOM) {
        va_start(ap, fmt);
        vsnprintf(to->text[to->n], sizeof to->text[0], fmt, ap);
        va_end(ap);
    }
    to->n++;
}

void notes_print(const struct notes *n, const char *where)
{
    char line[4 * sizeof n->text[0]];       /* a note may quote a key of the file */

    for (int i = 0; i < n->n && i < ROOM; i++) {
        printable_copy(line, sizeof line, n->text[i]);
        fprintf(stderr, "dpx: %s: note: %s\n", where, line);
    }
    if (n->n > ROOM)
        fprintf(stderr, "dpx: %s: %d more notes\n", where, n->n - ROOM);
}
