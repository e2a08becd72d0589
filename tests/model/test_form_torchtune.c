/* What torchtune's models have otherwise than transformers': where Gemma 2's cap is, and whose NF4 it is. */
#include "tests/check.h"
#include "tests/model/form_files.h"

#include <stdio.h>
#include <string.h>

#include "model/lower/lower.h"
#include "model/plan/plan.h"
#include "model/program/program.h"
#include "model/schedule/ledger.h"
#include "model/schedule/units.h"

#define RECIPE "model:\n  _component_: torchtune.models.%s\n  lora_attn_modules: [q_proj, v_proj]\n  lora_rank: 8\n  lora_alpha: 16\n" \
               "optimizer:\n  _component_: torch.optim.AdamW\n  fused: true\ntokenizer:\n  max_seq_len: 512\nbatch_size: 2\ndtype: bf16\n" \
               "enable_activation_checkpointing: true\nloss:\n  _component_: %s\n"

static void recipe(const char *builder, const char *loss, const char *model, const char *cluster, struct plan *p, struct notes *notes)
{
    char text[1024], why[1024];

    snprintf(text, sizeof text, RECIPE, builder, loss);
    *notes = (struct notes){ 0 };
    if (read_text_of(model, "t.yaml", text, cluster, p, notes, why) < 0)
        fail_msg("%s: %s", builder, why);
}

/* Kernels of the head and its loss that have a word in their names. */
static int kernels_named(const struct plan *p, const char *word)
{
    struct program g = { 0 };
    int n = 0;

    assert_int_equal(program_build(p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_HEAD].nkernels[pass]; i++)
            n += strstr(g.piece[PIECE_HEAD].kernels[pass][i].name, word) != NULL;
    program_free(&g);
    return n;
}

/* Gemma2FinalNorm caps 2 x 512 x 2304 hidden states, of 2 bytes each 0.0047 GB; losses have logits as they are.  Scores are capped as transformers' are. */
static void no_logits_are_capped(void **state)
{
    static const char *const losses[] = { "torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.modules.loss.CEWithChunkedOutputLoss", "torch.nn.CrossEntropyLoss" };
    static const struct { const char *builder, *model; } of[] = { { "gemma2.lora_gemma2_2b", "gemma-2-2b" }, { "gemma2.gemma2_9b", "gemma-2-9b" } };
    struct notes notes;
    struct plan p;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 2; k++) {
            recipe(of[k].builder, losses[i], of[k].model, "8xh100", &p, &notes);
            assert_int_equal(kernels_named(&p, "softcap"), 0);
            assert_true(p.model.attn_softcap > 0);
            p.model.softcap = 30;                /* transformers' */
            assert_true(kernels_named(&p, "softcap") > 0);
            assert_true(notes_say_that(&notes, k ? "the tanh keeps 0.0073 GB more" : "the tanh keeps 0.0047 GB more"));
            plan_free(&p);
        }
    recipe("gemma.lora_gemma_2b", losses[0], "gemma-2b", "8xh100", &p, &notes);
    assert_false(notes_say_that(&notes, "caps the hidden states"));
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_logits_are_capped),
    };

    return cmocka_run_group_tests_name("model/form torchtune", tests, NULL, NULL);
}
