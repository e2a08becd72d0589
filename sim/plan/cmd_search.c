/* cmd_search.c -- dpxplan search: which plan is fastest among those that fit, and
 * what would be lost with the next. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/opts.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/plan/progress.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/search_words.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/lack.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* ---- output ---- */

static void print_found(const struct search_result *r, int64_t i, const char *label)
{
    const struct found *f = &r->found[i];
    char words[160];

    knob_label(&f->plan, words, sizeof words);
    printf("%-10s %9.4g s %11s  %5.1f %% exposed  %s%s%s\n", label, f->step_s, size_text(f->needed).s,
           100 * f->exposed_s / f->step_s, words, f->tight ? ", tight" : "",
           search_waits(f) ? ", allocator stalls not included" : "");
}

/* A line of the answer: the difference from the first, and how sure it is. */
static void print_ranked(const struct ranked *first, const struct ranked *k, const struct money_question *money)
{
    const struct found *f = k->found;
    const char *old = ranking_deprecated(&f->plan);
    char words[160], interval[48], slower[48] = "", training[96];

    knob_label(&f->plan, words, sizeof words);
    snprintf(interval, sizeof interval, "%.4g to %.4g", k->low_s, k->high_s);
    if (k != first)
        snprintf(slower, sizeof slower, "%+.1f %% (+- %.1f)", 100 * (f->step_s / first->found->step_s - 1),
                 100 * k->unsure_s / first->found->step_s);
    printf("%9.4g s %20s  %-18s %11s  %5.1f %% exposed  %s", f->step_s, interval, slower, size_text(f->needed).s,
           100 * f->exposed_s / f->step_s, words);
    if (k->variants > 0)
        printf(" and %" PRId64 " variant%s", k->variants, k->variants == 1 ? "" : "s");
    if (old)
        printf("; %s", old);
    money_short(money, &f->plan, f->step_s, training, sizeof training);
    printf("%s%s%s\n", k->tight ? "; tight" : "", k->waits ? "; allocator stalls not included" : "", training);
}

static void print_answer(const struct ranked *of, int64_t n, const struct money_question *money)
{
    int64_t tied = 0;

    while (tied < n && of[tied].tied)
        tied++;
    if (tied > 1)
        printf("tied with the fastest, within the prediction's error: closest to the framework's defaults first, deprecated and tight plans last\n");
    printf("%11s %20s  %-18s %11s\n", "step", "90 % interval", "from the first", "memory");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && of[i].waits && !of[i - 1].waits)
            printf("with allocator stalls, which these times do not include\n");
        else if (i == tied && tied > 1)
            printf("slower\n");
        print_ranked(&of[0], &of[i], money);
    }
    printf("times are %s\n", basis_name(of[0].basis));
    if (gpu_lacks(&of[0].found->plan.cluster.gpu, of[0].found->plan.precision))
        puts(gpu_lacks(&of[0].found->plan.cluster.gpu, of[0].found->plan.precision));
}

/* The whole training by the first plan. */
static int print_training(const struct money_question *money, const struct plan *p)
{
    struct evaluation e;
    struct timing t;
    int rc;

    if (!money->tokens)
        return 0;
    if (evaluate(p, &e) < 0)
        return -1;
    rc = simulate_plan(p, &e, &t, NULL) < 0 ? -1 : money_print(money, p, &t, stdout);
    evaluation_free(&e);
    return rc;
}

static void print_nearest(const struct search_options *o, const struct found *f)
{
    char label[160], what[300], text[SEARCH_SENTENCE];
    struct lack l;

    if (!search_nearest_lacks(f, &l))
        return;
    knob_label(&f->plan, label, sizeof label);
    lack_words(&l, what, sizeof what);
    search_to_fit_words(o, f, &l, text, sizeof text);
    printf("\nthe closest plan that does not fit: %s %s: %s\n", label, what, text);
}

static void print_result(const struct search_asked *a, const struct search_answer *s)
{
    const struct search_options *o = &s->q.options;
    const struct search_result *r = &s->r;
    const struct ranked *of = s->ranked;
    const int64_t n = s->n;
    char text[SEARCH_SENTENCE];
    bool *front = room_new((size_t)r->nfit + 1, sizeof *front);

    if (r->alone[0])
        printf("data parallelism alone: %s; so tensor, context and pipeline parallelism are searched as well\n", r->alone);
    printf("%" PRId64 " plans considered", r->considered);
    if (r->cut > 0)
        printf(", %" PRId64 " cut by a memory bound", r->cut);
    if (r->cut_by_time > 0)
        printf(", %" PRId64 " by a time bound", r->cut_by_time);
    printf(", %" PRId64 " evaluated, %" PRId64 " fit; %.2f s\n\n", r->lowered, r->nfit, r->seconds);
    if (n > 0) {
        print_answer(of, n, &a->money);
        printf("\nthe best of each strategy\n");
    }
    for (int k = 0; k < NSTRATEGY; k++)
        for (int d = 0; d < NDIALECT; d++) {
            int64_t i = search_best_of(r, (enum strategy)k, (enum dialect)d);
            if (i >= 0)
                print_found(r, i, strategy_name((enum strategy)k));
        }
    search_pareto(r, front);
    if (r->nfit > 0)
        printf("\nmemory against time: no plan is both smaller and faster than these\n");
    for (int64_t i = 0, shown = 0, last = INT64_MAX; i < r->nfit && shown < SEARCH_FRONT; i++)
        if (front[i] && (double)r->found[i].needed < SEARCH_WORTH * (double)last) {
            print_found(r, i, "");
            last = r->found[i].needed;
            shown++;
        }
    if (r->nfit < r->n)
        print_nearest(o, &r->found[r->nfit]);
    search_why_words(r, of, n, s->tied, text, sizeof text);
    printf("\n%s\n", r->nfit ? text : "nothing fits");
    search_elsewhere_words(r, n > 0 ? of[0].found : NULL, text, sizeof text);
    if (text[0])
        puts(text);
    if (r->nfit == 0 && r->nrefused == r->elsewhere && r->nrefused > 0)
        printf("offload was not tried: %s\n", r->refused);
    else if (r->nfit == 0 && r->nrefused > 0)
        printf("%" PRId64 " of %" PRId64 " plans with offload were not tried: %s\n", r->nrefused, r->elsewhere, r->refused);
    free(front);
}

/* ---- the command ---- */

/* How far it is, on a terminal; Ctrl-C ends it. */
static bool go_on(void *of, int64_t done, int64_t total)
{
    struct progress *p = of;

    p->of = total;
    if (p->terminal)
        progress_at(p, done);
    return !progress_stopped();
}

static int find(struct search_asked *a, struct search_answer *s)
{
    struct progress p;

    progress_start(&p, 0, "plans");
    a->go_on = go_on;
    a->go_on_of = &p;
    int rc = search_answer_find(a, s);
    progress_end(&p);
    return progress_stopped() ? EXIT_FAILED : rc;
}

int cmd_search(int argc, char **argv)
{
    struct search_asked a = SEARCH_ASKED;
    struct search_answer s;
    const char *output = NULL;
    bool json = false;
    const struct opt opts[] = {
        SEARCH_ASKED_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { "output", "write the best plan here", .str = &output, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    int rc = opts_parse("dpxplan search", "The fastest plan that fits, of DDP, ZeRO, FSDP, recompute and offload.  Tensor, context and pipeline\n"
                        "parallelism (keys of \"parallel\") are searched with --grid, or where nothing else fits.  Exits with 3 when none fits.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = search_answer_open(&a, &s)) != EXIT_DONE)
        return rc;
    if (!json)
        search_question_print(&s.q, stdout);
    rc = find(&a, &s);
    bool answered = rc == EXIT_DONE || rc == EXIT_NO;
    if (answered && output && s.n > 0 && convert_write_plan(&s.ranked[0].found->plan, output) < 0)
        rc = EXIT_FAILED;
    if (answered && json)
        rc = dpxplan_print_json(search_answer_json(&a, &s), rc);
    else if (answered) {
        print_result(&a, &s);
        if (s.n > 0 && print_training(&a.money, &s.ranked[0].found->plan) < 0)
            rc = EXIT_FAILED;
    }
    search_answer_free(&s);
    return rc;
}
