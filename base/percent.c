/* percent.c -- see percent.h. */
#include "base/percent.h"

#include <math.h>
#include <stdio.h>

/* The largest percentage that is printed. */
#define MOST 9.99

/* "12.3 times", "66860 times" */
static struct percent_text times(double x)
{
    struct percent_text out;

    snprintf(out.s, sizeof out.s, x < 100 ? "%.3g times" : x < 1e9 ? "%.0f times" : "%.3g times", x);
    return out;
}

struct percent_text percent_share(double part)
{
    struct percent_text out = { "-" };

    if (fabs(part) > MOST && isfinite(part))
        return times(part);
    if (isfinite(part))
        snprintf(out.s, sizeof out.s, "%.1f %%", 100 * part);
    return out;
}

struct percent_text percent_change(double ratio)
{
    struct percent_text out = { "-" };

    if (ratio - 1 > MOST && isfinite(ratio))
        return times(ratio);
    if (isfinite(ratio))
        snprintf(out.s, sizeof out.s, "%+.1f %%", 100 * (ratio - 1));
    return out;
}

struct percent_text percent_faster(double ratio)
{
    struct percent_text much = ratio - 1 > MOST ? times(ratio) : percent_share(ratio - 1), out;

    snprintf(out.s, sizeof out.s, "%.16s faster", much.s);
    return out;
}

struct percent_text percent_slower(double ratio)
{
    struct percent_text much = ratio - 1 > MOST ? times(ratio) : percent_share(fabs(ratio - 1)), out = { "-" };

    if (isfinite(ratio))
        snprintf(out.s, sizeof out.s, "%.16s %s", much.s, ratio < 1 ? "faster" : "slower");
    return out;
}
