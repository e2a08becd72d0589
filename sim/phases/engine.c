/* engine.c -- see engine.h. */
#include "sim/phases/engine.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/memory/overhead.h"
#include "sim/phases/engine_weights.h"

/* What vLLM's logs say that CUDA graphs took: 0.21 GiB (Llama-3.2-1B, vllm-project/vllm pull 11349), 0.36 GiB (gpustack/runner pull 251),
 * 1.34 GiB (Qwen3.5-35B-A3B, issue 50722), 1.40 GiB (Kimi K2.6 with TP 8, issue 47654).  The middle of their range; vLLM itself warned of
 * "1~3 GiB memory per GPU" (worker/model_runner.py until 0.8). */
#define GRAPHS      ((int64_t)824 << 20)
#define GRAPHS_HIGH ((int64_t)3 << 30)
/* CUDA graphs count within the share since vLLM 0.20, which takes 0.92 for 0.9 from then on (config/cache.py). */
enum { GRAPHS_WITHIN = 20 };
/* Asynchronous scheduling is vLLM's default from 0.14 on (config/vllm.py). */
enum { OVERLAPS = 14 };

struct engine engine_usual(enum engine_kind kind)
{
    /* vLLM: block_size 16; SGLang: page_size 1. */
    static const struct engine usual[] = {
        [ENGINE_VLLM]   = { .kind = ENGINE_VLLM, .version = GRAPHS_WITHIN, .tensor = 1, .pipeline = 1, .expert = 1, .share = -1, .weights = DT_BF16, .kv = DT_BF16,
                            .block = 16, .own_process = true, .driven = DRIVEN_PROCESS, .overlaps = -1 },
        [ENGINE_SGLANG] = { .kind = ENGINE_SGLANG, .version = 5, .tensor = 1, .pipeline = 1, .expert = 1, .share = -1, .weights = DT_BF16, .kv = DT_BF16,
                            .block = 1, .own_process = true, .driven = DRIVEN_ASYNC, .overlaps = -1 },
    };

    return usual[kind];
}

/* vllm/engine/arg_utils.py, 0.11.2, 0.17.1 and 0.33.0: get_batch_defaults().  LLM() and the server: GPUs of 70 GiB that are no A100 take more; a server
 * reads more at once with 160 GiB (0.33).  An AsyncLLM made by a program (UsageContext.ENGINE_CONTEXT) has none of that, and SchedulerConfig's own. */
static void fill_vllm(struct engine *e, const struct gpu *g)
{
    static const int64_t tokens[NDRIVEN][2] = { [DRIVEN_PROCESS] = { 8192, 16384 }, [DRIVEN_WITHIN] = { 8192, 16384 },
                                                [DRIVEN_ASYNC] = { 2048, 2048 }, [DRIVEN_SERVER] = { 2048, 8192 } };
    bool huge = g->memory >= (int64_t)160 << 30, large = g->memory >= (int64_t)70 << 30 && (huge || !strstr(g->name, "a100"));

    e->share = e->share < 0 ? (e->version < GRAPHS_WITHIN ? 0.9 : 0.92) : e->share;
    e->sequences = e->sequences ? e->sequences : e->driven == DRIVEN_ASYNC ? 128 : large ? 1024 : 256;
    e->batched_tokens = e->batched_tokens ? e->batched_tokens : huge && e->driven == DRIVEN_SERVER ? 16384 : tokens[e->driven][large];
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

const char *engine_codes_name(enum engine_codes codes)
{
    static const char *const names[] = { [CODES_NONE] = "none", [CODES_FP8] = "fp8", [CODES_FP8_BLOCK] = "fp8-block", [CODES_AWQ] = "awq", [CODES_GPTQ] = "gptq" };

    return names[codes];
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

/* What lives at once in the widest layer of a forward of so many tokens: input, residual, gate and up, their product; behind the last layer the
 * logits of the sequences, in fp32 beside the model's dtype, as the sampler has them (sample/sampler.py: logits.to(float32)).  A later stage of a
 * pipeline keeps a buffer for hidden states and residual (models/utils.py: make_empty_intermediate_tensors_factory()). */
static int64_t activations_of(const struct engine *e, const struct model *m, const struct engine_stage *s)
{
    int64_t width = m->experts ? m->expert_ffn * m->experts_used + m->shared_ffn : m->ffn;
    int64_t tokens = e->batched_tokens, wide = dtype_bytes(e->weights);
    int64_t sampled = e->sequences < tokens ? e->sequences : tokens;
    int64_t layer = tokens * (2 * m->hidden + 3 * ceil_div(width, e->tensor)) * wide;
    int64_t logits = s->last ? sampled * m->vocab * (wide + 4) : 0, handed = s->first ? 0 : tokens * 2 * m->hidden * wide;

    return (layer > logits ? layer : logits) + handed;
}

/* ---- all of it ---- */

/* Stages of a pipeline, and ranks that share experts out. */
static int check_ranks(const struct engine *e, const struct model *m, const struct cluster *c)
{
    bool vllm = e->kind == ENGINE_VLLM;

    if (e->pipeline > m->layers || c->world_size % (e->tensor * e->pipeline))
        return fail("engine: pipeline %lld: at most one stage for each of %lld layers, and all %lld GPUs must divide by tensor times pipeline",
                    (long long)e->pipeline, (long long)m->layers, (long long)c->world_size);
    if (e->expert == 1)
        return 0;
    if (m->experts < e->expert)
        return fail("engine: expert %lld: %s has %lld experts", (long long)e->expert, m->name, (long long)m->experts);
    if (vllm ? e->expert % e->tensor || c->world_size % (e->expert * e->pipeline) : e->tensor % e->expert || m->experts % e->expert)
        return fail(vllm ? "engine: expert %lld: vLLM shares experts out over tensor ranks, or as many times more as attention is replicated (data parallel): it "
                           "must be tensor or a multiple of it, and divide all GPUs" :
                           "engine: expert %lld: SGLang's ep_size divides tensor and the experts", (long long)e->expert);
    return 0;
}

static int check(const struct engine *e, const struct model *m, const struct cluster *c)
{
    if (m->recorded)
        return fail("engine: a recorded module is not served: its tensors have no roles");
    if (m->hybrid)
        return fail("engine: %s: the states of Mamba-2 mixers in an engine are not planned", m->name);
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
            return fail("engine: the trainers' model has weights of 4 or 8 bits: give the engine a \"model\" of its own, and its \"quantization\"");
    if (check_ranks(e, m, c) < 0)
        return -1;
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

/* A communicator of ranks that are `apart` from each other. */
static int64_t nccl(const struct cluster *c, int64_t ranks, int64_t apart)
{
    int64_t of_a_node = c->gpus_per_node / apart;

    return ranks > 1 ? overhead_nccl(c, ranks, of_a_node < 1 ? 1 : of_a_node < ranks ? of_a_node : ranks) : 0;
}

/* Of one stage's rank. */
static void memory_of_stage(const struct engine *e, const struct model *m, const struct cluster *c, int64_t others, int64_t stage, struct engine_memory *out)
{
    struct engine_stage s = engine_stage(e, m, stage);

    out->weights = engine_weights(e, m, stage);
    out->activations = activations_of(e, m, &s);
    out->outside = (e->own_process ? c->gpu.context : 0) + (e->tensor > 1 ? overhead_nccl(c, e->tensor, engine_ranks_of_a_node(e, c)) : 0) +
                   nccl(c, e->pipeline, e->tensor) + (e->expert > e->tensor ? nccl(c, e->expert, 1) : 0);
    out->graphs = e->eager ? 0 : GRAPHS;
    out->graphs_high = e->eager ? 0 : GRAPHS_HIGH;
    out->kv_token = engine_kv_token(m, e->tensor, e->kv) / m->layers * (s.to - s.from);
    take_share(e, c, others, out);
    out->loading = e->sleep ? out->weights + out->outside + out->graphs : out->awake;
    out->asleep = e->sleep ? out->outside + out->graphs : out->awake;
    out->host = e->sleep == 1 ? out->weights : 0;
}

/* All stages have as many blocks of the KV cache as the one that has room for the fewest (v1/core/kv_cache_utils.py: get_kv_cache_configs();
 * SGLang: profile_max_num_token()): it is the fullest one. */
int engine_memory_of(const struct engine *e, const struct model *m, const struct cluster *c, int64_t others, struct engine_memory *out)
{
    memset(out, 0, sizeof *out);
    if (check(e, m, c) < 0)
        return -1;
    for (int64_t i = 0; i < e->pipeline; i++) {
        struct engine_memory of = { .weights = 0 };
        memory_of_stage(e, m, c, others, i, &of);
        int64_t loading = of.loading > out->loading ? of.loading : out->loading, host = of.host > out->host ? of.host : out->host;
        if (i == 0 || of.kv_tokens < out->kv_tokens)
            *out = of;
        out->loading = loading;
        out->host = host;
    }
    return 0;
}
