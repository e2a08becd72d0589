/* meaning.c -- see meaning.h. */
#include "base/chart/meaning.h"

#include <string.h>

#include "base/chart/chart.h"

struct coloured { const char *name; int colour; };

static const struct coloured categories[] = {
    { "params", 0 }, { "grads", 1 }, { "optimizer", 2 }, { "activations", 5 }, { "temporaries", 4 },
    { "unsharded params", 8 }, { "unsharded grads", 6 }, { "all-gather", 3 }, { "reduce-scatter", 7 }, { "bucket", 11 }, { "overhead", 9 }, { NULL, 10 },
};
static const struct coloured ops[] = {
    { "all_gather", 4 }, { "reduce_scatter", 1 }, { "all_reduce", 3 }, { "broadcast", 6 }, { "reduce", 7 }, { "scatter", 8 },
    { "gather", 10 }, { "all_to_all", 0 }, { "send", 9 }, { "recv", 5 }, { NULL, 11 },
};
static const struct coloured work[] = {
    { "forward", 5 }, { "backward", 0 }, { "weights", 8 }, { "optimizer", 2 }, { "collective", 4 }, { "message", 1 },
    { "copy", 9 }, { "wait", CHART_PALE }, { NULL, 0 },
};
static const struct coloured phases[] = {
    { "compute", 5 }, { "exposed communication", 1 }, { "optimizer", 2 }, { "idle", 9 }, { "bubble", CHART_PALE }, { NULL, 7 },
};
static const struct { const char *name; const struct coloured *of; } tables[NMEANING] = {
    { "category", categories }, { "op", ops }, { "work", work }, { "phase", phases },
};

int meaning_colour(enum meaning of, const char *name)
{
    const struct coloured *c = tables[of].of;

    while (c->name && strcmp(c->name, name))
        c++;
    return c->colour;
}

const char *meaning_name(enum meaning of) { return tables[of].name; }

const char *meaning_at(enum meaning of, int i, int *colour)
{
    *colour = tables[of].of[i].colour;
    return tables[of].of[i].name;
}
