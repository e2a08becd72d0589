/* phases_replay.c -- see phases_replay.h. */
#include "sim/plan/phases_replay.h"

#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/memory/requests_turns.h"
#include "model/plan/graphs.h"

#define A_DEVICE_WITH_ROOM ((int64_t)1 << 48)
/* An iteration begins with what the one before left; the states come in the first. */
enum { ITERATIONS = 6 };

struct replay {
    const struct phases *p;
    int place, process;
    struct caching_allocator *a;
    struct request_target t;
    struct requests_process own;
    struct requests_role *role[PHASE_ROLES];
    unsigned here[PHASE_ROLES];         /* categories on the device */
    const int64_t *capacity;            /* of the device in each phase, without what others hold of it; NULL: there is room */
    bool wrong, full;                   /* frees of what was never made; a request that found no room, behind which nothing is done */
};

static bool is_in(const struct replay *r, int i)
{
    return r->p->plan.role[i].kind != ROLE_IS_ENGINE && r->p->plan.role[i].place == r->place && moments_process(&r->p->plan, i) == r->process;
}

/* ---- what can be replayed ---- */

static bool is_plain(const struct plan *p, const struct evaluation *e)
{
    return e && e->nstages == 0 && reserved_is_known(p) && !graphs_has(p);
}

/* The forward that says what a copy has. */
static const struct phases_forward *first_forward(const struct phases *p, int i)
{
    for (int k = 0; k < p->plan.nsteps; k++)
        if (p->plan.step[k].does == DOES_FORWARD && p->plan.step[k].role == i)
            return &p->forward[k];
    return NULL;
}

static bool can_replay(const struct replay *r)
{
    const struct phases *p = r->p;
    bool any = false;

    for (int i = 0; i < p->plan.nroles; i++) {
        const struct phases_forward *f = p->plan.role[i].kind == ROLE_INFERS ? first_forward(p, i) : NULL;
        if (!is_in(r, i))
            continue;
        any = true;
        if (p->plan.role[i].kind == ROLE_INFERS ? !f : !is_plain(&p->role[i].plan, p->role[i].is))
            return false;
    }
    for (int k = 0; k < p->plan.nsteps && any; k++) {
        const struct phase_step *s = &p->plan.step[k];
        if (s->beside >= 0 || (s->does == DOES_FORWARD && is_in(r, s->role) && !is_plain(&p->forward[k].as, p->forward[k].is)))
            return false;
    }
    return any;
}

/* ---- where roles are ---- */

static unsigned moves_of(enum role_where w)
{
    switch (w) {
    case WHERE_HOST:         return 0;
    case WHERE_STATES_AWAY:  return MOVES_WEIGHTS | MOVES_REST;
    case WHERE_WEIGHTS_AWAY: return (unsigned)MOVES_STATES | MOVES_REST;
    default:                 return MOVES_WEIGHTS | (unsigned)MOVES_STATES | MOVES_REST;
    }
}

/* In a phase: of one that acts its weights, in an update all; gradients only there where they are freed elsewhere. */
static unsigned wanted(const struct phase_plan *p, const struct phase_step *s, int i)
{
    unsigned all = moves_of(WHERE_DEVICE), there = moves_of(moments_where(p, s, i));
    bool acts = moments_acts(s, i);

    if (acts)
        there = s->does == DOES_UPDATE ? all : there | MOVES_WEIGHTS | MOVES_REST;
    return p->role[i].frees && !(acts && s->does == DOES_UPDATE) ? there & ~(unsigned)MOVES_GRADIENTS : there;
}

static unsigned between(const struct phase_plan *p, int i)
{
    unsigned there = moves_of(p->role[i].between);

    return p->role[i].frees ? there & ~(unsigned)MOVES_GRADIENTS : there;
}

static void move_role(struct replay *r, int i, unsigned to)
{
    if (!r->role[i])
        return;
    requests_role_move(r->role[i], r->here[i] & ~to, false);
    r->here[i] = to & r->here[i];
}

static void bring_role(struct replay *r, int i, unsigned to)
{
    if (!r->role[i])
        return;
    requests_role_move(r->role[i], to & ~r->here[i], true);
    r->here[i] = to;
}

/* ---- phases ---- */

/* What a walk returns: -1 where there was no room. */
static void take_result(struct replay *r, int64_t wrong)
{
    r->full |= wrong < 0;
    r->wrong |= wrong > 0;
}

static void hand_over(struct replay *r)
{
    int block = r->p->handover.peak > 0 ? caching_allocator_malloc(r->a, r->p->handover.peak, STREAM_COMPUTE) : -1;

    r->full |= r->p->handover.peak > 0 && block < 0;
    if (block >= 0)
        caching_allocator_free(r->a, block);
}

static void act(struct replay *r, int k)
{
    const struct phases *p = r->p;
    const struct phase_step *s = &p->plan.step[k];
    const struct phases_forward *f = &p->forward[k];

    if (s->does == DOES_UPDATE)
        for (int64_t n = 0; n < 2 && n < p->times[k]; n++)      /* the second is steady */
            requests_role_step(r->role[s->role]);
    else if (s->does == DOES_FORWARD)
        for (int64_t n = 0; n < 2 && n < p->times[k] && !r->full; n++)
            take_result(r, requests_forward(&f->as, &f->is->schedules, reserved_options(&f->as), &r->t, &r->own));
    else if (s->does == DOES_HAND_OVER)
        hand_over(r);
}

static void see_roles(struct replay *r)
{
    for (int i = 0; i < r->p->plan.nroles; i++)
        if (r->role[i])
            take_result(r, requests_role_wrong(r->role[i]));
}

static void phase(struct replay *r, int k, struct replayed *out)
{
    const struct phase_plan *plan = &r->p->plan;
    const struct phase_step *s = &plan->step[k];
    bool acts = s->role >= 0 && s->does != DOES_GENERATE && is_in(r, s->role);
    const struct caching_stats *c = caching_allocator_stats(r->a);

    if (r->capacity)
        caching_allocator_resize(r->a, r->capacity[k]);
    for (int i = 0; i < plan->nroles; i++)
        move_role(r, i, wanted(plan, s, i));
    for (int i = 0; i < plan->nroles; i++)
        bring_role(r, i, wanted(plan, s, i));
    see_roles(r);
    caching_allocator_restart_peaks(r->a);
    if (acts && !r->full)
        act(r, k);
    see_roles(r);
    if (r->full)
        return;
    out->reserved[r->process][k] = c->reserved.peak;
    out->allocated[r->process][k] = c->allocated.peak;
    if (!acts || !plan->role[s->role].empties)
        return;
    for (int i = 0; i < plan->nroles; i++)
        move_role(r, i, between(plan, i));
    caching_allocator_empty_cache(r->a);
}

static void open_roles(struct replay *r)
{
    const struct phases *p = r->p;

    for (int i = 0; i < p->plan.nroles; i++) {
        bool infers = p->plan.role[i].kind == ROLE_INFERS;
        const struct phases_forward *f = infers ? first_forward(p, i) : NULL;
        const struct plan *plan = infers && f ? &f->as : &p->role[i].plan;
        const struct evaluation *e = infers && f ? f->is : p->role[i].is;
        if (!is_in(r, i) || p->plan.role[i].shares)
            continue;
        r->role[i] = requests_role_new(plan, &e->schedules, reserved_options(plan), &r->t, &r->own, infers);
        r->here[i] = moves_of(WHERE_DEVICE);
    }
}

static const struct plan *any_plan(const struct replay *r)
{
    int i = 0;

    while (!is_in(r, i))
        i++;
    return &r->p->role[i].plan;
}

/* 1: a request found no room. */
static int replay(struct replay *r, struct replayed *out)
{
    struct caching_options o = caching_allocator_defaults();
    int64_t before[PHASE_STEPS] = { 0 };
    const char *conf = any_plan(r)->environment.alloc_conf;

    if (*conf)
        caching_allocator_configure(&o, conf);
    r->a = caching_allocator_new(A_DEVICE_WITH_ROOM, &o);
    r->t = reserved_target(r->a);
    r->own = (struct requests_process){ { -1, -1 } };
    open_roles(r);
    for (int n = 0; n < ITERATIONS && !r->full; n++) {
        for (int k = 0; k < r->p->plan.nsteps && !r->full; k++) {
            phase(r, k, out);
            out->no_room[r->process] = r->full ? k + 1 : 0;
        }
        if (!memcmp(before, out->reserved[r->process], sizeof before))
            break;
        memcpy(before, out->reserved[r->process], sizeof before);
    }
    for (int i = 0; i < r->p->plan.nroles; i++)
        requests_role_free(r->role[i]);
    caching_allocator_delete(r->a);
    if (r->full)
        return 1;
    return r->wrong ? fail("internal error: phases replayed through PyTorch's allocator free tensors that were never made: please report this plan") : 0;
}

int phases_replay(struct phases *p)
{
    for (int i = 0; i < p->plan.nplaces; i++)
        for (int process = 0; process <= p->plan.nroles; process++) {
            struct replay r = { .p = p, .place = i, .process = process };
            if (!can_replay(&r))
                continue;
            if (replay(&r, &p->replayed[i]) != 0)
                return -1;
            p->replayed[i].known[process] = true;
        }
    return 0;
}

/* Bytes of the device in each phase without what others hold: engines, NCCL, other processes.  Is more taken than there is? */
static bool full_card(const struct phases *p, int place, int process, int64_t *capacity)
{
    const struct moment *m = place ? p->more[place].moment : p->moment;
    int64_t limit = place ? p->more[place].limit : p->limit;
    bool full = false;

    for (int k = 0; k < p->plan.nsteps; k++) {
        int64_t others = m[k].taken - p->replayed[place].reserved[process][k];
        capacity[k] = limit > others ? limit - others : 0;
        full |= m[k].taken > limit;
    }
    return full;
}

int phases_replay_within(struct phases *p)
{
    int64_t capacity[PHASE_STEPS];
    int changed = 0;

    for (int i = 0; i < p->plan.nplaces; i++)
        for (int process = 0; process <= p->plan.nroles; process++) {
            struct replay r = { .p = p, .place = i, .process = process, .capacity = capacity };
            struct replayed within = p->replayed[i];
            if (!within.known[process] || !full_card(p, i, process, capacity))
                continue;
            int rc = replay(&r, &within);
            if (rc < 0)
                return -1;
            if (rc == 0) {
                p->replayed[i] = within;
                changed = 1;
            }
            p->replayed[i].no_room[process] = within.no_room[process];
        }
    return changed;
}
