/* loss_scale.c -- see loss_scale.h. */
#include "exec/train/loss_scale.h"

#include "base/fail.h"

struct loss_scale loss_scale_new(const struct loss_scaling *rule, double first)
{
    return (struct loss_scale){ .rule = rule, .scale = first, .lets_pass = rule->passes };
}

static int shrink(struct loss_scale *l)
{
    const struct loss_scaling *r = l->rule;

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

int loss_scale_next(struct loss_scale *l, bool overflow)
{
    const struct loss_scaling *r = l->rule;

    if (overflow)
        return shrink(l);
    int64_t counted = ++l->since - r->uncounted;
    if (counted < 1 || counted % r->window)
        return 0;
    l->lets_pass = r->passes;
    if (l->scale <= r->most / 2)
        l->scale *= 2;
    return 0;
}
