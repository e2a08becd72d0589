/* explain.h -- why a plan holds what it holds and takes the time it takes: the question, its three answers (one plan,
 * two plans, a plan beside PyTorch's out-of-memory message), and each as a document.  dpxplan explain and dpx_explain()
 * are both this. */
#ifndef DPX_EXPLAIN_H
#define DPX_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"
#include "sim/plan/oom_message.h"
#include "sim/plan/plan_source.h"

struct explain_args {
    struct plan_given plan, other;
    struct opt_pairs set;           /* changes of the plan, of both where there are two */
    struct oom_given  oom;
    const char *db;
    bool schedule, detail, snapshot;    /* snapshot: the caller writes one */
    int64_t rank, stage;            /* -1: not given */
};

#define EXPLAIN_ARGS { .rank = -1, .stage = -1 }
#define EXPLAIN_OPTS(a) \
    OPTS_EXAMPLE("dpxplan explain llama-3.1-8b 8xh100"), \
    OPTS_EXAMPLE("dpxplan explain demo/8b-ddp.json demo/8b-fsdp.json"), \
    { "PLAN.json", "the plan; or a model's name, or a file of a training framework (both with --cluster); - is standard input", .str = &(a).plan.path, .doc = &(a).plan.doc, .positional = true, .required = true }, \
    { "OTHER.json", "a second plan: say what differs", .str = &(a).other.path, .doc = &(a).other.doc, .positional = true }, \
    PLAN_GIVEN_OPTS((a).plan), \
    { "set", "change keys of the plan first, of both where there are two", .pairs = &(a).set, .often = true }, \
    { "env", "set environment variables of the job, such as NCCL_NVLS_ENABLE=0", .pairs = &(a).set, .value = "NAME=VALUE ..." }, \
    { "oom", "PyTorch's out-of-memory message, or a memory snapshot or statistics as JSON: what it was, what would fit", \
      .str = &(a).oom.path, .doc = &(a).oom.doc, .value = "FILE", .often = true }, \
    { "oom-text", "the same, where the message itself is at hand", .str = &(a).oom.text, .value = "MESSAGE" }, \
    { "db", "the database of calibrations", .str = &(a).db, .value = "FILE" }, \
    { "schedule", "print the schedules themselves, entry by entry; of two plans their differences", .flag = &(a).schedule }, \
    { "detail", "with --json: every entry of the step on its streams, memory over it by category, and the plans behind the advice", \
      .flag = &(a).detail }, \
    { "rank", "with --schedule, --detail or --snapshot: of this rank, not of the fullest", .i = &(a).rank, .value = "N" }, \
    { "stage", "with --schedule or --snapshot: of this stage of the pipeline", .i = &(a).stage, .value = "N" }

/* A plan, evaluated; its step by what was measured on its machine. */
struct explained {
    struct plan       plan;
    struct evaluation e;
    struct timing     t;
};

/* 0, or -1 with an option that does not go with another one reported. */
int  explain_check(const struct explain_args *a);

/* Evaluates a plan with these changes.  0, or -1 reported with nothing to free. */
int  explain_load(const struct plan_given *given, const struct opt_pairs *set, struct explained *p);
/* The rank and the stage that are asked for are there.  0, or -1 reported. */
int  explain_check_place(const struct explained *p, const struct explain_args *a);
/* Its step, p->t; `runs`: room for the run of every stage (explain_runs()), NULL: not wanted.  EXIT_DONE, or another exit
 * status with the reason reported. */
int  explain_time(struct explained *p, const char *db, struct run *runs);
/* Both of the question's plans, with their times: EXIT_DONE, or what it ends with, and then neither is there to unload. */
int  explain_load_two(const struct explain_args *a, struct explained *p, struct explained *q);
void explain_unload(struct explained *p);

/* What is live at a peak, largest first: families of buffers, and what the entry at the peak works with itself (of: NULL,
 * count 1), which is the rest of each category.  Returns how many were written, at most `most`. */
struct explain_live { const char *what, *of; enum category category; int64_t count, each, bytes; };
int  explain_live(const struct schedules *s, const struct peak *at, struct explain_live *out, int most);

/* [{"what", "of", "category", "count", "each_bytes", "bytes"}] of explain_live() (new reference). */
json_t *explain_live_json(const struct schedules *s, const struct peak *at);

/* How many runs a step has: one, or one a stage of a pipeline. */
int  explain_runs(const struct explained *p);

/* The schedules of the fullest rank, or of the one that was asked for, which are lowered into `other`.  NULL: reported. */
const struct schedules *explain_schedules(const struct explained *p, const struct explain_args *a, struct schedules *other);

/* What the arguments ask for as a document (new reference).  EXIT_DONE, EXIT_NO where one plan is asked about and does
 * not fit, or another exit status with the reason reported and no document. */
int  explain_json(const struct explain_args *a, json_t **doc);

/* The step for pictures: {"resolution_s", "categories", "kinds", "roles": [{"name", "rank", "step_s", "streams", "words", "entries",
 * "memory", "peak"}]}, a role for each stage (new reference): its fullest rank, or where it is of that stage the rank whose schedules are
 * `of` (NULL: none).  `runs`: of explain_time().  JSON null where a step has too many entries to keep; NULL with the reason reported.
 *
 * entries: those that take time, each [stream, begin in ns, end in ns, words, kind], numbers of the lists; of a long step those of a
 * stream and kind that lie nearer together than resolution_s are one, named by its first.
 * memory: {"t_ns", "words", "bytes": [[of each category]]}: what is allocated while an entry is issued, at the time at which the
 * last entry up to it begins; of many entries the fullest of several.
 * peak: {"step", "at", "bytes", "live"} of the largest in init, first and steady. */
json_t *explain_step_json(const struct explained *p, const struct run *runs, const struct schedules *of);

/* Two plans: options, memory, collectives, both steps, what each option makes of the difference; with `schedule` the
 * entries that only one of them has. */
void    explain_two(struct explained *p, struct explained *q, bool schedule, FILE *to);
json_t *explain_two_json(struct explained *p, struct explained *q, bool schedule);

/* The stages' rows, what each does and has, the busiest one, and the numbers of blocks that would balance it, each
 * evaluated.  `runs`: of every stage (simulate_stages). */
void explain_pipeline(const struct plan *p, const struct evaluation *e, const struct timing *t, const struct run *runs,
                      FILE *to);

/* Each stage as it ran, for drawings and traces; free() it.  NULL where a step had too many entries to keep. */
struct trace_role *explain_roles(const struct evaluation *e, const struct run *runs);

/* A plan beside what PyTorch said when its memory was short. */
void    explain_oom(const struct explained *p, const struct oom_message *m, FILE *to);

#endif
