/* pinned.c -- blocks of the caching host allocator: powers of two, kept and given out again. */
#include "model/lower/common/pinned.h"

static int power(int64_t bytes)
{
    int k = 0;

    while (k < 62 && ((int64_t)1 << k) < bytes)
        k++;
    return k;
}

int64_t pinned_bytes(int64_t bytes)
{
    return round_up_power(bytes);
}

int64_t pageable_bytes(int64_t bytes) { return bytes; }

void pinned_keep(struct pinned *p, struct schedules *s, int64_t bytes)
{
    int k = power(bytes);

    if (p->of[k].made == 0)
        p->of[k].family = sched_buf_in(s, SPACE_PINNED, CAT_OVERHEAD, "kept pinned block", NULL, 0, 1, pinned_bytes(bytes));
    if (p->of[k].free == p->of[k].made && p->of[k].made++ > 0)
        s->bufs[p->of[k].family].count++;
    sched_act(s, ACT_ALLOC, p->of[k].family, p->of[k].free++, 0);
}

void pinned_take(struct pinned *p, struct schedules *s, enum phase ph, int64_t bytes)
{
    int k = power(bytes);

    if (p->of[k].free == 0)
        return;
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, ph, "a kept block is pinned memory again");
    sched_act(s, ACT_FREE, p->of[k].family, --p->of[k].free, 0);
}
