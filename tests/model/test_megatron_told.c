/* What the import from Megatron-LM and the export to it say beside plan and options: what is not followed, and what no option says. */
#include "tests/model/plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/export.h"
#include "model/plan/knob.h"
#include "tests/model/megatron_text.h"

/* What an import says beside the plan. */
static json_t *said_of(const char *text, const struct plan *like, struct plan *out)
{
    json_t *said = json_array(), *before = notes_divert(said);

    assert_int_equal(imported(text, "txt", like, out), 0);
    notes_divert(before);
    return said;
}

static bool has_note(const json_t *said, const char *words)
{
    for (size_t i = 0; i < json_array_size(said); i++)
        if (strstr(json_string_value(json_array_get(said, i)), words))
            return true;
    return false;
}

/* Of a mixture all but how tokens spread, which no option says and the export does.  No balancing loss is written: Megatron-LM's own
 * coefficient of 0 is none, and the training's own stays. */
static void survives(const char *model)
{
    struct plan p = { .seq = 4096, .micro_batch = 1 }, back;
    char *text = NULL;
    size_t size;

    assert_int_equal(model_load(model, &p.model), 0);
    assert_int_equal(cluster_load("2x8xh100", &p.cluster), 0);
    plan_defaults(&p, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.accumulation = 4;
    p.parallel.tensor = 2;
    p.parallel.sequence = true;
    p.parallel.expert = 4;
    p.parallel.expert_tensor = 1;
    knob_follow(&p, NULL, NULL);
    p.parallel.expert_tensor = 1;
    for (int k = 0; k < 2; k++) {
        p.parallel.expert_imbalance = k ? 1.5 : 1;
        plan_resolve(&p);
        assert_int_equal(plan_check(&p, "t"), 0);
        json_t *said = json_array(), *before = notes_divert(said);
        FILE *to = open_memstream(&text, &size);
        assert_int_equal(export_plan(&p, "megatron", to), 0);
        fclose(to);
        notes_divert(before);
        assert_true(has_note(said, k ? "expert_imbalance: the plan's busiest rank has 1.5 times" : "evenly"));
        assert_null(strstr(text, "load-balancing"));
        json_decref(said);
        assert_int_equal(imported(text, "txt", &p, &back), 0);
        assert_close(back.parallel.expert_imbalance, 1, 0);
        back.parallel.expert_imbalance = p.parallel.expert_imbalance;
        json_t *a = plan_to_json(&p), *b = plan_to_json(&back);
        if (!json_equal(a, b))
            fail_msg("%s\n%s\n%s", text, json_dumps(a, 0), json_dumps(b, 0));
        json_decref(a);
        json_decref(b);
        free(text);
        plan_free(&back);
    }
    plan_free(&p);
}

static void a_mixture_survives_its_command_line(void **state)
{
    static const char *const models[] = { "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "moonlight-16b-a3b", "gpt-oss-20b" };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        survives(models[i]);
}

/* train_step() empties PyTorch's cache behind the backward passes: that is told, for no plan does. */
static void an_emptied_cache_is_told(void **state)
{
    struct plan model, p;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    json_t *said = said_of("--micro-batch-size 1 --seq-length 512 --bf16 --empty-unused-memory-level 2", &model, &p);
    assert_true(has_note(said, "empty_unused_memory_level is not in the plan"));
    json_decref(said);
    plan_free(&p);
    plan_free(&model);
}

/* Logs that the host waits for in each step are one note with what they cost; those that only print are none. */
static void logs_that_a_step_waits_for_are_one_note(void **state)
{
    static const struct { const char *options, *words; } rows[] = {
        { "--log-params-norm --log-num-zeros-in-grad", "log_params_norm and log_num_zeros_in_grad are not in the plan: each step waits" },
        { "--log-params-norm", ": log_params_norm is not in the plan: each step waits" },
        { "--log-num-zeros-in-grad", ": log_num_zeros_in_grad is not in the plan: each step waits" },
        { "--log-max-attention-logit", "log_max_attention_logit is not in the plan: " },
        { "--log-throughput --log-interval 1 --log-memory-to-tensorboard --log-timers-to-tensorboard", NULL },
    };
    struct plan model, p;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        size_t times = 0;
        snprintf(text, sizeof text, "--micro-batch-size 1 --seq-length 512 --bf16 %s", rows[i].options);
        json_t *said = said_of(text, &model, &p);
        for (size_t k = 0; k < json_array_size(said); k++)
            times += strstr(json_string_value(json_array_get(said, k)), "log_") != NULL;
        assert_int_equal(times, rows[i].words ? 1 : 0);
        assert_true(!rows[i].words || has_note(said, rows[i].words));
        if (i < 3)
            assert_true(has_note(said, "some 10 ms (Megatron's own figure"));
        json_decref(said);
        plan_free(&p);
    }
    plan_free(&model);
}

/* Options that hide more than the plan does: each is told once, with what it changes. */
static void what_hides_more_is_told_once(void **state)
{
    static const struct { const char *name, *changes; } told[] = {
        { "overlap_p2p_communication_warmup_flush", "one more receive buffer" },
        { "overlap_param_gather_with_optimizer_step", "after the optimizer's whole step" },
        { "tp_comm_overlap_cfg", "userbuffers" },
    };
    struct plan model, p;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    json_t *said = said_of("--micro-batch-size 1 --seq-length 512 --bf16 --overlap-p2p-communication-warmup-flush "
                           "--overlap-param-gather-with-optimizer-step --tp-comm-overlap-cfg cfg.yaml", &model, &p);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        int times = 0;
        for (size_t k = 0; k < json_array_size(said); k++)
            times += strstr(json_string_value(json_array_get(said, k)), told[i].name) != NULL;
        assert_int_equal(times, 1);
        assert_true(has_note(said, told[i].changes));
    }
    json_decref(said);
    plan_free(&p);
    plan_free(&model);
}

/* What makes another step than the plan's: told with its size, or refused where Megatron-LM stops, and nothing of usual values.  Of 512 tokens 40 heads of 128
 * in 16 bits are 5.24 MB; read and written four times more each way in 8 blocks, at 3.35 TB/s, they take 0.2 ms. */
static void what_lengthens_a_step_is_told(void **state)
{
    static const struct { const char *options, *note, *why; } rows[] = {
        { "--distributed-backend gloo", "distributed_backend: collectives are planned as nccl's", NULL }, { "--distributed-backend nccl", NULL, NULL },
        { "--distributed-backend mpi", NULL, "expected nccl or gloo" },
        { "--overlap-grad-reduce --ddp-num-buckets 2", "ddp_num_buckets is not in the plan", NULL }, { "--ddp-num-buckets 2", NULL, NULL },
        { "--ddp-num-buckets 0", NULL, "a number from 1 on" }, { "--ddp-num-buckets 2 --ddp-bucket-size 1000000", NULL, "takes it or ddp_bucket_size" },
        { "--timing-log-level 2", "timing_log_level: the host waits", NULL }, { "--timing-log-level 1", NULL, NULL }, { "--timing-log-level 3", NULL, "expected 0, 1 or 2" },
        { "--rampup-batch-size 16 16 300000", "rampup_batch_size: a step begins with 16 samples and grows over 300000", NULL },
        { "--rampup-batch-size 2", NULL, "expected three numbers" },
        { "--no-align-param-gather", NULL, NULL }, { "--normalization RMSnorm", NULL, "expected LayerNorm or RMSNorm" },
        { "--no-rope-fusion", "rotated by five kernels, not one: 0.0002 s more", NULL }, { "--moe-router-dtype fp32", NULL, NULL },
    };
    struct plan model, p;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256], why[512] = "";
        snprintf(text, sizeof text, "--micro-batch-size 1 --seq-length 512 --bf16 %s", rows[i].options);
        json_t *said = json_array(), *before = notes_divert(said);
        fail_capture(why, sizeof why);
        int rc = imported(text, "txt", &model, &p);
        fail_capture(NULL, 0);
        notes_divert(before);
        if ((rc < 0) != (rows[i].why != NULL) || (rows[i].why && !strstr(why, rows[i].why)) || json_array_size(said) != (rows[i].note ? 1 : 0) ||
            (rows[i].note && !has_note(said, rows[i].note)))
            fail_msg("%s: %s%s", rows[i].options, why, json_dumps(said, 0));
        json_decref(said);
        if (rc == 0)
            plan_free(&p);
    }
    plan_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mixture_survives_its_command_line),
        cmocka_unit_test(an_emptied_cache_is_told),
        cmocka_unit_test(logs_that_a_step_waits_for_are_one_note), cmocka_unit_test(what_hides_more_is_told_once), cmocka_unit_test(what_lengthens_a_step_is_told),
    };
    return cmocka_run_group_tests_name("model/megatron_told", tests, NULL, NULL);
}
