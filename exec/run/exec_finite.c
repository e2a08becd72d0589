/* exec_finite.c -- where NaN or infinity first was: looked for only in a step that has it, when the optimizer, on the
 * host, has the weights before the update and the gradients at hand.  A step without costs a test of its loss and
 * norm, and of one element a run. */
#include <math.h>
#include <stdint.h>

#include "exec/kernels/half.h"
#include "exec/run/executor_internal.h"

/* By the losses of this rank's own samples and by the norm; on a device they come only with the step's end.  Entries of
 * the init schedule (DeepSpeed's first, empty update) belong to no step. */
bool executor_finite_suspect(const struct executor *x)
{
    return x->step && (!isfinite(x->step->loss_sum) || (x->norm_taken && !isfinite(executor_norm_value(x))));
}

static float element(const void *v, enum dtype t, int64_t i)
{
    const uint16_t *half = v;

    return t == DT_FP32 ? ((const float *)v)[i] : t == DT_FP16 ? half_from_fp16(half[i]) : half_from_bf16(half[i]);
}

/* The first element that is not finite; -1. */
static int64_t first_bad(const void *v, enum dtype t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(element(v, t, i)))
            return i;
    return -1;
}

/* Weights before gradients, for these follow from those; weights in the order of forward, gradients in that of
 * backward. */
static bool is_earlier(const struct exec_bad *a, const struct exec_bad *b)
{
    if (!b->found || a->weights != b->weights)
        return !b->found || a->weights;
    if (a->tensor != b->tensor)
        return a->weights ? a->tensor < b->tensor : a->tensor > b->tensor;
    return a->element < b->element;
}

static void note(struct exec_bad *known, const struct exec_bad *seen)
{
    if (is_earlier(seen, known))
        *known = *seen;
}

void executor_finite_look(struct executor *x, bool suspect, const struct finite_run *r)
{
    struct exec_bad *bad = &x->step->bad;
    int64_t i;

    if (r->n == 0 || !(suspect || !isfinite(element(r->g, r->gt, 0))))
        return;
    if ((i = first_bad(r->p, DT_FP32, r->n)) >= 0)
        note(bad, &(struct exec_bad){ true, true, r->tensor, r->from + i });
    if ((i = first_bad(r->g, r->gt, r->n)) >= 0)
        note(bad, &(struct exec_bad){ true, false, r->tensor, r->from + i });
}
