/* te_latent.h -- multi-head latent attention (DeepSeek-V3's) as Megatron-LM computes it. */
#ifndef DPX_TE_LATENT_H
#define DPX_TE_LATENT_H

#include "model/program/torch_model.h"

/* Queries, keys and values of n, a norm's result; what else has a name until attention returns goes to *kept. */
void te_latent(struct torch_model *b, var n, var qkv[3], var *kept);

#endif
