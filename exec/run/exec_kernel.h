/* exec_kernel.h -- what the files share that call one kernel: sizes of a rank's part, dropout of the residual stream. */
#ifndef DPX_EXEC_KERNEL_H
#define DPX_EXEC_KERNEL_H

#include "exec/run/executor_internal.h"

/* What random numbers are for, within a step. */
enum site { SITE_EMBED, SITE_ATTENTION, SITE_ATTN_OUT, SITE_MLP };

static inline int64_t tokens(const struct kernel_call *c) { return c->x->p->micro_batch * plan_rank_seq(c->x->p); }

/* Positions that norms and residuals have here, and the first of them. */
static inline int64_t rows(const struct kernel_call *c)
{
    return is_sequence(c->x) ? tokens(c) / tensor_ranks(c->x) : tokens(c);
}

static inline int64_t first_row(const struct kernel_call *c)
{
    return is_sequence(c->x) ? tensor_rank(c->x) * rows(c) : 0;
}

static inline enum dtype act_dtype(const struct kernel_call *c)
{
    return c->x->recipe.autocast ? c->x->p->precision : c->x->recipe.used;
}

static inline void *offset(void *p, int64_t elems, enum dtype dt)
{
    return p ? (char *)p + elems * dtype_bytes(dt) : NULL;
}

static inline bool is_fresh(const struct kernel_call *c, enum slot slot) { return c->fresh[slot]; }

/* On what is added to the residual stream, or to the embedding: so many of this rank's rows, counted by dropout one after the
 * other.  All of them, or where the rank has a share of each sample's positions those that follow each other in a sample. */
struct stretch { int64_t n; struct dropout drop; };

/* ---- exec_kernel.c ---- */

/* From row `at` of rows() on. */
struct stretch exec_stretch(const struct kernel_call *c, enum site site, int64_t at);

/* ---- exec_linear.c: linear layers, and adapters beside them ---- */
int exec_linear(const struct kernel_call *c, struct kernels *k);

/* ---- exec_float8.c: layers whose operands are rounded to 8 bits ---- */

/* FN_FLOAT8_X, _W, _DY of a layer of this shape; x: its input, or its output's gradient. */
int exec_float8_cast(const struct kernel_call *c, struct kernels *k, const struct linear *l, const void *x);
/* What a product reads in place of its input, or of its output's gradient; l becomes its shape, with the scales.  Of another layer the
 * same. */
const void *exec_float8_x(const struct kernel_call *c, struct linear *l, const void *x);
const void *exec_float8_dy(const struct kernel_call *c, struct linear *l, const void *dy);

#endif
