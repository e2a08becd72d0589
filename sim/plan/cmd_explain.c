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
static int print_time(const struct explained *p, const struct run *r, const char *trace)
{
    const struct schedules *s = &p->e.schedules;
    const struct timing *t = &p->t;
    int64_t before = 0;
    int rc = 0;

    for (int c = 0; c < NCAT; c++)
        before += p->e.m.ledger.persistent[c];
    printf("\none steady step: %.4g s (90 %%: %.4g to %.4g; %s)", t->line.step_s, t->low_s, t->high_s, basis_name(t->basis));
    if (t->line.slowest_s > 0)
        printf(", of which %.2g s waiting for the slowest rank; the others on the clock:", t->line.slowest_s);
    putchar('\n');
    if (r->n == 0)
        printf("(too many entries to draw or trace them one by one)\n");
    else if (trace)
        rc = trace_write(s, r, before, trace);
    else
        trace_gantt_print(s, r, 84, stdout);
    if (t->held_bytes >= 0)
        printf("held at most %s at once, by the clock, overhead included\n", size_text(t->held_bytes).s);
    return rc;
}

static int explain_one(const struct explain_args *a, const char *trace)
{
    struct explained p;
    struct run run;

    if (explain_load(&a->plan, &p) < 0)
        return EXIT_MISUSE;
    int rc = explain_time(&p, a->db, &run);
    if (rc != EXIT_DONE) {
        explain_unload(&p);
        return rc;
    }
    for (int id = 0; a->schedule && id < NSCHED; id++)
        sched_print(&p.e.schedules, (enum sched_id)id, stdout);
    printf("\nmemory of rank %" PRId64 " over one steady step\n", p.e.m.rank);
    memory_plot(&p.e.schedules, SCHED_STEADY, p.e.m.available, stdout);
    print_live(&p.e);
    rc = print_time(&p, &run, trace) < 0 ? EXIT_FAILED : p.e.m.fits ? EXIT_DONE : EXIT_NO;
    putchar('\n');
    advice_print(&p.plan, &p.e, stdout);
    run_free(&run);
    explain_unload(&p);
    return rc;
}

static int print_two(const struct explain_args *a)
{
    struct explained p, q;

    if (explain_load(&a->plan, &p) < 0)
        return EXIT_MISUSE;
    if (explain_load(&a->other, &q) < 0) {
        explain_unload(&p);
        return EXIT_MISUSE;
    }
    int rc = explain_time(&p, a->db, NULL);
    if (rc == EXIT_DONE)
        rc = explain_time(&q, a->db, NULL);
    if (rc == EXIT_DONE)
        explain_two(&p, &q, a->schedule, stdout);
    explain_unload(&p);
    explain_unload(&q);
    return rc;
}

static int print_oom(const struct explain_args *a)
{
    struct oom_message m;
    struct explained p;

    if (oom_message_given(&a->oom, &m) < 0 || explain_load(&a->plan, &p) < 0)
        return EXIT_MISUSE;
    explain_oom(&p, &m, stdout);
    explain_unload(&p);
    return EXIT_DONE;
}

int cmd_explain(int argc, char **argv)
{
    struct explain_args a = { .schedule = false };
    const char *trace = NULL;
    bool json = false;
    const struct opt opts[] = {
        EXPLAIN_OPTS(a),
        { "trace", "write the step as a Chrome/Perfetto trace", .str = &trace, .value = "FILE" },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan explain",
                        "A plan's memory over time, what is live at the peak and why, its step on the clock; with --schedule\n"
                        "every entry of it.  Two plans: both steps, and what each difference makes of it.", opts, argc, argv);
    json_t *doc;

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (explain_check(&a) < 0)
        return EXIT_MISUSE;
    if (json && trace) {
        fail("explain: give one of --trace and --json");
        return EXIT_MISUSE;
    }
    if (json)
        return (rc = explain_json(&a, &doc)) == EXIT_DONE || rc == EXIT_NO ? dpxplan_print_json(doc, rc) : rc;
    return a.oom.path || a.oom.text ? print_oom(&a) : a.other.path ? print_two(&a) : explain_one(&a, trace);
}
