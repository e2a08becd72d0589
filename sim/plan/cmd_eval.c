/* cmd_eval.c -- dpxplan eval: every figure of one plan. */
#include <inttypes.h>
#include <stdio.h>

#include "base/columns.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "model/plan/elsewhere.h"
#include "model/plan/experts_check.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/eval.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"
#include "sim/price/gpu_rates.h"
#include "sim/price/flops.h"
#include "sim/price/measured_gaps.h"

/* ---- what it is ---- */

static void print_experts(const struct plan *p, FILE *to)
{
    const struct model *m = &p->model;
    char line[256];

    fprintf(to, "%" PRId64 " experts a block, %" PRId64 " for each token: %s.\n", m->experts, m->experts_used, experts_routing_of(p));
    if (experts_router_note(p))
        fprintf(to, "%s\n", experts_router_note(p));
    if (experts_adapters_note(p))
        fprintf(to, "%s\n", experts_adapters_note(p));
    if (p->parallel.expert > 1) {
        experts_ranks_words(p, line, sizeof line);
        fprintf(to, "%s\n", line);
    } else if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && m->experts < p->shard_group)
        fprintf(to, "FSDP2 cuts their weights by expert: %" PRId64 " of the %" PRId64 " ranks that share them have none, the others a whole one. "
                "A gather moves %.3g times their bytes.\n", p->shard_group - m->experts, p->shard_group,
                (double)p->shard_group / (double)m->experts);
}

static void print_plan(const struct plan *p, FILE *to)
{
    const struct model *m = &p->model;
    char words[PLAN_WORDS];

    fprintf(to, "%s (%s parameters", m->name, count_text(m->params).s);
    if (m->trainable < m->params)
        fprintf(to, ", %s of them train: %.3g %%", count_text(m->trainable).s, 100.0 * (double)m->trainable / (double)m->params);
    if (m->experts)
        fprintf(to, ", %s of them used by a token", count_text(m->active).s);
    fprintf(to, ") on ");
    answer_cluster(&p->cluster, to);
    plan_words(p, words, sizeof words);
    fprintf(to, ".\n%s.\n", words);
    plan_words_settings(p, words, sizeof words);
    if (words[0])
        fprintf(to, "  Settings: %s.\n", words);
    fprintf(to, "  A step has %" PRId64 " sample%s of %s, in %s", plan_global_batch(p), plan_global_batch(p) == 1 ? "" : "s",
            sample_text(&p->model, p->seq).s, dtype_name(p->precision));
    if (training_is_lora(&p->train) && p->train.base == BASE_PLAIN && p->precision != DT_FP32)
        fprintf(to, "; frozen weights are kept in %s", dtype_name(plan_recipe(p).frozen));
    fprintf(to, ".\n");
    if (m->experts)
        print_experts(p, to);
}

/* What only who knows the codes asks for. */
static void print_names(const struct plan *p, FILE *to)
{
    char label[KNOB_LABEL];

    knob_label(p, label, sizeof label);
    fprintf(to, "\nlabel: %s\n", label);
    plan_words_legend(&p, 1, to);
    fprintf(to, "kernels %s, %" PRId64 " blocks of %" PRId64 "\n", kernels_name(p->kernels), p->model.layers, p->model.hidden);
}

/* ---- what it holds ---- */

static const struct column memory_columns[] = { { "", false, 0 }, { "", true, 0 }, { "", false, 0 } };

static void row(struct columns *t, const char *what, int64_t bytes)
{
    if (!bytes)
        return;
    columns_cell(t, "%s", what);
    columns_cell(t, "%s", size_text(bytes).s);
    columns_cell(t, "%s", "");
}

/* The row that decides says of how much.  What runs out of memory reserves what the card has: the figure is that of a card with room. */
static void row_of(struct columns *t, const char *what, int64_t bytes, int64_t usable, bool unlimited)
{
    columns_cell(t, "%s", what);
    columns_cell(t, "%s", size_text(bytes).s);
    columns_cell(t, unlimited ? "with unlimited memory; %s usable" : "of %s usable", size_text(usable).s);
}

/* One line for each memory beyond the device's. */
static void add_spaces(struct columns *t, const struct space_accounts *a)
{
    for (int m = SPACE_PINNED; m < NSPACE; m++)
        if (a->of[m].used) {
            columns_cell(t, "%s", eval_space_name((enum space)m));
            columns_cell(t, "%s", size_text(a->of[m].peak).s);
            columns_cell(t, "of %s", size_text(a->of[m].available).s);
        }
}

static void print_memory(const struct evaluation *e, const struct timing *t, bool all, FILE *to)
{
    const struct peak *p = &e->m.ledger.peak;
    const struct reserved *r = &e->reserved;
    struct columns *rows = columns_new(memory_columns, 3);
    int64_t extra = e->m.overhead.by[OVERHEAD_ALLOCATED] + e->m.overhead.by[OVERHEAD_OUTSIDE];

    fprintf(to, "\nmemory at the peak: %s, %s step, %s\n", evaluation_where(e).s, sched_name(p->sched), e->peak_at);
    for (int c = 0; c < NCAT; c++)
        row(rows, category_name((enum category)c), p->by[c]);
    for (int i = 0; i < e->m.overhead.n; i++)
        if (e->m.overhead.item[i].kind != OVERHEAD_CONTEXT)
            row(rows, e->m.overhead.item[i].name, e->m.overhead.item[i].bytes);
    if (r->known)
        row(rows, "together", p->bytes + extra);
    else
        row_of(rows, "together", p->bytes + extra, e->m.available, false);
    if (r->known)
        row_of(rows, EVAL_TAKEN, evaluation_taken(&e->m, r), e->m.available, r->out_of_memory);
    if (all)
        row(rows, "held at most, by the clock", t->held_bytes);
    if (e->m.elsewhere)
        add_spaces(rows, &e->m.spaces);
    for (int i = 0; all && e->m.nkinds > 1 && i < e->m.nkinds; i++) {
        char name[48];
        snprintf(name, sizeof name, "together on rank %" PRId64, e->m.kind[i].rank);
        row(rows, name, e->m.kind[i].peak + extra);
    }
    if (all)
        row(rows, "active (PyTorch's allocator)", r->active_peak);
    if (e->m.fits)
        row(rows, "nvidia-smi will show", r->driver);
    columns_print(rows, to, page_width(stdout));
}

static void print_comm(const struct plan *p, const struct schedules *s, const struct comm_table *t, FILE *to)
{
    fprintf(to, "\ncollectives of one optimizer step (%s sent by each rank)\n", size_text(t->sent_bytes).s);
    for (int i = 0; i < t->n; i++)
        fprintf(to, "  %-15s %-8s %-5s %8" PRId64 " calls %12s\n", coll_name(t->line[i].op),
               s->groups.group[t->line[i].group].name, dtype_name(t->line[i].dtype), t->line[i].count,
               size_text(t->line[i].bytes).s);
    if (t->n == 0)
        fprintf(to, "  none\n");
    if (p->ddp.comm_hook == HOOK_POWERSGD)
        fprintf(to, "  from reduction %" PRId64 " on (start_powerSGD_iter); before, whole gradients are all-reduced\n", p->ddp.powersgd.start);
}

static const struct column time_columns[] = { { "", false, 0 }, { "", true, 0 }, { "", true, 1 }, { "", false, 0 } };

static void share(struct columns *t, const char *what, double s, double step, const char *note)
{
    columns_cell(t, "%s", what);
    columns_cell(t, "%.4f s", s);
    columns_cell(t, note[0] ? "" : "%.1f %%", 100 * s / step);
    columns_cell(t, "%s", note);
}

/* What runs outside of device memory, beside the step or within its idle time. */
static void add_away(struct columns *t, const struct timeline *l)
{
    static const char *const what[NAWAY] = { "copies to host memory", "copies from host memory", "the host's threads",
                                             "files read", "files written" };

    for (int i = 0; i < NAWAY; i++)
        if (l->away_s[i] > 0)
            share(t, what[i], l->away_s[i], l->step_s, "beside that or while it waits");
}

static const struct column stage_columns[] = {
    { "", false, 0 }, { "needed", true, 0 }, { "reserved", true, 2 }, { "work", true, 0 }, { "messages", true, 1 }, { "bubble", true, 0 }, { "", false, 0 },
};
enum { STAGE_COLUMNS = sizeof stage_columns / sizeof *stage_columns };

/* What each stage of a pipeline holds, and how it spends the step. */
static void print_stages(const struct evaluation *e, const struct timing *t, FILE *to)
{
    if (!e->nstages)
        return;
    fprintf(to, "\nstages of the pipeline; work, messages and bubble are seconds of the step\n");
    struct columns *rows = columns_new(stage_columns, STAGE_COLUMNS);
    for (int i = 0; i < e->nstages; i++) {
        const struct evaluation_stage *of = &e->stage[i];
        const struct stage_part *part = &t->stages.stage[i];
        columns_cell(rows, "stage %d, rank %" PRId64, i, of->m.rank);
        columns_cell(rows, "%s", size_text(of->m.needed).s);
        columns_cell(rows, "%s", of->reserved.known ? size_text(evaluation_taken(&of->m, &of->reserved)).s : "-");
        columns_cell(rows, "%.4g", part->work_s);
        columns_cell(rows, "%.4g", part->messages_s);
        columns_cell(rows, "%.4g", part->bubble_s);
        columns_cell(rows, "%s%s%s", i == e->fullest ? "fullest" : "", i == e->fullest && i == t->stages.busiest ? ", " : "",
                     i == t->stages.busiest ? "busiest" : "");
    }
    columns_print(rows, to, page_width(stdout));
}

static void print_time(const struct plan *p, const struct schedules *s, const struct timing *t, bool all, FILE *to)
{
    const struct timeline *l = &t->line;
    double step = l->step_s;
    char peak[96];

    fprintf(to, "\ntime of a step (exposed: compute waits for communication)\n");
    if (t->stages.n > 1)
        fprintf(to, "  of stage %d, the busiest:\n", t->stages.busiest);
    struct columns *rows = columns_new(time_columns, 4);
    share(rows, "compute", l->compute_s, step, "");
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < s->groups.n; g++)
            if (l->exposed_by[op][g] > 0.0005 * step) {
                char name[80];
                snprintf(name, sizeof name, "exposed %s %s", coll_name((enum coll_op)op), s->groups.group[g].name);
                share(rows, name, l->exposed_by[op][g], step, "");
            }
    share(rows, "optimizer", l->optimizer_s, step, "");
    share(rows, eval_idle_name(s->spaces != 0), l->idle_s, step, "");
    if (t->stages.n > 1)
        share(rows, "bubble (other stages' turn)", l->bubble_s, step, "");
    if (l->slowest_s > 0)
        share(rows, "waiting for the slowest rank", l->slowest_s, step, "");
    add_away(rows, l);
    columns_print(rows, to, page_width(stdout));
    if (t->stages.n > 1)
        fprintf(to, "  its work exceeds the stages' mean by %.4f s (%s), the imbalance\n", t->stages.imbalance_s,
                percent_share(t->stages.imbalance_s / step).s);
    if (all) {
        flops_peak_text(p, peak, sizeof peak);
        fprintf(to, "  communication in all %.4f s; without contention the step would take %.4g s\n", l->comm_s, t->free_s);
        fprintf(to, "  step %.6g s", step);
        if (peak[0])
            fprintf(to, ", HFU %.1f %%, MFU %.1f %%%s", 100 * t->hfu, 100 * t->mfu, peak);
        fprintf(to, "\n  FLOPs are %s\n", flop_convention_of(&p->model, FLOPS_PALM));
    }
    if (gpu_lacks(&p->cluster.gpu, p->precision))
        fprintf(to, "  %s\n", gpu_lacks(&p->cluster.gpu, p->precision));
    if (p->cluster.power_limit_w > 0 && !p->cluster.measured)
        fprintf(to, "  %g of %g W a GPU: products at %.2f of the rate that the whole power leaves them at most\n", p->cluster.power_limit_w,
               power_gpu_watts(p->cluster.gpu.name), gpu_power_share(&p->cluster.gpu, p->cluster.power_limit_w));
    measured_print(p, s, to);
}

static void print_jitter(const struct jitter_added *a, double step, FILE *to)
{
    fprintf(to, "  noise would add %.4g s: %.4g waiting for the slowest rank, %.4g for late ones, %.4g for rare events; "
           "%.4g s with it\n", a->persistent_s + a->transient_s + a->events_s, a->persistent_s, a->transient_s,
           a->events_s, step + a->persistent_s + a->transient_s + a->events_s);
}

static int print_answer(const struct eval_args *a, const struct eval_answer *e, bool all, FILE *to)
{
    print_plan(&e->plan, to);
    answer_memory(&e->plan, &e->e, &e->t, to);
    if (!e->e.m.fits)
        fputs("  If there were room for it:\n", to);
    answer_step(&e->plan, &e->t, to);
    print_memory(&e->e, &e->t, all, to);
    if (answer_release(&e->plan, &e->e))
        fprintf(to, "%s\n", answer_release(&e->plan, &e->e));
    if (elsewhere_note(&e->plan))
        fprintf(to, "%s\n", elsewhere_note(&e->plan));
    print_comm(&e->plan, &e->e.schedules, &e->e.comm, to);
    print_time(&e->plan, &e->e.schedules, &e->t, all, to);
    print_stages(&e->e, &e->t, to);
    if (e->noisy)
        print_jitter(&e->added, e->t.line.step_s - e->t.line.slowest_s, to);
    if (all)
        print_names(&e->plan, to);
    return money_print(&a->money, &e->plan, &e->t, to);
}

static int say(const struct eval_args *a, const struct eval_answer *e, bool all)
{
    FILE *page = page_open(stdout);

    if (!page)
        return -1;
    int rc = print_answer(a, e, all, page);
    page_close(page);
    return rc;
}

int cmd_eval(int argc, char **argv)
{
    struct eval_args a = EVAL_ARGS;
    struct eval_answer e;
    bool json = false, all = false;
    const struct opt opts[] = {
        EVAL_OPTS(a),
        { "all", "print every figure, and the plan's label with what its codes mean", .flag = &all },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan eval", "Every figure of one plan.  Exits with 3 when it does not fit.",
                        opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    struct progress watch;
    progress_watch(&watch, "evaluating the plan");
    rc = eval_ask(&a, &e);
    progress_end(&watch);
    if (rc != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (json)
        rc = dpxplan_print_json(eval_json(&a, &e), rc);
    else if (say(&a, &e, all) < 0)
        rc = EXIT_FAILED;
    eval_free(&e);
    return rc;
}
