/* The jitter line against the literature's E_N and against arithmetic by hand. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "sim/clock/clock.h"
#include "sim/clock/jitter.h"
#include "tests/hand_group.h"

/* Means of the largest of n normal draws to two places: E_2 is 1/sqrt(pi), E_3 is
 * 3/(2 sqrt(pi)), the others as order statistics are tabulated. */
static void the_largest_of_n_draws_is_the_tabulated_one(void **state)
{
    static const struct { int64_t n; double e; } table[] = {
        { 8, 1.42 }, { 16, 1.77 }, { 32, 2.07 }, { 64, 2.34 }, { 128, 2.60 }, { 256, 2.83 }, { 512, 3.04 },
        { 1024, 3.25 }, { 2048, 3.44 }, { 4096, 3.63 }, { 8192, 3.80 }, { 16384, 3.97 },
    };
    double before = 0;

    (void)state;
    assert_close(jitter_largest(1), 0, 0);
    assert_close(jitter_largest(2), 1 / sqrt(acos(-1)), 1e-14);
    assert_close(jitter_largest(3), 1.5 / sqrt(acos(-1)), 1e-14);
    assert_close(jitter_largest(8), 1.4236003060452777, 1e-14);         /* the integral by mpmath.quad, with 40 digits */
    assert_close(jitter_largest(1000000), 4.8628974861964627, 1e-14);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_true(fabs(jitter_largest(table[i].n) - table[i].e) <= 0.006);
    for (int64_t n = 1; n < (int64_t)1 << 40; n *= 2) {     /* grows, and ever slower */
        assert_true(jitter_largest(n) >= before && jitter_largest(n) < 8);
        before = jitter_largest(n);
    }
}

/* ---- schedules by hand ---- */

struct bed {
    struct schedules s;
    double work[256], issue[256];
    struct run r;
};

static void bed_init(struct bed *b)
{
    memset(b, 0, sizeof *b);
    b->s.world_size = 8;
    hand_group(&b->s, GROUP_DATA, 8);
    sched_begin(&b->s, SCHED_STEADY);
}

static struct op *add(struct bed *b, enum op_kind kind, enum stream st, double seconds)
{
    b->work[b->s.nops] = seconds;
    if (kind == OP_COLL)
        return sched_coll(&b->s, st, PHASE_FORWARD, COLL_ALL_GATHER, GROUP_DATA, DT_BF16, RED_NONE, 1);
    struct op *o = sched_op(&b->s, kind, st, PHASE_FORWARD, "work");
    o->u.optimizer.elems = 1;
    return o;
}

static struct jitter_added added(struct bed *b, struct jitter j)
{
    struct durations d = { b->work, b->issue };
    struct jitter_added a;
    struct timeline t;

    sched_end(&b->s, SCHED_STEADY);
    clock_one(&b->s, SCHED_STEADY, &d, NULL, &t, &b->r);
    jitter_of(&j, 8, &b->s, &b->r, &a);
    run_free(&b->r);
    schedules_free(&b->s);
    return a;
}

/* DDP: nine entries vary, then everybody meets once: sqrt(9) sigma_t E_8. */
static void one_meeting_point_pays_the_root_of_its_entries(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    for (int i = 0; i < 9; i++)
        add(&b, OP_OPTIMIZER, STREAM_COMPUTE, 1);
    add(&b, OP_COLL, STREAM_GROUP, 2)->after = AFTER(STREAM_COMPUTE);
    add(&b, OP_WAIT, STREAM_COMPUTE, 0)->after = AFTER(STREAM_GROUP);
    struct jitter_added a = added(&b, (struct jitter){ .sigma_p = 0.05, .sigma_t = 0.01, .lambda = 1e-3, .delay = 2 });
    assert_close(a.transient_s, 3 * 0.01 * jitter_largest(8), 1e-12);
    assert_close(a.persistent_s, 11 * 0.05 * jitter_largest(8), 1e-12);
    assert_close(a.events_s, 8 * 1e-3 * 2, 1e-12);
}

/* FSDP: each of five units of 1 s waits for its own gather of g seconds, begun with the
 * compute of the unit before: it is 1 - g early, and only noise beyond that costs. */
static void prefetch_absorbs_noise(void **state)
{
    (void)state;
    for (double g = 0.5; g <= 1; g += 0.25) {
        double sigma = 0.3, each = sigma * jitter_largest(8) - (1 - g);
        struct bed b;
        bed_init(&b);
        uint16_t ready = sched_event(&b.s);
        add(&b, OP_COLL, STREAM_GATHER, g)->record = ready;
        for (int l = 0; l < 5; l++) {
            struct op *o = add(&b, OP_MEMORY, STREAM_COMPUTE, 0);
            o->wait[0] = ready;
            if (l < 4) {
                o = add(&b, OP_COLL, STREAM_GATHER, g);
                o->after = AFTER(STREAM_COMPUTE);
                o->record = ready;
            }
            add(&b, OP_OPTIMIZER, STREAM_COMPUTE, 1);
        }
        struct jitter_added a = added(&b, (struct jitter){ .sigma_t = sigma });
        assert_close(a.transient_s, each > 0 ? 4 * each : 0, 1e-9);     /* nothing ran before the first */
    }
}

/* What waits for a stream that waited for a collective has waited for it as well. */
static void a_copy_between_passes_the_wait_on(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    uint16_t copied = sched_event(&b.s);
    add(&b, OP_OPTIMIZER, STREAM_COMPUTE, 1);
    add(&b, OP_COLL, STREAM_GATHER, 1)->after = AFTER(STREAM_COMPUTE);
    struct op *o = add(&b, OP_COPY, STREAM_COPY_IN, 0);
    o->after = AFTER(STREAM_GATHER);
    o->record = copied;
    add(&b, OP_OPTIMIZER, STREAM_COMPUTE, 1)->wait[0] = copied;
    assert_close(added(&b, (struct jitter){ .sigma_t = 0.1 }).transient_s, 0.1 * jitter_largest(8), 1e-12);
}

static void no_noise_and_one_rank_add_nothing(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    add(&b, OP_OPTIMIZER, STREAM_COMPUTE, 1);
    add(&b, OP_COLL, STREAM_GROUP, 2)->after = AFTER(STREAM_COMPUTE);
    struct jitter_added a = added(&b, (struct jitter){ 0 });
    assert_true(a.persistent_s + a.transient_s + a.events_s == 0);
}

static void options_are_parsed_and_bad_ones_refused(void **state)
{
    static const char *const bad[] = { "", "x", "0.1,", ",0.1", "0.1,1e-5,1e-6", "1", "-0.1", "nan", "inf", "0.1;2",
                                       "0.1,0,2,1", "0.1,0,0,0,0", "0.1,0,0,0,", "0.1 ,2" };
    struct jitter j;
    char why[256];

    (void)state;
    assert_int_equal(jitter_parse("0.065", &j), 0);
    assert_true(j.sigma_p == 0.065 && j.sigma_t == 0 && j.lambda == 0 && j.delay == 0);
    assert_int_equal(jitter_parse("0,20e-6", &j), 0);
    assert_true(j.sigma_p == 0 && j.sigma_t == 20e-6);
    assert_int_equal(jitter_parse("0.03,20e-6,1e-6,0.5", &j), 0);
    assert_true(j.lambda == 1e-6 && j.delay == 0.5);
    fail_capture(why, sizeof why);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (jitter_parse(bad[i], &j) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
    fail_capture(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_of_n_draws_is_the_tabulated_one),
        cmocka_unit_test(one_meeting_point_pays_the_root_of_its_entries),
        cmocka_unit_test(prefetch_absorbs_noise),
        cmocka_unit_test(a_copy_between_passes_the_wait_on),
        cmocka_unit_test(no_noise_and_one_rank_add_nothing),
        cmocka_unit_test(options_are_parsed_and_bad_ones_refused),
    };
    return cmocka_run_group_tests_name("sim/jitter", tests, NULL, NULL);
}
