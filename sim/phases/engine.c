/* engine.c -- see engine.h. */
#include "sim/phases/engine.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/memory/overhead.h"

/* What vLLM's logs say that CUDA graphs took: 0.21 GiB (Llama-3.2-1B, vllm-project/vllm pull 11349), 0.36 GiB (gpustack/runner pull 251),
 * 1.34 GiB (Qwen3.5-35B-A3B, issue 50722), 1.40 GiB (Kimi K2.6 with TP 8, issue 47654).  The middle of their range; vLLM itself warned of
 * "1~3 GiB memory per GPU" (worker/model_runner.py until 0.8). */
#define GRAPHS      ((int64_t)824 << 20)
#define GRAPHS_HIGH ((int64_t)3 << 30)
/* DEFAULT_VOCAB_PADDING_SIZE */
enum { VOCABULARY_ROWS = 64 };
/* CUDA graphs count within the share since vLLM 0.20, which takes 0.92 for 0.9 from then on (config/cache.py). */
enum { GRAPHS_WITHIN = 20 };
/* Asynchronous scheduling is vLLM's default from 0.14 on (config/vllm.py). */
enum { OVERLAPS = 14 };

struct engine engine_usual(enum engine_kind kind)
{
    /* vLLM: block_size 16; SGLang: page_size 1. */
    static const struct engine usual[] = {
        [ENGINE_VLLM]   = { ENGINE_VLLM, GRAPHS_WITHIN, 1, -1, DT_BF16, DT_BF16, 0, 0, 16, false, true, 0, DRIVEN_PROCESS, -1 },
        [ENGINE_SGLANG] = { ENGINE_SGLANG, 5, 1, -1, DT_BF16, DT_BF16, 0, 0, 1, false, true, 0, DRIVEN_ASYNC, -1 },
    };

    return usual[kind];
}

/* vllm/engine/arg_utils.py, 0.11 to 0.33, for LLM(): GPUs of 70 GiB that are no A100 take more; one of 160 GiB has the same. */
static void fill_vllm(struct engine *e, const struct gpu *g)
{
    bool large = g->memory >= (int64_t)70 << 30 && (g->memory >= (int64_t)160 << 30 || !strstr(g->name, "a100"));

    e->share = e->share < 0 ? (e->version < GRAPHS_WITHIN ? 0.9 : 0.92) : e->share;
    e->sequences = e->sequences ? e->sequences : large ? 1024 : 256;
    e->batched_tokens = e->batched_tokens ? e->batched_tokens : large ? 16384 : 8192;
    e->overlaps = e->overlaps < 0 ? e->version >= OVERLAPS : e->overlaps;
}

/* sglang/srt/arg_groups/memory_hook.py, 0.5.23: what is left of 512 MiB, 1.5 MiB a token of a chunk, 128 a rank, 2 a sequence of the largest
 * graph and 8 for each of the 42 graphs of prefill; of GPUs above 60 GiB at most all but 10 GiB. */
static void fill_sglang(struct engine *e, const struct gpu *g)
{
    static const struct { double gib; int64_t chunk, graph, graph_of_four; } sizes[] = {
        { 20, 2048, 8, 8 }, { 35, 4096, 48, 160 }, { 60, 4096, 32, 160 }, { 160, 8192, 256, 512 }, { INFINITY, 16384, 512, 512 },
    };
    double all = (double)g->memory / (1 << 20);
    int i = 0;

    while (all >= sizes[i].gib * 1024)
        i++;
    e->batched_tokens = e->batched_tokens ? e->batched_tokens : sizes[i].chunk;
    e->sequences = e->sequences ? e->sequences : 1024;
    int64_t tokens = e->batched_tokens < 2048 ? 2048 : e->batched_tokens, graph = e->tensor < 4 ? sizes[i].graph : sizes[i].graph_of_four;
    double kept = 512 + 1.5 * (double)tokens + 128 * (double)e->tensor + (e->eager ? 0 : 2 * (double)graph + 8 * 42);
    kept = all > 60 * 1024 && kept < 10 * 1024 ? 10 * 1024 : kept;
    e->share = e->share < 0 ? round(1000 * (all - kept) / all) / 1000 : e->share;
    e->overlaps = e->overlaps != 0;
}

void engine_fill(struct engine *e, const struct gpu *g)
{
    if (e->kind == ENGINE_VLLM)
        fill_vllm(e, g);
    else
        fill_sglang(e, g);
}

const char *engine_kind_name(enum engine_kind kind)       { return kind == ENGINE_VLLM ? "vLLM" : "SGLang"; }
const char *engine_share_name(enum engine_kind kind) { return kind == ENGINE_VLLM ? "gpu_memory_utilization" : "mem_fraction_static"; }

/* ---- weights ---- */

static bool is_of_keys(enum tensor_role r) { return r == ROLE_K || r == ROLE_V; }
static bool is_of_rows(enum tensor_role r) { return r == ROLE_TOKENS || r == ROLE_HEAD; }

/* Layers that every rank has: of latent attention the products into few dimensions (ReplicatedLinear), routers, learned positions. */
static bool is_whole(const struct tensor *t)
{
    switch (t->role) {
    case ROLE_Q_A: case ROLE_KV_A: case ROLE_ROUTER: case ROLE_POSITIONS: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT:
        return true;
    default:
        return t->ndim == 1 && t->role != ROLE_SINKS;
    }
}

/* q, k and v in one tensor: q is cut by the ranks, k and v by as many of them as there are heads. */
static int64_t fused_share(const struct model *m, const struct tensor *t, int64_t tensor)
{
    int64_t keys = m->kv_heads < tensor ? m->kv_heads : tensor;
    int64_t parts = m->heads + 2 * m->kv_heads;

    return t->numel / parts * m->heads / tensor + t->numel / parts * 2 * m->kv_heads / keys;
}

static int64_t share_of(const struct model *m, const struct tensor *t, int64_t tensor)
{
    if (t->adapter != ADAPTER_NONE || t->depth > 0)
        return 0;                   /* merged, replaced, or not loaded */
    if (is_whole(t))
        return t->numel;
    if (is_of_rows(t->role))
        return round_up(t->shape[0], VOCABULARY_ROWS) * (t->numel / t->shape[0]) / tensor;
    if (is_of_keys(t->role))
        return t->numel / (m->kv_heads < tensor ? m->kv_heads : tensor);
    return t->role == ROLE_QKV ? fused_share(m, t, tensor) : t->numel / tensor;
}

int64_t engine_params(const struct model *m, int64_t tensor)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += share_of(m, &m->tensors[i], tensor);
    return sum;
}

/* ---- KV cache ---- */

int64_t engine_kv_token(const struct model *m, int64_t tensor, enum dtype kv)
{
    int64_t heads = ceil_div(m->kv_heads, tensor < m->kv_heads ? tensor : m->kv_heads);
    int64_t value = m->value_dim ? m->value_dim : m->head_dim;

    if (m->kv_rank)
        return m->layers * (m->kv_rank + m->rope_dim) * dtype_bytes(kv);
    return m->layers * heads * (m->head_dim + value) * dtype_bytes(kv);
}

/* ---- a forward ---- */

/* What lives at once in the widest layer of a forward of so many tokens: input, residual, gate and up, their product; and the logits of
 * the sequences, in fp32 beside the model's dtype, as the sampler has them (sample/sampler.py: logits.to(float32)). */
static int64_t activations_of(const struct engine *e, const struct model *m)
{
    int64_t width = m->experts ? m->expert_ffn * m->experts_used + m->shared_ffn : m->ffn;
    int64_t tokens = e->batched_tokens, wide = dtype_bytes(e->weights);
    int64_t sampled = e->sequences < tokens ? e->sequences : tokens;
    int64_t layer = tokens * (2 * m->hidden + 3 * ceil_div(width, e->tensor)) * wide;
    int64_t logits = sampled * m->vocab * (wide + 4);

    return layer > logits ? layer : logits;
}

/* ---- all of it ---- */

static int check(const struct engine *e, const struct model *m, const struct cluster *c)
{
    if (m->recorded)
        return fail("engine: a recorded module is not served: its tensors have no roles");
    if (c->is_host)
        return fail("engine: ranks on the host run no %s", engine_kind_name(e->kind));
    if (e->tensor < 1 || m->heads % e->tensor || (m->kv_heads > e->tensor ? m->kv_heads % e->tensor : e->tensor % m->kv_heads))
        return fail("engine: tensor %lld does not divide %lld heads, %lld of keys and values", (long long)e->tensor, (long long)m->heads,
                    (long long)m->kv_heads);
    if (e->tensor > c->gpus_per_node ? e->tensor % c->gpus_per_node || c->world_size % e->tensor : c->gpus_per_node % e->tensor)
        return fail("engine: tensor %lld: nodes of %lld GPUs must divide by it, or it by them, and all %lld GPUs by it", (long long)e->tensor,
                    (long long)c->gpus_per_node, (long long)c->world_size);
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].packed != BASE_PLAIN)
            return fail("engine: weights of 4 or 8 bits in an engine are not planned");
    return e->share > 0 && e->share < 1 ? 0 : fail("engine: %s %g: a share between 0 and 1", engine_share_name(e->kind), e->share);
}

static void take_share(const struct engine *e, const struct cluster *c, int64_t others, struct engine_memory *out)
{
    int64_t free = c->memory - c->gpu.reserved - others;
    int64_t within, beside;

    if (e->kind == ENGINE_VLLM) {
        out->share = (int64_t)(e->share * (double)c->memory);
        out->starts = out->share <= free;
        beside = e->version < GRAPHS_WITHIN ? out->graphs : 0;
        within = out->weights + out->activations + out->outside + out->graphs - beside;
    } else {
        free -= out->outside;       /* measured once NCCL is there */
        out->share = (int64_t)(e->share * (double)(free > 0 ? free : 0));
        out->starts = free > 0;
        beside = out->activations + out->outside + out->graphs;
        within = out->weights;
    }
    out->kv = out->share > within ? out->share - within : 0;
    out->kv_tokens = out->kv / (out->kv_token * e->block) * e->block;
    out->kv = out->kv_tokens * out->kv_token;
    out->awake = out->share + beside;
}

int engine_memory_of(const struct engine *e, const struct model *m, const struct cluster *c, int64_t others, struct engine_memory *out)
{
    memset(out, 0, sizeof *out);
    if (check(e, m, c) < 0)
        return -1;
    out->weights = engine_params(m, e->tensor) * dtype_bytes(e->weights);
    out->activations = activations_of(e, m);
    out->outside = (e->own_process ? c->gpu.context : 0) + (e->tensor > 1 ? overhead_nccl(c, e->tensor, engine_ranks_of_a_node(e, c)) : 0);
    out->graphs = e->eager ? 0 : GRAPHS;
    out->graphs_high = e->eager ? 0 : GRAPHS_HIGH;
    out->kv_token = engine_kv_token(m, e->tensor, e->kv);
    take_share(e, c, others, out);
    out->loading = out->weights + out->outside + out->graphs;
    out->asleep = e->sleep ? out->outside + out->graphs : out->awake;
    out->host = e->sleep == 1 ? out->weights : 0;
    if (!e->sleep)
        out->loading = out->awake;
    return 0;
}
