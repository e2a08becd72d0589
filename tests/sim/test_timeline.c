/* The clock against closed forms, against itself unrolled, and against bounds. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "sim/clock/clock.h"
#include "tests/hand_group.h"
#include "tests/sim/simple_clock.h"

/* ---- schedules by hand: one entry, one duration ---- */

enum { MAX = 16384 };

struct bed {
    struct schedules s;
    double work[MAX], issue[MAX];
    struct durations d;
};

static void bed_init(struct bed *b)
{
    memset(b, 0, sizeof *b);
    hand_group(&b->s, GROUP_DATA, 8);
    hand_group(&b->s, GROUP_REPLICA, 8);
    b->d = (struct durations){ b->work, b->issue };
    sched_begin(&b->s, SCHED_STEADY);
}

static struct op *work(struct bed *b, enum stream st, double seconds)
{
    b->work[b->s.nops] = seconds;
    return sched_copy(&b->s, st, PHASE_FORWARD, "work", 0, 0);
}

static struct op *collective(struct bed *b, enum stream st, enum coll_op op, enum group g, double seconds)
{
    b->work[b->s.nops] = seconds;
    return sched_coll(&b->s, st, PHASE_FORWARD, op, g, DT_BF16, RED_NONE, 1);
}

static struct timeline finish(struct bed *b)
{
    struct timeline t, oracle;

    sched_end(&b->s, SCHED_STEADY);
    clock_one(&b->s, SCHED_STEADY, &b->d, NULL, &t, NULL);
    simple_clock(&b->s, SCHED_STEADY, &b->d, &oracle);
    assert_close(oracle.step_s, t.step_s, 1e-15);
    assert_close(oracle.exposed_s, t.exposed_s, 1e-12);
    return t;
}

static double parts(const struct timeline *t)
{
    return t->compute_s + t->optimizer_s + t->exposed_s + t->idle_s;
}

/* Forward of FSDP with one unit gathered ahead: AG(l+1) runs beside F(l), after
 * the copy-out of l.  T = AG(1) + sum max(F(l), AG(l+1)), the last F alone
 * (timing: section 3.2 of the model's derivation in sim/README.md). */
static void gathers_one_ahead_hide_behind_compute(void **state)
{
    static const double f[] = { 3, 1, 4, 1.5, 5 }, ag[] = { 2, 2.5, 2, 6, 1 };
    double want = ag[0] + f[4];
    struct bed b;

    (void)state;
    bed_init(&b);
    uint16_t gathered = sched_event(&b.s);
    collective(&b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, ag[0])->record = gathered;
    for (int l = 0; l < 5; l++) {
        struct op *o = work(&b, STREAM_COMPUTE, 0);
        o->wait[0] = gathered;
        if (l < 4) {
            o = collective(&b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, ag[l + 1]);
            o->after = AFTER(STREAM_COMPUTE);
            o->record = gathered;
            want += f[l] > ag[l + 1] ? f[l] : ag[l + 1];
        }
        work(&b, STREAM_COMPUTE, f[l]);
    }
    struct timeline t = finish(&b);
    assert_close(t.step_s, want, 1e-15);
    assert_close(t.exposed_by[COLL_ALL_GATHER][GROUP_DATA], want - (3 + 1 + 4 + 1.5 + 5), 1e-12);
    assert_close(parts(&t), t.step_s, 1e-12);
    schedules_free(&b.s);
}

/* DDP: buckets of equal all-reduce time r, ready every c: the last one ends at
 * n*c + r when r <= c, and at c + n*r when the network is the bottleneck. */
static void buckets_queue_when_the_network_is_slower(void **state)
{
    (void)state;
    for (int slow = 0; slow <= 1; slow++) {
        double c = slow ? 1 : 3, r = slow ? 3 : 1;
        struct bed b;
        bed_init(&b);
        for (int i = 0; i < 7; i++) {
            work(&b, STREAM_COMPUTE, c);
            collective(&b, STREAM_GROUP, COLL_ALL_REDUCE, GROUP_DATA, r)->after = AFTER(STREAM_COMPUTE);
        }
        struct timeline t = finish(&b);
        assert_close(t.step_s, slow ? c + 7 * r : 7 * c + r, 1e-15);
        assert_close(t.exposed_s, t.step_s - 7 * c, 1e-12);
        schedules_free(&b.s);
    }
}

/* Two streams of one process group never overlap; of two groups they do. */
static void one_process_group_is_one_queue(void **state)
{
    (void)state;
    for (int two = 0; two <= 1; two++) {
        struct bed b;
        bed_init(&b);
        collective(&b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, 5);
        collective(&b, STREAM_REDUCE, COLL_REDUCE_SCATTER, two ? GROUP_REPLICA : GROUP_DATA, 4);
        assert_close(finish(&b).step_s, two ? 5 : 9, 0);
        schedules_free(&b.s);
    }
}

/* A program that issues slower than the GPU computes takes as long as issuing. */
static void a_slow_issuing_thread_is_idle_time(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    for (int i = 0; i < 10; i++) {
        b.issue[b.s.nops] = 3;
        work(&b, STREAM_COMPUTE, 1);
    }
    struct timeline t = finish(&b);
    assert_close(t.step_s, 31, 1e-15);          /* issued at 3, 6 ... 30, and the last runs 1 */
    assert_close(t.idle_s, 21, 1e-15);
    schedules_free(&b.s);
}

/* The issuing thread blocks on the network: nothing runs ahead any more. */
static void a_blocked_issuing_thread_is_charged_to_what_it_waits_for(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    collective(&b, STREAM_GROUP, COLL_ALL_REDUCE, GROUP_DATA, 7);
    sched_op(&b.s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "wait")->after = AFTER(STREAM_GROUP);
    work(&b, STREAM_COMPUTE, 2);
    struct timeline t = finish(&b);
    assert_close(t.step_s, 9, 1e-15);
    assert_close(t.exposed_by[COLL_ALL_REDUCE][GROUP_DATA], 7, 1e-15);
    schedules_free(&b.s);
}

/* Compute waits for a collective of 2 s, which is issued 5 s late: 4 s of that wait are the issuing thread's (1 s it computes).
 * With another in the way, which that thread waits for: 3 + 1 to issue, 2 run, its 1 to issue is the thread's again. */
static void what_is_issued_late_is_no_communication(void **state)
{
    struct timeline t;
    struct bed b;

    (void)state;
    bed_init(&b);
    work(&b, STREAM_COMPUTE, 1);
    b.issue[b.s.nops] = 5;
    collective(&b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, 2);
    work(&b, STREAM_COMPUTE, 3)->after = AFTER(STREAM_GATHER);
    t = finish(&b);
    assert_close(t.step_s, 10, 1e-15);
    assert_close(t.idle_s, 4, 1e-15);
    assert_close(t.exposed_by[COLL_ALL_GATHER][GROUP_DATA], 2, 1e-15);
    schedules_free(&b.s);

    bed_init(&b);
    collective(&b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, 3);
    sched_op(&b.s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "wait")->after = AFTER(STREAM_GATHER);
    b.issue[b.s.nops] = 1;
    collective(&b, STREAM_REDUCE, COLL_REDUCE_SCATTER, GROUP_DATA, 2);
    work(&b, STREAM_COMPUTE, 1)->after = AFTER(STREAM_REDUCE);
    t = finish(&b);
    assert_close(t.step_s, 7, 1e-15);
    assert_close(t.idle_s, 1, 1e-15);
    assert_close(t.exposed_by[COLL_REDUCE_SCATTER][GROUP_DATA], 5, 1e-15);      /* of the chain the last is to blame */
    schedules_free(&b.s);
}

/* ---- random schedules ---- */

static struct contention slow_by(double compute, double comm);

static double uniform(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (double)(1u << 24);
}

/* A body of a few entries that wait for each other at random, repeated. */
static void random_bed(struct bed *b, unsigned seed, int repeats, bool folded)
{
    unsigned body = seed;
    uint16_t ev[3];

    bed_init(b);
    for (int i = 0; i < 3; i++)
        ev[i] = sched_event(&b->s);
    collective(b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, 1 + uniform(&seed))->record = ev[0];
    work(b, STREAM_REDUCE, uniform(&seed))->record = ev[1];
    work(b, STREAM_COMPUTE, uniform(&seed))->record = ev[2];
    if (folded)
        sched_repeat(&b->s, repeats);
    for (int r = 0; r < (folded ? 1 : repeats); r++) {
        unsigned s = body ^ 0x9e3779b9u;
        int n = 3 + (int)(6 * uniform(&s));
        for (int i = 0; i < n; i++) {
            enum stream st = (enum stream)(1 + (int)(5 * uniform(&s)));
            double seconds = uniform(&s) < 0.2 ? 0 : uniform(&s);
            b->issue[b->s.nops] = 0.2 * uniform(&s);
            struct op *o = uniform(&s) < 0.5 && st > STREAM_COPY_IN
                         ? collective(b, st, COLL_ALL_GATHER, st == STREAM_ALL_REDUCE ? GROUP_REPLICA : GROUP_DATA, seconds)
                         : work(b, st, seconds);
            if (uniform(&s) < 0.5)
                o->after = AFTER(1 + (int)(5 * uniform(&s)));
            if (uniform(&s) < 0.4)
                o->wait[0] = ev[(int)(3 * uniform(&s))];
            if (uniform(&s) < 0.4)
                o->record = ev[(int)(3 * uniform(&s))];
        }
        if (uniform(&s) < 0.3)
            sched_op(&b->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "wait")->after = AFTER(1 + (int)(5 * uniform(&s)));
    }
    if (folded)
        sched_repeat_end(&b->s);
    sched_end(&b->s, SCHED_STEADY);
}

/* An inner repeat inside of an outer one: micro-steps of blocks. */
static void nested_bed(struct bed *b, unsigned seed, bool folded)
{
    enum { OUTER = 25, INNER = 20 };

    bed_init(b);
    uint16_t ev = sched_event(&b->s);
    work(b, STREAM_COMPUTE, 1)->record = ev;
    if (folded)
        sched_repeat(&b->s, OUTER);
    for (int i = 0; i < (folded ? 1 : OUTER); i++) {
        unsigned s = seed;
        collective(b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, uniform(&s))->after = AFTER(STREAM_COMPUTE);
        if (folded)
            sched_repeat(&b->s, INNER);
        unsigned inner = s;
        for (int j = 0; j < (folded ? 1 : INNER); j++) {
            s = inner;
            b->issue[b->s.nops] = 0.01 * uniform(&s);
            collective(b, STREAM_GATHER, COLL_ALL_GATHER, GROUP_DATA, uniform(&s))->wait[0] = ev;
            work(b, STREAM_COMPUTE, uniform(&s))->record = ev;
            collective(b, STREAM_REDUCE, COLL_REDUCE_SCATTER, GROUP_REPLICA, 0.6 * uniform(&s))->after = AFTER(STREAM_COMPUTE);
            work(b, STREAM_COMPUTE, uniform(&s))->after = AFTER(STREAM_GATHER);
        }
        if (folded)
            sched_repeat_end(&b->s);
        work(b, STREAM_COMPUTE, uniform(&s))->after = AFTER(STREAM_REDUCE);
    }
    if (folded)
        sched_repeat_end(&b->s);
    sched_op(&b->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "wait")->after = AFTER(STREAM_COMPUTE);
    sched_end(&b->s, SCHED_STEADY);
}

static void skipping_nested_repeats_is_exact(void **state)
{
    struct contention c = slow_by(1.3, 1.6);

    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct bed a, b;
        struct timeline t, u;
        nested_bed(&a, seed, true);
        nested_bed(&b, seed, false);
        clock_one(&a.s, SCHED_STEADY, &a.d, NULL, &t, NULL);
        simple_clock(&b.s, SCHED_STEADY, &b.d, &u);
        assert_close(t.step_s, u.step_s, 1e-12);
        assert_close(t.exposed_s + 1, u.exposed_s + 1, 1e-12);
        assert_true(clock_one(&a.s, SCHED_STEADY, &a.d, &c, &t, NULL));
        assert_true(clock_one(&b.s, SCHED_STEADY, &b.d, &c, &u, NULL));
        assert_close(t.step_s, u.step_s, 1e-12);
        assert_close(t.exposed_s + 1, u.exposed_s + 1, 1e-12);
        assert_close(t.comm_s, u.comm_s, 1e-12);
        schedules_free(&a.s);
        schedules_free(&b.s);
    }
}

static void skipping_repeats_is_exact(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct bed a, b;
        struct timeline t, u;
        random_bed(&a, seed, 40, true);
        random_bed(&b, seed, 40, false);
        clock_one(&a.s, SCHED_STEADY, &a.d, NULL, &t, NULL);
        simple_clock(&b.s, SCHED_STEADY, &b.d, &u);
        assert_close(t.step_s, u.step_s, 1e-12);
        assert_close(t.exposed_s + 1, u.exposed_s + 1, 1e-12);
        assert_close(t.idle_s + 1, u.idle_s + 1, 1e-12);
        assert_close(parts(&t), t.step_s, 1e-12);
        schedules_free(&a.s);
        schedules_free(&b.s);
    }
}

static void no_stream_is_busier_than_the_step_and_the_step_no_longer_than_all_of_them(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 500; seed++) {
        struct bed b;
        struct timeline t;
        double all = 0, issued = 0;
        random_bed(&b, seed, 5, true);
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &t, NULL);
        for (int st = 0; st < NSTREAM; st++) {
            assert_true(t.busy_s[st] <= t.step_s * (1 + 1e-12));
            all += t.busy_s[st];
        }
        for (int i = 0; i < b.s.nops; i++)
            issued += 5 * b.issue[i];
        assert_true(t.step_s <= (all + issued) * (1 + 1e-12));
        schedules_free(&b.s);
    }
}

static void longer_work_never_makes_the_step_shorter(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        struct bed b;
        struct timeline t, u;
        random_bed(&b, seed, 6, true);
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &t, NULL);
        unsigned pick = seed;
        b.work[(int)(uniform(&pick) * b.s.nops)] *= 1.5;
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &u, NULL);
        assert_true(u.step_s >= t.step_s * (1 - 1e-12));
        schedules_free(&b.s);
    }
}

/* ---- contention ---- */

static struct contention slow_by(double compute, double comm)
{
    struct contention c = { .copy_slow = 1 };

    for (int op = 0; op < NCOLL; op++) {
        c.compute_slow[op] = compute;
        c.comm_slow[op] = comm;
    }
    return c;
}

/* 10 s of compute and a copy of 4 s, which slow each other down by 2 while both run: the copy takes 8, in which compute
 * does 4, and 6 are left.  Over PCIe, on the host's threads or with its disks nothing is lost. */
static void only_copies_by_kernels_slow_compute_down(void **state)
{
    static const struct { enum stream on; double step; } cases[] = {
        { STREAM_REDUCE, 14 }, { STREAM_COPY_IN, 14 }, { STREAM_H2D, 10 }, { STREAM_D2H, 10 }, { STREAM_HOST, 10 },
        { STREAM_DISK_READ, 10 }, { STREAM_DISK_WRITE, 10 },
    };
    struct contention c = slow_by(1, 1);

    (void)state;
    c.copy_slow = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct timeline t;
        struct bed b;
        bed_init(&b);
        work(&b, STREAM_COMPUTE, 10);
        work(&b, cases[i].on, 4);
        sched_end(&b.s, SCHED_STEADY);
        clock_one(&b.s, SCHED_STEADY, &b.d, &c, &t, NULL);
        assert_close(t.step_s, cases[i].step, 1e-12);
        schedules_free(&b.s);
    }
}

/* 10 s of compute, half of it bound by memory: beside an all-reduce products take 1 and beside a gather 0.8 of the entry's time in
 * the place of their half, and the rest 1.4 times its own.  Copy engines leave products alone.  4 s of the collective. */
static void multiprocessors_that_are_held_slow_products_down(void **state)
{
    static const struct { enum coll_op op; uint8_t flags; double slow; } cases[] = {
        { COLL_ALL_GATHER, 0, .8 + .5 * 1.4 }, { COLL_ALL_REDUCE, 0, 1 + .5 * 1.4 }, { COLL_ALL_GATHER, OPF_ENGINE, .5 + .5 * 1.4 },
    };
    struct op_held held[4] = { { { 1, .8 }, .5 }, { { 0, 0 }, 1 }, { { 0, 0 }, 1 }, { { 0, 0 }, 1 } };
    struct contention c = slow_by(1.4, 1);

    (void)state;
    c.held = held;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct timeline t;
        struct bed b;
        bed_init(&b);
        work(&b, STREAM_COMPUTE, 10);
        collective(&b, STREAM_GATHER, cases[i].op, GROUP_DATA, 4)->flags |= cases[i].flags;
        sched_end(&b.s, SCHED_STEADY);
        clock_one(&b.s, SCHED_STEADY, &b.d, &c, &t, NULL);
        assert_close(t.step_s, 4 + 10 - 4 / cases[i].slow, 1e-12);
        schedules_free(&b.s);
    }
}

static void without_slow_downs_contention_changes_nothing(void **state)
{
    struct contention one = slow_by(1, 1);

    (void)state;
    for (unsigned seed = 1; seed <= 500; seed++) {
        struct bed b;
        struct timeline t, u;
        random_bed(&b, seed, 6, true);
        simple_clock(&b.s, SCHED_STEADY, &b.d, &t);
        clock_one(&b.s, SCHED_STEADY, &b.d, &one, &u, NULL);
        assert_close(u.step_s, t.step_s, 1e-12);
        assert_close(u.exposed_s + 1, t.exposed_s + 1, 1e-12);
        assert_close(parts(&u), u.step_s, 1e-12);
        schedules_free(&b.s);
    }
}

/* Folded and flat must agree with contention too: with it, iterations settle later or
 * never, and then everything is unrolled. */
static void skipping_repeats_is_exact_with_contention(void **state)
{
    struct contention c = slow_by(1.3, 1.6);

    (void)state;
    for (unsigned seed = 1; seed <= 1000; seed++) {
        struct bed a, b;
        struct timeline t, u;
        random_bed(&a, seed, 60, true);
        random_bed(&b, seed, 60, false);
        clock_one(&a.s, SCHED_STEADY, &a.d, &c, &t, NULL);
        clock_one(&b.s, SCHED_STEADY, &b.d, &c, &u, NULL);
        assert_close(t.step_s, u.step_s, 1e-12);
        assert_close(t.exposed_s + 1, u.exposed_s + 1, 1e-12);
        assert_close(parts(&t), t.step_s, 1e-12);
        schedules_free(&a.s);
        schedules_free(&b.s);
    }
}

/* Entries and repeats within repeats at random, on streams of which each uses a few: what comes after a
 * repeat may or may not have to wait for it. */
static void random_range(struct bed *b, unsigned *seed, const uint16_t ev[4], int depth, bool folded)
{
    unsigned streams = (unsigned)(*seed >> 9);
    int n = 1 + (int)(5 * uniform(seed));

    for (int i = 0; i < n && b->s.nops < MAX - 1; i++) {
        if (depth < 3 && uniform(seed) < 0.45) {
            int times = (int)(depth == 0 ? 25 * uniform(seed) : 9 * uniform(seed));
            unsigned body = *seed, end = *seed;
            if (folded)
                sched_repeat(&b->s, times);
            for (int k = 0; k < (folded ? 1 : times); k++) {
                end = body;
                random_range(b, &end, ev, depth + 1, folded);
            }
            if (folded)
                sched_repeat_end(&b->s);
            *seed = body * 2654435761u + 1;
            continue;
        }
        enum stream st = (enum stream)(1 + (int)(6 * uniform(seed)));
        if (!(streams >> st & 1))
            st = STREAM_COMPUTE;
        bool coll = uniform(seed) < 0.3 && st != STREAM_COMPUTE;
        double seconds = uniform(seed) < 0.2 ? 0 : uniform(seed);
        b->issue[b->s.nops] = uniform(seed) < 0.5 ? 0 : 0.3 * uniform(seed);
        struct op *o = uniform(seed) < 0.08 ? sched_op(&b->s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "wait")
                     : coll ? collective(b, st, COLL_ALL_GATHER, st == STREAM_GROUP ? GROUP_REPLICA : GROUP_DATA, seconds)
                     : work(b, st, seconds);
        if (uniform(seed) < 0.5)
            o->after = AFTER(1 + (int)(6 * uniform(seed)));
        if (uniform(seed) < 0.3)
            o->wait[0] = ev[(int)(4 * uniform(seed))];
        if (uniform(seed) < 0.3 && o->stream != STREAM_ISSUE)
            o->record = ev[(int)(4 * uniform(seed))];
    }
}

static void random_nest(struct bed *b, unsigned seed, bool folded)
{
    uint16_t ev[4];

    bed_init(b);
    for (int i = 0; i < 4; i++)
        ev[i] = sched_event(&b->s);
    for (int i = 0; i < 3; i++) {
        unsigned part = seed + 77u * (unsigned)i;
        uniform(&part);
        random_range(b, &part, ev, 0, folded);
    }
    sched_end(&b->s, SCHED_STEADY);
}

/* The oracle unrolls repeats; with contention, a schedule without any is the clock unrolled. */
static void any_nest_of_repeats_is_exact(void **state)
{
    struct contention c = slow_by(1.3, 1.6);

    (void)state;
    for (unsigned seed = 1; seed <= 4000; seed++) {
        struct bed a, b;
        struct timeline t, u;
        random_nest(&a, seed * 2654435761u, true);
        clock_one(&a.s, SCHED_STEADY, &a.d, NULL, &t, NULL);
        simple_clock(&a.s, SCHED_STEADY, &a.d, &u);
        assert_close(t.step_s, u.step_s, 1e-12);
        assert_close(t.compute_s, u.compute_s, 1e-12);
        assert_close(t.exposed_s + u.step_s, u.exposed_s + u.step_s, 1e-12);
        assert_close(t.comm_s, u.comm_s, 1e-12);
        random_nest(&b, seed * 2654435761u, false);
        if (b.s.nops < MAX - 1) {
            clock_one(&a.s, SCHED_STEADY, &a.d, &c, &t, NULL);
            clock_one(&b.s, SCHED_STEADY, &b.d, &c, &u, NULL);
            assert_close(t.step_s, u.step_s, 1e-12);
            assert_close(t.exposed_s + u.step_s, u.exposed_s + u.step_s, 1e-12);
        }
        schedules_free(&a.s);
        schedules_free(&b.s);
    }
}

static void contention_lies_between_never_and_always(void **state)
{
    struct contention c = slow_by(1.3, 1.6);

    (void)state;
    for (unsigned seed = 1; seed <= 500; seed++) {
        struct bed b;
        struct timeline never, t, always;
        random_bed(&b, seed, 6, true);
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &never, NULL);
        clock_one(&b.s, SCHED_STEADY, &b.d, &c, &t, NULL);
        for (int i = 0; i < b.s.nops; i++)
            b.work[i] *= 1.6;
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &always, NULL);
        assert_true(t.step_s >= never.step_s * (1 - 1e-12));
        assert_true(t.step_s <= always.step_s * (1 + 1e-12));
        schedules_free(&b.s);
    }
}

/* C of compute beside M of communication, from one start:
 *   compute the longer:  T = C + M*fm*(1 - 1/fc),  else  T = M + C*fc*(1 - 1/fm). */
static void two_streams_slow_each_other_down(void **state)
{
    (void)state;
    for (double m = 0.5; m < 8; m += 0.7) {
        double c = 4, fc = 1.2, fm = 1.5;
        struct contention slow = slow_by(fc, fm);
        struct bed b;
        struct timeline t;
        bed_init(&b);
        work(&b, STREAM_COMPUTE, c);
        collective(&b, STREAM_GROUP, COLL_ALL_REDUCE, GROUP_DATA, m);
        sched_end(&b.s, SCHED_STEADY);
        clock_one(&b.s, SCHED_STEADY, &b.d, &slow, &t, NULL);
        assert_close(t.step_s, m * fm <= c * fc ? c + m * fm * (1 - 1 / fc) : m + c * fc * (1 - 1 / fm), 1e-12);
        schedules_free(&b.s);
    }
}

static void the_critical_path_ends_with_the_step_and_has_no_gaps(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct bed b;
        struct run r;
        struct timeline t;
        int64_t path[4096];
        random_bed(&b, seed, 5, true);
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &t, &r);
        int64_t n = run_critical(&r, path, 4096);
        assert_true(n > 0);
        for (int64_t i = 0; i + 1 < n; i++) {       /* but for the time of issuing itself */
            const struct ran *here = &r.ran[path[i]];
            if (here->start > here->issued)
                assert_close(here->start, r.ran[path[i + 1]].end, 1e-12);
        }
        run_free(&r);
        schedules_free(&b.s);
    }
}

/* DeepSpeed's stages 1 and 2 without overlap_comm, DataParallel: a reduction of 3 s on the compute stream itself. */
static void a_collective_on_the_compute_stream_is_exposed(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b);
    work(&b, STREAM_COMPUTE, 1);
    collective(&b, STREAM_COMPUTE, COLL_ALL_REDUCE, GROUP_DATA, 3);
    work(&b, STREAM_COMPUTE, 2);
    struct timeline t = finish(&b);
    assert_close(t.step_s, 6, 1e-15);
    assert_close(t.compute_s, 3, 1e-15);
    assert_close(t.exposed_s, 3, 1e-15);
    assert_close(t.exposed_by[COLL_ALL_REDUCE][0], 3, 1e-15);
    schedules_free(&b.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_copies_by_kernels_slow_compute_down),
        cmocka_unit_test(a_collective_on_the_compute_stream_is_exposed),
        cmocka_unit_test(gathers_one_ahead_hide_behind_compute),
        cmocka_unit_test(buckets_queue_when_the_network_is_slower),
        cmocka_unit_test(one_process_group_is_one_queue),
        cmocka_unit_test(a_slow_issuing_thread_is_idle_time),
        cmocka_unit_test(a_blocked_issuing_thread_is_charged_to_what_it_waits_for),
        cmocka_unit_test(what_is_issued_late_is_no_communication),
        cmocka_unit_test(skipping_repeats_is_exact),
        cmocka_unit_test(skipping_nested_repeats_is_exact),
        cmocka_unit_test(no_stream_is_busier_than_the_step_and_the_step_no_longer_than_all_of_them),
        cmocka_unit_test(longer_work_never_makes_the_step_shorter),
        cmocka_unit_test(multiprocessors_that_are_held_slow_products_down),
        cmocka_unit_test(without_slow_downs_contention_changes_nothing),
        cmocka_unit_test(any_nest_of_repeats_is_exact),
        cmocka_unit_test(contention_lies_between_never_and_always),
        cmocka_unit_test(skipping_repeats_is_exact_with_contention),
        cmocka_unit_test(two_streams_slow_each_other_down),
        cmocka_unit_test(the_critical_path_ends_with_the_step_and_has_no_gaps),
    };
    return cmocka_run_group_tests_name("sim/timeline", tests, NULL, NULL);
}
