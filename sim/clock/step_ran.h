/* step_ran.h -- where the time of each stage of a pipeline went, from its entries as they ran: the parts that the clock has
 * of its own steps (step.h), of a step that was measured.
 *
 *     struct step_ran stage[P] = { { schedules, entries, n }, ... };
 *     step_ran_parts(stage, P, &parts, &step_s);
 *
 * The compute stream computes, or something that ended last before its next entry is what it waited for: a message, from when
 * both of its ranks had come to it (before that, and after a stage's last entry until the last stage is done: bubble); a
 * collective, from when all stages that take part had come; else its own issuing thread or a copy.  Of the clock's own entries it
 * finds the clock's own parts (tests/sim/test_step.c). */
#ifndef DPX_STEP_RAN_H
#define DPX_STEP_RAN_H

#include "sim/clock/simulate.h"

/* What one rank of a stage ran, in issue order; NaN: an entry that did not run.  Seconds from the begin of the step, at which
 * all ranks are together. */
struct step_ran { const struct schedules *s; const struct ran *ran; int64_t n; };

/* Messages and collectives match by their order among ranks of the stages given; what no other of these takes part in began when
 * it was called.  held_bytes stays 0. */
void step_ran_parts(const struct step_ran *stage, int n, struct stage_parts *out, double *step_s);

/* When all of the stages given that take part in an entry had come to it: since[s][i] of the i-th entry of stage s; NaN: it
 * meets nobody, or did not run.  since[s] has room for stage[s].n. */
void step_ran_since(const struct step_ran *stage, int n, double *const *since);

#endif
