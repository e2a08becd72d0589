/* Frozen weights in 4 and 8 bits: bytes of each tensor as bitsandbytes and torchao keep it (tests/golden/tune/packed.jsonl), of whole
 * models by arithmetic, and what a step computes with them. */
#include "tests/check.h"
#include "tests/model/refused.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/size.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/plan.h"
#include "model/program/program.h"
#include "model/schedule/ledger.h"
#include "model/schedule/units.h"

#define GOLDEN "tests/golden/tune/packed.jsonl"

static enum base_dtype base_of(const char *name)
{
    const char *const *words = knob_words("base_dtype");

    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], name))
            return (enum base_dtype)i;
    fail_msg("no base_dtype \"%s\"", name);
    return BASE_PLAIN;
}

static void layers_keep_what_bitsandbytes_keeps(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *c;
    int cases = 0;

    (void)state;
    assert_non_null(json_object_get(head, "bitsandbytes"));
    for (; (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); cases++) {
        const json_t *shape = json_object_get(c, "shape"), *want = json_object_get(c, "bytes");
        struct tensor t = { .ndim = 2, .role = ROLE_UP, .packed = base_of(json_string_value(json_object_get(c, "as"))) };
        int64_t bytes[PACKED_PARTS];
        for (size_t d = 0; d < 2; d++)
            t.shape[d] = json_integer_value(json_array_get(shape, d));
        t.numel = t.shape[0] * t.shape[1];
        assert_int_equal(packed_parts(&t, bytes), json_array_size(want));
        for (size_t i = 0; i < json_array_size(want); i++)
            if (bytes[i] != json_integer_value(json_array_get(want, i)))
                fail_msg("%s of %lld x %lld: tensor %zu has %lld bytes, there %lld", json_string_value(json_object_get(c, "as")),
                         (long long)t.shape[0], (long long)t.shape[1], i, (long long)bytes[i],
                         (long long)json_integer_value(json_array_get(want, i)));
        json_decref(c);
    }
    assert_true(cases >= 30);
    json_decref(head);
    fclose(f);
}

/* A plan of one GPU, Llama-2-7B, LoRA of rank 8 on q and v. */
static bool with_head;

static void plan_of(struct plan *p, const char *base, const char *model_dtype, const char *optimizer)
{
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-2-7b", "cluster",
                          "1xa100-80gb", "strategy", "ddp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512, "precision", "bf16",
                          "train", "lora", "base_dtype", base, "optimizer", optimizer);

    if (with_head)
        json_object_set_new(j, "base_head", json_true());
    if (model_dtype)
        json_object_set_new(j, "ddp", json_pack("{s:s}", "model_dtype", model_dtype));
    assert_int_equal(plan_from_json(j, "plan", p), 0);
    json_decref(j);
}

static int64_t persistent(const char *base, const char *model_dtype, const char *optimizer, enum category of)
{
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;

    plan_of(&p, base, model_dtype, optimizer);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    schedules_free(&s);
    plan_free(&p);
    return l.persistent[of];
}

/* 32 blocks of 4 x 4096^2 + 3 x 4096 x 11008; tables of 32000 x 4096 twice, 65 norms; adapters 2 x 8 x 8192 a block.  Double
 * quantisation: n/2 + n/64 + 4 n/(64 x 256), rounded to 512 bytes a tensor, and 1024 + 512 + 512 for tables and the mean. */
static void models_are_the_sums_of_their_layers(void **state)
{
    const int64_t square = 4096 * 4096, wide = 4096 * 11008, rest = 2 * 32000 * 4096 + 65 * 4096, adapters = 32 * 2 * 8 * 8192;
    const int64_t n[] = { square, wide }, times[] = { 4, 3 };
    int64_t nf4 = 0, twice = 0, int8 = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        nf4 += 32 * times[i] * (n[i] / 2 + 4 * n[i] / 64 + 512);
        twice += 32 * times[i] * (n[i] / 2 + n[i] / 64 + round512(4 * (n[i] / 64 / 256)) + 1024 + 512 + 512);
        int8 += 32 * times[i] * n[i];
    }
    int8 += 32 * (4 * (4 * 4096) + 2 * (4 * 11008) + 4 * 4096);
    assert_int_equal(persistent("nf4", NULL, "adamw", CAT_PARAMS), nf4 + 4 * (rest + adapters));
    assert_int_equal(persistent("nf4-double", NULL, "adamw", CAT_PARAMS), twice + 4 * (rest + adapters));
    assert_int_equal(persistent("nf4-double", "bf16", "adamw", CAT_PARAMS), twice + 2 * rest + 4 * adapters);
    int64_t ao = 0;
    for (int i = 0; i < 2; i++)         /* n/2 + n/64 + 2 n/(64 x 256), the mean and a table of 32 bytes */
        ao += 32 * times[i] * (n[i] / 2 + n[i] / 64 + round512(2 * (n[i] / 64 / 256)) + 512 + 512);
    assert_int_equal(persistent("nf4-torchao", "bf16", "adamw", CAT_PARAMS), ao + 2 * rest + 4 * adapters);
    assert_int_equal(persistent("int8", NULL, "adamw", CAT_PARAMS), int8 + 4 * (rest + adapters));
    assert_int_equal(persistent("plain", "bf16", "adamw", CAT_PARAMS), 2 * (32 * (4 * square + 3 * wide) + rest) + 4 * adapters);
    /* Of what trains: AdamW's two states; paged, those of 8 x 4096 = 32768 elements are below 1e5 and stay. */
    assert_int_equal(persistent("nf4", NULL, "adamw", CAT_OPTIMIZER), 8 * adapters);
    assert_int_equal(persistent("nf4", NULL, "paged_adamw_32bit", CAT_OPTIMIZER), 8 * adapters);
}

/* A head of 32000 x 4096 in 4 bits (NeMo Automodel's loader): n/2 + 4 n/64 + 512 bytes in the place of 2 n, and its weight is made for its product and again for
 * that of its input's gradient. */
static void a_head_is_packed_where_a_loader_leaves_none_out(void **state)
{
    const int64_t n = 32000 * 4096;
    int64_t whole = persistent("nf4", "bf16", "adamw", CAT_PARAMS);
    struct program g = { 0 };
    struct plan p;

    (void)state;
    with_head = true;
    assert_int_equal(persistent("nf4", "bf16", "adamw", CAT_PARAMS) - whole, n / 2 + 4 * n / 64 + 512 - 2 * n);
    plan_of(&p, "nf4", "bf16", "adamw");
    with_head = false;
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++) {
        int made = 0;
        for (int k = 0; k < g.piece[PIECE_HEAD].nkernels[pass]; k++)
            made += strstr(g.piece[PIECE_HEAD].kernels[pass][k].name, "dequantise") != NULL;
        assert_int_equal(made, 1);
    }
    program_free(&g);
    plan_free(&p);
}

/* Adapters of rank 64 have 262,144 elements: all of their states are paged. */
static void paged_states_are_the_hosts(void **state)
{
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;
    int64_t host = 0;

    (void)state;
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:{s:i}, s:s, s:s}", "dpx_plan", 1, "model", "llama-2-7b",
                          "cluster", "1xa100-80gb", "strategy", "ddp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512, "precision",
                          "bf16", "train", "lora", "lora", "rank", 64, "base_dtype", "nf4", "optimizer", "paged_adamw_32bit");
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    for (int i = 0; i < s.nbufs; i++)
        host += s.bufs[i].space == SPACE_HOST && s.bufs[i].category == CAT_OPTIMIZER ? s.bufs[i].bytes : 0;
    assert_int_equal(host, 8 * (int64_t)32 * 2 * 64 * 8192);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 0);
    schedules_free(&s);
    plan_free(&p);
}

/* Each frozen layer of a block makes its weight twice a step: before its product and before that of its input's gradient,
 * but for q, k and v of the first block, whose input wants none. */
static void weights_are_made_in_both_passes(void **state)
{
    struct program g = { 0 };
    struct plan p;
    int made[NPASS] = { 0 }, products[NPASS] = { 0 };

    (void)state;
    plan_of(&p, "nf4", NULL, "adamw");
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++) {
            const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[pass][i];
            made[pass] += !strcmp(k->name, "dequantise");
            products[pass] += k->kind == KC_GEMM && strncmp(k->name, "adapter", 7) != 0;
        }
    assert_int_equal(made[PASS_FORWARD], 7);
    assert_int_equal(made[PASS_BACKWARD], 7);
    assert_int_equal(products[PASS_FORWARD], 7);
    assert_int_equal(products[PASS_BACKWARD], 7);
    made[PASS_BACKWARD] = 0;
    for (int i = 0; i < g.piece[PIECE_FIRST].nkernels[PASS_BACKWARD]; i++)
        made[PASS_BACKWARD] += !strcmp(g.piece[PIECE_FIRST].kernels[PASS_BACKWARD][i].name, "dequantise");
    assert_int_equal(made[PASS_BACKWARD], 4);
    program_free(&g);
    plan_free(&p);
}

/* get_original_weight(), read off operator by operator and counted as it runs on the CPU (14.0 bytes a weight live at its fullest, 33.1 read and written with scales
 * of blocks): two int64 indices (4 + 4), two look-ups (1 + 1), two products (1 + 1), the result (2).  Seven weights a pass. */
static void torchaos_nf4_is_made_by_pytorchs_operators(void **state)
{
    struct program g = { 0 };
    struct plan p;

    (void)state;
    plan_of(&p, "nf4-torchao", "bf16", "adamw");
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++) {
        int64_t live = 0, before = 0, moved = 0;
        int made = 0;
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++) {
            const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[pass][i];
            if (!strcmp(k->name, "shift codes"))
                before = live, moved = 0;
            moved += k->bytes;
            if (!strcmp(k->name, "stack halves")) {
                int64_t weights = k->bytes / 4;
                assert_int_equal(live - before + k->peak[MEM_TEMPORARIES], 14 * weights);
                assert_int_equal(moved, 33 * weights);
                assert_true(weights == 4096 * 4096 || weights == 4096 * 11008);
                made++;
            }
            live += k->net[MEM_TEMPORARIES];
        }
        assert_int_equal(made, 7);
    }
    program_free(&g);
    plan_free(&p);
}

/* What FSDP2 cuts in eight: bitsandbytes' codes, n/2, statistics whole on each rank; torchao's blocks' scalers and their factors, too, all but 1 KiB. */
static void torchaos_statistics_are_cut(void **state)
{
    const int64_t n[] = { 4096 * 4096, 4096 * 11008 }, times[] = { 4, 3 };
    static const char *const base[] = { "nf4-double", "nf4-torchao" };
    int64_t params[2], more = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:{s:s}}", "dpx_plan", 1, "model", "llama-2-7b", "cluster", "8xa100-80gb", "strategy",
                              "fsdp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512, "precision", "bf16", "train", "lora", "base_dtype", base[i], "fsdp",
                              "model_dtype", "bf16");
        struct schedules s = { 0 };
        struct ledger l;
        struct plan p;
        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        json_decref(j);
        assert_int_equal(lower(&p, 0, &s), 0);
        ledger_run(&s, &l);
        params[i] = l.persistent[CAT_PARAMS];
        schedules_free(&s);
        plan_free(&p);
        more += 32 * times[i] * (n[i] / 64 + round512(4 * (n[i] / 64 / 256)) + 1024 + 512 + 512);       /* whole, of bitsandbytes */
    }
    for (int i = 0; i < 2; i++)
        more -= 32 * times[i] * (round512((n[i] / 2 + n[i] / 64 + 2 * (n[i] / 64 / 256)) / 8) - n[i] / 2 / 8 + 512 + 512);
    assert_int_equal(params[0] - params[1], more);
}

/* torchao: one byte an element, and five a row (4096, or 11008 of gate and up).  Its weight is made in forward and kept by the product, so
 * backward makes none; the first block's q, k and v have an input that wants no gradient and keep none. */
static void torchaos_weights_are_kept_as_they_are_made(void **state)
{
    const int64_t square = 4096 * 4096, wide = 4096 * 11008, rest = 2 * 32000 * 4096 + 65 * 4096, adapters = 32 * 2 * 8 * 8192;
    struct program g = { 0 }, plain = { 0 };
    struct plan p, beside;
    int made[NPASS] = { 0 };

    (void)state;
    assert_int_equal(persistent("int8-torchao", "bf16", "adamw", CAT_PARAMS),
                     32 * (4 * square + 3 * wide) + 32 * (5 * (5 * 4096) + 2 * (4 * 11008 + round512(11008))) + 2 * rest + 4 * adapters);
    plan_of(&p, "int8-torchao", "bf16", "adamw");
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++)
            made[pass] += !strcmp(g.piece[PIECE_BLOCK].kernels[pass][i].name, "cast codes");
    assert_int_equal(made[PASS_FORWARD], 7);
    assert_int_equal(made[PASS_BACKWARD], 0);
    plan_of(&beside, "plain", "bf16", "adamw");
    assert_int_equal(program_build(&beside, &plain), 0);
    assert_int_equal(g.piece[PIECE_BLOCK].saved - plain.piece[PIECE_BLOCK].saved, 2 * (4 * square + 3 * wide + 5 * 4096 + 2 * 11008));
    assert_int_equal(g.piece[PIECE_FIRST].saved - plain.piece[PIECE_FIRST].saved, 2 * (square + 3 * wide + 2 * 4096 + 2 * 11008));
    program_free(&plain);
    program_free(&g);
    plan_free(&beside);
    plan_free(&p);
}

/* Blocks' weights in each of torchao's packings and in nf4-double, whose sums a refusal names: n/2 and 4 bytes a group of 128; tiled, rows of
 * 11008 are made 11264 long. */
static void four_bits_of_torchao_are_refused_in_the_frameworks_words(void **state)
{
    static const char *const word[] = { "int4-torchao", "int4-torchao-tiled" }, *const packing[] = { "plain", "tile_packed_to_4d" };
    const int64_t square = 4096 * 4096, wide = 4096 * 11008, padded = 4096 * 11264;
    const int64_t want[] = { 32 * (4 * (square / 2 + square / 32) + 3 * (wide / 2 + wide / 32)),
                             32 * (4 * (square / 2 + square / 32) + 2 * (wide / 2 + wide / 32) + padded / 2 + padded / 32) };
    FILE *f = fopen("tests/golden/tune/int4.jsonl", "r");
    json_t *c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
    int held = 0;
    struct plan p;

    (void)state;
    assert_string_equal(json_string_value(json_object_get(c, "torchao")), "0.18.0");
    plan_of(&p, "nf4", NULL, "adamw");
    for (int i = 0; i < 2; i++)
        assert_int_equal(packed_weights(&p.model, base_of(word[i])), want[i]);
    plan_free(&p);
    for (json_decref(c); (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); json_decref(c)) {
        const char *what = json_string_value(json_object_get(c, "case")), *says = json_string_value(json_object_get(c, "says"));
        bool lora = !strcmp(what, "a step");
        if (!lora && strcmp(what, "a step of norms") != 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (!strcmp(json_string_value(json_object_get(c, "packing")), packing[i])) {
                json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:s}", "dpx_plan", 1, "model", "llama-2-7b", "cluster",
                                      "2xa100-80gb", "strategy", i ? "fsdp" : "ddp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512,
                                      "precision", "bf16", "train", lora ? json_string("lora") : json_pack("[s]", "*layernorm*"), "base_dtype",
                                      word[i]);
                char why[768], quoted[256];
                fail_capture(why, sizeof why);
                assert_int_equal(plan_from_json(j, "plan", &p), -1);
                fail_capture(NULL, 0);
                json_decref(j);
                assert_int_equal(sscanf(why, "%*[^\"]\"%255[^\"]", quoted), 1);
                if (!strstr(says, quoted) || !strstr(why, size_text(want[i]).s))
                    fail_msg("\"%s\" is not what was recorded: %s", why, says);
                held++;
            }
    }
    assert_int_equal(held, 4);
    fclose(f);
}

static void refuses(const char *key, json_t *value, const char *because)
{
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-2-7b", "cluster",
                          "1xa100-80gb", "strategy", "ddp", "dialect", "torch", "kernels", "torch-sdpa", "seq", 512, "precision", "bf16",
                          "train", "lora", "base_dtype", "int8");

    json_object_set_new(j, key, value);
    refused(j, because);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    refuses("precision", json_string("fp32"), "set precision bf16");
    refuses("recompute", json_string("op"), "int8 layers keep their input");
    refuses("train", json_string("all"), "everything trains");
    refuses("train", json_pack("[s]", "*.q_proj.weight"), "weights in int8 do not train");
    refuses("lora", json_pack("{s:[s]}", "modules_to_save", "o_proj"), "do not train");
    refuses("base_dtype", json_string("int4"), "\"nf4-double\"");
    refuses("base_head", json_true(), "base_head: a head in 4 bits is planned as nf4 and nf4-double");
    refuses("base_dtype", json_string("int8-torchao"), "ddp.model_dtype to bf16");
    static const struct { const char *keys, *because; } nf4[] = {
        { "\"cluster\": \"2xh100\", \"model\": \"llama-2-7b\"", "planned under FSDP2 and on one GPU" },
        { "\"cluster\": \"1xh100\", \"model\": \"llama-2-7b\", \"kernels\": \"dpx\"", "unpack NF4 as bitsandbytes does" },
        { "\"cluster\": \"1xh100\", \"model\": \"gpt2\", \"dialect\": \"torch-fsdp1\", \"strategy\": \"fsdp\"", "planned under FSDP2 and on one GPU" },
        /* k and v of 896 x 128 weights are 7 x 16384 */
        { "\"cluster\": \"8xh100\", \"model\": \"qwen2.5-0.5b\", \"strategy\": \"fsdp\", \"fsdp\": {\"model_dtype\": \"bf16\"}", "not whole blocks of 64 x 256 on 8 ranks" },
    };
    for (size_t i = 0; i < sizeof nf4 / sizeof *nf4; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"dpx_plan\": 1, \"strategy\": \"ddp\", \"dialect\": \"torch\", \"kernels\": \"torch-sdpa\", \"seq\": 512, \"precision\": \"bf16\","
                 " \"train\": \"lora\", \"base_dtype\": \"nf4-torchao\", %s}", nf4[i].keys);
        refused(json_loads(text, 0, NULL), nf4[i].because);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_keep_what_bitsandbytes_keeps),
        cmocka_unit_test(models_are_the_sums_of_their_layers),
        cmocka_unit_test(a_head_is_packed_where_a_loader_leaves_none_out),
        cmocka_unit_test(paged_states_are_the_hosts),
        cmocka_unit_test(weights_are_made_in_both_passes),
        cmocka_unit_test(torchaos_weights_are_kept_as_they_are_made),
        cmocka_unit_test(torchaos_nf4_is_made_by_pytorchs_operators),
        cmocka_unit_test(torchaos_statistics_are_cut),
        cmocka_unit_test(four_bits_of_torchao_are_refused_in_the_frameworks_words),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests_name("model/arch/packed", tests, NULL, NULL);
}
