/* torch_rotary.h -- rotation of two parts of an element pair by tables that hold each angle once. */
#ifndef DPX_TORCH_ROTARY_H
#define DPX_TORCH_ROTARY_H

#include "model/program/torch_model.h"

/* x[0] cos - x[1] sin, then x[1] cos + x[0] sin, concatenated.  x keep their names. */
var torch_rotary(struct torch_model *b, const var x[2]);

#endif
