/* phases_faster.c -- which of two layouts is faster, as far as what is not known of them lets one say.
 *
 * Two intervals that meet need not hide it: how fast an engine writes and how long a training step takes is as little known of one layout as of the other.
 * So the interval is that of their QUOTIENT.  Each draw has every source of error at one place of its interval in both at once (phases_iteration.c), and
 * 90 % of the draws' quotients lie within.  What both have alike cancels; a source that only one of the two has enters with all of its own.  Apart the
 * longer side decides in each draw for itself. */
#include "sim/plan/phases.h"

#include "base/sort.h"

/* The difference between repeats of one run on one cluster: as sim/search/ties.c. */
#define REPEATS .01

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

struct phases_quotient phases_quotient_of(const struct phases_layout *a, const struct phases_layout *b)
{
    double of[PHASE_DRAWS];

    for (int i = 0; i < PHASE_DRAWS; i++)
        of[i] = a->draw[i] / b->draw[i];
    sort_stable(of, PHASE_DRAWS, sizeof *of, by_size);
    return (struct phases_quotient){ .middle = a->iteration.s / b->iteration.s, .low = of[PHASE_DRAWS / 20], .high = of[PHASE_DRAWS - 1 - PHASE_DRAWS / 20] };
}

int phases_faster(const struct phases_layout *a, const struct phases_layout *b)
{
    struct phases_quotient q = phases_quotient_of(a, b);

    return q.high < 1 - REPEATS ? -1 : q.low > 1 + REPEATS;
}

const struct phases_layout *phases_fastest(const struct phases_layout *l, int n, bool apart)
{
    int i = 0;

    while (i < n && l[i].apart != apart)
        i++;
    return i < n ? &l[i] : NULL;
}
