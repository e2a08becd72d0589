/* The loss on the host: of whole rows of logits, and of rows whose columns are dealt out to ranks. */
#include "exec/kernels/kernels_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/fail.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct logits { void *x; enum dtype at; int64_t from, n; };

static const float *part(const struct simd *s, const struct logits *l, int64_t j, int64_t m, float *tmp)
{
    return floats(s, l->x, l->at, l->from + j, m, tmp);
}

static float largest_logit(const struct simd *s, const struct logits *l)
{
    float most = -INFINITY, tmp[CHUNK];

    for (int64_t j = 0; j < l->n; j += CHUNK) {
        int64_t m = least(CHUNK, l->n - j);
        most = fmaxf(most, s->largest(m, part(s, l, j, m, tmp)));
    }
    return most;
}

/* The sum of e^(x - most). */
static double sum_exp(const struct simd *s, const struct logits *l, float most)
{
    double sum = 0;
    float tmp[CHUNK];

    for (int64_t j = 0; j < l->n; j += CHUNK) {
        int64_t m = least(CHUNK, l->n - j);
        sum += (double)s->sum_exp(m, part(s, l, j, m, tmp), most);
    }
    return sum;
}

/* The row becomes scale * (e^(x - most) / sum - 1 at the label), which may lie outside of it. */
static void slope(const struct simd *s, const struct logits *l, int64_t label, float most, double sum, float scale)
{
    float by = (float)((double)scale / sum), tmp[CHUNK];

    for (int64_t j = 0; j < l->n; j += CHUNK) {
        int64_t m = least(CHUNK, l->n - j);
        float *to = floats_into(l->x, l->at, l->from + j, tmp);
        s->scaled_exp(m, by, part(s, l, j, m, tmp), most, to);
        if (label >= j && label < j + m)
            to[label - j] -= scale;
        floats_put(s, l->x, l->at, l->from + j, m, to);
    }
}

/* Three passes over a row that stays in the second-level cache.  e^(x - most) is worked out
 * twice: kept in bf16 it would be rounded twice. */
static float row_loss(const struct simd *s, const struct logits *l, int32_t label, float scale)
{
    float most = largest_logit(s, l), tmp[CHUNK];
    double sum = sum_exp(s, l, most);
    float at_label = *part(s, l, label, 1, tmp);

    slope(s, l, label, most, sum, scale);
    return (float)((double)most - (double)at_label + log(sum));
}

int host_cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                       const int32_t *labels, float *losses, double scale)
{
    for (int64_t i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= vocab)
            return fail("label %" PRId64 " is %d, beyond the vocabulary of %" PRId64, i, labels[i], vocab);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        struct logits row = { logits, at, i * vocab, vocab };
        losses[i] = row_loss(k->simd, &row, labels[i], (float)scale);
    }
    return 0;
}

/* ---- columns dealt out ---- */

/* Row i of this rank. */
static struct logits row_of(const struct cut_logits *l, const void *logits, int64_t i)
{
    int64_t cols = logits_columns(l, l->rank);

    return (struct logits){ (void *)(uintptr_t)logits, l->at, i * cols, cols };
}

/* The label's column, counted from this rank's first. */
static int64_t own_label(const struct cut_logits *l, int32_t label) { return label - l->rank * l->part; }

/* Row i of rank r, where all ranks' logits are. */
static struct logits row_of_rank(const struct cut_logits *l, const void *all, int64_t r, int64_t i)
{
    int64_t cols = logits_columns(l, r);

    return (struct logits){ (void *)(uintptr_t)all, l->at, r * l->n * l->part + i * cols, cols };
}

static int check_labels(const struct cut_logits *l, const int32_t *labels)
{
    for (int64_t i = 0; i < l->n; i++)
        if (labels[i] < 0 || labels[i] >= l->vocab)
            return fail("label %" PRId64 " is %d, beyond the vocabulary of %" PRId64, i, labels[i], l->vocab);
    return 0;
}

int host_logits_most(struct kernels *k, const struct cut_logits *l, const void *logits, float *most)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < l->n; i++) {
        struct logits row = row_of(l, logits, i);
        most[i] = largest_logit(k->simd, &row);
    }
    return 0;
}

int host_logits_label(struct kernels *k, const struct cut_logits *l, const void *logits, const int32_t *labels,
                      float *at_label)
{
    if (check_labels(l, labels) < 0)
        return -1;
    for (int64_t i = 0; i < l->n; i++) {
        struct logits row = row_of(l, logits, i);
        int64_t j = own_label(l, labels[i]);
        float tmp[1];
        at_label[i] = j >= 0 && j < row.n ? *part(k->simd, &row, j, 1, tmp) : 0;
    }
    return 0;
}

int host_logits_sum(struct kernels *k, const struct cut_logits *l, const void *logits, const float *most, float *sum)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < l->n; i++) {
        struct logits row = row_of(l, logits, i);
        sum[i] = (float)sum_exp(k->simd, &row, most[i]);
    }
    return 0;
}

int host_logits_loss(struct kernels *k, const struct cut_logits *l, void *logits, const int32_t *labels,
                     const struct logit_sums *of, float *losses, double scale)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < l->n; i++) {
        struct logits row = row_of(l, logits, i);
        double sum = (double)of->sum[i];
        losses[i] = (float)((double)of->most[i] - (double)of->label[i] + log(sum));
        slope(k->simd, &row, own_label(l, labels[i]), of->most[i], sum, (float)scale);
    }
    return 0;
}

static float whole_loss(const struct simd *s, const struct cut_logits *l, const void *all, struct logits *mine,
                        int64_t i, int64_t label, float scale)
{
    float most = -INFINITY, tmp[1];
    double sum = 0;

    for (int64_t r = 0; r * l->part < l->vocab; r++) {
        struct logits row = row_of_rank(l, all, r, i);
        most = fmaxf(most, largest_logit(s, &row));
    }
    for (int64_t r = 0; r * l->part < l->vocab; r++) {
        struct logits row = row_of_rank(l, all, r, i);
        sum += sum_exp(s, &row, most);
    }
    struct logits of_label = row_of_rank(l, all, label / l->part, i);
    float at_label = *part(s, &of_label, label % l->part, 1, tmp);
    slope(s, mine, label - l->rank * l->part, most, sum, scale);
    return (float)((double)most - (double)at_label + log(sum));
}

int host_logits_whole(struct kernels *k, const struct cut_logits *l, const void *all, void *logits,
                      const int32_t *labels, float *losses, double scale)
{
    if (check_labels(l, labels) < 0)
        return -1;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < l->n; i++) {
        struct logits mine = row_of(l, logits, i);
        losses[i] = whole_loss(k->simd, l, all, &mine, i, labels[i], (float)scale);
    }
    return 0;
}
