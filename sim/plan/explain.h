/* explain.h -- what the parts of dpxplan explain share. */
#ifndef DPX_EXPLAIN_H
#define DPX_EXPLAIN_H

#include <stdbool.h>

#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"

/* A plan from a file, evaluated. */
struct explained {
    struct plan       plan;
    struct evaluation e;
};

/* 0, or -1 reported with nothing to free. */
int  explain_load(const char *path, struct explained *p);
void explain_unload(struct explained *p);

/* Two plans: options, memory, collectives, both steps, what each option makes of the difference; with `schedule` the
 * entries that only one of them has.  The exit status. */
int  explain_two(const char *first, const char *second, bool schedule, const char *db);

/* The stages' rows, what each does and has, the busiest one, and the numbers of blocks that would balance them, each
 * evaluated.  `runs`: of every stage (simulate_stages). */
void explain_pipeline(const struct plan *p, const struct evaluation *e, const struct timing *t, const struct run *runs,
                      FILE *to);

/* Each stage as it ran, for drawings and traces; free() it.  NULL where a step had too many entries to keep. */
struct trace_role *explain_roles(const struct evaluation *e, const struct run *runs);

/* A plan beside what PyTorch said when its memory was short.  The exit status. */
int  explain_oom(const char *plan, const char *message);

#endif
