/* enumerate.c -- nested choices, outermost first: cell, micro-batch, then the knobs that the cell has
 * and whose rows name values worth searching, in their turns.  What a dialect refuses is dropped at the
 * end by plan_check(). */
#include "sim/search/enumerate.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/plan/knob.h"
#include "model/plan/knob_rules.h"
#include "model/plan/optimizer_choice.h"

struct walk {
    const struct search_options *o;
    int (*run)(const struct plan *p, void *arg);        /* NULL: every run is wanted */
    int (*take)(const struct plan *p, void *arg);
    void *arg;
    const struct plan *base;            /* of which variants that save memory are wanted; NULL: all plans are */
    char refusal[256], first[256];      /* why a plan of the cell was refused: the last one, the first one */
    bool taken, accepted;               /* any plan */
};

static void keep_first(struct walk *w)
{
    if (!w->first[0])
        memcpy(w->first, w->refusal, sizeof w->first);
}

static int offer(struct walk *w, const struct plan *p)
{
    struct plan q = *p;
    int ok;

    struct fail_sink before = fail_divert(w->refusal, sizeof w->refusal);
    plan_resolve(&q);
    ok = plan_check(&q, "search");
    fail_restore(before);
    if (ok < 0) {
        keep_first(w);
        return 0;
    }
    w->taken = true;
    if (w->o->accept && !w->o->accept(&q, w->o->accept_what))
        return 0;
    w->accepted = true;
    return w->take(&q, w->arg);
}

/* ---- knobs ---- */

/* Every knob of a cell with a turn from `least` to below `end`, the outermost first; ended by NULL. */
enum { MOST_VARIED = 15 };
static void varied(uint64_t of, int least, int end, const struct knob *out[MOST_VARIED + 1])
{
    const struct knob *k;
    int n = 0;

    for (int i = 0; (k = knob_at(i)); i++) {
        int at = n;
        if (!(k->cells & of) || k->turn < least || k->turn >= end)
            continue;
        assert(n < MOST_VARIED);
        for (; at > 0 && out[at - 1]->turn > k->turn; at--)
            out[at] = out[at - 1];
        out[at] = k;
        n++;
    }
    out[n] = NULL;
}

/* The command line narrows recompute, and the optimizer's form. */
static bool wanted(const struct walk *w, const struct knob *k, const struct plan *p)
{
    uint64_t usual = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL;

    if (k->offset == offsetof(struct plan, optimizer_form) && w->o->optimizer && w->o->optimizer->form >= 0)
        return (int)p->optimizer_form == w->o->optimizer->form;
    return k->offset != offsetof(struct plan, recompute) || ((w->o->recompute ? w->o->recompute : usual) >> p->recompute & 1);
}

/* Knobs below decide which kernels run, and how often. */
enum { FIRST_VARIANT = 3 };

struct plan enumerate_usual(const struct plan *p, bool *refused)
{
    struct plan q = *p;
    const struct knob *k;
    char none[1];

    for (int i = 0; (k = knob_at(i)); i++)
        if (k->turn >= FIRST_VARIANT && k->turn < KNOB_SAVES && (k->cells & knob_cell(p)))
            knob_set(&q, k, knob_default(&q, k));
    plan_resolve(&q);
    struct fail_sink before = fail_divert(none, sizeof none);
    *refused = plan_check(&q, "search") < 0;
    fail_restore(before);
    return *refused ? *p : q;
}

/* Do the knobs from a turn on have the same values? */
static bool same_from(int turn, const struct plan *a, const struct plan *b)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (k->turn >= turn && (k->cells & knob_cell(a)) && (knob_get(a, k) < knob_get(b, k) || knob_get(a, k) > knob_get(b, k)))
            return false;
    return true;
}

/* All values of the first knob, with all of the others for each; `inside`: those before decide which run it is. */
static int vary(struct walk *w, const struct knob *const *knobs, struct plan *p, bool inside)
{
    enum knob_tried tried;
    int rc = 0, i;

    if (!inside && (!*knobs || (*knobs)->turn >= FIRST_VARIANT)) {
        inside = true;
        rc = w->run ? w->run(p, w->arg) : 0;
        if (rc) {
            w->taken = w->accepted = true;
            return rc < 0 ? -1 : 0;
        }
    }
    if (!*knobs)
        return w->base && same_from(KNOB_SAVES, w->base, p) ? 0 : offer(w, p);
    for (i = 0; !rc && (tried = knob_try(p, *knobs, i)) != KNOB_NO_MORE; i++)
        if (tried == KNOB_TRIED && wanted(w, *knobs, p))
            rc = vary(w, knobs + 1, p, inside);
    return i || rc ? rc : vary(w, knobs + 1, p, inside);
}

/* FSDP1 would reduce in param_dtype, FSDP2 in fp32 (plan.c): as candidates they reduce alike, else half of what
 * sets them apart is that one of them sends half as much. */
static enum dtype as_fsdp2(const struct plan *p)
{
    struct plan q = *p;

    plan_defaults(&q, STRAT_FSDP, DIALECT_TORCH, p->precision);
    return q.reduce_dtype;
}

void enumerate_as_trainers_do(struct plan *p, bool config)
{
    if (p->dialect == DIALECT_TORCH_FSDP1)
        p->reduce_dtype = as_fsdp2(p);
    if (p->dialect == DIALECT_TORCH && p->strategy == STRAT_DDP)
        p->ddp.wrapped = config || p->cluster.world_size > 1;
}

int enumerate_choose_loss(const struct search_options *o, struct plan *p)
{
    if (!o->loss)
        return 0;
    if (!knob_find("", "loss", knob_cell(p)))
        return fail("search: loss: the textbook's is computed in fp32, there is no other");
    p->loss = *o->loss;
    return 0;
}

/* false: the cell has no such optimizer, or no such loss, and no candidate. */
static bool choose_optimizer(struct walk *w, struct plan *p)
{
    struct fail_sink before = fail_divert(w->refusal, sizeof w->refusal);
    int rc = optimizer_choose(p, w->o->optimizer, "search") < 0 || enumerate_choose_loss(w->o, p) < 0 ? -1 : 0;

    fail_restore(before);
    if (rc < 0)
        keep_first(w);
    return rc == 0;
}

enum kernel_set enumerate_kernels(const struct search_options *o, const struct plan *p)
{
    return o->usual_kernels && p->dialect == DIALECT_MEGATRON ? (enum kernel_set)knob_usual_kernels(p) : o->kernels;
}

static int cell(struct walk *w, enum strategy s, enum dialect d)
{
    const struct search_options *o = w->o;
    int64_t each = o->global_batch / o->cluster->world_size;
    int64_t least = (each + PLAN_MAX_BATCH - 1) / PLAN_MAX_BATCH;
    const struct knob *knobs[MOST_VARIED + 1];
    int rc = 0;

    varied(CELL(s, d), 1, KNOB_SAVES, knobs);
    for (int64_t b = least > 1 ? least : 1; b <= each && b <= PLAN_MAX_BATCH && !rc; b++) {      /* none: no whole sample each */
        if (each % b || (o->micro_batch && b != o->micro_batch))        /* of up to a million few divide */
            continue;
        struct plan p = { .model = *o->model, .cluster = *o->cluster, .seq = o->seq, .micro_batch = b };
        plan_defaults(&p, s, d, o->precision);
        p.accumulation = each / b;
        p.kernels = enumerate_kernels(o, &p);
        knob_follow(&p, NULL, NULL);            /* of the kernels, too */
        if (!choose_optimizer(w, &p))
            break;
        enumerate_as_trainers_do(&p, o->settle != NULL);
        if (o->settle)
            o->settle(&p, o->accept_what);
        rc = vary(w, knobs, &p, false);
    }
    return rc;
}

static size_t names(uint64_t set, int n, const char *(*name)(int), char *to, size_t size)
{
    size_t at = 0;

    to[0] = '\0';
    for (int i = 0; i < n; i++)
        if ((set >> i & 1) && at < size)
            at += (size_t)snprintf(to + at, size - at, "%s%s", at ? ", " : "", name(i));
    return at;
}

static const char *dialect_word(int i)      { return dialect_name((enum dialect)i); }
static const char *strategy_word(int i)     { return strategy_name((enum strategy)i); }

/* None of the dialects has one of the strategies. */
static int no_cell(const struct search_options *o)
{
    char dialects[80], strategies[80], have[80];
    uint64_t of = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            of |= (o->strategies >> s & 1) && dialect_has((enum dialect)d, (enum strategy)s) ? UINT64_C(1) << d : 0;
    names(o->dialects, NDIALECT, dialect_word, dialects, sizeof dialects);
    names(o->strategies, NSTRATEGY, strategy_word, strategies, sizeof strategies);
    names(of, NDIALECT, dialect_word, have, sizeof have);
    return fail("nothing to search: no strategy %s in dialect %s; these have it: %s", strategies, dialects, have);
}

static const char *reason(const char *first)
{
    return first + (strncmp(first, "search: ", 8) ? 0 : 8);
}

/* The reason that most cells give; of reasons as frequent, the earliest. */
static const char *usual_reason(char (*of)[256], int n)
{
    int best = 0, most = 0;

    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = i; k < n; k++)
            same += !strcmp(of[i], of[k]);
        if (same > most) {
            most = same;
            best = i;
        }
    }
    return reason(of[best]);
}

int enumerate(const struct search_options *o, int (*take)(const struct plan *p, void *arg), void *arg)
{
    return enumerate_runs(o, NULL, take, arg);
}

/* One is enough. */
static int stop(const struct plan *p, void *arg)
{
    (void)p, (void)arg;
    return 1;
}

/* What was asked for conflicts with what is to run the plans: "torchtitan can run none of ...; it runs fsdp/torch". */
static int conflict(const struct search_options *o)
{
    char runs[200] = "";
    size_t n = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct walk w = { .o = o, .take = stop };
            if (!dialect_has((enum dialect)d, (enum strategy)s))
                continue;
            cell(&w, (enum strategy)s, (enum dialect)d);
            if (w.accepted && n < sizeof runs)
                n += (size_t)snprintf(runs + n, sizeof runs - n, "%s%s/%s", n ? ", " : "", strategy_name((enum strategy)s), dialect_name((enum dialect)d));
        }
    return fail("nothing to search: %s can run none of the plans of these strategies and dialects%s%s", (const char *)o->accept_what,
                n ? "; of this model and cluster it runs " : "", runs);
}

int enumerate_runs(const struct search_options *o, int (*run)(const struct plan *p, void *arg),
                   int (*take)(const struct plan *p, void *arg), void *arg)
{
    struct walk w = { .o = o, .run = run, .take = take, .arg = arg };
    char why[NSTRATEGY * NDIALECT][256];
    int rc = 0, cells = 0, refused = 0;

    for (int s = 0; s < NSTRATEGY && !rc; s++)
        for (int d = 0; d < NDIALECT && !rc; d++)
            if ((o->strategies >> s & 1) && (o->dialects >> d & 1) && dialect_has((enum dialect)d, (enum strategy)s)) {
                w.first[0] = '\0';
                rc = cell(&w, (enum strategy)s, (enum dialect)d);
                cells++;
                if (w.first[0])
                    memcpy(why[refused++], w.first, sizeof w.first);
            }
    if (!cells)
        return no_cell(o);
    if (!rc && !w.taken && refused)
        return fail("nothing to search: %s", usual_reason(why, refused));
    if (!rc && w.taken && !w.accepted)
        return conflict(o);
    return rc;
}

/* ---- what falls away ---- */

int enumerate_left_out(const struct search_options *o, struct left_out out[NSTRATEGY * NDIALECT])
{
    int n = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct walk w = { .o = o, .take = stop };
            if (!(o->strategies >> s & 1) || !(o->dialects >> d & 1) || !dialect_has((enum dialect)d, (enum strategy)s))
                continue;
            cell(&w, (enum strategy)s, (enum dialect)d);
            if (w.accepted || !(w.taken || w.first[0]))
                continue;
            out[n].strategy = (enum strategy)s;
            out[n].dialect = (enum dialect)d;
            snprintf(out[n++].why, sizeof out->why, "%s%s", w.taken ? (const char *)o->accept_what : reason(w.first),
                     w.taken ? " can run none of its plans" : "");
        }
    return n;
}

/* ---- elsewhere than in device memory ---- */

bool enumerate_same_place(const struct plan *a, const struct plan *b)
{
    return same_from(KNOB_LATER, a, b);
}

struct plan enumerate_in_place(const struct plan *p)
{
    struct plan q = *p;
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (k->turn >= KNOB_LATER && (k->cells & knob_cell(p)))
            knob_set(&q, k, knob_default(&q, k));
    plan_resolve(&q);
    return q;
}

int enumerate_saving(const struct search_options *o, const struct plan *base, bool in_place,
                     int (*take)(const struct plan *p, void *arg), void *arg)
{
    struct walk w = { .o = o, .take = take, .arg = arg, .base = base };
    const struct knob *knobs[MOST_VARIED + 1];
    struct plan p = *base;

    varied(knob_cell(base), KNOB_SAVES, in_place ? KNOB_LATER : INT_MAX, knobs);
    return vary(&w, knobs, &p, true);
}
