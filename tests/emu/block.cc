/* block.cc -- a grid: block after block, the threads of a block as fibers.
 *
 * A thread runs until it waits or ends.  A fiber whose thread has ended goes on with a thread that
 * has not begun, so a kernel without barriers is a loop of calls on one stack.  Which thread
 * goes on is decided by DPX_EMU_ORDER: the lowest, the highest, or any. */
#include <assert.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <thread>

#include "fiber.h"
#include "internal.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
block_state emu_block;

static block_state &B = emu_block;
static void *main_left;                 /* where the device's thread goes on when a block is done */

static int free_fibers[FIBERS], nfree, fiber_of[MOST_THREADS];

/* ---- shared memory ---- */

enum { EDGE = 256, EDGE_BYTE = 0xa5 };  /* before and after the dynamic part */

static char *dynamic;                   /* [EDGE][shared, rounded up][EDGE] */

static size_t edge_after(size_t shared)
{
    return EDGE + shared;
}

void *emu_dynamic_shared()
{
    return dynamic + EDGE;
}

static void shared_begin(const launch &l)
{
    if (!dynamic)
        dynamic = (char *)aligned_alloc(EDGE, SHARED_MOST + 2 * EDGE);
    memset(dynamic, EDGE_BYTE, EDGE);
    memset(dynamic + EDGE, 0xff, l.shared);
    memset(dynamic + edge_after(l.shared), EDGE_BYTE, EDGE);
}

static void shared_end(const launch &l)
{
    for (size_t i = 0; i < EDGE; i++) {
        if ((unsigned char)dynamic[i] != EDGE_BYTE)
            emu_die("dynamic shared memory was written %zu bytes before its start", EDGE - i);
        if ((unsigned char)dynamic[edge_after(l.shared) + i] != EDGE_BYTE)
            emu_die("dynamic shared memory of %zu bytes was written %zu bytes after its end", l.shared, i);
    }
}

/* SHARED variables are thread-local ones of the device's thread: they lie together, in the
 * thread-local block of the program or library that the kernel is in. */
struct tls { const void *kernel; char *start; size_t bytes; };
static tls statics;

static int find_tls(struct dl_phdr_info *info, size_t, void *arg)
{
    tls *t = (tls *)arg;
    bool here = false;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + h.p_vaddr;
        here |= h.p_type == PT_LOAD && (uintptr_t)t->kernel - from < h.p_memsz;
    }
    for (int i = 0; here && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            t->start = (char *)info->dlpi_tls_data;
            t->bytes = t->start ? info->dlpi_phdr[i].p_memsz : 0;
        }
    return here;
}

/* What a kernel finds in them is left from the kernels before, as on a device: NaN here. */
static void statics_begin(const void *kernel)
{
    if (statics.kernel != kernel) {
        statics = { kernel, nullptr, 0 };
        dl_iterate_phdr(find_tls, &statics);
    }
    if (statics.bytes)
        memset(statics.start, 0xff, statics.bytes);
}

static bool within(const void *p, size_t bytes, const char *start, size_t all)
{
    uintptr_t at = (uintptr_t)p - (uintptr_t)start;

    return at <= all && bytes <= all - at;
}

bool emu_in_shared(const void *p, size_t bytes)
{
    return within(p, bytes, dynamic + EDGE, B.now->shared) || within(p, bytes, statics.start, statics.bytes);
}

/* ---- which thread goes on ---- */

enum { UP, DOWN, ANY };
static int order;
static uint64_t lots;

static unsigned lot()
{
    lots ^= lots << 13;
    lots ^= lots >> 7;
    lots ^= lots << 17;
    return (unsigned)(lots >> 32);
}

static void choose_order()
{
    const char *s = getenv("DPX_EMU_ORDER");

    order = !s || !strcmp(s, "up") ? UP : !strcmp(s, "down") ? DOWN : ANY;
    lots = 0x9e3779b97f4a7c15 + (order == ANY ? strtoull(s, nullptr, 10) : 0);
}

static int one_of(unsigned set)
{
    if (order == UP)
        return __builtin_ctz(set);
    if (order == DOWN)
        return 31 - __builtin_clz(set);
    unsigned by = lot() % 32, turned = set >> by | (by ? set << (32 - by) : 0);
    return (int)((__builtin_ctz(turned) + by) % 32);
}

/* A thread that may run, of the warp that ran if there is one; -1: none.  It is no longer ready. */
static int pick()
{
    if (!B.warps_ready)
        return -1;
    int w = B.current / 32;
    if (!B.warp[w].ready || (order == ANY && lot() % 8 == 0))
        w = one_of(B.warps_ready);
    warp_state &warp = B.warp[w];
    int lane = one_of(warp.ready);
    warp.ready &= ~(1u << lane);
    if (!warp.ready)
        B.warps_ready &= ~(1u << w);
    return 32 * w + lane;
}

/* ---- threads ---- */

static const char *const waits_at[] = { "runs", "__syncthreads", "__syncwarp", "a shuffle", "a vote", "mma", "ldmatrix" };

[[noreturn]] static void stuck()
{
    int first = -1, other = -1;

    for (int t = 0; t < B.threads; t++) {
        if (B.waits[t].what == WAITS_NOT)
            continue;
        if (first < 0)
            first = t;
        else if (other < 0 && (B.waits[t].what != B.waits[first].what || B.waits[t].line != B.waits[first].line))
            other = t;
    }
    B.current = first;
    threadIdx = B.index[first];
    if (other >= 0)
        emu_die("threads wait for each other: %d at %s (line %d), %d at %s (line %d); %d of %d have ended", first,
                waits_at[B.waits[first].what], B.waits[first].line, other, waits_at[B.waits[other].what],
                B.waits[other].line, B.done, B.threads);
    emu_die("waits at %s (line %d) in vain: %d of %d threads have ended without coming there",
            waits_at[B.waits[first].what], B.waits[first].line, B.done, B.threads);
}

static bool started(int t)
{
    return B.warp[t / 32].started >> t % 32 & 1;
}

static void run_threads()
{
    int me = B.current, fiber = fiber_of[me];

    for (;;) {
        B.warp[me / 32].started |= 1u << me % 32;
        fiber_of[me] = fiber;
        threadIdx = B.index[me];
        B.now->thread();
        emu_forget_copies(me);
        B.done++;
        int next = pick();
        if (next < 0 && B.done < B.threads)
            stuck();
        B.current = next;
        if (next >= 0 && !started(next)) {
            me = next;
            continue;
        }
        free_fibers[nfree++] = fiber;
        void *never;
        fiber_switch(&never, next < 0 ? main_left : B.left[next]);
        abort();
    }
}

static void *begin(int t)
{
    fiber_of[t] = free_fibers[--nfree];
    return fiber_start(fiber_of[t], run_threads);
}

void emu_wait()
{
    int me = B.current, next = pick();

    if (next < 0)
        stuck();
    B.current = next;
    fiber_switch(&B.left[me], started(next) ? B.left[next] : begin(next));
    threadIdx = B.index[me];
}

void emu_release_warp(int w)
{
    int lanes = B.threads - 32 * w;

    B.warp[w].ready = lanes >= 32 ? 0xffffffff : (1u << lanes) - 1;
    if (w == B.current / 32)
        B.warp[w].ready &= ~(1u << B.current % 32);
    if (B.warp[w].ready)
        B.warps_ready |= 1u << w;
}

void emu_barrier(int line)
{
    int me = B.current;

    if (B.at_barrier == 0)
        B.barrier_line = line;
    else if (line != B.barrier_line)
        emu_die("is at the barrier of line %d while others of its block are at that of line %d", line, B.barrier_line);
    if (++B.at_barrier < B.threads) {
        B.waits[me] = { (short)line, WAITS_BARRIER };
        emu_wait();
        B.waits[me].what = WAITS_NOT;
        return;
    }
    B.at_barrier = 0;
    for (int w = 0; w < B.warps; w++)
        emu_release_warp(w);
}

/* ---- blocks and grids ---- */

static void run_block(const launch &l)
{
    B.done = B.at_barrier = 0;
    B.warps_ready = B.warps < 32 ? (1u << B.warps) - 1 : 0xffffffff;
    for (int w = 0; w < B.warps; w++) {
        warp_state &warp = B.warp[w];
        warp.ready = B.threads - 32 * w >= 32 ? 0xffffffff : (1u << (B.threads - 32 * w)) - 1;
        warp.started = warp.rounds = warp.votes[0] = warp.votes[1] = 0;
        warp.arrived = 0;
    }
    shared_begin(l);
    B.current = 0;
    B.current = pick();
    fiber_switch(&main_left, begin(B.current));
    B.current = -1;
    shared_end(l);
}

static void set_indices(dim3 block)
{
    int t = 0;

    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++) {
                B.waits[t] = { 0, WAITS_NOT };
                B.index[t++] = { x, y, z };
            }
    B.threads = t;
    B.warps = (t + 31) / 32;
}

void emu_run_grid(const launch &l)
{
    if (!nfree) {
        choose_order();
        for (nfree = 0; nfree < FIBERS; nfree++)
            free_fibers[nfree] = FIBERS - 1 - nfree;
    }
    B.now = &l;
    set_indices(l.block);
    blockDim = l.block;
    gridDim = l.grid;
    statics_begin(l.kernel);
    for (unsigned z = 0; z < l.grid.z; z++)
        for (unsigned y = 0; y < l.grid.y; y++)
            for (unsigned x = 0; x < l.grid.x; x++) {
                blockIdx = { x, y, z };
                run_block(l);
            }
    B.now = nullptr;
}

/* ---- the device's thread: kernels of all streams, one at a time ---- */

static std::mutex &turn = *new std::mutex, &hand = *new std::mutex;
static std::condition_variable &handed = *new std::condition_variable;
static const std::function<void()> *job;
static std::thread::id kernel_thread;

static void serve()
{
    static char alternate[64 << 10];    /* for the handler, when a fiber's stack is full */
    stack_t s = {};

    s.ss_sp = alternate;
    s.ss_size = sizeof alternate;
    sigaltstack(&s, nullptr);
    for (;;) {
        const std::function<void()> *now;
        {
            std::unique_lock<std::mutex> lock(hand);
            handed.wait(lock, [] { return job != nullptr; });
            now = job;
        }
        (*now)();
        std::lock_guard<std::mutex> lock(hand);
        job = nullptr;
        handed.notify_all();
    }
}

void emu_on_device(const std::function<void()> &fn)
{
    std::lock_guard<std::mutex> mine(turn);

    if (kernel_thread == std::thread::id()) {
        std::thread t(serve);
        kernel_thread = t.get_id();
        t.detach();
    }
    std::unique_lock<std::mutex> lock(hand);
    job = &fn;
    handed.notify_all();
    handed.wait(lock, [] { return job == nullptr; });
}

bool emu_on_kernel_thread()
{
    return std::this_thread::get_id() == kernel_thread;
}

void emu_where(char *into, size_t size)
{
    if (emu_on_kernel_thread() && B.now)
        snprintf(into, size, "kernel %s, block %u %u %u, thread %u %u %u", B.now->name, blockIdx.x, blockIdx.y,
                 blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    else
        snprintf(into, size, "outside kernels");
}
