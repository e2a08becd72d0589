/* engine_step.c -- see engine_step.h. */
#include "sim/phases/engine_step.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/price/coll_cost.h"
#include "sim/price/gemm_cost.h"
#include "sim/price/gpu_rates.h"
#include "sim/price/kernel_cost.h"

enum { PRODUCTS = 32 };

/* In units of issue_cost.c, of a sequence and step: tests/bench/engine_cost.py on a CPU (vLLM 0.11.2, torch 2.15, 29 November 2026; medians of three
 * runs of 64 to 256 sequences: 1.46 to 2.33, 0.27 to 0.44, 0.23 to 0.41, 1.15 to 1.59).  SGLang's were not timed, and are taken to be as dear. */
#define HOST_CORE     1.6
#define HOST_OUTPUTS  0.30
#define HOST_MESSAGE  0.24
#define HOST_FRONTEND 1.3
/* And of a step: copies and small kernels that GPUModelRunner issues before the model (_prepare_inputs(), _build_attention_metadata(): seven
 * tensors copied, slots, query starts, positions, the attention's metadata, the graph), counted in vLLM 0.11.2. */
#define HOST_STEP     20
/* Kernels of a layer beside products and all-reduces, of vLLM 0.11.2's models: two norms, rotary embedding, cache, attention, activation; two norms
 * of queries and keys; of a mixture the routing, two that sort rows by expert, the experts' two products and the sum of what they return. */
#define SMALL         6
#define SMALL_NORMS   2
#define SMALL_EXPERTS 6
/* Bytes of a logit that sampling moves (v1/sample/sampler.py: to fp32 6, temperature 8, softmax 8, exponential_() 4, quotient and argmax 16), and
 * for log-probabilities of the sampled token (log_softmax 8, the rank of it 6). */
#define SAMPLED_BYTES (6 + 8 + 8 + 4 + 16 + 8 + 6)
#define SMALL_LAUNCH  2e-6

struct product { int64_t n, k, count; };

struct engine_steps {
    const struct engine *e;
    const struct model *m;
    const struct cluster *c;
    struct gemm_device device;
    struct product products[PRODUCTS];
    int nproducts;
    double small;                           /* kernels beside products */
    double expert_bytes, expert_flops;      /* of all experts on this GPU; of one token in the experts that it takes, on this GPU */
    double bandwidth;
    double kv_token;
    double unit;                            /* seconds of a kernel that a thread issues */
    double *gpu;                            /* seconds of b sequences without their context, b = 1 ...; 0: not yet priced */
};


static void add_product(struct engine_steps *d, int64_t n, int64_t k)
{
    int i = 0;

    while (i < d->nproducts && (d->products[i].n != n || d->products[i].k != k))
        i++;
    assert(i < PRODUCTS);           /* a shape for each kind of tensor at most */
    if (i == d->nproducts)
        d->products[d->nproducts++] = (struct product){ n, k, 0 };
    d->products[i].count++;
}

/* Products of one tensor of two dimensions, the engine's share; of fused ones each on its own, which is the dearer. */
static void add_tensor(struct engine_steps *d, const struct tensor *t)
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

static int norms_of_queries(const struct model *m)
{
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].role == ROLE_Q_NORM)
            return SMALL_NORMS;
    return 0;
}

struct engine_steps *engine_steps_new(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t most)
{
    double share = m->experts ? (double)m->experts_used / (double)m->experts : 0;
    struct engine_steps *d = room_new(1, sizeof *d);

    *d = (struct engine_steps){ .e = e, .m = m, .c = c, .device = gemm_device(&c->gpu, e->weights), .bandwidth = gpu_stream(&c->gpu),
                                .kv_token = (double)mem->kv_token, .unit = issue_unit_of(c) };
    d->gpu = room_new((size_t)most + 1, sizeof *d->gpu);
    d->small = (double)(m->layers * (SMALL + norms_of_queries(m) + (m->experts ? SMALL_EXPERTS : 0)));
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
    return d;
}

void engine_steps_free(struct engine_steps *d)
{
    if (d)
        free(d->gpu);
    free(d);
}

static double products_of(const struct engine_steps *d, int64_t rows)
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
static double all_reduces_of(const struct engine_steps *d, int64_t rows)
{
    struct cost one;
    int64_t tensor = d->e->tensor;

    if (tensor == 1)
        return 0;
    if (coll_cost(d->c, COLL_ALL_REDUCE, tensor, engine_ranks_of_a_node(d->e, d->c), rows * d->m->hidden * dtype_bytes(d->e->weights), &one) < 0)
        return -1;
    return 2 * (double)d->m->layers * one.s;
}

int engine_steps_check(const struct engine_steps *d) { return all_reduces_of(d, 1) < 0 ? -1 : 0; }

/* Each rank gathers all logits and samples for itself (model_executor/layers/logits_processor.py: _gather_logits()). */
static double sampling_of(const struct engine_steps *d, int64_t rows)
{
    double logits = (double)rows * (double)d->m->vocab;
    struct cost gather = { 0 };

    if (d->e->tensor > 1 && coll_cost(d->c, COLL_ALL_GATHER, d->e->tensor, engine_ranks_of_a_node(d->e, d->c), (int64_t)logits * dtype_bytes(d->e->weights), &gather) < 0)
        return -1;
    return gather.s + logits * SAMPLED_BYTES / d->bandwidth;
}

double engine_step_gpu(struct engine_steps *d, int64_t n)
{
    if (!(d->gpu[n] > 0))
        d->gpu[n] = products_of(d, n) + all_reduces_of(d, n) + d->small * SMALL_LAUNCH + sampling_of(d, n);
    return d->gpu[n];
}

double engine_context_s(const struct engine_steps *d, double tokens) { return tokens * d->kv_token / d->bandwidth; }

/* Without graphs each kernel is issued by itself, products and all-reduces too. */
static double issued_one_by_one(const struct engine_steps *d)
{
    double kernels = d->small;

    for (int i = 0; i < d->nproducts; i++)
        kernels += (double)d->products[i].count;
    return d->e->eager ? (kernels + 2 * (double)d->m->layers) * d->unit : 0;
}

double engine_step_s(struct engine_steps *d, int64_t n, double context)
{
    bool within = d->e->driven == DRIVEN_WITHIN;
    double gpu = engine_step_gpu(d, n) + engine_context_s(d, context), b = (double)n;
    double core = (b * (HOST_CORE + (within ? HOST_OUTPUTS : HOST_MESSAGE)) + HOST_STEP) * d->unit;
    double beside = within ? 0 : b * (d->e->driven == DRIVEN_ASYNC ? HOST_FRONTEND : HOST_OUTPUTS + HOST_MESSAGE) * d->unit;

    gpu = fmax(gpu, issued_one_by_one(d));
    return fmax(d->e->overlaps > 0 ? fmax(core, gpu) : core + gpu, beside);
}

double engine_prompt_s(const struct engine_steps *d, double tokens)
{
    int64_t chunk = (int64_t)fmin(tokens, (double)d->e->batched_tokens);

    return chunk < 1 ? 0 : tokens / (double)chunk * (products_of(d, chunk) + all_reduces_of(d, chunk));
}

/* Attention of a prompt to itself, behind the causal mask; half of a square of scores, two products. */
double engine_attention_s(const struct engine_steps *d, double prompt)
{
    const struct gpu_rates *rates = gpu_rates(&d->c->gpu);
    double flops = 2 * (double)(d->m->layers * d->m->heads * d->m->head_dim / d->e->tensor) * prompt * prompt;

    return flops / (gpu_peak(&d->c->gpu, d->e->weights) * rates->attention[FLASH_2]);
}
