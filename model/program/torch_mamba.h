/* torch_mamba.h -- NemotronHMamba2Mixer.forward() in training: modeling_nemotron_h.py of transformers 5.24 with mamba_ssm's fused kernel. */
#ifndef DPX_TORCH_MAMBA_H
#define DPX_TORCH_MAMBA_H

#include "model/program/tape.h"
#include "model/program/torch_model.h"

/* What a mixer makes of x, whose name stays. */
var torch_mamba(struct torch_model *b, var x);

/* The rank's own mixer, and A = -exp(A_log.float()). */
struct mamba_shape torch_mamba_shape(const struct torch_model *b);
var torch_mamba_a(struct torch_model *b);

#endif
