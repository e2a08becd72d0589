/* unread.c -- see unread.h. */
#include "model/exchange/unread.h"

#include <stdio.h>
#include <string.h>

bool unread_asks_nothing(const json_t *v)
{
    const char *s = json_string_value(v);

    return json_is_null(v) || json_is_false(v) || (json_is_number(v) && !(json_number_value(v) < 0) && !(json_number_value(v) > 0))
        || (s && (!*s || !strcmp(s, "none"))) || (json_is_array(v) && json_array_size(v) == 0)
        || (json_is_object(v) && json_object_size(v) == 0);
}

bool unread_is_among(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(names[i]);
        if (names[i][m - 1] == '*' ? !strncmp(key, names[i], m - 1) : !strcmp(key, names[i]))
            return true;
    }
    return false;
}

static void flush(struct unread *u, bool silent)
{
    struct unread_line *l = &u->line[silent];

    if (l->n > 0)
        notes_add(u->notes, "%s: %s", silent ? "says nothing of a step's memory or time" : "not known, and may matter to memory or time", l->text);
    l->n = 0;
}

void unread_add(struct unread *u, const char *key, const char *why, bool silent)
{
    struct unread_line *l = &u->line[silent];

    if (why) {
        notes_add(u->notes, "%s matters, and is not followed: %s", key, why);
        return;
    }
    if (l->n + strlen(key) + 3 > sizeof l->text - 40)       /* a line is as long as there is room for */
        flush(u, silent);
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%.90s", l->n ? ", " : "", key);
}

void unread_end(struct unread *u)
{
    flush(u, false);
    flush(u, true);
}
