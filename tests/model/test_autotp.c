/* DeepSpeed's AutoTP: what a block all-reduces, what is cut, what its config states and what is refused, in numbers that a reader can
 * redo.  Lists that DeepSpeed itself issued are in test_collectives.c (golden/collectives/deepspeed, *_tp*). */
#include "tests/model/ds_imported.h"
#include "tests/plan_words.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/plan/local_model.h"
#include "model/schedule/ledger.h"
#include "model/schedule/schedule.h"

#define PLAN "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '8xh100', 'dialect': 'deepspeed', 'micro_batch': 1," \
             " 'precision': 'bf16', 'seq': 4096, %s }"

static struct plan plan_of(const char *words) { return plan_in_words(PLAN, words); }

static void refused(const char *words, const char *because) { plan_words_refused(because, PLAN, words); }

struct calls { enum phase phase; enum coll_op op; int64_t n, elems; };

static int count(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct calls *c = arg;

    (void)iteration;
    if (o->kind == OP_COLL && sched_group(s, o)->is == GROUP_TENSOR && o->phase == c->phase && o->u.coll.op == c->op) {
        c->n++;
        c->elems += o->u.coll.elems;
    }
    return 0;
}

static struct calls calls_of(const struct schedules *s, enum phase phase, enum coll_op op)
{
    struct calls c = { .phase = phase, .op = op };

    sched_walk(s, SCHED_STEADY, count, &c);
    return c;
}

/* Forward: attention's output and the MLP's.  Backward: the inputs of q, k, v, gate and up, each by itself, and the head's.  The head's
 * logits are gathered: 4,096 x 128,256. */
static void a_block_sums_two_outputs_and_five_gradients(void **state)
{
    static const char *const stages[] = { "ddp", "zero1", "zero2", "zero3" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct schedules s = { 0 };
        char words[128];
        snprintf(words, sizeof words, "\"strategy\": \"%s\", \"parallel\": { \"tensor\": 4 }", stages[i]);
        struct plan p = plan_of(words);
        assert_int_equal(lower(&p, 0, &s), 0);
        struct calls f = calls_of(&s, PHASE_FORWARD, COLL_ALL_REDUCE), b = calls_of(&s, PHASE_BACKWARD, COLL_ALL_REDUCE);
        assert_int_equal(f.n, 2 * 32);
        assert_int_equal(b.n, 5 * 32 + 1);
        assert_int_equal(f.elems, f.n * 4096 * 4096);
        assert_int_equal(b.elems, b.n * 4096 * 4096);
        assert_int_equal(calls_of(&s, PHASE_FORWARD, COLL_ALL_GATHER).elems, 4096 * 128256);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* The embedding and 65 norms are on every rank; 32 blocks and the head are cut in 4. */
static void the_embedding_is_whole(void **state)
{
    const int64_t table = 128256 * 4096, norms = 65 * 4096, block = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336);
    struct local_model local;

    (void)state;
    struct plan p = plan_of("\"strategy\": \"zero1\", \"parallel\": { \"tensor\": 4 }");
    assert_int_equal(local_model_of(&p, 3, &local), 0);
    assert_int_equal(local.model->params, table + norms + 32 * block / 4 + table / 4);
    local_model_free(&local);
    plan_free(&p);
}

static int64_t numbers_agreed_on(const struct schedules *s, enum group over)
{
    struct sent_over c = sent_over(s, over, PHASE_OPTIMIZER, COLL_ALL_REDUCE);

    return c.calls;
}

/* FP16_Optimizer agrees among tensor-parallel ranks on overflow and on the norm, clip_grad_norm_() of fp32 on the norm, which the data-parallel
 * ranks then average; without clip there is none. */
static void stage_0_agrees_on_the_norm(void **state)
{
    static const struct { const char *words; int64_t tensor, data; } of[] = {
        { "\"clip\": 1", 2, 0 }, { "\"precision\": \"fp16\", \"clip\": 0", 2, 0 },
        { "\"precision\": \"fp32\", \"clip\": 1", 1, 1 }, { "\"precision\": \"fp32\", \"clip\": 0", 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct schedules s = { 0 };
        char words[200];
        snprintf(words, sizeof words, "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 4 }, %s", of[i].words);
        struct plan p = plan_of(words);
        assert_int_equal(lower(&p, 0, &s), 0);
        assert_int_equal(numbers_agreed_on(&s, GROUP_TENSOR), of[i].tensor);
        assert_int_equal(numbers_agreed_on(&s, GROUP_DATA), of[i].data);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* All ranks have the embedding and the norms, and the first one counts them: the others mask them in a gradient of P numbers, by zeros, their
 * sum and the mask itself.  At the first rank the peak is where gradients are joined (24 bytes a parameter), at the others here:
 * 2 + 4 + 8 + 4 and 4 + 4 + 1. */
static void stage_0_masks_what_others_count(void **state)
{
    int64_t ranks[LOWER_KINDS];

    (void)state;
    struct plan p = plan_of("\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 4 }, \"seq\": 16");
    assert_int_equal(lower_ranks(&p, ranks), 2);
    assert_int_equal(ranks[1], 1);
    for (int i = 0; i < 2; i++) {
        struct schedules s = { 0 };
        struct ledger l;
        struct local_model local;
        assert_int_equal(local_model_of(&p, ranks[i], &local), 0);
        assert_int_equal(lower(&p, ranks[i], &s), 0);
        ledger_run(&s, &l);
        assert_close((double)l.phase[SCHED_STEADY].bytes / (double)local.model->params, i ? 27 : 24, 0.01);
        schedules_free(&s);
        local_model_free(&local);
    }
    plan_free(&p);
}

static void refuses_by_name(void **state)
{
    (void)state;
    refused("\"strategy\": \"zero2\", \"parallel\": { \"tensor\": 3 }", "does not divide the world of 8 ranks");
    refused("\"strategy\": \"zero2\", \"kernels\": \"dpx\", \"parallel\": { \"tensor\": 4 }", "modelled for torch-sdpa");
    refused("\"strategy\": \"zero2\", \"model\": \"gpt2\", \"parallel\": { \"tensor\": 4 }", "llama's and mistral's layers");
    refused("\"strategy\": \"zero2\", \"parallel\": { \"tensor\": 2, \"context\": 2 }", "AutoTP beside parallel.context");
    refused("\"strategy\": \"zero3\", \"parallel\": { \"tensor\": 2 }, \"deepspeed\": { \"offload_optimizer\": { \"device\": \"cpu\" } }", "offload");
    refused("\"strategy\": \"zero2\", \"framework_version\": \"0.16.4\", \"parallel\": { \"tensor\": 2 }", "known of DeepSpeed 0.19.6");
}

static int import(struct plan *p, const char *config)
{
    *p = plan_of("\"strategy\": \"zero2\"");
    return ds_imported(p, config);
}

/* 8 ranks, 2 of which share a model: 4 x 6 samples a step. */
static void its_config_states_the_ranks_that_share_tensors(void **state)
{
    char why[512] = "";
    struct plan p;

    (void)state;
    assert_int_equal(import(&p, "{ \"tensor_parallel\": { \"autotp_size\": 2 }, \"train_batch_size\": 24, \"bf16\": { \"enabled\": true },"
                                " \"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": { \"stage\": 2 } }"), 0);
    assert_int_equal(p.parallel.tensor, 2);
    assert_int_equal(p.accumulation, 3);
    json_t *j = ds_config_export(&p);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "tensor_parallel"), "autotp_size")), 2);
    assert_null(json_object_get(j, "sequence_parallel_size"));
    json_decref(j);
    plan_free(&p);
    assert_int_equal(import(&p, "{ \"tensor_parallel\": { \"autotp_size\": 0 }, \"train_batch_size\": 8, \"zero_optimization\": { \"stage\": 2 } }"), 0);
    assert_int_equal(p.parallel.tensor, 1);
    plan_free(&p);
    fail_capture(why, sizeof why);
    assert_int_equal(import(&p, "{ \"tensor_parallel\": { \"autotp_size\": 2, \"tp_overlap_comm\": true }, \"train_batch_size\": 8 }"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "tensor_parallel.tp_overlap_comm: only autotp_size is supported yet"));
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_sums_two_outputs_and_five_gradients), cmocka_unit_test(the_embedding_is_whole),
        cmocka_unit_test(stage_0_agrees_on_the_norm), cmocka_unit_test(stage_0_masks_what_others_count),
        cmocka_unit_test(refuses_by_name), cmocka_unit_test(its_config_states_the_ranks_that_share_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
