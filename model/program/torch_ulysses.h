/* torch_ulysses.h -- attention under DeepSpeed-Ulysses: each rank has all positions of its heads.  DeepSpeed's own code, or under FSDP verl's. */
#ifndef DPX_TORCH_ULYSSES_H
#define DPX_TORCH_ULYSSES_H

#include "model/program/torch_model.h"

/* Ulysses deals the heads of these blocks out. */
bool torch_is_ulysses(const struct torch_model *b);
/* By verl's code (verl/utils/ulysses.py, August 2026). */
bool torch_is_verls_ulysses(const struct torch_model *b);

/* UlyssesSPAttentionHF.forward() around scaled_dot_product_attention(): in q, k, v with all heads of the rank's positions;
 * out what the output projection reads. */
var torch_ulysses(struct torch_model *b, const var in[3]);

/* The mean loss of a rank's positions joined to that of all (transformers' deepspeed_sp_compute_loss(); verl's gather_outputs_and_unpad()). */
var torch_ulysses_loss(struct torch_model *b, var loss);

#endif
