/* hf_text.h -- multimodal configs: dpx plans their language model. */
#ifndef DPX_HF_TEXT_H
#define DPX_HF_TEXT_H

#include "model/family/hf_value.h"

/* True for a config whose language model is in "text_config". */
bool hf_has_text(const json_t *config);

/* That model's own config (new reference): "tie_word_embeddings" and "_name_or_path" are the outer ones where it has
 * none, "model_type" the outer type's default.  NULL with the reason reported. */
json_t *hf_text_config(const struct hf *c);

#endif
