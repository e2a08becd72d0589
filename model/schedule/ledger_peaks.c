/* ledger_peaks.c -- peaks of several accounts outside of device memory, in one walk: few entries move anything there.
 *
 * As in ledger.c a repeat's iterations all move the same bytes, hence the first and the last one are enough. */
#include "model/schedule/ledger.h"

#include <string.h>

struct levels {
    const struct schedules *s;
    const unsigned *in;
    int             n;
    int64_t         live[NSPACE], *peak;
};

static void move(struct levels *l, const struct op *o, int bit, int sign)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &l->s->acts[i];
        const struct buf *b = &l->s->bufs[a->buf];
        if ((a->what & bit) && b->space != SPACE_DEVICE && op_moves(o, b))
            l->live[b->space] += sign * b->bytes * a->n;
    }
}

static void note(struct levels *l)
{
    for (int k = 0; k < l->n; k++) {
        int64_t sum = 0;
        for (int m = 0; m < NSPACE; m++)
            sum += l->in[k] & IN(m) ? l->live[m] : 0;
        l->peak[k] = sum > l->peak[k] ? sum : l->peak[k];
    }
}

static void walk(struct levels *l, int from, int to);

static void walk_repeat(struct levels *l, int open)
{
    const struct op *o = &l->s->ops[open];
    int64_t before[NSPACE], n = o->u.repeat.n;

    memcpy(before, l->live, sizeof before);
    if (n > 0)
        walk(l, open + 1, o->u.repeat.other);
    if (n < 2 || !memcmp(before, l->live, sizeof before))
        return;
    for (int m = 0; m < NSPACE; m++)
        l->live[m] = before[m] + (n - 1) * (l->live[m] - before[m]);
    note(l);
    walk(l, open + 1, o->u.repeat.other);
}

static void walk(struct levels *l, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &l->s->ops[i];
        if (o->kind == OP_REPEAT) {
            walk_repeat(l, i);
            i = o->u.repeat.other;
            continue;
        }
        if (o->kind != OP_END && (o->acting & ACT_ALLOC)) {
            move(l, o, ACT_ALLOC, 1);
            note(l);
        }
        if (o->kind != OP_END && (o->acting & ACT_FREE))
            move(l, o, ACT_FREE, -1);
    }
}

void ledger_peaks(const struct schedules *s, const unsigned *in, int n, int64_t *peak)
{
    struct levels l = { .s = s, .in = in, .n = n, .peak = peak };

    memset(peak, 0, (size_t)n * sizeof *peak);
    for (int i = 0; i < NSCHED; i++)
        walk(&l, s->begin[sched_in_turn(i)], s->end[sched_in_turn(i)]);
}
