/* bill_beside.h -- what else takes of a training's time: writing a checkpoint over the training's network, evaluation passes. */
#ifndef DPX_BILL_BESIDE_H
#define DPX_BILL_BESIDE_H

#include "model/plan/plan.h"

/* How many times as long a step takes while so many bytes/s leave each node over its network adapters: the clock with what the network has
 * left, over the clock with all of it, both without calibrated times, which know one network.  0, or -1 reported. */
int bill_beside_network(const struct plan *p, double rate, double *times);

/* Seconds of one forward pass over a micro-batch on every rank: from the begin of a step to its first backward.  0, or -1 reported: of a
 * pipeline it is not known. */
int bill_forward(const struct plan *p, double *seconds);

#endif
