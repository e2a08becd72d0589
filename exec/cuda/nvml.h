/* nvml.h -- one question to NVML, where the driver brings it: what this process holds on a device. */
#ifndef DPX_NVML_H
#define DPX_NVML_H

#include <stdint.h>

struct nvml;

/* By "GPU-...": NULL where there is no NVML or it does not know the device, and nothing is said. */
struct nvml *nvml_open(const char *uuid);
/* Bytes; -1: NVML does not know this process. */
int64_t      nvml_process_used(struct nvml *n);
void         nvml_close(struct nvml *n);        /* accepts NULL */

#endif
