/* What stands beside a file decides, too: the program's subcommand, variables, files that it names, other programs' keys.  None is dropped in silence. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/arch/transformer.h"
#include "model/form/form.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))

/* What a text becomes: "read" and its notes, or the refusal, in `said`. */
static bool becomes(const char *name, const char *text, const char *cluster, char said[16384])
{
    struct notes notes = { 0 };
    struct form_file f;
    struct plan p = { .seq = 512 };
    size_t n = 0;

    fail_capture(said, 16384);
    assert_int_equal(form_parse(strdup(text), name, &f), 0);
    const struct form *form = form_of(&f);
    assert_non_null(form);
    assert_int_equal(model_load(form->model && form->rows && form->model(&f) ? form->model(&f) : "qwen3-0.6b", &p.model), 0);
    assert_int_equal(cluster_load(cluster, &p.cluster), 0);
    int rc = form_check(form, &f) < 0 ? -1 : form_read(form, &f, &p, &notes);
    fail_capture(NULL, 0);
    for (int i = 0; rc == 0 && i < notes.n && i < (int)COUNT(notes.text); i++)
        n += (size_t)snprintf(said + n, 16384 - n, "%s\n", notes.text[i]);
    plan_free(&p);
    form_close(&f);
    return rc == 0;
}

/* `words`: of a note, or with an exclamation mark before them of a refusal; NULL: it is read, and says nothing of `not_these`. */
static void says(const char *name, const char *text, const char *words, const char *not_these)
{
    char said[16384] = "";
    bool refused = words && *words == '!', read = becomes(name, text, "8xh100", said);

    if (read == refused || (words && !strstr(said, words + refused)) || (not_these && strstr(said, not_these)))
        fail_msg("%s: wanted %s\n%s: %s", text, words ? words : "nothing", read ? "read" : "refused", said);
}

#define RECIPE "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ncutoff_len: 512\nbf16: true\n"
#define OPTIONS "--model_name_or_path Qwen/Qwen3-0.6B --stage sft --do_train --finetuning_type lora --cutoff_len 512 --bf16\n"

static void subcommands_that_train_nothing_are_refused(void **state)
{
    static const char *const factorys[] = { "export", "chat", "eval", "webchat", "api", "webui", "version", "zzz" };
    char text[1024];

    (void)state;
    says("t.sh", "llamafactory-cli train " OPTIONS, NULL, NULL);
    for (size_t i = 0; i < COUNT(factorys); i++) {
        snprintf(text, sizeof text, "llamafactory-cli %s " OPTIONS, factorys[i]);
        says("t.sh", text, "!nothing trains by this command", NULL);
        snprintf(text, sizeof text, "llamafactory-cli train " OPTIONS "llamafactory-cli %s " OPTIONS, factorys[i]);
        says("t.sh", text, NULL, NULL);                 /* the one that trains is read, whatever comes behind it */
    }
}

static void variables_that_start_another_program_are_refused(void **state)
{
    static const struct { const char *set, *words; } rows[] = {
        { "USE_MCA=1", "!USE_MCA" }, { "USE_V1=1", "!USE_V1" }, { "USE_KT=true", "!USE_KT" }, { "USE_MCA=0", NULL }, { "USE_KT=false", NULL },
        { "USE_RAY=1", "ray_num_workers: the file starts 1 ranks, the plan has 8" }, { "USE_RAY=0", NULL },
        { "ACCELERATE_USE_FSDP=true", "!ACCELERATE_USE_FSDP" }, { "ACCELERATE_USE_DEEPSPEED=true", "!ACCELERATE_USE_DEEPSPEED" }, { "ACCELERATE_USE_FSDP=false", NULL },
        { "ACCELERATE_MIXED_PRECISION=fp16", "!ACCELERATE_MIXED_PRECISION" }, { "ACCELERATE_MIXED_PRECISION=no", NULL },
        { "ACCELERATE_DEEPSPEED_ZERO_STAGE=3", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3 is not in the plan" }, { "FSDP_OFFLOAD_PARAMS=true", "FSDP_OFFLOAD_PARAMS=true is not in the plan" },
        { "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES: the file starts 2 ranks on a node, the plan has 8" }, { "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", NULL },
        { "CUDA_VISIBLE_DEVICES=3", "CUDA_VISIBLE_DEVICES: the file starts 1 ranks" }, { "CUDA_VISIBLE_DEVICES=$GPUS", NULL },
        { "NPROC_PER_NODE=4", "NPROC_PER_NODE: the file starts 4 ranks on a node" }, { "NNODES=2", "NNODES: the file starts 2 nodes, the plan has 1" }, { "NPROC_PER_NODE=8", NULL },
    };
    char text[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int exported = 0; exported < 2; exported++) {
            snprintf(text, sizeof text, "%s%s%sllamafactory-cli train " OPTIONS, exported ? "export " : "", rows[i].set, exported ? "\n" : " ");
            says("t.sh", text, rows[i].words, rows[i].words ? NULL : "the file starts");
        }
}

static void accelerates_option_is_the_trainers_precision(void **state)
{
#define TRAINER " train.py --model_name_or_path Qwen/Qwen3-0.6B --block_size 512 --num_train_epochs 1 --save_strategy no --per_device_train_batch_size 1"
    static const char note[] = "accelerate's mixed_precision bf16 is the Trainer's";

    (void)state;
    says("t.sh", "accelerate launch --multi_gpu --mixed_precision bf16" TRAINER "\n", note, NULL);
    says("t.sh", "accelerate launch --multi_gpu --mixed_precision bf16" TRAINER " --bf16\n", NULL, note);
    says("t.sh", "accelerate launch --multi_gpu --mixed_precision no" TRAINER "\n", NULL, note);
    says("t.sh", "accelerate launch --multi_gpu" TRAINER "\n", NULL, note);
    says("t.sh", "accelerate launch --use_deepspeed --zero_stage 2 --mixed_precision bf16" TRAINER "\n", "!bf16: true in the recipe (--bf16)", NULL);
    says("t.sh", "accelerate launch --use_deepspeed --zero_stage 2 --mixed_precision bf16" TRAINER " --bf16\n", NULL, note);
}

/* A key by which a form is told, in a file of another program. */
static void a_few_keys_make_no_recipe(void **state)
{
    static const char *const few[] = { "flash_attn: auto\n", "template: qwen\n", "stage: sft\n", "cutoff_len: 512\n", "lora_rank: 8\n", "finetuning_type: lora\n",
                                       "model_name_or_path: x\nmax_length: 512\n", "num_train_epochs: 1\noptim: adamw_torch\n", "base_model: x\nsequence_len: 512\n" };
    static const char others[] = "zz_nodes: 4\nzz_layers: 3\nzz_width: 5\nzz_kind: deep\n";
    char text[512];

    (void)state;
    for (size_t i = 0; i < COUNT(few); i++) {
        snprintf(text, sizeof text, "%s%s", few[i], others);
        says("t.yaml", text, "!another program's file", NULL);
    }
    says("t.yaml", RECIPE "zz_nodes: 4\n", "zz_nodes", NULL);
    says("t.yaml", "stage: sft\ndo_train: true\ncutoff_len: 512\nbf16: true\nzz_nodes: 4\n", "!model_name_or_path, which it asks for, is not there", NULL);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_non_null(f = fopen(path, "w"));
    fputs(text, f);
    fclose(f);
}

static void the_file_that_is_read_is_told_and_of_its_kind(void **state)
{
    char root[] = "/tmp/dpx-beside-XXXXXX", below[64], name[80], words[128];

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(below, sizeof below, "%s/below", root);
    assert_int_equal(mkdir(below, 0700), 0);
    snprintf(name, sizeof name, "%s/t.yaml", below);
    write_file(root, "above.json", "{\"zero_optimization\": {\"stage\": 2}}");
    write_file(below, "here.json", "{\"zero_optimization\": {\"stage\": 2}}");
    write_file(below, "plan.json", "{\"dpx_phases\": 1, \"phases\": []}");
    write_file(below, "empty.json", "{}");
    snprintf(words, sizeof words, "deepspeed: %s/above.json is read", root);
    says(name, RECIPE "deepspeed: above.json\n", words, NULL);
    says(name, RECIPE "deepspeed: here.json\n", NULL, "here.json is read");
    says(name, RECIPE "deepspeed: plan.json\n", "!it has dpx_phases, and no zero_optimization", NULL);
    says(name, RECIPE "deepspeed: empty.json\n", "!it has nothing", NULL);
    static const char *const files[] = { "above.json", "below/here.json", "below/plan.json", "below/empty.json" };
    for (size_t i = 0; i < COUNT(files); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        unlink(path);
    }
    rmdir(below);
    rmdir(root);
}

#define AXOLOTL "base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\noptimizer: adamw_torch_fused\nattn_implementation: flash_attention_2\n"
#define TUNE "model:\n  _component_: torchtune.models.qwen3.qwen3_8b_base\n%s" "optimizer:\n  _component_: torch.optim.AdamW\n  fused: true\n" \
             "tokenizer:\n  max_seq_len: 512\nbatch_size: 1\ndtype: bf16\n"
#define NEMOTRON "base_model: nvidia/Nemotron-H-8B-Base-8K\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\noptimizer: adamw_torch_fused\nattn_implementation: flash_attention_2\n"
#define LITGPT "checkpoint_dir: checkpoints/Qwen/Qwen3-0.6B\nprecision: bf16-true\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 8\n  max_seq_length: 512\n"
#define ZERO "{\"zero_optimization\": {\"stage\": 1%s}, \"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true%s}%s}"

static void words_that_a_framework_has_not_are_refused_or_told(void **state)
{
    static const struct { const char *name, *text, *words; } rows[] = {
        { "a.yml", AXOLOTL, NULL }, { "a.yml", AXOLOTL "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n", NULL },
        { "a.yml", AXOLOTL "plugins:\n  - axolotl.integrations.liger.LigerPlugins\n", "!axolotl has no such plugin" },
        { "a.yml", AXOLOTL "plugins:\n  - axolotl.integrations.zzz.LigerPlugin\n", "!axolotl has no such plugin" },
        { "a.yml", AXOLOTL "plugins: [1]\n", "!plugins: expected names" }, { "a.yml", AXOLOTL "fsdp: [1]\n", "!fsdp: expected words" },
        { "a.yml", AXOLOTL "full_determinism: true\n", "CUDA_LAUNCH_BLOCKING=1" },
        { "a.yml", AXOLOTL "fused_attn_kernel: true\n", "one kernel for the norms of q and k and their rotation" },
        { "a.yml", AXOLOTL "datasets:\n  - path: x\n    type: sharegpt\n    conversation: chatml\n", "Please use `type: chat_template` instead." },
        { "a.yml", AXOLOTL "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n",
          "no class of this model's, where accelerate stops" },
        { "a.yml", NEMOTRON "gradient_checkpointing: true\n", "!for nemotron_h requires sample_packing: true" }, { "a.yml", NEMOTRON, NULL },
        { "a.yml", NEMOTRON "gradient_checkpointing: true\nsample_packing: true\n", NULL },
        { "l.yaml", LITGPT, NULL }, { "l.yaml", LITGPT "optimizer: 5\n", "!optimizer: expected" }, { "l.yaml", LITGPT "optimizer: zzz\n", "!optimizer: zzz" },
        { "l.yaml", LITGPT "  tie_embeddings: zzz\n", "!train.tie_embeddings" },
        { "c.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n", NULL },
        { "c.yaml", "compute_environment: zzz\ndistributed_type: MULTI_GPU\n", "!compute_environment: zzz" },
        { "c.yaml", "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: MULTI_GPU\n", "!compute_environment: AMAZON_SAGEMAKER" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        says(rows[i].name, rows[i].text, rows[i].words, NULL);
}

static void deepspeeds_values_are_those_that_it_takes(void **state)
{
    static const struct { const char *zero, *bf16, *top, *words; } rows[] = {
        { "", "", "", NULL }, { ", \"allgather_bucket_size\": 0", "", "", "!allgather_bucket_size" },
        { "", "", ", \"optimizer\": \"zzz\"", "!optimizer: expected a mapping" },
        { "", "", ", \"optimizer\": {\"type\": \"AdamW\", \"params\": \"zzz\"}", "!optimizer.params: expected a mapping" },
        { "", ", \"loss_scale\": 0", "", "bf16.loss_scale is not known and was ignored, as by older versions: DeepSpeed 0.19.8 stops at it" },
        { "", ", \"auto_cast\": true", "", "bf16.auto_cast is not known" },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, ZERO, rows[i].zero, rows[i].bf16, rows[i].top);
        says("z.json", text, rows[i].words, rows[i].words ? NULL : "not known");
    }
}

static void torchtunes_builders_take_what_they_have(void **state)
{
    static const struct { const char *model, *more, *words; } rows[] = {
        { "", "device: cuda\ndataset:\n  packed: false\n", NULL }, { "", "device: cpu\n", "!device" },
        { "", "dataset:\n  packed: true\n", "flex_attention(), compiled" },
        { "", "data_parallel_shard_dim: -1\n", NULL }, { "", "data_parallel_shard_dim: 8\n", NULL }, { "", "data_parallel_shard_dim: 4\n", "!data_parallel_shard_dim: 4 x" },
        { "", "data_parallel_shard_dim: 4\ndata_parallel_replicate_dim: 2\n", NULL },
        { "  num_layers: 4\n", "", "!model.num_layers" }, { "  embed_dim: 64\n", "", "!model.embed_dim" },
        { "", "custom_sharded_layers: [zzz]\n", "!custom_sharded_layers: zzz" },
        { "", "custom_sharded_layers: [tok_embeddings, output]\nloss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n", NULL },
        /* 151936 x 4096 weights of 2 bytes, gathered 16 times instead of once */
        { "", "custom_sharded_layers: [tok_embeddings, output]\nloss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n",
          "18.7 GB more are gathered in a micro-step" },
    };
    char text[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, TUNE "%s", rows[i].model, rows[i].more);
        says("t.yaml", text, rows[i].words, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subcommands_that_train_nothing_are_refused), cmocka_unit_test(variables_that_start_another_program_are_refused),
        cmocka_unit_test(accelerates_option_is_the_trainers_precision), cmocka_unit_test(a_few_keys_make_no_recipe),
        cmocka_unit_test(the_file_that_is_read_is_told_and_of_its_kind),
        cmocka_unit_test(words_that_a_framework_has_not_are_refused_or_told), cmocka_unit_test(deepspeeds_values_are_those_that_it_takes),
        cmocka_unit_test(torchtunes_builders_take_what_they_have),
    };

    return cmocka_run_group_tests_name("model/form beside", tests, NULL, NULL);
}
