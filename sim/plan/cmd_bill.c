/* cmd_bill.c -- dpxplan bill: a training from its first day to its last, interruptions included. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/columns.h"
#include "base/duration.h"
#include "base/page.h"
#include "base/percent.h"
#include "model/arch/sample.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/bill.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"

/* "3.46 GB", as storage is sold. */
static struct answer_text gigabytes(double bytes)
{
    struct answer_text t;

    snprintf(t.s, sizeof t.s, bytes < 999.5e6 ? "%.3g MB" : bytes < 999.5e9 ? "%.3g GB" : "%.3g TB",
             bytes / (bytes < 999.5e6 ? 1e6 : bytes < 999.5e9 ? 1e9 : 1e12));
    return t;
}

static void print_plan(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    const struct plan *p = &b->e.plan;
    char words[PLAN_WORDS], steps[40];

    fprintf(to, "%s (%s parameters) on ", p->model.name, count_text(p->model.params).s);
    answer_cluster(&p->cluster, to);
    plan_words(p, words, sizeof words);
    fprintf(to, ".\n%s.\n", words);
    answer_memory(p, &b->e.e, &b->e.t, to);
    answer_step(p, &b->e.t, to);
    if (a->step)
        fprintf(to, "  From here on a step takes %s, as you measured it.\n", duration_text(b->run.step_s).s);
    if (a->packed > 0)
        fprintf(to, "  %s samples of %g tokens, packed into sequences of %s, %" PRId64 " time%s: ", count_text(a->samples).s, a->packed,
                sample_text(&p->model, p->seq).s, a->epochs, a->epochs == 1 ? "" : "s");
    else if (a->samples)
        fprintf(to, "  %s samples of %s, %" PRId64 " time%s: ", count_text(a->samples).s, sample_text(&p->model, p->seq).s, a->epochs, a->epochs == 1 ? "" : "s");
    else
        fprintf(to, "  %s tokens: ", count_text(a->eval.money.tokens).s);
    fprintf(to, "%s steps, %s", money_grouped((double)b->money.steps, steps, sizeof steps), duration_text(b->money.days * 86400).s);
    if (a->eval.money.price >= 0) {
        money_sum(&a->eval.money, b->money.cost, steps, sizeof steps);
        fprintf(to, " and %s", steps);
    }
    fputs(" if nothing is saved and nothing fails.\n", to);
    if (b->eval_s > 0)
        fprintf(to, "  An evaluation pass over %s samples takes %s, every %" PRId64 " steps.\n", count_text(a->eval_samples).s, duration_text(b->eval_s).s,
                a->eval_every);
}

/* ---- checkpoints ---- */

static void print_write(const struct bill *b, FILE *to)
{
    static const double rates[] = { 1e9, 10e9, 100e9 };

    if (b->times.write_s >= 0) {
        fprintf(to, "  To write it takes %s, to load it %s: the storage does", duration_text(b->times.write_s).s, duration_text(b->times.read_s).s);
        if (b->storage.shared > 0)
            fprintf(to, " %s/s for all nodes together", gigabytes(b->storage.shared).s);
        if (b->storage.node > 0)
            fprintf(to, "%s %s/s for a node at most", b->storage.shared > 0 ? "," : "", gigabytes(b->storage.node).s);
        fputs(".\n", to);
        return;
    }
    fputs("  How long it takes to write is UNKNOWN without --storage:", to);
    for (int i = 0; i < 3; i++)
        fprintf(to, "%s %s at %g GB/s", i ? "," : "", duration_text((double)b->saved.bytes / rates[i]).s, rates[i] / 1e9);
    fputs(".\n", to);
}

static void print_saved(const struct bill *b, FILE *to)
{
    fprintf(to, "\nA checkpoint has %s: %s of weights%s, %s of optimizer states.\n", gigabytes((double)b->saved.bytes).s,
            gigabytes((double)b->saved.weights).s, b->saved.partly ? " that train" : "", gigabytes((double)b->saved.states).s);
    fprintf(to, "  Who writes: %s; at most %s a rank.\n", b->saved.by, gigabytes((double)b->saved.rank).s);
    if (b->times.snapshot_s > 0)
        fprintf(to, "  Copied to host memory in %s.\n", duration_text(b->times.snapshot_s).s);
    print_write(b, to);
    if (b->beside >= 1.0005)
        fprintf(to, "  While it is on its way, %s over the network that training uses, a step takes %s longer.\n", duration_text(b->run.behind_s).s,
                percent_share(b->beside - 1).s);
    if (b->host_bytes)
        fprintf(to, "  Host memory of a node: %s for checkpoints, %s are left for them%s.\n", gigabytes((double)b->host_bytes).s,
                gigabytes((double)b->host_free).s, b->host_bytes > b->host_free ? ": it does not fit" : "");
}

/* ---- interruptions ---- */

static const struct column rate_columns[] = {
    { "rate", false, 0 }, { "interrupted every", true, 0 }, { "checkpoint every", true, 0 }, { "useful", true, 0 }, { "takes", true, 0 },
};

/* Without a rate: what the published ones would mean. */
static void print_rates(const struct bill *b, FILE *to)
{
    struct columns *t = columns_new(rate_columns, 5);

    fputs("Interruptions are UNKNOWN without --mtbf. What published rates would mean here:\n", to);
    for (int i = 0; failure_rate_at(i); i++) {
        const struct failure_rate *r = failure_rate_at(i);
        double mtbf = failure_rate_mtbf(r);
        struct run_time run;
        columns_cell(t, "%s", r->name);
        columns_cell(t, "%s", duration_text(mtbf / (double)b->e.plan.cluster.world_size).s);
        if (b->times.write_s < 0) {
            columns_cell(t, "-");
            columns_cell(t, "-");
            columns_cell(t, "-");
            continue;
        }
        int64_t every = bill_with_mtbf(b, mtbf, &run);
        columns_cell(t, "%s", duration_text((double)every * b->run.step_s).s);
        columns_cell(t, "%.1f %%", 100 * run.useful_s / run.total_s);
        columns_cell(t, "%s", duration_text(run.total_s).s);
    }
    columns_print(t, to, page_width(stdout));
}

/* "By cause: GPUs and their memory 64.0 % (every 52 days), ..."; nothing where no cause is stated. */
static void print_causes(const struct bill *b, FILE *to)
{
    const struct failures *f = &b->failures;
    const char *before = "  By cause:";

    for (int i = 0; i < FAILED_ANY; i++)
        if (b->by_cause[i] > 0) {
            fprintf(to, "%s %s %.1f %% (every %s)", before, failure_cause_words(i), 100 * b->by_cause[i] * b->run.mtbf_s, duration_text(1 / b->by_cause[i]).s);
            before = ",";
        }
    if (*before == ',')
        fputs(".\n", to);
    if (f->all_s > 0)
        return;
    bool network = b->e.plan.cluster.nodes > 1 && !(f->network_s > 0);
    if (!(f->gpu_s > 0) || !(f->node_s > 0) || network)
        fprintf(to, "  Not stated, so not counted:%s%s%s.\n", f->gpu_s > 0 ? "" : " GPUs", f->node_s > 0 ? "" : f->gpu_s > 0 ? " nodes" : ", nodes",
                !network ? "" : f->gpu_s > 0 && f->node_s > 0 ? " the network" : ", the network");
}

/* What a restart is made of. */
static void print_restart(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    const struct cluster_runs *stated = &b->e.plan.cluster.runs;

    fprintf(to, "  From an interruption until steps go on: %s.\n", duration_text(b->run.recover_s).s);
    fprintf(to, "    %s until ranks are started again", duration_text(b->found_s).s);
    if (!a->recover && !(stated->recover > 0))
        fputs(" (MegaScale, arXiv 2402.15627; --recover says another)", to);
    if (b->times.read_s > 0)
        fprintf(to, "; %s of loading", duration_text(b->times.read_s).s);
    if (b->run.warm_s > 0)
        fprintf(to, "; %s of warm-up, at the first start as well.\n", duration_text(b->run.warm_s).s);
    else
        fputs(".\n    Warm-up (compile, first step, data) is not counted: --warm-up states it.\n", to);
}

static void print_interruptions(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    fputc('\n', to);
    if (b->run.preempted_s > 0)
        fprintf(to, "The job is preempted every %s on average, and waits %s for its GPUs.\n", duration_text(b->run.preempted_s).s,
                b->run.queue_s > 0 ? duration_text(b->run.queue_s).s : "no time");
    if (isfinite(b->run.mtbf_s)) {
        fprintf(to, "The job is interrupted every %s on average.\n", duration_text(b->run.mtbf_s).s);
        if (b->failures.published)
            fprintf(to, "  %s.\n  Source: %s.\n", b->failures.published->run, b->failures.published->source);
        print_causes(b, to);
    } else {
        print_rates(b, to);
    }
    if (b->run.requeued)
        fprintf(to, "  A failed job waits %s in the queue.\n", duration_text(b->run.queue_s).s);
    if (goodput_rate(&b->run) > 0)
        print_restart(a, b, to);
}

/* ---- the bill ---- */

static const struct column bill_columns[] = { { "", false, 0 }, { "time", true, 0 }, { "", true, 0 }, { "cost", true, 0 } };

struct bill_table { struct columns *rows; const struct bill_asked *asked; const struct bill *bill; };

static double cost_of(const struct bill_asked *a, const struct bill *b, double seconds, int64_t spares)
{
    const struct cluster *c = &b->e.plan.cluster;

    return seconds / 3600 * (double)(c->world_size + spares * c->gpus_per_node) * a->eval.money.price;
}

static void bill_row(struct bill_table *t, const char *what, double seconds, bool paid)
{
    char sum[64] = "";

    if (seconds < 5e-4 * t->bill->time.total_s)
        return;
    if (t->asked->eval.money.price >= 0 && paid)
        money_sum(&t->asked->eval.money, cost_of(t->asked, t->bill, seconds, 0), sum, sizeof sum);
    columns_cell(t->rows, "%s", what);
    columns_cell(t->rows, "%s", duration_text(seconds).s);
    columns_cell(t->rows, "%.1f %%", 100 * seconds / t->bill->time.total_s);
    columns_cell(t->rows, "%s", sum);
}

/* Useful steps, by what they wait for. */
static void useful_rows(struct bill_table *t)
{
    const struct timeline *l = &t->bill->e.t.line;
    double evaluating = t->bill->eval_s > 0 ? t->bill->eval_s / (double)t->asked->eval_every / t->bill->run.step_s * t->bill->time.useful_s : 0;
    double each = (t->bill->time.useful_s - evaluating) / l->step_s;
    double rest = l->exposed_s + l->bubble_s;

    bill_row(t, "evaluation passes", evaluating, true);
    bill_row(t, "steps that count: computing", (l->step_s - rest) * each, true);
    bill_row(t, "  waiting for communication", l->exposed_s * each, true);
    bill_row(t, "  pipeline bubbles", l->bubble_s * each, true);
}

static void print_spares(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    char sum[64];

    if (b->spares <= 0)
        return;
    fprintf(to, "  %" PRId64 " node%s that stand%s by", b->spares, b->spares == 1 ? "" : "s", b->spares == 1 ? "s" : "");
    if (a->eval.money.price >= 0) {
        money_sum(&a->eval.money, cost_of(a, b, bill_paid_s(b, b->time.total_s), b->spares) - cost_of(a, b, bill_paid_s(b, b->time.total_s), 0), sum, sizeof sum);
        fprintf(to, ": %s more", sum);
    }
    fputs(".\n", to);
}

static void print_end(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    const struct cluster *c = &b->e.plan.cluster;
    int64_t spares = b->spares > 0 ? b->spares : 0;
    double hours = bill_paid_s(b, b->time.total_s) / 3600 * (double)(c->world_size + spares * c->gpus_per_node);
    char sum[64], low[64], high[64], useful[64];

    fprintf(to, "\nIt takes %s (90 %%: %s to %s)", duration_text(b->time.total_s).s, duration_text(b->low_s).s, duration_text(b->high_s).s);
    if (a->start)
        fprintf(to, " and ends on %s (%s to %s)", bill_date_after(a, b->time.total_s).s, bill_date_after(a, b->low_s).s,
                bill_date_after(a, b->high_s).s);
    fprintf(to, "%s.\n  %.1f %% of the time is steps that count", isfinite(b->run.mtbf_s) ? "" : " if nothing fails", 100 * b->time.useful_s / b->time.total_s);
    if (b->time.interruptions > 0)
        fprintf(to, "; %.3g interruptions", b->time.interruptions);
    fputs(".\n", to);
    fprintf(to, "  %s GPU-hours are paid for, %s of them useful", money_hours(hours, sum, sizeof sum),
            money_hours(b->time.useful_s / 3600 * (double)c->world_size, useful, sizeof useful));
    if (a->eval.money.price >= 0) {
        money_sum(&a->eval.money, cost_of(a, b, bill_paid_s(b, b->time.total_s), spares), sum, sizeof sum);
        money_sum(&a->eval.money, cost_of(a, b, bill_paid_s(b, b->low_s), spares), low, sizeof low);
        money_sum(&a->eval.money, cost_of(a, b, bill_paid_s(b, b->high_s), spares), high, sizeof high);
        fprintf(to, ": %s (90 %%: %s to %s)", sum, low, high);
    }
    fputs(".\n", to);
    print_spares(a, b, to);
    if (b->money.kwh > 0)
        fprintf(to, "  At most %.4g MWh of the GPUs' boards, at %g W each.\n", b->money.watts * hours / 1e6, b->money.watts);
}

static void print_every(const struct bill *b, FILE *to)
{
    fprintf(to, "\nA checkpoint every %" PRId64 " step%s, %s%s.\n", b->run.every, b->run.every == 1 ? "" : "s",
            duration_text((double)b->run.every * b->run.step_s).s, b->best ? ", costs least" : "");
    if (b->half > 0)
        fprintf(to, "  Twice as often: %+.2g %% of the time.\n", 100 * (b->half - 1));
    if (b->twice > 0)
        fprintf(to, "  Half as often: %+.2g %%.\n", 100 * (b->twice - 1));
    if (b->longest > 2 * b->run.every)
        fprintf(to, "  Up to every %" PRId64 " steps, %s: at most +0.1 %%, and fewer bytes are written.\n", b->longest,
                duration_text((double)b->longest * b->run.step_s).s);
}

static void print_bill(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    struct bill_table t = { columns_new(bill_columns, 4), a, b };

    useful_rows(&t);
    bill_row(&t, a->async || a->neighbour ? "checkpoints (all wait for the copy)" : "checkpoints (all wait)", b->time.blocked_s, true);
    bill_row(&t, "work done again", b->time.lost_s, true);
    bill_row(&t, "restarts", b->time.restarts_s, true);
    bill_row(&t, "warm-up", b->time.warm_s, true);
    bill_row(&t, a->shrink ? "fewer nodes" : "waiting for a node", b->time.waiting_s, true);
    bill_row(&t, "in the queue, without GPUs", b->time.queued_s, false);
    print_every(b, to);
    columns_print(t.rows, to, page_width(stdout));
    print_end(a, b, to);
}

static const struct column world_columns[] = {
    { "GPUs", true, 0 }, { "step", true, 1 }, { "checkpoint every", true, 0 }, { "useful", true, 0 }, { "takes", true, 0 }, { "cost", true, 0 }, { "", false, 0 },
};

/* GPU-hours that are paid for. */
static double world_hours(const struct bill_world *w) { return (w->time.total_s - w->time.queued_s) / 3600 * (double)w->gpus; }

static void world_row(struct columns *t, const struct bill_asked *a, const struct bill_world *w)
{
    char sum[64] = "", gpus[40];

    if (a->eval.money.price >= 0)
        money_sum(&a->eval.money, world_hours(w) * a->eval.money.price, sum, sizeof sum);
    columns_cell(t, "%s", money_grouped((double)w->gpus, gpus, sizeof gpus));
    columns_cell(t, "%s", answer_seconds(w->step_s).s);
    columns_cell(t, "%s", isfinite(w->time.interruptions) && w->time.interruptions > 0 ? duration_text((double)w->every * w->step_s).s : "-");
    columns_cell(t, "%.1f %%", 100 * w->time.useful_s / w->time.total_s);
    columns_cell(t, "%s", duration_text(w->time.total_s).s);
    columns_cell(t, "%s", sum);
    columns_cell(t, "%s", w->fits ? "" : "does not fit");
}

/* Which of those that fit ends first, which costs least, and what the last ones bring. */
static void print_where_more_help(const struct bill_world w[BILL_WORLDS], FILE *to)
{
    const struct bill_world *first = NULL, *cheapest = NULL, *before = NULL, *last = NULL;
    char gpus[40];

    for (int i = 0; i < BILL_WORLDS; i++) {
        const struct bill_world *x = &w[i];
        if (!x->possible || !x->fits || !isfinite(x->time.total_s))
            continue;
        first = !first || x->time.total_s < first->time.total_s ? x : first;
        cheapest = !cheapest || world_hours(x) < world_hours(cheapest) ? x : cheapest;
        before = last;
        last = x;
    }
    if (!before)
        return;
    fprintf(to, "  %s GPUs end first; ", money_grouped((double)first->gpus, gpus, sizeof gpus));
    fprintf(to, "%s take the fewest GPU-hours.\n", first == cheapest ? "they also" : money_grouped((double)cheapest->gpus, gpus, sizeof gpus));
    if (first != last)
        fputs("  More than those that end first do not help.\n", to);
    else
        fprintf(to, "  The last doubling ends it %.2f times as soon for %s more GPU-hours.\n", before->time.total_s / last->time.total_s,
                percent_share(world_hours(last) / world_hours(before) - 1).s);
}

static int print_worlds(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    struct bill_world w[BILL_WORLDS];
    struct columns *t;

    if (bill_worlds(a, b, w) < 0)
        return -1;
    fprintf(to, "\nWith the same global batch of %" PRId64 " on other numbers of GPUs%s:\n", plan_global_batch(&b->e.plan),
            b->spares >= 0 ? " (a spare is always there)" : "");
    t = columns_new(world_columns, 7);
    for (int i = 0; i < BILL_WORLDS; i++)
        if (w[i].possible)
            world_row(t, a, &w[i]);
    columns_print(t, to, page_width(stdout));
    print_where_more_help(w, to);
    return 0;
}

static int print_answer(const struct bill_asked *a, const struct bill *b, FILE *to)
{
    print_plan(a, b, to);
    print_saved(b, to);
    print_interruptions(a, b, to);
    if (b->known && b->endless)
        fprintf(to, "\nThe run would not end: between two interruptions too little is done that counts. %s\n",
                b->best ? "Faster storage, a faster restart or fewer GPUs would help." : "Checkpoints must be more frequent: leave --every out.");
    else if (b->known)
        print_bill(a, b, to);
    return a->worlds ? print_worlds(a, b, to) : 0;
}

int cmd_bill(int argc, char **argv)
{
    struct bill_asked a = BILL_ASKED;
    struct bill b;
    bool json = false;
    const struct opt opts[] = {
        BILL_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan bill", "A whole training with its checkpoints and interruptions: when it ends, what it costs, where the money goes.  "
                        "Exits with 3\nwhen the plan does not fit or the run would not end.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = bill_answer(&a, &b)) != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (json) {
        rc = dpxplan_print_json(bill_json(&a, &b), rc);
    } else {
        FILE *page = page_open(stdout);
        if (!page)
            rc = EXIT_FAILED;
        else {
            if (print_answer(&a, &b, page) < 0)
                rc = EXIT_FAILED;
            page_close(page);
        }
    }
    bill_free(&b);
    return rc;
}
