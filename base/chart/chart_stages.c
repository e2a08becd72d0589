/* chart_stages.c -- see chart_stages.h. */
#include "base/chart/chart_stages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/chart/meaning.h"

static const struct { const char *words, *work; } of[NSTAGE_DOES] = {
    [STAGE_FORWARD] = { "forward", "forward" },         [STAGE_BACKWARD] = { "backward", "backward" },
    [STAGE_WEIGHTS] = { "weight gradients", "weights" }, [STAGE_OPTIMIZER] = { "optimizer", "optimizer" },
    [STAGE_COLLECTIVE] = { "collectives", "collective" }, [STAGE_MESSAGE] = { "messages", "message" },
};
static const char bubble[] = "bubble";
enum { BUBBLE = CHART_PALE };

static void part(struct chart *c, const char *name, int colour)
{
    for (int i = 0; i < c->nparts; i++)
        if (!strcmp(c->part[i], name))
            return;
    chart_part(c, name, colour);
}

static void put(struct chart *c, int row, enum stage_does does, int number, double from, double to)
{
    char what[64];

    if (!(to > from))
        return;
    int colour = meaning_colour(MEANING_WORK, of[does].work);
    part(c, of[does].words, colour);
    if (number < 0)
        snprintf(what, sizeof what, "%s", of[does].words);
    else
        snprintf(what, sizeof what, "%s, micro-step %d", of[does].words, number);
    chart_span(c, row, colour, from, to, what);
}

/* Beside computing, on streams of their own. */
static bool beside(const struct chart_stage_span *s) { return s->does == STAGE_MESSAGE || s->does == STAGE_COLLECTIVE; }

/* Between two times in which nothing is computed: collectives and messages, else bubble. */
static void fill(struct chart *c, int row, const struct chart_stage *stage, double from, double to)
{
    double at = from;

    for (int64_t i = 0; i < stage->n; i++) {
        const struct chart_stage_span *s = &stage->span[i];
        double begin = fmax(s->from, at), end = fmin(s->to, to);
        if (!beside(s) || !(end > begin))
            continue;
        if (begin > at)
            chart_span(c, row, BUBBLE, at, begin, bubble);
        put(c, row, s->does, s->number, begin, end);
        at = end;
    }
    if (to > at)
        chart_span(c, row, BUBBLE, at, to, bubble);
}

static void lane(struct chart *c, int row, const struct chart_stage *stage, double until)
{
    double at = 0;

    for (int64_t i = 0; i < stage->n; i++) {
        const struct chart_stage_span *s = &stage->span[i];
        if (beside(s) || !(s->to > at))
            continue;
        if (s->from > at)
            fill(c, row, stage, at, s->from);
        put(c, row, s->does, s->number, fmax(s->from, at), s->to);
        at = s->to;
    }
    if (until > at)
        fill(c, row, stage, at, until);
}

void chart_stages(struct chart *c, const char *head, const struct chart_stage *stage, int n, double until)
{
    char name[64];

    c->apart = true;
    c->range[1] = fmax(c->range[1], until);
    if (head) {
        snprintf(name, sizeof name, "#%s", head);
        chart_row(c, name);
    }
    for (int i = 0; i < n; i++)
        lane(c, chart_row(c, stage[i].name), &stage[i], until);
    part(c, bubble, BUBBLE);
}
