/* Buffers beyond device memory, really moved (offload.h): on the host and on an asynchronous device (fake_device.h)
 * losses and weights are those of the plan as it was, bit by bit, and what each memory allocated is what its ledger
 * says. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "tests/exec/offload.h"

static void same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
            fail_msg("%s: loss %.17g in step %d, as it was %.17g", what, b->loss[i], i + 1, a->loss[i]);
    if (a->weights != b->weights)
        fail_msg("%s: other weights", what);
    assert_true(a->weights != 0 && a->loss[0] > a->loss[STEPS - 1]);
}

static void run_all(struct device *(*device)(int way))
{
    struct outcome want, got;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered(&p, &s);
    run_on(&p, &s, NULL, &want);
    schedules_free(&s);
    for (int way = 0; way < NWAYS; way++) {
        struct device *d = device(way);
        lowered_as(&p, way, &s);
        run_on(&p, &s, d, &got);
        same(&want, &got, ways[way]);
        schedules_free(&s);
        device_close(d);
    }
}

static struct device *the_host(int way) { (void)way; return NULL; }
static struct device *a_device(int way) { return fake_open(100 + (unsigned)way); }

static void where_states_are_changes_no_bit(void **state)
{
    (void)state;
    run_all(the_host);
}

static void nor_does_it_on_an_asynchronous_device(void **state)
{
    (void)state;
    run_all(a_device);
}

/* On paper.  Away: pinned memory has all states and nothing else; the device's peak does not grow.  Through a file: when
 * they come from disk, those that went there are gone class by class: as much on disk, and no more than all states
 * twice in pinned memory.  On the host: 12 bytes an element in host memory, parameters and gradients (2 + 2) pinned, and
 * 12 fewer on the device. */
static void each_memory_has_what_paper_says(void **state)
{
    (void)state;
    struct ledger was, device, away_, disk, host;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered(&p, &s);
    ledger_run(&s, &was);
    schedules_free(&s);
    lowered_as(&p, AWAY, &s);
    ledger_run(&s, &device);
    ledger_run_in(&s, IN(SPACE_PINNED), &away_);
    assert_int_equal(away_.peak.bytes, state_bytes);
    assert_int_equal(away_.persistent[CAT_OPTIMIZER], 0);
    assert_true(device.peak.bytes <= was.peak.bytes);
    schedules_free(&s);
    lowered_as(&p, BY_FILE, &s);
    ledger_run_in(&s, IN(SPACE_DISK), &disk);
    ledger_run_in(&s, IN(SPACE_PINNED), &away_);
    assert_true(disk.peak.bytes > 0 && disk.peak.bytes <= state_bytes);
    assert_true(away_.peak.bytes >= state_bytes && away_.peak.bytes <= 2 * state_bytes);
    schedules_free(&s);
    lowered_as(&p, ON_HOST, &s);
    ledger_run(&s, &device);
    ledger_run_in(&s, IN(SPACE_HOST), &host);
    ledger_run_in(&s, IN(SPACE_PINNED), &away_);
    assert_int_equal(state_bytes, 12 * (param_bytes / 2));
    assert_int_equal(host.peak.bytes, state_bytes);
    assert_int_equal(host.persistent[CAT_OPTIMIZER], state_bytes);
    assert_int_equal(away_.peak.bytes, param_bytes + grad_bytes);
    assert_int_equal(was.persistent[CAT_OPTIMIZER], state_bytes);
    assert_int_equal(device.persistent[CAT_OPTIMIZER], 0);
    assert_int_equal(device.peak.bytes, was.peak.bytes - state_bytes);
    schedules_free(&s);
}

/* On paper: away, all states go down and up in each of the steps, and through a file into it and back as well; on the host
 * gradients go down and parameters up. */
static void copies_are_what_paper_says(void **state)
{
    (void)state;
    struct moved_table t;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered_as(&p, BY_FILE, &s);
    memset(&t, 0, sizeof t);
    moved_add(&s, SCHED_INIT, 1, &t);
    assert_int_equal(t.of[SPACE_DEVICE][SPACE_PINNED].count, 0);
    moved_add(&s, SCHED_STEADY, 3, &t);
    assert_int_equal(t.of[SPACE_DEVICE][SPACE_PINNED].bytes, 3 * state_bytes);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_DISK].bytes, 3 * state_bytes);
    assert_int_equal(t.of[SPACE_DISK][SPACE_PINNED].bytes, 3 * state_bytes);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_DEVICE].bytes, 3 * state_bytes);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_DEVICE].count, 3 * nclasses);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_HOST].count, 0);
    schedules_free(&s);
    lowered_as(&p, ON_HOST, &s);
    memset(&t, 0, sizeof t);
    moved_add(&s, SCHED_FIRST, 1, &t);
    assert_int_equal(t.of[SPACE_DEVICE][SPACE_PINNED].bytes, grad_bytes);
    assert_int_equal(t.of[SPACE_PINNED][SPACE_DEVICE].bytes, param_bytes);
    assert_int_equal(t.of[SPACE_DEVICE][SPACE_PINNED].count + t.of[SPACE_PINNED][SPACE_DEVICE].count, 2);
    schedules_free(&s);
}

/* What blocks keep.  On paper: 4 blocks have theirs in pinned memory when the head computes, where they were on the device
 * before; at the moment that was fullest there, all four, or all but that of the block that computes. */
static void activations_away_leave_the_device(void **state)
{
    (void)state;
    struct ledger was, device, away_;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered(&p, &s);
    ledger_run(&s, &was);
    schedules_free(&s);
    lowered_as(&p, KEPT, &s);
    ledger_run(&s, &device);
    ledger_run_in(&s, IN(SPACE_PINNED), &away_);
    assert_true(kept_bytes > 0);
    assert_int_equal(away_.peak.bytes, p.model.layers * kept_bytes);
    assert_int_equal(away_.peak.by[CAT_ACTIVATIONS], p.model.layers * kept_bytes);
    assert_int_equal(away_.persistent[CAT_ACTIVATIONS], 0);
    assert_true(was.peak.bytes - device.peak.bytes <= p.model.layers * kept_bytes);
    assert_true(was.peak.by[CAT_ACTIVATIONS] - device.peak.by[CAT_ACTIVATIONS] >= (p.model.layers - 1) * kept_bytes);
    schedules_free(&s);
}

/* ---- what is refused ---- */

static void says(const char *words)
{
    fail_capture(NULL, 0);
    if (!strstr(why, words))
        fail_msg("says \"%s\", which lacks \"%s\"", why, words);
}

static void a_schedule_that_works_in_the_wrong_memory_does_not_begin(void **state)
{
    (void)state;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered(&p, &s);
    find_families(&s);
    s.bufs[params[0]].space = SPACE_PINNED;
    s.spaces = IN(SPACE_PINNED);
    fail_capture(why, sizeof why);
    assert_null(open_on(&p, &s, NULL, NULL));
    says("in pinned memory on the compute stream");
    schedules_free(&s);
}

static void files_need_a_folder(void **state)
{
    (void)state;
    static struct comm *const nobody[PLAN_GROUPS];
    atomic_bool stop = false;
    struct schedules s;
    struct plan p;

    tiny(&p);
    lowered_as(&p, BY_FILE, &s);
    struct executor *x = executor_new(&(struct executor_args){ .plan = &p, .schedules = &s, .comm = nobody, .stop = &stop,
                                                               .threads = 1, .limit = INT64_MAX });
    assert_non_null(x);
    fail_capture(why, sizeof why);
    assert_int_equal(executor_map(x), -1);
    says("no folder");
    executor_free(x);
    schedules_free(&s);
}

static int load(void **state) { (void)state; models_load(); return 0; }
static int unload(void **state) { (void)state; models_free(); return 0; }

/* ---- what an entry only frees ---- */

enum { LARGE = 64 << 20 };
static int large[2];
static bool elsewhere;                  /* the first is freed by an entry of another stream, which waits for compute */

static void place_entry(struct schedules *s, enum stream stream, int what, int buf)
{
    sched_op(s, OP_MEMORY, stream, PHASE_FORWARD, "large")->after = stream == STREAM_COMPUTE ? 0 : AFTER(STREAM_COMPUTE);
    sched_act(s, what, buf, 0, 0);
}

static bool two_after_each_other(struct schedules *s, enum sched_id id, const struct op *old, const struct act *acts)
{
    (void)acts;
    if (id != SCHED_STEADY || old)
        return false;
    place_entry(s, STREAM_COMPUTE, ACT_ALLOC | ACT_WRITE, large[0]);
    place_entry(s, elsewhere ? STREAM_D2H : STREAM_COMPUTE, ACT_FREE, large[0]);
    place_entry(s, STREAM_COMPUTE, ACT_ALLOC | ACT_WRITE, large[1]);
    place_entry(s, STREAM_COMPUTE, ACT_FREE, large[1]);
    return false;
}

static int64_t arena_with_two(const struct plan *p, bool of_other_stream)
{
    static atomic_bool stop;
    static struct comm *const nobody[PLAN_GROUPS];
    struct schedules s;

    lowered(p, &s);
    for (int i = 0; i < 2; i++)
        large[i] = sched_buf(&s, CAT_TEMPORARIES, "large", NULL, 0, 1, LARGE);
    elsewhere = of_other_stream;
    rewrite(&s, two_after_each_other);
    struct executor *x = executor_new(&(struct executor_args){ .plan = p, .schedules = &s, .comm = nobody, .stop = &stop, .threads = 1,
                                                               .limit = INT64_MAX });
    assert_non_null(x);
    int64_t extent = executor_extent(x);
    executor_free(x);
    schedules_free(&s);
    return extent;
}

/* The entry does nothing with the memory: compute, for which it waits, may use the place before the other stream's thread has its turn. */
static void what_is_only_freed_goes_with_what_its_entry_waits_for(void **state)
{
    struct plan p;

    (void)state;
    tiny(&p);
    assert_true(arena_with_two(&p, false) < 2 * LARGE);
    assert_int_equal(arena_with_two(&p, true), arena_with_two(&p, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_states_are_changes_no_bit),
        cmocka_unit_test(nor_does_it_on_an_asynchronous_device),
        cmocka_unit_test(each_memory_has_what_paper_says),
        cmocka_unit_test(copies_are_what_paper_says),
        cmocka_unit_test(activations_away_leave_the_device),
        cmocka_unit_test(a_schedule_that_works_in_the_wrong_memory_does_not_begin),
        cmocka_unit_test(files_need_a_folder),
        cmocka_unit_test(what_is_only_freed_goes_with_what_its_entry_waits_for),
    };
    return cmocka_run_group_tests_name("exec/spaces", tests, load, unload);
}
