/* tape_te_cast.h -- what Transformer Engine makes of a tensor whose product is of 8 or 4 bits.
 *
 * Read at Transformer Engine d0067d0d: pytorch/tensor/ (quantizers), csrc/extensions/{cast,normalization}.cpp.  A product reads its operands
 * along rows; backward reads the same tensors along columns (dW = dY^T X).  Scaled by blocks, a tensor is therefore cast twice, along rows
 * and along columns, in one kernel; scaled as a whole it is cast once, and where the GPU's units read rows alone (`turned`: before
 * Blackwell, is_non_tn_fp8_gemm_supported()) the same kernel writes a transposed copy.  Scales of a whole tensor are not counted (8 bytes). */
#ifndef DPX_TAPE_TE_CAST_H
#define DPX_TAPE_TE_CAST_H

#include "model/program/tape.h"

enum { TE_ROWS = 1, TE_COLUMNS = 2 };

/* Stores, each with one reference; 0: not made.  Where one serves both, both. */
struct te_codes { int rows, columns; };

/* Casts `numel` numbers of dtype dt.  `known`: their largest is there already, from the kernel that wrote them.  Otherwise a format that
 * needs it now reads them once more; ranks > 1: tensor-parallel ranks agree on the largest of theirs, for what they gather is scaled alike. */
struct te_codes te_cast(struct tape *t, const struct te_scaled *f, int64_t numel, enum dtype dt, unsigned ways, bool known, int64_t ranks);

/* The same of numbers that a norm's kernel wrote as codes along rows, in `rows` (delayed scaling). */
struct te_codes te_codes_of(struct tape *t, const struct te_scaled *f, int rows, int64_t numel, unsigned ways);

/* A transposed copy of codes along rows that were gathered, where one is needed; the store's number, 0: none. */
int te_turn(struct tape *t, const struct te_scaled *f, int64_t numel);

/* Backward's codes of an input that was saved as it came: along columns; along rows where only these are gathered, over `ranks` > 1; scaled as
 * a whole both, of which the transposed copy is made. */
struct te_codes te_cast_again(struct tape *t, const struct te_scaled *f, int64_t numel, enum dtype dt, int64_t ranks);

void te_drop_codes(struct tape *t, struct te_codes c);

/* Does a norm's kernel write codes (the scale is known before it runs)? */
static inline bool te_norm_casts(const struct te_scaled *f) { return f->format == SCALED_FP8_TENSOR && !f->now; }
/* Does a layer keep what it was given where something else does (delayed scaling does not: its scale is another by then)? */
static inline bool te_may_cast_again(const struct te_scaled *f) { return f->format != SCALED_NONE && !te_norm_casts(f); }
/* Are codes gathered along rows alone (supports_only_rowwise_all_gather())? */
static inline bool te_gathers_rows(const struct te_scaled *f) { return f->format == SCALED_FP8_TENSOR; }

#endif
