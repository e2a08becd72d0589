/* phases_gpus.c -- a phase plan's roles on more GPUs, fewer, or others: the same samples for an optimizer step. */
#include "sim/plan/phases.h"

#include <string.h>

/* What a node has at most, where parts of one are added. */
enum { NODE_OF_GPUS = 8 };

static json_t *role_of(json_t *doc, const char *name) { return json_object_get(json_object_get(doc, "roles"), name); }
static const struct cluster *gpus_of(const struct phases *p, int place) { return place ? &p->more[place].cluster : &p->cluster; }

/* ---- GPUs ---- */

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

/* Whole nodes, or some GPUs of one. */
static bool is_part(const struct cluster *c, int64_t gpus)
{
    return gpus > 0 && (gpus % c->gpus_per_node == 0 || gpus < c->gpus_per_node);
}

/* Both, as one cluster.  false: these are not of one kind, in one node or in nodes of one size. */
static bool join(struct cluster *to, const struct cluster *b)
{
    const struct cluster a = *to;

    if (strcmp(a.gpu.name, b->gpu.name) != 0 || (a.gpus_per_node != b->gpus_per_node && (a.nodes > 1 || b->nodes > 1)))
        return false;
    bool one = a.nodes == 1 && b->nodes == 1 && a.gpus_per_node + b->gpus_per_node <= NODE_OF_GPUS;
    to->nodes = one ? 1 : a.nodes + b->nodes;
    to->gpus_per_node = one ? a.gpus_per_node + b->gpus_per_node : a.gpus_per_node;
    to->world_size = a.world_size + b->world_size;
    return one || a.gpus_per_node == b->gpus_per_node;
}

bool phases_all_gpus(const struct phases *p, struct cluster *out)
{
    *out = p->cluster;
    return !role_is_apart(&p->plan.role[p->engine]) || join(out, &p->engine_cluster);
}

/* ---- roles ---- */

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

/* The role's plan on `gpus` instead, with the same global batch.  false: it does not divide, or the plan is in a file of its own. */
static bool resize_role(const struct phases *p, json_t *doc, int i, json_t *cluster, int64_t gpus)
{
    const struct phase_role *r = &p->plan.role[i];
    const struct plan *is = &p->role[i].plan;
    json_t *plan = json_object_get(role_of(doc, r->name), r->kind == ROLE_TRAINS ? "train" : "infer");
    int64_t had = gpus_of(p, r->place)->world_size, steps = is->accumulation * had, each = ceil_div(steps, gpus), sharing = had / plan_batch_ranks(is);

    if (json_is_string(plan))
        return json_is_object(r->plan);         /* a name of another role, not of a file */
    if (json_object_get(plan, "cluster"))
        json_object_set(plan, "cluster", cluster);
    if (json_integer_value(json_object_get(plan, "shard_group")) == plan_batch_ranks(is))
        json_object_del(plan, "shard_group");   /* all of them again */
    if (r->kind == ROLE_INFERS)
        return true;
    json_object_set_new(plan, "accumulation", json_integer(each));
    return steps % gpus == 0 || fill_rows(p, doc, i, each * is->micro_batch * gpus / sharing);
}

bool phases_resize(const struct phases *p, json_t *doc, int place, const struct cluster *of, int64_t gpus)
{
    json_t *cluster = phases_part_of(of, gpus);
    bool ok = true;

    json_object_set(place ? json_object_get(doc, "places") : doc, place ? p->plan.place[place].name : "cluster", cluster);
    for (int i = 0; i < p->plan.nroles && ok; i++)
        if (p->plan.role[i].kind != ROLE_IS_ENGINE && p->plan.role[i].place == place)
            ok = resize_role(p, doc, i, cluster, gpus);
    json_decref(cluster);
    return ok;
}

json_t *phases_divided(const struct phases *p, int place, int64_t gpus)
{
    struct cluster both = p->cluster;

    if (!join(&both, gpus_of(p, place)) || !is_part(&both, gpus) || !is_part(&both, both.world_size - gpus))
        return NULL;
    json_t *doc = json_deep_copy(p->doc);
    bool ok = phases_resize(p, doc, place, &both, gpus) && phases_resize(p, doc, 0, &both, both.world_size - gpus);
    if (!ok)
        json_decref(doc);
    return ok ? doc : NULL;
}

json_t *phases_joined(const struct phases *p)
{
    struct cluster all = p->cluster;
    bool ok = true;

    for (int i = 1; i < p->plan.nplaces; i++)
        if (!join(&all, &p->more[i].cluster))
            return NULL;
    json_t *doc = json_deep_copy(p->doc), *cluster = phases_part_of(&all, all.world_size);
    json_object_set(doc, "cluster", cluster);
    json_object_del(doc, "places");
    for (int i = 0; i < p->plan.nroles && ok; i++) {
        json_object_del(role_of(doc, p->plan.role[i].name), "place");
        ok = p->plan.role[i].kind == ROLE_IS_ENGINE || resize_role(p, doc, i, cluster, all.world_size);
    }
    json_decref(cluster);
    if (!ok)
        json_decref(doc);
    return ok ? doc : NULL;
}
