/* test_units.c -- the cut of a model into units that are gathered together. */
#include "tests/model/plans.h"

#include "model/program/program.h"
#include "model/schedule/units.h"

/* Two entries for the unit at hand and for each neighbour, as a lowering would
 * name them there: class, blocks and recompute as they are, index and block of
 * iteration 0 with their steps. */
struct emit { struct schedules *s; const struct unit_map *m; int n; };

static void write_unit(struct emit *e, int position, struct unit_step st)
{
    struct unit_ref u = unit_at(e->m, position);
    bool root = u.cls == UC_ROOT;

    struct op *o = sched_copy(e->s, STREAM_COMPUTE, PHASE_FORWARD, "unit", 0, 0);
    o->u.copy.reads = u.cls;
    o->u.copy.writes = u.nblocks;
    sched_of(e->s, "unit", u.index, root ? 0 : st.by);
    o = sched_copy(e->s, STREAM_COMPUTE, PHASE_FORWARD, "block", 0, 0);
    for (int k = 0; k < u.nblocks; k++)         /* which of its blocks are recomputed */
        o->u.copy.reads |= (int64_t)(program_piece_of_block(e->m->plan, u.block + k) ==
                                     PIECE_BLOCK_RECOMPUTED) << k;
    sched_of(e->s, "block", u.block, root ? 0 : st.by_block);
}

static void write_neighbours(void *arg, struct unit_step st)
{
    struct emit *e = arg;

    for (int d = -1; d <= 1; d++)
        write_unit(e, st.position + d, st);
    e->n++;
}

struct line { int64_t unit, cls, nblocks, block, recomputed; };
struct lines { int n; struct line line[3 * 64]; };

static int read_line(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct lines *l = arg;
    int64_t number = o->unit + o->unit_by * iteration;

    (void)s;
    if (!strcmp(o->of, "unit"))
        l->line[l->n] = (struct line){ .unit = number, .cls = o->u.copy.reads, .nblocks = o->u.copy.writes };
    else {
        l->line[l->n].block = number;
        l->line[l->n++].recomputed = o->u.copy.reads;
    }
    return 0;
}

static void same_lines(const struct lines *got, const struct lines *want)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < got->n; i++) {
        assert_int_equal(got->line[i].cls, want->line[i].cls);
        assert_int_equal(got->line[i].unit, want->line[i].unit);
        assert_int_equal(got->line[i].nblocks, want->line[i].nblocks);
        assert_int_equal(got->line[i].recomputed, want->line[i].recomputed);
        if (want->line[i].cls != UC_ROOT)
            assert_int_equal(got->line[i].block, want->line[i].block);
    }
}

/* Emitted by units_emit(), and emitted one after the other: the same entries. */
static void both(const struct plan *p, bool backwards)
{
    static struct lines folded, flat;
    struct schedules s = { 0 };
    struct unit_map m;
    struct emit e = { &s, &m, 0 };

    unit_map_of(&m, p);
    for (int fold = 0; fold < 2; fold++) {
        struct lines *l = fold ? &folded : &flat;
        hand_begin(&s);
        sched_begin(&s, SCHED_STEADY);
        if (fold)
            units_emit(&m, &s, backwards, write_neighbours, &e);
        for (int k = 0; !fold && k < m.n; k++)
            write_neighbours(&e, (struct unit_step){ backwards ? m.n - 1 - k : k, 0, 0 });
        sched_end(&s, SCHED_STEADY);
        l->n = 0;
        sched_walk(&s, SCHED_STEADY, read_line, l);
    }
    same_lines(&folded, &flat);
    schedules_free(&s);
}

typedef void for_plan(const struct plan *p);

/* Layers 1..12, every kind of unit, recompute intervals 1..5. */
static void every_map(for_plan *f)
{
    for (int layers = 1; layers <= 12; layers++) {
        struct plan p;
        plan_of(&p, "gpt2", layers, 2, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
        for (int unit = 0; unit <= 7; unit++)
            for (int every = 0; every <= 5 && every <= layers; every++) {
                p.recompute = every ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                p.recompute_interval = every ? every : 1;
                p.unit = unit == 0 ? UNIT_HALF_BLOCK : unit == 7 ? UNIT_MODEL : unit == 1 ? UNIT_BLOCK : UNIT_BLOCKS;
                p.unit_blocks = p.unit == UNIT_BLOCKS ? unit : 1;
                if (p.unit_blocks <= layers)
                    f(&p);
            }
        plan_free(&p);
    }
}

static void fold_both_ways(const struct plan *p)
{
    both(p, false);
    both(p, true);
}

static void folded_units_are_the_flat_ones_with_their_neighbours(void **state)
{
    (void)state;
    every_map(fold_both_ways);
}

/* Every block is in exactly one unit, or in its two halves, in order. */
static void covers(const struct plan *p)
{
    struct unit_map m;
    int next = 0, seen[NUC] = { 1 };

    unit_map_of(&m, p);
    for (int k = 0; k < m.n; k++) {
        struct unit_ref u = unit_at(&m, k);
        assert_int_not_equal(u.cls, UC_ROOT);
        assert_int_equal(u.index, seen[u.cls]++);
        if (u.cls != UC_MLP)
            assert_int_equal(u.block, next);
        else
            assert_int_equal(u.block, next - 1);
        if (u.cls != UC_MLP)
            next += u.nblocks;
    }
    assert_int_equal(next, m.n ? p->model.layers : 0);
    for (int c = 0; c < NUC; c++)
        assert_int_equal(m.of_class[c], seen[c]);
    assert_int_equal(unit_at(&m, -1).cls, UC_ROOT);
    assert_int_equal(unit_at(&m, m.n).cls, UC_ROOT);
}

static void every_block_is_in_one_unit(void **state)
{
    (void)state;
    every_map(covers);
}

/* Whatever the cut, the units' elements add up to the model's. */
static void adds_up(const struct plan *p)
{
    struct unit_map m;
    int64_t sum = 0;

    unit_map_of(&m, p);
    for (int c = 0; c < NUC; c++)
        if (m.of_class[c] > 0)
            sum += m.of_class[c] * unit_sum(&m, (enum unit_class)c, units_tensor_numel, NULL);
    assert_int_equal(sum, p->model.params);
}

static void units_hold_the_whole_model(void **state)
{
    (void)state;
    every_map(adds_up);
}

/* Adapters that are units: each matrix by itself, in registration order, and the block's unit without them. */
static void adapters_are_units_beside_their_block(void **state)
{
    static const char *const targets[] = { "c_attn", "c_attn,c_fc", "all-linear" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p;
        struct unit_map m;
        int64_t sum = 0, frozen = 0;
        plan_of(&p, "gpt2", 5, 4, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_FP32);
        p.train = training_default();
        strcpy(p.train.what, "lora");
        strcpy(p.train.target_modules, targets[i]);
        assert_int_equal(training_apply(&p.model, &p.train, "test"), 0);
        p.fsdp.wrap_adapters = true;
        unit_map_of(&m, &p);
        assert_int_equal(m.nadapters, 2 * (i == 2 ? 4 : i + 1));
        for (int c = 0; c < NUC; c++)
            if (m.of_class[c] > 0)
                sum += m.of_class[c] * unit_sum(&m, (enum unit_class)c, units_tensor_numel, NULL);
        assert_int_equal(sum, p.model.params);
        for (int c = UC_ADAPTER; c < UC_ADAPTER + m.nadapters; c++) {
            const struct tensor *t = &p.model.tensors[unit_tensor(&m, (enum unit_class)c, 0)];
            assert_int_equal(m.of_class[c], 5);
            assert_true(tensor_is_adapter(t) && t->block == 0);
            assert_int_equal(t->adapter, (c - UC_ADAPTER) % 2 ? ADAPTER_LORA_B : ADAPTER_LORA_A);
            assert_int_equal(unit_tensor(&m, (enum unit_class)c, 1), -1);
            assert_int_equal(unit_stride(&m, (enum unit_class)c), p.model.per_block);
        }
        for (int k = 0, t; (t = unit_tensor(&m, UC_FULL, k)) >= 0; k++) {
            assert_true(p.model.tensors[t].frozen);
            frozen += p.model.tensors[t].numel;
        }
        assert_int_equal(frozen, 7087872);              /* a block of GPT-2 */
        plan_free(&p);
    }
}

/* However many blocks, a few entries: 4000 blocks fold into what 40 need. */
static void deep_models_fold_into_few_entries(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    int nops[2];

    for (int deep = 0; deep < 2; deep++) {
        struct plan p;
        struct unit_map m;
        struct emit e = { &s, &m, 0 };
        plan_of(&p, "gpt2", deep ? 4000 : 40, 2, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
        unit_map_of(&m, &p);
        hand_begin(&s);
        sched_begin(&s, SCHED_STEADY);
        units_emit(&m, &s, true, write_neighbours, &e);
        sched_end(&s, SCHED_STEADY);
        nops[deep] = s.nops;
        plan_free(&p);
    }
    assert_int_equal(nops[0], nops[1]);
    schedules_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folded_units_are_the_flat_ones_with_their_neighbours),
        cmocka_unit_test(every_block_is_in_one_unit),
        cmocka_unit_test(units_hold_the_whole_model),
        cmocka_unit_test(adapters_are_units_beside_their_block),
        cmocka_unit_test(deep_models_fold_into_few_entries),
    };
    return cmocka_run_group_tests_name("model/units", tests, NULL, NULL);
}
