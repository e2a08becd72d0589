/* tape_te_latent.h -- rotary positions of multi-head latent attention as Megatron-LM fuses them (core/fusions/fused_mla_yarn_rope_apply.py). */
#ifndef DPX_TAPE_TE_LATENT_H
#define DPX_TAPE_TE_LATENT_H

#include "model/program/tape.h"

/* ApplyMLARotaryEmbQ: `numel` elements of x are rotated in place, in backward their gradients. */
var te_latent_rotate(struct tape *t, const char *name, var x, int64_t numel);

/* ApplyMLARotaryEmbKV: from keys and values that lie head by head, and the part of a key that all heads share, keys and values of so many
 * elements, each in one piece; back, a gradient of either. */
void te_latent_keys(struct tape *t, const char *name, var both, var shared, const int64_t numel[2], var out[2]);

/* Backward of te_latent_rotate(). */
void tape_run_te_latent(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
