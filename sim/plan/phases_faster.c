/* phases_faster.c -- which of two layouts is faster, as far as what is not known of them lets one say.
 *
 * Two intervals that meet need not hide it: how fast an engine writes and how long a training step takes is as little known of one layout as of the other.
 * So both are looked at with generation, handing over and all else each at the low or at the high end of its interval, at the same end in both. */
#include "sim/plan/phases.h"

/* What is not known of an engine and of a training step is the same in both; of handing over only where both do it alike. */
int phases_faster(const struct phases_layout *a, const struct phases_layout *b)
{
    int other = a->apart == b->apart ? 0 : PHASE_CORNER_OF_HAND_OVER;
    bool less = a->iteration.s < b->iteration.s, more = a->iteration.s > b->iteration.s;

    for (int i = 0; i < PHASE_CORNERS; i++) {
        less &= a->corner[i] < b->corner[i] && a->corner[i] < b->corner[i ^ other];
        more &= a->corner[i] > b->corner[i] && a->corner[i] > b->corner[i ^ other];
    }
    return more - less;
}

const struct phases_layout *phases_fastest(const struct phases_layout *l, int n, bool apart)
{
    int i = 0;

    while (i < n && l[i].apart != apart)
        i++;
    return i < n ? &l[i] : NULL;
}
