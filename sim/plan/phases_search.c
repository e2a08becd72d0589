/* phases_search.c -- other layouts of a phase plan on the same GPUs: together or apart, who sleeps where, the engine's ranks and share, and of the
 * fastest ones the micro-batches of updates and forwards; of roles with GPUs of their own also how many those are, and none of their own. */
#include "sim/plan/phases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sort.h"

/* The engine's share is tried from the largest down. */
static const double shares[] = { 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2 };
enum { SHARES = sizeof shares / sizeof *shares };

/* `others`: where roles with GPUs of their own are, for the words. */
struct layouts { const struct phases *p; struct cluster all; const char *others; struct phases_layout *out; int n, tried; };

static json_t *role_of(json_t *doc, const char *name) { return json_object_get(json_object_get(doc, "roles"), name); }

/* ---- one layout ---- */

static void set_trainers(const struct phases *p, json_t *doc, enum role_where between)
{
    for (int i = 0; i < p->plan.nroles; i++) {
        const struct phase_role *r = &p->plan.role[i];
        if (r->kind == ROLE_IS_ENGINE || r->place > 0)
            continue;
        json_object_set_new(role_of(doc, r->name), "between", json_string(role_where_name(between)));
        json_object_set_new(role_of(doc, r->name), "empties_cache", json_true());
    }
}

static int64_t gpus_at(const struct phases *q, int place)
{
    return place == PHASE_PLACES ? q->engine_cluster.world_size : place ? q->more[place].cluster.world_size : q->cluster.world_size;
}

/* The share of all GPU time in which a GPU has nothing to do. */
static double idle_of(const struct phases *q)
{
    double busy = 0, gpus = role_is_apart(&q->plan.role[q->engine]) ? (double)gpus_at(q, PHASE_PLACES) : 0;

    for (int i = 0; i < q->plan.nplaces; i++)
        gpus += (double)gpus_at(q, i);
    for (int k = 0; k < q->plan.nsteps; k++)
        busy += q->time[k].s * (double)gpus_at(q, phase_place(&q->plan, &q->plan.step[k]));
    double idle = 1 - busy / (q->iteration.s * gpus);
    return idle > 1e-9 ? idle : 0;
}

bool phases_evaluated(const struct phases *base, json_t *doc, bool timed, struct phases *out)
{
    char why[1024];
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *notes = json_array(), *notes_before = notes_divert(notes);
    int rc = phases_changed(base, doc, timed, out);

    fail_restore(before);
    notes_divert(notes_before);
    json_decref(notes);
    return rc == 0;
}

/* false: it does not fit, or is refused. */
static bool fits(struct layouts *l, json_t *doc, bool timed, struct phases *out)
{
    bool is = phases_evaluated(l->p, doc, timed, out);

    l->tried++;
    if (is && !out->fits)
        phases_free(out);
    return is && out->fits;
}

/* A layout that fits, with its figures. */
static void keep(struct layouts *l, json_t *doc, struct phases_layout of, const struct phases *q)
{
    of.doc = json_incref(doc);
    of.iteration = q->iteration;
    memcpy(of.draw, q->draw, sizeof of.draw);
    of.idle = idle_of(q);
    of.trainer_gpus = q->cluster.world_size;
    of.needed = q->moment[q->largest].needed;
    of.tight = q->tight;
    l->out[l->n++] = of;
}

/* The document with the largest share that fits; takes it. */
static void try_shares(struct layouts *l, json_t *doc, struct phases_layout of)
{
    const struct phase_role *r = &l->p->plan.role[l->p->engine];
    struct phases q;
    int i = 0;

    for (; i < SHARES; i++) {
        json_object_set_new(role_of(doc, r->name), engine_share_name(r->engine.kind), json_real(shares[i]));
        if (fits(l, doc, false, &q)) {
            phases_free(&q);
            break;
        }
    }
    if (i < SHARES && l->n < PHASE_LAYOUTS && fits(l, doc, true, &q)) {
        of.share = shares[i];
        of.update_times = of.forward_times = 1;
        snprintf(of.others, sizeof of.others, "%s", l->others);
        keep(l, doc, of, &q);
        phases_free(&q);
    }
    json_decref(doc);
}

/* ---- micro-batches ---- */

/* Updates take `update` times as many samples at once, in as many fewer micro-steps, and forwards `forward` times as many.  false: they do not
 * divide, or a plan is in a file of its own. */
static bool scale_batches(const struct phases *p, json_t *doc, int64_t update, int64_t forward)
{
    json_t *phases = json_object_get(doc, "phases"), *phase;
    bool any = false;
    size_t k;

    for (int i = 0; i < p->plan.nroles; i++) {
        const struct phase_role *r = &p->plan.role[i];
        json_t *plan = r->kind == ROLE_TRAINS ? json_object_get(role_of(doc, r->name), "train") : NULL;
        int64_t steps = json_object_get(plan, "accumulation") ? json_integer_value(json_object_get(plan, "accumulation")) : 1;
        if (r->kind != ROLE_TRAINS || update == 1)
            continue;
        if (!json_is_object(plan) || steps % update)
            return false;
        json_object_set_new(plan, "micro_batch", json_integer(json_integer_value(json_object_get(plan, "micro_batch")) * update));
        json_object_set_new(plan, "accumulation", json_integer(steps / update));
        any = true;
    }
    json_array_foreach(phases, k, phase) {
        const struct phase_step *s = &p->plan.step[k];
        int64_t micro = s->does != DOES_FORWARD ? 0 : s->micro_batch ? s->micro_batch : p->role[s->role].plan.micro_batch;
        if (micro == 0)
            continue;
        if (micro * forward * plan_batch_ranks(&p->role[s->role].plan) > (s->samples ? s->samples : p->plan.samples))
            return false;
        json_object_set_new(phase, "micro_batch", json_integer(micro * forward));
        any = true;
    }
    return any;
}

/* A layout that is fast, with larger micro-batches of forwards, and of updates too. */
static void try_batches(struct layouts *l, struct phases_layout of)
{
    static const struct { int64_t update, forward; } times[] = { { 1, 2 }, { 1, 4 }, { 2, 2 }, { 2, 4 }, { 4, 4 } };
    json_t *from = of.doc;
    struct phases base, q;

    if (!phases_evaluated(l->p, from, false, &base))
        return;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        json_t *doc = json_deep_copy(from);
        if (l->n < PHASE_LAYOUTS && scale_batches(&base, doc, times[i].update, times[i].forward) && fits(l, doc, true, &q)) {
            of.update_times = times[i].update;
            of.forward_times = times[i].forward;
            keep(l, doc, of, &q);
            phases_free(&q);
        }
        json_decref(doc);
    }
    phases_free(&base);
}

/* ---- all of them ---- */

/* How many layouts are tried with other micro-batches. */
enum { WITH_BATCHES = 2 };

static void try_together(struct layouts *l, int64_t tensor)
{
    static const struct { int sleep; enum role_where between; } ways[] = { { 0, WHERE_DEVICE }, { 1, WHERE_DEVICE }, { 1, WHERE_HOST } };
    const char *engine = l->p->plan.role[l->p->engine].name;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        json_t *doc = json_deep_copy(l->p->doc), *e = role_of(doc, engine);
        json_object_del(e, "cluster");
        json_object_del(doc, "asynchronous");
        json_object_del(doc, "ahead");
        json_object_set_new(e, "tensor", json_integer(tensor));
        json_object_set_new(e, "sleep", json_integer(ways[i].sleep));
        set_trainers(l->p, doc, ways[i].between);
        try_shares(l, doc, (struct phases_layout){ .engine_gpus = l->p->cluster.world_size, .tensor = tensor, .sleep = ways[i].sleep, .between = ways[i].between });
    }
}

static void try_apart(struct layouts *l, int64_t tensor, int64_t engine_gpus)
{
    const struct cluster *c = &l->all;
    int64_t trainers = c->world_size - engine_gpus;
    json_t *doc = json_deep_copy(l->p->doc), *e = role_of(doc, l->p->plan.role[l->p->engine].name);

    if (!phases_resize(l->p, doc, 0, c, trainers)) {
        json_decref(doc);
        return;
    }
    json_object_set_new(e, "cluster", phases_part_of(c, engine_gpus));
    json_object_set_new(e, "tensor", json_integer(tensor));
    json_object_set_new(doc, "asynchronous", json_true());
    set_trainers(l->p, doc, WHERE_DEVICE);
    try_shares(l, doc, (struct phases_layout){ .apart = true, .engine_gpus = engine_gpus, .tensor = tensor, .between = WHERE_DEVICE });
}

/* Eighths of all GPUs to the engine, of few GPUs each number: whole nodes, or of a single node. */
static void try_splits(struct layouts *l, int64_t tensor)
{
    const struct cluster *c = &l->all;
    int64_t parts = c->world_size < 8 ? c->world_size : 8;

    for (int64_t i = 1; i < parts; i++) {
        int64_t gpus = c->world_size * i / parts;
        bool whole = c->nodes == 1 || gpus % c->gpus_per_node == 0;
        if (c->world_size * i % parts == 0 && whole && gpus % tensor == 0)
            try_apart(l, tensor, gpus);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct phases_layout *x = a, *y = b;

    return (x->iteration.s > y->iteration.s) - (x->iteration.s < y->iteration.s);
}

/* Layouts of the trainers' GPUs and the engine's; roles on other GPUs stay there. */
static void search_from(struct layouts *l, const struct phases *p, const char *others)
{
    l->p = p;
    l->others = others;
    if (!phases_all_gpus(p, &l->all))
        return;
    for (int64_t tensor = 1; tensor <= l->all.gpus_per_node; tensor *= 2) {
        if (!role_is_apart(&p->plan.role[p->engine]))
            try_together(l, tensor);
        try_splits(l, tensor);
    }
}

/* "critic on 2" of each place; `except`: on `gpus`. */
static void words_of(const struct phases *p, int except, int64_t gpus, char *out, size_t size)
{
    size_t n = 0;

    *out = '\0';
    for (int i = 1; i < p->plan.nplaces && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s on %" PRId64, n ? ", " : "", p->plan.place[i].name, i == except ? gpus : gpus_at(p, i));
}

/* Other GPUs for the roles that have their own, and all layouts of what that leaves.  Takes the document; NULL: there is none. */
static void search_changed(struct layouts *l, const struct phases *p, json_t *doc, const char *others)
{
    struct phases q;

    l->p = p;
    if (doc && phases_evaluated(l->p, doc, false, &q)) {
        search_from(l, &q, others);
        phases_free(&q);
    }
    json_decref(doc);
}

/* Roles with GPUs of their own stay there, have half or twice as many, or take turns with the trainers on all of them. */
static void search_places(struct layouts *l, const struct phases *p)
{
    char words[sizeof l->out->others];

    words_of(p, 0, 0, words, sizeof words);
    search_from(l, p, words);
    for (int i = 1; i < p->plan.nplaces; i++) {
        int64_t gpus[] = { gpus_at(p, i) / 2, gpus_at(p, i) * 2 };
        for (int k = 0; k < 2; k++) {
            words_of(p, i, gpus[k], words, sizeof words);
            search_changed(l, p, phases_divided(p, i, gpus[k]), words);
        }
    }
    if (p->plan.nplaces > 1)
        search_changed(l, p, phases_joined(p), "all roles");
}

int phases_search(const struct phases *p, struct phases_layout out[PHASE_LAYOUTS], int *tried)
{
    struct layouts l = { .out = out };

    if (p->engine >= 0)
        search_places(&l, p);
    sort_stable(out, (size_t)l.n, sizeof *out, by_time);
    l.p = p;
    for (int i = 0, n = l.n; i < n && i < WITH_BATCHES; i++)
        try_batches(&l, out[i]);
    sort_stable(out, (size_t)l.n, sizeof *out, by_time);
    *tried = l.tried;
    return l.n;
}
