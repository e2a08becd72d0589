/* report.h -- a report: its words, tables and figures.
 *
 *     struct report r;
 *     report_make(&comparison, sweep, plans, &r);      (each may be NULL)
 *     report_write(&r, database, folder);
 *     report_free(&r);
 *
 *     report_tables.c    every number of a report, by run, rank, phase, collective
 *     report_figures.c   what one picture shows: by run       report_curves.c   over sizes and worlds
 *     report_stages.c    pipelines: a figure, a table, words
 *     report_sweep.c     what dpxplan sweep --json wrote
 *     report_plans.c     what dpxplan eval, explain and search --json wrote    report_step.c   the step of one plan
 *     report_words.c     which plan, where prediction and run differ, what is not known
 *     report_page.c      index.html, summary.md, csv/, figures/ */
#ifndef DPX_REPORT_H
#define DPX_REPORT_H

#include "base/chart/chart.h"
#include "reports/page/compare.h"
#include "reports/page/prose.h"
#include "reports/page/report_plans.h"
#include "reports/page/report_sweep.h"
#include "reports/page/table.h"

enum report_table {
    TABLE_PLANS,
    TABLE_RUNS,
    TABLE_MEMORY,
    TABLE_COMM,
    TABLE_PHASES,
    TABLE_STAGES,
    TABLE_CHECKPOINTS,
    TABLE_USE,
    TABLE_STEPS,
    TABLE_ENTRIES,
    TABLE_MOMENTS,
    TABLE_SCALING,
    TABLE_COLLECTIVES,
    TABLE_FITS,
    TABLE_GEMM,
    TABLE_FACTS,
    TABLE_SWEEP,
    TABLE_PREDICTIONS,
    TABLE_CATEGORIES,
    TABLE_PARTS,
    TABLE_STEP_COMM,
    TABLE_FRONT,
    NTABLE
};
enum report_words {
    WORDS_VERDICT,
    WORDS_SWEEP,
    WORDS_PLANS,
    WORDS_DIFFERENCES,
    WORDS_PIPELINE,
    WORDS_COMMUNICATION,
    WORDS_UNCALIBRATED,
    WORDS_MISSING,
    NWORDS
};

enum { MAX_CHARTS = 56 };

struct report {
    const struct comparison *c;     /* NULL: no runs were asked for */
    const struct report_sweep *sweep;       /* NULL: none */
    const struct report_plans *plans;       /* NULL: none */
    struct table *table[NTABLE];
    struct prose *words[NWORDS];
    struct chart *chart[MAX_CHARTS];
    int ncharts;
};

void report_make(const struct comparison *c, const struct report_sweep *sweep, const struct report_plans *plans, struct report *out);
void report_free(struct report *r);
/* Into a folder, which is made if need be; `database`: where the runs are from.  0, or -1 reported. */
int  report_write(const struct report *r, const char *database, const char *folder);

/* A page of a text that is a table already, as `folder`/index.html; `title` and `text` are anything.  0, or -1 reported. */
int  report_write_text(const char *folder, const char *title, const char *text);

/* ---- its parts ---- */
void report_tables(struct report *r);
void report_scaling_table(struct report *r);
void report_figures(struct report *r);
void report_curves(struct report *r);
void report_words(struct report *r);
void report_stages_figures(struct report *r);
struct table *report_stages_table(const struct comparison *c);
void report_stages_words(struct report *r);

/* An empty figure of the report. */
struct chart *report_chart(struct report *r, enum chart_kind k, const char *id, const char *title,
                           const char *caption);
void report_add_chart(struct report *r, struct chart *c);
/* Says that a figure is left out, and why. */
void report_missing(struct report *r, const char *what, const char *why);

/* A figure that stands in no other table, in that of facts as `name`.RUN: `key` is its place. */
void report_fact_row(const struct report *r, enum measure u, double v, const char *name, int64_t run, char key[64]);
/* The same, and into prose. */
void report_fact(struct report *r, struct prose *p, enum measure u, double v, const char *name, int64_t run);

/* time = alpha + beta * bytes, least squares of the relative error, of rates.coll[from .. to). */
struct line_fit { double alpha_s, beta_s; };
struct line_fit table_fit_line(const struct coll_rate *c, int64_t n);
/* The end of the sweep that begins at `from`: same machine, operation, algorithm, dtype, ranks. */
int64_t table_sweep_end(const struct rates *r, int64_t from);

/* The colour that a strategy has in every figure; of other things base/chart/meaning.h. */
int figure_colour_of_strategy(const char *strategy);

#endif
