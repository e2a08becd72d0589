/* notes.c -- sentences beside a result: warnings and remarks, printed or collected. */
#include "base/notes.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/page.h"
#include "base/printable.h"

enum { ROOM = sizeof ((struct notes *)0)->text / sizeof ((struct notes *)0)->text[0], LINE = 1024 };

/* Per thread: each call of a library has notes of its own. */
static _Thread_local json_t *diverted;
/* What notes_say_once() said last, as hashes; 0: nothing. */
static _Thread_local uint64_t said[16];
static _Thread_local unsigned nsaid;

void notes_add(struct notes *to, const char *fmt, ...)
{
    va_list ap;

    if (!to)
        return;
    if (to->n < ROOM) {
        va_start(ap, fmt);
        vsnprintf(to->text[to->n], sizeof to->text[0], fmt, ap);
        va_end(ap);
        for (int i = 0; i < to->n; i++)
            if (!strcmp(to->text[i], to->text[to->n]))
                return;                         /* said before, of another model of the same file */
    }
    to->n++;
}

struct json_t *notes_divert(struct json_t *into)
{
    json_t *before = diverted;

    diverted = into;
    return before;
}

static void keep(const char *line)
{
    const json_t *v;
    size_t i;

    json_array_foreach(diverted, i, v)
        if (!strcmp(json_string_value(v), line))
            return;
    json_array_append_new(diverted, json_string(line));
}

static void say(const char *text)
{
    char line[4 * LINE];                        /* an escape has at most four bytes for one */

    printable_copy(line, sizeof line, text);
    if (diverted) {
        keep(line);
        return;
    }
    /* Who reads them where no width is known, a log or a script, has them a line each. */
    fail_clear();
    FILE *page = isatty(STDERR_FILENO) || getenv("COLUMNS") ? page_open(stderr) : NULL;
    fprintf(page ? page : stderr, "%s\n", line);
    if (page)
        page_close(page);
}

void notes_say(const char *fmt, ...)
{
    char text[LINE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    say(text);
}

static bool was_said(const char *text)
{
    enum { MOST = sizeof said / sizeof *said };
    uint64_t hash = HASH_BEGIN;

    for (const char *c = text; *c; c++)
        hash = hash_mix(hash, (unsigned char)*c);
    hash |= 1;
    for (unsigned i = 0; i < MOST; i++)
        if (said[i] == hash)
            return true;
    said[nsaid++ % MOST] = hash;
    return false;
}

void notes_say_once(const char *fmt, ...)
{
    char text[LINE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (diverted || !was_said(text))
        say(text);
}

void notes_print(const struct notes *n, const char *where)
{
    for (int i = 0; i < n->n && i < ROOM; i++)
        notes_say("dpx: %s: note: %s", where, n->text[i]);
    if (n->n > ROOM)
        notes_say("dpx: %s: %d more notes", where, n->n - ROOM);
}
