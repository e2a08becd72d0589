/* cmd_sweep.c -- dpxplan sweep: a plan evaluated, or a question searched, at many points. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/output.h"
#include "base/page.h"
#include "sim/plan/commands.h"
#include "sim/plan/figure.h"
#include "sim/plan/progress.h"
#include "sim/plan/sweep.h"
#include "sim/plan/sweep_figure.h"
#include "sim/plan/sweep_print.h"

struct args {
    struct sweep_asked asked;
    const char *csv, *figure;
    int  metric;
    bool json, all;
};

struct outputs {
    FILE *page;             /* what people read; NULL with --json */
    bool all;
    FILE *rows;             /* every row, for the charts */
    struct output csv;
    bool has_csv, json;
};

static void write_row(const struct sweep *s, int64_t i, const struct sweep_row *r, struct outputs *o)
{
    if (o->has_csv)
        sweep_csv_row(s, i, r, o->csv.f);
    if (o->json)
        sweep_json_row(s, i, r, stdout);
    else
        sweep_table_row(s, i, r, o->all, o->page);
    fwrite(r, sizeof *r, 1, o->rows);
}

/* All points, or those before the user stopped. */
static void run_points(struct sweep *s, struct outputs *o, struct sweep_count *count)
{
    struct progress p;

    progress_start(&p, s->points, "points");
    if (o->json) {
        answer_given();
        sweep_json_head(s, stdout);
    }
    else
        sweep_table_head(s, o->all, o->page);
    for (int64_t i = 0; i < s->points && !progress_stopped(); progress_at(&p, i, s->points)) {
        struct sweep_row r;
        sweep_point(s, i, &r);
        progress_clear(&p);
        write_row(s, i++, &r, o);
        sweep_count_row(count, &r);
    }
    progress_end(&p);
    if (o->json)
        sweep_json_end(s, count->done, stdout);
    else
        sweep_table_end(s, o->rows, count->done, o->all, o->page);
}

static int status(const struct sweep *s, const struct sweep_count *count)
{
    if (count->done == s->points)
        return sweep_count_status(count);
    fail("stopped after %" PRId64 " of %" PRId64 " points; what was done is kept", count->done, s->points);
    return EXIT_FAILED;
}

static int run(const struct args *a, struct sweep *s)
{
    struct outputs o = { .json = a->json, .all = a->all };
    struct sweep_count count = { 0 };
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
    if (!a->json && !(o.page = page_open(stdout))) {
        fclose(o.rows);
        return EXIT_FAILED;
    }
    if (o.has_csv)
        sweep_csv_head(s, o.csv.f);
    run_points(s, &o, &count);
    if (o.page)
        page_close(o.page);
    rc = status(s, &count);
    if (o.has_csv && output_close(&o.csv) < 0)
        rc = EXIT_FAILED;
    if (!a->json && count.fit > 1)
        sweep_bars(s, o.rows, count.done, a->metric, stdout);
    if (a->figure && count.fit > 0 && sweep_figure(s, o.rows, count.done, a->metric, a->figure) < 0)
        rc = EXIT_FAILED;
    fclose(o.rows);
    return rc;
}

/* What the chart and the figure need. */
static int check(const struct args *a)
{
    const struct money_question *money = &a->asked.money;

    if (!money->tokens && (a->metric == SWEEP_DAYS || a->metric == SWEEP_COST))
        return fail("--metric %s: of how many tokens? give --tokens", sweep_metrics[a->metric]);
    if (a->metric == SWEEP_COST && money->price < 0)
        return fail("--metric cost: at what price? give --price");
    return a->figure ? figure_name(a->figure) : 0;
}

int cmd_sweep(int argc, char **argv)
{
    struct args a = { .asked = SWEEP_ASKED };
    const struct opt opts[] = {
        SWEEP_OPTS(a.asked),
        { "metric", "what the chart and the figure show", .word = &a.metric, .words = sweep_metrics },
        { "all", "print each plan by its label", .flag = &a.all },
        { "csv", "write the rows here, too", .str = &a.csv, .value = "FILE" },
        { "json", "print one JSON document", .flag = &a.json },
        { "output", "draw a figure: .svg", .str = &a.figure, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    struct sweep s;
    int rc = opts_parse("dpxplan sweep", "A plan evaluated, or a question searched, at each of many points.  Efficiency is "
                        "tokens/s of a GPU\nagainst the first point of its series that fits, MFU of the GPU's dense peak in the\nplan's precision, also with fp8.  Ctrl-C keeps what is done.",
                        opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (check(&a) < 0 || sweep_open(&a.asked, &s) < 0)
        return EXIT_MISUSE;
    if (a.metric == SWEEP_EFFICIENCY && !s.scales)
        rc = fail("--metric efficiency: no axis changes the number of GPUs (nodes, gpus_per_node, cluster)") < 0 ? EXIT_MISUSE : EXIT_DONE;
    else
        rc = run(&a, &s);
    sweep_free(&s);
    return rc;
}
