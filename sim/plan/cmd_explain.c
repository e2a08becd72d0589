/* cmd_explain.c -- dpxplan explain: a plan's memory over time, what is live at the peak and why, its step on the clock,
 * its schedules as text; two plans: what differs; a message of PyTorch: what it was. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"
#include "sim/plan/commands.h"
#include "sim/plan/explain.h"
#include "sim/plan/memory_plot.h"
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

/* The steady step on the clock: a chart, or a trace file. */
static int explain_time(const struct explained *p, const char *trace)
{
    const struct schedules *s = &p->e.schedules;
    struct timing t;
    struct run r;
    int64_t before = 0;
    int rc = 0;

    if (simulate_plan(&p->plan, &p->e, &t, &r) < 0)
        return -1;
    for (int c = 0; c < NCAT; c++)
        before += p->e.m.ledger.persistent[c];
    printf("\none steady step: %.4g s (90 %%: %.4g to %.4g; %s)", t.line.step_s, t.low_s, t.high_s, basis_name(t.basis));
    if (t.line.slowest_s > 0)
        printf(", of which %.2g s waiting for the slowest rank; the others on the clock:", t.line.slowest_s);
    putchar('\n');
    if (r.n == 0)
        printf("(too many entries to draw or trace them one by one)\n");
    else if (trace)
        rc = trace_write(s, &r, before, trace);
    else
        trace_gantt_print(s, &r, 84, stdout);
    if (t.held_bytes >= 0)
        printf("held at most %s at once, by the clock, overhead included\n", size_text(t.held_bytes).s);
    run_free(&r);
    return rc;
}

static int explain_one(const char *path, bool schedule, const char *trace, const char *db)
{
    struct explained p;

    if (explain_load(path, &p) < 0)
        return EXIT_MISUSE;
    if (measured_load(db, p.plan.precision, &p.plan.cluster) < 0) {
        explain_unload(&p);
        return measured_status();
    }
    if (schedule)
        for (int id = 0; id < NSCHED; id++)
            sched_print(&p.e.schedules, (enum sched_id)id, stdout);
    printf("\nmemory of rank %" PRId64 " over one steady step\n", p.e.m.rank);
    memory_plot(&p.e.schedules, SCHED_STEADY, p.e.m.available, stdout);
    print_live(&p.e);
    int rc = p.e.m.fits ? EXIT_DONE : EXIT_NO;
    if (explain_time(&p, trace) < 0)
        rc = EXIT_FAILED;
    putchar('\n');
    advice_print(&p.plan, &p.e, stdout);
    explain_unload(&p);
    measured_unload();
    return rc;
}

int cmd_explain(int argc, char **argv)
{
    const char *path = NULL, *other = NULL, *trace = NULL, *db = NULL;
    const char *oom = NULL;
    bool schedule = false;
    const struct opt opts[] = {
        { "PLAN.json", "the plan; - is standard input", .str = &path, .positional = true, .required = true },
        { "OTHER.json", "a second plan: say what differs", .str = &other, .positional = true },
        { "oom", "PyTorch's out-of-memory message, or a memory snapshot or statistics as JSON: what it was, what would fit",
          .str = &oom, .value = "FILE" },
        { "trace", "write the step as a Chrome/Perfetto trace", .str = &trace, .value = "FILE" },
        { "db", "the database of calibrations", .str = &db, .value = "FILE" },
        { "schedule", "print the schedules themselves, entry by entry; of two plans their differences", .flag = &schedule },
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
    return other ? explain_two(path, other, schedule, db) : explain_one(path, schedule, trace, db);
}
