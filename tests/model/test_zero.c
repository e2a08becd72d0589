/* DeepSpeed's stages against what can be worked out by hand: closed formulas of
 * volumes, and vectors for real models.  The order of collectives is
 * test_collectives.c's, memory test_zero_memory.c's. */
#include "tests/model/zero.h"

/* ---- volumes of one optimizer step ---- */

/* All-reduce P once: accumulation costs nothing.  No gather: nothing is partitioned. */
static void volume_0(const struct plan *p)
{
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 2 * p->model.params);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).count, 0);
}

/* All-reduce P and gather A = P up to a multiple of 2N, in one call: 3P, not the
 * paper's 2P.  One byte of overflow and four of norm besides. */
static void volume_1(const struct plan *p)
{
    struct tally gather = tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER);
    bool alone = p->cluster.world_size == 1;

    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 2 * p->model.params + 5);
    assert_int_equal(gather.count, alone ? 0 : 1);
    assert_int_equal(gather.bytes, alone ? 0 : 2 * up(p->model.params, 2 * p->cluster.world_size));
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).count, 0);
}

static void volume_2(const struct plan *p)
{
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 3 * 2 * p->model.params + 5);
}

static void small_buckets(struct plan *p)
{
    p->accumulation = 3;
    p->ds.reduce_bucket_size = 1000000;
    p->ds.overlap_comm = true;
}

static void to_owners(struct plan *p)
{
    p->ds.use_multi_rank_bucket_allreduce = false;
}

/* Each gradient element goes to its owner once. */
static void volume_of_reduces(const struct plan *p)
{
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE).elems, p->model.params);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 5);
}

static void stages_0_to_2_send_what_deepspeed_sends(void **state)
{
    (void)state;
    everywhere(STRAT_DDP, DT_BF16, thrice, volume_0);
    everywhere(STRAT_ZERO1, DT_BF16, thrice, volume_1);
    everywhere(STRAT_ZERO1, DT_FP16, NULL, volume_1);
    everywhere(STRAT_ZERO1, DT_BF16, small_buckets, volume_1);
    everywhere(STRAT_ZERO2, DT_BF16, thrice, volume_2);
    everywhere(STRAT_ZERO2, DT_BF16, small_buckets, volume_2);
    everywhere(STRAT_ZERO2, DT_BF16, to_owners, volume_of_reduces);
    everywhere(STRAT_ZERO1, DT_BF16, to_owners, volume_of_reduces);
}

/* On the wire of a ring: 2 (N-1)/N P + (N-1)/N A elements of two bytes; each of the
 * four calls is rounded to the nearest byte. */
static void ring_volume(const struct plan *p)
{
    double n = (double)p->cluster.world_size, share = (n - 1) / n;
    double padded = (double)up(p->model.params, 2 * p->cluster.world_size);
    double want = share * 2 * (2 * (double)p->model.params + padded) + share * 2 * 5;

    if (fabs((double)sent(&s, SCHED_STEADY) - want) > 2)
        fail_msg("%g ranks: sends %lld, not %.1f", n, (long long)sent(&s, SCHED_STEADY), want);
}

static void stage_1_sends_three_times_the_parameters(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, NULL, ring_volume);
}

/* BF16_Optimizer: all-reduce of the padded flat gradients, gather; nothing else. */
static void volume_bf16(const struct plan *p)
{
    int64_t padded = up(p->model.params, 2 * p->cluster.world_size);

    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 2 * padded);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, 1);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).bytes,
                     p->cluster.world_size > 1 ? 2 * padded : 0);
}

static void bf16_optimizer_reduces_once(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO1, DT_BF16, accumulate_in_fp32, volume_bf16);
}

/* Nothing kept, nothing prefetched, nothing persistent: each use is a gather. */
static void gather_each_use(struct plan *p)
{
    p->accumulation = 3;
    p->ds.stage3_prefetch_bucket_size = 0;
    p->ds.stage3_max_reuse_distance = 0;
    p->ds.stage3_param_persistence_threshold = 0;
    p->ds.reduce_bucket_size = 1000000;
}

/* m N Q reduced; 2 m N Q gathered, and a tied embedding twice more: it is the
 * head's parameter as well. */
static void volume_3(const struct plan *p)
{
    int64_t n = p->cluster.world_size, q = parts(&p->model, n);
    int64_t tied = p->model.tied ? (p->model.vocab * p->model.hidden + n - 1) / n : 0;

    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).elems, 3 * n * q);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).elems, n > 1 ? 3 * n * 2 * (q + tied) : 0);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).bytes, 8);     /* norm, fp64 */
}

/* The default reuse distance keeps a model below half of it: gathered once a
 * micro-step, the persistent ones once a step. */
static void volume_3_kept(const struct plan *p)
{
    int64_t n = p->cluster.world_size, persistent = 0;

    for (int i = 0; i < p->model.ntensors; i++)
        if (p->model.tensors[i].numel <= 100000)
            persistent += (p->model.tensors[i].numel + n - 1) / n;
    if (p->model.params > 400000000)
        return;
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).elems,
                     n > 1 ? n * (parts(&p->model, n) - persistent) + n * persistent : 0);
}

static void stage_3_gathers_twice_or_once_and_scatters(void **state)
{
    (void)state;
    everywhere(STRAT_ZERO3, DT_BF16, gather_each_use, volume_3);
    everywhere(STRAT_ZERO3, DT_BF16, NULL, volume_3_kept);
}

/* ---- vectors: GPT-2 124M, 124,439,808 parameters, 148 tensors ---- */

static void gpt2_124m(struct plan *p, int64_t n, enum strategy st)
{
    deepspeed(p, "gpt2", 0, n, st, DT_BF16);
    assert_int_equal(p->model.params, 124439808);
    assert_int_equal(p->model.ntensors, 148);
}

static void partitions_of_gpt2(void **state)
{
    static const struct { int64_t n, a, part, q; } want[] = {
        { 8, 124439808, 15554976, 15554976 },
        { 7, 124439812, 17777116, 17777175 },       /* padded by 4; tensor by tensor by 417 */
        { 6, 124439808, 20739968, 20739968 },
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p;
        int64_t q = 0;
        gpt2_124m(&p, want[i].n, STRAT_ZERO2);
        lowered(&p, 0, &s);
        assert_int_equal(s.units[0].padded, want[i].a);
        assert_int_equal(s.units[0].shard, want[i].part);
        plan_free(&p);
        gpt2_124m(&p, want[i].n, STRAT_ZERO3);
        lowered(&p, 0, &s);
        for (int u = 0; u < s.nunits; u++)
            q += s.units[u].shard;
        assert_int_equal(q, want[i].q);
        plan_free(&p);
    }
}

/* Whole tensors that touch the partition: wte's 38,597,376 elements lie on ranks 0
 * to 2, and rank 2 holds wpe and most of the first block besides. */
static void gradients_that_touch_a_partition_of_gpt2(void **state)
{
    static const struct { int64_t rank, elems; } want[] = {
        { 0, 38597376 }, { 1, 38597376 }, { 2, 48242688 }, { 3, 15945216 }, { 7, 16537344 },
    };
    struct plan p;
    int64_t ranks[4];

    (void)state;
    gpt2_124m(&p, 8, STRAT_ZERO2);
    for (int i = 0; i < 5; i++) {
        lowered(&p, want[i].rank, &s);
        assert_int_equal(named("gradients that touch the partition")->bytes, r512(2 * want[i].elems));
    }
    assert_int_equal(lower_ranks(&p, ranks), 2);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[1], 2);
    plan_free(&p);
}

/* The rank that lower_ranks() names is the fullest of all. */
static void the_named_rank_is_the_fullest(void **state)
{
    (void)state;
    for (int round_robin = 0; round_robin < 2; round_robin++)
        for (int64_t n = 1; n <= 16; n++) {
            struct plan p;
            int64_t most = 0, ranks[4];
            deepspeed(&p, "gpt2", 3, n, STRAT_ZERO2, DT_BF16);
            p.ds.round_robin_gradients = round_robin;
            int named_ranks = lower_ranks(&p, ranks);
            for (int64_t r = 0; r < n; r++) {
                lowered(&p, r, &s);
                int64_t bytes = named("gradients that touch the partition")->bytes;
                most = bytes > most ? bytes : most;
            }
            lowered(&p, ranks[named_ranks - 1], &s);
            assert_int_equal(named("gradients that touch the partition")->bytes, most);
            plan_free(&p);
        }
}

/* ---- stage 3's prefetching, on real models ---- */

struct gathered { int64_t live, peak, calls, elems; };

/* Elements that are there or on their way.  The models have no tensor that the
 * allocator or 8 ranks would pad. */
static int watch(const struct schedules *x, const struct op *o, int64_t iteration, void *arg)
{
    struct gathered *g = arg;

    (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_GATHER) {
        g->live += o->u.coll.elems;
        g->calls += o->phase != PHASE_OPTIMIZER;
        g->elems += o->phase != PHASE_OPTIMIZER ? o->u.coll.elems : 0;
    }
    if (g->live > g->peak)
        g->peak = g->live;
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++)
        if ((x->acts[i].what & ACT_FREE) && x->bufs[x->acts[i].buf].category == CAT_UNSHARDED)
            g->live -= x->bufs[x->acts[i].buf].bytes / 2;
    return 0;
}

static struct gathered gathers(struct plan *p)
{
    struct gathered g = { 0 };

    p->micro_batch = 1;
    lowered(p, 0, &s);
    for (int i = 0; i < p->model.ntensors; i++)
        g.live += p->model.tensors[i].numel <= 100000 ? p->model.tensors[i].numel : 0;
    sched_walk(&s, SCHED_STEADY, watch, &g);
    return g;
}

static void persistent_parameters_of_gpt2(void **state)
{
    struct plan p;
    int64_t count = 0, elems = 0;

    (void)state;
    gpt2_124m(&p, 8, STRAT_ZERO3);
    lowered(&p, 0, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].u.coll.op == COLL_ALL_GATHER &&
            s.ops[i].phase == PHASE_OPTIMIZER) {
            count++;
            elems += s.ops[i].u.coll.elems;
        }
    assert_int_equal(count, 98);    /* one call each */
    assert_int_equal(elems, 121344);
    plan_free(&p);
}

/* GPT-2 is below half the reuse distance: three prefetches of 5e7 bring all but the
 * persistent ones, once.  Without reuse it is the same.  The whole model and
 * `transformer` are modules too, so the three are done, and the queue of uses is
 * empty, before wte is first released; what the prefetcher passed over while it was
 * there is not released.  (Counting leaf modules alone, wte would go and be
 * gathered again.) */
static void prefetching_gpt2(void **state)
{
    struct plan p;

    (void)state;
    gpt2_124m(&p, 8, STRAT_ZERO3);
    for (int reuse = 1; reuse >= 0; reuse--) {
        p.ds.stage3_max_reuse_distance = reuse ? 1000000000 : 0;
        struct gathered g = gathers(&p);
        assert_int_equal(g.calls, 3);
        assert_int_equal(g.elems, 124439808 - 121344);
        assert_int_equal(g.peak, 124439808);
    }
    plan_free(&p);
}

/* LLaMA-7B holds a billion gathered elements with the defaults, a fifth of that with
 * tighter limits.  Counting leaf modules alone would give 391 calls for the first:
 * containers are steps too, and prefetch. */
static void prefetching_llama_7b(void **state)
{
    struct plan p;

    (void)state;
    deepspeed(&p, "llama-2-7b", 0, 8, STRAT_ZERO3, DT_BF16);
    assert_int_equal(p.model.params, 6738415616);
    struct gathered g = gathers(&p);
    assert_int_equal(g.calls, 395);
    assert_int_equal(g.elems, 12490637312);
    assert_int_equal(g.peak, 1126436864);
    p.ds.stage3_max_live_parameters = 100000000;
    p.ds.stage3_max_reuse_distance = 10000000;
    g = gathers(&p);
    assert_int_equal(g.calls, 321);
    assert_int_equal(g.elems, 13345226752);
    assert_int_equal(g.peak, 221515776);
    plan_free(&p);
}

/* ---- any accumulation costs the same to describe ---- */

static void more_accumulation_makes_no_longer_schedule(void **state)
{
    static const enum strategy stages[] = { STRAT_DDP, STRAT_ZERO1, STRAT_ZERO2, STRAT_ZERO3 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct plan p;
        int64_t entries[2];
        deepspeed(&p, "gpt2", 2, 4, stages[i], DT_BF16);
        for (int k = 0; k < 2; k++) {
            p.accumulation = k ? 512 : 8;
            lowered(&p, 0, &s);
            entries[k] = s.nops;
        }
        assert_int_equal(entries[0], entries[1]);
        plan_free(&p);
    }
}

/* ---- averages ---- */

/* What the only bucket of the step is multiplied with before its reduction, and after. */
static void scales(double *before, double *after)
{
    bool reduced = false;

    *before = *after = 1;
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind == OP_COLL && o->u.coll.of == OF_BUFFERS)
            reduced = true;
        if (o->kind == OP_COPY && !strcmp(o->what, "divide"))
            *(reduced ? after : before) *= (double)o->u.copy.scale;
    }
}

static void averages(struct plan *p, double before, double after)
{
    double b, a;

    lowered(p, 0, &s);
    scales(&b, &a);
    assert_close(b, before, 1e-6);
    assert_close(a, after, 1e-6);
}

/* engine.allreduce_bucket and gradient_reduction_w_predivide: a factor before and the rest after; slices
 * and lists of gradients are divided before. */
static void the_average_is_taken_where_deepspeed_takes_it(void **state)
{
    (void)state;
    for (int st = STRAT_DDP; st <= STRAT_ZERO2; st++) {
        struct plan p;
        deepspeed(&p, "gpt2", 2, 8, (enum strategy)st, DT_BF16);
        averages(&p, st == STRAT_DDP ? 1 : 1.0 / 8, st == STRAT_DDP ? 1.0 / 8 : 1);
        p.ds.reduce_scatter = false;
        averages(&p, 1, 1.0 / 8);
        p.ds.prescale = 2;
        averages(&p, 0.5, 0.25);
        p.ds.prescale = 8;
        averages(&p, 1.0 / 8, 1);
        p.ds.contiguous_gradients = false;
        averages(&p, 1.0 / 8, 1);
        plan_free(&p);
    }
}

/* Reduces go to the rank whose partition the slice is in: bytes to each root are its partition's. */
static void each_owner_is_sent_its_partition(void **state)
{
    int64_t to[8] = { 0 }, part;
    struct plan p;

    (void)state;
    deepspeed(&p, "gpt2", 2, 8, STRAT_ZERO2, DT_BF16);
    to_owners(&p);
    p.ds.reduce_bucket_size = 100000;
    lowered(&p, 3, &s);
    part = up(p.model.params, 16) / 8;
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].u.coll.op == COLL_REDUCE)
            to[s.ops[i].u.coll.root] += s.ops[i].u.coll.elems;
    for (int r = 0; r < 7; r++)
        assert_int_equal(to[r], part);
    assert_int_equal(to[7], p.model.params - 7 * part);
    plan_free(&p);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_0_to_2_send_what_deepspeed_sends),
        cmocka_unit_test(stage_1_sends_three_times_the_parameters),
        cmocka_unit_test(bf16_optimizer_reduces_once),
        cmocka_unit_test(stage_3_gathers_twice_or_once_and_scatters),
        cmocka_unit_test(partitions_of_gpt2),
        cmocka_unit_test(gradients_that_touch_a_partition_of_gpt2),
        cmocka_unit_test(the_named_rank_is_the_fullest),
        cmocka_unit_test(persistent_parameters_of_gpt2),
        cmocka_unit_test(prefetching_gpt2),
        cmocka_unit_test(prefetching_llama_7b),
        cmocka_unit_test(more_accumulation_makes_no_longer_schedule),
        cmocka_unit_test(the_average_is_taken_where_deepspeed_takes_it),
        cmocka_unit_test(each_owner_is_sent_its_partition),
    };
    return cmocka_run_group_tests_name("model/zero", tests, NULL, end);
}
