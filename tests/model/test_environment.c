/* test_environment.c -- environment variables of a plan: what each changes, by whose name, and what is told. */
#include "tests/model/form_files.h"
#include "base/fail.h"
#include "base/notes.h"
#include "model/memory/evaluate.h"
#include "model/memory/overhead.h"
#include "model/plan/environment.h"

#define MiB ((int64_t)1 << 20)

static char said[1024];

static int plan_with(const char *more, struct plan *p)
{
    json_t *j = json_loads("{\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"8xh100\", \"strategy\": \"fsdp\", \"seq\": 512, \"precision\": \"bf16\"}", 0, NULL);
    json_t *with = json_loads(more, 0, NULL);

    assert_non_null(with);
    json_object_update(j, with);
    json_decref(with);
    fail_capture(said, sizeof said);
    int rc = plan_from_json(j, "t", p);
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

static void both_names_of_the_allocators_options_are_one_key(void **state)
{
    struct plan a, b;

    (void)state;
    assert_int_equal(plan_with("{\"environment\": {\"PYTORCH_CUDA_ALLOC_CONF\": \"expandable_segments:True\"}}", &a), 0);
    assert_int_equal(plan_with("{\"environment\": {\"PYTORCH_ALLOC_CONF\": \"expandable_segments:True\"}}", &b), 0);
    assert_string_equal(a.environment.alloc_conf, "expandable_segments:True");
    assert_string_equal(b.environment.alloc_conf, a.environment.alloc_conf);
    plan_free(&a);
    plan_free(&b);
    assert_int_equal(plan_with("{\"environment\": {\"PYTORCH_ALLOC_CONF\": \"backend:cudaMallocAsync\"}}", &a), -1);
    assert_non_null(strstr(said, "backend is not replayed"));
}

/* With the same options as an argument the replay gives the same. */
static void the_replay_has_the_plans_options(void **state)
{
    struct caching_options o = caching_allocator_defaults();
    struct evaluation by_plan, by_hand;
    struct plan a, b;

    (void)state;
    o.expandable_segments = true;
    assert_int_equal(plan_with("{\"environment\": {\"PYTORCH_ALLOC_CONF\": \"expandable_segments:True\"}}", &a), 0);
    assert_int_equal(plan_with("{}", &b), 0);
    assert_int_equal(evaluate_allocated(&a, &by_plan), 0);
    assert_int_equal(evaluate_allocated(&b, &by_hand), 0);
    assert_int_equal(evaluation_reserve(&a, &by_plan, NULL), 0);
    assert_int_equal(evaluation_reserve(&b, &by_hand, &o), 0);
    assert_int_equal(by_plan.reserved.reserved_peak, by_hand.reserved.reserved_peak);
    evaluation_free(&by_plan);
    evaluation_free(&by_hand);
    plan_free(&a);
    plan_free(&b);
}

/* 16 channels of 2 x 1 MiB for each of 8 heads less; a receiver's LL, LL128 and 8 MiB in 2 MiB steps is 14 MiB, not 10. */
static void nccls_buffers_follow(void **state)
{
    struct plan p, plain;

    (void)state;
    assert_int_equal(plan_with("{}", &plain), 0);
    assert_int_equal(overhead_nccl(&plain.cluster, 8, 8), 24 * 12 * MiB + 256 * MiB);
    assert_int_equal(plan_with("{\"environment\": {\"NCCL_NVLS_ENABLE\": 0, \"NCCL_BUFFSIZE\": \"8388608\"}}", &p), 0);
    assert_int_equal(overhead_nccl(&p.cluster, 8, 8), 24 * (14 + 2) * MiB);
    plan_free(&p);
    plan_free(&plain);
}

/* Pairs of KiB and a number of them. */
static void cublas_workspaces_are_sums_of_pairs(void **state)
{
    struct plan p;

    (void)state;
    assert_int_equal(plan_with("{}", &p), 0);
    assert_int_equal(overhead_workspace(&p), 32 * MiB);
    plan_free(&p);
    assert_int_equal(plan_with("{\"environment\": {\"CUBLAS_WORKSPACE_CONFIG\": \":4096:2:16:8\"}}", &p), 0);
    assert_int_equal(overhead_workspace(&p), (2 * 4096 + 8 * 16) * 1024);
    plan_free(&p);
    assert_int_equal(plan_with("{\"environment\": {\"CUBLAS_WORKSPACE_CONFIG\": \"4096:2\"}}", &p), -1);
    assert_non_null(strstr(said, "CUBLAS_WORKSPACE_CONFIG"));
}

/* training/arguments.py: before Blackwell, and beside tensor or context parallelism alone. */
static void megatron_wants_one_connection_beside_tensors(void **state)
{
    static const struct { const char *cluster; int tensor, connections, rc; } cases[] = {
        { "8xh100", 8, 1, 0 }, { "8xh100", 8, 8, -1 }, { "8xh100", 1, 8, 0 }, { "8xb200", 8, 32, 0 },
    };
    char text[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{\"model\": \"llama-2-7b\", \"cluster\": \"%s\", \"strategy\": \"zero1\", \"dialect\": \"megatron\", \"parallel\": {\"tensor\": %d}, "
                 "\"environment\": {\"CUDA_DEVICE_MAX_CONNECTIONS\": \"%d\"}}", cases[i].cluster, cases[i].tensor, cases[i].connections);
        assert_int_equal(plan_with(text, &p), cases[i].rc);
        if (cases[i].rc == 0)
            plan_free(&p);
        else
            assert_non_null(strstr(said, "require setting the environment variable"));
    }
}

/* Transformer Engine's variables are Megatron's key: a backend at 0 is out, and of two at 0 the third is left. */
static void attention_variables_are_the_backend(void **state)
{
    static const struct { const char *variables; enum attention_backend is; } cases[] = {
        { "\"NVTE_FLASH_ATTN\": 1", BACKEND_AUTO }, { "\"NVTE_FLASH_ATTN\": 0", BACKEND_FUSED }, { "\"NVTE_FUSED_ATTN\": \"0\"", BACKEND_FLASH },
        { "\"NVTE_FLASH_ATTN\": 0, \"NVTE_FUSED_ATTN\": 0", BACKEND_UNFUSED }, { "\"NVTE_FLASH_ATTN\": 0, \"NVTE_FUSED_ATTN\": 1", BACKEND_FUSED },
    };
    char text[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{\"model\": \"llama-2-7b\", \"strategy\": \"zero1\", \"dialect\": \"megatron\", \"environment\": {%s}}", cases[i].variables);
        assert_int_equal(plan_with(text, &p), 0);
        assert_int_equal(p.megatron.attention_backend, cases[i].is);
        plan_free(&p);
    }
}

static void what_matters_and_is_not_modelled_is_refused_and_the_rest_is_told(void **state)
{
    json_t *notes = json_array(), *before;
    struct plan p;

    (void)state;
    assert_int_equal(plan_with("{\"environment\": {\"CUDA_LAUNCH_BLOCKING\": 1}}", &p), -1);
    assert_non_null(strstr(said, "environment.CUDA_LAUNCH_BLOCKING"));
    before = notes_divert(notes);
    assert_int_equal(plan_with("{\"environment\": {\"NCCL_DEBUG\": \"INFO\", \"TORCH_NCCL_AVOID_RECORD_STREAMS\": 1, \"A_JOBS_OWN\": \"x\"}}", &p), 0);
    notes_divert(before);
    assert_int_equal(json_array_size(notes), 1);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), "A_JOBS_OWN"));
    json_decref(notes);
    plan_free(&p);
}

/* Their 0 is what they are without: nothing changes.  PYTORCH_NO_CUDA_MEMORY_CACHING counts where it is set at all. */
static void a_variable_that_is_off_changes_nothing(void **state)
{
    static const char *const off[] = { "CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE",
                                       "TORCH_NCCL_HIGH_PRIORITY", "NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN" };
    char text[128];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        for (int value = 0; value < 2; value++) {
            snprintf(text, sizeof text, "{\"environment\": {\"%s\": %d}}", off[i], value);
            assert_int_equal(plan_with(text, &p), value ? -1 : 0);
            if (!value)
                plan_free(&p);
        }
    assert_int_equal(plan_with("{\"environment\": {\"PYTORCH_NO_CUDA_MEMORY_CACHING\": 0}}", &p), -1);
}

#define ACTOR "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b actor_rollout_ref.actor.ppo_mini_batch_size=8 " \
              "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 data.max_prompt_length=128 data.max_response_length=128 actor_rollout_ref."
#define AXOLOTL "base_model: a/b\ndatasets: [{ path: x, type: alpaca }]\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nattn_implementation: flash_attention_2\n"

#define FACTORY "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\n"
#define PRIME   "[model]\nname = \"a/b\"\noptimization_dtype = \"float32\"\n[data]\nbatch_size = 8\nseq_len = 512\n"

/* Axolotl's command sets a variable where none is (utils/__init__.py), prime-rl's where env_vars have none (utils/process.py), LLaMA-Factory's in any case, of
 * several GPUs (launcher.py).  verl calls the allocator itself, which puts back what a variable says
 * (torch 2.15: max_split_size is unlimited after setAllocatorSettings("expandable_segments:True")), where an engine is beside the actor alone. */
static void programs_set_the_allocator_themselves(void **state)
{
    static const char grows[] = "expandable_segments:True", split[] = "max_split_size_mb:64";
    const struct { const char *name, *text, *variable, *is; int notes; } files[] = {
        { "a.yaml", AXOLOTL, NULL, grows, 1 }, { "a.yaml", AXOLOTL, split, split, 0 },
        { "v.sh", ACTOR "rollout.name=vllm\n", NULL, grows, 1 }, { "v.sh", ACTOR "rollout.name=vllm\n", split, grows, 1 },
        { "v.sh", ACTOR "rollout.name=vllm\n", grows, grows, 0 }, { "v.sh", ACTOR "rollout.name=vllm\n", "expandable_segments:False", grows, 1 },
        { "v.sh", ACTOR "actor.strategy=megatron\n", NULL, grows, 1 }, { "v.sh", ACTOR "hybrid_engine=False\n", NULL, "", 0 },
        { "v.sh", ACTOR "hybrid_engine=False\n", split, split, 0 }, { "v.sh", ACTOR "rollout.checkpoint_engine.backend=nccl\n", NULL, "", 0 },
        { "v.sh", "torchrun -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 data.micro_batch_size_per_gpu=1 data.max_length=256 model.partial_pretrain=a/b\n", NULL, "", 0 },
        { "t.yaml", "model_name_or_path: a/b\nmax_length: 512\n", NULL, "", 0 },
        { "f.yaml", FACTORY, NULL, grows, 1 }, { "1.yaml", FACTORY, NULL, "", 0 },        /* on one GPU */
        { "f.sh", "llamafactory-cli train --stage sft --model_name_or_path a/b --cutoff_len 512 --finetuning_type full\n", split, grows, 1 },
        { "f.sh", "OPTIM_TORCH=0 llamafactory-cli train --stage sft --model_name_or_path a/b --cutoff_len 512 --finetuning_type full\n", NULL, "", 0 },
        { "f.sh", "torchrun src/train.py --stage sft --model_name_or_path a/b --cutoff_len 512 --finetuning_type full\n", split, split, 0 },
        { "v1.yaml", "model: a/b\ntrain_dataset: d.yaml\nmicro_batch_size: 1\ncutoff_len: 512\ndist_config:\n  name: fsdp2\n", NULL, grows, 1 },
        { "p.toml", PRIME, NULL, grows, 1 }, { "p.toml", PRIME "[env_vars]\nPYTORCH_CUDA_ALLOC_CONF = \"max_split_size_mb:64\"\n", NULL, split, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct row row = { .cluster = *files[i].name == '1' ? (char[]){ "1xh100" } : (char[]){ "2xh100" }, .model = (char[]){ "qwen3-0.6b" }, .seq = (char[]){ "-" } };
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        char why[1024];
        int told = 0;
        assert_int_equal(form_parse(strdup(files[i].text), files[i].name, &f), 0);
        if (files[i].variable) {
            json_decref(f.environment);
            f.environment = json_pack("{s:s}", "PYTORCH_CUDA_ALLOC_CONF", files[i].variable);
        }
        if (read_as(form_of(&f), &f, &row, &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i].text, why);
        for (int k = 0; k < notes.n && k < 32; k++)
            told += strstr(notes.text[k], "expandable_segments:True") != NULL;
        if (strcmp(p.environment.alloc_conf, files[i].is) || told != files[i].notes)
            fail_msg("%s with %s: %s, told %d times", files[i].text, files[i].variable ? files[i].variable : "none", p.environment.alloc_conf, told);
        plan_free(&p);
        form_close(&f);
    }
}

/* torchrun sets OMP_NUM_THREADS=1 where it is not set and a node has several ranks (torch/distributed/run.py), also where accelerate runs it; with FSDP
 * accelerate has an option for it (utils/launch.py).  DeepSpeed's launcher sets nothing, and torchtune's recipes share the cores out themselves. */
static void launchers_set_the_hosts_threads(void **state)
{
    static const char z3[] = " --deepspeed " FOLDER "deepspeed/z3-offload.json", wraps[] = " --fsdp 'full_shard auto_wrap offload'";
    static const char tune[] = "model:\n  _component_: torchtune.models.qwen2.qwen2_0_5b\noptimizer:\n  _component_: torch.optim.AdamW\n  lr: 1e-5\n"
                               "tokenizer:\n  max_seq_len: 512\nbatch_size: 1\ndtype: bf16\ngradient_accumulation_steps: 1\nenable_activation_checkpointing: true\n"
                               "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\nfsdp_cpu_offload: true\n";
    const struct { const char *name, *program, *with, *variable; int threads; bool told; } files[] = {
        { "r.sh", "torchrun --nproc_per_node 2 run_clm.py", z3, NULL, 1, true }, { "r.sh", "deepspeed run_clm.py", z3, NULL, 0, false },
        { "r.sh", "python -m torch.distributed.run run_clm.py", z3, "8", 8, false }, { "r.sh", "accelerate launch run_clm.py", z3, NULL, 1, true },
        { "r.sh", "deepspeed run_clm.py", z3, "4", 4, false }, { "r.sh", "accelerate launch --num_cpu_threads_per_process 6 run_clm.py", z3, NULL, 6, false },
        { "r.sh", "accelerate launch --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --num_cpu_threads_per_process 6 run_clm.py", "", NULL, 1, true },
        { "r.sh", "torchrun --nproc_per_node 2 run_clm.py", wraps, NULL, 1, false }, { "r.sh", "torchrun --nproc_per_node 2 run_clm.py", wraps, "8", 8, false },
        { "r.sh", "accelerate launch --num_cpu_threads_per_process 6 run_clm.py", wraps, NULL, 6, false },
        { "f.yaml", FACTORY "deepspeed: " FOLDER "deepspeed/z3-offload.json\n", "", NULL, 1, true }, { "t.yaml", tune, "", NULL, 0, false },
        { "r.sh", "torchrun --nproc_per_node 2 run_clm.py", "", "8", -1, false },         /* nothing on the host */
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct row row = { .cluster = (char[]){ "2xh100" }, .model = (char[]){ "qwen2.5-0.5b" }, .seq = (char[]){ "-" } };
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        char why[1024], *text;
        bool told = false, command = *files[i].name == 'r';
        text = malloc(2048);
        assert_true(snprintf(text, 2048, "%s%s%s\n", files[i].program, command ? " --model_name_or_path a/b --per_device_train_batch_size 1 --bf16 --block_size 512" : "",
                             files[i].with) < 2048);
        assert_int_equal(form_parse(text, files[i].name, &f), 0);
        if (files[i].variable)
            json_object_set_new(f.environment, "OMP_NUM_THREADS", json_string(files[i].variable));
        if (read_as(form_of(&f), &f, &row, &p, &notes, why) < 0)
            fail_msg("%s%s: %s", files[i].program, files[i].with, why);
        for (int k = 0; k < notes.n && k < 32; k++)
            told = told || strstr(notes.text[k], "has one thread a rank, because the launcher");
        if ((files[i].threads >= 0 && p.host_threads != files[i].threads) || told != files[i].told)
            fail_msg("%s%s with %s: %d threads, told %d", files[i].program, files[i].with, files[i].variable ? files[i].variable : "none", (int)p.host_threads, told);
        plan_free(&p);
        form_close(&f);
    }
}

/* A script's own words before its command: of torchrun, whose default is one thread. */
static void threads_are_those_the_command_has(void **state)
{
    static const struct { const char *before; int threads; } files[] = {
        { "env OMP_NUM_THREADS=3 ", 3 }, { "OMP_NUM_THREADS=3 ", 3 }, { "export OMP_NUM_THREADS=4\nunset OMP_NUM_THREADS\n", 1 },
        { "export OMP_NUM_THREADS=4\nenv -u OMP_NUM_THREADS ", 1 }, { "unset OMP_NUM_THREADS\nexport OMP_NUM_THREADS=5\n", 5 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct row row = { .cluster = (char[]){ "2xh100" }, .model = (char[]){ "qwen2.5-0.5b" }, .seq = (char[]){ "-" } };
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        char why[1024], *text = malloc(1024);
        assert_true(snprintf(text, 1024, "%storchrun --nproc_per_node 2 run_clm.py --model_name_or_path a/b --per_device_train_batch_size 1 --bf16 --block_size 512 "
                             "--deepspeed " FOLDER "deepspeed/z3-offload.json\n", files[i].before) < 1024);
        assert_int_equal(form_parse(text, "r.sh", &f), 0);
        if (read_as(form_of(&f), &f, &row, &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i].before, why);
        if (p.host_threads != files[i].threads)
            fail_msg("%s: %d threads, expected %d", files[i].before, (int)p.host_threads, files[i].threads);
        plan_free(&p);
        form_close(&f);
    }
}

/* torch/_dynamo/eval_frame.py and config.py: "1" turns torch.compile off, nothing else does; without it the plan is that of a file that asks for none. */
static void what_turns_compilation_off_is_followed(void **state)
{
    static const struct { const char *before; bool compiled; } files[] = {
        { "", true }, { "TORCHDYNAMO_DISABLE=1 ", false }, { "TORCH_COMPILE_DISABLE=1 ", false }, { "TORCHDYNAMO_DISABLE=0 ", true },
        { "env TORCH_COMPILE_DISABLE=true ", true },
    };

    (void)state;
    for (size_t i = 0; i < 2 * (sizeof files / sizeof *files); i++) {
        struct row row = { .cluster = (char[]){ "2xh100" }, .model = (char[]){ "llama-3.2-1b" }, .seq = (char[]){ "-" } };
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        bool asks = i % 2 == 0;
        char why[1024], *text = malloc(1024);
        assert_true(snprintf(text, 1024, "%storchrun --nproc_per_node 2 run_clm.py --model_name_or_path a/b --per_device_train_batch_size 1 --bf16 --block_size 512%s\n",
                             files[i / 2].before, asks ? " --torch_compile" : "") < 1024);
        assert_int_equal(form_parse(text, "r.sh", &f), 0);
        if (read_as(form_of(&f), &f, &row, &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i / 2].before, why);
        bool on = asks && files[i / 2].compiled;
        assert_int_equal(p.kernels, on ? KERNELS_TORCH_COMPILE : KERNELS_TORCH_SDPA);
        assert_int_equal(p.loss, on ? LOSS_COMPILED : LOSS_FP32);
        assert_int_equal(notes_say_that(&notes, "nothing is compiled"), asks && !on);
        plan_free(&p);
        form_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_names_of_the_allocators_options_are_one_key),
        cmocka_unit_test(the_replay_has_the_plans_options),
        cmocka_unit_test(nccls_buffers_follow),
        cmocka_unit_test(cublas_workspaces_are_sums_of_pairs),
        cmocka_unit_test(megatron_wants_one_connection_beside_tensors),
        cmocka_unit_test(attention_variables_are_the_backend),
        cmocka_unit_test(what_matters_and_is_not_modelled_is_refused_and_the_rest_is_told),
        cmocka_unit_test(a_variable_that_is_off_changes_nothing),
        cmocka_unit_test(programs_set_the_allocator_themselves),
        cmocka_unit_test(launchers_set_the_hosts_threads),
        cmocka_unit_test(threads_are_those_the_command_has),
        cmocka_unit_test(what_turns_compilation_off_is_followed),
    };
    return cmocka_run_group_tests_name("model/environment", tests, NULL, NULL);
}
