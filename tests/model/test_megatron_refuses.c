/* Options that Megatron-LM core_v0.16.1 refuses beside each other (training/arguments.py, core/transformer/transformer_config.py), or that cost
 * memory or time that no plan has: the import refuses them by name, in its words, and the export writes none. */
#include "tests/model/megatron_text.h"
#include "tests/model/plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/notes.h"
#include "model/exchange/export.h"
#include "model/plan/knob.h"

/* `says`: words of the refusal; NULL: it is read. */
struct line { const char *options, *says; };

static void check_lines(const char *model, int64_t layers, const char *begin, const struct line *of, size_t n)
{
    struct plan like, p;

    plan_of(&like, model, layers, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < n; i++) {
        char text[768], why[512] = "";
        snprintf(text, sizeof text, "%s%s", begin, of[i].options);
        fail_capture(why, sizeof why);
        int rc = imported(text, strstr(begin, "micro-batch") ? "txt" : "yaml", &like, &p);
        fail_capture(NULL, 0);
        if ((rc < 0) != (of[i].says != NULL) || (of[i].says && !strstr(why, of[i].says)))
            fail_msg("%s: %s", of[i].options, rc < 0 ? why : "it is read");
        if (rc == 0)
            plan_free(&p);
    }
    plan_free(&like);
}

#define USUAL "--micro-batch-size 1 --global-batch-size 64 --seq-length 512 --bf16 --hidden-dropout 0 --attention-dropout 0 "

static void options_that_do_not_go_together(void **state)
{
#define FP8 "--use-distributed-optimizer --fp8-format hybrid "
#define HALVES "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
    static const struct line lines[] = {
        { "--tp-comm-overlap", "tp_comm_overlap: Tensor parallel communication/GEMM overlap can happen only when" },
        { "--tp-comm-overlap --sequence-parallel", "tensor_model_parallel_size above 1" },
        { "--tp-comm-overlap --tensor-model-parallel-size 2", "tp_comm_overlap: Tensor parallel communication" },
        { "--tp-comm-overlap --tensor-model-parallel-size 2 --sequence-parallel", NULL },
        { "--recompute-granularity full --recompute-method uniform", "recompute_num_layers: missing" },
        { "--recompute-granularity full --recompute-method block", "recompute_num_layers: missing" },
        { "--recompute-granularity full --recompute-method block --recompute-num-layers 2", NULL },
        { "--recompute-granularity selective --recompute-num-layers 1", "recompute_num_layers: must be None" },
        { "--recompute-activations --recompute-num-layers 1", "recompute_num_layers: must be None" },
        { "--recompute-granularity selective --recompute-method uniform", "recompute_method: recompute method is not yet supported" },
        { "--recompute-granularity selective", NULL },
        { "--use-distributed-optimizer --fp8-param-gather", "fp8_param must be used together with fp8" },
        { "--use-distributed-optimizer --fp4-format e2m1 --fp8-param-gather", "fp8_param_gather: fp8_param must be used" },
        { "--fp8-format hybrid --fp8-param-gather", "fp8_param_gather: only supported with distributed optimizer" },
        { FP8 "--fp8-param-gather", NULL },
        { HALVES "--no-overlap-p2p-communication", "no_overlap_p2p_communication: When interleaved schedule is used" },
        { "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|tt|tt|ttL --no-overlap-p2p-communication",
          "no_overlap_p2p_communication: When interleaved" },
        { HALVES, NULL },
        { "--pipeline-model-parallel-size 2 --no-overlap-p2p-communication", NULL },
        { "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication", NULL },
        { FP8 "--recompute-granularity selective --recompute-modules layernorm", "Delayed scaling does not support moe_act and layernorm" },
        { FP8 "--fp8-recipe tensorwise --recompute-granularity selective --recompute-modules layernorm", NULL },
        { FP8 "--recompute-granularity selective --recompute-modules core_attn mlp", NULL },
        { "--overlap-grad-reduce --overlap-param-gather", "overlap_param_gather: only supported with distributed optimizer" },
        { "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", NULL },
        { "--context-parallel-size 2 --hierarchical-context-parallel-sizes 2 2", "whose product is context_parallel_size 2" },
        { "--hierarchical-context-parallel-sizes 2", "whose product is context_parallel_size 1" },
        { "--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 -2", "whose product is context_parallel_size 4" },
        { "--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2", NULL },
        { "--moe-router-padding-for-quantization", "moe_router_padding_for_quantization: fp8/fp4 must be specified" },
    };

    (void)state;
    check_lines("llama-3.1-8b", 8, USUAL, lines, sizeof lines / sizeof *lines);
#undef HALVES
#undef FP8
}

static void options_of_mixtures_that_do_not_go_together(void **state)
{
#define GRAPHS "--cuda-graph-impl local --cuda-graph-scope attn moe_router moe_preprocess "
    static const struct line lines[] = {
        { "--moe-router-load-balancing-type sinkhorn", "moe_router_load_balancing_type: sinkhorn is not modelled" },
        { "--moe-router-load-balancing-type none --moe-aux-loss-coeff 0.01", NULL },
        { "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01", "global_aux_loss is not modelled" },
        { "--moe-aux-loss-coeff 0.01 0.001", "several losses at once are not modelled yet" },
        { "--moe-layer-recompute --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
          "Do not set --moe-layer-recompute with full recompute granularity" },
        { "--moe-router-padding-for-quantization", "moe_router_padding_for_quantization: fp8/fp4 must be specified" },
        { "--fp8-format hybrid --moe-router-padding-for-fp8 --moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity",
          "beside moe_expert_capacity_factor it is not modelled yet" },
        { "--moe-router-padding-for-fp8", "moe_router_padding_for_fp8: fp8/fp4 must be specified" },
        { "--moe-router-padding-for-fp8 --fp8-format hybrid", NULL },
        { GRAPHS "--expert-model-parallel-size 8", "cuda_graph_impl: --moe-pad-experts-for-cuda-graph-inference must be set" },
        { GRAPHS "--expert-model-parallel-size 8 --moe-pad-experts-for-cuda-graph-inference", NULL },
        { GRAPHS, NULL },
        { "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess --expert-model-parallel-size 8", NULL },
    };

    (void)state;
    check_lines("qwen3-30b-a3b", 4, USUAL "--use-distributed-optimizer --moe-grouped-gemm --moe-token-dispatcher-type alltoall ", lines,
                sizeof lines / sizeof *lines);
#undef GRAPHS
}

#define AWARE "--use-distributed-optimizer --use-precision-aware-optimizer "

static void words_and_options_that_are_not_planned(void **state)
{
    static const struct line lines[] = {
        { "--recompute-granularity foo", "recompute_granularity: expected full or selective" },
        { "--recompute-method foo", "recompute_method: expected uniform or block" },
        { "--transformer-impl foo", "transformer_impl: expected" },
        { "--transformer-impl inference_optimized", "transformer_impl: expected" },
        { "--cross-entropy-loss-fusion --cross-entropy-fusion-impl foo", "cross_entropy_fusion_impl: expected native or te" },
        { "--fp8-format hybrid --tp-only-amax-red", "tp_only_amax_red: Megatron-LM's command line has no such option" },
        { "--fp32-residual-connection", "fp32_residual_connection:" },
        { "--moe-layer-recompute", NULL },
        { "--fine-grained-activation-offloading --offload-modules core_attn", "fine_grained_activation_offloading:" },
        { "--offload-modules core_attn", "offload_modules:" },
        { "--main-grads-dtype bf16", "main_grads_dtype: can only be fp32 when not using precision-aware optimizer" },
        { "--main-params-dtype fp16", "main_params_dtype: can only be fp32 when not using precision-aware optimizer" },
        { "--exp-avg-dtype fp8", "exp_avg_dtype: can only be fp32 when not using precision-aware optimizer" },
        { "--exp-avg-sq-dtype bf16", "exp_avg_sq_dtype: can only be fp32 when not using precision-aware optimizer" },
        { "--main-grads-dtype fp32 --exp-avg-dtype fp32", NULL },
        { "--use-precision-aware-optimizer", "use_precision_aware_optimizer: only supported with distributed optimizer" },
        { AWARE, NULL },
        { AWARE "--main-grads-dtype bf16 --main-params-dtype fp16 --exp-avg-dtype fp8 --exp-avg-sq-dtype bf16", NULL },
        { AWARE "--main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32",
          "main_grads_dtype: can only be fp32 when --accumulate-allreduce-grads-in-fp32 is set" },
        { AWARE "--accumulate-allreduce-grads-in-fp32", NULL },
        { AWARE "--main-grads-dtype fp16", "main_grads_dtype: expected fp32 or bf16" },
        { AWARE "--main-params-dtype bf16", "main_params_dtype: expected fp32 or fp16" },
        { AWARE "--exp-avg-dtype int8", "exp_avg_dtype: expected fp32, bf16, fp16 or fp8" },
        { AWARE "--no-store-param-remainders", "no_store_param_remainders: Megatron-LM's command line has no such option" },
        { AWARE "--optimizer sgd", "optimizer:" },
        { AWARE "--fp8-format hybrid --fp8-param-gather", "use_precision_aware_optimizer: beside fp8_param_gather it is not modelled yet" },
        { "--use-nccl-ub", "use_nccl_ub:" },
        { "--fp4-param", "fp4_param:" },
        { "--optimizer-cpu-offload", "optimizer_cpu_offload:" },
        { "--use-torch-fsdp2", "use_torch_fsdp2:" },
        { "--use-megatron-fsdp", "use_megatron_fsdp:" },
        { "--use-custom-fsdp", "use_custom_fsdp:" },
        { "--cpu-offloading-num-layers 2", "cpu_offloading_num_layers:" },
        { "--cpu-offloading-num-layers 0", NULL },
    };

    (void)state;
    check_lines("llama-3.1-8b", 8, USUAL, lines, sizeof lines / sizeof *lines);
}

/* A recipe does not go through training/arguments.py: Megatron-Bridge switches tp_comm_overlap off where there is one tensor-parallel
 * rank, and TransformerConfig has a field tp_only_amax_red. */
static void recipes_are_held_to_the_core_alone(void **state)
{
#define BF16 "mixed_precision:\n  bf16: true\n"
#define SHARDED BF16 "optimizer:\n  use_distributed_optimizer: true\n  use_precision_aware_optimizer: true\n"
#define RECIPE "train:\n  micro_batch_size: 1\n  global_batch_size: 64\nmodel:\n  seq_length: 512\n"
    static const struct line lines[] = {
        { BF16 "comm_overlap:\n  tp_comm_overlap: true\n", NULL },
        { "mixed_precision:\n  bf16: true\n  fp8: hybrid\n  tp_only_amax_red: true\n", NULL },
        { BF16 "optimizer:\n  exp_avg_dtype: torch.bfloat16\n", "exp_avg_dtype: can only be fp32 when not using precision-aware optimizer" },
        { BF16 "optimizer:\n  exp_avg_dtype: torch.float32\n", NULL },
        { BF16 "optimizer:\n  use_precision_aware_optimizer: true\n", "use_precision_aware_optimizer: only supported with distributed optimizer" },
        { SHARDED "  exp_avg_dtype:\n    _call_: false\n    _target_: torch.bfloat16\n", NULL },
        { SHARDED "  exp_avg_dtype:\n    _target_: torch.int32\n", "exp_avg_dtype: expected a number format" },
        { SHARDED "  exp_avg_dtype: 16\n", "exp_avg_dtype: expected a number format" },
        { SHARDED "  main_params_dtype: torch.bfloat16\n", "main_params_dtype: expected fp32 or fp16" },
        { SHARDED "  exp_avg_dtype: bfloat16\n  exp_avg_sq_dtype: torch.uint8\n  store_param_remainders: false\n", NULL },
        { BF16 "ddp:\n  nccl_ub: true\n", "nccl_ub:" },
        { BF16 "ddp:\n  nccl_ub: false\n", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        check_lines("llama-3.1-8b", 8, RECIPE, &lines[i], 1);
#undef RECIPE
#undef SHARDED
#undef BF16
}

/* The command line of a plan, and what is said beside it; to be freed. */
static char *exported(const struct plan *p, json_t *said)
{
    json_t *before = notes_divert(said);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    int rc = export_plan(p, "megatron", to);

    fclose(to);
    notes_divert(before);
    assert_int_equal(rc, 0);
    return text;
}

/* Experts over ranks with local graphs: the option that training/arguments.py asks for is written, and read. */
static void local_graphs_of_experts_are_written_as_they_are_read(void **state)
{
    struct plan p, back;
    json_t *said = json_array();

    (void)state;
    plan_of(&p, "qwen3-30b-a3b", 4, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.parallel.expert = 8;
    p.megatron.cuda_graph_impl = GRAPHS_LOCAL;
    strcpy(p.megatron.cuda_graph_scope, "attn,moe_router,moe_preprocess");
    knob_follow(&p, NULL, NULL);
    plan_resolve(&p);
    assert_int_equal(plan_check(&p, "t"), 0);
    char *text = exported(&p, said);
    assert_non_null(strstr(text, "--moe-pad-experts-for-cuda-graph-inference"));
    assert_int_equal(imported(text, "txt", &p, &back), 0);
    json_t *a = plan_to_json(&p), *b = plan_to_json(&back);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    json_decref(said);
    free(text);
    plan_free(&back);
    plan_free(&p);
}

/* What no option says is told, and what the command line refuses is not written. */
static void keys_without_an_option_are_told(void **state)
{
    char why[512] = "";
    struct plan p;
    json_t *said = json_array();

    (void)state;
    plan_of(&p, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.megatron.fp8_format = FP8_HYBRID;
    p.megatron.tp_only_amax_red = true;
    char *text = exported(&p, said);
    assert_null(strstr(text, "amax-red"));
    assert_int_equal(json_array_size(said), 1);
    assert_non_null(strstr(json_string_value(json_array_get(said, 0)), "tp_only_amax_red: no option"));
    json_decref(said);
    free(text);
    p.parallel.pipeline = p.parallel.virtual_stages = 2;
    p.megatron.overlap_p2p_comm = false;
    fail_capture(why, sizeof why);
    assert_true(export_plan(&p, "megatron", stdout) < 0);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "megatron.overlap_p2p_comm: false"));
    plan_free(&p);
}

/* --main-grads-dtype bf16 leaves accumulate_allreduce_grads_in_fp32 off (training/arguments.py): the buffer and the reduce-scatter are in bf16. */
static void states_are_read_and_written(void **state)
{
    static const struct { const char *options; enum dtype grads; enum adam_main main; enum adam_state avg, sq; } of[] = {
        { AWARE, DT_FP32, MAIN_FP32, ADAM_FP32, ADAM_FP32 },
        { AWARE "--main-grads-dtype bf16", DT_BF16, MAIN_FP32, ADAM_FP32, ADAM_FP32 },
        { AWARE "--grad-reduce-in-bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8", DT_BF16, MAIN_FP32, ADAM_BF16, ADAM_FP8 },
        { AWARE "--main-grads-dtype fp32 --main-params-dtype fp16 --exp-avg-dtype fp16", DT_FP32, MAIN_FP16, ADAM_FP16, ADAM_FP32 },
    };
    struct plan like, p;

    (void)state;
    plan_of(&like, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < 2 * sizeof of / sizeof *of; i++) {
        char text[768];
        snprintf(text, sizeof text, "%s%s", USUAL, of[i / 2].options);
        assert_int_equal(imported(text, "txt", &like, &p), 0);
        if (i % 2) {                    /* written, and read again */
            json_t *said = json_array();
            char *lines = exported(&p, said);
            plan_free(&p);
            assert_int_equal(json_array_size(said), 0);
            assert_int_equal(imported(lines, "txt", &like, &p), 0);
            free(lines);
            json_decref(said);
        }
        assert_true(p.megatron.use_precision_aware_optimizer && p.megatron.store_param_remainders);
        assert_int_equal(p.reduce_dtype, of[i / 2].grads);
        assert_int_equal(p.megatron.main_params_dtype, of[i / 2].main);
        assert_int_equal(p.megatron.exp_avg_dtype, of[i / 2].avg);
        assert_int_equal(p.megatron.exp_avg_sq_dtype, of[i / 2].sq);
        plan_free(&p);
    }
    plan_free(&like);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_do_not_go_together),
        cmocka_unit_test(options_of_mixtures_that_do_not_go_together),
        cmocka_unit_test(words_and_options_that_are_not_planned),
        cmocka_unit_test(recipes_are_held_to_the_core_alone),
        cmocka_unit_test(local_graphs_of_experts_are_written_as_they_are_read),
        cmocka_unit_test(states_are_read_and_written), cmocka_unit_test(keys_without_an_option_are_told),
    };
    return cmocka_run_group_tests_name("model/megatron_refuses", tests, NULL, NULL);
}
