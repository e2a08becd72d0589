/* kernels.h -- the compute that dpxrun issues, whichever library carries it.
 *
 * kernels_host.c and its neighbours are oneDNN, OpenMP and vectorised loops; kernels_ref.c is
 * the same in plain C, one loop a formula, which tests compare everything with.  One of them
 * is behind the table that kernels_open() returns.
 *
 * On an asynchronous device (device.h) a call queues on the stream that the kernels were opened for
 * and returns; arrays are device memory then, unless a comment says host.
 *
 * Arrays are row-major.  Activations have dtype `at`, parameters `wt`, gradients of
 * parameters `gt`: DT_FP32, DT_BF16 or DT_FP16 each.  Arithmetic is fp32; 16-bit operands of a
 * matrix product are multiplied as they are and accumulated in fp32.  Nothing here allocates:
 * what a kernel needs beyond its operands comes from the workspace that it was opened
 * with.  All functions return 0, or -1 with the reason reported.
 *
 * Dropout is a function of a counter: element i of a tensor is dropped where
 * dropout_drops(&d, i), so that backward needs no mask. */
#ifndef DPX_KERNELS_H
#define DPX_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "model/arch/transformer.h"

struct kernels;                 /* threads, workspace, cached primitives */
struct exact_sum;               /* exact_sum.h */
struct quant;                   /* schedule.h */

/* What the tensor's element index is hashed with; p = 0: nothing is dropped. */
struct dropout { double p; uint64_t key; int64_t first; };     /* first: added to every index */

/* How gradients of parameters arrive in their buffer. */
enum grad_into { GRAD_SET, GRAD_ADD };

/* What the sums of a product are divided by, in fp32, where its operands were rounded to 8 bits: the scale of the result's row, of the
 * first operand, times that of its column, of the second; each_*: there is one for each row, or column.  a NULL: nothing. */
struct scales { const float *a, *b; bool each_a, each_b; };

/* y[n, out] (rows `ldy` elements apart) = x[n, in] (rows ldx apart) W + b, then
 * y = residual + dropout(y) if there is a residual (its rows are ldy apart; may be y
 * itself).  W is [in, out] if in_out, else [out, in].  dropout's index is row*out + col.
 * scales: of x and W; in linear_dx() of dy and W; in linear_dw() of dy (out of them) and x (in). */
struct linear {
    int64_t n, in, out;
    bool    in_out;
    enum dtype at, wt, gt;
    int64_t ldx, ldy;
    struct scales scales;
};

/* rows x cols elements of an array, rows `ld` elements apart. */
struct strided { int64_t rows, cols, ld; };

/* 8-bit floats (fp8.h). */
enum float8_format { FLOAT8_E4M3, FLOAT8_E5M2 };

/* q, k, v of token t of sample s are at qkv + (s*seq + t)*ld, at element offsets 0, q =
 * heads*dim and q + kv_heads*dim; head h of q uses head h/(heads/kv_heads) of k, v.  Causal.
 * Output o[n, heads*dim].  lse[n*heads]: log-sum-exp of the scaled scores, index
 * (s*heads + h)*seq + t.  dropout on probabilities, index ((s*heads + h)*seq + t)*seq + u.
 * first: position of a sample's first token; for rotary() alone. */
struct attention {
    int64_t batch, seq, heads, kv_heads, dim, ld, first;
    double  scale;
    enum dtype at;
    struct dropout drop;
};

/* Logits whose columns are dealt out to ranks, `part` to each and the last ones fewer: this rank has n rows of
 * logits_columns(), one behind the other, from column rank * part on.  all: the ranks' arrays one after the other, each
 * n * part elements apart. */
struct cut_logits { int64_t n, vocab, part, rank; enum dtype at; };
static inline int64_t logits_columns(const struct cut_logits *l, int64_t rank)
{
    int64_t left = l->vocab - rank * l->part;

    return left < l->part ? left : l->part;
}

/* Of each row of all columns: the largest, the label's, the sum of e^(x - most). */
struct logit_sums { const float *most, *label, *sum; };

/* Where the scores of a part lie among those of whole samples, of `heads` heads and `seq` tokens each: query t is token
 * row[t / run] + t % run of its sample, key u is key[u / run] + u % run. */
struct score_places { int64_t heads, seq, run, row[2], key[2]; };

/* Keys and values of `seq` tokens a sample, which may be other ranks': k of token u of sample s at kv + (s*seq + u)*ld, its v
 * kv_heads*dim further on.  Queries from `from` on see the first `keys` of their sample, those before it none; causal: query t
 * sees those up to t.  fresh: what is summed begins here; else it is there from parts before.  at: for dropout, whose index is
 * that of whole samples. */
struct attention_part { const void *kv; int64_t ld, from, keys; bool causal, fresh; struct score_places at; };

/* dropout's index of query t and key u of head h of sample s */
static inline int64_t score_index(const struct score_places *p, int64_t s, int64_t h, int64_t t, int64_t u)
{
    return ((s * p->heads + h) * p->seq + p->row[t / p->run] + t % p->run) * p->seq + p->key[u / p->run] + u % p->run;
}

/* n[0] x n[1] runs of `run` elements: run (i, j) begins i*to[0] + j*to[1] elements behind dst, i*from[0] + j*from[1] behind src. */
struct runs { int64_t n[2], run, to[2], from[2]; enum dtype dt, st; bool add; };

/* What an optimizer's step is given, in AdamW's words; g is scaled by grad_scale first.
 *     adamw       torch.optim.AdamW's order of operations, decoupled weight decay:
 *                 p *= 1 - lr*wd;  m += (1-b1)(g-m);  v = b2 v + (1-b2) g g;
 *                 p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
 *     sgd         torch.optim.SGD with momentum b1, no dampening: g += wd p;  m = b1 m + g;  p -= lr m
 *     lion        bitsandbytes' (csrc/kernels.cu, kOptimizer32bit1State): p *= 1 - lr*wd;
 *                 p -= lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 *     adafactor   torch.optim.Adafactor: below.  States begin at zero. */
struct adamw { double lr, beta1, beta2, eps, weight_decay; int64_t step; double grad_scale; };

/* A tensor that Adafactor updates: [rows, cols] with the mean squares of its rows and columns, or a vector of `rows`
 * elements (cols 1, col NULL) with its own.  For step t, w = t^-0.8 and eps1 = 2^-23 (torch's beta2_decay and fp32's eps):
 *     row += w (mean of g^2 of a row - row), col likewise;  v = row col / max(mean(row), eps1);  vector: row += w (g^2 - row), v = row
 *     u = g / sqrt(max(v, eps1^2));  a = max(1e-3, RMS(p)) min(lr, 1/sqrt(t)), of p before  p *= 1 - lr*wd;
 *     p -= a / max(1, RMS(u)) u */
struct factored { int64_t rows, cols; float *p, *row, *col; };
#define ADAFACTOR_BETA2_DECAY (-0.8)
#define ADAFACTOR_EPS1        0x1p-23
#define ADAFACTOR_EPS2        1e-3

/* A tensor that AdamW of bitsandbytes updates with moments in 8 bits: codes of its n elements, and of each block of 256 the
 * largest magnitude (blockwise.h).  As csrc/kernels.cu has it (kOptimizerStatic8bit2StateBlockwise), c = sqrt(1-b2^t):
 *     m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g g;  p -= lr c/(1-b1^t) m / (sqrt(v) + c eps), from m and v before they are coded;
 *     p *= 1 - lr*wd
 * code1 NULL: a tensor whose moments stay in 32 bits; they are max1 and max2, n elements each. */
struct adamw8 { int64_t n; float *p; uint8_t *code1, *code2; float *max1, *max2; };

/* A frozen weight in NF4: what packed_parts() lists.  coded NULL: maxima are those of the blocks; else blocks' are map[coded] times
 * theirs and `mean` (double quantisation). */
struct packed_weight { int64_t n; uint8_t *codes, *coded; float *maxima, *map, *mean, *values; };

struct kernel_ops {
    const char *name;           /* "onednn 2.6.3", "reference" */

    /* x[n, h] = table[ids[i], :] */
    int (*embed)(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
                 enum dtype wt, void *x, enum dtype at);
    /* x[i, :] = dropout(x[i, :] + table[i % seq, :]); table NULL: only dropout */
    int (*embed_positions)(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                           enum dtype wt, void *x, enum dtype at, const struct dropout *d);
    /* dx = dropout's gradient in place; dtable[vocab, h] (+)= sums of rows of dx in the order of
     * the samples: equal on every run. */
    int (*dropout_back)(struct kernels *k, int64_t count, void *dx, enum dtype at, const struct dropout *d);
    int (*embed_back)(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                      const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into);
    /* dtable[rows, h] (+)= sum over samples; rows beyond seq get zero when set */
    int (*embed_positions_back)(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                                const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                enum grad_into into);

    /* y = norm(x) w + b.  stats: LayerNorm [2n] (means, then 1/sigma), RMSNorm [n] (1/rms).
     * w, b may be NULL. */
    int (*norm)(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
                const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats);
    /* Gradients: dw, db (+)= (NULL: none); dx += if add, else dx = (dx may be dy then). */
    int (*norm_back)(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                     const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                     void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into);

    int (*linear)(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                  void *y, const void *residual, const struct dropout *d);
    /* dw (+)= x^T dy in W's own layout, db (+)= sum of rows of dy (NULL: none); ldy is dy's.  Of fp16 for gradients in fp32 the sums
     * are fp16 first, as torch.autocast's products leave them: what is beyond its range is infinite. */
    int (*linear_dw)(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                     void *db, enum grad_into into);
    /* dx[n, in] (rows ldx apart) = dy W^T, or += if add */
    int (*linear_dx)(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                     bool add);

    /* Rotates q and k of each token in place: pairs (i, i + rotary/2) of a head's first `rotary`
     * elements by angle pos * inv_freq[i] (Hugging Face's rotate_half); inverse: by its negative. */
    int (*rotary)(struct kernels *k, const struct attention *a, int64_t rotary, const float *inv_freq,
                  void *qkv, bool inverse);
    int (*attention)(struct kernels *k, const struct attention *a, const void *qkv, void *o, float *lse);
    /* delta[n*heads]: scratch, sum of do*o, index as lse; dqkv has qkv's layout */
    int (*attention_back)(struct kernels *k, const struct attention *a, const void *qkv, const void *o,
                          const float *lse, const void *dout, float *delta, void *dqkv);

    /* Attention in parts: o (fp32, [n, heads*dim]) and lse are those of all parts up to this one, whose first is fresh and
     * leaves no query without a key. */
    int (*attention_part)(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                          float *o, float *lse);
    /* delta[n*heads] = sum of dout*o */
    int (*attention_delta)(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta);
    /* From lse and delta of all parts: dq (fp32, rows ldq apart) is set where the part is fresh, else added to; dk, dv of the
     * part's tokens are set, in rows ldkv apart as kv's are. */
    int (*attention_part_back)(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                               const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                               int64_t ldkv);
    /* dst = src, or dst += src, run by run */
    int (*copy_runs)(struct kernels *k, const struct runs *r, void *dst, const void *src);

    /* product = act(gate) * up; gate NULL: act(up) */
    int (*activation)(struct kernels *k, enum activation act, int64_t count, const void *gate,
                      const void *up, void *product, enum dtype at);
    /* du: gradient of the product on entry, of up on return; dgate: of gate (NULL without) */
    int (*activation_back)(struct kernels *k, enum activation act, int64_t count, const void *gate,
                           const void *up, void *du, void *dgate, enum dtype at);

    /* losses[i] = -log softmax(logits[i, :])[labels[i]]; logits become scale * their gradient */
    int (*cross_entropy)(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                         const int32_t *labels, float *losses, double scale);

    /* ---- of a model whose tensors are cut ---- */

    /* embed() of rows [first, first + rows) of the vocabulary, which are all of `table`; other ids' rows of x are 0. */
    int (*embed_rows)(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                      const void *table, enum dtype wt, void *x, enum dtype at);
    /* dtable[rows, h] (+)= sums of rows of dx in the order of the samples; other ids are left out. */
    int (*embed_rows_back)(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                           const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into);
    /* y[n, h] = residual + dropout(y + b), index row*h + col; b may be NULL */
    int (*residual)(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b, enum dtype wt,
                    const void *residual, const struct dropout *d);
    /* linear_dw()'s db alone */
    int (*linear_db)(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into);
    /* Of this rank's columns, n numbers each: the largest; the label's logit, 0 where another rank has it; the sum of
     * e^(x - most). */
    int (*logits_most)(struct kernels *k, const struct cut_logits *l, const void *logits, float *most);
    int (*logits_label)(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                        float *at_label);
    int (*logits_sum)(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most,
                      float *sum);
    /* cross_entropy(), from the numbers of all columns: this rank's columns of the gradient. */
    int (*logits_loss)(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                       const struct logit_sums *of, float *losses, double scale);
    /* The same from the logits of all ranks, which stay as they are. */
    int (*logits_whole)(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                        const int32_t *labels, float *losses, double scale);

    /* g of dtype gt; out (may be NULL) = p cast to dtype ot */
    int (*adamw)(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v,
                 const void *g, enum dtype gt, void *out, enum dtype ot);
    /* The same; NULL where a device has no such kernel. */
    int (*sgd)(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt,
               void *out, enum dtype ot);
    int (*lion)(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt,
                void *out, enum dtype ot);
    int (*adafactor)(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt,
                     void *out, enum dtype ot);
    int (*adamw8)(struct kernels *k, const struct adamw *a, const struct adamw8 *s, const void *g, enum dtype gt, void *out,
                  enum dtype ot);
    /* A frozen weight from x[n], numbers of the host; and to x[n]. */
    int (*pack)(struct kernels *k, const struct packed_weight *w, const float *x);
    int (*unpack)(struct kernels *k, const struct packed_weight *w, void *x, enum dtype at);
    /* dst = scale * src, or dst += scale * src; any two of the dtypes; may be the same array.  Codes (DT_UINT8, DT_FP8 both) are copied as they are. */
    int (*copy)(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                double scale, bool add);

    /* Blocks of fp16 numbers as codes, and what is done with codes (struct quant; kernels_codes.h).
     * quantize: x[elems] to codes, parts in the order of struct quant, and a scale for each group; requantize: the sum of q->ranks
     * arrays of codes, coded again; mean: y[elems] = scale * the sum of q->nodes arrays. */
    int (*quantize)(struct kernels *k, const struct quant *q, const void *x, void *codes, float *scales);
    int (*dequantize)(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *x);
    int (*requantize)(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *sum, float *sum_scales);
    int (*mean)(struct kernels *k, const struct quant *q, double scale, const void *x, void *y);

    /* Matrices as 8-bit floats (kernels_float8.h).  amax: the largest magnitude of all, or of each row or column; scales8: n of them become
     * the scales that map each to the format's largest number.  cast8: y[rows * cols] = x * scale, clamped: codes (yt DT_FP8), or their numbers,
     * which fp32 and bf16 hold exactly.  codes8: e4m3 codes, with one scale, a number of the host; numbers8: what such codes stand for. */
    int (*amax)(struct kernels *k, const struct strided *s, enum float8_by by, const void *x, enum dtype dt, float *amax);
    int (*scales8)(struct kernels *k, enum float8_format f, int64_t n, float *amax, bool powers_of_two);
    int (*cast8)(struct kernels *k, enum float8_format f, const struct strided *s, enum float8_by by, const void *x, enum dtype dt,
                 const float *scale, void *y, enum dtype yt);
    int (*codes8)(struct kernels *k, int64_t n, const void *x, enum dtype dt, float scale, uint8_t *codes);
    int (*numbers8)(struct kernels *k, int64_t n, const uint8_t *codes, void *x, enum dtype dt);

    /* Columns of a[rows][cols], cols <= rows, become orthonormal and span what they spanned (kernels_columns.h). */
    int (*orthonormal)(struct kernels *k, int64_t rows, int64_t cols, float *a);

    /* Results that are numbers of the host, there after finish(): until then they must not be read,
     * and the variable must live. */
    /* *sum += sum of squares, in fp64, over fixed blocks of 1024 elements whatever the threads */
    int (*sum_squares)(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum);
    /* *sum += x[0] + x[1] + ..., in fp64 */
    int (*sum)(struct kernels *k, int64_t n, const float *x, double *sum);
    /* *count += how many elements are NaN or infinite */
    int (*not_finite)(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count);
    /* *most = the larger of *most and the largest magnitude, of which a NaN is the largest */
    int (*largest)(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most);
    /* exact_add_squares() */
    int (*exact_squares)(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum);
    /* All that was queued is done, and such results are written. */
    int (*finish)(struct kernels *k);

    /* Between the host and the device.  `host` may be reused when upload() and load() return, and has
     * the bytes when download() returns. */
    int (*zero)(struct kernels *k, int64_t bytes, void *dst);
    int (*upload)(struct kernels *k, int64_t bytes, void *dst, const void *host);
    int (*download)(struct kernels *k, int64_t bytes, void *host, const void *src);
    /* dst = host, cast to dt */
    int (*load)(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host);
};

/* What kernels_open() needs for shapes up to these; bytes, the same on every machine and for
 * all dtypes.  Kernels run one at a time, so it is the largest of
 *   matrix products  7 MiB + threads MiB + 256: tiles, and oneDNN's scratchpads
 *   attention        4 threads (5 T D + 192 D + 34816) + 64, T and D being seq and dim rounded
 *                    up to 64 and 16: k and v packed, their gradients, a block of scores
 *   norms            4 (2 + 5 threads) H + 64, H the widest row rounded up to 16
 *   embeddings       4 (V + N) + 64, V and N being vocab + 1 and n rounded up to 16
 * A call that needs more fails and says so. */
struct kernels_need { int64_t n, widest_in, widest_out, vocab, seq, dim; int threads; enum dtype at, wt; };
int64_t kernels_workspace(const struct kernels_need *need);

/* `reference`: the plain C.  The workspace stays the caller's.  NULL with the reason reported. */
struct kernels *kernels_open(int threads, void *workspace, int64_t bytes, bool reference);
/* kernels_open_on(), for a stream of a device: device.h. */
const struct kernel_ops *kernels_ops(const struct kernels *k);
/* A sentence for the user where the machine lacks something, or NULL.  It is about bf16 (whose
 * products are then widened to fp32 in the workspace); fp32 plans need not say it. */
const char *kernels_note(const struct kernels *k);
void kernels_close(struct kernels *k);      /* accepts NULL */

/* Whether element i is dropped, and what the others are multiplied with: 1/(1-p). */
bool   dropout_drops(const struct dropout *d, int64_t i);

#endif
