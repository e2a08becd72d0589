/* What Liger-Kernel's kernels and losses, and Apple's, keep and compute, counted by hand; which plans have them.  Steps as PyTorch's trackers
 * count them are in test_torch_memory.c (tests/golden/memory/torch_liger.jsonl). */
#include "tests/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/liger.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

enum { T = 2048, H = 4096, F = 14336, V = 128256, CHUNK = 64 };     /* 64: 2048 rows by 32, the vocabulary's 31.3 hidden sizes */

/* A plan of llama-3.1-8b; -1 with why, or 0. */
static int read_plan(const char *more, struct plan *p, char why[512])
{
    char text[1024];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"seq\": %d, %s }", T, more);
    json_t *plan = json_loads(text, 0, NULL);
    if (!plan)
        fail_msg("%s is no JSON", text);
    why[0] = '\0';
    fail_capture(why, 512);
    int rc = plan_from_json(plan, "plan", p);
    fail_capture(NULL, 0);
    json_decref(plan);
    return rc;
}

static void build(const char *more, struct plan *p, struct program *g)
{
    char why[512];

    if (read_plan(more, p, why) < 0)
        fail_msg("%s: %s", more, why);
    memset(g, 0, sizeof *g);
    assert_int_equal(program_build(p, g), 0);
}

static void drop(struct plan *p, struct program *g)
{
    program_free(g);
    plan_free(p);
}

#define FSDP "\"strategy\": \"fsdp\", \"dialect\": \"torch\", \"precision\": \"bf16\""
#define DDP  "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"precision\": \"bf16\""
#define LORA "\"train\": \"lora\", \"lora\": { \"rank\": 16, \"target_modules\": \"all-linear\" }"

static int count(const struct program *g, enum piece_id id, enum pass pass, const char *name)
{
    int n = 0;

    for (int i = 0; i < g->piece[id].nkernels[pass]; i++)
        n += !strcmp(g->piece[id].kernels[pass][i].name, name);
    return n;
}

static double flops(const struct program *g, enum piece_id id)
{
    return g->piece[id].flops[PASS_FORWARD] + g->piece[id].flops[PASS_BACKWARD];
}

static int64_t peak(const struct program *g, enum piece_id id, enum pass pass)
{
    const struct span *s = &g->whole[id][pass][GRADS_KEEP];

    return s->peak[MEM_ACTIVATIONS] + s->peak[MEM_TEMPORARIES] + s->peak[MEM_GRADS];
}

/* ---- blocks ---- */

static int64_t block_keeps(const char *liger)
{
    struct plan p;
    struct program g;
    char more[256];

    snprintf(more, sizeof more, FSDP "%s%s", liger[0] ? ", \"liger\": " : "", liger);
    build(more, &p, &g);
    int64_t saved = g.piece[PIECE_BLOCK].saved;
    drop(&p, &g);
    return saved;
}

/* Of transformers' RMSNorm backward needs x in fp32 and x/rms in bf16 (4 + 2 bytes); of Liger's x alone (2); each 4 bytes a row beside.
 * Of its MLP silu's input and result, and up (2 each); of Liger's gate and up.  What a rotation keeps are tables, which are the model's. */
static void blocks_keep_what_their_functions_save(void **state)
{
    (void)state;
    int64_t eager = block_keeps("");

    assert_int_equal(eager - block_keeps("{ \"rms_norm\": true }"), 2 * 4 * (int64_t)T * H);
    assert_int_equal(eager - block_keeps("{ \"glu_activation\": true }"), 2 * (int64_t)T * F);
    assert_int_equal(eager - block_keeps("{ \"rope\": true }"), 0);
    assert_int_equal(eager - block_keeps("{ \"rms_norm\": true, \"glu_activation\": true, \"rope\": true }"),
                     8 * (int64_t)T * H + 2 * (int64_t)T * F);
}

/* A kernel each way for what were eight operations of a norm, or eight of a rotation of q and of k. */
static void blocks_have_a_kernel_each_way(void **state)
{
    struct plan p;
    struct program g;

    (void)state;
    build(FSDP ", \"liger\": { \"rms_norm\": true, \"glu_activation\": true, \"rope\": true }", &p, &g);
    const struct piece *b = &g.piece[PIECE_BLOCK];
    for (int i = 0; i < b->nkernels[PASS_FORWARD]; i++) {
        const struct kernel *k = &b->kernels[PASS_FORWARD][i];
        if (!strcmp(k->name, "liger SwiGLU"))
            assert_int_equal(k->bytes, 3 * 2 * (int64_t)T * F);
        if (!strcmp(k->name, "liger rotary"))                         /* 32 and 8 heads of 128, read and written */
            assert_int_equal(k->bytes, 2 * 2 * (int64_t)T * (32 + 8) * 128);
        if (!strcmp(k->name, "liger norm"))
            assert_int_equal(k->bytes, 2 * 2 * (int64_t)T * H);
    }
    assert_int_equal(count(&g, PIECE_BLOCK, PASS_FORWARD, "liger norm"), 2);
    assert_int_equal(count(&g, PIECE_BLOCK, PASS_FORWARD, "liger SwiGLU"), 1);
    assert_int_equal(count(&g, PIECE_BLOCK, PASS_FORWARD, "liger rotary"), 1);
    assert_int_equal(count(&g, PIECE_BLOCK, PASS_BACKWARD, "liger rotary"), 1);
    assert_int_equal(count(&g, PIECE_BLOCK, PASS_FORWARD, "cast"), 0);
    drop(&p, &g);
}

/* ---- heads ---- */

/* Under autocast of parameters in fp32 each chunk casts W^T, x (already in fp32: the final norm's) and x once more for dW; and W once, which
 * autocast keeps.  An adapter's base in fp32 does not train: its copies are made anew, and no dW. */
static void autocast_casts_in_every_chunk(void **state)
{
    struct plan p;
    struct program g;
    int chunks = T / CHUNK;

    (void)state;
    build(DDP ", \"loss\": \"fused-linear\"", &p, &g);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "logits"), chunks);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "logits dW"), chunks);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "cast"), 3 * chunks + 1);
    drop(&p, &g);
    build(DDP ", \"ddp\": { \"model_dtype\": null }, \"loss\": \"fused-linear\", " LORA, &p, &g);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "logits dW"), 0);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "cast"), 3 * chunks);
    assert_close(flops(&g, PIECE_HEAD), 4.0 * T * H * V, 1);
    assert_true(g.piece[PIECE_HEAD].saved < 2 * (int64_t)V * H);
    drop(&p, &g);
    build(DDP ", \"loss\": \"fused-linear\", \"ddp\": { \"model_dtype\": \"bf16\" }, " LORA, &p, &g);     /* all in bf16: nothing to cast */
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "logits"), chunks);
    assert_true(peak(&g, PIECE_HEAD, PASS_FORWARD) < 2 * (int64_t)CHUNK * V + (2 + 4 + 4 + 2 + 2) * (int64_t)T * H + (1 << 20));
    drop(&p, &g);
}

/* A V100's products in fp16 do not add to a gradient in fp32: it is made, widened and added. */
static void older_gpus_make_each_chunks_gradient(void **state)
{
    struct plan p;
    struct program g;

    (void)state;
    build("\"cluster\": \"8xv100-32gb\", \"strategy\": \"ddp\", \"dialect\": \"torch\", \"precision\": \"fp16\", \"loss\": \"fused-linear\"", &p, &g);
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "cast"), 4 * (T / CHUNK) + 1);
    drop(&p, &g);
}

/* Logits in bf16: flash-attn's kernel writes their gradient beside them or over them; their entropy has a gradient of its own, made first, which takes the
 * other's; a row keeps its log-sum-exp, and of the entropy two numbers in fp32 and one in bf16, beside its loss and its entropy. */
static void an_actors_loss_holds_these_logits(void **state)
{
    static const struct { const char *loss; int64_t copies, numbers; } of[] = { { "fused-in-place", 1, 4 }, { "fused", 2, 4 }, { "fused-entropy", 3, 4 + 4 + 4 + 2 } };
    int64_t logits = 2 * (int64_t)T * V, kept[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        char words[256];
        struct plan p;
        struct program g;
        snprintf(words, sizeof words, "%s, \"loss\": \"%s\", " LORA, FSDP, of[i].loss);         /* the head's weight has no gradient */
        build(words, &p, &g);
        int64_t beside = (of[i].copies - 1) * logits;
        assert_in_range(peak(&g, PIECE_HEAD, PASS_BACKWARD), beside > 0 ? beside - of[i].numbers * T : 0, beside + 12 * (int64_t)T * H + (1 << 20));
        kept[i] = g.piece[PIECE_HEAD].saved;
        assert_int_equal(kept[i] - kept[0], (of[i].numbers - of[0].numbers) * T);
        drop(&p, &g);
    }
}

/* Logits in bf16, and in fp32 what their gradient is written over: 2 + 4 bytes, of which 4 are kept; PyTorch's: 2 + 4 + 4, kept: 4. */
static void the_in_place_loss_keeps_its_gradient(void **state)
{
    int64_t logits = (int64_t)T * V;
    struct plan p, q;
    struct program g, all;

    (void)state;
    build(FSDP ", \"loss\": \"liger-cross-entropy\"", &p, &g);
    build(FSDP, &q, &all);
    assert_in_range(peak(&g, PIECE_HEAD, PASS_FORWARD), 6 * logits, 6 * logits + 12 * (int64_t)T * H + (1 << 20));
    assert_in_range(peak(&all, PIECE_HEAD, PASS_FORWARD), 10 * logits, 10 * logits + 12 * (int64_t)T * H + (1 << 20));
    assert_int_equal(count(&g, PIECE_HEAD, PASS_FORWARD, "log-softmax"), 0);
    assert_close(flops(&g, PIECE_HEAD), 6.0 * T * H * V, 1);
    drop(&p, &g);
    drop(&q, &all);
}

/* Forward leaves x, a number a row in fp32 and in int64, a number a word; backward multiplies once more than any other: 8 T H V. */
static void the_cut_loss_has_no_logits(void **state)
{
    struct plan p;
    struct program g;

    (void)state;
    build(FSDP ", \"loss\": \"cut-cross-entropy\"", &p, &g);
    assert_in_range(peak(&g, PIECE_HEAD, PASS_FORWARD), 1, 12 * (int64_t)T * H + 12 * (int64_t)(T + V) + (1 << 20));
    assert_close(flops(&g, PIECE_HEAD), 8.0 * T * H * V, 1);
    /* dW, dx, the order in int64 and int32, locks of 128 rows or words by 64 columns; of the final norm x in fp32 and bf16, and backward's
     * three in fp32. */
    int64_t locks = 4 * (int64_t)(H / 64) * (T / 128 + V / 128);
    assert_in_range(peak(&g, PIECE_HEAD, PASS_BACKWARD), 2 * (int64_t)V * H, 2 * (int64_t)V * H + 20 * (int64_t)T * H + 12 * (int64_t)V + locks + (1 << 20));
    drop(&p, &g);
}

/* ---- which plans ---- */

/* Heads without logits beside all that has nothing to do with them. */
/* Backward frees no more activations than forward kept (autocast's casts of a recomputed block stay for its next forward): a gradient that
 * Liger-Kernel writes over what was kept does not go on as an activation. */
static void keeps_its_accounts(const struct program *g, const char *what)
{
    for (enum piece_id id = PIECE_BLOCK; id < PIECE_HEAD; id++) {
        int64_t left = 0;
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < g->piece[id].nkernels[pass]; k++)
                left += g->piece[id].kernels[pass][k].net[MEM_ACTIVATIONS];
        if (left < 0)
            fail_msg("%s: piece %d frees %" PRId64 " bytes of activations that it did not keep", what, (int)id, -left);
    }
}

static void losses_go_with_everything_else(void **state)
{
    static const char *const with[] = {
        FSDP, DDP, FSDP ", \"cluster\": \"1xh100\"", DDP ", \"cluster\": \"1xh100\"", FSDP ", " LORA, DDP ", " LORA,
        DDP ", \"ddp\": { \"model_dtype\": \"bf16\" }, " LORA, DDP ", \"base_dtype\": \"nf4-double\", " LORA,
        FSDP ", \"parallel\": { \"context\": 8 }", FSDP ", \"kernels\": \"torch-compile\"", FSDP ", \"kernels\": \"torch-eager\"",
        FSDP ", \"fp8\": \"rowwise\"", FSDP ", \"recompute\": \"full\"", FSDP ", \"fsdp\": { \"cpu_offload\": true }",
        "\"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\", \"precision\": \"bf16\", " LORA,
        "\"strategy\": \"zero2\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\", " LORA,
        "\"strategy\": \"zero1\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\", \"parallel\": { \"context\": 8 }",
        FSDP ", \"liger\": { \"rope\": true, \"rms_norm\": true, \"glu_activation\": true }",
        DDP ", \"liger\": { \"rms_norm\": true }, \"recompute\": \"full\"",
        "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"precision\": \"fp16\"", "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"precision\": \"fp32\"",
    };
    static const char *const losses[] = { "fp32", "fused", "compiled", "fused-linear", "liger-cross-entropy", "fused-in-place", "fused-entropy", "fused-entropy-eager" };
    char why[512], more[512];

    (void)state;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        for (size_t k = 0; k < sizeof losses / sizeof *losses; k++) {
            struct plan p;
            struct program g = { 0 };
            snprintf(more, sizeof more, "%s, \"loss\": \"%s\"", with[i], losses[k]);
            if (read_plan(more, &p, why) < 0)
                fail_msg("%s: %s", more, why);
            assert_int_equal(program_build(&p, &g), 0);
            assert_true(g.piece[PIECE_HEAD].nkernels[PASS_FORWARD] > 0);
            keeps_its_accounts(&g, more);
            drop(&p, &g);
        }
}

static void refuses(const char *more, const char *what)
{
    struct plan p;
    char why[512];

    if (read_plan(more, &p, why) == 0 || !strstr(why, what))
        fail_msg("%s: %s", more, why);
}

static void what_is_refused_has_a_reason(void **state)
{
    (void)state;
    refuses(FSDP ", \"loss\": \"fused-linear\", \"parallel\": { \"tensor\": 2 }", "logits that lie on several ranks");
    refuses("\"strategy\": \"zero3\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\", \"loss\": \"fused-linear\", \"model\": \"llama-3.2-1b\"",
            "ties its head to its embedding");
    refuses(FSDP ", \"loss\": \"fused-linear\", \"model\": \"granite-3.1-8b\"", "take liger-cross-entropy");
    refuses("\"strategy\": \"zero2\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\", \"loss\": \"fused-linear\", \"model\": \"llama-3.2-1b\"",
            "ties its head to its embedding");
    refuses(DDP ", \"loss\": \"cut-cross-entropy\"", "Backwards requires embeddings to be bf16 or fp16");
    refuses(FSDP ", \"liger\": { \"rope\": true }, \"kernels\": \"dpx\"", "liger.rope: kernels \"dpx\" have their own");
    refuses(FSDP ", \"liger\": { \"rms_norm\": true }, \"kernels\": \"torch-compile\"", "torch-compile");
    refuses(FSDP ", \"liger\": { \"rms_norm\": true }, \"parallel\": { \"tensor\": 2 }", "liger.rms_norm: torchtitan's");
    refuses(FSDP ", \"liger\": { \"rope\": true }, \"model\": \"gpt2\", \"seq\": 512", "liger.rope: Liger-Kernel has no such kernel");
}

/* apply_liger_kernel_to_...(): each of its kernels is true unless told, and one loss. */
static void families_have_what_liger_has(void **state)
{
    static const struct { const char *family; bool known, rope, norm, glu; enum loss_kind loss; const char *lacks; } rows[] = {
        { "llama", true, true, true, true, LOSS_FUSED_LINEAR, NULL }, { "granite", true, true, true, true, LOSS_LIGER, NULL },
        { "glm4", true, false, true, true, LOSS_FUSED_LINEAR, NULL }, { "mixtral", true, true, true, false, LOSS_FUSED_LINEAR, "experts" },
        { "nemotron", true, false, false, false, LOSS_FUSED_LINEAR, "activation" }, { "gpt2", false, false, false, false, LOSS_FP32, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = { .experts = !strcmp(rows[i].family, "mixtral") ? 8 : 0 };
        struct liger_options of = { 0 };
        enum loss_kind loss = LOSS_FP32;
        const char *lacks;
        snprintf(m.family, sizeof m.family, "%s", rows[i].family);
        assert_int_equal(liger_usual(&m, &of, &loss, &lacks), rows[i].known);
        assert_true(of.rope == rows[i].rope && of.rms_norm == rows[i].norm && of.glu_activation == rows[i].glu && loss == rows[i].loss);
        assert_true(!lacks == !rows[i].lacks && (!lacks || !strcmp(lacks, rows[i].lacks)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_keep_what_their_functions_save),
        cmocka_unit_test(blocks_have_a_kernel_each_way),
        cmocka_unit_test(autocast_casts_in_every_chunk),
        cmocka_unit_test(older_gpus_make_each_chunks_gradient),
        cmocka_unit_test(an_actors_loss_holds_these_logits), cmocka_unit_test(the_in_place_loss_keeps_its_gradient),
        cmocka_unit_test(the_cut_loss_has_no_logits),
        cmocka_unit_test(losses_go_with_everything_else),
        cmocka_unit_test(what_is_refused_has_a_reason),
        cmocka_unit_test(families_have_what_liger_has),
    };
    return cmocka_run_group_tests_name("model/liger", tests, NULL, NULL);
}
