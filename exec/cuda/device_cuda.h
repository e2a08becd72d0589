/* device_cuda.h -- what the files of exec/cuda/ share.  Plain C: it compiles where there is no CUDA. */
#ifndef DPX_DEVICE_CUDA_H
#define DPX_DEVICE_CUDA_H

#include <stddef.h>

#include "exec/device/device.h"

/* 0, or -1 with "CALL: reason" reported.  CUDA_OK(cudaFree(p)) < 0 */
#define CUDA_OK(call) cuda_ok((int)(call), #call)
int cuda_ok(int status, const char *call);

/* From now on device_wait() and device_drain() fail with this reason: what they wait for was given
 * up (a collective that a lost rank will never finish), and must not pass for done.  The first counts. */
void device_cuda_break(struct device *d, const char *why);

/* "CUDA 13.0": what this program was linked with. */
void device_cuda_runtime(char *into, size_t size);
/* "CUDA 13.0, driver 13.0, sm_90": of this process, with a device. */
void device_cuda_versions(struct device *d, char *into, size_t size);

#endif
