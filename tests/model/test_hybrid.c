/* Models whose blocks have one mixer each (nemotron_h): what Megatron's Mamba-2 layer keeps, in bytes by counting what its functions hand to
 * save_for_backward(); what a rank has; layers in 16 bits beside others in 8; the sorts of units; what is refused.  transformers' blocks are held
 * against recorded steps in test_torch_memory.c, parameters in test_transformer.c, random plans in test_reserved.c. */
#include "tests/model/te_built.h"

#include "model/family/hybrid.h"
#include "model/schedule/units.h"
#include "tests/model/plans.h"

/* Nemotron-H 8B's widths. */
enum { T = 4096, H = 4096, HEADS = 128, INNER = 128 * 64, GROUPS = 8, STATE = 128, F = 21504, ALL = 2 * INNER + 2 * GROUPS * STATE + HEADS };

#define SHAPE "'hidden_size': 4096, 'intermediate_size': 21504, 'num_attention_heads': 32, 'num_key_value_heads': 8, 'mamba_num_heads': 128, " \
              "'mamba_head_dim': 64, 'n_groups': 8, 'ssm_state_size': 128, 'vocab_size': 131072, 'max_position_embeddings': 8192"

static void of(struct built *x, const char *config, int64_t ranks)
{
    start(x, config, KERNELS_TE);
    x->plan.seq = T;
    x->plan.micro_batch = 1;
    x->plan.dropout = 0;
    x->plan.parallel.tensor = ranks;
    x->plan.parallel.sequence = ranks > 1;
}

static int64_t r512(int64_t bytes) { return (bytes + 511) / 512 * 512; }
static enum piece_id piece_of(enum block_kind kind) { return (enum piece_id)(PIECE_MIXER + 4 * kind); }

/* LayerNormLinear its norm's result and a number a row; the fused function zxbcdt, the scan's output, A and dt_bias in fp32, beside what exp() keeps;
 * the norm the gated output and a number a row and group; the product what it reads.  The block's result is the next one's.  Of R ranks each has a
 * share of the heads and groups, of rows in the residual stream. */
static void a_mamba_layer_keeps_what_its_functions_save(void **state)
{
    (void)state;
    for (int64_t r = 1; r <= 8; r *= 2) {
        struct built x;
        of(&x, "{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-M*-', " SHAPE "}", r);
        is(saved(&x, piece_of(BLOCK_MAMBA)), 2 * (2 * T * H / r) + r512(4 * T / r) + 2 * T * ALL / r + 3 * (2 * T * INNER / r) + r512(4 * T * GROUPS / r)
                                                 + 3 * r512(4 * HEADS / r));
        /* The MLP's norm, its result, the product's before its activation and behind it, which is squared ReLU's input and the next product's. */
        is(x.program.piece[piece_of(BLOCK_MLP)].saved, 2 * (2 * T * H / r) + r512(4 * T / r) + 2 * (2 * T * F / r));
        finish(&x);
    }
}

/* The padded vocabulary is transformers' own here.  A rank of 8 has an eighth of all but norms of the hidden states. */
static void megatrons_table_has_transformers_parameters(void **state)
{
    struct built x;
    struct local_model local;

    (void)state;
    for (int64_t r = 1; r <= 8; r *= 8) {
        of(&x, "{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-M*-M', " SHAPE "}", r);
        assert_int_equal(local_model_of(&x.plan, 0, &local), 0);
        int64_t norms = (x.plan.model.layers + 1) * H;
        is(local.whole->params, x.plan.model.params);
        is(local.model->params, (x.plan.model.params - norms) / r + norms);
        local_model_free(&local);
        finish(&x);
    }
}

/* Of the first and the last layer, which are of two kinds, products are in 16 bits: they keep what others keep as codes of 8. */
static void layers_in_16_bits_are_of_their_own_kind(void **state)
{
    struct built x;

    (void)state;
    of(&x, "{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-M*-', " SHAPE "}", 1);
    x.plan.megatron.fp8_format = FP8_HYBRID;
    x.plan.megatron.fp8_recipe = FP8_TENSORWISE;
    x.plan.megatron.first_last_layers_bf16 = true;
    x.plan.megatron.num_layers_at_start_in_bf16 = x.plan.megatron.num_layers_at_end_in_bf16 = 1;
    build(&x);
    assert_int_equal(program_piece_of_block(&x.plan, 0), piece_of(BLOCK_MAMBA) + 2);
    assert_int_equal(program_piece_of_block(&x.plan, 2), piece_of(BLOCK_MAMBA));
    assert_int_equal(program_piece_of_block(&x.plan, 4), piece_of(BLOCK_MLP) + 2);
    is(x.program.piece[piece_of(BLOCK_MAMBA) + 2].saved - x.program.piece[piece_of(BLOCK_MAMBA)].saved, (2 - 1) * (T * H + T * INNER));
    finish(&x);
}

/* M-M*-M-MM: behind attention, and behind a Mamba-2 block that no MLP follows, equal blocks lie otherwise than before. */
static void units_of_one_sort_are_equally_far_apart(void **state)
{
    struct built x;
    struct local_model local;
    struct unit_map map;

    (void)state;
    built_start(&x, "{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-M*-M-MM', " SHAPE "}", STRAT_FSDP, DIALECT_TORCH, DT_BF16, KERNELS_TORCH_SDPA);
    assert_int_equal(local_model_of(&x.plan, 0, &local), 0);
    unit_map_init(&map, &local);
    assert_int_equal(map.n, 9);
    for (int u = 0; u < map.n; u++) {
        struct unit_ref ref = unit_at(&map, u);
        assert_int_equal(unit_tensor(&map, ref.cls, 0) + ref.index * unit_stride(&map, ref.cls), model_block_first(local.model, u));
        assert_true(unit_sum(&map, ref.cls, units_tensor_numel, NULL) == model_numel(local.model, model_block_first(local.model, u), model_block_tensors(local.model, u)));
    }
    local_model_free(&local);
    finish(&x);
}

static void what_is_not_planned_is_refused(void **state)
{
    static const struct { enum strategy s; enum dialect d; enum kernel_set k; int64_t tensor; enum recompute again; const char *why; } of[] = {
        { STRAT_ZERO3, DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, 1, RECOMPUTE_NONE, "stage 3" },
        { STRAT_FSDP, DIALECT_PAPER, KERNELS_TORCH_SDPA, 1, RECOMPUTE_NONE, "strategy" },
        { STRAT_FSDP, DIALECT_TORCH, KERNELS_TORCH_COMPILE, 1, RECOMPUTE_NONE, "kernels" },
        { STRAT_FSDP, DIALECT_TORCH, KERNELS_TORCH_SDPA, 2, RECOMPUTE_NONE, "parallel.tensor" },
        { STRAT_FSDP, DIALECT_TORCH, KERNELS_TORCH_SDPA, 1, RECOMPUTE_OP, "recompute" },
        { STRAT_ZERO1, DIALECT_MEGATRON, KERNELS_MEGATRON_LOCAL, 1, RECOMPUTE_NONE, "kernels" },
    };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct built x;
        if (!dialect_has(of[i].d, of[i].s))
            continue;
        built_start(&x, "{'model_type': 'nemotron_h', 'hybrid_override_pattern': 'M-*-', " SHAPE "}", of[i].s, of[i].d, DT_BF16, of[i].k);
        x.plan.parallel.tensor = of[i].tensor;
        x.plan.recompute = of[i].again;
        fail_capture(why, sizeof why);
        int rc = plan_check(&x.plan, "t");
        fail_capture(NULL, 0);
        if (rc != -1 || !strstr(why, of[i].why) || !strstr(why, "nemotron_h"))
            fail_msg("%zu: %s", i, rc ? why : "accepted");
        finish(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mamba_layer_keeps_what_its_functions_save),
        cmocka_unit_test(megatrons_table_has_transformers_parameters),
        cmocka_unit_test(layers_in_16_bits_are_of_their_own_kind),
        cmocka_unit_test(units_of_one_sort_are_equally_far_apart),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests_name("model/hybrid", tests, NULL, NULL);
}
