/* exec_quant.c -- entries that make codes of numbers, or numbers of codes: of whole regions, which the entry's first acts name in the order
 * that schedule.h has (enum copy_fn). */
#include <stdlib.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"

struct quant_task {
    struct executor *x;
    const struct op *op;
    struct quant of;
    void *at[4];
};

static int run_quant(struct task *t)
{
    struct quant_task *c = t->self;
    struct kernels *k = kernels_for(c->x, c->op);
    const struct kernel_ops *ops = kernels_ops(k);

    if (c->x->a.no_compute)
        return 0;
    switch ((enum copy_fn)c->op->u.copy.fn) {
    case COPY_QUANTIZE:   return ops->quantize(k, &c->of, c->at[0], c->at[1], c->at[2]);
    case COPY_DEQUANTIZE: return ops->dequantize(k, &c->of, c->at[0], c->at[1], c->at[2]);
    case COPY_REQUANTIZE: return ops->requantize(k, &c->of, c->at[0], c->at[1], c->at[2], c->at[3]);
    case COPY_MEAN:       return ops->mean(k, &c->of, (double)c->op->u.copy.scale, c->at[0], c->at[1]);
    default:              return fail("the schedule's entry \"%s\" quantises nothing", c->op->what);
    }
}

int executor_issue_quant(struct executor *x, const struct op *o, int64_t iteration)
{
    struct quant_task *c = room_new(1, sizeof *c);
    uint32_t regions = o->u.copy.fn == COPY_REQUANTIZE ? 4 : o->u.copy.fn == COPY_MEAN ? 2 : 3;

    *c = (struct quant_task){ .x = x, .op = o, .of = x->s->quants[o->u.copy.quant] };
    for (uint32_t i = 0; i < regions; i++) {
        int64_t at = i < o->nacts ? act_region(x, &x->s->acts[o->act0 + i], iteration) : -1;
        if (at < 0) {
            free(c);
            return fail("the schedule's entry \"%s\" lacks a region, or it is not contiguous", o->what);
        }
        c->at[i] = arena_at(x->arena, at);
    }
    executor_put(x, o, run_quant, c);
    return 0;
}
