/* autoep_moe.h -- a mixture of experts as DeepSpeed's AutoEP computes it in a block of transformers', its experts shared out over ranks. */
#ifndef DPX_AUTOEP_MOE_H
#define DPX_AUTOEP_MOE_H

#include "model/program/torch_model.h"

/* In place of the MLP: what b's tokens get from the experts of all ranks. */
var autoep_moe(struct torch_model *b, var x);

#endif
