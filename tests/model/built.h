/* built.h -- a block program of a model that a test writes out, and its plan. */
#ifndef DPX_BUILT_H
#define DPX_BUILT_H

#include <stdlib.h>

#include "tests/model/plans.h"
#include "base/fail.h"

struct built { struct plan plan; struct program program; };

/* `of`, a config.json with ' for ", on 8 ranks by the defaults of these. */
static inline void built_start(struct built *x, const char *of, enum strategy s, enum dialect d, enum dtype t, enum kernel_set k)
{
    char text[600];
    size_t n = strlen(of);

    memset(x, 0, sizeof *x);
    for (size_t i = 0; i <= n; i++)
        text[i] = of[i] == '\'' ? '"' : of[i];
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(model_from_config(j, "test", &x->plan.model), 0);
    json_decref(j);
    world_of(&x->plan.cluster, 8);
    plan_defaults(&x->plan, s, d, t);
    x->plan.kernels = k;
    x->plan.recompute_interval = 1;
}

static inline void build(struct built *x)
{
    program_free(&x->program);
    assert_int_equal(program_build(&x->plan, &x->program), 0);
}

static inline void finish(struct built *x)
{
    program_free(&x->program);
    plan_free(&x->plan);
}

#endif
