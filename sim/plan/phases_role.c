/* phases_role.c -- see phases_role.h. */
#include "sim/plan/phases_role.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "model/plan/experts_check.h"
#include "sim/clock/simulate.h"
#include "sim/plan/commands.h"

/* ---- its plan ---- */

/* What the role's object leaves out. */
static json_t *whole_plan(const struct phases *p, const json_t *plan, int place)
{
    json_t *doc = json_copy((json_t *)(uintptr_t)plan);

    if (!json_object_get(doc, "dpx_plan"))
        json_object_set_new(doc, "dpx_plan", json_integer(1));
    if (!json_object_get(doc, "cluster"))
        json_object_set(doc, "cluster", (json_t *)(uintptr_t)p->plan.place[place].cluster);
    return doc;
}

int phases_role_plan(struct phases *p, int i)
{
    const struct phase_role *r = &p->plan.role[i];
    char where[260];
    struct plan_given given = { .path = where };

    snprintf(where, sizeof where, "%s: roles.%s", p->where, r->name);
    json_t *doc = json_is_object(r->plan) ? whole_plan(p, r->plan, r->place) : NULL;
    if (doc)
        given.doc = doc;
    else
        given.path = json_string_value(r->plan);
    int rc = plan_source_given(&given, NULL, &p->role[i].plan);
    json_decref(doc);
    if (rc < 0)
        return -1;
    p->role[i].planned = true;
    const struct cluster *a = r->place ? &p->more[r->place].cluster : &p->cluster, *b = &p->role[i].plan.cluster;
    if (a->world_size != b->world_size || a->gpus_per_node != b->gpus_per_node || strcmp(a->gpu.name, b->gpu.name) != 0)
        return fail("%s: its plan is for %s, and its GPUs are %s: roles of a place share all its GPUs", where, b->name, a->name);
    if (p->role[i].plan.kernels == KERNELS_DPX)
        return fail("%s: kernels dpx: phases are planned with those of PyTorch", where);
    return 0;
}

/* ---- its figures ---- */

static bool is_gradient(int c) { return c == CAT_GRADS || c == CAT_UNSHARDED_GRADS || c == CAT_BUCKET; }

/* Beside weights and states; `freed`: without gradients. */
static int64_t rest_of(const int64_t persistent[NCAT], bool freed)
{
    int64_t sum = 0;

    for (int c = 0; c < NCAT; c++)
        sum += c == CAT_PARAMS || c == CAT_OPTIMIZER || (freed && is_gradient(c)) ? 0 : persistent[c];
    return sum;
}

static void take_figures(const struct evaluation *e, const struct phases_role *r, bool freed, struct role_bytes *b)
{
    const int64_t *persistent = e->m.ledger.persistent;

    b->params = persistent[CAT_PARAMS];
    b->states = persistent[CAT_OPTIMIZER];
    b->other = rest_of(persistent, freed);
    b->outside = e->m.overhead.by[OVERHEAD_OUTSIDE];
    b->update = e->m.needed - b->outside;
    b->update_reserved = e->reserved.known ? e->reserved.reserved_peak : b->update;
    b->lost = r->left.known && r->left.emptied > r->left.live ? r->left.emptied - r->left.live : 0;
    for (int m = SPACE_PINNED; m <= SPACE_HOST && e->m.elsewhere; m++)
        b->host += e->m.spaces.of[m].used ? e->m.spaces.of[m].peak : 0;
}

static int step_of(const struct plan *p, const struct evaluation *e, struct cost *out)
{
    struct timing t;

    if (simulate_plan(p, e, &t, NULL) < 0)
        return -1;
    *out = (struct cost){ .s = t.line.step_s, .low_s = t.low_s, .high_s = t.high_s, .basis = t.basis };
    return 0;
}

static struct evaluation *evaluated(const struct plan *p)
{
    struct evaluation *e = room_new(1, sizeof *e);

    if (evaluate_allocated(p, e) == 0)
        return e;
    free(e);
    return NULL;
}

/* ---- samples as long as they are ---- */

bool phases_is_short(const struct phases *p, int i)
{
    double tokens = p->plan.prompt + p->plan.response.mean;

    return p->plan.role[i].unpadded && p->plan.response.mean > 0 && tokens < (double)p->role[i].plan.seq;
}

/* Stages of NeMo-RL's pipelines take rows of one length, the longest's (models/megatron/common.py: _get_pack_sequence_parameters_for_megatron());
 * tensor and context ranks cut a row evenly. */
struct phases_rows phases_rows_of(const struct phases *p, int i, int64_t micro, int64_t samples)
{
    const struct phase_role *r = &p->plan.role[i];
    const struct plan *plan = &p->role[i].plan;
    double all = (p->plan.prompt + p->plan.response.mean) * (double)samples, room = (double)(micro * plan->seq);
    int64_t rows = r->packed ? lengths_rows(&p->plan.response, p->plan.prompt, room, samples) : ceil_div(samples, micro);
    double tokens = r->packed && plan->parallel.pipeline > 1 ? room : all / (double)rows;
    int64_t cut = (plan->parallel.tensor > 1 ? plan->parallel.tensor : 1) * (plan->parallel.context > 1 ? 2 * plan->parallel.context : 1);
    int64_t seq = ceil_div((int64_t)tokens, micro * cut) * cut;

    return (struct phases_rows){ rows, seq < plan->seq ? seq : plan->seq };
}

/* ---- the same plan with other keys ---- */

/* Evaluated; plan and evaluation are the caller's.  NULL: reported. */
static struct evaluation *with_keys(const struct phases *p, const struct plan *of, const char *const pairs[], int npairs, const char *db, struct plan *as)
{
    struct evaluation *e = NULL;

    if (plan_source_with(of, pairs, npairs, as) < 0) {
        fail("%s: phases: \"unpadded\" or \"even_experts\": the plan does not take shorter samples, or ranks with more tokens than others", p->where);
        return NULL;
    }
    if (measured_load(db, as->precision, as->kernels, &as->cluster) == 0)
        e = evaluated(as);
    if (!e) {
        measured_unload(&as->cluster);
        plan_free(as);
    }
    return e;
}

enum { PAIRS = 8 };

/* Seconds with these keys: of a step, or of a forward's first micro-step and of each one behind it. */
static int time_once(const struct phases *p, int i, const char *const pairs[], int n, const char *db, struct cost *first, struct cost *next)
{
    struct forward f = { .params = 0 };
    struct plan as;
    struct evaluation *e = with_keys(p, &p->role[i].plan, pairs, n, db, &as);

    if (!e)
        return -1;
    int rc = next ? forward_of(&as, e, &f) : step_of(&as, e, first);
    if (next) {
        *first = f.time;
        *next = f.next;
    }
    measured_unload(&as.cluster);
    phases_drop(&as, &e);
    return rc;
}

bool phases_is_uneven(const struct phases *p, int i)
{
    const struct plan *plan = &p->role[i].plan;
    bool padded = plan->megatron.moe_pad_expert_input_to_capacity || plan->ds.moe_drop_tokens;

    return !p->plan.role[i].even && plan->model.experts > 0 && plan->parallel.expert > 1 && plan->parallel.expert_imbalance <= 1 && !padded;
}

static struct cost spread_of(const struct cost c[3])
{
    return (struct cost){ .s = c[1].s, .low_s = c[0].low_s, .high_s = c[2].high_s, .basis = basis_worst(c[1].basis, BASIS_PUBLISHED) };
}

/* The same, of a mixture's ranks with the middle and the ends of what the busiest one gets. */
static int time_with(const struct phases *p, int i, const char *const pairs[], int n, const char *db, struct cost *first, struct cost *next)
{
    static const double uneven[] = { 1.30, 2.28, 4.01 };
    const char *all[PAIRS];
    struct cost firsts[3], nexts[3];
    char busiest[64];

    if (!phases_is_uneven(p, i))
        return time_once(p, i, pairs, n, db, first, next);
    for (int k = 0; k < n; k++)
        all[k] = pairs[k];
    all[n] = busiest;
    for (int k = 0; k < 3; k++) {
        snprintf(busiest, sizeof busiest, "parallel.expert_imbalance=%.17g", fmin(uneven[k], experts_most_uneven(&p->role[i].plan)));
        if (time_once(p, i, all, n + 1, db, &firsts[k], next ? &nexts[k] : NULL) < 0)
            return -1;
    }
    *first = spread_of(firsts);
    if (next)
        *next = spread_of(nexts);
    return 0;
}

static int short_step(struct phases *p, int i, const char *db)
{
    struct phases_role *r = &p->role[i];
    struct phases_rows of = phases_rows_of(p, i, r->plan.micro_batch, plan_global_batch(&r->plan));
    char seq[40], steps[48];
    const char *pairs[] = { seq, steps };

    snprintf(seq, sizeof seq, "seq=%" PRId64, of.seq);
    snprintf(steps, sizeof steps, "accumulation=%" PRId64, ceil_div(of.rows, plan_batch_ranks(&r->plan)));
    int rc = time_with(p, i, pairs, 2, db, &r->short_step, NULL);
    r->short_step.high_s = fmax(r->short_step.high_s, r->step.high_s);
    return rc;
}

/* A forward without gradients, whose logits go with it; of interleaved stages the same blocks are one behind the other.  Returns how many keys. */
enum { FORWARD_PAIRS = 5 };

static int of_forward(const struct plan *p, const char *pairs[FORWARD_PAIRS])
{
    int n = 0;

    pairs[n++] = "recompute=full";
    pairs[n++] = "accumulation=1";
    if (p->logits_kept != LOGITS_DROPPED)
        pairs[n++] = "logits_kept=none";
    if (p->parallel.virtual_stages > 1) {
        pairs[n++] = "parallel.pipeline_schedule=1f1b";
        pairs[n++] = "parallel.virtual_stages=1";
    }
    return n;
}

int phases_short_forward(const struct phases *p, int i, int64_t micro, int64_t seq, const char *db, struct cost *first, struct cost *next)
{
    char batch[48], tokens[40];
    const char *pairs[2 + FORWARD_PAIRS] = { batch, tokens };
    int n = 2 + of_forward(&p->role[i].plan, pairs + 2);

    snprintf(batch, sizeof batch, "micro_batch=%" PRId64, micro);
    snprintf(tokens, sizeof tokens, "seq=%" PRId64, seq);
    return time_with(p, i, pairs, n, db, first, next);
}

/* What becomes of its step without shorter samples, or with them. */
static int other_steps(struct phases *p, int i, const char *db)
{
    if (phases_is_uneven(p, i) && time_with(p, i, NULL, 0, db, &p->role[i].step, NULL) < 0)
        return -1;
    return phases_is_short(p, i) ? short_step(p, i, db) : 0;
}

int phases_role_figures(struct phases *p, int i, const char *db, bool timed)
{
    struct phases_role *r = &p->role[i];
    int rc = -1;

    if (p->plan.role[i].kind == ROLE_INFERS)
        return 0;                   /* its forward says all */
    if (measured_load(db, r->plan.precision, r->plan.kernels, &r->plan.cluster) < 0)
        return -1;
    struct evaluation *e = r->is = evaluated(&r->plan);
    if (e && evaluation_reserve(&r->plan, e, NULL) == 0 && reserved_left_of(&r->plan, &e->schedules, NULL, &r->left) == 0 &&
        (!timed || step_of(&r->plan, e, &r->step) == 0)) {
        take_figures(e, r, p->plan.role[i].frees, &p->bytes[i]);
        r->fits = e->m.fits;
        r->kept = forward_keeps(&e->schedules) + e->m.overhead.by[OVERHEAD_ALLOCATED];
        rc = 0;
    }
    measured_unload(&r->plan.cluster);
    return rc == 0 && timed ? other_steps(p, i, db) : rc;
}

void phases_drop(struct plan *p, struct evaluation **e)
{
    if (!*e)
        return;
    evaluation_free(*e);
    free(*e);
    *e = NULL;
    if (p)
        plan_free(p);
}

int phases_role_forward(struct phases *p, int k, int i, int64_t micro_batch, const char *db, struct forward *out)
{
    struct phases_role *r = &p->role[i];
    struct phases_forward *f = &p->forward[k];
    char micro[48];
    const char *pairs[1 + FORWARD_PAIRS] = { micro };
    int n = 1 + of_forward(&r->plan, pairs + 1);

    snprintf(micro, sizeof micro, "micro_batch=%" PRId64, micro_batch);
    if (plan_source_with(&r->plan, pairs, n, &f->as) < 0)
        return fail("%s: phases: %s: a forward without gradients is planned by full recompute, which this plan does not take", p->where, p->plan.step[k].name);
    f->is = measured_load(db, f->as.precision, f->as.kernels, &f->as.cluster) < 0 ? NULL : evaluated(&f->as);
    int rc = f->is ? forward_of(&f->as, f->is, out) : -1;
    measured_unload(&f->as.cluster);
    if (!f->is)
        plan_free(&f->as);
    if (rc == 0 && phases_is_uneven(p, i))
        rc = time_with(p, i, pairs, n, db, &out->time, &out->next);
    struct role_bytes *b = &p->bytes[i];
    if (rc == 0 && p->plan.role[i].shares) {
        out->peak -= out->params;
        out->params = out->outside = out->host = 0;
    }
    if (rc == 0 && p->plan.role[i].kind == ROLE_INFERS) {
        b->params = out->params;
        b->outside = out->outside;
        b->host = out->host;
    }
    return rc;
}

int phases_role_check_responses(const struct phases *p)
{
    for (int k = 0; p->engine >= 0 && k < p->plan.nsteps; k++) {
        const struct phase_step *s = &p->plan.step[k];
        double engines = (double)(p->engine_cluster.world_size / engine_ranks(&p->plan.role[p->engine].engine));
        double each = ceil((double)(s->samples ? s->samples : p->plan.samples) * (double)p->plan.ahead / engines);
        if (s->does == DOES_GENERATE && each > GENERATE_MOST)
            return fail("%s: phases: %s: %.0f responses of one engine (\"samples\" of %" PRId64 " steps ahead): at most %d are followed", p->where, s->name, each,
                        p->plan.ahead, GENERATE_MOST);
    }
    return 0;
}
