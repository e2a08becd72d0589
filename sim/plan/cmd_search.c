/* cmd_search.c -- dpxplan search: which plan is fastest among those that fit, and
 * what would be lost with the next. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/output.h"
#include "base/percent.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/plan/progress.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/search_beyond.h"
#include "sim/plan/search_codes.h"
#include "sim/plan/search_words.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/grid.h"
#include "sim/search/lack.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* ---- output ---- */

static void print_found(const struct search_result *r, int64_t i, const char *label, FILE *to)
{
    const struct found *f = &r->found[i];
    char words[KNOB_LABEL];

    knob_label(&f->plan, words, sizeof words);
    fprintf(to, "%-10s %9.4g s %11s  %5.1f %% exposed  %s%s%s\n", label, f->step_s, size_text(f->needed).s,
           100 * f->exposed_s / f->step_s, words, f->tight ? ", tight" : "",
           search_waits(f) ? ", allocator stalls not included" : "");
}

/* A line of the answer: the difference from the first, and how sure it is. */
static void print_ranked(const struct ranked *first, const struct ranked *k, const struct money_question *money, FILE *to)
{
    const struct found *f = k->found;
    const char *old = ranking_deprecated(&f->plan);
    char words[KNOB_LABEL], interval[48], slower[48] = "", training[96];

    knob_label(&f->plan, words, sizeof words);
    snprintf(interval, sizeof interval, "%.4g to %.4g", k->low_s, k->high_s);
    if (k != first && f->step_s < 10 * first->found->step_s)
        snprintf(slower, sizeof slower, "%s (+- %.1f)", percent_change(f->step_s / first->found->step_s).s,
                 100 * k->unsure_s / first->found->step_s);
    else if (k != first)
        snprintf(slower, sizeof slower, "%s", percent_change(f->step_s / first->found->step_s).s);
    fprintf(to, "%9.4g s %20s  %-18s %11s  %5.1f %% exposed  %s", f->step_s, interval, slower, size_text(f->needed).s,
           100 * f->exposed_s / f->step_s, words);
    if (k->variants > 0)
        fprintf(to, " and %" PRId64 " variant%s", k->variants, k->variants == 1 ? "" : "s");
    if (old)
        fprintf(to, "; %s", old);
    money_short(money, &f->plan, f->step_s, training, sizeof training);
    fprintf(to, "%s%s%s\n", k->tight ? "; tight" : "", k->waits ? "; allocator stalls not included" : "", training);
}

static void print_answer(const struct ranked *of, int64_t n, const struct money_question *money, FILE *to)
{
    int64_t tied = 0;
    bool by_room = false;

    for (; tied < n && of[tied].tied; tied++)
        by_room |= of[tied].by_room;
    if (tied > 1)
        fprintf(to, "tied with the fastest%s, within the prediction's error: closest to the framework's defaults first, deprecated and tight plans last%s\n",
                by_room ? ", or with the fastest that has room" : "",
                search_second_is_plain(of, n) ? ", but for the second, which is plainer than the first" : "");
    fprintf(to, "%11s %20s  %-18s %11s\n", "step", "90 % interval", "from the first", "memory");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && of[i].waits && !of[i - 1].waits)
            fprintf(to, "with allocator stalls, which these times do not include\n");
        else if (i == tied && tied > 1)
            fprintf(to, "slower\n");
        print_ranked(&of[0], &of[i], money, to);
    }
    fprintf(to, "times are %s\n", basis_name(of[0].basis));
    if (gpu_lacks(&of[0].found->plan.cluster.gpu, of[0].found->plan.precision))
        fprintf(to, "%s\n", gpu_lacks(&of[0].found->plan.cluster.gpu, of[0].found->plan.precision));
}

/* The whole training by the first plan. */
static int print_training(const struct money_question *money, const struct plan *p, FILE *to)
{
    struct evaluation e;
    struct timing t;
    int rc;

    if (!money->tokens)
        return 0;
    if (evaluate(p, &e) < 0)
        return -1;
    rc = simulate_plan(p, &e, &t, NULL) < 0 ? -1 : money_print(money, p, &t, to);
    evaluation_free(&e);
    return rc;
}

static void print_nearest(const struct search_options *o, const struct found *f, FILE *to)
{
    char label[KNOB_LABEL], what[300], text[SEARCH_SENTENCE];
    struct lack l;

    if (!search_nearest_lacks(f, &l))
        return;
    knob_label(&f->plan, label, sizeof label);
    lack_words(&l, what, sizeof what);
    search_to_fit_words(o, f, &l, text, sizeof text);
    fprintf(to, "\nthe closest plan that does not fit: %s %s: %s\n", label, what, text);
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

/* What was asked, and what was looked at, in how many seconds. */
static void print_heading(const struct search_answer *s)
{
    const struct search_result *r = &s->r;

    search_question_print(&s->q, stdout);
    if (r->alone[0])
        printf("data parallelism alone: %s; so tensor, context and pipeline parallelism are searched as well\n", r->alone);
    printf("%" PRId64 " plans considered", r->considered);
    if (r->grid > 0 && !r->alone[0] && s->q.options.grid == GRID_BESIDE)
        printf(", %" PRId64 " of them with tensor, context%s pipeline%s parallelism", r->grid, s->q.options.model->experts > 0 ? "," : " or",
               s->q.options.model->experts > 0 ? " or expert" : "");
    if (r->cut > 0)
        printf(", %" PRId64 " cut by a memory bound", r->cut);
    if (r->cut_by_time > 0)
        printf(", %" PRId64 " by a time bound", r->cut_by_time);
    if (r->nrefused > 0)
        printf(", %" PRId64 " with offload not tried", r->nrefused);
    printf(", %" PRId64 " evaluated, %" PRId64 " fit; %.2f s\n", r->lowered, r->nfit, search_answer_seconds(s));
    if (r->too_long > 0)
        printf("%" PRId64 " pipelines and tensor cuts whose steps are long (more than %d passes over blocks) were not looked at: --grid does\n", r->too_long, GRID_PASSES);
    char *left_out = search_left_out_words(&s->q.options);
    if (left_out)
        fputs(left_out, stdout);
    free(left_out);
    puts("");
}

static void print_offload(const struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;
    char text[SEARCH_SENTENCE];

    search_elsewhere_words(r, s->n > 0 ? s->ranked[0].found : NULL, text, sizeof text);
    if (text[0])
        fprintf(to, "%s\n", text);
    if (r->nrefused > 0 && r->nrefused == r->elsewhere)
        fprintf(to, "offload was not tried: %s\n", r->refused);
    else if (r->nrefused > 0)
        fprintf(to, "%" PRId64 " of %" PRId64 " plans with offload were not tried: %s\n", r->nrefused, r->elsewhere, r->refused);
}

static void print_result(const struct search_asked *a, struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;
    const struct ranked *of = s->ranked;
    int64_t lines[SEARCH_BESTS + SEARCH_FRONT], nbest = search_bests(r, lines), front = front_of(r, lines + nbest);
    int64_t n = nbest + (front < SEARCH_FRONT ? front : SEARCH_FRONT);
    char text[SEARCH_SENTENCE];

    search_learn_waits(&s->r, lines, n);
    if (s->n > 0) {
        print_answer(of, s->n, &a->money, to);
        fprintf(to, "\nthe best of each strategy\n");
    }
    for (int64_t i = 0; i < nbest; i++)
        print_found(r, lines[i], strategy_name(r->found[lines[i]].plan.strategy), to);
    if (r->nfit > 0)
        fprintf(to, "\nmemory against time: no plan that was evaluated is both smaller and faster than these\n");
    for (int64_t i = nbest; i < n; i++)
        print_found(r, lines[i], "", to);
    if (front > SEARCH_FRONT)
        fprintf(to, "%" PRId64 " more plan%s smaller and slower; --json lists %s\n", front - SEARCH_FRONT,
                front == SEARCH_FRONT + 1 ? " is" : "s are", front == SEARCH_FRONT + 1 ? "it" : "them");
    if (r->nfit < r->n)
        print_nearest(&s->q.options, &r->found[r->nfit], to);
    search_why_words(r, of, s->n, s->tied, text, sizeof text);
    fprintf(to, "\n%s\n", r->nfit ? text : "nothing fits");
    print_offload(s, to);
    search_codes_words(&s->q.options, r, text, sizeof text);
    if (text[0])
        fprintf(to, "%s\n", text);
}

/* ---- the command ---- */

/* How far it is, on a terminal; Ctrl-C ends it. */
static bool go_on(void *of, int64_t done, int64_t total)
{
    struct progress *p = of;

    p->of = total > 0 ? total : p->of;
    if (p->terminal && total > 0)
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

static void print_beyond(const struct search_asked *a, const struct search_answer *s, FILE *to)
{
    char text[SEARCH_BEYOND];

    search_beyond_words(&a->ask, &s->q.options, &s->r, text);
    if (text[0])
        fprintf(to, "%s\n", text);
}

/* The heading says the seconds of all that follows it, so it is printed when that is known. */
static int say(const struct search_asked *a, struct search_answer *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        return fail("no memory for the answer");
    print_result(a, s, to);
    int rc = s->n > 0 ? print_training(&a->money, &s->ranked[0].found->plan, to) : 0;
    print_beyond(a, s, to);
    fclose(to);
    print_heading(s);
    fputs(text, stdout);
    free(text);
    return rc;
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
    int rc = opts_parse("dpxplan search", "The fastest plan that fits, of DDP, ZeRO, FSDP, recompute and offload, and where dialect torch or megatron may run (or nothing\n"
                        "else fits) of tensor, context and pipeline parallelism (keys of \"parallel\").  Exits with 3 when none fits.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (output && output_check(output) < 0)
        return EXIT_FAILED;
    if ((rc = search_answer_open(&a, &s)) != EXIT_DONE)
        return rc;
    rc = find(&a, &s);
    bool answered = rc == EXIT_DONE || rc == EXIT_NO;
    if (answered && output && s.n > 0 && convert_write_plan(&s.ranked[0].found->plan, output) < 0)
        rc = EXIT_FAILED;
    if (answered && json)
        rc = dpxplan_print_json(search_answer_json(&a, &s), rc);
    else if (answered && say(&a, &s) < 0)
        rc = EXIT_FAILED;
    search_answer_free(&s);
    return rc;
}
