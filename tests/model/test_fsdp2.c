/* test_fsdp2.c -- FSDP2: gathers, prefetch, reshard, memory of units. */
#include "tests/model/plans.h"

#include "model/program/program.h"
#include "model/schedule/ledger.h"

static struct schedules s;

/* ---- the padding rule, written down again from _init_sharded_param ---- */

/* Every parameter is cut into N parts of ceil(rows/N) rows. */
static int64_t padded(const struct model *m, int64_t n, bool blocks)
{
    int64_t sum = 0;

    for (int t = 0; t < m->ntensors; t++)
        if ((m->tensors[t].block >= 0) == blocks) {
            int64_t rows = m->tensors[t].shape[0], each = (rows + n - 1) / n;
            sum += n * each * (m->tensors[t].numel / rows);
        }
    return sum;
}

static const struct unit *unit_of(const char *kind)
{
    for (int i = 0; i < s.nunits; i++)
        if (!strcmp(s.units[i].kind, kind))
            return &s.units[i];
    fail_msg("no unit %s", kind);
    return NULL;
}

/* N, then elements of a block, of the root {wte, wpe, ln_f}, and of all, padded row by row. */
static void gpt2_is_padded_as_the_vectors_say(void **state)
{
    (void)state;
    static const int64_t want[][4] = {
        { 8, 7087872, 39390720, 124445184 }, { 7, 7100947, 39391492, 124602856 },
        { 6, 7087872, 39390720, 124445184 },
    };
    struct plan p;

    for (int i = 0; i < 3; i++) {
        plan_of(&p, "gpt2", 0, want[i][0], STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        lowered(&p, 0, &s);
        assert_int_equal(unit_of("unit")->padded, want[i][1]);
        assert_int_equal(unit_of("root")->padded, want[i][2]);
        assert_int_equal(12 * want[i][1] + want[i][2], want[i][3]);
        plan_free(&p);
    }
}

/* N = 8, bf16: a block's gather 14,175,744 B of which 12,403,776 are
 * sent, its fp32 reduce-scatter 28,351,488 B; root 78,781,440 and 157,562,880. */
static void gpt2_moves_the_bytes_of_the_vectors(void **state)
{
    (void)state;
    struct plan p;
    int blocks = 0, roots = 0;

    plan_of(&p, "gpt2", 0, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.reduce_dtype = DT_FP32;
    lowered(&p, 0, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        int64_t bytes = o->kind == OP_COLL ? o->u.coll.elems * dtype_bytes(o->u.coll.dtype) : 0;
        if (o->kind != OP_COLL)
            continue;
        bool root = !strcmp(o->of, "root"), gather = o->u.coll.op == COLL_ALL_GATHER;
        assert_int_equal(bytes, root ? (gather ? 78781440 : 157562880) : gather ? 14175744 : 28351488);
        if (!root && gather)
            assert_int_equal(sched_sent_bytes(&s, o), 12403776);
        *(root ? &roots : &blocks) += 1;
    }
    assert_int_equal(roots, 2);                 /* one gather, one reduce-scatter */
    assert_true(blocks > 0);
    plan_free(&p);
}

/* ---- volume ---- */

static int64_t ring(int64_t n, int64_t bytes) { return bytes / n * (n - 1); }

/* With A = sum of A_u and A_0 the root's, per step
 *   synchronised   m R [ (2A - A_0) e_c + A e_r ]        reshard_after_forward = true
 *                  m R [ A e_c + A e_r ]                  = false
 *   otherwise      the reduce-scatter only once. */
static void volumes_follow_the_closed_formula(void **state)
{
    (void)state;
    static const int64_t steps[] = { 1, 2, 5 };

    for (int w = 0; w < NWORLDS; w++)
        for (int variant = 0; variant < 24; variant++) {
            struct plan p;
            int64_t n = worlds[w], m = steps[variant % 3], layers = 5;
            bool sync = variant / 3 % 2, reshard = variant / 6 % 2, mixed = variant / 12;
            plan_of(&p, mixed ? "qwen2.5-0.5b" : "gpt2", layers, n, STRAT_FSDP, DIALECT_TORCH,
                    mixed ? DT_BF16 : DT_FP32);
            p.accumulation = m;
            p.sync_every_micro_step = sync;
            p.fsdp.reshard_after_forward = reshard;
            p.reduce_dtype = DT_FP32;
            lowered(&p, n - 1, &s);
            int64_t a0 = padded(&p.model, n, false), a = a0 + padded(&p.model, n, true);
            int64_t ec = mixed ? 2 : 4, reduces = sync ? m : 1;
            int64_t gathered = reshard ? 2 * a - a0 : a;
            struct tally ag = tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER);
            struct tally rs = tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER);
            assert_int_equal(ag.count, n == 1 ? 0 : m * ((1 + reshard) * layers + 1));
            assert_int_equal(rs.count, n == 1 ? 0 : reduces * (layers + 1));
            assert_int_equal(ag.bytes, n == 1 ? 0 : m * gathered * ec);
            assert_int_equal(rs.bytes, n == 1 ? 0 : reduces * a * 4);
            for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++)
                assert_int_equal(sent(&s, (enum sched_id)id),
                                 m * ring(n, gathered * ec) + reduces * ring(n, a * 4));
            plan_free(&p);
        }
}

/* int k: the first gather among N, the second among k; the root stays. */
static void resharding_to_k_ranks_gathers_again_among_k(void **state)
{
    (void)state;
    static const int64_t ks[] = { 2, 4, 8 };

    for (int i = 0; i < 3; i++) {
        struct plan p;
        int64_t n = 16, k = ks[i];
        plan_of(&p, "gpt2", 4, n, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.fsdp.reshard_after_forward = k;
        lowered(&p, 0, &s);
        int64_t a0 = padded(&p.model, n, false), a = a0 + padded(&p.model, n, true);
        int64_t er = dtype_bytes(p.reduce_dtype);
        assert_int_equal(sent(&s, SCHED_STEADY), ring(n, 2 * a) + ring(k, 2 * (a - a0)) + ring(n, er * a));
        plan_free(&p);
    }
}

/* HSDP of S x K ranks: all of the above in groups of S, and an all-reduce
 * of each shard among K. */
static void hybrid_sharding_adds_an_all_reduce_of_the_shard(void **state)
{
    (void)state;
    static const struct { int64_t shard, copies; } grid[] = { { 1, 4 }, { 2, 2 }, { 4, 3 }, { 8, 8 }, { 3, 5 } };

    for (int i = 0; i < 5; i++) {
        struct plan p;
        int64_t n = grid[i].shard, k = grid[i].copies;
        plan_of(&p, "gpt2", 3, n * k, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
        p.shard_group = n;
        p.accumulation = 2;
        lowered(&p, n, &s);
        int64_t a0 = padded(&p.model, n, false), a = a0 + padded(&p.model, n, true);
        struct tally ar = tally_of(&s, SCHED_STEADY, COLL_ALL_REDUCE);
        assert_int_equal(ar.count, 2 * 4);
        assert_int_equal(ar.elems, 2 * a / n);
        double want = 2 * ((double)ring(n, (2 * a - a0) * 4) + (double)ring(n, a * 4)
                           + 2.0 * (double)(k - 1) / (double)k * 4 * (double)(a / n));
        assert_true(fabs((double)sent(&s, SCHED_STEADY) - want) <= 8);  /* each rounded to a byte */
        plan_free(&p);
    }
}

/* ---- memory ---- */

static int64_t live_of(const struct schedules *q, enum category cat, const struct op *until)
{
    int64_t live = 0;

    for (int id = 0; id < NSCHED; id++)         /* no repeats: two or three units */
        for (int i = q->begin[id]; i < q->end[id]; i++) {
            const struct op *o = &q->ops[i];
            assert_int_not_equal(o->kind, OP_REPEAT);
            for (int bit = ACT_ALLOC; bit <= ACT_FREE; bit *= 4) {
                if (bit == ACT_FREE && o == until)
                    return live;
                for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
                    if ((q->acts[k].what & bit) && q->bufs[q->acts[k].buf].category == cat)
                        live += (bit == ACT_ALLOC ? 1 : -1) * q->acts[k].n * q->bufs[q->acts[k].buf].bytes;
            }
        }
    return live;
}

static int64_t round512_sum(const struct model *m, int64_t n, bool blocks, int64_t e)
{
    int64_t sum = 0;

    for (int t = 0; t < m->ntensors; t++)
        if ((m->tensors[t].block >= 0) == blocks) {
            int64_t rows = m->tensors[t].shape[0];
            sum += (n * ((rows + n - 1) / n) * (m->tensors[t].numel / rows) * e + 511) / 512 * 512;
        }
    return sum;
}

/* At each copy-out of a unit the gathered copy and the parameters are both there;
 * the root's parameters are there all the time. */
static void two_full_copies_exist_at_copy_out(void **state)
{
    (void)state;
    struct plan p;
    int seen = 0;
    int64_t n = 8, layers = 3;

    plan_of(&p, "gpt2", layers, n, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    lowered(&p, 0, &s);
    int64_t root = round512_sum(&p.model, n, false, 2), unit = round512_sum(&p.model, n, true, 2) / layers;
    int64_t copy = (padded(&p.model, n, true) / layers * 2 + 511) / 512 * 512;
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        if (strcmp(o->what, "copy-out") || !strcmp(o->of, "root"))
            continue;
        assert_int_equal(live_of(&s, CAT_UNSHARDED, o), root + unit);
        assert_int_equal(live_of(&s, CAT_ALL_GATHER, o), copy);
        seen++;
    }
    assert_int_equal(seen, 2 * layers);
    plan_free(&p);
}

static void the_root_is_kept_until_its_gradients_are_reduced(void **state)
{
    (void)state;
    struct plan p;
    int64_t root;

    plan_of(&p, "gpt2", 3, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    lowered(&p, 0, &s);
    root = round512_sum(&p.model, 8, false, 2);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].kind == OP_COMPUTE)
            assert_true(live_of(&s, CAT_UNSHARDED, &s.ops[i]) >= root);
    plan_free(&p);
}

static void at_most_one_reduce_scatter_input_is_in_flight(void **state)
{
    (void)state;
    struct plan p;
    struct ledger l;

    for (int layers = 1; layers <= 9; layers += 4) {
        plan_of(&p, "gpt2", layers, 4, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
        lowered(&p, 0, &s);
        ledger_run(&s, &l);
        /* fp32: the output is the gradient itself; the root's input is the largest. */
        assert_int_equal(l.most[CAT_REDUCE_SCATTER], (padded(&p.model, 4, false) * 4 + 511) / 512 * 512);
        plan_free(&p);
    }
}

/* P e / k more between forward and backward, tensor by tensor: whole units, the root not among them. */
static void resharding_to_k_ranks_keeps_a_kth(void **state)
{
    (void)state;
    struct plan p;
    int64_t n = 8, layers = 3;

    for (int64_t k = 2; k <= 4; k *= 2) {
        struct op *head = NULL;
        plan_of(&p, "gpt2", layers, n, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.fsdp.reshard_after_forward = k;
        lowered(&p, 0, &s);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY] && !head; i++)
            if (s.ops[i].kind == OP_COMPUTE && !strcmp(s.ops[i].of, "head"))
                head = &s.ops[i];
        struct ledger l;
        ledger_run(&s, &l);
        int64_t kept = 0;       /* each tensor's part is a clone; 8 divides the rows of all of a block's */
        for (int t = 0; t < p.model.per_block; t++)
            kept += (p.model.tensors[p.model.block0 + t].numel / k * 2 + 511) / 512 * 512;
        assert_int_equal(live_of(&s, CAT_PARAMS, head) - l.persistent[CAT_PARAMS], layers * kept);
        plan_free(&p);
    }
}

/* Parameters, gradients and both moments of AdamW in fp32: 16 P / N, up to padding
 * and rounding. */
static void states_are_a_share_of_sixteen_bytes(void **state)
{
    (void)state;
    struct plan p;
    struct ledger l;

    for (int w = 0; w < NWORLDS; w++) {
        plan_of(&p, "gpt2", 12, worlds[w], STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.reduce_dtype = DT_FP32;
        lowered(&p, 0, &s);
        ledger_run(&s, &l);
        int64_t a = padded(&p.model, worlds[w], false) + padded(&p.model, worlds[w], true);
        int64_t bytes = l.most[CAT_PARAMS] + l.most[CAT_GRADS] + l.most[CAT_OPTIMIZER];
        assert_true(bytes >= 16 * a / worlds[w]);
        assert_true(bytes <= 16 * a / worlds[w] + 4 * 512 * p.model.ntensors);
        plan_free(&p);
    }
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
        cmocka_unit_test(gpt2_is_padded_as_the_vectors_say),
        cmocka_unit_test(gpt2_moves_the_bytes_of_the_vectors),
        cmocka_unit_test(volumes_follow_the_closed_formula),
        cmocka_unit_test(resharding_to_k_ranks_gathers_again_among_k),
        cmocka_unit_test(hybrid_sharding_adds_an_all_reduce_of_the_shard),
        cmocka_unit_test(two_full_copies_exist_at_copy_out),
        cmocka_unit_test(the_root_is_kept_until_its_gradients_are_reduced),
        cmocka_unit_test(at_most_one_reduce_scatter_input_is_in_flight),
        cmocka_unit_test(resharding_to_k_ranks_keeps_a_kth),
        cmocka_unit_test(states_are_a_share_of_sixteen_bytes),
    };
    return cmocka_run_group_tests_name("model/fsdp2", tests, NULL, end);
}
