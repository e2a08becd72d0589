/* micro_step.c -- see micro_step.h. */
#include "model/memory/micro_step.h"

bool micro_step_is(const struct schedules *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            i = o->u.repeat.other;
            continue;
        }
        if (o->unit_by)
            return false;
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            if (s->acts[k].by)
                return false;
    }
    return true;
}

bool micro_step_same(const struct caching_stats *a, const struct caching_stats *b)
{
    return a->allocated.now == b->allocated.now && a->active.now == b->active.now &&
           a->reserved.now == b->reserved.now && a->retries == b->retries &&
           a->reserved.peak == b->reserved.peak && a->active.peak == b->active.peak;
}
