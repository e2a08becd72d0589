/* published.h -- rows of tests/sim/data/ and the errors of predictions against them. */
#ifndef DPX_PUBLISHED_H
#define DPX_PUBLISHED_H

#include <math.h>
#include <stdio.h>
#include <string.h>

/* |predicted/published - 1| over a set, and what share the 90 % interval covers. */
struct errors {
    int    n, covered;
    double sum, bias, worst;
};

static inline void errors_add(struct errors *e, double predicted, double low, double high,
                              double published)
{
    double off = predicted / published - 1;

    e->n++;
    e->covered += low <= published && published <= high;
    e->sum += fabs(off);
    e->bias += off;
    if (fabs(off) > fabs(e->worst))
        e->worst = off;
}

static inline double errors_mape(const struct errors *e)
{
    return e->n ? e->sum / e->n : 0;
}

static inline void errors_print(const char *what, const struct errors *e)
{
    if (e->n)
        printf("  %-34s %4d rows  MAPE %5.1f %%  bias %+6.1f %%  worst %+6.1f %%"
               "  in interval %3.0f %%\n", what, e->n, 100 * errors_mape(e), 100 * e->bias / e->n, 100 * e->worst,
               100.0 * e->covered / e->n);
}

/* Calls f for every line below the header of a CSV file.  Returns the number of lines. */
static inline int each_row(const char *path, void (*f)(const char *line, void *arg), void *arg)
{
    char  line[512];
    int   n = 0;
    FILE *in = fopen(path, "r");

    if (!in || !fgets(line, sizeof line, in)) {
        if (in)
            fclose(in);
        return 0;
    }
    for (; fgets(line, sizeof line, in); n++)
        f(line, arg);
    fclose(in);
    return n;
}

#endif
