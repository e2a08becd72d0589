/* native_moe.h -- a mixture of experts as deepspeed.moe.layer.MoE computes it in the place of a block's. */
#ifndef DPX_NATIVE_MOE_H
#define DPX_NATIVE_MOE_H

#include "model/program/torch_model.h"

/* In place of the MLP: what b's tokens get from the experts of all ranks. */
var native_moe(struct torch_model *b, var x);

#endif
