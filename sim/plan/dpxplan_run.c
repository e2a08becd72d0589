/* dpxplan_run.c -- dpxplan explain --run ID: a run of the database beside its prediction, and which part of a difference is whose.
 *
 * A step's time is the sum of four parts, on both sides: kernels, the optimizer's kernels, communication that nothing hides, and
 * nothing at all, because nothing was issued.  Of several traced ranks the least exposed communication is what no rank avoids; what
 * another has beyond it, it waited for the slowest. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"
#include "calib/store/runs.h"
#include "calib/store/runs_memory.h"
#include "calib/store/runs_ranks.h"
#include "sim/plan/commands.h"

struct told { struct run_record r; struct run_ranks ranks; struct run_parts parts; };

/* One part of a step; NaN: not known. */
struct share { const char *what, *whose; double predicted_s, measured_s; };
enum { MOST_SHARES = 8 };

static const char *whose(const char *phase)
{
    static const struct { const char *phase, *whose; } of[] = {
        { "compute", "kernels of forward and backward" }, { "optimizer", "kernels of the optimizer" },
        { "exposed communication", "communication that no kernel hides" }, { "idle", "issuing (nothing runs: nothing was launched)" },
        { "bubble", "waiting for other stages" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(of[i].phase, phase))
            return of[i].whose;
    return phase;
}

/* Seconds of rank 0's exposed communication beyond the least of any rank; NaN where fewer than two ranks were traced. */
static double waited(const struct run_ranks *r)
{
    double least = INFINITY;

    for (int64_t i = 0; i < r->nparts; i++)
        least = fmin(least, r->part[i].exposed);
    return r->nparts > 1 ? r->part[0].exposed - least : (double)NAN;
}

/* Phases of the step as they are recorded; what was waited for the slowest rank is taken out of the communication. */
static int shares(const struct told *t, struct share out[MOST_SHARES])
{
    double late = waited(&t->ranks);
    int n = 0;

    for (int64_t i = 0; i < t->r.nphase && n < MOST_SHARES - 1; i++) {
        const struct run_phase_row *p = &t->r.phase[i];
        out[n] = (struct share){ p->name, whose(p->name), p->predicted_s, p->seconds };
        if (!strcmp(p->name, "exposed communication") && late > 0)
            out[n].measured_s -= late;
        n++;
    }
    if (late > 0)
        out[n++] = (struct share){ "waiting", "waiting for the slowest rank", 0, late };
    return n;
}

/* The part that took the most beyond its prediction; NULL: none did. */
static const struct share *largest(const struct share *s, int n)
{
    const struct share *most = NULL;

    for (int i = 0; i < n; i++)
        if (s[i].measured_s > s[i].predicted_s && (!most || s[i].measured_s - s[i].predicted_s > most->measured_s - most->predicted_s))
            most = &s[i];
    return most;
}

static double total(const struct share *s, int n, bool measured)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += measured ? s[i].measured_s : s[i].predicted_s;
    return sum;
}

/* ---- in words ---- */

static void say_step(const struct told *t, FILE *to)
{
    const struct run_predicted *p = &t->r.row.predicted;
    double got = t->r.row.end.step_s;
    struct share s[MOST_SHARES];
    int n = shares(t, s);

    if (!t->r.row.has_prediction || isnan(got)) {
        fprintf(to, "\nstep: %s\n", isnan(got) ? "no steady step was measured" : "nothing was predicted");
        return;
    }
    fprintf(to, "\nstep: predicted %.4g s (90 %%: %.4g to %.4g, %s), measured %.4g s: %s, %s the interval\n", p->step_s,
            p->low_s, p->high_s, p->basis, got, percent_slower(got / p->step_s).s, got >= p->low_s && got <= p->high_s ? "inside" : "outside");
    if (n == 0 || isnan(total(s, n, true))) {
        fprintf(to, "  its parts were not measured: a run of a framework traces its last step where it has more than four\n");
        return;
    }
    fprintf(to, "  %-48s %12s %12s %12s\n", "", "predicted", "measured", "difference");
    for (int i = 0; i < n; i++)
        fprintf(to, "  %-48s %10.4g s %10.4g s %+10.4g s\n", s[i].whose, s[i].predicted_s, s[i].measured_s, s[i].measured_s - s[i].predicted_s);
    fprintf(to, "  %-48s %10.4g s %10.4g s %+10.4g s\n", "together", total(s, n, false), total(s, n, true), total(s, n, true) - total(s, n, false));
    if (t->ranks.nparts)
        fprintf(to, "  Measured in one step of rank 0 that its profiler traced: %.4g s; without it the median step took %.4g s.\n",
                total(s, n, true), got);
    const struct share *most = largest(s, n);
    if (most && got > p->step_s)
        fprintf(to, "  Most of the difference, %.4g s, is %s.\n", most->measured_s - most->predicted_s, most->whose);
}

static void say_ranks(const struct told *t, FILE *to)
{
    double slowest = 0, fastest = INFINITY;

    if (t->ranks.nparts < 2)
        return;
    for (int64_t i = 0; i < t->ranks.nparts; i++) {
        double kernels = t->ranks.part[i].compute + t->ranks.part[i].optimizer;
        slowest = fmax(slowest, kernels);
        fastest = fmin(fastest, kernels);
    }
    fprintf(to, "  Kernels took %.4g s on the slowest of %" PRId64 " ranks, %.4g s on the fastest.\n", slowest, t->ranks.nparts, fastest);
}

/* Of the GPU whose SMs ran slowest: clocks that heat or power held back are in no prediction. */
static void say_clocks(const struct told *t, FILE *to)
{
    const struct run_rank_clock *c = NULL;

    for (int64_t i = 0; i < t->ranks.nclocks; i++)
        if (!c || t->ranks.clock[i].sm < c->sm)
            c = &t->ranks.clock[i];
    if (c && c->sm_most > 0)
        fprintf(to, "  While steps ran the SMs of rank %" PRId64 ", the slowest, were clocked at %" PRId64 " MHz; they can at most %" PRId64 " MHz.\n",
                c->rank, c->sm, c->sm_most);
}

static void say_bytes(const char *what, int64_t predicted, int64_t measured, FILE *to)
{
    if (predicted < 0 && measured < 0)
        return;
    fprintf(to, "  %-48s %12s %12s", what, predicted < 0 ? "-" : size_text(predicted).s, measured < 0 ? "-" : size_text(measured).s);
    if (predicted > 0 && measured >= 0)
        fprintf(to, " %12s", percent_change((double)measured / (double)predicted).s);
    fputc('\n', to);
}

static void say_memory(const struct told *t, FILE *to)
{
    const struct run_row *w = &t->r.row;
    int64_t rank = w->has_prediction ? w->predicted.rank : 0;
    char what[80];

    fprintf(to, "\nmemory\n");
    for (int64_t i = 0; i < t->ranks.nphases; i++) {
        const struct run_rank_phase *p = &t->ranks.phase[i];
        snprintf(what, sizeof what, "allocated in %s, rank %" PRId64, p->phase, p->rank);
        if (p->rank == rank)
            say_bytes(what, p->predicted_allocated, p->allocated, to);
    }
    if (t->ranks.nphases == 0)
        say_bytes("allocated, the fullest rank", w->has_prediction ? w->predicted.allocated_bytes : -1, w->allocated_bytes, to);
    say_bytes(t->ranks.nphases ? "reserved" : "held", w->has_prediction ? w->predicted.held_bytes : -1, w->held_bytes, to);
    say_bytes(t->ranks.nphases ? "of the process, by the driver" : "process", w->has_prediction ? w->predicted.process_bytes : -1,
              w->process_bytes, to);
    fprintf(to, "  what is live at the peak:\n");
    for (int64_t i = 0; i < t->parts.n; i++) {
        const struct run_part *p = &t->parts.part[i];
        if (p->run != w->id || p->rank != rank || (p->predicted_bytes <= 0 && p->bytes <= 0))
            continue;
        snprintf(what, sizeof what, "  %s", p->category);
        say_bytes(what, p->predicted_bytes, p->bytes, to);
    }
}

static bool equal(const struct run_comm_row *c) { return c->count == c->predicted_count && c->bytes == c->predicted_bytes; }

static int64_t known(int64_t v) { return v < 0 ? 0 : v; }

static void say_comm(const struct told *t, FILE *to)
{
    int64_t differ = 0;

    for (int64_t i = 0; i < t->r.ncomm; i++)
        differ += !equal(&t->r.comm[i]);
    fprintf(to, "\ncollectives: %s\n", t->r.ncomm == 0 ? "none" : differ == 0 ? "calls and bytes are those predicted" : "not those predicted:");
    for (int64_t i = 0; i < t->r.ncomm; i++) {
        const struct run_comm_row *c = &t->r.comm[i];
        if (!equal(c))
            fprintf(to, "  %s %s %s: predicted %" PRId64 " calls of %s, issued %" PRId64 " of %s\n", c->op, c->group, c->dtype,
                    known(c->predicted_count), size_text(known(c->predicted_bytes)).s, known(c->count), size_text(known(c->bytes)).s);
    }
}

static int say(const struct told *t)
{
    const struct run_row *w = &t->r.row;
    FILE *to = page_open(stdout);

    if (!to)
        return EXIT_FAILED;
    fprintf(to, "run %" PRId64 ": %s (%s)%s%s on %" PRId64 " rank%s of %s, %" PRId64 " steps, %s\n", w->id, w->strategy, w->dialect,
            w->model ? " of " : "", w->model ? w->model : "", w->start.world_size, w->start.world_size == 1 ? "" : "s", w->start.device,
            w->steps, run_outcome_name(w->end.outcome));
    fprintf(to, "  %s\n", w->start.kernels_version ? w->start.kernels_version : "");
    if (w->end.reason)
        fprintf(to, "  %s\n", w->end.reason);
    say_step(t, to);
    say_ranks(t, to);
    say_clocks(t, to);
    say_memory(t, to);
    say_comm(t, to);
    page_close(to);
    return EXIT_DONE;
}

/* ---- as a document ---- */

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }
static json_t *bytes(int64_t v) { return v < 0 ? json_null() : json_integer(v); }

static json_t *document(const struct told *t)
{
    const struct run_row *w = &t->r.row;
    json_t *parts = json_array(), *memory = json_array(), *live = json_array(), *comm = json_array(), *clocks = json_array();
    struct share s[MOST_SHARES];
    int n = shares(t, s);

    for (int i = 0; i < n; i++)
        json_array_append_new(parts, json_pack("{s:s, s:o, s:o}", "part", s[i].what, "predicted_s", real(s[i].predicted_s), "measured_s",
                                               real(s[i].measured_s)));
    for (int64_t i = 0; i < t->ranks.nphases; i++) {
        const struct run_rank_phase *p = &t->ranks.phase[i];
        json_array_append_new(memory, json_pack("{s:I, s:s, s:o, s:o, s:o, s:o}", "rank", (json_int_t)p->rank, "phase", p->phase,
                                                "predicted_allocated_bytes", bytes(p->predicted_allocated), "allocated_bytes",
                                                bytes(p->allocated), "active_bytes", bytes(p->active), "reserved_bytes", bytes(p->reserved)));
    }
    for (int64_t i = 0; i < t->parts.n; i++) {
        const struct run_part *p = &t->parts.part[i];
        if (p->run == w->id)
            json_array_append_new(live, json_pack("{s:I, s:s, s:o, s:o}", "rank", (json_int_t)p->rank, "category", p->category,
                                                  "predicted_bytes", bytes(p->predicted_bytes), "bytes", bytes(p->bytes)));
    }
    for (int64_t i = 0; i < t->r.ncomm; i++) {
        const struct run_comm_row *c = &t->r.comm[i];
        json_array_append_new(comm, json_pack("{s:s, s:s, s:s, s:b}", "op", c->op, "group", c->group, "dtype", c->dtype, "equal", equal(c)));
    }
    for (int64_t i = 0; i < t->ranks.nclocks; i++) {
        const struct run_rank_clock *c = &t->ranks.clock[i];
        json_array_append_new(clocks, json_pack("{s:I, s:o, s:o, s:o, s:o}", "rank", (json_int_t)c->rank, "sm_mhz", bytes(c->sm), "sm_most_mhz",
                                                bytes(c->sm_most), "memory_mhz", bytes(c->memory), "memory_most_mhz", bytes(c->memory_most)));
    }
    return json_pack("{s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "run_id", (json_int_t)w->id, "strategy", w->strategy,
                     "dialect", w->dialect, "outcome", run_outcome_name(w->end.outcome), "predicted_step_s", real(w->has_prediction ? w->predicted.step_s : (double)NAN), "step_s",
                     real(w->end.step_s), "parts", parts, "phases", memory, "live", live, "comm", comm, "clocks", clocks);
}

int explain_run(const char *path, int64_t id, bool json)
{
    struct db *db = db_open_reader(path);
    struct told t = { 0 };
    int status = EXIT_DONE;

    if (!db || runs_load(db, id, &t.r) < 0) {
        status = db_exit_status() != EXIT_DONE ? db_exit_status() : EXIT_MISUSE;
        db_close(db);
        return status;
    }
    if (runs_ranks(db, id, &t.ranks) < 0 || runs_parts(db, id, &t.parts) < 0)
        status = db_exit_status() != EXIT_DONE ? db_exit_status() : EXIT_FAILED;
    if (status == EXIT_DONE)
        status = json ? dpxplan_print_json(document(&t), EXIT_DONE) : say(&t);
    run_parts_free(&t.parts);
    run_ranks_free(&t.ranks);
    run_record_free(&t.r);
    db_close(db);
    return status;
}
