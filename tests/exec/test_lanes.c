/* Streams: what runs after what, which bytes are held meanwhile, what ends them. */
#include "tests/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "exec/device/lanes.h"
#include "tests/exec/lanes_check.h"

enum { MANY = 5000 };

/* What has run, in order; the lanes' lock is not held in a task, so atomically. */
static atomic_int ran;
static int order[MANY];
static atomic_bool stopped;

static int fresh(void **state)
{
    (void)state;
    atomic_store(&ran, 0);
    atomic_store(&stopped, false);
    return 0;
}

struct note { int number, ms; bool fails; };

static int write_down(struct task *t)
{
    const struct note *n = t->self;

    if (n->ms)
        nanosleep(&(struct timespec){ .tv_nsec = n->ms * 1000000L }, NULL);
    order[atomic_fetch_add(&ran, 1)] = n->number;
    return n->fails ? fail("task %d fails", n->number) : 0;
}

static struct task task_of(int number, int ms)
{
    struct note *n = calloc(1, sizeof *n);

    assert_non_null(n);
    *n = (struct note){ number, ms, false };
    return (struct task){ .run = write_down, .self = n, .group = -1, .what = "task", .position = -1 };
}

static struct task failing(int number)
{
    struct task t = task_of(number, 0);

    ((struct note *)t.self)->fails = true;
    return t;
}

static struct lanes *lanes(void)
{
    struct lanes *l = lanes_open(AFTER(STREAM_COMPUTE) | AFTER(STREAM_GATHER) | AFTER(STREAM_REDUCE),
                                 &stopped);

    assert_non_null(l);
    return l;
}

/* ---- order ---- */

/* More than a queue holds: the issuing thread waits for room. */
static void a_lane_runs_its_tasks_in_order(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    for (int i = 0; i < MANY; i++)
        put(l, STREAM_COMPUTE, task_of(i, 0));
    assert_int_equal(wait_for(l, STREAM_COMPUTE, MANY), 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(lanes_progress(l), MANY);
    lanes_close(l);
}

static void a_task_waits_for_another_lane(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task late = task_of(2, 0);

    late.need = done(STREAM_COMPUTE, 1);
    put(l, STREAM_REDUCE, late);
    put(l, STREAM_COMPUTE, task_of(1, 20));
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 2);
    lanes_close(l);
}

static void lanes_that_do_not_wait_overlap(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    put(l, STREAM_COMPUTE, task_of(1, 50));
    put(l, STREAM_REDUCE, task_of(2, 0));
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(order[0], 2);
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 1), 0);
    lanes_close(l);
}

/* As all ranks must call one group's collectives in the same order, whichever streams they are on. */
static void collectives_of_a_group_go_by_ticket(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task first = task_of(0, 10), second = task_of(1, 0), other = task_of(2, 0);

    first.group = second.group = GROUP_DATA;
    other.group = GROUP_SHARD;
    second.ticket = 1;
    put(l, STREAM_REDUCE, second);
    put(l, STREAM_COMPUTE, other);
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 1), 0);
    assert_int_equal(order[0], 2);              /* another group's does not wait */
    put(l, STREAM_GATHER, first);
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(order[1], 0);
    assert_int_equal(order[2], 1);
    lanes_close(l);
}

/* ---- held bytes ---- */

static void bytes_are_held_from_the_start_until_the_last_use(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task takes = task_of(0, 0), more = task_of(1, 0), again = task_of(2, 0);
    struct when first = done(STREAM_COMPUTE, 1), both = done(STREAM_COMPUTE, 2);

    takes.comes[SPACE_DEVICE] = 100;
    more.comes[SPACE_DEVICE] = 30;
    again.comes[SPACE_DEVICE] = 60;
    put(l, STREAM_COMPUTE, takes);
    lanes_release(l, SPACE_DEVICE, &both, 0, 100);      /* used by the second as well */
    put(l, STREAM_COMPUTE, more);
    lanes_release(l, SPACE_DEVICE, &both, 100, 30);
    put(l, STREAM_COMPUTE, again);
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 3), 0);
    assert_int_equal(lanes_held_peak(l, SPACE_DEVICE), 130);
    lanes_held_reset(l);
    assert_int_equal(lanes_held_peak(l, SPACE_DEVICE), 60);
    lanes_release(l, SPACE_DEVICE, &first, 0, 60);      /* done long ago: goes at once */
    lanes_held_reset(l);
    assert_int_equal(lanes_held_peak(l, SPACE_DEVICE), 0);
    lanes_close(l);
}

static atomic_int gone_when;

static void note_release(void *arg, enum space in, int64_t offset, int64_t bytes)
{
    (void)arg;
    assert_int_equal(in, SPACE_DEVICE);
    assert_int_equal(offset, 4096);
    assert_int_equal(bytes, 10);
    atomic_store(&gone_when, atomic_load(&ran));
}

/* So that poison never falls on what the next user has written. */
static void what_goes_is_gone_before_who_waits_for_it_starts(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct when first = done(STREAM_COMPUTE, 1);
    struct task next = task_of(1, 0);

    atomic_store(&gone_when, -1);
    lanes_on_release(l, note_release, NULL);
    next.need = first;
    put(l, STREAM_REDUCE, next);
    put(l, STREAM_COMPUTE, task_of(0, 10));
    lanes_release(l, SPACE_DEVICE, &first, 4096, 10);
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(atomic_load(&gone_when), 1);
    lanes_close(l);
}

/* ---- ends ---- */

static void a_task_that_fails_stops_all_lanes(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task never = task_of(3, 0);

    never.need = done(STREAM_GATHER, 1);
    put(l, STREAM_REDUCE, never);
    put(l, STREAM_COMPUTE, failing(1));
    lanes_have_stopped(l, &stopped, task_of(2, 0), &ran);
}

static void closing_drops_what_is_queued(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task never = task_of(1, 0);

    never.need = done(STREAM_GATHER, 1);
    put(l, STREAM_COMPUTE, never);
    for (int i = 0; i < 10; i++)
        put(l, STREAM_COMPUTE, task_of(2, 0));
    lanes_close(l);
    assert_int_equal(atomic_load(&ran), 0);
    assert_true(atomic_load(&stopped));
}

/* ---- what is reported ---- */

static void a_lane_says_what_it_is_at(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task stuck = task_of(0, 0);
    int32_t position = -1;

    assert_null(lanes_at(l, STREAM_REDUCE, &position));
    stuck.need = done(STREAM_GATHER, 1);
    stuck.what = "all-reduce";
    stuck.position = 7;
    put(l, STREAM_REDUCE, stuck);
    assert_string_equal(lanes_at(l, STREAM_REDUCE, &position), "all-reduce");
    assert_int_equal(position, 7);
    lanes_close(l);
}

static void recorded_times_are_in_order(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    const struct task_time *t;
    int64_t n;

    assert_int_equal(lanes_record(l, 10), 0);
    for (int i = 0; i < 3; i++) {
        struct task one = task_of(i, 2);
        one.position = i;
        put(l, STREAM_COMPUTE, one);
    }
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 3), 0);
    t = lanes_recorded(l, STREAM_COMPUTE, &n);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].position, i);
        assert_true(t[i].end - t[i].start >= 0.002);
        assert_true(i == 0 || t[i].start >= t[i - 1].end);
    }
    lanes_close(l);
}

static atomic_int busy;

static int see_busy(struct task *t)
{
    *(int *)t->self = atomic_load(&busy);
    order[atomic_fetch_add(&ran, 1)] = *(int *)t->self;
    return 0;
}

static struct task seeing(void)
{
    struct task t = task_of(0, 0);

    t.run = see_busy;
    return t;
}

/* Of a lane that computes and of one that carries messages, one after the other. */
static void lanes_that_compute_are_counted_while_they_do(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task after = seeing();

    lanes_count_busy(l, &busy);
    put(l, STREAM_COMPUTE, seeing());
    after.need = done(STREAM_COMPUTE, 1);
    put(l, STREAM_GATHER, after);
    assert_int_equal(wait_for(l, STREAM_GATHER, 1), 0);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    assert_int_equal(atomic_load(&busy), 0);
    lanes_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lanes_that_compute_are_counted_while_they_do, fresh),
        cmocka_unit_test_setup(a_lane_runs_its_tasks_in_order, fresh),
        cmocka_unit_test_setup(a_task_waits_for_another_lane, fresh),
        cmocka_unit_test_setup(lanes_that_do_not_wait_overlap, fresh),
        cmocka_unit_test_setup(collectives_of_a_group_go_by_ticket, fresh),
        cmocka_unit_test_setup(bytes_are_held_from_the_start_until_the_last_use, fresh),
        cmocka_unit_test_setup(what_goes_is_gone_before_who_waits_for_it_starts, fresh),
        cmocka_unit_test_setup(a_task_that_fails_stops_all_lanes, fresh),
        cmocka_unit_test_setup(closing_drops_what_is_queued, fresh),
        cmocka_unit_test_setup(a_lane_says_what_it_is_at, fresh),
        cmocka_unit_test_setup(recorded_times_are_in_order, fresh),
    };
    return cmocka_run_group_tests_name("exec/lanes", tests, NULL, NULL);
}
