/* timeline.h -- what goes into the clock (clock.h) and what comes out: durations, where a step's time
 * goes, every entry as it ran.
 *
 * step = compute + optimizer + exposed + idle + bubble (+ slowest, in a predicted step), always: the compute stream
 * works, runs a collective or waits for one (exposed, charged to that collective), waits for the issuing thread or a
 * copy (idle), or waits until another role has come to a message or collective (bubble). */
#ifndef DPX_TIMELINE_H
#define DPX_TIMELINE_H

#include "model/schedule/schedule.h"

/* Work outside of device memory: copies to host memory and back, the host's threads, files read and written. */
enum away { AWAY_DOWN, AWAY_UP, AWAY_HOST, AWAY_READ, AWAY_WRITE, NAWAY };

/* Seconds of every entry, by its index in ops[]; repeats have none. */
struct durations {
    const double *work;             /* on its stream */
    const double *issue;            /* on the issuing thread, before it is issued */
};

struct timeline {
    double step_s;                  /* until the issuing thread has read the loss */
    double compute_s, optimizer_s;  /* work on the compute stream, collectives aside */
    double exposed_s;               /* the compute stream ran collectives or waited for them */
    double exposed_by[NCOLL][PLAN_GROUPS];
    double idle_s;                  /* the rest */
    double bubble_s;                /* other roles had not come yet; 0 of one role */
    double slowest_s;               /* all wait for the slowest of them (jitter.h); 0 but in a predicted step */
    double busy_s[NSTREAM];         /* work on each stream */
    double comm_s;                  /* work of collectives, all streams */
    double away_s[NAWAY];           /* work outside of device memory, whatever its stream */
    int64_t held_peak;              /* bytes of device memory that it holds at most, on top of what it finds (simulate.h, held_peak()): */
    bool   held_known;              /* where it was asked for and the run says so */
};

/* One entry as it ran.  `cause` is the position of the entry that its start waited
 * for last, -1 when it was its own issue: walking back gives the critical path, up to where
 * the issuing thread was the bottleneck. */
struct ran {
    int     op;
    int64_t iteration;
    double  issued, start, end;
    int     cause;
};

struct run {
    struct ran *ran;
    int64_t     n;
    struct timeline total;
};

/* What a run keeps, repeats unrolled. */
void run_free(struct run *r);

/* Positions of the critical path, from the end to the start; returns how many were
 * written, at most n. */
int64_t run_critical(const struct run *r, int64_t *out, int64_t n);

#endif
