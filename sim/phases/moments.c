/* moments.c -- see moments.h. */
#include "sim/phases/moments.h"

#include <string.h>

static bool is_model(const struct phase_role *r) { return r->kind != ROLE_IS_ENGINE; }

static enum role_where where_of(const struct phase_plan *p, const struct phase_step *s, int i)
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

/* Does the role act in the trainers' process? */
static bool acts(const struct phase_step *s, int i) { return s->role == i && s->does != DOES_GENERATE; }

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
    enum role_where w = where_of(p, s, i);
    bool states = w == WHERE_DEVICE || w == WHERE_WEIGHTS_AWAY;

    if (role_is_apart(&p->role[i]))
        return 0;
    if (!is_model(&p->role[i]))
        return s->role == i || s->to == i ? 0 : b->host;
    if (!acts(s, i))
        return on_host(b, w);
    return s->does == DOES_UPDATE || states ? 0 : b->states;
}

static int64_t moved_between(const struct phase_plan *p, const struct role_bytes *role, const struct phase_step *from, const struct phase_step *to)
{
    int64_t sum = 0;

    for (int i = 0; i < p->nroles; i++) {
        int64_t before = asleep_on_host(p, &role[i], from, i), now = asleep_on_host(p, &role[i], to, i);
        bool handed = to->to == i;          /* its weights are written anew */
        sum += now > before ? now - before : handed ? 0 : before - now;
    }
    return sum;
}

static void take_stock(const struct phase_plan *p, const struct role_bytes *role, int64_t own, const struct phase_step *s, struct moment *m)
{
    for (int i = 0; i < p->nroles; i++) {
        const struct role_bytes *b = &role[i];
        enum role_where w = where_of(p, s, i);
        m->host += asleep_on_host(p, b, s, i);
        if (!is_model(&p->role[i])) {
            m->engine += engine_bytes(p, s, b, i);
            continue;
        }
        m->outside = b->outside > m->outside ? b->outside : m->outside;     /* of one world's communicator */
        bool all = acts(s, i) && s->does == DOES_UPDATE, states = w == WHERE_DEVICE || w == WHERE_WEIGHTS_AWAY;
        m->live += !acts(s, i) ? on_device(b, w) : own + (all || !states ? 0 : b->states);
        m->acts = acts(s, i) ? own - b->params - b->other - (all ? b->states : 0) : m->acts;
    }
}

/* What stays on the device behind a phase, and what is lost beside it. */
static int64_t persists(const struct phase_plan *p, const struct role_bytes *role)
{
    int64_t sum = 0;

    for (int i = 0; i < p->nroles; i++)
        if (is_model(&p->role[i])) {
            int64_t there = on_device(&role[i], p->role[i].between);
            sum += there + (there > 0 ? role[i].lost : 0);
        }
    return sum;
}

static int64_t walk(const struct phase_plan *p, const struct role_bytes *role, int64_t carried, struct moment *m)
{
    for (int k = 0; k < p->nsteps; k++) {
        const struct phase_step *s = &p->step[k];
        bool own = s->role >= 0 && s->does != DOES_GENERATE;
        int64_t lost = s->does == DOES_UPDATE ? role[s->role].update_reserved - role[s->role].update : 0;
        int64_t now = m[k].live + (lost > 0 ? lost : 0);
        m[k].reserved = carried > now ? carried : now;
        m[k].needed = (own ? m[k].live : m[k].reserved) + m[k].outside + m[k].engine;
        m[k].taken = m[k].reserved + m[k].outside + m[k].engine;
        carried = own && p->role[s->role].empties ? persists(p, role) : m[k].reserved;
    }
    return carried;
}

void moments_of(const struct phase_plan *p, const struct role_bytes *role, const int64_t *own, struct moment *out)
{
    int64_t carried = 0, before;

    memset(out, 0, (size_t)p->nsteps * sizeof *out);
    for (int k = 0; k < p->nsteps; k++)
        take_stock(p, role, own[k], &p->step[k], &out[k]);
    for (int k = 0; k < p->nsteps; k++)
        out[k].moved = moved_between(p, role, &p->step[(k + p->nsteps - 1) % p->nsteps], &p->step[k]);
    carried = persists(p, role);
    for (int i = 0; i < PHASE_STEPS; i++) {     /* it never falls, and is the same from the second time on */
        before = carried;
        carried = walk(p, role, carried, out);
        if (carried == before)
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
