/* report_stages.c -- a pipeline's stages: by time, predicted above measured; where the time of each went; the bubble. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_stages.h"
#include "base/room.h"
#include "base/sort.h"
#include "reports/page/report.h"

/* ---- lanes ---- */

/* What an entry is part of, in the words of the database; NSTAGE_DOES: nothing that is drawn. */
static enum stage_does does(const struct run_entry *e)
{
    static const struct { const char *pass; enum stage_does does; } of[] = {
        { "forward", STAGE_FORWARD }, { "backward", STAGE_BACKWARD }, { "weights", STAGE_WEIGHTS },
        { "optimizer", STAGE_OPTIMIZER }, { "message", STAGE_MESSAGE },
    };

    for (size_t i = 0; e->pass && i < sizeof of / sizeof *of; i++)
        if (!strcmp(e->pass, of[i].pass))
            return of[i].does;
    return strcmp(e->kind, "collective") ? NSTAGE_DOES : STAGE_COLLECTIVE;
}

/* What communicates begins when all have come. */
static struct chart_stage_span span_of(const struct run_entry *e, bool predicted)
{
    struct chart_stage_span s = { does(e), (int)e->micro_step, predicted ? e->predicted_start_s : e->start_s,
                                  predicted ? e->predicted_end_s : e->end_s };

    if (!predicted && e->met_s > s.from)
        s.from = e->met_s;
    return s;
}

static bool computes(const struct chart_stage_span *s) { return s->does < STAGE_COLLECTIVE; }

static int by_begin(const void *a, const void *b)
{
    double x = ((const struct chart_stage_span *)a)->from, y = ((const struct chart_stage_span *)b)->from;

    return (x > y) - (x < y);
}

/* A pass is one span: its entries follow each other on the compute stream. */
static struct chart_stage_span *spans_of(const struct chosen *x, int64_t rank, bool predicted, int64_t *n)
{
    struct chart_stage_span *all = NULL;
    int64_t room = 0, under_way = -1;

    *n = 0;
    for (int64_t i = 0; i < x->rec.nentry; i++) {
        const struct run_entry *e = &x->rec.entry[i];
        struct chart_stage_span s = span_of(e, predicted);
        if (e->step != x->step || e->rank != rank || s.does == NSTAGE_DOES || !(s.to > s.from))
            continue;
        if (computes(&s) && under_way >= 0 && all[under_way].does == s.does && all[under_way].number == s.number) {
            all[under_way].to = s.to;
            continue;
        }
        all = room_for(all, *n, &room, sizeof *all);
        under_way = computes(&s) ? *n : under_way;
        all[(*n)++] = s;
    }
    if (*n > 0)
        sort_stable(all, (size_t)*n, sizeof *all, by_begin);
    return all;
}

static double step_of(const struct run_stage_s *s) { return s->work + s->messages + s->bubble; }

static void lanes(struct chart *k, const struct chosen *x, bool predicted)
{
    const struct run_stages *all = &x->stages;
    struct chart_stage *lane = room_new((size_t)all->n, sizeof *lane);
    char (*name)[24] = room_new((size_t)all->n, sizeof *name);

    for (int i = 0; i < all->n; i++) {
        snprintf(name[i], sizeof name[i], "stage %" PRId64, all->stage[i].stage);
        lane[i].name = name[i];
        lane[i].span = spans_of(x, all->stage[i].rank, predicted, &lane[i].n);
    }
    chart_stages(k, predicted ? "predicted" : "measured", lane, all->n,
                 step_of(predicted ? &all->stage[0].predicted : &all->stage[0].measured));
    for (int i = 0; i < all->n; i++)
        free((void *)(uintptr_t)lane[i].span);
    free(lane);
    free(name);
}

static bool both_sides(const struct chosen *x)
{
    return x->stages.n > 0 && x->step >= 0 && isfinite(step_of(&x->stages.stage[0].measured));
}

static void figure(struct report *r, const struct chosen *x)
{
    char id[48], title[240], caption[320];

    snprintf(id, sizeof id, "stages-%" PRId64, x->rec.row.id);
    snprintf(title, sizeof title, "Stages by time, %s", x->label);
    snprintf(caption, sizeof caption,
             "Step %" PRId64 " of run %" PRId64 ", one rank of each stage: predicted above, measured below, on one axis. A message "
             "begins when both of its ranks have come to it; until then, and where nothing else runs, there is bubble.",
             x->step, x->rec.row.id);
    struct chart *k = report_chart(r, CHART_SPANS, id, title, caption);
    chart_axis(k, AXIS_X, "time in the step", UNIT_SECONDS, false);
    lanes(k, x, true);
    lanes(k, x, false);
}

void report_stages_figures(struct report *r)
{
    for (int i = 0; i < r->c->n; i++)
        if (both_sides(&r->c->run[i]))
            figure(r, &r->c->run[i]);
}

/* ---- the table ---- */

static void row(struct table *t, const struct chosen *x, const struct run_stage *s)
{
    const struct run_stage_s *const sides[] = { &s->predicted, &s->measured };

    table_row(t, "%" PRId64 ".%" PRId64, x->rec.row.id, s->stage);
    table_number(t, (double)x->rec.row.id);
    table_text(t, x->label);
    table_number(t, (double)s->stage);
    table_number(t, (double)s->rank);
    for (int i = 0; i < 2; i++) {
        table_number(t, sides[i]->work);
        table_number(t, sides[i]->messages);
        table_number(t, sides[i]->bubble);
        table_number(t, sides[i]->bubble / step_of(sides[i]));
    }
}

struct table *report_stages_table(const struct comparison *c)
{
    static const struct { const char *id, *title; enum measure unit; } columns[] = {
        { "predicted_work_s", "Works, predicted", UNIT_SECONDS }, { "predicted_messages_s", "Messages, predicted", UNIT_SECONDS },
        { "predicted_bubble_s", "Bubble, predicted", UNIT_SECONDS }, { "predicted_bubble", "of the step", UNIT_SHARE },
        { "work_s", "Works", UNIT_SECONDS }, { "messages_s", "Messages", UNIT_SECONDS },
        { "bubble_s", "Bubble", UNIT_SECONDS }, { "bubble", "of the step", UNIT_SHARE },
    };
    struct table *t = table_new("stages", "Stages of pipelines: where the time of a steady step went");

    table_column(t, "run", "Run", UNIT_ID, SHOWN);
    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
    table_column(t, "stage", "Stage", UNIT_ID, SHOWN);
    table_column(t, "rank", "Rank", UNIT_ID, SHOWN);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        table_column(t, columns[i].id, columns[i].title, columns[i].unit, SHOWN);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->run[i].stages.n; k++)
            row(t, &c->run[i], &c->run[i].stages.stage[k]);
    return t;
}

/* ---- in words ---- */

static int busiest(const struct run_stages *all, bool predicted)
{
    int most = 0;

    for (int i = 1; i < all->n; i++)
        if ((predicted ? all->stage[i].predicted.work : all->stage[i].measured.work) >
            (predicted ? all->stage[most].predicted.work : all->stage[most].measured.work))
            most = i;
    return most;
}

static void stage_number(struct prose *p, const struct chosen *x, int stage, const char *column, enum measure u, double v)
{
    char key[96];

    snprintf(key, sizeof key, "stages/%" PRId64 ".%d/%s", x->rec.row.id, stage, column);
    prose_number(p, key, u, v);
}

static void words_of(struct report *r, struct prose *p, const struct chosen *x)
{
    const struct run_stages *all = &x->stages;
    int predicted = busiest(all, true), measured = busiest(all, false);

    prose_name(p, x->label);
    prose_put(p, ", ");
    prose_run(p, x->rec.row.id);
    prose_put(p, ": the bubble was predicted to be ");
    report_fact(r, p, UNIT_SHARE, runs_stages_bubble(all->stage, all->n, true), "predicted_bubble", x->rec.row.id);
    prose_put(p, " of the stages' time and was ");
    report_fact(r, p, UNIT_SHARE, runs_stages_bubble(all->stage, all->n, false), "bubble", x->rec.row.id);
    prose_put(p, ". Stage ");
    stage_number(p, x, measured, "stage", UNIT_ID, measured);
    prose_put(p, " works most, ");
    stage_number(p, x, measured, "work_s", UNIT_SECONDS, all->stage[measured].measured.work);
    prose_put(p, " of ");
    report_fact(r, p, UNIT_SECONDS, step_of(&all->stage[measured].measured), "stages_step", x->rec.row.id);
    if (predicted != measured) {
        prose_put(p, "; predicted was stage ");
        stage_number(p, x, predicted, "stage", UNIT_ID, predicted);
    }
    prose_put(p, ".");
    prose_end(p);
}

void report_stages_words(struct report *r)
{
    for (int i = 0; i < r->c->n; i++) {
        const struct chosen *x = &r->c->run[i];
        if (both_sides(x))
            words_of(r, r->words[WORDS_PIPELINE], x);
        else if (x->stages.n > 0)
            report_missing(r, x->label, "no steady step of all its stages was sampled: their times are predicted only");
    }
}
