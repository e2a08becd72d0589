/* watchdog.h -- ranks never hang: the rank that notices that the job cannot go on says which rank is at
 * fault, in one line, and ends it.
 *
 *     struct watchdog *w = watchdog_open(control, NULL);         (every rank)
 *     watchdog_follow(w, lanes);
 *     watchdog_rest(w, false); ... a step ... watchdog_rest(w, true);
 *     watchdog_close(w);                                   (every rank)
 *
 * A rank that was killed ends the job through the launcher.  Found here are: a rank that does not
 * answer (stopped, or its machine is), a job in which nothing finishes on any rank, a rank that
 * failed in the middle of a step, where the others would wait for it.  The time is DPX_TIMEOUT
 * seconds (120).  A rank that is left alone, for rank 0 has closed its watchdog, goes by its own progress.
 * Ranks talk over a communicator of their own, "dpx watchdog": rank 0 asks, the
 * others answer and notice when it does not ask. */
#ifndef DPX_WATCHDOG_H
#define DPX_WATCHDOG_H

#include <stdbool.h>

#include <mpi.h>

#include "exec/device/lanes.h"

struct watchdog;

/* Before MPI_Init: should the ranks not find each other in the time, this process says so and ends.
 * Until watchdog_open(). */
void watchdog_start(void);
/* Watches until it is closed, resting.  `stage`: which of a pipeline's the rank has, in words, to name it by; NULL.
 * NULL with the reason reported. */
struct watchdog *watchdog_open(MPI_Comm control, const char *stage);
/* Waits, briefly, for the other ranks' to be closed.  Accepts NULL. */
void watchdog_close(struct watchdog *w);

/* Lanes whose progress is monitored; NULL stops the watchdog. */
void watchdog_follow(struct watchdog *w, struct lanes *lanes);
/* While one rank rests (a disk may be slow), that nothing finishes is no fault.  Accepts NULL. */
void watchdog_rest(struct watchdog *w, bool resting);

/* On rank 0, from the watchdog's thread before it ends the job, or when a signal does: SIGINT, or
 * SIGTERM, which mpirun sends when another rank has died.  It may leave only milliseconds before
 * SIGKILL: unsent messages are lost.  NULL: no call. */
typedef void watchdog_told(void *arg, const char *why, bool by_signal);
void watchdog_tell(struct watchdog *w, watchdog_told *f, void *arg);

/* This rank cannot go on: rank 0 says why and ends the job.  Does not return. */
_Noreturn void watchdog_failed(struct watchdog *w, const char *why);

#endif
