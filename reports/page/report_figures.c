/* report_figures.c -- memory, phases and collectives of each run as bars; its step and its memory over a step. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/meaning.h"
#include "reports/page/report.h"

/* ---- colours ---- */

int figure_colour_of_strategy(const char *strategy)
{
    static const int of[] = { 9, 0, 5, 2, 3, 1, 10 };

    return of[compare_strategy_rank(strategy)];
}

/* ---- memory by category ---- */

/* The rank whose parts are drawn: the one that was predicted to be the fullest, else the fullest. */
static int64_t drawn_rank(const struct run_parts *p)
{
    int64_t rank = -1, most = -1, sum = 0;

    for (int64_t i = 0; i < p->n; i++) {
        if (p->part[i].predicted_bytes >= 0)
            return p->part[i].rank;
        if (runs_part_elsewhere(&p->part[i]))
            continue;
        sum = i > 0 && p->part[i - 1].rank == p->part[i].rank ? sum + p->part[i].bytes : p->part[i].bytes;
        if (sum > most) {
            most = sum;
            rank = p->part[i].rank;
        }
    }
    return rank;
}

/* A part of the chart for every name; its index. */
static int part_named(struct chart *c, const char *name, int colour)
{
    for (int i = 0; i < c->nparts; i++)
        if (!strcmp(c->part[i], name))
            return i;
    if (c->nparts == MAX_PARTS)
        return MAX_PARTS - 1;
    return chart_part(c, name, colour);
}

static void memory_bar(struct chart *c, const struct chosen *r, int64_t rank, bool predicted)
{
    char key[96], label[200];

    snprintf(label, sizeof label, "%s, rank %" PRId64, r->label, rank);
    struct bar *b = chart_bar(c, predicted ? label : NULL, predicted ? "predicted" : "measured", predicted);
    for (int64_t i = 0; i < r->parts.n; i++) {
        const struct run_part *p = &r->parts.part[i];
        int64_t bytes = predicted ? p->predicted_bytes : p->bytes;
        if (p->rank == rank && bytes > 0 && !runs_part_elsewhere(p))
            b->part[part_named(c, p->category, meaning_colour(MEANING_CATEGORY, p->category))] += (double)bytes;
    }
    if (r->available > 0)
        b->limit = (double)r->available;
    snprintf(key, sizeof key, "memory/%" PRId64 ".%" PRId64 ".together/%s", r->rec.row.id, rank,
             predicted ? "predicted_bytes" : "bytes");
    b->key = chart_bar_sum(c, b) > 0 ? text_keep(&c->kept, key) : NULL;      /* nothing: not known */
}

/* A line far beyond the bars would leave them no room: then it is said instead. */
static bool limit_in_sight(const struct comparison *c, const struct chosen *x)
{
    double most = 0;

    for (int i = 0; i < c->n; i++) {
        const struct run_row *r = &c->run[i].rec.row;
        most = fmax(most, fmax((double)r->allocated_bytes, (double)r->predicted.allocated_bytes));
    }
    return (double)x->available < 4 * most;
}

static void memory_figure(struct report *r)
{
    const struct comparison *c = r->c;
    bool sight = true;
    struct chart *k;
    int n = 0;

    for (int i = 0; i < c->n; i++) {
        n += c->run[i].parts.n > 0;
        sight &= limit_in_sight(c, &c->run[i]);
    }
    if (n == 0) {
        report_missing(r, "Memory by category",
                       "no run recorded it (a dpx older than this one, or none finished)");
        return;
    }
    k = report_chart(
        r, CHART_BARS, "memory", "Memory at the peak, by category",
        sight ? "What is allocated on one rank; predicted (pale) above measured. Dashed: what a rank may use."
              : "What is allocated on one rank; predicted (pale) above measured. Dashed: what a rank may use, "
                "but where that is more than four times the largest peak (see the table of memory).");
    chart_axis(k, AXIS_X, "bytes allocated at the peak", UNIT_BYTES, false);
    for (int i = 0; i < c->n; i++) {
        const struct chosen *x = &c->run[i];
        if (x->parts.n == 0)
            continue;
        memory_bar(k, x, drawn_rank(&x->parts), true);
        memory_bar(k, x, drawn_rank(&x->parts), false);
        for (int b = k->nbars - 2; !limit_in_sight(c, x) && b < k->nbars; b++)
            k->bar[b].limit = NAN;
    }
}

/* ---- collectives ---- */

static void comm_bar(struct chart *k, const struct chosen *x, bool predicted)
{
    char label[200];

    snprintf(label, sizeof label, "%s, %" PRId64 " steps", x->label, x->rec.row.steps);
    struct bar *b = chart_bar(k, predicted ? label : NULL, predicted ? "predicted" : "measured", predicted);
    for (int64_t i = 0; i < x->rec.ncomm; i++) {
        const struct run_comm_row *m = &x->rec.comm[i];
        int64_t bytes = predicted ? m->predicted_bytes : m->bytes;
        if (bytes > 0)
            b->part[part_named(k, m->op, meaning_colour(MEANING_OP, m->op))] += (double)bytes;
    }
    snprintf(label, sizeof label, "comm/%" PRId64 ".together/%s", x->rec.row.id,
             predicted ? "predicted_bytes" : "bytes");
    b->key = chart_bar_sum(k, b) > 0 ? text_keep(&k->kept, label) : NULL;
}

static void comm_figure(struct report *r)
{
    const struct comparison *c = r->c;
    struct chart *k = NULL;

    for (int i = 0; i < c->n; i++) {
        if (c->run[i].rec.ncomm == 0)
            continue;
        if (!k)
            k = report_chart(
                r, CHART_BARS, "collectives-bytes", "Bytes by collective",
                "Full buffers of all calls of the whole run, the first weights included; predicted (pale) "
                "above counted.");
        comm_bar(k, &c->run[i], true);
        comm_bar(k, &c->run[i], false);
    }
    if (k)
        chart_axis(k, AXIS_X, "bytes", UNIT_BYTES, false);
    else
        report_missing(r, "Bytes by collective", "no run recorded any");
}

/* ---- phases ---- */

/* Measured phases are of the last sampled step, of which a bar is as long as the figure beside it. */
static double bar_seconds(const struct report *r, const struct chosen *x, char key[64])
{
    double s = 0;

    for (int64_t i = 0; i < x->rec.nphase; i++)
        s += x->rec.phase[i].seconds > 0 ? x->rec.phase[i].seconds : 0;
    if (!(s > 0))
        return NAN;
    report_fact_row(r, UNIT_SECONDS, s, "bar", x->rec.row.id, key);
    return s;
}

static void phase_bar(struct report *r, struct chart *k, const struct chosen *x, bool predicted)
{
    const struct run_row *row = &x->rec.row;
    char key[64];
    struct bar *b = chart_bar(k, predicted ? x->label : NULL, predicted ? "predicted" : "measured",
                              predicted);

    for (int64_t i = 0; i < x->rec.nphase; i++) {
        const struct run_phase_row *p = &x->rec.phase[i];
        double s = predicted ? p->predicted_s : p->seconds;
        if (s > 0)
            b->part[part_named(k, p->name, meaning_colour(MEANING_PHASE, p->name))] += s;
    }
    b->low = predicted && row->has_prediction ? row->predicted.low_s : predicted ? NAN : row->end.p10_s;
    b->high = predicted && row->has_prediction ? row->predicted.high_s : predicted ? NAN : row->end.p90_s;
    b->middle = predicted ? NAN : row->end.step_s;
    snprintf(key, sizeof key, "runs/%" PRId64 "/predicted_step_s", row->id);
    b->value = predicted ? (row->has_prediction ? row->predicted.step_s : NAN) : bar_seconds(r, x, key);
    if (isnan(b->value))
        return;
    b->key = text_keep(&k->kept, key);
}

static void phases_figure(struct report *r)
{
    const struct comparison *c = r->c;
    struct chart *k = NULL;

    for (int i = 0; i < c->n; i++) {
        if (c->run[i].rec.nphase == 0)
            continue;
        if (!k)
            k = report_chart(
                r, CHART_BARS, "phases", "Time of a steady step, by phase",
                "Bars: phases as predicted (pale), and as measured in the last sampled step. Whiskers: the "
                "prediction's 90 % interval; the 10th to the 90th percentile of all steady steps, whose "
                "median is the dot. The figure beside a bar is the bar's length.");
        phase_bar(r, k, &c->run[i], true);
        phase_bar(r, k, &c->run[i], false);
    }
    if (k)
        chart_axis(k, AXIS_X, "time", UNIT_SECONDS, false);
    else
        report_missing(r, "Step time by phase", "no run recorded phases");
}

/* ---- timeline ---- */

static int colour_of_entry(const struct run_entry *e, const char **part)
{
    const char *what = e->what ? e->what : "";

    *part = NULL;
    if (!strcmp(e->kind, "collective")) {
        *part = what;
        return meaning_colour(MEANING_OP, what);
    }
    if (!strcmp(e->kind, "optimizer")) {
        *part = "optimizer";
        return meaning_colour(MEANING_WORK, "optimizer");
    }
    if (!strcmp(e->kind, "copy")) {
        *part = "copies";
        return meaning_colour(MEANING_WORK, "copy");
    }
    if (strcmp(e->kind, "compute"))
        return -1;
    *part = !strcmp(what, "forward") || !strcmp(what, "backward") ? what : "compute";
    return meaning_colour(MEANING_WORK, !strcmp(what, "forward") ? "forward" : "backward");
}

static void stream_span(struct chart *k, const struct run_entry *e, int row, bool predicted)
{
    double from = predicted ? e->predicted_start_s : e->start_s,
           to = predicted ? e->predicted_end_s : e->end_s;
    const char *part;
    int colour = colour_of_entry(e, &part);
    char what[160];

    if (colour < 0 || !isfinite(from) || !(to > from))
        return;
    part_named(k, part, colour);
    snprintf(what, sizeof what, "%s%s%s", e->what ? e->what : "", e->unit ? " " : "", e->unit ? e->unit : "");
    chart_span(k, row, colour, from, to, what);
}

/* The rows of one side: its streams in order of appearance. */
static void stream_rows(struct chart *k, const struct chosen *x, bool predicted)
{
    const char *stream[16];
    int n = 0, first;

    chart_row(k, predicted ? "#predicted" : "#measured");
    first = k->nrows;
    for (int64_t i = 0; i < x->rec.nentry; i++) {
        const struct run_entry *e = &x->rec.entry[i];
        const char *part;
        int s = 0;
        if (!compare_entry_sampled(x, e) || colour_of_entry(e, &part) < 0)
            continue;
        while (s < n && strcmp(stream[s], e->stream))
            s++;
        if (s == 16)
            continue;
        if (s == n) {
            stream[n++] = e->stream;
            chart_row(k, e->stream);
        }
        stream_span(k, e, first + s, predicted);
    }
}

static void timeline_figure(struct report *r, const struct chosen *x)
{
    char id[48], title[240], caption[320];

    if (x->step < 0)
        return;
    snprintf(id, sizeof id, "timeline-%" PRId64, x->rec.row.id);
    snprintf(title, sizeof title, "One step of %s, stream by stream", x->label);
    snprintf(caption, sizeof caption,
             "Step %" PRId64 " of run %" PRId64 " on rank %" PRId64 ": predicted above, "
             "measured below, on one axis. Entries shorter than a pixel are drawn with a hair line.",
             x->step, x->rec.row.id, x->rank);
    struct chart *k = report_chart(r, CHART_SPANS, id, title, caption);
    chart_axis(k, AXIS_X, "time in the step", UNIT_SECONDS, false);
    if (!isnan(x->predicted_span))
        stream_rows(k, x, true);
    stream_rows(k, x, false);
}

/* ---- memory over a step ---- */

static void moments_figure(struct report *r, const struct chosen *x)
{
    const struct run_moments *m = &x->moments;
    char id[48], title[240];
    int predicted = -1, measured = -1;

    if (m->n == 0)
        return;
    snprintf(id, sizeof id, "memory-step-%" PRId64, x->rec.row.id);
    snprintf(title, sizeof title, "Memory over one step of %s", x->label);
    struct chart *k = report_chart(r, CHART_XY, id, title,
                                   "The most that is allocated on rank 0 while each entry of a "
                                   "steady step is issued: entries in order of issue, not time.");
    chart_axis(k, AXIS_X, "entry, in order of issue", UNIT_COUNT, false);
    chart_axis(k, AXIS_Y, "bytes allocated", UNIT_BYTES, false);
    for (int64_t i = 0; i < m->n; i++) {
        const struct run_moment *p = &m->moment[i];
        if (p->bytes >= 0 && measured < 0)
            measured = chart_series(k, "measured", 1, MARK_STEPS);
        if (p->predicted_bytes >= 0 && predicted < 0) {
            predicted = chart_series(k, "predicted", 0, MARK_STEPS);
            k->series[predicted].dashed = true;
        }
        if (p->bytes >= 0)
            chart_spot(k, measured, (double)p->position, (double)p->bytes);
        if (p->predicted_bytes >= 0)
            chart_spot(k, predicted, (double)p->position, (double)p->predicted_bytes);
    }
}

static void step_figures(struct report *r)
{
    const struct comparison *c = r->c;
    int before = r->ncharts;

    for (int i = 0; i < c->n; i++)
        timeline_figure(r, &c->run[i]);
    if (r->ncharts == before)
        report_missing(r, "Timelines of one step", "no run sampled a steady step");
    before = r->ncharts;
    for (int i = 0; i < c->n; i++)
        moments_figure(r, &c->run[i]);
    if (r->ncharts == before)
        report_missing(r, "Memory over one step", "no run recorded it");
}

void report_figures(struct report *r)
{
    memory_figure(r);
    comm_figure(r);
    phases_figure(r);
    report_stages_figures(r);
    step_figures(r);
}
