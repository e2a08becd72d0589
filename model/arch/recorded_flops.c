/* recorded_flops.c -- what a recorded model's kernels compute, and how well their time is known. */
#include "model/arch/recorded.h"

int recorded_rough(enum rec_class c)
{
    return c == REC_CONV || c == REC_RECURRENCE || c == REC_FFT || c == REC_CUSTOM ? 3 : 0;
}

static double of_kernel(const struct recorded *r, const struct rec_kernel *k, int64_t size)
{
    int64_t n[4], flops;

    if (!k->product)
        return recorded_at(r, k->flops, 1, size, &flops) < 0 ? 0 : (double)flops;
    for (int i = 0; i < 4; i++)
        if (recorded_at(r, k->mnk[i], 1, size, &n[i]) < 0)
            return 0;
    return 2.0 * (k->grouped ? 1.0 : (double)n[0]) * (double)n[1] * (double)n[2] * (double)n[3];
}

static double of_piece(const struct recorded *r, const struct rec_piece *p, int64_t size)
{
    double sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int k = p->kernel0[pass]; k < p->kernel0[pass] + p->nkernels[pass]; k++)
            sum += of_kernel(r, &r->kernels[k], size);
    return sum;
}

double recorded_flops(const struct recorded *r, int64_t size, enum rec_again again)
{
    const struct rec_program *g = NULL;

    for (int i = 0; i < r->nprograms && !g; i++)
        g = r->program[i].again == again ? &r->program[i] : NULL;
    if (!g)
        return 0;
    double sum = of_piece(r, &r->pieces[g->first], size) + of_piece(r, &r->pieces[g->last], size);
    for (int u = 0; u < r->nunits; u++)
        sum += of_piece(r, &r->pieces[g->kind[g->of_unit[u]]], size);
    return sum;
}
