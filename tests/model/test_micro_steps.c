/* test_micro_steps.c -- the order of micro-steps, unrolled, against counting; what differs stands alone, the rest is one repeat. */
#include "tests/model/plans.h"

#include "model/walk/walk.h"

/* A framework that notes its passes, and settles after three bodies. */
struct made {
    struct walk walk;
    int next;                   /* the micro-step after the last that has a number */
    int state, begin;
    int bodies;
};

static void begin_pass(void *of)
{
    struct made *e = of;
    struct walk *w = &e->walk;

    sched_op(w->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, w->forward ? "forward" : "backward");
    if (w->number >= 0)
        e->next = (int)w->number + 1;
    sched_of(w->s, "micro-step", w->number < 0 ? e->next : (int)w->number, w->number < 0);
    assert_int_equal(w->first, w->number == 0);
    assert_int_equal(w->last, w->number == w->local->plan->accumulation - 1);
    if (!w->forward && e->state < 3)
        e->state++;
}

static void begin(void *of) { ((struct made *)of)->next = 0; }

static void compute(void *of, const struct walk_run *r) { (void)of; (void)r; }

static bool settled(void *of, bool begins)
{
    struct made *e = of;

    e->bodies += begins;
    if (begins)
        e->begin = e->state;
    return e->begin == e->state;
}

static const struct walk_hooks alike = { .begin = begin, .begin_pass = begin_pass, .compute = compute, .fate = GRADS_KEEP, .grads = CAT_GRADS };
static const struct walk_hooks settles = { .begin = begin, .begin_pass = begin_pass, .compute = compute, .settled = settled,
                                           .fate = GRADS_KEEP, .grads = CAT_GRADS };

/* The first step of m micro-steps. */
static void walked(struct made *e, struct schedules *s, const struct walk_hooks *hooks, int64_t m, int differs, int64_t apart)
{
    struct local_model local;
    struct plan p;

    plan_of(&p, "gpt2", 1, 2, STRAT_FSDP, DIALECT_PAPER, DT_FP32);
    p.unit = UNIT_MODEL;
    p.accumulation = m;
    schedules_reset(s);
    program_free(&s->program);
    assert_int_equal(program_build(&p, &s->program), 0);
    plan_groups(&p, &s->groups);
    assert_int_equal(local_model_of(&p, 0, &local), 0);
    walk_open(&e->walk, &local, NULL, s, hooks, e);
    e->walk.first_differs = differs & 1;
    e->walk.last_differs = differs & 2;
    e->walk.apart = apart;
    lower_declare_activations(s, &local, e->walk.acts);
    assert_int_equal(walk_steps(&e->walk), 0);
    local_model_free(&local);
    plan_free(&p);
}

struct counted { int64_t n; };

/* Passes come as forward 0, backward 0, forward 1, ... */
static int in_order(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct counted *c = arg;

    (void)s;
    if (o->kind != OP_MEMORY || !o->of || strcmp(o->of, "micro-step") != 0)
        return 0;
    assert_string_equal(o->what, c->n % 2 ? "backward" : "forward");
    assert_int_equal(o->unit + o->unit_by * iteration, c->n / 2);
    c->n++;
    return 0;
}

static int entries(const struct schedules *s, enum op_kind kind)
{
    int n = 0;

    for (int i = s->begin[SCHED_FIRST]; i < s->end[SCHED_FIRST]; i++)
        n += s->ops[i].kind == kind;
    return n;
}

static void each_micro_step_goes_forward_and_back_before_the_next(void **state)
{
    struct schedules s = { .nops = 0 };

    (void)state;
    for (int64_t m = 1; m <= 9; m++)
        for (int differs = 0; differs < 4; differs++)
            for (int64_t apart = 0; apart <= m + 1; apart++) {
                struct made e = { .state = 0 };
                struct counted c = { 0 };
                walked(&e, &s, &alike, m, differs, apart);
                sched_walk(&s, SCHED_FIRST, in_order, &c);
                assert_int_equal(c.n, 2 * m);
                /* Those alone: what differs at either end, and those that are not alike yet. */
                int64_t lead = apart > (differs & 1) ? apart : differs & 1, end = m - (differs >> 1);
                bool folds = m > 1 && lead < end;
                assert_int_equal(entries(&s, OP_REPEAT), folds);
                assert_int_equal(entries(&s, OP_MEMORY), 2 * (folds ? lead + 1 + m - end : m));
            }
    schedules_free(&s);
}

/* Two bodies each leave another state than they found: they are taken back, the third stays. */
static void a_repeated_body_begins_as_it_ends(void **state)
{
    struct schedules s = { .nops = 0 };
    struct made e = { .state = 0 };
    struct counted c = { 0 };

    (void)state;
    walked(&e, &s, &settles, 10, 0, 0);
    assert_int_equal(entries(&s, OP_MEMORY), 2);
    sched_walk(&s, SCHED_FIRST, in_order, &c);
    assert_int_equal(c.n, 20);
    /* The first step: 0 to 1, 1 to 2, 2 to 3, 3 to 3.  The next, as a whole once and its repeat once: 3 to 3. */
    assert_int_equal(e.bodies, 4 + 2);
    schedules_free(&s);
}

/* ---- as many instances as are in flight ---- */

/* 1F1B, 8 micro-steps, 3 in flight: 0 1 2 forward; then five times back and the third next forward; then
 * the last three back.  Micro-step i has instance i modulo `instances`. */
static void one_f_one_b(struct schedules *s, int instances)
{
    hand_begin(s);
    int saved = sched_buf(s, CAT_TEMPORARIES, "saved", "micro-step", 0, instances, 100);
    sched_cyclic(s, saved);
    for (int id = SCHED_INIT; id <= SCHED_STEADY; id++) {
        sched_begin(s, (enum sched_id)id);
        for (int i = 0; id != SCHED_INIT && i < 3; i++)
            touch(s, ACT_ALLOC, saved, i, 0);
        if (id != SCHED_INIT) {
            sched_repeat(s, 5);
            touch(s, ACT_USE | ACT_FREE, saved, 0, 1);
            touch(s, ACT_ALLOC, saved, 3, 1);
            sched_repeat_end(s);
        }
        for (int i = 5; id != SCHED_INIT && i < 8; i++)
            touch(s, ACT_USE | ACT_FREE, saved, i, 0);
        sched_end(s, (enum sched_id)id);
    }
}

static void micro_steps_in_flight_share_instances_in_turn(void **state)
{
    struct schedules s = { 0 };
    struct ledger l;
    char why[256];

    (void)state;
    one_f_one_b(&s, 3);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s", why);
    ledger_run(&s, &l);
    assert_int_equal(l.peak.bytes, 300);
    one_f_one_b(&s, 4);
    assert_true(schedules_check(&s, why, sizeof why));
    one_f_one_b(&s, 2);                     /* one too few: micro-step 2 meets 0's */
    assert_false(schedules_check(&s, why, sizeof why));
    assert_non_null(strstr(why, "allocated while live"));
    schedules_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_micro_step_goes_forward_and_back_before_the_next),
        cmocka_unit_test(a_repeated_body_begins_as_it_ends),
        cmocka_unit_test(micro_steps_in_flight_share_instances_in_turn),
    };
    return cmocka_run_group_tests_name("model/micro_steps", tests, NULL, NULL);
}
