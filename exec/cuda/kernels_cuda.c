/* kernels.h's table for a stream of a CUDA device: checks what the kernels trust, and queues. */
#include "exec/cuda/kernels_cuda_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "exec/cuda/attention.h"
#include "exec/cuda/codes.h"
#include "exec/cuda/columns.h"
#include "exec/cuda/float8.h"
#include "exec/cuda/rows.h"
#include "model/schedule/schedule.h"

/* ---- rows ---- */

/* Calls of the other streams need no workspace; these do. */
static void *scratch(struct kernels *k, int64_t bytes, const char *what)
{
    struct cut c = kernels_cut(k);

    return kernels_take(&c, bytes, what);
}

/* Without the vocabulary's size only negative ids are recognised as padding. */
static int embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
                 enum dtype wt, void *x, enum dtype at)
{
    return CUDA_OK(rows_embed(n, h, INT32_MAX, ids, table, wt, x, at, cuda_stream_of(k)));
}

static int embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                           enum dtype wt, void *x, enum dtype at, const struct dropout *d)
{
    return CUDA_OK(rows_embed_positions(n, h, seq, table, wt, x, at, cuda_drop(d), cuda_stream_of(k)));
}

static int embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                      const void *table, enum dtype wt, void *x, enum dtype at)
{
    return CUDA_OK(rows_embed_part(n, h, first, rows, ids, table, wt, x, at, cuda_stream_of(k)));
}

static int embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                           const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    void *w = scratch(k, rows_embed_workspace(n, h, rows), "embedding's gradient");

    return w ? CUDA_OK(rows_embed_back(n, h, first, rows, ids, dx, at, dtable, gt, into == GRAD_ADD, w,
                                       cuda_stream_of(k))) : -1;
}

static int embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                      const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    return embed_rows_back(k, n, h, 0, vocab, ids, dx, at, dtable, gt, into);
}

static int embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                                const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                enum grad_into into)
{
    return CUDA_OK(rows_embed_positions_back(n, h, seq, rows, dx, at, dtable, gt, into == GRAD_ADD,
                                             cuda_stream_of(k)));
}

static int norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
                const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats)
{
    return CUDA_OK(rows_norm(kind == NORM_LAYER, n, h, eps, x, w, b, wt, y, at, stats, cuda_stream_of(k)));
}

static int norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                     const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                     void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into)
{
    void *part = dw || db ? scratch(k, rows_norm_workspace(n, h), "norm's gradients") : NULL;

    if ((dw || db) && !part)
        return -1;
    return CUDA_OK(rows_norm_back(kind == NORM_LAYER, n, h, dy, x, w, wt, stats, at, dx, add, dw, db, gt,
                                  into == GRAD_ADD, part, cuda_stream_of(k)));
}

static int cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                         const int32_t *labels, float *losses, double scale)
{
    return CUDA_OK(rows_cross_entropy(n, vocab, logits, at, labels, losses, (float)scale, cuda_stream_of(k)));
}

static struct rows_logits logits_of(const struct cut_logits *l)
{
    return (struct rows_logits){ l->n, l->vocab, l->part, l->rank, l->at };
}

static int logits_most(struct kernels *k, const struct cut_logits *l, const void *logits, float *most)
{
    struct rows_logits of = logits_of(l);

    return CUDA_OK(rows_logits_most(&of, logits, most, cuda_stream_of(k)));
}

static int logits_label(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                        float *at_label)
{
    struct rows_logits of = logits_of(l);

    return CUDA_OK(rows_logits_label(&of, logits, labels, at_label, cuda_stream_of(k)));
}

static int logits_sum(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most, float *sum)
{
    struct rows_logits of = logits_of(l);

    return CUDA_OK(rows_logits_sum(&of, logits, most, sum, cuda_stream_of(k)));
}

static int logits_loss(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                       const struct logit_sums *sums, float *losses, double scale)
{
    struct rows_logits of = logits_of(l);

    return CUDA_OK(rows_logits_loss(&of, logits, labels, sums->most, sums->label, sums->sum, losses, (float)scale,
                                    cuda_stream_of(k)));
}

static int logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                        const int32_t *labels, float *losses, double scale)
{
    struct rows_logits of = logits_of(l);

    return CUDA_OK(rows_logits_whole(&of, all, logits, labels, losses, (float)scale, cuda_stream_of(k)));
}

/* ---- attention ---- */

static int check_attention(const struct attention *a)
{
    if (a->batch < 1 || a->seq < 1 || a->kv_heads < 1 || a->heads < 1 || a->heads % a->kv_heads ||
        a->ld < (a->heads + 2 * a->kv_heads) * a->dim)
        return fail("attention of %" PRId64 " samples of %" PRId64 " tokens, %" PRId64 " heads on %" PRId64
                    " of %" PRId64 " elements, in rows of %" PRId64, a->batch, a->seq, a->heads, a->kv_heads,
                    a->dim, a->ld);
    if (a->dim < 1 || a->dim > ATTENTION_DIM)
        return fail("attention: heads of %" PRId64 " elements, %d is the most on CUDA", a->dim,
                    ATTENTION_DIM);
    return 0;
}

static struct launch_attention attention_of(const struct attention *a)
{
    struct cuda_drop d = cuda_drop(&a->drop);

    return (struct launch_attention){
        .batch = a->batch, .seq = a->seq, .heads = a->heads, .kv_heads = a->kv_heads, .dim = a->dim,
        .ld = a->ld, .scale = (float)a->scale, .at = (enum launch_dtype)a->at,
        .drop = { d.seed, d.limit, d.keep }, .first = a->first,
    };
}

static struct launch_part part_of(const struct attention_part *p, int64_t ldq, int64_t ldkv)
{
    const struct score_places *at = &p->at;

    return (struct launch_part){ p->kv, p->ld, p->from, p->keys, ldq, ldkv, p->causal, p->fresh,
                                 { at->heads, at->seq, at->run, { at->row[0], at->row[1] }, { at->key[0], at->key[1] } } };
}

static int rotary(struct kernels *k, const struct attention *a, int64_t rot, const float *inv_freq, void *qkv,
                  bool inverse)
{
    struct launch_attention c = attention_of(a);

    if (rot % 2 || rot < 0 || rot > a->dim)
        return fail("rotary: %" PRId64 " of %" PRId64 " elements of a head", rot, a->dim);
    return CUDA_OK(attention_rotary(&c, rot, inv_freq, qkv, inverse, cuda_stream_of(k)));
}

static int attention(struct kernels *k, const struct attention *a, const void *qkv, void *o, float *lse)
{
    struct launch_attention c = attention_of(a);

    return check_attention(a) < 0 ? -1 : CUDA_OK(attention_forward(&c, qkv, o, lse, cuda_stream_of(k)));
}

static int attention_back(struct kernels *k, const struct attention *a, const void *qkv, const void *o,
                          const float *lse, const void *dout, float *delta, void *dqkv)
{
    struct launch_attention c = attention_of(a);

    return check_attention(a) < 0 ? -1 : CUDA_OK(attention_backward(&c, qkv, o, lse, dout, delta, dqkv,
                                                                    cuda_stream_of(k)));
}

static int attention_part(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv, float *o,
                          float *lse)
{
    struct launch_attention c = attention_of(a);
    struct launch_part p = part_of(part, 0, 0);

    return check_attention(a) < 0 ? -1 : CUDA_OK(attention_part_forward(&c, &p, qkv, o, lse, cuda_stream_of(k)));
}

static int attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta)
{
    struct launch_attention c = attention_of(a);

    return check_attention(a) < 0 ? -1 : CUDA_OK(attention_deltas(&c, o, dout, delta, cuda_stream_of(k)));
}

static int attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                               const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                               int64_t ldkv)
{
    struct launch_attention c = attention_of(a);
    struct launch_part p = part_of(part, ldq, ldkv);

    return check_attention(a) < 0 ? -1 : CUDA_OK(attention_part_backward(&c, &p, qkv, lse, dout, delta, dq, dkv, cuda_stream_of(k)));
}

static int copy_runs(struct kernels *k, const struct runs *r, void *dst, const void *src)
{
    return CUDA_OK(elements_copy_runs(&(struct cuda_runs){ { r->n[0], r->n[1] }, r->run, { r->to[0], r->to[1] },
                                                           { r->from[0], r->from[1] } }, dst, r->dt, src, r->st, r->add,
                                      cuda_stream_of(k)));
}

/* ---- elements ---- */

static int residual(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b, enum dtype wt,
                    const void *of, const struct dropout *d)
{
    return CUDA_OK(elements_residual(n, h, y, h, b, wt, of, h, y, h, at, cuda_drop(d), cuda_stream_of(k)));
}

static int dropout_back(struct kernels *k, int64_t count, void *dx, enum dtype at, const struct dropout *d)
{
    return CUDA_OK(elements_dropout(count, dx, at, cuda_drop(d), cuda_stream_of(k)));
}

static int activation(struct kernels *k, enum activation act, int64_t count, const void *gate, const void *up,
                      void *product, enum dtype at)
{
    return CUDA_OK(elements_activation((int)act, count, gate, up, product, at, cuda_stream_of(k)));
}

static int activation_back(struct kernels *k, enum activation act, int64_t count, const void *gate,
                           const void *up, void *du, void *dgate, enum dtype at)
{
    return CUDA_OK(elements_activation_back((int)act, count, gate, up, du, dgate, at, cuda_stream_of(k)));
}

/* The rates as kernels_host.c rounds them. */
static int adamw(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v,
                 const void *g, enum dtype gt, void *out, enum dtype ot)
{
    double t = (double)a->step;
    struct cuda_rates r = {
        .decay = (float)(1 - a->lr * a->weight_decay),
        .keep1 = (float)(1 - a->beta1), .b2 = (float)a->beta2, .keep2 = (float)(1 - a->beta2),
        .step_size = (float)(a->lr / (1 - pow(a->beta1, t))),
        .root = (float)(1 / sqrt(1 - pow(a->beta2, t))),
        .eps = (float)a->eps, .scale = (float)a->grad_scale,
    };

    return CUDA_OK(elements_adamw(1, &(struct cuda_step){ p, m, v, g, out, n }, gt, ot, r,
                                  cuda_stream_of(k)));
}

static int sgd(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
               enum dtype ot)
{
    struct cuda_moment r = { .lr = (float)a->lr, .decay = (float)a->weight_decay, .b1 = (float)a->beta1,
                             .scale = (float)a->grad_scale };

    return CUDA_OK(elements_moment(false, &(struct cuda_step){ p, m, NULL, g, out, n }, gt, ot, r, cuda_stream_of(k)));
}

static int lion(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
                enum dtype ot)
{
    struct cuda_moment r = { .lr = (float)a->lr, .decay = (float)(1 - a->lr * a->weight_decay),
                             .b1 = (float)a->beta1, .keep1 = (float)(1 - a->beta1),
                             .b2 = (float)a->beta2, .keep2 = (float)(1 - a->beta2), .scale = (float)a->grad_scale };

    return CUDA_OK(elements_moment(true, &(struct cuda_step){ p, m, NULL, g, out, n }, gt, ot, r, cuda_stream_of(k)));
}

static int copy(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                double scale, bool add)
{
    return CUDA_OK(elements_copy(n, dst, dt, src, st, (float)scale, add, cuda_stream_of(k)));
}

/* ---- codes ---- */

static struct cuda_quant codes_of(const struct quant *q)
{
    return (struct cuda_quant){ q->elems, q->groups, q->bits, q->ranks, q->nodes };
}

static int quantize(struct kernels *k, const struct quant *q, const void *x, void *codes, float *scales)
{
    return CUDA_OK(codes_cuda_quantize(codes_of(q), x, codes, scales, cuda_stream_of(k)));
}

static int dequantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *x)
{
    return CUDA_OK(codes_cuda_dequantize(codes_of(q), codes, scales, x, cuda_stream_of(k)));
}

static int requantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *sum, float *sum_scales)
{
    return CUDA_OK(codes_cuda_requantize(codes_of(q), codes, scales, sum, sum_scales, cuda_stream_of(k)));
}

static int mean(struct kernels *k, const struct quant *q, double scale, const void *x, void *y)
{
    return CUDA_OK(codes_cuda_mean(codes_of(q), (float)scale, x, y, cuda_stream_of(k)));
}

static int orthonormal(struct kernels *k, int64_t rows, int64_t cols, float *a)
{
    return CUDA_OK(columns_cuda_orthonormal(rows, cols, a, cuda_stream_of(k)));
}

/* ---- 8-bit floats ---- */

static struct cuda_strided matrix_of(const struct strided *s) { return (struct cuda_strided){ s->rows, s->cols, s->ld }; }

static int amax(struct kernels *k, const struct strided *s, enum float8_by by, const void *x, enum dtype dt, float *most)
{
    struct cuda_strided m = matrix_of(s);

    return CUDA_OK(float8_cuda_amax(&m, by, x, dt, most, false, cuda_stream_of(k)));
}

static int scales8(struct kernels *k, enum float8_format f, int64_t n, float *most, bool powers_of_two)
{
    return CUDA_OK(float8_cuda_scales(f == FLOAT8_E5M2, n, most, powers_of_two, cuda_stream_of(k)));
}

static int cast8(struct kernels *k, enum float8_format f, const struct strided *s, enum float8_by by, const void *x, enum dtype dt,
                 const float *scale, void *y, enum dtype yt)
{
    struct cuda_strided m = matrix_of(s);

    return CUDA_OK(float8_cuda_cast(f == FLOAT8_E5M2, &m, by, x, dt, scale, 1, y, yt, cuda_stream_of(k)));
}

static int codes8(struct kernels *k, int64_t n, const void *x, enum dtype dt, float scale, uint8_t *codes)
{
    struct cuda_strided m = { 1, n, n };

    return CUDA_OK(float8_cuda_cast(false, &m, FLOAT8_BY_TENSOR, x, dt, NULL, scale, codes, DT_FP8, cuda_stream_of(k)));
}

static int numbers8(struct kernels *k, int64_t n, const uint8_t *codes, void *x, enum dtype dt)
{
    return CUDA_OK(float8_cuda_numbers(n, codes, x, dt, cuda_stream_of(k)));
}

/* ---- the table, opening ---- */

static const struct kernel_ops cuda_kernel_ops = {
    .name = "cuda",
    .embed = embed, .embed_positions = embed_positions, .dropout_back = dropout_back,
    .embed_back = embed_back, .embed_positions_back = embed_positions_back,
    .norm = norm, .norm_back = norm_back,
    .linear = cuda_linear, .linear_dw = cuda_linear_dw, .linear_dx = cuda_linear_dx,
    .rotary = rotary, .attention = attention, .attention_back = attention_back,
    .attention_part = attention_part, .attention_delta = attention_delta, .attention_part_back = attention_part_back,
    .copy_runs = copy_runs,
    .activation = activation, .activation_back = activation_back, .cross_entropy = cross_entropy,
    .embed_rows = embed_rows, .embed_rows_back = embed_rows_back, .residual = residual,
    .linear_db = cuda_linear_db, .logits_most = logits_most, .logits_label = logits_label,
    .logits_sum = logits_sum, .logits_loss = logits_loss, .logits_whole = logits_whole,
    .adamw = adamw, .sgd = sgd, .lion = lion, .adafactor = cuda_adafactor, .adamw8 = cuda_adamw8, .pack = cuda_pack, .unpack = cuda_unpack,
    .copy = copy,
    .quantize = quantize, .dequantize = dequantize, .requantize = requantize, .mean = mean, .orthonormal = orthonormal,
    .amax = amax, .scales8 = scales8, .cast8 = cast8, .codes8 = codes8, .numbers8 = numbers8, .largest = cuda_largest,
    .sum_squares = cuda_sum_squares, .sum = cuda_sum, .not_finite = cuda_not_finite,
    .exact_squares = cuda_exact_squares, .finish = cuda_finish,
    .zero = cuda_zero, .upload = cuda_upload, .download = cuda_download, .load = cuda_load,
};

static void close_cuda(struct kernels *k)
{
    struct kernels_cuda *c = cuda_kernels(k);

    cuda_host_close(c);
    gemm_cuda_close(c->gemm);
    free(c);
}

/* The products' workspace, and theirs who come after: each needs an address of 256 bytes. */
static int open_products(struct kernels *k, void *workspace, int64_t bytes)
{
    struct kernels_cuda *c = cuda_kernels(k);

    if (bytes < GEMM_CUDA_WORKSPACE)
        return fail("kernels on CUDA: a workspace of %" PRId64 " bytes, cuBLASLt alone takes %d", bytes,
                    (int)GEMM_CUDA_WORKSPACE);
    k->workspace = (char *)workspace + GEMM_CUDA_WORKSPACE;
    k->bytes = bytes - GEMM_CUDA_WORKSPACE;
    c->gemm = gemm_cuda_open(c->stream, workspace, GEMM_CUDA_WORKSPACE);
    return c->gemm ? 0 : -1;
}

static void name_kernels(struct kernels *k)
{
    char products[24];

    gemm_cuda_name(products, sizeof products);
    snprintf(k->name, sizeof k->name, "cuda: %.28s, %s", device_name(cuda_kernels(k)->device), products);
    k->ops.name = k->name;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t kernels_cuda_workspace(const struct kernels_cuda_need *need)
{
    int64_t bytes = linear_cuda_workspace(need->widest, need->cast);

    bytes = larger(bytes, rows_column_sums_workspace(need->n, need->widest));
    bytes = larger(bytes, rows_norm_workspace(need->n, need->hidden));
    bytes = larger(bytes, rows_embed_workspace(need->n, need->hidden, need->vocab));
    return GEMM_CUDA_WORKSPACE + round_up(bytes, 256);
}

struct kernels *kernels_cuda_open(struct device *d, enum stream s, int threads, void *workspace,
                                  int64_t bytes, bool reference)
{
    struct kernels *k;
    struct kernels_cuda *c;

    if (reference) {
        fail("the reference kernels are for the host, not for %s", device_name(d));
        return NULL;
    }
    k = calloc(1, sizeof *k);
    c = calloc(1, sizeof *c);
    if (!k || !c) {
        free(k);
        free(c);
        fail("out of memory for the kernels");
        return NULL;
    }
    *c = (struct kernels_cuda){ .device = d, .stream = device_cuda_stream(d, s) };
    k->ops = cuda_kernel_ops;
    k->simd = simd_best();
    k->self = c;
    k->close = close_cuda;
    k->threads = threads;
    name_kernels(k);
    if (cuda_host_open(c) == 0 && (bytes == 0 || open_products(k, workspace, bytes) == 0))
        return k;
    kernels_close(k);
    return NULL;
}

void kernels_cuda_tune(struct kernels *k, bool on)
{
    if (cuda_kernels(k)->gemm)
        gemm_cuda_tune(cuda_kernels(k)->gemm, on);
}
