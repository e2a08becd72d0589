/* attention.h -- which attention runs: the implementation that transformers picks
 * for a model, and what that hands to the kernels.
 *
 * Sources: transformers 5.23.0, PreTrainedModel._sdpa_can_dispatch() (a class without
 * _supports_sdpa runs eager, and refuses sdpa where it is asked for),
 * masking_utils.sdpa_mask(), integrations/sdpa_attention.py. */
#ifndef DPX_ATTENTION_H
#define DPX_ATTENTION_H

#include <stdbool.h>

#include "model/plan.h"

/* Why transformers refuses attn_implementation="sdpa" for a family; NULL: it does not. */
const char *attention_refuses_sdpa(const char *family);

/* What `attn_implementation=None` becomes. */
enum kernel_set attention_default(const struct model *m);

#endif
