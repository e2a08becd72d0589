/* micro_steps.h -- the order in which a rank runs the passes of an optimizer step's micro-steps, one micro-step after the
 * other; a pipeline's stage runs them as stage_ports.h has it.
 *
 *     static void emit(void *arg, const struct micro *m) { m->pass == MICRO_FORWARD ? forward(arg) : ... }
 *     struct micro_order order = { .steps = plan->accumulation, .first_differs = true, .last_differs = !every };
 *     micro_steps_emit(s, &order, &(struct micro_calls){ .emit = emit }, arg);
 *
 * A lowering emits the entries in and around each pass and reads what it needs: whether this is the first
 * of the step (no gradient of an earlier one exists) or the last (gradients are reduced), and which
 * instance of a buffer it uses.  Equal passes become one repeat. */
#ifndef DPX_MICRO_STEPS_H
#define DPX_MICRO_STEPS_H

#include "model/lower/common/lower_internal.h"
#include "model/lower/common/pipeline_order.h"

struct micro {
    enum micro_pass pass;
    int64_t at;                 /* number of the micro-step in the optimizer step, plus by * iteration */
    int     by;
    bool    first, last;        /* pass of its kind in the step; neither in a repeat */
};

struct micro_order {
    int64_t steps;              /* micro-steps, at least 1 */
    bool    first_differs, last_differs;    /* the first and the last are not like those between */
};

struct micro_calls {
    void (*emit)(void *arg, const struct micro *m);
    /* Are the micro-steps from `at` on alike, but for the last where that differs?  false: this one is
     * emitted by itself, then the next is tested.  NULL: they are. */
    bool (*alike)(void *arg, int64_t at);
    settled_fn *settled;        /* of a repeat's body, as lower_emit_settled() has it; may be NULL */
};

/* Appends the passes of all micro-steps of one optimizer step. */
void micro_steps_emit(struct schedules *s, const struct micro_order *order, const struct micro_calls *calls, void *arg);

#endif
