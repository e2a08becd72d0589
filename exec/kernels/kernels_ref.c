/* The reference: one loop a formula, sums in double, one rounding on the way out.  It takes
 * fp64 arrays as well, so that tests can hold its gradients against finite differences. */
#include <math.h>

#include "exec/kernels/blockwise.h"
#include "exec/kernels/kernels_codes.h"
#include "exec/kernels/kernels_columns.h"
#include "exec/kernels/kernels_float8.h"
#include "exec/kernels/kernels_ref.h"

/* ---- embedding ---- */

static int embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
                 enum dtype wt, void *x, enum dtype at)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j++)
            put(x, at, i * h + j, get(table, wt, ids[i] * h + j));
    return 0;
}

static int embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                           enum dtype wt, void *x, enum dtype at, const struct dropout *d)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j++) {
            double p = table ? get(table, wt, i % seq * h + j) : 0;
            put(x, at, i * h + j, dropped(d, i * h + j, get(x, at, i * h + j) + p));
        }
    return 0;
}

static int dropout_back(struct kernels *k, int64_t count, void *dx, enum dtype at, const struct dropout *d)
{
    (void)k;
    for (int64_t i = 0; i < count; i++)
        put(dx, at, i, dropped(d, i, get(dx, at, i)));
    return 0;
}

static int embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                      const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    (void)k;
    for (int64_t r = 0; r < vocab; r++)
        for (int64_t j = 0; j < h; j++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++)
                if (ids[i] == r)
                    sum += get(dx, at, i * h + j);
            put_grad(dtable, gt, r * h + j, sum, into);
        }
    return 0;
}

static int embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                                const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                enum grad_into into)
{
    (void)k;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < h; j++) {
            double sum = 0;
            for (int64_t i = r; i < n && r < seq; i += seq)
                sum += get(dx, at, i * h + j);
            put_grad(dtable, gt, r * h + j, sum, into);
        }
    return 0;
}

/* ---- norms ---- */

static int norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
                const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats)
{
    (void)k;
    for (int64_t i = 0; i < n; i++) {
        double mean = 0, squares = 0;
        for (int64_t j = 0; j < h && kind == NORM_LAYER; j++)
            mean += get(x, at, i * h + j) / (double)h;
        for (int64_t j = 0; j < h; j++)
            squares += pow(get(x, at, i * h + j) - mean, 2);
        double r = 1 / sqrt(squares / (double)h + eps);
        for (int64_t j = 0; j < h; j++) {
            double xhat = (get(x, at, i * h + j) - mean) * r;
            put(y, at, i * h + j, xhat * (w ? get(w, wt, j) : 1) + (b ? get(b, wt, j) : 0));
        }
        if (kind == NORM_LAYER)
            stats[i] = (float)mean;
        stats[kind == NORM_LAYER ? n + i : i] = (float)r;
    }
    return 0;
}

struct row_stats { double mean, r; };

static struct row_stats row_stats(enum norm_kind kind, const float *stats, int64_t n, int64_t i)
{
    if (kind == NORM_LAYER)
        return (struct row_stats){ (double)stats[i], (double)stats[n + i] };
    return (struct row_stats){ 0, (double)stats[i] };
}

static int norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                     const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                     void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into)
{
    (void)k;
    for (int64_t j = 0; j < h; j++) {
        double sum_w = 0, sum_b = 0;
        for (int64_t i = 0; i < n; i++) {
            struct row_stats s = row_stats(kind, stats, n, i);
            sum_w += get(dy, at, i * h + j) * (get(x, at, i * h + j) - s.mean) * s.r;
            sum_b += get(dy, at, i * h + j);
        }
        if (dw)
            put_grad(dw, gt, j, sum_w, into);
        if (db)
            put_grad(db, gt, j, sum_b, into);
    }
    for (int64_t i = 0; i < n; i++) {
        struct row_stats s = row_stats(kind, stats, n, i);
        double g_mean = 0, gx_mean = 0;
        for (int64_t j = 0; j < h; j++) {
            double g = get(dy, at, i * h + j) * (w ? get(w, wt, j) : 1);
            g_mean += kind == NORM_LAYER ? g / (double)h : 0;
            gx_mean += g * (get(x, at, i * h + j) - s.mean) * s.r / (double)h;
        }
        for (int64_t j = 0; j < h; j++) {
            double g = get(dy, at, i * h + j) * (w ? get(w, wt, j) : 1);
            double xhat = (get(x, at, i * h + j) - s.mean) * s.r;
            put_grad(dx, at, i * h + j, s.r * (g - g_mean - xhat * gx_mean), add ? GRAD_ADD : GRAD_SET);
        }
    }
    return 0;
}

/* ---- linear ---- */

/* Where W keeps the weight from input i to output o. */
static int64_t weight(const struct linear *l, int64_t i, int64_t o)
{
    return l->in_out ? i * l->out + o : o * l->in + i;
}

/* An operand as the product takes it: rounded to the activations' 16 bits. */
static double operand(const void *x, enum dtype t, enum dtype as, int64_t i)
{
    return rounded(as, get(x, t, i));
}

/* Of the result's element in row i, column j. */
static double scale_of(const struct linear *l, int64_t i, int64_t j)
{
    const struct scales *s = &l->scales;

    return s->a ? 1 / (double)s->a[s->each_a ? i : 0] / (double)s->b[s->each_b ? j : 0] : 1;
}

static int linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                  void *y, const void *residual, const struct dropout *d)
{
    (void)k;
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t o = 0; o < l->out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < l->in; i++)
                sum += get(x, l->at, r * l->ldx + i) * operand(w, l->wt, l->at, weight(l, i, o));
            sum = dropped(d, r * l->out + o, scale_of(l, r, o) * sum + (b ? get(b, l->wt, o) : 0));
            put(y, l->at, r * l->ldy + o, sum + (residual ? get(residual, l->at, r * l->ldy + o) : 0));
        }
    return 0;
}

static int linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                     void *db, enum grad_into into)
{
    (void)k;
    for (int64_t o = 0; o < l->out; o++) {
        double bias = 0;
        for (int64_t r = 0; r < l->n; r++)
            bias += get(dy, l->at, r * l->ldy + o);
        if (db)
            put_sum(l, db, o, bias, into);
        for (int64_t i = 0; i < l->in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < l->n; r++)
                sum += get(x, l->at, r * l->ldx + i) * get(dy, l->at, r * l->ldy + o);
            put_sum(l, dw, weight(l, i, o), scale_of(l, o, i) * sum, into);
        }
    }
    return 0;
}

static int linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                     bool add)
{
    (void)k;
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t i = 0; i < l->in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < l->out; o++)
                sum += get(dy, l->at, r * l->ldy + o) * operand(w, l->wt, l->at, weight(l, i, o));
            put_grad(dx, l->at, r * l->ldx + i, scale_of(l, r, i) * sum, add ? GRAD_ADD : GRAD_SET);
        }
    return 0;
}

/* ---- attention ---- */

static int rotary(struct kernels *k, const struct attention *a, int64_t rot, const float *inv_freq,
                  void *qkv, bool inverse)
{
    (void)k;
    for (int64_t i = 0; i < a->batch * a->seq; i++)
        for (int64_t h = 0; h < a->heads + a->kv_heads; h++)
            for (int64_t j = 0; j < rot / 2; j++) {
                int64_t at = i * a->ld + h * a->dim + j;
                /* The angle is fp32, as PyTorch's. */
                double angle = (double)((float)(a->first + i % a->seq) * inv_freq[j]) * (inverse ? -1 : 1);
                double x = get(qkv, a->at, at), y = get(qkv, a->at, at + rot / 2);
                put(qkv, a->at, at, x * cos(angle) - y * sin(angle));
                put(qkv, a->at, at + rot / 2, y * cos(angle) + x * sin(angle));
            }
    return 0;
}

/* Where head h's q, k and v of token t of sample s begin. */
static int64_t q_at(const struct attention *a, int64_t s, int64_t h, int64_t t)
{
    return (s * a->seq + t) * a->ld + h * a->dim;
}

static int64_t k_at(const struct attention *a, int64_t s, int64_t h, int64_t t)
{
    return (s * a->seq + t) * a->ld + (a->heads + h / (a->heads / a->kv_heads)) * a->dim;
}

static int64_t v_at(const struct attention *a, int64_t s, int64_t h, int64_t t)
{
    return k_at(a, s, h, t) + a->kv_heads * a->dim;
}

static int64_t o_at(const struct attention *a, int64_t s, int64_t h, int64_t t)
{
    return ((s * a->seq + t) * a->heads + h) * a->dim;
}

static double dot(const void *x, int64_t at, const void *y, int64_t to, enum dtype t, int64_t n)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j++)
        sum += get(x, t, at + j) * get(y, t, to + j);
    return sum;
}

static double score(const struct attention *a, const void *qkv, int64_t s, int64_t h, int64_t t, int64_t u)
{
    return a->scale * dot(qkv, q_at(a, s, h, t), qkv, k_at(a, s, h, u), a->at, a->dim);
}

static int64_t row_at(const struct attention *a, int64_t s, int64_t h, int64_t t)
{
    return (s * a->heads + h) * a->seq + t;
}

static double log_sum_exp(const struct attention *a, const void *qkv, int64_t s, int64_t h, int64_t t)
{
    double most = -INFINITY, sum = 0;

    for (int64_t u = 0; u <= t; u++)
        most = fmax(most, score(a, qkv, s, h, t, u));
    for (int64_t u = 0; u <= t; u++)
        sum += exp(score(a, qkv, s, h, t, u) - most);
    return most + log(sum);
}

static void attend(const struct attention *a, const void *qkv, void *o, float *lse, int64_t s, int64_t h,
                   int64_t t, double *sums)
{
    double l = log_sum_exp(a, qkv, s, h, t);

    for (int64_t j = 0; j < a->dim; j++)
        sums[j] = 0;
    for (int64_t u = 0; u <= t; u++) {
        double p = exp(score(a, qkv, s, h, t, u) - l);
        p = dropped(&a->drop, row_at(a, s, h, t) * a->seq + u, p);
        for (int64_t j = 0; j < a->dim; j++)
            sums[j] += p * get(qkv, a->at, v_at(a, s, h, u) + j);
    }
    for (int64_t j = 0; j < a->dim; j++)
        put(o, a->at, o_at(a, s, h, t) + j, sums[j]);
    lse[row_at(a, s, h, t)] = (float)l;
}

static int attention(struct kernels *k, const struct attention *a, const void *qkv, void *o, float *lse)
{
    struct cut c = kernels_cut(k);
    double *sums = kernels_take(&c, a->dim * (int64_t)sizeof *sums, "attention");

    if (!sums)
        return -1;
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->seq; t++)
                attend(a, qkv, o, lse, s, h, t, sums);
    return 0;
}

/* Of score(t, u), and the probability after dropout. */
struct score_grad { double ds, p; };

static struct score_grad score_grad(const struct attention *a, const void *qkv, const float *lse,
                                    const void *dout, const float *delta, int64_t s, int64_t h, int64_t t,
                                    int64_t u)
{
    int64_t row = row_at(a, s, h, t);
    double p = exp(score(a, qkv, s, h, t, u) - (double)lse[row]);
    double dp = dropped(&a->drop, row * a->seq + u,
                        dot(dout, o_at(a, s, h, t), qkv, v_at(a, s, h, u), a->at, a->dim));

    return (struct score_grad){ p * (dp - (double)delta[row]), dropped(&a->drop, row * a->seq + u, p) };
}

static int attention_back(struct kernels *k, const struct attention *a, const void *qkv, const void *o,
                          const float *lse, const void *dout, float *delta, void *dqkv)
{
    struct cut c = kernels_cut(k);
    double *sums = kernels_take(&c, 2 * a->dim * (int64_t)sizeof *sums, "attention backward");
    double *dv = sums + a->dim;
    int64_t group = a->heads / a->kv_heads;

    if (!sums)
        return -1;
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->seq; t++)
                delta[row_at(a, s, h, t)] =
                    (float)dot(dout, o_at(a, s, h, t), o, o_at(a, s, h, t), a->at, a->dim);
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->seq; t++) {
                for (int64_t j = 0; j < a->dim; j++)
                    sums[j] = 0;
                for (int64_t u = 0; u <= t; u++) {
                    struct score_grad g = score_grad(a, qkv, lse, dout, delta, s, h, t, u);
                    for (int64_t j = 0; j < a->dim; j++)
                        sums[j] += a->scale * g.ds * get(qkv, a->at, k_at(a, s, h, u) + j);
                }
                for (int64_t j = 0; j < a->dim; j++)
                    put(dqkv, a->at, q_at(a, s, h, t) + j, sums[j]);
            }
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t first = 0; first < a->heads; first += group)
            for (int64_t u = 0; u < a->seq; u++) {
                for (int64_t j = 0; j < a->dim; j++)
                    sums[j] = dv[j] = 0;
                for (int64_t h = first; h < first + group; h++)
                    for (int64_t t = u; t < a->seq; t++) {
                        struct score_grad g = score_grad(a, qkv, lse, dout, delta, s, h, t, u);
                        for (int64_t j = 0; j < a->dim; j++) {
                            sums[j] += a->scale * g.ds * get(qkv, a->at, q_at(a, s, h, t) + j);
                            dv[j] += g.p * get(dout, a->at, o_at(a, s, h, t) + j);
                        }
                    }
                for (int64_t j = 0; j < a->dim; j++) {
                    put(dqkv, a->at, k_at(a, s, first, u) + j, sums[j]);
                    put(dqkv, a->at, v_at(a, s, first, u) + j, dv[j]);
                }
            }
    return 0;
}

/* ---- activations, loss ---- */

#define PI 3.14159265358979323846

static double tanh_argument(double x) { return sqrt(2 / PI) * (x + 0.044715 * x * x * x); }

static double act_of(enum activation act, double x)
{
    switch (act) {
    case ACT_GELU:      return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH: return 0.5 * x * (1 + tanh(tanh_argument(x)));
    case ACT_RELU:      return x > 0 ? x : 0;
    case ACT_SILU:      return x / (1 + exp(-x));
    case ACT_RELU2:     return x > 0 ? x * x : 0;
    }
    return NAN;
}

static double act_slope(enum activation act, double x)
{
    double t = tanh(tanh_argument(x)), s = 1 / (1 + exp(-x));

    switch (act) {
    case ACT_GELU:      return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * PI);
    case ACT_GELU_TANH: return 0.5 * (1 + t) +
                               0.5 * x * (1 - t * t) * sqrt(2 / PI) * (1 + 3 * 0.044715 * x * x);
    case ACT_RELU:      return x > 0;
    case ACT_SILU:      return s + x * s * (1 - s);
    case ACT_RELU2:     return x > 0 ? 2 * x : 0;
    }
    return NAN;
}

static int activation(struct kernels *k, enum activation act, int64_t count, const void *gate,
                      const void *up, void *product, enum dtype at)
{
    (void)k;
    for (int64_t i = 0; i < count; i++) {
        double u = get(up, at, i);
        put(product, at, i, gate ? act_of(act, get(gate, at, i)) * u : act_of(act, u));
    }
    return 0;
}

static int activation_back(struct kernels *k, enum activation act, int64_t count, const void *gate,
                           const void *up, void *du, void *dgate, enum dtype at)
{
    (void)k;
    for (int64_t i = 0; i < count; i++) {
        double u = get(up, at, i), dy = get(du, at, i);
        if (gate) {
            put(dgate, at, i, dy * u * act_slope(act, get(gate, at, i)));
            put(du, at, i, dy * act_of(act, get(gate, at, i)));
        } else {
            put(du, at, i, dy * act_slope(act, u));
        }
    }
    return 0;
}

static int cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                         const int32_t *labels, float *losses, double scale)
{
    (void)k;
    for (int64_t i = 0; i < n; i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < vocab; j++)
            most = fmax(most, get(logits, at, i * vocab + j));
        for (int64_t j = 0; j < vocab; j++)
            sum += exp(get(logits, at, i * vocab + j) - most);
        losses[i] = (float)(most + log(sum) - get(logits, at, i * vocab + labels[i]));
        for (int64_t j = 0; j < vocab; j++) {
            double p = exp(get(logits, at, i * vocab + j) - most) / sum;
            put(logits, at, i * vocab + j, scale * (p - (j == labels[i])));
        }
    }
    return 0;
}

/* ---- copies, sums ---- */

static int copy(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                double scale, bool add)
{
    if (dt == DT_UINT8 || dt == DT_FP8)
        return move_upload(k, n, dst, src);
    for (int64_t i = 0; i < n; i++)
        put_grad(dst, dt, i, scale * get(src, st, i), add ? GRAD_ADD : GRAD_SET);
    return 0;
}

static int sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        *sum += pow(get(x, dt, i), 2);
    return 0;
}

const struct kernel_ops kernels_ref_ops = {
    .name = "reference",
    .embed = embed, .embed_positions = embed_positions, .dropout_back = dropout_back,
    .embed_back = embed_back, .embed_positions_back = embed_positions_back,
    .norm = norm, .norm_back = norm_back,
    .linear = linear, .linear_dw = linear_dw, .linear_dx = linear_dx,
    .rotary = rotary, .attention = attention, .attention_back = attention_back,
    .attention_part = ref_attention_part, .attention_delta = ref_attention_delta,
    .attention_part_back = ref_attention_part_back, .copy_runs = ref_copy_runs,
    .activation = activation, .activation_back = activation_back, .cross_entropy = cross_entropy,
    .embed_rows = ref_embed_rows, .embed_rows_back = ref_embed_rows_back, .residual = ref_residual,
    .linear_db = ref_linear_db, .logits_most = ref_logits_most, .logits_label = ref_logits_label,
    .logits_sum = ref_logits_sum, .logits_loss = ref_logits_loss, .logits_whole = ref_logits_whole,
    .adamw = ref_adamw, .sgd = ref_sgd, .lion = ref_lion, .adafactor = ref_adafactor,
    .adamw8 = blockwise_adamw8, .pack = blockwise_pack, .unpack = blockwise_unpack, .copy = copy, .quantize = codes_quantize, .dequantize = codes_dequantize,
    .requantize = codes_requantize, .mean = codes_mean, .orthonormal = columns_orthonormal,
    .amax = float8_amax, .scales8 = float8_to_scales, .cast8 = float8_cast, .codes8 = float8_codes, .numbers8 = float8_numbers,
    .sum_squares = sum_squares, .largest = float8_largest,
    .sum = move_sum, .not_finite = move_not_finite, .exact_squares = move_exact_squares, .finish = move_finish,
    .zero = move_zero, .upload = move_upload, .download = move_download, .load = move_load,
};
