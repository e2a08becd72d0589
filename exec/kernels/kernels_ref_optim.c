/* kernels_ref_optim.c -- optimizers, one loop a formula. */
#include "exec/kernels/kernels_ref.h"

#include <math.h>
#include <stdlib.h>

#include "base/fail.h"

int ref_adamw(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, float *v, const void *g, enum dtype gt,
              void *out, enum dtype ot)
{
    double t = (double)a->step;

    (void)k;
    for (int64_t i = 0; i < n; i++) {
        double gi = a->grad_scale * get(g, gt, i);
        double mi = (double)m[i] + (1 - a->beta1) * (gi - (double)m[i]);
        double vi = a->beta2 * (double)v[i] + (1 - a->beta2) * gi * gi;
        double size = a->lr / (1 - pow(a->beta1, t));
        double denominator = sqrt(vi) / sqrt(1 - pow(a->beta2, t)) + a->eps;
        m[i] = (float)mi;
        v[i] = (float)vi;
        p[i] = (float)((double)p[i] * (1 - a->lr * a->weight_decay) - size * mi / denominator);
        if (out)
            put(out, ot, i, (double)p[i]);
    }
    return 0;
}

int ref_sgd(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
            enum dtype ot)
{
    (void)k;
    for (int64_t i = 0; i < n; i++) {
        double gi = a->grad_scale * get(g, gt, i) + a->weight_decay * (double)p[i];
        double mi = a->beta1 * (double)m[i] + gi;
        m[i] = (float)mi;
        p[i] = (float)((double)p[i] - a->lr * mi);
        if (out)
            put(out, ot, i, (double)p[i]);
    }
    return 0;
}

int ref_lion(struct kernels *k, const struct adamw *a, int64_t n, float *p, float *m, const void *g, enum dtype gt, void *out,
             enum dtype ot)
{
    (void)k;
    for (int64_t i = 0; i < n; i++) {
        double gi = a->grad_scale * get(g, gt, i), u = a->beta1 * (double)m[i] + (1 - a->beta1) * gi;
        p[i] = (float)((double)p[i] * (1 - a->lr * a->weight_decay) - a->lr * ((u > 0) - (u < 0)));
        m[i] = (float)(a->beta2 * (double)m[i] + (1 - a->beta2) * gi);
        if (out)
            put(out, ot, i, (double)p[i]);
    }
    return 0;
}

int ref_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                  enum dtype ot)
{
    double t = (double)a->step, w = pow(t, ADAFACTOR_BETA2_DECAY), squares = 0, mean = 0, norm = 0;
    int64_t n = f->rows * f->cols;
    double *u = calloc((size_t)n + 1, sizeof *u);

    (void)k;
    if (!u)
        return fail("out of memory for the reference's Adafactor");
    for (int64_t i = 0; i < n; i++)
        squares += (double)f->p[i] * (double)f->p[i];
    for (int64_t r = 0; r < f->rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < f->cols; c++)
            sum += pow(a->grad_scale * get(g, gt, r * f->cols + c), 2);
        f->row[r] = (float)((double)f->row[r] + w * (sum / (double)f->cols - (double)f->row[r]));
        mean += (double)f->row[r] / (double)f->rows;
    }
    for (int64_t c = 0; f->col && c < f->cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < f->rows; r++)
            sum += pow(a->grad_scale * get(g, gt, r * f->cols + c), 2);
        f->col[c] = (float)((double)f->col[c] + w * (sum / (double)f->rows - (double)f->col[c]));
    }
    for (int64_t i = 0; i < n; i++) {
        double row = (double)f->row[i / f->cols];
        double v = f->col ? row * (double)f->col[i % f->cols] / fmax(mean, ADAFACTOR_EPS1) : row;
        u[i] = a->grad_scale * get(g, gt, i) / sqrt(fmax(v, ADAFACTOR_EPS1 * ADAFACTOR_EPS1));
        norm += u[i] * u[i];
    }
    double size = fmax(ADAFACTOR_EPS2, sqrt(squares / (double)n)) * fmin(a->lr, 1 / sqrt(t)) / fmax(1, sqrt(norm / (double)n));
    for (int64_t i = 0; i < n; i++) {
        f->p[i] = (float)((double)f->p[i] * (1 - a->lr * a->weight_decay) - size * u[i]);
        if (out)
            put(out, ot, i, (double)f->p[i]);
    }
    free(u);
    return 0;
}
