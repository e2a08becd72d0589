/* Host kernels that go through rows: embeddings, norms.  Rows are cut among
 * threads; where gradients of a parameter meet, their order does not depend on timing. */
#include "exec/kernels/kernels_internal.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>

#include "base/fail.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Norms: w, b and, for each thread, three rows, dw and db.  Gradients of embeddings: where
 * each row's tokens are listed. */
int64_t rows_workspace(int64_t n, int64_t h, int64_t vocab, int threads)
{
    int64_t norms = (2 + 5 * (int64_t)threads) * round_up(4 * h, 64);
    int64_t lists = round_up(4 * (vocab + 1), 64) + round_up(4 * n, 64);

    return (norms > lists ? norms : lists) + 64;
}

/* ---- embedding ---- */

int host_embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
               enum dtype wt, void *x, enum dtype at)
{
    const struct simd *s = k->simd;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j += CHUNK) {
            float tmp[CHUNK];
            int64_t m = least(CHUNK, h - j);
            floats_put(s, x, at, i * h + j, m, floats(s, table, wt, ids[i] * h + j, m, tmp));
        }
    return 0;
}

/* A row of zeros, or of the table. */
int host_embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                    const void *table, enum dtype wt, void *x, enum dtype at)
{
    const struct simd *s = k->simd;
    int64_t e = dtype_bytes(at);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        int64_t r = ids[i] - first;
        if (r < 0 || r >= rows) {
            memset((char *)x + i * h * e, 0, (size_t)(h * e));
            continue;
        }
        for (int64_t j = 0; j < h; j += CHUNK) {
            float tmp[CHUNK];
            int64_t m = least(CHUNK, h - j);
            floats_put(s, x, at, i * h + j, m, floats(s, table, wt, r * h + j, m, tmp));
        }
    }
    return 0;
}

int host_embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                         enum dtype wt, void *x, enum dtype at, const struct dropout *d)
{
    const struct simd *s = k->simd;
    struct dropout_rule r = dropout_rule(d);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j += CHUNK) {
            float xs[CHUNK], ts[CHUNK], *to = floats_into(x, at, i * h + j, xs);
            int64_t m = least(CHUNK, h - j);
            floats(s, x, at, i * h + j, m, xs);
            if (table)
                s->axpy(m, 1, floats(s, table, wt, i % seq * h + j, m, ts), to);
            if (r.limit)
                s->drop(m, to, r.seed, i * h + j, r.limit, r.keep);
            floats_put(s, x, at, i * h + j, m, to);
        }
    return 0;
}

/* dtable's row (+)= the sum of rows list[0 ... count-1] of dx */
static void sum_rows(const struct simd *s, int64_t h, const int32_t *list, int64_t count, const void *dx,
                     enum dtype at, void *dtable, enum dtype gt, int64_t row, enum grad_into into)
{
    if (into == GRAD_ADD && !count)
        return;
    for (int64_t j = 0; j < h; j += CHUNK) {
        float sum[CHUNK], tmp[CHUNK];
        int64_t m = least(CHUNK, h - j);
        memset(sum, 0, sizeof sum);
        for (int64_t i = 0; i < count; i++)
            s->axpy(m, 1, floats(s, dx, at, list[i] * h + j, m, tmp), sum);
        if (into == GRAD_ADD)
            s->axpy(m, 1, floats(s, dtable, gt, row * h + j, m, tmp), sum);
        floats_put(s, dtable, gt, row * h + j, m, sum);
    }
}

/* list: the tokens in order of their row, and of the samples within a row; end[r]: where row
 * r's end.  A counting sort; ids beyond [first, first + rows) are left out. */
static void list_tokens(int64_t n, int64_t first, int64_t rows, const int32_t *ids, int32_t *end, int32_t *list)
{
    memset(end, 0, (size_t)(rows + 1) * sizeof *end);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= first && ids[i] < first + rows)
            end[ids[i] - first + 1]++;
    for (int64_t r = 0; r < rows; r++)
        end[r + 1] += end[r];
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= first && ids[i] < first + rows)
            list[end[ids[i] - first]++] = (int32_t)i;
}

int host_embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                         const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    struct cut c = kernels_cut(k);
    int32_t *end = kernels_take(&c, 4 * (rows + 1), "embedding backward");
    int32_t *list = end ? kernels_take(&c, 4 * n, "embedding backward") : NULL;

    if (!list)
        return -1;
    list_tokens(n, first, rows, ids, end, list);
#pragma omp parallel for num_threads(k->threads) schedule(dynamic, 64)
    for (int64_t r = 0; r < rows; r++) {
        int32_t from = r ? end[r - 1] : 0;
        sum_rows(k->simd, h, list + from, end[r] - from, dx, at, dtable, gt, r, into);
    }
    return 0;
}

int host_embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                    const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail("token %" PRId64 " is %d, beyond the vocabulary of %" PRId64, i, ids[i], vocab);
    return host_embed_rows_back(k, n, h, 0, vocab, ids, dx, at, dtable, gt, into);
}

int host_embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                              const void *dx, enum dtype at, void *dtable, enum dtype gt,
                              enum grad_into into)
{
    const struct simd *s = k->simd;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < h; j += CHUNK) {
            float sum[CHUNK], tmp[CHUNK];
            int64_t m = least(CHUNK, h - j);
            memset(sum, 0, sizeof sum);
            for (int64_t i = r; i < n && r < seq; i += seq)
                s->axpy(m, 1, floats(s, dx, at, i * h + j, m, tmp), sum);
            if (into == GRAD_ADD)
                s->axpy(m, 1, floats(s, dtable, gt, r * h + j, m, tmp), sum);
            floats_put(s, dtable, gt, r * h + j, m, sum);
        }
    return 0;
}

/* ---- norms ---- */

struct norm_space {
    const float *w, *b;             /* widened */
    float *rows;                    /* of each thread: x, dy, dx, dw, db */
    int64_t stride;                 /* floats from one to the next */
};

/* A parameter as fp32; NULL stays NULL. */
static const float *parameter(const struct simd *s, const void *w, enum dtype wt, int64_t h, float *into)
{
    return w ? floats(s, w, wt, 0, h, into) : NULL;
}

static int norm_space(struct kernels *k, int64_t h, const void *w, const void *b, enum dtype wt,
                      struct norm_space *ns)
{
    struct cut c = kernels_cut(k);
    int64_t stride = round_up(4 * h, 64) / 4;
    float *all = kernels_take(&c, (2 + 5 * (int64_t)k->threads) * stride * 4, "norm");

    if (!all)
        return -1;
    ns->w = parameter(k->simd, w, wt, h, all);
    ns->b = parameter(k->simd, b, wt, h, all + stride);
    ns->rows = all + 2 * stride;
    ns->stride = stride;
    return 0;
}

static float *thread_row(const struct norm_space *ns, int which)
{
    return ns->rows + (omp_get_thread_num() * 5 + which) * ns->stride;
}

int host_norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
              const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats)
{
    const struct simd *s = k->simd;
    struct norm_space ns;

    if (norm_space(k, h, w, b, wt, &ns) < 0)
        return -1;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *from = floats(s, x, at, i * h, h, thread_row(&ns, 0));
        float *to = floats_into(y, at, i * h, thread_row(&ns, 1));
        if (kind == NORM_LAYER)
            s->layer_norm(h, (float)eps, from, ns.w, ns.b, to, &stats[i], &stats[n + i]);
        else
            s->rms_norm(h, (float)eps, from, ns.w, ns.b, to, &stats[i]);
        floats_put(s, y, at, i * h, h, to);
    }
    return 0;
}

/* The sums of the threads, in their order. */
static void norm_sums(struct kernels *k, const struct norm_space *ns, int which, int64_t h, void *dw,
                      enum dtype gt, enum grad_into into)
{
    float *sum = ns->rows + which * ns->stride, *old = ns->rows;

    if (!dw)
        return;
    for (int t = 1; t < k->threads; t++)
        k->simd->axpy(h, 1, sum + t * 5 * ns->stride, sum);
    if (into == GRAD_ADD)
        k->simd->axpy(h, 1, floats(k->simd, dw, gt, 0, h, old), sum);
    floats_put(k->simd, dw, gt, 0, h, sum);
}

int host_norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                   const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                   void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into)
{
    const struct simd *s = k->simd;
    bool layer = kind == NORM_LAYER;
    struct norm_space ns;

    if (norm_space(k, h, w, NULL, wt, &ns) < 0)
        return -1;
    memset(ns.rows, 0, (size_t)(5 * k->threads * ns.stride) * sizeof *ns.rows);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float mean = layer ? stats[i] : 0, r = stats[layer ? n + i : i];
        const float *xs = floats(s, x, at, i * h, h, thread_row(&ns, 0));
        const float *g = floats(s, dy, at, i * h, h, thread_row(&ns, 1));
        float *to = thread_row(&ns, 2);
        if (dw)
            s->norm_weight_back(h, mean, r, g, xs, thread_row(&ns, 3));
        if (db)
            s->axpy(h, 1, g, thread_row(&ns, 4));
        s->norm_back(h, layer, mean, r, g, xs, ns.w, to);
        if (add)
            s->axpy(h, 1, floats(s, dx, at, i * h, h, thread_row(&ns, 0)), to);
        floats_put(s, dx, at, i * h, h, to);
    }
    norm_sums(k, &ns, 3, h, dw, gt, into);
    norm_sums(k, &ns, 4, h, db, gt, into);
    return 0;
}
