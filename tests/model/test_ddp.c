/* test_ddp.c -- DistributedDataParallel: buckets, their order, memory of each step. */
#include "tests/model/flows.h"
#include "tests/plan_words.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/common/lower_internal.h"
#include "model/framework/torch_ddp/ddp_buckets.h"
#include "model/framework/zero_redundancy/zro.h"
#include "model/schedule/ledger.h"

static struct schedules s;

/* ---- buckets ---- */

static const int64_t defaults[2] = { 1 << 20, 25 << 20 };

static int *reverse_order(const struct model *m)
{
    int *order = calloc((size_t)m->ntensors, sizeof *order);

    for (int i = 0; i < m->ntensors; i++)
        order[i] = m->ntensors - 1 - i;
    return order;
}

static void same_buckets(const struct buckets *b, int64_t e, int n, const int64_t (*want)[3])
{
    int i = 0;

    for (int k = 0; k < n; k++)                 /* so many buckets of tensors, bytes */
        for (int64_t j = 0; j < want[k][0]; j++, i++) {
            assert_true(i < b->n);
            assert_int_equal(b->tensors[i], want[k][1]);
            assert_int_equal(b->numel[i] * e, want[k][2]);
        }
    assert_int_equal(b->n, i);
}

/* Worked by hand in reverse order of registration: each block has 12 tensors and
 * 7,087,872 elements; the final norm and what closes its bucket come first. */
static void gpt2_has_the_buckets_of_the_vectors(void **state)
{
    (void)state;
    static const int64_t fp32[][3] = { { 1, 4, 9446400 }, { 11, 12, 28351488 }, { 1, 12, 176446464 } };
    static const int64_t bf16[][3] = { { 1, 4, 4723200 }, { 5, 24, 28351488 }, { 1, 24, 102398976 } };
    static const int64_t all[][3] = { { 1, 148, 497759232 } };
    static const int64_t one[2] = { INT64_MAX, INT64_MAX };
    struct plan p;
    struct buckets b;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    int *order = reverse_order(&p.model);
    buckets_assign(&p.model, order, p.model.ntensors, 4, defaults, &b);
    same_buckets(&b, 4, 3, fp32);
    buckets_free(&b);
    buckets_assign(&p.model, order, p.model.ntensors, 2, defaults, &b);
    same_buckets(&b, 2, 3, bf16);
    buckets_free(&b);
    buckets_assign(&p.model, order, p.model.ntensors, 4, one, &b);
    same_buckets(&b, 4, 1, all);
    buckets_free(&b);
    free(order);
    plan_free(&p);
}

/* A bucket is closed by the tensor that reaches the limit: without its last one
 * each is below it, and only the last bucket may end below. */
static void a_bucket_is_closed_by_the_tensor_that_fills_it(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "qwen3-0.6b", "opt-125m" };

    for (int i = 0; i < 4; i++)
        for (int64_t cap = 1; cap < (int64_t)1 << 31; cap *= 7) {
            struct plan p;
            struct buckets b;
            int64_t limits[2] = { cap, 3 * cap }, filled = 0;
            int at = 0;
            plan_of(&p, models[i], 4, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
            int *order = reverse_order(&p.model);
            buckets_assign(&p.model, order, p.model.ntensors, 4, limits, &b);
            for (int k = 0; k < p.model.ntensors; k++) {
                int64_t bytes = 4 * p.model.tensors[order[k]].numel;
                assert_int_equal(b.of[order[k]], at);
                assert_true(filled < limits[at > 0]);
                filled += bytes;
                if (filled >= limits[at > 0]) {
                    assert_int_equal(b.numel[at] * 4, filled);
                    at++;
                    filled = 0;
                }
            }
            assert_int_equal(b.n, at + (filled > 0));
            buckets_free(&b);
            free(order);
            plan_free(&p);
        }
}

/* GPT-2's final norm: two tensors of 768 elements, 3072 bytes each. */
static void a_tensor_that_just_reaches_the_limit_closes_its_bucket(void **state)
{
    (void)state;
    struct plan p;
    struct buckets b;

    plan_of(&p, "gpt2", 1, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    int *order = reverse_order(&p.model);
    for (int64_t limit = 3071; limit <= 3073; limit++) {
        buckets_assign(&p.model, order, p.model.ntensors, 4, (int64_t[2]){ limit, limit }, &b);
        assert_int_equal(b.tensors[0], limit <= 3072 ? 1 : 2);
        buckets_free(&b);
    }
    free(order);
    plan_free(&p);
}

static void reversing_buckets_twice_changes_nothing(void **state)
{
    (void)state;
    struct plan p;
    struct buckets a, b;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    int *order = reverse_order(&p.model);
    buckets_assign(&p.model, order, p.model.ntensors, 4, defaults, &a);
    buckets_assign(&p.model, order, p.model.ntensors, 4, defaults, &b);
    buckets_reverse(&b, p.model.ntensors);
    for (int i = 0; i < a.n; i++)
        assert_int_equal(b.numel[i], a.numel[a.n - 1 - i]);
    for (int t = 0; t < p.model.ntensors; t++)
        assert_int_equal(b.of[t], a.n - 1 - a.of[t]);
    buckets_reverse(&b, p.model.ntensors);
    assert_memory_equal(a.of, b.of, (size_t)p.model.ntensors * sizeof *a.of);
    buckets_free(&a);
    buckets_free(&b);
    free(order);
    plan_free(&p);
}

/* Every kernel set hands out every gradient once: as many as there are tensors. */
static void every_gradient_becomes_ready_once(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "gpt-lite", "gpt-lite-matrices", "opt-125m", "llama-3.2-1b",
        "llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b", "mistral-7b", "gemma-2b", "gemma-2-2b", "phi-3-mini",
        "falcon-7b", "falcon-40b", "gpt-neox-20b", "bloom-560m", "starcoder2-3b" };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int k = 0; k < 3 * 2 * NRECOMPUTE; k++) {
            struct plan p;
            struct program g = { 0 };
            plan_of(&p, models[i], 3, 2, STRAT_DDP, DIALECT_TORCH, k / 3 % 2 ? DT_BF16 : DT_FP32);
            p.kernels = (enum kernel_set)(k % 3);
            p.recompute = (enum recompute)(k / 6);
            assert_int_equal(program_build(&p, &g), 0);
            int n = p.model.ntensors, *seen = calloc((size_t)n, sizeof *seen), ready = 0;
            for (int b = -2; b < p.model.layers; b++) {
                enum piece_id id = b == -2 ? PIECE_HEAD : b == -1 ? PIECE_EMBED : program_piece_of_block(&p, b);
                const struct piece *q = &g.piece[id];
                for (int kernel = 0; kernel < q->nkernels[PASS_BACKWARD]; kernel++)
                    for (int j = 0; j < 4; j++)
                        if (q->kernels[PASS_BACKWARD][kernel].ready[j] >= 0) {
                            seen[program_tensor(&p, id, b, q->kernels[PASS_BACKWARD][kernel].ready[j])]++;
                            ready++;
                        }
            }
            for (int t = 0; t < n; t++)
                if (seen[t] != 1)
                    fail_msg("%s with %s: the gradient of %s comes %d times", models[i], kernels_name(p.kernels),
                             p.model.tensors[t].name, seen[t]);
            assert_int_equal(ready, n);
            free(seen);
            program_free(&g);
            plan_free(&p);
        }
}

/* ---- the schedule ---- */

/* All-reduces of gradients in order of their buckets, 0 to the last, round and
 * round; returns how many rounds, and the elements of one. */
struct rounds { int rounds, next, buckets; int64_t elems; };

static int one_reduce(const struct schedules *q, const struct op *o, int64_t iteration, void *arg)
{
    struct rounds *r = arg;

    (void)q;
    (void)iteration;
    if (o->kind != OP_COLL || o->u.coll.op != COLL_ALL_REDUCE || !o->of)
        return 0;
    if (o->unit == 0 && r->next > 0) {
        r->rounds++;
        r->buckets = r->next;
        r->next = 0;
        r->elems = 0;
    }
    assert_int_equal(o->unit, r->next);
    r->next++;
    r->elems += o->u.coll.elems;
    return 0;
}

static struct rounds rounds_of(enum sched_id id)
{
    struct rounds r = { 0 };

    sched_walk(&s, id, one_reduce, &r);
    if (r.next > 0)
        r.rounds++;
    return r;
}

static void buckets_are_reduced_in_order_and_hold_every_gradient_once(void **state)
{
    (void)state;
    static const double caps[] = { -1, 25, 1, 0.001, 1000 };
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "bloom-560m", "opt-125m" };

    for (int i = 0; i < 4 * 5 * 8; i++) {
        struct plan p;
        plan_of(&p, models[i % 4], 4, 3, STRAT_DDP, DIALECT_TORCH, DT_FP32);
        p.ddp.bucket_cap_mb = caps[i / 4 % 5];
        p.ddp.gradient_as_bucket_view = i / 20 & 1;
        p.ddp.find_unused_parameters = i / 20 & 2;
        p.ddp.static_graph = i / 20 & 4;
        lowered(&p, 0, &s);
        for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++) {
            struct rounds r = rounds_of((enum sched_id)id);
            assert_int_equal(r.rounds, 1);
            assert_int_equal(r.elems, p.model.params);
        }
        plan_free(&p);
    }
}

/* 124,439,808 elements, 497,759,232 bytes at once in the first iteration; later as many
 * buckets as the ready order has, together as large. */
static void the_first_iteration_has_one_bucket(void **state)
{
    (void)state;
    struct plan p;

    for (int bf16 = 0; bf16 < 2; bf16++) {
        plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, bf16 ? DT_BF16 : DT_FP32);
        p.ddp.model_dtype = bf16 ? DT_BF16 : -1;
        if (bf16)
            p.reduce_dtype = DT_BF16;
        if (plan_check(&p, "test") < 0)
            p.reduce_dtype = DT_FP32;
        lowered(&p, 0, &s);
        struct tally first = tally_of(&s, SCHED_FIRST, COLL_ALL_REDUCE);
        struct tally steady = tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE);
        assert_int_equal(first.count, 1);
        assert_int_equal(first.elems, 124439808);
        if (!bf16)
            assert_int_equal(first.bytes, 497759232);
        assert_int_equal(steady.bytes, first.bytes);
        assert_int_equal(steady.count, bf16 ? 7 : 13);
        plan_free(&p);
    }
}

/* 2 R P e a synchronised micro-step: all of them, or with no_sync one. */
static void volumes_follow_the_closed_formula(void **state)
{
    (void)state;
    static const int64_t steps[] = { 1, 2, 5 };

    for (int w = 0; w < NWORLDS; w++)
        for (int v = 0; v < 6; v++) {
            struct plan p;
            int64_t n = worlds[w], m = steps[v % 3];
            plan_of(&p, "gpt2", 4, n, STRAT_DDP, DIALECT_TORCH, DT_FP32);
            p.accumulation = m;
            p.sync_every_micro_step = v / 3;
            lowered(&p, 0, &s);
            int64_t times = v / 3 ? m : 1;
            struct tally ar = tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE);
            assert_int_equal(ar.bytes, times * 4 * p.model.params);
            /* Every bucket is rounded to a byte by itself. */
            assert_close((double)sent(&s, SCHED_STEADY),
                         (double)times * 2 * (double)(n - 1) / (double)n * 4 * (double)p.model.params,
                         n == 1 ? 0 : 1e-7);
            plan_free(&p);
        }
}

/* ZeroRedundancyOptimizer on top: P e more in broadcasts, and every parameter by
 * exactly one rank. */
static void zero1_adds_a_broadcast_of_every_parameter(void **state)
{
    (void)state;
    for (int w = 0; w < NWORLDS; w++)
        for (int view = 0; view < 2; view++) {
            struct plan p;
            int64_t n = worlds[w];
            plan_of(&p, "gpt2", 4, n, STRAT_ZERO1, DIALECT_TORCH, DT_FP32);
            p.ddp.parameters_as_bucket_view = view;
            lowered(&p, 0, &s);
            struct tally b = tally_of(&s, SCHED_STEADY, COLL_BROADCAST);
            assert_int_equal(b.bytes, 4 * p.model.params);
            if (!view)
                assert_int_equal(b.count, p.model.ntensors);
            else
                assert_int_equal(b.count, n < p.model.ntensors ? n : p.model.ntensors);
            plan_free(&p);
        }
}

/* Largest first, each to the least loaded: on 8 ranks rank 0 owns GPT-2's token embedding alone. */
static void rank_0_of_zero1_owns_the_embedding_of_gpt2(void **state)
{
    (void)state;
    struct plan p;
    struct ledger l;

    plan_of(&p, "gpt2", 0, 8, STRAT_ZERO1, DIALECT_TORCH, DT_FP32);
    int64_t *owner = calloc((size_t)p.model.ntensors, sizeof *owner);
    int *sorted = calloc((size_t)p.model.ntensors, sizeof *sorted);
    int64_t load[8] = { 0 };
    zro_partition(&p.model, 8, owner, sorted);
    for (int t = 0; t < p.model.ntensors; t++) {
        assert_true(owner[t] >= 0 && owner[t] < 8);
        load[owner[t]] += p.model.tensors[t].numel;
        if (t > 0)
            assert_true(p.model.tensors[sorted[t]].numel <= p.model.tensors[sorted[t - 1]].numel);
    }
    assert_int_equal(load[0], 50257 * 768);
    for (int64_t r = 0; r < 8; r++) {
        lowered(&p, r, &s);
        ledger_run(&s, &l);
        assert_true(l.persistent[CAT_OPTIMIZER] >= 8 * load[r]);
        assert_true(l.persistent[CAT_OPTIMIZER] <= 8 * load[r] + 2 * 512 * p.model.ntensors);
    }
    free(owner);
    free(sorted);
    plan_free(&p);
}

/* ---- data ---- */

/* Tied, and not tied; biases and none. */
static const char *const tiny[2] = {
    "{'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 8, 'n_head': 2, 'n_positions': 8, 'vocab_size': 11}",
    "{'model_type': 'llama', 'num_hidden_layers': 2, 'hidden_size': 12, 'intermediate_size': 20,"
    " 'num_attention_heads': 6, 'num_key_value_heads': 2, 'vocab_size': 13, 'max_position_embeddings': 16,"
    " 'rms_norm_eps': 1e-5, 'tie_word_embeddings': false}",
};

/* Every combination of the options, at world sizes in turn; a bucket for every few tensors. */
static void flow_with_all_options(enum strategy strategy)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8 }, steps[] = { 1, 2, 3, 4 };
    static const double caps[] = { 1e-6, 0.002 };
    struct model m[2];

    for (int i = 0; i < 2; i++)
        tiny_model(tiny[i], &m[i]);
    for (int v = 0; v < 2 * 2 * 2 * 2 * 4 * 2; v++) {
        struct plan p;
        tiny_plan(&p, &m[v % 3 == 0], sizes[v % 6], strategy, DIALECT_TORCH, v % 5 ? DT_FP32 : DT_BF16);
        p.ddp.gradient_as_bucket_view = v & 1;
        p.ddp.static_graph = v & 2 && (v & 8 || v / 16 % 4 == 0);   /* not with no_sync() */
        p.ddp.find_unused_parameters = v & 4;
        p.sync_every_micro_step = v & 8;
        p.accumulation = steps[v / 16 % 4];
        p.ddp.parameters_as_bucket_view = strategy == STRAT_ZERO1 && v / 64;
        p.ddp.bucket_cap_mb = caps[v / 64 % 2];
        p.clip = v % 7 ? 0 : 10;
        p.recompute = passes_again[v % 11 % 3];
        must_flow(&p, false);
    }
    for (int i = 0; i < 2; i++)
        model_free(&m[i]);
}

static void data_flows_with_all_options_of_ddp(void **state)
{
    (void)state;
    flow_with_all_options(STRAT_DDP);
}

static void data_flows_with_all_options_of_zero1(void **state)
{
    (void)state;
    flow_with_all_options(STRAT_ZERO1);
}

/* More ranks than tensors: the last own nothing. */
static void a_rank_may_own_no_tensor(void **state)
{
    (void)state;
    struct model m;
    struct plan p;

    tiny_model(tiny[1], &m);
    for (int view = 0; view < 2; view++) {
        tiny_plan(&p, &m, m.ntensors + 2, STRAT_ZERO1, DIALECT_TORCH, DT_FP32);
        p.ddp.parameters_as_bucket_view = view;
        must_flow(&p, false);
    }
    model_free(&m);
}

/* Initial broadcasts of more than one chunk: 1,419,000,000 bytes and more, 250 MiB at once; each is
 * full of parameters, and every parameter is in one. */
static void chunks_of_the_first_broadcast_hold_every_parameter_once(void **state)
{
    (void)state;
    struct plan p;
    int64_t seen = 0;
    int chunks = 0;

    plan_of(&p, "gpt2-medium", 0, 4, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    s.detailed = true;
    lowered(&p, 1, &s);
    for (int i = s.begin[SCHED_INIT]; i < s.end[SCHED_INIT]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind != OP_COLL || o->u.coll.of != OF_BUFFERS)
            continue;
        const struct layout *l = &s.layouts[s.bufs[s.acts[o->act0].buf].layout];
        int64_t at = 0;
        for (int k = l->slice0; k < l->slice0 + l->nslices; k++) {
            assert_int_equal(s.slices[k].at, at);
            assert_int_equal(s.slices[k].n, p.model.tensors[s.slices[k].tensor].numel);
            at += 4 * s.slices[k].n;
        }
        assert_int_equal(at, 4 * o->u.coll.elems);      /* GPT-2 has no module buffers in them */
        seen += o->u.coll.elems;
        chunks++;
    }
    assert_int_equal(seen, p.model.params);
    assert_true(chunks > 1);
    s.detailed = false;
    plan_free(&p);
}

static int chunks_of(const struct plan *p)
{
    int n = 0;

    lowered(p, 0, &s);
    for (int i = s.begin[SCHED_INIT]; i < s.end[SCHED_INIT]; i++)
        n += s.ops[i].kind == OP_COLL && s.ops[i].u.coll.of == OF_BUFFERS;
    return n;
}

/* DDP's first broadcast in one chunk, in chunks of several tensors, in one chunk a tensor: a limit of
 * all bytes less one, all, and one more leaves one chunk, since the tensor that reaches it closes it.
 * Module buffers, of a model that has them, come after the parameters: in a chunk of their own where
 * the parameters closed theirs, that is up to a limit of all bytes. */
static void data_flows_in_any_number_of_chunks_of_the_first_broadcast(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int zero1 = 0; zero1 < 2; zero1++) {
            struct model m;
            struct plan p;
            tiny_model(tiny[i], &m);
            int64_t all = 4 * m.params;
            int more = lower_model_buffer_elems(&m) > 0;
            const struct { int64_t limit; int chunks; } cut[] = {
                { 1, m.ntensors + more }, { all / 3, 0 }, { all - 1, 1 + more }, { all, 1 + more },
                { all + 1, 1 }, { INT64_MAX, 1 },
            };
            for (size_t k = 0; k < sizeof cut / sizeof *cut; k++) {
                tiny_plan(&p, &m, 2, zero1 ? STRAT_ZERO1 : STRAT_DDP, DIALECT_TORCH, DT_FP32);
                p.limits.ddp_broadcast = cut[k].limit;
                int n = chunks_of(&p);
                assert_true(cut[k].chunks ? n == cut[k].chunks : n > 1 && n < m.ntensors);
                must_flow(&p, false);
            }
            model_free(&m);
        }
}

/* ---- memory ---- */

/* fp32: parameters 4, gradients 4, buckets 4 (views: the buckets alone), optimizer 8. */
static void gradients_exist_twice_unless_they_are_views(void **state)
{
    (void)state;
    struct plan p;
    struct ledger l;

    for (int view = 0; view < 2; view++) {
        plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
        p.ddp.gradient_as_bucket_view = view;
        lowered(&p, 3, &s);
        ledger_run(&s, &l);
        /* A tied embedding gets two gradients, and their sum is a third tensor. */
        int64_t rounding = 512 * p.model.ntensors, P = p.model.params, tied = 4 * 50257 * 768;
        int64_t want[][2] = { { l.most[CAT_PARAMS], 4 * P }, { l.most[CAT_GRADS], view ? 0 : 4 * P },
                              { l.most[CAT_BUCKET], 4 * P }, { l.most[CAT_OPTIMIZER], 8 * P } };
        for (int i = view ? 2 : 0; i < 4; i++) {
            assert_true(want[i][0] >= want[i][1]);
            assert_true(want[i][0] <= want[i][1] + 2 * rounding + (i == 1 ? 2 * tied : 0));
        }
        assert_int_equal(l.persistent[CAT_GRADS], 0);       /* zero_grad(set_to_none) */
        plan_free(&p);
    }
}

/* zero_grad() drops the views: what two micro-steps accumulate has storages of its own in every step. */
static void views_hold_what_no_sync_accumulates_only_once_it_is_in_a_bucket(void **state)
{
    (void)state;
    struct plan p;
    struct ledger l;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.gradient_as_bucket_view = true;
    p.accumulation = 2;
    p.sync_every_micro_step = false;
    lowered(&p, 3, &s);
    ledger_run(&s, &l);
    assert_true(l.most[CAT_GRADS] >= 4 * p.model.params);
    assert_int_equal(l.persistent[CAT_GRADS], 0);
    p.sync_every_micro_step = true;
    lowered(&p, 3, &s);
    ledger_run(&s, &l);
    assert_true(l.most[CAT_GRADS] < 4 * p.model.params);
    plan_free(&p);
}

/* One GPU that nothing wraps: gradients once, whatever the micro-steps, and no collective; with the optimizer within backward there is never more
 * than the tied embedding's.  Of that one there are two in a backward, and their sum. */
static void one_gpu_alone_has_gradients_once_or_hardly(void **state)
{
    struct plan p;
    struct ledger l;

    (void)state;
    for (int k = 0; k < 3; k++) {
        plan_of(&p, "gpt2", 0, 1, STRAT_DDP, DIALECT_TORCH, DT_FP32);
        p.ddp.wrapped = false;
        p.ddp.optimizer_in_backward = k == 2;
        p.optimizer_form = OPTIMIZER_FUSED;
        p.clip = 0;
        p.accumulation = k == 1 ? 3 : 1;
        assert_int_equal(plan_check(&p, "plan"), 0);
        lowered(&p, 0, &s);
        ledger_run(&s, &l);
        int64_t P = p.model.params, rounding = 512 * p.model.ntensors, embedding = 4 * 50257 * 768;
        assert_int_equal(l.most[CAT_BUCKET], 0);
        assert_int_equal(l.persistent[CAT_GRADS], 0);
        assert_true(k == 2 ? l.most[CAT_GRADS] <= 3 * embedding : l.most[CAT_GRADS] >= 4 * P && l.most[CAT_GRADS] <= 4 * P + rounding + 3 * embedding);
        for (int op = 0; op < NCOLL; op++)
            assert_int_equal(tally_of(&s, SCHED_STEADY, (enum coll_op)op).count, 0);
        plan_free(&p);
    }
}

static void what_one_gpu_alone_has_not_is_refused_by_name(void **state)
{
    static const struct { const char *keys, *because; } of[] = {
        { "\"cluster\": \"2xh100\", \"ddp\": { \"wrapped\": false }", "ddp.wrapped" },
        { "\"cluster\": \"1xh100\", \"ddp\": { \"wrapped\": false, \"gradient_as_bucket_view\": true }", "ddp.gradient_as_bucket_view" },
        { "\"cluster\": \"1xh100\", \"ddp\": { \"wrapped\": false, \"comm_hook\": \"fp16_compress_hook\" }", "ddp.comm_hook" },
        { "\"cluster\": \"1xh100\", \"accumulation\": 2, \"optimizer_form\": \"fused\", \"ddp\": { \"wrapped\": false, \"optimizer_in_backward\": true }",
          "accumulation 1" },
        { "\"cluster\": \"1xh100\", \"clip\": 1, \"optimizer_form\": \"fused\", \"ddp\": { \"wrapped\": false, \"optimizer_in_backward\": true }", "clip" },
        { "\"cluster\": \"1xh100\", \"ddp\": { \"wrapped\": false, \"optimizer_in_backward\": true }", "optimizer_form fused" },
        { "\"cluster\": \"1xh100\", \"optimizer\": \"adafactor\", \"ddp\": { \"wrapped\": false, \"optimizer_in_backward\": true }", "optimizer_form fused" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        plan_words_refused(of[i].because, "{ 'dpx_plan': 1, 'model': 'gpt2', 'strategy': 'ddp', 'dialect': 'torch', 'seq': 128, 'micro_batch': 1, "
                           "'precision': 'bf16', %s }", of[i].keys);
}

/* _build_param_buckets: a rank's parameters are there twice while they are copied into one tensor. */
static void packing_parameters_takes_one_ranks_share_more(void **state)
{
    (void)state;
    struct plan p;
    struct ledger apart, packed;

    plan_of(&p, "gpt2", 0, 2, STRAT_ZERO1, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    ledger_run(&s, &apart);
    p.ddp.parameters_as_bucket_view = true;
    lowered(&p, 0, &s);
    ledger_run(&s, &packed);
    int64_t P = p.model.params, base = 2 * 4 * P;       /* parameters, and DDP's bucket */
    assert_true(packed.phase[SCHED_INIT].bytes >= base + 4 * P / 2);
    assert_true(packed.phase[SCHED_INIT].bytes <= base + 4 * P / 2 + 4 * 50257 * 768 / 2);
    assert_true(packed.persistent[CAT_PARAMS] <= apart.persistent[CAT_PARAMS]);
    plan_free(&p);
}

/* A bucket per tensor: as many as an absurd model has. */
static void thousands_of_buckets_lower(void **state)
{
    (void)state;
    struct plan p;

    plan_of(&p, "opt-125m", MODEL_MAX_LAYERS, 2, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.bucket_cap_mb = 1e-6;
    p.seq = 1;
    lowered(&p, 0, &s);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, p.model.ntensors);
    plan_free(&p);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

/* Copies in bf16 beside adapters in fp32: a bucket has one dtype, which bitsandbytes' and torch's optimizers step tensor by tensor. */
static void two_dtypes_are_refused_where_they_are_not_planned(void **state)
{
    static const struct { const char *key, *value, *why; } of[] = {
        { "optimizer", "\"adafactor\"", "optimizer" }, { "optimizer", "\"muon\"", "optimizer" }, { "optimizer", "\"adamw_bnb_8bit\"", NULL },
        { "ddp", "{\"model_dtype\": \"bf16\", \"comm_hook\": \"bf16_compress\"}", "ddp.comm_hook" }, { "optimizer", "\"sgd\"", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        json_t *j = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:{s:s}, s:s, s:{s:i, s:[s,s]}}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100",
                              "seq", 512, "strategy", "ddp", "dialect", "torch", "precision", "bf16", "ddp", "model_dtype", "bf16", "train", "lora",
                              "lora", "rank", 8, "modules_to_save", "embed_tokens", "lm_head");
        char why[512] = "";
        struct plan p;
        json_object_set_new(j, of[i].key, json_loads(of[i].value, JSON_DECODE_ANY, NULL));
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        if (rc != (of[i].why ? -1 : 0) || (of[i].why && !strstr(why, of[i].why)))
            fail_msg("%s %s: %d, %s", of[i].key, of[i].value, rc, why);
        if (rc == 0)
            plan_free(&p);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_has_the_buckets_of_the_vectors),
        cmocka_unit_test(a_bucket_is_closed_by_the_tensor_that_fills_it),
        cmocka_unit_test(a_tensor_that_just_reaches_the_limit_closes_its_bucket),
        cmocka_unit_test(reversing_buckets_twice_changes_nothing),
        cmocka_unit_test(every_gradient_becomes_ready_once),
        cmocka_unit_test(buckets_are_reduced_in_order_and_hold_every_gradient_once),
        cmocka_unit_test(the_first_iteration_has_one_bucket),
        cmocka_unit_test(volumes_follow_the_closed_formula),
        cmocka_unit_test(zero1_adds_a_broadcast_of_every_parameter),
        cmocka_unit_test(rank_0_of_zero1_owns_the_embedding_of_gpt2),
        cmocka_unit_test(data_flows_with_all_options_of_ddp),
        cmocka_unit_test(data_flows_with_all_options_of_zero1),
        cmocka_unit_test(a_rank_may_own_no_tensor),
        cmocka_unit_test(chunks_of_the_first_broadcast_hold_every_parameter_once),
        cmocka_unit_test(data_flows_in_any_number_of_chunks_of_the_first_broadcast),
        cmocka_unit_test(gradients_exist_twice_unless_they_are_views),
        cmocka_unit_test(one_gpu_alone_has_gradients_once_or_hardly),
        cmocka_unit_test(what_one_gpu_alone_has_not_is_refused_by_name),
        cmocka_unit_test(views_hold_what_no_sync_accumulates_only_once_it_is_in_a_bucket),
        cmocka_unit_test(packing_parameters_takes_one_ranks_share_more),
        cmocka_unit_test(thousands_of_buckets_lower),
        cmocka_unit_test(two_dtypes_are_refused_where_they_are_not_planned),
    };
    return cmocka_run_group_tests_name("model/ddp", tests, NULL, end);
}
