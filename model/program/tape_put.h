/* tape_put.h -- a tensor that is filled in place, part by part: y[..., a:b].copy_(x). */
#ifndef DPX_TAPE_PUT_H
#define DPX_TAPE_PUT_H

#include "model/program/tape.h"

/* `into`, a part of which is now x; its first part gives nothing back to what was there before. */
var  tape_put(struct tape *t, const char *name, var into, var x);

/* Backward of its node. */
void tape_put_backward(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
