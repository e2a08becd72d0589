/* report_step.c -- the step of one plan as explain --json --detail has it: memory by category over time, entries on their streams.
 * What the file lacks, or has in another form, is left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/chart/chart_areas.h"
#include "base/chart/meaning.h"
#include "base/room.h"
#include "reports/page/report.h"
#include "reports/page/report_plans.h"

enum { MOST_ROLES = 8, MOST_CATEGORIES = 32, MOST_KINDS = 16, MOST_STREAMS = 32, PIECES = 1500 };

static const json_t *at(const json_t *list, size_t i) { return json_array_get(list, i); }
static double number(const json_t *v) { return json_is_number(v) ? json_number_value(v) : NAN; }

static void title_of(const json_t *role, const char *what, char *to, size_t size)
{
    const char *name = json_string_value(json_object_get(role, "name"));

    snprintf(to, size, "%s: %.40s, rank %.0f", what, name ? name : "every rank alike", number(json_object_get(role, "rank")));
}

/* ---- memory ---- */

/* Overhead lies below: it is there all the time. */
static void memory(struct report *r, const json_t *role, int i, const json_t *categories, double overhead, double limit)
{
    const json_t *t = json_object_get(json_object_get(role, "memory"), "t_ns"), *bytes = json_object_get(json_object_get(role, "memory"), "bytes");
    size_t n = json_array_size(t), of = json_array_size(categories);
    const char *name[MOST_CATEGORIES + 1] = { "overhead" };
    char id[40], title[120];

    if (n == 0 || n != json_array_size(bytes) || of == 0 || of > MOST_CATEGORIES)
        return;
    double *times = room_new(n, sizeof *times), *v = room_new(n * (of + 1), sizeof *v);
    for (size_t k = 0; k < of; k++)
        name[k + 1] = json_string_value(at(categories, k)) ? json_string_value(at(categories, k)) : "";
    for (size_t p = 0; p < n; p++) {
        times[p] = number(at(t, p)) / 1e9;
        v[p * (of + 1)] = overhead;
        for (size_t k = 0; k < of; k++)
            v[p * (of + 1) + k + 1] = number(at(at(bytes, p), k));
    }
    snprintf(id, sizeof id, "memory-step-%d", i);
    title_of(role, "Memory over one step", title, sizeof title);
    struct chart *c = report_chart(r, CHART_XY, id, title, "What is allocated in device memory as the step runs, by category. Dashed: what a "
                                                           "rank may use.");
    chart_axis(c, AXIS_X, "time in the step", UNIT_SECONDS, false);
    chart_axis(c, AXIS_Y, "bytes allocated", UNIT_BYTES, false);
    chart_areas(c, &(struct chart_areas){ (int64_t)n, (int)of + 1, times, v, name, number(json_object_get(role, "step_s")), limit, NULL });
    free(times);
    free(v);
}

/* ---- streams ---- */

struct lane { int row, kind; double from, to; };

static void end_span(struct chart *c, struct lane *l, const char *const *kinds)
{
    if (l->kind >= 0)
        chart_span(c, l->row, meaning_colour(MEANING_WORK, kinds[l->kind]), l->from, l->to, kinds[l->kind]);
    l->kind = -1;
}

/* What lies nearer together than a pixel is one span. */
static void spans(struct chart *c, const json_t *entries, double near, struct lane *lane, const char *const *kinds, size_t nkinds)
{
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *e = at(entries, i);
        double stream = number(at(e, 0)), from = number(at(e, 1)) / 1e9, to = number(at(e, 2)) / 1e9, kind = number(at(e, 4));
        if (!(stream >= 0 && stream < MOST_STREAMS) || !(kind >= 0 && kind < (double)nkinds) || !(to >= from))
            continue;
        struct lane *l = &lane[(int)stream];
        if (l->row < 0)
            continue;
        if (l->kind == (int)kind && from - l->to < near) {
            l->to = fmax(l->to, to);
            continue;
        }
        end_span(c, l, kinds);
        *l = (struct lane){ l->row, (int)kind, from, to };
    }
    for (int s = 0; s < MOST_STREAMS; s++)
        end_span(c, &lane[s], kinds);
}

static bool has_entries(const json_t *entries, size_t stream)
{
    for (size_t i = 0; i < json_array_size(entries); i++)
        if (number(at(at(entries, i), 0)) == (double)stream)
            return true;
    return false;
}

static void streams(struct report *r, const json_t *role, int i, const json_t *kind_names)
{
    const json_t *names = json_object_get(role, "streams"), *entries = json_object_get(role, "entries");
    struct lane lane[MOST_STREAMS];
    const char *kinds[MOST_KINDS];
    size_t nkinds = json_array_size(kind_names);
    char id[40], title[120];

    if (json_array_size(entries) == 0 || nkinds == 0 || nkinds > MOST_KINDS)
        return;
    snprintf(id, sizeof id, "timeline-%d", i);
    title_of(role, "One step, stream by stream", title, sizeof title);
    struct chart *c = report_chart(r, CHART_SPANS, id, title, "What runs when, as predicted. Entries shorter than a pixel are drawn together.");
    chart_axis(c, AXIS_X, "time in the step", UNIT_SECONDS, false);
    for (size_t k = 0; k < nkinds; k++) {
        kinds[k] = json_string_value(at(kind_names, k)) ? json_string_value(at(kind_names, k)) : "";
        chart_part(c, kinds[k], meaning_colour(MEANING_WORK, kinds[k]));
    }
    for (size_t s = 0; s < MOST_STREAMS; s++) {
        const char *name = json_string_value(at(names, s));
        lane[s] = (struct lane){ name && has_entries(entries, s) ? chart_row(c, name) : -1, -1, 0, 0 };
    }
    spans(c, entries, number(json_object_get(role, "step_s")) / PIECES, lane, kinds, nkinds);
}

void report_step_figures(struct report *r, const json_t *step, double overhead, double limit)
{
    const json_t *roles = json_object_get(step, "roles");
    int n = (int)json_array_size(roles);

    for (int i = 0; i < n && i < MOST_ROLES; i++)
        memory(r, at(roles, (size_t)i), i, json_object_get(step, "categories"), overhead, limit);
    for (int i = 0; i < n && i < MOST_ROLES; i++)
        streams(r, at(roles, (size_t)i), i, json_object_get(step, "kinds"));
    if (n > MOST_ROLES)
        report_missing(r, "Memory and streams of later stages", "a page shows those of the first eight");
    if (n == 0)
        report_missing(r, "Memory over the step, and its streams", "write the file with dpxplan explain PLAN --json --detail");
}
