/* Linear layers as products of cuBLASLt: which array is turned, what is cast first, and what it
 * cannot do in the same call.
 *
 * Dropout comes after a product that was rounded to the activations' dtype, as in PyTorch: one
 * rounding more than on the host.  Of operands that were rounded to 8 bits a product is fp32 in strips of
 * the workspace, and then what the host makes of its sums. */
#include "exec/cuda/kernels_cuda_internal.h"

#include <inttypes.h>

#include "base/fail.h"
#include "exec/cuda/float8.h"
#include "exec/cuda/rows.h"

enum { STRIP = 4 << 20, LINE = 64 };    /* bytes of a product that goes through the workspace; of a line */

/* A weight and a bias in 16 bits, then a strip; each from a line on. */
int64_t linear_cuda_workspace(int64_t widest, int64_t cast)
{
    int64_t strip = 4 * widest > STRIP ? 4 * widest : STRIP;

    return round_up(2 * cast, LINE) + (cast ? round_up(2 * widest, LINE) : 0) + strip;
}

/* Streams other than that of compute have no workspace; cuBLASLt then takes what needs none (PowerSGD's products). */
static int products_open(struct kernels_cuda *c)
{
    if (!c->gemm)
        c->gemm = gemm_cuda_open(c->stream, NULL, 0);
    return c->gemm ? 0 : -1;
}

static int check(struct kernels *k, const struct linear *l)
{
    if (products_open(cuda_kernels(k)) < 0)
        return -1;
    if (l->n < 1 || l->in < 1 || l->out < 1 || l->ldx < l->in || l->ldy < l->out)
        return fail("a linear layer of [%" PRId64 ", %" PRId64 "] in rows of %" PRId64 " and %" PRId64
                    " outputs in rows of %" PRId64, l->n, l->in, l->ldx, l->out, l->ldy);
    return 0;
}

static void *at(const void *x, enum dtype t, int64_t element)
{
    return (char *)(uintptr_t)x + element * dtype_bytes(t);
}

/* n elements as the product takes them: where they are, or cast in the workspace.  NULL reported. */
static const void *cast(struct kernels *k, struct cut *c, int64_t n, const void *x, enum dtype from,
                        enum dtype to)
{
    void *there = from == to ? NULL : kernels_take(c, n * dtype_bytes(to), "a cast weight");

    if (from == to)
        return x;
    if (!there || CUDA_OK(elements_copy(n, there, to, x, from, 1, false, cuda_stream_of(k))) < 0)
        return NULL;
    return there;
}

static int multiply(struct kernels *k, const struct gemm_cuda_product *p)
{
    return gemm_cuda(cuda_kernels(k)->gemm, p);
}

/* Rows of a strip of dense rows: always the same, whatever there happens to be. */
static int64_t strip_rows(int64_t rows, int64_t row_bytes)
{
    int64_t most = STRIP / row_bytes > 1 ? STRIP / row_bytes : 1;

    return rows < most ? rows : most;
}

/* Multiplies operands that were rounded to 8 bits, strip by strip, into the workspace; y says how each strip is scaled and stored. */
static int scaled_in_strips(struct kernels *k, struct cut *c, const struct gemm_cuda_product *whole, const struct cuda_scaled *y)
{
    int64_t rows = strip_rows(whole->m, whole->n * 4);
    struct gemm_cuda_product p = *whole;

    p.out = DT_FP32, p.ldc = whole->n, p.bias = p.residual = NULL;
    if (!(p.c = kernels_take(c, rows * whole->n * 4, "a strip of a product")))
        return -1;
    for (int64_t i = 0; i < whole->m; i += rows) {
        p.m = whole->m - i < rows ? whole->m - i : rows;
        p.a = at(whole->a, whole->in, whole->a_turned ? i : i * whole->lda);
        if (multiply(k, &p) < 0 || CUDA_OK(float8_cuda_scaled(y, i, p.m, p.c, cuda_stream_of(k))) < 0)
            return -1;
    }
    return 0;
}

/* How a product's sums are scaled, and where they are stored. */
static struct cuda_scaled scaled_by(const struct scales *s, const struct gemm_cuda_product *p)
{
    return (struct cuda_scaled){ .cols = p->n, .ldy = p->ldc, .a = s->a, .b = s->b, .each_a = s->each_a, .each_b = s->each_b,
                                 .residual = p->residual, .y = p->c, .yt = p->out, .drop = cuda_drop(NULL) };
}

/* ---- forward ---- */

/* What follows a product that is in x: bias, dropout, residual.  From row `first` of y on. */
static int drop_and_add(struct kernels *k, const struct linear *l, int64_t first, int64_t rows, const void *x,
                        int64_t ldx, const void *b, void *y, const void *residual, struct cuda_drop drop)
{
    int64_t to = first * l->ldy;
    const void *more = residual ? at(residual, l->at, to) : NULL;

    drop.seed = drop_from(drop.seed, (uint64_t)(first * l->out));
    return CUDA_OK(elements_residual(rows, l->out, x, ldx, b, l->wt, more, l->ldy, at(y, l->at, to), l->ldy,
                                     l->at, drop, cuda_stream_of(k)));
}

/* y is also the residual: strips of the product go through the workspace. */
static int linear_in_strips(struct kernels *k, struct cut *c, const struct linear *l,
                            const struct gemm_cuda_product *whole, const void *b, struct cuda_drop drop)
{
    int64_t rows = strip_rows(l->n, l->out * dtype_bytes(l->at));
    struct gemm_cuda_product p = *whole;

    p.c = kernels_take(c, rows * l->out * dtype_bytes(l->at), "a strip of a product");
    p.ldc = l->out;
    if (!p.c)
        return -1;
    for (int64_t i = 0; i < l->n; i += rows) {
        p.m = l->n - i < rows ? l->n - i : rows;
        p.a = at(whole->a, l->at, i * l->ldx);
        if (multiply(k, &p) < 0 ||
            drop_and_add(k, l, i, p.m, p.c, p.ldc, b, whole->c, whole->c, drop) < 0)
            return -1;
    }
    return 0;
}

int cuda_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                void *y, const void *residual, const struct dropout *d)
{
    struct cuda_drop drop = cuda_drop(d);
    struct cut c = kernels_cut(k);
    struct gemm_cuda_product p = {
        .m = l->n, .n = l->out, .k = l->in, .in = l->at, .out = l->at, .a = x, .lda = l->ldx,
        .b_turned = !l->in_out, .ldb = l->in_out ? l->out : l->in, .c = y, .ldc = l->ldy,
    };

    if (check(k, l) < 0 || !(p.b = cast(k, &c, l->in * l->out, w, l->wt, l->at)))
        return -1;
    if (l->scales.a) {
        struct cuda_scaled to = scaled_by(&l->scales, &p);
        to.bias = b, to.wt = l->wt, to.residual = residual, to.drop = drop;
        return scaled_in_strips(k, &c, &p, &to);
    }
    if (drop.limit && residual == y)
        return linear_in_strips(k, &c, l, &p, b, drop);
    if (drop.limit)
        return multiply(k, &p) < 0 ? -1 : drop_and_add(k, l, 0, l->n, y, l->ldy, b, y, residual, drop);
    p.residual = residual;
    if (b && !(p.bias = cast(k, &c, l->out, b, l->wt, l->at)))
        return -1;
    return multiply(k, &p);
}

/* ---- backward ---- */

int cuda_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                   bool add)
{
    struct cut c = kernels_cut(k);
    struct gemm_cuda_product p = {
        .m = l->n, .n = l->in, .k = l->out, .in = l->at, .out = l->at, .a = dy, .lda = l->ldy,
        .b_turned = l->in_out, .ldb = l->in_out ? l->out : l->in, .c = dx, .ldc = l->ldx,
        .residual = add ? dx : NULL,
    };

    if (check(k, l) < 0 || !(p.b = cast(k, &c, l->in * l->out, w, l->wt, l->at)))
        return -1;
    if (l->scales.a) {
        struct cuda_scaled to = scaled_by(&l->scales, &p);
        return scaled_in_strips(k, &c, &p, &to);
    }
    return multiply(k, &p);
}

/* fp32 operands and a result of 16 bits: strips of the product go through the workspace. */
static int dw_in_strips(struct kernels *k, const struct gemm_cuda_product *whole, bool add)
{
    struct cut c = kernels_cut(k);
    int64_t rows = strip_rows(whole->m, whole->n * 4);
    struct gemm_cuda_product p = *whole;

    p.out = DT_FP32, p.ldc = whole->n, p.residual = NULL;
    if (!(p.c = kernels_take(&c, rows * whole->n * 4, "a strip of a product")))
        return -1;
    for (int64_t i = 0; i < whole->m; i += rows) {
        p.m = whole->m - i < rows ? whole->m - i : rows;
        p.a = at(whole->a, whole->in, i);
        if (multiply(k, &p) < 0 ||
            CUDA_OK(elements_copy(p.m * p.n, at(whole->c, whole->out, i * p.n), whole->out, p.c, DT_FP32, 1,
                                  add, cuda_stream_of(k))) < 0)
            return -1;
    }
    return 0;
}

/* torch.autocast in fp16: the product is fp16 where a cast weight has its place, then fp32. */
static int dw_narrowed(struct kernels *k, const struct gemm_cuda_product *whole, bool add)
{
    struct cut c = kernels_cut(k);
    struct gemm_cuda_product p = *whole;

    p.out = p.in, p.residual = NULL;
    if (!(p.c = kernels_take(&c, p.m * p.n * dtype_bytes(p.out), "a weight's gradient in fp16")) || multiply(k, &p) < 0)
        return -1;
    return CUDA_OK(elements_copy(p.m * p.n, whole->c, whole->out, p.c, p.out, 1, add, cuda_stream_of(k)));
}

/* The result's rows are outputs, or inputs where W lies so. */
static int dw_scaled(struct kernels *k, const struct linear *l, const struct gemm_cuda_product *p)
{
    struct scales turned = { l->scales.b, l->scales.a, l->scales.each_b, l->scales.each_a };
    struct cuda_scaled to = scaled_by(l->in_out ? &turned : &l->scales, p);
    struct cut c = kernels_cut(k);

    if (linear_narrows(l))
        return fail("a gradient's sums of fp16 numbers have no scales: float8 layers are bf16 or fp32");
    return scaled_in_strips(k, &c, p, &to);
}

/* cuBLASLt's own gradient of a bias (BGRADA) cannot be added, and does not say in which order it
 * sums; so dy is read once more. */
int cuda_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into)
{
    struct cut c = kernels_cut(k);
    void *part = kernels_take(&c, rows_column_sums_workspace(l->n, l->out), "a bias's gradient");

    return part ? CUDA_OK(rows_column_sums(l->n, l->out, dy, l->ldy, l->at, db, l->gt, into == GRAD_ADD,
                                           linear_narrows(l), part, cuda_stream_of(k))) : -1;
}

int cuda_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                   void *db, enum grad_into into)
{
    struct gemm_cuda_product p = {
        .k = l->n, .in = l->at, .out = l->gt, .a_turned = true, .c = dw,
        .residual = into == GRAD_ADD ? dw : NULL,
    };

    if (check(k, l) < 0 || (db && cuda_linear_db(k, l, dy, db, into) < 0))
        return -1;
    if (l->in_out) {            /* x^T dy */
        p.m = l->in, p.a = x, p.lda = l->ldx;
        p.n = l->out, p.b = dy, p.ldb = l->ldy;
    } else {                    /* dy^T x */
        p.m = l->out, p.a = dy, p.lda = l->ldy;
        p.n = l->in, p.b = x, p.ldb = l->ldx;
    }
    p.ldc = p.n;
    if (l->scales.a)
        return dw_scaled(k, l, &p);
    if (linear_narrows(l))
        return dw_narrowed(k, &p, into == GRAD_ADD);
    if (l->at == DT_FP32 && l->gt != DT_FP32)
        return dw_in_strips(k, &p, into == GRAD_ADD);
    return multiply(k, &p);
}
