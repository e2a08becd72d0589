/* Dialect megatron by the arithmetic of Megatron-LM's own code: padded vocabularies, bytes a parameter, what a step sends, pipelines
 * of both kinds on every rank, and what is refused.  Numbers "vector N" are those of the research notes on tensor and pipeline parallelism, redone here. */
#include "tests/model/megatron_text.h"
#include "tests/model/plans.h"

#include <stdlib.h>

#include "model/exchange/export.h"
#include "model/exchange/megatron_import.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/megatron_model.h"

static void of(struct plan *p, const char *model, int64_t layers, int64_t world, enum strategy s)
{
    plan_of(p, model, layers, world, s, DIALECT_MEGATRON, DT_BF16);
}

static void cut(struct plan *p, int64_t tensor, int64_t pipe, int64_t chunks, int64_t steps)
{
    p->parallel.tensor = tensor;
    p->parallel.sequence = tensor > 1;
    p->parallel.pipeline = pipe;
    p->parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    p->parallel.virtual_stages = chunks;
    p->accumulation = steps;
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = chunks;
    plan_resolve(p);
}

/* 128 t ceil(V / (128 t)): vectors 1 to 4. */
static void vocabularies_are_filled_up(void **state)
{
    (void)state;
    assert_int_equal(megatron_vocab(128256, 128, 8), 129024);
    assert_int_equal(megatron_vocab(128256, 128, 4), 128512);
    assert_int_equal(megatron_vocab(128256, 128, 1), 128256);
    assert_int_equal(megatron_vocab(50257, 128, 1), 50304);
    assert_int_equal(megatron_vocab(50257, 128, 2), 50432);
    assert_int_equal(megatron_vocab(50257, 128, 8), 51200);
    assert_int_equal(megatron_vocab(151936, 128, 8), 152576);
    assert_int_equal(megatron_vocab(32000, 128, 8), 32768);
    assert_int_equal(megatron_vocab(129280, 128, 8), 130048);
}

/* Llama-3.1 405B on 8 tensor-parallel ranks: h 16384, 128 heads and 8 of keys and values of 128, f 53248.  A rank's part of a block:
 * h (16384 + 2 x 1024) / 8 + 16384 h / 8 + 3 h 53248 / 8, and two norms whole; of the embedding 129024 h / 8 (vector 6 has the
 * vocabulary without filling up). */
static void a_rank_has_its_part(void **state)
{
    struct local_model local;
    struct plan p;
    int64_t h = 16384, block = h * (16384 + 2048) / 8 + 16384 * h / 8 + 3 * h * 53248 / 8 + 2 * h;

    (void)state;
    of(&p, "llama-3.1-405b", 2, 8, STRAT_ZERO1);
    cut(&p, 8, 1, 1, 1);
    assert_int_equal(local_model_of(&p, 3, &local), 0);
    assert_int_equal(block, 398491648);                         /* vector 6 */
    assert_int_equal(local.model->params, 2 * block + 2 * (129024 / 8 * h) + h);
    assert_int_equal(local.whole->vocab, 129024);
    assert_int_equal(local.model->vocab, 129024 / 8);
    local_model_free(&local);
    plan_free(&p);
}

static int64_t states(const struct schedules *s)
{
    int64_t sum = 0;

    for (int i = 0; i < s->nbufs; i++)
        if (s->bufs[i].category == CAT_PARAMS || s->bufs[i].category == CAT_GRADS || s->bufs[i].category == CAT_OPTIMIZER)
            sum += s->bufs[i].bytes * (strcmp(s->bufs[i].what, "parameters as they were made") != 0);
    return sum;
}

/* 18 bytes a parameter, or 6 + 12/d: vector 81 (7.5 with d 8, 6.1875 with 64).  Padding and allocations of 512 bytes are below
 * one in 10000 of GPT-2 XL's billion parameters. */
static void bytes_of_a_parameter(void **state)
{
    static const struct { int64_t ranks; enum strategy s; enum dtype reduce; double bytes; } cases[] = {
        { 1, STRAT_DDP, DT_FP32, 18 }, { 8, STRAT_DDP, DT_FP32, 18 }, { 8, STRAT_DDP, DT_BF16, 16 }, { 1, STRAT_ZERO1, DT_FP32, 18 },
        { 8, STRAT_ZERO1, DT_FP32, 7.5 }, { 64, STRAT_ZERO1, DT_FP32, 6.1875 }, { 8, STRAT_ZERO1, DT_BF16, 5.5 },
    };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        of(&p, "llama-3.1-8b", 4, cases[i].ranks, cases[i].s);
        p.reduce_dtype = cases[i].reduce;
        lowered(&p, 0, &s);
        assert_close((double)states(&s) / (double)p.model.params, cases[i].bytes, 1e-4);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* Each instance of the distributed optimizer has all states: 6 + 12 / (ranks of an instance), whatever their number.  A tensor-parallel instance's
 * norm is over its ranks, and losses are averaged over those of all instances: of 16 ranks 2 x 4 and 8. */
static void instances_have_all_states(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        of(&p, "llama-3.1-8b", 4, i ? 64 : 16, STRAT_ZERO1);
        p.shard_group = 8;
        lowered(&p, 0, &s);
        assert_close((double)states(&s) / (double)p.model.params, 7.5, 1e-4);
        plan_free(&p);
    }
    of(&p, "llama-3.1-8b", 4, 16, STRAT_ZERO1);
    cut(&p, 2, 1, 1, 1);
    p.shard_group = 4;
    lowered(&p, 0, &s);
    assert_int_equal(sched_group_ranks(&s, GROUP_INSTANCE), 8);
    assert_int_equal(sched_group_ranks(&s, GROUP_WORLD), 0);
    assert_true(s.communicates >> plan_groups_find(&s.groups, GROUP_DATA) & 1);
    plan_free(&p);
    schedules_free(&s);
}

/* max(40,000,000, 1,000,000 d) elements: vector 33. */
static void buckets_grow_with_the_ranks(void **state)
{
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 2, 16, STRAT_ZERO1);
    assert_int_equal(p.megatron.ddp_bucket_size, 40000000);
    plan_free(&p);
    of(&p, "llama-3.1-8b", 2, 64, STRAT_ZERO1);
    assert_int_equal(p.megatron.ddp_bucket_size, 64000000);
    cut(&p, 2, 1, 1, 1);
    assert_int_equal(p.megatron.ddp_bucket_size, 40000000);     /* 32 data-parallel ranks */
    plan_free(&p);
}

/* Only the pipeline's first rank, and of it the first chunk, has more than one bucket. */
static void one_bucket_off_the_critical_path(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 8, 8, STRAT_ZERO1);
    cut(&p, 1, 2, 2, 4);
    p.megatron.overlap_grad_reduce = true;
    lowered(&p, 0, &s);
    assert_true(s.nunits > 2);
    assert_int_equal(s.units[s.nunits - 1].index, 0);           /* the second chunk's only one */
    assert_true(s.units[s.nunits - 2].index > 0);
    lowered(&p, 4, &s);
    assert_int_equal(s.nunits, 2);
    schedules_free(&s);
    plan_free(&p);
}

/* What the ranks of a tensor-parallel group send for a micro-batch: 6 gathers and 4 scatters a block, 2 + 3 - 1 at the ends more, of
 * b s h elements: vector 13, 94,539,612,160 bytes of 70B on 8 ranks with 8192 tokens.  2 b s h (t-1)/t = 117,440,512 each, 80 blocks
 * of 10, and 5 at the ends (embedding RS, AG; head AG, AG, RS). */
static void a_tensor_group_sends_ten_times_a_block(void **state)
{
    struct schedules s = { 0 };
    struct comm_table t;
    struct plan p;
    int64_t sent = 0;

    (void)state;
    of(&p, "llama-3.1-70b", 0, 8, STRAT_ZERO1);
    p.seq = 8192;
    cut(&p, 8, 1, 1, 1);
    lowered(&p, 0, &s);
    evaluation_comm_count(&s, SCHED_STEADY, &t);
    for (int i = 0; i < t.n; i++)
        if (t.line[i].op != COLL_ALL_REDUCE && s.groups.group[t.line[i].group].is == GROUP_TENSOR)
            sent += t.line[i].bytes / 8 * 7;
    assert_int_equal(sent, 94539612160);
    assert_int_equal(sent, 117440512LL * (80 * 10 + 5));
    schedules_free(&s);
    plan_free(&p);
}

/* 405B in 16 stages of 8 layers, tensor 8, of a stage in the middle: Psi = 8 x 398,491,648 = 3,187,933,184 parameters (vector 38), with the
 * distributed optimizer over 8 ranks 6 Psi + 12 Psi / 8 = 23,909,498,880 bytes (vector 39; filling up of buckets is below one in a million). */
static void a_stage_of_405b_keeps_seven_and_a_half_bytes(void **state)
{
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-405b", 0, 8 * 8 * 16, STRAT_ZERO1);
    p.parallel.first_stage_less = p.parallel.last_stage_less = 1;
    cut(&p, 8, 16, 1, 16);
    lowered(&p, 64, &s);
    assert_close((double)states(&s), 23909498880., 1e-6);
    schedules_free(&s);
    plan_free(&p);
}

/* Bytes of the first collective `op` of a step over a group of this kind. */
static int64_t first(const struct schedules *s, enum coll_op op, enum group of_group)
{
    struct comm_table t;

    evaluation_comm_count(s, SCHED_STEADY, &t);
    for (int i = 0; i < t.n; i++)
        if (t.line[i].op == op && s->groups.group[t.line[i].group].is == of_group)
            return t.line[i].bytes / t.line[i].count;
    return -1;
}

/* b s h bf16 numbers of 405B, 8192 tokens, between stages: 268,435,456 bytes, of 8 ranks with shares of positions an eighth (vector 40). */
static void shares_of_positions_cross_a_boundary(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    for (int sequence = 0; sequence < 2; sequence++) {
        struct plan p;
        of(&p, "llama-3.1-405b", 2, 16, STRAT_ZERO1);
        p.seq = 8192;
        cut(&p, 8, 2, 1, 2);
        p.parallel.sequence = sequence;
        lowered(&p, 0, &s);
        assert_int_equal(first(&s, COLL_SEND, GROUP_PIPE), sequence ? 33554432 : 268435456);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* A GPT of width 768 on 8 tensor-parallel ranks: of its 51,200 columns each end of the pipe adds up an eighth, 4,915,200 fp32 numbers (vector 82). */
static void a_tied_embedding_is_summed_whole(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    json_t *gpt = json_pack("{s:s, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_layer", 2, "n_embd", 768, "n_head", 16, "vocab_size", 50257);

    (void)state;
    of(&p, "gpt2", 2, 16, STRAT_ZERO1);
    model_free(&p.model);
    assert_int_equal(model_from_config(gpt, "test", &p.model), 0);
    json_decref(gpt);
    cut(&p, 8, 2, 1, 2);
    lowered(&p, 0, &s);
    assert_int_equal(first(&s, COLL_ALL_REDUCE, GROUP_TIED), 4 * 4915200);
    schedules_free(&s);
    plan_free(&p);
}

static void refused(struct plan *p, const char *says)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = plan_check(p, "t");
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, says))
        fail_msg("\"%s\" does not say \"%s\"", why, says);
}

/* (126 + 2) layers in 8 x 8 stages: 2 each, the outer ones one fewer (vector 37); 126 alone do not divide.  10 micro-steps in rounds
 * of 4 leave 2, fewer than 4 ranks: RuntimeError; in rounds of 5 none (vector 50). */
static void splits_must_be_exact(void **state)
{
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-405b", 126, 64, STRAT_ZERO1);
    cut(&p, 1, 8, 8, 8);
    refused(&p, "do not divide by 64 stages");
    p.parallel.first_stage_less = p.parallel.last_stage_less = 1;
    assert_int_equal(plan_check(&p, "t"), 0);
    assert_int_equal(local_share_of(&p, 0).chunk[0].blocks, 1);
    assert_int_equal(local_share_of(&p, 0).chunk[1].blocks, 2);
    assert_int_equal(local_share_of(&p, 63).chunk[7].blocks, 1);
    plan_free(&p);
    of(&p, "llama-3.1-8b", 8, 8, STRAT_ZERO1);
    cut(&p, 1, 4, 2, 10);
    refused(&p, "leave 2");
    p.megatron.microbatch_group_size_per_vp_stage = 5;
    assert_int_equal(plan_check(&p, "t"), 0);
    p.megatron.microbatch_group_size_per_vp_stage = 3;
    refused(&p, "should be from 4");
    plan_free(&p);
}

static void what_it_lacks_is_refused_by_name(void **state)
{
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 8, 8, STRAT_ZERO1);
    p.megatron.overlap_param_gather = true;
    refused(&p, "overlap_grad_reduce");
    p.megatron.overlap_param_gather = false;
    p.precision = DT_FP16;
    p.reduce_dtype = DT_BF16;
    refused(&p, "reduce_dtype");
    p.precision = DT_BF16;
    p.reduce_dtype = DT_FP16;
    refused(&p, "reduce_dtype");
    p.reduce_dtype = DT_FP32;
    cut(&p, 1, 2, 1, 4);
    p.parallel.pipeline_schedule = PIPELINE_GPIPE;
    refused(&p, "1f1b and interleaved");
    plan_free(&p);
    of(&p, "falcon-40b", 2, 8, STRAT_ZERO1);
    refused(&p, "its family");
    plan_free(&p);
}

/* ---- pipelines ---- */

struct sent { int peer, tag, recv; };
struct sents { struct sent of[1024]; int n; };

static int note(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sents *l = arg;

    (void)s, (void)iteration;
    if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op)) {
        assert_true(l->n < 1024);
        l->of[l->n++] = (struct sent){ o->u.coll.peer, o->u.coll.tag, o->u.coll.op == COLL_RECV };
    }
    return 0;
}

static int count(const struct sents *l, int peer, int tag, int recv)
{
    int n = 0;

    for (int i = 0; i < l->n; i++)
        n += l->of[i].peer == peer && l->of[i].tag == tag && l->of[i].recv == recv;
    return n;
}

/* Every rank's schedule is sound, what one sends another receives, the stages together are the model, and no rank waits for ever. */
static void every_pipeline_is_sound(void **state)
{
    static const struct { int pipe, chunks, steps, group; bool overlaps; } cases[] = {
        { 2, 1, 1, 0, 1 }, { 2, 1, 5, 0, 1 }, { 4, 1, 8, 0, 1 }, { 4, 1, 2, 0, 1 }, { 2, 2, 2, 0, 1 }, { 2, 2, 4, 0, 0 }, { 4, 2, 8, 0, 1 },
        { 4, 2, 8, 0, 0 }, { 4, 2, 4, 0, 1 }, { 2, 4, 6, 0, 1 }, { 4, 2, 10, 5, 1 }, { 2, 2, 5, 3, 1 }, { 2, 2, 8, 8, 1 }, { 4, 2, 12, 8, 0 },
    };
    static struct sents all[4];
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 4; k++) {
            struct plan p;
            struct evaluation e;
            int64_t params = 0;
            of(&p, "llama-2-7b", 8, 2 * cases[i].pipe, k & 2 ? STRAT_DDP : STRAT_ZERO1);
            cut(&p, 1, cases[i].pipe, cases[i].chunks, cases[i].steps);
            if (cases[i].group)
                p.megatron.microbatch_group_size_per_vp_stage = cases[i].group;
            p.megatron.overlap_grad_reduce = k & 1;
            p.megatron.overlap_param_gather = k == 1;
            if (cases[i].chunks > 1)
                p.megatron.overlap_p2p_comm = cases[i].overlaps;
            for (int r = 0; r < cases[i].pipe; r++) {
                struct local_model local;
                lowered(&p, 2 * r, &s);
                all[r].n = 0;
                sched_walk(&s, SCHED_STEADY, note, &all[r]);
                assert_int_equal(local_model_of(&p, 2 * r, &local), 0);
                params += local.model->params;
                local_model_free(&local);
            }
            assert_int_equal(params, p.model.params);           /* 32000 is a multiple of 128 */
            for (int r = 0; r < cases[i].pipe; r++)
                for (int j = 0; j < all[r].n; j++) {
                    struct sent m = all[r].of[j];
                    assert_int_equal(count(&all[r], m.peer, m.tag, m.recv), count(&all[m.peer], r, m.tag, !m.recv));
                }
            assert_int_equal(evaluate(&p, &e), 0);
            evaluation_free(&e);
            plan_free(&p);
        }
    schedules_free(&s);
}

/* ---- command lines ---- */

/* Options that few command lines have. */
static void what_is_said_otherwise(struct plan *p, int which)
{
    static const enum context_method methods[] = { CONTEXT_ALL_GATHER, CONTEXT_ULYSSES, CONTEXT_RING, CONTEXT_RING };

    p->recompute = RECOMPUTE_NONE;
    if (which < 4) {
        cut(p, 1, 1, 1, 2);
        p->parallel.context = 4;
        knob_follow(p, NULL, NULL);
        p->parallel.context_method = methods[which];
        p->megatron.a2a_ranks = which == 3 ? 2 : 1;
        p->recompute = RECOMPUTE_SELECTIVE;
        strcpy(p->megatron.recompute_modules, which == 1 ? "core_attn,mlp" : which ? "mlp" : "");
    } else {
        cut(p, 1, 4, which == 4 ? 1 : 2, 4);
        strcpy(p->megatron.pipeline_layout, which == 4 ? "Et|tt|t*3|ttL" : "E|(t|)*6t*2L");
        p->megatron.defer_embedding_wgrad_compute = which == 4, p->megatron.wgrad_deferral_limit = which == 4 ? 3 : 0;
        p->recompute = RECOMPUTE_FULL, p->megatron.recompute_num_layers = 1;
    }
    p->megatron.calculate_per_token_loss = which & 1;
    plan_resolve(p);
}

/* What a plan's options say is the plan. */
static void a_plan_survives_its_command_line(void **state)
{
    (void)state;
    for (int k = 0; k < 14; k++) {
        struct plan p, back;
        char *text = NULL;
        size_t size;
        of(&p, "llama-3.1-8b", 8, 16, k & 1 ? STRAT_DDP : STRAT_ZERO1);
        cut(&p, k & 2 ? 2 : 1, k & 4 ? 2 : 1, k == 6 ? 2 : 1, 4);
        p.clip = 1;
        p.dropout = 0;
        p.shard_group = k == 2 ? 4 : p.shard_group;     /* 2 tensor-parallel ranks, 8 data-parallel ones: 2 instances */
        p.megatron.overlap_grad_reduce = k & 2;
        p.megatron.overlap_param_gather = k == 2;
        p.megatron.check_for_nan_in_loss_and_grad = k < 3;
        p.megatron.mtp_num_layers = k == 0 || k == 6;
        p.recompute = k == 5 ? RECOMPUTE_FULL : k == 3 ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
        p.reduce_dtype = k & 4 ? DT_BF16 : DT_FP32;
        p.megatron.attention_backend = k < 8 ? (enum attention_backend)(k % 3) : BACKEND_AUTO;
        p.megatron.fp8_format = k == 4 ? FP8_HYBRID : k == 7 ? FP8_E4M3 : FP8_OFF;
        p.megatron.fp8_recipe = k == 4 ? FP8_TENSORWISE : FP8_DELAYED;
        p.megatron.fp8_param_gather = k == 4;
        p.megatron.fp8_amax_history_len = k == 7 ? 16 : 1;
        p.megatron.first_last_layers_bf16 = k == 4;
        p.megatron.num_layers_at_start_in_bf16 = k == 4 ? 2 : 1;
        p.megatron.num_layers_at_end_in_bf16 = k == 4 ? 0 : 1;
        if (k >= 8)
            what_is_said_otherwise(&p, k - 8);
        assert_int_equal(plan_check(&p, "t"), 0);
        FILE *to = open_memstream(&text, &size);
        assert_int_equal(export_plan(&p, "megatron", to), 0);
        fclose(to);
        if (imported(text, "txt", &p, &back) < 0)
            fail_msg("not read back: %s", text);
        json_t *a = plan_to_json(&p), *b = plan_to_json(&back);
        if (!json_equal(a, b))
            fail_msg("%d: %s\n%s", k, json_dumps(a, 0), json_dumps(b, 0));
        json_decref(a);
        json_decref(b);
        free(text);
        plan_free(&back);
        plan_free(&p);
    }
}

static void options_are_read_as_yaml_or_refused(void **state)
{
    static const struct { const char *text, *end, *says; } cases[] = {
        { "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --micro-batch-size: 1\n  --seq-length: 512\n  --bf16: true\n  --fp16: false\n", "yaml", NULL },
        { "tensor_model_parallel_size: 2\nmicro_batch_size: 1\nseq_length: 512\nbf16: true\n", "yaml", NULL },
        { "tensor_model_parallel_size: 2\nmicro_batch_size: 1\nseq_length: 512\nbf16: maybe\n", "yaml", "bf16: it is there or not" },
        { "torchrun --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size=2 --micro-batch-size 1 \\\n --seq-length 512 # tokens\n --bf16", "txt", NULL },
        { "--micro-batch-size 1 --seq-length 512 --tensor-model-parallel-size $TP", "txt", "shell's variable" },
        { "--micro-batch-size 1 --seq-length 512 --num-layers 7", "txt", "num_layers: 7, but" },
        { "--micro-batch-size 1 --seq-length 512 --num-experts 8", "txt", "num_experts: 8, but" },
        { "--micro-batch-size 1 --seq-length 512 --tensor-modell-parallel-size 2", "txt", "tensor_modell_parallel_size" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --fp8-format hybrid --fp8-recipe rowwise", "txt", "fp8_recipe: expected one of the words" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --fp8-format hybrid --fp8-multi-head-attention", "txt", "attention in 8 bits" },
        { "model:\n  seq_length: 512\ntrain:\n  micro_batch_size: 1\nmixed_precision: bf16_with_fp8_current_scaling_mixed\n", "yaml",
          "mixed_precision: \"bf16_with_fp8_current_scaling_mixed\": 8- and 4-bit floats are read from fields" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --attention-backend unfusd", "txt", "attention_backend: expected one" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --attention-backend unfused --context-parallel-size 2", "txt", "unfused is not modelled beside" },
        { "--micro-batch-size 3 --seq-length 512 --global-batch-size 100", "txt", "global_batch_size: 100" },
        { "8 --micro-batch-size 1", "txt", "expected an option" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --use-distributed-optimizer --num-distributed-optimizer-instances 3", "txt", "num_distributed_optimizer_instances: 3 does not" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --use-distributed-optimizer --num-distributed-optimizer-instances 16", "txt", "leaves each its states whole" },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --use-distributed-optimizer --num-distributed-optimizer-instances 2 --reduce-scatter-with-fp32-accumulation", "txt", "refuses it" },
        { "--micro-batch-size 99999999999999999999 --seq-length 512", "txt", "expected a number" },
        { "--micro-batch-size 1 --seq-length 512 ${GPT_ARGS[@]}", "txt", "options in a shell's variable" },
        { "--micro-batch-size 1 --seq-length 512 --optimizer sgd", "txt", "adam alone" },
        { "--micro-batch-size 1 --seq-length 512 --hidden-dropout 0", "txt", "attention_dropout: 0.1 beside hidden_dropout 0" },
        { "--micro-batch-size 1 --seq-length 512 --max-position-embeddings 256", "txt", "fewer than seq_length" },
        { "--micro-batch-size 1 --seq-length 512 --vocab-size 1000", "txt", "vocab_size: 1000" },
        { "--micro-batch-size 1 --seq-length 512 --num-layers 8", "txt", "swiglu: llama-3.1-8b has it" },
        { "--micro-batch-size 1 --seq-length 512 --context-parallel-size 4 --cp-comm-type p2p a2a", "txt", "the same for all layers" },
        { "--micro-batch-size 1 --seq-length 512 --context-parallel-size 4 --cp-comm-type a2a+p2p", "txt", "expected two numbers" },
        { "--micro-batch-size 1 --seq-length 512 --recompute-granularity full --recompute-method uniform --recompute-num-layers 2", "txt", "recomputed as one" },
        { "--micro-batch-size 1 --seq-length 512 --recompute-granularity selective --recompute-modules moe_act", "txt", "moe_act in recompute_modules is only supported with moe_grouped_gemm" },
        { "--micro-batch-size 1 --seq-length 512 --recompute-granularity selective --recompute-modules everything", "txt", "\"everything\"" },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 3 --account-for-loss-in-pipeline-split",
          "txt", "not beside account_for" },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3", "txt", "do not divide by 3" },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|t*4", "txt", "one loss (L)" },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|t*3|L", "txt", "do not divide by" },
        { "model:\n  seq_length: 512\ndata:\n  seq_length: 1024\n", "yaml", "two sections say different things" },
        { "train:\n  micro_batch_size: 1\nmodel:\n  seq_length: 512\n  sequence_parallel: 1\n", "yaml", "sequence_parallel: expected true or false" },
        { "train:\n  micro_batch_size: 1\nmodel:\n  seq_length: 512\n  fp16: true\n  bf16: true\n", "yaml", "fp16: beside bf16" },
        { "model:\n  seq_length: 512\nmixed_precision: half\n", "yaml", "mixed_precision: expected the name of a number" },
        { "train:\n  micro_batch_size: 1\nmodel:\n  seq_length: 512\ntrainer:\n  devices: 9223372036854775807\n  num_nodes: 4\nmixed_precision: bf16_mixed\n", "yaml", "world_size" },
        { "train:\n  micro_batch_size: 1\nmodel:\n  seq_length: 512\nddp:\n  grad_reduce_in_fp32: yep\n", "yaml", "ddp.grad_reduce_in_fp32: expected true or false" },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers abc", "txt", "decoder_first_pipeline_num_layers: expected a number from 1 to " },
        { "--micro-batch-size 1 --seq-length 512 --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 9223372036854775807", "txt",
          "decoder_last_pipeline_num_layers: expected a number from 1 to " },
        { "model:\n  seq_length: 512\n  tensor_model_parallel_size: 2\ntrain:\n  micro_batch_size: 1\ntrainer:\n  devices: 8\n"
          "mixed_precision: bf16_mixed\n", "yaml", NULL },     /* the cluster's 16 */
        { "--micro-batch-size 1 --seq-length 512 --empty-unused-memory-level 3", "txt", "empty_unused_memory_level: expected 0, 1 or 2" },
        { "--tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 512 --bf16 --empty-unused-memory-level 1", "txt", NULL },
        { "--micro-batch-size 1 --seq-length 512 --num-layers 8 --swiglu", "txt", "normalization RMSNorm (left out it is LayerNorm): llama-3.1-8b has it" },
        { "--tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 512 --bf16 --save \"$CHECKPOINTS\" --decoupled-lr 1e-4 --empty-unused-memory-level 0 "
          "--expert-model-parallel-size 1", "txt", NULL },
        { "tensor_model_parallel_size: 2\nbf16: true\ncontext_parallel_size: 4\ncp_comm_type: a2a+p2p\nhierarchical_context_parallel_sizes: 2 2\nmicro_batch_size: 1\n"
          "seq_length: 512\n", "yaml", NULL },              /* a command's two words */
        { "tensor_model_parallel_size: 2\nbf16: true\ncontext_parallel_size: 4\ncp_comm_type: a2a+p2p\nhierarchical_context_parallel_sizes: '[2 2]'\nmicro_batch_size: 1\n"
          "seq_length: 512\n", "yaml", NULL },
        { "bf16: true\ncontext_parallel_size: 4\ncp_comm_type: a2a+p2p\nhierarchical_context_parallel_sizes: 2 x2\nmicro_batch_size: 1\nseq_length: 512\n", "yaml", "whose product is context_parallel_size 4" },
    };
    struct plan model;

    (void)state;
    of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        char why[512] = "";
        fail_capture(why, sizeof why);
        int rc = imported(cases[i].text, cases[i].end, &model, &p);
        fail_capture(NULL, 0);
        if ((rc < 0) != (cases[i].says != NULL) || (cases[i].says && !strstr(why, cases[i].says)))
            fail_msg("%s: %s", cases[i].text, why);
        if (rc < 0)
            continue;
        assert_int_equal(p.parallel.tensor, 2);
        assert_int_equal(p.strategy, STRAT_DDP);
        assert_int_equal(p.precision, DT_BF16);
        assert_false(p.parallel.sequence);
        plan_free(&p);
    }
    plan_free(&model);
}

static struct plan read_as(const char *text, const char *end, int64_t layers, int64_t world)
{
    struct plan model, p;

    of(&model, "llama-3.1-8b", layers, world, STRAT_ZERO1);
    if (imported(text, end, &model, &p) < 0)
        fail_msg("not read: %s", text);
    plan_free(&model);
    return p;
}

/* get_num_layers_to_build(): 32 layers on 4 ranks, the first 5 and the last 7 of them, the others 10 each; with two chunks the first rank's 4
 * are 2 and 2, the others' 8 are 4 and 4 (28 / 3 does not divide: 4 + 3 * 8 = 28 layers). */
static void uneven_stages_become_a_layout(void **state)
{
    struct plan p = read_as("--micro-batch-size 1 --global-batch-size 8 --seq-length 512 --bf16 --pipeline-model-parallel-size 4 "
                            "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", "txt", 32, 4);

    (void)state;
    assert_string_equal(p.megatron.pipeline_layout, "Et*5|(t*10|)*2t*7L");
    plan_free(&p);
    p = read_as("--micro-batch-size 1 --global-batch-size 8 --seq-length 512 --bf16 --pipeline-model-parallel-size 4 "
                "--num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 4", "txt", 28, 4);
    assert_int_equal(p.parallel.virtual_stages, 2);
    assert_string_equal(p.megatron.pipeline_layout, "Et*2|(t*4|)*3t*2|(t*4|)*2t*4L");
    plan_free(&p);
    p = read_as("--micro-batch-size 1 --global-batch-size 8 --seq-length 512 --bf16 --pipeline-model-parallel-size 2 "
                "--pipeline-model-parallel-layout \"Et|(tt|)*2,L\"", "txt", 5, 2);
    assert_int_equal(p.parallel.virtual_stages, 2);
    assert_int_equal(p.parallel.pipeline_schedule, PIPELINE_INTERLEAVED);
    plan_free(&p);
}

/* Llama-3.1 8B as Megatron-Bridge's ConfigContainer and NeMo 2's recipes have it (their fields, of which other tools' are left out). */
static void recipes_in_sections_are_read(void **state)
{
    static const char bridge[] =
        "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 2\n"
        "  context_parallel_size: 2\n  cp_comm_type: all_gather\n  sequence_parallel: true\n  seq_length: 8192\n  num_layers: 8\n"
        "  gated_linear_unit: true\n  normalization: RMSNorm\n  position_embedding_type: rope\n  add_bias_linear: false\n"
        "  share_embeddings_and_output_weights: false\n  hidden_dropout: 0.0\n  attention_dropout: 0.0\n  recompute_granularity: selective\n"
        "  recompute_modules:\n  - mlp\n  recompute_method: null\n  cross_entropy_loss_fusion: true\n  cross_entropy_fusion_impl: te\n"
        "  calculate_per_token_loss: false\n  overlap_p2p_comm: true\n"
        "train:\n  micro_batch_size: 1\n  global_batch_size: 128\n  train_iters: 50\n"
        "ddp:\n  use_distributed_optimizer: true\n  overlap_grad_reduce: true\n  overlap_param_gather: true\n  check_for_nan_in_grad: false\n"
        "  grad_reduce_in_fp32: true\noptimizer:\n  optimizer: adam\n  use_distributed_optimizer: true\n  clip_grad: 1.0\n"
        "mixed_precision:\n  bf16: true\n  grad_reduce_in_fp32: false\n  fp8: null\ncomm_overlap:\n  tp_comm_overlap: true\ndataset:\n"
        "  sequence_length: 8192\nlogger:\n  log_interval: 1\n";
    static const char nemo[] =
        "model:\n  config:\n    seq_length: 8192\n    num_layers: 8\ntrainer:\n  devices: 8\n  num_nodes: 2\n  strategy:\n"
        "    tensor_model_parallel_size: 2\n    pipeline_model_parallel_size: 1\n    virtual_pipeline_model_parallel_size: null\n"
        "    context_parallel_size: 2\n    sequence_parallel: true\n    ddp:\n      check_for_nan_in_grad: true\n      grad_reduce_in_fp32: true\n"
        "      overlap_grad_reduce: true\n      overlap_param_gather: true\n      average_in_collective: true\n  plugins:\n    precision: bf16-mixed\n"
        "    grad_reduce_in_fp32: true\n  callbacks:\n  - tp_comm_overlap: true\n  - warmup: 3\ndata:\n  seq_length: 8192\n  micro_batch_size: 1\n"
        "  global_batch_size: 512\noptim:\n  config:\n    optimizer: adam\n    use_distributed_optimizer: true\n    clip_grad: 1.0\n    bf16: true\n";
    struct plan p = read_as(bridge, "yaml", 8, 16);

    (void)state;
    assert_int_equal(p.strategy, STRAT_ZERO1);
    assert_int_equal(p.precision, DT_BF16);
    assert_int_equal(p.reduce_dtype, DT_BF16);          /* the number format's section wins over ddp's */
    assert_int_equal(p.parallel.context_method, CONTEXT_ALL_GATHER);
    assert_int_equal(p.parallel.virtual_stages, 2);
    assert_int_equal(p.accumulation, 128 / (16 / 8));
    assert_int_equal(p.recompute, RECOMPUTE_SELECTIVE);
    assert_string_equal(p.megatron.recompute_modules, "mlp");
    assert_int_equal(p.loss, LOSS_FUSED);
    assert_true(p.megatron.tp_comm_overlap && p.megatron.overlap_param_gather && p.megatron.overlap_p2p_comm && p.parallel.sequence);
    assert_false(p.megatron.check_for_nan_in_loss_and_grad || p.megatron.ddp_average_in_collective);
    plan_free(&p);
    p = read_as(nemo, "yaml", 8, 16);
    assert_int_equal(p.strategy, STRAT_ZERO1);
    assert_int_equal(p.reduce_dtype, DT_FP32);
    assert_int_equal(p.accumulation, 512 / (16 / 4));
    assert_true(p.megatron.tp_comm_overlap && p.megatron.ddp_average_in_collective && p.megatron.check_for_nan_in_loss_and_grad);
    assert_close(p.dropout, 0, 0);                      /* what is not said is the model's own */
    plan_free(&p);
}

/* fp16_mixed reduces in 16 bits (Megatron-Bridge's training/mixed_precision.py); MixedPrecisionConfig written out has grad_reduce_in_fp32 true. */
static void sections_in_fp16_are_read(void **state)
{
#define TRAIN "train:\n  micro_batch_size: 1\n  global_batch_size: 16\nmodel:\n  seq_length: 2048\nddp:\n  use_distributed_optimizer: true\n"
    static const struct { const char *more; enum dtype reduced; } cases[] = {
        { "mixed_precision: fp16_mixed\n", DT_FP16 },
        { "mixed_precision: 16-mixed\n", DT_FP16 },
        { "mixed_precision:\n  fp16: true\n  grad_reduce_in_fp32: false\n", DT_FP16 },
        { "mixed_precision:\n  fp16: true\n", DT_FP32 },
        { "  grad_reduce_in_fp32: true\nmixed_precision: 16-mixed\n", DT_FP16 },       /* MixedPrecisionConfig.setup() writes over ddp's */
        { "  grad_reduce_in_fp32: true\noptimizer:\n  fp16: true\n", DT_FP32 },
        { "optimizer:\n  fp16: true\n", DT_FP16 },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, TRAIN "%s", cases[i].more);
        struct plan p = read_as(text, "yaml", 8, 8);
        assert_int_equal(p.precision, DT_FP16);
        assert_int_equal(p.reduce_dtype, cases[i].reduced);
        plan_free(&p);
    }
#undef TRAIN
}

/* What sections say of 8-bit floats is planned as the options of a command line are; in 16 bits what is written beside them says nothing. */
static void sections_with_8_bit_floats_are_read(void **state)
{
#define TRAIN "train:\n  micro_batch_size: 1\n  global_batch_size: 16\nmodel:\n  seq_length: 8192\nddp:\n  use_distributed_optimizer: true\n"
    static const char *const gathers[] = { "fp8_param_gather", "fp8_param", "fp8_params" };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof gathers / sizeof *gathers; i++) {
        snprintf(text, sizeof text, TRAIN "mixed_precision:\n  bf16: true\n  fp8: hybrid\n  fp8_recipe: tensorwise\n  %s: true\n", gathers[i]);
        struct plan p = read_as(text, "yaml", 8, 8);
        assert_int_equal(p.megatron.fp8_format, FP8_HYBRID);
        assert_int_equal(p.megatron.fp8_recipe, FP8_TENSORWISE);
        assert_true(p.megatron.fp8_param_gather);
        plan_free(&p);
    }
    struct plan p = read_as(TRAIN "mixed_precision:\n  bf16: true\n  fp8: e4m3\n  fp8_recipe: delayed\n  fp8_amax_history_len: 1024\n", "yaml", 8, 8);
    assert_int_equal(p.megatron.fp8_format, FP8_E4M3);
    assert_int_equal(p.megatron.fp8_amax_history_len, 1024);
    assert_false(p.megatron.fp8_param_gather);
    plan_free(&p);
    p = read_as(TRAIN "mixed_precision:\n  bf16: true\n  fp8: null\n  fp8_recipe: tensorwise\n  fp8_param_gather: false\n"
                "  fp8_amax_history_len: 1024\n", "yaml", 8, 8);
    assert_int_equal(p.megatron.fp8_format, FP8_OFF);
    plan_free(&p);
#undef TRAIN
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_stages_become_a_layout),
        cmocka_unit_test(recipes_in_sections_are_read),
        cmocka_unit_test(sections_in_fp16_are_read),
        cmocka_unit_test(sections_with_8_bit_floats_are_read),
        cmocka_unit_test(vocabularies_are_filled_up),
        cmocka_unit_test(a_rank_has_its_part),
        cmocka_unit_test(bytes_of_a_parameter), cmocka_unit_test(instances_have_all_states),
        cmocka_unit_test(buckets_grow_with_the_ranks),
        cmocka_unit_test(one_bucket_off_the_critical_path),
        cmocka_unit_test(a_tensor_group_sends_ten_times_a_block),
        cmocka_unit_test(a_stage_of_405b_keeps_seven_and_a_half_bytes),
        cmocka_unit_test(shares_of_positions_cross_a_boundary),
        cmocka_unit_test(a_tied_embedding_is_summed_whole),
        cmocka_unit_test(splits_must_be_exact),
        cmocka_unit_test(what_it_lacks_is_refused_by_name),
        cmocka_unit_test(every_pipeline_is_sound),
        cmocka_unit_test(a_plan_survives_its_command_line),
        cmocka_unit_test(options_are_read_as_yaml_or_refused),
    };
    return cmocka_run_group_tests_name("model/megatron", tests, NULL, NULL);
}
