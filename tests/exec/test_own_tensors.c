/* What the tensors of one rank's model are of the whole model's: together the ranks of a mesh have every element, and first
 * weights do not depend on how the model is cut. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/data/own_tensors.h"
#include "exec/data/weights.h"

static void of_pipeline(const char *model, enum pipeline_kind kind, int ranks, int chunks, struct plan *p)
{
    *p = (struct plan){ .micro_batch = 1, .seq = 8, .accumulation = ranks };
    if (model_load(model, &p->model) < 0)
        fail_msg("no model %s", model);
    p->cluster.world_size = p->cluster.gpus_per_node = ranks;
    p->parallel = (struct parallel_options){ .tensor = 1, .context = 1, .pipeline = ranks, .pipeline_schedule = kind,
                                             .virtual_stages = chunks };
}

/* Marks what a rank has; names and shapes are those of the whole model's tensor. */
static void take(const struct plan *p, int64_t rank, int *times)
{
    struct local_model local;
    struct own_tensors *own;

    assert_int_equal(local_model_of(p, rank, &local), 0);
    own = own_tensors_new(&local);
    assert_non_null(own);
    for (int t = 0; t < local.model->ntensors; t++) {
        const struct tensor *mine = &local.model->tensors[t];
        struct own_run run = own_tensors_run(own, t, 0, mine->numel);
        assert_string_equal(p->model.tensors[run.tensor].name, mine->name);
        assert_int_equal(run.n, mine->numel);
        assert_int_equal(run.from, 0);
        times[run.tensor]++;
        run = own_tensors_run(own, t, 3, 2);
        assert_int_equal(run.from, 3);
        assert_int_equal(run.n, 2);
    }
    own_tensors_free(own);
    local_model_free(&local);
}

/* GPT-2's tied embedding is on the first and the last stage; in a V these are one rank's. */
static void ranks_of_a_pipeline_have_every_tensor_once(void **state)
{
    static const struct { enum pipeline_kind kind; int chunks, tied; } of[] = {
        { PIPELINE_1F1B, 1, 2 }, { PIPELINE_INTERLEAVED, 2, 2 }, { PIPELINE_ZBV, 2, 1 },
    };
    int times[4096];
    struct plan p;

    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        of_pipeline("gpt2", of[k].kind, 4, of[k].chunks, &p);
        memset(times, 0, sizeof times);
        for (int64_t r = 0; r < 4; r++)
            take(&p, r, times);
        for (int t = 0; t < p.model.ntensors; t++)
            assert_int_equal(times[t], p.model.tensors[t].role == ROLE_TOKENS ? of[k].tied : 1);
        plan_free(&p);
    }
}

static void first_weights_are_the_whole_models(void **state)
{
    struct local_model local;
    struct own_tensors *own;
    struct weights *w;
    float mine[7], whole[7];
    struct plan p;

    (void)state;
    of_pipeline("gpt2", PIPELINE_INTERLEAVED, 2, 2, &p);
    w = weights_from_seed(&p.model, 5);
    assert_int_equal(local_model_of(&p, 1, &local), 0);
    own = own_tensors_new(&local);
    for (int t = 0; t < local.model->ntensors; t++)
        for (int i = 0; i < p.model.ntensors; i++)
            if (!strcmp(p.model.tensors[i].name, local.model->tensors[t].name)) {
                assert_int_equal(weights_fill_own(w, own, t, 2, 7, mine), 0);
                assert_int_equal(weights_fill(w, i, 2, 7, whole), 0);
                assert_memory_equal(mine, whole, sizeof whole);
            }
    own_tensors_free(own);
    local_model_free(&local);
    weights_close(w);
    plan_free(&p);
}

/* ---- rows and columns ---- */

static const char *const cut_models[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 12, \"n_head\": 4, \"n_positions\": 8, \"vocab_size\": 13}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"intermediate_size\": 20,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": 11, \"max_position_embeddings\": 8}",
};

static void of_tensor(const char *config, int ranks, struct plan *p)
{
    json_t *j = json_loads(config, 0, NULL);

    *p = (struct plan){ .micro_batch = 1, .seq = 8, .accumulation = 1 };
    assert_int_equal(model_from_config(j, "test", &p->model), 0);
    json_decref(j);
    p->cluster.world_size = p->cluster.gpus_per_node = ranks;
    p->parallel = (struct parallel_options){ .tensor = ranks, .context = 1, .pipeline = 1, .virtual_stages = 1 };
}

/* Runs from any element on are as long as they can be, and say what weights are first. */
static void take_cut(const struct plan *p, int64_t rank, const struct weights *w, int **times)
{
    struct local_model local;
    struct own_tensors *own;
    float mine[4096], whole[4096];

    assert_int_equal(local_model_of(p, rank, &local), 0);
    own = own_tensors_new(&local);
    for (int t = 0; t < local.model->ntensors; t++) {
        int64_t numel = local.model->tensors[t].numel;
        assert_true(numel <= 4096);
        assert_int_equal(weights_fill_own(w, own, t, 0, numel, mine), 0);
        for (int64_t at = 0; at < numel; at++) {
            struct own_run one = own_tensors_run(own, t, at, 1), all = own_tensors_run(own, t, at, numel - at);
            assert_int_equal(one.n, 1);
            assert_int_equal(one.from, all.from);
            for (int64_t i = 1; i < all.n; i++)
                assert_int_equal(own_tensors_run(own, t, at + i, 1).from, all.from + i);
            if (at + all.n < numel)
                assert_int_not_equal(own_tensors_run(own, t, at + all.n, 1).from, all.from + all.n);
            times[one.tensor][one.from]++;
            weights_fill(w, one.tensor, one.from, 1, whole);
            assert_true(whole[0] == mine[at]);
        }
    }
    own_tensors_free(own);
    local_model_free(&local);
}

/* Every element is on one rank, or, of tensors that are not cut, on each. */
static void tensor_parallel_ranks_have_every_element(void **state)
{
    (void)state;
    for (int c = 0; c < 2; c++)
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            struct plan p;
            of_tensor(cut_models[c], ranks, &p);
            struct weights *w = weights_from_seed(&p.model, 5);
            int **times = calloc((size_t)p.model.ntensors, sizeof *times);
            for (int t = 0; t < p.model.ntensors; t++)
                times[t] = calloc((size_t)p.model.tensors[t].numel, sizeof **times);
            for (int r = 0; r < ranks; r++)
                take_cut(&p, r, w, times);
            for (int t = 0; t < p.model.ntensors; t++) {
                int want = local_share_is_cut(&p.model.tensors[t]) ? 1 : ranks;
                for (int64_t i = 0; i < p.model.tensors[t].numel; i++)
                    assert_int_equal(times[t][i], want);
                free(times[t]);
            }
            free(times);
            weights_close(w);
            plan_free(&p);
        }
}

/* GPT-2's c_attn is [in, q | k | v]: of 12 each, rank 1 of 2 has columns 6 to 11 of every third. */
static void a_fused_projection_is_cut_in_three(void **state)
{
    struct local_model local;
    struct plan p;
    int t = 0;

    (void)state;
    of_tensor(cut_models[0], 2, &p);
    assert_int_equal(local_model_of(&p, 1, &local), 0);
    struct own_tensors *own = own_tensors_new(&local);
    while (strcmp(local.model->tensors[t].name, "transformer.h.0.attn.c_attn.weight"))
        t++;
    assert_int_equal(local.model->tensors[t].shape[1], 18);
    const int64_t from[] = { 0, 6, 12, 18, 25 }, at[] = { 6, 18, 30, 36 + 6, 36 + 18 + 1 }, n[] = { 6, 6, 6, 6, 5 };
    for (int i = 0; i < 5; i++) {
        struct own_run run = own_tensors_run(own, t, from[i], 100);
        assert_int_equal(run.from, at[i]);
        assert_int_equal(run.n, n[i]);
    }
    own_tensors_free(own);
    local_model_free(&local);
    plan_free(&p);
}

static void without_a_table_a_rank_has_the_whole_model(void **state)
{
    struct own_run run = own_tensors_run(NULL, 9, 4, 2);

    (void)state;
    assert_int_equal(run.tensor, 9);
    assert_int_equal(run.from, 4);
    assert_int_equal(run.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_pipeline_have_every_tensor_once),
        cmocka_unit_test(first_weights_are_the_whole_models),
        cmocka_unit_test(tensor_parallel_ranks_have_every_element),
        cmocka_unit_test(a_fused_projection_is_cut_in_three),
        cmocka_unit_test(without_a_table_a_rank_has_the_whole_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
