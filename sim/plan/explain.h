/* explain.h -- why a plan holds what it holds and takes the time it takes: the question, its three answers (one plan,
 * two plans, a plan beside PyTorch's out-of-memory message), and each as a document.  dpxplan explain and dpx_explain()
 * are both this. */
#ifndef DPX_EXPLAIN_H
#define DPX_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/plan/oom_message.h"
#include "sim/plan/plan_source.h"

struct explain_args {
    struct plan_given plan, other;
    struct oom_given  oom;
    const char *db;
    bool schedule;
};

#define EXPLAIN_OPTS(a) \
    { "PLAN.json", "the plan; - is standard input", .str = &(a).plan.path, .doc = &(a).plan.doc, .positional = true, .required = true }, \
    { "OTHER.json", "a second plan: say what differs", .str = &(a).other.path, .doc = &(a).other.doc, .positional = true }, \
    { "oom", "PyTorch's out-of-memory message, or a memory snapshot or statistics as JSON: what it was, what would fit", \
      .str = &(a).oom.path, .doc = &(a).oom.doc, .value = "FILE" }, \
    { "oom-text", "the same, where the message itself is at hand", .str = &(a).oom.text, .value = "MESSAGE" }, \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE" }, \
    { "schedule", "print the schedules themselves, entry by entry; of two plans their differences", .flag = &(a).schedule }

/* A plan, evaluated; its step by what was measured on its machine. */
struct explained {
    struct plan       plan;
    struct evaluation e;
    struct timing     t;
};

/* 0, or -1 with an option that does not go with another one reported. */
int  explain_check(const struct explain_args *a);

/* Evaluates a plan.  0, or -1 reported with nothing to free. */
int  explain_load(const struct plan_given *given, struct explained *p);
/* Its step, p->t; `run` as simulate_plan() has it, NULL: not wanted.  EXIT_DONE, or another exit status with the reason
 * reported. */
int  explain_time(struct explained *p, const char *db, struct run *run);
void explain_unload(struct explained *p);

/* What the arguments ask for as a document (new reference).  EXIT_DONE, EXIT_NO where one plan is asked about and does
 * not fit, or another exit status with the reason reported and no document. */
int  explain_json(const struct explain_args *a, json_t **doc);

/* Two plans: options, memory, collectives, both steps, what each option makes of the difference; with `schedule` the
 * entries that only one of them has. */
void    explain_two(struct explained *p, struct explained *q, bool schedule, FILE *to);
json_t *explain_two_json(struct explained *p, struct explained *q, bool schedule);

/* A plan beside what PyTorch said when its memory was short. */
void    explain_oom(const struct explained *p, const struct oom_message *m, FILE *to);

#endif
