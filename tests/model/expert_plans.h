/* expert_plans.h -- plans with experts over ranks, and what their schedules send, for the tests of them. */
#ifndef DPX_TEST_EXPERT_PLANS_H
#define DPX_TEST_EXPERT_PLANS_H

#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/plan/local_model.h"
#include "tests/model/plans.h"

static inline void plan_of_deepspeed(struct plan *p, enum strategy stage, int64_t layers, int64_t world, int64_t expert)
{
    plan_of(p, "mixtral-8x7b", layers, world, stage, DIALECT_DEEPSPEED, DT_BF16);
    p->kernels = KERNELS_TORCH_SDPA;
    p->parallel.expert = expert;
}

static inline void refused(const struct plan *p, const char *word)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    assert_int_equal(plan_check(p, "plan"), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, word))
        fail_msg("no %s in: %s", word, why);
}

static inline void has_ranks(const struct plan *p, enum group is, int64_t rank, const int64_t *ranks, int n)
{
    struct plan_groups groups;
    int g;

    plan_groups(p, &groups);
    g = plan_groups_find(&groups, is);
    assert_true(g >= 0);
    assert_int_equal(groups.group[g].ranks, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(mesh_member(&groups.group[g].of, rank, i), ranks[i]);
}

/* Entries of the steady step, each as often as it is issued: what they send in all; how many there are. */
static inline int64_t count(const struct schedules *s, enum coll_op op, enum group of, enum dtype dt, int64_t *elems)
{
    int64_t n = 0, times = 1;

    *elems = 0;
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++) {
        const struct op *o = &s->ops[i];
        times = o->kind == OP_REPEAT ? times * o->u.repeat.n : o->kind == OP_END ? times / s->ops[o->u.repeat.other].u.repeat.n : times;
        if (o->kind != OP_COLL || o->u.coll.op != op || sched_group(s, o)->is != of || o->u.coll.dtype != dt)
            continue;
        n += times;
        *elems += times * o->u.coll.elems;
    }
    return n;
}

static inline int64_t waits(const struct schedules *s)
{
    int64_t n = 0, times = 1;

    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++) {
        const struct op *o = &s->ops[i];
        times = o->kind == OP_REPEAT ? times * o->u.repeat.n : o->kind == OP_END ? times / s->ops[o->u.repeat.other].u.repeat.n : times;
        n += o->kind == OP_WAIT && !strcmp(o->what, "sizes to the host") ? times : 0;
    }
    return n;
}

#endif
