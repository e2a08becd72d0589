/* clock_lanes.h -- what one run on the clock would take under other durations and slow-downs, all of them at once.
 *
 *     struct lanes beside[1] = { { .work = { middle, low, high }, .part = part, .pick = { { 0, 1, 2 } }, .issue = issue, .slow = slow } };
 *     clock_run_beside(roles, 1, SCHED_STEADY, lines, beside, &result);
 *     ... beside[0].end.s[3]: seconds under the fourth ...
 *
 * The clock decides what runs beside what, as predicted.  Each lane follows the same dependencies with its own times: an entry starts when
 * the last of what it waits for is done in that lane, so the critical path is the lane's own.  It takes its work in that lane, and what
 * others cost it on the clock, which grows with the time that they run beside it (clock_lanes.c).  So a lane is exact where nothing slows
 * anything down.  Where it may be off by more than a little it says so. */
#ifndef DPX_CLOCK_LANES_H
#define DPX_CLOCK_LANES_H

#include <stdbool.h>
#include <stdint.h>

/* LANE_PREDICTED: as on the clock. */
enum { LANES = 16, LANE_PREDICTED = 0, LANE_PARTS = 3 };

struct lane { double s[LANES]; };

/* Of one role. */
struct lanes {
    const double *work[3];          /* seconds of every entry, by its index in ops[]: three prices of it, */
    const uint8_t *part;            /* of which part of the step it is, */
    uint8_t pick[LANE_PARTS][LANES];        /* and by which price a part goes in each lane */
    struct lane issue, slow;        /* so many times the issuing thread's time; and what streams lose to each other */
    struct lane end, worked;        /* out: until its last entry is done; work on the compute stream, collectives aside */
    struct lane unsure;             /* out: by so much the end may be off: the clock jumped over iterations that were not alike yet in the
                                     * lane, or collectives share a link for longer than on the clock */
    bool jumped;                    /* out: over iterations */
};

#endif
