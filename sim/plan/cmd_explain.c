/* cmd_explain.c -- dpxplan explain: a plan's schedules as text, its memory over
 * time, what is live at the peak and why; two plans: what differs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"
#include "sim/plan/commands.h"
#include "sim/plan/memory_plot.h"
#include "sim/plan/plan_source.h"
#include "sim/search/advice.h"

struct planned {
    struct plan       plan;
    struct evaluation e;
};

static int load(const char *path, struct planned *p)
{
    if (plan_source_read(path, NULL, &p->plan) < 0)
        return -1;
    if (evaluate(&p->plan, &p->e) < 0) {
        plan_free(&p->plan);
        return -1;
    }
    return 0;
}

static void unload(struct planned *p)
{
    evaluation_free(&p->e);
    plan_free(&p->plan);
}

static void print_families(const struct schedules *s, const struct peak *at)
{
    struct live live[12];
    int n = ledger_live(s, at, live, 12);

    for (int i = 0; i < n; i++)
        printf("  %12s  %s%s%s  (%" PRId64 " x %" PRId64 " B, %s)\n", size_text(live[i].bytes).s,
               s->bufs[live[i].buf].what, s->bufs[live[i].buf].of ? ", each " : "",
               s->bufs[live[i].buf].of ? s->bufs[live[i].buf].of : "", live[i].instances,
               s->bufs[live[i].buf].bytes, category_name(s->bufs[live[i].buf].category));
}

static void print_live(const struct evaluation *e)
{
    const struct schedules *s = &e->schedules;
    struct ledger l;
    char where[96];

    printf("\nlive at the peak (%s step, %s), largest first:\n", sched_name(e->m.ledger.peak.sched), e->peak_at);
    print_families(s, &e->m.ledger.peak);
    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        if (!(s->spaces & IN(in)))
            continue;
        ledger_run_in(s, IN(in), &l);
        op_in_words(s, l.peak.op, l.peak.iteration, where, sizeof where);
        printf("live in %s memory at its peak, %s (%s step, %s):\n", space_name(in), size_text(l.peak.bytes).s,
               sched_name(l.peak.sched), where);
        print_families(s, &l.peak);
    }
}

/* The steady step on the clock: a chart, or a trace file. */
static int explain_time(const struct planned *p, const char *trace)
{
    const struct schedules *s = &p->e.schedules;
    struct timing t;
    struct run r;
    int64_t before = 0;
    int rc = 0;

    if (simulate_plan(&p->plan, &p->e, &t, &r) < 0)
        return -1;
    for (int c = 0; c < NCAT; c++)
        before += p->e.m.ledger.persistent[c];
    printf("\none steady step: %.4g s (90 %%: %.4g to %.4g; %s)", t.line.step_s, t.low_s, t.high_s, basis_name(t.basis));
    if (t.line.slowest_s > 0)
        printf(", of which %.2g s waiting for the slowest rank; the others on the clock:", t.line.slowest_s);
    putchar('\n');
    if (r.n == 0)
        printf("(too many entries to draw or trace them one by one)\n");
    else if (trace)
        rc = trace_write(s, &r, before, trace);
    else
        gantt_print(s, &r, 84, stdout);
    if (t.held_bytes >= 0)
        printf("held at most %s at once, by the clock, overhead included\n", size_text(t.held_bytes).s);
    run_free(&r);
    return rc;
}

static int explain_one(const char *path, bool brief, const char *trace, const char *db)
{
    struct planned p;

    if (load(path, &p) < 0)
        return EXIT_MISUSE;
    if (load_measured(db, p.plan.precision, &p.plan.cluster) < 0) {
        unload(&p);
        return measured_status();
    }
    if (!brief)
        for (int id = 0; id < NSCHED; id++)
            sched_print(&p.e.schedules, (enum sched_id)id, stdout);
    printf("\nmemory of rank %" PRId64 " over one steady step\n", p.e.m.rank);
    memory_plot(&p.e.schedules, SCHED_STEADY, p.e.m.available, stdout);
    print_live(&p.e);
    int rc = p.e.m.fits ? EXIT_DONE : EXIT_NO;
    if (explain_time(&p, trace) < 0)
        rc = EXIT_FAILED;
    putchar('\n');
    advice_print(&p.plan, &p.e, stdout);
    unload(&p);
    unload_measured();
    return rc;
}

/* ---- two plans ---- */

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

static void print_keys(const json_t *a, const json_t *b, const char *prefix)
{
    const char *key;
    json_t *x;

    json_object_foreach((json_t *)a, key, x) {
        const json_t *y = json_object_get(b, key);
        if (json_equal(x, (json_t *)y))
            continue;
        if (json_is_object(x) && json_is_object(y)) {
            print_keys(x, y, key);
            continue;
        }
        char *s = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT);
        char *t = y ? json_dumps(y, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        printf("  %s%s%-24s %14.40s   %14.40s\n", prefix, *prefix ? "." : "", key, s ? s : "-", t ? t : "-");
        free(s);
        free(t);
    }
    json_object_foreach((json_t *)b, key, x) {
        if (!json_object_get(a, key)) {
            char *t = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT);
            printf("  %s%s%-24s %14s   %14.40s\n", prefix, *prefix ? "." : "", key, "-", t ? t : "-");
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

static int explain_two(const char *first, const char *second)
{
    struct planned p, q;
    json_t *a, *b;
    int n, m;

    if (load(first, &p) < 0)
        return EXIT_MISUSE;
    if (load(second, &q) < 0) {
        unload(&p);
        return EXIT_MISUSE;
    }
    a = plan_to_json(&p.plan);
    b = plan_to_json(&q.plan);
    printf("options that differ\n");
    print_keys(a, b, "");
    json_decref(a);
    json_decref(b);
    printf("\nmemory at the peak (%s; %s)\n", p.e.peak_at, q.e.peak_at);
    for (int c = 0; c < NCAT; c++)
        print_bytes(category_name((enum category)c), p.e.m.ledger.peak.by[c], q.e.m.ledger.peak.by[c]);
    print_bytes("together", p.e.m.ledger.peak.bytes, q.e.m.ledger.peak.bytes);
    printf("\nsent by each rank in a step\n");
    print_bytes("all collectives", p.e.comm.sent_bytes, q.e.comm.sent_bytes);
    printf("\nsteady schedules, - only in the first, + only in the second\n");
    char **x = lines_of(&p.e.schedules, &n), **y = lines_of(&q.e.schedules, &m);
    print_diff(x, n, y, m);
    if (n > 0)
        free(x[0]);
    if (m > 0)
        free(y[0]);
    free(x);
    free(y);
    unload(&p);
    unload(&q);
    return EXIT_DONE;
}

int cmd_explain(int argc, char **argv)
{
    const char *path = NULL, *other = NULL, *trace = NULL, *db = NULL;
    bool brief = false;
    const struct opt opts[] = {
        { "PLAN.json", "the plan", .str = &path, .positional = true, .required = true },
        { "OTHER.json", "a second plan: say what differs", .str = &other, .positional = true },
        { "trace", "write the step as a Chrome/Perfetto trace", .str = &trace, .value = "FILE" },
        { "db", "the database of calibrations", .str = &db, .value = "FILE" },
        { "brief", "leave out the schedules themselves", .flag = &brief },
        { 0 }
    };
    int rc = opts_parse("dpxplan explain",
                        "A plan's schedules, memory over time, what is live at the peak and why.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    return other ? explain_two(path, other) : explain_one(path, brief, trace, db);
}
