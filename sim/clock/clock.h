/* clock.h -- schedules on one simulated clock: those of one rank, or of several that talk to each other.
 *
 *     struct role roles[2] = { { &stage0, &prices0, NULL, "stage 0", NULL }, { &stage1, &prices1, NULL, "stage 1", NULL } };
 *     struct clock_result r;
 *     if (!clock_run(roles, 2, SCHED_STEADY, lines, NULL, &r))
 *         ... r.why: who waits for whom ...
 *     ... r.makespan_s, lines[0].step_s, lines[1].exposed_s ...
 *
 * A role is a rank that stands for all that do the same: one stage of a pipeline, say.  Each has its
 * own issuing thread and streams; start = max(issue, tail of the stream, tail of the process group,
 * ends of what is waited for).
 *
 * A send and the receive that matches it (schedule.h) begin when both have been reached and end together:
 * a rendezvous, as NCCL's.  A collective of a group instance that has several of the roles begins when
 * the last of them arrives.  A peer that is no role, and the ranks of a group within one role, are taken to
 * have arrived already.
 *
 * Work on different streams of a role slows each other down (contention.h): each running entry then has a
 * rate that changes whenever another begins or ends, a fluid simulation from event to event.  A message or
 * collective of several roles runs at the lowest of their rates.  Roles that share cores go the faster the fewer of them
 * compute (crowd.h).  Seconds throughout.
 *
 * Entries are unrolled when a stream has none left.  Once all roles are in a state in which they were
 * before (the same entries under way in each, with the same work left, the same messages
 * unmatched), later iterations repeat the time between the two, and the clock jumps over the rest of the
 * repeat.  Repeats that never settle are run to their end. */
#ifndef DPX_CLOCK_H
#define DPX_CLOCK_H

#include "sim/clock/contention.h"
#include "sim/clock/crowd.h"
#include "sim/clock/clock_lanes.h"
#include "sim/clock/timeline.h"

struct role {
    const struct schedules  *s;         /* s->rank: which rank it is; different for each role */
    const struct durations  *d;
    const struct contention *slow;      /* NULL: nothing slows anything */
    const char *name;                   /* "stage 1"; NULL: "rank N" */
    const struct crowd *crowd;          /* of all roles, or NULL: cores are not shared */
    bool holds;                         /* held memory is asked for */
    bool waits;                         /* and nothing else: the clock jumps a few iterations later, once that repeats as well */
    const struct clock_loops *loops;    /* of the schedule that runs; NULL: the run looks for them itself */
};

struct clock_result {
    double makespan_s;                  /* until the last role is done */
    char   why[512];                    /* of a deadlock, or of a send and receive that do not fit */
};

/* Runs all roles from one start.  `lines` receives a timeline for each role; `kept` (NULL, or one for
 * each role) every entry as it ran, for run_free().  False when no role can go on and not all are
 * done, or when two roles' parts of one communication do not fit: then `why` says which role waits
 * in which entry for what, and lines and kept end there. */
bool clock_run(const struct role *roles, int n, enum sched_id id, struct timeline *lines, struct run *kept,
               struct clock_result *out);

/* The same with lanes of each role: what the run takes under other durations. */
bool clock_run_beside(const struct role *roles, int n, enum sched_id id, struct timeline *lines, struct lanes *lanes,
                      struct clock_result *out);

/* Whether the entries of all roles, repeats unrolled, are few enough to be kept: a million. */
bool clock_keeps(const struct role *roles, int n, enum sched_id id);

/* What a run has to know of a schedule's repeats: for many runs of one it is found once. */
struct clock_loops *clock_loops_new(const struct schedules *s, enum sched_id id);
void clock_loops_free(struct clock_loops *l);

/* One role, which waits for no other.  `c` and `kept` may be NULL.  False when more than a million entries
 * were to be kept: then none is. */
bool clock_one(const struct schedules *s, enum sched_id id, const struct durations *d, const struct contention *c,
               struct timeline *out, struct run *kept);

#endif
