/* Expert parallelism: which ranks share out a block's experts, what a rank then has, sends and waits for. */
#include "tests/check.h"

#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/exchange/export.h"
#include "model/exchange/megatron_import.h"
#include "model/lower/lower.h"
#include "model/memory/reserved.h"
#include "model/plan/expert_capacity.h"
#include "model/plan/experts_check.h"
#include "model/plan/knob.h"
#include "model/plan/local_model.h"
#include "model/plan/optimizer_choice.h"
#include "model/program/tape_dispatch.h"
#include "tests/model/expert_plans.h"
#include "tests/model/megatron_text.h"

static void plan_of_torch(struct plan *p, const char *model, int64_t layers, int64_t world, int64_t expert)
{
    plan_of(p, model, layers, world, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p->kernels = KERNELS_TORCH_SDPA;
    p->parallel.expert = expert;
}

static void plan_of_megatron(struct plan *p, int64_t world, int64_t tensor, int64_t cut, int64_t expert)
{
    plan_of(p, "mixtral-8x7b", 2, world, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p->kernels = KERNELS_TE;
    p->parallel.tensor = tensor;
    p->parallel.sequence = tensor > 1;
    p->parallel.expert = expert;
    p->parallel.expert_tensor = cut;
}

/* ---- groups ---- */

/* torchtitan's sparse mesh (dp_replicate, efsdp, ep), ep fastest: of 16 ranks with experts over 4, rank 6 is in the run from 4 on, and
 * at place 2 of each run.  Two copies of 8: the runs stay within a copy. */
static void torchtitan_shares_experts_out_over_runs_of_ranks(void **state)
{
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 16, 4);
    has_ranks(&p, GROUP_EXPERT, 6, (const int64_t[]){ 4, 5, 6, 7 }, 4);
    has_ranks(&p, GROUP_EXPERT_DATA, 6, (const int64_t[]){ 2, 6, 10, 14 }, 4);
    p.shard_group = 8;
    has_ranks(&p, GROUP_EXPERT, 14, (const int64_t[]){ 12, 13, 14, 15 }, 4);
    has_ranks(&p, GROUP_EXPERT_DATA, 14, (const int64_t[]){ 10, 14 }, 2);
    model_free(&p.model);
}

/* Megatron-LM's expert grid, (expert tensor, expert, expert data) from fast to slow, over the same ranks as (tensor, data): whole
 * experts over all ranks in runs of 4; experts that 2 tensor-parallel ranks cut over every second rank. */
static void megatron_folds_its_expert_grid_over_the_other(void **state)
{
    struct plan p;

    (void)state;
    plan_of_megatron(&p, 8, 2, 1, 4);
    has_ranks(&p, GROUP_EXPERT, 5, (const int64_t[]){ 4, 5, 6, 7 }, 4);
    has_ranks(&p, GROUP_EXPERT_DATA, 5, (const int64_t[]){ 1, 5 }, 2);
    model_free(&p.model);
    plan_of_megatron(&p, 8, 2, 2, 2);
    has_ranks(&p, GROUP_EXPERT, 5, (const int64_t[]){ 5, 7 }, 2);
    has_ranks(&p, GROUP_EXPERT_DATA, 5, (const int64_t[]){ 1, 5 }, 2);
    has_ranks(&p, GROUP_EXPERT_TENSOR, 5, (const int64_t[]){ 4, 5, 6, 7 }, 4);
    model_free(&p.model);
}

/* ---- what a rank has ---- */

static int64_t held(const struct plan *p, int64_t rank)
{
    struct local_model local;
    int64_t n;

    assert_int_equal(local_model_of(p, rank, &local), 0);
    n = local.model->params;
    local_model_free(&local);
    return n;
}

/* A block of Mixtral: attention 41,943,040, router 32,768, norms 8,192, experts 176,160,768 each; embedding and head 32000 x 4096. */
static void a_rank_has_its_share_of_the_experts(void **state)
{
    const int64_t rest = 41943040 + 32768 + 8192, expert = 176160768, ends = 2 * 32000 * 4096LL + 4096;
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 16, 4);
    for (int64_t rank = 0; rank < 16; rank += 5)
        assert_int_equal(held(&p, rank), 2 * (rest + 2 * expert) + ends);
    model_free(&p.model);
    plan_of_megatron(&p, 8, 2, 1, 4);       /* attention cut in two; a vocabulary of 32000 = 125 x 256 stays */
    assert_int_equal(held(&p, 3), 2 * (rest - 41943040 / 2 + 2 * expert) + ends / 2 + 2048);
    model_free(&p.model);
    plan_of_megatron(&p, 8, 2, 2, 2);
    assert_int_equal(held(&p, 3), 2 * (rest - 41943040 / 2 + 4 * expert / 2) + ends / 2 + 2048);
    model_free(&p.model);
}

/* ---- schedules ---- */

/* Qwen3-30B, experts over 8 of 16 ranks, 4096 tokens that take 8 of 128 (vectors 69 and 70): 32,768 rows of 2048 four times a layer;
 * 16 experts a rank, 3 x 16 x 2048 x 768 elements, which two ranks share: gathered forward and back, 150,994,944 bytes of them; counts of
 * 128 experts.  The host waits once a layer, with recompute twice, and rows go there twice more. */
static void a_block_exchanges_its_rows_four_times(void **state)
{
    const int64_t layers = 6, rows = 4096 * 8, experts = 75497472;
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum;

    (void)state;
    assert_int_equal(3 * 16 * 2048 * 768, experts);
    assert_int_equal(2 * experts, 150994944);
    plan_of_torch(&p, "qwen3-30b-a3b", layers, 16, 8);
    p.seq = 4096;
    p.micro_batch = 1;
    for (int full = 0; full < 2; full++) {
        p.recompute = full ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        assert_int_equal(lower(&p, 0, &s), 0);
        assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), (full ? 6 : 4) * layers);
        assert_int_equal(sum, (full ? 6 : 4) * layers * rows * 2048);
        assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_INT64, &sum), (full ? 2 : 1) * layers);
        assert_int_equal(sum, (full ? 2 : 1) * layers * 128);
        assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_EXPERT_DATA, DT_BF16, &sum), 2 * layers);
        assert_int_equal(sum, 2 * layers * experts);
        assert_int_equal(count(&s, COLL_REDUCE_SCATTER, GROUP_EXPERT_DATA, DT_FP32, &sum), layers);
        assert_int_equal(sum, layers * experts);
        assert_int_equal(waits(&s), (full ? 2 : 1) * layers);
        schedules_free(&s);
    }
    model_free(&p.model);
}

/* Whichever is larger, a rank's experts or the rest of a block: their gradients come in buffers of their own.  Of Qwen3-30B's 128 experts 8 are
 * left to each of 16 ranks, 3 x 24 MiB, less than its attention's 36; with one of Mixtral's 8 it is the other way round. */
static void gradients_of_experts_find_their_own_buffer(void **state)
{
    static const struct { const char *model; int64_t world, expert; } of[] = {
        { "qwen3-30b-a3b", 16, 16 }, { "qwen3-30b-a3b", 16, 8 }, { "qwen3-30b-a3b", 8, 2 }, { "mixtral-8x7b", 8, 8 }, { "gpt-oss-20b", 8, 8 }, { "gpt-oss-20b", 16, 2 },
        { "moonlight-16b-a3b", 8, 8 }, { "moonlight-16b-a3b", 16, 4 }, { "glm-4.5-air", 16, 16 } };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int again = 0; again < 8; again++) {
            bool ignored = again / 4, sync = again / 2 % 2;         /* by FSDP; of several micro-steps, gradients of all of them are reduced */
            struct schedules s = { 0 };
            struct reserved_left r;
            struct plan p;
            if (ignored && of[i].expert < of[i].world)
                continue;
            plan_of_torch(&p, of[i].model, 3, of[i].world, of[i].expert);
            p.fsdp.model_dtype = ignored ? DT_BF16 : -1;
            p.fsdp.ignores_experts = ignored;
            p.sync_every_micro_step = sync;
            if (!strcmp(of[i].model, "gpt-oss-20b"))
                p.kernels = KERNELS_TORCH_EAGER;
            p.seq = 512;
            p.micro_batch = 1;
            p.accumulation = 1 + 2 * (again % 2);
            p.recompute = again % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            assert_int_equal(plan_check(&p, "plan"), 0);
            assert_int_equal(lower(&p, 0, &s), 0);
            assert_int_equal(reserved_left_of(&p, &s, NULL, &r), 0);     /* which counts what is freed and was never made */
            schedules_free(&s);
            model_free(&p.model);
        }
}

/* What a block of gpt_oss keeps of its experts as torchtitan computes them: for each of N rows of a rank's tokens that go out and R that come, in
 * bf16: of the input, of its product with gate and up behind the bias (2 f), clamped gate and up, the sigmoid, both products (f each). */
static void a_row_keeps_what_its_experts_need(void **state)
{
    struct program with = { 0 }, half = { 0 };
    struct plan p;

    (void)state;
    plan_of_torch(&p, "gpt-oss-20b", 2, 8, 8);
    p.kernels = KERNELS_TORCH_EAGER;
    p.seq = 512;
    p.micro_batch = 1;
    assert_int_equal(program_build(&p, &with), 0);
    p.parallel.expert_imbalance = 2;
    assert_int_equal(program_build(&p, &half), 0);
    int64_t rows = 512 * 4, wide = 2880 + 2 * 2880 + 5 * 2880;
    /* Beside them: the row's expert twice and its place, 8 bytes each. */
    assert_int_equal(half.piece[PIECE_BLOCK].saved - with.piece[PIECE_BLOCK].saved, rows * (2 * wide + 3 * 8));
    program_free(&with);
    program_free(&half);
    model_free(&p.model);
}

/* 4096 tokens of DeepSeek-V3 that take 8 experts, 7168 wide (vector 68): 234,881,024 elements, 448 MiB, of which 63 of 64 leave the
 * rank; four of them 1792 MiB. */
static void a_buffer_of_rows_is_as_wide_as_the_model(void **state)
{
    const int64_t elems = 4096 * 8 * 7168LL;

    (void)state;
    assert_int_equal(elems, 234881024);
    assert_int_equal(2 * elems, 448LL << 20);
    assert_int_equal(2 * elems / 64 * 63, 441LL << 20);
    assert_int_equal(4 * 2 * elems, 1792LL << 20);
    /* 64 ranks x 4096 x 8 choices over 256 experts (vector 73): the busiest of random ones has 3.7 % more than the mean. */
    assert_int_equal(64 * 4096 * 8 / 256, 8192);
    assert_int_equal(expert_rows_received(8192, 1.037), 8495);
    assert_int_equal(expert_rows_received(8192, 1), 8192);
}

/* Vector 71: 4096 tokens, 7168 wide, that take 8 experts of 64 over 8 ranks.  Each row leaves the rank but for an eighth: 4096 * 8 * 7168 * 2
 * bytes * 7/8 = 392 MiB; a gather of all tokens would send 7 * 4096 * 7168 * 2, as much: a token takes as many experts as there are ranks. */
static void eight_ranks_and_eight_experts_a_token_send_what_a_gather_would(void **state)
{
    json_t *config = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "qwen3_moe", "hidden_size", 7168,
                               "num_hidden_layers", 1, "num_attention_heads", 56, "num_key_value_heads", 8, "head_dim", 128,
                               "moe_intermediate_size", 512, "num_experts", 64, "num_experts_per_tok", 8, "vocab_size", 1024);
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum;

    (void)state;
    plan_of_torch(&p, "qwen3-30b-a3b", 2, 8, 8);
    model_free(&p.model);
    assert_int_equal(model_from_config(config, "vector 71", &p.model), 0);
    p.seq = 4096;
    p.micro_batch = 1;
    assert_int_equal(lower(&p, 0, &s), 0);
    assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), 4);
    assert_int_equal(sum / 4 * 2 / 8 * 7, 392LL << 20);
    assert_int_equal(7 * 4096 * 7168LL * 2, 392LL << 20);
    schedules_free(&s);
    model_free(&p.model);
    json_decref(config);
}

static const struct op *first_rows(const struct schedules *s)
{
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++)
        if (s->ops[i].kind == OP_COLL && s->ops[i].u.coll.op == COLL_ALL_TO_ALL && s->ops[i].u.coll.dtype == DT_BF16)
            return &s->ops[i];
    fail_msg("no rows are exchanged");
    return NULL;
}

/* The busiest rank of four sends as much as any other, a quarter to each, and gets half as much again from each; its products have
 * half as many rows more. */
static void imbalance_is_the_busiest_ranks(void **state)
{
    const int64_t sent = 512 * 2 * 4096;
    struct program g = { 0 };
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 4);
    p.seq = 512;
    p.micro_batch = 1;
    for (int half_more = 0; half_more < 2; half_more++) {
        p.parallel.expert_imbalance = half_more ? 1.5 : 1;
        assert_int_equal(lower(&p, 0, &s), 0);
        const struct op *o = first_rows(&s);
        assert_int_equal(o->u.coll.elems, sent);
        assert_int_equal(o->u.coll.parts > 0, half_more);
        for (int i = 0; i < 4 && half_more; i++) {
            assert_int_equal(s.coll_parts[o->u.coll.parts + i].sent, sent / 4);
            assert_int_equal(s.coll_parts[o->u.coll.parts + i].received, sent / 4 * 3 / 2);
        }
        schedules_free(&s);
        assert_int_equal(program_build(&p, &g), 0);
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[PASS_FORWARD]; i++) {
            const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[PASS_FORWARD][i];
            if (!strncmp(k->name, "experts", 7) && k->kind == KC_GEMM) {
                assert_int_equal(k->batch, 2);
                assert_int_equal(k->batch * k->m, half_more ? 1536 : 1024);
            }
        }
        program_free(&g);
    }
    model_free(&p.model);
}

/* Mixtral's tokens take 2 of 8 experts.  Over 4 ranks both may be one rank's: 4 times the mean.  Over 8 a rank has one expert, so half of
 * the rows at most: 4 times again. */
static void no_rank_gets_more_rows_than_there_are(void **state)
{
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 4);
    for (p.parallel.expert = 4; p.parallel.expert <= 8; p.parallel.expert += 4) {
        p.parallel.expert_imbalance = 4;
        assert_int_equal(plan_check(&p, "plan"), 0);
        p.parallel.expert_imbalance = 4.5;
        refused(&p, "4 times the mean at most");
    }
    model_free(&p.model);
}

/* AutoEP's busiest rank of four, as torchtitan's: it sends what all send, and gets half as much again; its products count room to begin
 * each of 2 experts' rows at a multiple of 8. */
static void imbalance_is_the_busiest_ranks_with_autoep(void **state)
{
    const int64_t sent = 512 * 2 * 4096;
    struct program g = { 0 };
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    for (int stage = STRAT_ZERO1; stage <= STRAT_ZERO2; stage++) {
        plan_of_deepspeed(&p, (enum strategy)stage, 2, 8, 4);
        p.seq = 512;
        p.micro_batch = 1;
        p.parallel.expert_imbalance = 1.5;
        assert_int_equal(plan_check(&p, "plan"), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        const struct op *o = first_rows(&s);
        assert_int_equal(o->u.coll.elems, sent);
        assert_true(o->u.coll.parts > 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(s.coll_parts[o->u.coll.parts + i].sent, sent / 4);
            assert_int_equal(s.coll_parts[o->u.coll.parts + i].received, sent / 4 * 3 / 2);
        }
        schedules_free(&s);
        assert_int_equal(program_build(&p, &g), 0);
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[PASS_FORWARD]; i++) {
            const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[PASS_FORWARD][i];
            if (!strncmp(k->name, "experts", 7) && k->kind == KC_GEMM)
                assert_int_equal(k->batch * k->m, 1536 + 2 * 8);
        }
        program_free(&g);
        p.parallel.expert_imbalance = 4.5;
        refused(&p, "4 times the mean at most");
        model_free(&p.model);
    }
}

/* 64 tokens take 2 of 8 experts each: 16 rows an expert; of 63 tokens 15.75, and a product has 16. */
static void rows_that_do_not_divide_are_said_to_be_rounded(void **state)
{
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 4);
    p.seq = 64;
    assert_null(experts_note(&p));
    p.seq = 63;
    assert_non_null(strstr(experts_note(&p), "rounded up"));
    plan_free(&p);
}

/* Megatron: parameters and gradients of the experts by their own ranks.  Two blocks on 8 ranks, whole experts over 4: a rank has 2 of 8,
 * and shares their fp32 parameters and moments with one other, those of the rest with 3 others.  Buckets end at multiples of 128 and
 * of the ranks, which all of these are. */
static void megatron_shards_states_by_the_ranks_that_have_them(void **state)
{
    const int64_t experts = 2 * 2 * 176160768LL, rest = 2 * (41943040 / 2 + 32768 + 8192) + 32000 * 4096LL + 4096;
    int64_t bytes[NCAT] = { 0 };
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    plan_of_megatron(&p, 8, 2, 1, 4);
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int i = 0; i < s.nbufs; i++)
        if (strcmp(s.bufs[i].what, "parameters as they were made"))
            bytes[s.bufs[i].category] += s.bufs[i].bytes * s.bufs[i].count;
    assert_int_equal(bytes[CAT_PARAMS], 2 * (rest + experts));
    assert_int_equal(bytes[CAT_GRADS], 4 * (rest + experts));
    assert_true(bytes[CAT_OPTIMIZER] >= 12 * (rest / 4 + experts / 2) && bytes[CAT_OPTIMIZER] < 12 * (rest / 4 + experts / 2) + (1 << 16));
    schedules_free(&s);
    model_free(&p.model);
}

/* ---- capacity ---- */

static void plan_of_capacity(struct plan *p, double factor, bool padded)
{
    plan_of_megatron(p, 8, 1, 1, 4);
    p->seq = 4096;
    p->micro_batch = 1;
    p->megatron.moe_expert_capacity_factor = factor;
    p->megatron.moe_pad_expert_input_to_capacity = padded;
}

/* Padded, each of 8 experts gets 1280 rows of every rank, 10,240 in place of 8192; four exchanges of rows and two of their probabilities a
 * block.  The number is known: no numbers of rows are gathered, and the host never waits for them.  It is that of a rank's tokens, also where
 * ranks share a sequence. */
static void padded_experts_get_their_capacity(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum, tokens = 4096, rows = 8 * 1280, layers = 2;

    (void)state;
    for (int i = 0; i < 4; i++) {
        int padded = i % 2;
        plan_of_capacity(&p, padded ? 1.25 : -1, padded);
        p.parallel.context = 1 + i / 2;
        p.seq *= p.parallel.context;
        knob_follow(&p, NULL, NULL);
        assert_int_equal(plan_check(&p, "plan"), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), 6 * layers);
        assert_int_equal(sum, layers * (padded ? rows : 2 * tokens) * (4 * 4096 + 2));
        assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_EXPERT, DT_INT64, &sum), padded ? 0 : layers);
        assert_int_equal(waits(&s), padded ? 0 : layers);
        schedules_free(&s);
        model_free(&p.model);
    }
}

/* Not padded, an even spread of 1024 rows an expert is below 1280, and above 512.  A rank that twice the mean comes to computes what its two
 * experts take of four ranks: 2 x 4 x 1280, not 16,384. */
static void what_is_beyond_the_capacity_is_dropped(void **state)
{
    const struct { double factor, imbalance; int64_t sent, came; } of[] = { { 1.25, 1, 8192, 8192 }, { 0.5, 1, 4096, 4096 }, { 1.25, 2, 8192, 10240 } };
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        plan_of_capacity(&p, of[i].factor, false);
        p.parallel.expert_imbalance = of[i].imbalance;
        assert_int_equal(plan_check(&p, "plan"), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        const struct op *o = first_rows(&s);
        assert_int_equal(o->u.coll.elems, of[i].sent * 4096);
        assert_int_equal(o->u.coll.parts > 0, of[i].came != of[i].sent);
        for (int k = 0; k < 4 && o->u.coll.parts > 0; k++)
            assert_int_equal(s.coll_parts[o->u.coll.parts + k].received, of[i].came * 4096 / 4);
        assert_int_equal(waits(&s), 2);
        schedules_free(&s);
        model_free(&p.model);
    }
}

static void capacities_that_cannot_be_are_refused(void **state)
{
    struct plan p;

    (void)state;
    plan_of_capacity(&p, 4, true);          /* 4096 rows, of 4096 tokens */
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.megatron.moe_expert_capacity_factor = 4.01;
    refused(&p, "more than the 4096 tokens of a rank");
    p.megatron.moe_pad_expert_input_to_capacity = false;        /* nothing is dropped, nothing padded */
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.megatron.moe_expert_capacity_factor = 0;
    refused(&p, "moe_expert_capacity_factor: 0 is out of range");
    p.megatron.moe_pad_expert_input_to_capacity = true;
    p.megatron.moe_expert_capacity_factor = 1.25;
    p.parallel.expert_imbalance = 1.5;
    refused(&p, "every rank gets as many rows");
    model_free(&p.model);
}

/* What is said of a plan's rows: as the plan has them, and no more of them than a capacity lets in.  4096 tokens, 8192 rows, four times as many at
 * the busiest rank; of 8 x 1280 rows 1.25 times. */
static void rows_of_the_busiest_rank_are_said_as_they_are(void **state)
{
    struct plan p;
    char line[256];

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 4);
    experts_ranks_words(&p, line, sizeof line);
    assert_non_null(strstr(line, "the busiest computes 1 times the rows of the mean (parallel.expert_imbalance)"));
    assert_non_null(strstr(experts_routing_of(&p), "spread evenly over experts"));
    p.parallel.expert_imbalance = 2;
    assert_null(strstr(experts_routing_of(&p), "evenly over experts"));
    model_free(&p.model);
    plan_of_capacity(&p, 1.25, false);
    p.parallel.expert_imbalance = 4;
    experts_ranks_words(&p, line, sizeof line);
    assert_non_null(strstr(line, "the busiest computes 1.25 times the rows of the mean (parallel.expert_imbalance 4, as far as a capacity of "
                                 "1280 rows lets it)"));
    model_free(&p.model);
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 4);
    p.ds.moe_layer = MOE_NATIVE;            /* 4 experts of each of 2 ranks; what a capacity is: test_expert_capacity.c */
    p.ds.moe_drop_tokens = false;
    p.parallel.expert_imbalance = 1.5;
    experts_ranks_words(&p, line, sizeof line);
    assert_non_null(strstr(line, "of which each computes a capacity of "));
    assert_null(strstr(line, "lets it"));
    model_free(&p.model);
}

/* DeepSpeed's own words where it has some. */
static void what_autoep_has_not_is_refused(void **state)
{
    struct plan p;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 4);
    p.ds.contiguous_gradients = false;
    refused(&p, "Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE");
    p.ds.contiguous_gradients = true;
    p.ds.reduce_scatter = false;
    refused(&p, "Reduce Scatter in ZeRO Stage 2 must be set to True for MoE");
    p.ds.reduce_scatter = true;
    p.ds.round_robin_gradients = true;
    refused(&p, "round_robin_gradients");
    p.ds.round_robin_gradients = false;
    assert_int_equal(plan_check(&p, "plan"), 0);
    model_free(&p.model);
    plan_of_deepspeed(&p, STRAT_ZERO3, 2, 8, 4);
    p.ds.zero_hpz_partition_size = 4;
    refused(&p, "does not support hpZeRO secondary tensor groups yet");
    p.ds.zero_hpz_partition_size = 1;
    p.ds.zero_quantized_gradients = true;
    refused(&p, "does not support zero_quantized_gradients yet");
    p.ds.zero_quantized_gradients = false;
    p.ds.zero_quantized_weights = true;
    refused(&p, "zero_quantized_weights");
    p.ds.zero_quantized_weights = false;
    assert_int_equal(plan_check(&p, "plan"), 0);
    model_free(&p.model);
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 3);
    refused(&p, "8 experts of a block do not divide by 3 ranks");
    model_free(&p.model);
    plan_of(&p, "olmoe-1b-7b", 2, 8, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    p.parallel.expert = 4;
    refused(&p, "no preset for olmoe");
    model_free(&p.model);
}

/* Whatever framework is looked at first. */
static void another_optimizer_is_refused_because_of_the_experts(void **state)
{
    const struct optimizer_choice muon = { .optimizer = OPTIMIZER_MUON, .form = -1 };
    const enum dialect dialects[] = { DIALECT_TORCH, DIALECT_DEEPSPEED, DIALECT_PAPER };
    char why[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        plan_of(&p, "mixtral-8x7b", 2, 8, STRAT_DDP, dialects[i], DT_BF16);
        fail_capture(why, sizeof why);
        assert_int_equal(optimizer_choose(&p, &muon, "search"), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "a mixture of experts is planned with adamw, torchao's, flash_adamw and te_adamw alone so far"));
        model_free(&p.model);
    }
}

/* As Megatron-LM's options and back. */
static void megatrons_options_come_back(void **state)
{
    struct plan p, back;
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "/tmp/dpx-test-%ld.txt", (long)getpid());
    for (int cut = 1; cut <= 2; cut++) {
        plan_of_megatron(&p, 8, 2, cut, 2);
        p.clip = 1;
        p.dropout = 0;
        p.megatron.moe_expert_capacity_factor = cut == 1 ? -1 : 1.25;
        p.megatron.moe_pad_expert_input_to_capacity = cut == 2;
        p.megatron.moe_aux_loss_coeff = cut == 1 ? 0.01 : 0;
        p.megatron.moe_router_load_balancing_type = cut == 1 ? BALANCE_SEQ_AUX_LOSS : BALANCE_AUX_LOSS;
        p.megatron.fp8_format = cut == 1 ? FP8_HYBRID : FP8_OFF;
        p.megatron.fp8_recipe = FP8_TENSORWISE;
        p.megatron.moe_router_padding_for_quantization = cut == 1;
        p.recompute = RECOMPUTE_SELECTIVE;
        strcpy(p.megatron.recompute_modules, cut == 1 ? "layernorm,moe_act" : "moe");
        FILE *to = fopen(path, "w");
        assert_non_null(to);
        assert_int_equal(megatron_export(&p, to), 0);
        fclose(to);
        json_t *options = megatron_options_of(path);
        assert_int_equal(json_integer_value(json_object_get(options, "num_experts")), 8);
        back = (struct plan){ .model = p.model, .cluster = p.cluster, .seq = p.seq };
        assert_int_equal(megatron_import(options, "t.txt", &back), 0);
        assert_true(back.parallel.expert == 2 && back.parallel.expert_tensor == cut);
        assert_int_equal(expert_capacity_of(&back, expert_capacity_tokens(&back)), expert_capacity_of(&p, expert_capacity_tokens(&p)));
        assert_int_equal(back.megatron.moe_pad_expert_input_to_capacity, cut == 2);
        assert_true(back.megatron.moe_aux_loss_coeff == p.megatron.moe_aux_loss_coeff);
        assert_int_equal(back.megatron.moe_router_load_balancing_type, p.megatron.moe_router_load_balancing_type);
        assert_int_equal(back.megatron.moe_router_padding_for_quantization, cut == 1);
        assert_int_equal(back.recompute, RECOMPUTE_SELECTIVE);
        assert_string_equal(back.megatron.recompute_modules, p.megatron.recompute_modules);
        json_decref(options);
        unlink(path);
        model_free(&p.model);
    }
}

/* A script of transformers' own modules would have no experts to share out. */
static void pytorchs_script_is_refused(void **state)
{
    char why[512] = "";
    struct plan p;

    (void)state;
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 2);
    fail_capture(why, sizeof why);
    assert_int_equal(export_plan(&p, "fsdp", stderr), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "parallel.expert"));
    model_free(&p.model);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    struct plan p;

    (void)state;
    plan_of_torch(&p, "llama-3.1-8b", 2, 8, 2);
    refused(&p, "has no experts");
    model_free(&p.model);
    plan_of_torch(&p, "mixtral-8x7b", 2, 12, 3);
    refused(&p, "8 experts of a block do not divide by 3 ranks");
    p.parallel.expert = 8;
    refused(&p, "8 does not divide the 12 ranks that share one copy");
    p.parallel.expert = 4;
    p.unit = UNIT_HALF_BLOCK;
    refused(&p, "unit");
    model_free(&p.model);
    /* A rank with one expert gets one row of each token at most, of two: of 8 ranks' rows half, four times an eighth. */
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 8);
    p.parallel.expert_imbalance = 4;
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.parallel.expert_imbalance = 4.01;
    refused(&p, "4 times the mean at most");
    model_free(&p.model);
    plan_of_torch(&p, "mixtral-8x7b", 2, 8, 2);
    p.fsdp.cpu_offload = true;
    refused(&p, "fsdp.cpu_offload");
    p.fsdp.cpu_offload = false;
    p.fsdp.reshard_after_forward = 2;
    refused(&p, "reshard_after_forward");
    model_free(&p.model);
    plan_of_megatron(&p, 8, 2, 1, 1);
    refused(&p, "parallel.expert_tensor");
    p.parallel.sequence = false;
    refused(&p, "parallel.sequence");
    p.kernels = KERNELS_MEGATRON_LOCAL;
    refused(&p, "TEGroupedMLP");
    model_free(&p.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchtitan_shares_experts_out_over_runs_of_ranks),
        cmocka_unit_test(megatron_folds_its_expert_grid_over_the_other),
        cmocka_unit_test(a_rank_has_its_share_of_the_experts),
        cmocka_unit_test(a_block_exchanges_its_rows_four_times),
        cmocka_unit_test(gradients_of_experts_find_their_own_buffer),
        cmocka_unit_test(a_row_keeps_what_its_experts_need),
        cmocka_unit_test(a_buffer_of_rows_is_as_wide_as_the_model),
        cmocka_unit_test(eight_ranks_and_eight_experts_a_token_send_what_a_gather_would),
        cmocka_unit_test(imbalance_is_the_busiest_ranks),
        cmocka_unit_test(imbalance_is_the_busiest_ranks_with_autoep),
        cmocka_unit_test(no_rank_gets_more_rows_than_there_are),
        cmocka_unit_test(rows_that_do_not_divide_are_said_to_be_rounded),
        cmocka_unit_test(megatron_shards_states_by_the_ranks_that_have_them),
        cmocka_unit_test(padded_experts_get_their_capacity),
        cmocka_unit_test(what_is_beyond_the_capacity_is_dropped),
        cmocka_unit_test(capacities_that_cannot_be_are_refused),
        cmocka_unit_test(rows_of_the_busiest_rank_are_said_as_they_are),
        cmocka_unit_test(what_autoep_has_not_is_refused),
        cmocka_unit_test(another_optimizer_is_refused_because_of_the_experts),
        cmocka_unit_test(megatrons_options_come_back),
        cmocka_unit_test(pytorchs_script_is_refused),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };

    return cmocka_run_group_tests_name("model/expert_parallel", tests, NULL, NULL);
}
