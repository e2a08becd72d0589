/* Which models dpxrun has kernels for, and which the block programs of its kernels describe. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/can_run.h"
#include "model/program/program.h"

static char why[1024];

static bool try_plan_of(const char *config, struct plan *p)
{
    char text[1024];
    json_t *j;
    size_t n;

    snprintf(text, sizeof text, "{'dpx_plan':1,'model':%s,'cluster':'1x2xh100','strategy':'ddp','dialect':'torch',"
             "'kernels':'dpx','seq':64,'micro_batch':1,'precision':'fp32','recompute':'none'}", config);
    n = strlen(text);
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] == '\'' ? '"' : text[i];
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    bool taken = plan_from_json(j, "plan", p) == 0;
    json_decref(j);
    return taken;
}

static void plan_of(const char *config, struct plan *p) { assert_true(try_plan_of(config, p)); }

struct refusal { const char *config, *words; };

static void models_without_kernels_are_refused_by_what_is_missing(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'granite','num_hidden_layers':1}", "granite's multipliers" },
        { "{'model_type':'gemma3_text','num_hidden_layers':1}", "norms of q and k" },
        { "{'model_type':'olmo2','num_hidden_layers':1}", "norms of q and k" },
        { "{'model_type':'glm4','num_hidden_layers':1}", "norms after attention and MLP" },
        { "{'model_type':'glm','num_hidden_layers':1}", "gate and up in one matrix" },
        { "{'model_type':'phi','num_hidden_layers':1}", "in parallel" },
        { "{'model_type':'cohere2','num_hidden_layers':1}", "in parallel" },
        { "{'model_type':'smollm3','num_hidden_layers':4}", "layers without positions" },
        { "{'model_type':'arcee','num_hidden_layers':1}", "squared ReLU" },
        { "{'model_type':'nemotron','num_hidden_layers':1,'hidden_act':'gelu'}", "1 + w" },
        { "{'model_type':'ministral3','num_hidden_layers':1}", "scaled by their positions" },
        { "{'model_type':'ministral','num_hidden_layers':1,'sliding_window':32}", "sliding window" },
        { "{'model_type':'ernie4_5','num_hidden_layers':1}", "side by side" },
        { "{'model_type':'stablelm','num_hidden_layers':1}", "stablelm" },
        { "{'model_type':'seed_oss','num_hidden_layers':1}", "seed_oss" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct plan p;
        plan_of(list[i].config, &p);
        fail_capture(why, sizeof why);
        if (can_run(&p) == 0)
            fail_msg("%s: accepted", list[i].config);
        fail_capture(NULL, 0);
        if (!strstr(why, list[i].words))
            fail_msg("%s: no \"%s\" in: %s", list[i].config, list[i].words, why);
        plan_free(&p);
    }
}

/* A family that is new is refused or stands here, after somebody compared dpxrun's losses with the framework's. */
static void families_that_run_are_those_that_were_compared(void **state)
{
    static const char *const run[] = { "gpt2", "llama", "mistral", "ministral", "qwen2", "starcoder2" };
    const struct family *f;

    (void)state;
    for (int i = 0; (f = family_at(i)); i++) {
        char config[128];
        struct plan p;
        bool listed = false;
        for (size_t k = 0; k < sizeof run / sizeof *run; k++)
            listed |= !strcmp(run[k], f->name);
        snprintf(config, sizeof config, "{'model_type':'%s','num_hidden_layers':4}", f->name);
        fail_capture(why, sizeof why);
        bool planned = try_plan_of(config, &p), runs = planned && can_run(&p) == 0;
        fail_capture(NULL, 0);
        if (runs != listed)
            fail_msg("%s: %s", f->name, runs ? "runs, and nobody compared it" : why);
        if (planned)
            plan_free(&p);
    }
}

/* Ministral is Llama's arithmetic while its window is no shorter than the sequence. */
static void models_of_llamas_arithmetic_run(void **state)
{
    static const char *const list[] = {
        "{'model_type':'llama','num_hidden_layers':1}",
        "{'model_type':'ministral','num_hidden_layers':1,'sliding_window':64}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct plan p;
        plan_of(list[i], &p);
        assert_int_equal(can_run(&p), 0);
        plan_free(&p);
    }
}

static void blocks_that_our_kernels_have_no_form_of_are_not_planned_with_them(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'olmo2','num_hidden_layers':1}", "norms only behind" },
        { "{'model_type':'opt','num_hidden_layers':1,'do_layer_norm_before':false}", "residual stream" },
        { "{'model_type':'opt','num_hidden_layers':1,'word_embed_proj_dim':96}", "another width" },
        { "{'model_type':'cohere','num_hidden_layers':1,'use_qk_norm':true}", "norms of q and k" },
        { "{'model_type':'stablelm','num_hidden_layers':1,'qk_layernorm':true}", "norms of q and k" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct program g = { 0 };
        struct plan p;
        plan_of(list[i].config, &p);
        fail_capture(why, sizeof why);
        if (program_build(&p, &g) == 0)
            fail_msg("%s: accepted", list[i].config);
        fail_capture(NULL, 0);
        if (!strstr(why, list[i].words) || !strstr(why, "torch-eager"))
            fail_msg("%s: no \"%s\" in: %s", list[i].config, list[i].words, why);
        plan_free(&p);
    }
}

/* What only PyTorch's kernels, or none, run of a grid: the key and its value are named. */
static void axes_that_are_only_planned_are_refused_by_their_key(void **state)
{
    static const char *const words[2] = { "parallel.tensor 2", "parallel.context 2" };

    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        struct plan p;
        plan_of("{'model_type':'llama','num_hidden_layers':2}", &p);
        *(axis == 0 ? &p.parallel.tensor : &p.parallel.context) = 2;
        fail_capture(why, sizeof why);
        assert_int_equal(can_run(&p), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, words[axis]));
        assert_non_null(strstr(why, "dpxrun"));
        plan_free(&p);
    }
}

static void megatrons_plans_are_for_the_planner(void **state)
{
    struct plan p;

    (void)state;
    plan_of("{'model_type':'llama','num_hidden_layers':2}", &p);
    p.dialect = DIALECT_MEGATRON;
    p.kernels = KERNELS_TE;
    for (int tensor = 1; tensor <= 2; tensor++) {       /* whatever axes it has, which other dialects run */
        p.parallel.tensor = tensor;
        fail_capture(why, sizeof why);
        assert_int_equal(can_run(&p), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "dialect megatron: dpxrun does not run it"));
    }
    plan_free(&p);
}

/* Of dialect paper, whose block is Megatron's. */
static void tensor_parallel_ranks_run(void **state)
{
    (void)state;
    for (enum pipeline_kind kind = 0; kind < NPIPELINE; kind++)
        for (int stages = 1; stages <= 2; stages++) {
            struct plan p;
            plan_of("{'model_type':'llama','num_hidden_layers':4}", &p);
            p.dialect = DIALECT_PAPER;
            p.parallel.tensor = 2;
            p.parallel.pipeline = stages;
            p.parallel.pipeline_schedule = kind;
            assert_int_equal(can_run(&p), 0);
            plan_free(&p);
        }
}

static void fp16_runs_where_overflow_is_looked_for(void **state)
{
    static const struct { enum strategy s; enum dialect d; } runs[] = {
        { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_ZERO3, DIALECT_PAPER },
        { STRAT_FSDP, DIALECT_PAPER }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_ZERO1, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
        { STRAT_DDP, DIALECT_DEEPSPEED }, { STRAT_ZERO1, DIALECT_DEEPSPEED }, { STRAT_ZERO2, DIALECT_DEEPSPEED },
        { STRAT_ZERO3, DIALECT_DEEPSPEED } };

    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct plan p;
        plan_of("{'model_type':'llama','num_hidden_layers':2}", &p);
        plan_defaults(&p, runs[i].s, runs[i].d, DT_FP16);
        p.kernels = KERNELS_DPX;
        assert_int_equal(can_run(&p), 0);
        plan_free(&p);
    }
}

static void fp16_is_refused_by_what_is_beside_it(void **state)
{
    static const struct { enum strategy s; enum dialect d; const char *words; } list[] = {
        { STRAT_DDP, DIALECT_PAPER, "parallelism" }, { STRAT_DP, DIALECT_TORCH, "strategy dp" }, { STRAT_FSDP, DIALECT_TORCH_FSDP1, "torch-fsdp1" },
        { STRAT_ZERO1, DIALECT_PAPER, "deterministic" }, { STRAT_ZERO2, DIALECT_DEEPSPEED, "other memories" },
        { STRAT_ZERO3, DIALECT_DEEPSPEED, "codes" }, { STRAT_DDP, DIALECT_TORCH, "powerSGD_hook" } };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct plan p;
        plan_of("{'model_type':'llama','num_hidden_layers':2}", &p);
        plan_defaults(&p, list[i].s, list[i].d, DT_FP16);
        p.kernels = KERNELS_DPX;
        p.parallel.tensor = i == 0 ? 2 : 1;
        p.deterministic = i == 3;
        p.ds.offload_optimizer.device = i == 4 ? OFFLOAD_CPU : OFFLOAD_NONE;
        p.ds.zero_quantized_weights = i == 5;
        p.ddp.comm_hook = i == 6 ? HOOK_POWERSGD : HOOK_NONE;
        fail_capture(why, sizeof why);
        assert_int_equal(can_run(&p), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, "precision fp16: dpxrun does not train in it with") || !strstr(why, list[i].words))
            fail_msg("no \"%s\" in: %s", list[i].words, why);
        plan_free(&p);
    }
}

/* FSDP1 trains adapters that are units of their own; the executor has no gradients for units that train in part. */
static void adapters_under_fsdp1_run_as_units_of_their_own(void **state)
{
    static const struct { enum dialect d; bool apart; int rc; } of[] = { { DIALECT_TORCH, false, 0 }, { DIALECT_TORCH_FSDP1, false, -1 },
                                                                         { DIALECT_TORCH_FSDP1, true, 0 } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p;
        plan_of("{'model_type':'llama','num_hidden_layers':2}", &p);
        plan_defaults(&p, STRAT_FSDP, of[i].d, DT_FP32);
        p.kernels = KERNELS_DPX;
        strcpy(p.train.what, "lora");
        p.fsdp.wrap_adapters = of[i].apart;
        fail_capture(why, sizeof why);
        assert_int_equal(can_run(&p), of[i].rc);
        fail_capture(NULL, 0);
        assert_true(of[i].rc == 0 || strstr(why, "torch-fsdp1"));
        plan_free(&p);
    }
}

static void pipelines_run(void **state)
{
    (void)state;
    for (enum pipeline_kind kind = 0; kind < NPIPELINE; kind++) {
        struct plan p;
        plan_of("{'model_type':'llama','num_hidden_layers':4}", &p);
        p.parallel.pipeline = 2;
        p.parallel.pipeline_schedule = kind;
        fail_capture(why, sizeof why);
        p.parallel.tensor = p.parallel.context = 1;
        assert_int_equal(can_run(&p), 0);
        p.parallel.tensor = 2;
        assert_int_equal(can_run(&p), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "parallel.tensor"));
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_that_run_are_those_that_were_compared),
        cmocka_unit_test(models_without_kernels_are_refused_by_what_is_missing),
        cmocka_unit_test(models_of_llamas_arithmetic_run),
        cmocka_unit_test(axes_that_are_only_planned_are_refused_by_their_key),
        cmocka_unit_test(megatrons_plans_are_for_the_planner),
        cmocka_unit_test(tensor_parallel_ranks_run),
        cmocka_unit_test(fp16_runs_where_overflow_is_looked_for),
        cmocka_unit_test(fp16_is_refused_by_what_is_beside_it),
        cmocka_unit_test(adapters_under_fsdp1_run_as_units_of_their_own),
        cmocka_unit_test(pipelines_run),
        cmocka_unit_test(blocks_that_our_kernels_have_no_form_of_are_not_planned_with_them),
    };
    return cmocka_run_group_tests_name("model/can_run", tests, NULL, NULL);
}
