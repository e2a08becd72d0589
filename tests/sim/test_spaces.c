/* Several memories on the clock: copies that compute hides, what is held in each, and what entries outside of device
 * memory cost. */
#include "tests/model/plans.h"

#include <stdlib.h>

#include "base/fail.h"
#include "model/schedule/measured.h"
#include "sim/clock/clock.h"
#include "sim/clock/simulate.h"
#include "sim/price/space_cost.h"

static char why[512];

/* ---- a buffer goes to pinned memory and back while compute runs ---- */

enum { WORKS = 5 };

struct bed { struct schedules s; double work[32], issue[32]; struct durations d; };

static struct op *lasts(struct bed *b, struct op *o, double seconds)
{
    b->work[o - b->s.ops] = seconds;
    return o;
}

/* Five times two seconds of compute; after the first, 600 bytes go down, come up again, and a sixth piece of compute
 * of two seconds needs them. */
static void away_and_back(struct bed *b, double down, double up)
{
    struct op *o;

    memset(b, 0, sizeof *b);
    b->d = (struct durations){ b->work, b->issue };
    int here = sched_buf(&b->s, CAT_OPTIMIZER, "o", NULL, 0, 1, 600);
    int away = sched_buf_in(&b->s, SPACE_PINNED, CAT_OPTIMIZER, "o away", NULL, 0, 1, 1024);
    sched_begin(&b->s, SCHED_INIT);
    sched_op(&b->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "o");
    sched_act(&b->s, ACT_ALLOC, here, 0, 0);
    sched_end(&b->s, SCHED_INIT);
    sched_begin(&b->s, SCHED_FIRST);
    sched_end(&b->s, SCHED_FIRST);
    sched_begin(&b->s, SCHED_STEADY);
    for (int i = 0; i < WORKS; i++) {
        lasts(b, sched_copy(&b->s, STREAM_COMPUTE, PHASE_FORWARD, "work", 0, 0), 2);
        if (i > 0)
            continue;
        o = lasts(b, sched_copy(&b->s, STREAM_D2H, PHASE_FORWARD, "down", 600, 600), down);
        o->after = AFTER(STREAM_COMPUTE);
        sched_does(&b->s, COPY_SET, 1);
        sched_act(&b->s, ACT_R | ACT_FREE, here, 0, 0);
        sched_act(&b->s, ACT_ALLOC | ACT_W, away, 0, 0);
        o = lasts(b, sched_copy(&b->s, STREAM_H2D, PHASE_FORWARD, "up", 600, 600), up);
        o->after = AFTER(STREAM_D2H);
        sched_does(&b->s, COPY_SET, 1);
        sched_act(&b->s, ACT_R | ACT_FREE, away, 0, 0);
        sched_act(&b->s, ACT_ALLOC | ACT_W, here, 0, 0);
    }
    o = lasts(b, sched_copy(&b->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "needs it", 600, 0), 2);
    o->after = AFTER(STREAM_H2D);
    sched_does(&b->s, COPY_NOTHING, 1);
    sched_act(&b->s, ACT_R, here, 0, 0);
    sched_end(&b->s, SCHED_STEADY);
    if (!schedules_check(&b->s, why, sizeof why))
        fail_msg("%s", why);
}

/* 2 + max(8, down + up) + 2, by both clocks. */
static void copies_beside_compute_cost_only_what_is_longer(void **state)
{
    (void)state;
    static const double copies[][2] = { { 4, 3 }, { 4, 4 }, { 8, 6 }, { 0.5, 0.5 }, { 1, 20 } };
    struct contention free_of = { 0 };

    for (int op = 0; op < NCOLL; op++)
        free_of.compute_slow[op] = free_of.comm_slow[op] = 1;
    free_of.copy_slow = 1;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        double both = copies[i][0] + copies[i][1], want = 2 + (both > 8 ? both : 8) + 2;
        struct bed b;
        struct timeline t;
        away_and_back(&b, copies[i][0], copies[i][1]);
        clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &t, NULL);
        assert_close(t.step_s, want, 1e-15);
        assert_close(t.idle_s, want - 12, 1e-12);
        assert_close(t.busy_s[STREAM_D2H], copies[i][0], 0);
        assert_close(t.busy_s[STREAM_H2D], copies[i][1], 0);
        assert_close(t.away_s[AWAY_DOWN], copies[i][0], 0);
        assert_close(t.away_s[AWAY_UP], copies[i][1], 0);
        assert_true(t.away_s[AWAY_HOST] <= 0);
        assert_true(clock_one(&b.s, SCHED_STEADY, &b.d, &free_of, &t, NULL));
        assert_close(t.step_s, want, 1e-12);
        schedules_free(&b.s);
    }
}

/* Down from 2 to 6, up from 6 to 9: pinned memory from 2 to 9; device memory is free when the copy down is done and
 * taken when the one up begins: both at 6. */
static void each_memory_is_held_by_its_own_uses(void **state)
{
    (void)state;
    struct bed b;
    struct run r;
    struct held_point *p;
    int64_t at;

    away_and_back(&b, 4, 3);
    struct timeline t;
    assert_true(clock_one(&b.s, SCHED_STEADY, &b.d, NULL, &t, &r));
    assert_int_equal(held_curve_in(&b.s, IN(SPACE_PINNED), &r, &p), 2);
    assert_close(p[0].t, 2, 0);
    assert_int_equal(p[0].bytes, 1024);
    assert_close(p[1].t, 9, 1e-15);
    assert_int_equal(p[1].bytes, 0);
    free(p);
    assert_int_equal(held_peak_in(&b.s, IN(SPACE_PINNED), &r, &at), 1024);
    assert_string_equal(b.s.ops[r.ran[at].op].what, "down");
    assert_int_equal(held_curve(&b.s, &r, &p), 2);
    assert_close(p[0].t, 6, 1e-15);
    assert_int_equal(p[0].bytes, -600);
    assert_close(p[1].t, 6, 1e-15);
    assert_int_equal(p[1].bytes, 0);
    free(p);
    run_free(&r);
    schedules_free(&b.s);
}

/* ---- what copies, threads and files share ---- */

enum { AT_ONCE = 2 };

/* Two entries from one start, each on a stream of its own, by what they take and share. */
static void at_once(const enum stream on[AT_ONCE], const double work[AT_ONCE], const struct shares share[AT_ONCE],
                    double ends[AT_ONCE])
{
    struct contention c = { .copy_slow = 1, .shares = share };
    struct schedules s = { 0 };
    double none[AT_ONCE] = { 0 };
    struct durations d = { work, none };
    struct timeline t;
    struct run r;

    for (int op = 0; op < NCOLL; op++)
        c.compute_slow[op] = c.comm_slow[op] = 1;
    sched_begin(&s, SCHED_STEADY);
    for (int i = 0; i < AT_ONCE; i++)
        sched_copy(&s, on[i], PHASE_OPTIMIZER, "moves", 0, 0);
    sched_end(&s, SCHED_STEADY);
    assert_true(clock_one(&s, SCHED_STEADY, &d, &c, &t, &r));
    for (int i = 0; i < AT_ONCE; i++)
        ends[i] = r.ran[i].end;
    run_free(&r);
    schedules_free(&s);
}

/* Four seconds and four seconds: eight in one direction, whatever the streams; four in two. */
static void a_link_carries_both_directions_at_once(void **state)
{
    (void)state;
    static const struct shares down = { .of = { [SHARED_DOWN] = 1 } }, up = { .of = { [SHARED_UP] = 1 } };
    double ends[AT_ONCE];

    at_once((enum stream[]){ STREAM_D2H, STREAM_REDUCE }, (double[]){ 4, 4 }, (struct shares[]){ down, down }, ends);
    assert_close(ends[0], 8, 1e-12);
    assert_close(ends[1], 8, 1e-12);
    at_once((enum stream[]){ STREAM_D2H, STREAM_H2D }, (double[]){ 4, 4 }, (struct shares[]){ down, up }, ends);
    assert_close(ends[0], 4, 1e-12);
    assert_close(ends[1], 4, 1e-12);
    at_once((enum stream[]){ STREAM_D2H, STREAM_COMPUTE }, (double[]){ 4, 4 }, (struct shares[]){ down, { .of = { 0 } } }, ends);
    assert_close(ends[0], 4, 1e-12);            /* compute is on the device */
    assert_close(ends[1], 4, 1e-12);
}

/* Where ranks are processes on cores, work on two streams shares the cores; files take none. */
static void files_slow_no_thread_down(void **state)
{
    (void)state;
    struct contention c = { .adds = true, .copy_slow = 1.5 };
    struct schedules s = { 0 };

    sched_begin(&s, SCHED_STEADY);
    sched_copy(&s, STREAM_COMPUTE, PHASE_OPTIMIZER, "works", 0, 0);
    sched_copy(&s, STREAM_HOST, PHASE_OPTIMIZER, "works as well", 0, 0);
    sched_copy(&s, STREAM_DISK_READ, PHASE_OPTIMIZER, "reads", 0, 0);
    sched_end(&s, SCHED_STEADY);
    assert_close(contention_slow(&c, &s, (int[]){ 0, 1 }, 2, 0), 1.5, 1e-15);
    assert_close(contention_slow(&c, &s, (int[]){ 0, 1, 2 }, 3, 0), 1.5, 1e-15);
    assert_close(contention_slow(&c, &s, (int[]){ 0, 1, 2 }, 3, 2), 1, 1e-15);
    schedules_free(&s);
}

/* Threads that take 0.8 of DRAM for 10 s beside a copy that takes 0.4 for 4 s: both 1.2 times longer until the copy is
 * done at 4.8; the threads have done 4 of 10 by then. */
static void threads_and_copies_share_dram(void **state)
{
    (void)state;
    static const struct shares threads = { .of = { [SHARED_DRAM] = 0.8 } }, copy = { .of = { [SHARED_UP] = 1, [SHARED_DRAM] = 0.4 } };
    double ends[AT_ONCE];

    at_once((enum stream[]){ STREAM_HOST, STREAM_H2D }, (double[]){ 10, 4 }, (struct shares[]){ threads, copy }, ends);
    assert_close(ends[1], 4.8, 1e-12);
    assert_close(ends[0], 10.8, 1e-12);
}

/* ---- activation offload of a plan ---- */

/* OPT-125M, which is GPT-2 with an even vocabulary, on one H100; the seconds of a step and of its copies each way. */
static double step_of(enum activation_offload way, double pcie, double *copies)
{
    struct plan p;
    struct evaluation e;
    struct timing t;

    plan_of(&p, "opt-125m", 0, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16);
    assert_int_equal(cluster_load("1xh100", &p.cluster), 0);
    p.seq = 1024;
    p.micro_batch = 16;
    p.activation_offload = way;
    p.cluster.gpu.pcie = pcie > 0 ? pcie : p.cluster.gpu.pcie;
    p.cluster.node.dram = 1e15;                 /* the link alone is looked at */
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, &t, NULL), 0);
    if (way != OFFLOAD_NOTHING)
        assert_close(t.line.away_s[AWAY_DOWN], t.line.away_s[AWAY_UP], 1e-9);
    *copies = t.line.away_s[AWAY_DOWN];
    evaluation_free(&e);
    plan_free(&p);
    return t.line.step_s - t.line.slowest_s;
}

/* A link on which the copies of both ways take half of the step: a quarter down beside forward, which is a third of it,
 * a quarter up beside backward.  At most what the last block's goes down and comes up again shows: 2 of 24 copies.  On a
 * link of an eighth of that they are the step. */
static void activations_go_and_come_beside_compute(void **state)
{
    (void)state;
    double copies, none, plain = step_of(OFFLOAD_NOTHING, 0, &none), pcie = 50e9;

    step_of(OFFLOAD_STREAMS, pcie, &copies);
    pcie *= copies / (plain / 4);
    double with = step_of(OFFLOAD_STREAMS, pcie, &copies);
    assert_close(2 * copies, plain / 2, 1e-6);
    assert_true(with >= plain && with <= plain + 2 * copies / 12);
    double slow = step_of(OFFLOAD_STREAMS, pcie / 8, &copies);
    assert_close(2 * copies, 4 * plain, 1e-6);
    assert_true(slow >= 2 * copies);
}

/* ---- prices ---- */

static struct schedules one;

/* A plan that has nothing but a cluster: prices outside of device memory ask no more. */
static struct plan on(const char *cluster)
{
    struct plan p = { 0 };

    if (cluster_load(cluster, &p.cluster) < 0)
        fail_msg("no cluster");
    return p;
}

/* The only entry of steady. */
static struct op *entry(enum op_kind kind, enum stream st, enum space from, enum space to, int64_t bytes)
{
    schedules_reset(&one);
    int r = sched_buf_in(&one, from, CAT_PARAMS, "r", NULL, 0, 1, bytes);
    int w = sched_buf_in(&one, to, CAT_PARAMS, "w", NULL, 0, 1, bytes);
    sched_begin(&one, SCHED_STEADY);
    struct op *o = sched_op(&one, kind, st, PHASE_OPTIMIZER, "moves");
    if (kind == OP_COPY)
        o->u.copy.reads = o->u.copy.writes = bytes;
    else {
        o->u.optimizer.elems = bytes;
        o->u.optimizer.bytes = 28;
    }
    sched_act(&one, ACT_R, r, 0, 0);
    sched_act(&one, ACT_W, w, 0, 0);
    sched_end(&one, SCHED_STEADY);
    return &one.ops[0];
}

static double seconds(const struct plan *p, const struct op *o)
{
    struct cost c = { 0 };

    assert_int_equal(space_cost_known(p, &one, SCHED_STEADY), 0);
    assert_true(space_cost(p, &one, o, &c));
    assert_true(c.low_s < c.s && c.s < c.high_s);
    return c.s;
}

/* 63 GB/s of PCIe, 0.87 of it as copied; pageable half of that.  The stream does not matter. */
static void the_link_has_one_rate_whatever_the_stream(void **state)
{
    (void)state;
    struct plan p = on("8xh100");
    double want = 1e9 / (63e9 * 0.87);

    assert_close(seconds(&p, entry(OP_COPY, STREAM_D2H, SPACE_DEVICE, SPACE_PINNED, 1000000000)), want, 1e-12);
    assert_close(seconds(&p, entry(OP_COPY, STREAM_REDUCE, SPACE_DEVICE, SPACE_PINNED, 1000000000)), want, 1e-12);
    assert_close(seconds(&p, entry(OP_COPY, STREAM_COPY_IN, SPACE_PINNED, SPACE_DEVICE, 1000000000)), want, 1e-12);
    assert_close(seconds(&p, entry(OP_COPY, STREAM_H2D, SPACE_HOST, SPACE_DEVICE, 1000000000)), 2 * want, 1e-12);
}

/* Eight ranks share 2 x 8 channels of 8 bytes at 4.8 GT/s, 0.57 of it: 28 bytes an element, or what a copy reads and
 * writes. */
static void the_hosts_threads_share_its_memory(void **state)
{
    (void)state;
    struct plan p = on("8xh100");
    double rate = 0.57 * 614.4e9 / 8;

    assert_close(seconds(&p, entry(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_HOST, 1000000)), 28e6 / rate, 1e-12);
    assert_close(seconds(&p, entry(OP_COPY, STREAM_HOST, SPACE_PINNED, SPACE_HOST, 1000000)), 2e6 / rate, 1e-12);
    p = on("4xh100");                           /* half a node has half of it */
    assert_close(seconds(&p, entry(OP_COPY, STREAM_HOST, SPACE_PINNED, SPACE_HOST, 1000000)), 2e6 / rate, 1e-12);
}

/* One rank on the two sockets of a DGX-2 has the DRAM of one: 6 channels of 8 bytes at 2.666 GT/s. */
static void a_rank_alone_has_one_sockets_memory(void **state)
{
    (void)state;
    struct plan p = on("dgx-2");

    p.cluster.gpus_per_node = p.cluster.world_size = 1;
    assert_close(seconds(&p, entry(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_HOST, 1000000)),
                 28e6 / (0.57 * 6 * 8 * 2.666e9), 1e-12);
}

/* One thread of AdamW takes 1.93 s for 536.9e6 elements; eight ranks with a core each are not faster than that. */
static void few_threads_are_slower_than_memory(void **state)
{
    (void)state;
    struct plan p = on("8xh100");
    double want = 536870912 / 278e6;

    p.cluster.node.cores = 8;
    assert_close(seconds(&p, entry(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_HOST, 536870912)), want, 1e-12);
    assert_close(want, 1.93, 0.01);
    p.cluster.node.cores = 112;
    p.host_threads = 1;                         /* as torchrun has it */
    assert_close(seconds(&p, &one.ops[0]), want, 1e-12);
}

/* Two GPUs of a DGX A100 share a link of 31 GB/s; a GPU alone has it to itself. */
static void gpus_share_links(void **state)
{
    (void)state;
    struct plan p = on("8xa100"), alone = on("1xa100");
    struct op *o = entry(OP_COPY, STREAM_D2H, SPACE_DEVICE, SPACE_PINNED, 1000000000);

    assert_close(seconds(&alone, o), 1e9 / (31e9 * 0.87), 1e-12);
    assert_close(seconds(&p, o), 2e9 / (31e9 * 0.87), 1e-12);
}

/* DeepNVMe's 8 drives: 48 GB/s read, 26 written, by 8 ranks. */
static void ranks_share_the_disks(void **state)
{
    (void)state;
    struct plan p = on("8xh100");

    p.cluster.node.disk_read = 48e9;
    p.cluster.node.disk_write = 26e9;
    assert_close(seconds(&p, entry(OP_COPY, STREAM_DISK_READ, SPACE_DISK, SPACE_PINNED, 48000000)), 8e-3, 1e-12);
    assert_close(seconds(&p, entry(OP_COPY, STREAM_DISK_WRITE, SPACE_HOST, SPACE_DISK, 26000000)), 8e-3, 1e-12);
}

/* Four GPUs of two Grace, by nvbandwidth: 739.69 and 750.46 GB/s together down and up, 363.74 and 365.40 while the other
 * direction runs as well (all_to_host, host_to_all, bidirectional; Oracle's guide to GB300). */
static void copies_of_a_grace_tray_are_what_was_measured(void **state)
{
    (void)state;
    struct plan p = on("4xgb200");
    struct shares share[AT_ONCE];
    double work[AT_ONCE], ends[AT_ONCE];

    for (int i = 0; i < AT_ONCE; i++) {
        struct op *o = i ? entry(OP_COPY, STREAM_H2D, SPACE_PINNED, SPACE_DEVICE, 1000000000)
                         : entry(OP_COPY, STREAM_D2H, SPACE_DEVICE, SPACE_PINNED, 1000000000);
        work[i] = seconds(&p, o);
        share[i] = space_cost_shares(&p, &one, o, work[i]);
        assert_close(share[i].of[SHARED_DRAM], 1, 1e-12);
        assert_close(4 / work[i], i ? 750.46 : 739.69, 0.02);
    }
    at_once((enum stream[]){ STREAM_D2H, STREAM_H2D }, work, share, ends);
    assert_close(4 / ends[0], 363.74, 0.03);
    assert_close(4 / ends[1], 365.40, 0.03);
}

static void a_rate_that_nobody_published_is_asked_for(void **state)
{
    (void)state;
    static const struct { const char *cluster; enum op_kind kind; enum stream st; enum space from, to; const char *key; } want[] = {
        { "8xh100", OP_COPY,      STREAM_DISK_READ,  SPACE_DISK,   SPACE_PINNED, "\"disk_read_gb_per_s\"" },
        { "8xh100", OP_COPY,      STREAM_DISK_WRITE, SPACE_PINNED, SPACE_DISK,   "\"disk_write_gb_per_s\"" },
        { "p5",     OP_OPTIMIZER, STREAM_HOST,       SPACE_PINNED, SPACE_PINNED, "\"dram_gb_per_s\"" },
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct plan p = on(want[i].cluster);
        entry(want[i].kind, want[i].st, want[i].from, want[i].to, 1000);
        fail_capture(why, sizeof why);
        int rc = space_cost_known(&p, &one, SCHED_STEADY);
        fail_capture(NULL, 0);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, want[i].key));
    }
}

/* dpxcal times files and the host's AdamW: then no rate of the cluster is needed; but for other kernels than the executor's, which these do not price. */
static void what_was_measured_needs_no_rate(void **state)
{
    (void)state;
    const struct measured_bytes known[] = { { MP_HOST_ADAMW, 28000, 1e-3, 0, KERNELS_DPX }, { MP_DISK_READ, 1000, 1e-3, 0, KERNELS_DPX },
                                            { MP_DISK_WRITE, 1000, 1e-3, 0, KERNELS_DPX } };
    struct measured_device m = { .bytes = known, .nbytes = 3 };
    struct plan p = on("p5");

    p.cluster.measured = &m;
    p.kernels = KERNELS_TORCH_SDPA;
    entry(OP_COPY, STREAM_DISK_READ, SPACE_DISK, SPACE_PINNED, 1000);
    fail_capture(why, sizeof why);
    assert_int_equal(space_cost_known(&p, &one, SCHED_STEADY), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "\"disk_read_gb_per_s\""));
    p.kernels = KERNELS_DPX;
    assert_int_equal(space_cost_known(&p, &one, SCHED_STEADY), 0);
    entry(OP_COPY, STREAM_DISK_WRITE, SPACE_PINNED, SPACE_DISK, 1000);
    assert_int_equal(space_cost_known(&p, &one, SCHED_STEADY), 0);
    entry(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_PINNED, 1000);
    assert_int_equal(space_cost_known(&p, &one, SCHED_STEADY), 0);
}

/* On ranks of cores all memories are one, and any stream is the host's: the kernels' own prices hold. */
static void on_cores_only_files_have_a_price_of_their_own(void **state)
{
    (void)state;
    struct plan p = on("localhost:2");
    struct cost c;

    assert_false(space_cost(&p, &one, entry(OP_COPY, STREAM_D2H, SPACE_DEVICE, SPACE_PINNED, 1000), &c));
    assert_false(space_cost(&p, &one, entry(OP_OPTIMIZER, STREAM_HOST, SPACE_PINNED, SPACE_PINNED, 1000), &c));
    p.cluster.node.disk_read = 1e9;
    assert_close(seconds(&p, entry(OP_COPY, STREAM_DISK_READ, SPACE_DISK, SPACE_HOST, 1000000)), 2e-3, 1e-12);
    schedules_free(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_beside_compute_cost_only_what_is_longer),
        cmocka_unit_test(each_memory_is_held_by_its_own_uses),
        cmocka_unit_test(a_link_carries_both_directions_at_once),
        cmocka_unit_test(files_slow_no_thread_down),
        cmocka_unit_test(threads_and_copies_share_dram),
        cmocka_unit_test(activations_go_and_come_beside_compute),
        cmocka_unit_test(the_link_has_one_rate_whatever_the_stream),
        cmocka_unit_test(the_hosts_threads_share_its_memory),
        cmocka_unit_test(a_rank_alone_has_one_sockets_memory),
        cmocka_unit_test(few_threads_are_slower_than_memory),
        cmocka_unit_test(gpus_share_links),
        cmocka_unit_test(ranks_share_the_disks),
        cmocka_unit_test(copies_of_a_grace_tray_are_what_was_measured),
        cmocka_unit_test(a_rate_that_nobody_published_is_asked_for),
        cmocka_unit_test(what_was_measured_needs_no_rate),
        cmocka_unit_test(on_cores_only_files_have_a_price_of_their_own),
    };
    return cmocka_run_group_tests_name("sim/spaces", tests, NULL, NULL);
}
