/* Adapters of any subset of a block's linear layers, beside each kind of recompute: a plan is read, evaluated, and its requests add up.  The
 * first block keeps only what its own adapters need, so that others may free what is made once for all of them.
 * What steps of such adapters take is held against PyTorch's trackers in test_tuned_memory.c. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

static const char *const llama[] = { "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", NULL };
static const char *const opt[] = { "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", NULL };
static const char *const phi[] = { "q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", NULL };
static const char *const falcon[] = { "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", NULL };
static const char *const gpt2[] = { "c_attn", "c_proj", "c_fc", NULL };
static const struct { const char *name, *kernels; const char *const *layers; } models[] = {
    { "llama-3.2-1b", NULL, llama }, { "qwen3-0.6b", NULL, llama }, { "mistral-7b", NULL, llama }, { "gemma-2-2b", "torch-eager", llama },
    { "opt-125m", NULL, opt }, { "phi-2", NULL, phi }, { "falcon-7b", NULL, falcon }, { "gpt2", NULL, gpt2 },
};
static const struct { const char *strategy, *dialect, *more; int gpus; } cells[] = {
    { "ddp", "torch", "{}", 2 },   { "fsdp", "torch", "{}", 2 },      { "fsdp", "torch-fsdp1", "{}", 2 }, { "zero2", "deepspeed", "{}", 2 },
    { "zero3", "deepspeed", "{}", 2 }, { "ddp", "torch", "{ \"ddp\": { \"wrapped\": false } }", 1 },
    { "ddp", "torch", "{ \"parallel\": { \"pipeline\": 2 } }", 2 },
};
static const char *const recomputes[] = { "none", "selective", "full", "op", "reentrant" };
enum { MODELS = sizeof models / sizeof *models, CELLS = sizeof cells / sizeof *cells, RECOMPUTES = sizeof recomputes / sizeof *recomputes };

/* One of each family whose blocks have LayerNorms, and one with RMSNorm. */
static const char *const families[] = { "gpt2", "gpt-lite-matrices", "stablelm-3b", "phi-1.5", "falcon-7b", "gpt-j-6b", "gpt-neox-20b", "bloom-560m",
                                        "starcoder2-3b", "mosaicml-mpt-7b", "opt-125m", "opt-350m", "minitron-4b", "command-r-35b", "qwen3-0.6b" };
static const char *const bases[] = { "plain", "nf4", "int8" };
static const char *const beside[] = { "{ \"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"model_dtype\": \"bf16\" } }",
                                      "{ \"strategy\": \"ddp\", \"dialect\": \"torch\" }", "{ \"strategy\": \"zero3\", \"dialect\": \"deepspeed\" }" };
enum { FAMILIES = sizeof families / sizeof *families, BASES = sizeof bases / sizeof *bases, BESIDE = sizeof beside / sizeof *beside };

static json_t *plan_of(int model, int cell, int recompute, int subset)
{
    json_t *targets = json_array(), *plan = json_loads(cells[cell].more, 0, NULL);
    char cluster[16];

    for (int i = 0; models[model].layers[i]; i++)
        if (subset >> i & 1)
            json_array_append_new(targets, json_string(models[model].layers[i]));
    snprintf(cluster, sizeof cluster, "%dxh100", cells[cell].gpus);
    json_object_update_new(plan, json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:{s:i, s:o}}", "dpx_plan", 1, "model", models[model].name,
                                           "cluster", cluster, "strategy", cells[cell].strategy, "dialect", cells[cell].dialect, "seq", 256,
                                           "micro_batch", 2, "precision", "bf16", "recompute", recomputes[recompute], "train", "lora", "lora",
                                           "rank", 8, "target_modules", targets));
    if (models[model].kernels)
        json_object_set_new(plan, "kernels", json_string(models[model].kernels));
    return plan;
}

/* 1: planned; 0: refused with a reason.  Takes the plan. */
static int planned(json_t *json)
{
    struct plan p;
    struct evaluation e;
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = plan_from_json(json, "plan", &p);
    int said = rc == 0 ? evaluate(&p, &e) : 0;
    fail_capture(NULL, 0);
    if (said < 0) {
        char *text = json_dumps(json, 0);
        fail_msg("%s: %s", text, why);
    }
    json_decref(json);
    if (rc < 0) {
        assert_true(why[0] != '\0');
        return 0;
    }
    assert_true(e.reserved.known);
    evaluation_free(&e);
    plan_free(&p);
    return 1;
}

/* Each subset with each recompute; models and cells in turn. */
static void any_layers_may_have_adapters(void **state)
{
    int n[RECOMPUTES] = { 0 }, turn = 0;

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        int layers = 0;
        while (models[m].layers[layers])
            layers++;
        for (int subset = 1; subset < 1 << layers; subset++)
            for (int r = 0; r < RECOMPUTES; r++)
                if (layers < 7 || (subset + r + m) % 3 == 0)
                    n[r] += planned(plan_of(m, turn++ % CELLS, r, subset));
    }
    for (int r = 0; r < RECOMPUTES; r++)
        if (n[r] == 0)
            fail_msg("no plan recomputes %s", recomputes[r]);
    assert_true(n[0] + n[1] > 150);
}

/* bitsandbytes' layers answer in their input's dtype: behind a norm in fp32 what blocks hand on is wider than the embedding's 16 bits. */
static void any_base_may_be_in_codes(void **state)
{
    static const char *const wide[] = { "phi-1.5", "falcon-7b", "gpt-j-6b", "stablelm-2-1.6b", "starcoder2-3b", "cerebras-gpt-1.3b", "gpt2",
                                        "pythia-1b", "opt-125m", "llama-3.2-1b", "gemma-2-2b", NULL };
    static const char *const codes[] = { "nf4", "nf4-double", "int8", NULL };
    static const char *const shared[][4] = { { "ddp", "torch", "ddp", "bf16" }, { "ddp", "torch", "ddp", "fp32" }, { "fsdp", "torch", "fsdp", "bf16" },
                                             { "fsdp", "torch-fsdp1", "fsdp", "bf16" } };
    int n = 0, all = 0;

    (void)state;
    for (int m = 0; wide[m]; m++)
        for (int b = 0; codes[b]; b++)
            for (int c = 0; c < 4; c++)
                for (int r = 0; r < RECOMPUTES; r++, all++)
                    n += planned(json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:{s:i, s:s}, s:{s:s}}", "dpx_plan", 1, "model",
                                           wide[m], "cluster", "2xh100", "strategy", shared[c][0], "dialect", shared[c][1], "seq", 256, "micro_batch",
                                           2, "precision", "bf16", "recompute", recomputes[r], "train", "lora", "base_dtype", codes[b], "lora",
                                           "rank", 8, "target_modules", "all-linear", shared[c][2], "model_dtype", shared[c][3]));
    assert_true(n > all / 2);
}

static json_t *plan_beside(int family, int base, int recompute, int at, const char *const *copy)
{
    json_t *plan = json_loads(beside[at], 0, NULL);

    json_object_update_new(plan, json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:{s:s*, s:o*}}", "dpx_plan", 1, "model", families[family], "cluster",
                                           "2xh100", "seq", 128, "precision", "bf16", "base_dtype", bases[base], "recompute", recomputes[recompute],
                                           "train", "lora", "lora", "target_modules", copy ? NULL : "all-linear",
                                           "modules_to_save", copy ? json_pack("[s]", *copy) : NULL));
    if (!strcmp(families[family], "bloom-560m") || !strcmp(families[family], "mosaicml-mpt-7b"))
        json_object_set_new(plan, "kernels", json_string("torch-eager"));
    if (!strcmp(beside[at], beside[BESIDE - 1]))
        json_object_del(plan, "base_dtype");
    return plan;
}

/* Weights in 4 and 8 bits, in 16 bits and 32, and a copy of the head, tied or not, beside each kind of recompute. */
static void bases_and_copies_may_be_any(void **state)
{
    static const char *const head = "lm_head";
    int n[2] = { 0 };

    (void)state;
    for (int i = 0; i < FAMILIES * BASES * RECOMPUTES * BESIDE; i++) {
        int family = i % FAMILIES, base = i / FAMILIES % BASES, recompute = i / FAMILIES / BASES % RECOMPUTES, at = i / FAMILIES / BASES / RECOMPUTES;
        n[0] += planned(plan_beside(family, base, recompute, at, NULL));
        n[1] += planned(plan_beside(family, base, recompute, at, &head));
    }
    if (n[0] < 200 || n[1] < 100)
        fail_msg("%d and %d plans", n[0], n[1]);
}

static int64_t kept(const struct program *g, enum piece_id piece) { return g->piece[piece].saved; }

/* GPT-2, its layers in NF4, its other weights in bf16, under autocast, PyTorch and bitsandbytes hand block 0
 * bf16 and the others fp32, and so the gradients of these (forward and tensor hooks on Linear4bit's model).  So checkpoints keep twice as much
 * from block 1 on.  Autocast keeps its copies of the adapters' weights, too, of rank 8. */
static void blocks_of_packed_layers_hand_on_fp32(void **state)
{
    const int64_t h = 768, tokens = 128, adapters = 8 * ((h + 3 * h) + (h + h) + (h + 4 * h) + (4 * h + h)), block = 4 * tokens * h + 2 * adapters;
    struct program g = { 0 };
    struct plan p;
    json_t *json = plan_beside(0, 1, 2, 0, NULL);

    (void)state;
    json_object_set_new(json, "dropout", json_real(0));
    assert_int_equal(plan_from_json(json, "plan", &p), 0);
    json_decref(json);
    assert_int_equal(program_build(&p, &g), 0);
    assert_int_equal(program_piece_of_block(&p, 0), PIECE_FIRST_RECOMPUTED);
    assert_int_equal(program_piece_of_block(&p, 1), PIECE_BLOCK_RECOMPUTED);
    assert_int_equal(kept(&g, PIECE_FIRST_RECOMPUTED), block);
    assert_int_equal(kept(&g, PIECE_BLOCK_RECOMPUTED), block);
    program_free(&g);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_layers_may_have_adapters), cmocka_unit_test(any_base_may_be_in_codes),
                                        cmocka_unit_test(bases_and_copies_may_be_any),
                                        cmocka_unit_test(blocks_of_packed_layers_hand_on_fp32) };

    return cmocka_run_group_tests_name("model/adapter targets", tests, NULL, NULL);
}
