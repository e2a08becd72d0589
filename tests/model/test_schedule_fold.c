/* Entries that were appended three times become a repeat; whatever does not move evenly stays as it is. */
#include "tests/check.h"

#include "model/schedule/schedule_fold.h"

enum { LEN = 3 };

static int family;

/* One iteration: a message whose event lies in a ring of `ring`, a wait for the one before, work on an instance of its own. */
static void iteration(struct schedules *s, int k, uint16_t ring, int n, int64_t bytes)
{
    sched_in_flight(s, 0, k);
    sched_op(s, OP_MEMORY, STREAM_NEXT, PHASE_FORWARD, "message")->record = (uint16_t)(ring + k % n);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "await")->wait[0] = (uint16_t)(ring + k % n);
    sched_copy(s, STREAM_COMPUTE, PHASE_FORWARD, "work", bytes, 0);
    sched_of(s, "micro-step", 7 + k, 0);
    sched_act(s, ACT_ALLOC | ACT_FREE, family, 2 * k, 0);
}

/* Three iterations with a ring of n events; where they begin. */
static void three(struct schedules *s, int n, int instances, int at[4])
{
    uint16_t ring = sched_ring(s, n);

    family = sched_buf(s, CAT_BUCKET, "place", "micro-step", 0, instances, 512);
    sched_begin(s, SCHED_STEADY);
    for (int k = 0; k < 3; k++) {
        at[k] = s->nops;
        iteration(s, k, ring, n, 64);
    }
    at[3] = s->nops;
}

/* Bytes that the entries read, repeats unrolled. */
static int read_bytes(const struct schedules *s, const struct op *o, int64_t iteration, void *sum)
{
    (void)s;
    (void)iteration;
    *(int64_t *)sum += o->kind == OP_COPY ? o->u.copy.reads : 0;
    return 0;
}

/* 1 + 7 * (10 + 3 * 100), before which no entry moves; the acts stay where they are. */
static void what_was_appended_becomes_a_repeat_with_those_inside(void **state)
{
    struct schedules s = { 0 };
    int64_t sum = 0;

    (void)state;
    family = sched_buf(&s, CAT_BUCKET, "place", "micro-step", 0, 1, 512);
    sched_begin(&s, SCHED_STEADY);
    sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "before", 1, 0);
    sched_act(&s, ACT_ALLOC, family, 0, 0);
    sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "outer", 10, 0);
    sched_act(&s, ACT_RW, family, 0, 0);
    sched_repeat(&s, 3);
    sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "inner", 100, 0);
    sched_repeat_end(&s);
    schedule_repeat_since(&s, 1, 7);
    sched_end(&s, SCHED_STEADY);
    sched_walk(&s, SCHED_STEADY, read_bytes, &sum);
    assert_int_equal(sum, 1 + 7 * (10 + 3 * 100));
    assert_true(s.ops[1].kind == OP_REPEAT && s.ops[1].u.repeat.other == 6 && s.ops[6].u.repeat.other == 1);
    assert_true(s.ops[3].kind == OP_REPEAT && s.ops[3].u.repeat.other == 5 && s.ops[5].u.repeat.other == 3);
    assert_true(s.ops[0].act0 == 0 && s.ops[0].nacts == 1 && s.ops[2].act0 == 1 && s.ops[2].nacts == 1 && s.nacts == 2);
    schedules_free(&s);
}

static void three_iterations_become_a_repeat_of_many(void **state)
{
    struct schedules s = { 0 };
    int at[4];

    (void)state;
    three(&s, 2, 200, at);
    assert_true(schedule_fold(&s, at, 100, 1));
    assert_int_equal(s.nops, LEN + 2);
    assert_int_equal(s.ops[0].kind, OP_REPEAT);
    assert_int_equal(s.ops[0].u.repeat.n, 100);
    assert_int_equal(s.ops[0].u.repeat.other, LEN + 1);
    assert_int_equal(s.ops[LEN + 1].kind, OP_END);
    assert_int_equal(s.ops[LEN + 1].u.repeat.other, 0);
    assert_int_equal(s.nacts, 1);
    /* The 51st: micro-step 50, unit 57, instance 100 of the family, the ring's first event. */
    const struct op *work = &s.ops[LEN];
    assert_int_equal(work->step + work->step_by * 50, 50);
    assert_int_equal(work->unit + work->unit_by * 50, 57);
    assert_int_equal(sched_instance(&s, &s.acts[work->act0], 50), 100);
    assert_int_equal(sched_event_at(&s, &s.ops[1], s.ops[1].record, 50), 1);
    assert_int_equal(sched_event_at(&s, &s.ops[2], s.ops[2].wait[0], 51), 2);
    sched_end(&s, SCHED_STEADY);
    schedules_free(&s);
}

static void stays(struct schedules *s, const int at[4], int64_t n)
{
    int before = s->nops;

    assert_false(schedule_fold(s, at, n, 1));
    assert_int_equal(s->nops, before);
    assert_int_equal(s->acts[0].by, 0);
    schedules_free(s);
}

static void what_does_not_come_again_stays(void **state)
{
    int at[4];

    (void)state;
    for (int what = 0; what < 7; what++) {
        struct schedules s = { 0 };
        three(&s, 2, 200, at);
        struct op *third = &s.ops[at[2] + 2];
        if (what == 0)
            third->u.copy.reads++;                  /* other work */
        else if (what == 1)
            third->unit++;                          /* the unit moves by 1, then by 2 */
        else if (what == 2)
            s.acts[2].at++;                         /* so does the instance */
        else if (what == 3)
            s.ops[at[2] + 1].wait[0] ^= 3;          /* the ring's other event */
        else if (what == 4)
            third->step = 1;                        /* a micro-step twice */
        else if (what == 5)
            at[2]++;                                /* iterations of different length */
        stays(&s, at, what == 6 ? 101 : 100);       /* the 101st instance would be 200 of 200 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_appended_becomes_a_repeat_with_those_inside),
        cmocka_unit_test(three_iterations_become_a_repeat_of_many),
        cmocka_unit_test(what_does_not_come_again_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
