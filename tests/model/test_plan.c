/* test_plan.c -- plans from JSON: defaults, refusals, every key back and forth. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/plan/plan.h"
#include "tests/model/random_plan.h"

static char said[1024];

/* A plan from JSON with '' for "; NULL in `said` when accepted. */
static int read_text(const char *text, struct plan *p)
{
    char *json = strdup(text);
    json_error_t e;
    json_t *j;
    int rc;

    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    j = json_loads(json, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        fail_msg("test input: %s at %d: %s", e.text, e.position, json);
    free(json);
    fail_capture(said, sizeof said);
    rc = plan_from_json(j, "t.json", p);
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

#define HEAD "'dpx_plan':1,'model':'gpt2','cluster':'2x8xh100','seq':512,"

static void accepts(const char *rest, struct plan *p)
{
    char text[2048];

    snprintf(text, sizeof text, "{" HEAD "%s}", rest);
    if (read_text(text, p) < 0)
        fail_msg("%s: refused: %s", rest, said);
}

static void refuses(const char *rest, const char *word)
{
    char text[2048];
    struct plan p;

    snprintf(text, sizeof text, "{" HEAD "%s}", rest);
    if (read_text(text, &p) == 0)
        fail_msg("%s: accepted", rest);
    if (strncmp(said, "t.json: ", 8) || !strstr(said, word))
        fail_msg("%s: says \"%s\", which lacks \"%s\"", rest, said, word);
}

static void what_is_left_out_takes_the_dialects_default(void **state)
{
    (void)state;
    struct plan p;

    accepts("'strategy':'zero3'", &p);
    assert_int_equal(p.dialect, DIALECT_DEEPSPEED);
    assert_int_equal(p.kernels, KERNELS_TORCH_SDPA);
    assert_int_equal(p.ds.reduce_bucket_size, 500000000);
    assert_int_equal(p.ds.stage3_prefetch_bucket_size, 50000000);
    assert_int_equal(p.ds.stage3_model_persistence_threshold, INT64_MAX);
    assert_int_equal(p.ds.overlap_comm, 1);
    assert_int_equal(p.unit, UNIT_MODULE);
    assert_true(p.clip >= 1 && p.clip <= 1);
    assert_true(p.sync_every_micro_step && !p.ds.check_grad_overflow);  /* fp32 */
    plan_free(&p);

    accepts("'strategy':'zero2','dialect':'deepspeed'", &p);
    assert_int_equal(p.ds.overlap_comm, 0);
    plan_free(&p);

    accepts("'strategy':'ddp','accumulation':4", &p);
    assert_int_equal(p.dialect, DIALECT_TORCH);
    assert_true(p.ddp.bucket_cap_mb < 0 && p.ddp.broadcast_buffers && p.sync_every_micro_step);
    assert_true(p.clip <= 0);
    assert_int_equal(plan_global_batch(&p), 64);
    plan_free(&p);

    accepts("'strategy':'fsdp','dialect':'torch-fsdp1','precision':'bf16'", &p);
    assert_int_equal(p.fsdp.backward_prefetch, PREFETCH_PRE);
    assert_int_equal(p.reduce_dtype, DT_BF16);          /* param_dtype fills reduce_dtype */
    assert_true(p.fsdp.limit_all_gathers && !p.fsdp.use_orig_params);
    plan_free(&p);

    accepts("'strategy':'ddp','dialect':'paper','accumulation':4", &p);
    assert_int_equal(p.kernels, KERNELS_DPX);
    assert_false(p.sync_every_micro_step);
    plan_free(&p);
}

static void a_framework_version_switches_defaults(void **state)
{
    (void)state;
    struct plan p;

    accepts("'strategy':'fsdp','precision':'bf16'", &p);
    assert_int_equal(p.reduce_dtype, DT_FP32);
    assert_int_equal(plan_version(&p), 2015);
    plan_free(&p);
    accepts("'strategy':'fsdp','precision':'bf16','framework_version':'2.9'", &p);
    assert_int_equal(p.reduce_dtype, DT_BF16);
    assert_int_equal(plan_version(&p), 2009);
    plan_free(&p);
    accepts("'strategy':'zero1','precision':'bf16','framework_version':'0.16'", &p);
    assert_true(p.clip <= 0 && !p.ds.check_grad_overflow);
    plan_free(&p);
    refuses("'strategy':'zero1','framework_version':'0.5'", "known: 0.19.8, 0.19.6, 0.16");
    refuses("'strategy':'ddp','framework_version':'0.19.6'", "2.15, 2.11, 2.9, 2.5, 2.4");
    refuses("'strategy':'ddp','dialect':'paper','framework_version':'1.0'", "framework_version");
}

#define OF(model) "{'dpx_plan':1,'model':'" model "','cluster':'8xh100','seq':512,'strategy':"

/* What AutoModelForCausalLM.from_config(config).config._attn_implementation is in transformers 5.23. */
static void the_default_kernels_are_those_that_transformers_picks(void **state)
{
    (void)state;
    static const struct { const char *text; enum kernel_set kernels; } rows[] = {
        { OF("bloom-560m") "'fsdp'}", KERNELS_TORCH_EAGER },
        { OF("bloom-560m") "'zero3','dialect':'deepspeed'}", KERNELS_TORCH_EAGER },
        { OF("gemma-2-2b") "'ddp','dialect':'torch'}", KERNELS_TORCH_EAGER },
        { OF("gemma-2-2b") "'ddp','dialect':'paper'}", KERNELS_DPX },
        { "{'dpx_plan':1,'model':{'model_type':'mpt'},'cluster':'8xh100','seq':512,'strategy':'fsdp'}",
          KERNELS_TORCH_EAGER },
        { OF("falcon-7b") "'fsdp'}", KERNELS_TORCH_SDPA },
        { OF("gemma-2b") "'fsdp'}", KERNELS_TORCH_SDPA },
    };
    struct plan p;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (read_text(rows[i].text, &p) < 0)
            fail_msg("%s: refused: %s", rows[i].text, said);
        if (p.kernels != rows[i].kernels)
            fail_msg("%s: %s", rows[i].text, kernels_name(p.kernels));
        plan_free(&p);
    }
    assert_int_equal(read_text(OF("bloom-560m") "'fsdp','kernels':'torch-sdpa'}", &p), -1);
    assert_non_null(strstr(said, "kernels: transformers refuses torch-sdpa for bloom"));
    assert_int_equal(read_text(OF("bloom-560m") "'fsdp','kernels':'torch-eager'}", &p), 0);
    plan_free(&p);
}

static void unknown_keys_are_named_with_the_nearest(void **state)
{
    (void)state;
    refuses("'strategy':'ddp','ddp':{'buket_cap_mb':4}", "ddp.buket_cap_mb: unknown key; did you mean "
            "\"bucket_cap_mb\"?");
    refuses("'strategy':'ddp','microbatch':4", "microbatch: unknown key; did you mean \"micro_batch\"");
    refuses("'strategy':'ddp','stategy':4", "stategy: unknown key; did you mean \"strategy\"");
    refuses("'strategy':'ddp','xyzzy':4", "xyzzy: unknown key");
    /* What other tools call them. */
    static const char *const theirs[][2] = {
        { "gradient_accumulation_steps", "accumulation" }, { "per_device_train_batch_size", "micro_batch" }, { "seq_len", "seq" }, { "tp", "parallel.tensor" },
        { "gradient_checkpointing", "recompute" }, { "world_size", "cluster" }, { "dtype", "precision" }, { "zero-stage", "strategy" },
    };
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) {
        char key[80], what[120];
        snprintf(key, sizeof key, "'strategy':'ddp','%s':1", theirs[i][0]);
        snprintf(what, sizeof what, "%s: unknown key; a plan calls it \"%s\"", theirs[i][0], theirs[i][1]);
        refuses(key, what);
    }
    refuses("'strategy':'ddp','memory':1", "memory: unknown key");
}

static void keys_of_another_cell_say_where_they_belong(void **state)
{
    (void)state;
    refuses("'strategy':'fsdp','fsdp':{'limit_all_gathers':true}",
            "fsdp.limit_all_gathers: not an option of strategy \"fsdp\" in dialect \"torch\"; it belongs "
            "to fsdp/torch-fsdp1");
    refuses("'strategy':'zero2','deepspeed':{'stage3_max_live_parameters':1e9}", "zero3/deepspeed");
    refuses("'strategy':'ddp','dialect':'torch','deepspeed':{'reduce_bucket_size':5e8}",
            "deepspeed.reduce_bucket_size: not an option");
    refuses("'strategy':'zero1','ddp':{'static_graph':true}", "ddp.static_graph");
    refuses("'strategy':'ddp','shard_group':8", "shard_group: ddp/torch has one group of all 16 ranks");
    refuses("'strategy':'ddp','dialect':'megatron','shard_group':8", "shard_group: ddp/megatron has one group of all 16 ranks");
    refuses("'strategy':'zero1','dialect':'megatron','shard_group':1", "an instance of the distributed optimizer on one rank shards nothing");
    refuses("'strategy':'zero1','dialect':'megatron','precision':'bf16','shard_group':8,'megatron':{'fp8_format':'hybrid'}", "8- and 4-bit floats yet");
    refuses("'strategy':'zero1','dialect':'megatron','precision':'bf16','shard_group':4,'megatron':{'overlap_grad_reduce':true},'accumulation':4,"
            "'parallel':{'pipeline':2,'pipeline_schedule':'interleaved','virtual_stages':2}", "not planned in an interleaved pipeline");
    refuses("'strategy':'ddp','unit':'block'", "unit");
    refuses("'strategy':'zero1','dialect':'torch','dp':{'gather':'loss'}", "dp.gather");
}

static void empty_cells_of_the_table_are_refused(void **state)
{
    (void)state;
    char text[128];

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            struct plan p;
            snprintf(text, sizeof text, "'strategy':'%s','dialect':'%s'",
                     strategy_name((enum strategy)s), dialect_name((enum dialect)d));
            if (s == STRAT_DP && d == DIALECT_TORCH) {
                refuses(text, "one process: it cannot span 2 nodes");
            } else if (dialect_has((enum dialect)d, (enum strategy)s)) {
                accepts(text, &p);
                plan_free(&p);
            } else {
                refuses(text, "these have it: paper");
            }
        }
    refuses("'strategy':'zero4'", "strategy: expected one of dp, ddp");
    refuses("'strategy':'ddp','dialect':'jax'", "dialect: expected one of paper");
    refuses("'dialect':'torch'", "strategy: missing");
}

static void what_is_not_supported_yet_is_refused_by_name(void **state)
{
    (void)state;
    struct plan p;

    refuses("'strategy':'ddp','expert_parallel':{'size':2}", "expert parallelism is parallel.expert");
    refuses("'strategy':'ddp','quantize':true", "deepspeed.zero_quantized_weights and deepspeed.zero_quantized_gradients");
    refuses("'strategy':'ddp','offload':true", "deepspeed.offload_param, fsdp.cpu_offload or activation_offload");
    refuses("'strategy':'zero3','deepspeed':{'offload_optimizer':{'device':'cpu','super_offload':true}}", "SuperOffload");
    refuses("'strategy':'zero2','deepspeed':{'zenflow':{'topk_ratio':0.1}}", "ZenFlow");
    refuses("'strategy':'zero3','deepspeed':{'zeropp_loco_param':{'err_beta':0.8}}", "LoCo");
    refuses("'strategy':'zero3','deepspeed':{'mics_shard_size':8}", "MiCS");
    accepts("'strategy':'zero3','deepspeed':{'zero_hpz_partition_size':1,'mics_shard_size':-1,"
            "'offload_param':{'device':'none'},'zero_quantized_weights':false}", &p);
    plan_free(&p);
}

/* An object in an object of the plan: defaults, names in messages, and what has no effect. */
static void offload_of_deepspeed_is_read_and_checked(void **state)
{
    struct plan p;
    json_t *doc, *ds;

    (void)state;
    accepts("'strategy':'zero3','deepspeed':{'offload_optimizer':{'device':'nvme','nvme_path':'/nvme/a','pipeline_read':true,"
            "'buffer_count':8},'offload_param':{'device':'cpu','pin_memory':false},'aio':{'block_size':262144}}", &p);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_NVME);
    assert_string_equal(p.ds.offload_optimizer.nvme_path, "/nvme/a");
    assert_true(p.ds.offload_optimizer.pipeline_read && !p.ds.offload_optimizer.pipeline_write);
    assert_true(p.ds.offload_optimizer.pin_memory && !p.ds.offload_param.pin_memory);
    assert_int_equal(p.ds.offload_optimizer.buffer_count, 8);
    assert_int_equal(p.ds.offload_param.buffer_count, 5);
    assert_int_equal(p.ds.offload_param.buffer_size, 100000000);
    assert_int_equal(p.ds.offload_param.max_in_cpu, 1000000000);
    assert_int_equal(p.ds.aio.block_size, 262144);
    assert_int_equal(p.ds.aio.queue_depth, 8);
    doc = plan_to_json(&p);
    ds = json_object_get(doc, "deepspeed");
    assert_string_equal(json_string_value(json_object_get(json_object_get(ds, "offload_param"), "device")), "cpu");
    assert_null(json_object_get(json_object_get(ds, "offload_param"), "nvme_path"));    /* says nothing there */
    json_decref(doc);
    plan_free(&p);

    accepts("'strategy':'zero2','deepspeed':{'offload_optimizer':{'device':'nvme'}}", &p);
    plan_free(&p);
    refuses("'strategy':'zero2','deepspeed':{'offload_optimizer':{'device':'disk'}}",
            "deepspeed.offload_optimizer.device: expected \"none\" or \"cpu\" or \"nvme\"");
    refuses("'strategy':'zero2','deepspeed':{'offload_optimizer':{'divice':'cpu'}}", "did you mean \"device\"?");
    refuses("'strategy':'zero2','deepspeed':{'offload_optimizer':'cpu'}", "deepspeed.offload_optimizer: expected an object");
    refuses("'strategy':'zero2','deepspeed':{'offload_optimizer':{'device':'cpu','ratio':0.5}}",
            "deepspeed.offload_optimizer.ratio: not an option of strategy \"zero2\"");
    refuses("'strategy':'zero2','deepspeed':{'offload_param':{'device':'cpu'}}", "it belongs to zero3/paper, zero3/deepspeed, fsdp/paper");
    refuses("'strategy':'ddp','dialect':'deepspeed','deepspeed':{'offload_optimizer':{'device':'cpu'}}", "it belongs to zero1");
    refuses("'strategy':'zero3','deepspeed':{'offload_optimizer':{'ratio':0.5}}", "offload_optimizer.ratio: says nothing");
    refuses("'strategy':'zero3','deepspeed':{'offload_optimizer':{'device':'cpu','pipeline_read':true}}",
            "pipeline_read: says nothing");
    refuses("'strategy':'zero3','deepspeed':{'aio':{'queue_depth':32}}", "deepspeed.aio.queue_depth: says nothing");
    refuses("'strategy':'zero3','framework_version':'0.16','deepspeed':{'offload_param':{'device':'cpu'}}",
            "deepspeed.offload_param: offload is known of DeepSpeed 0.19.6");
    refuses("'strategy':'zero2','framework_version':'0.19.8','clip':null,'deepspeed':{'compute_grad_norm':false,"
            "'offload_optimizer':{'device':'cpu'}}", "does not support optimizer offload");
    refuses("'strategy':'zero1','precision':'bf16','framework_version':'0.19.8','deepspeed':{'grad_accum_dtype':'fp32',"
            "'offload_optimizer':{'device':'nvme'}}", "BF16_Optimizer");
    refuses("'strategy':'zero1','precision':'bf16','deepspeed':{'grad_accum_dtype':'fp32','offload_optimizer':{'device':'cpu'}}",
            "grad_accum_dtype: with offload_optimizer DeepSpeed 0.19.6 steps each rank's own gradients");
}

static void units_are_those_of_the_dialect(void **state)
{
    (void)state;
    struct plan p;

    accepts("'strategy':'fsdp','unit':'3 blocks'", &p);
    assert_int_equal(p.unit, UNIT_BLOCKS);
    assert_int_equal(p.unit_blocks, 3);
    plan_free(&p);
    accepts("'strategy':'fsdp','unit':'1 blocks'", &p);
    assert_int_equal(p.unit, UNIT_BLOCK);
    plan_free(&p);
    accepts("'strategy':'fsdp','unit':'half-block'", &p);
    plan_free(&p);
    refuses("'strategy':'zero3','dialect':'paper','unit':'tensor'", "unit: paper has no unit \"tensor\"");
    refuses("'strategy':'fsdp','unit':'tensor'", "unit: torch has no unit \"tensor\"");
    refuses("'strategy':'fsdp','dialect':'torch-fsdp1','unit':'2 blocks'", "unit: torch-fsdp1");
    refuses("'strategy':'fsdp','dialect':'torch-fsdp1','unit':'half-block'", "unit");
    refuses("'strategy':'zero3','unit':'block'", "it has: module");
    refuses("'strategy':'fsdp','unit':'99 blocks'", "12 blocks");
    refuses("'strategy':'fsdp','unit':'0 blocks'", "unit");
    refuses("'strategy':'fsdp','unit':'2 blocks or so'", "unit");
    refuses("'strategy':'fsdp','unit':7", "unit");
    /* attention and MLP of one input have no halves */
    assert_int_equal(read_text("{'dpx_plan':1,'cluster':'2xh100','seq':8,'strategy':'fsdp',"
                               "'unit':'half-block','model':{'model_type':'gpt_neox',"
                               "'hidden_size':64,'num_hidden_layers':2,'num_attention_heads':4,"
                               "'intermediate_size':256,'vocab_size':100,"
                               "'max_position_embeddings':512,'use_parallel_residual':true}}", &p), -1);
    if (!strstr(said, "unit: the blocks of gpt_neox"))
        fail_msg("says %s", said);
}

static void groups_divide_what_they_divide(void **state)
{
    (void)state;
    struct plan p;

    accepts("'strategy':'fsdp','shard_group':8,'fsdp':{'reshard_after_forward':4}", &p);
    assert_int_equal(p.shard_group, 8);
    assert_int_equal(p.fsdp.reshard_after_forward, 4);
    plan_free(&p);
    refuses("'strategy':'fsdp','shard_group':5", "shard_group: 5 does not divide the world size 16");
    refuses("'strategy':'fsdp','shard_group':32", "shard_group");
    refuses("'strategy':'fsdp','shard_group':0", "shard_group");
    refuses("'strategy':'fsdp','shard_group':8,'fsdp':{'reshard_after_forward':8}", "write true");
    refuses("'strategy':'fsdp','shard_group':8,'fsdp':{'reshard_after_forward':1}", "write false");
    refuses("'strategy':'fsdp','shard_group':8,'fsdp':{'reshard_after_forward':3}", "does not divide");
    refuses("'strategy':'fsdp','dialect':'torch-fsdp1','shard_group':8", "HYBRID_SHARD");
    accepts("'strategy':'fsdp','dialect':'torch-fsdp1','fsdp':{'sharding_strategy':'HYBRID_SHARD'}", &p);
    assert_int_equal(p.shard_group, 8);         /* a node, as FSDP1 does without a mesh */
    plan_free(&p);
}

static void numbers_are_checked(void **state)
{
    (void)state;
    struct plan p;

    accepts("'strategy':'zero2','micro_batch':2.0,'deepspeed':{'reduce_bucket_size':2e8}", &p);
    assert_int_equal(p.ds.reduce_bucket_size, 200000000);
    assert_int_equal(p.micro_batch, 2);
    plan_free(&p);
    refuses("'strategy':'zero2','micro_batch':0", "micro_batch: 0");
    refuses("'strategy':'zero2','micro_batch':-3", "micro_batch");
    refuses("'strategy':'zero2','micro_batch':1.5", "micro_batch: expected a whole number");
    refuses("'strategy':'zero2','micro_batch':true", "micro_batch");
    refuses("'strategy':'zero2','micro_batch':1048577", "micro_batch");
    refuses("'strategy':'zero2','accumulation':2000000", "accumulation");
    refuses("'strategy':'zero2','deepspeed':{'reduce_bucket_size':0}", "reduce_bucket_size");
    refuses("'strategy':'zero2','deepspeed':{'reduce_bucket_size':1e19}", "reduce_bucket_size");
    refuses("'strategy':'zero2','clip':-1", "clip");
    refuses("'strategy':'zero2','dropout':1", "dropout");
    refuses("'strategy':'zero2','dropout':1.5", "dropout");
    refuses("'strategy':'ddp','ddp':{'bucket_cap_mb':0}", "bucket_cap_mb");
    refuses("'strategy':'ddp','ddp':{'bucket_cap_mb':-25}", "bucket_cap_mb");
    refuses("'strategy':'ddp','recompute_interval':2", "recompute_interval");
    refuses("'strategy':'ddp','recompute':'full','recompute_interval':13", "12 blocks");
}

/* A second "seq" cannot stand beside HEAD's, so these are whole documents. */
static void sequences_are_bounded(void **state)
{
    (void)state;
    struct plan p;
    static const struct { const char *model, *seq, *says; } cases[] = {
        { "gpt2", "1025", "seq: 1025 is beyond the 1024 learned positions" },
        { "gpt-j-6b", "2049", "seq: 2049 is beyond the 2048 positions in the table of gpt-j-6b" },
        { "gpt2", "0", "seq" },
        { "llama-3.1-8b", "16777217", "seq" },
    };
    char text[256];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{'dpx_plan':1,'model':'%s','cluster':'8xh100','seq':%s,"
                 "'strategy':'ddp'}", cases[i].model, cases[i].seq);
        assert_int_equal(read_text(text, &p), -1);
        assert_non_null(strstr(said, cases[i].says));
    }
    /* no learned positions: longer than the config's context is allowed */
    assert_int_equal(read_text("{'dpx_plan':1,'model':'llama-3.1-8b','cluster':'8xh100',"
                               "'seq':200000,'strategy':'ddp'}", &p), 0);
    plan_free(&p);
    /* 2^20 samples of 2^24 tokens: attention's scores exceed 2^60 */
    assert_int_equal(read_text("{'dpx_plan':1,'model':'llama-3.1-8b','cluster':'8xh100',"
                               "'seq':16777216,'micro_batch':1048576,'strategy':'ddp'}", &p), -1);
    assert_non_null(strstr(said, "2^60"));
}

static void what_joins_two_options_is_checked(void **state)
{
    (void)state;
    struct plan p;

    refuses("'strategy':'ddp','precision':'bf16','reduce_dtype':'bf16'", "reduce_dtype");
    accepts("'strategy':'ddp','precision':'bf16','ddp':{'model_dtype':'bf16'}", &p);
    assert_int_equal(p.reduce_dtype, DT_BF16);      /* the wire has the parameters' dtype */
    assert_int_equal(plan_recipe(&p).optimizer, 4);
    plan_free(&p);
    accepts("'strategy':'fsdp','dialect':'torch-fsdp1','kernels':'torch-sdpa','precision':'bf16','fsdp':{'model_dtype':'bf16'}", &p);
    assert_int_equal(p.reduce_dtype, DT_BF16);
    plan_free(&p);
    refuses("'strategy':'fsdp','dialect':'torch-fsdp1','kernels':'dpx','precision':'bf16','fsdp':{'model_dtype':'bf16'}", "fsdp.model_dtype");
    refuses("'strategy':'zero3','dialect':'deepspeed','kernels':'torch-sdpa','activation_offload':'save_on_cpu'", "ZeRO-3");
    refuses("'strategy':'ddp','dialect':'torch','kernels':'torch-sdpa','recompute':'full','activation_offload':'save_on_cpu'", "recompute");
    refuses("'strategy':'ddp','ddp':{'model_dtype':'bf16'}", "ddp.model_dtype");
    refuses("'strategy':'ddp','precision':'fp64'", "precision: expected \"fp32\"");
    refuses("'strategy':'ddp','optimizer':'lamb'", "optimizer: expected \"adamw\" or \"sgd\"");
    refuses("'strategy':'zero2','optimizer':'sgd'", "planned with adamw, muon, bitsandbytes' and torchao's of 8 and 4 bits so far, not with sgd");
    refuses("'strategy':'ddp','deterministic':true", "deterministic: no framework sums in rank order");
    refuses("'strategy':'zero2','deepspeed':{'gradient_predivide_factor':2}", "reduce_scatter");
    refuses("'strategy':'zero1','precision':'fp16','deepspeed':{'check_grad_overflow':false}",
            "check_grad_overflow");
    refuses("'strategy':'zero1','precision':'fp16','deepspeed':{'grad_accum_dtype':'bf16'}",
            "grad_accum_dtype");
    accepts("'strategy':'zero1','precision':'bf16','deepspeed':{'grad_accum_dtype':'fp32'}", &p);
    assert_true(p.ds.grad_accum_fp32);
    plan_free(&p);
    refuses("'strategy':'zero2','precision':'bf16','deepspeed':{'grad_accum_dtype':'fp32'}",
            "deepspeed.grad_accum_dtype: before DeepSpeed 0.19.8");
    accepts("'strategy':'zero2','precision':'bf16','framework_version':'0.19.8',"
            "'deepspeed':{'grad_accum_dtype':'fp32'}", &p);
    plan_free(&p);
    accepts("'strategy':'zero2','precision':'bf16','deepspeed':{'communication_data_type':'fp32'}", &p);
    assert_int_equal(p.reduce_dtype, DT_FP32);
    plan_free(&p);
    accepts("'strategy':'zero2','precision':'bf16','reduce_dtype':'fp32'", &p);
    assert_int_equal(p.ds.communication_dtype, DT_FP32);
    plan_free(&p);
    refuses("'strategy':'zero2','precision':'bf16','reduce_dtype':'bf16',"
            "'deepspeed':{'communication_data_type':'fp32'}", "reduce_dtype");
    refuses("'strategy':'zero2','accumulation':2,'sync_every_micro_step':false",
            "sync_every_micro_step: zero2/deepspeed reduces after every micro-step");
    refuses("'strategy':'zero1','accumulation':2,'sync_every_micro_step':true",
            "sync_every_micro_step: zero1/deepspeed reduces after the last micro-step only");
}

static void the_head_of_the_document_is_checked(void **state)
{
    (void)state;
    struct plan p;
    static const struct { const char *text, *says; } cases[] = {
        { "{'model':'gpt2','cluster':'8xh100','seq':1,'strategy':'ddp'}", "dpx_plan: missing" },
        { "{'dpx_plan':2,'model':'gpt2','cluster':'8xh100','seq':1,'strategy':'ddp'}", "dpx_plan" },
        { "{'dpx_plan':1,'cluster':'8xh100','seq':1,'strategy':'ddp'}", "model: missing" },
        { "{'dpx_plan':1,'model':'gpt2','seq':1,'strategy':'ddp'}", "cluster: missing" },
        { "{'dpx_plan':1,'model':5,'cluster':'8xh100','seq':1,'strategy':'ddp'}", "model" },
        { "{'dpx_plan':1,'model':'gpt2','cluster':[],'seq':1,'strategy':'ddp'}", "cluster" },
        { "{'dpx_plan':1,'model':'gpt2','cluster':'8xh100','strategy':'ddp'}", "seq: missing" },
        { "{'dpx_plan':1,'model':'gpt2','cluster':'8xh100','seq':1,'strategy':'ddp','ddp':3}", "ddp" },
        { "[]", "object" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(cases[i].text, &p), -1);
        if (!strstr(said, cases[i].says))
            fail_msg("%s: says \"%s\"", cases[i].text, said);
    }
}

/* Every cell, every option: what is written is read back as the same plan. */
static void plans_survive_writing_and_reading(void **state)
{
    (void)state;
    struct model m[2];
    struct cluster c[2];
    uint64_t rng = 1;
    int cells[NSTRATEGY][NDIALECT] = { { 0 } };

    assert_int_equal(model_load("gpt2", &m[0]), 0);
    assert_int_equal(model_load("llama-3.1-8b", &m[1]), 0);
    assert_int_equal(cluster_load("2x8xh100", &c[0]), 0);
    assert_int_equal(cluster_load("8xa100-80gb", &c[1]), 0);
    for (int i = 0; i < 600; i++) {
        struct plan p, q;
        json_t *j, *k;
        draw_plan(&m[i & 1], &c[i >> 1 & 1], &rng, &p);
        j = plan_to_json(&p);
        if (plan_from_json(j, "again", &q) < 0)
            fail_msg("plan %d was not read back", i);
        k = plan_to_json(&q);
        if (!json_equal(j, k)) {
            json_dumpf(j, stderr, JSON_INDENT(1));
            json_dumpf(k, stderr, JSON_INDENT(1));
            fail_msg("plan %d changed", i);
        }
        assert_int_equal(p.reduce_dtype, q.reduce_dtype);
        assert_int_equal(p.sync_every_micro_step, q.sync_every_micro_step);
        assert_memory_equal(&p.fsdp.reshard_after_forward, &q.fsdp.reshard_after_forward, 8);
        cells[p.strategy][p.dialect]++;
        json_decref(j);
        json_decref(k);
        plan_free(&q);
    }
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            assert_int_equal(cells[s][d] > 0, dialect_has((enum dialect)d, (enum strategy)s));
    model_free(&m[0]);
    model_free(&m[1]);
}

/* Two rows of one key never claim the same cell, and every default passes. */
static void the_table_of_keys_is_sound(void **state)
{
    (void)state;
    const struct knob *a, *b;

    for (int i = 0; (a = knob_at(i)); i++) {
        assert_true(a->cells != 0);
        for (int j = i + 1; (b = knob_at(j)); j++)
            if (!strcmp(a->object, b->object) && !strcmp(a->name, b->name))
                assert_int_equal(a->cells & b->cells, 0);
        for (int s = 0; s < NSTRATEGY; s++)
            for (int d = 0; d < NDIALECT; d++)
                if (a->cells & CELL(s, d))
                    assert_true(dialect_has((enum dialect)d, (enum strategy)s));
    }
}

/* Bytes of a parameter in each recipe, added by hand. */
static void recipes_are_those_of_the_table(void **state)
{
    (void)state;
    struct plan p = { .cluster.world_size = 8, .seq = 1, .micro_batch = 1 };
    struct recipe r;

    plan_defaults(&p, STRAT_DDP, DIALECT_PAPER, DT_BF16);
    r = plan_recipe(&p);                    /* 2 + 2 + 12: the papers' 16 bytes */
    assert_int_equal(dtype_bytes(r.kept) + dtype_bytes(r.grad) + r.optimizer, 16);
    plan_defaults(&p, STRAT_DDP, DIALECT_TORCH, DT_BF16);
    r = plan_recipe(&p);
    assert_true(r.autocast && r.used == DT_BF16 && r.kept == DT_FP32);
    assert_int_equal(dtype_bytes(r.kept) + dtype_bytes(r.grad) + r.optimizer, 16);
    assert_int_equal(r.wire_reduce, DT_FP32);
    plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    r = plan_recipe(&p);
    assert_int_equal(r.wire_gather, DT_BF16);
    assert_int_equal(r.wire_reduce, DT_FP32);
    assert_false(r.autocast);
    plan_defaults(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP16);
    r = plan_recipe(&p);
    assert_true(r.kept == DT_FP16 && r.grad == DT_FP16 && r.optimizer == 12);
    plan_defaults(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP32);
    assert_int_equal(plan_recipe(&p).optimizer, 8);
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void names_are_files_beside_the_plan(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpx-plan-XXXXXX", path[64], config[64];
    struct plan p;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/plan.json", folder);
    snprintf(config, sizeof config, "%s/small.json", folder);
    put_file(config, "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_embd\":64,\"n_head\":4,"
                     "\"n_positions\":128,\"vocab_size\":65}");
    put_file(path, "{\"dpx_plan\":1,\"model\":\"small.json\",\"cluster\":\"2xh100\",\"seq\":128,"
                   "\"strategy\":\"ddp\"}");
    assert_int_equal(plan_read(path, &p), 0);
    assert_int_equal(p.model.layers, 3);
    plan_free(&p);

    put_file(path, "{\"dpx_plan\":1,\n \"model\":}");
    fail_capture(said, sizeof said);
    assert_int_equal(plan_read(path, &p), -1);
    assert_non_null(strstr(said, "plan.json:2:"));      /* line and column */
    put_file(path, "{\"dpx_plan\":1,\"dpx_plan\":1}");
    assert_int_equal(plan_read(path, &p), -1);
    assert_non_null(strstr(said, "duplicate"));
    unlink(path);
    assert_int_equal(plan_read(path, &p), -1);
    assert_non_null(strstr(said, "No such file"));
    fail_capture(NULL, 0);
    unlink(config);
    rmdir(folder);
}

static void ddp_refuses_what_pytorch_or_we_cannot(void **state)
{
    (void)state;
    struct plan p;

    refuses("'strategy':'ddp','dialect':'torch','accumulation':2,'sync_every_micro_step':false,"
            "'ddp':{'static_graph':true}", "expect_autograd_hooks_");
    accepts("'strategy':'ddp','dialect':'torch','accumulation':2,'ddp':{'static_graph':true}", &p);
    plan_free(&p);
    refuses("'strategy':'ddp','dialect':'torch','ddp':{'lazy_bucket_allocation':true}",
            "ddp.lazy_bucket_allocation");
    accepts("'strategy':'ddp','dialect':'torch','ddp':{'lazy_bucket_allocation':false}", &p);
    plan_free(&p);
    accepts("'strategy':'ddp','dialect':'torch','ddp':{'forward_sync_buffers':false}", &p);
    assert_false(plan_syncs_buffers(&p));
    plan_free(&p);
    refuses("'strategy':'ddp','dialect':'torch','framework_version':'2.9',"
            "'ddp':{'forward_sync_buffers':false}", "2.13");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_takes_the_dialects_default),
        cmocka_unit_test(a_framework_version_switches_defaults),
        cmocka_unit_test(the_default_kernels_are_those_that_transformers_picks),
        cmocka_unit_test(unknown_keys_are_named_with_the_nearest),
        cmocka_unit_test(keys_of_another_cell_say_where_they_belong),
        cmocka_unit_test(empty_cells_of_the_table_are_refused),
        cmocka_unit_test(what_is_not_supported_yet_is_refused_by_name),
        cmocka_unit_test(offload_of_deepspeed_is_read_and_checked),
        cmocka_unit_test(units_are_those_of_the_dialect),
        cmocka_unit_test(groups_divide_what_they_divide),
        cmocka_unit_test(numbers_are_checked),
        cmocka_unit_test(sequences_are_bounded),
        cmocka_unit_test(what_joins_two_options_is_checked),
        cmocka_unit_test(the_head_of_the_document_is_checked),
        cmocka_unit_test(plans_survive_writing_and_reading),
        cmocka_unit_test(the_table_of_keys_is_sound),
        cmocka_unit_test(recipes_are_those_of_the_table),
        cmocka_unit_test(names_are_files_beside_the_plan),
        cmocka_unit_test(ddp_refuses_what_pytorch_or_we_cannot),
    };
    return cmocka_run_group_tests_name("model/plan", tests, NULL, NULL);
}
