/* cover.c -- see cover.h. */
#include "base/cover.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"

void cover_add(struct cover *c, int64_t from, int64_t to)
{
    struct cover_stretch *last = c->n ? &c->at[c->n - 1] : NULL;

    assert(!last || from >= last->from);
    if (to <= from)
        return;
    if (last && from <= last->to) {
        last->to = to > last->to ? to : last->to;
        return;
    }
    c->at = room_for(c->at, c->n, &c->room, sizeof *c->at);
    last = c->n ? &c->at[c->n - 1] : NULL;
    c->at[c->n++] = (struct cover_stretch){ from, to, last ? last->before + last->to - last->from : 0 };
}

/* Covered before t. */
static int64_t until(const struct cover *c, int64_t t)
{
    int64_t lo = 0, hi = c->n;          /* stretches [0, lo) begin before t */

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (c->at[mid].from < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return 0;
    const struct cover_stretch *s = &c->at[lo - 1];
    return s->before + (s->to < t ? s->to : t) - s->from;
}

int64_t cover_free_of(const struct cover *c, int64_t from, int64_t to)
{
    return to <= from ? 0 : to - from - (until(c, to) - until(c, from));
}

void cover_free(struct cover *c)
{
    free(c->at);
    memset(c, 0, sizeof *c);
}
