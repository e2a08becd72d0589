/* kineto_match.h -- the kernels of a trace's steps, held against the plan that was traced.
 *
 *     struct match m;
 *     match_open(&m, &plan);
 *     if (match_trace(&m, &expectation, &kineto, path, first, last) < 0)         each rank's trace
 *         ...
 *     match_series(&m);               m.series[i], with its samples
 *     match_free(&m);
 *
 * Products and attention are the plan's by their dimensions or their order (kineto_anchors.h).  A stretch between two
 * is shared among what the plan has there by their bytes; where the plan has nothing, it goes to the next stretch.  So
 * the sum of all is the sum of the trace's kernels.
 *
 * A kernel beside a collective takes longer, which the clock knows.  So where a fifth of a kernel's calls ran with no
 * collective beside, those alone count, and the others tell by how much it slows them down. */
#ifndef DPX_KINETO_MATCH_H
#define DPX_KINETO_MATCH_H

#include "calib/import/kineto_expect.h"
#include "calib/store/series.h"
#include "calib/trace/kineto_load.h"

/* One call of a kernel: its seconds, and the collective that ran for most of it (-1: none did), the step among all ranks'. */
struct call_time { double s; int beside, step; };

struct timed {
    struct series of;               /* its name is `name` */
    char    name[MEASURED_WORDS];
    struct call_time *call; int64_t ncalls, cap;
    int64_t taken;                  /* calls of the traces before this one: of a collective */
    double  *seconds;               /* what counts: match_series() */
    double  mean;
};

struct match {
    const struct plan *p;
    const struct expectation *x;    /* of the trace at hand */
    struct timed **timed; int n; int64_t cap;
    int32_t *slot;                  /* of timed, by hash */
    int      steps, traces;         /* of all traces together; traces */
    int      step;                  /* at hand, of all traces together */
    int64_t  colls_left;            /* calls of collectives that the plan does not have; messages are not looked for */
    struct series *series; int nseries; int64_t cap_series;
    char   (*words)[2][128];         /* names of overlaps */
    double  *overlap; int noverlaps;
};

void match_open(struct match *m, const struct plan *p);

/* Steps first to last of the trace, from 1, whose rank must have done x.  0, or -1 reported: the trace is not of this plan. */
int  match_trace(struct match *m, const struct expectation *x, const struct kineto *k, const char *path, int first, int last);

/* All series, for series_add(). */
void match_series(struct match *m);
void match_free(struct match *m);

#endif
