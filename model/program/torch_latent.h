/* torch_latent.h -- queries, keys and values of multi-head latent attention (DeepSeek-V3's). */
#ifndef DPX_TORCH_LATENT_H
#define DPX_TORCH_LATENT_H

#include "model/program/torch_model.h"

/* Of attention; all: a projection that keeps its name until it returns. */
struct qkv { var q, k, v, all; };

/* From x; what else has a name until attention returns goes to `kept`. */
struct qkv torch_latent(struct torch_model *b, var x, var kept[4]);

#endif
