/* recorded_sizes.h -- bytes of many buffers beside those that DeepSpeed was recorded with, whatever their order:
 * tests/golden/offload/README.md has the format. */
#ifndef DPX_RECORDED_SIZES_H
#define DPX_RECORDED_SIZES_H

#include <stdlib.h>

#include "model/lower/common/pinned.h"
#include "tests/model/plans.h"

enum { MOST = 4096 };
struct sizes { int64_t of[MOST]; int n; };

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void same_sizes(const char *name, const char *what, struct sizes *ours, struct sizes *theirs)
{
    qsort(ours->of, (size_t)ours->n, sizeof *ours->of, by_size);
    qsort(theirs->of, (size_t)theirs->n, sizeof *theirs->of, by_size);
    for (int k = 0; k < ours->n || k < theirs->n; k++)
        if (k >= ours->n || k >= theirs->n || ours->of[k] != theirs->of[k])
            fail_msg("%s, %s: %d, DeepSpeed %d; the %d-th by size has %lld bytes, DeepSpeed's %lld", name, what, ours->n,
                     theirs->n, k, k < ours->n ? (long long)ours->of[k] : 0, k < theirs->n ? (long long)theirs->of[k] : 0);
}

/* Blocks that the entry pins, for sched_walk(); one that waits for its next tensor is none. */
static int add_pinned(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sizes *z = arg;

    (void)iteration;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct buf *b = &s->bufs[s->acts[k].buf];
        if (!(s->acts[k].what & ACT_ALLOC) || b->space != SPACE_PINNED || !strcmp(b->what, "kept pinned block"))
            continue;
        for (int i = 0; i < s->acts[k].n; i++)
            z->of[z->n++] = b->bytes;
    }
    return z->n > MOST - 64;
}

/* [bytes, function, times] each. */
static void add_calls(const json_t *calls, bool rounded, struct sizes *z)
{
    const json_t *call;
    size_t i;

    json_array_foreach(calls, i, call)
        for (int64_t k = json_integer_value(json_array_get(call, 2)); k > 0 && z->n < MOST; k--) {
            int64_t bytes = json_integer_value(json_array_get(call, 0));
            z->of[z->n++] = rounded ? pinned_bytes(bytes) : bytes;
        }
}

#endif
