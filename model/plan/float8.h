/* float8.h -- torchao's float8 training: which linear layers multiply in 8-bit floats, and what that refuses.
 *
 * convert_to_float8_training() puts a Float8Linear in the place of nn.Linear, before tensor parallelism and FSDP2 cut it
 * (torchao 0.18, float8/float8_linear_utils.py; torchtitan's Float8LinearConverter). */
#ifndef DPX_FLOAT8_H
#define DPX_FLOAT8_H

#include "model/plan/plan.h"

/* Is it the weight of an nn.Linear, not of what stands for it in some families (GPT-2's Conv1D), and no table? */
bool float8_is_linear(const struct tensor *t);

/* Is a tensor, whole or a rank's share of it, the weight of such a layer?  torchtitan's module_filter_fn(): both dimensions are multiples of 16, no name
 * of the filter is part of the module's; with "auto_filter_small_kn" torchao's _auto_filter_for_recipe() as well. */
bool float8_converts(const struct plan *p, const struct tensor *t);

/* Is it cast before FSDP2 gathers it? */
bool float8_gathers(const struct plan *p, const struct tensor *t);

/* Does tensor parallelism gather activations in float8 (Float8ColwiseParallel, Float8RowwiseParallel, PrepareFloat8ModuleInput)?  torchtitan
 * takes these for the recipe tensorwise. */
static inline bool float8_tensor_parallel(const struct plan *p)
{
    return p->float8.recipe == FLOAT8_TENSORWISE && p->parallel.tensor > 1;
}

/* The operands of a layer's three products: what has a scale of its own in x or dy, and in the second operand (W; of dW x).  In which format
 * gradients are: e5m2 with one scale, else e4m3.  Whether scales are rounded down to powers of two. */
enum float8_product { FLOAT8_OUTPUT, FLOAT8_DX, FLOAT8_DW };
static inline enum float8_by float8_by(enum float8_recipe recipe, enum float8_product of, bool second)
{
    if (recipe == FLOAT8_TENSORWISE)
        return FLOAT8_BY_TENSOR;
    if (of == FLOAT8_DW)
        return recipe == FLOAT8_ROWWISE ? FLOAT8_BY_COLUMNS : FLOAT8_BY_NONE;
    if (of == FLOAT8_DX && second)
        return recipe == FLOAT8_ROWWISE ? FLOAT8_BY_COLUMNS : FLOAT8_BY_TENSOR;
    return FLOAT8_BY_ROWS;
}
static inline bool float8_wide_gradients(enum float8_recipe recipe) { return recipe == FLOAT8_TENSORWISE; }
static inline bool float8_powers_of_two(enum float8_recipe recipe) { return recipe != FLOAT8_TENSORWISE; }

/* 0, or -1 with the key named. */
int float8_check(const struct plan *p, const char *where);

#endif
