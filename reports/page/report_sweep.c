/* report_sweep.c -- see report_sweep.h. */
#include "reports/page/report_sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_sweep.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/room.h"
#include "reports/page/report.h"

enum { MOST_POINTS = 50000 };

/* Values of an axis: those of its points, in the order in which they come. */
struct axis_values { const char **text; int64_t n, room; };

struct report_sweep {
    char  *path;
    json_t *doc;
    const json_t *points;
    struct axis_values axis[CHART_SWEEP_AXES];
    struct chart_sweep of;          /* its axes; at() is set by each figure */
    struct kept *kept;
};

/* ---- reading ---- */

/* A value as it was typed, or as near to it as JSON kept it. */
static const char *value_text(struct report_sweep *s, const json_t *v)
{
    char text[40];

    if (json_is_string(v))
        return json_string_value(v);
    if (!json_is_number(v))
        return NULL;
    snprintf(text, sizeof text, "%.12g", json_number_value(v));
    return text_keep(&s->kept, text);
}

static int read_axes(struct report_sweep *s)
{
    const json_t *over = json_object_get(s->doc, "over");

    s->of.naxes = (int)json_array_size(over);
    if (s->of.naxes < 1 || s->of.naxes > CHART_SWEEP_AXES)
        return fail("%s: \"over\" has to be the keys of 1 to %d axes: write the file with dpxplan sweep --json", s->path, CHART_SWEEP_AXES);
    for (int a = 0; a < s->of.naxes; a++)
        if (!(s->of.key[a] = json_string_value(json_array_get(over, (size_t)a))))
            return fail("%s: \"over\" holds something that is no key", s->path);
    return 0;
}

static int64_t place_of(const struct axis_values *a, const char *text)
{
    int64_t i = 0;

    while (i < a->n && strcmp(a->text[i], text))
        i++;
    return i;
}

/* Every point gives the axes their values; then each has to lie where the order of the axes says. */
static int read_points(struct report_sweep *s)
{
    for (size_t i = 0; i < json_array_size(s->points); i++)
        for (int a = 0; a < s->of.naxes; a++) {
            const char *text = value_text(s, json_object_get(json_object_get(json_array_get(s->points, i), "at"), s->of.key[a]));
            struct axis_values *v = &s->axis[a];
            if (!text)
                return fail("%s: points[%zu].at.%s is neither a number nor a word", s->path, i, s->of.key[a]);
            if (place_of(v, text) < v->n)
                continue;
            v->text = room_for(v->text, v->n, &v->room, sizeof *v->text);
            v->text[v->n++] = text;
        }
    for (int a = 0; a < s->of.naxes; a++) {
        s->of.value[a] = s->axis[a].text;
        s->of.n[a] = (int)s->axis[a].n;
    }
    for (size_t i = 0; i < json_array_size(s->points); i++) {
        int64_t rest = (int64_t)i;
        bool in_place = true;
        for (int a = s->of.naxes - 1; a >= 0; a--, rest /= s->of.n[a + 1]) {
            const char *text = value_text(s, json_object_get(json_object_get(json_array_get(s->points, i), "at"), s->of.key[a]));
            in_place &= place_of(&s->axis[a], text) == rest % s->of.n[a];
        }
        if (!in_place || rest > 0)
            return fail("%s: points[%zu] is not where dpxplan sweep writes it: the last axis runs fastest", s->path, i);
    }
    return 0;
}

struct report_sweep *report_sweep_from(json_t *doc, const char *name)
{
    struct report_sweep *s = room_new(1, sizeof *s);

    s->path = room_new(strlen(name) + 1, 1);
    memcpy(s->path, name, strlen(name));
    s->doc = doc;
    s->points = json_object_get(doc, "points");
    s->of.points = (int64_t)json_array_size(s->points);
    if (s->of.points == 0)
        fail("%s: no \"points\": write the file with dpxplan sweep --json", name);
    else if (s->of.points > MOST_POINTS)
        fail("%s: %" PRId64 " points; a page shows at most %d", name, s->of.points, MOST_POINTS);
    else if (read_axes(s) == 0 && read_points(s) == 0)
        return s;
    report_sweep_free(s);
    return NULL;
}

struct report_sweep *report_sweep_read(const char *path)
{
    json_t *doc = files_read_json_data(path);

    return doc ? report_sweep_from(doc, path) : NULL;
}

void report_sweep_free(struct report_sweep *s)
{
    if (!s)
        return;
    for (int a = 0; a < CHART_SWEEP_AXES; a++)
        free(s->axis[a].text);
    text_kept_free(s->kept);
    json_decref(s->doc);
    free(s->path);
    free(s);
}

const char *report_sweep_path(const struct report_sweep *s) { return s->path; }

/* ---- columns ---- */

/* On the page of the report, and drawn where `title` says so. */
static const struct column { const char *key, *title, *figure; enum measure unit; } columns[] = {
    { "gpus", "GPUs", NULL, UNIT_COUNT },
    { "step_s", "Step", "Step time", UNIT_SECONDS },
    { "low_s", "from", NULL, UNIT_SECONDS },
    { "high_s", "to", NULL, UNIT_SECONDS },
    { "tokens_per_s", "Throughput", "Throughput", UNIT_TOKENS_S },
    { "tokens_per_s_per_gpu", "of a GPU", NULL, UNIT_TOKENS_S },
    { "mfu", "MFU", NULL, UNIT_SHARE },
    { "efficiency", "Efficiency", "Scaling efficiency", UNIT_SHARE },
    { "memory_bytes", "Memory", "Memory of the fullest rank", UNIT_BYTES },
    { "available_bytes", "usable", NULL, UNIT_BYTES },
    { "days", "Days", NULL, UNIT_COUNT },
    { "cost", "Cost", "Cost", UNIT_COUNT },
};
enum { NCOLUMNS = sizeof columns / sizeof *columns };

static double number_at(const struct report_sweep *s, int64_t point, const char *key)
{
    const json_t *v = json_object_get(json_array_get(s->points, (size_t)point), key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static const char *word_at(const struct report_sweep *s, int64_t point, const char *key)
{
    return json_string_value(json_object_get(json_array_get(s->points, (size_t)point), key));
}

struct table *report_sweep_table(const struct report_sweep *s)
{
    struct table *t = table_new("sweep", "The points of the sweep");
    char place[400];

    table_column(t, "point", "Point", UNIT_TEXT, SHOWN);
    table_column(t, "verdict", "Verdict", UNIT_TEXT, SHOWN);
    for (int i = 0; i < NCOLUMNS; i++)
        table_column(t, columns[i].key, columns[i].title, columns[i].unit, SHOWN);
    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
    for (int64_t i = 0; s && i < s->of.points; i++) {
        chart_sweep_place(&s->of, i, 0, s->of.naxes, place, sizeof place);
        table_row(t, "%" PRId64, i + 1);
        table_text(t, place);
        table_text(t, word_at(s, i, "verdict"));
        for (int k = 0; k < NCOLUMNS; k++)
            table_number(t, number_at(s, i, columns[k].key));
        table_text(t, word_at(s, i, "label") ? word_at(s, i, "label") : word_at(s, i, "why_not"));
    }
    return t;
}

/* ---- figures ---- */

struct look { const struct report_sweep *s; const struct column *column; };

/* An interval is known of the step alone. */
static struct spot look(void *of, int64_t point)
{
    const struct look *l = of;
    bool step = !strcmp(l->column->key, "step_s");

    return (struct spot){ NAN, number_at(l->s, point, l->column->key), step ? number_at(l->s, point, "low_s") : NAN,
                          step ? number_at(l->s, point, "high_s") : NAN, NULL, 0 };
}

/* Is there anything to see: a point, and of an efficiency one that is not 1? */
static bool worth_it(const struct report_sweep *s, const struct column *c)
{
    for (int64_t i = 0; i < s->of.points; i++) {
        double v = number_at(s, i, c->key);
        if (isfinite(v) && (strcmp(c->key, "efficiency") || fabs(v - 1) > 1e-9))
            return true;
    }
    return false;
}

void report_sweep_figures(struct report *r, const struct report_sweep *s)
{
    bool searched = !strcmp(json_string_value(json_object_get(s->doc, "mode")) ? json_string_value(json_object_get(s->doc, "mode")) : "",
                            "search");
    char id[64], title[200], caption[300];

    for (int k = 0; k < NCOLUMNS; k++) {
        struct chart_sweep of = s->of;
        struct look l = { s, &columns[k] };
        if (!columns[k].figure || !worth_it(s, &columns[k]))
            continue;
        snprintf(id, sizeof id, "sweep-%s", columns[k].key);
        snprintf(title, sizeof title, "%s over %.60s", columns[k].figure, s->of.key[s->of.naxes - 1]);
        snprintf(caption, sizeof caption, "%s%s", searched ? "At each point the first plan of a search. "
                                                  : "At each point the same plan with these keys changed. ",
                 !strcmp(columns[k].key, "step_s") ? "Whiskers: the prediction's 90 % interval." : "Predicted; points that do not fit are left out.");
        of.at = look;
        of.of = &l;
        report_add_chart(r, chart_sweep(&of, id, title, caption, columns[k].title, columns[k].unit));
    }
}

/* ---- a sentence ---- */

void report_sweep_words(struct report *r, const struct report_sweep *s)
{
    struct prose *p = r->words[WORDS_SWEEP];
    int64_t best = -1;
    char text[400];

    for (int64_t i = 0; i < s->of.points; i++)
        if (isfinite(number_at(s, i, "tokens_per_s")) &&
            (best < 0 || number_at(s, i, "tokens_per_s") > number_at(s, best, "tokens_per_s")))
            best = i;
    if (best < 0) {
        prose_put(p, "No point of the sweep fits.");
        prose_end(p);
        return;
    }
    chart_sweep_place(&s->of, best, 0, s->of.naxes, text, sizeof text);
    prose_put(p, "The fastest point is ");
    prose_name(p, text);
    prose_put(p, ", with ");
    snprintf(text, sizeof text, "sweep/%" PRId64 "/tokens_per_s", best + 1);
    prose_number(p, text, UNIT_TOKENS_S, number_at(s, best, "tokens_per_s"));
    prose_put(p, " predicted.");
    prose_end(p);
}
