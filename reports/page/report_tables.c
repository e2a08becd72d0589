/* report_tables.c -- the report's tables: runs, plans, memory, collectives, phases, calibrations. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reports/page/report.h"

static const char *date_of(double t, char *to, size_t size)
{
    time_t s = (time_t)t;
    struct tm tm;

    if (!gmtime_r(&s, &tm) || strftime(to, size, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        return "";
    return to;
}

/* ---- every run ---- */

static struct table *runs_columns(void)
{
    struct table *t = table_new("runs", "Runs");

    table_column(t, "run", "Run", UNIT_ID, SHOWN);
    table_column(t, "started", "Started (UTC)", UNIT_TEXT, CSV_ONLY);
    table_column(t, "host", "Host", UNIT_TEXT, CSV_ONLY);
    table_column(t, "device", "Device", UNIT_TEXT, CSV_ONLY);
    table_column(t, "model", "Model", UNIT_TEXT, SHOWN);
    table_column(t, "strategy", "Strategy", UNIT_TEXT, SHOWN);
    table_column(t, "dialect", "Framework", UNIT_TEXT, SHOWN);
    table_column(t, "world_size", "Ranks", UNIT_COUNT, SHOWN);
    table_column(t, "outcome", "How it ended", UNIT_TEXT, SHOWN);
    table_column(t, "reason", "Reason", UNIT_TEXT, CSV_ONLY);
    table_column(t, "steps", "Steps", UNIT_COUNT, CSV_ONLY);
    table_column(t, "basis", "Prediction rests on", UNIT_TEXT, CSV_ONLY);
    table_column(t, "predicted_step_s", "Step, predicted", UNIT_SECONDS, SHOWN);
    table_column(t, "low_s", "from", UNIT_SECONDS, SHOWN);
    table_column(t, "high_s", "to (90 %)", UNIT_SECONDS, SHOWN);
    table_column(t, "step_s", "Step, measured", UNIT_SECONDS, SHOWN);
    table_column(t, "step_p10_s", "10 %", UNIT_SECONDS, CSV_ONLY);
    table_column(t, "step_p90_s", "90 %", UNIT_SECONDS, CSV_ONLY);
    table_column(t, "error", "Difference", UNIT_CHANGE, SHOWN);
    table_column(t, "tokens_per_s", "Throughput", UNIT_TOKENS_S, SHOWN);
    table_column(t, "predicted_allocated_bytes", "Peak, predicted", UNIT_BYTES, SHOWN);
    table_column(t, "allocated_bytes", "Peak, measured", UNIT_BYTES, SHOWN);
    table_column(t, "predicted_held_bytes", "Held, predicted", UNIT_BYTES, CSV_ONLY);
    table_column(t, "held_bytes", "Held, measured", UNIT_BYTES, CSV_ONLY);
    table_column(t, "predicted_process_bytes", "Process, predicted", UNIT_BYTES, CSV_ONLY);
    table_column(t, "process_bytes", "Process, measured", UNIT_BYTES, CSV_ONLY);
    return t;
}

static void runs_row(struct table *t, const struct run_row *r)
{
    const struct run_predicted *p = &r->predicted;
    bool known = r->has_prediction;
    char date[32];

    table_row(t, "%" PRId64, r->id);
    table_number(t, (double)r->id);
    table_text(t, date_of(r->start.started, date, sizeof date));
    table_text(t, r->start.host);
    table_text(t, r->start.device);
    table_text(t, r->model);
    table_text(t, r->strategy);
    table_text(t, r->dialect);
    table_number(t, (double)r->start.world_size);
    table_text(t, run_outcome_name(r->end.outcome));
    table_text(t, r->end.reason);
    table_number(t, (double)r->steps);
    table_text(t, known ? p->basis : NULL);
    table_number(t, known ? p->step_s : NAN);
    table_number(t, known ? p->low_s : NAN);
    table_number(t, known ? p->high_s : NAN);
    table_number(t, r->end.step_s);
    table_number(t, r->end.p10_s);
    table_number(t, r->end.p90_s);
    table_number(t, known ? r->end.step_s / p->step_s - 1 : NAN);
    table_number(t, r->end.tokens_per_s);
    table_bytes(t, known ? p->allocated_bytes : -1);
    table_bytes(t, r->allocated_bytes);
    table_bytes(t, known ? p->held_bytes : -1);
    table_bytes(t, r->held_bytes);
    table_bytes(t, known ? p->process_bytes : -1);
    table_bytes(t, r->process_bytes);
}

static struct table *runs_table(const struct comparison *c)
{
    struct table *t = runs_columns();

    for (int64_t i = 0; i < c->all.n; i++)
        runs_row(t, &c->all.run[i]);
    return t;
}

/* ---- of the chosen runs ---- */

/* The one table that a decision needs. */
static struct table *plans_table(const struct comparison *c)
{
    struct table *t = table_new("plans", "The plans side by side");

    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
    table_column(t, "run", "Run", UNIT_ID, SHOWN);
    table_column(t, "predicted_step_s", "Step, predicted", UNIT_SECONDS, SHOWN);
    table_column(t, "low_s", "90 %: from", UNIT_SECONDS, SHOWN);
    table_column(t, "high_s", "to", UNIT_SECONDS, SHOWN);
    table_column(t, "step_s", "Step, measured", UNIT_SECONDS, SHOWN);
    table_column(t, "error", "Difference", UNIT_CHANGE, SHOWN);
    table_column(t, "tokens_per_s", "Throughput", UNIT_TOKENS_S, SHOWN);
    table_column(t, "predicted_allocated_bytes", "Peak, predicted", UNIT_BYTES, SHOWN);
    table_column(t, "allocated_bytes", "Peak, measured", UNIT_BYTES, SHOWN);
    for (int i = 0; i < c->n; i++) {
        const struct run_row *r = &c->run[i].rec.row;
        bool known = r->has_prediction;
        table_row(t, "%" PRId64, r->id);
        table_text(t, c->run[i].label);
        table_number(t, (double)r->id);
        table_number(t, known ? r->predicted.step_s : NAN);
        table_number(t, known ? r->predicted.low_s : NAN);
        table_number(t, known ? r->predicted.high_s : NAN);
        table_number(t, r->end.step_s);
        table_number(t, known ? r->end.step_s / r->predicted.step_s - 1 : NAN);
        table_number(t, r->end.tokens_per_s);
        table_bytes(t, known ? r->predicted.allocated_bytes : -1);
        table_bytes(t, r->allocated_bytes);
    }
    return t;
}

static void start_table(struct table *t)
{
    table_column(t, "run", "Run", UNIT_ID, SHOWN);
    table_column(t, "plan", "Plan", UNIT_TEXT, SHOWN);
}

static void start_row(struct table *t, const struct chosen *r)
{
    table_number(t, (double)r->rec.row.id);
    table_text(t, r->label);
}

static void memory_row(struct table *t, const struct chosen *r, const struct run_part *p, int64_t available)
{
    table_row(t, "%" PRId64 ".%" PRId64 ".%s", r->rec.row.id, p->rank, p->category);
    start_row(t, r);
    table_number(t, (double)p->rank);
    table_text(t, p->category);
    table_bytes(t, p->predicted_bytes);
    table_bytes(t, p->bytes);
    table_bytes(t, available);
}

/* -1 stays "not known" only where no part is.  What a database says may be anything: at most the largest. */
static int64_t sum_known(int64_t sum, int64_t v)
{
    if (v < 0 || sum < 0)
        return v < 0 ? sum : v;
    return sum <= INT64_MAX - v ? sum + v : INT64_MAX;
}

/* Parts [from,to) are one rank's: those of device memory with their sum, then the other memories. */
static void memory_of_rank(struct table *t, const struct chosen *r, const struct run_part *part, int64_t n)
{
    int64_t predicted = -1, measured = -1;

    for (int64_t i = 0; i < n; i++) {
        if (runs_part_elsewhere(&part[i]))
            continue;
        predicted = sum_known(predicted, part[i].predicted_bytes);
        measured = sum_known(measured, part[i].bytes);
        if (part[i].predicted_bytes > 0 || part[i].bytes > 0)
            memory_row(t, r, &part[i], r->available);
    }
    memory_row(t, r, &(struct run_part){ 0, part->rank, "together", predicted, measured }, r->available);
    for (int64_t i = 0; i < n; i++)
        if (runs_part_elsewhere(&part[i]))
            memory_row(t, r, &part[i], -1);
}

static void memory_of(struct table *t, const struct chosen *r)
{
    const struct run_parts *p = &r->parts;

    for (int64_t i = 0, n; i < p->n; i += n) {
        for (n = 1; i + n < p->n && p->part[i + n].rank == p->part[i].rank; n++)
            ;
        memory_of_rank(t, r, &p->part[i], n);
    }
}

static struct table *memory_table(const struct comparison *c)
{
    struct table *t = table_new("memory", "Memory at the peak, by rank and category");

    start_table(t);
    table_column(t, "rank", "Rank", UNIT_ID, SHOWN);
    table_column(t, "category", "Category", UNIT_TEXT, SHOWN);
    table_column(t, "predicted_bytes", "Predicted", UNIT_BYTES, SHOWN);
    table_column(t, "bytes", "Measured", UNIT_BYTES, SHOWN);
    table_column(t, "available_bytes", "A rank may use", UNIT_BYTES, SHOWN);
    for (int i = 0; i < c->n; i++)
        memory_of(t, &c->run[i]);
    return t;
}

static int64_t sum_of(const struct run_record *r, int64_t (*of)(const struct run_comm_row *))
{
    int64_t sum = -1;

    for (int64_t i = 0; i < r->ncomm; i++)
        sum = sum_known(sum, of(&r->comm[i]));
    return sum;
}

static int64_t its_count(const struct run_comm_row *c) { return c->count; }
static int64_t its_bytes(const struct run_comm_row *c) { return c->bytes; }
static int64_t its_predicted_count(const struct run_comm_row *c) { return c->predicted_count; }
static int64_t its_predicted_bytes(const struct run_comm_row *c) { return c->predicted_bytes; }

static void comm_row(struct table *t, const struct chosen *x, const struct run_comm_row *m)
{
    if (m->group)
        table_row(t, "%" PRId64 ".%s.%s.%s", x->rec.row.id, m->op, m->group, m->dtype);
    else
        table_row(t, "%" PRId64 ".%s", x->rec.row.id, m->op);
    start_row(t, x);
    table_text(t, m->op);
    table_text(t, m->group);
    table_text(t, m->dtype);
    table_bytes(t, m->predicted_count);
    table_bytes(t, m->count);
    table_bytes(t, m->predicted_bytes);
    table_bytes(t, m->bytes);
}

static struct table *comm_table_of(const struct comparison *c)
{
    struct table *t = table_new("comm", "Collectives of the whole run");

    start_table(t);
    table_column(t, "op", "Collective", UNIT_TEXT, SHOWN);
    table_column(t, "group", "Group", UNIT_TEXT, SHOWN);
    table_column(t, "dtype", "Type", UNIT_TEXT, SHOWN);
    table_column(t, "predicted_count", "Calls, predicted", UNIT_COUNT, SHOWN);
    table_column(t, "count", "Calls, measured", UNIT_COUNT, SHOWN);
    table_column(t, "predicted_bytes", "Bytes, predicted", UNIT_BYTES, SHOWN);
    table_column(t, "bytes", "Bytes, measured", UNIT_BYTES, SHOWN);
    for (int i = 0; i < c->n; i++) {
        const struct run_record *r = &c->run[i].rec;
        for (int64_t k = 0; k < r->ncomm; k++)
            comm_row(t, &c->run[i], &r->comm[k]);
        if (r->ncomm > 0)
            comm_row(t, &c->run[i], &(struct run_comm_row){ "together", NULL, NULL, sum_of(r, its_count),
                     sum_of(r, its_bytes), sum_of(r, its_predicted_count), sum_of(r, its_predicted_bytes) });
    }
    return t;
}

static void phase_row(struct table *t, const struct chosen *r, const char *name, double predicted,
                      double measured)
{
    table_row(t, "%" PRId64 ".%s", r->rec.row.id, name);
    start_row(t, r);
    table_text(t, name);
    table_number(t, predicted);
    table_number(t, measured);
    table_number(t, measured - predicted);
}

static void plus(double *sum, double v)
{
    if (!isnan(v))
        *sum = isnan(*sum) ? v : *sum + v;
}

static struct table *phases_table(const struct comparison *c)
{
    struct table *t = table_new("phases",
                                "Phases of a steady step: predicted, and measured in the last sampled one");

    start_table(t);
    table_column(t, "phase", "Phase", UNIT_TEXT, SHOWN);
    table_column(t, "predicted_s", "Predicted", UNIT_SECONDS, SHOWN);
    table_column(t, "measured_s", "Measured", UNIT_SECONDS, SHOWN);
    table_column(t, "late_s", "Longer by", UNIT_SECONDS, SHOWN);
    for (int i = 0; i < c->n; i++) {
        const struct run_record *r = &c->run[i].rec;
        double predicted = NAN, measured = NAN;
        for (int64_t k = 0; k < r->nphase; k++) {
            phase_row(t, &c->run[i], r->phase[k].name, r->phase[k].predicted_s, r->phase[k].seconds);
            plus(&predicted, r->phase[k].predicted_s);
            plus(&measured, r->phase[k].seconds);
        }
        if (r->nphase > 0)
            phase_row(t, &c->run[i], "together", predicted, measured);
    }
    return t;
}

static struct table *use_table(const struct comparison *c)
{
    struct table *t = table_new("exposure",
                                "Collectives in the sampled step of one rank, and the part of their time "
                                "during which no compute ran");

    start_table(t);
    table_column(t, "step", "Step", UNIT_ID, SHOWN);
    table_column(t, "op", "Collective", UNIT_TEXT, SHOWN);
    table_column(t, "predicted_s", "Predicted", UNIT_SECONDS, SHOWN);
    table_column(t, "predicted_exposed_s", "exposed", UNIT_SECONDS, SHOWN);
    table_column(t, "predicted_share", "of the step", UNIT_SHARE, SHOWN);
    table_column(t, "measured_s", "Measured", UNIT_SECONDS, SHOWN);
    table_column(t, "exposed_s", "exposed", UNIT_SECONDS, SHOWN);
    table_column(t, "share", "of the step", UNIT_SHARE, SHOWN);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->run[i].nuses; k++) {
            const struct chosen *r = &c->run[i];
            const struct use *u = &r->use[k];
            table_row(t, "%" PRId64 ".%s", r->rec.row.id, u->op);
            start_row(t, r);
            table_number(t, (double)r->step);
            table_text(t, u->op);
            table_number(t, u->predicted_s);
            table_number(t, u->predicted_exposed_s);
            table_number(t, u->predicted_s / r->predicted_span);
            table_number(t, u->measured_s);
            table_number(t, u->exposed_s);
            table_number(t, u->measured_s / r->span);
        }
    return t;
}

static struct table *steps_table(const struct comparison *c)
{
    struct table *t = table_new("steps", "Optimizer steps");

    start_table(t);
    table_column(t, "step", "Step", UNIT_ID, SHOWN);
    table_column(t, "schedule", "Schedule", UNIT_TEXT, SHOWN);
    table_column(t, "loss", "Loss, nats a token", UNIT_LOSS, SHOWN);
    table_column(t, "seconds", "Time", UNIT_SECONDS, SHOWN);
    table_column(t, "tokens", "Tokens", UNIT_COUNT, SHOWN);
    for (int i = 0; i < c->n; i++)
        for (int64_t k = 0; k < c->run[i].rec.nstep; k++) {
            const struct run_step *s = &c->run[i].rec.step[k];
            table_row(t, "%" PRId64 ".%" PRId64, c->run[i].rec.row.id, s->step);
            start_row(t, &c->run[i]);
            table_number(t, (double)s->step);
            table_text(t, s->schedule);
            table_number(t, s->loss);
            table_number(t, s->seconds);
            table_number(t, (double)s->tokens);
        }
    return t;
}

static void entry_row(struct table *t, const struct chosen *r, const struct run_entry *e)
{
    if (e->rank == r->rank)
        table_row(t, "%" PRId64 ".%" PRId64, r->rec.row.id, e->position);
    else
        table_row(t, "%" PRId64 ".%" PRId64 ".%" PRId64, r->rec.row.id, e->rank, e->position);
    start_row(t, r);
    table_number(t, (double)e->step);
    table_number(t, (double)e->rank);
    table_number(t, (double)e->position);
    table_text(t, e->stream);
    table_text(t, e->kind);
    table_text(t, e->what);
    table_text(t, e->unit);
    table_number(t, e->predicted_start_s);
    table_number(t, e->predicted_end_s);
    table_number(t, e->start_s);
    table_number(t, e->end_s);
    table_text(t, e->pass);
    table_number(t, e->micro_step < 0 ? NAN : (double)e->micro_step);
    table_number(t, e->met_s);
}

static struct table *entries_table(const struct comparison *c)
{
    static const char *const names[] = { "step", "rank", "position", "stream", "kind", "what", "unit",
                                         "predicted_start_s", "predicted_end_s", "start_s", "end_s", "pass", "micro_step",
                                         "met_s" };
    static const enum measure units[] = { UNIT_ID, UNIT_ID, UNIT_ID, UNIT_TEXT, UNIT_TEXT, UNIT_TEXT, UNIT_TEXT, UNIT_SECONDS,
                                          UNIT_SECONDS, UNIT_SECONDS, UNIT_SECONDS, UNIT_TEXT, UNIT_ID, UNIT_SECONDS };
    struct table *t = table_new("entries", "Entries of the sampled step");

    start_table(t);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        table_column(t, names[i], names[i], units[i], CSV_ONLY);
    for (int i = 0; i < c->n; i++)
        for (int64_t k = 0; k < c->run[i].rec.nentry; k++)
            if (c->run[i].step >= 0 && c->run[i].rec.entry[k].step == c->run[i].step)   /* of every stage */
                entry_row(t, &c->run[i], &c->run[i].rec.entry[k]);
    return t;
}

static struct table *moments_table(const struct comparison *c)
{
    struct table *t = table_new("moments", "Bytes live while an entry is issued, rank 0");

    start_table(t);
    table_column(t, "position", "Entry", UNIT_ID, CSV_ONLY);
    table_column(t, "predicted_bytes", "Predicted", UNIT_BYTES, CSV_ONLY);
    table_column(t, "bytes", "Measured", UNIT_BYTES, CSV_ONLY);
    for (int i = 0; i < c->n; i++)
        for (int64_t k = 0; k < c->run[i].moments.n; k++) {
            const struct run_moment *m = &c->run[i].moments.moment[k];
            table_row(t, "%" PRId64 ".%s.%" PRId64, c->run[i].rec.row.id, m->schedule, m->position);
            start_row(t, &c->run[i]);
            table_number(t, (double)m->position);
            table_bytes(t, m->predicted_bytes);
            table_bytes(t, m->bytes);
        }
    return t;
}

/* ---- calibrations ---- */

static struct table *collectives_table(const struct rates *r)
{
    struct table *t = table_new("collectives", "Collectives as calibrated: medians");

    table_column(t, "series", "Series", UNIT_ID, SHOWN);
    table_column(t, "host", "Host", UNIT_TEXT, SHOWN);
    table_column(t, "device", "Device", UNIT_TEXT, CSV_ONLY);
    table_column(t, "op", "Collective", UNIT_TEXT, SHOWN);
    table_column(t, "algorithm", "Algorithm", UNIT_TEXT, SHOWN);
    table_column(t, "dtype", "Type", UNIT_TEXT, SHOWN);
    table_column(t, "ranks", "Ranks", UNIT_COUNT, SHOWN);
    table_column(t, "bytes", "Full buffer", UNIT_BYTES, SHOWN);
    table_column(t, "median_s", "Time", UNIT_SECONDS, SHOWN);
    table_column(t, "busbw_gbs", "Bus bandwidth", UNIT_GBS, SHOWN);
    table_column(t, "spread", "Spread", UNIT_SHARE, SHOWN);
    for (int64_t i = 0; i < r->ncoll; i++) {
        const struct coll_rate *c = &r->coll[i];
        table_row(t, "%" PRId64, c->series);
        table_number(t, (double)c->series);
        table_text(t, c->host);
        table_text(t, c->device);
        table_text(t, c->op);
        table_text(t, c->algorithm);
        table_text(t, c->dtype);
        table_number(t, (double)c->ranks);
        table_number(t, (double)c->bytes);
        table_number(t, c->seconds);
        table_number(t, c->bus_gbs);
        table_number(t, c->spread);
    }
    return t;
}

/* Relative errors: a microsecond of a short one weighs as much as a millisecond of a long one. */
struct line_fit table_fit_line(const struct coll_rate *c, int64_t n)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (int64_t i = 0; i < n; i++) {
        double weight = 1 / (c[i].seconds * c[i].seconds), b = (double)c[i].bytes;
        w += weight;
        x += weight * b;
        y += weight * c[i].seconds;
        xx += weight * b * b;
        xy += weight * b * c[i].seconds;
    }
    double det = w * xx - x * x;
    if (n < 2 || !(det > 1e-9 * w * xx))
        return (struct line_fit){ NAN, NAN };
    return (struct line_fit){ (y * xx - x * xy) / det, (w * xy - x * y) / det };
}

int64_t table_sweep_end(const struct rates *r, int64_t from)
{
    const struct coll_rate *a = &r->coll[from];
    int64_t i = from + 1;

    while (i < r->ncoll && !strcmp(a->host, r->coll[i].host) && !strcmp(a->device, r->coll[i].device) &&
           !strcmp(a->op, r->coll[i].op) && !strcmp(a->algorithm, r->coll[i].algorithm) &&
           !strcmp(a->dtype, r->coll[i].dtype) && a->ranks == r->coll[i].ranks &&
           a->per_node == r->coll[i].per_node)
        i++;
    return i;
}

static struct table *fits_table(const struct rates *r)
{
    struct table *t = table_new("fits", "Collectives: time = start + bytes / rate, fitted to each sweep");

    table_column(t, "first_series", "First series", UNIT_ID, CSV_ONLY);
    table_column(t, "host", "Host", UNIT_TEXT, SHOWN);
    table_column(t, "op", "Collective", UNIT_TEXT, SHOWN);
    table_column(t, "algorithm", "Algorithm", UNIT_TEXT, SHOWN);
    table_column(t, "dtype", "Type", UNIT_TEXT, SHOWN);
    table_column(t, "ranks", "Ranks", UNIT_COUNT, SHOWN);
    table_column(t, "points", "Sizes", UNIT_COUNT, SHOWN);
    table_column(t, "start_s", "Start", UNIT_SECONDS, SHOWN);
    table_column(t, "rate_gbs", "Rate", UNIT_GBS, SHOWN);
    for (int64_t i = 0, end; i < r->ncoll; i = end) {
        const struct coll_rate *c = &r->coll[i];
        end = table_sweep_end(r, i);
        struct line_fit f = table_fit_line(c, end - i);
        table_row(t, "%" PRId64, c->series);
        table_number(t, (double)c->series);
        table_text(t, c->host);
        table_text(t, c->op);
        table_text(t, c->algorithm);
        table_text(t, c->dtype);
        table_number(t, (double)c->ranks);
        table_number(t, (double)(end - i));
        table_number(t, f.alpha_s);
        table_number(t, 1 / f.beta_s / 1e9);
    }
    return t;
}

static struct table *gemm_table(const struct rates *r)
{
    struct table *t = table_new("gemm", "Matrix products as calibrated: medians");

    table_column(t, "series", "Series", UNIT_ID, SHOWN);
    table_column(t, "host", "Host", UNIT_TEXT, SHOWN);
    table_column(t, "device", "Device", UNIT_TEXT, CSV_ONLY);
    table_column(t, "name", "Product", UNIT_TEXT, SHOWN);
    table_column(t, "dtype", "Type", UNIT_TEXT, SHOWN);
    table_column(t, "ranks", "Ranks busy", UNIT_COUNT, SHOWN);
    table_column(t, "batch", "Batch", UNIT_COUNT, SHOWN);
    table_column(t, "m", "m", UNIT_COUNT, SHOWN);
    table_column(t, "n", "n", UNIT_COUNT, SHOWN);
    table_column(t, "k", "k", UNIT_COUNT, SHOWN);
    table_column(t, "median_s", "Time", UNIT_SECONDS, SHOWN);
    table_column(t, "gflops", "Rate", UNIT_GFLOPS, SHOWN);
    table_column(t, "spread", "Spread", UNIT_SHARE, SHOWN);
    for (int64_t i = 0; i < r->ngemm; i++) {
        const struct gemm_rate *g = &r->gemm[i];
        table_row(t, "%" PRId64, g->series);
        table_number(t, (double)g->series);
        table_text(t, g->host);
        table_text(t, g->device);
        table_text(t, g->name);
        table_text(t, g->dtype);
        table_number(t, (double)g->ranks);
        table_number(t, (double)g->batch);
        table_number(t, (double)g->m);
        table_number(t, (double)g->n);
        table_number(t, (double)g->k);
        table_number(t, g->seconds);
        table_number(t, g->gflops);
        table_number(t, g->spread);
    }
    return t;
}

static struct table *checkpoints_table(const struct comparison *c)
{
    static const struct { const char *id, *title; enum measure unit; } columns[] = {
        { "run", "Run", UNIT_ID }, { "plan", "Plan", UNIT_TEXT }, { "step", "After step", UNIT_ID }, { "did", "State", UNIT_TEXT },
        { "predicted_bytes", "All ranks, predicted", UNIT_BYTES }, { "bytes", "All ranks", UNIT_BYTES },
        { "predicted_s", "Predicted", UNIT_SECONDS }, { "seconds", "Measured", UNIT_SECONDS },
    };
    struct table *t = table_new("checkpoints", "Checkpoints: the whole training state saved, or loaded");

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        table_column(t, columns[i].id, columns[i].title, columns[i].unit, SHOWN);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->run[i].saved.n; k++) {
            const struct run_checkpoint *one = &c->run[i].saved.of[k];
            table_row(t, "%" PRId64 ".%" PRId64 ".%s", c->run[i].rec.row.id, one->step, one->loaded ? "loaded" : "saved");
            table_number(t, (double)c->run[i].rec.row.id);
            table_text(t, c->run[i].label);
            table_number(t, (double)one->step);
            table_text(t, one->loaded ? "loaded" : "saved");
            table_bytes(t, one->predicted_bytes);
            table_bytes(t, one->bytes);
            table_number(t, one->predicted_s);
            table_number(t, one->seconds);
        }
    return t;
}

void report_tables(struct report *r)
{
    const struct comparison *c = r->c;

    r->table[TABLE_PLANS] = plans_table(c);
    r->table[TABLE_RUNS] = runs_table(c);
    r->table[TABLE_MEMORY] = memory_table(c);
    r->table[TABLE_COMM] = comm_table_of(c);
    r->table[TABLE_PHASES] = phases_table(c);
    r->table[TABLE_STAGES] = report_stages_table(c);
    r->table[TABLE_CHECKPOINTS] = checkpoints_table(c);
    r->table[TABLE_USE] = use_table(c);
    r->table[TABLE_STEPS] = steps_table(c);
    r->table[TABLE_ENTRIES] = entries_table(c);
    r->table[TABLE_MOMENTS] = moments_table(c);
    r->table[TABLE_COLLECTIVES] = collectives_table(&c->rates);
    r->table[TABLE_FITS] = fits_table(&c->rates);
    r->table[TABLE_GEMM] = gemm_table(&c->rates);
    report_scaling_table(r);
    r->table[TABLE_FACTS] = table_new("facts", "Figures of the text that stand in no other table");
    table_column(r->table[TABLE_FACTS], "value", "Value", UNIT_TIMES, CSV_ONLY);
    table_column(r->table[TABLE_FACTS], "shown", "Shown", UNIT_TEXT, CSV_ONLY);
}
