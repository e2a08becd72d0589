/* tensor_distance.h -- how far two files of tensors are apart: for each tensor the norm of the difference over the
 * norm. */
#ifndef DPX_TESTS_MPI_TENSOR_DISTANCE_H
#define DPX_TESTS_MPI_TENSOR_DISTANCE_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/safetensors.h"

static float *tensor_values(const struct safetensors *s, const struct st_tensor *t)
{
    float *v = malloc((size_t)t->numel * sizeof *v + 1);

    if (!v || safetensors_read(s, t, 0, t->numel, v) < 0)
        exit(2);
    return v;
}

/* GPT-2's key bias, the middle third: softmax does not see it, its true gradient is zero. */
static bool tensor_left_out(const struct st_tensor *t, int64_t i)
{
    return strstr(t->name, ".c_attn.bias") && i >= t->numel / 3 && i < 2 * t->numel / 3;
}

/* Of got from `factor` times want. */
static double tensor_distance(const struct st_tensor *t, const float *want, double factor, const float *got)
{
    double off = 0, norm = 0;

    for (int64_t i = 0; i < t->numel; i++) {
        double a = factor * (double)want[i], d = (double)got[i] - a;
        if (tensor_left_out(t, i))
            continue;
        off += d * d;
        norm += a * a;
    }
    return sqrt(off / norm);
}

/* At most so far off, relative: `each`, where there is one, times the tensor's entry there, at most `most`. */
struct tolerance { double most, each; const json_t *of; };

static inline double tolerance_of(const struct tolerance *t, const char *name)
{
    double own = t->of ? t->each * json_number_value(json_object_get(t->of, name)) : t->most;

    return own < t->most ? own : t->most;
}

/* Calls tell() with a line for each tensor that is further off, has another shape or is missing; how many lines. */
static inline int tensors_differ(const char *expected, const char *run, const struct tolerance *tolerance, double factor,
                                 void (*tell)(const char *format, ...))
{
    struct safetensors *want = safetensors_open(expected), *got = safetensors_open(run);
    int n = 0;

    if (!want || !got) {
        tell("%s: cannot be read\n", want ? run : expected);
        safetensors_close(want);
        safetensors_close(got);
        return 1;
    }
    if (want->ntensors != got->ntensors)
        tell("%d tensors, not %d\n", got->ntensors, want->ntensors), n++;
    for (int k = 0; k < want->ntensors; k++) {
        const struct st_tensor *a = &want->tensors[k], *b = safetensors_find(got, a->name);
        if (!b || b->ndim != a->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape)) {
            tell("%s: %s\n", a->name, b ? "another shape" : "is missing"), n++;
            continue;
        }
        float *x = tensor_values(want, a), *y = tensor_values(got, b);
        double d = tensor_distance(a, x, factor, y), most = tolerance_of(tolerance, a->name);
        if (!(d <= most))
            tell("%s: off by %.3g of its norm, more than %.3g\n", a->name, d, most), n++;
        free(x);
        free(y);
    }
    safetensors_close(want);
    safetensors_close(got);
    return n;
}

#endif
