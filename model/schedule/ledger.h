/* ledger.h -- the bytes a rank holds while schedules run: one account for each memory.
 *
 * An account counts the spaces of `in`, IN() bits: IN(SPACE_DEVICE), which calls without `in` use; IN(SPACE_PINNED);
 * IN_HOST for all of a node's DRAM.  Ranks of a node share all but device memory: there their bytes add up.  What
 * compute entries hold beyond their buffers is device memory.
 *
 * *allocated*: in issue order, what torch.cuda.max_memory_allocated means.
 * *held*, from the start of the work that allocates until the last use is done, needs
 * a clock: sim/clock/held.c.
 *
 * Repeats are skipped exactly: every iteration of a body moves the same bytes,
 * so its peak is in the first or in the last one. */
#ifndef DPX_LEDGER_H
#define DPX_LEDGER_H

#include <stdint.h>

#include "model/schedule/schedule.h"

struct peak {
    unsigned      in;               /* the account's spaces; 0: device memory */
    int64_t       bytes;
    int64_t       by[NCAT];         /* what was live, by category; sums to bytes */
    enum sched_id sched;
    int           op;               /* index into ops[] of the entry at which it was reached */
    int64_t       iteration;        /* of the innermost repeat around it */
};

struct ledger {
    struct peak peak;               /* the largest over init, first and steady */
    struct peak phase[NSCHED];      /* of each schedule */
    int64_t     persistent[NCAT];   /* live after a steady step: what persists */
    int64_t     most[NCAT];         /* largest of each category on its own, in steady */
};

/* Runs all three schedules.  O(entries), whatever the repeat counts. */
void ledger_run(const struct schedules *s, struct ledger *out);
void ledger_run_in(const struct schedules *s, unsigned in, struct ledger *out);

/* The first entry at which more than `limit` bytes are live; -1 if none. */
int ledger_first_over(const struct schedules *s, int64_t limit, struct peak *at);
int ledger_first_over_in(const struct schedules *s, unsigned in, int64_t limit, struct peak *at);

/* Families live at `at` in its account, largest first: bytes and number of instances.  Returns
 * how many were written, at most n.  The entry's own working set (activations,
 * temporaries and gradients inside a compute segment) is not a family. */
struct live { int buf; int64_t instances, bytes; };
int ledger_live(const struct schedules *s, const struct peak *at, struct live *out, int n);

/* Live bytes after every issued entry of a schedule, repeats unrolled up to n
 * points; for plots.  Returns the number of points. */
struct point { int op; int64_t iteration, bytes, peak; };
int64_t ledger_curve(const struct schedules *s, enum sched_id id, struct point *out, int64_t n);
int64_t ledger_curve_in(const struct schedules *s, unsigned in, enum sched_id id, struct point *out, int64_t n);
/* The same of device memory, and of each point's `peak` what is of which category: they sum to it. */
int64_t ledger_curve_by(const struct schedules *s, enum sched_id id, struct point *out, int64_t (*by)[NCAT], int64_t n);

#endif
