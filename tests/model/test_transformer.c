/* The tensor tables, held against what transformers itself builds
 * (tests/golden/models/make_tensors.py). */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"
#include "model/arch/transformer.h"

#define GOLDEN "tests/golden/models"

/* ---- Against the golden tables ---- */

static json_t *golden(void)
{
    static json_t *all;
    json_error_t e;

    if (!all)
        all = json_load_file(GOLDEN "/tensors.json", 0, &e);
    assert_non_null(all);
    return all;
}

static int drop_golden(void **state)
{
    (void)state;
    json_decref(golden());
    return 0;
}

static void load_case(const char *name, struct model *m)
{
    char path[256];

    snprintf(path, sizeof path, GOLDEN "/configs/%s.json", name);
    assert_int_equal(model_load(path, m), 0);
}

/* One row of a golden list: [name below the prefix, extents...]. */
static void check_tensor(const struct tensor *t, const char *prefix, const json_t *row)
{
    char name[160];

    snprintf(name, sizeof name, "%s%s", prefix, json_string_value(json_array_get(row, 0)));
    assert_string_equal(t->name, name);
    assert_int_equal(t->ndim, json_array_size(row) - 1);
    for (int d = 0; d < 3; d++)
        assert_int_equal(t->shape[d], d < t->ndim ? json_integer_value(json_array_get(row, (size_t)d + 1)) : 1);
    assert_int_equal(t->numel, t->shape[0] * t->shape[1] * t->shape[2]);
}

static int check_rows(const struct model *m, int at, const char *prefix, const json_t *rows)
{
    size_t i;
    json_t *row;

    json_array_foreach(rows, i, row) {
        assert_true(at < m->ntensors);
        check_tensor(&m->tensors[at++], prefix, row);
    }
    return at;
}

static void check_case(const char *name, const json_t *want)
{
    const json_t *dense = json_object_get(want, "dense_layers"), *active = json_object_get(want, "active");
    const char *pattern = json_string_value(json_object_get(want, "pattern"));
    struct model m;
    char prefix[128];
    size_t ndense = 0;
    int at;

    load_case(name, &m);
    assert_int_equal(m.layers, json_integer_value(json_object_get(want, "blocks")));
    at = check_rows(&m, 0, "", json_object_get(want, "before"));
    for (int b = 0; b < (int)m.layers; b++) {
        snprintf(prefix, sizeof prefix, "%s.%d.",
                 json_string_value(json_object_get(want, "prefix")), b);
        bool is_dense = ndense < json_array_size(dense) && json_integer_value(json_array_get(dense, ndense)) == b;
        ndense += is_dense;
        assert_int_equal(is_dense, m.experts > 0 && !model_has_experts(&m, b));
        const char kind[2] = { pattern ? pattern[b] : '\0', '\0' };
        const json_t *rows = pattern ? json_object_get(json_object_get(want, "kinds"), kind) : json_object_get(want, is_dense ? "dense" : "block");
        assert_non_null(rows);
        if (model_block_first(&m, b) != at || model_block_tensors(&m, b) != (int)json_array_size(rows))
            fail_msg("%s: block %d is %d tensors from %d, not %zu from %d", name, b, model_block_tensors(&m, b), model_block_first(&m, b),
                     json_array_size(rows), at);
        at = check_rows(&m, at, prefix, rows);
    }
    assert_int_equal(ndense, json_array_size(dense));
    assert_int_equal(model_blocks_differ(&m), ndense > 0);
    at = check_rows(&m, at, "", json_object_get(want, "after"));
    assert_int_equal(at, m.ntensors);
    assert_int_equal(m.params, json_integer_value(json_object_get(want, "total")));
    assert_int_equal(m.active, active ? json_integer_value(active) : m.params);
    model_free(&m);
}

static void every_config_has_the_tensors_that_transformers_registers(void **state)
{
    const char *name;
    json_t *want;

    (void)state;
    json_object_foreach(golden(), name, want)
        check_case(name, want);
    assert_true(json_object_size(golden()) >= 40);
}

static void every_family_is_among_the_golden_cases(void **state)
{
    const struct family *f;
    const char *name;
    json_t *want;
    struct model m;

    (void)state;
    for (int i = 0; (f = family_at(i)) != NULL; i++) {
        int cases = 0;
        assert_ptr_equal(family_find(f->name), f);          /* they are searched by halves */
        json_object_foreach(golden(), name, want) {
            load_case(name, &m);
            cases += !strcmp(m.family, f->name);
            model_free(&m);
        }
        if (cases < 3 && !f->megatron_only)
            fail_msg("%s has only %d golden cases", f->name, cases);
    }
}

/* ---- What holds in every table ---- */

static void check_blocks(const struct model *m)
{
    if (model_blocks_differ(m) || m->hybrid)
        return;
    for (int i = 0; i < m->ntensors; i++) {
        int b = (i - m->block0) / m->per_block;
        bool inside = i >= m->block0 && b < (int)m->layers;
        assert_int_equal(m->tensors[i].block >= 0, inside);
        if (inside)
            assert_int_equal(m->tensors[i].block, b);
    }
    for (int i = 0; i < m->per_block * ((int)m->layers - 1); i++) {
        const struct tensor *t = &m->tensors[m->block0 + i], *next = t + m->per_block;
        assert_int_equal(t->numel, next->numel);
        assert_int_equal(t->role, next->role);
        assert_int_equal(t->is_bias, next->is_bias);
        assert_int_equal(t->mlp_half, next->mlp_half);
    }
}

static void check_modules(const struct model *m)
{
    int at = 0;

    for (int i = 0; i < m->nmodules; i++) {
        const struct module *o = &m->modules[i];
        assert_int_equal(o->first, at);
        for (int k = 0; k < o->ntensors; k++, at++) {
            assert_int_equal(m->tensors[at].module, i);
            assert_int_equal(m->tensors[at].block, o->block);
            assert_memory_equal(m->tensors[at].name, o->name, strlen(o->name));
            bool own = role_is_of_experts(m->tensors[at].role) || m->tensors[at].role == ROLE_SINKS ||
                       (m->tensors[at].role >= ROLE_SSM_DT && m->tensors[at].role <= ROLE_SSM_D);
            if (!own)
                assert_string_equal(m->tensors[at].name + strlen(o->name), k ? ".bias" : ".weight");
        }
    }
    assert_int_equal(at, m->ntensors);
}

static void each_case(void (*check)(const struct model *))
{
    const char *name;
    json_t *want;
    struct model m;

    json_object_foreach(golden(), name, want) {
        load_case(name, &m);
        check(&m);
        model_free(&m);
    }
}

static void block_b_lies_at_block0_plus_b_times_per_block(void **state)
{
    (void)state;
    each_case(check_blocks);
}

/* As a walk over all tensors finds them. */
static void check_pieces(const struct model *m)
{
    static const int pieces[] = { TENSOR_EMBED, TENSOR_HEAD, 0 };

    for (int k = 0; k < 3; k++) {
        int at = -1;
        for (int i = 0; i < m->ntensors; i++)
            if (pieces[k] == 0 ? i >= m->block0 && i < m->block0 + model_block_tensors(m, 0) : m->tensors[i].block == pieces[k]) {
                at = model_next_tensor(m, pieces[k], at);
                assert_int_equal(at, i);
            }
        assert_int_equal(model_next_tensor(m, pieces[k], at), -1);
    }
}

static void tensors_of_a_piece_are_found_without_the_blocks_between(void **state)
{
    (void)state;
    each_case(check_pieces);
}

static void modules_own_contiguous_tensors_in_order(void **state)
{
    (void)state;
    each_case(check_modules);
}

static int count_role(const struct model *m, int block, enum tensor_role role)
{
    int n = 0;

    for (int i = 0; i < m->ntensors; i++)
        n += m->tensors[i].block == block && m->tensors[i].role == role && !m->tensors[i].is_bias;
    return n;
}

/* The roles agree with the flags: what a lowering looks for, it finds once. */
static void check_roles(const struct model *m)
{
    int separate = m->fused_qkv ? 0 : 1, gated = m->mlp == MLP_GATED;
    if (m->hybrid) {                    /* of each kind its own */
        for (int b = 0; b < (int)m->layers; b++) {
            enum block_kind kind = hybrid_kind(m, b);
            assert_int_equal(count_role(m, b, ROLE_NORM_ATTN) + count_role(m, b, ROLE_NORM_MLP), 1);
            assert_int_equal(count_role(m, b, ROLE_SSM_IN) + count_role(m, b, ROLE_SSM_OUT), kind == BLOCK_MAMBA ? 2 : 0);
            assert_int_equal(count_role(m, b, ROLE_Q) + count_role(m, b, ROLE_ATTN_OUT), kind == BLOCK_ATTENTION ? 2 : 0);
            assert_int_equal(count_role(m, b, ROLE_UP) + count_role(m, b, ROLE_DOWN), kind == BLOCK_MLP ? 2 : 0);
        }
        return;
    }
    bool behind = m->norm_place == NORM_AROUND || m->norm_place == NORM_BEHIND;
    bool listed = m->qk_norm && !strcmp(m->family, "stablelm"), experts = model_has_experts(m, 0), latent = m->kv_rank > 0;

    assert_int_equal(count_role(m, TENSOR_EMBED, ROLE_TOKENS), 1);
    assert_int_equal(count_role(m, TENSOR_EMBED, ROLE_POSITIONS), m->position == POS_LEARNED);
    assert_int_equal(count_role(m, TENSOR_HEAD, ROLE_NORM_FINAL), m->norm_weight && m->norm_place != NORM_OF_SUM);
    assert_int_equal(count_role(m, TENSOR_EMBED, ROLE_PROJECT_IN), m->token_width != m->hidden);
    assert_int_equal(count_role(m, TENSOR_HEAD, ROLE_PROJECT_OUT), m->token_width != m->hidden);
    assert_int_equal(count_role(m, TENSOR_HEAD, ROLE_HEAD), !m->tied);
    assert_int_equal(count_role(m, 0, ROLE_QKV), m->fused_qkv);
    assert_int_equal(count_role(m, 0, ROLE_Q), separate && m->q_rank == 0);
    assert_int_equal(count_role(m, 0, ROLE_Q_B), m->q_rank > 0);
    assert_int_equal(count_role(m, 0, ROLE_KV_A), latent);
    assert_int_equal(count_role(m, 0, ROLE_KV_B), latent);
    assert_int_equal(count_role(m, 0, ROLE_K), separate && !latent);
    assert_int_equal(count_role(m, 0, ROLE_V), separate && !latent);
    assert_int_equal(count_role(m, 0, ROLE_ATTN_OUT), 1);
    assert_int_equal(count_role(m, 0, ROLE_GATE_UP), m->fused_gate_up);
    assert_int_equal(count_role(m, 0, ROLE_GATE), gated && !m->fused_gate_up && !experts);
    assert_int_equal(count_role(m, 0, ROLE_UP), !m->fused_gate_up && !experts);
    assert_int_equal(count_role(m, 0, ROLE_DOWN), !experts);
    assert_int_equal(count_role(m, 0, ROLE_ROUTER), experts);
    assert_int_equal(count_role(m, 0, ROLE_EXPERTS_IN), experts);
    assert_int_equal(count_role(m, 0, ROLE_EXPERTS_OUT), experts);
    assert_int_equal(count_role(m, 0, ROLE_SHARED_DOWN), experts && m->shared_ffn > 0);
    assert_int_equal(count_role(m, 0, ROLE_NORM_ATTN),
                     m->norm_weight && m->norm_place != NORM_BEHIND);
    assert_int_equal(count_role(m, 0, ROLE_NORM_MLP), m->norm_weight && m->mlp_norm && m->norm_place != NORM_BEHIND);
    assert_int_equal(count_role(m, 0, ROLE_NORM_ATTN_POST), behind);
    assert_int_equal(count_role(m, 0, ROLE_NORM_MLP_POST), behind);
    assert_int_equal(count_role(m, 0, ROLE_Q_NORM), listed ? m->heads : m->qk_norm);
    assert_int_equal(count_role(m, 0, ROLE_K_NORM), listed ? m->kv_heads : m->qk_norm);
}

static void every_part_is_found_by_its_role(void **state)
{
    (void)state;
    each_case(check_roles);
}

static void the_halves_of_a_block_hold_attention_and_mlp(void **state)
{
    struct model m;
    int64_t mlp = 0;

    (void)state;
    assert_int_equal(model_load("gpt2", &m), 0);
    for (int i = m.block0; i < m.block0 + m.per_block; i++)
        mlp += m.tensors[i].mlp_half ? m.tensors[i].numel : 0;
    /* 8d^2 + 5d of the two layers, 2d of the norm in front; d = 768. */
    assert_int_equal(mlp, 8 * 768 * 768 + 7 * 768);
    model_free(&m);
}

static void only_gpt2_stores_its_matrices_input_first(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("gpt2", &m), 0);
    for (int i = 0; i < m.ntensors; i++)
        assert_int_equal(m.tensors[i].in_out, m.tensors[i].block >= 0 && m.tensors[i].ndim == 2);
    model_free(&m);
    assert_int_equal(model_load("opt-125m", &m), 0);
    for (int i = 0; i < m.ntensors; i++)
        assert_false(m.tensors[i].in_out);
    model_free(&m);
}

/* ---- Models from models ---- */

static void numel_adds_up_a_range(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("gpt2", &m), 0);
    assert_int_equal(model_numel(&m, 0, m.ntensors), 124439808);
    assert_int_equal(model_numel(&m, m.block0, m.per_block), 12 * 768 * 768 + 13 * 768);
    assert_int_equal(model_numel(&m, 3, 0), 0);
    model_free(&m);
}

static void fewer_layers_are_fewer_blocks_and_nothing_else(void **state)
{
    struct model m, small;

    (void)state;
    assert_int_equal(model_load("llama-3.1-8b", &m), 0);
    assert_int_equal(model_with_layers(&m, 5, &small), 0);
    assert_int_equal(small.layers, 5);
    assert_int_equal(small.params, m.params - 27 * model_numel(&m, m.block0, m.per_block));
    assert_ptr_not_equal(small.tensors, m.tensors);
    model_free(&m);
    assert_non_null(small.rope_scaling);
    model_free(&small);
}

static void a_synthetic_model_is_one_tensor(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_synthetic(7500000000, &m), 0);
    assert_int_equal(m.params, 7500000000);
    assert_int_equal(m.ntensors, 1);
    assert_int_equal(m.nmodules, 1);
    assert_int_equal(m.tensors[m.block0].numel, m.params);
    assert_int_equal(m.tensors[m.block0].block, 0);
    model_free(&m);
}

static void a_synthetic_model_needs_parameters(void **state)
{
    struct model m;
    char why[256];

    (void)state;
    fail_capture(why, sizeof why);
    assert_int_equal(model_synthetic(0, &m), -1);
    assert_int_equal(model_synthetic(((int64_t)1 << 60) + 1, &m), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "2^60"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_config_has_the_tensors_that_transformers_registers),
        cmocka_unit_test(every_family_is_among_the_golden_cases),
        cmocka_unit_test(block_b_lies_at_block0_plus_b_times_per_block),
        cmocka_unit_test(tensors_of_a_piece_are_found_without_the_blocks_between),
        cmocka_unit_test(modules_own_contiguous_tensors_in_order),
        cmocka_unit_test(every_part_is_found_by_its_role),
        cmocka_unit_test(the_halves_of_a_block_hold_attention_and_mlp),
        cmocka_unit_test(only_gpt2_stores_its_matrices_input_first),
        cmocka_unit_test(numel_adds_up_a_range),
        cmocka_unit_test(fewer_layers_are_fewer_blocks_and_nothing_else),
        cmocka_unit_test(a_synthetic_model_is_one_tensor),
        cmocka_unit_test(a_synthetic_model_needs_parameters),
    };
    return cmocka_run_group_tests_name("model/transformer", tests, NULL, drop_golden);
}
