/* pipeline.h -- the schedules of pipeline parallelism: which exist, and which stage of the model a rank's chunks are.
 *
 *     struct pipeline p = { PIPELINE_INTERLEAVED, .ranks = 4, .rank = 1, .chunks = 2, .steps = 8 };
 *     pipeline_stage(&p, 1, 0), pipeline_stage(&p, 1, 1)           1, 5
 *
 * They are those of torch.distributed.pipelining.schedules (PyTorch 2.15); 1F1B and interleaved are
 * Megatron-LM's too (core/pipeline_parallel/schedules.py), 1F1B is DeepSpeed's (runtime/pipe/schedule.py). */
#ifndef DPX_PIPELINE_H
#define DPX_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

enum pipeline_kind {
    PIPELINE_GPIPE,             /* all forwards, then all backwards */
    PIPELINE_1F1B,
    PIPELINE_INTERLEAVED,       /* 1F1B over several chunks of a rank */
    PIPELINE_LOOPED_BFS,        /* breadth first: chunk by chunk; backward from the last micro-step */
    PIPELINE_ZB1P,              /* interleaved, zero bubble: weight gradients fill the bubble */
    PIPELINE_ZBV,               /* zero bubble, two chunks a rank in the shape of a V */
    PIPELINE_DUALPIPEV,         /* the same V; pairs of a forward and a backward */
    NPIPELINE
};

struct pipeline {
    enum pipeline_kind kind;
    int ranks, rank, chunks;    /* of the pipe; chunks of each rank */
    int steps;                  /* micro-steps */
    int group;                  /* interleaved, by Megatron-LM's rounds of so many micro-steps (schedules.py, get_schedule_table()); 0: by
                                 * PyTorch's */
};

/* Micro-steps of a step whose passes come again and again. */
#define PIPELINE_MOST_STEPS INT64_C(65536)
/* Chunks of a rank times micro-steps where they do not: each message is an event of the schedule, which has 2^16 - 1 (sched_event()) for
 * four directions in the parts of a step. */
#define PIPELINE_MOST_PASSES INT64_C(3072)

/* Two chunks a rank, the second counted back: the first rank has the first and the last stage. */
bool pipeline_is_v(enum pipeline_kind k);

/* Some of its backwards run in two parts: gradients of inputs, later those of weights. */
bool pipeline_splits(enum pipeline_kind k);

/* Chunks that a rank has unless a plan says otherwise. */
int pipeline_usual_chunks(enum pipeline_kind k);

/* NULL, or why PyTorch 2.15 refuses the schedule, in its words less the figures: static, to follow
 * "parallel.pipeline_schedule: ".  1F1B runs with fewer micro-steps than ranks as well (PyTorch 2.9, Megatron-LM):
 * pipeline_too_few(): that check alone refuses it. */
const char *pipeline_refused(const struct pipeline *p);
bool        pipeline_too_few(const struct pipeline *p);

/* The same of PyTorch 2.9 with several stages a rank: NULL where it runs one in lock step and every pass comes after its input. */
const char *pipeline_refused_in_step(const struct pipeline *p);

/* The stage of the model that is a rank's chunk: rank + chunk * ranks; in a V the second counts back. */
int pipeline_stage(const struct pipeline *p, int rank, int chunk);

/* The rank that has a stage; it is chunk stage / ranks of it. */
int pipeline_rank(const struct pipeline *p, int stage);

/* PyTorch's class, without "Schedule". */
const char *pipeline_name(enum pipeline_kind k);

#endif
