/* accuracy_table.c -- what `make accuracy` found: predictions held against runs.
 *
 *     accuracy_table DIR               DIR/plans.tsv, DIR/runs.tsv, DIR/accuracy.db, DIR/NNN.json
 *
 * runs.tsv has one line a run that counts: plan, run in the database, probe before and after.
 * A run's step is the median of its steady steps, a plan's the median of its runs.  What is compared:
 *   calibrated   what dpxrun committed before each run, knowing the probe of that moment
 *   planned      what dpxplan said before all runs, knowing the calibration alone (predicted.tsv)
 *   normalised   the planned figure times the probes around each run over the calibration's
 * Plans are ranked as planned, and as they ran at one pace (step over probe): two runs of a shared
 * machine are minutes apart.  Between nodes only compute and optimizer have that pace, a link has its own. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/measured_for.h"
#include "calib/store/runs.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/price/flops.h"

enum { MOST = 512, RUNS = 8, PHASES = 5, GROUPS = 32 };
enum guess { CALIBRATED, PLANNED, NORMALISED, PRIOR, ONE_MFU, PEAKS, NGUESS };
static const char *const guess_names[] = { "calibrated", "planned, raw", "planned, normalised", "datasheet prior", "constant MFU",
                                           "FLOPs/peak + bytes/bandwidth" };
enum { COMPUTE, OPTIMIZER = 2 };
static const char *const phases[PHASES] = { "compute", "exposed communication", "optimizer", "idle", "bubble" };

struct row {
    char   name[16], group[32], what[96];
    int    n;                           /* runs */
    double run_s[RUNS], probe[RUNS], predicted_s[RUNS], low_s[RUNS], high_s[RUNS];
    double step_s, noise;               /* median; half of the range of its runs, as a share */
    double pace_s, pace_noise;          /* the same of runs at the calibration's pace */
    double guess[NGUESS], low, high;
    double phase[PHASES], predicted[PHASES];    /* of its last run */
    double coll[NCOLL], predicted_coll[NCOLL];  /* work of collectives, all streams */
    double flops, bytes;
};

struct table {
    struct row row[MOST];
    int    n;
    double probe;                       /* of the calibration */
    double noise;                       /* median of the plans' at one pace: two runs may agree by chance */
    bool   lab;                         /* on several nodes */
    bool   parallel;                    /* plans with tensor, context or pipeline parallelism */
    bool   away;                        /* plans with states, parameters or activations beyond device memory */
};

/* ---- reading ---- */

static struct row *find(struct table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->row[i].name, name))
            return &t->row[i];
    return NULL;
}

static FILE *open_in(const char *dir, const char *file)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, file);
    f = fopen(path, "r");
    if (!f)
        fail("%s: cannot be read", path);
    return f;
}

static int read_plans(const char *dir, struct table *t)
{
    FILE *f = open_in(dir, "plans.tsv");
    struct row r = { 0 };

    while (f && t->n < MOST && fscanf(f, "%15[^\t]\t%31[^\t]\t%95[^\n]\n", r.name, r.group, r.what) == 3)
        t->row[t->n++] = r;
    if (f)
        fclose(f);
    return f ? 0 : -1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(const double *x, int n)
{
    double s[MOST];

    if (n == 0)
        return NAN;
    memcpy(s, x, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_size);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static void take_entries(const struct run_record *rec, struct row *r)
{
    memset(r->coll, 0, sizeof r->coll);
    memset(r->predicted_coll, 0, sizeof r->predicted_coll);
    for (int64_t i = 0; i < rec->nentry; i++) {
        const struct run_entry *e = &rec->entry[i];
        if (e->rank != 0 || e->step != rec->row.steps || !e->what)
            continue;
        for (int op = 0; op < NCOLL; op++)
            if (!strcmp(e->what, coll_name((enum coll_op)op)) && e->end_s >= e->start_s) {
                r->coll[op] += e->end_s - e->start_s;
                if (e->predicted_end_s >= e->predicted_start_s)
                    r->predicted_coll[op] += e->predicted_end_s - e->predicted_start_s;
            }
    }
}

static void take_run(const struct run_record *rec, struct row *r, double probe)
{
    if (r->n == RUNS)
        return;
    r->predicted_s[r->n] = rec->row.predicted.step_s;
    r->low_s[r->n] = rec->row.predicted.low_s;
    r->high_s[r->n] = rec->row.predicted.high_s;
    r->probe[r->n] = probe;
    r->run_s[r->n++] = rec->row.end.step_s;
    for (int p = 0; p < PHASES; p++)
        for (int64_t i = 0; i < rec->nphase; i++)
            if (!strcmp(rec->phase[i].name, phases[p])) {
                r->phase[p] = rec->phase[i].seconds;
                r->predicted[p] = rec->phase[i].predicted_s;
            }
    take_entries(rec, r);
}

static int read_runs(const char *dir, struct db *db, struct table *t)
{
    FILE *f = open_in(dir, "runs.tsv");
    char name[32];
    double before, after;
    int64_t id;

    while (f && fscanf(f, "%31s %" SCNd64 " %lf %lf\n", name, &id, &before, &after) == 4) {
        struct run_record rec;
        struct row *r = find(t, name);
        if (!r)
            continue;
        if (runs_load(db, id, &rec) < 0)
            return fclose(f), -1;
        take_run(&rec, r, (before + after) / 2);
        run_record_free(&rec);
    }
    if (f)
        fclose(f);
    return f ? 0 : -1;
}

static int read_planned(const char *dir, struct table *t)
{
    FILE *f = open_in(dir, "predicted.tsv");
    char name[32];
    double s;

    while (f && fscanf(f, "%31s %lf\n", name, &s) == 2) {
        struct row *r = find(t, name);
        if (r)
            r->guess[PLANNED] = s;
    }
    if (f)
        fclose(f);
    return f ? 0 : -1;
}

/* ---- what else could be guessed ---- */

static int guess_others(const char *dir, struct row *r)
{
    char path[4096];
    struct plan p;
    struct evaluation e;
    struct timing t;
    int rc = -1;

    snprintf(path, sizeof path, "%s/%s.json", dir, r->name);
    if (plan_read(path, &p) < 0)
        return -1;
    if (evaluate(&p, &e) == 0) {
        rc = simulate_plan(&p, &e, &t, NULL);
        r->guess[PRIOR] = t.line.step_s;
        r->flops = flops_per_token(&p.model, p.seq, FLOPS_PALM) * (double)(plan_global_batch(&p) * p.seq)
                   / (double)p.cluster.world_size;
        r->bytes = (double)e.comm.sent_bytes;
        evaluation_free(&e);
    }
    plan_free(&p);
    return rc;
}

static bool is_away(const struct plan *p)
{
    return p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD || p->fsdp.cpu_offload
        || p->ds.offload_optimizer.device != OFFLOAD_NONE || p->ds.offload_param.device != OFFLOAD_NONE;
}

/* The best rate of a product and of a collective that were measured. */
static void peaks(const char *dir, const char *plan, struct table *t, double *flops, double *bytes)
{
    struct measured_device d;
    struct plan p;
    char path[4096];

    *flops = *bytes = NAN;
    snprintf(path, sizeof path, "%s/%s.json", dir, plan);
    if (plan_read(path, &p) < 0)
        return;
    snprintf(path, sizeof path, "%s/accuracy.db", dir);
    int found = measured_for(path, true, DT_FP32, p.kernels, &p.cluster, &d);
    t->lab = p.cluster.nodes > 1;
    t->parallel = !plan_is_data_parallel(&p);
    t->away = is_away(&p);
    plan_free(&p);
    if (found <= 0)
        return;
    t->probe = d.probe_s;
    for (int i = 0; i < d.nkernel; i++)
        if (d.kernel[i].m > 0)
            *flops = fmax(*flops, d.kernel[i].flops / d.kernel[i].s);
    for (int i = 0; i < d.ncoll; i++)
        *bytes = fmax(*bytes, (double)d.coll[i].bytes / 2 / d.coll[i].s);
    measured_device_free(&d);
}

/* Seconds of a step where the probe takes `to` in place of `from`. */
static double at_pace(const struct table *t, const struct row *r, double step_s, double from, double to)
{
    double whole = 0, paced = 1;

    if (!(t->probe > 0))
        return step_s;
    for (int p = 0; t->lab && p < PHASES; p++)
        whole += r->phase[p];
    if (whole > 0)
        paced = (r->phase[COMPUTE] + r->phase[OPTIMIZER]) / whole;
    return step_s * (1 + paced * (to / from - 1));
}

/* The one share of the peak that suits these very runs best: no planner could know it before. */
static void guess_by_rates(struct table *t, double flops, double bytes)
{
    double sum = 0;

    for (int i = 0; i < t->n; i++)
        sum += log(t->row[i].step_s / t->row[i].flops) / t->n;
    for (int i = 0; i < t->n; i++) {
        struct row *r = &t->row[i];
        r->guess[ONE_MFU] = r->flops * exp(sum);
        r->guess[PEAKS] = r->flops / flops + r->bytes / bytes;
        r->guess[NORMALISED] = at_pace(t, r, r->guess[PLANNED], t->probe, median(r->probe, r->n));
    }
}

static double typical_noise(const struct table *t)
{
    double x[MOST];

    for (int i = 0; i < t->n; i++)
        x[i] = t->row[i].pace_noise;
    return median(x, t->n);
}

/* Half of the range, as a share of the median. */
static double noise(const double *x, int n)
{
    double least = x[0], most = x[0];

    for (int k = 1; k < n; k++) {
        least = fmin(least, x[k]);
        most = fmax(most, x[k]);
    }
    return (most - least) / 2 / median(x, n);
}

static void complete_row(const struct table *t, struct row *r)
{
    double paced[RUNS];

    for (int k = 0; k < r->n; k++)
        paced[k] = at_pace(t, r, r->run_s[k], r->probe[k], t->probe);
    r->step_s = median(r->run_s, r->n);
    r->noise = noise(r->run_s, r->n);
    r->pace_s = median(paced, r->n);
    r->pace_noise = noise(paced, r->n);
    r->guess[CALIBRATED] = median(r->predicted_s, r->n);
    r->low = median(r->low_s, r->n);
    r->high = median(r->high_s, r->n);
}

static int complete(const char *dir, struct table *t)
{
    double flops = NAN, bytes = NAN;
    int kept = 0;

    if (t->n > 0)
        peaks(dir, t->row[0].name, t, &flops, &bytes);
    for (int i = 0; i < t->n; i++) {
        struct row *r = &t->row[i];
        if (r->n == 0)
            continue;
        complete_row(t, r);
        if (guess_others(dir, r) < 0)
            return -1;
        t->row[kept++] = *r;
    }
    t->n = kept;
    if (kept == 0)
        return fail("%s: no run counts yet", dir);
    guess_by_rates(t, flops, bytes);
    t->noise = typical_noise(t);
    return 0;
}

/* ---- figures ---- */

static double error(const struct row *r, enum guess g) { return r->guess[g] / r->step_s - 1; }

struct score { double mape, median, p90, worst, bias; };

static struct score score(const struct table *t, enum guess g)
{
    struct score s = { 0 };
    double x[MOST];

    for (int i = 0; i < t->n; i++) {
        double e = error(&t->row[i], g);
        x[i] = fabs(e);
        s.mape += fabs(e) / t->n;
        s.bias += e / t->n;
        if (fabs(e) > fabs(s.worst))
            s.worst = e;
    }
    s.median = median(x, t->n);
    qsort(x, (size_t)t->n, sizeof *x, by_size);
    s.p90 = x[(int)(0.9 * (t->n - 1))];
    return s;
}

/* Of two plans of a group: 0 where the runs cannot tell them apart, else which is faster. */
static int faster(const struct table *t, const struct row *a, const struct row *b)
{
    double x = fmax(a->pace_noise, t->noise), y = fmax(b->pace_noise, t->noise), d = log(a->pace_s / b->pace_s);

    return fabs(d) <= sqrt(x * x + y * y) ? 0 : d < 0 ? -1 : 1;
}

static int guessed(const struct row *a, const struct row *b, enum guess g)
{
    return a->guess[g] < b->guess[g] ? -1 : a->guess[g] > b->guess[g];
}

struct ranking { int plans, pairs; double tau, regret; };

static struct ranking rank(const struct table *t, const char *group, enum guess g)
{
    struct ranking r = { 0 };
    const struct row *best = NULL, *chosen = NULL;
    int sum = 0;

    for (int i = 0; i < t->n; i++) {
        const struct row *a = &t->row[i];
        if (strcmp(a->group, group))
            continue;
        r.plans++;
        if (!best || a->pace_s < best->pace_s)
            best = a;
        if (!chosen || a->guess[g] < chosen->guess[g])
            chosen = a;
        for (int j = 0; j < i; j++)
            if (!strcmp(t->row[j].group, group) && faster(t, a, &t->row[j])) {
                r.pairs++;
                sum += faster(t, a, &t->row[j]) * guessed(a, &t->row[j], g);
            }
    }
    r.tau = r.pairs ? (double)sum / r.pairs : NAN;
    r.regret = best ? chosen->pace_s / best->pace_s - 1 : NAN;
    return r;
}

/* ---- printing ---- */

static void print_rows(const struct table *t)
{
    printf("%-4s %-11s %-40s %8s %6s %8s %6s %6s %17s\n", "plan", "group", "", "measured", "+-", "predict", "error",
           "raw", "90 % interval");
    for (int i = 0; i < t->n; i++) {
        const struct row *r = &t->row[i];
        printf("%-4s %-11s %-40.40s %7.1fms %5.1f%% %6.1fms %+5.1f%% %+5.1f%% %7.1f..%.1f%s\n", r->name, r->group,
               r->what, 1e3 * r->step_s, 100 * r->noise, 1e3 * r->guess[CALIBRATED], 100 * error(r, CALIBRATED),
               100 * error(r, PLANNED), 1e3 * r->low, 1e3 * r->high,
               r->step_s < r->low || r->step_s > r->high ? " outside" : "");
    }
}

static void print_scores(const struct table *t)
{
    printf("\nerror of step time, %%              MAPE  median    P90   worst    bias\n");
    for (int g = 0; g < NGUESS; g++) {
        struct score s = score(t, (enum guess)g);
        printf("  %-30s %6.1f  %6.1f %6.1f  %+6.1f  %+6.1f\n", guess_names[g], 100 * s.mape, 100 * s.median,
               100 * s.p90, 100 * s.worst, 100 * s.bias);
    }
}

static void print_interval(const struct table *t)
{
    double width[MOST], noise[MOST];
    int inside = 0;

    for (int i = 0; i < t->n; i++) {
        const struct row *r = &t->row[i];
        width[i] = (r->high - r->low) / r->guess[CALIBRATED];
        noise[i] = r->noise;
        inside += r->step_s >= r->low && r->step_s <= r->high;
    }
    printf("\n90 %% interval: %.0f %% of %d plans inside, median width %.1f %%; repeats of a plan differ by +- %.1f %% "
           "(median)\n", 100.0 * inside / t->n, t->n, 100 * median(width, t->n), 100 * median(noise, t->n));
}

static double group_mape(const struct table *t, const char *group)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->row[i].group, group)) {
            sum += fabs(error(&t->row[i], CALIBRATED));
            n++;
        }
    return n ? sum / n : NAN;
}

static void print_groups(const struct table *t)
{
    const char *done[GROUPS];
    int n = 0;

    printf("\nwithin a group               plans  pairs   MAPE  %s\n", "tau (regret) planned, prior, constant MFU, peaks");
    for (int i = 0; i < t->n && n < GROUPS; i++) {
        bool seen = false;
        for (int k = 0; k < n; k++)
            seen |= !strcmp(done[k], t->row[i].group);
        if (seen)
            continue;
        done[n++] = t->row[i].group;
        struct ranking r = rank(t, t->row[i].group, PLANNED);
        printf("  %-26s %5d %6d  %5.1f  ", t->row[i].group, r.plans, r.pairs, 100 * group_mape(t, t->row[i].group));
        for (int g = 0; g < NGUESS; g++)
            if (g != NORMALISED && g != CALIBRATED) {
                r = rank(t, t->row[i].group, (enum guess)g);
                printf("  %5.2f (%4.1f %%)", r.tau, 100 * r.regret);
            }
        putchar('\n');
    }
}

/* Shares of the measured step, so that they add up to its error. */
static void print_parts(const struct table *t)
{
    printf("\nwhat the error is made of, %% of the step     bias  mean absolute\n");
    for (int p = 0; p < PHASES; p++) {
        double bias = 0, size = 0;
        for (int i = 0; i < t->n; i++) {
            double e = (t->row[i].predicted[p] - t->row[i].phase[p]) / t->row[i].step_s;
            bias += e / t->n;
            size += fabs(e) / t->n;
        }
        printf("  %-40s %+6.1f  %6.1f\n", phases[p], 100 * bias, 100 * size);
    }
    for (int op = 0; op < NCOLL; op++) {
        double sum = 0, predicted = 0;
        for (int i = 0; i < t->n; i++) {
            sum += t->row[i].coll[op];
            predicted += t->row[i].predicted_coll[op];
        }
        if (sum > 0)
            printf("  %-20s %8.1f ms measured in all, %8.1f ms predicted: %+.1f %%\n", coll_name((enum coll_op)op),
                   1e3 * sum, 1e3 * predicted, 100 * (predicted / sum - 1));
    }
}

static void print_pairs(const struct table *t)
{
    int pairs = 0, differ = 0, ours = 0;

    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < i; j++) {
            const struct row *a = &t->row[i], *b = &t->row[j];
            if (!faster(t, a, b))
                continue;
            pairs++;
            if (guessed(a, b, PLANNED) == guessed(a, b, PRIOR))
                continue;
            differ++;
            ours += guessed(a, b, PLANNED) == faster(t, a, b);
        }
    printf("\nof %d pairs that runs tell apart, prior and calibrated clock disagree on %d (%.0f %%): the calibrated one is "
           "right in %d, the prior in %d\n", pairs, differ, pairs ? 100.0 * differ / pairs : 0, ours, differ - ours);
}

/* ---- against what was asked for ---- */

static bool check(const char *what, bool holds, double value)
{
    printf("  %-52s %8.2f  %s\n", what, value, holds ? "holds" : "DOES NOT HOLD");
    return holds;
}

static bool check_number(const char *what, bool holds, double limit, double value)
{
    char words[64];

    snprintf(words, sizeof words, what, limit);
    return check(words, holds, value);
}

/* Of plans on this machine, on two nodes, with other axes than data, with offload. */
enum { HERE, LAB, PARALLEL, AWAY };
static const struct wanted { int plans; double mape, tau; } wanted[] = {
    [HERE] = { 60, .08, .8 }, [LAB] = { 20, .12, .8 }, [PARALLEL] = { 40, .06, .85 },
    [AWAY] = { 24, .06, .85 },
};

static bool verdict(const struct table *t)
{
    struct score s = score(t, CALIBRATED);
    double width[MOST], tau = 1, regret = 0, shortest = INFINITY;
    int inside = 0;

    for (int i = 0; i < t->n; i++) {
        const struct row *r = &t->row[i];
        struct ranking k = rank(t, r->group, PLANNED);
        width[i] = (r->high - r->low) / r->guess[CALIBRATED];
        inside += r->step_s >= r->low && r->step_s <= r->high;
        tau = fmin(tau, k.tau);
        regret = fmax(regret, k.regret);
        shortest = fmin(shortest, r->step_s);
    }
    double share = (double)inside / t->n;
    puts("");
    const struct wanted *w = &wanted[t->lab ? LAB : t->parallel ? PARALLEL : t->away ? AWAY : HERE];
    bool ok = check_number("plans, at least %g", t->n >= w->plans, w->plans, t->n);
    ok &= check("shortest step, at least 100 ms", shortest >= .1, 1e3 * shortest);
    ok &= check_number("MAPE at most %g %%", s.mape <= w->mape, 100 * w->mape, 100 * s.mape);
    ok &= check("worst at most 25 %", fabs(s.worst) <= .25, 100 * s.worst);
    ok &= check_number("Kendall's tau at least %g in every group", tau >= w->tau, w->tau, tau);
    ok &= check("top-1 regret at most 3 % in every group", regret <= .03, 100 * regret);
    ok &= check("interval covers 80 to 97 %", share >= .8 && share <= .97, 100 * share);
    ok &= check("its median width at most 25 %", median(width, t->n) <= .25, 100 * median(width, t->n));
    return ok;
}

int main(int argc, char **argv)
{
    static struct table t;
    char path[4096];
    struct db *db;
    int rc;

    if (argc != 2)
        return fail("usage: accuracy_table DIR"), 2;
    snprintf(path, sizeof path, "%s/accuracy.db", argv[1]);
    db = db_open_reader(path);
    rc = db && read_plans(argv[1], &t) == 0 && read_runs(argv[1], db, &t) == 0 && read_planned(argv[1], &t) == 0 ? complete(argv[1], &t) : -1;
    db_close(db);
    if (rc < 0)
        return 1;
    print_rows(&t);
    print_scores(&t);
    print_interval(&t);
    print_groups(&t);
    print_parts(&t);
    print_pairs(&t);
    return verdict(&t) ? 0 : 3;
}
