/* cmd_explain.c -- dpxplan explain: a plan's memory over time, what is live at the peak and why, its step on the clock,
 * its schedules as text; two plans: what differs; a message of PyTorch: what it was. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/room.h"
#include "base/size.h"
#include "model/lower/lower.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"
#include "sim/plan/commands.h"
#include "sim/plan/explain.h"
#include "sim/plan/figure.h"
#include "sim/plan/memory_plot.h"
#include "sim/plan/pipeline_plot.h"
#include "sim/search/advice.h"

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
        evaluation_op_in_words(s, l.peak.op, l.peak.iteration, where, sizeof where);
        printf("live in %s memory at its peak, %s (%s step, %s):\n", space_name(in), size_text(l.peak.bytes).s,
               sched_name(l.peak.sched), where);
        print_families(s, &l.peak);
    }
}

struct explain_args { const char *trace, *figure, *db; bool schedule; int64_t rank, stage; };

/* The step of all ranks, or of every stage, as it ran. */
static int show_runs(const struct explained *p, const struct timing *t, const struct run *runs, const struct explain_args *a)
{
    struct trace_role *roles = explain_roles(&p->e, runs);
    int n = p->e.nstages ? p->e.nstages : 1, rc = 0;

    if (!roles)
        printf("(too many entries to draw or trace them one by one)\n");
    else if (a->trace)
        rc = trace_write(roles, n, a->trace);
    else if (n == 1)
        trace_gantt_print(roles->s, roles->r, 84, stdout);
    if (p->e.nstages)
        explain_pipeline(&p->plan, &p->e, t, runs, stdout);
    if (roles && a->figure && rc == 0)
        rc = pipeline_plot_figure(roles, n, t->line.step_s - t->line.slowest_s, a->figure);
    free(roles);
    return rc;
}

/* The steady step on the clock: a chart, or a trace file. */
static int explain_time(const struct explained *p, const struct explain_args *a)
{
    int n = p->e.nstages ? p->e.nstages : 1, rc;
    struct run *runs = room_new((size_t)n, sizeof *runs);
    struct timing t;

    if (simulate_stages(&p->plan, &p->e, &t, runs) < 0) {
        free(runs);
        return -1;
    }
    printf("\none steady step: %.4g s (90 %%: %.4g to %.4g; %s)", t.line.step_s, t.low_s, t.high_s, basis_name(t.basis));
    if (t.line.slowest_s > 0)
        printf(", of which %.2g s waiting for the slowest rank; the others on the clock:", t.line.slowest_s);
    putchar('\n');
    rc = show_runs(p, &t, runs, a);
    printf("held at most %s at once, by the clock, overhead included\n", size_text(t.held_bytes).s);
    for (int i = 0; i < n; i++)
        run_free(&runs[i]);
    free(runs);
    return rc;
}

/* The entries of the fullest rank, or of the one that was asked for. */
static int print_schedule(const struct explained *p, const struct explain_args *a)
{
    struct mesh m = plan_mesh(&p->plan);
    struct mesh_group pipe = mesh_group(&m, MESH_AXIS(AXIS_PIPE));
    int64_t rank = a->rank >= 0 ? a->rank : a->stage >= 0 ? mesh_member(&pipe, p->e.m.rank, a->stage) : p->e.m.rank;
    struct schedules other = { 0 };
    int rc = rank == p->e.m.rank ? 0 : lower(&p->plan, rank, &other);

    for (int id = 0; rc == 0 && id < NSCHED; id++)
        sched_print(rank == p->e.m.rank ? &p->e.schedules : &other, (enum sched_id)id, stdout);
    schedules_free(&other);
    return rc;
}

static int check_place(const struct plan *p, const struct explain_args *a)
{
    struct mesh m = plan_mesh(p);

    if (a->rank >= p->cluster.world_size)
        return fail("explain: --rank %" PRId64 ": the plan has ranks 0 to %" PRId64, a->rank, p->cluster.world_size - 1);
    if (a->stage >= m.size[AXIS_PIPE])
        return fail("explain: --stage %" PRId64 ": the plan has %" PRId64 " stage%s", a->stage, m.size[AXIS_PIPE],
                    m.size[AXIS_PIPE] == 1 ? ", no pipeline" : "s");
    return a->figure && m.size[AXIS_PIPE] == 1 ? fail("explain: -o draws a pipeline, and the plan has none") : 0;
}

static int explain_one(const char *path, const struct explain_args *a)
{
    struct explained p;

    if (explain_load(path, &p) < 0)
        return EXIT_MISUSE;
    int rc = check_place(&p.plan, a) < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (rc == EXIT_DONE && measured_load(a->db, p.plan.precision, &p.plan.cluster) < 0)
        rc = measured_status();
    if (rc == EXIT_DONE && a->schedule && print_schedule(&p, a) < 0)
        rc = EXIT_MISUSE;
    if (rc != EXIT_DONE) {
        explain_unload(&p);
        return rc;
    }
    printf("\nmemory of %s over one steady step\n", evaluation_where(&p.e).s);
    memory_plot(&p.e.schedules, SCHED_STEADY, p.e.m.available, stdout);
    print_live(&p.e);
    rc = p.e.m.fits ? EXIT_DONE : EXIT_NO;
    if (explain_time(&p, a) < 0)
        rc = EXIT_FAILED;
    putchar('\n');
    advice_print(&p.plan, &p.e, stdout);
    explain_unload(&p);
    measured_unload();
    return rc;
}

int cmd_explain(int argc, char **argv)
{
    const char *path = NULL, *other = NULL, *oom = NULL;
    struct explain_args a = { .rank = -1, .stage = -1 };
    const struct opt opts[] = {
        { "PLAN.json", "the plan; - is standard input", .str = &path, .positional = true, .required = true },
        { "OTHER.json", "a second plan: say what differs", .str = &other, .positional = true },
        { "oom", "PyTorch's out-of-memory message, or a memory snapshot or statistics as JSON: what it was, what would fit",
          .str = &oom, .value = "FILE" },
        { "trace", "write the step as a Chrome/Perfetto trace", .str = &a.trace, .value = "FILE" },
        { "db", "the database of calibrations", .str = &a.db, .value = "FILE" },
        { "schedule", "print the schedules themselves, entry by entry; of two plans their differences", .flag = &a.schedule },
        { "rank", "with --schedule: of this rank, not of the fullest", .i = &a.rank, .value = "N" },
        { "stage", "with --schedule: of this stage of the pipeline", .i = &a.stage, .value = "N" },
        { "output", "draw the pipeline's stages by time into a .svg or .png", .str = &a.figure, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    int rc = opts_parse("dpxplan explain",
                        "A plan's memory over time, what is live at the peak and why, its step on the clock; with --schedule\n"
                        "every entry of it.  Two plans: both steps, and what each difference makes of it.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (oom && other) {
        fail("explain: --oom goes with one plan");
        return EXIT_MISUSE;
    }
    if (oom)
        return explain_oom(path, oom);
    if (a.figure && figure_name(a.figure) < 0)
        return EXIT_MISUSE;
    return other ? explain_two(path, other, a.schedule, a.db) : explain_one(path, &a);
}
