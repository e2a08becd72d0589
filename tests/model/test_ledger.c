/* test_ledger.c -- bytes live entry by entry, peaks and what they consist of. */
#include "tests/model/plans.h"

#include <stdlib.h>

#include "model/schedule/ledger.h"
#include "tests/model/random_plan.h"

/* ---- by hand ---- */

/* On paper (bytes live after the allocations of each entry):
 *   init    p 1000                          peak 1000
 *   first   +t0 100, +o 500, -t0            peak 1600
 *   steady  +t0 100 +t1 100 ... three of them, then all freed: 1500 + 300 = 1800 */
static void by_hand(struct schedules *s)
{
    hand_begin(s);
    int p = sched_buf(s, CAT_PARAMS, "p", NULL, 0, 1, 1000);
    int o = sched_buf(s, CAT_OPTIMIZER, "o", NULL, 0, 1, 500);
    int t = sched_buf(s, CAT_TEMPORARIES, "t", "unit", 0, 3, 100);
    sched_begin(s, SCHED_INIT);
    touch(s, ACT_ALLOC, p, 0, 0);
    sched_end(s, SCHED_INIT);
    sched_begin(s, SCHED_FIRST);
    touch(s, ACT_ALLOC, t, 0, 0);
    touch(s, ACT_ALLOC, o, 0, 0);
    touch(s, ACT_FREE, t, 0, 0);
    sched_end(s, SCHED_FIRST);
    sched_begin(s, SCHED_STEADY);
    sched_repeat(s, 3);
    touch(s, ACT_ALLOC, t, 0, 1);
    sched_repeat_end(s);
    sched_repeat(s, 3);
    touch(s, ACT_FREE, t, 2, -1);
    sched_repeat_end(s);
    sched_end(s, SCHED_STEADY);
}

static void peaks_are_those_computed_on_paper(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct ledger l;
    char why[256];

    by_hand(&s);
    assert_true(schedules_check(&s, why, sizeof why));
    ledger_run(&s, &l);
    assert_int_equal(l.phase[SCHED_INIT].bytes, 1000);
    assert_int_equal(l.phase[SCHED_FIRST].bytes, 1600);
    assert_int_equal(l.phase[SCHED_STEADY].bytes, 1800);
    assert_int_equal(l.peak.bytes, 1800);
    assert_int_equal(l.peak.sched, SCHED_STEADY);
    assert_int_equal(l.peak.iteration, 2);
    assert_int_equal(l.peak.by[CAT_PARAMS], 1000);
    assert_int_equal(l.peak.by[CAT_OPTIMIZER], 500);
    assert_int_equal(l.peak.by[CAT_TEMPORARIES], 300);
    assert_int_equal(l.persistent[CAT_PARAMS], 1000);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 500);
    assert_int_equal(l.persistent[CAT_TEMPORARIES], 0);
    assert_int_equal(l.most[CAT_TEMPORARIES], 300);
    schedules_free(&s);
}

/* 1500 persist; 1600, 1700 and 1800 are reached one after the other in steady. */
static void the_first_entry_over_a_limit_is_the_first(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct peak at;
    static const struct { int64_t limit, bytes, iteration; enum sched_id sched; } want[] = {
        { 0, 1000, 0, SCHED_INIT }, { 999, 1000, 0, SCHED_INIT }, { 1000, 1100, 0, SCHED_FIRST },
        { 1099, 1100, 0, SCHED_FIRST }, { 1100, 1600, 0, SCHED_FIRST }, { 1600, 1700, 1, SCHED_STEADY },
        { 1699, 1700, 1, SCHED_STEADY }, { 1700, 1800, 2, SCHED_STEADY },
    };

    by_hand(&s);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(ledger_first_over(&s, want[i].limit, &at) >= 0);
        assert_int_equal(at.bytes, want[i].bytes);
        assert_int_equal(at.sched, want[i].sched);
        assert_int_equal(at.iteration, want[i].iteration);
    }
    assert_int_equal(ledger_first_over(&s, 1800, &at), -1);
    schedules_free(&s);
}

static void what_is_live_at_the_peak_is_named_largest_first(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct ledger l;
    struct live live[8];

    by_hand(&s);
    ledger_run(&s, &l);
    assert_int_equal(ledger_live(&s, &l.peak, live, 8), 3);
    assert_int_equal(live[0].bytes, 1000);
    assert_int_equal(live[1].bytes, 500);
    assert_int_equal(live[2].bytes, 300);
    assert_int_equal(live[2].instances, 3);
    assert_int_equal(ledger_live(&s, &l.peak, live, 1), 1);     /* no more than there is room for */
    assert_int_equal(live[0].bytes, 1000);
    schedules_free(&s);
}

static void the_curve_is_what_is_live_after_each_entry(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct point p[8];
    static const int64_t want[] = { 1600, 1700, 1800, 1700, 1600, 1500 };

    by_hand(&s);
    assert_int_equal(ledger_curve(&s, SCHED_STEADY, p, 8), 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(p[i].bytes, want[i]);
    assert_int_equal(ledger_curve(&s, SCHED_STEADY, p, 4), 4);
    schedules_free(&s);
}

/* ---- repeats skipped equal repeats unrolled ---- */

/* A random tree of entries and repeats, written twice: with repeats, and flat.
 * Entries are named by their place in the tree (u.copy.reads) and by their iteration (u.copy.writes). */
enum { FAMILIES = 9 };
struct node { int kind, n, kids; struct { int what, buf; } act[3]; };
struct tree { struct node node[64]; int n; };

static int grow(struct tree *t, uint64_t *rng, int depth)
{
    int me = t->n++;
    struct node *x = &t->node[me];

    x->kind = depth < 3 && draw(rng, 3) == 0 ? OP_REPEAT : draw(rng, 3) ? OP_COPY : OP_COMPUTE;
    x->n = x->kind == OP_REPEAT ? (int)draw(rng, 5) : (int)draw(rng, 4);
    x->kids = 0;
    for (int i = 0; i < 3; i++) {
        x->act[i].what = 1 << draw(rng, 3);
        x->act[i].buf = (int)draw(rng, FAMILIES);
    }
    if (x->kind == OP_REPEAT)
        for (int i = 1 + (int)draw(rng, 3); i > 0 && t->n < 50; i--) {
            grow(t, rng, depth + 1);
            t->node[me].kids++;
        }
    return me;
}

static int write_tree(struct schedules *s, const struct tree *t, int i, bool flat, int64_t iteration)
{
    const struct node *x = &t->node[i];
    int next = i + 1;

    if (x->kind == OP_REPEAT) {
        int times = flat ? x->n : 1;
        if (!flat)
            sched_repeat(s, x->n);
        for (int k = 0; k < times; k++) {
            next = i + 1;
            for (int c = 0; c < x->kids; c++)
                next = write_tree(s, t, next, flat, k);
        }
        if (times == 0) {           /* find the end of what is not written */
            int nops = s->nops, nacts = s->nacts;
            next = i + 1;
            for (int c = 0; c < x->kids; c++)
                next = write_tree(s, t, next, flat, 0);
            s->nops = nops;
            s->nacts = nacts;
        }
        if (!flat)
            sched_repeat_end(s);
        return next;
    }
    if (x->kind == OP_COMPUTE) {
        enum pass pass = x->n & 1 ? PASS_BACKWARD : PASS_FORWARD;
        sched_compute(s, PHASE_FORWARD, x->n & 2 ? PIECE_BLOCK : PIECE_HEAD, pass, 0, 2 + x->n,
                      (enum grad_fate)(i % 3), CAT_GRADS);
    } else {
        sched_copy(s, STREAM_COMPUTE, PHASE_FORWARD, "touch", 0, 0);
    }
    sched_of(s, "node", i, 0);
    for (int k = 0; k < x->n && k < 3; k++)
        sched_act(s, x->act[k].what, x->act[k].buf, 0, 0);
    (void)iteration;
    return next;
}

static void write_schedules(struct schedules *s, const struct tree t[NSCHED], const struct program *g, bool flat)
{
    hand_begin(s);
    s->program = *g;
    for (int b = 0; b < FAMILIES; b++)      /* far apart: a sum tells what is in it */
        sched_buf(s, (enum category)b, "b", NULL, 0, 1, (int64_t)1000 << (4 * b));
    for (int id = 0; id < NSCHED; id++) {
        sched_begin(s, (enum sched_id)id);
        for (int i = 0; i < t[id].n; )
            i = write_tree(s, &t[id], i, flat, 0);
        sched_end(s, (enum sched_id)id);
    }
}

static void same_peak(const struct schedules *a, const struct peak *p, const struct schedules *b, const struct peak *q)
{
    assert_int_equal(p->bytes, q->bytes);
    for (int c = 0; c < NCAT; c++)
        assert_int_equal(p->by[c], q->by[c]);
    assert_int_equal(p->sched, q->sched);
    assert_int_equal(p->op < 0, q->op < 0);
    if (p->op >= 0)
        assert_int_equal(a->ops[p->op].unit, b->ops[q->op].unit);
}

static void repeats_skipped_are_repeats_unrolled(void **state)
{
    (void)state;
    struct schedules folded = { 0 }, flat = { 0 };
    struct plan p;
    struct program g = { 0 }, none = { 0 };
    uint64_t rng = 99;

    plan_of(&p, "gpt2", 1, 1, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    assert_int_equal(program_build(&p, &g), 0);
    for (int round = 0; round < 3000; round++) {
        struct tree t[NSCHED];
        struct ledger a, b;
        struct peak first, same;
        for (int id = 0; id < NSCHED; id++) {
            t[id].n = 0;
            for (int i = (int)draw(&rng, 4); i > 0; i--)
                grow(&t[id], &rng, 0);
        }
        write_schedules(&folded, t, &g, false);
        write_schedules(&flat, t, &g, true);
        ledger_run(&folded, &a);
        ledger_run(&flat, &b);
        same_peak(&folded, &a.peak, &flat, &b.peak);
        for (int id = 0; id < NSCHED; id++)
            same_peak(&folded, &a.phase[id], &flat, &b.phase[id]);
        assert_memory_equal(a.persistent, b.persistent, sizeof a.persistent);
        assert_memory_equal(a.most, b.most, sizeof a.most);
        int64_t limit = a.peak.bytes - (int64_t)draw(&rng, 1000000) * 100000;
        int at = ledger_first_over(&folded, limit, &first), flat_at = ledger_first_over(&flat, limit, &same);
        assert_int_equal(at < 0, flat_at < 0);
        if (at >= 0)
            same_peak(&folded, &first, &flat, &same);
        folded.program = flat.program = none;       /* shared: freed below */
    }
    folded.program = g;
    schedules_free(&folded);
    schedules_free(&flat);
    plan_free(&p);
}

/* ---- on lowered plans ---- */

/* The ledger of device memory once more, the slow and obvious way: every entry, every category. */
struct slow { int64_t live[NCAT], peak, families; const struct peak *at; enum sched_id sched; };

static int64_t total(const int64_t live[NCAT])
{
    int64_t sum = 0;

    for (int c = 0; c < NCAT; c++)
        sum += live[c];
    return sum;
}

static void slow_acts(struct slow *w, const struct schedules *s, const struct op *o, int what, int sign)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        for (int j = 0; j < s->acts[k].n && (s->acts[k].what & what); j++) {
            const struct buf *b = &s->bufs[s->acts[k].buf];
            bool kept = b->category == CAT_ACTIVATIONS;     /* kernels have it, but for copies to another memory */
            if (b->space != SPACE_DEVICE || (kept && o->kind != OP_COPY))
                continue;
            w->live[b->category] += sign * b->bytes;
            w->families += kept ? 0 : sign * b->bytes;
        }
}

static int slow_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct slow *w = arg;
    int64_t in[NMEM] = { 0 }, net[NMEM] = { 0 };

    (void)iteration;
    slow_acts(w, s, o, ACT_ALLOC, 1);
    if (o->kind == OP_COMPUTE) {
        sched_inner_peak(s, o, in);
        sched_inner(s, o, net);
    }
    int64_t now = total(w->live) + in[0] + in[1] + in[2];
    if (now > w->peak)
        w->peak = now;
    if (w->at && w->sched == w->at->sched && (int)(o - s->ops) == w->at->op && now == w->at->bytes)
        return 1;
    w->live[CAT_ACTIVATIONS] += net[MEM_ACTIVATIONS];
    w->live[CAT_TEMPORARIES] += net[MEM_TEMPORARIES];
    if (o->kind == OP_COMPUTE)
        w->live[o->u.compute.grads] += net[MEM_GRADS];
    slow_acts(w, s, o, ACT_FREE, -1);
    return 0;
}

static void slow_run(struct slow *w, const struct schedules *s, const struct peak *at)
{
    *w = (struct slow){ .at = at };
    for (int turn = 0; turn < NSCHED; turn++) {
        w->sched = sched_in_turn(turn);
        if (sched_walk(s, w->sched, slow_op, w))
            return;
    }
}

static void on_random_plans(void (*f)(const struct schedules *s), int plans)
{
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "opt-125m", "qwen3-0.6b" };
    struct schedules s = { 0 };
    char why[512];
    uint64_t rng = 5;

    for (int i = 0; i < plans; i++) {
        struct model whole, m;
        struct cluster c;
        struct plan p;
        assert_int_equal(model_load(models[draw(&rng, 4)], &whole), 0);
        assert_int_equal(model_with_layers(&whole, 1 + draw(&rng, 9), &m), 0);
        world_of(&c, 1 + draw(&rng, 12));
        draw_plan(&m, &c, &rng, &p);
        draw_limits(&p, &rng);
        p.accumulation = p.parallel.pipeline > 1 ? p.accumulation : 1 + p.accumulation % 5;
        fail_capture(why, sizeof why);
        int rc = lower(&p, 0, &s);
        fail_capture(NULL, 0);
        if (rc == 0 && schedules_check(&s, why, sizeof why))
            f(&s);
        model_free(&m);
        model_free(&whole);
    }
    schedules_free(&s);
}

static void totals(const struct schedules *s)
{
    struct ledger l;
    struct slow w;

    ledger_run(s, &l);
    slow_run(&w, s, NULL);
    assert_int_equal(l.peak.bytes, w.peak);
    assert_memory_equal(l.persistent, w.live, sizeof w.live);
    assert_int_equal(total(l.peak.by), l.peak.bytes);
    for (int id = 0; id < NSCHED; id++) {
        assert_int_equal(total(l.phase[id].by), l.phase[id].bytes);
        assert_true(l.phase[id].bytes <= l.peak.bytes);
    }
    for (int c = 0; c < NCAT; c++) {
        assert_true(l.most[c] >= l.phase[SCHED_STEADY].by[c]);
        assert_true(l.persistent[c] >= 0);
    }
}

static void lowered_plans_peak_where_a_slow_ledger_says(void **state)
{
    (void)state;
    on_random_plans(totals, 400);
}

/* Families live at the peak, activations apart: all the slow ledger has there,
 * less what compute entries hold without a family. */
static void lives(const struct schedules *s)
{
    static struct live live[4096];
    struct ledger l;
    struct slow w;
    int64_t sum = 0;

    ledger_run(s, &l);
    slow_run(&w, s, &l.peak);
    int n = ledger_live(s, &l.peak, live, 4096);
    for (int i = 0; i < n; i++) {
        assert_true(live[i].bytes == live[i].instances * s->bufs[live[i].buf].bytes);
        assert_true(i == 0 || live[i].bytes <= live[i - 1].bytes);
        if (s->bufs[live[i].buf].category != CAT_ACTIVATIONS)
            sum += live[i].bytes;
    }
    assert_int_equal(sum, w.families);
}

static void what_is_live_sums_to_the_peak(void **state)
{
    (void)state;
    on_random_plans(lives, 200);
}

static void over_at_every_limit(const struct schedules *s)
{
    struct ledger l;
    struct peak at;

    ledger_run(s, &l);
    assert_int_equal(ledger_first_over(s, l.peak.bytes, &at), -1);
    assert_int_equal(ledger_first_over(s, l.peak.bytes - 1, &at), l.peak.op);
    assert_int_equal(at.bytes, l.peak.bytes);
    /* Nothing before the first entry over the limit is over it. */
    for (int i = 1; i < 8; i++) {
        struct slow w = { 0 };
        int64_t limit = l.peak.bytes * i / 8;
        assert_true(ledger_first_over(s, limit, &at) >= 0);
        assert_true(at.bytes > limit);
        slow_run(&w, s, &at);
        assert_true(w.peak == at.bytes);
    }
}

static void before_the_first_entry_over_nothing_is_over(void **state)
{
    (void)state;
    on_random_plans(over_at_every_limit, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_those_computed_on_paper),
        cmocka_unit_test(the_first_entry_over_a_limit_is_the_first),
        cmocka_unit_test(what_is_live_at_the_peak_is_named_largest_first),
        cmocka_unit_test(the_curve_is_what_is_live_after_each_entry),
        cmocka_unit_test(repeats_skipped_are_repeats_unrolled),
        cmocka_unit_test(lowered_plans_peak_where_a_slow_ledger_says),
        cmocka_unit_test(what_is_live_sums_to_the_peak),
        cmocka_unit_test(before_the_first_entry_over_nothing_is_over),
    };
    return cmocka_run_group_tests_name("model/ledger", tests, NULL, NULL);
}
