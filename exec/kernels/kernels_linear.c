/* Linear layers as matrix products: which array is transposed, and the bias's gradient. */
#include "exec/kernels/kernels_internal.h"

enum { STRIP = 256, RUN = 64 };

/* W, or its transpose, as b: elements from one input to the next, one output to the next. */
static int64_t to_next_in(const struct linear *l)  { return l->in_out ? l->out : 1; }
static int64_t to_next_out(const struct linear *l) { return l->in_out ? 1 : l->in; }

int host_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                void *y, const void *residual, const struct dropout *d)
{
    return gemm_product(k, &(struct product){
        .m = l->n, .n = l->out, .k = l->in, .as = l->at,
        .a = x, .ta = l->at, .a_row = l->ldx, .a_col = 1,
        .b = w, .tb = l->wt, .b_row = to_next_in(l), .b_col = to_next_out(l),
        .c = y, .tc = l->at, .ldc = l->ldy,
        .bias = b, .tbias = l->wt, .residual = residual, .drop = d && d->p > 0 ? d : NULL, .scales = l->scales,
    });
}

int host_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                   bool add)
{
    return gemm_product(k, &(struct product){
        .m = l->n, .n = l->in, .k = l->out, .as = l->at,
        .a = dy, .ta = l->at, .a_row = l->ldy, .a_col = 1,
        .b = w, .tb = l->wt, .b_row = to_next_out(l), .b_col = to_next_in(l),
        .c = dx, .tc = l->at, .ldc = l->ldx, .residual = add ? dx : NULL, .scales = l->scales,
    });
}

/* db: sums of columns.  A thread takes strips of columns; runs of rows are summed first, so
 * that rounding grows with the run and the number of runs, not with the rows. */
static void bias_back(struct kernels *k, const struct linear *l, const void *dy, void *db,
                      enum grad_into into)
{
    const struct simd *s = k->simd;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t o = 0; o < l->out; o += STRIP) {
        float sum[STRIP] = { 0 }, run[STRIP], tmp[STRIP];
        int64_t m = l->out - o < STRIP ? l->out - o : STRIP;
        for (int64_t first = 0; first < l->n; first += RUN) {
            memset(run, 0, sizeof run);
            for (int64_t r = first; r < l->n && r < first + RUN; r++)
                s->axpy(m, 1, floats(s, dy, l->at, r * l->ldy + o, m, tmp), run);
            s->axpy(m, 1, run, sum);
        }
        if (linear_narrows(l))
            floats_round(s, DT_FP16, m, sum, sum);
        if (into == GRAD_ADD)
            s->axpy(m, 1, floats(s, db, l->gt, o, m, tmp), sum);
        floats_put(s, db, l->gt, o, m, sum);
    }
}

int host_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into)
{
    bias_back(k, l, dy, db, into);
    return 0;
}

int host_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                   void *db, enum grad_into into)
{
    struct product p = {
        .k = l->n, .as = l->at, .ta = l->at, .tb = l->at, .a_row = 1, .b_col = 1,
        .c = dw, .tc = l->gt, .residual = into == GRAD_ADD ? dw : NULL, .scales = l->scales, .narrows = linear_narrows(l),
    };

    if (l->in_out) {            /* x^T dy */
        p.m = l->in, p.a = x, p.a_col = l->ldx;
        p.n = l->out, p.b = dy, p.b_row = l->ldy;
        p.scales = (struct scales){ l->scales.b, l->scales.a, l->scales.each_b, l->scales.each_a };
    } else {                    /* dy^T x */
        p.m = l->out, p.a = dy, p.a_col = l->ldy;
        p.n = l->in, p.b = x, p.b_row = l->ldx;
    }
    p.ldc = p.n;
    if (db)
        bias_back(k, l, dy, db, into);
    return gemm_product(k, &p);
}
