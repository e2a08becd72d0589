/* attention.h -- which attention runs: the implementation that transformers picks
 * for a model, and the kernel that PyTorch picks for what it is handed.
 *
 * Sources: transformers 5.23.0, PreTrainedModel (a class without _supports_sdpa runs
 * eager, and refuses sdpa where it is asked for), masking_utils.sdpa_mask(),
 * integrations/sdpa_attention.py, modeling_falcon.py; PyTorch 2.15.0,
 * aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.  tests/golden/memory holds
 * PyTorch's own choices; that a GPU makes the same has not been observed. */
#ifndef DPX_ATTENTION_H
#define DPX_ATTENTION_H

#include <stdbool.h>

#include "model/plan/plan.h"

enum attention_kernel {
    ATTENTION_EAGER,            /* the modelling code's own products and softmax */
    ATTENTION_MATH,             /* sdpa's fallback: the same inside of one call */
    ATTENTION_EFFICIENT,        /* CUTLASS, "memory-efficient": takes fp32 and masks */
    ATTENTION_FLASH,            /* FlashAttention-2: 16 bit, no mask */
    ATTENTION_CUDNN             /* Hopper and Blackwell: 16 bit, masks too */
};

/* Which fused attention runs, for its rate: FlashAttention-2, which PyTorch carries since 2.2 and as which the
 * executor's own kernels are priced; cuDNN's, which PyTorch prefers on Hopper and
 * Blackwell since 2.13; flash-attn's kernels of the GPU's own generation, 3 on Hopper and 4 on Blackwell; the first FlashAttention, which PyTorch carried before, and which has no rates
 * of its own (sim/price/gpu_rates.h). */
enum flash { FLASH_2, FLASH_CUDNN, FLASH_3, NFLASH, FLASH_1 = NFLASH };

/* By the kernel set and the framework's version. */
enum flash attention_flash(const struct plan *p);

/* What `attn_implementation=None` becomes. */
enum kernel_set attention_default(const struct model *m);

/* Does sdpa get a mask?  Without one sdpa is called with is_causal.  Families
 * that always make one; a window that is not longer than the sequence. */
bool attention_masked(const struct plan *p);

/* Do some layers get a mask under sdpa and others none?  Then what is asked below is answered for the
 * former; for the others, of the plan without a window. */
bool attention_mixed(const struct plan *p);

/* Masks that the model makes before its blocks, where it makes them at all: one for the
 * layers with a window and one for the others, or one for all. */
int attention_masks(const struct plan *p);

/* Keys and values of a masked group are repeated for each of its queries, since the
 * fused kernels did not take both; without a mask transformers passes enable_gqa. */
bool attention_repeats(const struct plan *p);

enum attention_kernel attention_choice(const struct plan *p);

/* Can the plan's attention be computed by that package, as far as it is planned? */
bool attention_takes(const struct plan *p, enum attention_by by);

/* What a plan's memory rests on where that is PyTorch's choice of a kernel, which was read from its
 * dispatch code and not observed on a GPU; NULL: nothing of the kind. */
const char *attention_note(const struct plan *p);

/* Bytes that the fused kernel's backward takes and gives back within its call.  PyTorch's
 * own trackers, which see operators, do not count them. */
int64_t attention_scratch(const struct plan *p);
/* Of these, those that grow with the keys alone: dK and dV of all heads, where queries are grouped. */
int64_t attention_scratch_of_keys(const struct plan *p);

/* Refuses, by key, what cannot be planned: 0, or -1 reported. */
int attention_check(const struct plan *p, const char *where);

#endif
