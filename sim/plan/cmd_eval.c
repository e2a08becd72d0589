/* cmd_eval.c -- dpxplan eval: every figure of one plan. */
#include <inttypes.h>
#include <stdio.h>

#include "base/opts.h"
#include "base/size.h"
#include "base/terminal.h"
#include "model/plan/elsewhere.h"
#include "model/plan/experts_check.h"
#include "sim/plan/commands.h"
#include "sim/plan/eval.h"
#include "sim/price/gpu_rates.h"
#include "sim/price/flops.h"
#include "sim/price/measured_gaps.h"

/* How many experts a rank has, and how many of the rows. */
static void print_expert_ranks(const struct plan *p)
{
    char line[256];

    experts_ranks_words(p, line, sizeof line);
    printf("%s\n", line);
}

static void print_model(const struct plan *p)
{
    const struct model *m = &p->model;
    const struct cluster *c = &p->cluster;

    printf("%s: %s parameters, ", m->name, count_text(m->params).s);
    if (m->trainable < m->params)
        printf("%s of them train (%.3g %%), ", count_text(m->trainable).s, 100.0 * (double)m->trainable / (double)m->params);
    if (m->experts)
        printf("%s of them used by a token, ", count_text(m->active).s);
    printf("%" PRId64 " blocks of %" PRId64 "\n", m->layers, m->hidden);
    if (m->experts)
        printf("%" PRId64 " experts a block, %" PRId64 " for each token: %s\n", m->experts, m->experts_used, experts_routing_of(p));
    if (p->parallel.expert > 1)
        print_expert_ranks(p);
    else if (m->experts && p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && m->experts < p->shard_group)
        printf("FSDP2 cuts their weights by expert: %" PRId64 " of the %" PRId64 " ranks that share them have none, the others a whole one, "
               "and a gather moves %.3g times their bytes\n", p->shard_group - m->experts, p->shard_group,
               (double)p->shard_group / (double)m->experts);
    printf("%" PRId64 " x %" PRId64 " x %s, %s each, %s of it usable\n", c->nodes, c->gpus_per_node,
           c->gpu.name, size_text(c->memory).s, size_text(cluster_available(c)).s);
    printf("%s (%s, %s kernels), %s, micro-batch %" PRId64 " x %" PRId64 " tokens, accumulation %" PRId64
           ", global batch %" PRId64 "\n\n", strategy_name(p->strategy), dialect_name(p->dialect),
           kernels_name(p->kernels), dtype_name(p->precision), p->micro_batch, p->seq,
           p->accumulation, plan_global_batch(p));
}

static void row(const char *what, int64_t bytes)
{
    if (bytes)
        printf("  %-28s %12s\n", what, size_text(bytes).s);
}

/* One line for each memory beyond the device's. */
static void print_spaces(const struct space_accounts *a)
{
    for (int m = SPACE_PINNED; m < NSPACE; m++)
        if (a->of[m].used)
            printf("  %-28s %12s of %s\n", eval_space_name((enum space)m), size_text(a->of[m].peak).s,
                   size_text(a->of[m].available).s);
}

/* What PyTorch's allocator makes of it. */
static void print_reserved(const struct reserved *r)
{
    row("active (PyTorch's allocator)", r->active_peak);
    row("reserved", r->reserved_peak);
    row("nvidia-smi will show", r->driver);
}

static void print_verdict(const struct evaluation *e, const struct timing *t)
{
    if (!e->m.fits) {
        printf("%s%s%s\n", terminal_ink(stdout, TERMINAL_RED), e->why_not, terminal_ink(stdout, TERMINAL_PLAIN));
        return;
    }
    printf("%s%s%s", terminal_ink(stdout, e->verdict == VERDICT_TIGHT ? TERMINAL_YELLOW : TERMINAL_GREEN),
           verdict_name(e->verdict), terminal_ink(stdout, TERMINAL_PLAIN));
    if (e->reserved.known && e->reserved.reserved_peak > e->reserved.without_headroom)
        printf(": PyTorch's allocator reserves %s, and %s are left when the headroom stays free",
               size_text(e->reserved.reserved_peak).s, size_text(e->reserved.without_headroom).s);
    puts(simulate_waits_for_memory(e, t) ? ", but streams that run ahead would need more memory than there is: the allocator makes them wait,"
             " which the step time leaves out" : "");
    if (e->reserved.retries)
        printf("the allocator gives its cache back to the device %" PRId64 " times in init and three steps; %" PRId64
               " times in a steady step, %.3g s of it\n", e->reserved.retries, e->reserved.steady_retries, t->retry_s);
}

static void print_memory(const struct evaluation *e, const struct timing *t)
{
    const struct peak *p = &e->m.ledger.peak;
    int64_t extra = e->m.overhead.by[OVERHEAD_ALLOCATED] + e->m.overhead.by[OVERHEAD_OUTSIDE];

    printf("memory at the peak: %s, %s step, %s\n", evaluation_where(e).s, sched_name(p->sched), e->peak_at);
    for (int c = 0; c < NCAT; c++)
        row(category_name((enum category)c), p->by[c]);
    for (int i = 0; i < e->m.overhead.n; i++)
        if (e->m.overhead.item[i].kind != OVERHEAD_CONTEXT)
            row(e->m.overhead.item[i].name, e->m.overhead.item[i].bytes);
    row("together", p->bytes + extra);
    row("available", e->m.available);
    row("held at most, by the clock", t->held_bytes);
    if (e->m.elsewhere)
        print_spaces(&e->m.spaces);
    for (int i = 0; e->m.nkinds > 1 && i < e->m.nkinds; i++)
        printf("  %s%-*" PRId64 " %12s\n", "together on rank ", 11, e->m.kind[i].rank,
               size_text(e->m.kind[i].peak + extra).s);
    print_reserved(&e->reserved);
    print_verdict(e, t);
    if (!e->m.fits && e->first_over.op >= 0)
        printf("first over at: %s step, %s\n", sched_name(e->first_over.sched), e->over_at);
}

static void print_comm(const struct plan *p, const struct schedules *s, const struct comm_table *t)
{
    printf("\ncollectives of one optimizer step (%s sent by each rank)\n", size_text(t->sent_bytes).s);
    for (int i = 0; i < t->n; i++)
        printf("  %-15s %-8s %-5s %8" PRId64 " calls %12s\n", coll_name(t->line[i].op),
               s->groups.group[t->line[i].group].name, dtype_name(t->line[i].dtype), t->line[i].count,
               size_text(t->line[i].bytes).s);
    if (t->n == 0)
        printf("  none\n");
    if (p->ddp.comm_hook == HOOK_POWERSGD)
        printf("  from reduction %" PRId64 " on (start_powerSGD_iter); before, whole gradients are all-reduced\n", p->ddp.powersgd.start);
}

/* What runs outside of device memory, beside the step or within its idle time. */
static void print_away(const struct timeline *l)
{
    static const char *const what[NAWAY] = { "copies to host memory", "copies from host memory", "the host's threads",
                                             "files read", "files written" };

    for (int i = 0; i < NAWAY; i++)
        if (l->away_s[i] > 0)
            printf("  %-28s %10.4f s, beside that or while it waits\n", what[i], l->away_s[i]);
}

static void share(const char *what, double s, double step)
{
    printf("  %-28s %10.4f s %5.1f %%\n", what, s, 100 * s / step);
}

/* What each stage of a pipeline holds, and how it spends the step. */
static void print_stages(const struct evaluation *e, const struct timing *t)
{
    if (!e->nstages)
        return;
    printf("\nstages of the pipeline; work, sends and receives, bubble: seconds of the step\n"
           "  %-18s %12s %12s %10s %10s %10s\n", "", "needed", "reserved", "work", "messages", "bubble");
    for (int i = 0; i < e->nstages; i++) {
        const struct evaluation_stage *of = &e->stage[i];
        const struct stage_part *part = &t->stages.stage[i];
        char name[48];
        snprintf(name, sizeof name, "stage %d, rank %" PRId64, i, of->m.rank);
        printf("  %-18s %12s %12s %10.4g %10.4g %10.4g%s%s\n", name, size_text(of->m.needed).s,
               of->reserved.known ? size_text(of->reserved.reserved_peak).s : "-", part->work_s, part->messages_s,
               part->bubble_s, i == e->fullest ? "  fullest" : "", i == t->stages.busiest ? "  busiest" : "");
    }
}

static void print_time(const struct plan *p, const struct schedules *s, const struct timing *t)
{
    const struct timeline *l = &t->line;
    double step = l->step_s;
    char peak[96];

    flops_peak_text(p, peak, sizeof peak);
    printf("\nstep %.4g s (90 %%: %.4g to %.4g; %s), %.4g tokens/s, MFU %.1f %%, HFU %.1f %%%s (%s)\n", step, t->low_s,
           t->high_s, basis_name(t->basis), t->tokens_per_s, 100 * t->mfu, 100 * t->hfu, peak,
           flop_convention_of(&p->model, FLOPS_PALM));
    if (t->stages.n > 1)
        printf("  of stage %d, the busiest:\n", t->stages.busiest);
    share("compute", l->compute_s, step);
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < s->groups.n; g++)
            if (l->exposed_by[op][g] > 0.0005 * step)
                printf("  exposed %-12s %-7s %10.4f s %5.1f %%\n", coll_name((enum coll_op)op),
                       s->groups.group[g].name, l->exposed_by[op][g], 100 * l->exposed_by[op][g] / step);
    share("optimizer", l->optimizer_s, step);
    share(eval_idle_name(s->spaces != 0), l->idle_s, step);
    if (t->stages.n > 1)
        share("bubble (other stages' turn)", l->bubble_s, step);
    if (l->slowest_s > 0)
        share("waiting for the slowest rank", l->slowest_s, step);
    if (t->stages.n > 1)
        printf("  its work exceeds the stages' mean by %.4f s (%.1f %%), the imbalance\n", t->stages.imbalance_s,
               100 * t->stages.imbalance_s / step);
    print_away(l);
    printf("  communication in all %.4f s; without contention the step would take %.4g s\n", l->comm_s, t->free_s);
    if (gpu_lacks(&p->cluster.gpu, p->precision))
        printf("  %s\n", gpu_lacks(&p->cluster.gpu, p->precision));
    if (p->cluster.power_limit_w > 0 && !p->cluster.measured)
        printf("  %g of %g W a GPU: products at %.2f of the rate that the whole power leaves them at most\n", p->cluster.power_limit_w,
               power_gpu_watts(p->cluster.gpu.name), gpu_power_share(&p->cluster.gpu, p->cluster.power_limit_w));
    measured_print(p, s, stdout);
}

static void print_jitter(const struct jitter_added *a, double step)
{
    printf("  noise would add %.4g s: %.4g waiting for the slowest rank, %.4g for late ones, %.4g for rare events; "
           "%.4g s with it\n", a->persistent_s + a->transient_s + a->events_s, a->persistent_s, a->transient_s,
           a->events_s, step + a->persistent_s + a->transient_s + a->events_s);
}

static int print_answer(const struct eval_args *a, const struct eval_answer *e)
{
    print_model(&e->plan);
    print_memory(&e->e, &e->t);
    if (elsewhere_note(&e->plan))
        puts(elsewhere_note(&e->plan));
    print_comm(&e->plan, &e->e.schedules, &e->e.comm);
    print_time(&e->plan, &e->e.schedules, &e->t);
    print_stages(&e->e, &e->t);
    if (e->noisy)
        print_jitter(&e->added, e->t.line.step_s - e->t.line.slowest_s);
    return money_print(&a->money, &e->plan, &e->t, stdout);
}

int cmd_eval(int argc, char **argv)
{
    struct eval_args a = EVAL_ARGS;
    struct eval_answer e;
    bool json = false;
    const struct opt opts[] = {
        EVAL_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan eval", "Every figure of one plan.  Exits with 3 when it does not fit.",
                        opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = eval_ask(&a, &e)) != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (json)
        rc = dpxplan_print_json(eval_json(&a, &e), rc);
    else if (print_answer(&a, &e) < 0)
        rc = EXIT_FAILED;
    eval_free(&e);
    return rc;
}
