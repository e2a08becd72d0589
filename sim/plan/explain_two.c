/* explain_two.c -- two plans side by side: what differs, and what each difference makes of the step. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/room.h"
#include "base/size.h"
#include "model/arch/sample.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/eval.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/search_codes.h"
#include "sim/search/crossover.h"

/* The steady schedule as lines; the text is owned by lines[0]. */
static char **lines_of(const struct schedules *s, int *n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    char **lines;
    int count = 0;

    if (!f)
        abort();
    sched_print(s, SCHED_STEADY, f);
    fclose(f);
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\n';
    lines = calloc((size_t)count + 1, sizeof *lines);
    if (!lines)
        abort();
    count = 0;
    for (char *line = text; line < text + size; line += strlen(line) + 1) {
        char *end = strchr(line, '\n');
        if (!end)
            break;
        *end = '\0';
        lines[count++] = line;
    }
    *n = count;
    return lines;
}

enum { DIFFERENT_LINES = 60 };

/* Longest common subsequence, then the lines outside of it: what diff prints.  Schedules fold equal blocks, so n*m stays
 * small; flat ones that are too long are not compared line by line: NULL. */
static json_t *diff(char **a, int n, char **b, int m)
{
    json_t *rows = json_array();
    int *lcs;

    if ((int64_t)n * m > 16 << 20) {
        json_decref(rows);
        return NULL;
    }
    lcs = room_new((size_t)(n + 1) * (size_t)(m + 1), sizeof *lcs);
#define LCS(i, j) lcs[(size_t)(i) * (size_t)(m + 1) + (size_t)(j)]
    for (int i = n - 1; i >= 0; i--)
        for (int j = m - 1; j >= 0; j--)
            LCS(i, j) = !strcmp(a[i], b[j]) ? LCS(i + 1, j + 1) + 1
                      : LCS(i + 1, j) > LCS(i, j + 1) ? LCS(i + 1, j) : LCS(i, j + 1);
    for (int i = 0, j = 0; (i < n || j < m) && json_array_size(rows) < DIFFERENT_LINES; ) {
        if (i < n && j < m && !strcmp(a[i], b[j])) {
            i++, j++;
            continue;
        }
        bool first = i < n && (j >= m || LCS(i + 1, j) >= LCS(i, j + 1));
        json_array_append_new(rows, json_sprintf("%c %s", first ? '-' : '+', first ? a[i] : b[j]));
        i += first;
        j += !first;
    }
#undef LCS
    free(lcs);
    return rows;
}

/* Lines that only one steady schedule has, "- " of the first, "+ " of the second. */
static json_t *different_lines(const struct explained *p, const struct explained *q)
{
    int n, m;
    char **x = lines_of(&p->e.schedules, &n), **y = lines_of(&q->e.schedules, &m);
    json_t *rows = diff(x, n, y, m);

    if (n > 0)
        free(x[0]);
    if (m > 0)
        free(y[0]);
    free(x);
    free(y);
    return rows;
}

static void print_schedules(const struct explained *p, const struct explained *q, FILE *to)
{
    json_t *rows = different_lines(p, q), *row;
    size_t i;

    fprintf(to, "\nsteady schedules: - only in the first plan, + only in the second\n");
    json_array_foreach(rows, i, row)
        fprintf(to, "%s\n", json_string_value(row));
    if (!rows)
        fprintf(to, "  (too many entries to compare line by line)\n");
    else if (json_array_size(rows) == DIFFERENT_LINES)
        fprintf(to, "  ... and more\n");
    else if (json_array_size(rows) == 0)
        fprintf(to, "  the same, entry for entry\n");
    json_decref(rows);
}

/* ---- options ---- */

/* "deepspeed.offload_param" of "deepspeed" and "offload_param"; a model's name is "model". */
static void path_of(const char *object, const char *key, char path[96])
{
    bool named = !strcmp(key, "_name_or_path");

    snprintf(path, 96, "%s%s%s", object, *object && !named ? "." : "", named ? "" : key);
}

/* {"key", "first", "second"} of each key that differs. */
static void different_keys(const json_t *a, const json_t *b, const char *prefix, json_t *rows)
{
    const char *key;
    char path[96];
    json_t *x;

    json_object_foreach((json_t *)a, key, x) {
        json_t *y = json_object_get(b, key);
        if (json_equal(x, y))
            continue;
        path_of(prefix, key, path);
        if (json_is_object(x) && json_is_object(y))
            different_keys(x, y, path, rows);
        else
            json_array_append_new(rows, json_pack("{s:s, s:O, s:O?}", "key", path, "first", x, "second", y));
    }
    json_object_foreach((json_t *)b, key, x) {
        path_of(prefix, key, path);
        if (!json_object_get(a, key))
            json_array_append_new(rows, json_pack("{s:s, s:O}", "key", path, "second", x));
    }
}

/* As people read it: text without quotes; of an object, which then one plan alone has, only how many options it holds. */
static char *text_of(const json_t *v)
{
    char options[32];

    if (json_is_object(v)) {
        snprintf(options, sizeof options, "%zu options", json_object_size(v));
        return strdup(options);
    }
    char *text = !v || json_is_null(v) ? NULL : json_is_string(v) ? strdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    return text ? text : strdup("-");
}

static void print_keys(const json_t *rows, FILE *to)
{
    json_t *row;
    size_t i;

    if (json_array_size(rows) == 0)
        fputs("  none: the plans are equal (--set changes both of them)\n", to);
    json_array_foreach((json_t *)rows, i, row) {
        char *first = text_of(json_object_get(row, "first")), *second = text_of(json_object_get(row, "second"));
        fprintf(to, "  %-28s %14s   %14s\n", json_string_value(json_object_get(row, "key")), first, second);
        free(first);
        free(second);
    }
}

/* ---- figures ---- */

static int64_t held_of_node(const struct evaluation *e, int space) { return e->m.elsewhere ? e->m.spaces.of[space].peak : 0; }

static void print_bytes(const char *what, int64_t a, int64_t b, FILE *to)
{
    if (a || b)
        fprintf(to, "  %-24s %14s   %14s   %s%s\n", what, size_text(a).s, size_text(b).s, b < a ? "-" : b > a ? "+" : "",
               size_text(b > a ? b - a : a - b).s);
}

/* Sums of the same seconds in another order differ by rounding, which is no difference of plans. */
static void print_seconds(const char *what, double a, double b, FILE *to)
{
    double more = fabs(b - a) > 1e-9 * fmax(a, b) ? b - a : 0;

    if (a > 0 || b > 0)
        fprintf(to, "  %-28s %12.4g s %14.4g s   %+.4g s\n", what, a, b, more);
}

/* Each part of the step. */
static void print_steps(const struct explained *p, const struct explained *q, FILE *to)
{
    const struct timing *a = &p->t, *b = &q->t;
    const struct schedules *s = &p->e.schedules, *t = &q->e.schedules;
    double exposed[2][NCOLL] = { { 0 } };
    char name[64];

    for (int op = 0; op < NCOLL; op++) {
        for (int g = 0; g < s->groups.n; g++)
            exposed[0][op] += a->line.exposed_by[op][g];
        for (int g = 0; g < t->groups.n; g++)
            exposed[1][op] += b->line.exposed_by[op][g];
    }
    fprintf(to, "\none steady step (times rest on: %s; %s)\n", basis_name(a->basis), basis_name(b->basis));
    print_seconds("compute", a->line.compute_s, b->line.compute_s, to);
    for (int op = 0; op < NCOLL; op++) {
        snprintf(name, sizeof name, "exposed %s", coll_name((enum coll_op)op));
        print_seconds(name, exposed[0][op], exposed[1][op], to);
    }
    print_seconds("optimizer", a->line.optimizer_s, b->line.optimizer_s, to);
    print_seconds(eval_idle_name(s->spaces || t->spaces), a->line.idle_s, b->line.idle_s, to);
    print_seconds("bubble (other stages' turn)", a->line.bubble_s, b->line.bubble_s, to);
    print_seconds("waiting for the slowest rank", a->line.slowest_s, b->line.slowest_s, to);
    print_seconds("together", a->line.step_s, b->line.step_s, to);
    fprintf(to, "  %-28s %14.4g %16.4g   %s\n", sample_rate_unit(&p->plan.model),
            sample_rate(&p->plan.model, p->plan.seq, a->tokens_per_s), sample_rate(&q->plan.model, q->plan.seq, b->tokens_per_s),
           percent_change(b->tokens_per_s / a->tokens_per_s).s);
}

/* ---- what each option makes of it ---- */

/* "KEY=VALUE" for the second plan's value. */
static void pair_of(const char *object, const char *key, const json_t *v, char *to, size_t size)
{
    char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    snprintf(to, size, "%s%s%s=%s", object, *object ? "." : "", key, text ? text : json_string_value(v));
    free(text);
}

/* Tokens a second, or samples of a model whose samples have none. */
static const char *rate_key(const struct plan *p) { return sample_has_tokens(&p->model) ? "tokens_per_s" : "samples_per_s"; }

struct totals { double step_s, rate; int64_t bytes, host; };

/* One plan's totals; -1 reported. */
static int totals_of(const struct plan *p, struct totals *out)
{
    struct evaluation e;
    struct timing t;

    if (evaluate(p, &e) < 0)
        return -1;
    int rc = simulate_plan(p, &e, &t, NULL);
    *out = (struct totals){ t.line.step_s, sample_rate(&p->model, p->seq, t.tokens_per_s), e.m.needed, held_of_node(&e, SPACE_HOST) };
    evaluation_free(&e);
    return rc;
}

/* The first plan with this one change: {"set", "step_s", rate_key(), "needed_bytes", "host_bytes"}, or {"set",
 * "refused"}. */
static json_t *change_json(const struct plan *a, const char *pair)
{
    struct plan p;
    struct totals now;
    char why[200];
    int rc;

    json_t *dropped = json_array(), *notes = notes_divert(dropped);      /* with another strategy; the second plan says what it has */
    struct fail_sink before = fail_divert(why, sizeof why);
    rc = plan_source_with(a, &pair, 1, &p);
    notes_divert(notes);
    json_decref(dropped);
    if (rc == 0) {
        p.cluster.measured = a->cluster.measured;
        rc = totals_of(&p, &now);
        plan_free(&p);
    }
    fail_restore(before);
    return rc < 0 ? json_pack("{s:s, s:s}", "set", pair, "refused", why)
                  : json_pack("{s:s, s:f, s:f, s:I, s:I}", "set", pair, "step_s", now.step_s, rate_key(a), now.rate,
                              "needed_bytes", (json_int_t)now.bytes, "host_bytes", (json_int_t)now.host);
}

static void change_keys(const struct plan *a, const json_t *x, const json_t *y, const char *object, json_t *rows)
{
    const char *key;
    char pair[200], path[96];
    json_t *v;

    json_object_foreach((json_t *)y, key, v) {
        const json_t *u = json_object_get(x, key);
        if (json_equal((json_t *)u, v) || !strcmp(key, "model") || !strcmp(key, "cluster") ||
            (!strcmp(key, "dialect") && !json_equal(json_object_get(x, "strategy"), json_object_get(y, "strategy"))))
            continue;
        if (json_is_object(v)) {
            path_of(object, key, path);
            change_keys(a, u, v, path, rows);
            continue;
        }
        const struct knob *k = knob_find(object, key, knob_cell(a));
        struct plan with = *a;          /* shares the model; not freed */
        if (k && knob_idle(a, k) && knob_read(v, "", k, &with) == 0 && knob_idle(&with, k))     /* it would say nothing there */
            continue;
        pair_of(object, key, v, pair, sizeof pair);
        json_array_append_new(rows, change_json(a, pair));
    }
}

/* The first plan with each option of the second alone. */
static json_t *changes(const struct explained *p, const struct explained *q)
{
    bool same = p->plan.strategy == q->plan.strategy && p->plan.dialect == q->plan.dialect;
    json_t *x = same ? plan_to_json(&p->plan) : plan_source_brief(&p->plan);
    json_t *y = same ? plan_to_json(&q->plan) : plan_source_brief(&q->plan), *rows = json_array();

    change_keys(&p->plan, x, y, "", rows);
    json_decref(x);
    json_decref(y);
    return rows;
}

/* ", memory +1.00 GiB". */
static void print_more(const char *what, int64_t was, int64_t now, FILE *to)
{
    fprintf(to, ", %s %c%s", what, now < was ? '-' : '+', size_text(now > was ? now - was : was - now).s);
}

static void print_changes(const struct explained *p, FILE *to, const json_t *rows)
{
    json_t *row;
    size_t i;

    if (json_array_size(rows) == 0)
        return;
    fprintf(to, "\nthe first plan with one option set as in the second (defaults that depend on it change too)\n");
    json_array_foreach((json_t *)rows, i, row) {
        const char *set = json_string_value(json_object_get(row, "set")), *refused = json_string_value(json_object_get(row, "refused"));
        if (refused) {
            fprintf(to, "  %-44.44s cannot be changed alone: %s\n", set, refused);
            continue;
        }
        int64_t was = held_of_node(&p->e, SPACE_HOST), now = json_integer_value(json_object_get(row, "host_bytes"));
        fprintf(to, "  %-44.44s step %+.4g s, %s %s", set,
                json_real_value(json_object_get(row, "step_s")) - p->t.line.step_s, sample_rate_unit(&p->plan.model),
                percent_change(json_real_value(json_object_get(row, rate_key(&p->plan))) / sample_rate(&p->plan.model, p->plan.seq, p->t.tokens_per_s)).s);
        print_more("memory", p->e.m.needed, json_integer_value(json_object_get(row, "needed_bytes")), to);
        if (now != was)
            print_more(eval_space_name(SPACE_HOST), was, now, to);
        fputc('\n', to);
    }
}

/* ---- both together ---- */

/* 0 where it says no more than the line above it. */
static int64_t taken(const struct evaluation *e) { return e->reserved.known ? evaluation_taken(&e->m, &e->reserved) : 0; }

static void print_memory(const struct explained *p, const struct explained *q, FILE *to)
{
    fprintf(to, "\nmemory at the peak (%s; %s)\n", p->e.peak_at, q->e.peak_at);
    for (int c = 0; c < NCAT; c++)
        print_bytes(category_name((enum category)c), p->e.m.ledger.peak.by[c], q->e.m.ledger.peak.by[c], to);
    print_bytes("NCCL, BLAS workspaces", p->e.m.needed - p->e.m.ledger.peak.bytes, q->e.m.needed - q->e.m.ledger.peak.bytes, to);
    print_bytes("together", p->e.m.needed, q->e.m.needed, to);
    print_bytes(EVAL_TAKEN, taken(&p->e), taken(&q->e), to);
    for (int m = SPACE_PINNED; m < NSPACE; m++)
        print_bytes(eval_space_name((enum space)m), held_of_node(&p->e, m), held_of_node(&q->e, m), to);
    if (!p->e.m.fits)
        fprintf(to, "  the first plan does not fit: %s\n", p->e.why_not);
    if (!q->e.m.fits)
        fprintf(to, "  the second plan does not fit: %s\n", q->e.why_not);
}

/* ---- bytes sent ---- */

/* Those of collectives over the group of this name. */
static int64_t sent_over(const struct evaluation *e, const char *name)
{
    int64_t sent = 0;

    for (int i = 0; i < e->comm.n; i++)
        if (!strcmp(e->schedules.groups.group[e->comm.line[i].group].name, name))
            sent += e->comm.line[i].sent;
    return sent;
}

static bool has_group(const struct plan_groups *groups, const char *name)
{
    for (int g = 0; g < groups->n; g++)
        if (!strcmp(groups->group[g].name, name))
            return true;
    return false;
}

/* Group by group, since groups lie on different links. */
static void print_sent(const struct evaluation *a, const struct evaluation *b, FILE *to)
{
    const struct plan_groups *one = &a->schedules.groups, *two = &b->schedules.groups;
    char over[64];

    fprintf(to, "\nbytes that each rank sends in a step\n");
    for (int g = 0; g < one->n + two->n; g++) {
        const char *name = g < one->n ? one->group[g].name : two->group[g - one->n].name;
        if (g >= one->n && has_group(one, name))
            continue;
        snprintf(over, sizeof over, "over %s", name);
        print_bytes(over, sent_over(a, name), sent_over(b, name), to);
    }
    print_bytes("together", a->comm.sent_bytes, b->comm.sent_bytes, to);
}

static void print_numerics(const char *which, const struct plan *p, const struct plan *other, FILE *to)
{
    const char *what = search_codes_changes(p), *there = search_codes_changes(other);

    if (what && !(there && !strcmp(what, there)))
        fprintf(to, "  %s plan changes the numerics: %s\n", which, what);
}

/* The network's speed at which both take as long; 0: there is none, or one node alone. */
static double crossing(const struct explained *p, const struct explained *q, bool *slower)
{
    const struct cluster *a = &p->plan.cluster, *b = &q->plan.cluster;
    bool same = a->nodes == b->nodes && a->gpus_per_node == b->gpus_per_node && !(a->inter < b->inter) && !(a->inter > b->inter);

    return same && a->nodes > 1 ? crossover_find(&p->plan, &q->plan, slower) : 0;
}

static void print_crossing(const struct explained *p, const struct explained *q, FILE *to)
{
    bool slower;
    double at = crossing(p, q, &slower);

    if (at > 0)
        fprintf(to, "\nBoth take as long at %s between nodes (here %s); on a slower network the %s takes less.\n", answer_network(at).s,
                answer_network(p->plan.cluster.inter).s, slower ? "second" : "first");
}

void explain_two(struct explained *p, struct explained *q, bool schedule, FILE *to)
{
    json_t *a = plan_to_json(&p->plan), *b = plan_to_json(&q->plan), *keys = json_array(), *rows;
    char first[PLAN_WORDS], second[PLAN_WORDS];

    plan_words(&p->plan, first, sizeof first);
    plan_words(&q->plan, second, sizeof second);
    fprintf(to, "first column:  " PAGE_HANG "%s\nsecond column: " PAGE_HANG "%s\n\noptions that differ\n", first, second);
    different_keys(a, b, "", keys);
    print_keys(keys, to);
    print_numerics("the first", &p->plan, &q->plan, to);
    print_numerics("the second", &q->plan, &p->plan, to);
    print_memory(p, q, to);
    print_sent(&p->e, &q->e, to);
    print_steps(p, q, to);
    print_changes(p, to, rows = changes(p, q));
    print_crossing(p, q, to);
    if (schedule)
        print_schedules(p, q, to);
    json_decref(rows);
    json_decref(keys);
    json_decref(a);
    json_decref(b);
}

static json_t *plan_json(const struct explained *p)
{
    json_t *doc = evaluation_json(&p->plan, &p->e);

    simulate_timing_into(doc, &p->plan, &p->e, &p->t);
    return doc;
}

json_t *explain_two_json(struct explained *p, struct explained *q, bool schedule)
{
    json_t *a = plan_to_json(&p->plan), *b = plan_to_json(&q->plan), *keys = json_array(), *lines = NULL;

    different_keys(a, b, "", keys);
    json_decref(a);
    json_decref(b);
    json_t *doc = json_pack("{s:i, s:o, s:o, s:o, s:o}", "dpx", 1, "first", plan_json(p), "second", plan_json(q), "options", keys,
                            "changes", changes(p, q));
    bool slower = false;
    double at = crossing(p, q, &slower);
    json_object_set_new(doc, "crossover", at > 0 ? json_pack("{s:f, s:b}", "bytes_per_s", at, "second_below", slower) : json_null());
    if (schedule)
        json_object_set_new(doc, "schedule", (lines = different_lines(p, q)) ? lines : json_null());
    return doc;
}
