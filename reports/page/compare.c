/* compare.c -- chooses the runs that can be compared, reads them, and computes what the page says of each. */
#include "reports/page/compare.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cover.h"
#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"

/* ---- plans ---- */

static void copy_word(const json_t *j, const char *key, char *to, size_t size)
{
    const char *s = json_string_value(json_object_get(j, key));

    snprintf(to, size, "%s", s ? s : "");
}

void compare_work_of(const char *plan, struct work *out)
{
    json_t *j = plan ? json_loads(plan, 0, NULL) : NULL;
    const json_t *cluster = json_object_get(j, "cluster");
    int64_t accumulation = json_integer_value(json_object_get(j, "accumulation"));
    int64_t world = json_integer_value(json_object_get(cluster, "world_size"));

    const json_t *parallel = json_object_get(j, "parallel");

    memset(out, 0, sizeof *out);
    for (int i = 0; i < 3; i++) {
        static const struct { const char *key, *word; } axis[] = { { "tensor", "tp" }, { "context", "cp" }, { "pipeline", "pp" } };
        int64_t n = json_integer_value(json_object_get(parallel, axis[i].key));
        size_t at = strlen(out->degrees);
        if (n > 1) {                    /* ranks that have the same samples */
            world /= n;
            snprintf(out->degrees + at, sizeof out->degrees - at, "%s%s %lld", at ? " " : "", axis[i].word, (long long)n);
        }
    }
    if (json_integer_value(json_object_get(parallel, "pipeline")) > 1)
        copy_word(parallel, "pipeline_schedule", out->schedule, sizeof out->schedule);
    out->seq = json_integer_value(json_object_get(j, "seq"));
    out->micro_batch = json_integer_value(json_object_get(j, "micro_batch"));
    out->tokens = out->seq * out->micro_batch * (accumulation > 0 ? accumulation : 1) * world;
    copy_word(j, "precision", out->precision, sizeof out->precision);
    copy_word(j, "recompute", out->recompute, sizeof out->recompute);
    int64_t every = json_integer_value(json_object_get(j, "recompute_interval"));
    if (every > 1) {
        size_t at = strlen(out->recompute);
        snprintf(out->recompute + at, sizeof out->recompute - at, " every %lld blocks", (long long)every);
    }
    json_decref(j);
}

const char *compare_model_words(const struct run_row *r) { return r->model ? r->model : "a model without a name"; }

int compare_strategy_rank(const char *strategy)
{
    static const char *const order[] = { "dp", "ddp", "zero1", "zero2", "zero3", "fsdp" };
    int i = 0;

    while (i < 6 && (!strategy || strcmp(strategy, order[i])))
        i++;
    return i;
}

/* ---- which runs ---- */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool same_group(const struct run_row *a, const struct work *wa, const struct run_row *b)
{
    struct work wb;

    if (a->start.world_size != b->start.world_size || !same_text(a->model, b->model)
        || strcmp(a->start.host, b->start.host) || strcmp(a->start.device, b->start.device))
        return false;
    compare_work_of(b->start.plan, &wb);
    return wa->tokens == wb.tokens && wa->seq == wb.seq;
}

/* A run and what it is grouped by, for sorting; `plan` is its plan without what of a machine differs from run to run. */
struct grouped { const struct run_row *row; struct work work; char *plan; };

/* "localhost" is written with the memory that was available then, which is not part of what was asked for. */
static char *plan_asked(const char *plan)
{
    json_t *j = plan ? json_loads(plan, 0, NULL) : NULL, *cluster = json_object_get(j, "cluster");
    char *text;

    if (json_is_true(json_object_get(cluster, "host"))) {
        json_object_del(cluster, "memory_bytes");
        json_object_del(json_object_get(cluster, "gpu"), "memory_bytes");
        json_object_del(json_object_get(cluster, "node"), "memory_bytes");
    }
    text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : strdup(plan ? plan : "");
    if (!text)
        abort();
    json_decref(j);
    return text;
}

static int by_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int by_number(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_group(const struct grouped *x, const struct grouped *y)
{
    int d = by_text(x->row->model, y->row->model);

    if (!d) d = by_number(x->row->start.world_size, y->row->start.world_size);
    if (!d) d = by_text(x->row->start.host, y->row->start.host);
    if (!d) d = by_text(x->row->start.device, y->row->start.device);
    if (!d) d = by_number(x->work.tokens, y->work.tokens);
    return d ? d : by_number(x->work.seq, y->work.seq);
}

/* In a group by plan, of a plan the one to be shown first: finished, then new. */
static int by_group_and_plan(const void *a, const void *b)
{
    const struct grouped *x = a, *y = b;
    bool done = x->row->end.outcome == RUN_FINISHED, other = y->row->end.outcome == RUN_FINISHED;
    int d = by_group(x, y);

    if (!d) d = strcmp(x->plan, y->plan);
    if (!d) d = (int)other - (int)done;
    return d ? d : by_number(y->row->id, x->row->id);
}

static int newest_first(const void *a, const void *b)
{
    return by_number(((const struct grouped *)b)->row->id, ((const struct grouped *)a)->row->id);
}

/* Leaves one run of each plan; returns how many. */
static int64_t one_of_each_plan(struct grouped *g, int64_t n)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || by_group(&g[i], &g[kept - 1]) || strcmp(g[i].plan, g[kept - 1].plan))
            g[kept++] = g[i];
        else
            free(g[i].plan);
    return kept;
}

/* The group with most plans that finished, of equals the one with the newest run: g[from .. to). */
static void largest_group(const struct grouped *g, int64_t n, int64_t *from, int64_t *to)
{
    int64_t most = -1, newest = 0;

    *from = *to = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t finished = 0, last = 0;
        for (end = i; end < n && !by_group(&g[i], &g[end]); end++) {
            finished += g[end].row->end.outcome == RUN_FINISHED;
            last = g[end].row->id > last ? g[end].row->id : last;
        }
        if (finished > most || (finished == most && last > newest)) {
            most = finished;
            newest = last;
            *from = i;
            *to = end;
        }
    }
}

static int choose(struct comparison *c, int64_t *chosen)
{
    struct grouped *g = calloc((size_t)c->all.n + 1, sizeof *g);
    int64_t n = c->all.n, from, to;
    int taken = 0;

    if (!g)
        abort();
    for (int64_t i = 0; i < n; i++) {
        g[i].row = &c->all.run[i];
        g[i].plan = plan_asked(c->all.run[i].start.plan);
        compare_work_of(c->all.run[i].start.plan, &g[i].work);
    }
    sort_stable(g, (size_t)n, sizeof *g, by_group_and_plan);
    n = one_of_each_plan(g, n);
    largest_group(g, n, &from, &to);
    sort_stable(g + from, (size_t)(to - from), sizeof *g, newest_first);
    for (int finished = 1; finished >= 0; finished--)
        for (int64_t i = from; i < to && taken < MAX_RUNS; i++)
            if ((g[i].row->end.outcome == RUN_FINISHED) == (finished == 1))
                chosen[taken++] = g[i].row - c->all.run;
    c->left_out = (int)(to - from) - taken;
    for (int64_t i = 0; i < n; i++)
        free(g[i].plan);
    free(g);
    return taken;
}

static int find_ids(struct comparison *c, const int64_t *ids, int nids, int64_t *chosen)
{
    int n = 0;

    for (int k = 0; k < nids; k++) {
        int64_t i = 0;
        while (i < c->all.n && c->all.run[i].id != ids[k])
            i++;
        if (i == c->all.n)
            return fail("there is no run %lld in this database", (long long)ids[k]);
        for (int j = 0; j < n; j++)
            if (chosen[j] == i)
                i = -1;
        if (i >= 0 && n == MAX_RUNS)
            return fail("--run: at most %d runs fit on a page", MAX_RUNS);
        if (i >= 0)
            chosen[n++] = i;
    }
    return n;
}

/* ---- labels ---- */

static bool any_differs(const struct comparison *c, const char *(*of)(const struct chosen *))
{
    for (int i = 1; i < c->n; i++)
        if (strcmp(of(&c->run[0]), of(&c->run[i])))
            return true;
    return false;
}

static const char *precision_of(const struct chosen *r) { return r->work.precision; }
static const char *model_of(const struct chosen *r) { return compare_model_words(&r->rec.row); }

static void add(char *to, size_t size, const char *fmt, const char *s)
{
    size_t n = strlen(to);

    snprintf(to + n, size - n, fmt, s);
}

static void first_labels(struct comparison *c)
{
    bool precisions = any_differs(c, precision_of), models = any_differs(c, model_of);

    for (int i = 0; i < c->n; i++) {
        struct chosen *r = &c->run[i];
        const struct run_row *row = &r->rec.row;
        snprintf(r->label, sizeof r->label, "%s (%s)", row->strategy ? row->strategy : "?",
                 row->dialect ? row->dialect : "?");
        if (r->work.degrees[0])
            add(r->label, sizeof r->label, ", %s", r->work.degrees);
        if (r->work.schedule[0])
            add(r->label, sizeof r->label, " %s", r->work.schedule);
        if (r->work.recompute[0] && strcmp(r->work.recompute, "none"))
            add(r->label, sizeof r->label, ", recompute %s", r->work.recompute);
        if (precisions)
            add(r->label, sizeof r->label, ", %s", r->work.precision);
        if (models)
            add(r->label, sizeof r->label, ", %.60s", model_of(r));
    }
}

/* Runs of one strategy are told apart by what differs first, then by their number. */
static void set_labels(struct comparison *c)
{
    bool again[MAX_RUNS] = { false };
    char word[32];

    first_labels(c);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->n; k++)
            if (i != k && !strcmp(c->run[i].label, c->run[k].label))
                again[i] = true;
    for (int i = 0; i < c->n; i++) {
        snprintf(word, sizeof word, "%lld", (long long)c->run[i].rec.row.id);
        if (again[i])
            add(c->run[i].label, sizeof c->run[i].label, ", run %s", word);
    }
}

/* ---- the sampled step ---- */

bool compare_entry_sampled(const struct chosen *r, const struct run_entry *e)
{
    return r->step >= 0 && e->step == r->step && e->rank == r->rank;
}

static void find_sample(struct chosen *r)
{
    r->step = -1;
    for (int64_t i = 0; i < r->rec.nentry; i++) {
        const struct run_entry *e = &r->rec.entry[i];
        if (!strcmp(e->schedule, "steady") && e->step > r->step) {
            r->step = e->step;
            r->rank = e->rank;
        }
    }
}

struct ends { double from, to; };
static struct ends predicted_ends(const struct run_entry *e)
{
    return (struct ends){ e->predicted_start_s, e->predicted_end_s };
}
static struct ends measured_ends(const struct run_entry *e) { return (struct ends){ e->start_s, e->end_s }; }

/* 146 years at most: a database may hold any number. */
static int64_t ns(double s) { return (int64_t)llround(fmax(-0x1p62, fmin(1e9 * s, 0x1p62))); }

static bool is_known(struct ends e) { return isfinite(e.from) && isfinite(e.to); }

static int by_begin(const void *a, const void *b)
{
    double x = ((const struct ends *)a)->from, y = ((const struct ends *)b)->from;

    return (x > y) - (x < y);
}

/* When the sampled rank's compute stream works. */
static struct cover compute_of(const struct chosen *r, struct ends (*of)(const struct run_entry *))
{
    struct ends *all = room_new((size_t)r->rec.nentry + 1, sizeof *all);
    struct cover c = { 0 };
    int64_t n = 0;

    for (int64_t i = 0; i < r->rec.nentry; i++) {
        const struct run_entry *e = &r->rec.entry[i];
        if (compare_entry_sampled(r, e) && !strcmp(e->stream, "compute") && is_known(of(e)))
            all[n++] = of(e);
    }
    sort_stable(all, (size_t)n, sizeof *all, by_begin);
    for (int64_t i = 0; i < n; i++)
        cover_add(&c, ns(all[i].from), ns(all[i].to));
    free(all);
    return c;
}

static struct use *use_of(struct chosen *r, const char *op)
{
    int i = 0;

    while (i < r->nuses && strcmp(r->use[i].op, op))
        i++;
    if (i == MAX_OPS)
        return NULL;
    if (i == r->nuses)
        r->use[r->nuses++] = (struct use){ op, NAN, NAN, NAN, NAN };
    return &r->use[i];
}

static void plus(double *sum, double v) { *sum = isnan(*sum) ? v : *sum + v; }

static void add_use(struct chosen *r, const struct run_entry *e, const struct cover *predicted, const struct cover *measured)
{
    struct ends p = predicted_ends(e), m = measured_ends(e);
    struct use *u = use_of(r, e->what ? e->what : "?");

    if (u && is_known(p)) {
        plus(&u->predicted_s, p.to - p.from);
        plus(&u->predicted_exposed_s, 1e-9 * (double)cover_free_of(predicted, ns(p.from), ns(p.to)));
    }
    if (u && is_known(m)) {
        plus(&u->measured_s, m.to - m.from);
        plus(&u->exposed_s, 1e-9 * (double)cover_free_of(measured, ns(m.from), ns(m.to)));
    }
}

static void sum_sample(struct chosen *r)
{
    find_sample(r);
    r->span = r->predicted_span = NAN;
    struct cover predicted = compute_of(r, predicted_ends), measured = compute_of(r, measured_ends);
    for (int64_t i = 0; i < r->rec.nentry; i++) {
        const struct run_entry *e = &r->rec.entry[i];
        if (!compare_entry_sampled(r, e))
            continue;
        r->span = fmax(r->span, e->end_s);          /* fmax() passes NaN over */
        r->predicted_span = fmax(r->predicted_span, e->predicted_end_s);
        if (!strcmp(e->kind, "collective"))
            add_use(r, e, &predicted, &measured);
    }
    cover_free(&predicted);
    cover_free(&measured);
}

/* ---- reading ---- */

static int by_strategy(const void *a, const void *b)
{
    const struct run_row *x = &((const struct chosen *)a)->rec.row, *y = &((const struct chosen *)b)->rec.row;
    int i = compare_strategy_rank(x->strategy), k = compare_strategy_rank(y->strategy);

    return i != k ? i - k : (x->id > y->id) - (x->id < y->id);
}

static int load(struct db *db, int64_t id, struct chosen *r)
{
    if (runs_load(db, id, &r->rec) < 0 || runs_parts(db, id, &r->parts) < 0 ||
        runs_moments(db, id, &r->moments) < 0 || runs_stages(db, id, &r->stages) < 0 || runs_checkpoints(db, id, &r->saved) < 0 ||
        runs_available(db, id, &r->available) < 0 ||
        rates_late(db, r->rec.row.start.host, &r->late) < 0)
        return -1;
    compare_work_of(r->rec.row.start.plan, &r->work);
    sum_sample(r);
    return 0;
}

static void find_best(struct comparison *c)
{
    c->best = c->second = -1;
    for (int i = 0; i < c->n; i++) {
        const struct run_end *e = &c->run[i].rec.row.end;
        if (e->outcome != RUN_FINISHED || !(e->tokens_per_s > 0))
            continue;
        if (c->best < 0 || e->tokens_per_s > c->run[c->best].rec.row.end.tokens_per_s) {
            c->second = c->best;
            c->best = i;
        } else if (c->second < 0 || e->tokens_per_s > c->run[c->second].rec.row.end.tokens_per_s) {
            c->second = i;
        }
    }
}

static void find_together(struct comparison *c)
{
    c->together = c->n > 0;
    for (int i = 1; i < c->n; i++)
        if (!same_group(&c->run[0].rec.row, &c->run[0].work, &c->run[i].rec.row))
            c->together = false;
}

int compare_read(struct db *db, const int64_t *ids, int nids, struct comparison *out)
{
    int64_t chosen[MAX_RUNS];
    int n, rc = -1;

    memset(out, 0, sizeof *out);
    out->best = out->second = -1;
    if (runs_list(db, &out->all) < 0)
        return -1;
    if (rates_read(db, &out->rates) < 0)
        goto out;
    n = nids > 0 ? find_ids(out, ids, nids, chosen) : choose(out, chosen);
    out->run = calloc((size_t)(n > 0 ? n : 0) + 1, sizeof *out->run);
    if (!out->run)
        abort();
    if (n < 0)
        goto out;
    for (int i = 0; i < n; i++, out->n++)
        if (load(db, out->all.run[chosen[i]].id, &out->run[i]) < 0)
            goto out;
    sort_stable(out->run, (size_t)out->n, sizeof *out->run, by_strategy);
    set_labels(out);
    find_together(out);
    find_best(out);
    rc = 0;
out:
    if (rc < 0)
        compare_free(out);
    return rc;
}

void compare_free(struct comparison *c)
{
    for (int i = 0; i < c->n; i++) {
        run_record_free(&c->run[i].rec);
        run_parts_free(&c->run[i].parts);
        run_moments_free(&c->run[i].moments);
        run_stages_free(&c->run[i].stages);
        run_checkpoints_free(&c->run[i].saved);
    }
    free(c->run);
    run_list_free(&c->all);
    rates_free(&c->rates);
    memset(c, 0, sizeof *c);
}
