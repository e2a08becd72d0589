/* What NeMo Automodel holds beside the plan of its model: by hand, in bytes. */
#include "tests/model/form_files.h"

#include "model/plan/loss_check.h"

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

/* recipes/llm/train_ft.py names the model's `out` while backward runs: 2 bytes of each of 512 x 128,256 logits (0.13 GB), which of two ranks of tensor parallelism
 * each has half of (0.066 GB, told).  A pipeline's schedule returns those of both micro-batches (twice 0.066 GB of a rank's half), whatever the loss.
 * FusedLinearCrossEntropy has none, and the other two save them themselves. */
static void logits_that_automodel_names_stay(void **state)
{
#define LOSS "loss_fn:\n  _target_: nemo_automodel.components.loss."
    static const struct { const char *mesh, *loss, *said; enum logits_kept kept; } files[] = {
        { "  dp_size: 2\n", "", NULL, LOGITS_AS_MADE }, { "  cp_size: 1\n", LOSS "masked_ce.MaskedCrossEntropy\n  fp32_upcast: false\n", NULL, LOGITS_AS_MADE },
        { "  tp_size: 2\n", "", "logits in 16 bits through backward: 0.066 GB a micro-batch more", LOGITS_DROPPED },
        { "  pp_size: 2\n", "", NULL, LOGITS_AS_MADE }, { "  pp_size: 2\n", LOSS "chunked_ce.ChunkedCrossEntropy\n", NULL, LOGITS_AS_MADE },
        { "  pp_size: 2\n", LOSS "te_parallel_ce.TEParallelCrossEntropy\n", NULL, LOGITS_AS_MADE },
        { "  pp_size: 2\n  tp_size: 2\n", "", "of all micro-batches in 16 bits: 0.13 GB more", LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "chunked_ce.ChunkedCrossEntropy\n", NULL, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "linear_ce.FusedLinearCrossEntropy\n", NULL, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "te_parallel_ce.TEParallelCrossEntropy\n", NULL, LOGITS_DROPPED },
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
        if (read_text_of("llama-3-8b", "a.yaml", text, strstr(text, "pp_size: 2\n  tp") ? "4xh100" : "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (p.logits_kept != files[i].kept || loss_kept_bytes(&p) != (files[i].kept && p.parallel.pipeline == 1 ? 2LL * 512 * 128256 : 0))
            fail_msg("%s%s: kept %d, %lld bytes", files[i].mesh, files[i].loss, (int)p.logits_kept, (long long)loss_kept_bytes(&p));
        if (notes_say_that(&notes, files[i].said ? files[i].said : "logits") != (files[i].said != NULL))
            fail_msg("%s%s: the note", files[i].mesh, files[i].loss);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(norms_that_are_planned_unfused_have_a_size), cmocka_unit_test(logits_that_automodel_names_stay) };

    return cmocka_run_group_tests_name("model/form automodel", tests, NULL, NULL);
}
