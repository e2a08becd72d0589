/* micro_steps.c -- passes in order, equal ones folded into a repeat. */
#include "model/lower/common/micro_steps.h"

struct emission {
    const struct micro_order *order;
    const struct micro_calls *calls;
    void *arg;
    int64_t at;                 /* the micro-step; those after it have its entries where it is repeated */
    bool repeated;
};

static void one(void *emission)
{
    const struct emission *e = emission;
    struct micro m = { .at = e->at, .by = e->repeated };

    m.first = !e->repeated && e->at == 0;
    m.last = !e->repeated && e->at == e->order->steps - 1;
    m.pass = MICRO_FORWARD;
    e->calls->emit(e->arg, &m);
    m.pass = MICRO_BACKWARD;
    e->calls->emit(e->arg, &m);
}

static bool settled(void *emission, bool begins)
{
    const struct emission *e = emission;

    return !e->calls->settled || e->calls->settled(e->arg, begins);
}

void micro_steps_emit(struct schedules *s, const struct micro_order *o, const struct micro_calls *calls, void *arg)
{
    int64_t end = o->last_differs ? o->steps - 1 : o->steps;
    struct emission e = { o, calls, arg, 0, false };

    for (; e.at < o->steps && !s->too_long; e.at = e.repeated ? end : e.at + 1) {
        s->too_long = s->nops > SCHED_MOST_OPS;
        e.repeated = o->steps > 1 && e.at < end && !(e.at == 0 && o->first_differs) &&
                     (!calls->alike || calls->alike(arg, e.at));
        if (!e.repeated) {
            one(&e);
            continue;
        }
        sched_repeat(s, end - e.at);
        lower_emit_settled(s, one, settled, &e);
        sched_repeat_end(s);
    }
}
