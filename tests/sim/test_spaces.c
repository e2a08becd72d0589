/* Several memories on the clock: copies that compute hides, what is held in each, and what entries outside of device
 * memory cost. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
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
    else
        o->u.optimizer.elems = bytes;
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
        cmocka_unit_test(the_link_has_one_rate_whatever_the_stream),
        cmocka_unit_test(the_hosts_threads_share_its_memory),
        cmocka_unit_test(ranks_share_the_disks),
        cmocka_unit_test(a_rate_that_nobody_published_is_asked_for),
        cmocka_unit_test(on_cores_only_files_have_a_price_of_their_own),
    };
    return cmocka_run_group_tests_name("sim/spaces", tests, NULL, NULL);
}
