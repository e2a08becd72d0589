/* engine_step.c -- see engine_step.h. */
#include "sim/phases/engine_step.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "base/size.h"
#include "sim/phases/engine_weights.h"
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

struct product { int64_t n, k, count; double bytes; };     /* bytes of its weight */

/* Layers of one stage of a pipeline; all of them where there is none. */
struct stage {
    struct product products[PRODUCTS];
    int    nproducts, mixtures;             /* layers of experts */
    int64_t layers;
    bool   last;
    double small;                           /* kernels beside products */
    double expert_bytes, expert_flops;      /* of all experts on this GPU; of one token in the experts that it takes, on this GPU */
};

struct engine_steps {
    const struct engine *e;
    const struct model *m;
    const struct cluster *c;
    struct gemm_device device, coded;       /* of products in 16 bits; of those of quantised weights */
    struct stage *stage;
    double bandwidth;
    double kv_token;
    double unit;                            /* seconds of a kernel that a thread issues, and of as much Python */
    double *gpu;                            /* seconds of b sequences without their context, b = 1 ...; 0: not yet priced */
};

static void add_product(struct stage *d, int64_t n, int64_t k, double bytes)
{
    int i = 0;

    while (i < d->nproducts && (d->products[i].n != n || d->products[i].k != k || d->products[i].bytes != bytes))
        i++;
    assert(i < PRODUCTS);           /* a shape for each kind of tensor at most */
    if (i == d->nproducts)
        d->products[d->nproducts++] = (struct product){ n, k, 0, bytes };
    d->products[i].count++;
}

/* Products of one tensor of two dimensions, the engine's share; of fused ones each on its own, which is the dearer. */
static void add_tensor(const struct engine_steps *of, struct stage *d, const struct tensor *t)
{
    int64_t tensor = of->e->tensor, k = t->in_out ? t->shape[0] : t->shape[1], n = t->in_out ? t->shape[1] : t->shape[0];

    switch (t->role) {
    case ROLE_TOKENS:
        if (!of->m->tied || !d->last)
            return;
        n /= tensor;
        break;
    case ROLE_POSITIONS:
        return;
    case ROLE_ATTN_OUT: case ROLE_DOWN: case ROLE_SHARED_DOWN:
        k /= tensor;
        break;
    case ROLE_K: case ROLE_V:
        n /= of->m->kv_heads < tensor ? of->m->kv_heads : tensor;
        break;
    case ROLE_Q_A: case ROLE_KV_A: case ROLE_ROUTER: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT:
        break;
    default:
        n /= tensor;
    }
    add_product(d, n, k, engine_bytes(of->e, t, (double)(n * k)));
}

static int norms_of_queries(const struct model *m)
{
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].role == ROLE_Q_NORM)
            return SMALL_NORMS;
    return 0;
}

static enum scaled scaled_of(const struct engine_steps *d)
{
    enum scaled s = d->e->codes == CODES_FP8 ? SCALED_FP8_TENSOR : d->e->codes == CODES_FP8_BLOCK ? SCALED_FP8_BLOCK : SCALED_NONE;

    return gpu_lacks_scaled(&d->c->gpu, s) ? SCALED_NONE : s;
}

/* Products in fp8 run at their own rate, where a GPU has one; else weights alone are narrow (Marlin), and the product is in 16 bits. */
static struct gemm_device coded_device(const struct engine_steps *d)
{
    const struct gpu *g = &d->c->gpu;
    struct gemm_device to = d->device;
    enum scaled s = scaled_of(d);
    bool published;

    if (s != SCALED_NONE)
        to.flops *= gpu_scaled_peak(g, s) * gpu_scaled_share(g, s, &published) / gpu_peak(g, d->e->weights);
    return to;
}

static void open_stage(struct engine_steps *d, int64_t i)
{
    const struct model *m = d->m;
    struct engine_stage s = engine_stage(d->e, m, i);
    struct stage *to = &d->stage[i];
    double share = m->experts ? (double)m->experts_used / (double)m->experts : 0;

    to->layers = s.to - s.from;
    to->last = s.last;
    to->small = (double)(to->layers * (SMALL + norms_of_queries(m) + (m->experts ? SMALL_EXPERTS : 0)));
    for (int k = 0; k < m->ntensors; k++) {
        const struct tensor *t = &m->tensors[k];
        if (t->adapter != ADAPTER_NONE || t->depth > 0 || !engine_has(&s, m, t))
            continue;
        if (t->ndim == 2)
            add_tensor(d, to, t);
        if (role_is_of_experts(t->role) && t->ndim == 3) {
            to->expert_bytes += engine_bytes(d->e, t, (double)engine_share(d->e, m, t));
            to->expert_flops += 2 * (double)t->numel * share / (double)d->e->tensor;
            to->mixtures += t->role == ROLE_EXPERTS_OUT;
        }
        to->small += scaled_of(d) != SCALED_NONE && engine_is_coded(d->e, t) ? 1 : 0;     /* its input is rounded before */
    }
}

struct engine_steps *engine_steps_new(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t most)
{
    struct engine_steps *d = room_new(1, sizeof *d);

    *d = (struct engine_steps){ .e = e, .m = m, .c = c, .device = gemm_device(&c->gpu, e->weights), .bandwidth = gpu_stream(&c->gpu),
                                .kv_token = (double)mem->kv_token, .unit = issue_unit_of(c) };
    d->coded = coded_device(d);
    d->gpu = room_new((size_t)most + 1, sizeof *d->gpu);
    d->stage = room_new((size_t)e->pipeline, sizeof *d->stage);
    for (int64_t i = 0; i < e->pipeline; i++)
        open_stage(d, i);
    return d;
}

void engine_steps_free(struct engine_steps *d)
{
    if (d) {
        free(d->gpu);
        free(d->stage);
    }
    free(d);
}

/* How often attention is there: each of them has rows of its own, and the experts have all of them. */
static double replicas(const struct engine *e) { return e->expert > e->tensor ? (double)(e->expert / e->tensor) : 1; }

/* Of `worst` the narrow weights are made into wide ones first, which are written and read (awq.py: awq_dequantize()), and multiplied as such; all
 * experts are read, and all rows go to one of the ranks that share them out. */
static double products_of(const struct engine_steps *d, const struct stage *s, int64_t rows, bool worst)
{
    int64_t wide = dtype_bytes(d->e->weights);
    double all = (double)rows * replicas(d->e), sum = 0;

    for (int i = 0; i < s->nproducts; i++) {
        int64_t n = s->products[i].n, k = s->products[i].k;
        double plain = (double)(k * n * wide), bytes = s->products[i].bytes;
        bool coded = bytes < plain;
        struct gemm g = { .batch = 1, .m = rows, .n = n, .k = k, .bytes = (rows * k + rows * n) * wide + (int64_t)(worst ? plain : bytes) };
        sum += (double)s->products[i].count * gemm_prior(coded && !worst ? &d->coded : &d->device, &g, NULL);
        sum += coded && worst ? (double)s->products[i].count * (bytes + plain) / d->bandwidth : 0;
    }
    if (s->mixtures) {
        double chosen = worst ? 1 : 1 - pow(1 - (double)d->m->experts_used / (double)d->m->experts, all), flops = d->e->codes == CODES_NONE || worst ? d->device.flops : d->coded.flops;
        double busiest = worst && d->e->expert > 1 ? (double)d->e->expert : 1;
        sum += fmax(chosen * s->expert_bytes / d->bandwidth, busiest * s->expert_flops * all / replicas(d->e) / flops);
    }
    return sum;
}

/* -1: reported. */
static double coll(const struct engine_steps *d, enum coll_op op, int64_t ranks, int64_t per_node, double bytes)
{
    struct cost one = { 0 };

    return ranks < 2 ? 0 : coll_cost(d->c, op, ranks, per_node < 1 ? 1 : per_node < ranks ? per_node : ranks, (int64_t)bytes, &one) < 0 ? -1 : one.s;
}

/* Two all-reduces a layer; where attention is replicated the rows of all go to where the experts are and back (all2all_backend
 * allgather_reducescatter). */
static double collectives_of(const struct engine_steps *d, const struct stage *s, int64_t rows)
{
    const struct engine *e = d->e;
    double bytes = (double)(rows * d->m->hidden * dtype_bytes(e->weights)), copies = replicas(e);
    double reduce = coll(d, COLL_ALL_REDUCE, e->tensor, engine_ranks_of_a_node(e, d->c), bytes);
    double there = coll(d, COLL_ALL_GATHER, (int64_t)copies, d->c->gpus_per_node / e->tensor, copies * bytes);

    if (reduce < 0 || there < 0)
        return -1;
    double back = coll(d, COLL_REDUCE_SCATTER, (int64_t)copies, d->c->gpus_per_node / e->tensor, copies * bytes);
    return 2 * (double)s->layers * reduce + s->mixtures * (there + back);
}

/* Hidden states and residual go to the next stage. */
static double message_of(const struct engine_steps *d, int64_t rows)
{
    bool within = 2 * d->e->tensor <= d->c->gpus_per_node;

    return d->e->pipeline < 2 ? 0 : coll(d, COLL_SEND, 2, within ? 2 : 1, (double)(2 * rows * d->m->hidden * dtype_bytes(d->e->weights)));
}

int engine_steps_check(const struct engine_steps *d) { return collectives_of(d, &d->stage[0], 1) < 0 || message_of(d, 1) < 0 ? -1 : 0; }

/* Each rank gathers all logits and samples for itself (model_executor/layers/logits_processor.py: _gather_logits()). */
static double sampling_of(const struct engine_steps *d, int64_t rows)
{
    double logits = (double)rows * (double)d->m->vocab;

    return coll(d, COLL_ALL_GATHER, d->e->tensor, engine_ranks_of_a_node(d->e, d->c), logits * (double)dtype_bytes(d->e->weights)) + logits * SAMPLED_BYTES / d->bandwidth;
}

/* The stage that takes longest. */
static double slowest(const struct engine_steps *d, int64_t rows, bool prompts, bool worst)
{
    double most = 0;

    for (int64_t i = 0; i < d->e->pipeline; i++) {
        const struct stage *s = &d->stage[i];
        double one = products_of(d, s, rows, worst) + collectives_of(d, s, rows) + message_of(d, rows);
        one += prompts ? 0 : s->small * SMALL_LAUNCH + (s->last ? sampling_of(d, rows) : 0);
        most = fmax(most, one);
    }
    return most;
}

/* Sequences run in as many batches as there are stages (v1/engine/core.py: step_with_batch_queue()), each in another stage; a token of each sequence
 * is a turn of all batches through the slowest stage. */
double engine_step_gpu(struct engine_steps *d, int64_t n)
{
    if (!(d->gpu[n] > 0))
        d->gpu[n] = (double)d->e->pipeline * slowest(d, ceil_div(n, d->e->pipeline), false, false);
    return d->gpu[n];
}

double engine_step_unsure(struct engine_steps *d, int64_t n)
{
    return fmax(1, (double)d->e->pipeline * slowest(d, n, false, true) / engine_step_gpu(d, n));
}

/* Fewer sequences than stages are read in one stage after the other. */
double engine_context_s(const struct engine_steps *d, int64_t n, double tokens)
{
    double idle = n < d->e->pipeline ? (double)d->e->pipeline / (double)n : 1;

    return tokens * d->kv_token * idle / d->bandwidth;
}

/* Without graphs each kernel is issued by itself, products and all-reduces too. */
static double issued_one_by_one(const struct engine_steps *d)
{
    double kernels = 0;

    for (int64_t k = 0; k < d->e->pipeline; k++) {
        const struct stage *s = &d->stage[k];
        kernels += s->small + 2 * (double)s->layers;
        for (int i = 0; i < s->nproducts; i++)
            kernels += (double)s->products[i].count;
    }
    return d->e->eager ? kernels * d->unit : 0;
}

/* With batches in other stages the core schedules the next one while the GPUs work. */
double engine_step_s(struct engine_steps *d, int64_t n, double context)
{
    bool within = d->e->driven == DRIVEN_WITHIN, overlaps = d->e->overlaps > 0 || d->e->pipeline > 1;
    double gpu = engine_step_gpu(d, n) + engine_context_s(d, n, context), b = (double)n;
    double core = (b * (HOST_CORE + (within ? HOST_OUTPUTS : HOST_MESSAGE)) + HOST_STEP * (double)d->e->pipeline) * d->unit;
    double beside = within ? 0 : b * (d->e->driven == DRIVEN_ASYNC || d->e->driven == DRIVEN_SERVER ? HOST_FRONTEND : HOST_OUTPUTS + HOST_MESSAGE) * d->unit;

    gpu = fmax(gpu, issued_one_by_one(d));
    return fmax(overlaps ? fmax(core, gpu) : core + gpu, beside);
}

/* Chunks follow each other through the stages. */
double engine_prompt_s(const struct engine_steps *d, double tokens)
{
    int64_t chunk = (int64_t)fmin(tokens, (double)d->e->batched_tokens);

    return chunk < 1 ? 0 : (tokens / (double)chunk + (double)(d->e->pipeline - 1)) * slowest(d, chunk, true, false);
}

/* Attention of a prompt to itself, behind the causal mask; half of a square of scores, two products. */
double engine_attention_s(const struct engine_steps *d, double prompt)
{
    const struct gpu_rates *rates = gpu_rates(&d->c->gpu);
    int64_t layers = ceil_div(d->m->layers, d->e->pipeline);
    double flops = 2 * (double)(layers * d->m->heads * d->m->head_dim / d->e->tensor) * prompt * prompt;

    return flops / (gpu_peak(&d->c->gpu, d->e->weights) * rates->attention[FLASH_2]);
}
