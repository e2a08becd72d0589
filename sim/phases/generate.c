/* generate.c -- see generate.h. */
#include "sim/phases/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "sim/price/coll_cost.h"
#include "sim/price/gemm_cost.h"
#include "sim/price/gpu_rates.h"

/* Of the engine's time that the GPU works, at least (generate.h). */
#define BUSY_LEAST (1 - 0.33 - 0.29)
enum { MOST_SEQUENCES = 1000000, PRODUCTS = 16 };

/* ---- one token of each of b sequences ---- */

struct product { int64_t n, k, count; };

struct decoder {
    const struct engine *e;
    const struct model *m;
    const struct cluster *c;
    struct gemm_device device;
    struct product products[PRODUCTS];
    int nproducts;
    double expert_bytes, expert_flops;      /* of all experts on this GPU; of one token in the experts that it takes, on this GPU */
    double bandwidth;
    double kv_token;
    double *step;                           /* seconds of b sequences without their context, b = 1 ...; 0: not yet priced */
};

static void add_product(struct decoder *d, int64_t n, int64_t k)
{
    int i = 0;

    while (i < d->nproducts && (d->products[i].n != n || d->products[i].k != k))
        i++;
    if (i == PRODUCTS)
        i--;                        /* no family has as many shapes */
    if (i == d->nproducts)
        d->products[d->nproducts++] = (struct product){ n, k, 0 };
    d->products[i].count++;
}

/* Products of one tensor of two dimensions, the engine's share; of fused ones each on its own, which is the dearer. */
static void add_tensor(struct decoder *d, const struct tensor *t)
{
    int64_t tensor = d->e->tensor, in = t->in_out ? t->shape[0] : t->shape[1], out = t->in_out ? t->shape[1] : t->shape[0];
    int64_t keys = d->m->kv_heads < tensor ? d->m->kv_heads : tensor;

    switch (t->role) {
    case ROLE_TOKENS:
        if (d->m->tied)
            add_product(d, out / tensor, in);
        break;
    case ROLE_POSITIONS:
        break;
    case ROLE_ATTN_OUT: case ROLE_DOWN: case ROLE_SHARED_DOWN:
        add_product(d, out, in / tensor);
        break;
    case ROLE_K: case ROLE_V:
        add_product(d, out / keys, in);
        break;
    case ROLE_Q_A: case ROLE_KV_A: case ROLE_ROUTER: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT:
        add_product(d, out, in);
        break;
    default:
        add_product(d, out / tensor, in);
    }
}

static void decoder_open(struct decoder *d, const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t slots)
{
    double share = m->experts ? (double)m->experts_used / (double)m->experts : 0;

    memset(d, 0, sizeof *d);
    d->e = e;
    d->m = m;
    d->c = c;
    d->device = gemm_device(&c->gpu, e->weights);
    d->bandwidth = gpu_stream(&c->gpu);
    d->kv_token = (double)mem->kv_token;
    d->step = room_new((size_t)slots + 1, sizeof *d->step);
    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (t->adapter != ADAPTER_NONE || t->depth > 0)
            continue;
        if (t->ndim == 2)
            add_tensor(d, t);
        if (role_is_of_experts(t->role) && t->ndim == 3) {
            d->expert_bytes += (double)t->numel * (double)dtype_bytes(e->weights) / (double)e->tensor;
            d->expert_flops += 2 * (double)t->numel * share / (double)e->tensor;
        }
    }
}

static double products_of(const struct decoder *d, int64_t rows)
{
    int64_t wide = dtype_bytes(d->e->weights);
    double s = 0;

    for (int i = 0; i < d->nproducts; i++) {
        int64_t n = d->products[i].n, k = d->products[i].k;
        struct gemm g = { .batch = 1, .m = rows, .n = n, .k = k, .bytes = (rows * k + k * n + rows * n) * wide };
        s += (double)d->products[i].count * gemm_prior(&d->device, &g, NULL);
    }
    if (d->m->experts) {
        double chosen = 1 - pow(1 - (double)d->m->experts_used / (double)d->m->experts, (double)rows);
        s += fmax(chosen * d->expert_bytes / d->bandwidth, d->expert_flops * (double)rows / d->device.flops);
    }
    return s;
}

/* -1: reported. */
static double all_reduces_of(const struct decoder *d, int64_t rows)
{
    struct cost one;
    int64_t tensor = d->e->tensor;

    if (tensor == 1)
        return 0;
    if (coll_cost(d->c, COLL_ALL_REDUCE, tensor, tensor, rows * d->m->hidden * dtype_bytes(d->e->weights), &one) < 0)
        return -1;
    return 2 * (double)d->m->layers * one.s;
}

static double step_of(struct decoder *d, int64_t rows)
{
    if (!(d->step[rows] > 0))
        d->step[rows] = products_of(d, rows) + all_reduces_of(d, rows);
    return d->step[rows];
}

/* ---- all sequences of one engine ---- */

/* A sequence that runs: the step at which it ends, and its own tokens then. */
struct running { double end, length; };

/* The earliest end comes first. */
static void heap_put(struct running *heap, int64_t n, struct running x)
{
    int64_t i = n;

    for (; i > 0 && heap[(i - 1) / 2].end > x.end; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static struct running heap_take(struct running *heap, int64_t n)
{
    struct running first = heap[0], last = heap[n - 1];
    int64_t i = 0;

    for (int64_t next; (next = 2 * i + 1) < n - 1; i = next) {
        next += next + 1 < n - 1 && heap[next + 1].end < heap[next].end;
        if (heap[next].end >= last.end)
            break;
        heap[i] = heap[next];
    }
    heap[i] = last;
    return first;
}

/* Bits of i the other way round, as a fraction: lengths come in no order, each stretch with all of them. */
static double spread_out(uint32_t i)
{
    double x = 0, unit = 0.5;

    for (; i; i >>= 1, unit /= 2)
        x += unit * (double)(i & 1);
    return x;
}

/* Of so many spread_out() is largest of this one. */
static int64_t largest_of(int64_t n)
{
    int64_t ones = 1;

    while (2 * ones + 1 <= n)
        ones = 2 * ones + 1;
    return (n == 1 ? 0 : ones < n ? ones : ones / 2);
}

static double length_of(int64_t i, int64_t sequences, int64_t all, const struct lengths *l)
{
    double u = i == largest_of(sequences) ? 1 - 0.5 / (double)all : fmin(1, spread_out((uint32_t)i) + 0.5 / (double)sequences);

    return fmax(1, lengths_quantile(l, u));
}

/* Between two ends the batch is the same and its context grows by one token a sequence and step. */
static void decode(struct decoder *d, int64_t sequences, int64_t all, double prompt, const struct lengths *l, struct generation *out)
{
    struct running *heap = room_new((size_t)out->slots, sizeof *heap);
    double at = 0, context = 0;
    int64_t n = 0, begun = 0;

    while (begun < sequences || n > 0) {
        for (; begun < sequences && n < out->slots; begun++) {
            double length = length_of(begun, sequences, all, l);
            heap_put(heap, n++, (struct running){ at + length, length });
            context += prompt;
        }
        double steps = heap[0].end - at, b = (double)n;
        double s = steps * step_of(d, n) + d->kv_token / d->bandwidth * (steps * context + b * steps * steps / 2);
        out->decode_s += s;
        out->tail_s += begun < sequences ? 0 : s;
        context += b * steps;
        at = heap[0].end;
        while (n > 0 && heap[0].end <= at)
            context -= prompt + heap_take(heap, n--).length;
    }
    out->steps = at;
    free(heap);
}

/* Attention of a prompt to itself, behind the causal mask; half of a square of scores, two products. */
static double attention_of(const struct decoder *d, double prompt)
{
    const struct gpu_rates *rates = gpu_rates(&d->c->gpu);
    double flops = 2 * (double)(d->m->layers * d->m->heads * d->m->head_dim / d->e->tensor) * prompt * prompt;

    return flops / (gpu_peak(&d->c->gpu, d->e->weights) * rates->attention[FLASH_2]);
}

int generate(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t sequences,
             int64_t all, int64_t of_prompt, double prompt, const struct lengths *l, struct generation *out)
{
    const struct gpu_rates *rates = gpu_rates(&c->gpu);
    struct decoder d;

    memset(out, 0, sizeof *out);
    if (lengths_check(l) < 0)
        return -1;
    if (sequences < 1 || sequences > MOST_SEQUENCES)
        return fail("generate: %lld responses of one engine: at least 1, at most %d", (long long)sequences, MOST_SEQUENCES);
    if ((double)mem->kv_tokens < prompt + l->longest)
        return fail("generate: the KV cache holds %lld tokens, and the longest sequence has %.0f", (long long)mem->kv_tokens, prompt + l->longest);
    int64_t room = (int64_t)((double)mem->kv_tokens / (prompt + lengths_age(l)));
    out->slots = room < e->sequences ? room : e->sequences;
    out->slots = out->slots < sequences ? out->slots : sequences;
    decoder_open(&d, e, mem, m, c, out->slots);
    if (all_reduces_of(&d, 1) < 0) {
        free(d.step);
        return -1;
    }
    double prompts = ceil((double)sequences / (double)(of_prompt > 0 ? of_prompt : 1)), tokens = prompt * prompts;
    int64_t chunk = (int64_t)fmin(tokens, (double)e->batched_tokens);
    if (chunk > 0)
        out->prefill_s = tokens / (double)chunk * (products_of(&d, chunk) + all_reduces_of(&d, chunk)) + prompts * attention_of(&d, prompt);
    decode(&d, sequences, all, prompt, l, out);
    free(d.step);
    double s = out->prefill_s + out->decode_s, spread = fmax(rates->gemm_spread, rates->hbm_spread);
    out->time = (struct cost){ .s = s, .low_s = s / spread, .high_s = s / BUSY_LEAST, .basis = rates->basis };
    out->tokens_per_s = (double)sequences * l->mean / s;
    return 0;
}
