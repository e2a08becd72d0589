/* report_words.c -- what the figures say, in sentences.
 *
 * Causes are conjectures, and worded so: they follow from which phase is late, what the prediction
 * rested on, and how much the steps themselves vary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reports/page/report.h"

static void cell(struct prose *p, const char *table, int64_t run, const char *rest, enum measure u, double v)
{
    char key[128];

    snprintf(key, sizeof key, "%s/%" PRId64 "%s", table, run, rest);
    prose_number(p, key, u, v);
}

void report_fact_row(const struct report *r, enum measure u, double v, const char *name, int64_t run, char key[64])
{
    struct table *t = r->table[TABLE_FACTS];
    char row[48];

    snprintf(row, sizeof row, "%.20s.%" PRId64, name, run);
    snprintf(key, 64, "facts/%s/value", row);
    table_row(t, "%s", row);
    table_number(t, v);
    table_text(t, unit_shown(u, v).s);
}

void report_fact(struct report *r, struct prose *p, enum measure u, double v, const char *name, int64_t run)
{
    char key[64];

    report_fact_row(r, u, v, name, run, key);
    prose_number(p, key, u, v);
}

static void who(struct prose *p, const struct chosen *x)
{
    prose_name(p, x->label);
    if (strstr(x->label, ", run "))
        return;
    prose_put(p, ", ");
    prose_run(p, x->rec.row.id);
}

/* ---- which plan ---- */

static void peak(struct prose *p, const struct chosen *x)
{
    if (x->rec.row.allocated_bytes < 0)
        return;
    prose_put(p, ", with a peak of ");
    cell(p, "runs", x->rec.row.id, "/allocated_bytes", UNIT_BYTES, (double)x->rec.row.allocated_bytes);
    prose_put(p, " on the fullest rank");
}

/* Do the steps of the two vary by more than what lies between them? */
static bool within_spread(const struct run_end *fast, const struct run_end *slow)
{
    return fast->p90_s >= slow->p10_s;
}

static bool less_memory(const struct chosen *a, const struct chosen *b)
{
    return a->rec.row.allocated_bytes >= 0 && a->rec.row.allocated_bytes < b->rec.row.allocated_bytes;
}

/* The two fastest are as fast as each other, as far as these runs tell: then memory decides. */
static void tie(struct report *r, struct prose *p)
{
    const struct chosen *a = &r->c->run[r->c->best], *b = &r->c->run[r->c->second];
    const struct chosen *take = less_memory(b, a) ? b : less_memory(a, b) ? a : NULL;

    who(p, a);
    prose_put(p, " and ");
    who(p, b);
    prose_put(p, " cannot be told apart by these runs: ");
    cell(p, "runs", a->rec.row.id, "/tokens_per_s", UNIT_TOKENS_S, a->rec.row.end.tokens_per_s);
    prose_put(p, " and ");
    cell(p, "runs", b->rec.row.id, "/tokens_per_s", UNIT_TOKENS_S, b->rec.row.end.tokens_per_s);
    prose_put(p, ", ");
    report_fact(r, p, UNIT_SHARE, a->rec.row.end.tokens_per_s / b->rec.row.end.tokens_per_s - 1, "lead", a->rec.row.id);
    prose_put(p, " apart, and single steps vary by more.");
    if (take) {
        prose_put(p, " Use ");
        who(p, take);
        prose_put(p, ", which needs less memory: ");
        cell(p, "runs", take->rec.row.id, "/allocated_bytes", UNIT_BYTES, (double)take->rec.row.allocated_bytes);
        prose_put(p, " on the fullest rank.");
    }
    prose_end(p);
}

static void against_second(struct report *r, struct prose *p)
{
    const struct chosen *best = &r->c->run[r->c->best], *second = &r->c->run[r->c->second];
    const struct run_row *b = &best->rec.row, *s = &second->rec.row;

    prose_put(p, "Next is ");
    who(p, second);
    prose_put(p, " with ");
    cell(p, "runs", s->id, "/tokens_per_s", UNIT_TOKENS_S, s->end.tokens_per_s);
    prose_put(p, "; the first is faster by ");
    report_fact(r, p, UNIT_SHARE, b->end.tokens_per_s / s->end.tokens_per_s - 1, "lead", b->id);
    prose_put(p, ".");
    if (s->allocated_bytes >= 0 && s->allocated_bytes < b->allocated_bytes) {
        prose_put(p, " It needs less memory, ");
        cell(p, "runs", s->id, "/allocated_bytes", UNIT_BYTES, (double)s->allocated_bytes);
        prose_put(p, ": take it where memory is short.");
    }
    prose_end(p);
}

static void leanest(struct report *r, struct prose *p)
{
    const struct comparison *c = r->c;
    int least = -1;

    for (int i = 0; i < c->n; i++)
        if (c->run[i].rec.row.end.outcome == RUN_FINISHED && c->run[i].rec.row.allocated_bytes >= 0
            && (least < 0 || c->run[i].rec.row.allocated_bytes < c->run[least].rec.row.allocated_bytes))
            least = i;
    if (least < 0 || least == c->best || least == c->second)
        return;
    prose_put(p, "Least memory is needed by ");
    who(p, &c->run[least]);
    prose_put(p, ": ");
    cell(p, "runs", c->run[least].rec.row.id, "/allocated_bytes", UNIT_BYTES,
         (double)c->run[least].rec.row.allocated_bytes);
    prose_put(p, ", at ");
    cell(p, "runs", c->run[least].rec.row.id, "/tokens_per_s", UNIT_TOKENS_S,
         c->run[least].rec.row.end.tokens_per_s);
    prose_put(p, ".");
    prose_end(p);
}

static void no_verdict(struct report *r, struct prose *p)
{
    prose_put(
        p, r->c->all.n == 0 ? "The database holds no run yet: dpxrun PLAN.json makes one."
           : r->c->best < 0
               ? "No plan can be recommended: none of these runs finished with a throughput."
               : "No plan is recommended: these runs do not do the same work on the same machine, so their "
                 "throughputs cannot be compared.");
    prose_end(p);
}

/* Half of the range of four steps in five, as a share of the median: beyond it, something else was at work. */
#define RESTLESS 0.15

static double spread_of(const struct run_row *row) { return (row->end.p90_s - row->end.p10_s) / 2 / row->end.step_s; }

static bool was_busy(const struct comparison *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->run[i].late > 1 || spread_of(&c->run[i].rec.row) > RESTLESS)
            return true;
    return false;
}

static void advice(struct report *r, struct prose *p)
{
    const struct comparison *c = r->c;
    const struct chosen *best = &c->run[c->best];
    if (c->second >= 0 && within_spread(&best->rec.row.end, &c->run[c->second].rec.row.end)) {
        tie(r, p);
        leanest(r, p);
        return;
    }
    prose_put(p, c->second >= 0 ? "Use " : "Only one plan finished: ");
    who(p, best);
    prose_put(p, c->second >= 0 ? ": it is the fastest of those that ran, with " : ", with ");
    cell(p, "runs", best->rec.row.id, "/tokens_per_s", UNIT_TOKENS_S, best->rec.row.end.tokens_per_s);
    peak(p, best);
    if (best->available > 0) {
        prose_put(p, ", ");
        report_fact(r, p, UNIT_SHARE, (double)best->rec.row.allocated_bytes / (double)best->available, "fills",
             best->rec.row.id);
        prose_put(p, " of what a rank may use");
    }
    prose_put(p, ".");
    prose_end(p);
    if (c->second >= 0)
        against_second(r, p);
    leanest(r, p);
}

static void verdict(struct report *r)
{
    struct prose *p = r->words[WORDS_VERDICT];

    if (r->c->best < 0 || !r->c->together) {
        no_verdict(r, p);
        return;
    }
    advice(r, p);
    if (was_busy(r->c)) {
        prose_put(p, "The machine was busy, as is told below: runs on a quiet one may be in another order.");
        prose_end(p);
    }
}

/* ---- where prediction and run differ ---- */

static const struct run_phase_row *latest_phase(const struct run_record *r)
{
    const struct run_phase_row *most = NULL;

    for (int64_t i = 0; i < r->nphase; i++) {
        double late = fabs(r->phase[i].seconds - r->phase[i].predicted_s);
        if (!isnan(late) && (!most || late > fabs(most->seconds - most->predicted_s)))
            most = &r->phase[i];
    }
    return most;
}

static const struct use *latest_use(const struct chosen *x)
{
    const struct use *most = NULL;

    for (int i = 0; i < x->nuses; i++) {
        double late = fabs(x->use[i].measured_s - x->use[i].predicted_s);
        if (!isnan(late) && (!most || late > fabs(most->measured_s - most->predicted_s)))
            most = &x->use[i];
    }
    return most;
}

static void late_phase(struct prose *p, const struct chosen *x)
{
    const struct run_phase_row *f = latest_phase(&x->rec);
    const struct use *u = latest_use(x);
    char rest[96];

    if (!f)
        return;
    prose_put(p, " Most of it is in the phase ");
    prose_put(p, f->name);
    prose_put(p, ": predicted ");
    snprintf(rest, sizeof rest, ".%.40s/predicted_s", f->name);
    for (char *s = rest; *s; s++)
        *s = *s == ' ' ? '_' : *s;
    cell(p, "phases", x->rec.row.id, rest, UNIT_SECONDS, f->predicted_s);
    prose_put(p, ", measured ");
    memcpy(strrchr(rest, '/'), "/measured_s", sizeof "/measured_s");
    cell(p, "phases", x->rec.row.id, rest, UNIT_SECONDS, f->seconds);
    prose_put(p, ".");
    if (!u || strcmp(f->name, "exposed communication"))
        return;
    prose_put(p, " Of the collectives it is chiefly ");
    prose_name(p, u->op);
    prose_put(p, ".");
}

/* A machine that did something else, when it was calibrated or during a run: stated of every run, whether or not it differs. */
static void busy(struct report *r, struct prose *p)
{
    for (int i = 0; i < r->c->n; i++) {
        const struct chosen *x = &r->c->run[i];
        bool said = false;
        for (int k = 0; k < i; k++)
            said |= !strcmp(r->c->run[k].rec.row.start.host, x->rec.row.start.host);
        if (said || !(x->late > 1))
            continue;
        prose_name(p, x->rec.row.start.host);
        prose_put(p, " was busy when it was calibrated: its times are up to ");
        report_fact(r, p, UNIT_TIMES, x->late, "late", x->rec.row.id);
        prose_put(p, " as long as when it is quiet, and so may predictions be that rest on them.");
        prose_end(p);
    }
    for (int i = 0; i < r->c->n; i++) {
        const struct chosen *x = &r->c->run[i];
        double spread = spread_of(&x->rec.row);
        if (!(spread > RESTLESS))
            continue;
        who(p, x);
        prose_put(p, ": its steps vary by ");
        report_fact(r, p, UNIT_SHARE, spread, "spread", x->rec.row.id);
        prose_put(p, " either way, so something else probably used the machine meanwhile.");
        prose_end(p);
    }
}

static void cause(struct prose *p, const struct chosen *x)
{
    const struct run_row *row = &x->rec.row;
    const struct run_phase_row *f = latest_phase(&x->rec);
    bool communication = f && !strcmp(f->name, "exposed communication");

    if (strcmp(row->predicted.basis, "measured"))
        return;                         /* said once for all of them: basis_of_runs() */
    bool slower = row->end.step_s > row->predicted.step_s;
    if (communication)
        prose_put(p, slower ? " Collectives were calibrated; probably ranks waited for the slowest of them, or compute "
                              "slowed them down by more than was measured."
                            : " Collectives were calibrated; probably compute slowed them down by less than was measured.");
    else if (f && !strcmp(f->name, "idle"))
        prose_put(p, slower ? " Probably the issuing thread or the machine was busier than when it was calibrated."
                            : " Probably the issuing thread or the machine was busy when it was calibrated.");
    else
        prose_put(p, slower ? " Probably the machine was slower, or busier, than when it was calibrated."
                            : " Probably the machine was slower, or busy, when it was calibrated.");
}

/* All of the run's steps, but for a tenth at either end, are slower or faster than predicted. */
static bool outside(const struct run_row *r)
{
    double lo = isnan(r->end.p10_s) ? r->end.step_s : r->end.p10_s,
           hi = isnan(r->end.p90_s) ? r->end.step_s : r->end.p90_s;

    return r->has_prediction && (hi < r->predicted.low_s || lo > r->predicted.high_s);
}

static void time_difference(struct prose *p, const struct chosen *x)
{
    const struct run_row *row = &x->rec.row;

    who(p, x);
    prose_put(p, row->end.step_s > row->predicted.step_s ? " is slower than predicted: "
                                                         : " is faster than predicted: ");
    cell(p, "runs", row->id, "/predicted_step_s", UNIT_SECONDS, row->predicted.step_s);
    prose_put(p, " a step (90 %: ");
    cell(p, "runs", row->id, "/low_s", UNIT_SECONDS, row->predicted.low_s);
    prose_put(p, " to ");
    cell(p, "runs", row->id, "/high_s", UNIT_SECONDS, row->predicted.high_s);
    prose_put(p, ") against ");
    cell(p, "runs", row->id, "/step_s", UNIT_SECONDS, row->end.step_s);
    prose_put(p, " measured.");
    late_phase(p, x);
    cause(p, x);
    prose_end(p);
}

/* Its framework ran it (dpxrun --engine), with kernels of its own; on the CPU not even those of a GPU. */
static bool ran_by_framework(const struct run_row *row) { return row->start.options && strstr(row->start.options, "\"engine\""); }

static void byte_differences(struct prose *p, const struct chosen *x)
{
    const struct run_row *row = &x->rec.row;

    if (row->has_prediction && row->allocated_bytes >= 0 && row->predicted.allocated_bytes >= 0
        && row->allocated_bytes != row->predicted.allocated_bytes) {
        who(p, x);
        prose_put(p, ": the allocated peak was predicted as ");
        cell(p, "runs", row->id, "/predicted_allocated_bytes", UNIT_BYTES,
             (double)row->predicted.allocated_bytes);
        prose_put(p, " and is ");
        cell(p, "runs", row->id, "/allocated_bytes", UNIT_BYTES, (double)row->allocated_bytes);
        prose_put(p, ran_by_framework(row) ? ", counted in the framework itself." : ", though both count the same buffers: please report it.");
        prose_end(p);
    }
    for (int64_t i = 0; i < x->rec.ncomm; i++) {
        const struct run_comm_row *m = &x->rec.comm[i];
        if (row->end.outcome != RUN_FINISHED || m->bytes < 0 || m->predicted_bytes < 0 ||
            m->bytes == m->predicted_bytes)
            continue;
        who(p, x);
        prose_put(p, ": other bytes than predicted went through ");
        prose_name(p, m->op);
        prose_put(p, " (see the table of collectives).");
        prose_end(p);
    }
}

/* Below this a difference of steps is not worth a sentence. */
#define CLOSE 0.10

/* No run differs by more than the intervals.  That is "nowhere" where steps are close; else it is a wide interval. */
static void within_intervals(struct report *r, struct prose *p, bool all)
{
    const struct chosen *far = NULL;
    double most = 0;

    for (int i = 0; i < r->c->n; i++) {
        const struct run_row *row = &r->c->run[i].rec.row;
        double off = row->has_prediction && row->end.step_s > 0 ? row->end.step_s / row->predicted.step_s - 1 : 0;
        if (fabs(off) > fabs(most)) {
            most = off;
            far = &r->c->run[i];
        }
    }
    if (far && fabs(most) > CLOSE) {
        prose_put(p, "Steps differ by up to ");
        report_fact(r, p, UNIT_SHARE, fabs(most), "off", far->rec.row.id);
        prose_put(p, most > 0 ? " (slower than predicted: " : " (faster than predicted: ");
        who(p, far);
        prose_put(p, all ? "), which is within the predictions' intervals: those are that wide. "
                         : "), which is within the intervals of predictions and steps together: those are that wide. ");
        prose_put(p, "Memory and bytes are as predicted.");
        return;
    }
    prose_put(p, all ? "Nowhere: every run's median step lies within its prediction's interval, and memory and bytes are as "
                       "predicted."
                     : "Nowhere by more than both their intervals: some run's median step lies outside of its prediction's, "
                       "but the spread of its steps reaches into it. Memory and bytes are as predicted.");
}

static void differences(struct report *r)
{
    const struct comparison *c = r->c;
    struct prose *p = r->words[WORDS_DIFFERENCES];
    int compared = 0, within = 0;

    for (int i = 0; i < c->n; i++) {
        const struct run_row *row = &c->run[i].rec.row;
        bool both_known = row->has_prediction && row->end.step_s > 0;
        compared += both_known;
        within += both_known && row->end.step_s >= row->predicted.low_s && row->end.step_s <= row->predicted.high_s;
        if (row->end.step_s > 0 && outside(row))
            time_difference(p, &c->run[i]);
        byte_differences(p, &c->run[i]);
    }
    if (prose_paragraphs(p) > 0)
        return;
    if (compared == 0)
        prose_put(p, "There is nothing to compare: no run has both a prediction and a measured step.");
    else
        within_intervals(r, p, within == compared);
    prose_end(p);
}

static void differences_and_causes(struct report *r)
{
    differences(r);
    busy(r, r->words[WORDS_DIFFERENCES]);
}

/* ---- communication ---- */

/* A measured figure, and in brackets what was predicted of it, if it was. */
static void both(struct prose *p, const struct chosen *x, const char *op, const char *what, enum measure u,
                 double measured, double predicted)
{
    char rest[96];

    snprintf(rest, sizeof rest, ".%.40s/%s", op, what);
    cell(p, "exposure", x->rec.row.id, rest, u, measured);
    if (isnan(predicted))
        return;
    prose_put(p, " (predicted ");
    snprintf(rest, sizeof rest, ".%.40s/predicted_%s", op, what);
    cell(p, "exposure", x->rec.row.id, rest, u, predicted);
    prose_put(p, ")");
}

static void one_use(struct prose *p, const struct chosen *x, const struct use *u)
{
    prose_name(p, u->op);
    prose_put(p, " takes ");
    both(p, x, u->op, "share", UNIT_SHARE, u->measured_s / x->span, u->predicted_s / x->predicted_span);
    prose_put(p, " of the step, ");
    both(p, x, u->op, "exposed_s", UNIT_SECONDS, u->exposed_s, u->predicted_exposed_s);
    prose_put(p, " of it exposed");
}

static void communication(struct report *r)
{
    const struct comparison *c = r->c;
    struct prose *p = r->words[WORDS_COMMUNICATION];

    for (int i = 0; i < c->n; i++) {
        const struct chosen *x = &c->run[i];
        if (x->nuses == 0 || isnan(x->span))
            continue;
        who(p, x);
        prose_put(p, ": ");
        for (int k = 0; k < x->nuses; k++) {
            prose_put(p, k ? "; " : "");
            one_use(p, x, &x->use[k]);
        }
        prose_put(p, ".");
        prose_end(p);
    }
    if (prose_paragraphs(p) > 0)
        return;
    prose_put(p, "No run sampled a step with collectives.");
    prose_end(p);
}

/* ---- what was not calibrated ---- */

/* "" where no prediction was made. */
static const char *basis_of(const struct run_row *row)
{
    return row->has_prediction ? row->predicted.basis : "";
}

/* One sentence for all runs of one basis. */
static void basis_of_runs(const struct comparison *c, struct prose *p)
{
    for (int i = 0; i < c->n; i++) {
        const char *basis = basis_of(&c->run[i].rec.row);
        int same = 0, before = 0;
        for (int k = 0; k < c->n; k++) {
            same += !strcmp(basis_of(&c->run[k].rec.row), basis);
            before += k < i && !strcmp(basis_of(&c->run[k].rec.row), basis);
        }
        if (before > 0 || !strcmp(basis, "measured"))
            continue;
        for (int k = i; k < c->n && same < c->n; k++)
            if (!strcmp(basis_of(&c->run[k].rec.row), basis)) {
                prose_put(p, k == i ? "" : "; ");
                who(p, &c->run[k]);
            }
        prose_put(p, same < c->n ? ": " : c->n > 1 ? "All runs: " : "");
        if (!basis[0]) {
            prose_put(p, "no prediction was made.");
        } else {
            prose_put(p, "predictions of time rest on ");
            prose_name(p, basis);
            prose_put(p, " figures, not on measurements of this machine; dpxcal run makes them.");
        }
        prose_end(p);
    }
}

static void uncalibrated(struct report *r)
{
    const struct comparison *c = r->c;
    struct prose *p = r->words[WORDS_UNCALIBRATED];

    basis_of_runs(c, p);
    if (c->rates.ncoll == 0) {
        prose_put(p, "No collective was calibrated: dpxcal run --ranks N times them.");
        prose_end(p);
    }
    if (c->rates.ngemm == 0) {
        prose_put(p, "No matrix product was calibrated: dpxcal run times those of a model's blocks.");
        prose_end(p);
    }
    if (c->left_out > 0) {
        prose_put(p, "Further plans of this group have no room on the page: --run picks others. All runs are "
                     "in csv/runs.csv.");
        prose_end(p);
    }
    if (prose_paragraphs(p) > 0)
        return;
    prose_put(p, "Every prediction of time here rests on measurements of the machine itself.");
    prose_end(p);
}

void report_words(struct report *r)
{
    verdict(r);
    differences_and_causes(r);
    report_stages_words(r);
    communication(r);
    uncalibrated(r);
}
