/* Causal attention on the host, of all keys or of a part of them, without the T x T matrix.
 *
 * A thread takes a head of a sample (forward), or a head of k, v with the heads of q that
 * share it (backward: so that dk and dv are summed by one thread in one order).  It first
 * packs k and v: widened to fp32, k in panels of 64 columns of k^T, head sizes padded with
 * zeros to whole registers.  Then, for 64 rows of q at a time, it goes through the keys in
 * blocks of 256 up to the diagonal: scores, softmax against the largest score so far (what
 * was summed is scaled down when a larger one comes), and the product with v.  Backward works
 * the same blocks out again from log-sum-exp. */
#include "exec/kernels/kernels_internal.h"

#include <math.h>
#include <omp.h>

enum {
    ROWS = 64,                  /* of q at a time */
    KEYS = 256,                 /* in a block of scores */
    PANEL = 64,                 /* contiguous columns of k^T */
    GRAIN = 16,                 /* floats of the widest register */
    PITCH = KEYS + GRAIN,       /* from one row of scores to the next: not a power of two */
};

/* A thread's scratch, all fp32. */
struct scratch {
    int64_t dim, keys;          /* padded: of a head, of a sample */
    float *kt, *vt;             /* panels [keys/64][dim][64] */
    float *k, *v;               /* [keys][dim] */
    float *dk, *dv;
    float *q, *o, *dq;          /* [ROWS][dim]; forward: o; backward: dO */
    float *s, *dp;              /* [ROWS][PITCH] */
    float most[ROWS], sum[ROWS];
};

static int64_t scratch_floats(int64_t seq, int64_t dim)
{
    int64_t d = round_up(dim, GRAIN), t = round_up(seq, PANEL);

    return 5 * t * d + 3 * ROWS * d + 2 * ROWS * PITCH;
}

int64_t attention_workspace(int64_t seq, int64_t dim, int threads)
{
    return 4 * scratch_floats(seq, dim) * threads + 64;
}

static struct scratch scratch(const struct attention *a, float *all)
{
    int64_t d = round_up(a->dim, GRAIN), t = round_up(a->seq, PANEL), one = t * d;
    struct scratch w = { .dim = d, .keys = t };

    w.kt = all, w.vt = all + one, w.k = all + 2 * one, w.dk = all + 3 * one, w.dv = all + 4 * one;
    w.v = w.vt;                 /* forward needs v by rows, backward by panels */
    w.q = all + 5 * one, w.o = w.q + ROWS * d, w.dq = w.o + ROWS * d;
    w.s = w.dq + ROWS * d, w.dp = w.s + ROWS * PITCH;
    return w;
}

static float *take_scratch(struct kernels *k, const struct attention *a)
{
    struct cut c = kernels_cut(k);

    return kernels_take(&c, 4 * scratch_floats(a->seq, a->dim) * k->threads, "attention");
}

static struct scratch my_scratch(const struct attention *a, float *all)
{
    return scratch(a, all + omp_get_thread_num() * scratch_floats(a->seq, a->dim));
}

/* ---- packing ---- */

/* `n` rows of x, `pitch` elements apart from element `at` on, times scale, into rows of
 * padded size; the rest of `rows` is zero. */
static void pack_rows(const struct simd *s, const struct attention *a, const void *x, int64_t at,
                      int64_t pitch, int64_t n, int64_t rows, float scale, int64_t padded, float *to)
{
    memset(to, 0, (size_t)(rows * padded) * sizeof *to);
    for (int64_t i = 0; i < n; i++) {
        float *row = to + i * padded;
        const float *from = floats(s, x, a->at, at + i * pitch, a->dim, row);
        if (from != row || scale != 1)
            s->scale(a->dim, scale, from, row);
    }
}

/* Panels of the transpose, from packed rows. */
static void pack_panels(const struct scratch *w, const float *rows, float *to)
{
    for (int64_t u = 0; u < w->keys; u += PANEL)
        for (int64_t j = 0; j < w->dim; j++)
            for (int64_t i = 0; i < PANEL; i++)
                to[u * w->dim + j * PANEL + i] = rows[(u + i) * w->dim + j];
}

/* scores[64][keys u ... u+n-1] = x panels */
static void times_panels(const struct simd *s, const struct scratch *w, const float *x, const float *panels,
                         int64_t u, int64_t n, float *scores)
{
    for (int64_t i = 0; i < n; i += PANEL)
        s->multiply(ROWS, n - i < PANEL ? n - i : PANEL, w->dim, x, w->dim, 1, panels + (u + i) * w->dim,
                    PANEL, scores + i, PITCH, false);
}

/* ---- one block of scores ---- */

/* A block of rows of a head. */
struct block {
    const struct attention *a;
    const struct attention_part *part;      /* whose keys they see */
    int64_t sample, head, kv;   /* kv: which head of k and v */
    int64_t row, rows;
    struct dropout_rule drop;
};

static int64_t q_at(const struct block *b)
{
    return (b->sample * b->a->seq + b->row) * b->a->ld + b->head * b->a->dim;
}

static int64_t k_at(const struct block *b, int64_t ld)
{
    return b->sample * b->a->seq * ld + b->kv * b->a->dim;
}

static int64_t v_at(const struct block *b, int64_t ld) { return k_at(b, ld) + b->a->kv_heads * b->a->dim; }

static int64_t o_pitch(const struct attention *a) { return a->heads * a->dim; }

static int64_t o_at(const struct block *b)
{
    return (b->sample * b->a->seq + b->row) * o_pitch(b->a) + b->head * b->a->dim;
}

/* Of log-sum-exp and delta. */
static int64_t stat_at(const struct block *b)
{
    return (b->sample * b->a->heads + b->head) * b->a->seq + b->row;
}

/* How many keys row t sees. */
static int64_t seen_by(const struct block *b, int64_t t)
{
    return b->part->causal ? t + 1 : t >= b->part->from ? b->part->keys : 0;
}

/* Keys of block u that row i of the block may see, of n. */
static int64_t visible(const struct block *b, int64_t i, int64_t u, int64_t n)
{
    int64_t upto = seen_by(b, b->row + i) - u;

    return i >= b->rows || upto <= 0 ? 0 : upto < n ? upto : n;
}

/* Where the keys end that the block's last row sees, and the columns of block u, in whole
 * registers. */
static int64_t keys_end(const struct block *b) { return seen_by(b, b->row + b->rows - 1); }

static int64_t columns(const struct block *b, int64_t u)
{
    int64_t left = keys_end(b) - u;

    return left < KEYS ? round_up(left, GRAIN) : KEYS;
}

/* Keys that follow each other in their sample at a time. */
static void drop_scores(const struct simd *s, const struct block *b, int64_t i, int64_t u, int64_t n,
                        float *x)
{
    const struct score_places *at = &b->part->at;

    for (int64_t j = 0, m; b->drop.limit && j < n; j += m) {
        int64_t left = at->run - (u + j) % at->run;
        m = left < n - j ? left : n - j;
        s->drop(m, x + j, b->drop.seed, score_index(at, b->sample, b->head, b->row + i, u + j), b->drop.limit, b->drop.keep);
    }
}

/* ---- forward ---- */

/* Scores of row i against keys from u on become probabilities, unnormalised; what the row has
 * summed so far is brought to the same shift. */
static void softmax_row(const struct simd *s, struct scratch *w, const struct block *b, int64_t i,
                        int64_t u, int64_t n)
{
    float *x = w->s + i * PITCH;
    int64_t seen = visible(b, i, u, n);

    if (seen > 0) {
        float most = fmaxf(w->most[i], s->largest(seen, x));
        float old = w->most[i] < most ? expf(w->most[i] - most) : 1;
        if (old < 1)
            s->scale(w->dim, old, w->o + i * w->dim, w->o + i * w->dim);
        w->sum[i] = w->sum[i] * old + s->softmax(seen, x, most);
        w->most[i] = most;
        drop_scores(s, b, i, u, seen, x);
    }
    memset(x + seen, 0, (size_t)(n - seen) * sizeof *x);
}

/* What a row has summed so far is its output, of which all probabilities together are 1. */
static void take_up(const struct simd *s, struct scratch *w, const struct block *b, const float *o, const float *lse)
{
    memset(w->o, 0, (size_t)(ROWS * w->dim) * sizeof *w->o);
    for (int64_t i = 0; i < ROWS; i++) {
        bool there = !b->part->fresh && i < b->rows;
        w->most[i] = there ? lse[stat_at(b) + i] : -INFINITY;
        w->sum[i] = there;
        if (there)
            floats_put(s, w->o, DT_FP32, i * w->dim, b->a->dim, o + o_at(b) + i * o_pitch(b->a));
    }
}

/* o is of dtype ot; of parts behind the first fp32. */
static void forward_block(const struct simd *s, struct scratch *w, const struct block *b, const void *qkv,
                          void *o, enum dtype ot, float *lse)
{
    const struct attention *a = b->a;

    if (keys_end(b) == 0)
        return;
    pack_rows(s, a, qkv, q_at(b), a->ld, b->rows, ROWS, (float)a->scale, w->dim, w->q);
    take_up(s, w, b, o, lse);
    for (int64_t u = 0; u < keys_end(b); u += KEYS) {
        int64_t n = columns(b, u);
        times_panels(s, w, w->q, w->kt, u, n, w->s);
        for (int64_t i = 0; i < ROWS; i++)
            softmax_row(s, w, b, i, u, n);
        s->multiply(ROWS, w->dim, n, w->s, PITCH, 1, w->v + u * w->dim, w->dim, w->o, w->dim, true);
    }
    for (int64_t i = 0; i < b->rows; i++) {
        float *row = w->o + i * w->dim;
        s->scale(a->dim, 1 / w->sum[i], row, row);
        floats_put(s, o, ot, o_at(b) + i * o_pitch(a), a->dim, row);
        lse[stat_at(b) + i] = w->most[i] + logf(w->sum[i]);
    }
}

static int forward(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv, void *o,
                   enum dtype ot, float *lse)
{
    float *all = take_scratch(k, a);
    struct dropout_rule drop = dropout_rule(&a->drop);

    if (!all)
        return -1;
#pragma omp parallel for num_threads(k->threads) schedule(dynamic)
    for (int64_t i = 0; i < a->batch * a->heads; i++) {
        struct scratch w = my_scratch(a, all);
        struct block b = { .a = a, .part = part, .sample = i / a->heads, .head = i % a->heads, .drop = drop };
        b.kv = b.head / (a->heads / a->kv_heads);
        pack_rows(k->simd, a, part->kv, k_at(&b, part->ld), part->ld, part->keys, w.keys, 1, w.dim, w.k);
        pack_panels(&w, w.k, w.kt);
        pack_rows(k->simd, a, part->kv, v_at(&b, part->ld), part->ld, part->keys, w.keys, 1, w.dim, w.v);
        for (b.row = 0; b.row < a->seq; b.row += ROWS) {
            b.rows = a->seq - b.row < ROWS ? a->seq - b.row : ROWS;
            forward_block(k->simd, &w, &b, qkv, o, ot, lse);
        }
    }
    return 0;
}

/* All keys at once, which lie behind q. */
static struct attention_part all_keys(const struct attention *a, const void *qkv)
{
    return (struct attention_part){ .kv = (const char *)qkv + a->heads * a->dim * dtype_bytes(a->at), .ld = a->ld, .keys = a->seq,
                                    .causal = true, .fresh = true, .at = { .heads = a->heads, .seq = a->seq, .run = a->seq } };
}

int host_attention(struct kernels *k, const struct attention *a, const void *qkv, void *o, float *lse)
{
    struct attention_part all = all_keys(a, qkv);

    return forward(k, a, &all, qkv, o, a->at, lse);
}

int host_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                        float *o, float *lse)
{
    return part->keys > 0 ? forward(k, a, part, qkv, o, DT_FP32, lse) : 0;
}

/* ---- backward ---- */

/* w->s: probabilities after dropout; w->dp: gradients of the scores. */
static void backward_row(const struct simd *s, const struct scratch *w, const struct block *b, int64_t i,
                         int64_t u, int64_t n, const float *lse, const float *delta)
{
    float *x = w->s + i * PITCH, *dp = w->dp + i * PITCH;
    int64_t seen = visible(b, i, u, n);

    if (seen > 0) {
        drop_scores(s, b, i, u, seen, dp);
        s->softmax_back(seen, x, dp, lse[stat_at(b) + i], delta[stat_at(b) + i]);
        drop_scores(s, b, i, u, seen, x);
    }
    memset(x + seen, 0, (size_t)(n - seen) * sizeof *x);
    memset(dp + seen, 0, (size_t)(n - seen) * sizeof *dp);
}

/* delta[row] = dO . O */
static void row_deltas(const struct simd *s, const struct scratch *w, const struct block *b, const void *o,
                       float *delta)
{
    const struct attention *a = b->a;

    pack_rows(s, a, o, o_at(b), o_pitch(a), b->rows, ROWS, 1, w->dim, w->q);
    for (int64_t i = 0; i < b->rows; i++)
        delta[stat_at(b) + i] = s->dot(a->dim, w->o + i * w->dim, w->q + i * w->dim);
}

/* What gradients are made from, and where they go: dq of dtype `dt`, added or not. */
struct back {
    const void *qkv, *o, *dout;         /* o NULL: delta is there */
    const float *lse;
    float *delta;
    void *dq, *dkv;
    enum dtype dt;
    int64_t ldq, ldkv;
};

static void put_dq(const struct simd *s, const struct scratch *w, const struct block *b, const struct back *x)
{
    const struct attention *a = b->a;

    for (int64_t i = 0; i < b->rows; i++) {
        float *row = w->dq + i * w->dim;
        int64_t at = (b->sample * a->seq + b->row + i) * x->ldq + b->head * a->dim;
        s->scale(a->dim, (float)a->scale, row, row);
        if (b->part->fresh)
            floats_put(s, x->dq, x->dt, at, a->dim, row);
        else
            s->axpy(a->dim, 1, row, (float *)x->dq + at);
    }
}

static void backward_block(const struct simd *s, const struct scratch *w, const struct block *b, const struct back *x)
{
    const struct attention *a = b->a;
    int64_t d = w->dim;

    if (keys_end(b) == 0)
        return;
    pack_rows(s, a, x->dout, o_at(b), o_pitch(a), b->rows, ROWS, 1, d, w->o);
    if (x->o)
        row_deltas(s, w, b, x->o, x->delta);
    pack_rows(s, a, x->qkv, q_at(b), a->ld, b->rows, ROWS, (float)a->scale, d, w->q);
    memset(w->dq, 0, (size_t)(ROWS * d) * sizeof *w->dq);
    for (int64_t u = 0; u < keys_end(b); u += KEYS) {
        int64_t n = columns(b, u);
        times_panels(s, w, w->q, w->kt, u, n, w->s);
        times_panels(s, w, w->o, w->vt, u, n, w->dp);
        for (int64_t i = 0; i < ROWS; i++)
            backward_row(s, w, b, i, u, n, x->lse, x->delta);
        s->multiply(n, d, ROWS, w->s, 1, PITCH, w->o, d, w->dv + u * d, d, true);
        s->multiply(n, d, ROWS, w->dp, 1, PITCH, w->q, d, w->dk + u * d, d, true);
        s->multiply(ROWS, d, n, w->dp, PITCH, 1, w->k + u * d, d, w->dq, d, true);
    }
    put_dq(s, w, b, x);
}

/* The heads of q that share k and v, then dk and dv. */
static void backward_group(struct kernels *k, const struct scratch *w, struct block *b, const struct back *x)
{
    const struct attention *a = b->a;
    const struct attention_part *p = b->part;
    const struct simd *s = k->simd;
    int64_t group = a->heads / a->kv_heads;

    pack_rows(s, a, p->kv, v_at(b, p->ld), p->ld, p->keys, w->keys, 1, w->dim, w->k);
    pack_panels(w, w->k, w->vt);
    pack_rows(s, a, p->kv, k_at(b, p->ld), p->ld, p->keys, w->keys, 1, w->dim, w->k);
    pack_panels(w, w->k, w->kt);
    memset(w->dk, 0, (size_t)(2 * w->keys * w->dim) * sizeof *w->dk);       /* and dv */
    for (b->head = b->kv * group; b->head < (b->kv + 1) * group; b->head++)
        for (b->row = 0; b->row < a->seq; b->row += ROWS) {
            b->rows = a->seq - b->row < ROWS ? a->seq - b->row : ROWS;
            backward_block(s, w, b, x);
        }
    for (int64_t t = 0; t < a->seq; t++) {
        floats_put(s, x->dkv, a->at, k_at(b, x->ldkv) + t * x->ldkv, a->dim, w->dk + t * w->dim);
        floats_put(s, x->dkv, a->at, v_at(b, x->ldkv) + t * x->ldkv, a->dim, w->dv + t * w->dim);
    }
}

static int backward(struct kernels *k, const struct attention *a, const struct attention_part *part, const struct back *x)
{
    float *all = take_scratch(k, a);
    struct dropout_rule drop = dropout_rule(&a->drop);

    if (!all)
        return -1;
#pragma omp parallel for num_threads(k->threads) schedule(dynamic)
    for (int64_t i = 0; i < a->batch * a->kv_heads; i++) {
        struct scratch w = my_scratch(a, all);
        struct block b = { .a = a, .part = part, .sample = i / a->kv_heads, .kv = i % a->kv_heads, .drop = drop };
        backward_group(k, &w, &b, x);
    }
    return 0;
}

int host_attention_back(struct kernels *k, const struct attention *a, const void *qkv, const void *o,
                        const float *lse, const void *dout, float *delta, void *dqkv)
{
    struct attention_part all = all_keys(a, qkv);
    struct back x = { .qkv = qkv, .o = o, .dout = dout, .lse = lse, .delta = delta, .dq = dqkv, .dt = a->at, .ldq = a->ld,
                      .dkv = (char *)dqkv + a->heads * a->dim * dtype_bytes(a->at), .ldkv = a->ld };

    return backward(k, a, &all, &x);
}

int host_attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta)
{
    float *all = take_scratch(k, a);

    if (!all)
        return -1;
#pragma omp parallel for num_threads(k->threads) schedule(dynamic)
    for (int64_t i = 0; i < a->batch * a->heads; i++) {
        struct scratch w = my_scratch(a, all);
        struct block b = { .a = a, .sample = i / a->heads, .head = i % a->heads };
        for (b.row = 0; b.row < a->seq; b.row += ROWS) {
            b.rows = a->seq - b.row < ROWS ? a->seq - b.row : ROWS;
            pack_rows(k->simd, a, dout, o_at(&b), o_pitch(a), b.rows, ROWS, 1, w.dim, w.o);
            row_deltas(k->simd, &w, &b, o, delta);
        }
    }
    return 0;
}

int host_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *part, const void *qkv,
                             const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                             int64_t ldkv)
{
    struct back x = { .qkv = qkv, .dout = dout, .lse = lse, .delta = (float *)(uintptr_t)delta, .dq = dq, .dt = DT_FP32, .ldq = ldq,
                      .dkv = dkv, .ldkv = ldkv };

    return backward(k, a, part, &x);
}
