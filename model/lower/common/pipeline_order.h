/* pipeline_order.h -- the order in which a pipeline's rank runs the passes of its chunks.
 *
 *     struct pipeline p = { PIPELINE_1F1B, .ranks = 4, .rank = 0, .chunks = 1, .steps = 8 };
 *     struct pipeline_pass *pass = malloc(pipeline_room(&p) * sizeof *pass);
 *     int n = pipeline_order(&p, pass);                0F0 0F1 0F2 0F3 0B0 0F4 ...
 *
 * Generators of torch.distributed.pipelining.schedules (PyTorch 2.15); 1F1B and interleaved are
 * Megatron-LM's too (core/pipeline_parallel/schedules.py), 1F1B is DeepSpeed's (runtime/pipe/schedule.py). */
#ifndef DPX_PIPELINE_ORDER_H
#define DPX_PIPELINE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pipeline_kind {
    PIPELINE_GPIPE,             /* all forwards, then all backwards */
    PIPELINE_1F1B,
    PIPELINE_INTERLEAVED,       /* 1F1B over several chunks of a rank */
    PIPELINE_LOOPED_BFS,        /* breadth first: chunk by chunk; backward from the last micro-step */
    PIPELINE_ZB1P,              /* interleaved, zero bubble: weight gradients fill the bubble */
    PIPELINE_ZBV,               /* zero bubble, two chunks a rank in the shape of a V */
    PIPELINE_DUALPIPEV,         /* the same V; a forward of one chunk beside a backward of the other */
    NPIPELINE
};

/* A pass of a micro-step: BACKWARD is both its parts, INPUT the gradients of inputs alone, WEIGHT those of weights. */
enum micro_pass { MICRO_FORWARD, MICRO_BACKWARD, MICRO_INPUT, MICRO_WEIGHT, NMICRO };

struct pipeline {
    enum pipeline_kind kind;
    int ranks, rank, chunks;    /* of the pipe; chunks of each rank */
    int steps;                  /* micro-steps */
};

/* `paired`: a forward that belongs to the backward after it, one action of PyTorch's (OVERLAP_F_B): it runs
 * one after the other, and both sends follow both. */
struct pipeline_pass { uint8_t kind; bool paired; int16_t chunk; int32_t step; };

/* NULL, or why PyTorch 2.15 refuses the schedule, in its words less the figures: static, to follow
 * "pipeline_schedule ...: ".  1F1B runs with fewer micro-steps than ranks as well (PyTorch 2.9, Megatron):
 * pipeline_too_few() is that check alone. */
const char *pipeline_refused(const struct pipeline *p);
bool        pipeline_too_few(const struct pipeline *p);

/* The stage of the model that is a rank's chunk: rank + chunk * ranks; in a V the second counts back. */
int pipeline_stage(const struct pipeline *p, int rank, int chunk);

/* Passes at most; fills out[] and returns how many. */
size_t pipeline_room(const struct pipeline *p);
int    pipeline_order(const struct pipeline *p, struct pipeline_pass *out);

/* The most micro-steps of a chunk (-1: of all chunks together) that have run forward and not yet the last
 * part of backward: instances of what lives from forward to backward. */
int    pipeline_in_flight(const struct pipeline_pass *pass, int n, int chunk);

const char *pipeline_name(enum pipeline_kind k);

#endif
