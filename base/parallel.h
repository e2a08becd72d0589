/* parallel.h -- independent pieces of work on all cores.
 *
 *     static int square(void *of, int64_t i) { ((double *)of)[i] *= ((double *)of)[i]; return 0; }
 *     parallel_each(n, 0, square, numbers);
 *
 * Pieces write what is their own, so the result is the same for any number of threads.  A piece may call parallel_each(), too: its
 * pieces are for the same threads, those that have nothing else to do.  Threads are started by whoever comes first, as they are
 * needed, and end with it: what has many calls one after the other is best one piece itself, parallel_each(1, ...). */
#ifndef DPX_PARALLEL_H
#define DPX_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

/* Calls f(of, i) for i of 0 ... n-1, each by whichever thread is free, the caller's among them; threads 0: as many as cores.
 * Inside of a piece no more than were asked for there.
 * After a piece that returns less than 0 no further one is begun; then -1, with what the first of these (by i) said reported. */
int parallel_each(int64_t n, int threads, int (*f)(void *of, int64_t i), void *of);

/* Threads where 0 is asked for; 1 inside of a piece that has others beside it. */
int parallel_threads(void);

/* In a piece that needs what pieces with lower numbers find out: until over() says so this thread helps with what they share out.  over() is
 * asked with a lock, and may take one of its own; whoever changes what it looks at calls parallel_changed() then, without that one. */
void parallel_wait(bool (*over)(void *of), void *of);
void parallel_changed(void);

/* Threads that have nothing to do, just now: so many pieces may be done ahead, in case they are wanted.  No answer may depend on it. */
int parallel_idle(void);

#endif
