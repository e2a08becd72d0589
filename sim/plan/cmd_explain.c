/* cmd_explain.c -- dpxplan explain: a plan's memory over time, what is live at the peak and why, its step on the clock,
 * its schedules as text; two plans: what differs; a message of PyTorch: what it was. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "sim/clock/trace.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/explain.h"
#include "sim/plan/figure.h"
#include "sim/plan/memory_plot.h"
#include "sim/plan/memory_time.h"
#include "sim/plan/pipeline_plot.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"
#include "sim/plan/snapshot.h"
#include "sim/search/advice.h"

/* Beside a row of the clock: the stream's name, the seconds that it is busy. */
enum { CLOCK_SCALE = 26 };

static void print_families(const struct schedules *s, const struct peak *at, FILE *to)
{
    struct explain_live live[12];
    int n = explain_live(s, at, live, 12);

    for (int i = 0; i < n; i++) {
        char each[48] = "";
        if (live[i].count > 1)
            snprintf(each, sizeof each, "%" PRId64 " x %s, ", live[i].count, size_text(live[i].each).s);
        fprintf(to, "  %12s  " PAGE_HANG "%s%s%s (%s%s)\n", size_text(live[i].bytes).s, live[i].what, live[i].of ? ", each " : "",
                live[i].of ? live[i].of : "", each, category_name(live[i].category));
    }
}

/* What no schedule allocates and yet counts as allocated, where it is a hundredth of the peak: logits that a loop names, CUDA graphs' inputs. */
static void print_beside(const struct overhead *o, int64_t peak, FILE *to)
{
    for (int i = 0; i < o->n; i++)
        if (o->item[i].kind == OVERHEAD_ALLOCATED && o->item[i].bytes >= peak / 100)
            fprintf(to, "  %12s  " PAGE_HANG "%s (beside the schedule)\n", size_text(o->item[i].bytes).s, o->item[i].name);
}

static void print_live(const struct evaluation *e, FILE *to)
{
    const struct schedules *s = &e->schedules;
    struct ledger l;
    char where[96];

    fprintf(to, "\nlive at the peak (%s step, %s), largest first:\n", sched_name(e->m.ledger.peak.sched), e->peak_at);
    print_families(s, &e->m.ledger.peak, to);
    print_beside(&e->m.overhead, e->m.ledger.peak.bytes, to);
    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        if (!(s->spaces & IN(in)))
            continue;
        ledger_run_in(s, IN(in), &l);
        evaluation_op_in_words(s, l.peak.op, l.peak.iteration, where, sizeof where);
        fprintf(to, "live in %s memory at its peak, %s (%s step, %s):\n", space_name(in), size_text(l.peak.bytes).s,
               sched_name(l.peak.sched), where);
        print_families(s, &l.peak, to);
    }
}

/* What -o draws. */
enum { DRAW_MEMORY, DRAW_STAGES };
static const char *const drawings[] = { "memory", "stages", NULL };

struct outputs { const char *trace, *figure, *snapshot; int draw; };     /* draw: -1: not said */

static bool draws_stages(const struct explained *p, const struct outputs *o)
{
    return o->draw >= 0 ? o->draw == DRAW_STAGES : p->e.nstages > 0;
}

/* Of a pipeline the memory is that of its fullest stage. */
static int draw(const struct explained *p, const struct trace_role *roles, int n, const char *path, bool stages)
{
    const struct memory_verdict *m = &p->e.m;
    double until = p->t.line.step_s - p->t.line.slowest_s;

    return stages ? pipeline_plot_figure(roles, n, until, path)
                  : memory_time_figure(&roles[p->e.nstages ? p->e.fullest : 0], m->needed - m->ledger.peak.bytes, m->available, until, path);
}

/* The step of all ranks, or of every stage, as it ran. */
static int show_runs(const struct explained *p, const struct run *runs, const struct outputs *o, FILE *to)
{
    struct trace_role *roles = explain_roles(&p->e, runs);
    int n = explain_runs(p), rc = 0;

    if (!roles && (o->trace || o->figure))
        rc = fail("%s: the step has too many entries to keep them one by one: give fewer accumulation steps", o->trace ? o->trace : o->figure);
    else if (!roles)
        fprintf(to, "(too many entries to draw or trace them one by one)\n");
    else if (o->trace)
        rc = trace_write(roles, n, o->trace);
    else if (n == 1)
        trace_gantt_print(roles->s, roles->r, page_width(stdout) - CLOCK_SCALE, to);
    if (p->e.nstages)
        explain_pipeline(&p->plan, &p->e, &p->t, runs, to);
    if (roles && o->figure && rc == 0)
        rc = draw(p, roles, n, o->figure, draws_stages(p, o));
    free(roles);
    return rc;
}

/* The steady step on the clock: a chart, or a trace file. */
static int print_time(const struct explained *p, const struct run *runs, const struct outputs *o, FILE *to)
{
    const struct timing *t = &p->t;

    fprintf(to, "\none steady step: %.4g s (90 %%: %.4g to %.4g)", t->line.step_s, t->low_s, t->high_s);
    if (t->line.slowest_s > 0)
        fprintf(to, "; %.2g s of it waits for the slowest rank", t->line.slowest_s);
    fputc('\n', to);
    int rc = show_runs(p, runs, o, to);
    fprintf(to, "held at most %s at once, by the clock, overhead included\n", size_text(t->held_bytes).s);
    return rc;
}

/* Which plan it is, and whether it fits. */
static void print_plan(const struct explained *p, FILE *to)
{
    char words[PLAN_WORDS];

    plan_words(&p->plan, words, sizeof words);
    fprintf(to, "%s on ", p->plan.model.name);
    answer_cluster(&p->plan.cluster, to);
    fprintf(to, ".\n%s.\n", words);
    answer_memory(&p->plan, &p->e, &p->t, to);
}

/* The entries of the fullest rank, or of the one that was asked for. */
static int print_schedule(const struct explained *p, const struct explain_args *a, FILE *to)
{
    struct schedules other;
    const struct schedules *which = explain_schedules(p, a, &other);

    for (int turn = 0; which && turn < NSCHED; turn++)
        if (sched_has(which, sched_in_turn(turn)))
            sched_print(which, sched_in_turn(turn), to);
    schedules_free(&other);
    return which ? 0 : -1;
}

/* The step in PyTorch's own words, of the rank that was asked for. */
static int write_snapshot(const struct explained *p, const struct explain_args *a, const char *path)
{
    struct schedules other;
    const struct schedules *which = explain_schedules(p, a, &other);
    struct overhead o;
    int rc = -1;

    if (which) {
        overhead_of(&p->plan, which, &o);
        rc = snapshot_write(&p->plan, which, &o, path);
    }
    schedules_free(&other);
    return rc;
}

/* What the arguments ask for is there, and the step is timed. */
static int prepare(struct explained *p, const struct explain_args *a, const struct outputs *o, struct run *runs)
{
    if (explain_check_place(p, a) < 0)
        return EXIT_MISUSE;
    if (o->draw == DRAW_STAGES && plan_mesh(&p->plan).size[AXIS_PIPE] == 1) {
        fail("explain: --draw stages is of a pipeline, and the plan has parallel.pipeline 1");
        return EXIT_MISUSE;
    }
    return explain_time(p, a->db, runs);
}

/* The advice, which many plans are evaluated for, in the end. */
static void print_advice(const struct explained *p, FILE *to)
{
    struct progress watch;
    char *text = NULL;
    size_t size;
    FILE *kept = open_memstream(&text, &size);

    if (!kept)
        abort();
    fflush(to);
    progress_watch(&watch, "trying what would lower the peak");
    advice_print(&p->plan, &p->e, kept);
    progress_end(&watch);
    fclose(kept);
    fprintf(to, "\n%s", text);
    free(text);
}

static int print_one(const struct explained *p, const struct outputs *o, const struct run *runs, FILE *to)
{
    const struct evaluation *e = &p->e;

    print_plan(p, to);
    fprintf(to, "\nallocated on %s over one steady step\n", evaluation_where(e).s);
    memory_plot(&e->schedules, SCHED_STEADY, e->m.needed - e->m.ledger.peak.bytes, e->m.available, page_width(stdout), to);
    print_live(e, to);
    int rc = print_time(p, runs, o, to) < 0 ? EXIT_FAILED : e->m.fits ? EXIT_DONE : EXIT_NO;
    print_advice(p, to);
    return rc;
}

static int explain_one(const struct explain_args *a, const struct outputs *o, FILE *to)
{
    struct progress watch;
    struct explained p;

    progress_watch(&watch, "evaluating the plan");
    int rc = explain_load(&a->plan, &a->set, &p);
    if (rc < 0) {
        progress_end(&watch);
        return EXIT_MISUSE;
    }
    struct run *runs = room_new((size_t)explain_runs(&p), sizeof *runs);
    rc = prepare(&p, a, o, runs);
    progress_end(&watch);
    if (rc == EXIT_DONE && a->schedule && print_schedule(&p, a, to) < 0)
        rc = EXIT_MISUSE;
    if (rc == EXIT_DONE && o->snapshot && write_snapshot(&p, a, o->snapshot) < 0)
        rc = EXIT_MISUSE;
    if (rc == EXIT_DONE)
        rc = print_one(&p, o, runs, to);
    for (int i = 0; i < explain_runs(&p); i++)
        run_free(&runs[i]);
    free(runs);
    explain_unload(&p);
    return rc;
}

static int print_two(const struct explain_args *a, FILE *to)
{
    struct explained p, q;
    struct progress watch;

    progress_watch(&watch, "evaluating both plans");
    int rc = explain_load_two(a, &p, &q);
    progress_end(&watch);
    if (rc != EXIT_DONE)
        return rc;
    explain_two(&p, &q, a->schedule, to);
    explain_unload(&p);
    explain_unload(&q);
    return rc;
}

static int print_oom(const struct explain_args *a, FILE *to)
{
    struct oom_message m;
    struct explained p;

    if (oom_message_given(&a->oom, &m) < 0 || explain_load(&a->plan, &a->set, &p) < 0)
        return EXIT_MISUSE;
    explain_oom(&p, &m, to);
    explain_unload(&p);
    return EXIT_DONE;
}

/* What was asked for, on a page. */
static int say(const struct explain_args *a, const struct outputs *o)
{
    FILE *page = page_open(stdout);

    if (!page)
        return EXIT_FAILED;
    int rc = a->oom.path || a->oom.text ? print_oom(a, page) : a->other.path ? print_two(a, page) : explain_one(a, o, page);
    page_close(page);
    return rc;
}

/* With --run the plan is the run's. */
static void plan_or_run(struct opt *opts, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--run") || !strncmp(argv[i], "--run=", 6))
            for (struct opt *o = opts; o->name; o++)
                o->required = false;
}

static int only_run(const struct explain_args *a, const struct outputs *o)
{
    if (a->plan.path || a->other.path || a->oom.path || a->oom.text || a->schedule || a->detail || a->set.n || o->trace || o->figure || o->snapshot)
        return fail("explain: --run takes --db and --json alone: its plan is the run's");
    return 0;
}

int cmd_explain(int argc, char **argv)
{
    struct explain_args a = EXPLAIN_ARGS;
    struct outputs o = { .draw = -1 };
    bool json = false;
    int64_t run = -1;
    struct opt opts[] = {
        EXPLAIN_OPTS(a),
        { "run", "in the place of a plan: a run of the database, and which part of its difference is whose", .i = &run, .value = "ID", .min = 1 },
        { "trace", "write the step as a Chrome/Perfetto trace", .str = &o.trace, .value = "FILE" },
        { "output", "draw memory over the step by category, or a pipeline's stages by time, into a .svg", .str = &o.figure,
          .letter = 'o', .value = "FILE" },
        { "draw", "what -o draws; of a pipeline it is stages where this is not given", .word = &o.draw, .words = drawings },
        { "snapshot", "write the step as PyTorch's memory snapshot, for pytorch.org/memory_viz", .str = &o.snapshot, .value = "FILE" },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    plan_or_run(opts, argc, argv);
    int rc = opts_parse("dpxplan explain",
                        "A plan's memory over time, what is live at the peak and why, its step on the clock; with --schedule\n"
                        "every entry of it.  Two plans: both steps, and what each difference makes of it.", opts, argc, argv);
    json_t *doc;

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (run > 0)
        return only_run(&a, &o) < 0 ? EXIT_MISUSE : explain_run(a.db, run, json);
    a.snapshot = o.snapshot != NULL;
    if (explain_check(&a) < 0 || (o.figure && figure_name(o.figure) < 0))
        return EXIT_MISUSE;
    if (a.detail && !json) {
        fail("explain: --detail goes with --json");
        return EXIT_MISUSE;
    }
    if (json && (o.trace || o.figure || o.snapshot)) {
        fail("explain: give --json alone, or any of --trace, --snapshot and -o");
        return EXIT_MISUSE;
    }
    if (o.draw >= 0 && !o.figure) {
        fail("explain: --draw goes with -o");
        return EXIT_MISUSE;
    }
    if ((o.trace || o.figure || o.snapshot) && (a.oom.path || a.oom.text || a.other.path)) {
        fail("explain: %s is of one plan's step", o.figure ? "-o" : o.trace ? "--trace" : "--snapshot");
        return EXIT_MISUSE;
    }
    if (json)
        return (rc = explain_json(&a, &doc)) == EXIT_DONE || rc == EXIT_NO ? dpxplan_print_json(doc, rc) : rc;
    return say(&a, &o);
}
