/* dataflow_data.h -- what dataflow.h moves: buffers of one rank, the slices they hold, and
 * the numbers that must be in them.
 *
 * Memory is kept inverted, so that fresh zero pages read as 0xFF..., which is a NaN in
 * every format: reading what was never written is seen.
 *
 * Weights are whole numbers of at most 127, which bf16 has exactly (fp16 is kept as bf16, int8 as the number plus 128); gradients are
 * small whole numbers as well.  All are functions of where and when, so that an element out
 * of place, of the step before or of another rank is a wrong number. */
#ifndef DPX_TEST_DATAFLOW_DATA_H
#define DPX_TEST_DATAFLOW_DATA_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/schedule/schedule.h"

/* ---- what elements must be ---- */

enum df_of { DF_WEIGHT, DF_EXP_AVG, DF_EXP_AVG_SQ, DF_ROW_VAR, DF_COL_VAR, DF_MAX_AVG, DF_MAX_SQ };

static inline uint32_t df_hash(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t h = a * 0x9E3779B1u ^ b * 0x85EBCA77u ^ c * 0xC2B2AE3Du ^ d * 0x27D4EB2Fu;

    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    h ^= h >> 12;
    h *= 0x297A2D39u;
    return h ^ h >> 15;
}

/* Before optimizer step `step` (0, 1 ...); states are zero before the first. */
static inline double df_state(enum df_of of, int tensor, int64_t i, int step)
{
    if (of != DF_WEIGHT && step == 0)
        return 0;
    return (double)(df_hash((uint32_t)tensor, (uint32_t)i, (uint32_t)step, (uint32_t)of) % 255) - 127;
}

/* A rank's gradient in a micro-step; a tied embedding's is the sum of two parts. */
static inline double df_grad(int tensor, int64_t i, int step, int rank, int micro, int part)
{
    uint32_t when = ((uint32_t)step * 64 + (uint32_t)micro) * 64 + (uint32_t)rank;

    return (double)(df_hash((uint32_t)tensor, (uint32_t)i, when, 7u + (uint32_t)part) % 7) - 3;
}

/* ---- buffers ---- */

struct df_inst {
    unsigned char *mem;             /* inverted; NULL: not touched yet */
    int64_t bytes;
    bool live;
    bool granted;                   /* kernels put their own tensors in: not one piece of memory */
};

enum { DF_MOST = 1 << 25 };         /* bytes that anything holds here: the rest of a bucket is never used */

static inline unsigned char *df_mem(struct df_inst *x)
{
    if (!x->mem)
        x->mem = calloc((size_t)(x->bytes < DF_MOST ? x->bytes : DF_MOST) + 1, 1);
    if (!x->mem)
        abort();
    return x->mem;
}

static inline void df_alloc(struct df_inst *x)
{
    x->live = true;
    x->granted = false;
}

static inline void df_release(struct df_inst *x)
{
    free(x->mem);
    x->mem = NULL;
    x->live = false;
}

static inline uint32_t df_float_bits(float v)
{
    uint32_t u;

    memcpy(&u, &v, sizeof u);
    return u;
}

/* Element i of `dt` from byte `at`; NaN: poison. */
static inline double df_get(struct df_inst *x, enum dtype dt, int64_t at, int64_t i)
{
    const unsigned char *m = df_mem(x) + at + i * dtype_bytes(dt);
    uint32_t u = 0;
    uint16_t h;
    float v;

    if (dtype_bytes(dt) == 1)
        return *m ? (double)*m - 128 : NAN;
    if (dt == DT_BF16 || dt == DT_FP16) {
        memcpy(&h, m, sizeof h);
        u = (uint32_t)(uint16_t)~h << 16;
    } else {
        memcpy(&u, m, sizeof u);
        u = ~u;
    }
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline void df_put(struct df_inst *x, enum dtype dt, int64_t at, int64_t i, double value)
{
    unsigned char *m = df_mem(x) + at + i * dtype_bytes(dt);
    uint32_t u = ~df_float_bits((float)value);

    if (dtype_bytes(dt) == 1) {
        *m = isnan(value) ? 0 : (unsigned char)(value + 128);
    } else if (dt == DT_BF16 || dt == DT_FP16) {
        uint32_t v = ~u;
        uint16_t h = (uint16_t)~(isnan(value) ? 0x7FFF : (v + 0x7FFF + (v >> 16 & 1)) >> 16);
        memcpy(m, &h, sizeof h);
    } else {
        memcpy(m, &u, sizeof u);
    }
}

/* ---- slices of the acts of an entry ---- */

/* A slice of one instance as an act sees it, its tensor already moved on by the stride. */
struct df_piece {
    struct df_inst *inst;
    struct slice    s;
    int             act, what;
};

struct df_list { struct df_piece *p; int n, cap; };

static inline void df_append(struct df_list *l, struct df_piece x)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->p = realloc(l->p, (size_t)l->cap * sizeof *l->p);
        if (!l->p)
            abort();
    }
    l->p[l->n++] = x;
}

static inline const struct layout *df_layout(const struct schedules *s, const struct act *a)
{
    int i = a->layout ? a->layout : s->bufs[a->buf].layout;

    return i ? &s->layouts[i] : NULL;
}

/* Elements that two slices share: of the same tensor, in the same role. */
static inline int64_t df_overlap(const struct slice *a, const struct slice *b, int64_t *from)
{
    int64_t end = a->from + a->n < b->from + b->n ? a->from + a->n : b->from + b->n;

    *from = a->from > b->from ? a->from : b->from;
    return a->tensor == b->tensor && a->holds == b->holds && end > *from ? end - *from : 0;
}

/* Elements of `want` from the pieces that have all bits of `what` (and are of act `only`, if that is not
 * negative) into v[], NaN where none has them. */
static inline void df_fetch(const struct df_list *l, int what, int only, const struct slice *want, double *v)
{
    for (int64_t i = 0; i < want->n; i++)
        v[i] = NAN;
    for (int k = 0; k < l->n; k++) {
        const struct df_piece *x = &l->p[k];
        int64_t from, n = df_overlap(want, &x->s, &from);
        if ((x->what & what) != what || (only >= 0 && x->act != only))
            continue;
        for (int64_t i = from; i < from + n; i++)
            v[i - want->from] = df_get(x->inst, x->s.dtype, x->s.at, i - x->s.from);
    }
}

/* v[], elements of `have`, into all pieces with these bits; returns how many were written. */
static inline int64_t df_store(const struct df_list *l, int what, const struct slice *have, const double *v)
{
    int64_t sum = 0;

    for (int k = 0; k < l->n; k++) {
        const struct df_piece *x = &l->p[k];
        int64_t from, n = df_overlap(have, &x->s, &from);
        if ((x->what & what) != what)
            continue;
        sum += n;
        for (int64_t i = from; i < from + n; i++)
            df_put(x->inst, x->s.dtype, x->s.at, i - x->s.from, v[i - have->from]);
    }
    return sum;
}

#endif
