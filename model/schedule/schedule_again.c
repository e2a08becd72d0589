/* schedule_again.c -- see schedule_again.h. */
#include "model/schedule/schedule_again.h"

#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *from, int n, size_t size)
{
    void *to = malloc(((size_t)n + 1) * size);

    if (!to)
        abort();
    if (n > 0)                      /* memcpy takes no NULL */
        memcpy(to, from, (size_t)n * size);
    return to;
}

void again_open(struct again *a, struct schedules *s)
{
    a->s = s;
    a->ops = copy_of(s->ops, s->nops, sizeof *s->ops);
    a->acts = copy_of(s->acts, s->nacts, sizeof *s->acts);
    memcpy(a->begin, s->begin, sizeof a->begin);
    memcpy(a->end, s->end, sizeof a->end);
    s->nops = s->nacts = 0;
    memset(s->span_at, 0, sizeof s->span_at);
}

void again_close(struct again *a)
{
    free(a->ops);
    free(a->acts);
}

struct op *again_op(struct again *a, const struct op *o)
{
    struct op *n = sched_op(a->s, (enum op_kind)o->kind, (enum stream)o->stream, (enum phase)o->phase, o->what);
    uint32_t act0 = n->act0;

    *n = *o;
    n->act0 = act0;
    n->nacts = n->acting = 0;
    if (o->kind == OP_COMPUTE)
        n->u.compute.granted = 0;   /* its acts count it again */
    return n;
}

void again_acts(struct again *a, const struct op *o, int mask)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++)
        sched_act_like(a->s, &a->acts[i], a->acts[i].what & mask);
}

void again_entry(struct again *a, const struct op *o)
{
    again_op(a, o);
    again_acts(a, o, ~0);
}

void again_each(struct again *a, int from, int to, void (*f)(void *arg, const struct op *o), void *arg)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &a->ops[i];
        if (o->kind != OP_REPEAT) {
            f(arg, o);
            continue;
        }
        sched_repeat(a->s, o->u.repeat.n);
        again_each(a, i + 1, o->u.repeat.other, f, arg);
        sched_repeat_end(a->s);
        i = o->u.repeat.other;
    }
}
