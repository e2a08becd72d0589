/* memory_time.h -- what is allocated over one steady step, by category and by the clock.
 *
 *     struct memory_time m;
 *     memory_time(s, r, 512, &m);
 *     ... m.t[i], m.by[i][CAT_PARAMS], for i = 0 to m.n - 1 ...
 *     memory_time_free(&m);
 */
#ifndef DPX_MEMORY_TIME_H
#define DPX_MEMORY_TIME_H

#include "model/schedule/ledger.h"
#include "sim/clock/trace.h"

/* At most so many moments: of neighbouring entries the fullest one. */
struct memory_time {
    int64_t n;
    double *t;                      /* seconds: when the last entry up to it begins */
    struct point *at;               /* the entry, and `peak`: bytes while it is issued */
    int64_t (*by)[NCAT];            /* of each category; they sum to at[i].peak */
};

/* `r`: the run of these schedules, with every entry kept. */
void memory_time(const struct schedules *s, const struct run *r, int64_t columns, struct memory_time *out);
void memory_time_free(struct memory_time *m);

/* Draws it into an .svg, with `overhead` bytes below and a line at `limit`.  0, or -1 reported. */
int  memory_time_figure(const struct trace_role *role, int64_t overhead, int64_t limit, double step_s, const char *path);

#endif
