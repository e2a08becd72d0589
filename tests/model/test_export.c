/* test_export.c -- plans as configs of tools, and what a tool cannot express. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/export.h"

static char said[1024];
static char *text;
static struct plan p;

static void start(const char *model, enum strategy s, enum dialect d, enum dtype t)
{
    plan_free(&p);
    assert_int_equal(model_load(model, &p.model), 0);
    assert_int_equal(cluster_load("2x8xh100", &p.cluster), 0);
    p.seq = 512;
    p.micro_batch = 2;
    plan_defaults(&p, s, d, t);
}

static int export_to(const char *target)
{
    size_t size = 0;
    FILE *f;
    int rc;

    free(text);
    f = open_memstream(&text, &size);
    fail_capture(said, sizeof said);
    rc = export_plan(&p, target, f);
    fail_capture(NULL, 0);
    fclose(f);
    if (rc < 0)
        assert_int_equal(size, 0);      /* a refused export leaves nothing behind */
    return rc;
}

static void has(const char *target, const char *line)
{
    if (export_to(target) < 0)
        fail_msg("refused: %s", said);
    if (!strstr(text, line))
        fail_msg("lacks \"%s\":\n%s", line, text);
}

static void refused(const char *target, const char *word)
{
    if (export_to(target) == 0)
        fail_msg("accepted, though it should name %s:\n%s", word, text);
    if (!strstr(said, word))
        fail_msg("says \"%s\", which lacks \"%s\"", said, word);
}

/* One GPU alone: a script without DDP, no config of accelerate's, and nothing that says when the optimizer steps. */
static void one_gpu_alone_is_not_wrapped(void **state)
{
    (void)state;
    start("llama-3.1-8b", STRAT_DDP, DIALECT_TORCH, DT_BF16);
    p.accumulation = 3;
    p.sync_every_micro_step = false;
    has("fsdp", "DistributedDataParallel(");
    p.ddp.wrapped = false;
    has("fsdp", "torch.optim.AdamW(");
    assert_null(strstr(text, "DistributedDataParallel"));
    assert_null(strstr(text, "no_sync"));
    refused("accelerate", "ddp.wrapped");
    p.ddp.optimizer_in_backward = true;
    refused("fsdp", "ddp.optimizer_in_backward");
}

static void torchtitan_gets_its_overrides(void **state)
{
    (void)state;
    start("llama-3.1-8b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.shard_group = 8;
    p.accumulation = 3;
    has("torchtitan", "# torchtitan 0.3.0");
    has("torchtitan", "--module llama3 --config llama3_8b\n");
    has("torchtitan", "--training.global-batch-size 96\n");         /* 2 * 3 * 16 */
    has("torchtitan", "--parallelism.data-parallel-shard-degree 8\n");
    has("torchtitan", "--parallelism.data-parallel-replicate-degree 2\n");
    has("torchtitan", "--parallelism.fsdp-reshard-after-forward default\n");
    has("torchtitan", "activation-checkpoint:none\n");
    has("torchtitan", "--training.max-norm inf\n");
    p.fsdp.reshard_after_forward = 0;
    has("torchtitan", "--parallelism.fsdp-reshard-after-forward never\n");
    p.fsdp.reshard_after_forward = p.fsdp.root_reshard_after_forward = 1;
    has("torchtitan", "--parallelism.fsdp-reshard-after-forward always\n");
    p.fsdp.reshard_after_forward = 4;
    refused("torchtitan", "fsdp.reshard_after_forward");
}

/* torchtitan's llama3_70b and llama3_405b run 8 ranks of tensor parallelism, the latter
 * compiled and in float8; left on, 16 ranks of data parallelism are refused. */
static void torchtitans_own_settings_are_switched_off(void **state)
{
    (void)state;
    start("llama-3.1-70b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    has("torchtitan", "--module llama3 --config llama3_70b\n");
    has("torchtitan", "--parallelism.tensor-parallel-degree 1\n");
    has("torchtitan", "ChunkedLossWrapper");
    start("llama-3.1-405b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    has("torchtitan", "# llama3_405b of its registry has float8 linear layers, which no override switches off");
    has("torchtitan", "--parallelism.tensor-parallel-degree 1\n");
    has("torchtitan", "--compile.no-enable\n--compile.no-enable-async-tensor-parallel\n");
}

/* torchtitan/components/quantization/float8.py of 0.3.0. */
static void float8_layers_are_a_config_of_torchtitans(void **state)
{
    (void)state;
    start("llama-3.1-405b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.float8.recipe = FLOAT8_ROWWISE;
    has("torchtitan", "Float8LinearConverter.Config(recipe_name=\"rowwise\", filter_fqns=[\"lm_head\"], model_compile_enabled=False)");
    has("torchtitan", "--module llama3 --config llama3_405b\n");
    snprintf(p.float8.filter, sizeof p.float8.filter, "lm_head,k_proj");
    has("torchtitan", "filter_fqns=[\"lm_head\", \"attention.wk\"]");
    p.float8.recipe = FLOAT8_TENSORWISE;
    refused("torchtitan", "it has rowwise and rowwise_with_gw_hp");
}

/* config/job_config.py of 0.2.2: models by name and flavor, async tensors among parallelism, no word for CUDA graphs, and what 0.3.0 has no
 * more: every other block recomputed, tensorwise float8 with its gathers. */
static void the_release_before_has_its_own_words(void **state)
{
    static const char *const new_words[] = { "--module", "disable-cuda-graphs", "enable-sequence-parallel", "activation-checkpoint:", "Chunked", "lm_head" };
    const char *old = "torchtitan-0.2.2";

    (void)state;
    start("llama-3.1-405b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.recompute = RECOMPUTE_FULL;
    p.recompute_interval = 2;
    p.float8.recipe = FLOAT8_TENSORWISE;
    p.fsdp.float8_all_gather = true;
    p.parallel.tensor = 4;
    p.parallel.sequence = true;
    p.shard_group = plan_data_ranks(&p);
    refused("torchtitan", "recompute_interval");
    has(old, "# torchtitan 0.2.2, on 2 nodes of 8 GPUs\n");
    has(old, "--model.name llama3 --model.flavor 405B\n");
    has(old, "--activation-checkpoint.mode selective\n--activation-checkpoint.selective-ac-option 2\n");
    has(old, "--parallelism.no-enable-async-tensor-parallel\n");
    has(old, "--model.converters quantize.linear.float8\n--quantize.linear.float8.recipe-name tensorwise\n"
             "--quantize.linear.float8.filter-fqns output\n--quantize.linear.float8.enable-fsdp-float8-all-gather\n");
    for (size_t i = 0; i < sizeof new_words / sizeof *new_words; i++)
        assert_null(strstr(text, new_words[i]));
    p.recompute = RECOMPUTE_OP;
    p.recompute_interval = 1;
    has(old, "--activation-checkpoint.mode selective\n--activation-checkpoint.selective-ac-option op\n");
    p.parallel.sequence = false;
    refused(old, "always cuts norms by the sequence");
}

/* 16 ranks: 2 of data, 4 of tensors, 2 stages of 2 chunks.  Its local batch is all micro-steps of a pipeline: 2 samples by 6,
 * cut into 6; 24 of two data ranks in all.  Each flag stands once: the last would hold. */
static void torchtitan_gets_a_grid(void **state)
{
    (void)state;
    start("llama-3.1-8b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.accumulation = 6;
    p.parallel.tensor = 4;
    p.parallel.pipeline = 2;
    p.parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
    p.parallel.virtual_stages = 2;
    p.shard_group = plan_data_ranks(&p);
    has("torchtitan", "--training.local-batch-size 12\n");
    has("torchtitan", "--parallelism.pipeline-parallel-microbatch-size 2\n");
    has("torchtitan", "--training.disable-cuda-graphs\n");         /* with a pipeline 0.3.0 stops without it */
    has("torchtitan", "--training.global-batch-size 24\n");
    has("torchtitan", "--parallelism.data-parallel-shard-degree 2\n");
    has("torchtitan", "--parallelism.data-parallel-replicate-degree 1\n");
    has("torchtitan", "--parallelism.tensor-parallel-degree 4\n");
    has("torchtitan", "--parallelism.enable-sequence-parallel\n");
    has("torchtitan", "--parallelism.pipeline-parallel-degree 2\n");
    has("torchtitan", "--parallelism.pipeline-parallel-schedule Interleaved1F1B\n");
    assert_null(strstr(text, "layers-per-stage"));          /* two chunks a rank are what it makes */
    for (const char *at = text; (at = strstr(at, "\n--")); at++) {
        char flag[80];
        size_t n = strcspn(at + 1, " \n");
        snprintf(flag, sizeof flag, "\n%.*s ", (int)n, at + 1);
        if (at[n + 1] == ' ' && strstr(at + 1, flag))
            fail_msg("twice: %s", flag);
    }
    p.parallel.virtual_stages = 4;                          /* 32 blocks and two: 34 by 5, hence 7 stages */
    refused("torchtitan", "parallel.virtual_stages");
    p.parallel.virtual_stages = 8;                          /* 34 by 3: 12 */
    refused("torchtitan", "parallel.virtual_stages");
    p.parallel.virtual_stages = 6;                          /* 34 by 3: 12 stages of 2 ranks */
    has("torchtitan", "--parallelism.pipeline-parallel-layers-per-stage 3\n");
    p.parallel.loss_parallel = false;
    refused("torchtitan", "parallel.loss_parallel");
    refused("accelerate", "parallel.tensor");
}

/* What a tool leaves no choice of is set, so that the plan can be exported; what was asked for is refused all the same. */
static void what_a_tool_fixes_is_settled(void **state)
{
    (void)state;
    start("gpt2", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    assert_false(export_can(&p, "torchtitan"));             /* dropout 0.1 of the model's config */
    export_settle(&p, "torchtitan");
    assert_true(p.dropout < 1e-9 && export_can(&p, "torchtitan"));
    start("gpt2", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    assert_false(export_can(&p, "accelerate"));             /* gradients in fp32, FSDP2's own */
    export_settle(&p, "accelerate");
    assert_int_equal(p.reduce_dtype, DT_BF16);
    assert_true(p.dropout > 0.09 && export_can(&p, "accelerate"));
    start("gpt2", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.optimizer = OPTIMIZER_SGD;
    export_settle(&p, "torchtitan");
    assert_int_equal(p.optimizer, OPTIMIZER_SGD);
    refused("torchtitan", "optimizer");
}

static void torchtitan_refuses_by_name(void **state)
{
    (void)state;
    start("llama-3.1-8b", STRAT_DDP, DIALECT_TORCH, DT_BF16);
    refused("torchtitan", "strategy");
    start("llama-3.1-8b", STRAT_FSDP, DIALECT_TORCH, DT_FP16);
    refused("torchtitan", "precision");
    start("llama-3.1-8b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.reduce_dtype = DT_BF16;
    refused("torchtitan", "reduce_dtype");
    p.reduce_dtype = DT_FP32;
    p.recompute = RECOMPUTE_SELECTIVE;
    refused("torchtitan", "recompute");
    start("gpt2", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    refused("torchtitan", "dropout");
}

static void pytorch_gets_the_plans_options(void **state)
{
    (void)state;
    start("llama-3.1-8b", STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    has("fsdp", "for block in model.model.layers:\n    fully_shard(block, **options)\n");
    has("fsdp", "    reshard_after_forward=None,\n");
    p.fsdp.root_reshard_after_forward = 1;
    has("fsdp", "fully_shard(model, **options | {\"reshard_after_forward\": True})\n");
    has("fsdp", "param_dtype=torch.bfloat16, reduce_dtype=torch.float32");
    p.unit = UNIT_HALF_BLOCK;
    has("fsdp", "fully_shard([block.self_attn, block.input_layernorm], **options)\n"
        "    fully_shard([block.mlp, block.post_attention_layernorm], **options)\n");
    start("gpt2", STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    has("fsdp", "transformer_layer_cls={type(model.transformer.h[0])}");
    has("fsdp", "backward_prefetch=BackwardPrefetch.BACKWARD_PRE");
    p.fsdp.model_dtype = DT_BF16;
    has("fsdp", "model = model.to(torch.bfloat16)\n");
    p.fsdp.wrap_adapters = true;
    has("fsdp", "from peft.utils.other import fsdp_auto_wrap_policy\n");
    has("fsdp", "    auto_wrap_policy=fsdp_auto_wrap_policy(model),\n");
    start("gpt2", STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.bucket_cap_mb = 12.5;
    has("fsdp", "    bucket_cap_mb=12.5,\n");
    p.precision = DT_BF16;
    has("fsdp", "torch.autocast(\"cuda\", dtype=torch.bfloat16)");
    p.ddp.model_dtype = DT_BF16;
    has("fsdp", "model = model.to(torch.bfloat16)\n");
    assert_null(strstr(text, "autocast"));
    p.ddp.comm_hook = HOOK_FP16;
    has("fsdp", "import default_hooks\n");
    has("fsdp", ")\nmodel.register_comm_hook(None, default_hooks.fp16_compress_hook)\n");
    p.ddp.comm_hook = HOOK_POWERSGD;
    p.ddp.powersgd.rank = 4;
    has("fsdp", "    matrix_approximation_rank=4,\n    start_powerSGD_iter=1000,\n    min_compression_rate=2,\n    use_error_feedback=True,\n"
        "    warm_start=True,\n)\nmodel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)\n");
    p.ddp.comm_hook = HOOK_NONE;
    p.recompute = RECOMPUTE_SELECTIVE;
    refused("fsdp", "recompute");
    start("gpt2", STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    refused("fsdp", "strategy: zero3/deepspeed");
    start("gpt2", STRAT_DP, DIALECT_TORCH, DT_FP32);
    refused("fsdp", "strategy: dp/torch");
    start("gpt2", STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.comm_hook = HOOK_BF16;
    refused("accelerate", "ddp.comm_hook: a DistributedDataParallelKwargs of the script");
    start("llama-3.2-1b", STRAT_DDP, DIALECT_TORCH, DT_BF16);       /* said as of FSDP's plans, and not in a comment */
    p.attention = ATTENTION_BY_FLASH_2;
    refused("accelerate", "attention: accelerate leaves attention to the model");
}

static void an_unknown_target_is_refused(void **state)
{
    (void)state;
    start("gpt2", STRAT_DDP, DIALECT_TORCH, DT_FP32);
    refused("nanotron", "\"nanotron\" is not a target");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_alone_is_not_wrapped),
        cmocka_unit_test(torchtitan_gets_its_overrides),
        cmocka_unit_test(torchtitans_own_settings_are_switched_off),
        cmocka_unit_test(float8_layers_are_a_config_of_torchtitans), cmocka_unit_test(the_release_before_has_its_own_words),
        cmocka_unit_test(torchtitan_gets_a_grid),
        cmocka_unit_test(what_a_tool_fixes_is_settled),
        cmocka_unit_test(torchtitan_refuses_by_name),
        cmocka_unit_test(pytorch_gets_the_plans_options),
        cmocka_unit_test(an_unknown_target_is_refused),
    };
    int rc = cmocka_run_group_tests_name("model/export", tests, NULL, NULL);

    plan_free(&p);
    free(text);
    return rc;
}
