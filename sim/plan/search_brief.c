/* search_brief.c -- the answer of a search in sentences and one table.
 *
 * Alternatives are few: the fastest, the one that needs least memory (and not twice the time), the one that changes fewest settings, the
 * one whose time is most certain, and the best of each other framework. */
#include "sim/plan/search_brief.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/columns.h"
#include "base/notes.h"
#include "base/page.h"
#include "base/parallel.h"
#include "base/percent.h"
#include "base/room.h"
#include "base/size.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/search_beyond.h"
#include "sim/plan/search_codes.h"
#include "sim/plan/search_words.h"
#include "sim/price/flops.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/lack.h"

/* ---- the alternatives ---- */

/* How much smaller, and how much more certain, an alternative is to be worth a row; how many times the step it may take. */
#define SMALLER .95
#define SURER .8
#define SLOWEST 2

enum { MOST = 10 };

enum learn { OF_ALTERNATIVES, OF_FIRST, OF_NEAREST, OF_CODES, PARTS };

struct alternative { const struct found *f; char better[96]; };

/* Bytes of a GPU that decide (evaluation_taken): the search replays the allocator for few, this for those that are shown, each once.  1: the
 * allocator refuses it. */
static int taken(struct search_answer *s, const struct found *f, int64_t *bytes)
{
    struct found *own = &s->r.found[f - s->r.found];
    struct evaluation e;
    bool fits = true;

    if (!f->taken || (f->elsewhere && !f->told)) {      /* the evaluation says what is assumed of the host's memory, too */
        if (evaluate_within(&f->plan, &e) < 0)
            return -1;
        own->taken = evaluation_taken(&e.m, &e.reserved);
        own->told = true;
        fits = e.m.fits;
        evaluation_free(&e);
    }
    *bytes = f->taken;
    return !fits;
}

struct alternatives { int n; struct alternative of[MOST]; };

/* A plan twice is one row with both words. */
static void add(struct alternatives *all, const struct ranked *first, const struct found *f, const char *better)
{
    if (!f || f == first->found)
        return;
    for (int i = 0; i < all->n; i++)
        if (all->of[i].f == f) {
            size_t at = strlen(all->of[i].better);
            snprintf(all->of[i].better + at, sizeof all->of[i].better - at, ", %s", better);
            return;
        }
    if (all->n == MOST)
        return;
    all->of[all->n].f = f;
    snprintf(all->of[all->n++].better, sizeof all->of[0].better, "%s", better);
}

/* NULL where only variants of the first, or plans that their framework has deprecated, are faster. */
static const struct found *fastest(const struct search_answer *s)
{
    const struct found *first = s->ranked[0].found;

    for (int64_t i = 0; i < s->r.nfit && s->r.found[i].step_s < first->step_s; i++)
        if (!ranking_same_idea(&s->r.found[i].plan, &first->plan) && !ranking_deprecated(&s->r.found[i].plan))
            return &s->r.found[i];
    return NULL;
}

/* By what is allocated, of plans in device memory alone where slow ones with data elsewhere were not looked at. */
static const struct found *least_allocated(const struct search_answer *s, const bool *refused)
{
    const struct found *first = s->ranked[0].found, *best = NULL;

    for (int64_t i = 0; i < s->r.nfit; i++) {
        const struct found *f = &s->r.found[i];
        if (refused[i] || (s->r.elsewhere_left_out && f->elsewhere))
            continue;
        if (!ranking_deprecated(&f->plan) && f->step_s <= SLOWEST * first->step_s && (double)f->needed < SMALLER * (double)first->needed && (!best || f->needed < best->needed))
            best = f;
    }
    return best;
}

/* The first of these that PyTorch's allocator serves; nothing where it does not reserve less, too. */
static const struct found *smallest(struct search_answer *s)
{
    bool *refused = room_new((size_t)s->r.nfit + 1, sizeof *refused);
    const struct found *best;
    int64_t less = 0, than;
    int rc = 0;

    while ((best = least_allocated(s, refused)) && (rc = taken(s, best, &less)) > 0)
        refused[best - s->r.found] = true;
    free(refused);
    return best && rc == 0 && taken(s, s->ranked[0].found, &than) == 0 && (double)less < SMALLER * (double)than ? best : NULL;
}

static const struct found *simplest(const struct search_answer *s)
{
    const struct ranked *best = &s->ranked[0];

    for (int64_t i = 1; i < s->n; i++)
        if (s->ranked[i].departures < best->departures && !ranking_deprecated(&s->ranked[i].found->plan))
            best = &s->ranked[i];
    return best->found;
}

static double doubt(const struct ranked *k) { return (k->high_s - k->low_s) / k->found->step_s; }

static const struct found *surest(const struct search_answer *s)
{
    const struct ranked *best = &s->ranked[0];

    for (int64_t i = 1; i < s->n; i++)
        if (doubt(&s->ranked[i]) < doubt(best) && !s->ranked[i].waits)
            best = &s->ranked[i];
    return doubt(best) < SURER * doubt(&s->ranked[0]) ? best->found : NULL;
}

static const char *framework(enum dialect d)
{
    return d == DIALECT_DEEPSPEED ? "DeepSpeed" : d == DIALECT_MEGATRON ? "Megatron-LM" : d == DIALECT_PAPER ? NULL : "PyTorch";
}

/* Of the answer's plans the first of a framework, else the fastest that was found. */
static const struct found *best_of(const struct search_answer *s, const char *name)
{
    for (int64_t i = 0; i < s->n; i++)
        if (framework(s->ranked[i].found->plan.dialect) == name && !s->ranked[i].waits && !ranking_deprecated(&s->ranked[i].found->plan))
            return s->ranked[i].found;
    for (int64_t i = 0; i < s->r.nfit; i++)
        if (framework(s->r.found[i].plan.dialect) == name && !ranking_deprecated(&s->r.found[i].plan))
            return &s->r.found[i];
    return NULL;
}

static void choose(struct search_answer *s, struct alternatives *all)
{
    static const enum dialect frameworks[] = { DIALECT_TORCH, DIALECT_DEEPSPEED, DIALECT_MEGATRON };
    const struct ranked *first = &s->ranked[0];

    add(all, first, fastest(s), "fastest");
    add(all, first, smallest(s), "smallest");
    add(all, first, simplest(s), "simplest");
    add(all, first, surest(s), "most certain");
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++) {
        char text[64];
        const char *name = framework(frameworks[i]);
        snprintf(text, sizeof text, "best with %s", name);
        if (name != framework(first->found->plan.dialect))
            add(all, first, best_of(s, name), text);
    }
}

/* In words; with its other settings where another plan of the answer has the same words. */
static void name(const struct found *f, const struct found *const *others, int n, char *to, size_t size)
{
    char other[PLAN_WORDS], settings[PLAN_WORDS];

    plan_words(&f->plan, to, size);
    for (int i = 0; i < n; i++) {
        plan_words(&others[i]->plan, other, sizeof other);
        if (others[i] == f || strcmp(other, to))
            continue;
        plan_words_settings(&f->plan, settings, sizeof settings);
        snprintf(to + strlen(to), size - strlen(to), "%s%s", settings[0] ? ", " : "", settings);
        return;
    }
}

static int row(struct columns *t, struct search_answer *s, const struct ranked *k, const char *better, const char *words)
{
    const struct found *f = k->found;
    const struct ranked *first = &s->ranked[0];
    int64_t bytes;
    char slower[64];

    if (taken(s, f, &bytes) < 0)
        return -1;
    double ratio = f->step_s / first->found->step_s;

    snprintf(slower, sizeof slower, ratio < 2 ? "%s (+- %.1f)" : "%s", percent_slower(ratio).s, 100 * k->unsure_s / first->found->step_s);
    columns_cell(t, "%s", better);
    columns_cell(t, "%s", answer_seconds(f->step_s).s);
    columns_cell(t, "%s", slower);
    columns_cell(t, "%s", size_text(bytes).s);
    columns_cell(t, "%s%s%s", words, k->tight ? "; tight" : "", k->waits ? "; " ANSWER_WAITS : "");
    return 0;
}

/* What the ranking says of a plan of its own; else nothing. */
static struct ranked known(const struct search_answer *s, const struct found *f)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->ranked[i].found == f)
            return s->ranked[i];
    return (struct ranked){ 0 };
}

/* What is to be known before the answer can be said; its parts have nothing to do with each other. */
struct learning {
    const struct search_asked *a;
    struct search_answer *s;
    struct evaluation first;                /* of the plan to take; */
    struct timing t;
    bool known;
    struct alternatives all;
    struct ranked beside[MOST];
    struct lack lack;                       /* of the nearest that does not fit, */
    bool lacks;
    char to_fit[SEARCH_SENTENCE];
    struct search_codes *codes;             /* NULL: nothing fits */
    json_t *notes[PARTS];                   /* that they said */
};

static int learn_alternatives(struct learning *l)
{
    const struct found *of[MOST];
    int64_t bytes;

    choose(l->s, &l->all);
    for (int i = 0; i < l->all.n; i++) {
        of[i] = l->all.of[i].f;
        l->beside[i] = known(l->s, of[i]);
    }
    if (ranking_beside(&l->s->ranked[0], of, l->all.n, l->beside) < 0)
        return -1;
    for (int i = 0; i < l->all.n; i++)
        if (l->beside[i].found && taken(l->s, of[i], &bytes) < 0)
            return -1;
    return 0;
}

static int print_alternatives(struct learning *l, FILE *to, int width)
{
    static const struct column columns[] = { { "better at", false, 0 }, { "step", true, 0 }, { "compared", false, 0 }, { "memory", true, 1 }, { "plan", false, 0 } };
    const struct found *of[MOST + 1];
    char words[2 * PLAN_WORDS];

    for (int i = 0; i < l->all.n; i++)
        of[i] = l->all.of[i].f;
    of[l->all.n] = l->s->ranked[0].found;
    struct columns *t = columns_new(columns, 5);
    int rows = 0, rc = 0;
    for (int i = 0; i < l->all.n; i++)
        if (l->beside[i].found) {
            name(of[i], of, l->all.n + 1, words, sizeof words);
            rc |= row(t, l->s, &l->beside[i], l->all.of[i].better, words);
            rows++;
        }
    if (rows)
        fprintf(to, "\nAlternatives (memory is what is reserved; +-: how far the difference itself may be off)\n");
    columns_print(t, to, width);
    return rc;
}

/* ---- the plan to take ---- */

/* The step of the fastest of those that are a tie. */
static double fastest_tie_s(const struct search_answer *s)
{
    double fastest = s->ranked[0].found->step_s;

    for (int64_t i = 1; i < s->n && s->ranked[i].tied; i++)
        fastest = s->ranked[i].found->step_s < fastest ? s->ranked[i].found->step_s : fastest;
    return fastest;
}

/* Why this one: at most three sentences. */
static void print_why(const struct search_answer *s, FILE *to)
{
    const struct ranked *first = &s->ranked[0];
    const char *settings = first->departures == 1 ? "setting" : "settings";
    const char *old = ranking_deprecated(&first->found->plan);

    if (s->tied > 1) {
        fprintf(to, "Why: %" PRId64 " plans are %s within the prediction's error. ", s->tied,
                first->by_room ? "as fast as the fastest, or as the fastest that is not tight," : "equally fast");
        fprintf(to, "This one changes the fewest settings of its framework (%d)%s.\n", first->departures, first->tight ? "" : old ? "" : " and is not tight");
        if (first->by_room)
            fprintf(to, "The fastest takes %s less time, but is tight.\n", percent_share(1 - fastest_tie_s(s) / first->found->step_s).s);
        if (search_second_is_plain(s->ranked, s->n))
            fprintf(to, "The next changes %d, but is tight.\n", s->ranked[1].departures);
    } else if (first->found->step_s <= s->r.found[0].step_s)
        fprintf(to, "Why: it is the fastest of the %" PRId64 " plans that fit. It changes %d %s of its framework.\n", s->r.nfit, first->departures, settings);
    else if (search_waits(&s->r.found[0]))
        fprintf(to, "Why: of the %" PRId64 " plans that fit it is the fastest that never waits for memory. It changes %d %s of its framework.\n",
                s->r.nfit, first->departures, settings);
    else
        fprintf(to, "Why: no other plan that fits is as fast within the prediction's error, its own variants aside.\n");
    if (old)
        fprintf(to, "It is %s.\n", old);
}

/* The step of a ranked plan, as far as its sentence needs it. */
static struct timing timing_of(const struct ranked *k)
{
    const struct plan *p = &k->found->plan;
    struct timing t = { .low_s = k->low_s, .high_s = k->high_s, .basis = k->basis };

    t.line.step_s = k->found->step_s;
    t.tokens_per_s = (double)(plan_global_batch(p) * p->seq) / k->found->step_s;
    t.mfu = flops_mfu(p, FLOPS_PALM, t.tokens_per_s / (double)p->cluster.world_size);
    return t;
}

/* Only waits for memory, and a training, need more of the clock than the ranking knows. */
static int learn_first(struct learning *l)
{
    const struct ranked *k = &l->s->ranked[0];
    const struct plan *p = &k->found->plan;

    if (evaluate_within(p, &l->first) < 0)
        return -1;
    l->known = true;
    l->t = timing_of(k);
    return k->waits || l->a->money.tokens ? simulate_plan(p, &l->first, &l->t, NULL) : 0;
}

static int print_first(const struct learning *l, FILE *to)
{
    const struct plan *p = &l->s->ranked[0].found->plan;
    char words[PLAN_WORDS];

    plan_words(p, words, sizeof words);
    fprintf(to, "\nRecommended: %s.\n", words);
    plan_words_settings(p, words, sizeof words);
    if (words[0])
        fprintf(to, "  Settings: %s.\n", words);
    answer_memory(p, &l->first, &l->t, to);
    answer_step(p, &l->t, to);
    return money_print(&l->a->money, p, &l->t, to);
}

/* ---- the rest ---- */

static int learn_nearest(struct learning *l)
{
    const struct search_result *r = &l->s->r;

    l->lacks = r->nfit < r->n && search_nearest_lacks(&r->found[r->nfit], &l->lack);
    if (l->lacks)
        search_to_fit_words(&l->s->q.options, &r->found[r->nfit], &l->lack, plan_words, l->to_fit, sizeof l->to_fit);
    return 0;
}

static void print_nearest(const struct learning *l, FILE *to)
{
    const struct search_result *r = &l->s->r;
    char words[PLAN_WORDS], text[SEARCH_SENTENCE];

    if (!l->lacks)
        return;
    plan_words(&r->found[r->nfit].plan, words, sizeof words);
    fprintf(to, "\n%sDoes not fit%s, but comes nearest: %s.\n", page_ink(to, TERMINAL_RED), page_ink(to, TERMINAL_PLAIN), words);
    lack_words(&l->lack, text, sizeof text);
    fprintf(to, "  It %s.\n", text);
    fprintf(to, "  To make it fit: %s.\n", l->to_fit);
}

static void print_offload(const struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;
    const struct found *first = s->n > 0 ? s->ranked[0].found : NULL;

    if (first && first->elsewhere) {
        fputs("\n", to);
        search_elsewhere_say(r, first, to);
    }
    if (r->nrefused > 0)
        fprintf(to, "\n%s offload were not tried:\n  %s\n", r->nrefused == r->elsewhere ? "Plans with" : "Some plans with", r->refused);
}

static void print_asked(const struct search_answer *s, FILE *to)
{
    const struct search_result *r = &s->r;
    char *left_out;

    answer_question(&s->q, to);
    if (r->alone[0])
        fprintf(to, "Data parallelism alone: %s. So tensor, context and pipeline parallelism were searched too.\n", r->alone);
    fprintf(to, "%" PRId64 " plans considered, %" PRId64 " %s, %" PRId64 " of them fit.\n", r->considered, r->lowered,
            r->partial ? "looked at" : "evaluated", r->nfit);
    if (s->n > 0 && !search_best_in_place(r))
        fputs(r->partial ? "None of those looked at fits without offload.\n" : "Nothing fits without offload.\n", to);
    if ((left_out = search_left_out_words(&s->q.options)))
        fputs(left_out, to);
    free(left_out);
}

/* Notes are said later, by the thread that says the answer. */
static int learn_one(void *learning, int64_t part)
{
    struct learning *l = learning;
    bool fits = l->s->n > 0;
    int rc = 0;

    l->notes[part] = json_array();
    json_t *before = notes_divert(l->notes[part]);
    if (part == OF_NEAREST)
        rc = learn_nearest(l);
    else if (fits && part == OF_CODES)
        l->codes = search_codes_find(&l->s->q.options, &l->s->r);
    else if (fits)
        rc = part == OF_FIRST ? learn_first(l) : learn_alternatives(l);
    notes_divert(before);
    return rc;
}

static int learn(struct learning *l)
{
    const json_t *note;
    size_t i;
    int rc = parallel_each(PARTS, l->s->q.options.threads, learn_one, l);

    for (int part = 0; part < PARTS; part++) {
        json_array_foreach(l->notes[part], i, note)
            notes_say_once("%s", json_string_value(note));
        json_decref(l->notes[part]);
    }
    return rc;
}

static int say(struct learning *l, FILE *to, int width)
{
    struct search_answer *s = l->s;
    const struct cluster *c = &s->q.cluster;

    if (print_first(l, to) < 0)
        return -1;
    print_why(s, to);
    if (gpu_lacks(&c->gpu, s->q.options.precision))
        fprintf(to, "Note: %s.\n", gpu_lacks(&c->gpu, s->q.options.precision));
    return print_alternatives(l, to, width);
}

int search_brief(const struct search_asked *a, struct search_answer *s, FILE *to, int width)
{
    struct learning l = { .a = a, .s = s };
    char text[SEARCH_BEYOND];
    int rc = learn(&l);

    print_asked(s, to);
    if (s->n == 0)
        fputs(s->r.partial ? "\nNone of those looked at fits.\n" : "\nNothing fits.\n", to);
    else if (rc == 0)
        rc = say(&l, to, width);
    if (rc == 0) {
        print_nearest(&l, to);
        print_offload(s, to);
        if (l.codes)
            search_codes_say(l.codes, s->ranked[0].found->step_s, to);
        search_beyond_words(&a->ask, &s->q.options, &s->r, text);
        if (text[0])
            fprintf(to, "\n%c%s\n", toupper((unsigned char)text[0]), text + 1);
    }
    search_codes_free(l.codes);
    if (l.known)
        evaluation_free(&l.first);
    return rc;
}
