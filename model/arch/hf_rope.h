/* hf_rope.h -- the rotary fields of a config. */
#ifndef DPX_HF_ROPE_H
#define DPX_HF_ROPE_H

#include "model/family/family.h"

/* Once head_dim is known; and back. */
int hf_rope_read(const struct hf *c, const struct family *f, struct model *m);
int hf_rope_write(const struct model *m, const struct family *f, json_t *config);

#endif
