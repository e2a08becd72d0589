/* cmd_search.c -- dpxplan search: which plan is fastest among those that fit, and
 * what would be lost with the next. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/columns.h"
#include "base/duration.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/notes.h"
#include "base/output.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/search_beyond.h"
#include "sim/plan/search_brief.h"
#include "sim/plan/search_codes.h"
#include "sim/plan/search_validate.h"
#include "sim/plan/search_words.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/grid.h"
#include "sim/search/lack.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* ---- output ---- */

static const struct column row_columns[] = {
    { "", false, 0 }, { "step", true, 0 }, { "90 % interval", true, 2 }, { "from the first", false, 1 }, { "memory", true, 0 }, { "", true, 3 }, { "plan", false, 0 },
};
enum { ROW_COLUMNS = sizeof row_columns / sizeof *row_columns };

static void cells(struct columns *t, const struct found *f, const char *name, const char *interval, const char *from)
{
    columns_cell(t, "%s", name);
    columns_cell(t, "%.4g s", f->step_s);
    columns_cell(t, "%s", interval);
    columns_cell(t, "%s", from);
    columns_cell(t, "%s", size_text(f->needed).s);
    columns_cell(t, "%.1f %% exposed", 100 * f->exposed_s / f->step_s);
}

static void add_found(struct columns *t, const struct found *f, const char *name)
{
    char words[KNOB_LABEL];

    knob_label(&f->plan, words, sizeof words);
    cells(t, f, name, "", "");
    columns_cell(t, "%s%s%s", words, f->tight ? ", tight" : "", search_waits(f) ? ", " ANSWER_WAITS : "");
}

/* The difference from the first, and how sure it is. */
static void add_ranked(struct columns *t, const struct ranked *first, const struct ranked *k, const struct money_question *money)
{
    const struct found *f = k->found;
    const char *old = ranking_deprecated(&f->plan);
    char words[KNOB_LABEL], interval[48], slower[48] = "", training[96], variants[40] = "";

    knob_label(&f->plan, words, sizeof words);
    snprintf(interval, sizeof interval, "%.4g to %.4g", k->low_s, k->high_s);
    if (k != first && f->step_s < 10 * first->found->step_s)
        snprintf(slower, sizeof slower, "%s (+- %.1f)", percent_change(f->step_s / first->found->step_s).s,
                 100 * k->unsure_s / first->found->step_s);
    else if (k != first)
        snprintf(slower, sizeof slower, "%s", percent_change(f->step_s / first->found->step_s).s);
    if (k->variants > 0)
        snprintf(variants, sizeof variants, " and %" PRId64 " variant%s", k->variants, k->variants == 1 ? "" : "s");
    money_short(money, &f->plan, f->step_s, training, sizeof training);
    cells(t, f, "", interval, slower);
    columns_cell(t, "%s%s%s%s%s%s%s", words, variants, old ? "; " : "", old ? old : "", k->tight ? "; tight" : "",
                 k->waits ? "; " ANSWER_WAITS : "", training);
}

/* Ties, the others, and those that wait for memory: a table each. */
static void print_answer(const struct ranked *of, int64_t n, const struct money_question *money, FILE *to)
{
    int64_t tied = 0, i = 0;
    bool by_room = false;

    for (; tied < n && of[tied].tied; tied++)
        by_room |= of[tied].by_room;
    while (i < n) {
        struct columns *t = columns_new(row_columns, ROW_COLUMNS);
        if (of[i].waits)
            fprintf(to, "with waits for memory, which these times leave out\n");
        else if (i == 0 && tied > 1)
            fprintf(to, "equally fast within the prediction's error%s\n  those closest to the framework's defaults first, deprecated and tight ones last%s\n",
                    by_room ? " (or as the fastest that is not tight)" : "",
                    search_second_is_plain(of, n) ? "; the second is simpler than the first, but tight" : "");
        else if (i == tied && tied > 1)
            fprintf(to, "slower\n");
        do
            add_ranked(t, &of[0], &of[i++], money);
        while (i < n && of[i].waits == of[i - 1].waits && (i != tied || tied < 2));
        columns_print(t, to, page_width(stdout));
    }
}

static void print_lines(const struct search_result *r, const int64_t *lines, int64_t n, bool named, FILE *to)
{
    struct columns *t = columns_new(row_columns, ROW_COLUMNS);

    for (int64_t i = 0; i < n; i++)
        add_found(t, &r->found[lines[i]], named ? strategy_name(r->found[lines[i]].plan.strategy) : "");
    columns_print(t, to, page_width(stdout));
}

/* Plans on the front of memory against time that are worth a line, the fastest SEARCH_FRONT of them; how many there are. */
static int64_t front_of(const struct search_result *r, int64_t out[SEARCH_FRONT])
{
    bool *front = room_new((size_t)r->nfit + 1, sizeof *front);
    int64_t n = 0, last = INT64_MAX;

    search_pareto(r, front);
    for (int64_t i = 0; i < r->nfit; i++)
        if (front[i] && (double)r->found[i].needed < SEARCH_WORTH * (double)last) {
            last = r->found[i].needed;
            if (n < SEARCH_FRONT)
                out[n] = i;
            n++;
        }
    free(front);
    return n;
}

/* How many plans were looked at, and why not the others. */
static void print_counts(const struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;

    fprintf(to, "\n%" PRId64 " plans considered", r->considered);
    if (r->grid > 0 && !r->alone[0] && s->q.options.grid == GRID_BESIDE)
        fprintf(to, ", %" PRId64 " of them with tensor, context%s pipeline%s parallelism", r->grid, s->q.options.model->experts > 0 ? "," : " or",
                s->q.options.model->experts > 0 ? " or expert" : "");
    if (r->cut > 0)
        fprintf(to, ", %" PRId64 " cut by a memory bound", r->cut);
    if (r->cut_by_time > 0)
        fprintf(to, ", %" PRId64 " by a time bound", r->cut_by_time);
    if (r->nrefused > 0)
        fprintf(to, ", %" PRId64 " with offload not tried", r->nrefused);
    fprintf(to, ", %" PRId64 " evaluated, %" PRId64 " fit; %.2f s\n", r->lowered, r->nfit, search_answer_seconds(s));
    if (r->too_long > 0)
        fprintf(to, "%" PRId64 " pipelines and tensor cuts whose steps are long (more than %d passes over blocks) were not looked at: --grid does\n",
                r->too_long, GRID_PASSES);
}

/* What the codes of all plans shown mean. */
static void print_legend(const struct search_answer *s, const int64_t *lines, int64_t n, FILE *to)
{
    const struct plan **of = room_new((size_t)(s->n + n) + 1, sizeof *of);
    bool variants = false;

    for (int64_t i = 0; i < s->n; i++) {
        of[i] = &s->ranked[i].found->plan;
        variants |= s->ranked[i].variants > 0;
    }
    for (int64_t i = 0; i < n; i++)
        of[s->n + i] = &s->r.found[lines[i]].plan;
    if (s->n + n > 0)
        fprintf(to, "\nwhat the labels mean\n");
    plan_words_legend(of, s->n + n, to);
    if (variants)
        fprintf(to, "  and N variants: N more plans, which differ only in buckets, units, prefetch and such.\n");
    if (s->n > 1)
        fprintf(to, "  (+- 1.2): the error of that difference, in %% of the first plan's step.\n");
    if (s->n + n > 0)
        fprintf(to, "  exposed: the share of the step in which compute waits for communication.\n");
    free(of);
}

/* All plans of the answer by their labels. */
static void print_rows(const struct search_asked *a, struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;
    const struct ranked *of = s->ranked;
    int64_t lines[SEARCH_BESTS + SEARCH_FRONT], nbest = search_bests(r, lines), front = front_of(r, lines + nbest);
    int64_t n = nbest + (front < SEARCH_FRONT ? front : SEARCH_FRONT);
    char text[SEARCH_SENTENCE];

    search_learn_waits(&s->r, lines, n);
    if (s->n > 0) {
        fputs("\n", to);
        print_answer(of, s->n, &a->money, to);
        fprintf(to, "\nthe best of each strategy\n");
    }
    print_lines(r, lines, nbest, true, to);
    if (r->nfit > 0)
        fprintf(to, "\nmemory against time: no plan that was evaluated is both smaller and faster than these\n");
    print_lines(r, lines + nbest, n - nbest, false, to);
    if (front > SEARCH_FRONT)
        fprintf(to, "%" PRId64 " more plan%s smaller and slower; --json lists %s\n", front - SEARCH_FRONT,
                front == SEARCH_FRONT + 1 ? " is" : "s are", front == SEARCH_FRONT + 1 ? "it" : "them");
    search_why_words(r, of, s->n, s->tied, text, sizeof text);
    if (r->nfit)
        fprintf(to, "\n%s\n", text);
    print_legend(s, lines, n, to);
    print_counts(s, to);
}

/* ---- by the whole training ---- */

static const struct column bill_columns[] = {
    { "", false, 0 }, { "takes", true, 0 }, { "cost", true, 1 }, { "useful", true, 0 }, { "step", true, 0 }, { "all wait", true, 0 }, { "checkpoint every", true, 1 }, { "plan", false, 0 },
};

static void bill_row(struct columns *t, const struct search_asked *a, const struct search_bill_row *k)
{
    const struct bill *b = &k->bill;
    char words[PLAN_WORDS], sum[64] = "";

    plan_words(&k->found->plan, words, sizeof words);
    if (a->money.price >= 0)
        money_sum(&a->money, b->time.total_s / 3600 * (double)b->e.plan.cluster.world_size * a->money.price, sum, sizeof sum);
    columns_cell(t, "%s", "");
    columns_cell(t, "%s", duration_text(b->time.total_s).s);
    columns_cell(t, "%s", sum);
    columns_cell(t, "%.1f %%", 100 * b->time.useful_s / b->time.total_s);
    columns_cell(t, "%.4g s", b->run.step_s);
    columns_cell(t, "%s", duration_text(b->run.blocked_s).s);
    columns_cell(t, "%s", duration_text((double)b->run.every * b->run.step_s).s);
    columns_cell(t, "%s", words);
}

static void print_by_bill(const struct search_asked *a, const struct search_answer *s, FILE *to)
{
    struct columns *t = columns_new(bill_columns, sizeof bill_columns / sizeof *bill_columns);
    const struct found *first = s->nbill > 0 ? s->bill[0].found : NULL;
    char words[PLAN_WORDS];

    for (int64_t i = 0; i < s->nbill; i++)
        bill_row(t, a, &s->bill[i]);
    if (!first) {
        fputs("\nNo plan would end: between two interruptions too little is done that counts.\n", to);
    } else if (first == s->ranked[0].found) {
        fputs("\nThe recommended plan is also the first to end, checkpoints and interruptions included, or as good as the first:\n", to);
    } else {
        plan_words(&first->plan, words, sizeof words);
        fprintf(to, "\nFirst to end, checkpoints and interruptions included: %s.\n", words);
        fprintf(to, "  Its step is %s than the recommended plan's. -o writes this one.\n",
                percent_slower(first->step_s / s->ranked[0].found->step_s).s);
    }
    columns_print(t, to, page_width(stdout));
    if (search_bill_unsure(&s->r, s->bill, s->nbill))
        fprintf(to, "%" PRId64 " plans were left out because their step is more than %.0f %% slower than the fastest; one of them could end sooner.\n",
                s->r.cut_by_time, 100 * (SEARCH_NEAR - 1));
}

/* ---- the command ---- */

/* How far it is, on a terminal; Ctrl-C ends it. */
static bool go_on(void *of, int64_t done, int64_t total)
{
    struct progress *p = of;

    if (total > 0)
        progress_at(p, done, total);
    return !progress_stopped();
}

static int find(struct search_asked *a, struct search_answer *s)
{
    struct progress p;

    progress_start(&p, 0, "plans looked at");
    a->keeps = true;
    a->go_on = go_on;
    a->go_on_of = &p;
    int rc = search_answer_find(a, s);
    progress_end(&p);
    return rc == EXIT_MISUSE && progress_stopped() ? EXIT_FAILED : rc;         /* before anything was found: no fault of the question */
}

static int say(const struct search_asked *a, struct search_answer *s, bool all)
{
    FILE *page = page_open(stdout);

    if (!page)
        return -1;
    int rc = search_brief(a, s, page, page_width(stdout));
    if (rc == 0 && a->goal == GOAL_BILL)
        print_by_bill(a, s, page);
    if (rc == 0 && all)
        print_rows(a, s, page);
    else if (rc == 0)
        fprintf(page, "\nAll plans, their labels and the reasons: --all.%s\n", s->r.nfit > 0 ? " To keep the plan: -o plan.json." : "");
    page_close(page);
    return rc;
}

static json_t *with_commands(json_t *doc, json_t *commands)
{
    if (commands)
        json_object_set(doc, "validate", commands);
    return doc;
}

int cmd_search(int argc, char **argv)
{
    struct search_asked a = SEARCH_ASKED;
    struct search_answer s;
    const char *output = NULL;
    bool json = false, all = false, validate = false;
    const struct opt opts[] = {
        SEARCH_ASKED_OPTS(a),
        { "all", "print every plan of the answer by its label, and all reasons", .flag = &all },
        { "json", "print one JSON document", .flag = &json },
        { "validate", "with -o: write the five best plans (plan.json, plan-2.json, ...), and print the commands that measure them in their frameworks", .flag = &validate },
        { "output", "write the best plan here", .str = &output, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    int rc = opts_parse("dpxplan search", "The fastest plan that fits, of DDP, ZeRO, FSDP, recompute and offload, and where dialect torch or megatron may run (or nothing\n"
                        "else fits) of tensor, context and pipeline parallelism (keys of \"parallel\").  Exits with 3 when none fits.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (output && output_check(output) < 0)
        return EXIT_FAILED;
    if (validate && !output) {
        fail("search: --validate writes the plans that its commands run: give -o plan.json");
        return EXIT_MISUSE;
    }
    a.brief = !json && !all;
    if ((rc = search_answer_open(&a, &s)) != EXIT_DONE)
        return rc;
    rc = find(&a, &s);
    bool answered = rc == EXIT_DONE || rc == EXIT_NO;
    if (answered && s.r.partial)
        notes_say("stopped before all plans were looked at: the answer is of %" PRId64 " of them", s.r.lowered);
    const struct found *first = s.nbill > 0 ? s.bill[0].found : answered && s.n > 0 ? s.ranked[0].found : NULL;
    if (answered && output && first && convert_write_plan(&first->plan, output) < 0)
        rc = EXIT_FAILED;
    json_t *commands = answered && validate && first ? search_validate(&s, first, output) : NULL;
    if (answered && validate && first && !commands)
        rc = EXIT_FAILED;
    if (answered && json)
        rc = dpxplan_print_json(with_commands(search_answer_json(&a, &s), commands), rc);
    else if (answered && say(&a, &s, all) < 0)
        rc = EXIT_FAILED;
    else if (commands)
        search_validate_print(commands, stdout);
    json_decref(commands);
    if (answered && s.r.partial)
        rc = EXIT_FAILED;
    search_answer_free(&s);
    return rc;
}
