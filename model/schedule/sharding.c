/* sharding.c -- see sharding.h. */
#include "model/schedule/sharding.h"

void sharding_begins(struct sharding *x, int tensor) { sched_slice(x->s, x->holds, x->dtype, tensor, 0, 0, x->at); }

void sharding_whole(struct sharding *x, int tensor, int64_t to)
{
    int64_t numel = x->tensors[tensor].numel;

    sched_slice(x->s, x->holds, x->dtype, tensor, 0, numel, x->at);
    x->at += round_up(numel * dtype_bytes(x->dtype), to);
}

void sharding_part(struct sharding *x, int tensor, int64_t part, int64_t rank, int64_t room)
{
    int64_t numel = x->tensors[tensor].numel, from = rank * part < numel ? rank * part : numel;

    sched_slice(x->s, x->holds, x->dtype, tensor, from, numel - from < part ? numel - from : part, x->at);
    x->at += room;
}

int64_t sharding_flat(struct sharding *x, int tensor)
{
    int64_t begin = x->next, end = x->next = begin + x->tensors[tensor].numel;
    int64_t a = x->from > begin ? x->from : begin, b = x->from + x->n < end ? x->from + x->n : end;

    if (a >= b)
        return 0;
    sched_slice(x->s, x->holds, x->dtype, tensor, a - begin, b - a, x->at + (a - x->from) * dtype_bytes(x->dtype));
    return b - a;
}
