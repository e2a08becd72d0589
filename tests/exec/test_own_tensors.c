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
        cmocka_unit_test(without_a_table_a_rank_has_the_whole_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
