/* Recipes of transformers, LLaMA-Factory, axolotl and torchtitan become the plans that they describe, and what of them is not
 * understood is listed with what it matters to. */
#include "tests/model/plans.h"
#include "tests/model/recipes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/arch/training.h"

#define QLORA_AXOLOTL \
    "base_model: meta-llama/Llama-2-7b-hf\n" \
    "load_in_4bit: true\n" \
    "adapter: qlora\n" \
    "lora_r: 32\n" \
    "lora_alpha: 16\n" \
    "lora_dropout: 0.05\n" \
    "lora_target_linear: true\n" \
    "sequence_len: 4096\n" \
    "sample_packing: true\n" \
    "micro_batch_size: 2\n" \
    "gradient_accumulation_steps: 4\n" \
    "optimizer: paged_adamw_32bit\n" \
    "lr_scheduler: cosine\n" \
    "learning_rate: 0.0002\n" \
    "bf16: auto\n" \
    "gradient_checkpointing: true\n" \
    "flash_attention: true\n" \
    "wandb_project:\n" \
    "wandb_name: test\n" \
    "some_new_key: 7\n"

static void axolotls_qlora_is_a_plan_of_nf4_with_double_quantisation(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe(QLORA_AXOLOTL, NULL, "1xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.strategy, STRAT_DDP);
    assert_int_equal(p.dialect, DIALECT_TORCH);
    assert_int_equal(p.precision, DT_BF16);
    assert_int_equal(p.train.base, BASE_NF4_DOUBLE);
    assert_int_equal(p.train.rank, 32);
    assert_string_equal(p.train.target_modules, "all-linear");
    assert_close(p.train.dropout, 0.05, 0);
    assert_int_equal(p.optimizer, OPTIMIZER_PAGED_ADAMW);
    assert_int_equal(p.recompute, RECOMPUTE_REENTRANT);
    assert_int_equal(p.seq, 4096);
    assert_int_equal(p.micro_batch, 2);
    assert_int_equal(p.accumulation, 4);
    assert_false(p.sync_every_micro_step);
    assert_close(p.clip, 1, 0);
    assert_int_equal(p.ddp.model_dtype, DT_BF16);
    /* Seven layers of 32 blocks: 32 (4 x 8192 + 3 x 15104) a block. */
    assert_int_equal(p.model.trainable, (int64_t)32 * 32 * (4 * 8192 + 3 * 15104));
    assert_true(noted(&notes, "sample_packing is not in the plan"));
    assert_true(noted(&notes, "not known, and may matter to memory or time: some_new_key"));
    assert_false(noted(&notes, "learning_rate"));       /* says nothing of a step */
    assert_false(noted(&notes, "wandb_project"));       /* it says nothing */
    plan_free(&p);
}

#define INT8_AXOLOTL \
    "base_model: meta-llama/Llama-2-7b-hf\n" \
    "load_in_8bit: true\n" \
    "adapter: lora\n" \
    "lora_r: 32\n" \
    "lora_target_linear: true\n" \
    "sequence_len: 2048\n" \
    "micro_batch_size: 2\n" \
    "gradient_checkpointing: true\n"

static void checkpoints_as(const char *text, enum recompute want)
{
    struct notes notes = { 0 };
    struct plan p;

    assert_int_equal(read_recipe(text, NULL, "1xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.train.base, BASE_INT8);
    assert_int_equal(p.recompute, want);
    assert_true(noted(&notes, want == RECOMPUTE_REENTRANT ? "use_reentrant true" : "use_reentrant false"));
    plan_free(&p);
}

/* axolotl's normalize_config(): gradient_checkpointing_kwargs is { use_reentrant: true } where neither it, rl nor unfrozen_parameters is given. */
static void int8_layers_checkpoints_are_those_of_the_trainer(void **state)
{
    (void)state;
    checkpoints_as(INT8_AXOLOTL, RECOMPUTE_REENTRANT);
    checkpoints_as(INT8_AXOLOTL "rl: grpo\n", RECOMPUTE_FULL);
    checkpoints_as(INT8_AXOLOTL "gradient_checkpointing_kwargs:\n  use_reentrant: false\n", RECOMPUTE_FULL);
    checkpoints_as(INT8_AXOLOTL "rl: grpo\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n", RECOMPUTE_REENTRANT);
}

static void llama_factorys_lora_has_its_own_defaults(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: lora\nlora_target: q_proj,v_proj\n"
                                 "cutoff_len: 1024\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\n",
                                 NULL, "2xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.train.rank, 8);
    assert_close(p.train.alpha, 16, 0);
    assert_string_equal(p.train.target_modules, "q_proj,v_proj");
    assert_int_equal(p.recompute, RECOMPUTE_REENTRANT);
    assert_int_equal(p.optimizer, OPTIMIZER_ADAMW);
    assert_int_equal(p.optimizer_form, OPTIMIZER_FUSED);
    assert_int_equal(p.ddp.model_dtype, DT_BF16);
    assert_int_equal(plan_recipe(&p).kept, DT_FP32);
    assert_int_equal(plan_recipe(&p).frozen, DT_BF16);
    assert_false(noted(&notes, "stage is not in the plan"));       /* sft trains one model alone */
    plan_free(&p);
    /* Everything, four bits of it where asked, without checkpoints. */
    assert_int_equal(read_recipe("model_name_or_path: gpt2\nquantization_bit: 4\ndouble_quantization: false\nfp16: true\n"
                                 "disable_gradient_checkpointing: true\n", NULL, "1xa100-80gb", 512, &p, NULL), 0);
    assert_string_equal(p.train.target_modules, "all-linear");
    assert_int_equal(p.train.base, BASE_NF4);
    assert_int_equal(p.recompute, RECOMPUTE_NONE);
    assert_int_equal(p.precision, DT_FP16);
    assert_int_equal(p.micro_batch, 8);
    plan_free(&p);
}

/* transformers 5.24, _process_fsdp_args(): version 2, blocks are units, shard_grad_op keeps them after forward, the host takes parameters
 * by cpu_offload alone. */
static void the_trainers_fsdp_has_its_own_defaults(void)
{
    struct notes notes = { 0 };
    struct plan p;

    assert_int_equal(read_recipe("per_device_train_batch_size: 1\nbf16: true\nfsdp: shard_grad_op\n"
                                 "fsdp_config: {fsdp_offload_params: true}\n", "llama-2-7b", "8xh100", 2048, &p, &notes), 0);
    assert_int_equal(p.dialect, DIALECT_TORCH);
    assert_int_equal(p.strategy, STRAT_FSDP);
    assert_int_equal(p.unit, UNIT_BLOCK);
    assert_int_equal(p.fsdp.reshard_after_forward, 0);
    assert_false(p.fsdp.cpu_offload);
    assert_true(noted(&notes, "FSDP2, the default since transformers 5.10"));
    assert_true(noted(&notes, "fsdp_offload_params is not read by the Trainer"));
    plan_free(&p);
    refuses("per_device_train_batch_size: 1\nbf16: true\nfsdp: hybrid_shard\n", 2048, "hybrid_shard with FSDP1 alone");
}

static void transformers_sections_are_read_by_their_own_importers(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("{\"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 2, \"bf16\": true, \"max_grad_norm\": 0.5,"
                                 " \"optim\": \"adamw_torch\", \"gradient_checkpointing\": true, \"deepspeed\": {\"zero_optimization\": {\"stage\": 2},"
                                 " \"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\", \"bf16\": {\"enabled\": true}}}",
                                 "llama-2-7b", "8xh100", 2048, &p, &notes), 0);
    assert_int_equal(p.dialect, DIALECT_DEEPSPEED);
    assert_int_equal(p.strategy, STRAT_ZERO2);
    assert_int_equal(p.micro_batch, 4);
    assert_int_equal(p.accumulation, 2);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    assert_close(p.clip, 1, 0);                 /* the engine clips, by its own default: "auto" alone is max_grad_norm */
    plan_free(&p);
    assert_int_equal(read_recipe("{\"per_device_train_batch_size\": 4, \"max_grad_norm\": 0.5, \"bf16\": true, \"deepspeed\": {\"zero_optimization\":"
                                 " {\"stage\": 2}, \"gradient_clipping\": \"auto\"}}", "llama-2-7b", "8xh100", 2048, &p, &notes), 0);
    assert_close(p.clip, 0.5, 0);
    plan_free(&p);
    assert_int_equal(read_recipe("{\"per_device_train_batch_size\": 1, \"bf16\": true, \"optim\": \"adamw_torch\", \"fsdp\": \"full_shard auto_wrap\","
                                 " \"fsdp_config\": {\"transformer_layer_cls_to_wrap\": \"LlamaDecoderLayer\", \"use_orig_params\": true, \"version\": 1,"
                                 " \"activation_checkpointing\": true}}", "llama-2-7b", "8xh100", 2048, &p, &notes), 0);
    assert_int_equal(p.dialect, DIALECT_TORCH_FSDP1);
    assert_int_equal(p.fsdp.sharding_strategy, FSDP1_FULL_SHARD);
    assert_int_equal(p.unit, UNIT_BLOCK);
    assert_true(p.fsdp.use_orig_params);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    plan_free(&p);
    the_trainers_fsdp_has_its_own_defaults();
    for (int orig = 0; orig < 2; orig++) {      /* the Trainer's policy for PEFT's models */
        char text[512];
        snprintf(text, sizeof text, "base_model: llama-2-7b\nadapter: lora\nsequence_len: 2048\nbf16: true\nlora_target_linear: true\n"
                 "optimizer: adamw_torch\ngradient_checkpointing: false\nfsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
                 "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  fsdp_use_orig_params: %s\n", orig ? "true" : "false");
        notes = (struct notes){ 0 };
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, &notes), 0);
        assert_int_equal(p.dialect, DIALECT_TORCH_FSDP1);
        assert_true(p.fsdp.wrap_adapters);
        assert_true(p.fsdp.use_orig_params == (orig == 1));
        assert_int_equal(plan_recipe(&p).frozen, DT_BF16);
        assert_int_equal(plan_recipe(&p).kept, DT_FP32);
        plan_free(&p);
    }
    assert_int_equal(read_recipe("base_model: llama-2-7b\nadapter: lora\nsequence_len: 2048\nbf16: true\nlora_target_linear: true\noptimizer: adamw_torch\n"
                                 "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                 "  reshard_after_forward: true\n", NULL, "8xh100", 0, &p, &notes), 0);
    assert_int_equal(p.dialect, DIALECT_TORCH);
    assert_int_equal(p.strategy, STRAT_FSDP);
    assert_true(training_is_lora(&p.train));
    plan_free(&p);
}

/* Whose AdamW steps under DeepSpeed: that of its file, the Trainer's (torch's, in a form that optim names), or on the host DeepSpeed's
 * (integrations/deepspeed.py, deepspeed_optim_sched(); accelerate's map_pytorch_optim_to_deepspeed()). */
static void deepspeed_steps_the_optimizer_that_the_trainer_makes(void **state)
{
#define ON_HOST ", \"offload_optimizer\": {\"device\": \"cpu\"}"
    static const struct { const char *optim, *more, *zero; int stage; enum optimizer_form form; const char *note; } rows[] = {
        { "adamw_torch", "", "", 1, OPTIMIZER_FOREACH, NULL },
        { "adamw_torch", "", "", 2, OPTIMIZER_FOREACH, NULL },
        { "adamw_torch", "", "", 3, OPTIMIZER_FOREACH, NULL },
        { "adamw_torch_fused", "", "", 3, OPTIMIZER_FUSED, NULL },
        { NULL, "", "", 2, OPTIMIZER_FUSED, "the default since transformers 5" },
        { "adamw_torch", ", \"optimizer\": {\"type\": \"AdamW\"}", "", 2, OPTIMIZER_FUSED, NULL },
        { "adafactor", ", \"optimizer\": {\"type\": \"AdamW\"}", "", 2, OPTIMIZER_FUSED, "the optimizer of DeepSpeed's file is taken" },
        { NULL, ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}", "", 2, OPTIMIZER_FOREACH, NULL },
        { NULL, ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true, \"foreach\": false}}", "", 3, OPTIMIZER_LOOP, NULL },
        { "adamw_torch", "", ON_HOST, 2, OPTIMIZER_FUSED, NULL },
        { "adamw_8bit", "", "", 2, OPTIMIZER_FUSED, NULL },
        { "paged_adamw_32bit", "", "", 3, OPTIMIZER_FUSED, NULL },
        { "paged_adamw_32bit", "", ON_HOST, 3, OPTIMIZER_FUSED, "accelerate makes it DeepSpeedCPUAdam" },
        { "adamw_torch", "", "", 0, OPTIMIZER_FUSED, "FP16_UnfusedOptimizer" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[1024], optim[64] = "";
        if (rows[i].optim)
            snprintf(optim, sizeof optim, " \"optim\": \"%s\",", rows[i].optim);
        snprintf(text, sizeof text, "{\"per_device_train_batch_size\": 1, \"bf16\": true,%s \"deepspeed\": {\"zero_optimization\": {\"stage\": %d%s},"
                 " \"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}%s}}", optim, rows[i].stage, rows[i].zero, rows[i].more);
        if (read_recipe(text, "gpt2", "8xh100", 64, &p, &notes) < 0)
            fail_msg("row %zu is refused", i);
        if (p.optimizer_form != rows[i].form || (rows[i].note && !noted(&notes, rows[i].note)))
            fail_msg("row %zu: form %d, or not noted: %s", i, p.optimizer_form, rows[i].note ? rows[i].note : "-");
        assert_true(p.ds.zero_init == (rows[i].stage == 3));        /* HfTrainerDeepSpeedConfig: from_pretrained() shards as it loads */
        plan_free(&p);
    }
#undef ON_HOST
}

/* axolotl's keys of a fine-tuning under FSDP; `fsdp` are lines of fsdp_config and what stands beside it. */
static void read_fsdp_recipe(const char *adapter, const char *beside, const char *fsdp, struct plan *p)
{
    struct notes notes = { 0 };
    char text[1024];

    snprintf(text, sizeof text, "base_model: llama-2-70b\nadapter: %s\nsequence_len: 2048\nbf16: true\nlora_target_linear: true\noptimizer: adamw_torch\n"
             "gradient_checkpointing: true\n%s\nfsdp_config:\n  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n%s", adapter, beside, fsdp);
    assert_int_equal(read_recipe(text, NULL, "2xa100-80gb", 0, p, &notes), 0);
}

/* Base, sharding and offload of the public recipes of LoRA and QLoRA under FSDP; frozen weights stay in bf16 in each. */
static void adapters_under_fsdp_leave_what_is_frozen_in_bf16(void **state)
{
    static const char *const adapters[] = { "lora", "qlora\nload_in_4bit: true" };
    struct plan p;

    (void)state;
    for (int i = 0; i < 2 * 2 * 2; i++) {
        bool packed = i & 1, offload = i & 2, two = i & 4;
        read_fsdp_recipe(adapters[packed], two ? "fsdp_version: 2" : "fsdp:\n  - full_shard\n  - auto_wrap",
                         offload ? "  fsdp_offload_params: true\n" : "  fsdp_offload_params: false\n", &p);
        assert_int_equal(p.dialect, two ? DIALECT_TORCH : DIALECT_TORCH_FSDP1);
        assert_int_equal(p.train.base, packed ? BASE_NF4_DOUBLE : BASE_PLAIN);
        assert_true(p.fsdp.cpu_offload == offload);
        assert_true(two || p.fsdp.wrap_adapters);
        assert_int_equal(plan_recipe(&p).frozen, DT_BF16);
        assert_int_equal(plan_recipe(&p).kept, DT_FP32);
        assert_int_equal(plan_recipe(&p).used, DT_BF16);
        plan_free(&p);
    }
}

static void torchtitans_sections_are_its_importers(void **state)
{
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("model:\n  name: llama3\n  flavor: 8B\ntraining:\n  local_batch_size: 1\n  seq_len: 8192\nparallelism:\n"
                                 "  tensor_parallel_degree: 2\n", NULL, "8xh100", 0, &p, NULL), 0);
    assert_int_equal(p.parallel.tensor, 2);
    assert_int_equal(p.seq, 8192);
    plan_free(&p);
}

/* Projects name files from their root: beside the recipe, or in a folder above it. */
static void files_are_found_above_the_recipe(void **state)
{
    char root[] = "/tmp/dpx-recipe-XXXXXX", path[96];
    struct plan p = { .micro_batch = 0 };

    (void)state;
    assert_non_null(mkdtemp(root));
    static const char *const folders[] = { "examples", "examples/train", "examples/deepspeed" };
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    json_t *ds = json_pack("{s:{s:i}, s:{s:b}}", "zero_optimization", "stage", 3, "bf16", "enabled", 1);
    json_t *config = json_pack("{s:s, s:i, s:b, s:s, s:s}", "model_name_or_path", "llama-2-7b", "per_device_train_batch_size", 2, "bf16", 1, "stage", "sft",
                               "deepspeed", "examples/deepspeed/z3.json");
    snprintf(path, sizeof path, "%s/examples/deepspeed/z3.json", root);
    assert_int_equal(json_dump_file(ds, path, 0), 0);
    assert_int_equal(model_load("llama-2-7b", &p.model), 0);
    assert_int_equal(cluster_load("8xh100", &p.cluster), 0);
    snprintf(path, sizeof path, "%s/examples/train/recipe.yaml", root);
    assert_int_equal(recipe_read(config, path, &p, NULL), 0);
    assert_int_equal(p.strategy, STRAT_ZERO3);
    plan_free(&p);
    json_decref(ds);
    json_decref(config);
    snprintf(path, sizeof path, "%s/examples/deepspeed/z3.json", root);
    unlink(path);
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    refuses("model: Qwen/Qwen3-0.6B\nmicro_batch_size: 1\ntrain_dataset: a\n", 512, "second form (USE_V1)");
    refuses("per_device_train_batch_size: 1\n", 0, "give --seq");
    refuses("base_model: x\nadapter: llama-adapter\n", 0, "adapter: \"llama-adapter\" is not modelled");
    refuses("base_model: x\nadapter: lora\nlora_r: none\n", 0, "lora_r: expected a whole number");
    refuses("model_name_or_path: x\nquantization_bit: 3\n", 0, "quantization_bit: expected 4 or 8");
    refuses("optim: lomo\nbf16: true\n", 512, "optim: lomo is not modelled");
    refuses("num_train_epochs: 1\ndeepspeed: {}\nfsdp: full_shard\n", 512, "exclude each other");
    refuses("base_model: x\nadapter: qlora\nload_in_4bit: true\noptimizer: adamw_torch\ndeepspeed: {\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": true}}\n",
            512, "base_dtype");
}

/* zephyr-7b's SFT of the alignment-handbook: all of the model trains, in 16 bits, samples as long as it says. */
static void trls_recipe_trains_everything_unless_it_uses_peft(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("model_name_or_path: mistralai/Mistral-7B-v0.1\ntorch_dtype: bfloat16\ndataset_mixture:\n  datasets: []\n"
                                 "bf16: true\ngradient_accumulation_steps: 2\ngradient_checkpointing: true\nmax_seq_length: 2048\n"
                                 "per_device_train_batch_size: 16\n", NULL, "8xa100-80gb", 0, &p, &notes), 0);
    assert_true(training_is_all(&p.train));
    assert_int_equal(p.model.trainable, p.model.params);
    assert_int_equal(p.seq, 2048);
    assert_int_equal(p.micro_batch, 16);
    assert_int_equal(p.accumulation, 2);
    assert_int_equal(p.strategy, STRAT_DDP);
    assert_int_equal(p.ddp.model_dtype, DT_BF16);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    assert_false(noted(&notes, "may matter"));
    plan_free(&p);
    /* axolotl's float16: no autocast, and so no scale of the loss. */
    assert_int_equal(read_recipe("base_model: gpt2\nsequence_len: 512\nmicro_batch_size: 2\nbf16: false\nfloat16: true\nattn_implementation: flash_attention_2\n"
                                 "optimizer: adamw_bnb_8bit\n", NULL, "2xh100", 0, &p, &notes), 0);
    assert_int_equal(p.precision, DT_FP16);
    assert_int_equal(p.ddp.model_dtype, DT_FP16);
    assert_false(noted(&notes, "float16"));
    struct schedules s = { 0 };
    lowered(&p, 0, &s);
    for (int i = 0; i < s.nops; i++)
        assert_string_not_equal(s.ops[i].what, "look for overflow");
    schedules_free(&s);
    plan_free(&p);
    /* QLoRA: TRL's rank, alpha and dropout where it says none; its quantiser's constants are not quantised again. */
    assert_int_equal(read_recipe("model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\n"
                                 "max_length: 8192\nper_device_train_batch_size: 2\ndtype: bfloat16\n", NULL, "1xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.train.rank, 16);
    assert_close(p.train.alpha, 32, 0);
    assert_close(p.train.dropout, 0.05, 0);
    assert_int_equal(p.train.base, BASE_NF4);
    assert_string_equal(p.train.target_modules, "all-linear");
    assert_int_equal(p.seq, 8192);
    plan_free(&p);
    /* FSDP shards codes as elements of the other weights' dtype; without FSDP it does not matter how they are stored. */
    static const struct { const char *says; bool told; } storage[] = {
        { "", true }, { "bnb_4bit_quant_storage: uint8\n", true }, { "bnb_4bit_quant_storage: bfloat16\n", false },
    };
    for (int fsdp = 0; fsdp < 2; fsdp++)
        for (int i = 0; i < 3; i++) {
            char text[400];
            memset(&notes, 0, sizeof notes);
            snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nload_in_4bit: true\ndtype: bfloat16\nmax_length: 512\nbf16: true\n%s%s",
                     storage[i].says, fsdp ? "fsdp: full_shard\n" : "");
            assert_int_equal(read_recipe(text, NULL, "4xa100-80gb", 0, &p, &notes), 0);
            assert_int_equal(noted(&notes, "bnb_4bit_quant_storage is"), fsdp && storage[i].told);
            assert_false(noted(&notes, "may matter to memory or time: bnb_4bit_quant_storage"));
            plan_free(&p);
        }
    refuses("model_name_or_path: x\nload_in_4bit: true\nmax_length: 512\n", 0, "load_in_4bit: packed weights do not train");
}

#define HF "per_device_train_batch_size: 1\n"
#define LF "model_name_or_path: x\nstage: sft\n"
#define AX "base_model: x\nsequence_len: 512\n"

/* A pair is two sequences; a reference model or another head is refused, and so is what makes another step of the recipe. */
static void preference_training_runs_pairs(void **state)
{
    static const char *const pairs[] = {
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: dpo\npref_loss: orpo\nfinetuning_type: full\ncutoff_len: 1024\nper_device_train_batch_size: 4\nbf16: true\n",
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: dpo\npref_loss: simpo\nfinetuning_type: full\ncutoff_len: 1024\nper_device_train_batch_size: 4\nbf16: true\n",
    };
    static const struct { const char *keys, *why; } others[] = {
        { "model_name_or_path: x\nbeta: 0.1\nmax_length: 1024\n", "DPO: a reference model" },
        { "model_name_or_path: x\nmax_length: 1024\nuse_peft: true\nloss_type: ipo\n", "DPO: a reference model" },
        { "model_name_or_path: x\nmax_length: 1024\ndesirable_weight: 1.0\n", "KTO: a reference model" },
        { "model_name_or_path: x\nnum_generations: 8\nbeta: 0.04\n", "GRPO with beta: a reference model" },
        { "model_name_or_path: x\ncenter_rewards_coefficient: 0.01\nmax_length: 1024\n", "reward modelling: a model with a head of classes" },
        { "model_name_or_path: x\nstage: dpo\n", "dpo: a reference model" }, { "model_name_or_path: x\nstage: kto\n", "kto: a reference model" },
        { "model_name_or_path: x\nstage: rm\n", "stage: rm: a model with a head" }, { "model_name_or_path: x\nstage: ppo\n", "ppo: a reference model" },
        { "base_model: x\nrl: dpo\nsequence_len: 1024\n", "dpo: a reference model" }, { "base_model: x\nrl: kto\nsequence_len: 1024\n", "kto: a reference model" },
        { "base_model: x\nrl: grpo\nsequence_len: 1024\ntrl: {beta: 0.001}\n", "trl.beta: a reference model" },
        { "base_model: x\nrl: orpo\nsequence_len: 1024\n", "rl: orpo: TRL's trainer has two losses" },
        { "base_model: x\nrl: simpo\nsequence_len: 1024\n", "rl: simpo: TRL's trainer has two losses" },
        { "model_name_or_path: x\nmax_length: 1024\nteacher_model_name_or_path: y\n", "teacher_model_name_or_path: the trainer of TRL's" },
        { "model_name_or_path: x\nmax_length: 1024\nreward_model_path: y\n", "reward_model_path: the trainer of TRL's" },
        { AX "lisa_n_layers: 4\n", "lisa_n_layers: layers that train by turns" }, { HF "use_cpu: true\n", "use_cpu: training on CPUs" },
        { HF "label_smoothing_factor: 0.1\n", "label_smoothing_factor: a loss" }, { AX "use_cpu: true\n", "use_cpu: training on CPUs" },
        { AX "label_smoothing_factor: 0.1\n", "label_smoothing_factor: a loss" }, { LF "use_cpu: true\n", "use_cpu: training on CPUs" },
        { LF "label_smoothing_factor: 0.1\n", "label_smoothing_factor: a loss" }, { HF "no_cuda: true\n", "no_cuda: training on CPUs" },
        { "model_name_or_path: x\nmax_length: 512\nlabel_smoothing_factor: 0.1\n", "label_smoothing_factor: a loss" },
        { HF "use_ipex: true\n", "use_ipex: training on CPUs" }, { HF "use_mps_device: true\n", "use_mps_device: training on Apple" },
        { HF "tpu_num_cores: 8\n", "tpu_num_cores: training on TPUs" }, { HF "sharded_ddp: zero_dp_2\n", "sharded_ddp: fairscale's" },
        { HF "mp_parameters: p\n", "mp_parameters: SageMaker's" }, { HF "fp16_backend: apex\n", "fp16_backend: apex's" },
        { HF "half_precision_backend: apex\n", "half_precision_backend: apex's" }, { AX "fp8: true\n", "fp8: float8" },
        { AX "kd_trainer: true\n", "kd_trainer: a loss of a teacher's" }, { HF "use_lora: true\n", "use_lora: a key of a script's own" },
        { AX "dense_mixer: true\n", "dense_mixer: a mixture that computes every" }, { LF "fp8: true\n", "fp8: float8" },
        { AX "nemo_gym_enabled: true\n", "nemo_gym_enabled: a generator" }, { AX "torch_compile: auto\nadapter: lora\nlora_target_linear: true\n", "torch_compile: a model" },
        { LF "torch_compile_backend: eager\n", "torch_compile_backend: inductor" },
        { AX "spectrum_top_fraction: 0.5\n", "spectrum_top_fraction: weights that train alone" },
        { AX "grokfast_alpha: 0.98\n", "grokfast_alpha: a running mean" }, { LF "torch_compile: true\ntorch_compile_mode: reduce-overhead\n", "torch_compile_mode: CUDA graphs" },
        { AX "plugins: [axolotl.integrations.grokfast.GrokfastPlugin]\n", "GrokfastPlugin: a running mean" },
        { AX "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]\n", "SpectrumPlugin: weights that train" },
        { AX "bf16: false\nfloat16: true\nadapter: lora\nlora_target_linear: true\nattn_implementation: flash_attention_2\n", "float16: a model in fp16 without autocast" },
        { AX "bf16: false\nfp16: true\nattn_implementation: flash_attention_2\n", "Attempting to unscale FP16 gradients" }, { AX "tiled_mlp: true\n", "tiled_mlp: an MLP in tiles" },
        { LF "use_asft_loss: true\n", "use_asft_loss: a reference model" }, { AX "fp32_norms: true\n", "fp32_norms: norms that stay" },
        { LF "tensor_model_parallel_size: 1\n", "tensor_model_parallel_size: LLaMA-Factory's training by Megatron-LM" },
        { "model_name_or_path: x\nmax_length: 512\nuse_unsloth: true\n", "use_unsloth: unsloth's kernels" },
        { "model_name_or_path: x\nmax_length: 512\nq_lora: true\n", "q_lora: a key of a script's own" },
        { "model_name_or_path: x\nmax_length: 512\nlora_r: 8\n", "lora_r: without use_peft" },
        { "base_model: x\nreward_model: true\nsequence_len: 1024\n", "reward_model: a model with a head" },
        { "base_model: x\nprocess_reward_model: true\nsequence_len: 1024\n", "process_reward_model: a model with a head" },
        { AX "peft_layers_to_transform: [0, 1]\n", "peft_layers_to_transform: adapters of some layers alone" },
        { AX "lora_rank_pattern: {q_proj: 4}\n", "lora_rank_pattern: ranks that differ" },
        { AX "peft_trainable_token_indices: [5]\n", "peft_trainable_token_indices: tokens that train" },
        { AX "selective_checkpointing: true\n", "selective_checkpointing: checkpoints of chosen operators" },
        { AX "recompute_layer_types: [attention]\n", "recompute_layer_types: checkpoints of some kinds" },
        { AX "chunked_cross_entropy: true\n", "chunked_cross_entropy: a loss of chunks" }, { AX "layer_offloading: true\n", "layer_offloading: layers that wait" },
        { AX "deepcompile: true\n", "deepcompile: DeepSpeed's compiled" }, { AX "shrink_embeddings: true\n", "shrink_embeddings: another size" },
        { AX "overrides_of_model_config: {num_hidden_layers: 2}\n", "overrides_of_model_config: another config" }, { AX "use_onebitllms: true\n", "use_onebitllms: layers of one bit" },
        { LF "use_mca: true\n", "use_mca: LLaMA-Factory's training by Megatron-LM" }, { LF "use_megatron_bridge: true\n", "use_megatron_bridge: LLaMA-Factory's training by" },
        { LF "use_hyper_parallel: true\n", "use_hyper_parallel: LLaMA-Factory's training by" },
        { AX "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]\n", "plugins: axolotl.integrations.diffusion" },
    };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct notes notes = { 0 };
        assert_int_equal(read_recipe(pairs[i], NULL, "8xa100-80gb", 0, &p, &notes), 0);
        assert_int_equal(p.micro_batch, 8);
        assert_true(noted(&notes, "a chosen and a rejected sequence") && noted(&notes, "the loss of pairs is planned as that of SFT"));
        assert_false(noted(&notes, "stage is not in the plan") || noted(&notes, "pref_loss"));
        plan_free(&p);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        refuses(others[i].keys, 0, others[i].why);
}

/* What axolotl's schema has where a recipe is silent, and what it refuses. */
static void axolotls_own_defaults(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("base_model: llama-2-7b\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 2\nbf16: auto\n"
                                 "fp16: true\n", NULL, "2xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.seq, 512);               /* sequence_len: int = Field(default=512) */
    assert_int_equal(p.precision, DT_FP16);     /* resolve_dtype(): auto gives way to fp16 */
    assert_false(p.ddp.find_unused_parameters);
    assert_true(noted(&notes, "takes its fused LoRA kernels by itself"));
    plan_free(&p);
    notes = (struct notes){ 0 };
    assert_int_equal(read_recipe("base_model: llama-2-7b\nmicro_batch_size: 2\nsequence_len: 512\nbf16:\nfp16:\n"
                                 "lora_mlp_kernel: false\n", NULL, "2xa100-80gb", 0, &p, &notes), 0);
    assert_int_equal(p.precision, DT_FP32);     /* bf16 is null: not the default, which is auto */
    plan_free(&p);
    static const struct { const char *keys; enum base_dtype base; } packs[] = {
        { "adapter: lora\nload_in_4bit: true\n", BASE_PLAIN }, { "adapter: lora\nload_in_8bit: true\n", BASE_INT8 },
        { "adapter: qlora\nload_in_4bit: true\n", BASE_NF4_DOUBLE },
        { "adapter: qlora\nload_in_4bit: true\nbnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n", BASE_NF4 },
    };
    for (size_t i = 0; i < sizeof packs / sizeof *packs; i++) {
        char text[400];
        snprintf(text, sizeof text, "base_model: llama-2-7b\nlora_r: 8\nlora_target_linear: true\nsequence_len: 512\n%s", packs[i].keys);
        assert_int_equal(read_recipe(text, NULL, "1xa100-80gb", 0, &p, NULL), 0);
        assert_int_equal(p.train.base, packs[i].base);
        plan_free(&p);
    }
    refuses("base_model: x\nmicro_batch_size: 1\nload_in_8bit: true\n", 0, "load_in_8bit: packed weights do not train");
    refuses("base_model: x\nadapter: qlora\nmicro_batch_size: 1\n", 0, "refuses qlora without load_in_4bit");
    refuses("base_model: x\nmicro_batch_size: 1\ncontext_parallel_size: 2\n", 0, "context_parallel_size: ranks would share positions");
    refuses("base_model: x\nmicro_batch_size: 1\nbf16: true\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\ndp_shard_size: 16\n", 0,
            "dp_shard 16 x cp 1 x sp 1 x tp 1 are not the cluster's 8 GPUs");
    refuses("base_model: x\nmicro_batch_size: 1\ntensor_parallel_size: 2\n", 0, "tensor_parallel_size: ranks would share tensors");
}

/* Copies of groups of ranks that share: 8 GPUs are 2 x 4 where half of it is said, and tensors of 2 leave 4 to the shards. */
static void axolotls_mesh_is_accelerates(void **state)
{
    static const struct { const char *sizes; int64_t tensor, group; } rows[] = {
        { "dp_shard_size: 4\n", 1, 4 }, { "dp_replicate_size: 4\n", 1, 2 }, { "dp_shard_size: 2\ntensor_parallel_size: 2\n", 2, 2 },
        { "tensor_parallel_size: 2\n", 2, 4 },
    };
    struct plan p;
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "base_model: llama-3.1-8b\nsequence_len: 2048\nbf16: true\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
                 "%s", rows[i].sizes);
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, NULL), 0);
        assert_int_equal(p.parallel.tensor, rows[i].tensor);
        assert_int_equal(p.shard_group, rows[i].group);
        plan_free(&p);
    }
}

/* Who is looked for in backward: create_accelerator_and_postprocess(), and LLaMA-Factory's parser. */
static void ddp_looks_for_what_was_not_used(void **state)
{
    static const struct { const char *text; bool looks; } rows[] = {
        { "per_device_train_batch_size: 1\nbf16: true\n", true },
        { "per_device_train_batch_size: 1\nbf16: true\ngradient_checkpointing: true\n", false },
        { "per_device_train_batch_size: 1\nbf16: true\nactivation_checkpointing: true\n", false },
        { "per_device_train_batch_size: 1\nbf16: true\nddp_find_unused_parameters: false\n", false },
        { "model_name_or_path: llama-2-7b\nuse_peft: true\nlora_target_modules: all-linear\ndtype: bfloat16\nmax_length: 512\n", true },
        { "model_name_or_path: llama-2-7b\nstage: sft\nfinetuning_type: lora\nbf16: true\n", false },
        { "model_name_or_path: llama-2-7b\nstage: sft\nfinetuning_type: full\nbf16: true\ndisable_gradient_checkpointing: true\n", true },
    };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_recipe(rows[i].text, "llama-2-7b", "8xh100", 512, &p, NULL), 0);
        if (p.ddp.find_unused_parameters != rows[i].looks)
            fail_msg("%s", rows[i].text);
        plan_free(&p);
    }
}

/* What frameworks do of themselves, and a plan has otherwise, is said. */
static void what_frameworks_do_of_themselves_is_said(void **state)
{
    static const struct { const char *text, *says, *not; } rows[] = {
        /* 8 x 1024 positions of 32000 logits in 4 bytes: 1.05 GB */
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\n", "loss: chunked-logprob, as TRL has it since 1.15", "no whole logits" },
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\n", "(1.05 GB in fp32: --set loss=fp32)", "nothing is" },
        /* 32000 x 4096 of 8 bytes: 1.05 GB */
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\n", "its gradient in fp32 (1.05 GB)", "nothing is" },
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\nloss_type: dft\n", "loss: chunked-logprob", "no whole logits" },
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\nuse_liger_kernel: true\n", "before, with use_liger_kernel: fused-linear", "no whole logits" },
        { "model_name_or_path: microsoft/phi-2\nmax_length: 1024\n", "why its own loss is not planned here: losses in parts", "loss: chunked" },
        /* 8 x 1024 x 51200 of 4 bytes, three times */
        { "model_name_or_path: microsoft/phi-2\nmax_length: 1024\n", "up to 5.03 GB more than it takes (1.68 GB in fp32, three times)", "loss: chunked" },
        { "model_name_or_path: llama-2-7b\nnum_generations: 8\nbf16: true\n", "of all positions: TRL scores the completion's alone", "no whole logits" },
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\n", "nothing in it says who shares what: planned as DDP", "chunks" },
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\nloss_type: nll\n", "bf16 is not given", "loss_type" },
        /* 64 (4 x 8192 + 3 x 15104) 32 adapters of 8 bytes: 1.28 GB */
        { "model_name_or_path: llama-2-7b\nmax_length: 1024\nuse_peft: true\nlora_r: 64\nlora_target_modules: all-linear\nload_in_4bit: true\ndtype: bfloat16\n",
          "TRL keeps adapters of packed weights in bf16; planned in fp32: up to 1.28 GB more", "reference" },
        { "model_name_or_path: llama-2-7b\nstage: sft\npure_bf16: true\n", "", "keeps adapters" },
        { "base_model: google/gemma-2-2b\nsequence_len: 512\nattn_implementation: flash_attention_2\n",
          "attention by flash_attention_2 is not planned for gemma2", "who shares" },
        { "base_model: llama-2-7b\nsequence_len: 512\nflash_attention: true\nplugins: [some.OtherPlugin, axolotl.integrations.liger.LigerPlugin]\n",
          "OtherPlugin is not known", "LigerPlugin is not known" },
        { "base_model: google/gemma-2-2b\nsequence_len: 512\neager_attention: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true\noptimizer: adamw_torch\n", "", "attention by" },
        { "base_model: llama-2-7b\nsequence_len: 512\nactivation_offloading: true\ngradient_checkpointing: true\nadapter: lora\nlora_r: 8\n"
          "lora_target_linear: true\n", "activation_offloading is not in the plan", "who shares" },
        { "base_model: llama-2-7b\nsequence_len: 512\nbf16: true\nfsdp_version: 2\nfsdp_config: {offload_params: true}\noptimizer: adamw_torch_fused\n",
          "adamw_torch_fused is planned as foreach on the host", "who shares" },
        { "base_model: llama-2-7b\nsequence_len: 512\noptimizer: adamw_torch\nflash_attention: true\n", "", "embedding, head and norms" },
        { "model_name_or_path: llama-2-7b\nstage: sft\n", "do_train is not given", "who shares" },
        { "model_name_or_path: llama-2-7b\nnum_generations: 8\nbf16: true\n", "max_prompt_length 512 and max_completion_length 512", "max_length is" },
        { "model_name_or_path: llama-2-7b\nstage: sft\n", "neither bf16 nor fp16", "who shares" },
    };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct notes notes = { 0 };
        assert_int_equal(read_recipe(rows[i].text, NULL, "8xh100", 0, &p, &notes), 0);
        if ((*rows[i].says && !noted(&notes, rows[i].says)) || noted(&notes, rows[i].not))
            fail_msg("%s: says \"%s\", not \"%s\"", rows[i].text, rows[i].says, rows[i].not);
        plan_free(&p);
    }
    /* What TRL itself refuses. */
    /* MatMul8bitLt.backward() multiplies in its input's dtype, which is the model's: TRL's is fp32 where it is not told */
    refuses("model_name_or_path: llama-2-7b\nmax_length: 64\nuse_peft: true\nlora_target_modules: all-linear\nload_in_8bit: true\n", 0, "dtype: not given, float32 in TRL");
    refuses("model_name_or_path: llama-2-7b\nmax_length: 64\nuse_peft: true\nlora_target_modules: all-linear\nload_in_8bit: true\ndtype: float32\n", 0, "dtype: float32: layers");
    refuses("model_name_or_path: x\nmax_length: 64\nloss_type: foo\n", 0, "loss_type: foo: of this trainer's losses TRL has nll dft chunked_nll");
    refuses("model_name_or_path: x\nmax_length: 64\nuse_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: true}\n", 0,
            "fused_linear_cross_entropy: TRL refuses it");
    refuses("model_name_or_path: x\nmax_length: 64\nuse_peft: true\nlora_target_modules: [q_proj, lm_head]\n", 0, "TRL refuses an adapter of the head");
    refuses("model_name_or_path: x\ntemplate: qwen3\ninfer_backend: huggingface\n", 0, "infer_backend: LLaMA-Factory does not train by this file");
    refuses("model_name_or_path: x\ntemplate: qwen3\nexport_dir: merged\n", 0, "export_dir: LLaMA-Factory does not train by this file");
    refuses("model_name_or_path: x\nstage: sft\ndo_predict: true\n", 0, "do_predict: LLaMA-Factory does not train by this file");
    refuses("base_model: llama-2-7b\nsequence_len: 512\noptimizer: adamw_torch\n", 0, "trains embedding, head and norms in fp32");
    refuses("model_name_or_path: x\ndataset_num_proc: 4\nmax_length: null\n", 0, "max_length: null: samples are as long as they are");
    refuses("model_name_or_path: x\nquantization_bit: 4\nquantization_method: hqq\n", 512, "\"hqq\" is not modelled");
    refuses("model_name_or_path: x\nfinetuning_type: full\nquantization_bit: 8\n", 512, "quantization_bit: packed weights do not train");
}

/* pure_bf16: weights, gradients and states in bf16, whatever shares them. */
static void pure_bf16_is_a_model_in_bf16(void **state)
{
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("model_name_or_path: llama-2-7b\nstage: sft\nfinetuning_type: full\npure_bf16: true\n", NULL, "8xh100", 0, &p, NULL), 0);
    assert_int_equal(p.precision, DT_BF16);
    assert_int_equal(p.ddp.model_dtype, DT_BF16);
    assert_int_equal(plan_recipe(&p).kept, DT_BF16);
    plan_free(&p);
    assert_int_equal(read_recipe("model_name_or_path: llama-2-7b\nstage: sft\npure_bf16: true\n", NULL, "8xh100", 0, &p, NULL), 0);
    assert_true(p.train.narrow);                /* the Trainer has no autocast without bf16 */
    assert_false(plan_recipe(&p).autocast);
    plan_free(&p);
    assert_int_equal(read_recipe("model_name_or_path: llama-2-7b\nstage: sft\nfinetuning_type: full\npure_bf16: true\nfsdp: full_shard auto_wrap\n"
                                 "fsdp_config: {version: 2}\n", NULL, "8xh100", 0, &p, NULL), 0);
    assert_int_equal(p.fsdp.model_dtype, DT_BF16);
    plan_free(&p);
    refuses("model_name_or_path: x\nfinetuning_type: full\npure_bf16: true\ndeepspeed: {\"zero_optimization\": {\"stage\": 2}}\n", 512, "pure_bf16");
    assert_int_equal(read_recipe("base_model: llama-2-7b\nsequence_len: 512\nactivation_offloading: true\ngradient_checkpointing: true\n"
                                 "flash_attention: true\noptimizer: adamw_torch\n", NULL, "1xh100", 0, &p, NULL), 0);
    assert_int_equal(p.recompute, RECOMPUTE_OFFLOAD);
    plan_free(&p);
}

/* A document is a recipe by a key that only such a recipe has, not by one that anything may have. */
static void what_no_form_claims_is_refused(void **state)
{
    static const char *const texts[] = {
        "colour: green\n", "output_dir: x\nlearning_rate: 1\nseed: 3\n", "base_model: x\nmerge_method: linear\n", "bf16: true\n",
        "model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\nbatch_size: 2\n", "model_name_or_path: gpt2\nlearning_rate: 1\n",
        "model: {pretrained_model_name_or_path: a}\nstep_scheduler: {local_batch_size: 32}\ndistributed: {strategy: fsdp2}\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refuses(texts[i], 512, "no recipe that is read");
}

/* The shell makes names with a comma of `--lora_target_modules "q_proj", "v_proj"`.  PEFT 0.19 given ["q_proj,", "v_proj"] adapts v_proj alone. */
static void a_name_with_a_comma_is_no_modules(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(read_recipe("model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nlora_target_modules: ['q_proj,', v_proj]\nmax_length: 512\n", NULL,
                                 "1xa100-80gb", 0, &p, &notes), 0);
    assert_string_equal(p.train.target_modules, "v_proj");
    assert_true(noted(&notes, "lora_target_modules: \"q_proj,\" is no module's name, with its comma: PEFT leaves it out"));
    plan_free(&p);
    refuses("model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nlora_target_modules: ['q_proj,', 'v_proj,']\nmax_length: 512\n", 0, "names of modules without commas");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axolotls_qlora_is_a_plan_of_nf4_with_double_quantisation),
        cmocka_unit_test(int8_layers_checkpoints_are_those_of_the_trainer),
        cmocka_unit_test(llama_factorys_lora_has_its_own_defaults),
        cmocka_unit_test(transformers_sections_are_read_by_their_own_importers),
        cmocka_unit_test(deepspeed_steps_the_optimizer_that_the_trainer_makes),
        cmocka_unit_test(adapters_under_fsdp_leave_what_is_frozen_in_bf16),
        cmocka_unit_test(torchtitans_sections_are_its_importers),
        cmocka_unit_test(files_are_found_above_the_recipe),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(trls_recipe_trains_everything_unless_it_uses_peft),
        cmocka_unit_test(preference_training_runs_pairs),
        cmocka_unit_test(axolotls_own_defaults),
        cmocka_unit_test(axolotls_mesh_is_accelerates),
        cmocka_unit_test(ddp_looks_for_what_was_not_used),
        cmocka_unit_test(what_frameworks_do_of_themselves_is_said),
        cmocka_unit_test(pure_bf16_is_a_model_in_bf16),
        cmocka_unit_test(a_name_with_a_comma_is_no_modules),
        cmocka_unit_test(what_no_form_claims_is_refused),
    };
    return cmocka_run_group_tests_name("model/exchange/recipe", tests, NULL, NULL);
}
