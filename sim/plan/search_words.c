/* search_words.c -- differences of two plans and what is lacking, put into sentences. */
#include "sim/plan/search_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "base/percent.h"
#include "base/size.h"
#include "base/sort.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_choice.h"
#include "sim/clock/simulate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/plan_words.h"
#include "sim/search/advice.h"
#include "sim/search/enumerate.h"

/* ---- why the first comes first ---- */

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
    sort_stable(parts, (size_t)n, sizeof *parts, by_size);
    to[0] = '\0';
    for (int i = 0; i < 5 && at < size; i++)
        if (fabs(parts[i].s) > 0.02 * (other->step_s - best->step_s))
            at += (size_t)snprintf(to + at, size - at, "%s%+.3g ms %s", at ? ", " : "", 1e3 * parts[i].s, parts[i].words);
}

int search_bests(const struct search_result *r, int64_t best[SEARCH_BESTS])
{
    int n = 0;

    for (int cell = 0; cell < NSTRATEGY * NDIALECT; cell++) {
        bool have[2] = { false, false };
        for (int64_t i = 0; i < r->nfit && !(have[0] && have[1]); i++) {
            const struct plan *p = &r->found[i].plan;
            bool grid = !plan_is_data_parallel(p);
            if ((int)p->strategy * NDIALECT + (int)p->dialect != cell || have[grid])
                continue;
            have[grid] = true;
            best[n++] = i;
        }
    }
    return n;
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

bool search_waits(const struct found *f)
{
    struct evaluation e;
    bool yes = f->waits;

    if (!f->waits_known && evaluate_allocated(&f->plan, &e) == 0) {
        search_verdict(f, &e);          /* replays the allocator only where the search did not */
        simulate_waits(&f->plan, &e, &yes);
        evaluation_free(&e);
    }
    return yes;
}

struct learning { struct search_result *r; const int64_t *of; };

static int learn(void *arg, int64_t i)
{
    const struct learning *l = arg;
    struct found *f = &l->r->found[l->of[i]];

    f->waits = search_waits(f);
    f->waits_known = true;
    return 0;
}

void search_learn_waits(struct search_result *r, const int64_t *of, int64_t n)
{
    parallel_each(n, 0, learn, &(struct learning){ r, of });
}

/* No other strategy or dialect is near: what the first is among all that fit. */
static void alone_sentence(const struct search_result *r, const struct ranked *first, int64_t n_ideas, const char *mine,
                           char *to, size_t size)
{
    const struct found *fastest = &r->found[0];
    bool others_wait = false;
    char words[KNOB_LABEL];
    int n;

    for (int64_t i = 1; i < n_ideas; i++)
        others_wait |= first[i].waits && !first->waits;

    if (first->found->step_s <= fastest->step_s)
        n = snprintf(to, size, "%s is the fastest of %" PRId64 " plans that fit", mine, r->nfit);
    else if (!first->waits && search_waits(fastest))
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

bool search_second_is_plain(const struct ranked *of, int64_t n)
{
    return n > 1 && of[1].tied && of[1].tight && !of[0].tight && of[1].departures < of[0].departures;
}

/* What speaks for a less usual plan: the plainer one beside it is tight, and what is plainer and has room takes longer. */
static void plainer_words(const struct search_result *r, const struct ranked *of, int64_t n, char *to, size_t size)
{
    char label[KNOB_LABEL];
    size_t at;

    if (!search_second_is_plain(of, n))
        return;
    knob_label(&of[1].found->plan, label, sizeof label);
    at = (size_t)snprintf(to, size, "  %s changes %d, but is tight.", label,
                          of[1].departures);
    for (int64_t i = 0; i < r->nfit && at < size; i++) {
        const struct found *f = &r->found[i];
        bool plainer = ranking_departures(&f->plan) < of[0].departures || (plan_is_data_parallel(&f->plan) && !plan_is_data_parallel(&of[0].found->plan));
        if (f->step_s <= of[0].found->step_s || !f->looked_at || f->tight || f->elsewhere || ranking_deprecated(&f->plan) || !plainer || search_waits(f))
            continue;
        knob_label(&f->plan, label, sizeof label);
        snprintf(to + at, size - at, "  %s is plainer and has room, and takes %s more time.", label, percent_share(f->step_s / of[0].found->step_s - 1).s);
        return;
    }
}

void search_why_words(const struct search_result *r, const struct ranked *of, int64_t n, int64_t tied, char *to, size_t size)
{
    int64_t next = best_other(of, n);
    char mine[KNOB_LABEL], other[KNOB_LABEL], parts[300];

    to[0] = '\0';
    if (n == 0)
        return;
    knob_label(&of[0].found->plan, mine, sizeof mine);
    if (tied > 1)
        snprintf(to, size, "%" PRId64 " plans are %s within the prediction's error. %s comes first: %sit changes the fewest settings of its framework "
                 "(%d).", tied, of[0].by_room ? "as fast as the fastest, or as the fastest that is not tight," : "equally fast", mine,
                 of[0].tight || ranking_deprecated(&of[0].found->plan) ? "" : "of those neither tight nor deprecated ", of[0].departures);
    if (tied > 1)
        plainer_words(r, of, n, to + strlen(to), size - strlen(to));
    else if (next < 0)
        alone_sentence(r, of, n, mine, to, size);
    if (tied > 1 || next < 0)
        return;
    knob_label(&of[next].found->plan, other, sizeof other);
    difference(of[0].found, of[next].found, parts, sizeof parts);
    snprintf(to, size, "%s is %s (+- %.1f) than the best of another strategy or dialect, %s (%s).", mine,
             percent_faster(of[next].found->step_s / of[0].found->step_s).s, 100 * of[next].unsure_s / of[0].found->step_s, other, parts);
}

/* ---- what would make the nearest one fit ---- */

void search_to_fit_words(const struct search_options *o, const struct found *f, const struct lack *l,
                         void (*name)(const struct plan *p, char *to, size_t size), char *to, size_t size)
{
    char change[200], more[64], enough[SEARCH_SENTENCE];

    lack_more_words(l, more, sizeof more);
    if (advice_accepted(&f->plan, o->accept, o->accept_what, change, sizeof change)) {
        snprintf(to, size, "%s, or %s", change, more);
        return;
    }
    lack_more_gpus(&f->plan, o, name, enough, sizeof enough);
    snprintf(to, size, "%s, or %s (no single option is enough)", enough, more);
}

bool search_nearest_lacks(const struct found *f, struct lack *l)
{
    struct evaluation e;

    if (evaluate_allocated(&f->plan, &e) < 0)
        return false;
    if (e.m.elsewhere && e.m.spaces.of[SPACE_HOST].used)
        cluster_say_assumed(&f->plan.cluster);
    bool lacks = evaluation_reserve_within(&f->plan, &e) == 0 && lack_of(&f->plan, &e, l);
    if (lacks && l->reserved)           /* only then is it told what would be reserved if there were room */
        lacks = evaluation_reserve(&f->plan, &e, NULL) == 0 && lack_of(&f->plan, &e, l);
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
        snprintf(out->why, sizeof out->why, ", waits for memory left out (%s, tight)", size_text(e.m.needed).s);
    evaluation_free(&e);
    return rc;
}

const struct found *search_best_in_place(const struct search_result *r)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (!r->found[i].elsewhere)
            return &r->found[i];
    return NULL;
}

static void elsewhere_words(const struct search_result *r, const struct found *f, char *to, size_t size)
{
    static const char *const what[NAWAY] = { "copies to host memory", "copies from it", "the host's threads", "reading files",
                                             "writing files" };
    const struct found *other = search_best_in_place(r);
    struct elsewhere c;
    size_t at = 0;

    to[0] = '\0';
    if (!f || !f->elsewhere || cost_elsewhere(f, &c) < 0)
        return;
    if (other && other->step_s <= f->step_s)
        at += (size_t)snprintf(to, size, search_waits(other) ?
                               "Without offload the fastest takes %.4g s, waits for memory left out. " :
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

void search_elsewhere_say(const struct search_result *r, const struct found *f, FILE *to)
{
    static const char *const what[NAWAY] = { "copies to host memory", "copies from it", "the host's threads", "reading files",
                                             "writing files" };
    const struct found *other = search_best_in_place(r);
    struct elsewhere c;
    int n = 0;

    if (!f || !f->elsewhere || cost_elsewhere(f, &c) < 0)
        return;
    if (other)
        fprintf(to, "Without offload the fastest takes %s%s.", answer_seconds(other->step_s).s,
                other->step_s > f->step_s ? "" : search_waits(other) ? ", and waits for memory" : ", a tie");
    fprintf(to, "%sOffload costs %s a step: in device memory this plan would take %s%s.", other ? " " : "", answer_seconds(c.step_s - c.in_place_s).s,
            answer_seconds(c.in_place_s).s, c.why[0] ? ", where it does not fit with room" : "");
    for (int i = 0; i < NAWAY; i++)
        if (f->away_s[i] > 0)
            fprintf(to, "%s%s %s", n++ ? ", " : " Beside compute: ", answer_seconds(f->away_s[i]).s, what[i]);
    fprintf(to, n ? ".\n" : "\n");
}

json_t *search_elsewhere_json(const struct search_result *r, const struct found *f)
{
    char text[SEARCH_SENTENCE];
    struct elsewhere c;
    json_t *j = json_pack("{s:I, s:o, s:n, s:s}", "considered", (json_int_t)r->elsewhere, "refused",
                          r->refused[0] ? json_string(r->refused) : json_null(), "cost", "why", "");

    elsewhere_words(r, f, text, sizeof text);
    json_object_set_new(j, "why", json_string(text));
    if (f && f->elsewhere && cost_elsewhere(f, &c) == 0)
        json_object_set_new(j, "cost", json_pack("{s:f, s:f, s:I}", "step_s", c.step_s, "in_place_step_s", c.in_place_s,
                                                 "in_place_needed_bytes", (json_int_t)c.in_place_needed));
    return j;
}

/* ---- what falls away ---- */

static int left_out(const struct search_options *o, struct left_out out[NSTRATEGY * NDIALECT])
{
    return optimizer_is_chosen(o->optimizer) ? enumerate_left_out(o, out) : 0;
}

char *search_left_out_words(const struct search_options *o)
{
    struct left_out of[NSTRATEGY * NDIALECT];
    int n = left_out(o, of);
    char *text = NULL;
    size_t size = 0;
    FILE *to = n > 0 ? open_memstream(&text, &size) : NULL;

    for (int i = 0; to && i < n; i++) {
        bool said = false;
        for (int k = 0; k < i; k++)
            said |= !strcmp(of[k].why, of[i].why);
        for (int k = i; k < n && !said; k++)
            if (!strcmp(of[k].why, of[i].why))
                fprintf(to, "%s%s", k == i ? "Left out: " : ", ", plan_words_name(of[k].strategy, of[k].dialect));
        if (!said)
            fprintf(to, ": %s\n", of[i].why);
    }
    if (to)
        fclose(to);
    return text;
}

json_t *search_left_out_json(const struct search_options *o)
{
    struct left_out of[NSTRATEGY * NDIALECT];
    json_t *list = json_array();
    int n = left_out(o, of);

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "strategy", strategy_name(of[i].strategy), "dialect",
                                              dialect_name(of[i].dialect), "why", of[i].why));
    return list;
}
