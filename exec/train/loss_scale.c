/* loss_scale.c -- see loss_scale.h. */
#include "exec/train/loss_scale.h"

#include <float.h>

#include "base/fail.h"

/* Doubled after every `window` steps without overflow, of which DeepSpeed does not count the first; so many overflows are let pass;
 * no lower than `least`, where one more `ends` the run. */
static const struct rule { int64_t window, uncounted, passes; double least; bool ends; } rules[NLOSS_SCALE_RULE] = {
    [LOSS_SCALE_TORCH]       = { 2000, 0, 0, FLT_MIN, true },
    [LOSS_SCALE_DEEPSPEED]   = { 1000, 1, 1, 1, true },
    [LOSS_SCALE_DEEPSPEED_0] = { 1000, 1, 0, 1, false },
};

struct loss_scale loss_scale_new(enum loss_scale_rule rule, double first)
{
    return (struct loss_scale){ .rule = rule, .scale = first, .lets_pass = rules[rule].passes };
}

static int shrink(struct loss_scale *l, const struct rule *r)
{
    l->skipped++;
    l->since = 0;
    if (l->lets_pass > 0) {
        l->lets_pass--;
        return 0;
    }
    if (l->scale <= r->least && r->ends)
        return fail("fp16: gradients overflow even with a loss scale of %g", l->scale);
    l->scale = l->scale / 2 > r->least ? l->scale / 2 : r->least;
    return 0;
}

/* torch's scale is fp32 and does not become infinite; DeepSpeed's is a number of Python's. */
int loss_scale_next(struct loss_scale *l, bool overflow)
{
    const struct rule *r = &rules[l->rule];

    if (overflow)
        return shrink(l, r);
    int64_t counted = ++l->since - r->uncounted;
    if (counted < 1 || counted % r->window)
        return 0;
    l->lets_pass = r->passes;
    if (l->rule != LOSS_SCALE_TORCH || l->scale * 2 <= FLT_MAX)
        l->scale *= 2;
    return 0;
}
