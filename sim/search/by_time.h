/* by_time.h -- plans in the order of what their steps take at least, until the rest is too slow to matter.
 *
 *     double best_s = INFINITY;
 *     if (by_time_run(&(struct by_time){ .found = found, .n = n, .programs = &programs, .desks = &desks, .look = look, .learn = learn }, &best_s) < 0)
 *         return -1;
 *     ... found[i].too_slow: it was not looked at ...
 *
 * Which plans are looked at does not depend on the number of threads. */
#ifndef DPX_BY_TIME_H
#define DPX_BY_TIME_H

#include "sim/search/desks.h"
#include "sim/search/programs.h"
#include "sim/search/search.h"

/* So many times slower than the fastest with room a plan decides nothing about which is the first of the answer: ranking.c compares plans
 * within SEARCH_NEAR of an idea's fastest, of the fastest idea, of the fastest with room, and of what stands for each. */
#define BY_TIME_FAR (SEARCH_NEAR * SEARCH_NEAR * SEARCH_NEAR * SEARCH_NEAR)

struct by_time {
    void         *of;                   /* handed to look() and learn() */
    struct found *found;
    int64_t       from, n;              /* plans [from, n), those aside that a bound of memory left out */
    const struct programs *programs;
    struct desks *desks;
    int           threads;
    /* Fills in plan i: by any thread. */
    int (*look)(void *of, int64_t i, struct desk *d);
    /* Is plan i, which was looked at and fits, the fastest so far?  One after the other, of a wave the fastest first.  NULL: nobody asks. */
    int (*learn)(void *of, int64_t i, double *best_s);
    /* Asked before each wave: plans whose bound is above that are not looked at, and not marked as too slow.  NULL: BY_TIME_FAR times
     * *best_s, and they are. */
    double (*limit)(void *of);
};

/* Those that were not assessed.  0, or -1 after a look() or learn() that returned less than 0. */
int by_time_run(const struct by_time *b, double *best_s);
/* Looks at n of them in this order. */
int by_time_look(const struct by_time *b, const int64_t *at, int64_t n);

#endif
