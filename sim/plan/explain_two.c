/* explain_two.c -- two plans side by side: what differs, and what each difference makes of the step. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_source.h"

int explain_load(const char *path, struct explained *p)
{
    if (plan_source_read(path, NULL, &p->plan) < 0)
        return -1;
    if (evaluate(&p->plan, &p->e) < 0) {
        plan_free(&p->plan);
        return -1;
    }
    return 0;
}

void explain_unload(struct explained *p)
{
    evaluation_free(&p->e);
    plan_free(&p->plan);
}

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

/* Longest common subsequence, then the lines outside of it: what diff prints.
 * Schedules fold equal blocks, so n*m stays small; a flat one that is too long is
 * not compared line by line. */
static void print_diff(char **a, int n, char **b, int m)
{
    enum { SHOW = 60 };
    int shown = 0;
    int *lcs;

    if ((int64_t)n * m > 16 << 20) {
        printf("  (%d and %d entries: too many to compare line by line)\n", n, m);
        return;
    }
    lcs = calloc((size_t)(n + 1) * (size_t)(m + 1), sizeof *lcs);
    if (!lcs)
        abort();
#define LCS(i, j) lcs[(size_t)(i) * (size_t)(m + 1) + (size_t)(j)]
    for (int i = n - 1; i >= 0; i--)
        for (int j = m - 1; j >= 0; j--)
            LCS(i, j) = !strcmp(a[i], b[j]) ? LCS(i + 1, j + 1) + 1
                      : LCS(i + 1, j) > LCS(i, j + 1) ? LCS(i + 1, j) : LCS(i, j + 1);
    for (int i = 0, j = 0; (i < n || j < m) && shown < SHOW; ) {
        if (i < n && j < m && !strcmp(a[i], b[j])) {
            i++, j++;
            continue;
        }
        if (i < n && (j >= m || LCS(i + 1, j) >= LCS(i, j + 1)))
            printf("- %s\n", a[i++]);
        else
            printf("+ %s\n", b[j++]);
        shown++;
    }
#undef LCS
    if (shown == SHOW)
        printf("  ... and more\n");
    if (shown == 0)
        printf("  the same, entry for entry\n");
    free(lcs);
}

/* "deepspeed.offload_param" of "deepspeed" and "offload_param". */
static void path_of(const char *object, const char *key, char path[96])
{
    snprintf(path, 96, "%s%s%s", object, *object ? "." : "", key);
}

static void print_keys(const json_t *a, const json_t *b, const char *prefix)
{
    const char *key;
    char path[96];
    json_t *x;

    json_object_foreach((json_t *)a, key, x) {
        const json_t *y = json_object_get(b, key);
        if (json_equal(x, (json_t *)y))
            continue;
        if (json_is_object(x) && json_is_object(y)) {
            path_of(prefix, key, path);
            print_keys(x, y, path);
            continue;
        }
        path_of(prefix, key, path);
        char *s = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT);
        char *t = y ? json_dumps(y, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        printf("  %-28s %14.40s   %14.40s\n", path, s ? s : "-", t ? t : "-");
        free(s);
        free(t);
    }
    json_object_foreach((json_t *)b, key, x) {
        if (!json_object_get(a, key)) {
            char *t = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT);
            path_of(prefix, key, path);
            printf("  %-28s %14s   %14.40s\n", path, "-", t ? t : "-");
            free(t);
        }
    }
}

static void print_bytes(const char *what, int64_t a, int64_t b)
{
    if (a || b)
        printf("  %-24s %14s   %14s   %s%s\n", what, size_text(a).s, size_text(b).s, b < a ? "-" : b > a ? "+" : "",
               size_text(b > a ? b - a : a - b).s);
}

static void print_seconds(const char *what, double a, double b)
{
    if (a > 0 || b > 0)
        printf("  %-28s %12.4g s %14.4g s   %+.4g s\n", what, a, b, b - a);
}

/* Each part of the step. */
static void print_steps(const struct timing *a, const struct timing *b, const struct schedules *s, const struct schedules *t)
{
    double exposed[2][NCOLL] = { { 0 } };
    char name[64];

    for (int op = 0; op < NCOLL; op++) {
        for (int g = 0; g < s->groups.n; g++)
            exposed[0][op] += a->line.exposed_by[op][g];
        for (int g = 0; g < t->groups.n; g++)
            exposed[1][op] += b->line.exposed_by[op][g];
    }
    printf("\none steady step (%s; %s)\n", basis_name(a->basis), basis_name(b->basis));
    print_seconds("compute", a->line.compute_s, b->line.compute_s);
    for (int op = 0; op < NCOLL; op++) {
        snprintf(name, sizeof name, "exposed %s", coll_name((enum coll_op)op));
        print_seconds(name, exposed[0][op], exposed[1][op]);
    }
    print_seconds("optimizer", a->line.optimizer_s, b->line.optimizer_s);
    print_seconds(eval_idle_name(s->spaces || t->spaces), a->line.idle_s, b->line.idle_s);
    print_seconds("bubble (other stages' turn)", a->line.bubble_s, b->line.bubble_s);
    print_seconds("waiting for the slowest rank", a->line.slowest_s, b->line.slowest_s);
    print_seconds("together", a->line.step_s, b->line.step_s);
    printf("  %-28s %14.4g %16.4g   %+.1f %%\n", "tokens/s", a->tokens_per_s, b->tokens_per_s,
           100 * (b->tokens_per_s / a->tokens_per_s - 1));
}

/* ---- what each option makes of it ---- */

/* "KEY=VALUE" for the second plan's value. */
static void pair_of(const char *object, const char *key, const json_t *v, char *to, size_t size)
{
    char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    snprintf(to, size, "%s%s%s=%s", object, *object ? "." : "", key, text ? text : json_string_value(v));
    free(text);
}

static int64_t held_of_node(const struct evaluation *e, int space) { return e->m.elsewhere ? e->m.spaces.of[space].peak : 0; }

struct totals { double step_s, tokens_per_s; int64_t bytes, host; };

/* One plan's totals; -1 reported. */
static int totals_of(const struct plan *p, struct totals *out)
{
    struct evaluation e;
    struct timing t;

    if (evaluate(p, &e) < 0)
        return -1;
    int rc = simulate_plan(p, &e, &t, NULL);
    *out = (struct totals){ t.line.step_s, t.tokens_per_s, e.m.needed, held_of_node(&e, SPACE_HOST) };
    evaluation_free(&e);
    return rc;
}

/* ", memory +1.00 GiB". */
static void print_more(const char *what, int64_t was, int64_t now)
{
    printf(", %s %c%s", what, now < was ? '-' : '+', size_text(now > was ? now - was : was - now).s);
}

/* The first plan with this one change. */
static void print_change(const struct plan *a, const struct totals *was, const char *pair)
{
    struct plan p;
    struct totals now;
    char why[200];
    int rc;

    struct fail_sink before = fail_divert(why, sizeof why);
    rc = plan_source_with(a, &pair, 1, &p);
    if (rc == 0) {
        p.cluster.measured = a->cluster.measured;
        rc = totals_of(&p, &now);
        plan_free(&p);
    }
    fail_restore(before);
    if (rc < 0) {
        printf("  %-44.44s cannot be changed alone: %s\n", pair, why);
        return;
    }
    printf("  %-44.44s step %+.4g s, tokens/s %+.1f %%", pair, now.step_s - was->step_s,
           100 * (now.tokens_per_s / was->tokens_per_s - 1));
    print_more("memory", was->bytes, now.bytes);
    if (now.host != was->host)
        print_more(eval_space_name(SPACE_HOST), was->host, now.host);
    putchar('\n');
}

static void print_changes(const struct plan *a, const struct totals *was, const json_t *x, const json_t *y, const char *object)
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
            print_changes(a, was, u, v, path);
            continue;
        }
        pair_of(object, key, v, pair, sizeof pair);
        print_change(a, was, pair);
    }
}

/* ---- the command ---- */

static void print_schedules(const struct explained *p, const struct explained *q)
{
    int n, m;
    char **x = lines_of(&p->e.schedules, &n), **y = lines_of(&q->e.schedules, &m);

    printf("\nsteady schedules, - only in the first, + only in the second\n");
    print_diff(x, n, y, m);
    if (n > 0)
        free(x[0]);
    if (m > 0)
        free(y[0]);
    free(x);
    free(y);
}

static void print_memory(const struct explained *p, const struct explained *q)
{
    printf("\nmemory at the peak (%s; %s)\n", p->e.peak_at, q->e.peak_at);
    for (int c = 0; c < NCAT; c++)
        print_bytes(category_name((enum category)c), p->e.m.ledger.peak.by[c], q->e.m.ledger.peak.by[c]);
    print_bytes("together", p->e.m.ledger.peak.bytes, q->e.m.ledger.peak.bytes);
    print_bytes("needed, overhead included", p->e.m.needed, q->e.m.needed);
    for (int m = SPACE_PINNED; m < NSPACE; m++)
        print_bytes(eval_space_name((enum space)m), held_of_node(&p->e, m), held_of_node(&q->e, m));
    if (!p->e.m.fits)
        printf("  the first does not fit: %s\n", p->e.why_not);
    if (!q->e.m.fits)
        printf("  the second does not fit: %s\n", q->e.why_not);
    printf("\nsent by each rank in a step\n");
    print_bytes("all collectives", p->e.comm.sent_bytes, q->e.comm.sent_bytes);
}

/* Of an evaluated plan, by what was measured on its machine. */
static int time_of(struct explained *p, const char *db, struct timing *t)
{
    int rc = measured_load(db, p->plan.precision, &p->plan.cluster) < 0 ? measured_status()
           : simulate_plan(&p->plan, &p->e, t, NULL) < 0 ? EXIT_MISUSE : EXIT_DONE;

    measured_unload();
    p->plan.cluster.measured = NULL;
    return rc;
}

static int compare(struct explained *p, struct explained *q, bool schedule, const char *db)
{
    json_t *a = plan_to_json(&p->plan), *b = plan_to_json(&q->plan);
    char first[160], second[160];
    struct timing t, u;
    int rc = time_of(p, db, &t);

    if (rc == EXIT_DONE)
        rc = time_of(q, db, &u);
    if (rc == EXIT_DONE) {
        struct totals was;
        knob_label(&p->plan, first, sizeof first);
        knob_label(&q->plan, second, sizeof second);
        printf("%s\n%s: the second column\n\noptions that differ\n", first, second);
        print_keys(a, b, "");
        print_memory(p, q);
        print_steps(&t, &u, &p->e.schedules, &q->e.schedules);
        rc = totals_of(&p->plan, &was) < 0 ? EXIT_MISUSE : EXIT_DONE;
        printf("\nthe first with one option of the second, its other defaults following\n");
        bool same = p->plan.strategy == q->plan.strategy && p->plan.dialect == q->plan.dialect;
        json_t *x = same ? json_incref(a) : plan_source_brief(&p->plan);
        json_t *y = same ? json_incref(b) : plan_source_brief(&q->plan);
        if (rc == EXIT_DONE)
            print_changes(&p->plan, &was, x, y, "");
        json_decref(x);
        json_decref(y);
        if (schedule)
            print_schedules(p, q);
    }
    json_decref(a);
    json_decref(b);
    return rc;
}

int explain_two(const char *first, const char *second, bool schedule, const char *db)
{
    struct explained p, q;

    if (explain_load(first, &p) < 0)
        return EXIT_MISUSE;
    if (explain_load(second, &q) < 0) {
        explain_unload(&p);
        return EXIT_MISUSE;
    }
    int rc = compare(&p, &q, schedule, db);
    explain_unload(&p);
    explain_unload(&q);
    return rc;
}
