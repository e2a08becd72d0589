/* accuracy_models.h -- what the plans of `make accuracy` train: two models, in samples of SEQ tokens; and a generator of numbers
 * that is the same on every machine. */
#ifndef DPX_ACCURACY_MODELS_H
#define DPX_ACCURACY_MODELS_H

#include <stdint.h>

enum { SEQ = 256 };

static const struct { const char *name, *config; } models[] = {
    { "gpt", "{\"model_type\": \"gpt2\", \"n_layer\": 6, \"n_embd\": 384, \"n_head\": 6, \"n_positions\": 512,"
      "\"vocab_size\": 8192, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}" },
    { "llama", "{\"model_type\": \"llama\", \"num_hidden_layers\": 4, \"hidden_size\": 512, \"num_attention_heads\": 8,"
      "\"num_key_value_heads\": 4, \"intermediate_size\": 1408, \"vocab_size\": 8192,"
      "\"max_position_embeddings\": 512, \"tie_word_embeddings\": false}" },
};

static inline uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

#endif
