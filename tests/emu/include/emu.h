/* emu.h -- what the emulator offers to the libraries emulated beside it (cublasLt, nccl) and to tests. */
#ifndef EMU_H
#define EMU_H

#include <stdbool.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queues run(arg) on the stream as work of the device, called `what` in messages.  It is called on
 * the stream's own thread, may read and write device memory, and may wait for other processes,
 * but makes no CUDA calls.  Errors are cudaLaunchHostFunc's. */
cudaError_t emu_enqueue(cudaStream_t s, const char *what, void (*run)(void *), void *arg);

/* Whether [p, p+bytes) lies in one allocation of device memory; emu_is_pinned: of cudaHostAlloc's. */
bool emu_is_device(const void *p, size_t bytes);
bool emu_is_pinned(const void *p, size_t bytes);

/* The device of an allocation, of a stream; -1: of neither. */
int emu_device_of(const void *p);
int emu_stream_device(cudaStream_t s);

/* Allocations that were not given back, streams and events that were not destroyed. */
struct emu_alive { int device_memory, pinned_memory, streams, events; };
struct emu_alive emu_alive(void);

/* Kernels that were started since the program began, by all streams. */
long long emu_launches(void);

/* Says on stderr what the program did wrong, with the kernel and thread that did, and aborts. */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 1, 2)))
#endif
void emu_die(const char *format, ...);

#ifdef __cplusplus
}
#endif

#endif
