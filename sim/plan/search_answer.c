/* search_answer.c -- opens the question, searches, and forms the document of the answer. */
#include "sim/plan/search_answer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"
#include "model/arch/sample.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/search_beyond.h"
#include "sim/plan/search_codes.h"
#include "sim/plan/search_words.h"
#include "sim/search/lack.h"
#include "sim/search/search.h"

/* One element of `plans`: the full evaluation and timing.  What does not fit has no time, but the peak that the clock sees, as eval tells it. */
static json_t *full_json(const struct plan *p, const struct money_question *money)
{
    struct evaluation e;
    struct timing t;
    json_t *j = NULL;
    char unsaid[1];

    if (evaluate(p, &e) < 0)
        return NULL;
    j = evaluation_json(p, &e);
    plan_words_into(j, p);
    struct fail_sink before = fail_divert(unsaid, sizeof unsaid);
    bool timed = simulate_plan(p, &e, &t, NULL) == 0;
    fail_restore(before);
    if (timed)
        simulate_timing_into(j, p, &e, &t);
    else                        /* one that does not fit may need what the cluster does not say */
        json_object_set_new(json_object_get(j, "memory"), "peak_bytes", json_integer(e.m.needed));
    if (!e.m.fits)
        json_object_set_new(j, "time", json_null());
    else if (timed && money->tokens)
        json_object_set_new(j, "training", money_json(money, p, &t));
    evaluation_free(&e);
    return j;
}

static json_t *brief_json(const struct found *f, double step_s, int64_t taken)
{
    char label[KNOB_LABEL], words[PLAN_WORDS];

    knob_label(&f->plan, label, sizeof label);
    plan_words(&f->plan, words, sizeof words);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:o, s:o}", "label", label, "what", label, "words", words, "strategy", strategy_name(f->plan.strategy),
                     "dialect", dialect_name(f->plan.dialect), "step_s", step_s, "needed_bytes",
                     (json_int_t)f->needed, "taken_bytes", taken > 0 ? json_integer(taken) : json_null(), "plan", plan_to_json(&f->plan));
}

/* The same, and what the ranking says of it. */
static json_t *ranked_json(const struct ranked *k, const struct money_question *money)
{
    json_t *j = full_json(&k->found->plan, money);
    const char *old = ranking_deprecated(&k->found->plan);

    if (!j)
        return NULL;
    json_object_set_new(j, "tie", json_boolean(k->tied));
    json_object_set_new(j, "tie_with_room_only", json_boolean(k->by_room));
    json_object_set_new(j, "unsure_s", json_real(k->unsure_s));
    json_object_set_new(j, "departures", json_integer(k->departures));
    json_object_set_new(j, "variants", json_integer(k->variants));
    json_object_set_new(j, "deprecated", old ? json_string(old) : json_null());
    return j;
}

static json_t *nearest_json(const struct search_options *o, const struct search_result *r)
{
    char text[SEARCH_SENTENCE];
    struct lack l;

    if (r->nfit == r->n || !search_nearest_lacks(&r->found[r->nfit], &l))
        return json_null();
    json_t *nearest = brief_json(&r->found[r->nfit], 0, r->found[r->nfit].taken);
    lack_words(&l, text, sizeof text);
    json_object_set_new(nearest, "lacks", json_string(space_name(l.space)));
    json_object_set_new(nearest, "why_not", json_string(text));
    json_object_set_new(nearest, "over_bytes", json_integer(l.needed - l.available));
    search_to_fit_words(o, &r->found[r->nfit], &l, knob_label, text, sizeof text);
    json_object_set_new(nearest, "to_fit", json_string(text));
    json_object_set_new(nearest, "step_s", json_null());
    return nearest;
}

/* The first of each strategy and dialect, with a grid and without, but for that of them all. */
static json_t *runners_up_json(const struct search_result *r)
{
    json_t *list = json_array();
    int64_t best[SEARCH_BESTS];
    int n = search_bests(r, best);

    for (int i = 0; i < n; i++)
        if (best[i] > 0)
            json_array_append_new(list, brief_json(&r->found[best[i]], r->found[best[i]].step_s, r->found[best[i]].taken));
    return list;
}

/* ---- the front of memory against time ---- */

/* Of a plan of the front whose allocator the search did not replay: a replay may say that it does not fit, or how long its calls take. */
struct front {
    const struct search_result *r;
    bool    *on, *asked, *gone;         /* of r->found; `gone` does not fit */
    double  *step_s;                    /* where asked */
    int64_t *taken;
    int64_t *at;                        /* of this round */
};
/* So many times those that took the place of what is gone are asked. */
enum { FRONT_ROUNDS = 4 };

static int front_ask(void *of, int64_t i)
{
    struct front *w = of;
    int64_t at = w->at[i];
    const struct found *f = &w->r->found[at];
    struct evaluation e;

    w->asked[at] = true;
    w->step_s[at] = f->step_s;
    w->taken[at] = f->taken;
    if (f->looked_at)
        return 0;
    if (evaluate_allocated(&f->plan, &e) < 0)
        return w->gone[at] = true, 0;
    w->taken[at] = search_verdict(f, &e);
    w->gone[at] = !e.m.fits;
    w->step_s[at] = f->step_s - f->retry_s + simulate_retries_s(&e);
    evaluation_free(&e);
    return 0;
}

/* Is any new one gone? */
static bool front_round(struct front *w)
{
    int64_t n = 0;
    bool gone = false;

    search_pareto_but(w->r, w->gone, w->on);
    for (int64_t i = 0; i < w->r->nfit; i++)
        if (w->on[i] && !w->asked[i])
            w->at[n++] = i;
    parallel_each(n, 0, front_ask, w);
    for (int64_t i = 0; i < n; i++)
        gone |= w->gone[w->at[i]];
    return gone;
}

/* Only what was asked, and is not beaten by one that needs less; by time. */
static json_t *pareto_json(const struct search_result *r)
{
    size_t n = (size_t)r->nfit + 1;
    struct front w = { r, room_new(n, sizeof *w.on), room_new(n, sizeof *w.asked), room_new(n, sizeof *w.gone), room_new(n, sizeof *w.step_s),
                       room_new(n, sizeof *w.taken), room_new(n, sizeof *w.at) };
    json_t *list = json_array();
    double least = INFINITY;

    for (int i = 0; i < FRONT_ROUNDS && front_round(&w); i++)
        ;
    search_pareto_but(r, w.gone, w.on);
    for (int64_t i = r->nfit - 1; i >= 0; i--)
        if (w.on[i] && w.asked[i] && w.step_s[i] < least) {
            least = w.step_s[i];
            json_array_insert_new(list, 0, brief_json(&r->found[i], w.step_s[i], w.taken[i]));
        }
    free(w.on), free(w.asked), free(w.gone), free(w.step_s), free(w.taken), free(w.at);
    return list;
}

static json_t *plans_json(const struct search_asked *a, const struct search_answer *s)
{
    struct money_question later = a->money;     /* a deadline is asked of the first only: each answer is many plans */
    json_t *list = json_array();

    later.days = -1;
    for (int64_t i = 0; i < s->n; i++)
        json_array_append_new(list, ranked_json(&s->ranked[i], i ? &later : &a->money));
    if (s->r.nfit == 0 && s->r.n > 0)           /* the answer is no; show the nearest */
        json_array_append_new(list, full_json(&s->r.found[0].plan, &a->money));
    return list;
}

json_t *search_answer_json(const struct search_asked *a, const struct search_answer *s)
{
    const struct search_options *o = &s->q.options;
    const struct search_result *r = &s->r;
    char text[SEARCH_SENTENCE];

    search_why_words(r, s->ranked, s->n, s->tied, text, sizeof text);
    json_t *doc = json_pack("{s:i, s:o, s:o, s:I, s:{s:I, s:I}, s:I, s:I, s:I, s:I, s:n, s:o, s:o, s:o, s:o, s:s, s:o, s:s?}", "dpx", 1, "model",
                     evaluation_model_json(o->model), "cluster", evaluation_cluster_json(o->cluster), "searched",
                     (json_int_t)r->considered, "cut", "memory", (json_int_t)r->cut, "time", (json_int_t)r->cut_by_time, "evaluated", (json_int_t)r->lowered,
                     "distinct", (json_int_t)r->n, "fitting", (json_int_t)r->nfit,
                     "grid", (json_int_t)r->grid, "search_s", "plans", plans_json(a, s), "runners_up", runners_up_json(r), "pareto",
                     pareto_json(r), "nearest_that_does_not_fit", nearest_json(o, r), "why", text, "offload",
                     search_elsewhere_json(r, s->n > 0 ? s->ranked[0].found : NULL),
                     "data_parallel_alone", r->alone[0] ? r->alone : NULL);

    json_object_set_new(doc, "left_out", search_left_out_json(o));
    json_object_set_new(doc, "not_looked_at", search_beyond_json(&a->ask, o, r));
    struct search_codes *codes = search_codes_find(o, r);
    json_object_set_new(doc, "codes", search_codes_json(codes));
    json_object_set_new(doc, "float8", search_codes_float8_json(codes));
    search_codes_free(codes);
    if (a->goal == GOAL_BILL) {
        json_object_set_new(doc, "by_bill", search_bill_json(s->bill, s->nbill));
        json_object_set_new(doc, "by_bill_unsure", json_boolean(search_bill_unsure(r, s->bill, s->nbill)));
    }
    json_object_set_new(doc, "search_s", json_real(search_answer_seconds(s)));
    return doc;
}

/* ---- the question and the answer ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *const search_goals[] = { "step", "bill", NULL };

static struct bill_asked bill_asked_of(const struct search_asked *a)
{
    struct bill_asked bill = a->bill;

    bill.eval.money = a->money;
    return bill;
}

static int refuse_bill_options(const struct search_asked *a)
{
    const struct bill_asked *b = &a->bill;
    const char *given = b->mtbf ? "mtbf" : b->storage ? "storage" : b->storage_node ? "storage-node" : b->recover ? "recover" : b->warm_up ? "warm-up" : b->async ? "async" : NULL;

    return given ? fail("--%s: is for --goal bill", given) : 0;
}

double search_answer_seconds(const struct search_answer *s) { return now() - s->started; }

int search_answer_open(const struct search_asked *a, struct search_answer *out)
{
    struct bill_asked bill = bill_asked_of(a);

    *out = (struct search_answer){ .started = now() };
    if (money_check(&a->money) < 0 || (a->goal != GOAL_BILL && refuse_bill_options(a) < 0))
        return EXIT_MISUSE;
    int rc = search_args_load(&a->ask, &out->q);
    bool refused = rc == EXIT_DONE && ((a->money.tokens && sample_refuse_tokens(&out->q.model) < 0) ||
                                       (a->goal == GOAL_BILL && search_bill_check(&bill, &out->q.cluster) < 0));
    if (refused)
        search_question_free(&out->q);
    return refused ? EXIT_MISUSE : rc;
}

int search_answer_find(const struct search_asked *a, struct search_answer *s)
{
    search_args_grid(&a->ask, &s->q.options);
    s->q.options.go_on = a->go_on;
    s->q.options.go_on_of = a->go_on_of;
    s->q.options.keeps = a->keeps;
    s->q.options.ideas = a->top;
    s->q.options.no_front = a->brief && a->goal == GOAL_STEP;
    if (search(&s->q.options, &s->r) < 0)
        return EXIT_MISUSE;
    int64_t most = a->top < s->r.nfit ? a->top : s->r.nfit;
    s->ranked = room_new((size_t)most, sizeof *s->ranked);
    s->n = ranking(&s->r, s->ranked, most, &s->tied);
    struct bill_asked bill = bill_asked_of(a);
    if (s->n > 0 && a->goal == GOAL_BILL && search_bill(&bill, &s->r, &s->ranked[0], a->top, &s->bill, &s->nbill) < 0)
        return EXIT_MISUSE;
    return s->n < 0 ? EXIT_FAILED : s->r.nfit > 0 ? EXIT_DONE : EXIT_NO;
}

void search_answer_free(struct search_answer *s)
{
    free(s->ranked);
    free(s->bill);
    search_free(&s->r);
    search_question_free(&s->q);
}
