/* unread.c -- see unread.h. */
#include "model/exchange/unread.h"

#include <inttypes.h>
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
    const char *dot = strrchr(key, '.');

    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(names[i]);
        if (names[i][m - 1] == '*' ? !strncmp(key, names[i], m - 1) && unread_is_name(dot ? dot + 1 : key) : !strcmp(key, names[i]))
            return true;
    }
    return false;
}

static void flush(struct unread *u)
{
    if (u->n > 0)
        notes_add(u->notes, "not known, and may matter to memory or time: %s", u->text);
    u->n = 0;
}

void unread_add(struct unread *u, const char *key, const char *why, bool silent)
{
    if (why) {
        notes_add(u->notes, "%s is not in the plan: %s", key, why);
        return;
    }
    if (silent)
        return;
    if (u->n + strlen(key) + 3 > sizeof u->text - 40)       /* a line is as long as there is room for */
        flush(u);
    u->n += (size_t)snprintf(u->text + u->n, sizeof u->text - u->n, "%s%.90s", u->n ? ", " : "", key);
}

static void list_names(struct unread *u, const json_t *v, const char *path, int depth)
{
    char at[256];
    const char *key;
    json_t *each;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)v, i, each)
        if (depth > 0)
            list_names(u, each, path, depth - 1);
    json_object_foreach((json_t *)(uintptr_t)v, key, each) {
        snprintf(at, sizeof at, "%.140s.%.100s", path, key);
        if (!unread_is_name(key) && !strchr(key, '/'))          /* a data set's id is no name of a key */
            unread_add(u, at, NULL, false);
        else if (depth > 0)
            list_names(u, each, at, depth - 1);
    }
}

void unread_section(struct unread *u, const char *path, const json_t *v) { list_names(u, v, path, 12); }

void unread_end(struct unread *u) { flush(u); }

void unread_ranks(struct notes *notes, const char *key, int64_t stated, int64_t ranks)
{
    if (stated > 0 && stated != ranks)
        notes_add(notes, "%s: the file starts %" PRId64 " ranks, the plan has %" PRId64 ", those of --cluster", key, stated, ranks);
}
