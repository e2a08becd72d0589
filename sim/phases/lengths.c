/* lengths.c -- see lengths.h. */
#include "sim/phases/lengths.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"

int lengths_check(const struct lengths *l)
{
    return l->mean >= 1 && l->longest >= l->mean ? 0 : fail("response: a mean of %g tokens and a longest of %g: the mean is at least 1 and at most "
                                                              "the longest", l->mean, l->longest);
}

/* Mean over longest of the density e^(kx) on 0 to 1; it rises with k, 1/2 at 0. */
static double mean_at(double k) { return fabs(k) < 1e-4 ? 0.5 + k / 12 : 1 / -expm1(-k) - 1 / k; }

static double rise_of(const struct lengths *l)
{
    double low = -700, high = 700, want = l->mean / l->longest;

    for (int i = 0; i < 80; i++) {
        double k = (low + high) / 2;
        if (mean_at(k) < want)
            low = k;
        else
            high = k;
    }
    return (low + high) / 2;
}

static double quantile_at(double k, double longest, double u)
{
    if (fabs(k) < 1e-4)
        return longest * u;
    return k > 0 ? longest * (1 + log(u + (1 - u) * exp(-k)) / k) : longest * log1p(u * expm1(k)) / k;
}

static bool is_one_length(const struct lengths *l) { return l->mean > 0.998 * l->longest; }

double lengths_quantile(const struct lengths *l, double u)
{
    return is_one_length(l) ? l->longest : quantile_at(rise_of(l), l->longest, u);
}

/* E[x^2] of the density on 0 to 1 is (1 - 2 mean / k) / (1 - e^-k) + ... by parts: 1/(1 - e^-k) - 2 mean / k. */
double lengths_age(const struct lengths *l)
{
    double k = is_one_length(l) ? 0 : rise_of(l);

    if (is_one_length(l))
        return l->longest / 2;
    double squares = fabs(k) < 1e-4 ? 1.0 / 3 : 1 / -expm1(-k) - 2 * mean_at(k) / k;
    return l->longest * squares / (2 * mean_at(k));
}

/* Of more responses than these the rows are as many times more. */
enum { PACKED = 1024 };

int64_t lengths_rows(const struct lengths *l, double prompt, double capacity, int64_t n)
{
    int64_t few = n < PACKED ? n : PACKED, rows = 0;
    double *left = room_new((size_t)few, sizeof *left);

    for (int64_t i = 0; i < few; i++) {
        double tokens = prompt + lengths_quantile(l, 1 - ((double)i + 0.5) / (double)few);
        int64_t k = 0;
        while (k < rows && left[k] < tokens)
            k++;
        left[k] = (k == rows ? capacity : left[k]) - tokens;
        rows += k == rows;
    }
    free(left);
    return (int64_t)ceil((double)rows * (double)n / (double)few);
}
