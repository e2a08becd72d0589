/* exec_optim.c -- AdamW: states, gradients and weights met element by element. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/run/executor_internal.h"

struct adam_run {
    float *m, *v, *p;               /* p: master weights, or the fp32 parameters themselves */
    const void *g;
    void *out;                      /* parameters to be cast into, or NULL */
    int64_t n, from;
    int32_t tensor;
    uint8_t gt, ot;
};

struct adam_task {
    struct executor *x;
    const struct op *op;
    struct exec_step *step;
    struct adam_run *run;
    int n;
    int64_t room;
    bool fresh;                     /* the states came with this entry: they start at zero */
};

struct grad_seen { const struct exec_step *step; const struct adam_run *r; };

static int see_grad(void *arg, int64_t first, int64_t n, const void *g)
{
    const struct grad_seen *s = arg;

    s->step->on_grad(s->step->on_grad_arg, s->r->tensor, s->r->from + first, n, g, (enum dtype)s->r->gt);
    return 0;
}

static int run_one(const struct adam_task *a, struct kernels *k, const struct adam_run *r, bool off, bool suspect)
{
    int64_t bytes = r->n * (int64_t)sizeof *r->m;
    struct grad_seen seen = { a->step, r };

    if (a->fresh && (kernels_ops(k)->zero(k, bytes, r->m) < 0 || kernels_ops(k)->zero(k, bytes, r->v) < 0))
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
    return kernels_ops(k)->adamw(k, &a->step->adamw, r->n, r->p, r->m, r->v, r->g, (enum dtype)r->gt, r->out,
                                 (enum dtype)r->ot);
}

static int run_adam(struct task *t)
{
    struct adam_task *a = t->self;
    struct executor *x = a->x;
    bool off = guarded_off(x, a->op), suspect = host_works(x, a->op) && executor_finite_suspect(x);
    int rc = 0;

    x->guarded += off;
    for (int i = 0; i < a->n && rc == 0 && !x->a.no_compute; i++)
        rc = run_one(a, kernels_for(x, a->op), &a->run[i], off, suspect);
    free(a->run);
    return rc;
}

static void add(struct adam_task *a, const struct adam_run *r)
{
    a->run = room_for(a->run, a->n, &a->room, sizeof *a->run);
    a->run[a->n++] = *r;
}

static int64_t until(const struct view *v, int64_t end)
{
    return v && v->from + v->n < end ? v->from + v->n : end;
}

/* Runs of one view of first moments. */
static int meet(struct executor *x, struct adam_task *a, const struct view *m)
{
    int64_t end = m->from + m->n;

    for (int64_t at = m->from; at < end; ) {
        const struct view *v = view_find(&x->writes, HOLDS_EXP_AVG_SQ, m->tensor, at);
        const struct view *w = view_find(&x->writes, HOLDS_MASTER, m->tensor, at);
        const struct view *p = view_find(&x->writes, HOLDS_PARAM, m->tensor, at);
        const struct view *g = view_find(&x->reads, HOLDS_GRAD, m->tensor, at);
        if (!v || !g || !(w || p))
            return fail("the schedule's optimizer has no %s of %s", !v ? "state" : !g ? "gradient" : "weights",
                        tensor_of(x, m->tensor)->name);
        if (!w && p->dtype != DT_FP32)
            return fail("the schedule's optimizer updates %s in %s", tensor_of(x, m->tensor)->name,
                        dtype_name(p->dtype));
        int64_t to = until(v, until(w, until(p, until(g, end))));
        add(a, &(struct adam_run){ .m = view_at(x, m, at), .v = view_at(x, v, at), .g = view_at(x, g, at),
                                   .p = view_at(x, w ? w : p, at), .out = w && p ? view_at(x, p, at) : NULL,
                                   .n = to - at, .from = at, .tensor = m->tensor, .gt = (uint8_t)g->dtype,
                                   .ot = (uint8_t)(w && p ? p->dtype : DT_FP32) });
        at = to;
    }
    return 0;
}

int executor_issue_optimizer(struct executor *x, const struct op *o, int64_t iteration)
{
    struct adam_task *a = room_new(1, sizeof *a);
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
        if (x->writes.v[i].holds == HOLDS_EXP_AVG) {
            a->fresh |= (x->writes.v[i].what & ACT_ALLOC) != 0;
            rc = meet(x, a, &x->writes.v[i]);
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
    executor_put(x, o, run_adam, a);
    return 0;
}
