/* torchao's float8 linear layers: numbers that a reader can redo, the memory of steps that PyTorch's own trackers recorded, and what
 * torch.compile() makes of a block (tests/golden/float8).  Collectives are compared entry for entry in test_collectives.c. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/memory/evaluate.h"
#include "model/plan/can_run.h"
#include "model/plan/float8.h"
#include "model/schedule/ledger.h"

static int read_plan(const char *words, struct plan *p, char *why, size_t size)
{
    char text[1024];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"strategy\": \"fsdp\", \"dialect\": \"torch\", \"precision\": \"bf16\", %s }", words);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    fail_capture(why, size);
    int rc = plan_from_json(j, "p", p);
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

static struct plan plan_of(const char *words)
{
    char why[512] = "";
    struct plan p;

    if (read_plan(words, &p, why, sizeof why) < 0)
        fail_msg("%s", why);
    return p;
}

#define OWN "\"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"seq\": 512, \"kernels\": \"dpx\", \"fp8\": \"tensorwise\""
#define OF_8B "\"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"seq\": 8192, \"kernels\": \"torch-compile\""

/* ---- which layers ---- */

static int64_t weights_converted(const char *words)
{
    struct plan p = plan_of(words);
    int64_t sum = 0;

    for (int t = 0; t < p.model.ntensors; t++)
        sum += float8_converts(&p, &p.model.tensors[t]) ? p.model.tensors[t].numel : 0;
    plan_free(&p);
    return sum;
}

/* A block: q and o of 4096 x 4096, k and v of 1024 x 4096, three of 14336 x 4096. */
#define BLOCK_8B (2 * 4096LL * 4096 + 2 * 1024LL * 4096 + 3 * 14336LL * 4096)

static void filters_name_what_stays(void **state)
{
    (void)state;
    assert_int_equal(weights_converted(OF_8B ", \"fp8\": \"tensorwise\""), 32 * BLOCK_8B);
    assert_int_equal(weights_converted(OF_8B ", \"fp8\": \"tensorwise\", \"fp8_filter\": \"none\""), 32 * BLOCK_8B + 128256LL * 4096);
    assert_int_equal(weights_converted(OF_8B ", \"fp8\": \"rowwise\", \"fp8_filter\": [\"lm_head\", \"k_proj\", \"v_proj\"]"),
                     32 * (BLOCK_8B - 2 * 1024LL * 4096));
    /* _auto_filter_for_tensorwise(): K <= 4096 and N <= 1024; for_rowwise(): N <= 2048. */
    assert_int_equal(weights_converted(OF_8B ", \"fp8\": \"tensorwise\", \"fp8_filter\": [\"lm_head\", \"auto_filter_small_kn\"]"),
                     32 * (BLOCK_8B - 2 * 1024LL * 4096));
    assert_int_equal(weights_converted(OF_8B ", \"fp8\": \"rowwise\", \"fp8_filter\": [\"lm_head\", \"auto_filter_small_kn\"]"),
                     32 * (BLOCK_8B - 2 * 1024LL * 4096));
}

static void what_it_is_not_modelled_for_is_refused_by_name(void **state)
{
    static const struct { const char *words, *because; } row[] = {
        { OF_8B ", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true }", "fp8 is \"none\"" },
        { OF_8B ", \"fp8_filter\": [\"mlp\"]", "fp8 is \"none\"" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"fp8_filter\": [\"lm_head\", \"nosuch\"]", "\"nosuch\" is part of no linear layer's name" },
        { OF_8B ", \"fp8\": \"rowwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true }", "only supports tensorwise" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"fsdp\": { \"precompute_float8_dynamic_scale_for_fsdp\": true }", "is false" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true, \"reshard_after_forward\": 4 }", "reshard to a number" },
        { OF_8B ", \"fp8\": \"delayed\"", "tensorwise" },
        { "\"model\": \"llama-3.1-8b\", \"cluster\": \"8xa100-80gb\", \"seq\": 512, \"fp8\": \"tensorwise\"", "fp8: a100-80gb: it has no units for 8-bit floats" },
        { OWN ", \"accumulation\": 2, \"parallel\": { \"pipeline\": 2 }", "the whole model and whole samples" },
        { OWN ", \"recompute\": \"selective\"", "\"selective\"" },
        { OWN ", \"precision\": \"fp16\"", "bf16 and fp32" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"fp8_filter\": [\"layers.3.mlp\"]", "blocks whose layers differ" },
        { "\"model\": \"gpt2\", \"cluster\": \"8xh100\", \"seq\": 512, \"fp8\": \"tensorwise\"", "no linear layer" },
        { "\"model\": \"qwen2.5-7b\", \"cluster\": \"8xh100\", \"seq\": 512, \"kernels\": \"torch-compile\", \"fp8\": \"tensorwise\"", "biases" },
        { "\"model\": \"qwen2.5-7b\", \"cluster\": \"8xh100\", \"seq\": 512, \"fp8\": \"tensorwise\", \"parallel\": { \"tensor\": 2 }", "biases" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"parallel\": { \"tensor\": 2 }, \"fp8_filter\": [\"lm_head\", \"mlp\"]", "all or none" },
        { OF_8B ", \"fp8\": \"tensorwise\", \"parallel\": { \"tensor\": 2 }, \"fp8_filter\": \"none\"", "a head in float8" },
        { "\"model\": \"llama-3.1-8b\", \"cluster\": \"3xh100\", \"seq\": 512, \"fp8\": \"tensorwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true }",
          "do not share evenly" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char why[512] = "";
        struct plan p;
        assert_int_equal(read_plan(row[i].words, &p, why, sizeof why), -1);
        if (!strstr(why, row[i].because))
            fail_msg("%s: \"%s\" does not say \"%s\"", row[i].words, why, row[i].because);
    }
}

static void dpxrun_has_every_recipe(void **state)
{
    static const char *const recipes[] = { "tensorwise", "rowwise", "rowwise_with_gw_hp" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        char words[256];
        snprintf(words, sizeof words, "\"model\": \"llama-3.1-8b\", \"cluster\": \"8xa100-80gb\", \"seq\": 512, \"kernels\": \"dpx\", \"fp8\": \"%s\"",
                 recipes[i]);
        struct plan p = plan_of(words);
        assert_int_equal(can_run(&p), 0);
        plan_free(&p);
    }
}

/* ---- gathers ---- */

struct count { int64_t gathered, gathers, reduced, calls; };

static int add_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct count *c = arg;

    (void)iteration;
    (void)s;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_GATHER && o->u.coll.dtype == DT_UINT8) {
        c->gathered += o->u.coll.elems;
        c->gathers++;
    } else if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_REDUCE && o->u.coll.red == RED_MAX) {
        c->reduced += o->u.coll.elems;
        c->calls++;
    }
    return 0;
}

static struct count counted(const char *words)
{
    struct plan p = plan_of(words);
    struct schedules s = { 0 };
    struct count c = { 0 };

    assert_int_equal(lower(&p, 0, &s), 0);
    sched_walk(&s, SCHED_STEADY, add_op, &c);
    schedules_free(&s);
    plan_free(&p);
    return c;
}

/* Twice a step each block's weights, a byte each, and two norms of 4096 in bf16; a number for each of 7 weights each time, or all 224 at once. */
static void a_byte_a_weight_is_gathered(void **state)
{
    struct count each = counted(OF_8B ", \"fp8\": \"tensorwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true }");
    struct count once = counted(OF_8B ", \"fp8\": \"tensorwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true, "
                                "\"precompute_float8_dynamic_scale_for_fsdp\": true }");

    (void)state;
    assert_int_equal(each.gathers, 64);
    assert_int_equal(each.gathered, 64 * (BLOCK_8B + 2 * 4096 * 2));
    assert_int_equal(each.calls, 64 * 7);
    assert_int_equal(each.reduced, 64 * 7);
    assert_int_equal(once.gathered, each.gathered);
    assert_int_equal(once.calls, 1);
    assert_int_equal(once.reduced, 224);
}

/* ---- our own kernels ---- */

/* A small Llama on this machine: hidden 64, 4 heads on 2, MLP of 96, 3 blocks. */
#define SMALL "\"model\": \"tests/golden/float8/parity\", \"cluster\": \"localhost:2\", \"kernels\": \"dpx\", \"seq\": 24, \"micro_batch\": 6, \"unit\": \"block\""
#define GATHERED ", \"fp8\": \"tensorwise\", \"fsdp\": { \"enable_fsdp_float8_all_gather\": true }"

/* The same collectives with our own kernels as with PyTorch's. */
static void kernels_do_not_change_what_is_gathered(void **state)
{
    struct count own = counted(SMALL GATHERED), torchs = counted("\"model\": \"tests/golden/float8/parity\", \"cluster\": \"2xh100\", "
                               "\"kernels\": \"torch-sdpa\", \"seq\": 24, \"micro_batch\": 6, \"unit\": \"block\"" GATHERED);

    (void)state;
    /* Of a block a byte for each of 2 x 64 x 64 + 2 x 32 x 64 + 3 x 96 x 64 weights, and two norms of 64 in bf16. */
    assert_int_equal(own.gathered, 3 * 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64 + 2 * 64 * 2));
    assert_int_equal(own.gathers, 6);
    assert_int_equal(own.reduced, 6 * 7);
    assert_memory_equal(&own, &torchs, sizeof own);
}

/* Of how many kernels of a pass one slot comes, and its bytes there, which are all the same or, with `of`, those of that kernel. */
static int comes(const struct piece *g, enum pass pass, enum slot slot, const char *of, int64_t *bytes)
{
    int n = 0;

    for (int k = 0; k < g->nkernels[pass]; k++)
        for (int i = 0; i < g->kernels[pass][k].nplaces; i++) {
            const struct place *p = &g->places[pass][g->kernels[pass][k].place0 + i];
            bool next = k + 1 < g->nkernels[pass] && of && !strcmp(g->kernels[pass][k + 1].name, of);
            if (!p->comes || p->slot != slot)
                continue;
            n++;
            *bytes = !of || next ? p->bytes : *bytes;
        }
    return n;
}

/* Inputs are cast once for the layers that share them: before q, the output, gate and down; in backward before down, up, the output and v. */
static void operands_come_and_go_around_products(void **state)
{
    struct plan p = plan_of(SMALL GATHERED);
    struct schedules s = { .detailed = true };
    const struct piece *block = &s.program.piece[PIECE_BLOCK];
    char why[512] = "";
    int64_t bytes = 0;

    (void)state;
    assert_int_equal(lower(&p, 0, &s), 0);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s", why);
    for (int pass = 0; pass < NPASS; pass++) {
        assert_int_equal(comes(block, pass, SLOT_X8, NULL, &bytes), 4);
        assert_int_equal(comes(block, pass, SLOT_WEIGHT, NULL, &bytes), 7);
        assert_int_equal(comes(block, pass, SLOT_DY8, NULL, &bytes), pass == PASS_FORWARD ? 0 : 7);
    }
    /* 144 tokens; numbers of two bytes, a scale, whole lines of 64 bytes */
    assert_int_equal(comes(block, PASS_FORWARD, SLOT_WEIGHT, "mlp down", &bytes), 7);
    assert_int_equal(bytes, 64 * 96 * 2 + 64);
    comes(block, PASS_FORWARD, SLOT_X8, NULL, &bytes);
    assert_int_equal(bytes, 144 * 96 * 2 + 64);
    /* nothing more is kept for backward than without */
    struct plan plain = plan_of(SMALL);
    struct schedules without = { 0 };
    assert_int_equal(lower(&plain, 0, &without), 0);
    assert_int_equal(block->saved, without.program.piece[PIECE_BLOCK].saved);
    schedules_free(&s), schedules_free(&without);
    plan_free(&p), plan_free(&plain);
}

/* ---- products ---- */

static void products_multiply_what_the_recipe_says(void **state)
{
    static const struct { const char *recipe; enum scaled forward, dx, dw; } row[] = {
        { "tensorwise", SCALED_FP8_TENSOR, SCALED_FP8_TENSOR, SCALED_FP8_TENSOR },
        { "rowwise", SCALED_FP8_ROW, SCALED_FP8_TENSOR, SCALED_FP8_TENSOR },    /* without fast accumulation cuBLAS's kernel (torchao#1325) */
        { "rowwise_with_gw_hp", SCALED_FP8_ROW, SCALED_FP8_TENSOR, SCALED_NONE },
    };

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int compiled = 0; compiled < 2; compiled++) {
            char words[256];
            struct schedules s = { 0 };
            snprintf(words, sizeof words, "\"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"seq\": 512, \"kernels\": \"%s\", \"fp8\": \"%s\"",
                     compiled ? "torch-compile" : "torch-sdpa", row[i].recipe);
            struct plan p = plan_of(words);
            int products = 0;
            assert_int_equal(lower(&p, 0, &s), 0);
            for (int pass = 0; pass < NPASS; pass++)
                for (int k = 0; k < s.program.piece[PIECE_BLOCK].nkernels[pass]; k++) {
                    const struct kernel *at = &s.program.piece[PIECE_BLOCK].kernels[pass][k];
                    if (at->kind != KC_GEMM || at->m == 0)
                        continue;
                    products++;
                    assert_int_equal(at->scaled, pass == PASS_FORWARD ? row[i].forward : strstr(at->name, "dW") ? row[i].dw : row[i].dx);
                    /* operands of a byte (or two), results of two */
                    int64_t e = at->scaled ? 1 : 2;
                    assert_int_equal(at->bytes, e * (at->m * at->k + at->k * at->n) + 2 * at->m * at->n);
                }
            assert_int_equal(products, 21);
            schedules_free(&s);
            plan_free(&p);
        }
}

/* ---- memory ---- */

/* Scales of float8 gathers are numbers, 512 bytes each, that are not counted: at most 64. */
#define SCALES (64 * 512)

/* Peaks within 0.01 %.  With tensor parallelism and tensorwise scales the trackers count less than is there (README.md): not compared. */
static bool step_agrees(json_t *line, const json_t *models)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    json_t *plan = json_object_get(line, "plan");
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;

    json_object_set(plan, "model", json_object_get(models, json_string_value(json_object_get(plan, "model"))));
    assert_int_equal(plan_from_json(plan, name, &p), 0);
    bool compares = !float8_tensor_parallel(&p);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    double got = (double)l.phase[SCHED_STEADY].bytes;
    double want = (double)json_integer_value(json_object_get(json_object_get(line, "steady"), "peak_total"));
    if (compares && fabs(got - want) > 1e-4 * want + SCALES)
        fail_msg("%s: %.0f bytes, PyTorch counts %.0f (%+.3f %%)", name, got, want, 100 * (got - want) / want);
    schedules_free(&s);
    plan_free(&p);
    return compares;
}

static void each_line(const char *path, void (*of)(json_t *line, const json_t *models, int *n), int *n)
{
    char text[32768];
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    json_t *head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        of(line, json_object_get(head, "models"), n);
        json_decref(line);
    }
    json_decref(head);
    fclose(f);
}

static void count_step(json_t *line, const json_t *models, int *n) { *n += step_agrees(line, models); }

static void steps_take_what_pytorch_counted(void **state)
{
    int n = 0;

    (void)state;
    each_line("tests/golden/float8/steps.jsonl", count_step, &n);
    assert_true(n >= 12);
}

/* ---- torch.compile() ---- */

static int recorded_products(const json_t *calls)
{
    int n = 0;

    for (size_t i = 0; i < json_array_size(calls); i++)
        n += !strncmp(json_string_value(json_array_get(calls, i)), "scaled_mm", 9);
    return n;
}

/* What forward keeps, but for numbers and rows of numbers (scales, 512 bytes each at least); products of 8-bit floats, those that a
 * recompute runs again among them. */
static void graph_agrees(json_t *line, const json_t *models, int *n)
{
    const char *recompute = json_string_value(json_object_get(line, "recompute")), *recipe = json_string_value(json_object_get(line, "fp8"));
    int64_t saved = json_integer_value(json_object_get(line, "saved")), scales = 32 * 1024;
    enum piece_id id = strcmp(recompute, "none") ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK;
    struct schedules s = { 0 };
    struct plan p;

    if (json_is_true(json_object_get(line, "async")))   /* the pass's fused operators are not in the lists */
        return;
    json_t *plan = json_pack("{s:i, s:O, s:s, s:O, s:O, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:O, s:O}}", "dpx_plan", 1, "model",
                             json_object_get(models, json_string_value(json_object_get(line, "model"))), "cluster", "8xh100", "seq",
                             json_object_get(line, "seq"), "micro_batch", json_object_get(line, "batch"), "strategy", "fsdp", "dialect", "torch",
                             "precision", "bf16", "kernels", "torch-compile", "recompute", recompute, "fp8", recipe, "parallel", "tensor",
                             json_object_get(line, "tensor"), "async_tensor", json_object_get(line, "async"));
    assert_int_equal(plan_from_json(plan, "graph", &p), 0);
    json_decref(plan);
    assert_int_equal(lower(&p, 0, &s), 0);
    const struct piece *b = &s.program.piece[id];
    if (b->saved > saved || b->saved < saved - scales)
        fail_msg("%s, recompute %s: %lld bytes are kept, the partitioner keeps %lld", recipe, recompute, (long long)b->saved, (long long)saved);
    for (int pass = 0; pass < NPASS; pass++) {
        int got = 0, want = recorded_products(json_object_get(line, pass == PASS_FORWARD ? "forward" : "backward"));
        for (int k = 0; k < b->nkernels[pass]; k++)
            got += b->kernels[pass][k].m > 0 && b->kernels[pass][k].scaled;
        if (got != want)
            fail_msg("%s, recompute %s: %d products of 8-bit floats, recorded %d", recipe, recompute, got, want);
    }
    (*n)++;
    schedules_free(&s);
    plan_free(&p);
}

static void graphs_are_those_that_inductor_gets(void **state)
{
    int n = 0;

    (void)state;
    each_line("tests/golden/float8/compile.jsonl", graph_agrees, &n);
    assert_true(n >= 4);
}

static double flops_of(const struct plan *p, enum piece_id id, enum pass pass)
{
    struct program g = { 0 };
    double sum = 0;

    assert_int_equal(program_build(p, &g), 0);
    for (int k = 0; k < g.piece[id].nkernels[pass]; k++)
        sum += g.piece[id].kernels[pass][k].flops;
    program_free(&g);
    return sum;
}

/* Products in parts beside their collectives are the same products, and what a step makes it gives back (evaluate() refuses others). */
static void parts_are_the_whole(void **state)
{
    static const char *const recipes[] = { "none", "tensorwise", "rowwise", "rowwise_with_gw_hp" }, *const recomputes[] = { "none", "full", "op" };

    (void)state;
    for (int i = 0; i < 4 * 3 * 2; i++) {
        double flops[2][NPASS];
        for (int async = 0; async < 2; async++) {
            char words[512];
            struct evaluation e;
            snprintf(words, sizeof words, OF_8B ", \"fp8\": \"%s\", \"recompute\": \"%s\", \"micro_batch\": %d, \"parallel\": { \"tensor\": 4, "
                     "\"async_tensor\": %s }", recipes[i % 4], recomputes[i / 4 % 3], 1 + i / 12, async ? "true" : "false");
            struct plan p = plan_of(words);
            for (int pass = 0; pass < NPASS; pass++)
                flops[async][pass] = flops_of(&p, recomputes[i / 4 % 3][0] == 'n' ? PIECE_BLOCK : PIECE_BLOCK_RECOMPUTED, (enum pass)pass);
            assert_int_equal(evaluate(&p, &e), 0);
            evaluation_free(&e);
            plan_free(&p);
        }
        for (int pass = 0; pass < NPASS; pass++)
            assert_close(flops[1][pass], flops[0][pass], 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_name_what_stays),
        cmocka_unit_test(what_it_is_not_modelled_for_is_refused_by_name),
        cmocka_unit_test(dpxrun_has_every_recipe),
        cmocka_unit_test(a_byte_a_weight_is_gathered),
        cmocka_unit_test(kernels_do_not_change_what_is_gathered),
        cmocka_unit_test(operands_come_and_go_around_products),
        cmocka_unit_test(products_multiply_what_the_recipe_says),
        cmocka_unit_test(steps_take_what_pytorch_counted),
        cmocka_unit_test(graphs_are_those_that_inductor_gets),
        cmocka_unit_test(parts_are_the_whole),
    };
    return cmocka_run_group_tests_name("model/float8", tests, NULL, NULL);
}
