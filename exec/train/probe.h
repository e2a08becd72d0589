/* probe.h -- how fast this machine is at this moment.
 *
 *     struct probe *p = probe_open(device, threads);
 *     double s = probe_take(p, 0.2);
 *     probe_close(p);
 *
 * One product, y[576, 576] = x W in fp32, timed on every rank at once: 2 to 3 ms on one core.  On a
 * CUDA device y[4096, 4096] in bf16, 137 GFLOP: eight queued between two waits, for a wait costs some
 * tens of microseconds, and clocks under load are what it is to tell.  Shared machines drift by tens of percent within minutes; what was measured at one moment holds at another
 * times the quotient of the two probes. */
#ifndef DPX_PROBE_H
#define DPX_PROBE_H

#include "exec/device/device.h"
#include "exec/kernels/kernels.h"

struct probe;

/* Of a rank with so many threads.  The device must outlive it.  NULL with the reason reported. */
struct probe *probe_open(struct device *d, int threads);
/* Repeated for `seconds`, but at least 5 times: the slowest rank's median, in seconds; NaN reported.  All
 * ranks of MPI_COMM_WORLD together. */
double probe_take(struct probe *p, double seconds);
/* The same without meeting the other ranks: this rank's mean, since one that shares its core waits in some of
 * the products; NaN reported. */
double probe_mean(struct probe *p, double seconds);
void   probe_close(struct probe *p);            /* accepts NULL */

#endif
