/* Optimizers of whole tensors, and frozen weights in codes, behind kernels.h's table: what a step makes of its rates, and launches. */
#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "exec/cuda/kernels_cuda_internal.h"
#include "exec/cuda/optim.h"
#include "exec/kernels/blockwise.h"

int cuda_adafactor(struct kernels *k, const struct adamw *a, const struct factored *f, const void *g, enum dtype gt, void *out,
                   enum dtype ot)
{
    double t = (double)a->step;
    struct cuda_factored c = { f->rows, f->cols, f->p, f->row, f->col, g, out, (float)pow(t, ADAFACTOR_BETA2_DECAY),
                               (float)a->grad_scale, (float)(1 - a->lr * a->weight_decay), fmin(a->lr, 1 / sqrt(t)) };

    return CUDA_OK(adafactor_cuda_update(&c, gt, ot, cuda_kernels(k)->sums, cuda_stream_of(k)));
}

int cuda_adamw8(struct kernels *k, const struct adamw *a, const struct adamw8 *s, const void *g, enum dtype gt, void *out, enum dtype ot)
{
    struct adamw8_rates r = blockwise_rates(a);
    struct cuda_adamw8 c = { s->n, s->p, s->max1, s->max2, s->code1, s->code2, g, out, r.b1, r.keep1, r.b2, r.keep2, r.step_size, r.eps,
                             r.decay, r.scale };

    return CUDA_OK(blockwise_cuda_adamw8(&c, blockwise_map(true), blockwise_map(false), gt, ot, cuda_stream_of(k)));
}

/* Made on the host and uploaded part by part. */
int cuda_pack(struct kernels *k, const struct packed_weight *w, const float *x)
{
    int64_t blocks = ceil_div(w->n, 64), maxima = w->coded ? ceil_div(blocks, 256) : blocks;
    const struct { void *to; int64_t bytes; } part[] = {
        { w->codes, ceil_div(w->n, 2) }, { w->coded, blocks }, { w->maxima, 4 * maxima }, { w->map, 1024 }, { w->mean, 4 }, { w->values, 64 },
    };
    void *here[6] = { 0 };
    int rc = 0;

    for (int i = 0; i < 6; i++)
        if (part[i].to && !(here[i] = malloc((size_t)part[i].bytes)))
            abort();
    rc = blockwise_pack(k, &(struct packed_weight){ w->n, here[0], here[1], here[2], here[3], here[4], here[5] }, x);
    for (int i = 0; i < 6; i++) {
        if (rc == 0 && part[i].to)
            rc = cuda_upload(k, part[i].bytes, part[i].to, here[i]);
        free(here[i]);
    }
    return rc;
}

int cuda_unpack(struct kernels *k, const struct packed_weight *w, void *x, enum dtype at)
{
    struct cuda_packed c = { w->n, w->codes, w->coded, w->maxima, w->map, w->mean, w->values };

    return CUDA_OK(blockwise_cuda_unpack(&c, x, at, cuda_stream_of(k)));
}
