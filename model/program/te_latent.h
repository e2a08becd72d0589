/* te_latent.h -- multi-head latent attention (DeepSeek-V3's) as Megatron-LM computes it. */
#ifndef DPX_TE_LATENT_H
#define DPX_TE_LATENT_H

#include "model/program/torch_model.h"

/* Queries, keys and values of n, a norm's result; what else has a name until attention returns goes to *kept.  *up: for te_discard(), once
 * attention has read them. */
void te_latent(struct torch_model *b, var n, var qkv[3], var *kept, int *up);
/* qkv_up_proj_and_rope_apply(): from the low rank's queries (the hidden states, where there is none), keys with values, and the part of a key
 * that heads share. */
void te_latent_up(struct torch_model *b, const var low[3], var qkv[3]);

#endif
