/* test_accelerate.c -- accelerate configs in and out. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/export.h"
#include "model/plan/knob.h"
#include "model/plan/root_units.h"
#include "tests/model/random_plan.h"

static char said[1024];
static struct model gpt2;
static struct cluster two_nodes;

static int import(const char *yaml, struct plan *p, struct notes *notes, int64_t accumulation)
{
    json_t *j;
    int rc;

    memset(p, 0, sizeof *p);
    p->model = gpt2;
    p->cluster = two_nodes;
    p->seq = 1024;
    p->accumulation = accumulation;
    fail_capture(said, sizeof said);
    j = yaml_read(yaml, strlen(yaml), "a.yaml");
    rc = j ? accelerate_read(j, "a.yaml", p, notes) : -1;
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

static void accepts(const char *yaml, struct plan *p)
{
    if (import(yaml, p, NULL, 0) < 0)
        fail_msg("%s: refused: %s", yaml, said);
}

static void refuses(const char *yaml, const char *word)
{
    struct plan p;

    if (import(yaml, &p, NULL, 0) == 0)
        fail_msg("%s: accepted", yaml);
    if (strncmp(said, "a.yaml: ", 8) || !strstr(said, word))
        fail_msg("%s: says \"%s\", which lacks \"%s\"", yaml, said, word);
}

#define FSDP1 "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\nmixed_precision: bf16\n" \
              "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"

static void fsdp_version_1(void **state)
{
    (void)state;
    struct plan p;

    accepts(FSDP1 "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
            "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_forward_prefetch: true\n"
            "  fsdp_use_orig_params: 'false'\n  fsdp_activation_checkpointing: true\n", &p);
    assert_int_equal(p.dialect, DIALECT_TORCH_FSDP1);
    assert_int_equal(p.fsdp.sharding_strategy, FSDP1_SHARD_GRAD_OP);
    assert_int_equal(p.fsdp.backward_prefetch, PREFETCH_POST);
    assert_true(p.fsdp.forward_prefetch && !p.fsdp.use_orig_params && p.fsdp.limit_all_gathers);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    assert_int_equal(p.unit, UNIT_BLOCK);
    assert_int_equal(p.reduce_dtype, DT_BF16);      /* param_dtype = reduce_dtype */
    accepts(FSDP1 "  fsdp_sharding_strategy: 4\n", &p);
    assert_int_equal(p.fsdp.sharding_strategy, FSDP1_HYBRID_SHARD);
    assert_int_equal(p.shard_group, 8);
}

/* PyTorch itself would prefetch (BACKWARD_PRE); accelerate passes None. */
static void an_absent_backward_prefetch_is_none(void **state)
{
    (void)state;
    struct plan p;

    accepts(FSDP1 "  fsdp_version: 1\n", &p);
    assert_int_equal(p.fsdp.backward_prefetch, PREFETCH_NONE);
    assert_true(p.fsdp.use_orig_params);            /* accelerate launch's own default */
}

static void fsdp_version_2(void **state)
{
    (void)state;
    struct plan p;

    accepts(FSDP1 "  fsdp_version: 2\n", &p);
    assert_int_equal(p.dialect, DIALECT_TORCH);
    assert_int_equal(p.fsdp.reshard_after_forward, -1);     /* blocks true, root None */
    assert_int_equal(p.reduce_dtype, DT_BF16);
    accepts(FSDP1 "  fsdp_version: 2\n  fsdp_reshard_after_forward: no\n"
            "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
            "  parallelism_config_dp_shard_size: 8\n", &p);
    assert_int_equal(p.fsdp.reshard_after_forward, 0);
    assert_int_equal(p.shard_group, 8);
    refuses(FSDP1 "  fsdp_version: 2\n  fsdp_reshard_after_forward: 4\n", "fsdp_reshard_after_forward");
    refuses(FSDP1 "  fsdp_version: 2\n  fsdp_forward_prefetch: true\n", "fsdp_forward_prefetch");
    refuses(FSDP1 "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 5\n", "dp_shard 5");
    refuses(FSDP1 "  fsdp_version: 3\n", "fsdp_version");
    accepts(FSDP1 "  fsdp_offload_params: true\n", &p);       /* CPUOffload(offload_params=True) */
    assert_int_equal(p.dialect, DIALECT_TORCH_FSDP1);
    assert_true(p.fsdp.cpu_offload);
    accepts(FSDP1 "  fsdp_version: 2\n  fsdp_offload_params: true\n", &p);    /* CPUOffloadPolicy() */
    assert_true(p.fsdp.cpu_offload && p.fsdp.pin_memory);
    assert_int_equal(p.recompute, RECOMPUTE_NONE);
    accepts(FSDP1 "  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n"
            "  fsdp_activation_checkpointing_offload: true\n  fsdp_cpu_ram_efficient_loading: true\n", &p);
    assert_int_equal(p.recompute, RECOMPUTE_OFFLOAD);
    assert_false(p.fsdp.cpu_offload);
}

/* 16 GPUs: replicas x shards x context x tensor. */
static void a_mesh_of_other_axes_is_planned(void **state)
{
    (void)state;
    struct model before = gpt2;
    struct plan p;

    assert_int_equal(model_load("tinyllama-1.1b", &gpt2), 0);         /* positions that context-parallel ranks can share are rotary */
    accepts(FSDP1 "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\nparallelism_config:\n  parallelism_config_dp_shard_size: 4\n"
            "  parallelism_config_cp_size: 4\n  parallelism_config_cp_comm_strategy: alltoall\n", &p);
    assert_int_equal(p.parallel.context, 4);
    assert_int_equal(p.parallel.context_method, CONTEXT_RING);
    assert_int_equal(p.shard_group, 16);                    /* parameters are cut over both */
    assert_int_equal(p.fsdp.reshard_after_forward, 0);
    accepts(FSDP1 "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
            "  parallelism_config_tp_size: 4\n", &p);
    assert_int_equal(p.parallel.tensor, 4);
    assert_false(p.parallel.sequence);
    assert_int_equal(p.shard_group, 2);
    refuses(FSDP1 "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_tp_size: 4\n", "tp 4 are not the cluster's 16 GPUs");
    refuses(FSDP1 "  fsdp_version: 2\nparallelism_config:\n  parallelism_config_sp_size: 16\n", "sp_size: Ulysses is DeepSpeed's");
    refuses("distributed_type: MULTI_GPU\nmixed_precision: bf16\nparallelism_config:\n  parallelism_config_sp_size: 16\n", "sp_size (or DEEPSPEED)");
    accepts("distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\nparallelism_config:\n"
            "  parallelism_config_dp_shard_size: 4\n  parallelism_config_sp_size: 4\n", &p);
    assert_int_equal(p.parallel.context, 4);
    model_free(&gpt2);
    gpt2 = before;
}

static void deepspeed_without_a_file(void **state)
{
    (void)state;
    struct plan p;
    struct notes n = { 0 };

    assert_int_equal(import("distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
                            "num_processes: 16\ndeepspeed_config:\n  zero_stage: 3\n"
                            "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n"
                            "  offload_optimizer_device: none\n  zero3_init_flag: true\n", &p, &n, 0), 0);
    assert_int_equal(p.strategy, STRAT_ZERO3);
    assert_int_equal(p.precision, DT_BF16);
    assert_int_equal(p.accumulation, 4);
    assert_true(p.clip > 0.49 && p.clip < 0.51);
    assert_true(p.ds.zero_init);
    for (int i = 0; i < 2; i++) {       /* the flag decides nothing: DeepSpeedPlugin(zero3_init_flag=False) leaves is_deepspeed_zero3_enabled() true */
        n.n = 0;
        assert_int_equal(import(i ? "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: false\n"
                                  : "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n", &p, &n, 0), 0);
        assert_true(p.ds.zero_init);
        assert_true(strstr(n.text[n.n - 1], "zero3_init_flag false has no effect") ? i == 1 : i == 0);
    }
    accepts("distributed_type: DEEPSPEED\ndeepspeed_config: {}\n", &p);
    assert_int_equal(p.strategy, STRAT_ZERO2);      /* DeepSpeedPlugin's default */
    accepts("distributed_type: DEEPSPEED\ndeepspeed_config:\n  offload_optimizer_device: CPU\n", &p);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_CPU);
    accepts("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_param_device: cpu\n", &p);
    assert_int_equal(p.ds.offload_param.device, OFFLOAD_CPU);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_NONE);
    n.n = 0;
    assert_int_equal(import("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
                            "  gradient_accumulation_steps: 1\n  gradient_clipping: 1\n  offload_optimizer_device: nvme\n"
                            "  offload_optimizer_nvme_path: /nvme/a\n", &p, &n, 1), 0);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_NVME);
    assert_string_equal(p.ds.offload_optimizer.nvme_path, "/nvme/a");
    assert_true(n.n > 0 && strstr(n.text[0], "offload_optimizer_nvme_path is not passed on"));
    refuses("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n  offload_param_device: cpu\n",
            "offload_param_device: accelerate refuses it beside");
}

static void deepspeed_with_a_file_beside(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpx-acc-XXXXXX", yaml[64], ds[64];
    struct plan p = { .model = gpt2, .cluster = two_nodes, .seq = 1024, .micro_batch = 2 };
    FILE *f;

    assert_non_null(mkdtemp(folder));
    snprintf(yaml, sizeof yaml, "%s/a.yaml", folder);
    snprintf(ds, sizeof ds, "%s/ds.json", folder);
    f = fopen(ds, "w");
    fputs("{\"train_micro_batch_size_per_gpu\":\"auto\",\"zero_optimization\":{\"stage\":1}}", f);
    fclose(f);
    f = fopen(yaml, "w");
    fputs("distributed_type: DEEPSPEED\nmixed_precision: 'no'\n"
          "deepspeed_config:\n  deepspeed_config_file: ds.json\n", f);
    fclose(f);
    assert_int_equal(accelerate_import_file(yaml, &p), 0);
    assert_int_equal(p.strategy, STRAT_ZERO1);
    assert_int_equal(p.micro_batch, 2);
    unlink(ds);
    fail_capture(said, sizeof said);
    assert_int_equal(accelerate_import_file(yaml, &p), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "deepspeed_config_file"));
    unlink(yaml);
    rmdir(folder);
}

static void several_gpus_are_ddp(void **state)
{
    (void)state;
    struct plan p;
    struct notes n = { 0 };

    assert_int_equal(import("distributed_type: MULTI_GPU\nmixed_precision: no\n", &p, &n, 3), 0);
    assert_int_equal(p.strategy, STRAT_DDP);
    assert_int_equal(p.precision, DT_FP32);
    assert_false(p.sync_every_micro_step);          /* Accelerator.accumulate() is no_sync() */
    assert_int_equal(p.accumulation, 3);
    assert_true(n.n == 1 && strstr(n.text[0], "--micro-batch"));
    refuses("distributed_type: NO\nnum_processes: 8\n", "NO starts one process");        /* launch.py, simple_launcher() */
}

static void what_plans_lack_is_refused_by_name(void **state)
{
    (void)state;
    refuses("distributed_type: MEGATRON_LM\n", "distributed_type: \"MEGATRON_LM\"");
    refuses("mixed_precision: bf16\n", "distributed_type");
    refuses("distributed_type: MULTI_GPU\nmixed_precision: fp8\n", "mixed_precision: \"fp8\"");
    refuses("distributed_type: MULTI_GPU\nnum_gpus: 16\n", "num_gpus: unknown key");
    refuses("distributed_type: MULTI_GPU\nuse_cpu: true\n", "use_cpu: training on CPUs");
    refuses("distributed_type: FSDP\nfsdp_config: 7\n", "fsdp_config");
    refuses(FSDP1 "  fsdp_version: 2\n  fsdp_activation_checkpointing_offload: true\n", "fsdp_activation_checkpointing");
    refuses(FSDP1 "  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: true\n",
            "fsdp_version 2");
    refuses(FSDP1 "  fsdp_sharding_strategy: SOMETIMES\n", "fsdp_sharding_strategy");
    refuses("distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n",
            "SIZE_BASED_WRAP");
    refuses("- a\n", "mapping");
}

#define COMPILED(mode) "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mode: " mode "\n"

static void a_compiled_model_is_planned_so_said_or_refused(void **state)
{
    (void)state;
    struct plan p;
    struct notes n = { 0 };

    struct model was = gpt2;

    refuses(FSDP1 "  fsdp_version: 2\n" COMPILED("default") "  dynamo_use_regional_compilation: true\n", "torch-compile is not modelled for gpt2");
    assert_int_equal(model_load("tinyllama-1.1b", &gpt2), 0);
    accepts(FSDP1 "  fsdp_version: 2\n" COMPILED("default") "  dynamo_use_regional_compilation: true\n", &p);
    assert_int_equal(p.kernels, KERNELS_TORCH_COMPILE);
    assert_int_equal(p.compile_mode, COMPILE_DEFAULT);
    accepts(FSDP1 "  fsdp_version: 2\n" COMPILED("reduce-overhead") "  dynamo_use_regional_compilation: true\n", &p);
    assert_int_equal(p.compile_mode, COMPILE_REDUCE_OVERHEAD);
    accepts(FSDP1 "  fsdp_use_orig_params: true\n" COMPILED("default") "  dynamo_use_regional_compilation: true\n", &p);
    assert_true(p.kernels == KERNELS_TORCH_COMPILE && p.dialect == DIALECT_TORCH_FSDP1);
    refuses(FSDP1 "  fsdp_use_orig_params: true\n" COMPILED("reduce-overhead") "  dynamo_use_regional_compilation: true\n", "CUDA graphs are modelled");
    /* Under DistributedDataParallel: blocks one by one, or the whole model, whose loss is then in the graph. */
    accepts("distributed_type: MULTI_GPU\n" COMPILED("default") "  dynamo_use_regional_compilation: true\n", &p);
    assert_true(p.kernels == KERNELS_TORCH_COMPILE && p.strategy == STRAT_DDP && p.loss == LOSS_FP32);
    accepts("distributed_type: MULTI_GPU\n" COMPILED("default"), &p);
    assert_true(p.kernels == KERNELS_TORCH_COMPILE && p.loss == LOSS_COMPILED);
    refuses("distributed_type: MULTI_GPU\n" COMPILED("reduce-overhead") "  dynamo_use_regional_compilation: true\n", "CUDA graphs are modelled");
    model_free(&gpt2);
    gpt2 = was;
    assert_int_equal(import("distributed_type: MULTI_GPU\n" COMPILED("default"), &p, &n, 0), 0);       /* gpt2's blocks are not planned compiled */
    assert_int_equal(p.kernels, KERNELS_TORCH_SDPA);
    assert_int_equal(import(FSDP1 "  fsdp_version: 2\n" COMPILED("max-autotune-no-cudagraphs"), &p, &n, 0), 0);
    assert_int_not_equal(p.kernels, KERNELS_TORCH_COMPILE);
    assert_non_null(strstr(n.text[n.n - 1], "dynamo_config: backend INDUCTOR: planned with kernels"));
    accelerate_root_units(&p, &n);
    assert_non_null(strstr(n.text[n.n - 1], "fsdp.root_units \"apart\""));
    refuses(FSDP1 COMPILED("reduce-overhead"),
            "dynamo_config: reduce-overhead: CUDA graphs are modelled of inductor's kernels, where it compiles the blocks");
    refuses(FSDP1 COMPILED("max-autotune"), "max-autotune: CUDA graphs are modelled of");
    refuses(FSDP1 "dynamo_backend: CUDAGRAPHS\n", "CUDAGRAPHS: CUDA graphs are modelled of inductor's");
    refuses(FSDP1 "dynamo_backend: zzz\n", "dynamo_backend: \"zzz\" is not one of accelerate's values");
    refuses(FSDP1 "dynamo_backend: CUDAGRAPHS\n" COMPILED("default"), "CUDAGRAPHS: CUDA graphs are modelled");     /* it stands in the section's place */
    accepts(FSDP1 "dynamo_backend: 'NO'\n" COMPILED("reduce-overhead"), &p);
    assert_int_equal(p.kernels, KERNELS_TORCH_SDPA);
    accepts(FSDP1 "dynamo_backend: 'NO'\ndynamo_config: {}\n", &p);
}

/* What accelerate can say comes back; the rest is refused, never dropped. */
static void export_then_import_is_the_same_plan(void **state)
{
    (void)state;
    uint64_t rng = 11;
    int exported = 0, refused = 0;

    while (exported < 120) {
        struct plan p, q = { 0 };
        char *text = NULL;
        size_t size = 0;
        json_t *j, *a, *b;
        FILE *f = open_memstream(&text, &size);
        int rc;
        draw_plan(&gpt2, &two_nodes, &rng, &p);
        p.kernels = KERNELS_TORCH_SDPA;     /* belong to the script: not in the file */
        p.dropout = gpt2.dropout;
        p.framework_version[0] = '\0';
        if (p.fsdp.reshard_after_forward == 1)
            p.fsdp.reshard_after_forward = -1;      /* blocks free their parameters either way */
        p.clip = p.dialect == DIALECT_DEEPSPEED ? p.clip : 0;
        if (knob_has(&p, "fsdp", "root_units"))
            p.fsdp.root_units = root_units_of_accelerate(&p);
        fail_capture(said, sizeof said);
        rc = export_plan(&p, "accelerate", f);
        fail_capture(NULL, 0);
        fclose(f);
        if (rc < 0) {
            assert_int_equal(size, 0);      /* a refused export writes nothing */
            assert_non_null(strstr(said, "export to accelerate: "));
            refused++;
            free(text);
            continue;
        }
        j = yaml_read(text, size, "exported");
        assert_non_null(j);
        q.model = gpt2;
        q.cluster = two_nodes;
        q.seq = p.seq;
        q.micro_batch = p.micro_batch;
        q.accumulation = p.accumulation;
        if (accelerate_read(j, "exported", &q, NULL) < 0)
            fail_msg("not read back: %s", text);
        /* sync_each_batch is an argument of the script's plugin */
        q.sync_every_micro_step = p.sync_every_micro_step;
        q.loss = p.loss;                        /* the script's */
        q.logits_kept = p.logits_kept;
        q.logits_until = p.logits_until;
        q.attention = p.attention;
        q.optimizer = p.optimizer;
        q.optimizer_form = p.optimizer_form;
        q.host_threads = p.host_threads;        /* OMP_NUM_THREADS of its environment */
        q.environment = p.environment;
        q.cluster.nccl = p.cluster.nccl;
        a = plan_to_json(&p);
        b = plan_to_json(&q);
        if (!json_equal(a, b)) {
            json_dumpf(a, stderr, JSON_INDENT(1));
            json_dumpf(b, stderr, JSON_INDENT(1));
            fail_msg("changed: %s", text);
        }
        json_decref(j);
        json_decref(a);
        json_decref(b);
        free(text);
        exported++;
    }
    assert_true(refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fsdp_version_1),
        cmocka_unit_test(an_absent_backward_prefetch_is_none),
        cmocka_unit_test(fsdp_version_2),
        cmocka_unit_test(a_mesh_of_other_axes_is_planned),
        cmocka_unit_test(deepspeed_without_a_file),
        cmocka_unit_test(deepspeed_with_a_file_beside),
        cmocka_unit_test(several_gpus_are_ddp),
        cmocka_unit_test(what_plans_lack_is_refused_by_name),
        cmocka_unit_test(a_compiled_model_is_planned_so_said_or_refused),
        cmocka_unit_test(export_then_import_is_the_same_plan),
    };
    int rc;

    if (model_load("gpt2", &gpt2) < 0 || cluster_load("2x8xh100", &two_nodes) < 0)
        return 1;
    rc = cmocka_run_group_tests_name("model/accelerate", tests, NULL, NULL);
    model_free(&gpt2);
    return rc;
}
