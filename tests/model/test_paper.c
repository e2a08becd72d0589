/* test_paper.c -- the papers' ZeRO: the closed formulas as tests of the schedule. */
#include "tests/model/plans.h"

#include "model/memory/moved.h"
#include "model/schedule/ledger.h"

static struct schedules s;

/* P divides by every world size: lcm(1..9, 16, 64, 1000) = 504,000. */
#define P_EVEN ((int64_t)504000 * 20)

static void synthetic(struct plan *p, int64_t params, int64_t world, enum strategy st, enum dtype t)
{
    memset(p, 0, sizeof *p);
    assert_int_equal(model_synthetic(params, &p->model), 0);
    world_of(&p->cluster, world);
    p->seq = p->micro_batch = 1;
    plan_defaults(p, st, DIALECT_PAPER, t);
    p->clip = 0;
}

/* ZeRO (arXiv 1910.02054), section 3: with 2 bytes of parameter and gradient and
 * K = 12 of optimizer state, 16 / 4 + 12/N / 2 + 14/N / 16/N; with fp32 4, 4 and 8:
 * 16 / 8 + 8/N / 4 + 12/N / 16/N. */
static void model_states_are_those_of_the_paper(void **state)
{
    (void)state;
    static const struct { enum strategy st; int64_t whole[2], shared[2]; } want[] = {
        { STRAT_DDP,   { 16, 16 }, { 0, 0 } },
        { STRAT_ZERO1, { 4, 8 },   { 12, 8 } },
        { STRAT_ZERO2, { 2, 4 },   { 14, 12 } },
        { STRAT_ZERO3, { 0, 0 },   { 16, 16 } },
        { STRAT_FSDP,  { 0, 0 },   { 16, 16 } },
    };

    for (int w = 0; w < NWORLDS; w++)
        for (int i = 0; i < 5; i++)
            for (int fp32 = 0; fp32 < 2; fp32++) {
                struct plan p;
                struct ledger l;
                synthetic(&p, P_EVEN, worlds[w], want[i].st, fp32 ? DT_FP32 : DT_BF16);
                lowered(&p, worlds[w] - 1, &s);
                ledger_run(&s, &l);
                assert_int_equal(l.persistent[CAT_PARAMS] + l.persistent[CAT_GRADS] + l.persistent[CAT_OPTIMIZER],
                                 want[i].whole[fp32] * P_EVEN + want[i].shared[fp32] * P_EVEN / worlds[w]);
                plan_free(&p);
            }
}

/* Section 7 of the paper, in full buffers: all-reduce P is two passes of the ring,
 * reduce-scatter and all-gather one each: 2 Psi, 2 Psi, 2 Psi and 3 Psi. */
static void volumes_are_those_of_the_paper(void **state)
{
    (void)state;
    static const struct { enum strategy st; int64_t passes; } want[] = {
        { STRAT_DDP, 2 }, { STRAT_ZERO1, 2 }, { STRAT_ZERO2, 2 }, { STRAT_ZERO3, 3 }, { STRAT_FSDP, 3 },
    };

    for (int w = 0; w < NWORLDS; w++)
        for (int i = 0; i < 5; i++) {
            struct plan p;
            int64_t n = worlds[w];
            synthetic(&p, P_EVEN, n, want[i].st, DT_BF16);
            lowered(&p, 0, &s);
            assert_int_equal(sent(&s, SCHED_STEADY), want[i].passes * 2 * (P_EVEN / n * (n - 1)));
            plan_free(&p);
        }
}

/* Accumulation: stages 0 and 1 reduce every micro-step or once; stages 2 and 3
 * must every time, for they keep a shard only; stage 3 gathers every time. */
static void accumulation_costs_what_the_stage_cannot_keep(void **state)
{
    (void)state;
    static const int64_t steps[] = { 1, 2, 5 };

    for (int w = 0; w < NWORLDS; w++)
        for (int v = 0; v < 6; v++) {
            int64_t n = worlds[w], m = steps[v % 3], e = 2;
            bool sync = v / 3;
            int64_t reduces = sync ? m : 1;
            const struct { enum strategy st; int64_t passes; } want[] = {
                { STRAT_DDP, 2 * reduces }, { STRAT_ZERO1, reduces + 1 }, { STRAT_ZERO2, m + 1 },
                { STRAT_ZERO3, 3 * m }, { STRAT_FSDP, 3 * m },
            };
            for (int i = 0; i < 5; i++) {
                struct plan p;
                synthetic(&p, P_EVEN, n, want[i].st, DT_BF16);
                p.accumulation = m;
                p.sync_every_micro_step = sync;
                fail_capture((char[256]){ 0 }, 256);
                int refused = plan_check(&p, "test") < 0;
                fail_capture(NULL, 0);
                if (!refused) {
                    lowered(&p, 0, &s);
                    assert_int_equal(sent(&s, SCHED_STEADY), want[i].passes * e * (P_EVEN / n * (n - 1)));
                }
                plan_free(&p);
            }
        }
}

/* A unit of T elements is padded to N ceil(T/N): real models, any world. */
static void padding_makes_equal_shards(void **state)
{
    (void)state;
    for (int w = 0; w < NWORLDS; w++)
        for (int unit = UNIT_MODEL; unit <= UNIT_HALF_BLOCK; unit++) {
            struct plan p;
            struct ledger l;
            int64_t n = worlds[w], all = 0, share = 0;
            plan_of(&p, "gpt2", 5, n, STRAT_FSDP, DIALECT_PAPER, DT_BF16);
            p.unit = (enum unit_kind)unit;
            p.unit_blocks = unit == UNIT_BLOCKS ? 2 : 1;
            lowered(&p, 0, &s);
            for (int i = 0; i < s.nunits; i++) {
                assert_int_equal(s.units[i].padded, n * ((s.units[i].numel + n - 1) / n));
                assert_int_equal(s.units[i].shard * n, s.units[i].padded);
                all += s.units[i].numel;
                share += s.units[i].shard;
            }
            assert_int_equal(all, p.model.params);
            ledger_run(&s, &l);
            assert_int_equal(l.persistent[CAT_PARAMS], 2 * share);
            assert_int_equal(l.persistent[CAT_OPTIMIZER], 12 * share);
            assert_int_equal(sent(&s, SCHED_STEADY), 3 * 2 * share * (n - 1));
            plan_free(&p);
        }
}

/* Stage 3 fetches a unit at a time, FSDP one ahead: one unit, or two, besides the
 * root's; GPT-2's blocks are 7,087,872 elements each and divide by 8. */
static void one_unit_is_gathered_and_fsdp_has_one_more_on_its_way(void **state)
{
    (void)state;
    for (int st = STRAT_ZERO3; st <= STRAT_FSDP; st++) {
        struct plan p;
        struct ledger l;
        int64_t root;
        plan_of(&p, "gpt2", 6, 8, (enum strategy)st, DIALECT_PAPER, DT_BF16);
        p.unit = UNIT_BLOCK;
        lowered(&p, 0, &s);
        root = (p.model.params - 6 * 7087872 + 7) / 8 * 8;
        ledger_run(&s, &l);
        assert_int_equal(l.most[CAT_UNSHARDED], 2 * (root + (st == STRAT_FSDP ? 2 : 1) * 7087872));
        plan_free(&p);
    }
}

/* Copies of a sharded model: what groups of S send, and each shard all-reduced. */
static void replicas_reduce_their_shards(void **state)
{
    (void)state;
    static const struct { int64_t shard, copies; } grid[] = { { 1, 4 }, { 2, 2 }, { 4, 8 }, { 8, 2 } };

    for (int i = 0; i < 4; i++) {
        struct plan p;
        int64_t n = grid[i].shard, k = grid[i].copies;
        synthetic(&p, P_EVEN, n * k, STRAT_FSDP, DT_BF16);
        p.shard_group = n;
        lowered(&p, 0, &s);
        assert_int_equal(sent(&s, SCHED_STEADY),
                         (3 * 2 * (P_EVEN / n * (n - 1))) + 2 * (P_EVEN / n * 2 / k * (k - 1)));
        plan_free(&p);
    }
}

/* Whoever holds whole parameters must learn of the other copies' gradients. */
static void no_stage_forgets_the_replicas(void **state)
{
    (void)state;
    for (int st = STRAT_DDP; st <= STRAT_FSDP; st++)
        for (int64_t shard = 1; shard <= 8; shard *= 2) {
            struct plan p;
            char why[256];
            synthetic(&p, P_EVEN, 8, (enum strategy)st, DT_BF16);
            p.shard_group = shard;
            fail_capture(why, sizeof why);
            int refused = plan_check(&p, "test") < 0;
            fail_capture(NULL, 0);
            if (!refused) {
                lowered(&p, 0, &s);
                struct tally ar = tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE);
                if (st == STRAT_DDP)
                    assert_int_equal(ar.elems * 2 * 7 / 8 * 2, sent(&s, SCHED_STEADY));
                else if (shard < 8)
                    assert_int_equal(ar.elems, P_EVEN / shard);
            }
            plan_free(&p);
        }
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

/* ZeRO-Offload (arXiv 2101.06840, section 4) and ZeRO-Infinity (arXiv 2104.07857, section 3), in bytes of a rank's P/N
 * parameters: what each memory keeps between steps, and what a step of one micro-step moves.  On the device nothing but
 * stage 2's own 2 P.  A step of stage 3 brings a shard for forward and for backward; files are read and written as often,
 * with 12 bytes of states each way. */
static void what_is_away_is_moved_as_the_papers_say(void **state)
{
    (void)state;
    static const struct {
        enum strategy st;
        enum offload_device states, params;
        int64_t kept[NSPACE], down, up, read, written;      /* host and pinned memory together in [SPACE_HOST] */
    } want[] = {
        { STRAT_ZERO2, OFFLOAD_CPU,  OFFLOAD_NONE, { 0, 0, 14, 0 }, 2, 2, 0, 0 },
        { STRAT_ZERO3, OFFLOAD_CPU,  OFFLOAD_CPU,  { 0, 0, 16, 0 }, 2, 4, 0, 0 },
        { STRAT_ZERO3, OFFLOAD_NVME, OFFLOAD_NVME, { 0, 0, 0, 16 }, 2, 4, 4 + 2 + 12, 2 + 2 + 12 },
    };

    for (int w = 0; w < NWORLDS; w++)
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            int64_t share = P_EVEN / worlds[w], kept[NSPACE];
            struct moved_table moved = { 0 };
            struct ledger l;
            struct plan p;
            synthetic(&p, P_EVEN, worlds[w], want[i].st, DT_BF16);
            p.ds.offload_optimizer.device = want[i].states;
            p.ds.offload_param.device = want[i].params;
            lowered(&p, worlds[w] - 1, &s);
            for (int in = 0; in < NSPACE; in++) {
                ledger_run_in(&s, IN(in), &l);
                kept[in] = l.persistent[CAT_PARAMS] + l.persistent[CAT_GRADS] + l.persistent[CAT_OPTIMIZER];
            }
            assert_int_equal(kept[SPACE_DEVICE], want[i].st == STRAT_ZERO2 ? 2 * P_EVEN : 0);
            assert_int_equal(kept[SPACE_HOST] + kept[SPACE_PINNED], want[i].kept[SPACE_HOST] * share);
            assert_int_equal(kept[SPACE_DISK], want[i].kept[SPACE_DISK] * share);
            moved_add(&s, SCHED_STEADY, 1, &moved);
            assert_int_equal(moved.of[SPACE_DEVICE][SPACE_PINNED].bytes, want[i].down * share);
            assert_int_equal(moved.of[SPACE_PINNED][SPACE_DEVICE].bytes, want[i].up * share);
            assert_int_equal(moved.of[SPACE_DISK][SPACE_HOST].bytes + moved.of[SPACE_DISK][SPACE_PINNED].bytes,
                             want[i].read * share);
            assert_int_equal(moved.of[SPACE_HOST][SPACE_DISK].bytes + moved.of[SPACE_PINNED][SPACE_DISK].bytes,
                             want[i].written * share);
            plan_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_states_are_those_of_the_paper),
        cmocka_unit_test(volumes_are_those_of_the_paper),
        cmocka_unit_test(accumulation_costs_what_the_stage_cannot_keep),
        cmocka_unit_test(padding_makes_equal_shards),
        cmocka_unit_test(one_unit_is_gathered_and_fsdp_has_one_more_on_its_way),
        cmocka_unit_test(replicas_reduce_their_shards),
        cmocka_unit_test(no_stage_forgets_the_replicas),
        cmocka_unit_test(what_is_away_is_moved_as_the_papers_say),
    };
    return cmocka_run_group_tests_name("model/paper", tests, NULL, end);
}
