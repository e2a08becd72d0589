/* exec_low_rank.c -- PowerSGD's entries: matrices of a bucket (M), the two narrow ones that stand for each (Ps, Qs), and what is lost by
 * it.  An entry's regions are those that its acts read or write, in their order (enum copy_fn). */
#include <stdlib.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"

struct low_rank_task {
    struct executor *x;
    const struct op *op;
    int64_t elems;              /* of the last region */
    float *at[3];
};

/* M as a matrix product's input, Q as its weights, P as its output. */
static struct linear shape_of(const struct narrow *m)
{
    return (struct linear){ .n = m->rows, .in = m->cols, .out = m->rank, .in_out = true, .at = DT_FP32, .wt = DT_FP32, .gt = DT_FP32,
                            .ldx = m->cols, .ldy = m->rank };
}

static int64_t of_all_q(const struct narrow *m, int n)
{
    return n > 0 ? m[n - 1].q + m[n - 1].cols * m[n - 1].rank : 0;
}

static int draw(struct low_rank_task *c, struct kernels *k, const struct narrow *m, int n)
{
    int64_t elems = of_all_q(m, n);
    float *numbers = room_new((size_t)elems + 1, sizeof *numbers);
    struct torch_generator g;

    torch_generator_seed(&g, torch_seeds_next(&c->x->seeds));
    for (int i = 0; i < n; i++)
        torch_randn(&g, m[i].cols * m[i].rank, numbers + m[i].q);
    int rc = kernels_ops(k)->upload(k, elems * dtype_bytes(DT_FP32), c->at[0], numbers);
    free(numbers);
    return rc;
}

/* first - second, as two passes over what is written. */
static int lost(const struct low_rank_task *c, struct kernels *k)
{
    const struct kernel_ops *ops = kernels_ops(k);

    if (ops->copy(k, c->elems, c->at[2], DT_FP32, c->at[0], DT_FP32, 1, false) < 0)
        return -1;
    return ops->copy(k, c->elems, c->at[2], DT_FP32, c->at[1], DT_FP32, -1, true);
}

static int run_one(const struct low_rank_task *c, struct kernels *k, const struct narrow *m)
{
    const struct kernel_ops *ops = kernels_ops(k);
    struct linear l = shape_of(m);
    float *const *at = c->at;

    switch ((enum copy_fn)c->op->u.copy.fn) {
    case COPY_ORTHOGONAL_P: return ops->orthonormal(k, m->rows, m->rank, at[0] + m->p);
    case COPY_ORTHOGONAL_Q: return ops->orthonormal(k, m->cols, m->rank, at[0] + m->q);
    case COPY_P_OF_Q:       return ops->linear(k, &l, at[0] + m->at, at[1] + m->q, NULL, at[2] + m->p, NULL, NULL);
    case COPY_Q_OF_P:       return ops->linear_dw(k, &l, at[0] + m->at, at[1] + m->p, at[2] + m->q, NULL, GRAD_SET);
    case COPY_M_OF_BOTH:    return ops->linear_dx(k, &l, at[0] + m->p, at[1] + m->q, at[2] + m->at, false);
    default:                return fail("the schedule's entry \"%s\" works on no matrix", c->op->what);
    }
}

static int run_low_rank(struct task *t)
{
    struct low_rank_task *c = t->self;
    struct kernels *k = kernels_for(c->x, c->op);
    const struct narrow *m = c->x->s->narrows + c->op->u.copy.narrow0;
    int n = c->op->u.copy.narrows, rc = 0;

    if (c->x->a.no_compute)
        return 0;
    switch ((enum copy_fn)c->op->u.copy.fn) {
    case COPY_DRAW_Q:  return draw(c, k, m, n);
    case COPY_LOST:    return lost(c, k);
    case COPY_SCALE_Q: return kernels_ops(k)->copy(k, of_all_q(m, n), c->at[0], DT_FP32, c->at[0], DT_FP32, (double)c->op->u.copy.scale,
                                                   false);
    default:           break;
    }
    for (int i = 0; i < n && rc == 0; i++)
        rc = run_one(c, k, &m[i]);
    return rc;
}

int executor_issue_low_rank(struct executor *x, const struct op *o, int64_t iteration)
{
    struct low_rank_task *c = room_new(1, sizeof *c);
    int n = 0;

    *c = (struct low_rank_task){ .x = x, .op = o };
    for (uint32_t i = o->act0; i < o->act0 + o->nacts && n < 3; i++) {
        const struct act *a = &x->s->acts[i];
        int64_t at = a->what & (ACT_READ | ACT_WRITE) ? act_region(x, a, iteration) : 0;
        if (!(a->what & (ACT_READ | ACT_WRITE)))
            continue;
        if (at < 0) {
            free(c);
            return fail("the schedule's entry \"%s\" works on a region that is not contiguous", o->what);
        }
        c->at[n++] = arena_at(x->arena, at);
    }
    c->elems = o->u.copy.writes / dtype_bytes(DT_FP32);
    executor_put(x, o, run_low_rank, c);
    return 0;
}
