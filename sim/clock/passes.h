/* passes.h -- the entries of a stage's step, told apart by what they are part of.
 *
 *     struct passes at = { 0 };
 *     for (every entry in issue order) {
 *         struct pass_part of = passes_next(&at, s, op, iteration);
 *         if (of.kind) ... of.number, of.begins ...
 *     }
 *
 * A *pass* is a run of entries of the compute stream: the forward or the backward of one micro-step over one chunk, its
 * weights' gradients where backward is in two halves, or the optimizer.  A forward goes through its blocks upwards and a
 * backward downwards: where it does not, and where a stage takes over what another hands on, another pass begins.  What a stage
 * sends and receives is a pass of its own kind, one an entry. */
#ifndef DPX_PASSES_H
#define DPX_PASSES_H

#include "model/schedule/schedule.h"

enum { PASS_IS_FORWARD = 'F', PASS_IS_BACKWARD = 'B', PASS_IS_WEIGHTS = 'W', PASS_IS_OPTIMIZER = 'O', PASS_IS_MESSAGE = 'M' };

struct pass_part {
    char kind;                      /* PASS_IS_...; 0: none of them */
    int  number;                    /* of its micro-step, where an entry says it; else among those of its kind; optimizer 0 */
    bool begins;                    /* the first entry of its pass */
};

/* Start with { 0 }.  The last entry of the pass under way; passes of each kind so far; a micro-step that was named. */
struct passes {
    struct { char kind; uint8_t pass; int64_t depth; int k0, number; } last;
    int  count[128];
    int64_t mark;
    bool marked;
};

/* Entries that take no time (marks, waits) belong to none: ask only of those that ran, and of marks. */
struct pass_part passes_next(struct passes *at, const struct schedules *s, const struct op *o, int64_t iteration);

/* What a stage does before a pass that it receives something for: takes no time, and names the micro-step.  (What it does once
 * it has sent something names that micro-step, not the one that comes.) */
bool passes_is_mark(const struct op *o);

#endif
