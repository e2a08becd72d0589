/* DeepSpeed's Ulysses: what it sends, refuses and writes, in numbers that a reader can redo.  Lists that DeepSpeed itself issued are in
 * test_collectives.c (golden/collectives/deepspeed, *_sp*), training in tests/mpi/test_grid.sh.
 * A layer of Llama 3.1 8B with 131,072 positions over 8 ranks: a rank's queries, and its output, are 16,384 x 4,096 elements of
 * bf16, 128 MiB; its keys 16,384 x 1,024, 32 MiB, and its values as much. */
#include "tests/model/ds_imported.h"
#include "tests/plan_words.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/program/program.h"
#include "model/schedule/schedule.h"

#define MIB (1024.0 * 1024.0)

#define PLAN "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '%s', 'dialect': 'deepspeed', 'micro_batch': 1, 'precision': 'bf16', %s }"

static struct plan plan_of(const char *cluster, const char *words) { return plan_in_words(PLAN, cluster, words); }

static void refused(const char *words, const char *because) { plan_words_refused(because, PLAN, "8xh100", words); }

static void sends(const struct schedules *s, enum phase phase, int64_t calls, double mib)
{
    struct sent_over c = sent_over(s, GROUP_CONTEXT, phase, COLL_ALL_TO_ALL);

    assert_int_equal(c.calls, calls);
    assert_int_equal(c.bytes, (int64_t)(mib * MIB));
}

/* q, k, v and the output, of which 7 of 8 parts go to others: 280 MiB a layer, and their gradients as much. */
static void sends_what_the_paper_says(void **state)
{
    static const char *const stages[] = { "zero1", "zero2", "zero3", "ddp" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct schedules s = { 0 };
        char words[200];
        snprintf(words, sizeof words, "\"strategy\": \"%s\", \"seq\": 131072, \"parallel\": { \"context\": 8 }", stages[i]);
        struct plan p = plan_of("8xh100", words);
        assert_int_equal(lower(&p, 0, &s), 0);
        sends(&s, PHASE_FORWARD, 4 * 32, 32 * 280);
        sends(&s, PHASE_BACKWARD, 4 * 32, 32 * 280);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* What a rank's blocks keep under FSDP2, with LoRA of every linear layer or without. */
static int64_t kept(int context, int seq, bool adapts)
{
    char words[400];
    struct program g = { 0 };

    snprintf(words, sizeof words, "{ \"dpx_plan\": 1, \"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"strategy\": \"fsdp\", \"dialect\": \"torch\", \"precision\": \"bf16\", "
             "\"fsdp\": { \"model_dtype\": \"bf16\" }, \"seq\": %d, \"parallel\": { \"context\": %d%s }%s }", seq, context, context > 1 ? ", \"context_method\": \"ulysses\"" : "",
             adapts ? ", \"train\": \"lora\", \"lora\": { \"rank\": 64, \"narrow\": true, \"target_modules\": \"all-linear\" }" : "");
    json_t *doc = json_loads(words, 0, NULL);
    struct plan p;
    assert_int_equal(plan_from_json(doc, "p", &p), 0);
    json_decref(doc);
    assert_int_equal(program_build(&p, &g), 0);
    int64_t saved = g.piece[PIECE_BLOCK].saved;
    program_free(&g);
    plan_free(&p);
    return saved;
}

/* Adapters see what their layers see: of a sample over two ranks they keep what they keep of one of half the length.  (Frozen layers keep less.) */
static void adapters_have_the_positions_of_their_rank(void **state)
{
    (void)state;
    assert_true(kept(1, 2048, true) < kept(1, 2048, false));
    assert_int_equal(kept(2, 4096, true) - kept(2, 4096, false), kept(1, 2048, true) - kept(1, 2048, false));
}

#define OSS "{ 'dpx_plan': 1, 'model': 'seed-oss-36b', 'cluster': '8xh100', 'strategy': 'fsdp', 'dialect': 'torch', 'precision': 'bf16', " \
            "'fsdp': { 'model_dtype': 'bf16' }, 'seq': %d, 'dropout': %s, 'parallel': { 'context': %d, 'context_method': '%s' } }"

static int64_t kept_dropped(int context, int seq, const char *dropout)
{
    struct plan p = plan_in_words(OSS, seq, dropout, context, "ulysses");
    struct program g = { 0 };

    assert_int_equal(program_build(&p, &g), 0);
    int64_t saved = g.piece[PIECE_BLOCK].saved;
    program_free(&g);
    plan_free(&p);
    return saved;
}

/* Seed-OSS drops attention's probabilities, in the kernel, which keeps its generator's state whether it drops or not; and what attention and MLP
 * give, whose masks are of the rank's own positions: a byte an element, 5120 a position, twice.  A ring would drop by parts. */
static void attention_drops_inside_its_kernel(void **state)
{
    (void)state;
    assert_int_equal(kept_dropped(2, 4096, "0.1") - kept_dropped(2, 4096, "0"), 2 * 2048 * 5120);
    plan_words_refused("but for ulysses", OSS, 4096, "0.1", 2, "ring");
}

/* Experts compute the rank's own rows: under FSDP1 as verl has Ulysses, Qwen3-30B-A3B's 48 blocks exchange what their attention is.  Of 32,768
 * positions a rank of 4 has 8192: 32 heads of 128 of queries, and of the output, 64 MiB; 4 of keys, and of values, 8 MiB. */
static void experts_have_the_positions_of_their_rank(void **state)
{
    static const char *const dialects[] = { "torch", "torch-fsdp1" }, *const methods[] = { ", \"context_method\": \"ulysses\"", "" };       /* FSDP1 has no other */

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct schedules s = { 0 };
        char words[400];
        snprintf(words, sizeof words, "{ \"dpx_plan\": 1, \"model\": \"qwen3-30b-a3b\", \"cluster\": \"8xh100\", \"strategy\": \"fsdp\", \"dialect\": \"%s\", "
                 "\"precision\": \"bf16\", \"micro_batch\": 1, \"seq\": 32768, \"parallel\": { \"context\": 4%s } }", dialects[i], methods[i]);
        json_t *doc = json_loads(words, 0, NULL);
        struct plan p;
        assert_int_equal(plan_from_json(doc, "p", &p), 0);
        json_decref(doc);
        assert_int_equal(lower(&p, 0, &s), 0);
        sends(&s, PHASE_FORWARD, 4 * 48, 48 * (2 * 64 + 2 * 8) * 0.75);
        sends(&s, PHASE_BACKWARD, 4 * 48, 48 * (2 * 64 + 2 * 8) * 0.75);
        schedules_free(&s);
        struct program g = { 0 };
        int found = 0;
        assert_int_equal(program_build(&p, &g), 0);
        for (int k = 0; k < g.piece[PIECE_BLOCK].nkernels[PASS_FORWARD]; k++) {
            const struct kernel *of = &g.piece[PIECE_BLOCK].kernels[PASS_FORWARD][k];
            if (strncmp(of->name, "experts", 7) || of->kind != KC_GEMM)
                continue;
            assert_int_equal(of->batch * of->m, 8192 * 8);
            found++;
        }
        assert_int_equal(found, 2);
        program_free(&g);
        plan_free(&p);
    }
}

/* 16 ranks, 8 heads of keys: each is repeated once.  A rank's queries are 64 MiB, its keys 32 where they were 16. */
static void repeats_heads_of_keys(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("2x8xh100", "\"strategy\": \"zero3\", \"seq\": 131072, \"parallel\": { \"context\": 16 }");
    assert_int_equal(lower(&p, 0, &s), 0);
    sends(&s, PHASE_FORWARD, 4 * 32, 32 * (2 * 64 + 2 * 32) * 15.0 / 16);
    sends(&s, PHASE_BACKWARD, 4 * 32, 32 * (2 * 64 + 2 * 32) * 15.0 / 16);
    schedules_free(&s);
    plan_free(&p);
}

static int add_reduced(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    int64_t *elems = arg;

    (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_REDUCE_SCATTER && sched_group(s, o)->is == GROUP_DATA) {
        assert_int_equal(sched_group(s, o)->ranks, 16);
        assert_int_equal(o->u.coll.dtype, DT_FP32);
        *elems += o->u.coll.elems;
    }
    return 0;
}

/* ZeRO's group has all that hold the same parameters; gradients travel in fp32. */
static void reduces_over_all_ranks_in_fp32(void **state)
{
    struct schedules s = { 0 };
    int64_t elems = 0;

    (void)state;
    struct plan p = plan_of("2x8xh100", "\"strategy\": \"zero3\", \"seq\": 8192, \"parallel\": { \"context\": 8 }");
    assert_int_equal(p.reduce_dtype, DT_FP32);
    assert_int_equal(plan_global_batch(&p), 2);
    assert_int_equal(lower(&p, 0, &s), 0);
    sched_walk(&s, SCHED_STEADY, add_reduced, &elems);
    assert_int_equal(elems, p.model.params);            /* each tensor divides by 16 */
    schedules_free(&s);
    plan_free(&p);
}

/* Stage 0: all gradients once, over all ranks. */
static void stage_0_sums_over_all_ranks(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("2x8xh100", "\"strategy\": \"ddp\", \"seq\": 8192, \"parallel\": { \"context\": 8 }");
    assert_int_equal(lower(&p, 0, &s), 0);
    struct sent_over c = sent_over(&s, GROUP_DATA, PHASE_REDUCE, COLL_ALL_REDUCE);
    assert_close((double)c.bytes, 4.0 * (double)p.model.params * 2 * 15 / 16, 1e-6);
    schedules_free(&s);
    plan_free(&p);
}

/* Stage 0 takes ranks that share positions for model-parallel ones: they agree on overflow and on the norm, in fp32 with clip on the norm,
 * without it on nothing. */
static void stage_0_agrees_on_the_norm(void **state)
{
    static const struct { const char *words; int64_t calls; } of[] = {
        { "\"clip\": 1", 2 }, { "\"precision\": \"fp16\", \"clip\": 0", 2 },
        { "\"precision\": \"fp32\", \"clip\": 1", 1 }, { "\"precision\": \"fp32\", \"clip\": 0", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct schedules s = { 0 };
        char words[200];
        snprintf(words, sizeof words, "\"strategy\": \"ddp\", \"seq\": 8192, \"parallel\": { \"context\": 8 }, %s", of[i].words);
        struct plan p = plan_of("2x8xh100", words);
        assert_int_equal(lower(&p, 0, &s), 0);
        assert_int_equal(sent_over(&s, GROUP_CONTEXT, PHASE_OPTIMIZER, COLL_ALL_REDUCE).calls, of[i].calls);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* And masks all of the gradient on ranks behind the first of them: such a rank is lowered by itself. */
static void stage_0_masks_behind_the_first(void **state)
{
    int64_t ranks[LOWER_KINDS];

    (void)state;
    struct plan p = plan_of("2x8xh100", "\"strategy\": \"ddp\", \"seq\": 8192, \"parallel\": { \"context\": 8 }");
    assert_int_equal(lower_ranks(&p, ranks), 2);
    assert_int_equal(ranks[1], 1);
    for (int i = 0; i < 2; i++) {
        struct schedules s = { 0 };
        int masks = 0;
        assert_int_equal(lower(&p, ranks[i], &s), 0);
        for (int o = 0; o < s.nops; o++)
            masks += s.ops[o].kind == OP_COPY && !strcmp(s.ops[o].what, "masked gradients");
        assert_int_equal(masks > 0, i);
        schedules_free(&s);
    }
    plan_free(&p);
}

static void refuses_by_name(void **state)
{
    (void)state;
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"parallel\": { \"context\": 8, \"context_method\": \"ring\" }", "parallel.context_method: ");
    refused("\"strategy\": \"zero2\", \"seq\": 8191, \"parallel\": { \"context\": 8 }", "seq 8191 does not divide");
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"kernels\": \"torch-eager\", \"parallel\": { \"context\": 8 }",
            "takes the place of scaled_dot_product_attention()");
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"loss\": \"chunked\", \"parallel\": { \"context\": 8 }", "loss: chunked and linear-chunks are torchtune's");
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"model\": \"gpt2\", \"parallel\": { \"context\": 4 }", "num_key_value_heads");
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"framework_version\": \"0.16.4\", \"parallel\": { \"context\": 8 }", "known of DeepSpeed 0.19.6");
    refused("\"strategy\": \"zero1\", \"seq\": 8192, \"parallel\": { \"context\": 8 }, \"deepspeed\": { \"grad_accum_dtype\": \"fp32\" }",
            "list index out of range");
    refused("\"strategy\": \"zero1\", \"seq\": 8192, \"framework_version\": \"0.19.8\", \"parallel\": { \"context\": 8 }, \"deepspeed\": { "
            "\"grad_accum_dtype\": \"fp32\" }", "stack expects a non-empty TensorList");
    refused("\"strategy\": \"zero2\", \"seq\": 8192, \"parallel\": { \"context\": 8 }, \"deepspeed\": { \"communication_data_type\": \"bf16\" }",
            "reduces in fp32 all the same");
    refused("\"strategy\": \"zero2\", \"seq\": 8190, \"parallel\": { \"context\": 3 }", "does not divide the world of 8 ranks");
}

/* ---- ds_config.json ---- */

static int import(struct plan *p, const char *config)
{
    *p = plan_of("8xh100", "\"strategy\": \"zero2\", \"seq\": 8192");
    return ds_imported(p, config);
}

/* 8 ranks, 4 of which share samples: 2 x 3 x 5 = 30 samples a step. */
static void its_config_states_the_ranks_that_share_positions(void **state)
{
    struct plan p, again;

    (void)state;
    assert_int_equal(import(&p, "{ \"sequence_parallel_size\": 4, \"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 3,"
                                " \"bf16\": { \"enabled\": true }, \"zero_optimization\": { \"stage\": 3 } }"), 0);
    assert_int_equal(p.parallel.context, 4);
    assert_int_equal(p.parallel.context_method, CONTEXT_ULYSSES);
    assert_false(p.parallel.context_balance);
    assert_int_equal(p.accumulation, 5);
    assert_int_equal(p.reduce_dtype, DT_FP32);
    json_t *j = ds_config_export(&p);
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_object_get(j, "sequence_parallel_size")), 4);
    assert_int_equal(json_integer_value(json_object_get(j, "train_batch_size")), 30);
    char *text = json_dumps(j, 0);
    assert_int_equal(import(&again, text), 0);
    assert_int_equal(again.parallel.context, 4);
    free(text);
    json_decref(j);
    plan_free(&again);
    plan_free(&p);
}

static void import_refused(const char *config, const char *because)
{
    char why[512] = "";
    struct plan p;

    fail_capture(why, sizeof why);
    int rc = import(&p, config);
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    plan_free(&p);
}

static void its_config_is_refused_by_name(void **state)
{
    (void)state;
    import_refused("{ \"sequence_parallel_size\": 3, \"train_batch_size\": 8, \"zero_optimization\": { \"stage\": 2 } }",
                   "context 3 x pipeline 1 does not divide the world of 8 ranks");
    import_refused("{ \"sequence_parallel_size\": 16, \"train_batch_size\": 8, \"zero_optimization\": { \"stage\": 2 } }",
                   "does not divide the world of 8 ranks");
    import_refused("{ \"sequence_parallel_size\": 2, \"train_batch_size\": 8, \"seq_parallel_communication_data_type\": \"bf16\","
                   " \"bf16\": { \"enabled\": true }, \"zero_optimization\": { \"stage\": 2 } }", "only fp32, the default");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_what_the_paper_says), cmocka_unit_test(adapters_have_the_positions_of_their_rank), cmocka_unit_test(attention_drops_inside_its_kernel),
        cmocka_unit_test(experts_have_the_positions_of_their_rank),
        cmocka_unit_test(repeats_heads_of_keys),
        cmocka_unit_test(reduces_over_all_ranks_in_fp32), cmocka_unit_test(stage_0_sums_over_all_ranks),
        cmocka_unit_test(stage_0_agrees_on_the_norm), cmocka_unit_test(stage_0_masks_behind_the_first),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(its_config_states_the_ranks_that_share_positions), cmocka_unit_test(its_config_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
