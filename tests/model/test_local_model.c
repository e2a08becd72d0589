/* Shares of a model: together they are the whole, each is what the papers' arithmetic says. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/local_model.h"
#include "model/plan/local_share.h"

static const char *const models[] = { "gpt2", "llama-3.1-8b", "qwen3-4b", "opt-350m", "phi-2", "falcon-40b", "mpt-7b" };
enum { NMODELS = sizeof models / sizeof *models, MOST = 4096 };

static void loaded(const char *name, struct model *m)
{
    if (model_load(name, m) < 0)
        fail_msg("no model %s", name);
}

static uint8_t partial[MOST + 1];

static struct model share_of(const struct model *m, struct local_share s)
{
    struct model out;

    assert_true(m->ntensors <= MOST);
    if (local_share_model(m, &s, &out, partial) < 0)
        fail_msg("%s has no such share", m->name);
    return out;
}

static const struct tensor *named(const struct model *m, const char *name)
{
    for (int t = 0; t < m->ntensors; t++)
        if (!strcmp(m->tensors[t].name, name))
            return &m->tensors[t];
    return NULL;
}

/* ---- today's plans ---- */

static void every_rank_of_a_data_parallel_plan_has_all_of_it(void **state)
{
    struct plan p = { .shard_group = 4 };
    struct local_model local;

    (void)state;
    p.cluster.world_size = 12;
    assert_int_equal(local_model_of(&p, 7, &local), 0);      /* shards 0-3, 4-7, 8-11 */
    assert_ptr_equal(local.model, &p.model);
    assert_int_equal(local.data_ranks, 12);
    assert_int_equal(local.data_rank, 7);
    assert_int_equal(local.shard_ranks, 4);
    assert_int_equal(local.shard_rank, 3);
    p.shard_group = 0;                      /* flat */
    assert_int_equal(local_model_of(&p, 7, &local), 0);
    assert_int_equal(local.shard_ranks, 12);
    assert_int_equal(local.shard_rank, 7);
}

/* 8 stages of llama-3.1-8b over 4 ranks of the pipe, 2 of tensors and 2 of data; torchtitan's split with the embedding and the
 * head counted as a block each is 4 5 4 4 4 4 4 3.  Rank 7 is stage 1's (digits pipe 1, data 1, tensor 1). */
static void a_rank_of_a_grid_has_its_stages_and_its_cut(void **state)
{
    struct plan p = { .seq = 128, .shard_group = 2, .accumulation = 8 };
    struct local_model local;
    int64_t params = 0, whole;

    (void)state;
    loaded("llama-3.1-8b", &p.model);
    p.cluster.world_size = 16;
    p.parallel = (struct parallel_options){ .tensor = 2, .context = 1, .pipeline = 4, .pipeline_schedule = PIPELINE_INTERLEAVED,
                                            .virtual_stages = 2, .first_stage_less = 1, .last_stage_less = 1, .sequence = true };
    for (int v = 0; v < 2; v++) {
        assert_int_equal(local_model_of(&p, 7, &local), 0);
        assert_int_equal(local.share.nchunks, 2);
        assert_int_equal(local.share.chunk[0].first, 4);
        assert_int_equal(local.share.chunk[0].blocks, 5);
        assert_int_equal(local.share.chunk[1].first, v ? 25 : 21);      /* stage 5 of a loop, 6 of a V */
        assert_int_equal(local.model->layers, 9);
        assert_string_equal(local.model->tensors[5 * local.model->per_block].name,
                            v ? "model.layers.25.self_attn.q_proj.weight" : "model.layers.21.self_attn.q_proj.weight");
        assert_int_equal(local.plan->model.layers, 9);
        assert_int_equal(local.model->heads, 16);
        assert_int_equal(local.data_ranks, 2);
        assert_int_equal(local.data_rank, 1);
        assert_int_equal(local.partial[7], MESH_AXIS(AXIS_TENSOR));     /* input_layernorm of its first block */
        local_model_free(&local);
        p.parallel.pipeline_schedule = PIPELINE_ZBV;
    }
    for (int64_t rank = 0; rank < 16; rank++) {
        assert_int_equal(local_model_of(&p, rank, &local), 0);
        assert_int_equal(local.share.embeds, rank < 4);         /* a V: the first rank has both ends */
        assert_int_equal(local.share.heads, rank < 4);
        params += local.model->params;
        local_model_free(&local);
    }
    whole = p.model.params + (2 * p.model.layers + 1) * p.model.hidden;     /* norms are on both ranks of tensors */
    assert_int_equal(params, 2 * whole);
    model_free(&p.model);
}

/* ---- shares ---- */

static void the_share_of_all_is_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < NMODELS; i++) {
        struct model m, all;
        loaded(models[i], &m);
        all = share_of(&m, local_share_whole(&m));
        assert_int_equal(all.params, m.params);
        assert_int_equal(all.ntensors, m.ntensors);
        assert_int_equal(all.nmodules, m.nmodules);
        assert_int_equal(all.block0, m.block0);
        assert_memory_equal(all.tensors, m.tensors, (size_t)m.ntensors * sizeof *m.tensors);
        assert_memory_equal(all.modules, m.modules, (size_t)m.nmodules * sizeof *m.modules);
        for (int t = 0; t < m.ntensors; t++)
            assert_int_equal(partial[t], 0);
        model_free(&all);
        model_free(&m);
    }
}

/* Norms, learned positions, projections of the embedding, and biases that are added after the sum. */
static bool every_rank_has(const struct tensor *x)
{
    return strstr(x->name, "norm") || strstr(x->name, "ln_") || strstr(x->name, "wpe") || strstr(x->name, "embed_positions") ||
           strstr(x->name, "project_") || (x->is_bias && (x->role == ROLE_ATTN_OUT || x->role == ROLE_DOWN));
}

/* Over T ranks and P stages each tensor's elements add up to its own, times T where every rank has it. */
static void elements_add_up_over_ranks_and_stages(void **state)
{
    (void)state;
    for (int i = 0; i < NMODELS; i++) {
        struct model m;
        loaded(models[i], &m);
        for (int64_t ranks = 1; ranks <= 4; ranks *= 2)
            for (int64_t stages = 1; stages <= 5; stages++) {
                static int64_t sum[MOST];
                int64_t copies = 0, params = 0;
                memset(sum, 0, sizeof sum);
                for (int64_t t = 0; t < ranks; t++)
                    for (int64_t s = 0; s < stages; s++) {
                        struct local_stage blocks = local_share_stage(m.layers, stages, s, 0, 0);
                        struct model mine = share_of(&m, (struct local_share){ ranks, t, 1, { blocks }, s == 0, s == stages - 1, false, m.vocab, 1, 0, 1, 0, 1, false, false, false, false });
                        int64_t own = 0;
                        assert_int_equal(mine.layers, blocks.blocks);
                        for (int k = 0; k < mine.ntensors; k++) {
                            const struct tensor *x = &mine.tensors[k], *whole = named(&m, x->name);
                            assert_non_null(whole);
                            assert_int_equal(x->numel, x->shape[0] * x->shape[1]);
                            assert_string_equal(mine.modules[x->module].name, m.modules[whole->module].name);
                            own += x->numel;
                            sum[whole - m.tensors] += x->numel;
                            if (whole->role == ROLE_TOKENS && x->role == ROLE_HEAD)
                                copies += x->numel;
                            if (x->block >= 0)
                                assert_int_equal(k, mine.block0 + x->block * mine.per_block +
                                                    (whole - m.tensors - m.block0) % m.per_block);
                        }
                        assert_int_equal(mine.params, own);
                        params += own;
                        model_free(&mine);
                    }
                for (int t = 0; t < m.ntensors; t++) {
                    const struct tensor *x = &m.tensors[t];
                    bool twice = x->role == ROLE_TOKENS && m.tied && stages > 1;
                    assert_int_equal(sum[t], x->numel * (every_rank_has(x) ? ranks : 1) * (twice ? 2 : 1));
                }
                assert_int_equal(copies, m.tied && stages > 1 ? m.vocab * m.token_width : 0);
                assert_true(params >= m.params);
            }
        model_free(&m);
    }
}

/* L [(2 a d h + 2 g d h + 3 f h) / T + 2 h] + 2 ceil(V/T) h + h for llama: 70B over 8 ranks has blocks of
 * (855,654,400 - 16,384) / 8 + 16,384 and 2 * 16032 * 8192 + 8192 around them. */
static void llama_over_eight_ranks(void **state)
{
    static const struct { const char *name; int64_t block, embedding, all; } want[] = {
        { "llama-3.1-70b", 106971136, 131334144, 8820367360 },
        { "llama-3.1-405b", 398491648, 262668288, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct model m, mine;
        struct local_share s;
        loaded(want[i].name, &m);
        s = local_share_whole(&m);
        s.tensor_ranks = 8;
        mine = share_of(&m, s);
        assert_int_equal(model_numel(&mine, mine.block0, mine.per_block), want[i].block);
        assert_int_equal(mine.tensors[0].numel, want[i].embedding);
        if (want[i].all)
            assert_int_equal(mine.params, want[i].all);
        assert_int_equal(mine.heads, m.heads / 8);
        assert_int_equal(mine.kv_heads, 1);
        assert_int_equal(mine.ffn, m.ffn / 8);
        assert_int_equal(mine.hidden, m.hidden);
        model_free(&mine);
        model_free(&m);
    }
}

/* 405B in 16 stages over 8 ranks: 8 blocks of 398,491,648. */
static void a_stage_between_has_blocks_alone(void **state)
{
    struct model m, mine;

    (void)state;
    loaded("llama-3.1-405b", &m);
    mine = share_of(&m, (struct local_share){ .tensor_ranks = 8, .nchunks = 1, .chunk = { { 15, 8 } } });
    assert_int_equal(mine.params, 8 * (int64_t)398491648);
    assert_int_equal(mine.block0, 0);
    assert_string_equal(mine.tensors[0].name, "model.layers.15.self_attn.q_proj.weight");
    assert_int_equal(mine.tensors[0].block, 0);
    model_free(&mine);
    model_free(&m);
}

/* 50257 tokens over 4 ranks: 12565 rows, the last 12562; Conv1D stores [in, out]: c_fc is cut in columns,
 * c_proj in rows. */
static void gpt2_over_four_ranks(void **state)
{
    struct model m, mine;
    struct local_share s;

    (void)state;
    loaded("gpt2", &m);
    s = local_share_whole(&m);
    s.tensor_ranks = 4;
    for (s.tensor_rank = 0; s.tensor_rank < 4; s.tensor_rank++) {
        mine = share_of(&m, s);
        assert_int_equal(named(&mine, "transformer.wte.weight")->shape[0], s.tensor_rank < 3 ? 12565 : 12562);
        assert_int_equal(mine.vocab, s.tensor_rank < 3 ? 12565 : 12562);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_fc.weight")->shape[0], 768);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_fc.weight")->shape[1], 768);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_fc.bias")->numel, 768);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_proj.weight")->shape[0], 768);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_proj.weight")->shape[1], 768);
        assert_int_equal(named(&mine, "transformer.h.0.mlp.c_proj.bias")->numel, 768);
        assert_int_equal(named(&mine, "transformer.h.0.attn.c_attn.weight")->shape[1], 3 * 192);
        assert_int_equal(named(&mine, "transformer.h.0.attn.c_proj.weight")->shape[0], 192);
        assert_int_equal(named(&mine, "transformer.wpe.weight")->numel, 1024 * 768);
        model_free(&mine);
    }
    model_free(&m);
}

/* ---- gradients that are parts of sums ---- */

static uint8_t partial_of(const struct model *m, const char *name)
{
    const struct tensor *t = named(m, name);

    assert_non_null(t);
    return partial[t - m->tensors];
}

static void norms_are_parts_of_sums_over_a_cut_sequence(void **state)
{
    struct model m, mine;
    struct local_share s;

    (void)state;
    loaded("qwen3-8b", &m);
    s = local_share_whole(&m);
    s.tensor_ranks = 4;
    for (int sequence = 0; sequence < 2; sequence++) {
        s.sequence = sequence;
        mine = share_of(&m, s);
        assert_int_equal(partial_of(&mine, "model.layers.3.input_layernorm.weight"), sequence ? MESH_AXIS(AXIS_TENSOR) : 0);
        assert_int_equal(partial_of(&mine, "model.norm.weight"), sequence ? MESH_AXIS(AXIS_TENSOR) : 0);
        /* its own heads, whatever the sequence */
        assert_int_equal(partial_of(&mine, "model.layers.3.self_attn.q_norm.weight"), MESH_AXIS(AXIS_TENSOR));
        assert_int_equal(partial_of(&mine, "model.layers.3.self_attn.q_proj.weight"), 0);
        assert_int_equal(partial_of(&mine, "model.embed_tokens.weight"), 0);
        model_free(&mine);
    }
    model_free(&m);
}

static void a_tied_embedding_is_on_the_first_and_on_the_last_stage(void **state)
{
    struct model m, mine;

    (void)state;
    loaded("gpt2", &m);
    mine = share_of(&m, (struct local_share){ 1, 0, 1, { { 0, 6 } }, true, false, false, m.vocab, 1, 0, 1, 0, 1, false, false, false, false });
    assert_int_equal(partial_of(&mine, "transformer.wte.weight"), MESH_AXIS(AXIS_PIPE));
    assert_int_equal(partial_of(&mine, "transformer.wpe.weight"), 0);
    model_free(&mine);
    mine = share_of(&m, (struct local_share){ 1, 0, 1, { { 6, 6 } }, false, true, false, m.vocab, 1, 0, 1, 0, 1, false, false, false, false });
    assert_int_equal(partial_of(&mine, "transformer.wte.weight"), MESH_AXIS(AXIS_PIPE));
    assert_int_equal(named(&mine, "transformer.wte.weight")->role, ROLE_HEAD);
    assert_int_equal(named(&mine, "transformer.wte.weight")->block, TENSOR_HEAD);
    assert_false(mine.tied);
    model_free(&mine);
    model_free(&m);
}

static void what_cannot_be_cut_is_refused(void **state)
{
    static const struct { const char *name; int64_t ranks; const char *why; } want[] = {
        { "gpt2", 5, "attention heads" }, { "falcon-7b", 71, "key/value heads" }, { "llama-3.1-8b", 16, "key/value heads" },
        { "olmo-2-1b", 2, "all heads of q" }, { "stablelm-2-12b", 2, "a norm each" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct model m;
        loaded(want[i].name, &m);
        assert_null(local_share_refused(&m, 1));
        assert_non_null(local_share_refused(&m, want[i].ranks));
        assert_non_null(strstr(local_share_refused(&m, want[i].ranks), want[i].why));
        model_free(&m);
    }
}

/* ---- stages ---- */

static void stages_are(int64_t layers, int64_t stages, int64_t less, const int64_t *want)
{
    int64_t next = 0;

    for (int64_t s = 0; s < stages; s++) {
        struct local_stage got = local_share_stage(layers, stages, s, less, less);
        assert_int_equal(got.blocks, want[s]);
        assert_int_equal(got.first, next);
        next += got.blocks;
    }
    assert_int_equal(next, layers);
}

/* As torchtitan's _generate_llm_fqn_per_model_part() and Megatron's accounting deal them out. */
static void blocks_are_dealt_to_stages(void **state)
{
    (void)state;
    stages_are(126, 8, 1, (int64_t[]){ 15, 16, 16, 16, 16, 16, 16, 15 });
    stages_are(126, 16, 1, (int64_t[]){ 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7 });
    stages_are(32, 4, 1, (int64_t[]){ 8, 9, 8, 7 });
    stages_are(32, 8, 1, (int64_t[]){ 4, 5, 4, 4, 4, 4, 4, 3 });
    stages_are(16, 4, 1, (int64_t[]){ 4, 5, 4, 3 });
    stages_are(80, 16, 1, (int64_t[]){ 5, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4 });
    stages_are(61, 16, 1, (int64_t[]){ 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2 });
    stages_are(32, 4, 0, (int64_t[]){ 8, 8, 8, 8 });
    assert_int_equal(local_share_stage(126, 64, 0, 1, 1).blocks, 1);       /* 128 in 64 chunks of 2 */
    assert_int_equal(local_share_stage(126, 64, 1, 1, 1).blocks, 2);
    assert_int_equal(local_share_stage(126, 64, 63, 1, 1).blocks, 1);
    assert_int_equal(local_share_stage(2, 4, 0, 3, 3).blocks, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_of_a_data_parallel_plan_has_all_of_it),
        cmocka_unit_test(a_rank_of_a_grid_has_its_stages_and_its_cut),
        cmocka_unit_test(the_share_of_all_is_the_model),
        cmocka_unit_test(elements_add_up_over_ranks_and_stages),
        cmocka_unit_test(llama_over_eight_ranks),
        cmocka_unit_test(a_stage_between_has_blocks_alone),
        cmocka_unit_test(gpt2_over_four_ranks),
        cmocka_unit_test(norms_are_parts_of_sums_over_a_cut_sequence),
        cmocka_unit_test(a_tied_embedding_is_on_the_first_and_on_the_last_stage),
        cmocka_unit_test(what_cannot_be_cut_is_refused),
        cmocka_unit_test(blocks_are_dealt_to_stages),
    };
    return cmocka_run_group_tests_name("model/local_model", tests, NULL, NULL);
}
