/* cost.h -- a predicted duration: how long, how sure, and on what it rests.
 *
 * `low_s` and `high_s` bound a 90 % interval.  A basis is as good as the worst
 * thing that went into the figure: combine with basis_worst(). */
#ifndef DPX_COST_H
#define DPX_COST_H

#include <stdbool.h>

enum basis {
    BASIS_MEASURED,     /* on the machine itself, by dpxcal */
    BASIS_TRACED,       /* on the machine itself, by the profiler of a training */
    BASIS_PUBLISHED,    /* by others, on the same type of machine; the source is named */
    BASIS_DATASHEET,    /* rates of a datasheet times the efficiency that is usual */
};

struct cost {
    double s, low_s, high_s;
    enum basis basis;
    bool outside;           /* measured, but not where it is asked for: extrapolated */
    double variance;        /* of one time among many, s^2, where samples say so */
};

static inline const char *basis_name(enum basis b)
{
    static const char *const names[] = { "measured", "measured (trace)", "published", "datasheet" };

    return names[b];
}

static inline enum basis basis_worst(enum basis a, enum basis b)
{
    return a > b ? a : b;
}

#endif
