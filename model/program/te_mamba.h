/* te_mamba.h -- a layer of Megatron-LM's HybridModel that is not GPTModel's: MambaLayer, and layers of attention or an MLP alone. */
#ifndef DPX_TE_MAMBA_H
#define DPX_TE_MAMBA_H

#include "model/program/torch_model.h"

/* MambaMixer of x, with the norm before it (LayerNormLinear); x's name stays. */
var te_mamba(struct torch_model *b, var x);

#endif
