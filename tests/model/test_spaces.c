/* Memories beyond the device's: where entries may work, an account for each, the verdict by node. */
#include "tests/model/plans.h"

#include "model/memory/spaces.h"
#include "model/schedule/ledger.h"

static char why[512];

/* ---- a buffer goes to pinned memory and back, by hand ---- */

enum { P, D, PIN, OUT, FILE_, NFAM };

/* On paper, allocated after each entry's allocations (device; pinned; host; disk):
 *   init    p 1000                                              1000;   0;   0;   0
 *   first   o 600 in device memory                              1600
 *   steady  down: o goes to pinned 1024 (a power of two)        1600; 1024
 *           work 300 beside it                                  1300
 *           cast: host 200 from pinned                                1024; 200
 *           write: 200 to disk                                              200; 4096
 *           read back                                           up: o comes back 1600, pinned goes
 * At the end o is in device memory again, as steady found it. */
static void round_trip(struct schedules *s, int fam[NFAM])
{
    struct op *o;

    hand_begin(s);
    fam[P] = sched_buf(s, CAT_PARAMS, "p", NULL, 0, 1, 1000);
    fam[D] = sched_buf(s, CAT_OPTIMIZER, "o", NULL, 0, 1, 600);
    fam[PIN] = sched_buf_in(s, SPACE_PINNED, CAT_OPTIMIZER, "o away", NULL, 0, 1, 1024);
    fam[OUT] = sched_buf_in(s, SPACE_HOST, CAT_TEMPORARIES, "cast", NULL, 0, 1, 200);
    fam[FILE_] = sched_buf_in(s, SPACE_DISK, CAT_OPTIMIZER, "file", NULL, 0, 1, 4096);
    int work = sched_buf(s, CAT_TEMPORARIES, "work", NULL, 0, 1, 300);
    sched_begin(s, SCHED_INIT);
    touch(s, ACT_ALLOC, fam[P], 0, 0);
    sched_end(s, SCHED_INIT);
    sched_begin(s, SCHED_FIRST);
    touch(s, ACT_ALLOC, fam[D], 0, 0);
    sched_end(s, SCHED_FIRST);
    sched_begin(s, SCHED_STEADY);
    o = sched_copy(s, STREAM_D2H, PHASE_FORWARD, "down", 600, 600);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, fam[D], 0, 0);
    sched_act(s, ACT_ALLOC | ACT_W, fam[PIN], 0, 0);
    touch(s, ACT_ALLOC | ACT_FREE, work, 0, 0);
    o = sched_copy(s, STREAM_HOST, PHASE_FORWARD, "cast", 400, 200);
    o->after = AFTER(STREAM_D2H);
    sched_does(s, COPY_SET, 0.5);
    sched_act(s, ACT_R, fam[PIN], 0, 0);
    sched_act(s, ACT_ALLOC | ACT_W, fam[OUT], 0, 0);
    o = sched_copy(s, STREAM_DISK_WRITE, PHASE_FORWARD, "write", 200, 200);
    o->after = AFTER(STREAM_HOST);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, fam[OUT], 0, 0);
    sched_act(s, ACT_ALLOC | ACT_W | ACT_FREE, fam[FILE_], 0, 0);
    o = sched_copy(s, STREAM_H2D, PHASE_FORWARD, "up", 600, 600);
    o->after = AFTER(STREAM_D2H) | AFTER(STREAM_COMPUTE);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R | ACT_FREE, fam[PIN], 0, 0);
    sched_act(s, ACT_ALLOC | ACT_W, fam[D], 0, 0);
    sched_end(s, SCHED_STEADY);
}

static void each_memory_has_an_account(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct ledger l;
    struct live live[4];
    struct peak at;
    int fam[NFAM];

    round_trip(&s, fam);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(s.spaces, IN(SPACE_PINNED) | IN(SPACE_HOST) | IN(SPACE_DISK));
    ledger_run(&s, &l);
    assert_int_equal(l.peak.bytes, 1600);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 600);
    ledger_run_in(&s, IN(SPACE_PINNED), &l);
    assert_int_equal(l.phase[SCHED_INIT].bytes, 0);
    assert_int_equal(l.phase[SCHED_FIRST].bytes, 0);
    assert_int_equal(l.peak.bytes, 1024);
    assert_int_equal(l.peak.by[CAT_OPTIMIZER], 1024);
    assert_int_equal(l.peak.sched, SCHED_STEADY);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 0);
    assert_int_equal(l.most[CAT_OPTIMIZER], 1024);
    ledger_run_in(&s, IN_HOST, &l);             /* pinned memory is host memory, too */
    assert_int_equal(l.peak.bytes, 1224);
    assert_int_equal(l.peak.by[CAT_TEMPORARIES], 200);
    assert_int_equal(ledger_live(&s, &l.peak, live, 4), 2);
    assert_int_equal(live[0].buf, fam[PIN]);
    assert_int_equal(live[1].buf, fam[OUT]);
    ledger_run_in(&s, IN(SPACE_DISK), &l);
    assert_int_equal(l.peak.bytes, 4096);
    assert_int_equal(ledger_first_over_in(&s, IN(SPACE_PINNED), 1024, &at), -1);
    assert_int_equal(ledger_first_over_in(&s, IN(SPACE_PINNED), 1023, &at), s.begin[SCHED_STEADY]);
    assert_int_equal(ledger_first_over_in(&s, IN_HOST, 1024, &at), s.begin[SCHED_STEADY] + 2);
    assert_int_equal(at.bytes, 1224);
    assert_int_equal(ledger_first_over(&s, 1599, &at), s.begin[SCHED_FIRST]);
    schedules_free(&s);
}

static void the_curve_of_pinned_memory_goes_up_and_down(void **state)
{
    (void)state;
    static const int64_t want[] = { 1024, 1024, 1024, 1024, 0 };
    struct schedules s = { 0 };
    struct point p[8];
    int fam[NFAM];

    round_trip(&s, fam);
    assert_int_equal(ledger_curve_in(&s, IN(SPACE_PINNED), SCHED_STEADY, p, 8), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(p[i].bytes, want[i]);
    schedules_free(&s);
}

/* What a block keeps counts kernel by kernel in device memory, whatever names it; a copy takes all of it away, and it is a
 * buffer where it goes. */
static void activations_elsewhere_are_buffers(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct ledger l;
    struct point p[8];
    static const int64_t here_is[] = { 0, -100, -200, -100, 0, 0 }, away_is[] = { 0, 100, 200, 100, 0, 0 };

    hand_begin(&s);
    int here = sched_buf(&s, CAT_ACTIVATIONS, "activations", "block", 0, 2, 100);
    int away = sched_buf_in(&s, SPACE_PINNED, CAT_ACTIVATIONS, "activations", "block", 0, 2, 100);
    sched_begin(&s, SCHED_STEADY);
    sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "forward");
    sched_act_all(&s, ACT_ALLOC, here);
    for (int i = 0; i < 4; i++) {
        bool down = i < 2;
        sched_copy(&s, down ? STREAM_D2H : STREAM_H2D, PHASE_FORWARD, "moves", 100, 100);
        sched_does(&s, COPY_SET, 1);
        sched_act(&s, ACT_R | ACT_FREE, down ? here : away, down ? i : 3 - i, 0);
        sched_act(&s, ACT_ALLOC | ACT_W, down ? away : here, down ? i : 3 - i, 0);
    }
    sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "backward");
    sched_act_all(&s, ACT_FREE, here);
    sched_end(&s, SCHED_STEADY);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(ledger_curve(&s, SCHED_STEADY, p, 8), 6);
    for (int i = 0; i < 6; i++)                 /* beside what compute would hold */
        assert_int_equal(p[i].bytes, here_is[i]);
    assert_int_equal(ledger_curve_in(&s, IN(SPACE_PINNED), SCHED_STEADY, p, 8), 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(p[i].bytes, away_is[i]);
    ledger_run_in(&s, IN(SPACE_PINNED), &l);
    assert_int_equal(l.peak.bytes, 200);
    assert_int_equal(l.peak.by[CAT_ACTIVATIONS], 200);
    schedules_free(&s);
}

/* ---- where entries may work ---- */

/* One entry of this kind and stream in steady, which reads one buffer and writes another. */
static struct op *entry_between(struct schedules *s, enum op_kind kind, enum stream st, enum space from, enum space to)
{
    hand_begin(s);
    int r = sched_buf_in(s, from, CAT_PARAMS, "r", NULL, 0, 1, 64);
    int w = sched_buf_in(s, to, CAT_PARAMS, "w", NULL, 0, 1, 64);
    sched_begin(s, SCHED_INIT);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "both");
    sched_act(s, ACT_ALLOC, r, 0, 0);
    sched_act(s, ACT_ALLOC, w, 0, 0);
    sched_end(s, SCHED_INIT);
    sched_begin(s, SCHED_STEADY);
    struct op *o = sched_op(s, kind, st, PHASE_FORWARD, "moves");
    if (kind == OP_COPY) {
        o->u.copy.reads = o->u.copy.writes = 64;
        sched_does(s, COPY_SET, 1);
    }
    sched_act(s, ACT_R, r, 0, 0);
    sched_act(s, ACT_W, w, 0, 0);
    sched_end(s, SCHED_STEADY);
    return &s->ops[s->begin[SCHED_STEADY]];
}

static bool allowed(enum op_kind kind, enum stream st, enum space from, enum space to)
{
    struct schedules s = { 0 };

    entry_between(&s, kind, st, from, to);
    why[0] = '\0';
    bool sound = schedules_check(&s, why, sizeof why);
    schedules_free(&s);
    return sound;
}

static void refused(enum op_kind kind, enum stream st, enum space from, enum space to, const char *words)
{
    if (allowed(kind, st, from, to))
        fail_msg("%s to %s on %s was accepted", space_name(from), space_name(to), stream_name(st));
    if (!strstr(why, words))
        fail_msg("says \"%s\", which lacks \"%s\"", why, words);
}

static void only_copies_leave_device_memory(void **state)
{
    (void)state;
    static const enum op_kind works[] = { OP_COMPUTE, OP_COLL, OP_OPTIMIZER };
    static const char *const words[] = { "compute in", "a collective in", "the optimizer in" };

    for (int i = 1; i < 3; i++) {               /* compute needs a program: below */
        assert_true(allowed(works[i], STREAM_COMPUTE, SPACE_DEVICE, SPACE_DEVICE));
        for (enum space m = SPACE_PINNED; m < NSPACE; m++)
            refused(works[i], STREAM_COMPUTE, SPACE_DEVICE, m, words[i]);
    }
    refused(OP_COLL, STREAM_GROUP, SPACE_DISK, SPACE_DISK, "a collective in disk memory on the group stream");
    refused(OP_COLL, STREAM_HOST, SPACE_PINNED, SPACE_PINNED, "a collective in pinned memory on the host stream");
    refused(OP_OPTIMIZER, STREAM_HOST, SPACE_DEVICE, SPACE_HOST, "the optimizer in device memory on the host stream");
    assert_true(allowed(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_HOST));
}

static void compute_on_pinned_memory_is_refused(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct plan p;

    plan_of(&p, "gpt2", 1, 1, STRAT_DDP, DIALECT_PAPER, DT_FP32);
    for (enum space m = SPACE_DEVICE; m < NSPACE; m++) {
        lowered(&p, 0, &s);
        for (int b = 0; b < s.nbufs; b++)
            if (s.bufs[b].category == CAT_PARAMS)
                s.bufs[b].space = m;
        s.spaces = m == SPACE_DEVICE ? 0 : IN(m);
        bool sound = schedules_check(&s, why, sizeof why);
        assert_int_equal(sound, m == SPACE_DEVICE);
        if (!sound)
            assert_non_null(strstr(why, space_name(m)));
    }
    schedules_free(&s);
    plan_free(&p);
}

static void copies_go_where_their_streams_go(void **state)
{
    (void)state;
    static const enum stream sides[] = { STREAM_COMPUTE, STREAM_COPY_IN, STREAM_REDUCE, STREAM_GATHER, STREAM_H2D, STREAM_D2H };

    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (enum space m = SPACE_PINNED; m <= SPACE_HOST; m++) {
            assert_true(allowed(OP_COPY, sides[i], SPACE_DEVICE, m));
            assert_true(allowed(OP_COPY, sides[i], m, SPACE_DEVICE));
            refused(OP_COPY, sides[i], m, m, "a copy in");
            refused(OP_COPY, sides[i], SPACE_DISK, m, "from disk");
        }
    refused(OP_COPY, STREAM_COMPUTE, SPACE_PINNED, SPACE_HOST, "from pinned to host memory on the compute stream");
    refused(OP_COPY, STREAM_HOST, SPACE_PINNED, SPACE_DEVICE, "on the host stream");
    assert_true(allowed(OP_COPY, STREAM_HOST, SPACE_PINNED, SPACE_HOST));
    assert_true(allowed(OP_COPY, STREAM_DISK_READ, SPACE_DISK, SPACE_PINNED));
    assert_true(allowed(OP_COPY, STREAM_DISK_WRITE, SPACE_HOST, SPACE_DISK));
    refused(OP_COPY, STREAM_DISK_WRITE, SPACE_DISK, SPACE_HOST, "on the disk-write stream");
    refused(OP_COPY, STREAM_DISK_READ, SPACE_DISK, SPACE_DEVICE, "it goes through host memory");
    refused(OP_COPY, STREAM_DISK_READ, SPACE_HOST, SPACE_HOST, "a copy in host memory on the disk-read stream");
}

static void a_copy_to_another_memory_casts_and_adds_nothing(void **state)
{
    (void)state;
    struct schedules s = { 0 };

    for (int i = 0; i < 3; i++) {
        struct op *o = entry_between(&s, OP_COPY, STREAM_D2H, SPACE_DEVICE, SPACE_PINNED);
        if (i == 0)
            o->u.copy.writes = 32;
        else if (i == 1)
            o->u.copy.scale = 0.5;
        else
            o->u.copy.fn = COPY_ADD;
        assert_false(schedules_check(&s, why, sizeof why));
        assert_non_null(strstr(why, "changes what it copies"));
        schedules_free(&s);
    }
}

static void a_copy_says_between_which_memories_it_goes(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    enum space from, to;

    for (enum space a = SPACE_DEVICE; a < NSPACE; a++)
        for (enum space b = SPACE_DEVICE; b < NSPACE; b++) {
            struct op *o = entry_between(&s, OP_COPY, STREAM_COMPUTE, a, b);
            assert_int_equal(sched_crosses(&s, o, &from, &to), a != b);
            assert_true(from == a && to == b);
            schedules_free(&s);
        }
    /* A module's weights before they are anybody's buffer. */
    hand_begin(&s);
    int w = sched_buf(&s, CAT_PARAMS, "w", NULL, 0, 1, 64);
    struct op *o = sched_copy(&s, STREAM_H2D, PHASE_INIT, "move", 64, 64);
    sched_act(&s, ACT_ALLOC | ACT_W, w, 0, 0);
    assert_true(sched_crosses(&s, o, &from, &to));
    assert_true(from == SPACE_PINNED && to == SPACE_DEVICE);
    schedules_free(&s);
}

/* ---- the verdict ---- */

/* Four ranks of a node: 4 x 1224 bytes of DRAM, of which 4 x 1024 are pinned, and 4 x 4096 of disk. */
static void a_node_has_what_its_ranks_hold(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct space_accounts a = { 0 };
    struct cluster c;
    char text[256];
    int fam[NFAM];

    assert_int_equal(cluster_load("4xh100", &c), 0);
    c.headroom = 0;
    c.node.memory = 4 * 1224;
    c.node.disk = 4 * 4096;
    round_trip(&s, fam);
    spaces_add(&s, 4, &a);
    assert_int_equal(spaces_judge(&c, 1600, &a), 0);
    assert_int_equal(a.of[SPACE_PINNED].peak, 4 * 1024);
    assert_int_equal(a.of[SPACE_HOST].peak, 4 * 1224);
    assert_int_equal(a.of[SPACE_HOST].rank_peak, 1224);
    assert_int_equal(a.of[SPACE_DISK].peak, 4 * 4096);
    assert_int_equal(spaces_short(&a), -1);
    c.node.memory--;
    assert_int_equal(spaces_judge(&c, 1600, &a), 0);
    assert_int_equal(spaces_short(&a), SPACE_HOST);
    spaces_why_not(&a, text, sizeof text);
    assert_string_equal(text, "host memory of a node: needs 4.78 KiB of 4.78 KiB, pinned buffers rounded to powers of two "
                              "are 4.00 KiB of it");
    c.node.disk--;
    assert_int_equal(spaces_judge(&c, 1600, &a), 0);
    spaces_why_not(&a, text, sizeof text);
    assert_non_null(strstr(text, "of it; disk space of a node: needs "));
    c.node.memory++;
    assert_int_equal(spaces_judge(&c, 1600, &a), 0);
    assert_int_equal(spaces_short(&a), SPACE_DISK);
    json_t *j = spaces_json(&a, 1600, 2000);
    assert_int_equal(json_array_size(j), 4);
    assert_string_equal(json_string_value(json_object_get(json_array_get(j, 0), "per")), "rank");
    assert_string_equal(json_string_value(json_object_get(json_array_get(j, 2), "space")), "host");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(j, 2), "peak_bytes")), 4 * 1224);
    json_decref(j);
    schedules_free(&s);
}

/* PyTorch's pinned blocks are powers of two (1024); allocations that are none (1024 as 1000 and 24) are not said to be. */
static void pinned_memory_is_rounded_where_each_allocation_is(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct space_accounts a = { 0 };
    int fam[NFAM];

    round_trip(&s, fam);
    spaces_add(&s, 1, &a);
    assert_true(a.of[SPACE_PINNED].powers_of_two);
    sched_part(&s, fam[PIN], 1000);
    sched_part(&s, fam[PIN], 24);
    spaces_add(&s, 1, &a);
    assert_false(a.of[SPACE_PINNED].powers_of_two);
    schedules_free(&s);
}

/* Ranks on cores: what they call device memory is the node's DRAM as well. */
static void on_cores_device_memory_counts_as_the_hosts(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct space_accounts a = { 0 };
    struct cluster c;
    int fam[NFAM];

    assert_int_equal(cluster_load("localhost:2", &c), 0);
    c.headroom = 0;
    c.memory = 1600 + 1224;
    c.node.disk = 1 << 20;
    round_trip(&s, fam);
    spaces_add(&s, 2, &a);
    assert_int_equal(spaces_judge(&c, 1600, &a), 0);
    assert_int_equal(a.of[SPACE_HOST].peak, 2 * (1600 + 1224));
    assert_int_equal(a.of[SPACE_HOST].available, 2 * (1600 + 1224));
    assert_int_equal(spaces_short(&a), -1);
    schedules_free(&s);
}

static void what_a_cluster_does_not_say_is_asked_for_or_assumed(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct space_accounts a = { 0 };
    struct cluster c;
    int fam[NFAM];

    assert_int_equal(cluster_load("8xl4", &c), 0);      /* no reference node */
    round_trip(&s, fam);
    spaces_add(&s, 8, &a);
    fail_capture(why, sizeof why);
    int rc = spaces_judge(&c, 0, &a);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(why, "\"disk_bytes\""));
    c.node.disk = 1 << 30;
    assert_int_equal(spaces_judge(&c, 0, &a), 0);
    assert_close((double)a.of[SPACE_HOST].available, 0.95 * 2 * 8 * 23034 * 1048576.0, 1e-12);      /* assumed: twice the GPUs' memory */
    c.node.memory = (int64_t)1 << 40;
    assert_int_equal(spaces_judge(&c, 0, &a), 0);
    assert_close((double)a.of[SPACE_HOST].available, 0.95 * 1024 * 1073741824.0, 1e-12);
    schedules_free(&s);
}

/* The document has the other memories where there are any, and is what it was where there are none. */
static void json_has_spaces_only_where_they_are_used(void **state)
{
    (void)state;
    struct evaluation e;
    struct schedules s = { 0 };
    struct plan p;
    int fam[NFAM];

    plan_of(&p, "gpt2", 1, 2, STRAT_DDP, DIALECT_PAPER, DT_FP32);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_false(e.m.elsewhere);
    json_t *without = evaluation_json(&p, &e);
    assert_null(json_object_get(json_object_get(without, "memory"), "spaces"));
    round_trip(&s, fam);
    spaces_add(&s, 2, &e.m.spaces);
    assert_int_equal(spaces_judge(&p.cluster, e.m.needed, &e.m.spaces), 0);
    e.m.elsewhere = true;
    json_t *with = evaluation_json(&p, &e), *spaces = json_object_get(json_object_get(with, "memory"), "spaces");
    assert_int_equal(json_array_size(spaces), 4);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(spaces, 0), "peak_bytes")), e.m.needed);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(spaces, 1), "peak_bytes")), 2 * 1024);
    assert_string_equal(json_string_value(json_object_get(json_array_get(spaces, 1), "per")), "node");
    json_object_del(json_object_get(with, "memory"), "spaces");
    assert_true(json_equal(with, without));
    json_decref(with);
    json_decref(without);
    schedules_free(&s);
    evaluation_free(&e);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_memory_has_an_account),
        cmocka_unit_test(the_curve_of_pinned_memory_goes_up_and_down),
        cmocka_unit_test(activations_elsewhere_are_buffers),
        cmocka_unit_test(only_copies_leave_device_memory),
        cmocka_unit_test(compute_on_pinned_memory_is_refused),
        cmocka_unit_test(copies_go_where_their_streams_go),
        cmocka_unit_test(a_copy_to_another_memory_casts_and_adds_nothing),
        cmocka_unit_test(a_copy_says_between_which_memories_it_goes),
        cmocka_unit_test(a_node_has_what_its_ranks_hold),
        cmocka_unit_test(pinned_memory_is_rounded_where_each_allocation_is),
        cmocka_unit_test(on_cores_device_memory_counts_as_the_hosts),
        cmocka_unit_test(what_a_cluster_does_not_say_is_asked_for_or_assumed),
        cmocka_unit_test(json_has_spaces_only_where_they_are_used),
    };
    return cmocka_run_group_tests_name("model/spaces", tests, NULL, NULL);
}
