/* What a recipe's framework does of itself and a plan has otherwise is told: attention that a mask keeps to samples, losses weighted by entropies, Ray's
 * workers, kernels that a model has not; and flash attention by whatever key asks for it. */
#include "tests/model/recipes.h"

#include <stdio.h>

#include "model/plan/attention.h"

static void is_noted(const char *text, const char *words, bool want)
{
    struct notes notes = { 0 };
    struct plan p;

    assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, &notes), 0);
    if (noted(&notes, words) != want)
        fail_msg("%s \"%s\": %s", want ? "does not say" : "says", words, text);
    plan_free(&p);
}

#define TRL "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 1024\nper_device_train_batch_size: 2\n"
#define AXOLOTL "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 1024\nmicro_batch_size: 2\nbf16: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"

#define AXOLOTL_QLORA "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 1024\nmicro_batch_size: 2\nbf16: true\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n"

/* TRL's row is the micro-batch: 2048 x 2048 pairs instead of 2 x 1024 x 1024 / 2; axolotl's is a sample: all pairs instead of half. */
static void rows_of_several_samples_have_masks(void **state)
{
    (void)state;
    is_noted(TRL "packing: true\n", "packing without flash attention: a mask keeps samples of a row of 2048 tokens apart, and PyTorch's attention takes all its pairs, 4 times", true);
    is_noted(TRL "packing: true\nattn_implementation: sdpa\n", "packing without flash attention", true);
    is_noted(TRL "packing: true\nattn_implementation: flash_attention_2\n", "packing without flash attention", false);
    is_noted(TRL "packing: true\npacking_strategy: wrapped\n", "packing without flash attention", false);
    is_noted(TRL, "packing without flash attention", false);
    is_noted(AXOLOTL "sample_packing: true\nattn_implementation: sdpa\n", "a row of 1024 tokens apart, and PyTorch's attention takes all its pairs, 2 times", true);
    is_noted(AXOLOTL "sample_packing: true\nflash_attention: true\n", "packing without flash attention", false);
}

/* 24 blocks of 2 x 896 x 896, 2 x 896 x 128 and 3 x 896 x 4864 weights in codes: 357,826,560, written and read in 4 bytes before they are 16 bits. */
static void codes_become_what_the_compute_dtype_says(void **state)
{
    static const char adapts[] = TRL "bf16: true\nuse_peft: true\nlora_r: 8\nlora_target_modules: all-linear\nload_in_4bit: true\n";
    static const struct { const char *more; bool noted; } rows[] = {
        { "", true }, { "dtype: float32\n", true }, { "torch_dtype: null\n", true }, { "dtype: bfloat16\n", false }, { "bnb_4bit_compute_dtype: bfloat16\n", false },
        { "dtype: bfloat16\nbnb_4bit_compute_dtype: float32\n", true },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s%s", adapts, rows[i].more);
        is_noted(text, "weights in codes become fp32 and then 16 bits before each product, planned as 16 bits at once: 2.86 GB more", rows[i].noted);
    }
    is_noted(AXOLOTL_QLORA, "weights in codes become fp32", false);
}

/* null is "auto" since transformers 5; TRL's own usual dtype, where the key is left out, is fp32.  494032768 weights of 2 bytes more. */
static void a_dtype_of_null_is_the_checkpoints(void **state)
{
    static const struct { const char *key; bool narrow, noted; } rows[] = {
        { "", false, false }, { "dtype: null\n", true, true }, { "torch_dtype: null\n", true, true }, { "torch_dtype: auto\n", true, false },
        { "torch_dtype: bfloat16\n", true, false }, { "torch_dtype: float32\n", false, false },
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct plan p;
        bool adapters = i % 2;
        snprintf(text, sizeof text, TRL "bf16: true\n%s%s", adapters ? "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n" : "", rows[i / 2].key);
        is_noted(text, "null: the checkpoint's own since transformers 5", rows[i / 2].noted);
        is_noted(text, "transformers 4 loads weights in fp32, 0.98", rows[i / 2].noted);
        is_noted(text, "and as much of gradients", rows[i / 2].noted && !adapters);
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, NULL), 0);
        assert_int_equal(p.ddp.model_dtype, rows[i / 2].narrow ? DT_BF16 : -1);
        plan_free(&p);
    }
}

#define GRPO "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_completion_length: 512\nnum_generations: 8\nper_device_train_batch_size: 4\nbf16: true\n"

/* TRL's generate_every is steps_per_generation (of itself the steps of an update) x num_iterations; an update that is a multiple of it has samples of its own
 * model's.  4 samples on 8 GPUs: a batch of 256 generations serves 8 steps.  A forward pass is one of 4 with checkpoints (forward, again, two backward), one of
 * 3 of adapters with them, or of weights without, and one of 2 of adapters without. */
static void samples_of_an_older_model_are_scored(void **state)
{
    static const struct { const char *more, *says; } rows[] = {
        { "", NULL }, { "gradient_accumulation_steps: 2\n", NULL }, { "gradient_accumulation_steps: 2\nsteps_per_generation: 2\n", NULL },
        { "gradient_accumulation_steps: 4\nsteps_per_generation: 2\n", NULL }, { "gradient_accumulation_steps: 8\ngeneration_batch_size: 256\n", NULL },
        { "use_vllm: true\nvllm_importance_sampling_correction: false\n", NULL }, { "use_vllm: false\n", NULL },
        { "gradient_accumulation_steps: 2\nsteps_per_generation: 8\n", "gradient_accumulation_steps 2 is no multiple of steps_per_generation 8 x num_iterations 1" },
        { "gradient_accumulation_steps: 2\ngeneration_batch_size: 256\n", "steps_per_generation 8 x num_iterations 1" },
        { "gradient_accumulation_steps: 2\nnum_iterations: 2\n", "steps_per_generation 2 x num_iterations 2), which is not in the plan: some 12 %" },
        { "steps_per_generation: 8\n", "some 25 % of an update's compute" },
        { "steps_per_generation: 8\ngradient_checkpointing: false\n", "some 33 % of an update's compute" },
        { "steps_per_generation: 8\nuse_peft: true\nlora_target_modules: [q_proj]\n", "some 33 % of an update's compute" },
        { "steps_per_generation: 8\nuse_peft: true\nlora_target_modules: [q_proj]\ngradient_checkpointing: false\n", "some 50 % of an update's compute" },
        { "use_vllm: true\n", "(vllm_importance_sampling_correction, usual beside use_vllm)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, GRPO "%s", rows[i].more);
        is_noted(text, rows[i].says ? rows[i].says : "old log-probabilities", rows[i].says != NULL);
    }
    is_noted(TRL, "old log-probabilities", false);
}

#define FSDP2 "fsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: Qwen2DecoderLayer\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  "

/* FSDP's own checkpoints are checkpoint_wrapper()'s with CheckpointImpl.NO_REENTRANT; axolotl's gradient_checkpointing is reentrant of itself. */
static void fsdps_own_checkpoints_are_not_reentrant(void **state)
{
    static const struct { const char *keys; bool noted; } rows[] = {
        { FSDP2 "activation_checkpointing: true\n", false }, { "gradient_checkpointing: false\n" FSDP2 "activation_checkpointing: true\n", false },
        { "gradient_checkpointing: true\n" FSDP2 "offload_params: false\n", true },
        { "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n" FSDP2 "offload_params: false\n", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct plan p;
        snprintf(text, sizeof text, "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 1024\nmicro_batch_size: 2\nbf16: true\noptimizer: adamw_torch_fused\n%s", rows[i].keys);
        is_noted(text, "checkpoints with use_reentrant true", rows[i].noted);
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, NULL), 0);
        assert_int_equal(p.recompute, RECOMPUTE_FULL);
        plan_free(&p);
    }
}

static void trls_old_word_for_liger_is_told(void **state)
{
    (void)state;
    is_noted(TRL "use_liger: true\n", "use_liger is not in the plan: TRL's name of 2024 for use_liger_kernel", true);
    is_noted(TRL "use_liger: false\n", "use_liger is not in the plan", false);
}

static void flash_attention_has_several_keys(void **state)
{
    static const char *const asks[] = { "attn_implementation: flash_attention_2\n", "use_flash_attn: true\n", "use_flash_attention_2: true\n" };

    (void)state;
    for (size_t i = 0; i <= sizeof asks / sizeof *asks; i++) {
        char text[512];
        struct plan p;
        snprintf(text, sizeof text, TRL "%s", i < sizeof asks / sizeof *asks ? asks[i] : "use_flash_attn: false\n");
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, NULL), 0);
        assert_int_equal(p.attention, i < sizeof asks / sizeof *asks ? ATTENTION_BY_FLASH_2 : ATTENTION_BY_SDPA);
        plan_free(&p);
    }
}

/* 2 x 2048 rows of 151936 numbers. */
static void losses_of_entropies_copy_logits(void **state)
{
    char words[64];

    (void)state;
    snprintf(words, sizeof words, "up to %.3g GB more than planned", 2.0 * 2048 * 151936 * 4 / 1e9);
    is_noted("model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 2048\nper_device_train_batch_size: 2\n"
             "bf16: true\nuse_eaft_loss: true\n", words, true);
    is_noted(AXOLOTL "use_eaft: true\n", "use_eaft: a loss of logits in 16 bits", true);
    is_noted(AXOLOTL "use_eaft: false\n", "use_eaft", false);
}

static void files_start_their_own_number_of_ranks(void **state)
{
    (void)state;
    is_noted(AXOLOTL "use_ray: true\nray_num_workers: 4\n", "ray_num_workers: the file starts 4 ranks, the plan has 8", true);
    is_noted(AXOLOTL "ray_num_workers: 4\n", "ray_num_workers", false);
    is_noted(AXOLOTL "use_ray: true\n", "ray_num_workers: the file starts 1 ranks", true);
    is_noted("model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\nbf16: true\n"
             "ray_num_workers: 4\n", "ray_num_workers: the file starts 4 ranks", true);
    is_noted(TRL "num_processes: 4\n", "num_processes: the file starts 4 ranks, the plan has 8", true);     /* accelerate's, by TRL's commands */
    is_noted(TRL "num_processes: 8\n", "num_processes", false);
}

/* Of the families: three products side by side, then o_proj. */
static void kernels_know_some_attention(void **state)
{
    static const struct { const char *model; bool stops; } rows[] = {
        { "Qwen/Qwen2.5-0.5B", false }, { "microsoft/phi-1_5", true }, { "EleutherAI/gpt-j-6b", true }, { "bigcode/starcoder2-3b", false },
        { "microsoft/Phi-3-mini-4k-instruct", true }, { "google/gemma-2-2b", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: %s\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n", rows[i].model);
        is_noted(text, "the run stops before its first step", rows[i].stops);
        is_noted(text, "which keep less", !rows[i].stops);
    }
    is_noted(AXOLOTL "lora_qkv_kernel: false\n", "fused LoRA kernels by itself", false);
    /* 50400 x 4096 weights of the embedding in 4 bytes instead of 2 */
    is_noted("base_model: EleutherAI/gpt-j-6b\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n",
             "wte) in fp32 beside weights in codes: 0.413 GB more", true);
}

/* fully_shard(model, reshard_after_forward=...) of axolotl's root; accelerate leaves its root to PyTorch, which does not reshard it. */
static void axolotls_root_is_told_to_reshard(void **state)
{
    static const struct { const char *key; int root; } rows[] = { { "", 1 }, { "  reshard_after_forward: true\n", 1 }, { "  reshard_after_forward: false\n", 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct plan p;
        snprintf(text, sizeof text, "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nattn_implementation: flash_attention_2\n"
                 "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n%s", rows[i].key);
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, NULL), 0);
        assert_int_equal(p.fsdp.root_units, ROOT_TOGETHER);
        assert_int_equal(p.fsdp.root_reshard_after_forward, rows[i].root);
        plan_free(&p);
    }
}

/* RL trainers take no fused kernels, TRL's keep adapters of packed weights in 16 bits. */
static void what_is_left_of_preferences_is_still_theirs(void **state)
{
    static const char left[] = AXOLOTL_QLORA RECIPE_TRL_PROGRAM ": sft\n";

    (void)state;
    is_noted(left, "fused LoRA kernels", false);
    is_noted(left, "TRL keeps adapters of packed weights in bf16", true);
    is_noted(AXOLOTL_QLORA, "fused LoRA kernels", true);
    is_noted(AXOLOTL_QLORA, "TRL keeps adapters", false);
}

/* Several models of a file may have the same to say. */
static void a_note_is_said_once(void **state)
{
    struct notes notes = { .n = 0 };

    (void)state;
    notes_add(&notes, "of %d", 1);
    notes_add(&notes, "of %d", 2);
    notes_add(&notes, "of %d", 1);
    assert_int_equal(notes.n, 2);
}

#define OF_FSDP TRL "bf16: true\nfsdp: full_shard auto_wrap\n"

/* transformers/trainer.py stops at both; training_args.py takes the older name "only when the new name is not set", in any order. */
static void checkpoints_are_asked_for_once(void **state)
{
    static const struct { const char *more; enum recompute want; } rows[] = {
        { "gradient_checkpointing: true\nactivation_checkpointing: false\n", RECOMPUTE_NONE },
        { "activation_checkpointing: false\ngradient_checkpointing: true\n", RECOMPUTE_NONE },
        { "gradient_checkpointing: true\nactivation_checkpointing: null\n", RECOMPUTE_FULL },
        { "gradient_checkpointing: false\nactivation_checkpointing: true\n", RECOMPUTE_FULL },
        { "gradient_checkpointing: false\nfsdp_config:\n  activation_checkpointing: true\n", RECOMPUTE_FULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct notes notes = { 0 };
        struct plan p;
        snprintf(text, sizeof text, OF_FSDP "%s", rows[i].more);
        assert_int_equal(read_recipe(text, NULL, "8xh100", 0, &p, &notes), 0);
        if (p.recompute != rows[i].want)
            fail_msg("%s: recompute %d", rows[i].more, (int)p.recompute);
        plan_free(&p);
    }
    refuses(OF_FSDP "gradient_checkpointing: true\nfsdp_config:\n  activation_checkpointing: true\n", 0, "transformers' Trainer stops at both");
}

/* What makes another step than the one that is planned, by a value. */
static void values_that_change_the_step_are_refused(void **state)
{
    static const struct { const char *more, *because; } rows[] = {
        { "ddp_backend: gloo\n", "ddp_backend: gloo: collectives by another library than NCCL" },
        { "debug: underflow_overflow\n", "debug: underflow_overflow: hooks" },
        { "use_peft: true\nlora_r: 8\nlora_target_modules: []\n", "lora_target_modules: an empty list: PEFT stops at it" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, TRL "%s", rows[i].more);
        refuses(text, 0, rows[i].because);
    }
    is_noted(TRL "ddp_backend: nccl\ndebug: \"\"\n", "ddp_backend", false);
    is_noted(TRL "loss_type: chunked_nll\n", "TRL 1.16 knows nll and dft alone", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_is_said_once), cmocka_unit_test(rows_of_several_samples_have_masks), cmocka_unit_test(codes_become_what_the_compute_dtype_says), cmocka_unit_test(a_dtype_of_null_is_the_checkpoints),
        cmocka_unit_test(samples_of_an_older_model_are_scored),
        cmocka_unit_test(checkpoints_are_asked_for_once), cmocka_unit_test(values_that_change_the_step_are_refused),
        cmocka_unit_test(fsdps_own_checkpoints_are_not_reentrant),
        cmocka_unit_test(trls_old_word_for_liger_is_told), cmocka_unit_test(flash_attention_has_several_keys), cmocka_unit_test(losses_of_entropies_copy_logits),
        cmocka_unit_test(files_start_their_own_number_of_ranks), cmocka_unit_test(kernels_know_some_attention),
        cmocka_unit_test(axolotls_root_is_told_to_reshard), cmocka_unit_test(what_is_left_of_preferences_is_still_theirs),
    };

    return cmocka_run_group_tests_name("model/recipe notes", tests, NULL, NULL);
}
