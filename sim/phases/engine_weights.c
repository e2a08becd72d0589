/* engine_weights.c -- see engine_weights.h. */
#include "sim/phases/engine_weights.h"

#include <math.h>

#include "base/size.h"

/* DEFAULT_VOCAB_PADDING_SIZE */
enum { VOCABULARY_ROWS = 64 };
/* Inputs of a group of 4-bit weights; a block of fp8 has as many rows and columns. */
enum { GROUP = 128 };

/* ---- layers ---- */

/* Layers that do not divide go to `left` stages, from stage `from` on. */
struct engine_stage engine_stage(const struct engine *e, const struct model *m, int64_t stage)
{
    int64_t n = e->pipeline, each = m->layers / n, left = m->layers % n, from = e->kind == ENGINE_VLLM ? n - 1 - left : n - left;
    int64_t before = stage < from ? 0 : stage - from < left ? stage - from : left;
    bool more = stage >= from && stage < from + left;

    return (struct engine_stage){ .from = stage * each + before, .to = (stage + 1) * each + before + more, .first = stage == 0, .last = stage == n - 1 };
}

bool engine_has(const struct engine_stage *s, const struct model *m, const struct tensor *t)
{
    if (t->block >= 0)
        return t->block >= s->from && t->block < s->to;
    if (t->role == ROLE_TOKENS)
        return s->first || (s->last && m->tied);
    return t->block == TENSOR_EMBED ? s->first : s->last;
}

/* ---- a rank's part ---- */

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

/* Whole experts of the ranks that share them out, the fullest one's; else a part of each. */
static int64_t of_experts(const struct engine *e, const struct tensor *t)
{
    if (e->expert > 1 && e->kind == ENGINE_VLLM)
        return ceil_div(t->shape[0], e->expert) * (t->numel / t->shape[0]);
    return t->numel / (e->expert > e->tensor ? e->expert : e->tensor);
}

int64_t engine_share(const struct engine *e, const struct model *m, const struct tensor *t)
{
    int64_t tensor = e->tensor;

    if (t->adapter != ADAPTER_NONE || t->depth > 0)
        return 0;                   /* merged, replaced, or not loaded */
    if (role_is_of_experts(t->role) && t->shape[0] == m->experts)
        return of_experts(e, t);
    if (is_whole(t))
        return t->numel;
    if (is_of_rows(t->role))
        return round_up(t->shape[0], VOCABULARY_ROWS) * (t->numel / t->shape[0]) / tensor;
    if (is_of_keys(t->role))
        return t->numel / (m->kv_heads < tensor ? m->kv_heads : tensor);
    return t->role == ROLE_QKV ? fused_share(m, t, tensor) : t->numel / tensor;
}

/* ---- bytes ---- */

bool engine_is_coded(const struct engine *e, const struct tensor *t)
{
    switch (t->role) {
    case ROLE_TOKENS: case ROLE_POSITIONS: case ROLE_HEAD: case ROLE_ROUTER: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT:
        return false;
    default:
        return e->codes != CODES_NONE && t->ndim > 1 && !t->is_bias;
    }
}

double engine_bytes(const struct engine *e, const struct tensor *t, double n)
{
    double wide = (double)dtype_bytes(e->weights);

    if (!engine_is_coded(e, t))
        return n * wide;
    switch (e->codes) {
    case CODES_FP8:       return n;
    case CODES_FP8_BLOCK: return n + 4 * n / (GROUP * GROUP);
    default:              return n / 2 + n / GROUP * (wide + 0.5);
    }
}

int64_t engine_weights(const struct engine *e, const struct model *m, int64_t stage)
{
    struct engine_stage s = engine_stage(e, m, stage);
    double sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += engine_has(&s, m, &m->tensors[i]) ? engine_bytes(e, &m->tensors[i], (double)engine_share(e, m, &m->tensors[i])) : 0;
    return (int64_t)ceil(sum);
}
