/* kernels_host_optim.c -- optimizers on the host.  An element comes out the same wherever its array is cut and whatever the
 * threads; of Adafactor, which is a tensor's, sums are over fixed blocks. */
#include "exec/kernels/kernels_internal.h"

#include <math.h>

int host_adamw(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v,
               const void *g, enum dtype gt, void *out, enum dtype ot)
{
    const struct simd *s = k->simd;
    double t = (double)a->step;
    struct adamw_rates r = {
        .decay = (float)(1 - a->lr * a->weight_decay),
        .keep1 = (float)(1 - a->beta1), .b2 = (float)a->beta2, .keep2 = (float)(1 - a->beta2),
        .step_size = (float)(a->lr / (1 - pow(a->beta1, t))),
        .root = (float)(1 / sqrt(1 - pow(a->beta2, t))),
        .eps = (float)a->eps, .scale = (float)a->grad_scale,
    };

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float grad[CHUNK];
        int64_t here = chunk_at(i, n);
        s->adamw(&r, here, p + i, m + i, v + i, floats(s, g, gt, i, here, grad));
        if (out)
            floats_put(s, out, ot, i, here, p + i);
    }
    return 0;
}

/* ---- one moment ---- */

typedef void moment_fn(const struct moment_rates *r, int64_t n, float *p, float *m, const float *g);

static int one_moment(struct kernels *k, moment_fn *update, const struct moment_rates *r, int64_t n, float *p, float *m,
                      const void *g, enum dtype gt, void *out, enum dtype ot)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float grad[CHUNK];
        int64_t here = chunk_at(i, n);
        update(r, here, p + i, m + i, floats(k->simd, g, gt, i, here, grad));
        if (out)
            floats_put(k->simd, out, ot, i, here, p + i);
    }
    return 0;
}

int host_sgd(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
             enum dtype ot)
{
    struct moment_rates r = { .lr = (float)a->lr, .decay = (float)a->weight_decay, .b1 = (float)a->beta1,
                              .scale = (float)a->grad_scale };

    return one_moment(k, k->simd->sgd, &r, n, p, m, g, gt, out, ot);
}

int host_lion(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
              enum dtype ot)
{
    struct moment_rates r = { .lr = (float)a->lr, .decay = (float)(1 - a->lr * a->weight_decay),
                              .b1 = (float)a->beta1, .keep1 = (float)(1 - a->beta1),
                              .b2 = (float)a->beta2, .keep2 = (float)(1 - a->beta2), .scale = (float)a->grad_scale };

    return one_moment(k, k->simd->lion, &r, n, p, m, g, gt, out, ot);
}

/* ---- Adafactor ---- */

/* Blocks of rows that are summed each by one thread, and then in order. */
enum { ROW_BLOCKS = 64 };

/* What passes over the gradient need beside it. */
struct factors { const struct factored *f; const void *g; enum dtype gt; float weight, scale; double mean; };

static float gradient(const struct factors *s, int64_t i)
{
    return s->scale * element_at(s->g, s->gt, i);
}

static void update_rows(const struct kernels *k, const struct factors *s)
{
    const struct factored *f = s->f;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < f->rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < f->cols; c++)
            sum += (double)gradient(s, r * f->cols + c) * (double)gradient(s, r * f->cols + c);
        f->row[r] += s->weight * ((float)(sum / (double)f->cols) - f->row[r]);
    }
}

static void update_columns(const struct kernels *k, const struct factors *s)
{
    const struct factored *f = s->f;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t c0 = 0; c0 < f->cols; c0 += CHUNK) {
        double sum[CHUNK] = { 0 };
        int64_t n = chunk_at(c0, f->cols);
        for (int64_t r = 0; r < f->rows; r++)
            for (int64_t c = 0; c < n; c++)
                sum[c] += (double)gradient(s, r * f->cols + c0 + c) * (double)gradient(s, r * f->cols + c0 + c);
        for (int64_t c = 0; c < n; c++)
            f->col[c0 + c] += s->weight * ((float)(sum[c] / (double)f->rows) - f->col[c0 + c]);
    }
}

static double mean_of_rows(const struct factored *f)
{
    double sum = 0;

    for (int64_t r = 0; r < f->rows; r++)
        sum += (double)f->row[r];
    return fmax(sum / (double)f->rows, ADAFACTOR_EPS1);
}

/* What the gradient of an element becomes, before it is scaled. */
static float direction(const struct factors *s, int64_t r, int64_t c)
{
    const struct factored *f = s->f;
    float v = f->col ? f->row[r] * f->col[c] / (float)s->mean : f->row[r];
    float least = (float)(ADAFACTOR_EPS1 * ADAFACTOR_EPS1);

    return gradient(s, r * f->cols + c) / sqrtf(v > least ? v : least);
}

static double squares_of_directions(const struct kernels *k, const struct factors *s)
{
    const struct factored *f = s->f;
    double part[ROW_BLOCKS] = { 0 }, sum = 0;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t b = 0; b < ROW_BLOCKS; b++)
        for (int64_t r = f->rows * b / ROW_BLOCKS; r < f->rows * (b + 1) / ROW_BLOCKS; r++)
            for (int64_t c = 0; c < f->cols; c++) {
                double u = (double)direction(s, r, c);
                part[b] += u * u;
            }
    for (int b = 0; b < ROW_BLOCKS; b++)
        sum += part[b];
    return sum;
}

int host_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                   enum dtype ot)
{
    double t = (double)a->step, n = (double)(f->rows * f->cols), squares = 0;
    struct factors s = { .f = f, .g = g, .gt = gt, .scale = (float)a->grad_scale,
                         .weight = (float)pow(t, ADAFACTOR_BETA2_DECAY) };

    if (f->rows == 0 || k->ops.sum_squares(k, f->rows * f->cols, f->p, DT_FP32, &squares) < 0)
        return f->rows == 0 ? 0 : -1;
    update_rows(k, &s);
    if (f->col)
        update_columns(k, &s);
    s.mean = mean_of_rows(f);
    double rms = sqrt(squares_of_directions(k, &s) / n);
    double step = fmax(ADAFACTOR_EPS2, sqrt(squares / n)) * fmin(a->lr, 1 / sqrt(t));
    float size = (float)(step / fmax(1, rms)), decay = (float)(1 - a->lr * a->weight_decay);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < f->rows; r++) {
        float *p = f->p + r * f->cols;
        for (int64_t c = 0; c < f->cols; c++)
            p[c] = decay * p[c] - size * direction(&s, r, c);
        if (out)
            floats_put(k->simd, out, ot, r * f->cols, f->cols, p);
    }
    return 0;
}
