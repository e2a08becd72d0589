/* torch_compile of recipes: which models that the Trainer compiles as a whole are planned, and how. */
#include "tests/model/plans.h"
#include "tests/model/recipes.h"

#include <stdio.h>

/* The Trainer compiles what DistributedDataParallel wraps.  The uncut graph of one GPU keeps, of 22 layers, 2 x 1024 tokens and 2048 hidden units, 2 bytes
 * each more under autocast: 0.185 GB; weights in 16 bits have no autocast. */
static void a_model_compiled_as_a_whole_is_planned_in_blocks(void **state)
{
    static const struct { const char *keys, *gpus; bool more; } of[] = {
        { "bf16: true\ntorch_compile: true\n", "8xh100", false }, { "bf16: true\ntorch_compile_mode: default\n", "8xh100", false },
        { "bf16: true\ntorch_compile_backend: inductor\n", "1xh100", true }, { "pure_bf16: true\ntorch_compile: true\n", "1xh100", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[512];
        snprintf(text, sizeof text, "model_name_or_path: x\nstage: sft\nfinetuning_type: full\ncutoff_len: 1024\nper_device_train_batch_size: 2\n"
                 "disable_gradient_checkpointing: true\n%s", of[i].keys);
        assert_int_equal(read_recipe(text, "tinyllama-1.1b", of[i].gpus, 0, &p, &notes), 0);
        assert_int_equal(p.kernels, KERNELS_TORCH_COMPILE);
        assert_int_equal(p.loss, LOSS_COMPILED);
        assert_true(noted(&notes, "the whole model is one graph"));
        assert_int_equal(noted(&notes, "keeps 0.185 GB of fp32 sums more"), of[i].more);
        assert_false(noted(&notes, "not known"));
        plan_free(&p);
    }
    refuses("model_name_or_path: x\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\ntorch_compile: true\n", 0,
            "torch_compile: a compiled model beside checkpoints with use_reentrant true");
    refuses("model_name_or_path: x\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\nfsdp: full_shard\ntorch_compile: true\n", 0,
            "torch_compile: a model that torch.compile compiles as a whole is planned under DistributedDataParallel");
}

/* Switched off it is read all the same: nothing is listed as not known. */
static void a_model_that_is_not_compiled_is_told_nothing_of_it(void **state)
{
    static const char *const forms[] = {
        "model_name_or_path: x\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\ntorch_compile: false\n",
        "model_name_or_path: x\nmax_length: 512\nbf16: true\ntorch_compile: false\n",
        "base_model: x\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\nattn_implementation: flash_attention_2\ntorch_compile: false\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct notes notes = { 0 };
        struct plan p;
        assert_int_equal(read_recipe(forms[i], "tinyllama-1.1b", "8xh100", 0, &p, &notes), 0);
        assert_false(noted(&notes, "torch_compile"));
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_compiled_as_a_whole_is_planned_in_blocks),
        cmocka_unit_test(a_model_that_is_not_compiled_is_told_nothing_of_it),
    };

    return cmocka_run_group_tests_name("model/recipe_compile", tests, NULL, NULL);
}
