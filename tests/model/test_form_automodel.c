/* What NeMo Automodel holds beside the plan of its model: by hand, in bytes. */
#include "tests/model/form_files.h"

#include "model/lower/lower.h"
#include "model/plan/loss_check.h"
#include "model/schedule/ledger.h"

/* Norms that are fused in Automodel's own class and are not in the plan: 4 bytes of each input of two norms a block (32 of 4,096 values) and the last one, of 512
 * tokens; of cut rows half of it, of recomputed blocks those of one.  Qwen3's own class has transformers' norms. */
static void norms_that_are_planned_unfused_have_a_size(void **state)
{
    static const struct { const char *model, *mesh; double bytes; } files[] = {
        { "llama-3-8b", "  tp_size: 2\n", 4.0 * 65 * 512 * 4096 }, { "llama-3-8b", "  tp_size: 2\n  sequence_parallel: true\n", 4.0 * 65 * 512 * 4096 / 2 },
        { "llama-3-8b", "  tp_size: 2\n  activation_checkpointing: true\n", 4.0 * 3 * 512 * 4096 }, { "llama-3-8b", "  tp_size: 1\n", 0 },
        { "qwen3-8b", "  tp_size: 2\n", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024], said[80];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s" CHAT, files[i].mesh);
        if (read_text_of(files[i].model, "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        snprintf(said, sizeof said, "an upper bound of memory and time, of %.2g GB a micro-batch", files[i].bytes * 1e-9);
        if (notes_say_that(&notes, files[i].bytes > 0 ? said : "an upper bound of memory") != (files[i].bytes > 0))
            fail_msg("%s of %s: %s", files[i].mesh, files[i].model, said);
        plan_free(&p);
    }
}

/* recipes/llm/train_ft.py names the model's `out` while backward runs: 2 bytes of each of 512 x 128,256 logits (0.13 GB), of which two ranks of tensor parallelism
 * have half each.  A pipeline's schedule names none, FusedLinearCrossEntropy has none, and the other two save them themselves. */
static void logits_that_automodel_names_stay(void **state)
{
#define LOSS "loss_fn:\n  _target_: nemo_automodel.components.loss."
    static const struct { const char *mesh, *loss; int ranks; enum logits_kept kept; } files[] = {
        { "  dp_size: 2\n", "", 1, LOGITS_AS_MADE }, { "  cp_size: 1\n", LOSS "masked_ce.MaskedCrossEntropy\n  fp32_upcast: false\n", 1, LOGITS_AS_MADE },
        { "  tp_size: 2\n", "", 2, LOGITS_AS_MADE }, { "  pp_size: 2\n", "", 1, LOGITS_DROPPED }, { "  dp_size: 2\n", LOSS "chunked_ce.ChunkedCrossEntropy\n", 1, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "linear_ce.FusedLinearCrossEntropy\n", 1, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "te_parallel_ce.TEParallelCrossEntropy\n", 1, LOGITS_DROPPED },
    };
#undef LOSS

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s%s" CHAT, files[i].mesh, files[i].loss);
        if (strstr(text, "pp_size"))
            strstr(text, "size: 1")[6] = '2';           /* a micro-batch a stage */
        if (read_text_of("llama-3-8b", "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (p.logits_kept != files[i].kept || loss_kept_bytes(&p) != (files[i].kept ? 2LL * 512 * 128256 / files[i].ranks : 0))
            fail_msg("%s%s: kept %d, %lld bytes", files[i].mesh, files[i].loss, (int)p.logits_kept, (long long)loss_kept_bytes(&p));
        plan_free(&p);
    }
}

static int64_t peak_of(const struct plan *p)
{
    struct schedules s = { 0 };
    struct ledger l;

    assert_int_equal(lower(p, 0, &s), 0);
    ledger_run(&s, &l);
    schedules_free(&s);
    return l.peak.bytes;
}

/* Mistral's block of 218,112,000 parameters waits for backward in 16 bits.  Of Qwen3-30B's 128 experts each of 8 ranks has 16 alone, 16 x 3 x 2048 x 768 in each of
 * 48 layers: FSDP would hold a second copy of them in 16 bits, and of several micro-steps gradients of 4 bytes for those of 2.  In stages of 24 layers half of
 * it, and of a schedule that runs twice its first run's gradients besides.  What is said to be freed is freed; 16 ranks share experts by two; weights in fp32 have a copy of 16 bits anyway. */
static void blocks_and_experts_that_no_gather_brings(void **state)
{
#define MOE "  ep_size: 8\n  moe:\n    wrap_outer_model: true\n"
    static const int64_t experts = INT64_C(16) * 3 * 2048 * 768;
    static const struct { const char *model, *gpus, *local, *all, *mesh; bool last, ignored; int64_t more; } files[] = {
        { "mistral-7b", "8xh100", "8", "64", "", true, false, INT64_C(2) * 218112000 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: null\n", true, false, INT64_C(2) * 218112000 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: true\n", false, false, 0 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: false\n", false, false, 0 },
        { "qwen3-30b-a3b", "8xh100", "8", "64", MOE, false, true, -48 * 2 * experts }, { "qwen3-30b-a3b", "8xh100", "8", "128", MOE, false, true, -48 * 4 * experts },
        { "qwen3-30b-a3b", "2x8xh100", "1", "16", MOE, false, false, 0 }, { "qwen3-30b-a3b", "2x8xh100", "16", "128", MOE "  pp_size: 2\n", false, true, -24 * 4 * experts },
        { "qwen3-30b-a3b", "2x8xh100", "16", "256", MOE "  pp_size: 2\n", false, true, -24 * 6 * experts },
    };
#undef MOE

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, "step_scheduler:\n  local_batch_size: %s\n  global_batch_size: %s\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM."
                 "from_pretrained\ndistributed:\n  strategy: fsdp2\n%s" CHAT, files[i].local, files[i].all, files[i].mesh);
        if (read_text_of(files[i].model, "a.yaml", text, files[i].gpus, &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (p.fsdp.keeps_last_unit != files[i].last || p.fsdp.ignores_experts != files[i].ignored)
            fail_msg("%s of %s: last %d, experts %d", files[i].mesh, files[i].model, p.fsdp.keeps_last_unit, p.fsdp.ignores_experts);
        int64_t with = peak_of(&p);
        p.fsdp.keeps_last_unit = p.fsdp.ignores_experts = false;
        if (with - peak_of(&p) != files[i].more)
            fail_msg("%s of %s: %lld bytes more, not %lld", files[i].mesh, files[i].model, (long long)(with - peak_of(&p)), (long long)files[i].more);
        plan_free(&p);
    }
}

/* Outputs of 32 blocks, 2 bytes of 20 x 512 x 4096, are told, and not in the plan: 2.7 GB, by which the plan fits 80 GB.  Of 16 samples there is room for both. */
static void what_is_told_and_decides_is_refused(void **state)
{
    static const char *const local[] = { "16", "20" }, *const all[] = { "128", "160" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, "step_scheduler:\n  local_batch_size: %s\n  global_batch_size: %s\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM."
                 "from_pretrained\n  output_hidden_states: true\n  use_liger_kernel: false\ndistributed:\n  strategy: fsdp2\n" CHAT, local[i], all[i]);
        int rc = read_text_of("mistral-7b", "a.yaml", text, "8xh100", &p, &notes, why);
        assert_int_equal(rc, -i);
        assert_true(i == 0 || strstr(why, "whether it fits is not known"));
        assert_true(i == 1 || notes_say_that(&notes, "output_hidden_states: every block's output stays until the loss: 2.1 GB more"));
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(norms_that_are_planned_unfused_have_a_size), cmocka_unit_test(logits_that_automodel_names_stay),
                                        cmocka_unit_test(blocks_and_experts_that_no_gather_brings), cmocka_unit_test(what_is_told_and_decides_is_refused) };

    return cmocka_run_group_tests_name("model/form automodel", tests, NULL, NULL);
}
