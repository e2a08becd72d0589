/* Megatron-LM's parameters in 8 and 4 bits: what a rank keeps of them, what it gathers, and the largest numbers that ranks agree on, by counting.
 * Llama-3.1 8B, h 4096, ffn 14336, 8 heads of keys and values of 128: a block's four weights are h (h + 2 x 1024) + h h + 3 h 14336. */
#include "tests/model/plans.h"

#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/local_model.h"
#include "model/program/te_model.h"

enum { BLOCKS = 4, RANKS = 8 };
#define WEIGHTS (BLOCKS * (INT64_C(4096) * (4096 + 2048) + INT64_C(4096) * 4096 + 3 * INT64_C(4096) * 14336))
#define REST    (2 * INT64_C(128256) * 4096 + (2 * BLOCKS + 1) * INT64_C(4096))

struct kind { const char *gpu; enum scaled s; bool now, gathers; };

static void of(struct plan *p, struct kind k, enum strategy s)
{
    struct megatron_options *o = &p->megatron;

    plan_of(p, "llama-3.1-8b", BLOCKS, RANKS, s, DIALECT_MEGATRON, DT_BF16);
    p->cluster.gpu = *gpu_find(k.gpu);
    o->fp4_format = k.s == SCALED_NVFP4 ? FP4_E2M1 : FP4_OFF;
    o->fp8_format = k.s == SCALED_NVFP4 || !k.s ? FP8_OFF : FP8_HYBRID;
    o->fp8_recipe = k.s == SCALED_MXFP8 ? FP8_MXFP8 : k.s == SCALED_FP8_BLOCK ? FP8_BLOCKWISE : k.now ? FP8_TENSORWISE : FP8_DELAYED;
    o->fp8_param_gather = k.gathers;
    o->reuse_grad_buf_for_mxfp8_param_ag = k.gathers && k.s == SCALED_MXFP8;
    plan_resolve(p);
}

/* Bytes of a weight of a block, codes and parameter together; gradients take 4 and states 12 / 8 more, of all others 2 + 4 + 12 / 8. */
static void a_weight_is_kept_in_one_way_or_two(void **state)
{
    static const struct { struct kind k; double bytes; } cases[] = {
        { { "h100", SCALED_NONE, false, false }, 2 },           { { "h100", SCALED_FP8_TENSOR, false, false }, 2 + 2 },
        { { "h100", SCALED_FP8_TENSOR, false, true }, 2 },      { { "b200", SCALED_FP8_TENSOR, true, false }, 2 + 1 },
        { { "b200", SCALED_FP8_TENSOR, true, true }, 1 },       { { "h100", SCALED_FP8_BLOCK, false, false }, 2 + 2 * 33. / 32 },
        { { "h100", SCALED_FP8_BLOCK, false, true }, 2 * 33. / 32 }, { { "b200", SCALED_MXFP8, false, false }, 2 + 2 * 33. / 32 },
        { { "b200", SCALED_MXFP8, false, true }, 2 * 33. / 32 }, { { "b200", SCALED_NVFP4, false, false }, 2 + 2 * 9. / 16 },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t sum = 0;
        struct plan p;
        of(&p, cases[i].k, STRAT_ZERO1);
        lowered(&p, 0, &s);
        for (int b = 0; b < s.nbufs; b++)
            if (s.bufs[b].category == CAT_PARAMS || s.bufs[b].category == CAT_GRADS || s.bufs[b].category == CAT_OPTIMIZER)
                sum += s.bufs[b].bytes * (strcmp(s.bufs[b].what, "parameters as they were made") != 0);
        assert_close((double)sum, (double)WEIGHTS * (cases[i].bytes + 5.5) + (double)REST * 7.5, 1e-4);
        plan_free(&p);
    }
    schedules_free(&s);
}

static int64_t gathered(const struct schedules *s, enum dtype t)
{
    struct comm_table table;
    int64_t sum = 0;

    evaluation_comm_count(s, SCHED_STEADY, &table);
    for (int i = 0; i < table.n; i++)
        sum += table.line[i].op == COLL_ALL_GATHER && table.line[i].dtype == t ? table.line[i].bytes : 0;
    return sum;
}

/* Codes go as bytes, the rest in bf16; without fp8_param_gather, and of mxfp8, all does.  Beside the next forward as many. */
static void what_is_gathered_is_codes(void **state)
{
    static const struct { struct kind k; double bytes, wide; } cases[] = {
        { { "h100", SCALED_FP8_TENSOR, false, false }, 0, WEIGHTS + REST }, { { "h100", SCALED_FP8_TENSOR, false, true }, WEIGHTS, REST },
        { { "h100", SCALED_FP8_TENSOR, true, true }, WEIGHTS, REST },       { { "h100", SCALED_FP8_BLOCK, false, true }, WEIGHTS * 33. / 32, REST },
        { { "b200", SCALED_MXFP8, false, true }, 0, WEIGHTS + REST },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            struct plan p;
            of(&p, cases[i].k, STRAT_ZERO1);
            p.megatron.overlap_grad_reduce = p.megatron.overlap_param_gather = overlaps;
            lowered(&p, 0, &s);
            assert_close((double)gathered(&s, DT_UINT8), cases[i].bytes, 1e-4);
            assert_close((double)gathered(&s, DT_BF16), 2 * cases[i].wide, 1e-4);
            assert_close((double)tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).elems, (double)(WEIGHTS + REST), 1e-4);
            plan_free(&p);
        }
    schedules_free(&s);
}

/* Delayed scaling: after each forward 12 numbers of each layer, after each backward 8; with parameters in 8 bits one of each weight behind the
 * optimizer's; and one of the gradient norm.  Scales found at once need none but of parameters. */
static void ranks_agree_on_the_largest_numbers(void **state)
{
    static const struct { struct kind k; int64_t count, numbers; } cases[] = {
        { { "h100", SCALED_FP8_TENSOR, false, false }, 3 + 3 + 1, 3 * 12 * BLOCKS + 3 * 8 * BLOCKS + 1 },
        { { "h100", SCALED_FP8_TENSOR, false, true }, 3 + 3 + 1 + 1, 3 * 12 * BLOCKS + 3 * 8 * BLOCKS + 4 * BLOCKS + 1 },
        { { "h100", SCALED_FP8_TENSOR, true, true }, 1 + 1, 4 * BLOCKS + 1 },
        { { "h100", SCALED_FP8_BLOCK, false, true }, 1 + 1, WEIGHTS / (128 * 128) + 1 },
        { { "b200", SCALED_MXFP8, false, true }, 1, 1 },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        of(&p, cases[i].k, STRAT_ZERO1);
        p.accumulation = 3;
        lowered(&p, 0, &s);
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, cases[i].count);
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 4 * cases[i].numbers);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* get_amax_reduction_group(): all ranks of a stage, or the tensor-parallel ones. */
static void the_largest_are_a_stages(void **state)
{
    (void)state;
    for (int only = 0; only < 2; only++) {
        struct plan_groups groups;
        struct plan p;
        of(&p, (struct kind){ "h100", SCALED_FP8_TENSOR, false, false }, STRAT_ZERO1);
        p.parallel.tensor = p.parallel.pipeline = 2;
        p.megatron.tp_only_amax_red = only;
        p.shard_group = plan_data_ranks(&p);
        plan_groups(&p, &groups);
        int stage = plan_groups_find(&groups, GROUP_STAGE);
        assert_int_equal(stage < 0, only);
        if (!only)
            assert_int_equal(groups.group[stage].ranks, RANKS / 2);
        plan_free(&p);
    }
}

/* Weights in bf16 are cast once a step: read whole, written in each way; found at once, read once more. */
static void weights_are_cast_once_a_step(void **state)
{
    static const struct { struct kind k; double bytes; } cases[] = {
        { { "h100", SCALED_FP8_TENSOR, false, false }, 2 + 2 }, { { "h100", SCALED_FP8_TENSOR, true, false }, 2 + 2 + 2 },
        { { "b200", SCALED_FP8_TENSOR, false, false }, 2 + 1 }, { { "b200", SCALED_MXFP8, false, false }, 2 + 2 * 33. / 32 },
        { { "h100", SCALED_FP8_TENSOR, false, true }, 0 },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            double sum = 0;
            struct plan p;
            of(&p, cases[i].k, STRAT_ZERO1);
            p.accumulation = 3;
            p.megatron.overlap_grad_reduce = p.megatron.overlap_param_gather = overlaps;
            lowered(&p, 0, &s);
            int64_t times[8] = { 1 };
            int depth = 0;
            for (int i2 = s.begin[SCHED_STEADY]; i2 < s.end[SCHED_STEADY]; i2++) {
                const struct op *o = &s.ops[i2];
                if (o->kind == OP_REPEAT) {
                    times[depth + 1] = times[depth] * o->u.repeat.n;
                    depth++;
                }
                depth -= o->kind == OP_END;
                if (o->kind == OP_COPY && (!strcmp(o->what, "weights to codes") || !strcmp(o->what, "largest weights")))
                    sum += (double)((o->u.copy.reads + o->u.copy.writes) * times[depth]);
            }
            assert_close(sum, (double)WEIGHTS * cases[i].bytes, 1e-4);
            plan_free(&p);
        }
    schedules_free(&s);
}

/* ---- layers of the ends in 16 bits ---- */

static void ends(struct plan *p, struct kind k, int64_t start, int64_t end)
{
    of(p, k, STRAT_ZERO1);
    p->megatron.first_last_layers_bf16 = true;
    p->megatron.num_layers_at_start_in_bf16 = start;
    p->megatron.num_layers_at_end_in_bf16 = end;
    plan_resolve(p);
}

/* They are the blocks of a plan without codes, and the others those of one without such ends. */
static void ends_are_blocks_without_codes(void **state)
{
    static const struct kind kinds[] = {
        { "h100", SCALED_FP8_TENSOR, true, false }, { "h100", SCALED_FP8_BLOCK, false, false }, { "b200", SCALED_MXFP8, false, false },
        { "b200", SCALED_NVFP4, false, false },
    };
    struct program g = { 0 }, plain = { 0 }, all = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int again = 0; again < 2; again++) {
            struct plan p[3];
            ends(&p[0], kinds[i], 1, 1);
            of(&p[1], (struct kind){ kinds[i].gpu, SCALED_NONE, false, false }, STRAT_ZERO1);
            of(&p[2], kinds[i], STRAT_ZERO1);
            for (int k = 0; k < 3; k++)
                p[k].recompute = again ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            assert_int_equal(program_build(&p[0], &g) | program_build(&p[1], &plain) | program_build(&p[2], &all), 0);
            for (int pass = 0; pass < NPASS; pass++) {
                enum piece_id end = again ? PIECE_UNSCALED_RECOMPUTED : PIECE_UNSCALED, block = again ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK;
                assert_true(g.piece[end].key[pass] == plain.piece[block].key[pass]);
                assert_true(g.piece[block].key[pass] == all.piece[block].key[pass]);
                assert_true(g.piece[end].key[pass] != g.piece[block].key[pass]);
                assert_int_equal(g.piece[end].saved, plain.piece[block].saved);
                assert_int_equal(g.piece[block].saved, all.piece[block].saved);
                assert_int_equal(g.piece[PIECE_HEAD].saved, all.piece[PIECE_HEAD].saved);
            }
            assert_int_equal(program_piece_of_block(&p[0], 0), again ? PIECE_UNSCALED_RECOMPUTED : PIECE_UNSCALED);
            assert_int_equal(program_piece_of_block(&p[0], BLOCKS - 1), again ? PIECE_UNSCALED_RECOMPUTED : PIECE_UNSCALED);
            assert_int_equal(program_piece_of_block(&p[0], 1), again ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK);
            for (int k = 0; k < 3; k++)
                plan_free(&p[k]);
        }
    program_free(&g);
    program_free(&plain);
    program_free(&all);
}

/* Half of four blocks: what they keep, gather and cast is half of it. */
static void ends_keep_and_gather_16_bits(void **state)
{
    static const struct { struct kind k; double bytes; } cases[] = {
        { { "h100", SCALED_FP8_TENSOR, true, true }, 2 }, { { "b200", SCALED_FP8_TENSOR, true, false }, 2 + 1 }, { { "h100", SCALED_FP8_BLOCK, false, true }, 2 * 33. / 32 },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            int64_t sum = 0, cast = 0;
            double codes = cases[i].k.gathers ? (cases[i].k.s == SCALED_FP8_BLOCK ? 33. / 32 : 1) * WEIGHTS / 2 : 0;
            struct plan p;
            ends(&p, cases[i].k, 2, 0);
            p.megatron.overlap_grad_reduce = p.megatron.overlap_param_gather = overlaps;
            lowered(&p, 0, &s);
            for (int b = 0; b < s.nbufs; b++)
                if (s.bufs[b].category == CAT_PARAMS || s.bufs[b].category == CAT_GRADS || s.bufs[b].category == CAT_OPTIMIZER)
                    sum += s.bufs[b].bytes * (strcmp(s.bufs[b].what, "parameters as they were made") != 0);
            for (int o = s.begin[SCHED_STEADY]; o < s.end[SCHED_STEADY]; o++)
                cast += s.ops[o].kind == OP_COPY && !strcmp(s.ops[o].what, "weights to codes");
            assert_close((double)sum, (double)WEIGHTS / 2 * (cases[i].bytes + 5.5) + ((double)REST + (double)WEIGHTS / 2) * 7.5, 1e-4);
            assert_close((double)gathered(&s, DT_UINT8), codes, 1e-4);
            assert_close((double)gathered(&s, DT_BF16), 2 * ((double)WEIGHTS + REST - (cases[i].k.gathers ? (double)WEIGHTS / 2 : 0)), 1e-4);
            assert_int_equal(cast, cases[i].k.gathers ? 0 : 2);
            plan_free(&p);
        }
    schedules_free(&s);
}

/* The first of four blocks and the last two in 16 bits: of two stages the first has one that is cast; interleaved (blocks 0 and 2; 1 and 3) the
 * second. */
static void stages_have_their_own_ends(void **state)
{
    (void)state;
    for (int chunks = 1; chunks < 3; chunks++)
        for (int stage = 0; stage < 2; stage++) {
            struct local_model local;
            struct evaluation e;
            struct plan p;
            ends(&p, (struct kind){ "h100", SCALED_FP8_TENSOR, true, false }, 1, 2);
            p.parallel.pipeline = 2;
            p.parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
            p.accumulation = 4;
            knob_follow(&p, NULL, NULL);
            p.parallel.virtual_stages = chunks;
            plan_resolve(&p);
            assert_int_equal(plan_check(&p, "plan"), 0);
            assert_int_equal(local_model_of(&p, stage * RANKS / 2, &local), 0);
            assert_int_equal(te_cast_numel(&local, -1), stage == chunks - 1 ? WEIGHTS / BLOCKS : 0);
            local_model_free(&local);
            assert_int_equal(evaluate(&p, &e), 0);
            evaluation_free(&e);
            plan_free(&p);
        }
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    struct plan p;

    (void)state;
    of(&p, (struct kind){ "h100", SCALED_MXFP8, false, false }, STRAT_ZERO1);
    plan_refused(&p, "multiplied from Blackwell on");
    plan_free(&p);
    of(&p, (struct kind){ "a100-80gb", SCALED_FP8_TENSOR, false, false }, STRAT_ZERO1);
    plan_refused(&p, "no units for 8-bit floats");
    p.cluster.gpu = *gpu_find("h100");
    p.kernels = KERNELS_MEGATRON_LOCAL;
    plan_refused(&p, "needs Transformer Engine");
    p.kernels = KERNELS_TE;
    p.megatron.first_last_layers_bf16 = true;
    plan_refused(&p, "delayed scaling does not support");
    p.megatron.fp8_recipe = FP8_TENSORWISE;
    p.megatron.num_layers_at_start_in_bf16 = BLOCKS + 1;
    plan_refused(&p, "must be between 0 and number of layers per pipeline stage (4)");
    p.megatron.num_layers_at_start_in_bf16 = 1;
    p.megatron.first_last_layers_bf16 = false;
    p.seq = 60;
    plan_refused(&p, "60 tokens on a rank");
    p.seq = 64;
    p.megatron.fp4_format = FP4_E2M1;
    plan_refused(&p, "choose one");
    plan_free(&p);
    of(&p, (struct kind){ "b200", SCALED_MXFP8, false, true }, STRAT_ZERO1);
    p.megatron.reuse_grad_buf_for_mxfp8_param_ag = false;
    plan_refused(&p, "share the gradients' buffer");
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_kept_in_one_way_or_two),
        cmocka_unit_test(what_is_gathered_is_codes),
        cmocka_unit_test(ranks_agree_on_the_largest_numbers),
        cmocka_unit_test(the_largest_are_a_stages),
        cmocka_unit_test(weights_are_cast_once_a_step),
        cmocka_unit_test(ends_are_blocks_without_codes),
        cmocka_unit_test(ends_keep_and_gather_16_bits),
        cmocka_unit_test(stages_have_their_own_ends),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("model/megatron_codes", tests, NULL, NULL);
}
