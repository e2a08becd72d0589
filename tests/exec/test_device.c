/* An asynchronous device: lanes that launch ahead of it, the arena and the executor on one
 * (fake_device.h); and what the host's kernels do in its place. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "tests/exec/lanes_check.h"
#include "tests/exec/scratch.h"
#include "tests/mpi/matrix_plans.h"

#include "exec/kernels/half.h"
#include "exec/train/train.h"

enum { MANY = 9000 };                   /* more than the marks that are kept */

/* What the device has done, in order, and how much has been launched. */
static atomic_int worked, launches;
static int order[MANY];
static atomic_bool stopped;
static struct device *fake;

static int fresh(void **state)
{
    (void)state;
    atomic_store(&worked, 0);
    atomic_store(&launches, 0);
    atomic_store(&stopped, false);
    fake = fake_open(7);
    return 0;
}

static int gone(void **state)
{
    (void)state;
    device_close(fake);
    return 0;
}

/* ---- tasks: run() queues work ---- */

struct note { enum stream s; int number, ms, before; bool fails; };

static int work(void *arg, void *device)
{
    const struct note *n = arg;

    (void)device;
    if (n->ms)
        nanosleep(&(struct timespec){ .tv_nsec = n->ms * 1000000L }, NULL);
    order[atomic_fetch_add(&worked, 1)] = n->number;
    return 0;
}

/* before: so much work may have been done at most when this is launched; -1: any. */
static int launch_work(struct task *t)
{
    const struct note *n = t->self;

    atomic_fetch_add(&launches, 1);
    if (n->before >= 0 && atomic_load(&worked) > n->before)
        return fail("task %d is launched late", n->number);
    if (n->fails)
        return fail("task %d fails", n->number);
    return fake_queue(device_cuda_stream(fake, n->s), work, fake_copy_of(n, sizeof *n), NULL);
}

static struct lanes *lanes(void)
{
    struct lanes *l = lanes_open_on(fake, AFTER(STREAM_COMPUTE) | AFTER(STREAM_GATHER) | AFTER(STREAM_REDUCE),
                                    &stopped);

    assert_non_null(l);
    return l;
}

static struct task task_of(struct note n)
{
    return (struct task){ .run = launch_work, .self = fake_copy_of(&n, sizeof n), .group = -1, .what = "task",
                          .position = -1 };
}

/* ---- lanes ---- */

static void a_stream_does_its_tasks_in_order(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    for (int i = 0; i < MANY; i++)
        put(l, STREAM_COMPUTE, task_of((struct note){ STREAM_COMPUTE, i, 0, -1, false }));
    assert_int_equal(wait_for(l, STREAM_COMPUTE, MANY), 0);
    assert_int_equal(atomic_load(&worked), MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(lanes_progress(l), MANY);
    lanes_close(l);
}

/* What is needed has been launched, and the device waits for it: the host is ahead. */
static void a_task_is_launched_before_what_it_needs_is_done(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task late = task_of((struct note){ STREAM_REDUCE, 1, 0, 0, false });

    late.need = done(STREAM_COMPUTE, 1);
    put(l, STREAM_REDUCE, late);
    put(l, STREAM_COMPUTE, task_of((struct note){ STREAM_COMPUTE, 0, 200, 0, false }));
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    lanes_close(l);
}

/* Two streams that wait for each other in turn: one missed wait, and the order is another. */
static void streams_that_wait_for_each_other_alternate(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    for (int i = 0; i < 1000; i++) {
        enum stream s = i % 2 ? STREAM_REDUCE : STREAM_COMPUTE, other = i % 2 ? STREAM_COMPUTE : STREAM_REDUCE;
        struct task t = task_of((struct note){ s, i, 0, -1, false });
        t.need = done(other, (i + 1) / 2);
        put(l, s, t);
    }
    assert_int_equal(wait_for(l, STREAM_REDUCE, 500), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(order[i], i);
    lanes_close(l);
}

static void collectives_of_a_group_follow_each_other_on_the_device(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task first = task_of((struct note){ STREAM_GATHER, 0, 100, 0, false });
    struct task second = task_of((struct note){ STREAM_REDUCE, 1, 0, 0, false });

    first.group = second.group = GROUP_DATA;
    second.ticket = 1;
    put(l, STREAM_REDUCE, second);
    put(l, STREAM_GATHER, first);
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    lanes_close(l);
}

/* Messages of one direction match in the order in which they are launched: the second does not overtake the first, which waits for
 * another lane; a message of another direction does. */
static void messages_of_a_line_are_launched_in_turn(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task first = task_of((struct note){ STREAM_GATHER, 0, 0, -1, false }), second = task_of((struct note){ STREAM_REDUCE, 1, 0, -1, false });
    struct task other = task_of((struct note){ STREAM_REDUCE, 2, 0, -1, false });

    first.line = second.line = 3;
    second.turn = 1;
    other.line = 1;
    first.need = done(STREAM_COMPUTE, 1);
    put(l, STREAM_GATHER, first);
    put(l, STREAM_REDUCE, other);
    put(l, STREAM_REDUCE, second);
    assert_int_equal(wait_for(l, STREAM_REDUCE, 1), 0);
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    assert_int_equal(atomic_load(&launches), 1);
    put(l, STREAM_COMPUTE, task_of((struct note){ STREAM_COMPUTE, 3, 0, -1, false }));
    assert_int_equal(wait_for(l, STREAM_REDUCE, 2), 0);
    assert_int_equal(wait_for(l, STREAM_GATHER, 1), 0);
    assert_int_equal(atomic_load(&launches), 4);
    lanes_close(l);
}

/* Launched at once, but held one after the other. */
static void bytes_are_held_until_the_device_is_done_with_them(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    for (int i = 0; i < 100; i++) {
        struct task t = task_of((struct note){ STREAM_COMPUTE, i, 0, -1, false });
        struct when last = done(STREAM_COMPUTE, i + 1);
        t.comes[SPACE_DEVICE] = 10;
        put(l, STREAM_COMPUTE, t);
        lanes_release(l, SPACE_DEVICE, &last, 0, 10);
    }
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 100), 0);
    assert_int_equal(lanes_held_peak(l, SPACE_DEVICE), 10);
    lanes_close(l);
}

static void a_task_that_fails_stops_all_lanes(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    struct task never = task_of((struct note){ STREAM_REDUCE, 3, 0, -1, false });

    never.need = done(STREAM_GATHER, 1);
    put(l, STREAM_REDUCE, never);
    put(l, STREAM_COMPUTE, task_of((struct note){ STREAM_COMPUTE, 1, 0, -1, true }));
    lanes_have_stopped(l, &stopped, task_of((struct note){ STREAM_COMPUTE, 2, 0, -1, false }), &launches);
}

static int cannot_enter(struct device *d)
{
    (void)d;
    return fail("the device cannot be used");
}

/* Its threads fail as they start, while others are still being started. */
static void a_device_that_cannot_be_entered_stops_all_lanes(void **state)
{
    (void)state;
    struct device_ops shut = *fake->ops;

    shut.enter = cannot_enter;
    fake->ops = &shut;
    for (int i = 0; i < 50; i++) {
        atomic_store(&stopped, false);
        struct lanes *l = lanes();
        put(l, STREAM_REDUCE, task_of((struct note){ STREAM_REDUCE, 1, 0, -1, false }));
        assert_int_equal(wait_for(l, STREAM_REDUCE, 1), -1);
        assert_string_equal(lanes_why(l), "the device cannot be used");
        lanes_close(l);
    }
    assert_int_equal(atomic_load(&launches), 0);
    fake->ops = &fake_ops;
}

static void closing_drops_what_is_not_launched(void **state)
{
    (void)state;
    struct lanes *l = lanes();

    for (int i = 0; i < 10; i++) {
        struct task never = task_of((struct note){ STREAM_COMPUTE, i, 0, -1, false });
        never.need = done(STREAM_GATHER, 1);
        put(l, STREAM_COMPUTE, never);
    }
    lanes_close(l);
    assert_int_equal(atomic_load(&launches), 0);
}

static void recorded_times_are_the_devices(void **state)
{
    (void)state;
    struct lanes *l = lanes();
    const struct task_time *t;
    int64_t n;

    assert_int_equal(lanes_record(l, 10), 0);
    for (int i = 0; i < 3; i++) {
        struct task one = task_of((struct note){ STREAM_COMPUTE, i, 5, i ? -1 : 0, false });
        one.position = i;
        put(l, STREAM_COMPUTE, one);
    }
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 3), 0);
    t = lanes_recorded(l, STREAM_COMPUTE, &n);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].position, i);
        assert_true(t[i].end - t[i].start >= 0.005);
        assert_true(i == 0 || t[i].start >= t[i - 1].end);
    }
    lanes_close(l);
}

/* ---- memory ---- */

static void an_arena_on_a_device_is_never_extended(void **state)
{
    (void)state;
    struct arena *a = arena_new(false);
    struct when start = { { 0 } };
    char why[256];

    assert_int_equal(arena_map_on(a, fake, 4096), 0);
    assert_int_equal(device_used(fake), 4096);
    assert_int_equal(arena_take(a, 4096, CAT_PARAMS, &start), 0);
    fail_capture(why, sizeof why);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), -1);
    fail_capture(NULL, 0);
    assert_string_equal(why, "the arena on a fake device has the 4096 bytes that a dry run found, and 64 more "
                             "are needed");
    arena_free(a);
    assert_int_equal(device_used(fake), 0);
}

static void guard_pages_are_for_the_host(void **state)
{
    (void)state;
    struct arena *a = arena_new(true);
    char why[256];

    fail_capture(why, sizeof why);
    assert_int_equal(arena_map_on(a, fake, 4096), -1);
    fail_capture(NULL, 0);
    assert_string_equal(why, "guard pages are for the host's memory, not for a fake device");
    arena_free(a);
}

static void without_cuda_there_is_no_device(void **state)
{
    (void)state;
    char why[256] = "";

    if (device_cuda_built())
        skip();
    fail_capture(why, sizeof why);
    assert_null(device_cuda_open(0));
    fail_capture(NULL, 0);
    assert_string_equal(why, "this dpxrun was built without CUDA");
    assert_int_equal(device_cuda_count(), 0);
}

/* ---- a plan on one rank ---- */

enum { STEPS = 4 };

static double train_on(const struct plan *p, struct device *d, const char *grads, const char *weights)
{
    struct train_args a = { .plan = p, .seed = 5, .steps = STEPS, .lr = 3e-3, .min_lr = 1e-3, .beta1 = 0.9,
                            .beta2 = 0.95, .eps = 1e-8, .limit = INT64_MAX, .null = true, .threads = 1,
                            .device = d, .save_grads = grads, .grads_step = 1 };
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    struct train_report r = { .loss = 0 };

    assert_non_null(t);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(train_step(t, true, &r), 0);
    assert_int_equal(train_save(t, weights), 0);
    train_close(t);
    return r.loss;
}

static void same_file(const char *one, const char *other)
{
    size_t n[2];
    char *bytes[2] = { scratch_get(one, &n[0]), scratch_get(other, &n[1]) };

    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
    remove(one);
    remove(other);
}

/* Rotary positions, clipping; every subject of the matrix. */
static void a_plan_gives_the_bits_of_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < NSUBJECTS; i++) {
        struct choice c = { .s = STRAT_DDP, .d = DIALECT_PAPER, .at = { [AXIS_SUBJECT] = i } };
        struct plan p;
        assert_true(matrix_plan(&c, &p));
        double host = train_on(&p, NULL, scratch_path("hg"), scratch_path("hw"));
        double device = train_on(&p, fake, scratch_path("dg"), scratch_path("dw"));
        assert_memory_equal(&host, &device, sizeof host);
        same_file(scratch_path("hg"), scratch_path("dg"));
        same_file(scratch_path("hw"), scratch_path("dw"));
    }
}

/* ---- the host's kernels in a device's place ---- */

static struct kernels *host_kernels(bool reference)
{
    struct kernels *k = kernels_open_on(device_host(), STREAM_COMPUTE, 1, NULL, 0, reference);

    assert_non_null(k);
    return k;
}

static void kernels_move_bytes(void **state)
{
    (void)state;
    for (int ref = 0; ref < 2; ref++) {
        struct kernels *k = host_kernels(ref);
        float x[3] = { 1, 2, 3 }, y[3], z[3] = { 7, 7, 7 };
        uint16_t narrow[3];
        assert_int_equal(kernels_ops(k)->upload(k, sizeof x, y, x), 0);
        assert_int_equal(kernels_ops(k)->zero(k, 2 * sizeof *y, y), 0);
        assert_int_equal(kernels_ops(k)->download(k, sizeof y, z, y), 0);
        assert_int_equal(kernels_ops(k)->load(k, 3, narrow, DT_BF16, x), 0);
        assert_int_equal(kernels_ops(k)->finish(k), 0);
        assert_true(z[0] == 0 && z[1] == 0 && z[2] == 3);
        for (int i = 0; i < 3; i++)
            assert_true(half_from_bf16(narrow[i]) == x[i]);
        kernels_close(k);
    }
}

static void kernels_count_what_is_not_finite(void **state)
{
    (void)state;
    const float x[6] = { NAN, 1, INFINITY, 3.4e38f, -INFINITY, 0 };
    uint16_t narrow[6], fp16[6];

    for (int i = 0; i < 6; i++)
        narrow[i] = half_to_bf16(i == 3 ? 3e38f : x[i]);
    for (int i = 0; i < 6; i++)
        fp16[i] = half_to_fp16(i == 3 ? 65519.0f : i == 1 ? 65520.0f : x[i]);        /* the largest is 65504 */
    for (int ref = 0; ref < 2; ref++) {
        struct kernels *k = host_kernels(ref);
        double wide = 1, half = 2, other_half = 0;
        assert_int_equal(kernels_ops(k)->not_finite(k, 6, fp16, DT_FP16, &other_half), 0);
        assert_int_equal(kernels_ops(k)->not_finite(k, 6, x, DT_FP32, &wide), 0);
        assert_int_equal(kernels_ops(k)->not_finite(k, 6, narrow, DT_BF16, &half), 0);
        assert_int_equal(kernels_ops(k)->finish(k), 0);
        assert_close(wide, 4, 0);               /* added to what was there */
        assert_close(half, 5, 0);
        assert_close(other_half, 4, 0);
        kernels_close(k);
    }
}

/* 1 + 1/2 + ... + 2^-23, twice: exact in fp64, not in fp32. */
static void kernels_add_in_fp64(void **state)
{
    (void)state;
    float x[48];

    for (int i = 0; i < 48; i++)
        x[i] = ldexpf(1, -(i % 24));
    for (int ref = 0; ref < 2; ref++) {
        struct kernels *k = host_kernels(ref);
        struct exact_sum exact = { { 0 } };
        double sum = 1;
        assert_int_equal(kernels_ops(k)->sum(k, 48, x, &sum), 0);
        assert_int_equal(kernels_ops(k)->exact_squares(k, 2, x, DT_FP32, &exact), 0);
        assert_int_equal(kernels_ops(k)->finish(k), 0);
        assert_close(sum, 1 + 2 * (2 - ldexp(1, -23)), 0);
        assert_close(exact_value(&exact), 1.25, 0);
        kernels_close(k);
    }
}

static int begin(void **state)
{
    models_load();
    return scratch_make(state);
}

static int end(void **state)
{
    models_free();
    return scratch_remove(state);
}

#define ON_DEVICE(test) cmocka_unit_test_setup_teardown(test, fresh, gone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICE(a_stream_does_its_tasks_in_order),
        ON_DEVICE(a_task_is_launched_before_what_it_needs_is_done),
        ON_DEVICE(streams_that_wait_for_each_other_alternate),
        ON_DEVICE(collectives_of_a_group_follow_each_other_on_the_device),
        ON_DEVICE(messages_of_a_line_are_launched_in_turn),
        ON_DEVICE(bytes_are_held_until_the_device_is_done_with_them),
        ON_DEVICE(a_task_that_fails_stops_all_lanes),
        ON_DEVICE(a_device_that_cannot_be_entered_stops_all_lanes),
        ON_DEVICE(closing_drops_what_is_not_launched),
        ON_DEVICE(recorded_times_are_the_devices),
        ON_DEVICE(an_arena_on_a_device_is_never_extended),
        ON_DEVICE(guard_pages_are_for_the_host),
        ON_DEVICE(a_plan_gives_the_bits_of_the_host),
        cmocka_unit_test(without_cuda_there_is_no_device),
        cmocka_unit_test(kernels_move_bytes),
        cmocka_unit_test(kernels_count_what_is_not_finite),
        cmocka_unit_test(kernels_add_in_fp64),
    };
    return cmocka_run_group_tests_name("exec/device", tests, begin, end);
}
