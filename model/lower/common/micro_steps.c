/* micro_steps.c -- passes in order, equal ones folded into a repeat. */
#include "model/lower/common/micro_steps.h"

#include <stdlib.h>

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

/* Every pass by itself: neighbours in the list differ in kind, chunk or instances. */
static void pipeline(const struct pipeline *p, const struct micro_calls *calls, void *arg)
{
    struct pipeline_pass *pass = calloc(pipeline_room(p) + 1, sizeof *pass);
    int *done = calloc((size_t)NMICRO * (size_t)p->chunks, sizeof *done);

    if (!pass || !done)
        abort();
    for (int i = 0, n = pipeline_order(p, pass); i < n; i++) {
        int *before = &done[pass[i].kind * p->chunks + pass[i].chunk];
        calls->emit(arg, &(struct micro){ .pass = (enum micro_pass)pass[i].kind, .at = pass[i].step,
                                          .chunk = pass[i].chunk, .first = *before == 0,
                                          .last = *before == p->steps - 1 });
        ++*before;
    }
    free(pass);
    free(done);
}

void micro_steps_emit(struct schedules *s, const struct micro_order *o, const struct micro_calls *calls, void *arg)
{
    int64_t end = o->last_differs ? o->steps - 1 : o->steps;
    struct emission e = { o, calls, arg, 0, false };

    if (o->pipeline) {
        pipeline(o->pipeline, calls, arg);
        return;
    }
    for (; e.at < o->steps; e.at = e.repeated ? end : e.at + 1) {
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
