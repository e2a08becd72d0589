/* Which kernel PyTorch takes for attention, held against its own dispatch code: choices
 * recorded by tests/golden/memory/record_torch_memory.py --cases choices. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/attention.h"
#include "model/program/program.h"

#define CHOICES "tests/golden/memory/attention_choices.txt"

/* 8 heads of `dim` over 64 tokens: grouped without a mask, with a window, falcon's; latent attention's, whose values have `kv` elements. */
static int plan_of(const char *gpu, const char *family, const char *precision, int kv, int dim,
                   const char *version, struct plan *p)
{
    bool latent = !strcmp(family, "latent");
    json_t *model = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", latent ? "deepseek_v3" : family, "hidden_size", 8 * dim,
                              "num_attention_heads", 8, "num_hidden_layers", 4, "vocab_size", 100,
                              "num_key_value_heads", latent ? 8 : kv);
    char cluster[64];

    if (latent) {
        json_object_set_new(model, "v_head_dim", json_integer(kv));
        json_object_set_new(model, "qk_rope_head_dim", json_integer(32));
        json_object_set_new(model, "qk_nope_head_dim", json_integer(dim - 32));
    } else if (!strcmp(family, "falcon"))
        json_object_set_new(model, "multi_query", json_boolean(kv == 1));
    else
        json_object_set_new(model, "head_dim", json_integer(dim));
    if (!strcmp(family, "mistral"))
        json_object_set_new(model, "sliding_window", json_integer(16));
    snprintf(cluster, sizeof cluster, "2x%s", gpu);
    json_t *plan = json_pack("{s:i,s:o,s:s,s:s,s:s,s:s,s:i,s:o*}", "dpx_plan", 1, "model", model, "cluster", cluster,
                             "strategy", "fsdp", "dialect", "torch", "precision", precision, "seq", 64,
                             "framework_version", version ? json_string(version) : NULL);
    int rc = plan_from_json(plan, "plan", p);
    json_decref(plan);
    return rc;
}

static const char *const names[] = { "eager", "math", "efficient", "flash", "cudnn" };

static void every_recorded_choice_is_made(void **state)
{
    (void)state;
    char gpu[32], family[32], precision[8], kernel[16];
    FILE *f = fopen(CHOICES, "r");
    int kv, dim, n = 0;
    struct plan p;

    assert_non_null(f);
    while (fscanf(f, "%31s %31s %7s %d %d %15s", gpu, family, precision, &kv, &dim, kernel) == 6) {
        assert_int_equal(plan_of(gpu, family, precision, kv, dim, NULL, &p), 0);
        if (strcmp(names[attention_choice(&p)], kernel))
            fail_msg("%s %s %s kv %d dim %d: %s, PyTorch takes %s", gpu, family, precision, kv, dim,
                     names[attention_choice(&p)], kernel);
        plan_free(&p);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 889);
}

/* pytorch#191085 is in 2.15. */
static void one_head_of_keys_and_fp32_groups_are_not_fused_before_2_15(void **state)
{
    (void)state;
    struct plan p;

    assert_int_equal(plan_of("a100-80gb", "falcon", "bf16", 1, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_MATH);
    plan_free(&p);
    assert_int_equal(plan_of("a100-80gb", "llama", "fp32", 2, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_MATH);
    plan_free(&p);
    assert_int_equal(plan_of("a100-80gb", "llama", "bf16", 2, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_FLASH);
    plan_free(&p);
}

/* A mask is needed from a sequence as long as the window on: kv_length >= local_attention_size. */
static void a_window_counts_from_its_own_length_on(void **state)
{
    (void)state;
    struct plan p;

    assert_int_equal(plan_of("h100", "mistral", "bf16", 2, 64, NULL, &p), 0);
    p.model.window = 65;
    assert_false(attention_masked(&p) || attention_repeats(&p));
    p.model.window = 64;
    assert_true(attention_masked(&p) && attention_repeats(&p));
    assert_non_null(strstr(attention_note(&p), "passes a mask"));
    plan_free(&p);
}

/* FlashAttention in 16 bits was measured by everybody; cuDNN before it, masks, single operations were read only. */
static void a_choice_that_was_only_read_is_said(void **state)
{
    (void)state;
    static const struct { const char *gpu, *precision, *version, *says; } cases[] = {
        { "a100-80gb", "bf16", NULL, NULL }, { "h100", "bf16", "2.9", NULL }, { "h100", "bf16", NULL, "cuDNN" },
        { "h100", "fp32", NULL, "in fp32" }, { "v100-32gb", "fp16", NULL, "that FlashAttention does not take" },
    };
    struct plan p;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(plan_of(cases[i].gpu, "llama", cases[i].precision, 2, 64, cases[i].version, &p), 0);
        if (cases[i].says)
            assert_non_null(strstr(attention_note(&p), cases[i].says));
        else
            assert_null(attention_note(&p));
        assert_true(p.precision == DT_FP32 || !attention_note(&p) || !strstr(attention_note(&p), "fp32"));
        plan_free(&p);
    }
}

/* ---- layers that differ ---- */

/* Gemma 3's windows of 16 in two of three layers, over 64 tokens. */
static int mixed(enum strategy strategy, enum dialect dialect, const char *recompute, int interval, struct plan *p)
{
    json_t *model = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "gemma3_text", "hidden_size", 64,
                              "num_attention_heads", 4, "num_key_value_heads", 2, "head_dim", 16, "intermediate_size", 96,
                              "num_hidden_layers", 13, "vocab_size", 96, "sliding_window", 16,
                              "sliding_window_pattern", 3);
    json_t *plan = json_pack("{s:i,s:o,s:s,s:s,s:s,s:i,s:s,s:s}", "dpx_plan", 1, "model", model, "cluster", "4xh100",
                             "strategy", strategy_name(strategy), "dialect", dialect_name(dialect), "seq", 64,
                             "kernels", "torch-sdpa", "recompute", recompute);
    if (interval > 1)
        json_object_set_new(plan, "recompute_interval", json_integer(interval));
    int rc = plan_from_json(plan, "plan", p);
    json_decref(plan);
    return rc;
}

struct runs { const struct plan *p; int of[NPIECE]; };

static int check_piece(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct runs *r = arg;

    (void)s;
    if (o->kind != OP_COMPUTE || !piece_is_block((enum piece_id)o->u.compute.piece))
        return 0;
    int64_t block = o->unit + o->unit_by * iteration;
    if (o->u.compute.piece != program_piece_of_block(r->p, block))
        fail_msg("%s, %s: block %d runs piece %d", strategy_name(r->p->strategy), dialect_name(r->p->dialect), (int)block,
                 (int)o->u.compute.piece);
    r->of[o->u.compute.piece]++;
    return 0;
}

/* (layer + 1) % 3 == 0: full attention; of 13 layers 4, so 9 have the window. */
static void check_runs(const struct plan *p)
{
    struct schedules s = { 0 };
    struct runs r = { .p = p };
    char why[512];

    assert_int_equal(lower(p, 0, &s), 0);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s, %s: %s", strategy_name(p->strategy), dialect_name(p->dialect), why);
    sched_walk(&s, SCHED_STEADY, check_piece, &r);
    int full = r.of[PIECE_BLOCK] + r.of[PIECE_BLOCK_RECOMPUTED];
    int windowed = r.of[PIECE_WINDOWED] + r.of[PIECE_WINDOWED_RECOMPUTED];
    assert_true(full > 0 && windowed > 0);
    /* Forward runs each block once, whole: those of both kinds differ by what their layers keep. */
    bool all = program_recomputes_all(p);       /* the program of a plan has no other blocks */
    assert_int_equal(s.program.piece[PIECE_BLOCK].nkernels[PASS_FORWARD] == 0, all);
    const struct piece *with = &s.program.piece[all ? PIECE_WINDOWED_RECOMPUTED : PIECE_WINDOWED];
    const struct piece *without = &s.program.piece[all ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK];
    assert_true(all ? with->saved >= without->saved : with->saved > without->saved);
    schedules_free(&s);
}

static void layers_that_differ_run_programs_of_their_own(void **state)
{
    (void)state;
    static const struct { const char *recompute; int interval; } rows[] = {
        { "none", 1 }, { "full", 1 }, { "full", 2 }, { "selective", 1 },
    };
    char said[512];
    int cells = 0;

    for (int i = 0; i < NSTRATEGY; i++)
        for (int d = 0; d < NDIALECT; d++)
            for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
                struct plan p;
                fail_capture(said, sizeof said);
                int rc = mixed((enum strategy)i, (enum dialect)d, rows[k].recompute, rows[k].interval, &p);
                fail_capture(NULL, 0);
                if (rc < 0)
                    continue;           /* an empty cell of the table */
                check_runs(&p);
                plan_free(&p);
                cells++;
            }
    assert_true(cells >= 40);
}

/* A window that begins with a later layer (qwen2), eager attention, and a sequence that is shorter. */
static void layers_differ_only_where_some_get_a_mask(void **state)
{
    (void)state;
    struct plan p;

    assert_int_equal(plan_of("h100", "mistral", "bf16", 2, 64, NULL, &p), 0);
    assert_false(attention_mixed(&p));
    p.model.window_from = 1;
    assert_true(attention_mixed(&p));
    assert_int_equal(program_piece_of_block(&p, 0), PIECE_BLOCK);
    assert_int_equal(program_piece_of_block(&p, 1), PIECE_WINDOWED);
    p.kernels = KERNELS_TORCH_EAGER;
    assert_false(attention_mixed(&p));
    p.kernels = KERNELS_TORCH_SDPA;
    p.seq = 15;
    assert_false(attention_mixed(&p));
    assert_int_equal(program_piece_of_block(&p, 1), PIECE_BLOCK);
    plan_free(&p);
}

/* flash-attn 2 on what has 16-bit tensor cores of Ampere or later, 3 on Hopper alone, 4 on datacenter Blackwell alone; what it is not planned
 * with is refused in words. */
static void flash_attn_runs_where_it_is_made_for(void **state)
{
    (void)state;
    static const struct { const char *gpu; bool runs[4]; } gpus[] = {
        { "v100-32gb", { true, false, false, false } }, { "a100-80gb", { true, true, false, false } }, { "rtxa6000", { true, true, false, false } },
        { "h100", { true, true, true, false } }, { "b200", { true, true, false, true } },
    };
    struct plan p;

    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        assert_int_equal(plan_of(gpus[i].gpu, "llama", i ? "bf16" : "fp16", 2, 64, NULL, &p), 0);
        for (int by = ATTENTION_BY_SDPA; by <= ATTENTION_BY_FLASH_4; by++) {
            assert_int_equal(attention_takes(&p, (enum attention_by)by), gpus[i].runs[by]);
            p.attention = (enum attention_by)by;
            if (by == ATTENTION_BY_SDPA || !gpus[i].runs[by])
                continue;
            assert_int_equal(attention_choice(&p), ATTENTION_FLASH);
            assert_int_equal(attention_flash(&p), by == ATTENTION_BY_FLASH_2 ? FLASH_2 : FLASH_3);
            assert_null(attention_note(&p));
        }
        plan_free(&p);
    }
}

static void flash_attn_is_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *family, *precision; int kv, dim; const char *says; } cases[] = {
        { "llama", "fp32", 2, 64, "not in fp32" }, { "mistral", "bf16", 2, 64, "skips what a window hides" },
        { "latent", "bf16", 64, 96, "two widths" }, { "llama", "bf16", 2, 264, "heads of this width" },
    };
    struct plan p;
    char why[512] = "";

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(plan_of("h100", cases[i].family, cases[i].precision, cases[i].kv, cases[i].dim, NULL, &p), 0);
        p.attention = ATTENTION_BY_FLASH_2;
        fail_capture(why, sizeof why);
        int rc = plan_check(&p, "it");
        fail_capture(NULL, 0);
        assert_int_equal(rc, -1);
        if (!strstr(why, "attention: \"flash-2\"") || !strstr(why, cases[i].says))
            fail_msg("%s", why);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_choice_is_made),
        cmocka_unit_test(one_head_of_keys_and_fp32_groups_are_not_fused_before_2_15),
        cmocka_unit_test(a_choice_that_was_only_read_is_said),
        cmocka_unit_test(a_window_counts_from_its_own_length_on),
        cmocka_unit_test(layers_that_differ_run_programs_of_their_own),
        cmocka_unit_test(layers_differ_only_where_some_get_a_mask),
        cmocka_unit_test(flash_attn_runs_where_it_is_made_for),
        cmocka_unit_test(flash_attn_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("model/attention", tests, NULL, NULL);
}
