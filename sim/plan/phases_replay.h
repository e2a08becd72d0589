/* phases_replay.h -- all phases of an iteration through the allocator of each process, one after the other, until an iteration reserves what the one
 * before did.
 *
 * A process begins with its roles' weights, in their order.  In a phase what sleeps is given back, then what is needed asked for again, then the role
 * acts: its training step, its forward, or the tensors of a hand over; behind it what is elsewhere between phases is given back, and the cache is emptied where
 * the role says so (empties_cache).  The device has room, so that no cache is given back on the way, and then (phases_replay_within()) no more than it has.
 *
 * Not replayed, so that the figures of moments.h count: pipelines, CUDA graphs, updates with another model's forward beside them, kernels whose
 * allocator is not known. */
#ifndef DPX_PHASES_REPLAY_H
#define DPX_PHASES_REPLAY_H

#include "sim/plan/phases.h"

/* 0, or -1 where a walk frees what it never made: reported. */
int phases_replay(struct phases *p);
/* Behind it, and the moments that came of it: once more, where more would be reserved than the card has, on what others leave of it in each phase: the
 * allocator gives its cache back and asks again.  1: figures changed; where a request finds no room all the same they are those of a device with room, and no_room says in which phase.
 * -1: reported. */
int phases_replay_within(struct phases *p);

#endif
