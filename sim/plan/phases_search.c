/* phases_search.c -- other layouts of a phase plan on the same GPUs: together or apart, who sleeps where, the engine's ranks and share, and of the
 * fastest ones the micro-batches of updates and forwards. */
#include "sim/plan/phases.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sort.h"

/* The engine's share is tried from the largest down. */
static const double shares[] = { 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2 };
enum { SHARES = sizeof shares / sizeof *shares };

/* What a node has at most, where parts of one are added. */
enum { NODE_OF_GPUS = 8 };

struct layouts { const struct phases *p; struct cluster all; struct phases_layout *out; int n, tried; };

static json_t *role_of(json_t *doc, const char *name) { return json_object_get(json_object_get(doc, "roles"), name); }

/* ---- one layout ---- */

json_t *phases_part_of(const struct cluster *c, int64_t gpus)
{
    json_t *j = cluster_to_json(c);
    bool nodes = gpus % c->gpus_per_node == 0;

    json_object_del(j, "name");
    json_object_del(j, "world_size");
    json_object_set_new(j, "nodes", json_integer(nodes ? gpus / c->gpus_per_node : 1));
    json_object_set_new(j, "gpus_per_node", json_integer(nodes ? c->gpus_per_node : gpus));
    return j;
}

bool phases_all_gpus(const struct phases *p, struct cluster *out)
{
    const struct cluster *a = &p->cluster, *b = &p->engine_cluster;

    *out = *a;
    if (!role_is_apart(&p->plan.role[p->engine]))
        return true;
    if (strcmp(a->gpu.name, b->gpu.name) != 0 || (a->gpus_per_node != b->gpus_per_node && (a->nodes > 1 || b->nodes > 1)))
        return false;
    bool one = a->nodes == 1 && b->nodes == 1 && a->gpus_per_node + b->gpus_per_node <= NODE_OF_GPUS;
    out->nodes = one ? 1 : a->nodes + b->nodes;
    out->gpus_per_node = one ? a->gpus_per_node + b->gpus_per_node : a->gpus_per_node;
    out->world_size = a->world_size + b->world_size;
    return one || a->gpus_per_node == b->gpus_per_node;
}

/* Updates that say how many rows they take (samples packed into rows, as many on each rank) take as many as fill the last micro-step. */
static bool fill_rows(const struct phases *p, json_t *doc, int role, int64_t rows)
{
    bool any = false;

    for (int k = 0; k < p->plan.nsteps; k++) {
        const struct phase_step *s = &p->plan.step[k];
        if (s->does != DOES_UPDATE || s->role != role || s->samples == 0)
            continue;
        json_object_set_new(json_array_get(json_object_get(doc, "phases"), (size_t)k), "samples", json_integer(rows));
        any = true;
    }
    return any;
}

/* Plans of roles on other GPUs, with the same global batch.  false: it does not divide, or a plan is in a file of its own. */
static bool shrink_trainers(const struct layouts *l, json_t *doc, int64_t gpus)
{
    const struct phases *p = l->p;
    json_t *cluster = phases_part_of(&l->all, gpus);
    bool ok = true;

    json_object_set(doc, "cluster", cluster);
    for (int i = 0; i < p->plan.nroles && ok; i++) {
        const struct phase_role *r = &p->plan.role[i];
        json_t *plan = json_object_get(role_of(doc, r->name), r->kind == ROLE_TRAINS ? "train" : "infer");
        int64_t steps = p->role[i].plan.accumulation * p->cluster.world_size;
        if (r->kind == ROLE_IS_ENGINE || json_is_string(plan)) {
            ok = r->kind == ROLE_IS_ENGINE || json_is_object(r->plan);      /* a name of another role, not of a file */
            continue;
        }
        int64_t each = ceil_div(steps, gpus), micro = p->role[i].plan.micro_batch, sharing = p->cluster.world_size / plan_batch_ranks(&p->role[i].plan);
        ok = r->kind == ROLE_INFERS || steps % gpus == 0 || fill_rows(p, doc, i, each * micro * gpus / sharing);
        if (r->kind == ROLE_TRAINS)
            json_object_set_new(plan, "accumulation", json_integer(each));
        if (json_object_get(plan, "cluster"))
            json_object_set(plan, "cluster", cluster);
        if (json_integer_value(json_object_get(plan, "shard_group")) == plan_batch_ranks(&p->role[i].plan))
            json_object_del(plan, "shard_group");       /* all of them again */
    }
    json_decref(cluster);
    return ok;
}

static void set_trainers(const struct phases *p, json_t *doc, enum role_where between)
{
    for (int i = 0; i < p->plan.nroles; i++) {
        const struct phase_role *r = &p->plan.role[i];
        if (r->kind == ROLE_IS_ENGINE)
            continue;
        json_object_set_new(role_of(doc, r->name), "between", json_string(role_where_name(between)));
        json_object_set_new(role_of(doc, r->name), "empties_cache", json_true());
    }
}

/* The share of all GPU time in which a GPU has nothing to do: where engine and trainers are apart. */
static double idle_of(const struct phases *q, int64_t engine_gpus, int64_t trainers)
{
    double generates = 0, others = 0, all = q->iteration.s * (double)(engine_gpus + trainers);

    for (int k = 0; k < q->plan.nsteps; k++)
        *(q->plan.step[k].does == DOES_GENERATE ? &generates : &others) += q->time[k].s;
    return engine_gpus ? 1 - (generates * (double)engine_gpus + others * (double)trainers) / all : 0;
}

/* Evaluates the document, silently.  1: it fits; 0: it does not, or is refused. */
static bool fits(struct layouts *l, json_t *doc, bool timed, struct phases *out)
{
    char why[1024];
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *notes = json_array(), *notes_before = notes_divert(notes);
    int rc = phases_changed(l->p, doc, timed, out);

    fail_restore(before);
    notes_divert(notes_before);
    json_decref(notes);
    l->tried++;
    if (rc == 0 && !out->fits)
        phases_free(out);
    return rc == 0 && out->fits;
}

/* A layout that fits, with its figures. */
static void keep(struct layouts *l, json_t *doc, struct phases_layout of, const struct phases *q, int64_t trainers)
{
    of.doc = json_incref(doc);
    of.iteration = q->iteration;
    of.idle = idle_of(q, of.apart ? of.engine_gpus : 0, trainers);
    of.needed = q->moment[q->largest].needed;
    of.tight = q->tight;
    l->out[l->n++] = of;
}

/* The document with the largest share that fits; takes it. */
static void try_shares(struct layouts *l, json_t *doc, struct phases_layout of, int64_t trainers)
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
        keep(l, doc, of, &q, trainers);
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
static void try_batches(struct layouts *l, struct phases_layout of, int64_t trainers)
{
    static const struct { int64_t update, forward; } times[] = { { 1, 2 }, { 1, 4 }, { 2, 2 }, { 2, 4 }, { 4, 4 } };
    json_t *from = of.doc;

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        json_t *doc = json_deep_copy(from);
        struct phases q;
        if (l->n < PHASE_LAYOUTS && scale_batches(l->p, doc, times[i].update, times[i].forward) && fits(l, doc, true, &q)) {
            of.update_times = times[i].update;
            of.forward_times = times[i].forward;
            keep(l, doc, of, &q, trainers);
            phases_free(&q);
        }
        json_decref(doc);
    }
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
        json_object_set_new(e, "tensor", json_integer(tensor));
        json_object_set_new(e, "sleep", json_integer(ways[i].sleep));
        set_trainers(l->p, doc, ways[i].between);
        try_shares(l, doc, (struct phases_layout){ .engine_gpus = l->p->cluster.world_size, .tensor = tensor, .sleep = ways[i].sleep, .between = ways[i].between },
                   l->p->cluster.world_size);
    }
}

static void try_apart(struct layouts *l, int64_t tensor, int64_t engine_gpus)
{
    const struct cluster *c = &l->all;
    int64_t trainers = c->world_size - engine_gpus;
    json_t *doc = json_deep_copy(l->p->doc), *e = role_of(doc, l->p->plan.role[l->p->engine].name);

    if (!shrink_trainers(l, doc, trainers)) {
        json_decref(doc);
        return;
    }
    json_object_set_new(e, "cluster", phases_part_of(c, engine_gpus));
    json_object_set_new(e, "tensor", json_integer(tensor));
    json_object_set_new(doc, "asynchronous", json_true());
    set_trainers(l->p, doc, WHERE_DEVICE);
    try_shares(l, doc, (struct phases_layout){ .apart = true, .engine_gpus = engine_gpus, .tensor = tensor, .between = WHERE_DEVICE }, trainers);
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

int phases_search(const struct phases *p, struct phases_layout out[PHASE_LAYOUTS], int *tried)
{
    struct layouts l = { .p = p, .out = out };
    bool known = p->engine >= 0 && phases_all_gpus(p, &l.all);

    for (int64_t tensor = 1; known && tensor <= l.all.gpus_per_node; tensor *= 2) {
        if (!role_is_apart(&p->plan.role[p->engine]))
            try_together(&l, tensor);
        try_splits(&l, tensor);
    }
    sort_stable(out, (size_t)l.n, sizeof *out, by_time);
    for (int i = 0, n = l.n; i < n && i < WITH_BATCHES; i++)
        try_batches(&l, out[i], l.all.world_size - (out[i].apart ? out[i].engine_gpus : 0));
    sort_stable(out, (size_t)l.n, sizeof *out, by_time);
    *tried = l.tried;
    return l.n;
}
