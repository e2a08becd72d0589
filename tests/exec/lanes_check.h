/* lanes_check.h -- what the tests of lanes say shortly, on the host and on a device. */
#ifndef DPX_LANES_CHECK_H
#define DPX_LANES_CHECK_H

#include "tests/check.h"
#include "exec/device/lanes.h"

static inline struct when done(enum stream s, int64_t n)
{
    struct when w = { { 0 } };

    w.done[s] = n;
    return w;
}

static inline void put(struct lanes *l, enum stream s, struct task t) { lanes_put(l, s, &t); }

static inline int wait_for(struct lanes *l, enum stream s, int64_t n)
{
    struct when w = done(s, n);

    return lanes_wait(l, &w);
}

/* A lane has failed at its first task: what it was given after that, and what waits for ever, is dropped. */
static inline void lanes_have_stopped(struct lanes *l, const atomic_bool *stopped, struct task next, const atomic_int *ran)
{
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 1), -1);
    assert_true(atomic_load(stopped));
    put(l, STREAM_COMPUTE, next);
    assert_int_equal(wait_for(l, STREAM_COMPUTE, 2), -1);
    assert_int_equal(atomic_load(ran), 1);
    assert_string_equal(lanes_why(l), "task 1 fails");
    lanes_close(l);
}

#endif
