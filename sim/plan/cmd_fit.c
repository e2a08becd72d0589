/* cmd_fit.c -- dpxplan fit: does it fit, and what is the least that holds it; one table. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/columns.h"
#include "base/fail.h"
#include "base/page.h"
#include "base/size.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/fit_answer.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"

enum { TABLE = 80 };

/* ---- what was asked ---- */

/* Has every row the usual batch? */
static bool all_divide(const struct fit_answer *f)
{
    bool all = true;

    for (int i = 0; i < f->n; i++)
        all &= !f->row[i].gpus || plan_global_batch(&f->row[i].plan) == SEARCH_BATCH;
    return all;
}

static void print_batch(const struct fit_asked *a, const struct fit_answer *f, FILE *to)
{
    const struct fit_model *m = &f->of;

    if (a->batch || (m->batch && !m->batch_a_gpu))
        fprintf(to, "%" PRId64 " a step", a->batch ? a->batch : m->batch);
    else if (m->batch)
        fprintf(to, "%" PRId64 " a step on each GPU", m->batch);
    else
        fprintf(to, "%d a step%s", SEARCH_BATCH, all_divide(f) ? "" : " (the next multiple where GPUs do not divide it)");
}

/* Is each a number of GPUs, such as 8xh100? */
static bool all_numbered(const struct fit_answer *f)
{
    bool all = true;

    for (int i = 0; i < f->n; i++)
        all &= f->row[i].number > 0;
    return all;
}

static bool any_numbered(const struct fit_answer *f)
{
    bool any = false;

    for (int i = 0; i < f->n; i++)
        any |= f->row[i].number > 0;
    return any;
}

static void print_question(const struct fit_asked *a, const struct fit_answer *f, FILE *to)
{
    const struct search_tuned *t = &f->of.ask.tuned;

    fprintf(to, "%s (%s parameters), ", f->model.name, count_text(f->model.params).s);
    answer_training(t, to);
    fprintf(to, ", samples of %s, ", sample_text(&f->model, f->of.ask.seq).s);
    print_batch(a, f, to);
    if (f->tokens && sample_has_tokens(&f->model))
        fprintf(to, ", %s tokens in all", count_text(f->tokens).s);
    else if (f->tokens)
        fprintf(to, ", %s samples in all", count_text(f->tokens / f->of.ask.seq).s);
    fputs(".\n", to);
    if (a->train < 0 && !a->seq && !a->batch && !f->of.recipe)
        fprintf(to, "To ask otherwise: --train lora, --seq %s, --batch 16, --framework torch.\n", f->model.context > 0 && f->model.context < 8192 ? "512" : "8k");
    else if (a->framework == FRAMEWORK_ANY && f->of.recipe)
        fputs("Plans of all frameworks: --framework torch asks for those that PyTorch alone runs.\n", to);
    fprintf(to, all_numbered(f) ? "\nWhether these GPUs hold it, and the plan that search recommends:\n\n" :
            "\nThe least number of each GPU that holds it%s, and the plan that search recommends there:\n\n",
            any_numbered(f) ? " (of a number that you gave: whether it does)" : "");
}

/* ---- the table ---- */

static double gib(int64_t bytes) { return (double)bytes / (1 << 30); }

/* To three digits. */
static double three(double x)
{
    double unit = x > 0 ? pow(10, floor(log10(x)) - 2) : 1;

    return round(x / unit) * unit;
}

/* "$12.50", "375 EUR" */
static void add_cost(struct columns *t, const struct fit_answer *f, double cost)
{
    bool word = isalpha((unsigned char)f->sign[0]);

    if (cost >= 0)
        columns_cell(t, cost < 100 ? "%s%.2f%s%s" : "%s%.0f%s%s", word ? "" : f->sign, cost, word ? " " : "", word ? f->sign : "");
    else
        columns_cell(t, "%s", "");
}

static void add_training(struct columns *t, const struct fit_answer *f, const struct fit_row *r)
{
    double hours = r->training.days * 24;

    if (!f->tokens || !r->gpus) {
        columns_cell(t, "%s", "");
        columns_cell(t, "%s", "");
        return;
    }
    if (hours < 72)
        columns_cell(t, hours < 10 ? "%.1f hours" : "%.0f hours", hours);
    else
        columns_cell(t, hours < 2400 ? "%.1f days" : "%.0f days", hours / 24);
    add_cost(t, f, r->training.cost);
}

/* Rows of figures, a line each, the titles first. */
static char *figures(const struct fit_answer *f, int width)
{
    const struct column columns[] = {
        { .title = "GPU" }, { .title = all_numbered(f) ? "GPUs" : "least", .right = true }, { .title = "reserved of usable", .right = true },
        { .title = sample_rate_unit(&f->model), .right = true, .rank = 1 }, { .title = "time", .right = true }, { .title = "cost", .right = true },
    };
    struct columns *t = columns_new(columns, 6);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        abort();
    for (int i = 0; i < f->n; i++) {
        const struct fit_row *r = &f->row[i];
        columns_cell(t, "%s", r->gpu->name);
        columns_cell(t, r->gpus ? "%" PRId64 : f->stopped ? "?" : r->number ? "not %" PRId64 : "none", r->gpus ? r->gpus : r->number);
        if (r->gpus)
            columns_cell(t, "%.1f of %.1f GiB", gib(r->taken), gib(r->usable));
        else
            columns_cell(t, "%s", "");
        if (r->gpus)
            columns_cell(t, "%.0f", three(sample_rate(&f->model, f->of.ask.seq, r->tokens_per_s)));
        else
            columns_cell(t, "%s", "");
        add_training(t, f, r);
    }
    columns_print(t, to, width);
    fclose(to);
    return text;
}

static void print_why_not(const char *model, const struct fit_row *r, bool stopped, FILE *to)
{
    fputs("      " PAGE_HANG, to);
    if (stopped && !r->why[0])
        fprintf(to, "stopped before it was known%s", r->tried ? "; " : "");
    if (r->tried)
        fprintf(to, "%" PRId64 " do%s not hold it: a plan needs at least %.1f GiB of each, which has %.1f at most", r->tried, r->tried == 1 ? "es" : "",
                gib(r->needed), gib(r->available));
    fprintf(to, "%s%s", r->tried && r->why[0] ? "; more: " : "", r->why);
    fprintf(to, r->number && r->tried ? "; how many do: dpxplan fit %s %s\n" : "\n", model ? model : "config.json", r->gpu->name);
}

static void print_plan(const struct fit_row *r, FILE *to)
{
    char words[PLAN_WORDS];

    plan_words(&r->plan, words, sizeof words);
    fprintf(to, "      " PAGE_HANG "%s%s%s%s\n", words, r->plan.loss == LOSS_FUSED_LINEAR ? ", with a fused loss" : "", r->tight ? "; tight" : "", r->waits ? "; " ANSWER_WAITS : "");
}

/* What most people would turn on next. */
static void print_fused(const struct fit_row *r, FILE *to)
{
    if (r->gpus)
        fprintf(to, "      " PAGE_HANG "with a fused loss %" PRId64 " hold%s it: %.1f of %.1f GiB, %.0f %s%s\n", r->gpus, r->gpus == 1 ? "s" : "", gib(r->taken),
                gib(r->usable), three(sample_rate(&r->plan.model, r->plan.seq, r->tokens_per_s)), sample_rate_unit(&r->plan.model), r->tight ? "; tight" : "");
}

static void print_table(const struct fit_answer *f, FILE *to)
{
    int width = page_width(stdout);
    char *text = figures(f, width < TABLE ? width : TABLE), *line = text;

    for (int i = -1; i < f->n && *line; i++, line += strcspn(line, "\n") + 1) {
        fprintf(to, "%.*s\n", (int)strcspn(line, "\n"), line);
        if (i < 0)
            continue;
        if (f->row[i].gpus)
            print_plan(&f->row[i], to);
        else
            print_why_not(f->of.ask.model, &f->row[i], f->stopped, to);
        print_fused(&f->fused[i], to);
    }
    free(text);
}

/* ---- what else to know ---- */

static void print_remarks(const struct fit_asked *a, const struct fit_answer *f, FILE *to)
{
    double low = 0, high = 0;
    bool tight = false, fused = false;

    for (int i = 0; i < f->n; i++)
        if (f->row[i].gpus) {
            fused |= f->fused[i].gpus > 0 || f->row[i].plan.loss == LOSS_FUSED_LINEAR;
            low = fmin(low, f->row[i].low_s / f->row[i].step_s - 1);
            high = fmax(high, f->row[i].high_s / f->row[i].step_s - 1);
            tight |= f->row[i].tight;
        }
    if (f->best >= 0)
        fprintf(to, "\nReserved memory is what decides. Times are predictions: nine in ten lie between %.0f %% below and %.0f %% above them.\n", -100 * low, 100 * high);
    if (tight)
        fprintf(to, "Tight: less than 5 %% of the card stays free, or PyTorch's allocator runs full.\n");
    if (fused)
        fputs("Fused loss: head and cross-entropy in one kernel that keeps no logits, an option of most trainers (transformers: use_liger_kernel). To ask for it: --loss fused-linear.\n", to);
    if (!a->offload)
        fprintf(to, "All is kept in GPU memory; --offload also tries host memory, which is slower.\n");
}

/* Has another GPU a tight plan on as few? */
static bool others_are_tight(const struct fit_answer *f)
{
    const struct fit_row *best = &f->row[f->best];

    for (int i = 0; i < f->n; i++)
        if (f->row[i].gpus > 0 && f->row[i].gpus <= best->gpus && f->row[i].tight && !best->tight)
            return true;
    return false;
}

static void print_next(const struct fit_asked *a, const struct fit_answer *f, FILE *to)
{
    char command[FIT_COMMAND];
    const struct fit_row *r = &f->row[f->best];

    if (f->n == 1 && r->number)
        fputs("\nTo go on from there:\n\n", to);
    else
        fprintf(to, "\n%s %" PRId64 " %s%s.  To go on from there:\n\n", r->money.tokens && r->training.cost >= 0 ? "Cheapest:"
            : others_are_tight(f) ? "Fewest GPUs that are not tight:" : "Fewest GPUs:", r->gpus,
            r->gpu->name, r->tight ? " (tight)" : "");
    fit_search_command(f, a, r, (page_width(stdout) < TABLE ? page_width(stdout) : TABLE) - 2, command);
    for (const char *at = command; *at; at += strcspn(at, "\n"), at += *at == '\n')
        fprintf(to, "  %.*s\n", (int)strcspn(at, "\n"), at);
    fprintf(to, "  " FIT_EVAL_COMMAND "\n");
}

static int print_answer(const struct fit_asked *a, const struct fit_answer *f)
{
    FILE *to = page_open(stdout);

    if (!to)
        return -1;
    print_question(a, f, to);
    print_table(f, to);
    print_remarks(a, f, to);
    if (f->best >= 0)
        print_next(a, f, to);
    page_close(to);
    return 0;
}

/* Ctrl-C ends it. */
static bool go_on(void *of, int64_t done, int64_t total)
{
    progress_at(of, done, total);
    return !progress_stopped();
}

static int find(struct fit_asked *a, struct fit_answer *f)
{
    struct progress p;

    progress_start(&p, 0, "searches");
    a->go_on = go_on;
    a->go_on_of = &p;
    int rc = fit_answer(a, f);
    progress_end(&p);
    return rc;
}

int cmd_fit(int argc, char **argv)
{
    struct fit_asked a = FIT_ASKED;
    struct fit_answer f;
    bool json = false;
    const struct opt opts[] = {
        FIT_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan fit", "Does it fit, and what is the least that holds it: for each GPU the smallest number, with which plan, how fast, how long, "
                        "how much.  Needs no file and no framework.  Exits with 3 when nothing holds it anywhere.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = find(&a, &f)) != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (json && f.stopped)
        rc = fail("fit: stopped before all was known") < 0 ? EXIT_FAILED : rc;
    else if (json)
        rc = dpxplan_print_json(fit_json(&a, &f), rc);
    else if (print_answer(&a, &f) < 0)
        rc = EXIT_FAILED;
    rc = f.stopped ? EXIT_FAILED : rc;
    fit_free(&f);
    return rc;
}
