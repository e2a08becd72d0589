/* parallel.h -- independent pieces of work on all cores.
 *
 *     static int square(void *of, int64_t i) { ((double *)of)[i] *= ((double *)of)[i]; return 0; }
 *     parallel_each(n, 0, square, numbers);
 *
 * Pieces write what is their own, so the result is the same for any number of threads.  A piece may call parallel_each(), too: idle
 * threads take its pieces.  The outermost call starts threads as it needs them and ends them: a caller with many calls one after the
 * other is best a piece itself, parallel_each(1, ...). */
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

/* For a piece that needs the result of pieces with lower numbers: this thread helps with their own pieces until over() is true.  over() runs
 * under a lock and may take another.  Code that changes what over() looks at calls parallel_changed() afterwards, without that other lock. */
void parallel_wait(bool (*over)(void *of), void *of);
void parallel_changed(void);

/* Threads that have nothing to do, just now: so many pieces may be done ahead, in case they are wanted.  No answer may depend on it. */
int parallel_idle(void);

#endif
