/* sources.h -- the figures of two tables that the tests judge and `make bench` prints:
 * what full recompute costs and saves, and the 8-GPU GPTlite experiment. */
#ifndef DPX_SOURCES_H
#define DPX_SOURCES_H

#include <stdio.h>
#include <string.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "tests/sim/published.h"

/* ---- full recompute ---- */

struct recompute_figures {
    double forward, backward, again;    /* FLOPs of a micro-step; again: what recompute adds */
    double last;                        /* of those, what the blocks' last products would add */
    double kept, kept_full;             /* bytes that all blocks keep for backward */
    double live_full;                   /* the same and the one block that is being recomputed */
};

/* Counted over the block programs of a model; no schedule, no clock. */
static inline int recompute_count(struct plan *p, struct recompute_figures *f)
{
    double layers = (double)p->model.layers;
    struct program none = { 0 }, full = { 0 };
    const struct piece *b, *r;

    p->recompute = RECOMPUTE_NONE;
    if (program_build(p, &none) < 0)
        return -1;
    p->recompute = RECOMPUTE_FULL;
    if (program_build(p, &full) < 0) {
        program_free(&none);
        return -1;
    }
    b = &none.piece[PIECE_BLOCK];
    r = &full.piece[PIECE_BLOCK_RECOMPUTED];
    *f = (struct recompute_figures){
        .forward = layers * b->flops[PASS_FORWARD] + none.piece[PIECE_HEAD].flops[PASS_FORWARD],
        .backward = layers * b->flops[PASS_BACKWARD] + none.piece[PIECE_HEAD].flops[PASS_BACKWARD],
        .again = layers * (r->flops[PASS_BACKWARD] - b->flops[PASS_BACKWARD]),
        .kept = layers * (double)b->saved,
        .kept_full = layers * (double)r->saved,
    };
    f->live_full = f->kept_full + (double)b->saved;
    for (int i = 0; i < b->nkernels[PASS_FORWARD]; i++)
        if (b->kernels[PASS_FORWARD][i].flops > 0)
            f->last = layers * b->kernels[PASS_FORWARD][i].flops;
    program_free(&none);
    program_free(&full);
    return 0;
}

/* ---- GPTlite: 12 blocks of 768, 12 heads, 2048 characters, on 8 GPUs ---- */

struct gptlite {
    char   strategy[16], precision[8], recompute[8];
    int    offload;
    double samples_per_s, peak, after_step;     /* memory in GiB: torch's max_memory_allocated, memory_allocated */
};

static inline int gptlite_parse(const char *line, struct gptlite *g)
{
    memset(g, 0, sizeof *g);
    return sscanf(line, "%15[^,],%d,%7[^,],%7[^,],%lf,%lf,%lf", g->strategy, &g->offload, g->precision,
                  g->recompute, &g->samples_per_s, &g->peak, &g->after_step) == 7 ? 0 : -1;
}

/* What GPTlite's Python adds to the model that transformers' GPT-2 is, in GiB.  Each of
 * its 144 heads registers a lower-triangular matrix of fp32 as a buffer, and
 * masked_fill(tril == 0) keeps a bool mask for backward; transformers' GPT-2 has one
 * additive mask for all.  (its post 2023-02-28-GPTlite, class Head) */
static const double gptlite_tril = 144 * 2048. * 2048 * 4 / (1 << 30);
static const double gptlite_masks = 144 * 2048. * 2048 / (1 << 30);
/* Modules that own parameters: 3 in each head, 5 more in each block, embeddings and end. */
enum { GPTLITE_MODULES = 12 * (12 * 3 + 5) + 4 };

/* Samples per second of 8 GPUs if ZeRO-3's Python takes its four hooks a module (before
 * and after, forward and backward), 120 us each as sim/ has it for a hook, and nothing
 * hides them. */
static inline double gptlite_with_hooks(double samples_per_s)
{
    double micro_step = 8 / samples_per_s, hooks = GPTLITE_MODULES * 4 * 120e-6;

    return 8 / (micro_step > hooks ? micro_step : hooks);
}

#define GPTLITE_ZERO3   ",\"stage3_prefetch_bucket_size\":400000"
#define GPTLITE_OFFLOAD "\"offload_optimizer\":{\"device\":\"cpu\"},\"offload_param\":{\"device\":\"cpu\"}"

/* 0, or -1 with the reason reported.  train_batch_size 256 on 8 GPUs: 32 micro-steps. */
static inline int gptlite_plan(const struct gptlite *g, const char *cluster, struct plan *p)
{
    char text[640];
    bool ddp = !strcmp(g->strategy, "ddp");
    json_error_t why;
    /* Offload is known of DeepSpeed 0.19. */
    const char *version = g->offload ? "" : ",\"framework_version\":\"0.16\"";

    snprintf(text, sizeof text,
             "{\"dpx_plan\":1,\"model\":\"gpt-lite\",\"cluster\":\"%s\",\"strategy\":\"%s\",\"dialect\":\"deepspeed\","
             "\"kernels\":\"torch-eager\",\"seq\":2048,\"micro_batch\":1,\"accumulation\":32,\"precision\":\"%s\","
             "\"recompute\":\"%s\",\"dropout\":0.1%s%s%s}",
             cluster, g->strategy, g->precision, g->recompute, version,
             ddp ? "" : ",\"deepspeed\":{\"reduce_bucket_size\":400000,\"overlap_comm\":true",
             ddp ? "" : g->offload ? GPTLITE_ZERO3 "," GPTLITE_OFFLOAD "}" : !strcmp(g->strategy, "zero3") ? GPTLITE_ZERO3 "}" : "}");
    json_t *j = json_loads(text, 0, &why);
    int rc = plan_from_json(j, "gpt-lite", p);
    json_decref(j);
    return rc;
}

/* Memory as torch counts it and samples per second. */
struct gptlite_figures { double peak, after_step, samples_per_s; };

static inline int gptlite_predict(const struct gptlite *g, const char *cluster, struct gptlite_figures *f)
{
    const double GiB = 1 << 30;
    struct plan p;
    struct evaluation e;
    struct timing t;
    int rc = -1;

    if (gptlite_plan(g, cluster, &p) < 0)
        return -1;
    if (evaluate(&p, &e) == 0) {
        int64_t after = 0;
        for (int c = 0; c < NCAT; c++)
            after += e.m.ledger.persistent[c];
        rc = simulate_plan(&p, &e, &t, NULL);
        if (rc == 0)
            *f = (struct gptlite_figures){ (double)e.allocated_peak / GiB, (double)after / GiB,
                                           (double)plan_global_batch(&p) / t.line.step_s };
        evaluation_free(&e);
    }
    plan_free(&p);
    return rc;
}

#endif
