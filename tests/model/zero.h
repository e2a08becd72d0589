/* zero.h -- what the tests of DeepSpeed's stages share. */
#ifndef DPX_TEST_ZERO_H
#define DPX_TEST_ZERO_H

#include <stdlib.h>

#include "tests/model/plans.h"

static struct schedules s;          /* that every test lowers into */

static inline void deepspeed(struct plan *p, const char *model, int64_t layers, int64_t n, enum strategy st,
                      enum dtype t)
{
    plan_of(p, model, layers, n, st, DIALECT_DEEPSPEED, t);
    p->kernels = KERNELS_TORCH_SDPA;
}

static inline const struct buf *named(const char *what)
{
    for (int i = 0; i < s.nbufs; i++)
        if (!strcmp(s.bufs[i].what, what))
            return &s.bufs[i];
    fail_msg("no buffer \"%s\"", what);
    return NULL;
}

static inline int64_t r512(int64_t bytes) { return (bytes + 511) / 512 * 512; }

static inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/* Sum over tensors of numel*bytes, each rounded as an allocation of its own. */
static inline int64_t each(const struct model *m, int64_t bytes)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += r512(m->tensors[i].numel * bytes);
    return sum;
}

/* Q: the sum of ceil(numel/N). */
static inline int64_t parts(const struct model *m, int64_t n)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += (m->tensors[i].numel + n - 1) / n;
    return sum;
}

static const char *const models[] = { "gpt2", "llama-3.2-1b", "opt-125m" };
enum { NMODELS = sizeof models / sizeof *models };

/* Every model in every world. */
static inline void everywhere(enum strategy st, enum dtype t, void (*set)(struct plan *p),
                       void (*check)(const struct plan *p))
{
    for (int m = 0; m < NMODELS; m++) {
        struct plan p;
        deepspeed(&p, models[m], 2, 1, st, t);
        for (int w = 0; w < NWORLDS; w++) {
            plan_move(&p, worlds[w]);
            if (set)
                set(&p);
            lowered(&p, worlds[w] - 1, &s);
            check(&p);
        }
        plan_free(&p);
    }
}

static inline void thrice(struct plan *p) { p->accumulation = 3; }

static inline void accumulate_in_fp32(struct plan *p)
{
    p->ds.grad_accum_fp32 = true;
    p->accumulation = 2;
}

#endif
