/* FSDP1: sizes, volumes, memory.  Order is tested in test_fsdp1_order.c; lists of
 * collectives recorded from PyTorch are compared in test_collectives.c. */
#include "tests/model/plans.h"
#include "model/framework/torch_fsdp1/flat_param.h"
#include "model/framework/torch_fsdp1/lower_fsdp1.h"
#include "model/schedule/ledger.h"

static struct schedules s;

static void fsdp1(struct plan *p, const char *model, int64_t layers, int64_t world, enum dtype t,
                  enum fsdp1_sharding how)
{
    plan_of(p, model, layers, world, STRAT_FSDP, DIALECT_TORCH_FSDP1, t);
    p->fsdp.sharding_strategy = how;
}

static bool is_hybrid(enum fsdp1_sharding how)
{
    return how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;
}

/* ---- sizes ---- */

static void flat_parameters_have_the_published_sizes(void **state)
{
    /* GPT-2 124M: root {wte, wpe, ln_f} 39,385,344, block 7,087,872 elements. */
    static const struct { int64_t n, root_shard, root_padded; } want[] = {
        { 8, 4923168, 39385344 }, { 7, 5626478, 39385346 }, { 6, 6564224, 39385344 } };
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 0, 8, DT_FP32, FSDP1_FULL_SHARD);
    for (int i = 0; i < 3; i++) {
        plan_move(&p, want[i].n);
        lowered(&p, 0, &s);
        assert_int_equal(s.units[0].shard, want[i].root_shard);
        assert_int_equal(s.units[0].padded, want[i].root_padded);
        assert_int_equal(s.units[1].shard, want[i].n == 7 ? 1012554 : 7087872 / want[i].n);
        assert_int_equal(s.units[1].padded, want[i].n == 7 ? 7087878 : 7087872);
    }
    plan_free(&p);
}

static void shards_are_the_ceiling_of_a_unit_over_the_ranks(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 2, 1, DT_FP32, FSDP1_FULL_SHARD);
    for (int w = 0; w < NWORLDS; w++) {
        plan_move(&p, worlds[w]);
        lowered(&p, 0, &s);
        for (int u = 0; u < s.nunits; u++) {
            assert_int_equal(s.units[u].shard, (s.units[u].numel + worlds[w] - 1) / worlds[w]);
            assert_int_equal(s.units[u].padded, s.units[u].shard * worlds[w]);
        }
    }
    plan_free(&p);
}

/* With use_orig_params the ranks' pieces are the parameters and nothing else. */
static void original_parameters_are_aligned_and_partitioned(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 2, 1, DT_BF16, FSDP1_FULL_SHARD);
    for (int w = 0; w < NWORLDS; w++) {
        struct unit_map m;
        int64_t n = worlds[w], sum = 0;
        plan_move(&p, n);
        unit_map_of(&m, &p);
        for (int64_t rank = 0; rank < n; rank++) {
            struct flat_rule r = { .orig_params = true, .used = DT_BF16, .nranks = n,
                                   .sharded = n > 1, .rank = rank };
            struct flat_param f = flat_param(&m, UC_FULL, &r);
            sum += f.optim_numel;
            /* every tensor of GPT-2's block is a multiple of 8 elements: no gaps */
            assert_int_equal(f.flat, (f.numel + n - 1) / n * n);
            assert_int_equal(f.padded, f.flat);
            assert_true(f.optim_bytes >= 4 * f.optim_numel);
        }
        assert_int_equal(sum, 7087872);
    }
    plan_free(&p);
}

/* One tensor of 5 elements, then one of 3: in bf16 the second starts at 8. */
static void a_parameter_starts_at_16_bytes_of_the_compute_dtype(void **state)
{
    struct plan p;
    struct unit_map m;
    struct tensor t[2] = { { .numel = 5, .block = TENSOR_EMBED }, { .numel = 3, .block = TENSOR_EMBED } };
    struct flat_rule bf16 = { .orig_params = true, .used = DT_BF16, .nranks = 4, .sharded = true };

    (void)state;
    fsdp1(&p, "gpt2", 2, 1, DT_BF16, FSDP1_FULL_SHARD);
    p.unit = UNIT_MODEL;
    unit_map_of(&m, &p);
    struct model real = p.model;
    p.model.tensors = t;
    p.model.ntensors = 2;
    assert_int_equal(flat_param(&m, UC_ROOT, &bf16).flat, 12);          /* 8 + 3, to 4 ranks */
    struct flat_rule fp32 = bf16;
    fp32.used = DT_FP32;                                                /* 16 bytes are 4 */
    assert_int_equal(flat_param(&m, UC_ROOT, &fp32).flat, 12);
    fp32.nranks = 1;
    fp32.sharded = false;
    assert_int_equal(flat_param(&m, UC_ROOT, &fp32).flat, 11);
    bf16.rank = 1;                                      /* elements 3, 4, 5 of 12: two of the first tensor */
    assert_int_equal(flat_param(&m, UC_ROOT, &bf16).optim_numel, 2);
    bf16.rank = 2;                                      /* 6, 7, 8: one of the second */
    assert_int_equal(flat_param(&m, UC_ROOT, &bf16).optim_numel, 1);
    bf16.rank = 3;
    assert_int_equal(flat_param(&m, UC_ROOT, &bf16).optim_numel, 2);
    p.model = real;
    plan_free(&p);
}

/* ---- volumes ---- */

struct volume { int64_t all, root; };       /* padded elements of all units, of the root */

static struct volume padded(void)
{
    struct volume v = { 0, s.units[0].padded };

    for (int u = 0; u < s.nunits; u++)
        v.all += s.units[u].padded;
    return v;
}

static void check_volume(const struct plan *p)
{
    enum fsdp1_sharding how = p->fsdp.sharding_strategy;
    int64_t m = p->accumulation, syncs = p->sync_every_micro_step ? m : 1;
    int64_t gathers, n = is_hybrid(how) ? p->shard_group : p->cluster.world_size;

    lowered(p, 0, &s);
    struct volume v = padded();
    struct tally ag = tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER);
    struct tally rs = tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER);
    struct tally ar = tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE);
    if (how == FSDP1_NO_SHARD || n == 1) {
        assert_int_equal(ag.count + rs.count, 0);
        assert_int_equal(ar.elems, syncs * v.all);
        assert_int_equal(ar.bytes, ar.elems * dtype_bytes(p->reduce_dtype));
        return;
    }
    if (how == FSDP1_FULL_SHARD || how == FSDP1_HYBRID_SHARD)
        gathers = m * (2 * v.all - v.root);     /* the root stays from forward to backward */
    else
        gathers = syncs * v.all;                /* no_sync leaves everything gathered */
    assert_int_equal(ag.elems, gathers);
    assert_int_equal(ag.bytes, gathers * dtype_bytes(p->precision));
    assert_int_equal(rs.elems, syncs * v.all);
    assert_int_equal(rs.bytes, rs.elems * dtype_bytes(p->reduce_dtype));
    assert_int_equal(ar.elems, is_hybrid(how) ? syncs * v.all / n : 0);
}

static void volumes_are_those_of_counting(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 8, DT_BF16, FSDP1_FULL_SHARD);
    for (int how = FSDP1_FULL_SHARD; how <= FSDP1_HYBRID_SHARD_ZERO2; how++)
        for (int w = 0; w < NWORLDS; w++)
            for (int i = 0; i < 8; i++) {
                p.fsdp.sharding_strategy = (enum fsdp1_sharding)how;
                plan_move(&p, worlds[w]);
                if (is_hybrid(p.fsdp.sharding_strategy) && worlds[w] % 2 == 0)
                    p.shard_group = worlds[w] / 2;
                p.accumulation = 1 + i % 4;
                p.sync_every_micro_step = i / 4;
                p.reduce_dtype = i % 2 ? DT_FP32 : DT_BF16;
                check_volume(&p);
            }
    plan_free(&p);
}

/* N = 8, bf16: an all-gather of a block puts out 14,175,744 bytes, of which a rank
 * sends 7/8; the reduce-scatter in fp32 takes in 28,351,488. */
static void bytes_of_gpt2_are_the_published_ones(void **state)
{
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 0, 8, DT_BF16, FSDP1_SHARD_GRAD_OP);
    p.reduce_dtype = DT_FP32;
    lowered(&p, 0, &s);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).bytes, 12 * INT64_C(14175744) + 78770688);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).bytes,
                     12 * INT64_C(28351488) + 157541376);
    assert_int_equal(sent(&s, SCHED_STEADY), (12 * INT64_C(14175744) + 78770688 +
                                              12 * INT64_C(28351488) + 157541376) / 8 * 7);
    plan_free(&p);
}

/* ---- memory ---- */

static int64_t stored(int64_t elems, int64_t bytes)         /* as a storage of PyTorch's allocator */
{
    return (elems * bytes + 511) / 512 * 512;
}

static int casts(void)
{
    int n = 0;

    for (int i = 0; i < s.nops; i++)
        n += !strncmp(s.ops[i].what, "cast", 4);
    return n;
}

/* Eight where the model itself is in bf16, and then nothing is cast. */
static void sixteen_bytes_a_parameter_are_shared_by_all_ranks(void **state)
{
    struct ledger l;
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 1, DT_FP32, FSDP1_FULL_SHARD);
    for (int w = 0; w < NWORLDS; w++)
        for (int t = 0; t < 3; t++) {
            int64_t shards = 0;
            p.precision = p.reduce_dtype = t ? DT_BF16 : DT_FP32;
            p.fsdp.model_dtype = t == 2 ? DT_BF16 : -1;
            plan_move(&p, worlds[w]);
            lowered(&p, 0, &s);
            ledger_run(&s, &l);
            for (int u = 0; u < s.nunits; u++)
                shards += stored((s.units[u].numel + worlds[w] - 1) / worlds[w], t == 2 ? 2 : 4);
            assert_int_equal(casts() > 0, t == 1);
            assert_int_equal(l.persistent[CAT_PARAMS], shards);
            assert_int_equal(l.persistent[CAT_OPTIMIZER], 2 * shards);
            assert_true(l.most[CAT_GRADS] >= shards);
            assert_int_equal(l.persistent[CAT_GRADS] + l.persistent[CAT_UNSHARDED] +
                             l.persistent[CAT_UNSHARDED_GRADS] + l.persistent[CAT_REDUCE_SCATTER], 0);
        }
    plan_free(&p);
}

/* optimizer.zero_grad() does not reach the FlatParameter's own .grad. */
static void original_parameters_keep_the_gradient_until_the_next_forward(void **state)
{
    struct ledger l;
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 4, DT_FP32, FSDP1_FULL_SHARD);
    p.fsdp.use_orig_params = true;
    lowered(&p, 0, &s);
    ledger_run(&s, &l);
    assert_int_equal(l.persistent[CAT_GRADS], l.persistent[CAT_PARAMS]);
    assert_int_equal(l.most[CAT_GRADS], l.persistent[CAT_PARAMS]);      /* never two */
    plan_free(&p);
}

/* The unsharded gradient is there in pieces and as a whole when it is concatenated;
 * the root, of 39,385,344 elements, is the largest. */
static void concatenating_takes_a_gradient_twice(void **state)
{
    struct ledger l;
    struct plan p;

    (void)state;
    for (int t = 0; t < 2; t++) {
        fsdp1(&p, "gpt2", 2, 8, t ? DT_BF16 : DT_FP32, FSDP1_FULL_SHARD);
        lowered(&p, 0, &s);
        ledger_run(&s, &l);
        assert_true(l.most[CAT_UNSHARDED_GRADS] >= 2 * INT64_C(39385344) * (t ? 2 : 4));
        assert_int_equal(l.most[CAT_UNSHARDED], (INT64_C(39385344) + 2 * INT64_C(7087872)) * (t ? 2 : 4));
        plan_free(&p);
    }
}

/* Under no_sync the whole model's gradient stays, in the compute dtype: of 24 blocks more than the tied embedding's two
 * gradients, their sum and what the root makes flat of it. */
static void no_sync_keeps_unsharded_gradients(void **state)
{
    struct ledger every, once;
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 24, 8, DT_BF16, FSDP1_FULL_SHARD);
    p.accumulation = 3;
    p.sync_every_micro_step = true;
    lowered(&p, 0, &s);
    ledger_run(&s, &every);
    p.sync_every_micro_step = false;
    lowered(&p, 0, &s);
    ledger_run(&s, &once);
    int64_t kept = 2 * (INT64_C(39385344) + 24 * INT64_C(7087872));
    assert_true(once.most[CAT_UNSHARDED_GRADS] >= kept);
    assert_true(every.most[CAT_UNSHARDED_GRADS] < kept);
    plan_free(&p);
}

/* In init the root exists as built, as one tensor and as a shard, beside the blocks'
 * shards. */
static void flattening_takes_a_unit_twice(void **state)
{
    struct ledger l;
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 8, DT_BF16, FSDP1_FULL_SHARD);
    lowered(&p, 0, &s);
    ledger_run(&s, &l);
    assert_int_equal(l.phase[SCHED_INIT].bytes, 2 * 4 * INT64_C(39385344) + stored(39385344 / 8, 4) +
                     3 * stored(7087872 / 8, 4));
    plan_free(&p);
}

static void the_fullest_rank_is_named(void **state)
{
    struct ledger l, named;
    struct plan p;
    int64_t ranks[4];

    (void)state;
    fsdp1(&p, "gpt2", 3, 8, DT_BF16, FSDP1_FULL_SHARD);
    assert_int_equal(lower_ranks(&p, ranks), 1);
    p.fsdp.use_orig_params = true;
    assert_int_equal(lower_ranks(&p, ranks), 2);
    lowered(&p, ranks[1], &s);
    ledger_run(&s, &named);
    for (int64_t rank = 0; rank < 8; rank++) {
        lowered(&p, rank, &s);
        ledger_run(&s, &l);
        assert_true(l.persistent[CAT_OPTIMIZER] <= named.persistent[CAT_OPTIMIZER]);
    }
    plan_free(&p);
}

static void one_rank_shards_nothing(void **state)
{
    struct ledger one, none;
    struct plan p;

    (void)state;
    fsdp1(&p, "gpt2", 3, 1, DT_BF16, FSDP1_FULL_SHARD);
    lowered(&p, 0, &s);
    ledger_run(&s, &one);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE).count, 4);
    p.fsdp.sharding_strategy = FSDP1_NO_SHARD;
    lowered(&p, 0, &s);
    ledger_run(&s, &none);
    assert_memory_equal(&one, &none, sizeof one);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_parameters_have_the_published_sizes),
        cmocka_unit_test(shards_are_the_ceiling_of_a_unit_over_the_ranks),
        cmocka_unit_test(original_parameters_are_aligned_and_partitioned),
        cmocka_unit_test(a_parameter_starts_at_16_bytes_of_the_compute_dtype),
        cmocka_unit_test(volumes_are_those_of_counting),
        cmocka_unit_test(bytes_of_gpt2_are_the_published_ones),
        cmocka_unit_test(sixteen_bytes_a_parameter_are_shared_by_all_ranks),
        cmocka_unit_test(original_parameters_keep_the_gradient_until_the_next_forward),
        cmocka_unit_test(concatenating_takes_a_gradient_twice),
        cmocka_unit_test(no_sync_keeps_unsharded_gradients),
        cmocka_unit_test(flattening_takes_a_unit_twice),
        cmocka_unit_test(the_fullest_rank_is_named),
        cmocka_unit_test(one_rank_shards_nothing),
    };
    int failed = cmocka_run_group_tests_name("model/fsdp1", tests, NULL, NULL);

    schedules_free(&s);
    return failed;
}
