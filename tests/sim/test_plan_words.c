/* A plan in words: what a label shows in a code has words, and the words say the plan's own numbers. */
#include "tests/plan_words.h"

#include "model/lower/lower.h"
#include "sim/plan/plan_words.h"

/* A new knob with a label has words, too. */
static void each_knob_of_a_label_has_words(void **state)
{
    const struct knob *k;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->label || k->say) && !plan_words_has(k))
            fail_msg("%s.%s has a label and no words: a row in sim/plan/plan_words.c", k->object, k->name);
}

/* Each word that a knob may have, whatever it says beside the others. */
static void each_word_of_a_knob_has_words(void **state)
{
    static const char *const cells[] = { "'strategy': 'fsdp'", "'strategy': 'ddp'", "'strategy': 'zero1', 'dialect': 'megatron', 'kernels': 'te'",
                                         "'strategy': 'zero3', 'dialect': 'deepspeed'", "'strategy': 'fsdp', 'dialect': 'torch-fsdp1'" };
    const struct knob *k;

    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (int i = 0; (k = knob_at(i)); i++)
            for (int v = 0; k->words && k->words[v]; v++) {
                struct plan p = plan_in_words("{ 'dpx_plan': 1, 'model': 'gpt2', 'cluster': '8xh100', 'seq': 512, 'precision': 'bf16', %s }", cells[c]);
                char text[PLAN_WORDS];
                if (k->cells & knob_cell(&p)) {
                    knob_set(&p, k, v);
                    plan_words(&p, text, sizeof text);
                    assert_null(strstr(text, "(null)"));
                    plan_words_settings(&p, text, sizeof text);
                    if (strstr(text, "(null)"))
                        fail_msg("%s.%s \"%s\": %s", k->object, k->name, k->words[v], text);
                }
                plan_free(&p);
            }
}

/* Every cell of the table of strategies and dialects has a name of its own. */
static void each_strategy_has_a_name(void **state)
{
    (void)state;
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (dialect_has((enum dialect)d, (enum strategy)s))
                assert_string_not_equal(plan_words_name((enum strategy)s, (enum dialect)d), strategy_name((enum strategy)s));
}

#define PLAN(rest) "{ 'dpx_plan': 1, 'model': 'gpt2', 'cluster': '8xh100', 'seq': 512, 'precision': 'bf16', " rest " }"

static void a_plan_is_said_in_words(void **state)
{
    static const struct { const char *plan, *words, *settings; } cases[] = {
        { PLAN("'strategy': 'fsdp', 'micro_batch': 1, 'accumulation': 8, 'recompute': 'full', 'recompute_interval': 4"),
          "FSDP2, 1 sample a GPU, 8 accumulation steps, every 4th block recomputed", "" },
        { PLAN("'strategy': 'ddp', 'micro_batch': 16, 'ddp': { 'bucket_cap_mb': 50 }"),
          "PyTorch DDP, 16 samples a GPU, no accumulation", "buckets of 50 MiB" },
        { PLAN("'strategy': 'ddp', 'micro_batch': 16, 'environment': { 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True', 'NCCL_NVLS_ENABLE': 0 }"),
          "PyTorch DDP, 16 samples a GPU, no accumulation", "PyTorch's allocator with expandable_segments:True, no NVLink SHARP" },
        { PLAN("'strategy': 'zero2', 'dialect': 'deepspeed', 'micro_batch': 2, 'deepspeed': { 'reduce_bucket_size': 5e7 }"),
          "DeepSpeed ZeRO-2, 2 samples a GPU, no accumulation", "buckets of 50.00M elements" },
        { PLAN("'strategy': 'zero1', 'dialect': 'megatron', 'accumulation': 16, 'parallel': { 'tensor': 2, 'sequence': true, 'pipeline': 2 }, "
               "'megatron': { 'overlap_grad_reduce': true }"),
          "Megatron-LM with its distributed optimizer, tensors cut over 2 GPUs with sequence parallelism, a pipeline of 2 stages (1F1B), "
          "16 micro-batches of 1 sample", "gradients reduced during backward" },
        { PLAN("'strategy': 'fsdp', 'micro_batch': 4, 'train': 'lora', 'lora': { 'rank': 16 }, 'base_dtype': 'nf4', 'fsdp': { 'cpu_offload': true }"),
          "FSDP2, 4 samples a GPU, no accumulation, LoRA of rank 16, frozen weights in 4 bits (NF4), "
          "parameters and optimizer states in host memory", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p = plan_in_words("%s", cases[i].plan);
        char text[PLAN_WORDS];
        plan_words(&p, text, sizeof text);
        assert_string_equal(text, cases[i].words);
        plan_words_settings(&p, text, sizeof text);
        assert_string_equal(text, cases[i].settings);
        plan_free(&p);
    }
}

/* Every cell that can keep states elsewhere, on every device: words name the memory that the schedule uses. */
static void states_are_said_to_be_where_the_schedule_has_them(void **state)
{
    static const char *const at[] = { "none", "cpu", "nvme" };
    static const struct { enum strategy s; enum dialect d; } cells[] = {
        { STRAT_ZERO1, DIALECT_DEEPSPEED }, { STRAT_ZERO2, DIALECT_DEEPSPEED }, { STRAT_ZERO3, DIALECT_DEEPSPEED },
        { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_ZERO3, DIALECT_PAPER },
    };

    (void)state;
    for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            bool stage3 = cells[c].s == STRAT_ZERO3 && cells[c].d == DIALECT_DEEPSPEED && i == 2;
            struct plan p = plan_in_words(PLAN("'strategy': '%s', 'dialect': '%s', 'deepspeed': { 'offload_optimizer': { 'device': '%s'%s } }"),
                                          strategy_name(cells[c].s), dialect_name(cells[c].d), at[i], stage3 ? ", 'nvme_path': '/nvme'" : "");
            struct schedules s = { 0 };
            char text[PLAN_WORDS];
            plan_words(&p, text, sizeof text);
            assert_int_equal(lower(&p, 0, &s), 0);
            bool disk = s.spaces & IN(SPACE_DISK), host = s.spaces & (IN(SPACE_HOST) | IN(SPACE_PINNED));
            if (!strstr(text, "optimizer states on disk") == disk || !strstr(text, "optimizer states in host memory") == (host && !disk))
                fail_msg("%s of %s, %s: %s", strategy_name(p.strategy), dialect_name(p.dialect), at[i], text);
            schedules_free(&s);
            plan_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_knob_of_a_label_has_words),
        cmocka_unit_test(each_word_of_a_knob_has_words),
        cmocka_unit_test(each_strategy_has_a_name),
        cmocka_unit_test(a_plan_is_said_in_words),
        cmocka_unit_test(states_are_said_to_be_where_the_schedule_has_them),
    };

    return cmocka_run_group_tests_name("sim/plan_words", tests, NULL, NULL);
}
