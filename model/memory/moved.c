/* moved.c -- see moved.h. */
#include "model/memory/moved.h"

static bool has(const struct schedules *s, const struct op *o, int bits)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        if (s->acts[k].what & bits)
            return true;
    return false;
}

bool moved_buffers(const struct schedules *s, const struct op *o, enum space *from, enum space *to)
{
    return s->spaces && o->kind == OP_COPY && o->u.copy.fn != COPY_NOTHING && sched_crosses(s, o, from, to) && has(s, o, ACT_READ) && has(s, o, ACT_WRITE | ACT_ADD);
}

static void add_range(const struct schedules *s, int begin, int end, int64_t times, struct moved_table *t)
{
    enum space from, to;

    for (int i = begin; i < end; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            add_range(s, i + 1, o->u.repeat.other, times * o->u.repeat.n, t);
            i = o->u.repeat.other;
        } else if (moved_buffers(s, o, &from, &to)) {
            t->of[from][to].count += times;
            t->of[from][to].bytes += times * o->u.copy.writes;
        }
    }
}

void moved_add(const struct schedules *s, enum sched_id id, int64_t times, struct moved_table *to)
{
    if (s->spaces)
        add_range(s, s->begin[id], s->end[id], times, to);
}
