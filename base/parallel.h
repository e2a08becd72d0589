/* parallel.h -- independent pieces of work on all cores.
 *
 *     static int square(void *of, int64_t i) { ((double *)of)[i] *= ((double *)of)[i]; return 0; }
 *     parallel_each(n, 0, square, numbers);
 *
 * Pieces write what is their own, so the result is the same for any number of threads.  Inside of a piece another
 * parallel_each() runs one after the other: threads are made once, by whoever comes first. */
#ifndef DPX_PARALLEL_H
#define DPX_PARALLEL_H

#include <stdint.h>

/* Calls f(of, i) for i of 0 ... n-1, each by whichever thread is free, the caller's among them; threads 0: as many as cores.
 * After a piece that returns less than 0 no further one is begun; then -1, with what the first of these (by i) said reported. */
int parallel_each(int64_t n, int threads, int (*f)(void *of, int64_t i), void *of);

/* Threads where 0 is asked for; 1 inside of a piece. */
int parallel_threads(void);

#endif
