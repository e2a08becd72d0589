/* lanes.h -- one thread a stream: FIFOs that run what the issuing thread gives them.
 *
 * A task starts when the one before it on its lane is done and every lane has done as many
 * tasks as `need` says; collectives of one process group go in the order of their tickets.
 * Tasks are numbered 1, 2, ... on each lane.  STREAM_ISSUE has no thread: what waits there makes
 * the issuing thread itself wait (lanes_wait).
 *
 * The lanes keep the second meter: *held* bytes of each memory, from the start of the task that takes
 * until every task that uses them is done.
 *
 * On an asynchronous device (device.h) a task's run() only queues its work, so a lane has two threads.
 * The launcher runs a task as soon as what it needs has been *launched*, and lets the device wait for
 * it; run() sees numbers of the host that an earlier task left, for that one has returned.  The reaper
 * waits until it is *done*, which is what all else here refers to.  Tasks of one line, on whatever lanes, are launched in the order
 * of their turns: messages of one direction, which NCCL matches by that order.  The streams of the host itself (stream_is_host():
 * its threads, its files) work there as on the host: a task starts when what it needs is done, and is done when its
 * run() returns.
 *
 * A task that fails stops all lanes: what follows is skipped, lanes_wait() returns -1, and the
 * reason is kept for lanes_why(). */
#ifndef DPX_LANES_H
#define DPX_LANES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/device/arena.h"
#include "exec/device/device.h"

struct task {
    int  (*run)(struct task *t);    /* 0, or -1 reported; NULL: only waits */
    void  *self;                    /* what run() needs; freed with free() after it */
    struct when need;
    int      group;                 /* of struct schedules' groups; -1: none */
    int64_t  ticket;
    int      line;                  /* of messages, from 1 on; 0: none */
    int64_t  turn;                  /* in it, from 0 on */
    int64_t  comes[NSPACE];         /* bytes held from its start on, in each memory */
    const char *what;               /* names it in messages: static */
    int32_t  position;              /* of its entry in the step; -1: not to be recorded */
};

/* When a task ran: seconds of the clock that lanes_now() reads. */
struct task_time { int32_t position; double start, end; };

struct lanes;

/* Threads for the streams of `used` (AFTER() bits).  `stop` is the caller's: set, it ends all; a
 * task that fails sets it.  NULL with the reason reported. */
struct lanes *lanes_open(uint16_t used, atomic_bool *stop);
/* Of a device, which outlives them: what `used` names are its streams. */
struct lanes *lanes_open_on(struct device *d, uint16_t used, atomic_bool *stop);
/* Waits for nothing: what is queued is dropped.  Accepts NULL. */
void lanes_close(struct lanes *l);

/* Appends a task; blocks while the lane's queue is full.  The task is copied. */
void lanes_put(struct lanes *l, enum stream s, const struct task *t);
/* Held bytes go when the tasks of `last` are done; what lanes_on_release() was given is then called. */
void lanes_release(struct lanes *l, enum space in, const struct when *last, int64_t offset, int64_t bytes);
void lanes_on_release(struct lanes *l, void (*f)(void *arg, enum space in, int64_t offset, int64_t bytes), void *arg);

/* From now on `busy` is also how many lanes run tasks that compute on the host's cores, as opposed to carrying messages or files: what
 * waits meanwhile should leave them to those.  NULL: not counted.  Work of an asynchronous device is not on the host's cores. */
void lanes_count_busy(struct lanes *l, atomic_int *busy);

/* The calling thread waits until `need` is done.  0, or -1 when a task failed. */
int  lanes_wait(struct lanes *l, const struct when *need);
/* Sets the stop flag and wakes all that wait. */
void lanes_stop(struct lanes *l);
/* Why the first task failed, "" where none has; after lanes_wait(). */
const char *lanes_why(const struct lanes *l);

/* The largest number of bytes held since the last call of lanes_held_reset(). */
int64_t lanes_held_peak(const struct lanes *l, enum space in);
void    lanes_held_reset(struct lanes *l);

/* Records times from now on (up to n tasks a lane), or stops; then reads them. */
int  lanes_record(struct lanes *l, int64_t n);
const struct task_time *lanes_recorded(const struct lanes *l, enum stream s, int64_t *n);

/* For the watchdog, at any time: how many tasks have been done in all (lanes_alive() adds to it), and what lane s is at
 * (NULL: nothing). */
int64_t     lanes_progress(struct lanes *l);
/* A task that goes on for long, a file on a slow disk, says so: progress grows by one. */
void        lanes_alive(struct lanes *l);
const char *lanes_at(struct lanes *l, enum stream s, int32_t *position);

double lanes_now(void);             /* seconds, CLOCK_MONOTONIC */

#endif
