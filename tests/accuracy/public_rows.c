/* public_rows.c -- from a published row to a plan, its prediction, and the scores.
 *
 * llm-foundry (scripts/train/benchmarking): MPT with erf GELU, learned positions as long as
 * the sequence, tied head; FSDP1 by blocks, backward_prefetch BACKWARD_POST, gather limiter,
 * every micro-step reduces since composer wraps blocks, not the model (dist_strategy.py);
 * gradients clipped at 1; DecoupledAdamW in eight passes (composer/optim).  Parameters and,
 * before composer#2628 (October 2023), gradients travel in bf16 under DEFAULT as under PURE;
 * the table of 128 GPUs and more is of January 2024 and reduces in fp32.  Its loss is flash-attn's fused
 * cross-entropy (loss_fn fused_crossentropy); the two training metrics of every micro-batch (LanguageCrossEntropy,
 * LanguagePerplexity under autocast, behind backward) move 14 bytes a logit each: the logits read and cast, log_softmax,
 * its result read.  They are no part of a plan: their time is added here.  attn_impl defaults to FlashAttention 1 in Triton
 * (submit_benchmarks.py); llm-foundry#838, the large table, installed FlashAttention 2.4.2.
 *
 * torchtitan: FSDP2 by blocks, reduce fp32, clipped at 1.  Its H100 has 96 GB of HBM2e, 2.4 TB/s, limited to 500 W where that is stated.
 * "selective (op)" is recompute "op", which its llama_7b.toml of March 2024 had as well; a layer's is every second
 * block.  Its rotary embedding multiplies complex numbers in fp32, which inductor leaves to PyTorch's own kernels
 * ("does not support code generation for complex operators"): cast, product and cast back move 20 bytes an element of q
 * and k where a fused kernel moves 4; the time of the other 16 is added.  Its loss was not compiled before April 2025.
 * Rows in float8: torchao's tensorwise scales unless they say rowwise, the head left out.  Of the published tables the command is not stated:
 * float8 gathers with precomputed scales are taken, as docs/float8.md of that commit recommends and the 405B config has them; of commit messages
 * what their commands and logs say (PR #808: both; #833: gathers alone; #812, #820: neither).  405B's local batch is cut into as many
 * micro-batches as the pipeline has ranks, torchtitan's default at that commit (9dec370, pipelining_utils.py: n_microbatches =
 * pipeline_parallel_degree; one sample each since torchtitan fadafba8, April 2025); of its interleaved schedule two stages a rank, the
 * default there.
 * Its "SP" of March 2024 is tensor parallelism with the sequence and, since torchtitan#112, the loss cut as well.
 * Before torchtitan#391 (12 June 2024, "del logits ... to save 3.9G memory") its loop kept the model's output, `self.output(h).float()`,
 * in a variable until the next step had its own: 4 bytes a logit, no part of a plan, which memory_rows.h adds.
 * From torchtitan#701 (26 November 2024) to #820 (6 February 2025, "Remove abs from save list for per op AC") a block that recomputes by operator
 * kept what abs() and max() gave: in eager float8 a copy in bf16 of every product's input and weight.  It is added, and their kernels are not repeated.
 * AdamW is foreach unless a row says fused=True (optimizer.fused was false by default until April 2025). */
#include "tests/accuracy/public_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/price/flops.h"
#include "sim/price/kernel_cost.h"
#include "tests/accuracy/csv_table.h"

/* ---- reading ---- */

static void read_llm_foundry(const struct table *t, struct public_row *r)
{
    snprintf(r->model, sizeof r->model, "mpt-%s", get(t, "model"));
    TEXT(r->table, get(t, "table"));
    TEXT(r->gpu, !strncmp(get(t, "gpu"), "h100", 4) ? "h100"
                 : is(t, "gpu", "a100_40gb") ? "a100-40gb" : "a100-80gb");
    r->fsdp1 = true;
    r->sharding = is(t, "sharding_strategy", "SHARD_GRAD_OP") ? FSDP1_SHARD_GRAD_OP : FSDP1_FULL_SHARD;
    r->recompute = is(t, "activation_checkpointing", "True");
    r->recompute_interval = 1;
    r->pure = is(t, "fsdp_mixed_precision", "PURE");
    r->mixed_reduce = r->flash_2 = is(t, "table", "h100-large");
    r->micro_batch = (int64_t)number(t, "microbatch_size");
    r->accumulation = (int64_t)number(t, "grad_accum");
    if (!strcmp(get(t, "precision"), "amp_fp8"))
        TEXT(r->skipped, "fp8");
}

static void read_torchtitan(const struct table *t, struct public_row *r)
{
    bool selective = !strncmp(get(t, "act_ckpt"), "selective", 9);

    bool table = strstr(get(t, "source"), "benchmarks/") != NULL;

    TEXT(r->model, strstr(get(t, "model"), "Llama-7B") ? "llama-2-7b" : strstr(get(t, "model"), "405B") ? "llama-3.1-405b"
                   : strstr(get(t, "model"), "70B") ? "llama-3.1-70b" : "llama-3.1-8b");
    TEXT(r->gpu, strstr(get(t, "gpu"), "A100") ? "a100-80gb" : "h100");
    r->watts = strstr(get(t, "gpu"), "500W") ? 500 : 0;
    TEXT(r->table, "torchtitan");
    r->fsdp1 = !strncmp(get(t, "strategy"), "fsdp1", 5);
    r->sharding = FSDP1_FULL_SHARD;
    r->reshard = is(t, "strategy", "fsdp2_shard_grad_op") ? 0 : 1;
    r->recompute = selective || is(t, "act_ckpt", "full");
    r->by_operator = selective && !strstr(get(t, "act_ckpt"), "layer");
    r->recompute_interval = selective && !r->by_operator ? 2 : 1;
    r->fused_optimizer = strstr(get(t, "notes"), "fused=True") != NULL;
    r->mixed_reduce = true;
    r->compiled = is(t, "compile", "True");
    r->micro_batch = (int64_t)number(t, "micro_batch");
    r->accumulation = 1;
    r->tensor = number(t, "tp") > 1 ? (int64_t)number(t, "tp") : 1;
    r->async_tensor = strstr(get(t, "notes"), "async TP") || strstr(get(t, "notes"), "AsyncTP");
    r->pipeline = number(t, "pp") > 1 ? (int64_t)number(t, "pp") : 1;
    r->interleaved = strstr(get(t, "notes"), "Interleaved") != NULL;
    if (r->pipeline > 1) {
        r->accumulation = r->pipeline;
        r->micro_batch /= r->pipeline;
    }
    if (strstr(get(t, "precision"), "float8"))
        r->float8 = strstr(get(t, "precision"), "rowwise") ? FLOAT8_ROWWISE : FLOAT8_TENSORWISE;
    r->float8_gather = r->float8 == FLOAT8_TENSORWISE && (table || strstr(get(t, "notes"), "float8 all-gather"));
    r->float8_precomputed = r->float8_gather && !strstr(get(t, "source"), "473674acf");
    double unit = strchr(get(t, "mem_unit"), '%') ? 95.0396 / 100 : 1;
    if (strstr(get(t, "mem_metric"), "reserved"))
        r->reserved = number(t, "mem_value") * unit * 0x1p30;
    if (strstr(get(t, "mem2_metric"), "active"))
        r->allocated = number(t, "mem2_value") * unit * 0x1p30;
    const char *date = strstr(get(t, "source"), ", 202");
    r->keeps_logits = date && strcmp(date + 2, "2024-06-12") < 0;
    r->keeps_abs = r->float8 && r->by_operator && !r->compiled && date && strcmp(date + 2, "2024-11-26") >= 0 && strcmp(date + 2, "2025-02-06") < 0;
    if (number(t, "tokens_per_s_per_gpu_hi") > 0)
        r->tokens = (r->tokens + number(t, "tokens_per_s_per_gpu_hi")) / 2;

    if (number(t, "cp") > 1)
        TEXT(r->skipped, "context parallelism of compiled blocks");
    else if (r->gpus == 0)
        TEXT(r->skipped, "number of GPUs not stated");
    else if (strstr(get(t, "notes"), "FlexAttention"))
        TEXT(r->skipped, "FlexAttention");
    else if (strstr(get(t, "notes"), "chunked"))
        TEXT(r->skipped, "chunked loss, of another form than torchtune's");
}

static void read_row(const struct table *t, enum public_source source, struct public_row *r)
{
    r->gpus = (int64_t)number(t, "n_gpus");
    r->seq = (int64_t)number(t, "seq_len");
    r->tokens = number(t, "tokens_per_s_per_gpu");
    TEXT(r->source, get(t, source == PUBLIC_LLM_FOUNDRY ? "table" : "source"));
    (source == PUBLIC_LLM_FOUNDRY ? read_llm_foundry : read_torchtitan)(t, r);
}

int public_read(const char *path, enum public_source source, struct public_set *out)
{
    struct table *t = calloc(1, sizeof *t);
    FILE *in = fopen(path, "r");

    memset(out, 0, sizeof *out);
    out->source = source;
    if (!t || !in || !fgets(t->head, LINE, in)) {
        if (in)
            fclose(in);
        free(t);
        return fail("%s: cannot be read; run from the top of the source tree", path);
    }
    t->names = split(t->head, t->name);
    while (fgets(t->line, LINE, in) && out->n < PUBLIC_ROWS) {
        t->fields = split(t->line, t->field);
        read_row(t, source, &out->row[out->n++]);
    }
    fclose(in);
    free(t);
    return 0;
}

/* ---- plans ---- */

/* The built-in's shape; transformers' GPT-2 with what MPT does otherwise. */
static int mpt(const struct public_row *r, struct model *out)
{
    struct model shape;
    json_t *config;

    if (model_load(r->model, &shape) < 0)
        return -1;
    config = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f}", "model_type", "gpt2",
                       "n_layer", (json_int_t)shape.layers, "n_embd", (json_int_t)shape.hidden,
                       "n_head", (json_int_t)shape.heads, "n_positions", (json_int_t)r->seq,
                       "vocab_size", (json_int_t)shape.vocab, "activation_function", "gelu",
                       "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0);
    model_free(&shape);
    int rc = config ? model_from_config(config, r->model, out) : fail("out of memory");
    json_decref(config);
    return rc;
}

int public_plan(const struct public_set *set, const struct public_row *r, struct plan *out)
{
    bool foundry = set->source == PUBLIC_LLM_FOUNDRY;
    char spec[48];

    memset(out, 0, sizeof *out);
    if ((foundry ? mpt(r, &out->model) : model_load(r->model, &out->model)) < 0)
        return -1;
    if (r->gpus > 8)
        snprintf(spec, sizeof spec, "%dx8x%s", (int)(r->gpus / 8), r->gpu);
    else
        snprintf(spec, sizeof spec, "%dx%s", (int)r->gpus, r->gpu);
    if (cluster_load(spec, &out->cluster) < 0) {
        plan_free(out);
        return -1;
    }
    if (!foundry && !strcmp(r->gpu, "h100")) {
        out->cluster.gpu.hbm = 2.4e12;
        out->cluster.power_limit_w = r->watts;
        out->cluster.memory = (int64_t)(95.04 * 0x1p30) + out->cluster.gpu.reserved;
    }
    out->seq = r->seq;
    out->micro_batch = r->micro_batch;
    plan_defaults(out, STRAT_FSDP, r->fsdp1 ? DIALECT_TORCH_FSDP1 : DIALECT_TORCH, DT_BF16);
    if (foundry)
        TEXT(out->framework_version, r->flash_2 ? "2.2" : r->pure ? "2.0" : "2.1");
    else                                /* torchtrain's comparison with FSDP1 is of April 2024 */
        TEXT(out->framework_version, r->fsdp1 ? "2.2" : "2.5");
    out->accumulation = r->accumulation;
    out->kernels = r->compiled ? KERNELS_TORCH_COMPILE : KERNELS_TORCH_SDPA;
    out->dropout = 0;
    out->clip = 1;
    out->reduce_dtype = r->mixed_reduce ? DT_FP32 : DT_BF16;
    out->recompute = r->by_operator ? RECOMPUTE_OP : r->recompute ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    out->loss = foundry ? LOSS_FUSED : LOSS_FP32;
    out->optimizer_form = r->fused_optimizer ? OPTIMIZER_FUSED : OPTIMIZER_FOREACH;
    out->recompute_interval = r->recompute ? r->recompute_interval : 1;
    out->sync_every_micro_step = true;
    if (r->fsdp1) {
        out->fsdp.sharding_strategy = r->sharding;
        out->fsdp.backward_prefetch = foundry ? PREFETCH_POST : PREFETCH_PRE;
        out->fsdp.limit_all_gathers = true;
    } else {
        out->fsdp.reshard_after_forward = r->reshard;
    }
    if (!foundry && r->tensor > 1) {
        out->parallel.tensor = r->tensor;
        out->parallel.async_tensor = r->async_tensor;
        out->shard_group = r->gpus / r->tensor / r->pipeline;
    }
    if (!foundry && r->pipeline > 1) {
        out->parallel.pipeline = r->pipeline;
        out->parallel.pipeline_schedule = r->interleaved ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
        knob_follow(out, NULL, NULL);
    }
    if (!foundry) {
        out->float8.recipe = r->float8;
        out->fsdp.float8_all_gather = r->float8_gather;
        out->fsdp.float8_precomputed = r->float8_precomputed;
    }
    plan_resolve(out);
    if (plan_check(out, r->model) < 0) {
        plan_free(out);
        return -1;
    }
    return 0;
}

/* ---- prediction ---- */

static enum public_memory memory_of(const struct plan *p, const struct evaluation *e)
{
    if (e->verdict == VERDICT_FITS)
        return MEMORY_FITS;
    if (e->verdict == VERDICT_TIGHT)
        return e->reserved.retries > 0 ? MEMORY_RETRIES : MEMORY_HEADROOM;
    if (e->allocated_peak > p->cluster.memory)
        return MEMORY_ALLOCATED;
    return e->m.needed > p->cluster.memory - p->cluster.context ? MEMORY_CONTEXT : MEMORY_RESERVED;
}

int64_t public_beside(const struct public_row *r, const struct plan *p)
{
    const struct model *m = &p->model;
    int64_t tokens = p->micro_batch * p->seq, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    int64_t abs_of = tokens * (5 * m->hidden + q + m->ffn) + m->hidden * (2 * q + 2 * kv + 3 * m->ffn);

    return (r->keeps_logits ? 4 * tokens * m->vocab : 0) + (r->keeps_abs ? 2 * abs_of * m->layers : 0);
}

/* Of what a rank does in each micro-step, with a pipeline's ends: a rank of p, with v stages, waits for (p - 1) / v micro-steps. */
static double rank_share(const struct plan *p)
{
    const struct parallel_options *of = &p->parallel;
    double steps = (double)p->accumulation, waits = (double)(of->pipeline - 1) / (double)of->virtual_stages;

    return (steps + waits) / steps / (double)(of->tensor * of->pipeline);
}

/* Seconds of a step in llm-foundry's metrics; in torchtitan's rotary kernels under torch.compile, of a rank's heads and layers; less abs() and
 * max(), which were kept. */
static double beside_s(const struct public_set *set, const struct public_row *r, const struct plan *p)
{
    double tokens = (double)(p->micro_batch * p->accumulation * p->seq), passes = p->recompute == RECOMPUTE_NONE ? 2 : 3;
    double rotated = tokens * (double)((p->model.heads + p->model.kv_heads) * p->model.head_dim * p->model.layers);
    struct kernel k = { .name = "metrics", .kind = KC_LOSS, .bytes = (int64_t)(2 * 14 * tokens * (double)p->model.vocab) };
    struct cost c;

    if (p->kernels == KERNELS_TORCH_COMPILE)
        k = (struct kernel){ .name = "complex rotary", .kind = KC_ELEMENTWISE, .bytes = (int64_t)(16 * passes * rotated * rank_share(p)) };
    else if (r->keeps_abs)              /* two bytes kept of an element; abs() reads and writes as many, max() reads them */
        k = (struct kernel){ .name = "abs and max", .kind = KC_ELEMENTWISE, .bytes = 3 * public_beside(r, p) };
    else if (set->source != PUBLIC_LLM_FOUNDRY)
        return 0;
    kernel_cost(&p->cluster.gpu, p->kernels, p->precision, &k, &c);
    return r->keeps_abs ? -c.s : c.s;
}

static int predict(const struct public_set *set, struct public_row *r)
{
    struct plan p;
    struct evaluation e = { 0 };

    if (public_plan(set, r, &p) < 0)
        return -1;
    if (evaluate(&p, &e) < 0 || simulate_plan(&p, &e, &r->t, NULL) < 0) {
        evaluation_free(&e);
        plan_free(&p);
        return -1;
    }
    struct cost_cache *cache = cost_cache_new(&p);
    struct coll_memo memo = { 0 };
    int rc = ties_views(&p, &e, cache, &memo, r->view);
    double world = (double)p.cluster.world_size, batch = (double)(plan_global_batch(&p) * p.seq);
    double more = beside_s(set, r, &p);
    r->predicted = batch / (r->t.line.step_s + more) / world;
    r->low = batch / (r->t.high_s + more) / world;
    r->high = batch / (r->t.low_s + more) / world;
    r->flops = flops_per_token(&p.model, p.seq, FLOPS_PALM);
    r->peak = flops_peak(&p.cluster, p.precision);
    for (int v = 0; v < TIES_VIEWS; v++)
        r->view[v] = (r->view[v] + more) * world / batch;
    r->memory = memory_of(&p, &e);
    r->over = (double)e.reserved.active_peak / (double)e.reserved.limit - 1;
    r->peak_in_head = strstr(e.peak_at, "head") != NULL;
    r->done = true;
    cost_cache_free(cache);
    evaluation_free(&e);
    plan_free(&p);
    return rc;
}

int public_predict(struct public_set *set)
{
    for (int i = 0; i < set->n; i++)
        if (!set->row[i].skipped[0] && predict(set, &set->row[i]) < 0)
            return -1;
    return 0;
}

/* ---- pairs ---- */

const char *public_choice_name(enum public_choice c)
{
    static const char *const names[NCHOICE] = { "recompute", "strategy", "micro-batch", "number of GPUs" };
    return names[c];
}

/* The one choice in which two rows differ; -1: none or more. */
static int one_choice(const struct public_row *a, const struct public_row *b)
{
    const bool differ[NCHOICE] = {
        a->recompute != b->recompute || a->recompute_interval != b->recompute_interval || a->by_operator != b->by_operator,
        a->sharding != b->sharding || a->fsdp1 != b->fsdp1 || a->reshard != b->reshard,
        a->micro_batch != b->micro_batch || a->accumulation != b->accumulation, a->gpus != b->gpus,
    };
    int n = 0, which = -1;

    for (int c = 0; c < NCHOICE; c++)
        if (differ[c])
            which = c, n++;
    return n == 1 && !strcmp(a->model, b->model) && !strcmp(a->gpu, b->gpu) && !strcmp(a->table, b->table) &&
           a->seq == b->seq && a->pure == b->pure && a->float8 == b->float8 && a->pipeline == b->pipeline && a->compiled == b->compiled &&
           a->fused_optimizer == b->fused_optimizer ? which : -1;
}

void public_pairs(const struct public_set *set, struct public_pairs out[NCHOICE])
{
    memset(out, 0, NCHOICE * sizeof *out);
    for (int i = 0; i < set->n; i++)
        for (int j = 0; j < i; j++) {
            const struct public_row *a = &set->row[i], *b = &set->row[j];
            int c = a->done && b->done ? one_choice(a, b) : -1;
            if (c < 0)
                continue;
            double said = b->view[0] - a->view[0], was = 1 / b->tokens - 1 / a->tokens;
            double unsure = ties_unsure_s(a->view, b->view);
            bool tie = fabs(said) <= unsure;
            out[c].n++;
            out[c].ties += tie;
            out[c].right += (said > 0) == (was > 0) || (tie && fabs(was) <= unsure);
        }
}

/* ---- scores ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The q-th quantile, between neighbours in proportion; sorts v. */
static double quantile(double *v, int n, double q)
{
    double at = q * (n - 1);
    int i = (int)at;

    if (n < 1)
        return 0;
    qsort(v, (size_t)n, sizeof *v, by_value);
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

static double mfu(const struct public_row *r, double tokens)
{
    return tokens * r->flops / r->peak;
}

void public_baseline(struct public_set *set)
{
    for (int i = 0; i < set->n; i++) {
        struct public_row *r = &set->row[i];
        double others[PUBLIC_ROWS];
        int n = 0;

        for (int j = 0; r->done && j < set->n; j++) {
            const struct public_row *o = &set->row[j];
            if (o->done && !strcmp(o->gpu, r->gpu) && strcmp(o->model, r->model))
                others[n++] = mfu(o, o->tokens);
        }
        r->baseline = n ? quantile(others, n, 0.5) * r->peak / r->flops : 0;
    }
}

static double guess_of(const struct public_row *r, enum public_guess guess)
{
    return guess == PUBLIC_BASELINE ? r->baseline : r->predicted;
}

double public_error(const struct public_row *r, enum public_guess guess)
{
    return r->tokens / guess_of(r, guess) - 1;
}

/* Kendall's tau-b: concordant less discordant pairs, over those without ties. */
static double tau(const double *x, const double *y, int n)
{
    double agree = 0, nx = 0, ny = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            int a = (x[i] > x[j]) - (x[i] < x[j]), b = (y[i] > y[j]) - (y[i] < y[j]);
            agree += a * b;
            nx += a != 0;
            ny += b != 0;
        }
    return nx > 0 && ny > 0 ? agree / sqrt(nx * ny) : 0;
}

struct public_score public_score(const struct public_set *set, const char *gpu, enum public_guess guess,
                                 bool (*of)(const struct public_row *r, void *arg), void *arg)
{
    struct public_score s = { 0 };
    double off[PUBLIC_ROWS], width[PUBLIC_ROWS], x[PUBLIC_ROWS], y[PUBLIC_ROWS],
           mx[PUBLIC_ROWS], my[PUBLIC_ROWS];

    for (int i = 0; i < set->n; i++) {
        const struct public_row *r = &set->row[i];
        if (!r->done || (gpu && strcmp(gpu, r->gpu)) || (of && !of(r, arg)))
            continue;
        double e = public_error(r, guess);
        off[s.n] = fabs(e);
        s.mape += fabs(e);
        s.bias += e;
        if (fabs(e) > fabs(s.worst))
            s.worst = e;
        s.inside += r->low <= r->tokens && r->tokens <= r->high;
        width[s.n] = (r->t.high_s - r->t.low_s) / r->t.line.step_s;
        x[s.n] = guess_of(r, guess);
        y[s.n] = r->tokens;
        mx[s.n] = mfu(r, x[s.n]);
        my[s.n] = mfu(r, r->tokens);
        s.n++;
    }
    if (!s.n)
        return s;
    s.mape /= s.n;
    s.bias /= s.n;
    s.tau = tau(x, y, s.n);
    s.tau_mfu = tau(mx, my, s.n);
    s.median = quantile(off, s.n, 0.5);
    s.p90 = quantile(off, s.n, 0.9);
    s.width = quantile(width, s.n, 0.5);
    return s;
}
