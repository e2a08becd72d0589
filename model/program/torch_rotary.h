/* torch_rotary.h -- rotation of two parts of an element pair by tables that hold each angle once; llama4's of complex numbers. */
#ifndef DPX_TORCH_ROTARY_H
#define DPX_TORCH_ROTARY_H

#include "model/program/torch_model.h"

/* x[0] cos - x[1] sin, then x[1] cos + x[0] sin, concatenated.  x keep their names. */
var torch_rotary(struct torch_model *b, const var x[2]);

/* Llama4TextRotaryEmbedding.forward(): cosines and sines in one tensor. */
var torch_angles(struct torch_model *b);
/* What Llama4TextAttention does to queries and keys, in place of what they were: rotation and norm, or in a layer without positions
 * a scale of the queries, whose names last until attention returns. */
void torch_llama4_positions(struct torch_model *b, var *const x[2], var kept[4]);

#endif
