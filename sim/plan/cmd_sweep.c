/* cmd_sweep.c -- dpxplan sweep: a plan evaluated, or a question searched, at many points. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/output.h"
#include "sim/plan/commands.h"
#include "sim/plan/figure.h"
#include "sim/plan/money.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/progress.h"
#include "sim/plan/search_args.h"
#include "sim/plan/sweep.h"
#include "sim/plan/sweep_figure.h"
#include "sim/plan/sweep_print.h"

struct args {
    const char *plan, *csv, *figure;
    struct search_args ask;
    struct money_question money;
    struct opt_pairs over, set;
    int  metric;
    bool json;
};

struct outputs {
    FILE *rows;             /* every row, for the charts */
    struct output csv;
    bool has_csv, json;
};

static void write_row(const struct sweep *s, int64_t i, const struct sweep_row *r, struct outputs *o)
{
    if (o->has_csv)
        sweep_csv_row(s, i, r, o->csv.f);
    (o->json ? sweep_json_row : sweep_table_row)(s, i, r, stdout);
    fwrite(r, sizeof *r, 1, o->rows);
}

/* All points, or those before the user stopped; how many of them were refused or fit. */
static int64_t run_points(struct sweep *s, struct outputs *o, int64_t *refused, int64_t *fit, char *why, size_t size)
{
    struct progress p;
    int64_t i = 0;

    progress_start(&p, s->points);
    (o->json ? sweep_json_head : sweep_table_head)(s, stdout);
    for (; i < s->points && !progress_stopped(); progress_at(&p, i)) {
        struct sweep_row r;
        sweep_point(s, i, &r);
        if (p.shown && p.terminal)
            progress_end(&p);
        write_row(s, i++, &r, o);
        *fit += r.state == SWEEP_FITS || r.state == SWEEP_TIGHT;
        if (r.state == SWEEP_REFUSED && (*refused)++ == 0)
            snprintf(why, size, "%s", r.what);
    }
    progress_end(&p);
    if (o->json)
        sweep_json_end(s, i, stdout);
    return i;
}

static int status(const struct sweep *s, int64_t done, int64_t refused, int64_t fit, const char *why)
{
    if (done < s->points) {
        fail("stopped after %" PRId64 " of %" PRId64 " points; what was done is kept", done, s->points);
        return EXIT_FAILED;
    }
    if (refused == done) {
        fail("sweep: no point can be planned; the first: %s", why);
        return EXIT_MISUSE;
    }
    return fit ? EXIT_DONE : EXIT_NO;
}

static int run(const struct args *a, struct sweep *s)
{
    struct outputs o = { .json = a->json };
    int64_t refused = 0, fit = 0, done;
    char why[SWEEP_WHAT] = "";
    int rc;

    if (a->csv && output_open(&o.csv, a->csv) < 0)
        return EXIT_FAILED;
    o.has_csv = a->csv != NULL;
    if (!(o.rows = tmpfile())) {
        fail("a temporary file: %s", strerror(errno));
        if (o.has_csv)
            output_discard(&o.csv);
        return EXIT_FAILED;
    }
    if (o.has_csv)
        sweep_csv_head(s, o.csv.f);
    done = run_points(s, &o, &refused, &fit, why, sizeof why);
    rc = status(s, done, refused, fit, why);
    if (o.has_csv && output_close(&o.csv) < 0)
        rc = EXIT_FAILED;
    if (!a->json && fit > 1)
        sweep_bars(s, o.rows, done, a->metric, stdout);
    if (a->figure && fit > 0 && sweep_figure(s, o.rows, done, a->metric, a->figure) < 0)
        rc = EXIT_FAILED;
    fclose(o.rows);
    return rc;
}

/* What is asked besides the axes: everything with a search, nothing of it with a plan. */
static int check(const struct args *a)
{
    const struct { const char *name; bool given, axis; } of[] = {
        { "model", a->ask.model != NULL, true }, { "cluster", a->ask.cluster != NULL, true }, { "seq", a->ask.seq > 0, true },
        { "global-batch", a->ask.global_batch > 0, false },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        bool axis = false;
        char key[32];
        snprintf(key, sizeof key, "%s=", i == 3 ? "global_batch" : of[i].name);
        for (int k = 0; k < a->over.n; k++)
            axis |= !strncmp(a->over.at[k], key, strlen(key));
        if (a->plan && of[i].given && of[i].axis)
            return fail("sweep: --%s beside PLAN.json: change the plan with --set %sVALUE, or vary it with --over", of[i].name, key);
        if (!a->plan && !of[i].given && !axis)
            return fail("sweep: --%s is missing, or give a PLAN.json", of[i].name);
    }
    if (!a->plan && a->set.n)
        return fail("sweep: --set goes with PLAN.json");
    if (!a->money.tokens && (!strcmp(sweep_metrics[a->metric], "days") || !strcmp(sweep_metrics[a->metric], "cost")))
        return fail("--metric %s: of how many tokens? give --tokens", sweep_metrics[a->metric]);
    if (!strcmp(sweep_metrics[a->metric], "cost") && a->money.price < 0)
        return fail("--metric cost: at what price? give --price");
    return money_check(&a->money) < 0 || (a->figure && figure_name(a->figure) < 0) ? -1 : 0;
}

int cmd_sweep(int argc, char **argv)
{
    struct args a = { .ask = SEARCH_ARGS, .money = MONEY_NONE };
    const struct opt opts[] = {
        { "PLAN.json", "the plan to evaluate at each point; without one each point is searched", .str = &a.plan, .positional = true },
        { "over", "an axis, such as nodes=1..64*2, seq=2k,4k,8k, network=100..800+100, gpu=a100,h100, or any key of the plan",
          .pairs = &a.over, .value = "KEY=VALUES ..." },
        { "set", "change keys of the plan first", .pairs = &a.set },
        SEARCH_OPTS(a.ask, false),
        MONEY_OPTS(a.money),
        { "metric", "what the chart and the figure show", .word = &a.metric, .words = sweep_metrics },
        { "csv", "write the rows here, too", .str = &a.csv, .value = "FILE" },
        { "json", "print one JSON document", .flag = &a.json },
        { "output", "draw a figure with gnuplot: .svg or .png", .str = &a.figure, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    struct sweep s = { .ask = &a.ask, .money = &a.money };
    struct plan p;
    int rc = opts_parse("dpxplan sweep", "A plan evaluated, or a question searched, at each of many points.  Efficiency is "
                        "tokens/s of a GPU\nagainst the first point of its series that fits.  Ctrl-C keeps what is done.",
                        opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (check(&a) < 0 || (a.plan && plan_source_read(a.plan, &a.set, &p) < 0))
        return EXIT_MISUSE;
    s.plan = a.plan ? &p : NULL;
    s.db = a.ask.db;
    rc = sweep_axes(&s, &a.over) < 0 ? EXIT_MISUSE : run(&a, &s);
    sweep_free(&s);
    if (a.plan)
        plan_free(&p);
    return rc;
}
