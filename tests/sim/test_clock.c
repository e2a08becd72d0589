/* Several roles on one clock: values worked out on paper, an oracle, and the clock itself unrolled. */
#include "tests/check.h"

#include "model/schedule/ledger.h"
#include "sim/clock/simulate.h"
#include "tests/sim/pipeline_beds.h"

static struct clock_result run(struct pipe *b, struct timeline lines[STAGES])
{
    struct clock_result r;
    bool ran = clock_run(b->role, b->p, SCHED_STEADY, lines, NULL, &r);

    if (!ran)
        print_error("%s\n", r.why);
    assert_true(ran);
    return r;
}

static const struct pace even[STAGES] = { { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 },
                                          { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 } };

/* GPipe and 1F1B with m micro-steps on p stages over links that cost nothing: (m + p - 1)(tf + tb),
 * so that a stage idles (p - 1)(tf + tb) (Huang 2019; Narayanan 2019, 2021). */
static void a_pipeline_takes_m_plus_p_minus_1_slots(void **state)
{
    (void)state;
    for (int p = 2; p <= 6; p++)
        for (int m = 1; m <= 12; m++)
            for (int kind = 0; kind < 2; kind++) {
                struct timeline t[STAGES];
                struct pipe b;
                pipe_open(&b, p);
                (kind ? pipe_1f1b : pipe_gpipe)(&b, even, m);
                pipe_end(&b);
                assert_close(run(&b, t).makespan_s, (m + p - 1) * 6, 1e-14);
                assert_close(pipe_oracle(&b), (m + p - 1) * 6, 1e-14);
                for (int r = 0; r < p; r++)
                    assert_close(t[r].compute_s, m * 6, 1e-14);
                pipe_close(&b);
            }
}

/* The two-stage pipeline of 4 micro-steps: (4 + 1)(2 + 4) = 30; the first stage waits for the first
 * backward of the second, 6 s, and the last stage for the first forward, 2 s, and the end, 4 s. */
static void two_stages_of_four_micro_steps(void **state)
{
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    pipe_gpipe(&b, even, 4);
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 30, 1e-15);
    assert_close(t[0].step_s, 30, 1e-15);
    assert_close(t[1].step_s, 26, 1e-15);           /* its last gradient is on its way */
    assert_close(t[0].bubble_s, 6, 1e-15);
    assert_close(t[1].bubble_s, 2, 1e-15);
    assert_close(t[0].exposed_s, 0, 1e-15);         /* messages take no time */
    pipe_close(&b);
}

/* One micro-step on 4 stages: one works at a time, 25 %.  GPipe with 4: m/(m + p - 1) = 4/7. */
static void the_share_of_time_that_stages_work(void **state)
{
    (void)state;
    for (int m = 1; m <= 4; m += 3) {
        struct timeline t[STAGES];
        struct pipe b;
        double busy = 0;
        pipe_open(&b, 4);
        pipe_gpipe(&b, even, m);
        pipe_end(&b);
        double makespan = run(&b, t).makespan_s;
        for (int r = 0; r < 4; r++)
            busy += t[r].compute_s / (4 * makespan);
        assert_close(busy, m == 1 ? 0.25 : 4. / 7, 1e-14);
        pipe_close(&b);
    }
}

/* In flight: GPipe all m, 1F1B p - stage (Narayanan 2021, section 2.2); as allocated in order of issue, and as
 * held by the clock. */
static void activations_in_flight(void **state)
{
    enum { P = 4, M = 8, BYTES = 1000 };

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct pipe b;
        pipe_open(&b, P);
        for (int r = 0; r < P; r++)
            b.stage[r].act = sched_buf(&b.stage[r].s, CAT_BUCKET, "activations", "micro-step", 0, M, BYTES);
        (kind ? pipe_1f1b : pipe_gpipe)(&b, even, M);
        pipe_end(&b);
        struct timeline t[STAGES];
        struct run kept[STAGES];
        struct clock_result result;
        assert_true(clock_run(b.role, P, SCHED_STEADY, t, kept, &result));
        for (int r = 0; r < P; r++) {
            struct ledger l;
            char why[256] = "";
            int64_t at;
            assert_int_equal(held_peak(&b.stage[r].s, &kept[r], &at), BYTES * (kind ? P - r : M));
            run_free(&kept[r]);
            ledger_run(&b.stage[r].s, &l);
            assert_int_equal(l.peak.bytes, BYTES * (kind ? P - r : M));
            if (!schedules_check(&b.stage[r].s, why, sizeof why))
                fail_msg("%s", why);
        }
        pipe_close(&b);
    }
}

/* Stage 0 computes c and sends s, n times; stage 1 needs nothing else: c + n s where the link is slower,
 * n c + s where sends hide behind compute. */
static void sends_hide_behind_compute(void **state)
{
    enum { N = 5 };

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        double c = slow ? 1 : 3, s = slow ? 3 : 1;
        struct timeline t[STAGES];
        struct pipe b;
        pipe_open(&b, 2);
        for (int i = 0; i < N; i++) {
            stage_work(&b.stage[0], STREAM_COMPUTE, PHASE_FORWARD, c);
            stage_message(&b.stage[0], STREAM_GATHER, COLL_SEND, 1, 0, s)->after = AFTER(STREAM_COMPUTE);
            stage_message(&b.stage[1], STREAM_GATHER, COLL_RECV, 0, 0, s);
        }
        pipe_end(&b);
        assert_close(run(&b, t).makespan_s, slow ? c + N * s : N * c + s, 1e-15);
        assert_close(t[0].exposed_s, slow ? c + N * s - N * c : s, 1e-14);
        pipe_close(&b);
    }
}

/* A rendezvous: a send waits for its receive, and both end together. */
static void a_send_waits_for_its_receive(void **state)
{
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    stage_message(&b.stage[0], STREAM_COMPUTE, COLL_SEND, 1, 0, 2);
    stage_work(&b.stage[0], STREAM_COMPUTE, PHASE_FORWARD, 1);
    stage_work(&b.stage[1], STREAM_COMPUTE, PHASE_FORWARD, 5);
    stage_message(&b.stage[1], STREAM_COMPUTE, COLL_RECV, 0, 0, 2);
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 8, 1e-15);
    assert_close(t[0].step_s, 8, 1e-15);            /* 5 waiting, 2 sending, 1 of work */
    assert_close(t[0].bubble_s, 5, 1e-15);
    assert_close(t[0].exposed_by[COLL_SEND][GROUP_DATA], 2, 1e-15);
    assert_close(t[1].step_s, 7, 1e-15);
    pipe_close(&b);
}

/* Tags tell messages of a pair apart; of one tag they match in order. */
static void messages_match_by_tag_and_order(void **state)
{
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    stage_work(&b.stage[0], STREAM_COMPUTE, PHASE_FORWARD, 4);
    stage_message(&b.stage[0], STREAM_GATHER, COLL_SEND, 1, 7, 1)->after = AFTER(STREAM_COMPUTE);
    stage_message(&b.stage[0], STREAM_REDUCE, COLL_SEND, 1, 8, 1);
    stage_message(&b.stage[1], STREAM_GATHER, COLL_RECV, 0, 7, 1);
    stage_message(&b.stage[1], STREAM_REDUCE, COLL_RECV, 0, 8, 1);
    stage_work(&b.stage[1], STREAM_COMPUTE, PHASE_FORWARD, 10)->after = AFTER(STREAM_REDUCE);
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 11, 1e-15);     /* tag 8 arrives at 1, whatever tag 7 does */
    pipe_close(&b);
}

/* Three stages are ready at 1, 5 and 2, and the all-reduce takes 3. */
static void a_collective_of_several_roles_begins_when_the_last_arrives(void **state)
{
    static const double ready[3] = { 1, 5, 2 };
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 3);
    for (int r = 0; r < 3; r++) {
        stage_work(&b.stage[r], STREAM_COMPUTE, PHASE_BACKWARD, ready[r]);
        stage_coll(&b.stage[r], STREAM_GROUP, COLL_ALL_REDUCE, 3)->after = AFTER(STREAM_COMPUTE);
        sched_op(&b.stage[r].s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "wait")->after = AFTER(STREAM_GROUP);
    }
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 8, 1e-15);
    for (int r = 0; r < 3; r++) {
        assert_close(t[r].step_s, 8, 1e-15);
        assert_close(t[r].bubble_s, 5 - ready[r], 1e-15);
        assert_close(t[r].exposed_by[COLL_ALL_REDUCE][GROUP_DATA], 3, 1e-15);
        assert_close(t[r].comm_s, 3, 1e-15);
    }
    pipe_close(&b);
}

/* Stage 0 sends 300 of its 400 elements to stage 1 and gets 100 back; the exchange takes what the
 * slower side says, 6. */
static void an_unequal_all_to_all(void **state)
{
    static const struct coll_part parts[2][2] = { { { 100, 100 }, { 300, 100 } }, { { 100, 300 }, { 200, 200 } } };
    struct timeline t[STAGES];
    struct pipe b;
    char why[256] = "";

    (void)state;
    pipe_open(&b, 2);
    for (int r = 0; r < 2; r++) {
        struct stage *g = &b.stage[r];
        stage_work(g, STREAM_COMPUTE, PHASE_FORWARD, 1 + r);
        stage_coll(g, STREAM_GROUP, COLL_ALL_TO_ALL, r ? 6 : 2)->after = AFTER(STREAM_COMPUTE);
        sched_parts(&g->s, parts[r], 2);
        assert_int_equal(g->s.ops[g->s.nops - 1].u.coll.elems, r ? 300 : 400);
        assert_int_equal(sched_sent_bytes(&g->s, &g->s.ops[g->s.nops - 1]), r ? 100 * 4 : 300 * 4);
    }
    pipe_end(&b);
    for (int r = 0; r < 2; r++)
        if (!schedules_check(&b.stage[r].s, why, sizeof why))
            fail_msg("%s", why);
    assert_close(run(&b, t).makespan_s, 2 + 6, 1e-15);
    b.stage[0].s.coll_parts[1].sent = -1;
    assert_false(schedules_check(&b.stage[0].s, why, sizeof why));
    pipe_close(&b);
}

/* While stage 1 computes beside the message, both take 1.5 times as long: the message, which both are
 * part of, has the slower rate. */
static void a_message_has_the_slower_rate_of_its_two_ends(void **state)
{
    struct contention c = { .copy_slow = 1 };
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    for (int op = 0; op < NCOLL; op++)
        c.compute_slow[op] = c.comm_slow[op] = 1.5;
    pipe_open(&b, 2);
    for (int r = 0; r < 2; r++) {
        b.role[r].slow = &c;
        stage_message(&b.stage[r], STREAM_GATHER, r ? COLL_RECV : COLL_SEND, 1 - r, 0, 6);
    }
    stage_work(&b.stage[1], STREAM_COMPUTE, PHASE_FORWARD, 2);
    pipe_end(&b);
    /* Until 3 the work of 2 is done, and 2 of the message's 6. */
    assert_close(run(&b, t).makespan_s, 3 + 4, 1e-15);
    assert_close(t[1].compute_s, 3, 1e-15);
    pipe_close(&b);
}

/* The check of a schedule names a peer that is not in the group, and the rank itself. */
static void a_message_is_between_two_ranks_of_its_group(void **state)
{
    static const struct { int peer; const char *why; } cases[] = {
        { 2, "place 2 of a group of 2" }, { -1, "place -1 of a group of 2" }, { 0, "between a rank and itself" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pipe b;
        char why[256] = "";
        pipe_open(&b, 2);
        stage_message(&b.stage[0], STREAM_GATHER, COLL_SEND, cases[i].peer, 0, 1);
        pipe_end(&b);
        assert_false(schedules_check(&b.stage[0].s, why, sizeof why));
        assert_non_null(strstr(why, cases[i].why));
        pipe_close(&b);
    }
}

/* ---- deadlocks ---- */

static void stuck(struct pipe *b, const char *why)
{
    struct timeline t[STAGES];
    struct clock_result r;

    assert_false(clock_run(b->role, b->p, SCHED_STEADY, t, NULL, &r));
    assert_string_equal(r.why, why);
}

static void both_send_first(void **state)
{
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    for (int r = 0; r < 2; r++) {
        stage_message(&b.stage[r], STREAM_COMPUTE, COLL_SEND, 1 - r, 3, 1);
        stage_message(&b.stage[r], STREAM_COMPUTE, COLL_RECV, 1 - r, 3, 1);
    }
    pipe_end(&b);
    stuck(&b, "stage 0 waits in forward send of tag 3 to stage 1, which waits in forward send of tag 3 to stage 0");
    pipe_close(&b);
}

static void both_receive_first(void **state)
{
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    for (int r = 0; r < 2; r++) {
        b.role[r].name = NULL;
        stage_message(&b.stage[r], STREAM_COMPUTE, COLL_RECV, 1 - r, 3 + r, 1);
        stage_message(&b.stage[r], STREAM_COMPUTE, COLL_SEND, 1 - r, 4 - r, 1);
    }
    pipe_end(&b);
    stuck(&b, "rank 0 waits in forward recv of tag 3 from rank 1, which waits in forward recv of tag 4 from rank 0");
    pipe_close(&b);
}

static void a_receive_without_a_send(void **state)
{
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    stage_work(&b.stage[0], STREAM_COMPUTE, PHASE_FORWARD, 1);
    stage_message(&b.stage[1], STREAM_GATHER, COLL_RECV, 0, 5, 1);
    pipe_end(&b);
    stuck(&b, "stage 1 waits in forward recv of tag 5 from stage 0, which is done");
    pipe_close(&b);
}

static void a_collective_that_one_role_leaves_out(void **state)
{
    struct pipe b;

    (void)state;
    pipe_open(&b, 3);
    for (int r = 0; r < 2; r++)
        stage_coll(&b.stage[r], STREAM_GROUP, COLL_ALL_REDUCE, 1);
    pipe_end(&b);
    stuck(&b, "stage 0 waits in reduce all_reduce of group world for stage 2, which is done");
    pipe_close(&b);
}

static void messages_of_different_sizes_do_not_fit(void **state)
{
    struct pipe b;

    (void)state;
    pipe_open(&b, 2);
    stage_message(&b.stage[0], STREAM_GATHER, COLL_SEND, 1, 0, 1);
    stage_message(&b.stage[1], STREAM_GATHER, COLL_RECV, 0, 0, 1)->u.coll.elems = 10;
    pipe_end(&b);
    stuck(&b, "stage 1's recv of 20 bytes meets stage 0's send of 2000 bytes");
    pipe_close(&b);
}

/* ---- random pipelines ---- */

static double uniform(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (double)(1u << 24);
}

struct shape { int p, m; bool gpipe, issues, reduces, blocks, meets; double slow; };

static struct shape random_shape(unsigned *seed)
{
    struct shape x = { .p = 2 + (int)(4.99 * uniform(seed)), .m = 1 + (int)(90 * uniform(seed)) };

    x.gpipe = uniform(seed) < 0.25;
    x.issues = uniform(seed) < 0.4;
    x.reduces = uniform(seed) < 0.5;
    x.blocks = uniform(seed) < 0.2;
    x.meets = x.gpipe && uniform(seed) < 0.5;
    x.slow = uniform(seed) < 0.5 ? 1 : 1 + uniform(seed);
    return x;
}

/* Stages differ in their durations, in how many forwards they do first, and in their issuing threads. */
static void random_pipe(struct pipe *b, const struct shape *x, unsigned seed, bool folded)
{
    struct pace t[STAGES];
    int warm[STAGES] = { 0 };

    pipe_open(b, x->p);
    b->folded = folded;
    b->blocks = x->blocks ? 12 : 0;
    b->block_s = 0.02;
    b->reduces = x->meets;
    double send = uniform(&seed) < 0.3 ? 0 : 0.5 * uniform(&seed);
    for (int r = 0; r < x->p; r++)
        t[r] = (struct pace){ uniform(&seed), 2 * uniform(&seed), send };
    for (int r = x->p - 2; r >= 0; r--)
        warm[r] = warm[r + 1] + 1 + (int)(2.5 * uniform(&seed));
    for (int r = 0; r < x->p; r++) {
        struct schedules *s = &b->stage[r].s;
        double issue = x->issues ? 0.3 * uniform(&seed) : 0;
        if (x->gpipe) {
            stage_micro_steps(b, r, &t[r], x->m, 0, -1);
            stage_micro_steps(b, r, &t[r], x->m, -1, 0);
        } else {
            stage_1f1b(b, r, &t[r], x->m, warm[r]);
        }
        if (x->reduces) {
            stage_coll(&b->stage[r], STREAM_GROUP, COLL_ALL_REDUCE, 1)->after = AFTER(STREAM_COMPUTE);
            stage_work(&b->stage[r], STREAM_COMPUTE, PHASE_OPTIMIZER, 0.5)->after = AFTER(STREAM_GROUP);
        }
        sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "wait")->after = AFTER(STREAM_COMPUTE);
        for (int i = 0; i < s->nops; i++)
            b->stage[r].issue[i] = s->ops[i].kind == OP_COPY ? issue : 0;
    }
    pipe_end(b);
}

static void close_to_each_other(double a, double b, double scale)
{
    if (!(fabs(a - b) <= 1e-12 * scale))
        fail_msg("%.17g and %.17g of %g", a, b, scale);
}

/* Skipping ahead equals the unrolled clock to 1e-12, and, where nothing slows anything, the oracle. */
static void skipping_ahead_is_exact(void **state)
{
    struct contention c = { .copy_slow = 1.2 };

    (void)state;
    for (unsigned seed = 1; seed <= 600; seed++) {
        struct timeline t[STAGES], u[STAGES];
        struct clock_result folded, flat;
        unsigned k = seed * 2654435761u;
        struct shape x = random_shape(&k);
        struct pipe a, b;
        for (int op = 0; op < NCOLL; op++)
            c.compute_slow[op] = c.comm_slow[op] = x.slow;
        random_pipe(&a, &x, k, true);
        random_pipe(&b, &x, k, false);
        for (int r = 0; r < x.p && x.slow > 1; r++)
            a.role[r].slow = b.role[r].slow = &c;
        folded = run(&a, t);
        flat = run(&b, u);
        close_to_each_other(folded.makespan_s, flat.makespan_s, flat.makespan_s);
        for (int r = 0; r < x.p; r++) {
            close_to_each_other(t[r].step_s, u[r].step_s, flat.makespan_s);
            close_to_each_other(t[r].compute_s, u[r].compute_s, flat.makespan_s);
            close_to_each_other(t[r].exposed_s, u[r].exposed_s, flat.makespan_s);
            close_to_each_other(t[r].comm_s, u[r].comm_s, flat.makespan_s);
            close_to_each_other(t[r].bubble_s, u[r].bubble_s, flat.makespan_s);
            close_to_each_other(t[r].compute_s + t[r].optimizer_s + t[r].exposed_s + t[r].idle_s + t[r].bubble_s,
                                t[r].step_s, flat.makespan_s);
        }
        if (x.slow == 1 && x.m <= 30 && !x.reduces && !x.meets)
            close_to_each_other(pipe_oracle(&b), flat.makespan_s, flat.makespan_s);
        pipe_close(&a);
        pipe_close(&b);
    }
}

/* A million micro-steps, too many to unroll: 1F1B on 4 stages. */
static void a_long_pipeline_is_skipped(void **state)
{
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 4);
    b.folded = true;
    pipe_1f1b(&b, even, 1000000);
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 1000003 * 6., 1e-12);
    pipe_close(&b);
}

/* An iteration of more entries than one would compare lightly is seen to come back, too. */
static void a_long_iteration_is_skipped(void **state)
{
    enum { BODY = 10000 };
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, 1);
    sched_repeat(&b.stage[0].s, 1000000);
    for (int i = 0; i < BODY; i++)
        stage_work(&b.stage[0], i % 2 ? STREAM_COMPUTE : STREAM_GATHER, PHASE_FORWARD, 1)->after =
            AFTER(i % 2 ? STREAM_GATHER : STREAM_COMPUTE);
    sched_repeat_end(&b.stage[0].s);
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, 1000000. * BODY, 1e-12);
    pipe_close(&b);
}

/* So are those of several roles, each of which drops what is done several times in one of them. */
static void a_long_iteration_of_several_roles_is_skipped(void **state)
{
    enum { BODY = 10000, ROLES = STAGES, TIMES = 1000000 };
    struct timeline t[STAGES];
    struct pipe b;

    (void)state;
    pipe_open(&b, ROLES);
    for (int r = 0; r < ROLES; r++) {
        sched_repeat(&b.stage[r].s, TIMES);
        if (r > 0)
            stage_message(&b.stage[r], STREAM_GATHER, COLL_RECV, r - 1, 0, .5);
        for (int i = 0; i < BODY; i++)
            stage_work(&b.stage[r], STREAM_COMPUTE, PHASE_FORWARD, 1)->after = i || !r ? 0 : AFTER(STREAM_GATHER);
        if (r < ROLES - 1)
            stage_message(&b.stage[r], STREAM_REDUCE, COLL_SEND, r + 1, 0, .5)->after = AFTER(STREAM_COMPUTE);
        sched_repeat_end(&b.stage[r].s);
    }
    pipe_end(&b);
    assert_close(run(&b, t).makespan_s, TIMES * (double)BODY + (ROLES - 1) * (BODY + .5), 1e-12);
    pipe_close(&b);
}

/* ---- random exchanges ---- */

/* Roles that send, receive and compute in any order on any stream; `spoiled`: some
 * messages have one end only.  Each role's entries come twice or more, as a repeat or written out. */
static void random_exchange(struct pipe *b, unsigned seed, bool folded)
{
    static const enum stream streams[] = { STREAM_COMPUTE, STREAM_GATHER, STREAM_REDUCE, STREAM_COPY_IN };
    enum { MOST = 24 };
    struct { enum stream st; int kind, peer, tag; double s; uint16_t after; } e[STAGES][MOST];
    int n[STAGES] = { 0 }, p = 1 + (int)(4.99 * uniform(&seed)), times = 1 + (int)(6 * uniform(&seed));
    bool spoiled = uniform(&seed) < .3, narrow = uniform(&seed) < .3;

    pipe_open(b, p);
    for (int i = 0; i < 14; i++) {
        int from = (int)(p * uniform(&seed)), to = (int)(p * uniform(&seed)), tag = (int)(2 * uniform(&seed));
        double seconds = uniform(&seed);
        bool message = uniform(&seed) < .6 && from != to;
        if (message)                    /* one end of a spoiled one may meet that of another, which takes as long */
            seconds = .4 + .3 * tag;
        int drop = spoiled && uniform(&seed) < .1 ? (int)(2 * uniform(&seed)) : -1;
        for (int end = 0; end < (message ? 2 : 1); end++) {
            int r = end ? to : from, at = (int)(4 * uniform(&seed)), on = narrow ? 1 : at;
            uint16_t after = (uint16_t)(uniform(&seed) < .3 ? AFTER(streams[(int)(4 * uniform(&seed))]) : 0);
            if (message && drop == end)
                continue;
            e[r][n[r]].st = streams[on];
            e[r][n[r]].kind = message ? end : 2;
            e[r][n[r]].peer = end ? from : to;
            e[r][n[r]].tag = tag;
            e[r][n[r]].after = after;
            e[r][n[r]++].s = seconds;
        }
    }
    for (int r = 0; r < p; r++) {
        struct stage *g = &b->stage[r];
        double issue = uniform(&seed) < .4 ? .2 * uniform(&seed) : 0;
        if (folded)
            sched_repeat(&g->s, times);
        for (int t = 0; t < (folded ? 1 : times); t++)
            for (int i = 0; i < n[r]; i++) {
                struct op *o = e[r][i].kind == 2 ? stage_work(g, e[r][i].st, PHASE_FORWARD, e[r][i].s) :
                               stage_message(g, e[r][i].st, e[r][i].kind ? COLL_RECV : COLL_SEND, e[r][i].peer, e[r][i].tag,
                                             e[r][i].s);
                o->after = e[r][i].after;
                g->issue[g->s.nops - 1] = issue;
            }
        if (folded)
            sched_repeat_end(&g->s);
    }
    pipe_end(b);
}

/* The clock ends, with the oracle's makespan or, where some wait for ever, with words; a repeat as written out. */
static void random_exchanges_end_as_the_oracle_says(void **state)
{
    int done = 0, stopped = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 3000; seed++) {
        struct timeline t[STAGES];
        struct clock_result flat, folded;
        struct pipe b;
        random_exchange(&b, seed, false);
        double want = pipe_oracle(&b);
        bool ran = clock_run(b.role, b.p, SCHED_STEADY, t, NULL, &flat);
        pipe_close(&b);
        if (ran != !isnan(want))
            fail_msg("seed %u: the oracle says %g, the clock %g (%s)", seed, want, flat.makespan_s, ran ? "done" : flat.why);
        if (ran)
            close_to_each_other(flat.makespan_s, want, want + 1);
        else
            assert_non_null(strstr(flat.why, "waits"));
        random_exchange(&b, seed, true);
        if (clock_run(b.role, b.p, SCHED_STEADY, t, NULL, &folded) != ran)
            fail_msg("seed %u: written out %s, as a repeat %s", seed, ran ? "done" : flat.why, ran ? folded.why : "done");
        if (ran)
            close_to_each_other(folded.makespan_s, flat.makespan_s, want + 1);
        pipe_close(&b);
        done += ran;
        stopped += !ran;
    }
    assert_true(done > 300 && stopped > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_takes_m_plus_p_minus_1_slots),
        cmocka_unit_test(two_stages_of_four_micro_steps),
        cmocka_unit_test(the_share_of_time_that_stages_work),
        cmocka_unit_test(activations_in_flight),
        cmocka_unit_test(sends_hide_behind_compute),
        cmocka_unit_test(a_send_waits_for_its_receive),
        cmocka_unit_test(messages_match_by_tag_and_order),
        cmocka_unit_test(a_collective_of_several_roles_begins_when_the_last_arrives),
        cmocka_unit_test(an_unequal_all_to_all),
        cmocka_unit_test(a_message_has_the_slower_rate_of_its_two_ends),
        cmocka_unit_test(a_message_is_between_two_ranks_of_its_group),
        cmocka_unit_test(both_send_first),
        cmocka_unit_test(both_receive_first),
        cmocka_unit_test(a_receive_without_a_send),
        cmocka_unit_test(a_collective_that_one_role_leaves_out),
        cmocka_unit_test(messages_of_different_sizes_do_not_fit),
        cmocka_unit_test(skipping_ahead_is_exact),
        cmocka_unit_test(a_long_pipeline_is_skipped),
        cmocka_unit_test(a_long_iteration_is_skipped),
        cmocka_unit_test(a_long_iteration_of_several_roles_is_skipped),
        cmocka_unit_test(random_exchanges_end_as_the_oracle_says),
    };
    return cmocka_run_group_tests_name("sim/clock", tests, NULL, NULL);
}
