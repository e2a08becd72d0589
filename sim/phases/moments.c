/* moments.c -- see moments.h. */
#include "sim/phases/moments.h"

#include <string.h>

static bool is_model(const struct phase_role *r) { return r->kind != ROLE_IS_ENGINE; }
static bool is_here(const struct phase_plan *p, int i, int place) { return p->role[i].place == place; }

enum role_where moments_where(const struct phase_plan *p, const struct phase_step *s, int i)
{
    return s->where[i] >= 0 ? (enum role_where)s->where[i] : p->role[i].between;
}

static int64_t on_device(const struct role_bytes *b, enum role_where w)
{
    switch (w) {
    case WHERE_HOST:         return 0;
    case WHERE_STATES_AWAY:  return b->params + b->other;
    case WHERE_WEIGHTS_AWAY: return b->states + b->other;
    default:                 return b->params + b->other + b->states;
    }
}

static int64_t on_host(const struct role_bytes *b, enum role_where w)
{
    return b->params + b->states + b->other - on_device(b, w);
}

/* Roles without a process of their own share the first. */
int moments_process(const struct phase_plan *p, int i) { return p->role[i].own_process ? i + 1 : 0; }

/* Does the role act in the trainers' process? */
bool moments_acts(const struct phase_step *s, int i) { return s->role == i && s->does != DOES_GENERATE; }

/* Weights are awake to be written; the KV cache comes once they are. */
static int64_t engine_bytes(const struct phase_plan *p, const struct phase_step *s, const struct role_bytes *b, int i)
{
    if (role_is_apart(&p->role[i]))
        return 0;
    return s->role == i ? b->awake : s->to == i ? b->loading : b->asleep;
}

/* What of a role lies in host memory in a phase. */
static int64_t asleep_on_host(const struct phase_plan *p, const struct role_bytes *b, const struct phase_step *s, int i)
{
    enum role_where w = moments_where(p, s, i);
    bool states = w == WHERE_DEVICE || w == WHERE_WEIGHTS_AWAY;

    if (role_is_apart(&p->role[i]))
        return 0;
    if (!is_model(&p->role[i]))
        return s->role == i || s->to == i ? 0 : b->host;
    if (!moments_acts(s, i))
        return on_host(b, w);
    return s->does == DOES_UPDATE || states ? 0 : b->states;
}

static int64_t states_on_host(const struct phase_plan *p, const struct role_bytes *b, const struct phase_step *s, int i)
{
    enum role_where w = moments_where(p, s, i);
    bool there = w == WHERE_DEVICE || w == WHERE_WEIGHTS_AWAY || (moments_acts(s, i) && s->does == DOES_UPDATE);

    return there ? 0 : b->states;
}

/* What went to host memory into pages that nothing has touched. */
static int64_t anew_between(const struct phase_plan *p, const struct role_bytes *role, int place, const struct phase_step *from, const struct phase_step *to)
{
    int64_t sum = 0;

    for (int i = 0; i < p->nroles; i++) {
        if (!is_model(&p->role[i]) || !is_here(p, i, place) || p->role[i].anew == ANEW_NONE)
            continue;
        bool all = p->role[i].anew == ANEW_ALL;
        int64_t before = all ? asleep_on_host(p, &role[i], from, i) : states_on_host(p, &role[i], from, i);
        int64_t now = all ? asleep_on_host(p, &role[i], to, i) : states_on_host(p, &role[i], to, i);
        sum += now > before ? now - before : 0;
    }
    return sum;
}

/* An engine's weights come back although they are written anew behind that (vLLM's device_allocator/cumem.py: wake_up() copies what sleep() kept). */
static int64_t moved_between(const struct phase_plan *p, const struct role_bytes *role, int place, const struct phase_step *from, const struct phase_step *to)
{
    int64_t sum = 0;

    for (int i = 0; i < p->nroles; i++) {
        int64_t before = asleep_on_host(p, &role[i], from, i), now = asleep_on_host(p, &role[i], to, i);
        if (!is_here(p, i, place))
            continue;
        sum += now > before ? now - before : before - now;
    }
    return sum;
}

/* What a role has in a phase. */
static int64_t live_of(const struct phase_plan *p, const struct role_bytes *b, int64_t own, const struct phase_step *s, int i)
{
    enum role_where w = moments_where(p, s, i);
    bool all = moments_acts(s, i) && s->does == DOES_UPDATE, states = w == WHERE_DEVICE || w == WHERE_WEIGHTS_AWAY;

    return !moments_acts(s, i) ? on_device(b, w) : own + (all || !states ? 0 : b->states);
}

/* Weights that wait in host memory for their forward: those of another model always, in it the role's own as well. */
static int64_t swapped_on_host(const struct phase_plan *p, const struct role_bytes *b, const struct phase_step *s, int i)
{
    bool waits = false;

    for (int k = 0; k < p->nsteps; k++)
        waits |= p->step[k].swaps && p->step[k].role == i;
    return (waits ? b->params : 0) + (s->swaps && s->role == i ? b->params : 0);
}

static void take_stock(const struct phase_plan *p, const struct role_bytes *role, int64_t own, int place, const struct phase_step *s, struct moment *m)
{
    int64_t shared = 0;

    for (int i = 0; i < p->nroles; i++) {
        const struct role_bytes *b = &role[i];
        if (!is_here(p, i, place))
            continue;
        m->host += asleep_on_host(p, b, s, i);
        if (!is_model(&p->role[i])) {
            m->engine += engine_bytes(p, s, b, i);
            continue;
        }
        m->host += swapped_on_host(p, b, s, i);
        m->swapped += s->swaps && s->role == i ? 3 * b->params : 0;
        if (moments_process(p, i) == 0)
            shared = b->outside > shared ? b->outside : shared;     /* of one world's communicator */
        else
            m->outside += b->outside + b->context;
        m->acts = moments_acts(s, i) ? own - b->params - b->other - (s->does == DOES_UPDATE ? b->states : 0) : m->acts;
    }
    m->outside += shared;
}

/* What stays on the device of a process behind a phase, and what is lost beside it. */
static int64_t persists(const struct phase_plan *p, const struct role_bytes *role, int place, int process)
{
    int64_t sum = 0;

    for (int i = 0; i < p->nroles; i++)
        if (is_model(&p->role[i]) && is_here(p, i, place) && moments_process(p, i) == process) {
            int64_t there = on_device(&role[i], p->role[i].between);
            sum += there + (there > 0 ? role[i].lost : 0);
        }
    return sum;
}

/* Does something in the phase ask for memory that it has not had all along?  Not an engine that never sleeps, beside which every cache was filled. */
static bool others_grow(const struct phase_plan *p, const struct moment *m, int k)
{
    int64_t least = m[k].engine;

    for (int i = 0; i < p->nsteps; i++)
        least = m[i].engine < least ? m[i].engine : least;
    return p->step[k].does != DOES_GENERATE || m[k].engine > least;
}

/* One process in one phase; returns what it hands on to the next one.  A cache that it keeps is needed where something else may grow. */
static int64_t pass(const struct phase_plan *p, const struct role_bytes *role, int64_t own, const struct replayed *r, int place, const struct phase_step *s, int process,
                    int64_t carried, bool grows, struct moment *m)
{
    bool does = s->role >= 0 && s->does != DOES_GENERATE && is_here(p, s->role, place) && moments_process(p, s->role) == process;
    int64_t lost = does && s->does == DOES_UPDATE ? role[s->role].update_reserved - role[s->role].update : 0, live = 0;

    for (int i = 0; i < p->nroles; i++)
        live += is_model(&p->role[i]) && is_here(p, i, place) && moments_process(p, i) == process ? live_of(p, &role[i], own, s, i) : 0;
    int64_t now = live + (lost > 0 ? lost : 0), reserved = carried > now ? carried : now, k = s - p->step;
    if (r && r->known[process]) {
        int64_t less = s->does == DOES_FORWARD && does ? live - r->allocated[process][k] : 0;      /* an update's is what its plan's own evaluation says */
        live -= less > 0 ? less : 0;
        m->live -= less > 0 ? less : 0;
        reserved = r->reserved[process][k] > live ? r->reserved[process][k] : live;
    }
    m->reserved += reserved;
    m->needed += does || !grows ? live : reserved;
    return does && p->role[s->role].empties ? persists(p, role, place, process) : reserved;
}

enum { PROCESSES = PHASE_ROLES + 1 };

static void walk(const struct phase_plan *p, const struct role_bytes *role, const int64_t *own, const struct replayed *r, int place, int64_t carried[PROCESSES],
                 struct moment *m)
{
    for (int k = 0; k < p->nsteps; k++) {
        m[k].reserved = m[k].live = 0;
        for (int i = 0; i < p->nroles; i++)
            m[k].live += is_model(&p->role[i]) && is_here(p, i, place) ? live_of(p, &role[i], own[k], &p->step[k], i) : 0;
        m[k].needed = m[k].outside + m[k].engine;
        for (int i = 0; i < PROCESSES; i++)
            carried[i] = pass(p, role, own[k], r, place, &p->step[k], i, carried[i], others_grow(p, m, k), &m[k]);
        m[k].taken = m[k].reserved + m[k].outside + m[k].engine;
    }
}

void moments_of(const struct phase_plan *p, const struct role_bytes *role, const int64_t *own, const struct replayed *r, int place, struct moment *out)
{
    int64_t carried[PROCESSES], before[PROCESSES];

    memset(out, 0, (size_t)p->nsteps * sizeof *out);
    for (int k = 0; k < p->nsteps; k++)
        take_stock(p, role, own[k], place, &p->step[k], &out[k]);
    for (int k = 0; k < p->nsteps; k++) {
        const struct phase_step *from = &p->step[(k + p->nsteps - 1) % p->nsteps];
        out[k].moved = moved_between(p, role, place, from, &p->step[k]);
        out[k].anew = anew_between(p, role, place, from, &p->step[k]);
    }
    for (int i = 0; i < PROCESSES; i++)
        carried[i] = persists(p, role, place, i);
    for (int i = 0; i < PHASE_STEPS; i++) {     /* it never falls, and is the same from the second time on */
        memcpy(before, carried, sizeof before);
        walk(p, role, own, r, place, carried, out);
        if (!memcmp(before, carried, sizeof before))
            break;
    }
}

int moments_largest(const struct phase_plan *p, const struct moment *m)
{
    int at = 0;

    for (int k = 1; k < p->nsteps; k++)
        if (m[k].needed > m[at].needed)
            at = k;
    return at;
}
