/* exec_gemm.c -- what a training step of the executor is made of, on one rank:
 *
 *     exec_gemm PLAN.json STEPS THREADS
 *
 * the share of matrix products in the step, their rate beside bare oneDNN's (dnnl_sgemm on the same
 * shapes, in the same process, timed between the steps), and what interpreting the schedule
 * costs: the same steps with kernels that do nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <dnnl.h>
#include <omp.h>

#include "base/fail.h"
#include "exec/train/train.h"

static struct train *open_train(const struct plan *p, int threads, bool no_compute)
{
    struct train_args a = { .plan = p, .seed = 1, .steps = 100, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95,
                            .eps = 1e-8, .limit = INT64_MAX, .null = true, .no_compute = no_compute,
                            .threads = threads };

    struct train_refusal why = { .bad_input = false };

    return train_open(&a, &why);
}

/* Seconds of one step, the fastest of n after a warm-up. */
static double step_seconds(struct train *t, int n)
{
    double best = INFINITY;
    struct train_report r;

    for (int i = 0; i < n + 2; i++) {
        if (train_step(t, false, &r) < 0)
            exit(1);
        if (i >= 2 && r.seconds < best)
            best = r.seconds;
    }
    return best;
}

/* Pages of their own: untouched ones are all the same zero page, which stays in the cache. */
static float *filled(size_t n)
{
    float *x = malloc(n * sizeof *x);

    if (!x)
        exit(1);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 251) * 0.01f;
    return x;
}

static double bare(const struct kernel *k)
{
    size_t m = (size_t)k->m, n = (size_t)k->n, kk = (size_t)k->k;
    float *a = filled(m * kk), *b = filled(kk * n), *c = filled(m * n);
    double best = INFINITY;

    for (int i = 0; i < 4; i++) {
        double began = lanes_now();
        dnnl_sgemm('N', 'N', k->m, k->n, k->k, 1, a, k->k, b, k->n, 0, c, k->n);
        double s = lanes_now() - began;
        if (i > 0 && s < best)
            best = s;
    }
    free(a);
    free(b);
    free(c);
    return best;
}

int main(int argc, char **argv)
{
    struct plan p;
    double flops = 0, bare_s = 0, gemm_s, step;

    if (argc != 4 || plan_read(argv[1], &p) < 0)
        return 2;
    int steps = atoi(argv[2]), threads = atoi(argv[3]);
    omp_set_num_threads(threads);
    struct train *t = open_train(&p, threads, false);
    if (!t)
        return 1;
    step = step_seconds(t, steps);
    gemm_s = executor_class_seconds(train_executor(t), KC_GEMM) / (steps + 2);
    const struct program *g = &train_schedules(t)->program;
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < g->piece[i].nkernels[pass]; k++) {
                const struct kernel *x = &g->piece[i].kernels[pass][k];
                double times = i == PIECE_BLOCK ? (double)p.model.layers : 1;
                if (x->kind != KC_GEMM || i == PIECE_BLOCK_RECOMPUTED)
                    continue;
                flops += times * x->flops * (double)p.accumulation;
                bare_s += times * bare(x) * (double)p.accumulation;
            }
    train_close(t);
    t = open_train(&p, threads, true);
    if (!t)
        return 1;
    double empty = step_seconds(t, steps);
    train_close(t);
    printf("step %.4f s; matrix products %.1f %% of it, %.1f GFLOP/s, bare oneDNN %.1f: %.3f of it; interpreting %.2f %%\n",
           step, 100 * gemm_s / step, flops / gemm_s * 1e-9, flops / bare_s * 1e-9, bare_s / gemm_s,
           100 * empty / step);
    plan_free(&p);
    return 0;
}
