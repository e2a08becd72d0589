/* cmd_search.c -- dpxplan search: which plan is fastest among those that fit, and
 * what would be lost with the next. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/plan/money.h"
#include "sim/plan/search_args.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/advice.h"
#include "sim/search/enumerate.h"
#include "sim/search/lack.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

struct args {
    struct search_args ask;
    const char *output;
    int64_t  top;
    struct money_question money;
    bool     json;
};

/* ---- words ---- */

struct part { char words[80]; double s; };

static int by_size(const void *a, const void *b)
{
    double x = ((const struct part *)a)->s, y = ((const struct part *)b)->s;
    x = x < 0 ? -x : x;
    y = y < 0 ? -y : y;
    return x > y ? -1 : x < y;
}

/* "full/2" */
static void recompute_words(const struct plan *p, char *to, size_t size)
{
    int n = snprintf(to, size, "%s", recompute_name(p->recompute));

    if (p->recompute_interval > 1)
        snprintf(to + n, size - (size_t)n, "/%" PRId64, p->recompute_interval);
}

/* Where the time between two plans goes, largest part first: all that matters to the sum. */
static void difference(const struct found *best, const struct found *other, char *to, size_t size)
{
    struct part parts[NCOLL + 3];
    int n = 0;
    size_t at = 0;

    parts[n] = (struct part){ "compute", other->compute_s - best->compute_s };
    if (other->plan.recompute != best->plan.recompute ||
        other->plan.recompute_interval != best->plan.recompute_interval) {
        char has[20], instead_of[20];
        recompute_words(&other->plan, has, sizeof has);
        recompute_words(&best->plan, instead_of, sizeof instead_of);
        snprintf(parts[n].words, sizeof parts[n].words, "compute (recompute %s instead of %s)", has, instead_of);
    }
    n++;
    parts[n++] = (struct part){ "optimizer", other->optimizer_s - best->optimizer_s };
    parts[n++] = (struct part){ "waiting for the issuing thread", other->idle_s - best->idle_s };
    for (int op = 0; op < NCOLL; op++) {
        snprintf(parts[n].words, sizeof parts[n].words, "exposed %s", coll_name((enum coll_op)op));
        parts[n++].s = other->exposed_by[op] - best->exposed_by[op];
    }
    qsort(parts, (size_t)n, sizeof *parts, by_size);
    to[0] = '\0';
    for (int i = 0; i < 5 && at < size; i++)
        if (fabs(parts[i].s) > 0.02 * (other->step_s - best->step_s))
            at += (size_t)snprintf(to + at, size - at, "%s%+.3g ms %s", at ? ", " : "", 1e3 * parts[i].s, parts[i].words);
}

/* The fastest fitting plan of each cell but the winner's own. */
static int64_t best_of(const struct search_result *r, enum strategy s, enum dialect d)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (r->found[i].plan.strategy == s && r->found[i].plan.dialect == d)
            return i;
    return -1;
}

/* The best of another strategy or dialect than the answer's, among the ranked that wait for memory as it does; -1. */
static int64_t best_other(const struct ranked *of, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (of[i].waits == of[0].waits && (of[i].found->plan.strategy != of[0].found->plan.strategy ||
                                           of[i].found->plan.dialect != of[0].found->plan.dialect))
            return i;
    return -1;
}

static bool waits(const struct found *f)
{
    struct evaluation e;
    struct timing t;
    bool yes = false;

    if (evaluate_allocated(&f->plan, &e) == 0) {
        search_verdict(f, &e);          /* replays the allocator only where the search did not */
        yes = simulate_plan(&f->plan, &e, &t, NULL) == 0 && simulate_waits_for_memory(&e, &t);
        evaluation_free(&e);
    }
    return yes;
}

/* No other strategy or dialect is near: what the first is among all that fit. */
static void alone_sentence(const struct search_result *r, const struct ranked *first, int64_t n_ideas, const char *mine,
                           char *to, size_t size)
{
    const struct found *fastest = &r->found[0];
    bool others_wait = false;
    char words[160];
    int n;

    for (int64_t i = 1; i < n_ideas; i++)
        others_wait |= first[i].waits && !first->waits;

    if (first->found->step_s <= fastest->step_s)
        n = snprintf(to, size, "%s is the fastest of %" PRId64 " plans that fit", mine, r->nfit);
    else if (!first->waits && waits(fastest))
        n = snprintf(to, size, "%s is the fastest that does not wait for memory, of %" PRId64 " plans that fit", mine, r->nfit);
    else {
        knob_label(&fastest->plan, words, sizeof words);
        n = snprintf(to, size, "%s comes first of %" PRId64 " plans that fit: %s is predicted %.1f %% faster, less than the error "
                     "of the prediction", mine, r->nfit, words, 100 * (1 - fastest->step_s / first->found->step_s));
    }
    if (n > 0 && (size_t)n < size)
        snprintf(to + n, size - (size_t)n, "; no other strategy or dialect%s is among the first.",
                 others_wait ? " that does not wait for memory" : "");
}

static void why_sentence(const struct search_result *r, const struct ranked *of, int64_t n, int64_t tied, char *to, size_t size)
{
    int64_t next = best_other(of, n);
    char mine[160], other[160], parts[300];

    to[0] = '\0';
    if (n == 0)
        return;
    knob_label(&of[0].found->plan, mine, sizeof mine);
    if (tied > 1)
        snprintf(to, size, "%s comes first of %" PRId64 " that are a tie: their steps differ by less than the error of the prediction; "
                 "%sit departs least from its framework's defaults (%d option%s).", mine, tied,
                 of[0].tight || ranking_deprecated(&of[0].found->plan) ? "" : "of those neither tight nor deprecated ",
                 of[0].departures, of[0].departures == 1 ? "" : "s");
    else if (next < 0)
        alone_sentence(r, of, n, mine, to, size);
    if (tied > 1 || next < 0)
        return;
    knob_label(&of[next].found->plan, other, sizeof other);
    difference(of[0].found, of[next].found, parts, sizeof parts);
    snprintf(to, size, "%s is %.1f %% faster (+- %.1f) than the best of another strategy or dialect, %s: that one has %s.", mine,
             100 * (of[next].found->step_s / of[0].found->step_s - 1), 100 * of[next].unsure_s / of[0].found->step_s, other, parts);
}

/* ---- what would make the nearest one fit ---- */

static void how_to_fit(const struct search_options *o, const struct found *f, const struct lack *l, char *to, size_t size)
{
    char change[200], more[64], enough[160];

    lack_more_words(l, more, sizeof more);
    if (advice_accepted(&f->plan, o->accept, o->accept_what, change, sizeof change)) {
        snprintf(to, size, "%s, or %s", change, more);
        return;
    }
    lack_more_gpus(&f->plan, enough, sizeof enough);
    snprintf(to, size, "no change of one option is enough; %s, or %s", enough, more);
}

/* What the nearest that does not fit lacks; false with the reason reported, or where it fits after all. */
static bool nearest_lacks(const struct found *f, struct lack *l)
{
    struct evaluation e;
    bool lacks;

    if (evaluate(&f->plan, &e) < 0)
        return false;
    lacks = lack_of(&f->plan, &e, l);
    evaluation_free(&e);
    return lacks;
}

/* ---- what data elsewhere costs ---- */

/* Of a plan that keeps data elsewhere: its step, and that of the same plan in device memory, and why not that one. */
struct elsewhere { double step_s, in_place_s; int64_t in_place_needed; char why[300]; };

static int cost_elsewhere(const struct found *f, struct elsewhere *out)
{
    struct plan in_place = enumerate_in_place(&f->plan);
    struct evaluation e;
    struct timing t;
    int rc;

    struct lack l;

    if (evaluate(&in_place, &e) < 0)
        return -1;
    rc = simulate_plan(&in_place, &e, &t, NULL);
    *out = (struct elsewhere){ f->step_s, t.line.step_s, e.m.needed, "" };
    if (lack_of(&in_place, &e, &l)) {
        memcpy(out->why, ", but ", sizeof ", but ");
        lack_words(&l, out->why + strlen(out->why), sizeof out->why - strlen(out->why));
    } else if (rc == 0 && simulate_waits_for_memory(&e, &t))
        snprintf(out->why, sizeof out->why, ", and what it waits for memory (%s, tight)", size_text(e.m.needed).s);
    evaluation_free(&e);
    return rc;
}

/* The fastest plan that keeps all in device memory; NULL. */
static const struct found *best_in_place(const struct search_result *r)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (!r->found[i].elsewhere)
            return &r->found[i];
    return NULL;
}

/* Whether plans that keep data elsewhere are needed, and what the first of the answer costs for it. */
static void elsewhere_sentence(const struct search_result *r, const struct found *f, char *to, size_t size)
{
    static const char *const what[NAWAY] = { "copies to host memory", "copies from it", "the host's threads", "reading files",
                                             "writing files" };
    const struct found *other = best_in_place(r);
    struct elsewhere c;
    size_t at = 0;

    to[0] = '\0';
    if (!f || !f->elsewhere || cost_elsewhere(f, &c) < 0)
        return;
    if (other && other->step_s <= f->step_s)
        at += (size_t)snprintf(to, size, waits(other) ?
                               "Without offload the fastest takes %.4g s and what it waits for memory, which is not in it. " :
                               "Without offload the fastest takes %.4g s, a tie. ", other->step_s);
    else if (other)
        at += (size_t)snprintf(to, size, "Offload wins: without it the fastest takes %.4g s. ", other->step_s);
    else
        at += (size_t)snprintf(to, size, "Nothing fits without offload. ");
    if (at < size)
        at += (size_t)snprintf(to + at, size - at, "It costs %.3g s a step: the same plan in device memory would take %.4g s%s",
                               c.step_s - c.in_place_s, c.in_place_s, c.why);
    for (int i = 0, n = 0; i < NAWAY && at < size; i++)
        if (f->away_s[i] > 0)
            at += (size_t)snprintf(to + at, size - at, "%s%.3g s %s", n++ ? ", " : "; ", f->away_s[i], what[i]);
    if (at < size)
        snprintf(to + at, size - at, ".");
}

static json_t *elsewhere_json(const struct search_result *r, const struct found *f)
{
    char text[720];
    struct elsewhere c;
    json_t *j = json_pack("{s:I, s:o, s:n, s:s}", "considered", (json_int_t)r->elsewhere, "refused",
                          r->refused[0] ? json_string(r->refused) : json_null(), "cost", "why", "");

    elsewhere_sentence(r, f, text, sizeof text);
    json_object_set_new(j, "why", json_string(text));
    if (f && f->elsewhere && cost_elsewhere(f, &c) == 0)
        json_object_set_new(j, "cost", json_pack("{s:f, s:f, s:I}", "step_s", c.step_s, "in_place_step_s", c.in_place_s,
                                                 "in_place_needed_bytes", (json_int_t)c.in_place_needed));
    return j;
}

/* ---- output ---- */

static void print_found(const struct search_result *r, int64_t i, const char *label)
{
    const struct found *f = &r->found[i];
    char words[160];

    knob_label(&f->plan, words, sizeof words);
    printf("%-10s %9.4g s %11s  %5.1f %% exposed  %s%s%s\n", label, f->step_s, size_text(f->needed).s,
           100 * f->exposed_s / f->step_s, words, f->tight ? ", tight" : "",
           waits(f) ? ", waits for memory (not in its time)" : "");
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
    printf("%s%s%s\n", k->tight ? "; tight" : "", k->waits ? "; waits for memory (not in its time)" : "", training);
}

static void print_answer(const struct ranked *of, int64_t n, const struct money_question *money)
{
    int64_t tied = 0;

    while (tied < n && of[tied].tied)
        tied++;
    if (tied > 1)
        printf("ties with the fastest, within the error of the prediction: tight ones behind, then deprecated ones, those nearest to their framework's defaults ahead\n");
    printf("%11s %20s  %-18s %11s\n", "step", "90 % interval", "from the first", "memory");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && of[i].waits && !of[i - 1].waits)
            printf("waiting for memory\n");
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
    char label[160], what[300], text[720];
    struct lack l;

    if (!nearest_lacks(f, &l))
        return;
    knob_label(&f->plan, label, sizeof label);
    lack_words(&l, what, sizeof what);
    how_to_fit(o, f, &l, text, sizeof text);
    printf("\nthe nearest that does not fit: %s %s: %s\n", label, what, text);
}

static void print_result(const struct search_options *o, const struct search_result *r, const struct ranked *of, int64_t n, int64_t tied,
                         const struct money_question *money)
{
    char text[720];
    bool *front = calloc((size_t)r->nfit + 1, sizeof *front);

    if (!front)
        abort();
    printf("%" PRId64 " plans considered", r->considered);
    if (r->cut > 0)
        printf(", %" PRId64 " cut by a memory bound", r->cut);
    printf(", %" PRId64 " different, %" PRId64 " fit; %.2f s\n\n", r->n, r->nfit, r->seconds);
    if (n > 0) {
        print_answer(of, n, money);
        printf("\nthe best of each strategy\n");
    }
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            int64_t i = best_of(r, (enum strategy)s, (enum dialect)d);
            if (i >= 0)
                print_found(r, i, strategy_name((enum strategy)s));
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
    why_sentence(r, of, n, tied, text, sizeof text);
    printf("\n%s\n", r->nfit ? text : "nothing fits");
    elsewhere_sentence(r, n > 0 ? of[0].found : NULL, text, sizeof text);
    if (text[0])
        puts(text);
    if (r->nfit == 0 && r->nrefused == r->elsewhere && r->nrefused > 0)
        printf("offload was not looked at: %s\n", r->refused);
    else if (r->nfit == 0 && r->nrefused > 0)
        printf("%" PRId64 " of %" PRId64 " plans with offload were not looked at: %s\n", r->nrefused, r->elsewhere, r->refused);
    free(front);
}

/* One element of `plans`: the full evaluation and timing. */
static json_t *full_json(const struct plan *p, const struct money_question *money)
{
    struct evaluation e;
    struct timing t;
    json_t *j = NULL;

    if (evaluate(p, &e) < 0)
        return NULL;
    j = evaluation_json(p, &e);
    if (e.m.fits && simulate_plan(p, &e, &t, NULL) == 0) {
        simulate_timing_into(j, p, &e, &t);
        if (money->tokens)
            json_object_set_new(j, "training", money_json(money, p, &t));
    } else
        json_object_set_new(json_object_get(j, "memory"), "peak_bytes", json_integer(e.m.needed));
    evaluation_free(&e);
    return j;
}

static json_t *brief_json(const struct found *f)
{
    char words[160];

    knob_label(&f->plan, words, sizeof words);
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:I, s:o}", "label", words, "what", words, "strategy", strategy_name(f->plan.strategy),
                     "dialect", dialect_name(f->plan.dialect), "step_s", f->step_s, "needed_bytes",
                     (json_int_t)f->needed, "plan", plan_to_json(&f->plan));
}

/* The same, and what the ranking says of it. */
static json_t *ranked_json(const struct ranked *k, const struct money_question *money)
{
    json_t *j = full_json(&k->found->plan, money);
    const char *old = ranking_deprecated(&k->found->plan);

    if (!j)
        return NULL;
    json_object_set_new(j, "tie", json_boolean(k->tied));
    json_object_set_new(j, "unsure_s", json_real(k->unsure_s));
    json_object_set_new(j, "departures", json_integer(k->departures));
    json_object_set_new(j, "variants", json_integer(k->variants));
    json_object_set_new(j, "deprecated", old ? json_string(old) : json_null());
    return j;
}

static json_t *result_json(const struct search_options *o, const struct search_result *r, const struct ranked *of, int64_t n,
                           int64_t tied, const struct money_question *money)
{
    json_t *plans = json_array(), *runners = json_array(), *pareto = json_array(), *nearest = json_null();
    bool *front = calloc((size_t)r->nfit + 1, sizeof *front);
    char text[720];

    if (!front)
        abort();
    struct money_question later = *money;       /* a deadline is asked of the first only: each answer is many plans */
    later.days = -1;
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(plans, ranked_json(&of[i], i ? &later : money));
    if (r->nfit == 0 && r->n > 0)               /* the answer is no; show the nearest */
        json_array_append_new(plans, full_json(&r->found[0].plan, money));
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            int64_t i = best_of(r, (enum strategy)s, (enum dialect)d);
            if (i > 0)
                json_array_append_new(runners, brief_json(&r->found[i]));
        }
    search_pareto(r, front);
    for (int64_t i = 0; i < r->nfit; i++)
        if (front[i])
            json_array_append_new(pareto, brief_json(&r->found[i]));
    struct lack l;
    if (r->nfit < r->n && nearest_lacks(&r->found[r->nfit], &l)) {
        nearest = brief_json(&r->found[r->nfit]);
        lack_words(&l, text, sizeof text);
        json_object_set_new(nearest, "lacks", json_string(space_name(l.space)));
        json_object_set_new(nearest, "why_not", json_string(text));
        json_object_set_new(nearest, "over_bytes", json_integer(l.needed - l.available));
        how_to_fit(o, &r->found[r->nfit], &l, text, sizeof text);
        json_object_set_new(nearest, "to_fit", json_string(text));
        json_object_set_new(nearest, "step_s", json_null());
    }
    why_sentence(r, of, n, tied, text, sizeof text);
    free(front);
    return json_pack("{s:i, s:o, s:o, s:I, s:{s:I}, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:s, s:o}", "dpx", 1, "model",
                     evaluation_model_json(o->model), "cluster", evaluation_cluster_json(o->cluster), "searched",
                     (json_int_t)r->considered, "cut", "memory", (json_int_t)r->cut, "evaluated", (json_int_t)r->lowered, "distinct", (json_int_t)r->n, "fitting", (json_int_t)r->nfit,
                     "search_s", r->seconds, "plans", plans, "runners_up", runners, "pareto", pareto,
                     "nearest_that_does_not_fit", nearest, "why", text, "offload",
                     elsewhere_json(r, n > 0 ? of[0].found : NULL));
}

/* ---- the command ---- */

static int run(const struct args *a, const struct question *q)
{
    struct search_result r;
    struct ranked *ideas;
    int64_t n, tied;
    int rc;

    if (!a->json)
        search_question_print(q, stdout);
    if (search(&q->options, &r) < 0)
        return EXIT_MISUSE;
    int64_t most = a->top < r.nfit ? a->top : r.nfit;
    ideas = room_new((size_t)most, sizeof *ideas);
    n = ranking(&r, ideas, most, &tied);
    rc = n < 0 ? EXIT_FAILED : r.nfit > 0 ? EXIT_DONE : EXIT_NO;
    if (a->output && n > 0 && convert_write_plan(&ideas[0].found->plan, a->output) < 0)
        rc = EXIT_FAILED;
    if (a->json && n >= 0)
        rc = dpxplan_print_json(result_json(&q->options, &r, ideas, n, tied, &a->money), rc);
    else if (n >= 0) {
        print_result(&q->options, &r, ideas, n, tied, &a->money);
        if (n > 0 && print_training(&a->money, &ideas[0].found->plan) < 0)
            rc = EXIT_FAILED;
    }
    free(ideas);
    search_free(&r);
    return rc;
}

int cmd_search(int argc, char **argv)
{
    struct args a = { .ask = SEARCH_ARGS, .top = 10, .money = MONEY_NONE };
    const struct opt opts[] = {
        SEARCH_OPTS(a.ask, true),
        MONEY_OPTS(a.money),
        { "top", "ideas to show", .i = &a.top, .min = 1 },
        { "json", "print one JSON document", .flag = &a.json },
        { "output", "write the best plan here", .str = &a.output, .letter = 'o', .value = "FILE" },
        { 0 }
    };
    struct question q;
    int rc = opts_parse("dpxplan search", "The fastest plan that fits.  Exits with 3 when none does.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (money_check(&a.money) < 0)
        return EXIT_MISUSE;
    if ((rc = search_args_load(&a.ask, &q)) != EXIT_DONE)
        return rc;
    rc = run(&a, &q);
    search_question_free(&q);
    return rc;
}
