/* internal.h -- what the emulator's files share.
 *
 *     fiber.cc    switching between the threads of a block
 *     block.cc    grids, blocks, barriers, shared memory: one kernel at a time, on the device's thread
 *     warp.cc     what the lanes of a warp do together
 *     memory.cc   allocations, and which memory an address is in
 *     streams.cc  queues and their threads, events, copies
 *     device.cc   what the devices say they are; errors
 *
 * One mutex guards all records; no kernel, copy or callback runs under it. */
#ifndef DPX_EMU_INTERNAL_H
#define DPX_EMU_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include <condition_variable>
#include <functional>
#include <mutex>

#include "cuda_runtime.h"

#define KiB ((size_t)1 << 10)

/* 163 KiB is what sm_80 has, the oldest card that is supported; 48 KiB need no asking. */
enum { MOST_THREADS = 1024, WARPS = MOST_THREADS / 32, SHARED_PLAIN = 48 << 10, SHARED_MOST = 163 << 10 };

/* Like all that threads wait on, never destroyed: they still wait when the program ends. */
extern std::mutex &emu_mutex;
extern std::condition_variable &emu_changed;     /* an operation is done */

/* device.cc: remembers the error for cudaGetLastError(), and returns it. */
cudaError_t emu_error(cudaError_t status);
/* The same, with a line on stderr if DPX_EMU_TALK is set: calls with a wrong argument. */
cudaError_t emu_refuse(cudaError_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int    emu_devices();                           /* DPX_EMU_DEVICES */
size_t emu_memory();                            /* DPX_EMU_MEMORY: bytes of each device */
int    emu_current();                           /* this thread's device */
/* 0 or the variable's value. */
long   emu_setting(const char *name);

/* ---- block.cc ---- */

struct launch {
    const char *name;
    const void *kernel;
    std::function<void()> thread;
    dim3 grid, block;
    size_t shared;
};

void emu_run_grid(const launch &l);             /* on the device's thread only */
/* Calls fn on the device's thread; returns when it has. */
void emu_on_device(const std::function<void()> &fn);
/* "kernel softmax, block 3 0 0, thread 17 0 0" of what runs, or "no kernel runs". */
void emu_where(char *into, size_t size);
bool emu_in_shared(const void *p, size_t bytes);
bool emu_on_kernel_thread();
size_t emu_shared_allowed(const void *kernel);

/* ---- what block.cc and warp.cc share: the block that runs ---- */

struct warp_state {
    unsigned ready, started, rounds;
    int arrived, what, line;
    uint64_t word[2][32];               /* by the parity of the round: the next may begin before all have read */
    unsigned votes[2];
};

struct block_state {
    const launch *now;
    int threads, warps, done, at_barrier, barrier_line;
    int current;                        /* the thread that runs */
    unsigned warps_ready;
    struct { short line; short what; } waits[MOST_THREADS];
    uint3 index[MOST_THREADS];
    void *left[MOST_THREADS];           /* where to go on */
    warp_state warp[WARPS];
};

extern block_state emu_block;

enum { WAITS_NOT, WAITS_BARRIER, WAITS_SYNCWARP, WAITS_SHUFFLE, WAITS_BALLOT, WAITS_MMA, WAITS_LDMATRIX };

void emu_wait();                        /* until another thread makes this one ready */
void emu_release_warp(int w);           /* makes all lanes but the current thread ready */
void emu_forget_copies(int thread);     /* warp.cc: those of a thread that ends */

/* ---- memory.cc ---- */

struct allocation { char *base; size_t bytes; char *map; size_t mapped; int device; bool pinned; };

/* That which has [p, p+bytes), or false; with bytes = 0, p may be its end. */
bool emu_find(const void *p, size_t bytes, allocation *into);
/* While any work of a device is under way its memory may be touched: DPX_EMU_PROTECT. */
void emu_touch(bool begin);
/* Says what was touched by a wrong access, in words. */
void emu_describe(const void *address, char *into, size_t size);
int  emu_count_allocations(bool pinned);

/* ---- streams.cc ---- */

void emu_wait_for_all(int device);      /* until its streams are idle; -1: all devices */

#endif
