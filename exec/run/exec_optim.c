/* exec_optim.c -- the optimizer: states, gradients and weights met element by element, or tensor by tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/run/executor_internal.h"

enum { MOST_STATES = 4 };

struct optim_run {
    void *state[MOST_STATES];
    int64_t nstate[MOST_STATES];    /* bytes */
    float *p;                       /* master weights, or the fp32 parameters themselves */
    const void *g;
    void *out;                      /* parameters to be cast into, or NULL */
    int64_t n, from;
    int32_t tensor;
    uint8_t gt, ot;
};

/* ---- the optimizers ---- */

static int adamw(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r)
{
    (void)t;
    return kernels_ops(k)->adamw(k, a, r->n, r->p, r->state[0], r->state[1], r->g, (enum dtype)r->gt, r->out, (enum dtype)r->ot);
}

static int sgd(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r)
{
    (void)t;
    return kernels_ops(k)->sgd(k, a, r->n, r->p, r->state[0], r->g, (enum dtype)r->gt, r->out, (enum dtype)r->ot);
}

static int lion(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r)
{
    (void)t;
    return kernels_ops(k)->lion(k, a, r->n, r->p, r->state[0], r->g, (enum dtype)r->gt, r->out, (enum dtype)r->ot);
}

static int adafactor(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r)
{
    bool matrix = t->ndim == 2;
    struct factored f = { .rows = t->shape[0], .cols = matrix ? t->shape[1] : 1, .p = r->p, .row = r->state[0],
                          .col = matrix ? r->state[1] : NULL };

    return kernels_ops(k)->adafactor(k, a, &f, r->g, (enum dtype)r->gt, r->out, (enum dtype)r->ot);
}

/* Codes and their blocks' largest values, or moments in fp32. */
static int adamw8(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r)
{
    bool codes = r->state[2] != NULL;
    struct adamw8 s = { .n = t->numel, .p = r->p, .code1 = codes ? r->state[0] : NULL, .code2 = codes ? r->state[1] : NULL,
                        .max1 = r->state[codes ? 2 : 0], .max2 = r->state[codes ? 3 : 1] };

    return kernels_ops(k)->adamw8(k, a, &s, r->g, (enum dtype)r->gt, r->out, (enum dtype)r->ot);
}

/* What it keeps: the other states of what has the first; `whole`: of a tensor that may lack the last ones, of Adafactor's vectors
 * HOLDS_EXP_AVG_SQ alone. */
struct rule {
    int (*update)(struct kernels *k, const struct adamw *a, const struct tensor *t, const struct optim_run *r);
    int  nstates;
    enum holds state[MOST_STATES];
    bool whole;
};

static const struct rule rules[NOPTIMIZER] = {
    [OPTIMIZER_ADAMW]     = { adamw, 2, { HOLDS_EXP_AVG, HOLDS_EXP_AVG_SQ }, false },
    [OPTIMIZER_SGD]       = { sgd, 1, { HOLDS_EXP_AVG }, false },
    [OPTIMIZER_BNB_LION]  = { lion, 1, { HOLDS_EXP_AVG }, false },
    [OPTIMIZER_ADAFACTOR] = { adafactor, 2, { HOLDS_ROW_VAR, HOLDS_COL_VAR }, true },
    [OPTIMIZER_BNB_ADAMW8] = { adamw8, 4, { HOLDS_EXP_AVG, HOLDS_EXP_AVG_SQ, HOLDS_MAX_AVG, HOLDS_MAX_SQ }, true },
};

/* ---- its task ---- */

struct optim_task {
    struct executor *x;
    const struct op *op;
    struct exec_step *step;
    struct optim_run *run;
    int n;
    int64_t room;
    bool fresh;                     /* the states came with this entry: they start at zero */
};

struct grad_seen { const struct exec_step *step; const struct optim_run *r; };

static int see_grad(void *arg, int64_t first, int64_t n, const void *g)
{
    const struct grad_seen *s = arg;

    s->step->on_grad(s->step->on_grad_arg, s->r->tensor, s->r->from + first, n, g, (enum dtype)s->r->gt);
    return 0;
}

static int zero_states(struct kernels *k, const struct optim_run *r)
{
    for (int i = 0; i < MOST_STATES; i++)
        if (r->nstate[i] > 0 && kernels_ops(k)->zero(k, r->nstate[i], r->state[i]) < 0)
            return -1;
    return 0;
}

static int run_one(const struct optim_task *a, struct kernels *k, const struct optim_run *r, bool off, bool suspect)
{
    struct grad_seen seen = { a->step, r };

    if (a->fresh && zero_states(k, r) < 0)
        return -1;
    /* A step that is skipped for overflow is looked at as well where its loss is not finite. */
    if (suspect || (!off && host_works(a->x, a->op)))
        executor_finite_look(a->x, suspect, &(struct finite_run){ r->p, r->g, r->n, r->from, r->tensor, (enum dtype)r->gt });
    if (off)
        return 0;
    if (a->step->on_grad && host_works(a->x, a->op))
        see_grad(&seen, 0, r->n, r->g);
    else if (a->step->on_grad && executor_host_sees(a->x, k, r->n, r->g, (enum dtype)r->gt, see_grad, &seen) < 0)
        return -1;
    return rules[a->x->p->optimizer].update(k, &a->step->adamw, tensor_of(a->x, r->tensor), r);
}

static int run_optimizer(struct task *t)
{
    struct optim_task *a = t->self;
    struct executor *x = a->x;
    bool off = guarded_off(x, a->op), suspect = host_works(x, a->op) && executor_finite_suspect(x);
    int rc = 0;

    x->guarded += off;
    for (int i = 0; i < a->n && rc == 0 && !x->a.no_compute; i++)
        rc = run_one(a, kernels_for(x, a->op), &a->run[i], off, suspect);
    free(a->run);
    return rc;
}

static void add(struct optim_task *a, const struct optim_run *r)
{
    a->run = room_for(a->run, a->n, &a->room, sizeof *a->run);
    a->run[a->n++] = *r;
}

static int64_t until(const struct view *v, int64_t end)
{
    return v && v->from + v->n < end ? v->from + v->n : end;
}

/* Elements of a tensor from `at` on, as far as all that is needed of them goes. */
struct met { const struct view *w, *p, *g; int64_t to; };

static int meet_weights(struct executor *x, int tensor, int64_t at, int64_t end, struct met *m)
{
    m->w = view_find(&x->writes, HOLDS_MASTER, tensor, at);
    m->p = view_find(&x->writes, HOLDS_PARAM, tensor, at);
    m->g = view_find(&x->reads, HOLDS_GRAD, tensor, at);
    if (!m->g || !(m->w || m->p))
        return fail("the schedule's optimizer has no %s of %s", m->g ? "weights" : "gradient", tensor_of(x, tensor)->name);
    if (!m->w && m->p->dtype != DT_FP32)
        return fail("the schedule's optimizer updates %s in %s", tensor_of(x, tensor)->name, dtype_name(m->p->dtype));
    m->to = until(m->w, until(m->p, until(m->g, end)));
    return 0;
}

static struct optim_run run_of(struct executor *x, int tensor, int64_t at, const struct met *m)
{
    return (struct optim_run){ .g = view_at(x, m->g, at), .p = view_at(x, m->w ? m->w : m->p, at),
                               .out = m->w && m->p ? view_at(x, m->p, at) : NULL, .n = m->to - at, .from = at,
                               .tensor = tensor, .gt = (uint8_t)m->g->dtype,
                               .ot = (uint8_t)(m->w && m->p ? m->p->dtype : DT_FP32) };
}

/* Runs of one view of first states. */
static int meet(struct executor *x, struct optim_task *a, const struct rule *rule, const struct view *s)
{
    int64_t end = s->from + s->n;
    struct met m;

    for (int64_t at = s->from; at < end; at = m.to) {
        const struct view *second = rule->nstates > 1 ? view_find(&x->writes, rule->state[1], s->tensor, at) : NULL;
        if (rule->nstates > 1 && !second)
            return fail("the schedule's optimizer has no second state of %s", tensor_of(x, s->tensor)->name);
        if (meet_weights(x, s->tensor, at, until(second, end), &m) < 0)
            return -1;
        struct optim_run r = run_of(x, s->tensor, at, &m);
        const struct view *state[MOST_STATES] = { s, second };
        for (int i = 0; i < rule->nstates; i++) {
            r.state[i] = view_at(x, state[i], at);
            r.nstate[i] = r.n * (int64_t)sizeof(float);
        }
        add(a, &r);
    }
    return 0;
}

/* All of the tensor whose first state this view is. */
static int meet_whole(struct executor *x, struct optim_task *a, const struct rule *rule, const struct view *s)
{
    const struct tensor *t = tensor_of(x, s->tensor);
    struct met m;

    if (meet_weights(x, s->tensor, 0, t->numel, &m) < 0)
        return -1;
    struct optim_run r = run_of(x, s->tensor, 0, &m);
    for (int i = 0; i < rule->nstates; i++) {
        const struct view *v = i == 0 ? s : view_find(&x->writes, rule->state[i], s->tensor, 0);
        r.state[i] = v ? view_at(x, v, 0) : NULL;
        r.nstate[i] = v ? v->n * dtype_bytes(v->dtype) : 0;
    }
    if (m.to != t->numel || s->from != 0 || r.nstate[0] < s->n)
        return fail("the schedule's optimizer has not all of %s at once", t->name);
    add(a, &r);
    return 0;
}

static bool is_first_state(const struct rule *rule, enum holds h)
{
    return h == rule->state[0] || (rule->state[0] == HOLDS_ROW_VAR && h == HOLDS_EXP_AVG_SQ);
}

int executor_issue_optimizer(struct executor *x, const struct op *o, int64_t iteration)
{
    const struct rule *rule = &rules[x->p->optimizer];
    struct optim_task *a = room_new(1, sizeof *a);
    int rc;

    a->x = x;
    a->op = o;
    a->step = x->step;
    views_clear(&x->reads);
    views_clear(&x->writes);
    views_of(x, o, iteration, ACT_READ, &x->reads);
    views_of(x, o, iteration, ACT_WRITE, &x->writes);
    rc = views_there(x, o, &x->reads);
    for (int i = 0; i < x->writes.n && rc == 0; i++)
        if (x->writes.v[i].n > 0 && is_first_state(rule, x->writes.v[i].holds)) {
            a->fresh |= (x->writes.v[i].what & ACT_ALLOC) != 0;
            rc = (rule->whole ? meet_whole : meet)(x, a, rule, &x->writes.v[i]);
        }
    if (rc < 0 || !x->lanes) {
        free(a->run);
        a->run = NULL;
        a->n = 0;
    }
    if (rc < 0) {
        free(a);
        return -1;
    }
    executor_put(x, o, run_optimizer, a);
    return 0;
}
