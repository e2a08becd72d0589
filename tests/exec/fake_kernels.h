/* fake_kernels.h -- the kernels of fake_device.h: each call is kept as a struct of its arguments, device
 * addresses turned into real ones, and made by the host's kernels in the stream's thread. */
#ifndef DPX_TESTS_EXEC_FAKE_KERNELS_H
#define DPX_TESTS_EXEC_FAKE_KERNELS_H

#include "tests/exec/fake_streams.h"

#include "exec/kernels/exact_sum.h"
#include "exec/kernels/fp8.h"
#include "exec/kernels/kernels_internal.h"

/* A number on its way to the host. */
struct fake_result {
    struct fake_result *next;
    double *to, value;
    struct exact_sum *exact_to, exact;
    float *most_to, most;
};

struct fake_kernels {
    struct CUstream_st *s;
    struct kernels *inner;              /* the host's, used by the stream's thread */
    void *own;                          /* its workspace where the stream has none: cuBLASLt multiplies without, oneDNN does not */
    struct fake_result *results, **last;
};

static inline struct fake_kernels *fake_of(struct kernels *k) { return k->self; }
static inline void *fake_at(struct kernels *k, const void *p) { return fake_real(fake_of(k)->s->f, p); }

static inline struct dropout fake_drop(const struct dropout *d) { return d ? *d : (struct dropout){ 0 }; }

/* FIELDS of a struct of arguments, what the call of the host's kernel makes of them (a->). */
#define FAKE_CALL(op, FIELDS, ...) \
    struct fake_##op { struct kernels *k; FIELDS }; \
    static inline int fake_run_##op(void *arg, void *device) \
    { \
        struct fake_##op *a = arg; \
        (void)device; \
        return kernels_ops(a->k)->op(a->k, __VA_ARGS__); \
    }
#define FAKE_QUEUE(op, ...) \
    struct fake_##op a = { fake_of(k)->inner, __VA_ARGS__ }; \
    return fake_queue(fake_of(k)->s, fake_run_##op, fake_copy_of(&a, sizeof a), NULL)
#define AT(p) fake_at(k, p)

FAKE_CALL(embed, int64_t n; int64_t h; const int32_t *ids; const void *table; enum dtype wt; void *x; enum dtype at;,
          a->n, a->h, a->ids, a->table, a->wt, a->x, a->at)
static inline int fake_embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
                             enum dtype wt, void *x, enum dtype at)
{
    FAKE_QUEUE(embed, n, h, AT(ids), AT(table), wt, AT(x), at);
}

FAKE_CALL(embed_positions, int64_t n; int64_t h; int64_t seq; const void *table; enum dtype wt; void *x; enum dtype at;
          struct dropout d;, a->n, a->h, a->seq, a->table, a->wt, a->x, a->at, &a->d)
static inline int fake_embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                                       enum dtype wt, void *x, enum dtype at, const struct dropout *d)
{
    FAKE_QUEUE(embed_positions, n, h, seq, AT(table), wt, AT(x), at, fake_drop(d));
}

FAKE_CALL(dropout_back, int64_t n; void *dx; enum dtype at; struct dropout d;, a->n, a->dx, a->at, &a->d)
static inline int fake_dropout_back(struct kernels *k, int64_t n, void *dx, enum dtype at, const struct dropout *d)
{
    FAKE_QUEUE(dropout_back, n, AT(dx), at, fake_drop(d));
}

FAKE_CALL(embed_back, int64_t n; int64_t h; int64_t vocab; const int32_t *ids; const void *dx; enum dtype at;
          void *dtable; enum dtype gt; enum grad_into into;,
          a->n, a->h, a->vocab, a->ids, a->dx, a->at, a->dtable, a->gt, a->into)
static inline int fake_embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                                  const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    FAKE_QUEUE(embed_back, n, h, vocab, AT(ids), AT(dx), at, AT(dtable), gt, into);
}

FAKE_CALL(embed_positions_back, int64_t n; int64_t h; int64_t seq; int64_t rows; const void *dx; enum dtype at;
          void *dtable; enum dtype gt; enum grad_into into;,
          a->n, a->h, a->seq, a->rows, a->dx, a->at, a->dtable, a->gt, a->into)
static inline int fake_embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                                            const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                            enum grad_into into)
{
    FAKE_QUEUE(embed_positions_back, n, h, seq, rows, AT(dx), at, AT(dtable), gt, into);
}

FAKE_CALL(norm, enum norm_kind kind; int64_t n; int64_t h; double eps; const void *x; const void *w; const void *b;
          enum dtype wt; void *y; enum dtype at; float *stats;,
          a->kind, a->n, a->h, a->eps, a->x, a->w, a->b, a->wt, a->y, a->at, a->stats)
static inline int fake_norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
                            const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats)
{
    FAKE_QUEUE(norm, kind, n, h, eps, AT(x), AT(w), AT(b), wt, AT(y), at, AT(stats));
}

FAKE_CALL(norm_back, enum norm_kind kind; int64_t n; int64_t h; const void *dy; const void *x; const void *w;
          enum dtype wt; const float *stats; enum dtype at; void *dx; bool add; void *dw; void *db; enum dtype gt;
          enum grad_into into;, a->kind, a->n, a->h, a->dy, a->x, a->w, a->wt, a->stats, a->at, a->dx, a->add,
          a->dw, a->db, a->gt, a->into)
static inline int fake_norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                                 const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                                 void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into)
{
    FAKE_QUEUE(norm_back, kind, n, h, AT(dy), AT(x), AT(w), wt, AT(stats), at, AT(dx), add, AT(dw), AT(db), gt, into);
}

/* With its scales' real addresses. */
static inline struct linear fake_layer(struct kernels *k, const struct linear *l)
{
    struct linear real = *l;

    real.scales.a = AT(l->scales.a);
    real.scales.b = AT(l->scales.b);
    return real;
}

FAKE_CALL(linear, struct linear l; const void *x; const void *w; const void *b; void *y; const void *residual;
          struct dropout d;, &a->l, a->x, a->w, a->b, a->y, a->residual, &a->d)
static inline int fake_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                              void *y, const void *residual, const struct dropout *d)
{
    FAKE_QUEUE(linear, fake_layer(k, l), AT(x), AT(w), AT(b), AT(y), AT(residual), fake_drop(d));
}

FAKE_CALL(linear_dw, struct linear l; const void *x; const void *dy; void *dw; void *db; enum grad_into into;,
          &a->l, a->x, a->dy, a->dw, a->db, a->into)
static inline int fake_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                                 void *db, enum grad_into into)
{
    FAKE_QUEUE(linear_dw, fake_layer(k, l), AT(x), AT(dy), AT(dw), AT(db), into);
}

FAKE_CALL(linear_dx, struct linear l; const void *dy; const void *w; void *dx; bool add;,
          &a->l, a->dy, a->w, a->dx, a->add)
static inline int fake_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                                 bool add)
{
    FAKE_QUEUE(linear_dx, fake_layer(k, l), AT(dy), AT(w), AT(dx), add);
}

FAKE_CALL(rotary, struct attention t; int64_t rotary; const float *f; void *qkv; bool inverse;,
          &a->t, a->rotary, a->f, a->qkv, a->inverse)
static inline int fake_rotary(struct kernels *k, const struct attention *t, int64_t rotary, const float *f, void *qkv,
                              bool inverse)
{
    FAKE_QUEUE(rotary, *t, rotary, AT(f), AT(qkv), inverse);
}

FAKE_CALL(attention, struct attention t; const void *qkv; void *o; float *lse;, &a->t, a->qkv, a->o, a->lse)
static inline int fake_attention(struct kernels *k, const struct attention *t, const void *qkv, void *o, float *lse)
{
    FAKE_QUEUE(attention, *t, AT(qkv), AT(o), AT(lse));
}

FAKE_CALL(attention_back, struct attention t; const void *qkv; const void *o; const float *lse; const void *dout;
          float *delta; void *dqkv;, &a->t, a->qkv, a->o, a->lse, a->dout, a->delta, a->dqkv)
static inline int fake_attention_back(struct kernels *k, const struct attention *t, const void *qkv, const void *o,
                                      const float *lse, const void *dout, float *delta, void *dqkv)
{
    FAKE_QUEUE(attention_back, *t, AT(qkv), AT(o), AT(lse), AT(dout), AT(delta), AT(dqkv));
}

FAKE_CALL(activation, enum activation act; int64_t n; const void *gate; const void *up; void *product; enum dtype at;,
          a->act, a->n, a->gate, a->up, a->product, a->at)
static inline int fake_activation(struct kernels *k, enum activation act, int64_t n, const void *gate, const void *up,
                                  void *product, enum dtype at)
{
    FAKE_QUEUE(activation, act, n, AT(gate), AT(up), AT(product), at);
}

FAKE_CALL(activation_back, enum activation act; int64_t n; const void *gate; const void *up; void *du; void *dgate;
          enum dtype at;, a->act, a->n, a->gate, a->up, a->du, a->dgate, a->at)
static inline int fake_activation_back(struct kernels *k, enum activation act, int64_t n, const void *gate,
                                       const void *up, void *du, void *dgate, enum dtype at)
{
    FAKE_QUEUE(activation_back, act, n, AT(gate), AT(up), AT(du), AT(dgate), at);
}

FAKE_CALL(cross_entropy, int64_t n; int64_t vocab; void *logits; enum dtype at; const int32_t *labels; float *losses;
          double scale;, a->n, a->vocab, a->logits, a->at, a->labels, a->losses, a->scale)
static inline int fake_cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                                     const int32_t *labels, float *losses, double scale)
{
    FAKE_QUEUE(cross_entropy, n, vocab, AT(logits), at, AT(labels), AT(losses), scale);
}

FAKE_CALL(adamw, struct adamw s; int64_t n; float *p; float *m; float *v; const void *g; enum dtype gt; void *out;
          enum dtype ot;, &a->s, a->n, a->p, a->m, a->v, a->g, a->gt, a->out, a->ot)
static inline int fake_adamw(struct kernels *k, const struct adamw *s, int64_t n, float *p, float *m, float *v,
                             const void *g, enum dtype gt, void *out, enum dtype ot)
{
    FAKE_QUEUE(adamw, *s, n, AT(p), AT(m), AT(v), AT(g), gt, AT(out), ot);
}

FAKE_CALL(sgd, struct adamw s; int64_t n; float *p; float *m; const void *g; enum dtype gt; void *out; enum dtype ot;,
          &a->s, a->n, a->p, a->m, a->g, a->gt, a->out, a->ot)
static inline int fake_sgd(struct kernels *k, const struct adamw *s, int64_t n, float *p, float *m, const void *g, enum dtype gt,
                           void *out, enum dtype ot)
{
    FAKE_QUEUE(sgd, *s, n, AT(p), AT(m), AT(g), gt, AT(out), ot);
}

FAKE_CALL(lion, struct adamw s; int64_t n; float *p; float *m; const void *g; enum dtype gt; void *out; enum dtype ot;,
          &a->s, a->n, a->p, a->m, a->g, a->gt, a->out, a->ot)
static inline int fake_lion(struct kernels *k, const struct adamw *s, int64_t n, float *p, float *m, const void *g, enum dtype gt,
                            void *out, enum dtype ot)
{
    FAKE_QUEUE(lion, *s, n, AT(p), AT(m), AT(g), gt, AT(out), ot);
}

FAKE_CALL(copy, int64_t n; void *dst; enum dtype dt; const void *src; enum dtype st; double scale; bool add;,
          a->n, a->dst, a->dt, a->src, a->st, a->scale, a->add)
static inline int fake_copy(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                            double scale, bool add)
{
    FAKE_QUEUE(copy, n, AT(dst), dt, AT(src), st, scale, add);
}

/* ---- results ---- */

static inline struct fake_result *fake_result(struct kernels *k, double *to, struct exact_sum *exact)
{
    struct fake_result *r = calloc(1, sizeof *r);

    r->to = to;
    r->exact_to = exact;
    *fake_of(k)->last = r;
    fake_of(k)->last = &r->next;
    return r;
}

FAKE_CALL(sum_squares, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->value)
static inline int fake_sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum)
{
    FAKE_QUEUE(sum_squares, n, AT(x), dt, fake_result(k, sum, NULL));
}

FAKE_CALL(sum, int64_t n; const float *x; struct fake_result *r;, a->n, a->x, &a->r->value)
static inline int fake_sum(struct kernels *k, int64_t n, const float *x, double *sum)
{
    FAKE_QUEUE(sum, n, AT(x), fake_result(k, sum, NULL));
}

FAKE_CALL(not_finite, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->value)
static inline int fake_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count)
{
    FAKE_QUEUE(not_finite, n, AT(x), dt, fake_result(k, count, NULL));
}

FAKE_CALL(exact_squares, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->exact)
static inline int fake_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum)
{
    FAKE_QUEUE(exact_squares, n, AT(x), dt, fake_result(k, NULL, sum));
}

FAKE_CALL(largest, int64_t n; const void *x; enum dtype dt; struct fake_result *r;, a->n, a->x, a->dt, &a->r->most)
static inline int fake_largest(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most)
{
    struct fake_result *r = fake_result(k, NULL, NULL);

    r->most_to = most;
    FAKE_QUEUE(largest, n, AT(x), dt, r);
}

static inline int fake_finish(struct kernels *k)
{
    struct fake_kernels *q = fake_of(k);

    fake_drain(&q->s->f->d, q->s, NULL);
    while (q->results) {
        struct fake_result *r = q->results;
        if (r->to)
            *r->to += r->value;
        for (int i = 0; r->exact_to && i < NORM_LIMBS; i++)
            r->exact_to->limb[i] += r->exact.limb[i];
        if (r->exact_to)
            exact_carry(r->exact_to);
        if (r->most_to)
            *r->most_to = fp8_larger(*r->most_to, r->most);
        q->results = r->next;
        free(r);
    }
    q->last = &q->results;
    return 0;
}

/* ---- between host and device ---- */

FAKE_CALL(zero, int64_t bytes; void *dst;, a->bytes, a->dst)
static inline int fake_zero(struct kernels *k, int64_t bytes, void *dst)
{
    FAKE_QUEUE(zero, bytes, AT(dst));
}

static inline int fake_run_upload(void *arg, void *device)
{
    int64_t bytes;

    memcpy(&bytes, arg, sizeof bytes);
    memcpy(device, (char *)arg + sizeof bytes, (size_t)bytes);
    return 0;
}

static inline int fake_upload(struct kernels *k, int64_t bytes, void *dst, const void *host)
{
    char *arg = malloc(sizeof bytes + (size_t)bytes);

    memcpy(arg, &bytes, sizeof bytes);
    memcpy(arg + sizeof bytes, host, (size_t)bytes);
    return fake_queue(fake_of(k)->s, fake_run_upload, arg, AT(dst));
}

static inline int fake_download(struct kernels *k, int64_t bytes, void *host, const void *src)
{
    struct CUstream_st *s = fake_of(k)->s;

    return fake_fetch(&s->f->d, s, host, src, bytes) < 0 ? -1 : fake_drain(&s->f->d, s, NULL);
}

struct fake_load { struct kernels *k; int64_t n; void *dst; enum dtype dt; float host[]; };

static inline int fake_run_load(void *arg, void *device)
{
    struct fake_load *a = arg;

    (void)device;
    return kernels_ops(a->k)->load(a->k, a->n, a->dst, a->dt, a->host);
}

static inline int fake_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host)
{
    struct fake_load *a = malloc(sizeof *a + (size_t)n * sizeof *host);

    *a = (struct fake_load){ fake_of(k)->inner, n, AT(dst), dt };
    memcpy(a->host, host, (size_t)n * sizeof *host);
    return fake_queue(fake_of(k)->s, fake_run_load, a, NULL);
}

/* ---- of a model whose tensors are cut ---- */

FAKE_CALL(embed_rows, int64_t n; int64_t h; int64_t first; int64_t rows; const int32_t *ids; const void *table; enum dtype wt;
          void *x; enum dtype at;, a->n, a->h, a->first, a->rows, a->ids, a->table, a->wt, a->x, a->at)
static inline int fake_embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                                  const void *table, enum dtype wt, void *x, enum dtype at)
{
    FAKE_QUEUE(embed_rows, n, h, first, rows, AT(ids), AT(table), wt, AT(x), at);
}

FAKE_CALL(embed_rows_back, int64_t n; int64_t h; int64_t first; int64_t rows; const int32_t *ids; const void *dx;
          enum dtype at; void *dtable; enum dtype gt; enum grad_into into;,
          a->n, a->h, a->first, a->rows, a->ids, a->dx, a->at, a->dtable, a->gt, a->into)
static inline int fake_embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows,
                                       const int32_t *ids, const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                       enum grad_into into)
{
    FAKE_QUEUE(embed_rows_back, n, h, first, rows, AT(ids), AT(dx), at, AT(dtable), gt, into);
}

FAKE_CALL(residual, int64_t n; int64_t h; void *y; enum dtype at; const void *b; enum dtype wt; const void *of;
          struct dropout d;, a->n, a->h, a->y, a->at, a->b, a->wt, a->of, &a->d)
static inline int fake_residual(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b,
                                enum dtype wt, const void *of, const struct dropout *d)
{
    FAKE_QUEUE(residual, n, h, AT(y), at, AT(b), wt, AT(of), fake_drop(d));
}

FAKE_CALL(linear_db, struct linear l; const void *dy; void *db; enum grad_into into;, &a->l, a->dy, a->db, a->into)
static inline int fake_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into)
{
    FAKE_QUEUE(linear_db, *l, AT(dy), AT(db), into);
}

FAKE_CALL(logits_most, struct cut_logits l; const void *x; float *most;, &a->l, a->x, a->most)
static inline int fake_logits_most(struct kernels *k, const struct cut_logits *l, const void *x, float *most)
{
    FAKE_QUEUE(logits_most, *l, AT(x), AT(most));
}

FAKE_CALL(logits_label, struct cut_logits l; const void *x; const int32_t *labels; float *at_label;,
          &a->l, a->x, a->labels, a->at_label)
static inline int fake_logits_label(struct kernels *k, const struct cut_logits *l, const void *x, const int32_t *labels,
                                    float *at_label)
{
    FAKE_QUEUE(logits_label, *l, AT(x), AT(labels), AT(at_label));
}

FAKE_CALL(logits_sum, struct cut_logits l; const void *x; const float *most; float *sum;, &a->l, a->x, a->most, a->sum)
static inline int fake_logits_sum(struct kernels *k, const struct cut_logits *l, const void *x, const float *most, float *sum)
{
    FAKE_QUEUE(logits_sum, *l, AT(x), AT(most), AT(sum));
}

FAKE_CALL(logits_loss, struct cut_logits l; void *x; const int32_t *labels; struct logit_sums of; float *losses;
          double scale;, &a->l, a->x, a->labels, &a->of, a->losses, a->scale)
static inline int fake_logits_loss(struct kernels *k, const struct cut_logits *l, void *x, const int32_t *labels,
                                   const struct logit_sums *of, float *losses, double scale)
{
    struct logit_sums real = { AT(of->most), AT(of->label), AT(of->sum) };

    FAKE_QUEUE(logits_loss, *l, AT(x), AT(labels), real, AT(losses), scale);
}

FAKE_CALL(logits_whole, struct cut_logits l; const void *all; void *x; const int32_t *labels; float *losses;
          double scale;, &a->l, a->all, a->x, a->labels, a->losses, a->scale)
static inline int fake_logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *x,
                                    const int32_t *labels, float *losses, double scale)
{
    FAKE_QUEUE(logits_whole, *l, AT(all), AT(x), AT(labels), AT(losses), scale);
}

/* ---- codes, and PowerSGD's columns ---- */

FAKE_CALL(quantize, struct quant q; const void *x; void *codes; float *scales;, &a->q, a->x, a->codes, a->scales)
static inline int fake_quantize(struct kernels *k, const struct quant *q, const void *x, void *codes, float *scales)
{
    FAKE_QUEUE(quantize, *q, AT(x), AT(codes), AT(scales));
}

FAKE_CALL(dequantize, struct quant q; const void *codes; const float *scales; void *x;, &a->q, a->codes, a->scales, a->x)
static inline int fake_dequantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *x)
{
    FAKE_QUEUE(dequantize, *q, AT(codes), AT(scales), AT(x));
}

FAKE_CALL(requantize, struct quant q; const void *codes; const float *scales; void *sum; float *sum_scales;,
          &a->q, a->codes, a->scales, a->sum, a->sum_scales)
static inline int fake_requantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *sum, float *sum_scales)
{
    FAKE_QUEUE(requantize, *q, AT(codes), AT(scales), AT(sum), AT(sum_scales));
}

FAKE_CALL(mean, struct quant q; double scale; const void *x; void *y;, &a->q, a->scale, a->x, a->y)
static inline int fake_mean(struct kernels *k, const struct quant *q, double scale, const void *x, void *y)
{
    FAKE_QUEUE(mean, *q, scale, AT(x), AT(y));
}

FAKE_CALL(orthonormal, int64_t rows; int64_t cols; float *of;, a->rows, a->cols, a->of)
static inline int fake_orthonormal(struct kernels *k, int64_t rows, int64_t cols, float *of)
{
    FAKE_QUEUE(orthonormal, rows, cols, AT(of));
}

/* ---- 8-bit floats ---- */

FAKE_CALL(amax, struct strided m; enum float8_by by; const void *x; enum dtype dt; float *most;, &a->m, a->by, a->x, a->dt, a->most)
static inline int fake_amax(struct kernels *k, const struct strided *m, enum float8_by by, const void *x, enum dtype dt, float *most)
{
    FAKE_QUEUE(amax, *m, by, AT(x), dt, AT(most));
}

FAKE_CALL(scales8, enum float8_format f; int64_t n; float *most; bool powers;, a->f, a->n, a->most, a->powers)
static inline int fake_scales8(struct kernels *k, enum float8_format f, int64_t n, float *most, bool powers_of_two)
{
    FAKE_QUEUE(scales8, f, n, AT(most), powers_of_two);
}

FAKE_CALL(cast8, enum float8_format f; struct strided m; enum float8_by by; const void *x; enum dtype dt; const float *scale; void *y;
          enum dtype yt;, a->f, &a->m, a->by, a->x, a->dt, a->scale, a->y, a->yt)
static inline int fake_cast8(struct kernels *k, enum float8_format f, const struct strided *m, enum float8_by by, const void *x,
                             enum dtype dt, const float *scale, void *y, enum dtype yt)
{
    FAKE_QUEUE(cast8, f, *m, by, AT(x), dt, AT(scale), AT(y), yt);
}

FAKE_CALL(codes8, int64_t n; const void *x; enum dtype dt; float scale; uint8_t *codes;, a->n, a->x, a->dt, a->scale, a->codes)
static inline int fake_codes8(struct kernels *k, int64_t n, const void *x, enum dtype dt, float scale, uint8_t *codes)
{
    FAKE_QUEUE(codes8, n, AT(x), dt, scale, AT(codes));
}

FAKE_CALL(numbers8, int64_t n; const uint8_t *codes; void *x; enum dtype dt;, a->n, a->codes, a->x, a->dt)
static inline int fake_numbers8(struct kernels *k, int64_t n, const uint8_t *codes, void *x, enum dtype dt)
{
    FAKE_QUEUE(numbers8, n, AT(codes), AT(x), dt);
}

static inline void fake_close_kernels(struct kernels *k)
{
    struct fake_kernels *q = fake_of(k);

    fake_drain(&q->s->f->d, q->s, NULL);
    for (struct fake_result *r = q->results, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    kernels_close(q->inner);
    free(q->own);
    free(q);
}

static const struct kernel_ops fake_kernel_ops = {
    .name = "fake",
    .embed = fake_embed, .embed_positions = fake_embed_positions, .dropout_back = fake_dropout_back,
    .embed_back = fake_embed_back, .embed_positions_back = fake_embed_positions_back,
    .norm = fake_norm, .norm_back = fake_norm_back,
    .linear = fake_linear, .linear_dw = fake_linear_dw, .linear_dx = fake_linear_dx,
    .rotary = fake_rotary, .attention = fake_attention, .attention_back = fake_attention_back,
    .activation = fake_activation, .activation_back = fake_activation_back, .cross_entropy = fake_cross_entropy,
    .embed_rows = fake_embed_rows, .embed_rows_back = fake_embed_rows_back, .residual = fake_residual,
    .linear_db = fake_linear_db, .logits_most = fake_logits_most, .logits_label = fake_logits_label,
    .logits_sum = fake_logits_sum, .logits_loss = fake_logits_loss, .logits_whole = fake_logits_whole,
    .adamw = fake_adamw, .sgd = fake_sgd, .lion = fake_lion, .copy = fake_copy, .sum_squares = fake_sum_squares,
    .quantize = fake_quantize, .dequantize = fake_dequantize, .requantize = fake_requantize, .mean = fake_mean,
    .orthonormal = fake_orthonormal,
    .amax = fake_amax, .scales8 = fake_scales8, .cast8 = fake_cast8, .codes8 = fake_codes8, .numbers8 = fake_numbers8,
    .largest = fake_largest,
    .sum = fake_sum, .not_finite = fake_not_finite, .exact_squares = fake_exact_squares, .finish = fake_finish,
    .zero = fake_zero, .upload = fake_upload, .download = fake_download, .load = fake_load,
};

static inline struct kernels *fake_kernels(struct device *d, enum stream s, int threads, void *workspace,
                                           int64_t bytes, bool reference)
{
    struct kernels *k = calloc(1, sizeof *k);
    struct fake_kernels *q = calloc(1, sizeof *q);

    q->s = fake_stream(d, s);
    q->own = workspace ? NULL : malloc((size_t)gemm_workspace(threads));
    q->inner = kernels_open(threads, q->own ? q->own : fake_real(d->self, workspace), q->own ? gemm_workspace(threads) : bytes, reference);
    q->last = &q->results;
    k->ops = fake_kernel_ops;
    k->self = q;
    k->close = fake_close_kernels;
    return k;
}

#undef AT
#endif
