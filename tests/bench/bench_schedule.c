/* bench_schedule.c -- how fast plans are lowered, put on the ledger and on the clock.
 *
 * Figures are of one core; programs (kernels of a model at one micro-batch) and the
 * costs of kernels are shared between plans, as the search shares them.  Each figure
 * is the best of several rounds, so that a busy machine does not decide it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/search/search.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A plan of one cell, with that dialect's defaults. */
static void make(struct plan *p, const char *model, const char *cluster, enum strategy s, enum dialect d,
                 int64_t layers, int64_t accumulation)
{
    struct model m;

    memset(p, 0, sizeof *p);
    if (model_load(model, &m) < 0 || model_with_layers(&m, layers, &p->model) < 0 ||
        cluster_load(cluster, &p->cluster) < 0)
        exit(1);
    model_free(&m);
    p->seq = 4096;
    p->micro_batch = 1;
    plan_defaults(p, s, d, DT_BF16);
    p->accumulation = accumulation;
    p->kernels = KERNELS_TORCH_SDPA;
    plan_resolve(p);
    if (plan_check(p, "bench") < 0)
        exit(1);
}

struct bench {
    struct plan        p;
    struct program     g;
    struct schedules   s;
    struct cost_cache *cache;
    struct coll_memo   memo;
};

static void lower_and_ledger(struct bench *b)
{
    struct ledger l;

    if (lower_using(&b->p, 0, &b->g, &b->s) < 0)
        exit(1);
    ledger_run(&b->s, &l);
}

static void and_clock(struct bench *b)
{
    struct priced prices;
    struct timeline t;

    lower_and_ledger(b);
    if (simulate_price(&b->p, &b->s, SCHED_STEADY, b->cache, &b->memo, &prices) < 0)
        exit(1);
    clock_one(&b->s, SCHED_STEADY, &prices.middle, NULL, &t, NULL);
    simulate_priced_free(&prices);
}

static void and_contention(struct bench *b)
{
    struct contention slow;
    struct priced prices;
    struct timeline t;

    lower_and_ledger(b);
    if (simulate_price(&b->p, &b->s, SCHED_STEADY, b->cache, &b->memo, &prices) < 0)
        exit(1);
    simulate_contention(&b->p, &b->s, &prices, &slow);
    clock_one(&b->s, SCHED_STEADY, &prices.middle, &slow, &t, NULL);
    simulate_priced_free(&prices);
}

/* Seconds of one call. */
static double best(void (*f)(struct bench *), struct bench *b)
{
    double least = 1e9;

    for (int round = 0; round < 7; round++) {
        int n = 0;
        double start = now(), spent;
        do {
            f(b);
            n++;
        } while ((spent = now() - start) < 0.05);
        if (spent / n < least)
            least = spent / n;
    }
    return least;
}

static void open_bench(struct bench *b, const char *model, const char *cluster, enum strategy s, enum dialect d,
                       int64_t layers, int64_t accumulation)
{
    memset(b, 0, sizeof *b);
    make(&b->p, model, cluster, s, d, layers, accumulation);
    if (program_build(&b->p, &b->g) < 0)
        exit(1);
    b->cache = cost_cache_new(&b->p);
}

static void close_bench(struct bench *b)
{
    schedules_free(&b->s);
    program_free(&b->g);
    cost_cache_free(b->cache);
    plan_free(&b->p);
}

static void schedules_of_126_blocks(void)
{
    static const struct { const char *name; enum strategy s; enum dialect d; int64_t accumulation; } cells[] = {
        { "fsdp torch, accumulation 1",     STRAT_FSDP,  DIALECT_TORCH,       1 },
        { "fsdp torch, accumulation 1024",  STRAT_FSDP,  DIALECT_TORCH,       1024 },
        { "fsdp torch-fsdp1",               STRAT_FSDP,  DIALECT_TORCH_FSDP1, 1 },
        { "ddp torch",                      STRAT_DDP,   DIALECT_TORCH,       1 },
        { "zero1 deepspeed",                STRAT_ZERO1, DIALECT_DEEPSPEED,   1 },
        { "zero2 deepspeed",                STRAT_ZERO2, DIALECT_DEEPSPEED,   1 },
        { "zero3 deepspeed",                STRAT_ZERO3, DIALECT_DEEPSPEED,   1 },
        { "zero3 paper",                    STRAT_ZERO3, DIALECT_PAPER,       1 },
    };

    printf("schedules of a 126-block model (llama-3.1-405b on 2048x8xh100), built and ledgered; wanted under 1 ms\n");
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct bench b;
        open_bench(&b, "llama-3.1-405b", "2048x8xh100", cells[i].s, cells[i].d, 126, cells[i].accumulation);
        double s = best(lower_and_ledger, &b);
        printf("  %-32s %8.3f ms  %6d entries\n", cells[i].name, 1e3 * s, b.s.nops);
        close_bench(&b);
    }
}

static void plans_a_second(void)
{
    struct bench b;
    double ledger, clock, contention;

    open_bench(&b, "llama-2-70b", "8x8xh100", STRAT_FSDP, DIALECT_TORCH, 72, 1);
    ledger = best(lower_and_ledger, &b);
    clock = best(and_clock, &b);
    contention = best(and_contention, &b);
    printf("a 72-block FSDP2 plan on one core\n");
    printf("  lowering and ledger        %9.0f plans/s  (%6.2f us)\n", 1 / ledger, 1e6 * ledger);
    printf("  with the clock             %9.0f plans/s  (%6.2f us, %.2f times)  wanted 100,000\n", 1 / clock, 1e6 * clock, clock / ledger);
    printf("  with contention            %9.0f plans/s  (%6.2f us, %.2f times)  wanted 50,000\n", 1 / contention, 1e6 * contention,
           contention / ledger);
    close_bench(&b);
}

static void whole_search(void)
{
    struct model m;
    struct cluster c;
    struct search_result r;

    if (model_load("llama-3.1-405b", &m) < 0 || cluster_load("2048x8xh100", &c) < 0)
        exit(1);
    struct search_options o = { .model = &m, .cluster = &c, .seq = 8192, .global_batch = 16384 * 8,
                                .strategies = ~0ull, .dialects = ~0ull, .kernels = KERNELS_TORCH_SDPA,
                                .precision = DT_BF16, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL };
    double from = now(), took;
    if (search(&o, &r) < 0)
        exit(1);
    took = now() - from;
    printf("search for llama-3.1-405b on 16,384 H100s: %lld plans considered in %.2f s (%.0f a second), %lld fit\n",
           (long long)r.considered, took, (double)r.considered / took, (long long)r.nfit);
    search_free(&r);
    model_free(&m);
}

int main(void)
{
    schedules_of_126_blocks();
    plans_a_second();
    whole_search();
    return 0;
}
