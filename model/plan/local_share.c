/* local_share.c -- a model cut by tensor parallelism and by blocks: see local_share.h. */
#include "model/plan/local_share.h"

#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/arch/training.h"
#include "model/family/hybrid.h"
#include "model/plan/deepspeed_stages.h"
#include "model/plan/pipeline_layout.h"
#include "model/plan/plan_groups.h"

_Static_assert((int)NAXIS <= 8, "partial[] has a bit for every axis");

enum cut { CUT_NOT, CUT_OUT, CUT_IN };

/* Of a row-parallel layer: Megatron-Bridge's adapters (te_adapter.h) have only what comes in cut as the layer's own is, NeMo Automodel's (tape_adapter_row.h)
 * both. */
static enum cut cut_of_adapter(const struct tensor *t, bool bridge)
{
    bool row = t->role == ROLE_ATTN_OUT || t->role == ROLE_DOWN;

    return row && (t->adapter == ADAPTER_LORA_A || !bridge) ? CUT_IN : CUT_OUT;
}

static enum cut cut_of(const struct tensor *t)
{
    if (tensor_is_adapter(t))
        return CUT_OUT;                 /* or CUT_IN: cut_of_adapter() */
    if (t->role == ROLE_HEAD && t->shape[0] == 1)
        return CUT_NOT;                 /* a number: te_model.c */
    switch (t->role) {
    case ROLE_TOKENS: case ROLE_HEAD: case ROLE_MTP_PROJECT:
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV:
    case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP:
    case ROLE_SINKS: case ROLE_Q_B: case ROLE_KV_B: case ROLE_SHARED_GATE: case ROLE_SHARED_UP: case ROLE_SHARED_GATE_UP:
        return CUT_OUT;
    case ROLE_ATTN_OUT: case ROLE_DOWN: case ROLE_SHARED_DOWN:
        return t->is_bias ? CUT_NOT : CUT_IN;
    case ROLE_POSITIONS: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT: case ROLE_EMBED_NORM:
    case ROLE_NORM_ATTN: case ROLE_NORM_ATTN_POST: case ROLE_NORM_MLP: case ROLE_NORM_MLP_POST:
    case ROLE_NORM_FINAL: case ROLE_Q_NORM: case ROLE_K_NORM: case ROLE_MTP_EMBED_NORM: case ROLE_MTP_HIDDEN_NORM:
        return CUT_NOT;
    case ROLE_Q_A: case ROLE_Q_A_NORM: case ROLE_KV_A: case ROLE_KV_A_NORM:
    case ROLE_ROUTER: case ROLE_EXPERTS_IN: case ROLE_EXPERTS_UP: case ROLE_EXPERTS_OUT:
        return CUT_NOT;                 /* experts are dealt out: local_share_cut() */
    case ROLE_SSM_IN: case ROLE_SSM_CONV: case ROLE_SSM_DT: case ROLE_SSM_A: case ROLE_SSM_D: case ROLE_SSM_NORM:
        return CUT_OUT;                 /* each rank's heads, with the groups that they read: parts of as many rows */
    case ROLE_SSM_OUT:
        return CUT_IN;
    }
    assert(!"unknown role");
    return CUT_NOT;
}

bool local_share_is_cut(const struct tensor *t) { return cut_of(t) != CUT_NOT; }

struct local_share local_share_whole(const struct model *m)
{
    return (struct local_share){ .vocab = m->vocab, .tensor_ranks = 1, .context_ranks = 1, .expert_ranks = 1, .expert_cut = 1, .nchunks = 1, .chunk = { { 0, m->layers } },
                                 .embeds = true, .heads = true };
}

const char *local_share_refused(const struct model *m, int64_t ranks)
{
    int norms = 0;

    if (ranks == 1)
        return NULL;
    if (m->heads % ranks)
        return "its attention heads do not divide by the tensor-parallel ranks";
    if (m->kv_heads % ranks)
        return "its key/value heads do not divide by the tensor-parallel ranks";
    if (m->ffn % ranks)
        return "the width of its MLP does not divide by the tensor-parallel ranks";
    if (m->ssm_heads % ranks || m->ssm_groups % ranks)
        return "the heads or groups of its Mamba-2 mixers do not divide by the tensor-parallel ranks";
    if (m->shared_ffn % ranks)
        return "the width of its shared experts does not divide by the tensor-parallel ranks";
    if ((m->vocab + ranks - 1) / ranks * (ranks - 1) >= m->vocab)
        return "its vocabulary leaves a tensor-parallel rank without a row";
    for (int t = m->block0; t < m->block0 + m->per_block; t++) {
        const struct tensor *x = &m->tensors[t];
        norms += x->role == ROLE_Q_NORM && !x->is_bias;
        if (x->role == ROLE_Q_NORM && x->numel != m->head_dim)
            return "it norms all heads of q together";
        if (norms > 1)
            return "its heads have a norm each";
    }
    return NULL;
}

/* Of n rows or columns: as torch.chunk() deals them out. */
static int64_t part_of(int64_t n, const struct local_share *s)
{
    int64_t most = (n + s->tensor_ranks - 1) / s->tensor_ranks, left = n - s->tensor_rank * most;

    return left < most ? left : most;
}

/* Adds the rank's part of n rows or columns that begin at `at`. */
static void add_run(struct local_cut *c, int64_t at, int64_t n, const struct local_share *s)
{
    int64_t most = (n + s->tensor_ranks - 1) / s->tensor_ranks;

    c->run[c->nruns].from = at + s->tensor_rank * most;
    c->run[c->nruns++].n = part_of(n, s);
}

struct local_cut local_share_cut(const struct model *m, const struct tensor *t, const struct local_share *s)
{
    enum cut cut = tensor_is_adapter(t) ? cut_of_adapter(t, m->training.bridge) : cut_of(t);
    struct local_cut c = { .dim = cut == CUT_OUT ? t->in_out : !t->in_out };
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;

    if (role_is_of_experts(t->role)) {
        int64_t n = t->shape[0] / s->expert_ranks;
        return (struct local_cut){ .dim = s->expert_ranks > 1 ? 0 : -1, .nruns = 1, .run = { { s->expert_rank * n, n } } };
    }
    if (s->tensor_ranks == 1 || cut_of(t) == CUT_NOT || (s->whole_table && t->role == ROLE_TOKENS))
        return (struct local_cut){ .dim = -1 };
    if (t->adapter == ADAPTER_LORA_A || cut == CUT_IN) {
        add_run(&c, 0, t->shape[c.dim], s);
    } else if (t->role == ROLE_QKV && !m->qkv_grouped) {
        add_run(&c, 0, q, s);
        add_run(&c, q, kv, s);
        add_run(&c, q + kv, kv, s);
    } else if (t->role == ROLE_GATE_UP || t->role == ROLE_SHARED_GATE_UP) {
        int64_t width = t->shape[0] / 2;
        add_run(&c, 0, width, s);
        add_run(&c, width, width, s);
    } else {
        add_run(&c, 0, t->shape[c.dim], s);
    }
    return c;
}

/* Over which axes a rank's gradient of a tensor is a part of a sum.  A norm of q or k sees this rank's heads
 * only; what runs on a share of the positions sees those only.  Learned positions do not: they are added
 * before the sequence is dealt out. */
static uint8_t partial_of(const struct tensor *t, const struct local_share *s)
{
    bool of_heads = t->role == ROLE_Q_NORM || t->role == ROLE_K_NORM;

    if (s->tensor_ranks == 1 || cut_of(t) != CUT_NOT || t->role == ROLE_POSITIONS || (role_is_of_experts(t->role) && s->expert_ranks * s->expert_cut > 1))
        return 0;
    return (of_heads && !s->heads_alone) || s->sequence ? MESH_AXIS(AXIS_TENSOR) : 0;
}

/* The chunk that has a block; -1: none. */
static int chunk_of(int block, const struct local_share *s)
{
    for (int c = 0; c < s->nchunks; c++)
        if (block >= s->chunk[c].first && block < s->chunk[c].first + s->chunk[c].blocks)
            return c;
    return -1;
}

static int64_t blocks_of(const struct local_share *s, int chunks)
{
    int64_t blocks = 0;

    for (int c = 0; c < chunks; c++)
        blocks += s->chunk[c].blocks;
    return blocks;
}

int64_t local_share_block(const struct local_share *s, int64_t own)
{
    for (int c = 0; c < s->nchunks; c++) {
        if (own < s->chunk[c].blocks)
            return s->chunk[c].first + own;
        own -= s->chunk[c].blocks;
    }
    assert(!"a rank's block is in one of its chunks");
    return -1;
}

/* Blocks of the rank that are among the model's first, without experts: its chunks lie in the model's order. */
static int64_t dense_of(const struct model *m, const struct local_share *s)
{
    int64_t n = 0;

    for (int c = 0; c < s->nchunks; c++) {
        int64_t left = m->dense_first - s->chunk[c].first;
        n += left < 0 ? 0 : left < s->chunk[c].blocks ? left : s->chunk[c].blocks;
    }
    return n;
}

/* In the rank's own numbers. */
static int own_block(int block, const struct local_share *s)
{
    int c = chunk_of(block, s);

    return (int)(block - s->chunk[c].first + blocks_of(s, c));
}

static bool is_there(const struct tensor *t, const struct local_share *s)
{
    if (t->block == TENSOR_EMBED)
        return s->embeds;
    if (t->block == TENSOR_HEAD)
        return s->heads;
    return chunk_of(t->block, s) >= 0;
}

/* Appends a tensor's share, and its module before its first one. */
static void add(const struct model *m, int index, const struct local_share *s, struct model *out, uint8_t *partial)
{
    struct tensor *t = &out->tensors[out->ntensors];
    const struct module *owner = &m->modules[m->tensors[index].module];
    struct local_cut cut;

    *t = m->tensors[index];
    cut = local_share_cut(m, t, s);
    if (cut.dim >= 0) {
        int64_t whole = t->shape[cut.dim], mine = 0;
        for (int i = 0; i < cut.nruns; i++)
            mine += cut.run[i].n;
        t->shape[cut.dim] = mine;
        t->numel = t->numel / whole * mine;
    }
    if (role_is_of_experts(t->role)) {
        t->shape[t->role == ROLE_EXPERTS_OUT ? 2 : 1] /= s->expert_cut;
        t->numel /= s->expert_cut;
    }
    if (t->block >= 0)
        t->block = own_block(t->block, s);
    if (index == owner->first || out->nmodules == 0) {
        struct module *mine = &out->modules[out->nmodules++];
        *mine = *owner;
        mine->first = out->ntensors;
        mine->block = t->block;
    }
    t->module = out->nmodules - 1;
    partial[out->ntensors++] = partial_of(t, s);
    out->params += t->numel;
    out->trainable += t->frozen ? 0 : t->numel;
    out->ntrainable += !t->frozen;
}

/* The last stage's copy of a tied embedding is its head; multi-token prediction embeds tokens by it. */
static void add_copy(const struct model *m, int tokens, const struct local_share *s, struct model *out,
                     uint8_t *partial)
{
    struct tensor *t;

    add(m, tokens, s, out, partial);
    t = &out->tensors[out->ntensors - 1];
    t->role = m->tied ? ROLE_HEAD : ROLE_TOKENS;
    t->block = out->modules[out->nmodules - 1].block = TENSOR_HEAD;
    partial[out->ntensors - 1] |= MESH_AXIS(AXIS_PIPE);
}

static bool has_two(const struct model *m) { return m->tied || m->mtp > 0; }

static bool has_copy(const struct model *m, const struct local_share *s) { return has_two(m) && s->heads && (!s->embeds || s->untied); }

static void add_head(const struct model *m, const struct local_share *s, struct model *out, uint8_t *partial)
{
    for (int t = 0; t < m->ntensors; t++) {
        if (m->tensors[t].role != ROLE_TOKENS)
            continue;
        add_copy(m, t, s, out, partial);
        if (m->tied && m->mtp > 0) {    /* GPTModel makes an output layer's weight too, and uses the embedding's in its place */
            partial[out->ntensors - 1] &= (uint8_t)~MESH_AXIS(AXIS_PIPE);
            add_copy(m, t, s, out, partial);
            out->tensors[out->ntensors - 1].role = ROLE_TOKENS;
        }
    }
}

int local_share_model(const struct model *m, const struct local_share *s, struct model *out, uint8_t *partial)
{
    const char *why = local_share_refused(m, s->tensor_ranks);

    if (why)
        return fail("%s cannot be cut over %lld tensor-parallel ranks: %s", m->name, (long long)s->tensor_ranks, why);
    for (int c = 0; c < s->nchunks; c++)        /* in the model's order, as its tensors are */
        assert(s->chunk[c].first >= (c ? s->chunk[c - 1].first + s->chunk[c - 1].blocks : 0) && s->chunk[c].blocks >= 0
               && s->chunk[c].first + s->chunk[c].blocks <= m->layers);
    *out = *m;
    out->layers = blocks_of(s, s->nchunks);
    out->heads = part_of(m->heads, s);
    out->kv_heads = part_of(m->kv_heads, s);
    out->ffn = part_of(m->ffn, s);
    out->shared_ffn = part_of(m->shared_ffn, s);
    out->ssm_heads = part_of(m->ssm_heads, s);
    out->ssm_groups = part_of(m->ssm_groups, s);
    out->dense_first = dense_of(m, s);
    out->vocab = part_of(m->vocab, s);
    out->tied = m->tied && s->embeds && s->heads && !s->untied;
    out->mtp = s->heads ? m->mtp : 0;
    out->ntensors = out->nmodules = out->ntrainable = out->block0 = 0;
    out->params = out->trainable = 0;
    out->tensors = calloc((size_t)m->ntensors + 2, sizeof *out->tensors);
    out->modules = calloc((size_t)m->nmodules + 2, sizeof *out->modules);
    json_incref(out->rope_scaling);
    recorded_share(out->recorded);
    hybrid_share(out->hybrid);
    if (!out->tensors || !out->modules) {
        model_free(out);
        return fail("out of memory for a rank's tensor table");
    }
    if (s->copy_first && has_copy(m, s)) {
        add_head(m, s, out, partial);
        out->block0++;
    }
    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        if (is_there(x, s)) {
            add(m, t, s, out, partial);
            out->block0 += t < m->block0;
        }
        if (has_two(m) && x->role == ROLE_TOKENS && s->embeds && !s->heads)
            partial[out->ntensors - 1] |= MESH_AXIS(AXIS_PIPE);
    }
    if (!s->copy_first && has_copy(m, s))
        add_head(m, s, out, partial);
    if (out->recorded && out->layers < m->layers)
        out->recorded = recorded_stage(out->recorded, out, (int)s->chunk[0].first);
    if (hybrid_lay_out(out, s->chunk[0].first, m->name) < 0) {      /* chunks of such are one run (hybrid_check.c) */
        model_free(out);
        return -1;
    }
    return 0;
}

int local_share_untied(const struct model *m, struct model *out)
{
    struct local_share whole = local_share_whole(m);
    uint8_t *partial = calloc((size_t)m->ntensors + 2, 1);

    whole.copy_first = whole.untied = true;
    int rc = partial ? local_share_model(m, &whole, out, partial) : fail("out of memory for a model's tensors");
    free(partial);
    return rc;
}

struct local_stage local_share_stage(int64_t layers, int64_t stages, int64_t stage, int64_t first_less,
                                     int64_t last_less)
{
    int64_t all = layers + first_less + last_less, base = all / stages, extra = all % stages;
    struct local_stage s = { stage * base + (stage < extra ? stage : extra) - (stage > 0 ? first_less : 0),
                             base + (stage < extra) };

    if (stage == 0)
        s.blocks -= first_less;
    if (stage == stages - 1)
        s.blocks -= last_less;
    if (s.blocks < 0)
        s.blocks = -1;
    return s;
}

struct local_stage local_share_stage_of(const struct plan *p, int64_t stages, int64_t stage)
{
    const struct parallel_options *of = &p->parallel;
    struct pipeline_layout layout;
    struct local_stage s = { 0 };
    char why[256];

    if (stages == 1)
        return (struct local_stage){ 0, p->model.layers };
    if (p->dialect == DIALECT_DEEPSPEED)
        return deepspeed_stage(p, stages, stage);
    if (!p->megatron.pipeline_layout[0])
        return local_share_stage(p->model.layers, stages, stage, of->first_stage_less, of->last_stage_less);
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = pipeline_layout_read(p->megatron.pipeline_layout, "plan", &layout);
    fail_restore(before);
    if (rc < 0 || layout.stages != stages || layout.layers != p->model.layers)
        return local_share_stage(p->model.layers, stages, stage, 0, 0);
    for (int64_t i = 0; i < stage; i++)
        s.first += layout.blocks[i];
    s.blocks = layout.blocks[stage];
    return s;
}

/* A V's chunks come in the model's order too: the second is behind the first. */
struct local_share local_share_of(const struct plan *p, int64_t rank)
{
    const struct parallel_options *of = &p->parallel;
    struct mesh m = plan_mesh(p);
    struct pipeline pipe = { of->pipeline_schedule, (int)m.size[AXIS_PIPE], (int)mesh_digit(&m, rank, AXIS_PIPE),
                             m.size[AXIS_PIPE] > 1 ? (int)of->virtual_stages : 1, (int)plan_flush_steps(p), 0 };
    struct local_share s = { .vocab = p->model.vocab, .tensor_ranks = m.size[AXIS_TENSOR], .tensor_rank = mesh_digit(&m, rank, AXIS_TENSOR),
                             .context_ranks = m.size[AXIS_CONTEXT], .context_rank = mesh_digit(&m, rank, AXIS_CONTEXT),
                             .nchunks = pipe.chunks, .sequence = of->sequence && m.size[AXIS_TENSOR] > 1, .heads_alone = of->inputs_apart && !of->sequence,
                             .whole_table = p->dialect == DIALECT_DEEPSPEED, .copy_first = p->dialect == DIALECT_DEEPSPEED };
    struct mesh_group all = mesh_group(&m, plan_expert_axes(p));
    int stages = pipe.ranks * pipe.chunks;

    s.expert_ranks = of->expert > 1 ? of->expert : 1;
    s.expert_rank = mesh_place(&all, rank) % s.expert_ranks;
    s.expert_cut = of->expert_tensor > 1 ? of->expert_tensor : 1;
    for (int c = 0; c < pipe.chunks; c++) {
        int stage = pipe.ranks > 1 ? pipeline_stage(&pipe, pipe.rank, c) : 0;
        s.chunk[c] = local_share_stage_of(p, stages, stage);
        s.embeds |= stage == 0;
        s.heads |= stage == stages - 1;
    }
    return s;
}

/* Two chunks a rank only where there are several ranks. */
static bool balanced(const struct plan *p, const struct local_share *s) { return s->context_ranks > 1 && p->parallel.context_balance; }

struct local_positions local_share_positions(const struct plan *p, const struct local_share *s)
{
    int64_t chunks = s->context_ranks * (balanced(p, s) ? 2 : 1), run = p->seq / chunks;

    return (struct local_positions){ balanced(p, s) ? 2 : 1, run, { s->context_rank * run, (chunks - 1 - s->context_rank) * run } };
}

/* The keys of a rank before this one begin before both of its chunks, and end behind them; those of a rank behind it lie between
 * them. */
struct local_sight local_share_sight(const struct plan *p, const struct local_share *s, int64_t step)
{
    int64_t all = plan_rank_seq(p);
    bool before = step <= s->context_rank;

    if (step == 0)
        return (struct local_sight){ 0, all, true };
    if (!balanced(p, s))
        return (struct local_sight){ 0, before ? all : 0, false };
    return (struct local_sight){ before ? 0 : all / 2, before ? all / 2 : all, false };
}
