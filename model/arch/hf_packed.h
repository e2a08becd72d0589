/* hf_packed.h -- checkpoints whose weights are packed already, by their ids: transformers takes what their config.json says of it before what a
 * recipe asks for (quantizers/auto.py, merge_quantization_configs()). */
#ifndef DPX_HF_PACKED_H
#define DPX_HF_PACKED_H

#include <stdbool.h>

/* Packed by bitsandbytes in NF4 with double quantisation, as unsloth publishes them ("-bnb-4bit"). */
bool hf_packed_nf4(const char *id);
/* Packed otherwise (GPTQ, AWQ, float8 ...), which is not planned. */
bool hf_packed_otherwise(const char *id);

#endif
