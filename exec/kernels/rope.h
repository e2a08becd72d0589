/* rope.h -- frequencies of rotary positions. */
#ifndef DPX_ROPE_H
#define DPX_ROPE_H

#include "model/arch/transformer.h"

/* inv_freq[rotary_dim / 2] as transformers' modeling_rope_utils.py computes them: theta^(-2i/d),
 * scaled as the config's rope_type says ("linear", "llama3").  The caller's to free(); NULL with
 * the reason reported: another type. */
float *rope_frequencies(const struct model *m, int64_t seq);

#endif
