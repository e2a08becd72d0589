/* report_plans.c -- see report_plans.h. */
#include "reports/page/report_plans.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/chart/meaning.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/room.h"
#include "reports/page/report.h"

/* Plans of a search that a page shows. */
enum { MOST_PLANS = 20 };

struct report_plans {
    char   *path;
    json_t *doc;
    const json_t *plan[MOST_PLANS];
    int     n;
    bool    searched;
};

static const json_t *get(const json_t *o, const char *key) { return json_object_get(o, key); }
static double number(const json_t *o, const char *key) { return json_is_number(get(o, key)) ? json_number_value(get(o, key)) : NAN; }
static const char *word(const json_t *o, const char *key) { return json_string_value(get(o, key)); }

/* ---- reading ---- */

static bool is_plan(const json_t *p) { return json_is_object(get(p, "memory")) && json_is_object(get(p, "time")) && word(p, "words"); }

static int take_plans(struct report_plans *p)
{
    const json_t *list = get(p->doc, "plans");

    p->searched = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list) && p->n < MOST_PLANS; i++, p->n++)
        if (!is_plan(p->plan[p->n] = json_array_get(list, i)))
            return fail("%s: plans[%zu] has no \"words\", \"memory\" and \"time\": write the file with dpxplan search --json", p->path, i);
    if (p->searched)
        return p->n > 0 ? 0 : fail("%s: the search found no plan that fits", p->path);
    p->plan[p->n++] = p->doc;
    return is_plan(p->doc) ? 0 : fail("%s: neither plans nor a plan: write the file with dpxplan eval, explain or search and --json", p->path);
}

struct report_plans *report_plans_read(const char *path)
{
    json_t *doc = files_read_json_data(path);
    struct report_plans *p;

    if (!doc)
        return NULL;
    p = room_new(1, sizeof *p);
    p->path = room_new(strlen(path) + 1, 1);
    memcpy(p->path, path, strlen(path));
    p->doc = doc;
    if (take_plans(p) == 0)
        return p;
    report_plans_free(p);
    return NULL;
}

void report_plans_free(struct report_plans *p)
{
    if (!p)
        return;
    json_decref(p->doc);
    free(p->path);
    free(p);
}

const char *report_plans_path(const struct report_plans *p) { return p->path; }

/* ---- tables ---- */

static const struct column { const char *of, *key, *title; enum measure unit; } columns[] = {
    { "memory", "taken_bytes", "Memory taken", UNIT_BYTES },
    { "memory", "available_bytes", "usable", UNIT_BYTES },
    { "memory", "peak_bytes", "needed", UNIT_BYTES },
    { "memory", "allocated_peak_bytes", "allocated", UNIT_BYTES },
    { "time", "step_s", "Step", UNIT_SECONDS },
    { "time", "low_s", "from", UNIT_SECONDS },
    { "time", "high_s", "to", UNIT_SECONDS },
    { "time", "tokens_per_s", "Throughput", UNIT_TOKENS_S },
    { "time", "mfu", "MFU", UNIT_SHARE },
};
enum { NCOLUMNS = sizeof columns / sizeof *columns };

/* Their names are the page's phases; they sum to the step. */
static const struct { const char *key, *name; } phases[] = {
    { "compute_s", "compute" }, { "exposed_comm_s", "exposed communication" }, { "optimizer_s", "optimizer" },
    { "bubble_s", "bubble" }, { "idle_s", "idle" }, { "slowest_rank_s", "slowest rank" },
};
enum { NPHASES = sizeof phases / sizeof *phases };

static struct table *plans_table(const struct report_plans *p)
{
    struct table *t = table_new("predictions", "Plans");

    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
    table_column(t, "verdict", "Verdict", UNIT_TEXT, SHOWN);
    for (int k = 0; k < NCOLUMNS; k++)
        table_column(t, columns[k].key, columns[k].title, columns[k].unit, SHOWN);
    for (int i = 0; i < p->n; i++) {
        table_row(t, "%d", i + 1);
        table_text(t, word(p->plan[i], "words"));
        table_text(t, word(get(p->plan[i], "memory"), "verdict"));
        for (int k = 0; k < NCOLUMNS; k++)
            table_number(t, number(get(p->plan[i], columns[k].of), columns[k].key));
    }
    return t;
}

/* Of each plan what is not zero, by name: one row each. */
static struct table *parts_table(const struct report_plans *p, const char *id, const char *title, const char *name, enum measure unit)
{
    struct table *t = table_new(id, title);

    table_column(t, "plan", "Plan", UNIT_ID, SHOWN);
    table_column(t, "name", name, UNIT_TEXT, SHOWN);
    table_column(t, unit == UNIT_BYTES ? "bytes" : "seconds", unit == UNIT_BYTES ? "At the peak" : "Of a step", unit, SHOWN);
    for (int i = 0; i < p->n; i++) {
        const json_t *by = get(get(p->plan[i], "memory"), "at_peak"), *v;
        const char *category;
        int n = 0;
        json_object_foreach((json_t *)(uintptr_t)(unit == UNIT_BYTES ? by : NULL), category, v) {
            if (!(json_number_value(v) > 0))
                continue;
            table_row(t, "%d.%d", i + 1, n++);
            table_number(t, i + 1);
            table_text(t, category);
            table_number(t, json_number_value(v));
        }
        for (int k = 0; unit == UNIT_SECONDS && k < NPHASES; k++) {
            double s = number(get(p->plan[i], "time"), phases[k].key);
            if (!(s > 0))
                continue;
            table_row(t, "%d.%d", i + 1, n++);
            table_number(t, i + 1);
            table_text(t, phases[k].name);
            table_number(t, s);
        }
    }
    return t;
}

static struct table *comm_table(const struct report_plans *p)
{
    struct table *t = table_new("collectives-step", "Collectives of a step, of one rank");
    static const char *const words[] = { "op", "group", "dtype" }, *const titles[] = { "Collective", "Group", "Type" };

    table_column(t, "plan", "Plan", UNIT_ID, SHOWN);
    for (int k = 0; k < 3; k++)
        table_column(t, words[k], titles[k], UNIT_TEXT, SHOWN);
    table_column(t, "count", "Calls", UNIT_COUNT, SHOWN);
    table_column(t, "bytes", "Full buffers", UNIT_BYTES, SHOWN);
    for (int i = 0; i < p->n; i++) {
        const json_t *ops = get(get(p->plan[i], "comm"), "ops");
        for (size_t k = 0; k < json_array_size(ops); k++) {
            const json_t *o = json_array_get(ops, k);
            table_row(t, "%d.%zu", i + 1, k);
            table_number(t, i + 1);
            for (int w = 0; w < 3; w++)
                table_text(t, word(o, words[w]));
            table_number(t, number(o, "count"));
            table_number(t, number(o, "bytes"));
        }
    }
    return t;
}

/* Plans of which none other is faster with less memory. */
static struct table *front_table(const struct report_plans *p)
{
    const json_t *front = get(p->doc, "pareto");
    struct table *t = table_new("front", "Speed against memory: each is the fastest of those that need no more");

    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
    table_column(t, "step_s", "Step", UNIT_SECONDS, SHOWN);
    table_column(t, "needed_bytes", "Needed", UNIT_BYTES, SHOWN);
    for (size_t i = 0; i < json_array_size(front); i++) {
        const json_t *f = json_array_get(front, i);
        table_row(t, "%zu", i + 1);
        table_text(t, word(f, "words"));
        table_number(t, number(f, "step_s"));
        table_number(t, number(f, "needed_bytes"));
    }
    return t;
}

/* ---- figures ---- */

static void add_part(struct chart *c, struct bar *b, const char *name, int colour, double v)
{
    int i = 0;

    while (i < c->nparts && strcmp(c->part[i], name))
        i++;
    if (i == MAX_PARTS)
        i--;
    else if (i == c->nparts)
        chart_part(c, name, colour);
    if (v > 0)
        b->part[i] += v;
}

static const char *key_of(struct chart *c, int plan, const char *column)
{
    char key[64];

    snprintf(key, sizeof key, "predictions/%d/%s", plan + 1, column);
    return text_keep(&c->kept, key);
}

static void memory_figure(struct report *r, const struct report_plans *p)
{
    struct chart *c = report_chart(r, CHART_BARS, "memory", "Memory at the peak, by category",
                                   "What is allocated on the fullest rank, and what the allocator takes for it. Dashed: what a rank may use.");

    chart_axis(c, AXIS_X, "bytes", UNIT_BYTES, false);
    for (int i = 0; i < p->n; i++) {
        const json_t *m = get(p->plan[i], "memory"), *v;
        struct bar *b = chart_bar(c, word(p->plan[i], "words"), "", false);
        const char *category;
        double rest = number(m, "taken_bytes");
        json_object_foreach((json_t *)(uintptr_t)get(m, "at_peak"), category, v) {
            add_part(c, b, category, meaning_colour(MEANING_CATEGORY, category), json_number_value(v));
            rest -= json_number_value(v);
        }
        add_part(c, b, "reserved, not in use", CHART_PALE, rest);
        b->limit = number(m, "available_bytes");
        b->value = number(m, "taken_bytes");
        b->key = key_of(c, i, "taken_bytes");
    }
}

static void phases_figure(struct report *r, const struct report_plans *p)
{
    struct chart *c = report_chart(r, CHART_BARS, "phases", "Time of a steady step, by phase", "Whiskers: the prediction's 90 % interval.");

    chart_axis(c, AXIS_X, "time", UNIT_SECONDS, false);
    for (int i = 0; i < p->n; i++) {
        const json_t *t = get(p->plan[i], "time");
        struct bar *b = chart_bar(c, word(p->plan[i], "words"), "", false);
        for (int k = 0; k < NPHASES; k++)
            if (number(t, phases[k].key) > 0)
                add_part(c, b, phases[k].name, meaning_colour(MEANING_PHASE, phases[k].name), number(t, phases[k].key));
        b->low = number(t, "low_s");
        b->high = number(t, "high_s");
        b->value = number(t, "step_s");
        b->key = key_of(c, i, "step_s");
    }
}

static void front_figure(struct report *r, const struct report_plans *p)
{
    const json_t *front = get(p->doc, "pareto");

    if (json_array_size(front) == 0)
        return;
    struct chart *c = report_chart(r, CHART_XY, "front", "Memory against time", "On the line: no other plan is as fast with less memory. Points: "
                                                                               "the plans above.");
    chart_axis(c, AXIS_X, "needed on the fullest rank, allocated and overhead", UNIT_BYTES, false);
    chart_axis(c, AXIS_Y, "step", UNIT_SECONDS, false);
    int line = chart_series(c, "front", 0, MARK_BOTH), points = chart_series(c, "plans", 1, MARK_POINTS);
    for (size_t i = 0; i < json_array_size(front); i++)
        chart_spot(c, line, number(json_array_get(front, i), "needed_bytes"), number(json_array_get(front, i), "step_s"));
    for (int i = 0; i < p->n; i++)
        chart_spot(c, points, number(get(p->plan[i], "memory"), "peak_bytes"), number(get(p->plan[i], "time"), "step_s"));
}

/* ---- sentences ---- */

static void say_number(struct prose *w, const struct column *c, const json_t *plan)
{
    char key[64];

    snprintf(key, sizeof key, "predictions/1/%s", c->key);
    prose_number(w, key, c->unit, number(get(plan, c->of), c->key));
}

static void say(struct report *r, const struct report_plans *p)
{
    enum { TAKEN, AVAILABLE, NEEDED, ALLOCATED, STEP, LOW, HIGH, TOKENS };
    struct prose *w = r->words[WORDS_PLANS];
    const json_t *first = p->plan[0];
    bool fits = json_is_true(get(first, "fits"));

    prose_put(w, p->searched ? "Recommended: " : "");
    prose_name(w, word(first, "words"));
    prose_put(w, fits ? ". It fits: it takes " : ". It does not fit: it takes ");
    say_number(w, &columns[TAKEN], first);
    prose_put(w, " of ");
    say_number(w, &columns[AVAILABLE], first);
    prose_put(w, " on its fullest rank. A step takes ");
    say_number(w, &columns[STEP], first);
    prose_put(w, " (90 %: ");
    say_number(w, &columns[LOW], first);
    prose_put(w, " to ");
    say_number(w, &columns[HIGH], first);
    prose_put(w, "), ");
    say_number(w, &columns[TOKENS], first);
    prose_put(w, ".");
    prose_end(w);
}

/* What is in the peak and in no category: libraries' own. */
static double overhead_of(const json_t *memory)
{
    double rest = number(memory, "peak_bytes");
    const json_t *v;
    const char *category;

    json_object_foreach((json_t *)(uintptr_t)get(memory, "at_peak"), category, v)
        rest -= json_number_value(v);
    return rest > 0 ? rest : 0;
}

void report_plans_into(struct report *r, const struct report_plans *p)
{
    const json_t *m = get(p->plan[0], "memory"), *step = get(p->doc, "step");

    r->table[TABLE_PREDICTIONS] = plans_table(p);
    r->table[TABLE_CATEGORIES] = parts_table(p, "categories", "Memory at the peak", "Category", UNIT_BYTES);
    r->table[TABLE_PARTS] = parts_table(p, "parts", "Phases of a steady step", "Phase", UNIT_SECONDS);
    r->table[TABLE_STEP_COMM] = comm_table(p);
    r->table[TABLE_FRONT] = front_table(p);
    say(r, p);
    memory_figure(r, p);
    phases_figure(r, p);
    front_figure(r, p);
    if (!p->searched)
        report_step_figures(r, step, overhead_of(m), number(m, "available_bytes"));
}
