/* Mixtures of experts: counts by hand, and what is refused. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/arch/training.h"
#include "model/arch/transformer.h"
#include "model/plan/experts_check.h"
#include "model/plan/plan.h"
#include "model/program/program.h"
#include "tests/model/plans.h"

static void load(const char *name, struct model *m) { assert_int_equal(model_load(name, m), 0); }

/* All parameters, those that a token uses, and these without the token embedding: counted from transformers' models on the
 * meta device (tests/golden/models/make_tensors.py), and what the models' names promise. */
static void models_have_their_counts(void **state)
{
    static const struct { const char *name; int64_t params, active, without_tokens; } list[] = {
        { "mixtral-8x7b", 46702792704, 12879925248, 12748853248 }, { "mixtral-8x22b", 140630071296, 39161468928, 38960142336 },
        { "qwen3-30b-a3b", 30532122624, 3353032704, 3041867776 }, { "qwen3-235b-a22b", 235093634560, 22190763520, 21568433664 },
        { "deepseek-v3", 671026404352, 37552282624, 36625603584 }, { "gpt-oss-120b", 116829156672, 5711982912, 5132849472 },
        { "gpt-oss-20b", 20914757184, 4187440704, 3608307264 }, { "llama-4-scout", 107769861120, 17172894720, 16138408960 },
        { "llama-4-maverick", 400711848960, 17184691200, 16150205440 }, { "olmoe-1b-7b", 6919161856, 1282017280, 1178994688 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct model m;
        load(list[i].name, &m);
        assert_int_equal(m.params, list[i].params);
        assert_int_equal(m.active, list[i].active);
        assert_int_equal(m.active - m.vocab * m.hidden, list[i].without_tokens);
        model_free(&m);
    }
}

/* Attention 4096^2 (2 + 2 * 8/32), a row of the router an expert, three matrices of 4096 x 14336 each, two norms. */
static void a_block_of_mixtral_adds_up(void **state)
{
    struct model m;

    (void)state;
    load("mixtral-8x7b", &m);
    assert_int_equal(model_numel(&m, m.block0, m.per_block), 41943040 + 32768 + 8 * 176160768LL + 8192);
    assert_int_equal(m.params, 32 * 1451270144LL + 2 * 32000 * 4096 + 4096);
    model_free(&m);
}

/* An expert of gpt-oss: gate and up of 2 x 2880 columns with biases, down with biases. */
static void experts_of_gpt_oss_have_biases(void **state)
{
    struct model m;
    int64_t sum = 0;

    (void)state;
    load("gpt-oss-120b", &m);
    for (int i = m.block0; i < m.block0 + m.per_block; i++)
        sum += role_is_of_experts(m.tensors[i].role) ? m.tensors[i].numel : 0;
    assert_int_equal(sum, 128 * (2880 * 5760 + 5760 + 2880 * 2880 + 2880LL));
    assert_int_equal(sum, 3186155520);
    model_free(&m);
}

/* DeepSeek-V3's latent attention: 1536 and 512 + 64 dimensions, 128 heads of 192 and 128. */
static void latent_attention_goes_through_few_dimensions(void **state)
{
    static const struct { enum tensor_role role; int64_t out, in; } list[] = {
        { ROLE_Q_A, 1536, 7168 }, { ROLE_Q_B, 24576, 1536 }, { ROLE_KV_A, 576, 7168 }, { ROLE_KV_B, 32768, 512 },
        { ROLE_ATTN_OUT, 7168, 16384 }, { ROLE_Q_A_NORM, 1536, 1 }, { ROLE_KV_A_NORM, 512, 1 },
    };
    struct model m;

    (void)state;
    load("deepseek-v3", &m);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int t = 0; t < m.ntensors; t++)
            if (m.tensors[t].role == list[i].role) {
                assert_int_equal(m.tensors[t].shape[0], list[i].out);
                assert_int_equal(m.tensors[t].shape[1], list[i].in);
            }
    assert_true(model_blocks_differ(&m));
    assert_int_equal(m.per_dense, 12);
    assert_int_equal(m.per_block, 15);
    model_free(&m);
}

/* ---- plans ---- */

static void plan_moe(struct plan *p, const char *model, int64_t world)
{
    plan_of(p, model, 2, world, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p->kernels = KERNELS_TORCH_SDPA;
}

static void refused(const struct plan *p, const char *word, const char *why_word)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    assert_int_equal(plan_check(p, "plan"), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, word) || !strstr(why, why_word))
        fail_msg("no %s, %s in: %s", word, why_word, why);
}

static void what_is_not_planned_is_refused_by_name(void **state)
{
    struct plan p, q;

    (void)state;
    plan_moe(&p, "qwen3-30b-a3b", 8);
    assert_int_equal(plan_check(&p, "plan"), 0);
    q = p;
    q.kernels = KERNELS_DPX;
    refused(&q, "kernels", "not run");
    q = p;
    q.kernels = KERNELS_TORCH_COMPILE;
    refused(&q, "kernels", "compiled");
    q = p;
    q.recompute = RECOMPUTE_OP;
    assert_int_equal(plan_check(&q, "plan"), 0);
    q.parallel.expert = 2;
    refused(&q, "recompute", "parallel.expert 1");
    q = p;
    q.recompute = RECOMPUTE_SELECTIVE;
    assert_int_equal(plan_check(&q, "plan"), 0);
    q.model.window = 128;
    refused(&q, "recompute", "windows or chunks");
    q = p;
    q.activation_offload = OFFLOAD_SAVE_ON_CPU;
    refused(&q, "activation_offload", "mixture of experts");
    q = p;
    q.parallel.tensor = 2;
    refused(&q, "parallel", "mixture of experts");
    q = p;
    q.parallel.context = 2;
    q.parallel.expert = 2;
    assert_int_equal(plan_check(&q, "plan"), 0);
    q.parallel.context_method = CONTEXT_ULYSSES;
    refused(&q, "parallel.context", "without parallel.expert");
    q = p;
    q.parallel.pipeline = 2;
    q.accumulation = 4;
    q.sync_every_micro_step = false;
    q.shard_group = 4;
    assert_int_equal(plan_check(&q, "plan"), 0);
    q.parallel.pipeline_schedule = PIPELINE_ZB1P;
    refused(&q, "parallel.pipeline_schedule", "weights' gradients apart");
    model_free(&p.model);
    plan_moe(&p, "olmoe-1b-7b", 8);
    p.parallel.context = 2;
    refused(&p, "parallel.context", "mixtral and qwen3_moe");
    model_free(&p.model);
    plan_of(&p, "qwen3-30b-a3b", 2, 8, STRAT_DDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "precision", "ddp.model_dtype bf16");
    model_free(&p.model);
    plan_of(&p, "qwen3-30b-a3b", 2, 8, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "precision", "bf16 alone");
    model_free(&p.model);
    plan_of(&p, "mixtral-8x7b", 2, 8, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(plan_check(&p, "plan"), 0);
    model_free(&p.model);
    plan_of(&p, "mixtral-8x7b", 2, 8, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(plan_check(&p, "plan"), 0);
    model_free(&p.model);
    plan_of(&p, "mixtral-8x7b", 2, 8, STRAT_ZERO3, DIALECT_PAPER, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "model", "dialect torch");
    model_free(&p.model);
    plan_moe(&p, "olmoe-1b-7b", 8);             /* 2^24 experts of 2^24, all of them used, 2^20 tokens: beyond 2^60 bytes */
    p.model.experts_used = p.model.experts = p.model.expert_ffn = 1 << 24;
    p.seq = 1 << 20;
    refused(&p, "seq", "exceeds 2^60");
    model_free(&p.model);
}

/* DeepSeek-V3 (three layers without experts first) and gpt-oss where they are not planned. */
static void where_blocks_of_two_kinds_are_planned(void **state)
{
    static const struct { enum strategy strategy; enum dialect dialect; enum kernel_set kernels; const char *word, *why; } list[] = {
        { STRAT_ZERO3, DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, "fsdp and ddp in dialect torch", "blocks without" },
        { STRAT_ZERO1, DIALECT_MEGATRON, KERNELS_MEGATRON_LOCAL, "kernels", "TEGroupedMLP" },
    };
    struct plan p, q;

    (void)state;
    plan_of(&p, "deepseek-v3", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(plan_check(&p, "plan"), 0);
    q = p;
    q.unit = UNIT_HALF_BLOCK;
    refused(&q, "unit", "\"block\" or \"model\"");
    q = p;
    q.parallel.expert = 8;
    assert_int_equal(plan_check(&q, "plan"), 0);
    q.model.dense_first = 0;
    q.model.moe_every = 2;
    refused(&q, "parallel.expert", "not planned yet");
    q = p;
    q.model.dense_first = q.model.layers;
    refused(&q, "none of the 8 layers", "experts");
    q = p;
    q.model.moe_every = 2;
    refused(&q, "behind 3 without", "not planned");
    model_free(&p.model);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        plan_of(&p, "deepseek-v3", 8, 8, list[i].strategy, list[i].dialect, DT_BF16);
        p.kernels = list[i].kernels;
        refused(&p, list[i].word, list[i].why);
        model_free(&p.model);
    }
    plan_of(&p, "gpt-oss-20b", 2, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_EAGER;
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "torch-eager", "sinks");
    model_free(&p.model);
}

/* Chunks are of the layers with positions; a config that has them elsewhere is refused. */
static void chunks_of_llama4_go_with_positions(void **state)
{
    static const struct { const char *config, *word; } refusals[] = {
        { "{'num_hidden_layers':2,'layer_types':['full_attention','chunked_attention']}", "every n-th" },
        { "{'num_hidden_layers':2,'layer_types':['chunked_attention','full_attention']}", "in no other" },
        { "{'attention_chunk_size':null}", "\"attention_chunk_size\"" },
    };
    struct model m;

    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        char why[512] = "", text[256];
        snprintf(text, sizeof text, "%s", refusals[i].config);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *config = json_loads(text, 0, NULL);
        json_object_set_new(config, "model_type", json_string("llama4_text"));
        fail_capture(why, sizeof why);
        assert_int_equal(model_from_config(config, "config", &m), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, refusals[i].word));
        json_decref(config);
    }
    load("llama-4-scout", &m);
    assert_int_equal(m.window, 8192);
    assert_int_equal(model_windowed_layers(&m), 36);
    assert_true(model_windowed(&m, 0) && !model_windowed(&m, 3) && m.l2_norm && m.tuned);
    model_free(&m);
}

/* Routers that transformers 5.24 loads in fp32 (_keep_in_fp32_modules_strict of deepseek_v3 and glm4_moe) are told where a plan has all in bf16. */
static void routers_that_are_loaded_in_fp32_are_told(void **state)
{
    static const struct { const char *model; bool told; } models[] = {
        { "moonlight-16b-a3b", true }, { "glm-4.5-air", true }, { "qwen3-30b-a3b", false }, { "mixtral-8x7b", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int fsdp = 0; fsdp < 2; fsdp++) {
            struct plan p;
            plan_of(&p, models[i].model, 8, 8, fsdp ? STRAT_FSDP : STRAT_DDP, DIALECT_TORCH, DT_BF16);
            assert_null(experts_router_note(&p));
            *(fsdp ? &p.fsdp.model_dtype : &p.ddp.model_dtype) = DT_BF16;
            assert_int_equal(experts_router_note(&p) != NULL, models[i].told);
            if (models[i].told)
                assert_int_equal(strstr(experts_router_note(&p), "uniform original parameter dtype") != NULL, fsdp);
            model_free(&p.model);
        }
}

/* Llama 4 where it is not planned. */
static void where_llama4_is_planned(void **state)
{
    struct plan p, q;

    (void)state;
    plan_of(&p, "llama-4-scout", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(plan_check(&p, "plan"), 0);
    assert_non_null(strstr(experts_note(&p), "every expert compute every token"));
    q = p;
    q.parallel.expert = 8;
    refused(&q, "parallel.expert", "compute every token");
    model_free(&p.model);
    plan_of(&p, "llama-4-scout", 8, 8, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(plan_check(&p, "plan"), 0);
    model_free(&p.model);
    plan_of(&p, "llama-4-maverick", 8, 8, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "fsdp and ddp in dialect torch", "blocks without");
    model_free(&p.model);
    plan_of(&p, "llama-4-maverick", 8, 8, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    refused(&p, "fsdp and ddp in dialect torch", "blocks without");
    model_free(&p.model);
    plan_of(&p, "llama-4-maverick", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_EAGER;
    assert_int_equal(plan_check(&p, "plan"), 0);
    q = p;
    q.unit = UNIT_HALF_BLOCK;
    refused(&q, "unit", "\"block\" or \"model\"");
    q = p;
    q.model.full_every = 3;                     /* layers 0 and 4 have positions, layer 2 has none */
    refused(&q, "without experts", "some have none");
    model_free(&p.model);
}

/* Maverick: experts in every second layer, no positions in every fourth, which has experts. */
static void blocks_of_llama4_are_of_three_kinds(void **state)
{
    static const enum piece_id kinds[4] = { PIECE_DENSE, PIECE_WINDOWED, PIECE_DENSE, PIECE_BLOCK };
    struct plan p;

    (void)state;
    plan_of(&p, "llama-4-maverick", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    for (int64_t b = 0; b < 8; b++)
        assert_int_equal(program_piece_of_block(&p, b), kinds[b % 4]);
    assert_int_equal(program_period(&p), 4);
    assert_true(program_piece_windowed(&p, PIECE_DENSE) && !program_piece_windowed(&p, PIECE_BLOCK));
    model_free(&p.model);
}

/* Products of Scout's experts, 1024 tokens each in all 16, not in the one that a token takes: 16 * 3 * 2 * 1024 * 5120 * 8192 FLOPs
 * forward.  Attention counts all scores, in chunks (from 8192 on by a mask) or not. */
static void every_expert_of_llama4_computes_every_token(void **state)
{
    struct program g = { 0 };
    struct plan p;
    double experts = 0, scores = 0;

    (void)state;
    plan_of(&p, "llama-4-scout", 4, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    p.seq = 1024;
    assert_int_equal(program_build(&p, &g), 0);
    for (int i = 0; i < g.piece[PIECE_WINDOWED].nkernels[PASS_FORWARD]; i++) {
        const struct kernel *k = &g.piece[PIECE_WINDOWED].kernels[PASS_FORWARD][i];
        experts += k->kind == KC_GEMM && !strncmp(k->name, "experts", 7) ? k->flops : 0;
        scores += k->kind == KC_ATTENTION ? k->flops : 0;
    }
    assert_close(experts, 16 * 3 * 2.0 * 1024 * 5120 * 8192, 1e-12);
    assert_close(scores, 2.0 * 40 * 1024 * 1024 * (128 + 128), 1e-12);
    /* Rotation and norms in fp32 leave q and k twice as wide: layers without positions save less. */
    assert_true(g.piece[PIECE_WINDOWED].saved > g.piece[PIECE_BLOCK].saved);
    program_free(&g);
    model_free(&p.model);
}

/* Eight layers of DeepSeek-V3: three without experts, hence three pieces of one kind and five of the other, whose tensors begin where
 * those before them end. */
static void blocks_of_two_kinds_follow_each_other(void **state)
{
    struct plan p;
    int at;

    (void)state;
    plan_of(&p, "deepseek-v3", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    at = p.model.block0;
    for (int64_t b = 0; b < 8; b++) {
        assert_int_equal(program_piece_of_block(&p, b), b < 3 ? PIECE_DENSE : PIECE_BLOCK);
        assert_int_equal(model_block_first(&p.model, b), at);
        assert_int_equal(model_block_tensors(&p.model, b), b < 3 ? 12 : 15);
        assert_int_equal(model_place_in_kind(&p.model, b), b < 3 ? b : b - 3);
        for (int i = 0; i < model_block_tensors(&p.model, b); i++)
            assert_int_equal(p.model.tensors[at + i].block, b);
        at += model_block_tensors(&p.model, b);
    }
    assert_int_equal(model_routers(&p.model), 5);
    assert_int_equal(program_alone(&p), 3);
    model_free(&p.model);
}

/* Latent attention, s tokens of one sequence: scores over 128 heads of 192, values of 128: 2 * 128 s^2 (192 + 128) FLOPs. */
static void latent_attention_has_its_flops(void **state)
{
    struct program g = { 0 };
    struct plan p;
    double flops = 0;

    (void)state;
    plan_of(&p, "deepseek-v3", 8, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    p.seq = 1024;
    assert_int_equal(program_build(&p, &g), 0);
    for (int i = 0; i < g.piece[PIECE_DENSE].nkernels[PASS_FORWARD]; i++)
        flops += g.piece[PIECE_DENSE].kernels[PASS_FORWARD][i].kind == KC_ATTENTION ? g.piece[PIECE_DENSE].kernels[PASS_FORWARD][i].flops : 0;
    assert_close(flops, 2.0 * 128 * 1024 * 1024 * (192 + 128), 1e-12);
    program_free(&g);
    model_free(&p.model);
}

static int adapt(const char *model, const char *targets, struct model *m, char why[512])
{
    struct training t = training_default();

    load(model, m);
    strcpy(t.what, "lora");
    strcpy(t.target_modules, targets);
    t.rank = 16;
    fail_capture(why, 512);
    int rc = training_apply(m, &t, "plan");
    fail_capture(NULL, 0);
    return rc;
}

/* A matrix of in x out has 16 (in + out) parameters of adapters. */
static void adapters_of_mixtures_count_as_by_hand(void **state)
{
    static const struct { const char *model, *targets; int64_t blocks, in_and_out; } list[] = {
        { "mixtral-8x7b", "q_proj,k_proj,v_proj,o_proj", 32, 2 * (4096 + 4096) + 2 * (4096 + 1024) },
        { "qwen3-30b-a3b", "q_proj,v_proj", 48, (2048 + 4096) + (2048 + 512) },
        { "gpt-oss-20b", "all-linear", 24, 2 * (2880 + 4096) + 2 * (2880 + 512) },
        { "llama-4-scout", "q_proj,k_proj,v_proj,o_proj,shared_expert.gate_proj,shared_expert.up_proj,shared_expert.down_proj", 48,
          2 * (5120 + 5120) + 2 * (5120 + 1024) + 3 * (5120 + 8192) },
        /* Gate and up, in one parameter, twice the rank; the router. */
        { "mixtral-8x7b", "all-linear", 32, 2 * (4096 + 4096) + 2 * (4096 + 1024) + (4096 + 8) + 8 * (2 * (4096 + 28672) + 14336 + 4096) },
        { "qwen3-30b-a3b", "v_proj,gate,down_proj", 48, (2048 + 512) + (2048 + 128) + 128 * (768 + 2048) },
        /* Every second layer has a shared expert of 8192, the others an MLP of 16384: two and two make 6 matrices of two blocks. */
        { "llama-4-maverick", "gate_proj,up_proj,down_proj", 24, 3 * (5120 + 8192) + 3 * (5120 + 16384) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char why[512] = "";
        struct model m;
        if (adapt(list[i].model, list[i].targets, &m, why) < 0)
            fail_msg("%s, %s: %s", list[i].model, list[i].targets, why);
        assert_int_equal(m.trainable, list[i].blocks * 16 * list[i].in_and_out);
        model_free(&m);
    }
}

/* Of E experts' weights of in x out each, A has 16 E rows of in, B out rows of 16 E; in and out of llama4's are taken for each other. */
static void adapters_of_experts_count_as_by_hand(void **state)
{
    static const struct { const char *model, *parameters; int64_t blocks, experts, in_and_out, a_in; } list[] = {
        { "mixtral-8x7b", "mlp.experts.gate_up_proj,mlp.experts.down_proj", 32, 8, 4096 + 2 * 14336 + 14336 + 4096, 4096 },
        { "qwen3-30b-a3b", "experts.down_proj", 48, 128, 768 + 2048, 768 },
        { "gpt-oss-20b", "gate_up_proj", 24, 32, 2880 + 5760, 2880 },
        { "llama-4-scout", "feed_forward.experts.gate_up_proj", 48, 16, 5120 + 2 * 8192, 2 * 8192 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct training t = training_default();
        struct model m;
        int first = -1;
        load(list[i].model, &m);
        strcpy(t.what, "lora");
        strcpy(t.target_parameters, list[i].parameters);
        t.rank = 16;
        assert_int_equal(training_apply(&m, &t, "plan"), 0);
        assert_int_equal(m.trainable, list[i].blocks * list[i].experts * 16 * list[i].in_and_out);
        for (int k = 0; k < m.ntensors && first < 0; k++)
            first = m.tensors[k].adapter == ADAPTER_LORA_A ? k : -1;
        assert_int_equal(m.tensors[first].shape[0], 16 * list[i].experts);
        assert_int_equal(m.tensors[first].shape[1], list[i].a_in);
        model_free(&m);
    }
}

static void adapters_of_other_parameters_are_refused(void **state)
{
    static const struct { const char *model, *parameters; double dropout; const char *why; } list[] = {
        { "mixtral-8x7b", "mlp.gate.weight", 0, "not of model.layers.0.mlp.gate.weight" }, { "mixtral-8x7b", "experts.gate_proj", 0, "is no parameter" },
        { "gpt-oss-20b", "down_proj_bias", 0, "adapters of experts' weights are planned" }, { "mixtral-8x7b", "down_proj", 0.1, "lora_dropout != 0" },
        { "mixtral-8x7b", "layers.3.mlp.experts.down_proj", 0, "blocks that differ" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct training t = training_default();
        char why[512] = "";
        struct model m;
        load(list[i].model, &m);
        strcpy(t.what, "lora");
        strcpy(t.target_parameters, list[i].parameters);
        t.dropout = list[i].dropout;
        fail_capture(why, sizeof why);
        assert_int_equal(training_apply(&m, &t, "plan"), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, list[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", list[i].parameters, why, list[i].why);
        model_free(&m);
    }
}

/* What PEFT 0.21 makes parameters of experts of, and what fails in it. */
static void adapters_of_other_layers_are_refused(void **state)
{
    static const struct { const char *model, *targets, *why; } list[] = {
        { "olmoe-1b-7b", "q_proj", "mixture of experts" }, { "mixtral-8x7b", "q_proj,w1", "w1 without also targeting w3" },
        { "qwen3-30b-a3b", "up_proj", "up_proj without also targeting gate_proj" },
        { "qwen3-30b-a3b", ".*\\.experts\\.(gate|up)_proj", "parameters of experts" },
        { "mixtral-8x7b", "experts", "lora.target_parameters" }, { "llama-4-scout", "all-linear", "returns two tensors" },
        { "llama-4-scout", "router", "returns two tensors" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char why[512] = "";
        struct model m;
        assert_int_equal(adapt(list[i].model, list[i].targets, &m, why), -1);
        if (!strstr(why, list[i].why))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", list[i].model, list[i].targets, why, list[i].why);
        model_free(&m);
    }
}

/* Mixtral, 8192 rows for each of 8 experts: 32768 tokens that take 2.  An expert's three products of 4096 x 14336 are
 * 3 * 2 * 8192 * 4096 * 14336 = 2.886e12 FLOPs forward; backward is twice that. */
static void grouped_products_have_their_flops(void **state)
{
    const double expert = 3.0 * 2 * 8192 * 4096 * 14336;
    struct program g = { 0 };
    struct plan p;
    double flops[NPASS] = { 0 };

    (void)state;
    plan_moe(&p, "mixtral-8x7b", 8);
    p.seq = 32768;
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++) {
            const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[pass][i];
            if (strncmp(k->name, "experts", 7) || k->kind != KC_GEMM)
                continue;
            flops[pass] += k->flops;
            assert_int_equal(k->batch, 8);
            assert_true(pass == PASS_BACKWARD || k->m == 8192);
        }
    assert_close(expert, 2.886e12, 1e-3);
    assert_close(flops[PASS_FORWARD], 8 * expert, 1e-12);
    assert_close(flops[PASS_BACKWARD], 16 * expert, 1e-12);
    program_free(&g);
    model_free(&p.model);
}

/* The program's products are what the convention counts of a block: 6 (active - embeddings and norms) a token. */
static void a_token_costs_its_active_parameters(void **state)
{
    struct program g = { 0 };
    struct plan p;
    double flops = 0, weights = 0;

    (void)state;
    plan_moe(&p, "qwen3-30b-a3b", 8);
    p.seq = 1024;
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++)
            flops += g.piece[PIECE_BLOCK].kernels[pass][i].kind == KC_GEMM ? g.piece[PIECE_BLOCK].kernels[pass][i].flops : 0;
    for (int i = p.model.block0; i < p.model.block0 + p.model.per_block; i++) {
        const struct tensor *t = &p.model.tensors[i];
        weights += t->ndim < 2 ? 0 : role_is_of_experts(t->role) ? (double)t->numel * 8 / 128 : (double)t->numel;
    }
    assert_close(flops, 6 * 1024 * weights, 1e-12);
    program_free(&g);
    model_free(&p.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_counts),
        cmocka_unit_test(a_block_of_mixtral_adds_up),
        cmocka_unit_test(experts_of_gpt_oss_have_biases),
        cmocka_unit_test(latent_attention_goes_through_few_dimensions),
        cmocka_unit_test(what_is_not_planned_is_refused_by_name),
        cmocka_unit_test(where_blocks_of_two_kinds_are_planned),
        cmocka_unit_test(chunks_of_llama4_go_with_positions),
        cmocka_unit_test(routers_that_are_loaded_in_fp32_are_told),
        cmocka_unit_test(where_llama4_is_planned),
        cmocka_unit_test(blocks_of_llama4_are_of_three_kinds),
        cmocka_unit_test(every_expert_of_llama4_computes_every_token),
        cmocka_unit_test(blocks_of_two_kinds_follow_each_other),
        cmocka_unit_test(latent_attention_has_its_flops),
        cmocka_unit_test(adapters_of_mixtures_count_as_by_hand),
        cmocka_unit_test(adapters_of_experts_count_as_by_hand),
        cmocka_unit_test(adapters_of_other_parameters_are_refused),
        cmocka_unit_test(adapters_of_other_layers_are_refused),
        cmocka_unit_test(grouped_products_have_their_flops),
        cmocka_unit_test(a_token_costs_its_active_parameters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
