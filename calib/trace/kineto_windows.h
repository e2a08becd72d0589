/* kineto_windows.h -- where in a trace steps begin and end, and which work belongs to which. */
#ifndef DPX_KINETO_WINDOWS_H
#define DPX_KINETO_WINDOWS_H

#include "calib/trace/kineto_step.h"
#include "calib/trace/trace_read.h"

/* The host's marks: what PyTorch annotates. */
struct marks {
    struct window *step;      int64_t nstep, cap_step;              /* ProfilerStep#N */
    struct window *optimizer; int64_t noptimizer, cap_optimizer;    /* Optimizer.step#... */
    struct window *backward;  int64_t nbackward, cap_backward;      /* autograd's engine runs a node */
};

void windows_marks_add(struct marks *m, const struct trace_event *e);
void windows_marks_free(struct marks *m);

/* Finds the steps: *out, in order, is the caller's to free().  0, or -1 where there are none; by no
 * mark at all it takes what repeats at the end of the trace, in order of issue. */
int windows_marks_windows(struct marks *m, struct work_list *w, struct window **out, int *n, const char **by);

/* Gives each piece of work the step and the phase it was issued in. */
void windows_marks_assign(const struct marks *m, struct work_list *w, const struct window *step, int n);

/* The smallest period of the end of h: at least two whole periods, and half of h, repeat.  0: none. */
int64_t windows_period_of(const uint64_t *h, int64_t n);

#endif
