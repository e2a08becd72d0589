/* pipeline_order.h -- the order in which a pipeline's rank runs the passes of its chunks.
 *
 *     struct pipeline p = { PIPELINE_1F1B, .ranks = 4, .rank = 0, .chunks = 1, .steps = 8 };
 *     struct pipeline_pass *pass = malloc(pipeline_room(&p) * sizeof *pass);
 *     int n = pipeline_order(&p, pass);                0F0 0F1 0F2 0F3 0B0 0F4 ...
 *
 * Generators of the schedules that pipeline.h names. */
#ifndef DPX_PIPELINE_ORDER_H
#define DPX_PIPELINE_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "model/plan/pipeline.h"

/* A pass of a micro-step: BACKWARD is both its parts, INPUT the gradients of inputs alone, WEIGHT those of weights. */
enum micro_pass { MICRO_FORWARD, MICRO_BACKWARD, MICRO_INPUT, MICRO_WEIGHT, NMICRO };

/* `paired`: a forward that belongs to the backward after it, one action of PyTorch's (OVERLAP_F_B): it runs
 * one after the other, and both sends follow both. */
struct pipeline_pass { uint8_t kind; bool paired; int16_t chunk; int32_t step; };

/* Passes at most; fills out[] and returns how many. */
size_t pipeline_room(const struct pipeline *p);
int    pipeline_order(const struct pipeline *p, struct pipeline_pass *out);

/* Of an interleaved pipeline: the k-th forward, or backward, where chunks come in reverse; and how many forwards come before the
 * first backward. */
struct turn { int chunk, step; };
struct turn pipeline_turn(const struct pipeline *p, int k, bool backward);
int pipeline_warm_up(const struct pipeline *p);
/* Micro-steps that go through a chunk before the next chunk's turn. */
int pipeline_round(const struct pipeline *p);

/* The most micro-steps of a chunk (-1: of all chunks together) that have run forward and not yet the last
 * part of backward: instances of what lives from forward to backward. */
int    pipeline_in_flight(const struct pipeline_pass *pass, int n, int chunk);

#endif
