/* phases.c -- see phases.h. */
#include "sim/plan/phases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/form/form.h"
#include "sim/plan/commands.h"
#include "sim/plan/named.h"
#include "sim/plan/phases_replay.h"
#include "sim/plan/phases_role.h"
#include "sim/price/space_cost.h"

/* ---- what is given ---- */

/* "roles.engine.sleep=1": the value as JSON has it, else a text, which a version is, too. */
static int set_key(json_t *doc, const char *pair)
{
    const char *value = strchr(pair, '=');
    char key[200];

    if (!value || value == pair || (size_t)(value - pair) >= sizeof key)
        return fail("--set: \"%.80s\" is not KEY=VALUE", pair);
    snprintf(key, sizeof key, "%.*s", (int)(value - pair), pair);
    char *at = key, *dot;
    for (; (dot = strchr(at, '.')); at = dot + 1) {
        *dot = '\0';
        json_t *next = json_object_get(doc, at);
        if (!next)
            json_object_set_new(doc, at, next = json_object());
        if (!json_is_object(next))
            return fail("--set: %.80s: %s is no object", pair, at);
        doc = next;
    }
    json_t *v = json_loads(value + 1, JSON_DECODE_ANY, NULL);
    if (!strcmp(at, "version") && !json_is_string(v)) {
        json_decref(v);
        v = NULL;
    }
    json_object_set_new(doc, at, v ? v : json_string(value + 1));
    return 0;
}

/* Of a recipe "roles.engine.sleep" is a key of the plan that it becomes: no framework's file has "roles". */
static bool is_of_roles(const char *pair) { return !strncmp(pair, "roles.", 6); }

static int set_keys(const struct opt_pairs *set, struct form_file *f)
{
    json_t *doc = json_deep_copy(f->doc);
    bool own = json_object_get(doc, "dpx_phases") != NULL;

    json_decref(f->doc);
    f->doc = doc;
    for (int i = 0; i < set->n; i++)
        if ((own || !is_of_roles(set->at[i])) && set_key(doc, set->at[i]) < 0)
            return -1;
    return 0;
}

static json_t *with_roles(const struct opt_pairs *set, json_t *doc)
{
    for (int i = 0; doc && i < set->n; i++)
        if (is_of_roles(set->at[i]) && set_key(doc, set->at[i]) < 0) {
            json_decref(doc);
            return NULL;
        }
    return doc;
}

/* The document of a phase plan, or of a file that becomes one.  NULL: reported. */
static json_t *document_of(const struct phases_asked *a, struct phases *p)
{
    struct form_file f;
    json_t *doc = NULL;

    snprintf(p->where, sizeof p->where, "%s", a->plan.path ? a->plan.path : "phases");
    if (a->plan.doc)
        form_from_doc(a->plan.doc, p->where, &f);
    else if (form_open(a->plan.path, &f) < 0)
        return NULL;
    if (f.doc && a->set.n > 0 && set_keys(&a->set, &f) < 0) {
        form_close(&f);
        return NULL;
    }
    bool own = json_object_get(f.doc, "dpx_phases") != NULL;
    if (a->accelerate_doc) {
        json_decref(f.launch);
        f.launch = json_incref((json_t *)(uintptr_t)a->accelerate_doc);
    } else if (a->accelerate && form_launch(&f, a->accelerate) < 0) {
        form_close(&f);
        return NULL;
    }
    if (own && (f.launch || a->plan.cluster || a->plan.cluster_doc || a->plan.model || a->plan.model_doc || a->plan.seq || a->response))
        fail("%s: a phase plan has its own cluster, models and lengths: leave out --cluster, --model, --seq, --response and --accelerate", p->where);
    else if (own)
        doc = json_incref(f.doc);
    else if (phases_imports(&f))
        doc = with_roles(&a->set, phases_import(a, &f, &p->notes));
    else
        phases_not_read(&f);
    form_close(&f);
    return doc;
}

static int find_engine(const struct phase_plan *p)
{
    for (int i = 0; i < p->nroles; i++)
        if (p->role[i].kind == ROLE_IS_ENGINE)
            return i;
    return -1;
}

static int first_trainer(const struct phase_plan *p)
{
    for (int i = 0; i < p->nroles; i++)
        if (p->role[i].kind == ROLE_TRAINS)
            return i;
    return 0;
}

static int load_cluster(const json_t *j, const char *where, struct cluster *out)
{
    return json_is_string(j) ? cluster_load(json_string_value(j), out) : cluster_from_json(j, where, out);
}

/* The engine's model and GPUs: its own, or the first trainer's. */
static int open_engine(struct phases *p)
{
    const struct phase_role *r = &p->plan.role[p->engine];
    const struct plan *trainer = &p->role[first_trainer(&p->plan)].plan;

    if (r->model) {
        if ((json_is_string(r->model) ? named_model(json_string_value(r->model), NULL, &p->engine_model) :
             named_model(NULL, r->model, &p->engine_model)) < 0)
            return -1;
        p->engine_open = true;
    } else
        p->engine_model = trainer->model;       /* shared: not freed */
    p->engine_cluster = p->cluster;
    if (r->cluster && load_cluster(r->cluster, p->where, &p->engine_cluster) < 0)
        return -1;
    engine_fill(&p->plan.role[p->engine].engine, &p->engine_cluster.gpu);
    return 0;
}

/* ---- figures ---- */

/* GPU memory that something else than the trainers' process and the engine has: headroom aside. */
static void take_room(const struct phases_asked *a, struct phases *p)
{
    const struct cluster *c = &p->cluster;

    p->limit = c->memory - c->context;
    p->available = cluster_available(c);
    if (a->host_memory)
        p->cluster.node.memory = a->host_memory;
    for (int i = 1; i < p->plan.nplaces; i++) {
        struct phases_place *m = &p->more[i];
        m->limit = m->cluster.memory - m->cluster.context;
        m->available = cluster_available(&m->cluster);
        if (a->host_memory)
            m->cluster.node.memory = a->host_memory;
    }
}

/* Seconds of `times` of them. */
static struct cost times_of(const struct cost *one, double times)
{
    return (struct cost){ .s = one->s * times, .low_s = one->low_s * times, .high_s = one->high_s * times, .basis = one->basis };
}

/* Samples are planned as long as they may be, and take as much less as they are shorter on average where a framework leaves padding out: where it is
 * not said that it does, that is the interval's lower end alone. */
static struct cost as_long_as_they_are(const struct phases *p, int role, struct cost c)
{
    double tokens = p->plan.prompt + p->plan.response.mean, share = tokens / (double)p->role[role].plan.seq;

    c.low_s *= p->plan.response.mean > 0 && share < 1 ? share : 1;
    return c;
}

static int64_t samples_of(const struct phases *p, const struct phase_step *s) { return s->samples ? s->samples : p->plan.samples; }

/* Without padding; the upper end stays as it is with it. */
static int do_short_forward(struct phases *p, int k, int64_t micro, const char *db)
{
    int role = p->plan.step[k].role;
    struct phases_rows of = phases_rows_of(p, role, micro, samples_of(p, &p->plan.step[k]));
    struct cost first, next;

    if (phases_short_forward(p, role, micro, of.seq, db, &first, &next) < 0)
        return -1;
    p->times[k] = ceil_div(of.rows, plan_batch_ranks(&p->role[role].plan));
    struct cost rest = times_of(&next, (double)(p->times[k] - 1)), all = phases_sum_of(&first, &rest);
    all.high_s = fmax(all.high_s, p->time[k].high_s);
    p->time[k] = all;
    return 0;
}

static int do_forward(struct phases *p, int k, const char *db, int64_t own[])
{
    const struct phase_step *s = &p->plan.step[k];
    const struct plan *plan = &p->role[s->role].plan;
    int64_t micro = s->micro_batch ? s->micro_batch : plan->micro_batch, ranks = plan_batch_ranks(plan);
    struct forward f;

    if (phases_role_forward(p, k, s->role, micro, db, &f) < 0)
        return -1;
    p->times[k] = ceil_div(samples_of(p, s), micro * ranks);
    struct cost rest = times_of(&f.next, (double)(p->times[k] - 1));
    p->time[k] = phases_sum_of(&f.time, &rest);
    own[k] = f.peak + p->bytes[s->role].other;
    if (phases_is_short(p, s->role))
        return do_short_forward(p, k, micro, db);
    p->time[k] = as_long_as_they_are(p, s->role, p->time[k]);
    return 0;
}

static void do_update(struct phases *p, int k, int64_t own[])
{
    const struct phase_step *s = &p->plan.step[k];
    const struct phases_role *r = &p->role[s->role];

    p->times[k] = ceil_div(samples_of(p, s), plan_global_batch(&r->plan)) * s->epochs;
    bool is_short = phases_is_short(p, s->role) && s->samples == 0;                 /* so many are rows, which are full */
    struct cost all = times_of(is_short ? &r->short_step : &r->step, (double)p->times[k]);
    p->time[k] = s->samples || is_short ? all : as_long_as_they_are(p, s->role, all);
    own[k] = p->bytes[s->role].update;
}

/* A reference model's forward in each micro-step, behind that of the model that trains and before its backward (trl/trainer/dpo_trainer.py:
 * _compute_loss()): on top of what the first one keeps for backward. */
static int do_beside(struct phases *p, int k, const char *db, int64_t own[])
{
    const struct phase_step *s = &p->plan.step[k];
    const struct phases_role *r = &p->role[s->role];
    struct forward f;

    if (phases_role_forward(p, k, s->beside, r->plan.micro_batch, db, &f) < 0)
        return -1;
    struct cost all = times_of(&f.time, (double)(p->times[k] * r->plan.accumulation * s->forwards));
    int64_t both = r->kept + s->held + f.peak - f.params;
    p->time[k] = phases_sum_of(&p->time[k], &all);
    own[k] = both > own[k] ? both : own[k];
    return 0;
}

static int do_hand_over(struct phases *p, int k, int64_t own[])
{
    const struct phase_step *s = &p->plan.step[k];
    const struct plan *plan = &p->role[s->role].plan;
    const struct phase_role *engine = &p->plan.role[s->to];
    bool apart = role_is_apart(engine) || p->plan.role[s->role].place != engine->place;

    struct cluster both;
    bool joined = phases_all_gpus(p, &both);
    struct handover_way way = { .apart = apart ? &both : NULL, .bucket = s->bucket, .overlapped = s->overlapped && joined };

    if (handover_of(plan, &engine->engine, dtype_bytes(plan_recipe(plan).kept), &way, &p->handover) < 0)
        return -1;
    p->hands_over = true;
    p->time[k] = p->handover.time;
    own[k] = p->bytes[s->role].params + p->bytes[s->role].other + p->handover.peak;
    return 0;
}

/* Peaks of what acts, before the engine is known. */
static int do_steps(struct phases *p, const char *db, int64_t own[])
{
    for (int k = 0; k < p->plan.nsteps; k++) {
        const struct phase_step *s = &p->plan.step[k];
        own[k] = 0;
        if (s->does == DOES_FORWARD && do_forward(p, k, db, own) < 0)
            return -1;
        if (s->does == DOES_UPDATE)
            do_update(p, k, own);
        if (s->beside >= 0 && do_beside(p, k, db, own) < 0)
            return -1;
        if (s->does == DOES_NOTHING)
            p->time[k] = (struct cost){ .s = s->seconds, .low_s = s->seconds, .high_s = s->seconds, .basis = BASIS_MEASURED };
    }
    for (int k = 0; k < p->plan.nsteps; k++)
        if (p->plan.step[k].does == DOES_HAND_OVER && do_hand_over(p, k, own) < 0)
            return -1;
    return 0;
}

/* What the trainers' process holds when the engine generates: it is what an engine finds taken.  One that never sleeps was there before the first
 * training step: no cache was yet. */
static int64_t others_of(const struct phases *p)
{
    bool first = p->plan.role[p->engine].engine.sleep == 0;
    int64_t most = 0;

    for (int k = 0; k < p->plan.nsteps; k++) {
        int64_t held = (first ? p->moment[k].live : p->moment[k].reserved) + p->moment[k].outside;
        if (p->plan.step[k].does == DOES_GENERATE && held > most)
            most = held;
    }
    return most + p->cluster.gpu.context;
}

static int serve(struct phases *p, const int64_t own[])
{
    const struct phase_role *r = &p->plan.role[p->engine];
    struct role_bytes *b = &p->bytes[p->engine];

    moments_of(&p->plan, p->bytes, own, &p->replayed[0], 0, p->moment);
    if (engine_memory_of(&r->engine, &p->engine_model, &p->engine_cluster, role_is_apart(r) ? 0 : others_of(p), &p->served) < 0)
        return -1;
    b->awake = p->served.awake;
    b->loading = p->served.loading;
    b->asleep = p->served.asleep;
    b->host = p->served.host;
    return 0;
}

/* Each engine has its share of the responses.  Where its KV cache has no room that is why nothing fits. */
static void do_generate(struct phases *p, int k)
{
    const struct engine *e = &p->plan.role[p->engine].engine;
    int64_t engines = p->engine_cluster.world_size / engine_ranks(e), samples = samples_of(p, &p->plan.step[k]) * p->plan.ahead;
    char why[sizeof p->no_generation] = "";
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = generate(e, &p->served, &p->engine_model, &p->engine_cluster, ceil_div(samples, engines), samples, p->plan.of_prompt, p->plan.prompt, &p->plan.response,
                      &p->generation);

    fail_restore(before);
    if (rc == 0) {
        p->time[k] = times_of(&p->generation.time, 1 / (double)p->plan.ahead);
        p->generates = true;
    } else if (!p->no_generation[0])
        snprintf(p->no_generation, sizeof p->no_generation, "%s", why);
}

/* What has to come or go before a phase begins. */
static void add_moves_of(struct phases *p, int place, const struct moment *m)
{
    const struct plan *any = NULL;

    for (int i = 0; i < p->plan.nroles && !any; i++)
        any = p->role[i].planned && p->plan.role[i].place == place ? &p->role[i].plan : NULL;
    for (int k = 0; any && k < p->plan.nsteps; k++) {
        struct cost c = space_cost_moved(any, m[k].moved), fresh = space_cost_touched(m[k].anew), swapped = space_cost_pinned(any, m[k].swapped);
        if (m[k].moved + m[k].swapped == 0)
            continue;
        c = phases_sum_of(&c, &fresh);
        c = phases_sum_of(&c, &swapped);
        p->moves_s += c.s;
        p->moves[k] = c;
        p->time[k] = phases_sum_of(&p->time[k], &c);
    }
}

static void add_moves(struct phases *p)
{
    add_moves_of(p, 0, p->moment);
    for (int i = 1; i < p->plan.nplaces; i++)
        add_moves_of(p, i, p->more[i].moment);
}

/* ---- the answer ---- */

/* Host memory of a node in its fullest phase: what sleeps there, and what plans keep there themselves. */
static int take_host_of(const struct phases *p, int place, const struct cluster *c, const struct moment *m, int64_t *host, int64_t *available)
{
    int64_t rank = 0, own = 0;

    for (int k = 0; k < p->plan.nsteps; k++)
        rank = m[k].host > rank ? m[k].host : rank;
    for (int i = 0; i < p->plan.nroles; i++)
        own += p->plan.role[i].kind == ROLE_IS_ENGINE || p->plan.role[i].place != place ? 0 : p->bytes[i].host;
    *host = rank * c->gpus_per_node + own;
    return *host == 0 ? 0 : cluster_host_memory(c, available);
}

static int take_host(struct phases *p)
{
    int rc = take_host_of(p, 0, &p->cluster, p->moment, &p->host, &p->host_available);

    for (int i = 1; i < p->plan.nplaces && rc == 0; i++)
        rc = take_host_of(p, i, &p->more[i].cluster, p->more[i].moment, &p->more[i].host, &p->more[i].host_available);
    return rc;
}

static void judge_engine(struct phases *p)
{
    const struct phase_role *r = &p->plan.role[p->engine];
    const struct engine_memory *m = &p->served;
    int64_t limit = p->engine_cluster.memory - p->engine_cluster.gpu.reserved;

    if (p->no_generation[0])
        snprintf(p->why_not, sizeof p->why_not, "%s", p->no_generation);
    else if (!m->starts)
        snprintf(p->why_not, sizeof p->why_not, "%s takes %s (%s %g of all memory), and less than that is free when it starts", engine_kind_name(r->engine.kind),
                 size_text(m->share).s, engine_share_name(r->engine.kind), r->engine.share);
    else if (role_is_apart(r) && m->awake > limit)
        snprintf(p->why_not, sizeof p->why_not, "%s needs %s of %s on its own GPUs", engine_kind_name(r->engine.kind), size_text(m->awake).s, size_text(limit).s);
}

/* GPUs beside the first ones. */
static void judge_place(struct phases *p, int i)
{
    const struct phases_place *m = &p->more[i];
    int64_t needed = m->moment[m->largest].needed;
    const char *name = p->plan.place[i].name;

    if (p->why_not[0])
        return;
    if (needed > m->limit)
        snprintf(p->why_not, sizeof p->why_not, "on %s \"%s\" needs %s of a GPU's %s: %s too much", name, p->plan.step[m->largest].name, size_text(needed).s,
                 size_text(m->limit).s, size_text(needed - m->limit).s);
    else if (m->host > m->host_available)
        snprintf(p->why_not, sizeof p->why_not, "on %s %s sleep in the host memory of a node, which has %s", name, size_text(m->host).s,
                 size_text(m->host_available).s);
    for (int k = 0; k < p->plan.nsteps; k++)
        p->tight |= m->moment[k].taken > m->available;
}

/* The allocator gives its cache back, and a request finds no room all the same: what is free lies in pieces. */
static void judge_pieces(struct phases *p)
{
    for (int i = 0; i < p->plan.nplaces && !p->why_not[0]; i++)
        for (int process = 0; process <= p->plan.nroles && !p->why_not[0]; process++) {
            int k = p->replayed[i].no_room[process] - 1;
            const struct moment *m = i ? p->more[i].moment : p->moment;
            int64_t limit = i ? p->more[i].limit : p->limit;
            if (k >= 0)
                snprintf(p->why_not, sizeof p->why_not, "\"%s\": PyTorch's allocator runs out of memory: %s of %s are needed, but what is free lies in pieces",
                         p->plan.step[k].name, size_text(m[k].needed).s, size_text(limit).s);
        }
}

static void judge(struct phases *p)
{
    const struct moment *m = &p->moment[p->largest];
    const char *name = p->plan.step[p->largest].name;

    if (m->needed > p->limit)
        snprintf(p->why_not, sizeof p->why_not, "\"%s\" needs %s of a GPU's %s: %s too much", name, size_text(m->needed).s, size_text(p->limit).s,
                 size_text(m->needed - p->limit).s);
    else if (p->engine >= 0)
        judge_engine(p);
    if (!p->why_not[0] && p->host > p->host_available)
        snprintf(p->why_not, sizeof p->why_not, "%s sleep in the host memory of a node, which has %s", size_text(p->host).s, size_text(p->host_available).s);
    for (int i = 1; i < p->plan.nplaces; i++)
        judge_place(p, i);
    judge_pieces(p);
    p->fits = !p->why_not[0];
    for (int k = 0; k < p->plan.nsteps; k++)
        p->tight |= p->moment[k].taken > p->available;
    p->tight &= p->fits;
}

/* Room is left for the context of one process of the trainers. */
static void take_contexts(struct phases *p)
{
    bool first[PHASE_PLACES] = { false };

    for (int i = 0; i < p->plan.nroles; i++)
        first[p->plan.role[i].place] |= p->plan.role[i].kind != ROLE_IS_ENGINE && !p->plan.role[i].own_process;
    for (int i = 0; i < p->plan.nroles; i++) {
        int place = p->plan.role[i].place;
        if (p->plan.role[i].kind == ROLE_IS_ENGINE || !p->plan.role[i].own_process)
            continue;
        p->bytes[i].context = first[place] ? (place ? p->more[place].cluster : p->cluster).gpu.context : 0;
        first[place] = true;
    }
}

static void take_moments(struct phases *p, const int64_t *own)
{
    moments_of(&p->plan, p->bytes, own, &p->replayed[0], 0, p->moment);
    p->largest = moments_largest(&p->plan, p->moment);
    for (int i = 1; i < p->plan.nplaces; i++) {
        moments_of(&p->plan, p->bytes, own, &p->replayed[i], i, p->more[i].moment);
        p->more[i].largest = moments_largest(&p->plan, p->more[i].moment);
    }
}

static int figures(const struct phases_asked *a, struct phases *p, bool timed)
{
    int64_t own[PHASE_STEPS];

    take_room(a, p);
    take_contexts(p);
    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].kind != ROLE_IS_ENGINE && phases_role_figures(p, i, a->db, timed) < 0)
            return -1;
    if (do_steps(p, a->db, own) < 0 || phases_replay(p) < 0 || (p->engine >= 0 && serve(p, own) < 0))
        return -1;
    take_moments(p, own);
    int within = phases_replay_within(p);
    if (within < 0)
        return -1;
    if (within)
        take_moments(p, own);
    for (int k = 0; k < p->plan.nsteps; k++)
        if (p->plan.step[k].does == DOES_GENERATE)
            do_generate(p, k);
    add_moves(p);
    phases_iterate(p);
    if (take_host(p) < 0)
        return -1;
    judge(p);
    return 0;
}

/* What is generated is trained on. */
static int check_lengths(const struct phases *p)
{
    double longest = p->plan.prompt + p->plan.response.longest;

    for (int i = 0; i < p->plan.nroles; i++)
        if (p->role[i].planned && p->plan.response.longest > 0 && (double)p->role[i].plan.seq < longest)
            return fail("%s: roles.%s: seq %" PRId64 " is shorter than a prompt and the longest response, %.0f tokens", p->where, p->plan.role[i].name,
                        p->role[i].plan.seq, longest);
    return 0;
}

/* An engine has the shape of what hands its weights over; adapters are merged into it. */
static int check_shapes(const struct phases *p)
{
    const struct model *e = &p->engine_model;

    for (int k = 0; k < p->plan.nsteps; k++) {
        const struct phase_step *s = &p->plan.step[k];
        if (s->does != DOES_HAND_OVER)
            continue;
        const struct model *m = &p->role[s->role].plan.model;
        if (m->layers != e->layers || m->hidden != e->hidden || m->vocab != e->vocab || m->experts != e->experts || m->ffn != e->ffn)
            return fail("%s: phases: %s: %s is %s, and the engine serves %s: weights are handed over between copies of one model", p->where, s->name,
                        p->plan.role[s->role].name, m->name, e->name);
    }
    return 0;
}

/* An iteration has at least one step of the optimizer. */
static int check_batches(const struct phases *p)
{
    for (int k = 0; k < p->plan.nsteps; k++) {
        const struct phase_step *s = &p->plan.step[k];
        int64_t samples = s->samples ? s->samples : p->plan.samples;
        if (s->does != DOES_UPDATE)
            continue;
        const struct plan *plan = &p->role[s->role].plan;           /* its last micro-step may have fewer samples */
        if (samples * s->epochs + plan->micro_batch * plan_batch_ranks(plan) <= plan_global_batch(plan))
            return fail("%s: phases: %s: %" PRId64 " samples are fewer than a step of %s takes, %" PRId64 ": generation for a part of a step is not planned", p->where,
                        s->name, samples * s->epochs, p->plan.role[s->role].name, plan_global_batch(&p->role[s->role].plan));
    }
    return 0;
}

/* GPUs that no role is on would be paid for and said to be nobody's. */
static int open_places(struct phases *p)
{
    for (int i = 1; i < p->plan.nplaces; i++) {
        bool used = false;
        for (int k = 0; k < p->plan.nroles; k++)
            used |= p->plan.role[k].place == i;
        if (!used)
            return fail("%s: places: no role is on \"%s\"", p->where, p->plan.place[i].name);
        if (load_cluster(p->plan.place[i].cluster, p->where, &p->more[i].cluster) < 0)
            return -1;
    }
    return 0;
}

static int open_plan(struct phases *p)
{
    if (phase_plan_read(p->doc, p->where, &p->plan) < 0 || load_cluster(p->plan.cluster, p->where, &p->cluster) < 0 || open_places(p) < 0)
        return -1;
    p->engine = find_engine(&p->plan);
    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].kind != ROLE_IS_ENGINE && phases_role_plan(p, i) < 0)
            return -1;
    return check_lengths(p) < 0 || check_batches(p) < 0 || (p->engine >= 0 && open_engine(p) < 0) || phases_role_check_responses(p) < 0 ? -1 : check_shapes(p);
}

int phases_answer(const struct phases_asked *a, struct phases *out)
{
    memset(out, 0, sizeof *out);
    out->engine = -1;
    out->db = a->db;
    out->search = a->search;
    if (!(out->doc = document_of(a, out)))
        return EXIT_MISUSE;
    if (open_plan(out) < 0 || figures(a, out, true) < 0) {
        phases_free(out);
        return EXIT_MISUSE;
    }
    if (a->search && (out->engine < 0 || !phases_all_gpus(out, &(struct cluster){ .nodes = 0 }))) {
        phases_free(out);
        fail("%s: --search tries an engine beside the trainers and apart: give a plan with an engine whose GPUs and theirs are one node, or nodes of one size", out->where);
        return EXIT_MISUSE;
    }
    notes_print(&out->notes, out->where);
    return out->fits ? EXIT_DONE : EXIT_NO;
}

int phases_changed(const struct phases *base, json_t *doc, bool timed, struct phases *out)
{
    struct phases_asked a = PHASES_ASKED;

    memset(out, 0, sizeof *out);
    out->engine = -1;
    out->doc = json_incref(doc);
    snprintf(out->where, sizeof out->where, "%s", base->where);
    a.host_memory = base->cluster.node.memory;
    a.db = base->db;
    if (open_plan(out) == 0 && figures(&a, out, timed) == 0)
        return 0;
    phases_free(out);
    return -1;
}

void phases_free(struct phases *p)
{
    for (int k = 0; k < PHASE_STEPS; k++)
        phases_drop(&p->forward[k].as, &p->forward[k].is);
    for (int i = 0; i < PHASE_ROLES; i++) {
        phases_drop(NULL, &p->role[i].is);
        if (p->role[i].planned)
            plan_free(&p->role[i].plan);
    }
    if (p->engine_open)
        model_free(&p->engine_model);
    json_decref(p->doc);
}
