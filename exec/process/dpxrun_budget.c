/* dpxrun_budget.c -- several plans run by their framework in turn, the shortest first, and their ranking before and after.
 *
 * Each run's traces calibrate the type of GPU, so that the plans that are left are predicted, and ordered, anew. */
#include "exec/process/dpxrun.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"

/* One plan of the command line. */
struct turn { struct dpxrun r; const char *path; double predicted_s, learned_s, measured_s; int status; bool ran; };
enum side { BEFORE, LEARNED, MEASURED };

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "90s", "10min", "1.5h"; NaN reported. */
static double budget_s(const char *text)
{
    static const struct { const char *unit; double s; } units[] = { { "s", 1 }, { "min", 60 }, { "h", 3600 } };
    char *end;
    double v = strtod(text, &end);

    for (size_t i = 0; end > text && v > 0 && i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].unit))
            return v * units[i].s;
    fail("--budget %s: a time such as 90s, 10min or 1.5h", text);
    return NAN;
}

static double step_s(const struct turn *t, enum side of) { return of == MEASURED ? t->measured_s : of == LEARNED ? t->learned_s : t->predicted_s; }

/* Of n turns the place of turn i by step time, from 1; 0: it has none. */
static int place(const struct turn *t, int n, int i, enum side of)
{
    int at = 1;

    if (!(step_s(&t[i], of) > 0))
        return 0;
    for (int k = 0; k < n; k++)
        at += step_s(&t[k], of) < step_s(&t[i], of);
    return at;
}

/* Those that ran first, then by what is known now. */
static int by_prediction(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    return x->ran != y->ran ? (x->ran ? -1 : 1) : x->learned_s < y->learned_s ? -1 : x->learned_s > y->learned_s;
}

static int predict_one(struct turn *t)
{
    if (dpxrun_engine_predict(&t->r) < 0)
        return -1;
    t->learned_s = t->r.predicted.t.line.step_s;
    predict_free(&t->r.predicted);      /* turns move, and dpxrun_engine() predicts again */
    t->r.predicted = (struct predicted){ 0 };
    t->r.plan.cluster.measured = NULL;
    return 0;
}

static bool learned(const struct turn *t, int n)
{
    for (int i = 0; i < n; i++)
        if (t[i].learned_s != t[i].predicted_s)
            return true;
    return false;
}

static void print_ranking(const struct turn *t, int n)
{
    bool more = learned(t, n);

    printf("\n%-40s %22s %22s%s\n", "plan", "predicted step, place", "measured step, place", more ? "  predicted now, place" : "");
    for (int i = 0; i < n; i++) {
        printf("%-40s %15.4f s, %3d", t[i].path, t[i].predicted_s, place(t, n, i, BEFORE));
        if (t[i].measured_s > 0)
            printf(" %15.4f s, %3d", t[i].measured_s, place(t, n, i, MEASURED));
        else
            printf(" %22s", !t[i].ran ? "no time left" : "did not finish");
        if (more)
            printf(" %15.4f s, %3d", t[i].learned_s, place(t, n, i, LEARNED));
        putchar('\n');
    }
    if (more)
        printf("predicted now: by the kernels that the runs' traces show, which are in the database (dpxcal show)\n");
}

/* Of the plans from `from` on, which did not run yet, by what the database knows now; the shortest comes next. */
static int order(struct turn *t, int n, int from)
{
    for (int i = from; i < n; i++)
        if (predict_one(&t[i]) < 0)
            return -1;
    qsort(t, (size_t)n, sizeof *t, by_prediction);
    return 0;
}

static int in_turn(struct turn *t, int n, double budget)
{
    double begun = now_s();
    int status = EXIT_DONE;

    for (int i = 0; i < n; i++)
        if (dpxrun_plan_for_engine(&t[i].r) < 0)
            return EXIT_MISUSE;
    if (order(t, n, 0) < 0)
        return EXIT_MISUSE;
    for (int i = 0; i < n; i++)
        t[i].predicted_s = t[i].learned_s;
    for (int i = 0; i < n && now_s() < begun + budget; i++) {
        printf("== %s\n", t[i].path);
        t[i].ran = true;
        t[i].status = dpxrun_engine(&t[i].r);
        t[i].measured_s = t[i].status == EXIT_DONE ? t[i].r.measured.median_s : (double)NAN;
        if (t[i].status > EXIT_NO)              /* interrupted */
            return t[i].status;
        status = t[i].status != EXIT_DONE ? EXIT_FAILED : status;
        if (order(t, n, i + 1) < 0)
            return EXIT_FAILED;
    }
    if (order(t, n, 0) < 0)             /* those that ran, too */
        return EXIT_FAILED;
    print_ranking(t, n);
    return status;
}

int dpxrun_in_turn(const struct dpxrun *r)
{
    int n = r->o.plans.n, status = EXIT_MISUSE;
    double budget = r->o.budget ? budget_s(r->o.budget) : (double)INFINITY;
    struct turn *t;

    if (isnan(budget))
        return EXIT_MISUSE;
    if (r->o.json) {
        fail("--json: is for one plan: the rows of several are in the database");
        return EXIT_MISUSE;
    }
    if (!(t = calloc((size_t)n, sizeof *t))) {
        fail("out of memory for %d plans", n);
        return EXIT_FAILED;
    }
    for (int i = 0; i < n; i++) {
        t[i].r.o = r->o;
        t[i].r.learns = true;
        t[i].path = t[i].r.o.plan = r->o.plans.at[i];
        t[i].measured_s = NAN;
    }
    status = in_turn(t, n, budget);
    for (int i = 0; i < n; i++) {
        db_close(t[i].r.db);
        predict_free(&t[i].r.predicted);
        plan_free(&t[i].r.plan);
    }
    free(t);
    return status;
}
