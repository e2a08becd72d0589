/* bench_list.c -- what a calibration consists of, in order of importance: a calibration that is
 * interrupted has the more important half. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/size.h"
#include "calib/bench/bench.h"
#include "model/plan/knob.h"
#include "model/plan/local_model.h"
#include "model/program/program.h"

enum { MOST_PLANS = 256, MOST_ITEMS = 512 };

static struct bench_item *add(struct bench_list *l, enum bench_kind kind, double weight)
{
    struct bench_item *i = &l->item[l->n];

    if (l->n + 1 < MOST_ITEMS)
        l->n++;
    *i = (struct bench_item){ .kind = kind, .weight = weight };
    return i;
}

/* ---- block programs ---- */

/* A step of a few blocks, forward and back, at a rate that is nearer to the truth than a guess of
 * the user's would be; only its proportion to the others matters. */
static double program_seconds(const struct plan *p, bool cuda)
{
    struct program g;
    double flops;

    memset(&g, 0, sizeof g);
    if (program_build(p, &g) < 0)
        return 0;
    flops = g.piece[PIECE_HEAD].flops[0] + g.piece[PIECE_HEAD].flops[1]
            + 3 * (g.piece[PIECE_BLOCK].flops[0] + g.piece[PIECE_BLOCK].flops[1]);
    program_free(&g);
    return flops / (cuda ? 300e12 : 100e9);
}

/* At least two blocks and the ends, with weights and gradients. */
static int check_memory(const struct plan *p, int64_t memory)
{
    struct local_model local;
    struct program g;
    double bytes, e = (double)dtype_bytes(p->precision);

    memset(&g, 0, sizeof g);
    if (program_build(p, &g) < 0)
        return -1;
    if (local_model_of(p, bench_program_rank(p), &local) < 0) {
        program_free(&g);
        return -1;
    }
    const struct model *m = local.model;
    int64_t block = model_numel(m, m->block0, m->per_block);
    bytes = 2 * ((double)g.piece[PIECE_BLOCK].saved + 2 * e * (double)block) + (double)g.piece[PIECE_HEAD].saved
            + 2 * e * (double)(m->params - m->layers * block);
    program_free(&g);
    local_model_free(&local);
    if (bytes <= (double)memory)
        return 0;
    return fail("%s: %lld x %lld tokens: timing its kernels takes %s on each rank, which has %s: choose a smaller "
                "--micro-batch, --seq or --ranks", p->model.name, (long long)p->micro_batch, (long long)p->seq,
                size_text(bytes < 9e18 ? (int64_t)bytes : INT64_MAX).s, size_text(memory).s);
}

/* How ranks share a model and its samples: between them these have all kernels that such ranks run.  Stages of a pipeline have
 * the kernels of fewer blocks. */
static const struct cut {
    const char *words;
    bool   context, sequence, balance;
    enum context_method method;
} cuts[] = {
    { "tensors of %lld ranks", false, false, false, CONTEXT_ALL_GATHER },
    { "tensors of %lld ranks, positions dealt out", false, true, false, CONTEXT_ALL_GATHER },
    { "a ring of %lld ranks", true, false, true, CONTEXT_RING },
    { "positions of %lld ranks, keys gathered", true, false, false, CONTEXT_ALL_GATHER },
    { "positions of %lld ranks, heads exchanged", true, false, false, CONTEXT_ULYSSES },
};
enum { NCUTS = sizeof cuts / sizeof *cuts };

static void apply(const struct cut *cut, int64_t ranks, struct plan *p)
{
    struct parallel_options *of = &p->parallel;

    *(cut->context ? &of->context : &of->tensor) = ranks;
    knob_follow(p, NULL, NULL);
    if (cut->context) {
        of->context_method = cut->method;
        of->context_balance = cut->balance;
    } else {
        of->sequence = cut->sequence;
        of->loss_parallel = !cut->sequence;
    }
}

/* As one of `ranks` has it; cut NULL: whole.  Which cannot be cut so is left out. */
static int add_plan(struct bench_list *l, const struct bench_wish *w, const struct model *m, const struct plan *shape,
                    const struct cut *cut, int64_t ranks)
{
    struct plan *p = &l->plan[l->nplans];
    char words[96] = "", why[512];

    if (l->nplans == MOST_PLANS)
        return fail("more than %d shapes to measure", MOST_PLANS);
    if (model_with_layers(m, m->layers, &p->model) < 0)
        return -1;
    l->nplans++;
    if (cluster_of_host(&p->cluster, cut && ranks > 2 ? ranks : 2) < 0)
        return -1;
    p->seq = shape->seq;
    p->micro_batch = shape->micro_batch;
    plan_defaults(p, STRAT_DDP, DIALECT_PAPER, shape->precision);
    p->kernels = KERNELS_DPX;
    if (cut) {
        apply(cut, ranks, p);
        snprintf(words, sizeof words, cut->words, (long long)ranks);
        struct fail_sink before = fail_divert(why, sizeof why);
        bool refused = plan_check(p, m->name) < 0;
        fail_restore(before);
        if (refused) {
            plan_free(p);
            l->nplans--;
            return 0;
        }
    }
    if (plan_check(p, m->name) < 0 || (w->memory > 0 && check_memory(p, w->memory) < 0))
        return -1;
    struct bench_item *i = add(l, BENCH_PROGRAM, (w->cuda ? 3 : 0.3) + 6 * program_seconds(p, w->cuda));
    i->plan = p;
    i->dtype = p->precision;
    snprintf(i->what, sizeof i->what, "%s, %lld x %lld tokens, %s%s%s", m->name, (long long)p->micro_batch, (long long)p->seq,
             dtype_name(p->precision), cut ? ", " : "", words);
    return 0;
}

static int add_cuts(struct bench_list *l, const struct bench_wish *w, const struct model *m, const struct plan *shape, int64_t ranks)
{
    if (ranks == 1)
        return add_plan(l, w, m, shape, NULL, 1);
    for (int i = 0; i < NCUTS; i++)
        if (add_plan(l, w, m, shape, &cuts[i], ranks) < 0)
            return -1;
    return 0;
}

/* By each degree that was asked for; else whole and, in full runs, by each that divides the ranks. */
static int add_degrees(struct bench_list *l, const struct bench_wish *w, const struct model *m, const struct plan *shape, int nranks)
{
    for (int n = 1; !w->degrees && n <= nranks; n++)
        if (nranks % n == 0 && (n == 1 || !w->quick) && add_cuts(l, w, m, shape, n) < 0)
            return -1;
    for (const char *at = w->degrees; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        char number[32];
        int64_t n;
        snprintf(number, sizeof number, "%.*s", (int)strcspn(at, ","), at);
        if (count_parse("--degrees", number, &n) < 0)
            return -1;
        if (n < 1)
            return fail("--degrees %s: at least 1, with commas between: 1,2", w->degrees);
        if (add_cuts(l, w, m, shape, n) < 0)
            return -1;
    }
    return 0;
}

static int add_model(struct bench_list *l, const struct bench_wish *w, const struct model *m, const char *batches,
                     int64_t seq, int nranks)
{
    int64_t longest = m->positions > 0 ? m->positions : m->context;

    if (!seq)
        seq = w->cuda ? 1024 : 256;
    if (!w->seq && longest > 0 && longest < seq)
        seq = longest;
    for (int t = 0; t < NDTYPE; t++)
        for (const char *at = batches; w->precision[t] && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
            char number[32];
            int64_t n;
            snprintf(number, sizeof number, "%.*s", (int)strcspn(at, ","), at);
            if (count_parse("--micro-batch", number, &n) < 0)
                return -1;
            if (n < 1)
                return fail("--micro-batch %s: at least 1, with commas between: 1,2,4", batches);
            struct plan shape = { .seq = seq, .micro_batch = n, .precision = (enum dtype)t };
            if (add_degrees(l, w, m, &shape, nranks) < 0)
                return -1;
        }
    return 0;
}

static int add_models(struct bench_list *l, const struct bench_wish *w, int nranks)
{
    char name[512];
    int rc = 0;

    for (const char *at = w->models; *at && rc == 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        struct model m;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (model_load(name, &m) < 0)
            return -1;
        rc = add_model(l, w, &m, w->micro_batches ? w->micro_batches : w->quick ? "1,4" : "1,2,4,8", w->seq, nranks);
        model_free(&m);
    }
    return rc;
}

/* vocab: words in the vocabulary. */
struct grid { const char *family; int width, vocab; const char *quick, *full; };

/* A model of the grid; heads of 64, on a device 128 in the Llamas. */
static json_t *grid_config(const struct grid *g, bool cuda)
{
    bool gpt = !strcmp(g->family, "gpt2");
    int h = g->width, vocab = g->vocab, dim = cuda && !gpt ? 128 : 64;

    if (gpt)
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", h, "n_head", h / dim, "n_layer", 4,
                         "vocab_size", vocab, "n_positions", 1024);
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", h, "intermediate_size",
                     h * 11 / 4, "num_attention_heads", h / dim, "num_key_value_heads", h / dim / 2, "num_hidden_layers",
                     4, "vocab_size", vocab, "max_position_embeddings", 4096);
}

/* Where no model is asked for: small ones of both families, whose shapes lie around those of models
 * that a machine with so many cores, or one GPU, can train. */
static const struct grid host_grid[] = {
    { "gpt2", 256, 8192, "1,4", "1,4,16" }, { "gpt2", 768, 8192, "1,4", "1,4,8" }, { "llama", 512, 8192, "1,4", "1,4,16" },
    { "gpt2", 512, 8192, NULL, "1,4" }, { "gpt2", 1024, 8192, NULL, "1,4" }, { "llama", 256, 8192, NULL, "1,4" },
    { "llama", 1024, 8192, NULL, "1,4" }, { 0 },
};
/* GPT-2's own vocabulary is odd, for which a GPU's library has other kernels. */
static const struct grid cuda_grid[] = {
    { "gpt2", 768, 50304, "4,16", "1,4,16,32" }, { "llama", 2048, 32000, "1,4", "1,4,16" }, { "gpt2", 1600, 50304, NULL, "1,4,16" },
    { "gpt2", 1024, 50257, "4", "1,4,16" }, { "llama", 4096, 32000, NULL, "1,2,8" }, { "llama", 1024, 32000, NULL, "4,16" }, { 0 },
};

static int add_grid(struct bench_list *l, const struct bench_wish *w, int nranks)
{
    for (const struct grid *g = w->cuda ? cuda_grid : host_grid; g->family; g++) {
        const char *batches = w->quick ? g->quick : g->full;
        json_t *c = batches ? grid_config(g, w->cuda) : NULL;
        struct model m;
        int rc;
        if (!batches)
            continue;
        if (!c)
            return fail("out of memory");
        rc = model_from_config(c, "the grid", &m);
        json_decref(c);
        if (rc < 0)
            return -1;
        snprintf(m.name, sizeof m.name, "%s of width %d", g->family, g->width);
        rc = add_model(l, w, &m, w->micro_batches ? w->micro_batches : batches, w->seq, nranks);
        model_free(&m);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ---- collectives ---- */

static struct bench_item *add_coll(struct bench_list *l, enum coll_op op, enum coll_algo algo, enum dtype t,
                                   double weight, bool coarse)
{
    struct bench_item *i = add(l, BENCH_COLL, weight);

    i->op = op;
    i->algo = algo;
    i->dtype = t;
    i->step = coarse ? 2 : 0;
    i->largest = coarse ? 64 << 20 : 256 << 20;
    snprintf(i->what, sizeof i->what, "%s, %s, %s", coll_name(op), coll_algo_name(algo), dtype_name(t));
    return i;
}

static void add_rings(struct bench_list *l, const struct bench_wish *w)
{
    static const enum coll_op ops[] = { COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_BROADCAST,
                                        COLL_REDUCE };
    static const enum coll_op rooted[] = { COLL_BROADCAST, COLL_SCATTER, COLL_GATHER, COLL_REDUCE };

    for (int i = 0; i < 5; i++)
        add_coll(l, ops[i], ALGO_RING, DT_FP32, w->quick ? 1.5 : 8, w->quick);
    for (int t = 0; t < NDTYPE; t++)            /* sums of 16-bit numbers */
        for (int i = 0; t != DT_FP32 && w->precision[t] && i < 2; i++)
            add_coll(l, ops[i], ALGO_RING, (enum dtype)t, w->quick ? 1.5 : 8, w->quick);
    for (int i = 0; !w->cuda && i < 4; i++)
        add_coll(l, rooted[i], ALGO_SERVER, DT_FP32, w->quick ? 1 : 4, true);
}

/* Groups of hybrid sharding, all of them busy at once: of neighbours, and of every so many-th rank. */
static void add_groups(struct bench_list *l, const struct bench_wish *w, int nranks)
{
    static const enum coll_op ops[] = { COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER };

    for (int g = 2; g < nranks; g++)
        for (int i = 0; nranks % g == 0 && i < 3; i++)
            for (int strided = 0; strided < 2; strided++) {
                struct bench_item *item = add_coll(l, ops[i], ALGO_RING, DT_FP32, w->quick ? 1 : 4, true);
                item->group = g;
                item->strided = strided;
                snprintf(item->what, sizeof item->what, "%s in groups of %d%s", coll_name(ops[i]), g,
                         strided ? ", strided" : "");
            }
}

/* What tensor, context and pipeline parallelism ask for beyond sums and gathers: messages of neighbours, and of ranks half
 * of the world apart, which on two nodes are on either side; parts from each rank to each.  Where both kinds of pairs
 * lie alike the second finds its series there. */
static void add_exchanges(struct bench_list *l, const struct bench_wish *w, int nranks)
{
    bool coarse = w->quick;

    for (int strided = 0; strided < (nranks % 2 == 0 && nranks > 2 ? 2 : 1); strided++) {
        struct bench_item *item = add_coll(l, COLL_SEND, ALGO_RING, DT_FP32, coarse ? 1 : 5, coarse);
        item->group = 2;
        item->strided = strided;
        snprintf(item->what, sizeof item->what, "messages between %s", strided ? "ranks half the world apart" : "neighbours");
    }
    for (int g = nranks; g >= 2; g--)
        for (int strided = 0; nranks % g == 0 && strided < (g < nranks ? 2 : 1); strided++) {
            struct bench_item *item = add_coll(l, COLL_ALL_TO_ALL, ALGO_RING, DT_FP32, coarse ? 1 : 4, g < nranks || coarse);
            item->group = g < nranks ? g : 0;
            item->strided = strided;
            if (g < nranks)
                snprintf(item->what, sizeof item->what, "all-to-all in groups of %d%s", g, strided ? ", strided" : "");
        }
}

static void add_algorithms(struct bench_list *l, int nranks)
{
    static const enum coll_op ops[] = { COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_BROADCAST };
    static const enum coll_algo algos[] = { ALGO_DIRECT, ALGO_HALVING, ALGO_LIBRARY };

    for (int a = 0; a < 3; a++)
        for (int i = 0; i < 4; i++)
            if (algos[a] != ALGO_HALVING || (nranks & (nranks - 1)) == 0)
                add_coll(l, ops[i], algos[a], DT_FP32, 3, true);
}

/* ---- all ---- */

static void add_passes(struct bench_list *l, const struct bench_wish *w, enum bench_kind kind, double weight)
{
    for (int t = 0; t < NDTYPE; t++)
        if (w->precision[t]) {
            struct bench_item *i = add(l, kind, weight);
            i->dtype = (enum dtype)t;
            i->largest = (w->quick ? 16 << 20 : 64 << 20) * (w->cuda ? 4 : 1);
            snprintf(i->what, sizeof i->what, "%s, %s", kind == BENCH_PASSES ? "copies, sums, AdamW" : "overlap",
                     dtype_name(i->dtype));
        }
}

/* The host's AdamW by threads, and its disk: all ranks together write and read so many bytes at most. */
static void add_beyond_device(struct bench_list *l, const struct bench_wish *w, int nranks)
{
    static const int64_t DISK_QUICK = 128 << 20, DISK_FULL = 1 << 30, ADAMW = 64 << 20;
    struct bench_item *i = add(l, BENCH_HOST, w->quick ? 1 : 4);

    i->largest = ADAMW;
    snprintf(i->what, sizeof i->what, "AdamW of the host's threads");
    if (!w->disk)
        return;
    i = add(l, BENCH_DISK, w->quick ? 2 : 12);
    i->folder = w->disk;
    i->queues = !w->quick;
    i->largest = (w->quick ? DISK_QUICK : DISK_FULL) / nranks;
    snprintf(i->what, sizeof i->what, "files in %s", w->disk);
}

int bench_list(const struct bench_wish *w, int nranks, struct bench_list *out)
{
    *out = (struct bench_list){ .item = calloc(MOST_ITEMS, sizeof *out->item),
                                .plan = calloc(MOST_PLANS, sizeof *out->plan) };
    if (!out->item || !out->plan)
        abort();
    snprintf(add(out, BENCH_OWN, w->quick ? 1.5 : 3)->what, sizeof out->item->what, "the executor's own time");
    if ((w->models ? add_models(out, w, nranks) : add_grid(out, w, nranks)) < 0) {
        bench_list_free(out);
        return -1;
    }
    add_passes(out, w, BENCH_PASSES, w->quick ? 4 : 20);
    add_beyond_device(out, w, nranks);
    bool carries = nranks > 1 && (!w->cuda || w->carries);
    if (carries)
        add_rings(out, w);
    if (carries || w->cuda)             /* of one device: beside copies */
        add_passes(out, w, BENCH_OVERLAP, w->quick ? 8 : carries ? 30 : 10);
    if (carries) {
        add_groups(out, w, nranks);
        add_exchanges(out, w, nranks);
    }
    if (carries && !w->quick && !w->cuda)
        add_algorithms(out, nranks);
    return 0;
}

void bench_list_free(struct bench_list *l)
{
    for (int i = 0; i < l->nplans; i++)
        plan_free(&l->plan[i]);
    free(l->plan);
    free(l->item);
    memset(l, 0, sizeof *l);
}
