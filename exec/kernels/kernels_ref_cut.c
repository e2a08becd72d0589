/* The reference of a model whose tensors are cut: rows of the vocabulary, columns of the logits. */
#include <math.h>

#include "exec/kernels/kernels_ref.h"

int ref_embed_rows(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                   const void *table, enum dtype wt, void *x, enum dtype at)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j++) {
            int64_t r = ids[i] - first;
            put(x, at, i * h + j, r >= 0 && r < rows ? get(table, wt, r * h + j) : 0);
        }
    return 0;
}

int ref_embed_rows_back(struct kernels *k, int64_t n, int64_t h, int64_t first, int64_t rows, const int32_t *ids,
                        const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    (void)k;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < h; j++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++)
                if (ids[i] == first + r)
                    sum += get(dx, at, i * h + j);
            put_grad(dtable, gt, r * h + j, sum, into);
        }
    return 0;
}

int ref_residual(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b, enum dtype wt,
                 const void *residual, const struct dropout *d)
{
    (void)k;
    for (int64_t i = 0; i < n * h; i++) {
        double x = get(y, at, i) + (b ? get(b, wt, i % h) : 0);
        put(y, at, i, get(residual, at, i) + dropped(d, i, x));
    }
    return 0;
}

int ref_linear_db(struct kernels *k, const struct linear *l, const void *dy, void *db, enum grad_into into)
{
    (void)k;
    for (int64_t o = 0; o < l->out; o++) {
        double sum = 0;
        for (int64_t r = 0; r < l->n; r++)
            sum += get(dy, l->at, r * l->ldy + o);
        put_sum(l, db, o, sum, into);
    }
    return 0;
}

/* ---- logits ---- */

/* Element j of row i of all columns. */
static double of_all(const struct cut_logits *l, const void *all, int64_t i, int64_t j)
{
    int64_t r = j / l->part;

    return get(all, l->at, r * l->n * l->part + i * logits_columns(l, r) + j % l->part);
}

int ref_logits_most(struct kernels *k, const struct cut_logits *l, const void *logits, float *most)
{
    int64_t cols = logits_columns(l, l->rank);

    (void)k;
    for (int64_t i = 0; i < l->n; i++) {
        double m = -INFINITY;
        for (int64_t j = 0; j < cols; j++)
            m = fmax(m, get(logits, l->at, i * cols + j));
        most[i] = (float)m;
    }
    return 0;
}

int ref_logits_label(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                     float *at_label)
{
    int64_t cols = logits_columns(l, l->rank), first = l->rank * l->part;

    (void)k;
    for (int64_t i = 0; i < l->n; i++) {
        int64_t j = labels[i] - first;
        at_label[i] = j >= 0 && j < cols ? (float)get(logits, l->at, i * cols + j) : 0;
    }
    return 0;
}

int ref_logits_sum(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most, float *sum)
{
    int64_t cols = logits_columns(l, l->rank);

    (void)k;
    for (int64_t i = 0; i < l->n; i++) {
        double s = 0;
        for (int64_t j = 0; j < cols; j++)
            s += exp(get(logits, l->at, i * cols + j) - (double)most[i]);
        sum[i] = (float)s;
    }
    return 0;
}

/* This rank's columns of row i: scale * (softmax - 1 at the label). */
static void slope(const struct cut_logits *l, void *logits, int64_t i, int64_t label, double most, double sum,
                  double scale)
{
    int64_t cols = logits_columns(l, l->rank), first = l->rank * l->part;

    for (int64_t j = 0; j < cols; j++) {
        double p = exp(get(logits, l->at, i * cols + j) - most) / sum;
        put(logits, l->at, i * cols + j, scale * (p - (first + j == label)));
    }
}

int ref_logits_loss(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                    const struct logit_sums *of, float *losses, double scale)
{
    (void)k;
    for (int64_t i = 0; i < l->n; i++) {
        double most = (double)of->most[i], sum = (double)of->sum[i];
        losses[i] = (float)(most + log(sum) - (double)of->label[i]);
        slope(l, logits, i, labels[i], most, sum, scale);
    }
    return 0;
}

int ref_logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                     const int32_t *labels, float *losses, double scale)
{
    (void)k;
    for (int64_t i = 0; i < l->n; i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < l->vocab; j++)
            most = fmax(most, of_all(l, all, i, j));
        for (int64_t j = 0; j < l->vocab; j++)
            sum += exp(of_all(l, all, i, j) - most);
        losses[i] = (float)(most + log(sum) - of_all(l, all, i, labels[i]));
        slope(l, logits, i, labels[i], most, sum, scale);
    }
    return 0;
}
