/* memory.cc -- allocations: apart from each other by pages that cannot be touched, and full of NaN.
 *
 * An allocation ends as near to its last page's end as an alignment of 256 bytes lets it; the bytes
 * left over, and as many before its start, are known and looked at after every kernel.
 * Memory that is given back cannot be touched either, until 64 more have been given back. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <map>

#include "internal.h"

enum { ALIGN = 256, EDGE_BYTE = 0xa5, KEPT = 64 };
static const size_t APART = (size_t)1 << 20;    /* untouchable, on both sides */
static const size_t GRAIN = (size_t)2 << 20;    /* the driver hands out memory in pieces of this */

/* Never destroyed: threads outlive main(). */
static std::map<uintptr_t, allocation> &all = *new std::map<uintptr_t, allocation>;
static std::deque<allocation> &gone = *new std::deque<allocation>;
static std::atomic<unsigned> changes;           /* of `all` */
static size_t used[64];

static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }
static size_t page() { return (size_t)sysconf(_SC_PAGESIZE); }
static size_t pages_of(const allocation &a) { return a.mapped - 2 * APART; }

/* ---- finding: by address, the last answer first ---- */

static bool find_locked(const void *p, size_t bytes, allocation *into)
{
    auto next = all.upper_bound((uintptr_t)p);

    if (next == all.begin())
        return false;
    const allocation &a = (--next)->second;
    size_t at = (uintptr_t)p - (uintptr_t)a.base;
    if (at > a.bytes || bytes > a.bytes - at)
        return false;
    *into = a;
    return true;
}

bool emu_find(const void *p, size_t bytes, allocation *into)
{
    static thread_local allocation last;
    static thread_local unsigned then;

    /* The device's thread has no thread-local variables of its own: kernels' shared memory is there. */
    if (emu_on_kernel_thread()) {
        static allocation found;
        static unsigned when;
        size_t at = (uintptr_t)p - (uintptr_t)found.base;
        if (when != changes || !found.base || at > found.bytes || bytes > found.bytes - at) {
            std::lock_guard<std::mutex> lock(emu_mutex);
            when = changes;
            if (!find_locked(p, bytes, &found)) {
                found.base = nullptr;
                return false;
            }
        }
        *into = found;
        return true;
    }
    size_t at = (uintptr_t)p - (uintptr_t)last.base;
    if (then == changes && last.base && at <= last.bytes && bytes <= last.bytes - at) {
        *into = last;
        return true;
    }
    std::lock_guard<std::mutex> lock(emu_mutex);
    then = changes;
    if (!find_locked(p, bytes, &last)) {
        last.base = nullptr;
        return false;
    }
    *into = last;
    return true;
}

bool emu_is_device(const void *p, size_t bytes)
{
    allocation a;

    return emu_find(p, bytes, &a) && !a.pinned;
}

bool emu_is_pinned(const void *p, size_t bytes)
{
    allocation a;

    return emu_find(p, bytes, &a) && a.pinned;
}

int emu_device_of(const void *p)
{
    allocation a;

    return emu_find(p, 0, &a) && !a.pinned ? a.device : -1;
}

int emu_count_allocations(bool pinned)
{
    std::lock_guard<std::mutex> lock(emu_mutex);
    int n = 0;

    for (const auto &a : all)
        n += a.second.pinned == pinned;
    return n;
}

/* ---- DPX_EMU_PROTECT: while no work is under way, device memory cannot be touched at all, so that a
 * host thread which takes a device pointer for its own is seen ---- */

static int touching;

static bool protecting()
{
    static const bool on = emu_setting("DPX_EMU_PROTECT") != 0;

    return on;
}

static void protect(const allocation &a, int how)
{
    if (!a.pinned && mprotect(a.map + APART, pages_of(a), how))
        emu_die("mprotect failed");
}

void emu_touch(bool begin)
{
    if (!protecting())
        return;
    std::lock_guard<std::mutex> lock(emu_mutex);
    if (begin ? touching++ == 0 : --touching == 0)
        for (const auto &a : all)
            protect(a.second, begin ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* ---- edges ---- */

static void set_edges(const allocation &a)
{
    char *pages = a.map + APART, *end = pages + pages_of(a);

    memset(pages, EDGE_BYTE, (size_t)(a.base - pages));
    memset(a.base + a.bytes, EDGE_BYTE, (size_t)(end - a.base) - a.bytes);
}

static void check_edges(const allocation &a)
{
    const char *pages = a.map + APART, *end = pages + pages_of(a);
    const char *from = a.base - pages > ALIGN ? a.base - ALIGN : pages;

    for (const char *p = from; p < a.base; p++)
        if ((unsigned char)*p != EDGE_BYTE)
            emu_die("memory %td bytes before an allocation of %zu bytes was written", a.base - p, a.bytes);
    for (const char *p = a.base + a.bytes; p < end; p++)
        if ((unsigned char)*p != EDGE_BYTE)
            emu_die("memory %td bytes beyond the end of an allocation of %zu bytes was written",
                    p - (a.base + a.bytes), a.bytes);
}

void emu_check_edges()
{
    std::unique_lock<std::mutex> lock(emu_mutex);
    std::map<uintptr_t, allocation> now = all;

    lock.unlock();                      /* a kernel runs, or nothing does: none of these can go */
    for (const auto &a : now)
        check_edges(a.second);
}

/* ---- allocating ---- */

static cudaError_t allocate(void **p, size_t bytes, bool pinned)
{
    int device = emu_current();
    allocation a = {};

    if (!p)
        return emu_error(cudaErrorInvalidValue);
    *p = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (device >= emu_devices())
        return emu_error(cudaErrorNoDevice);
    std::lock_guard<std::mutex> lock(emu_mutex);
    size_t charged = pinned ? 0 : up(bytes, GRAIN);
    if (charged > emu_memory() - used[device])
        return emu_error(cudaErrorMemoryAllocation);
    size_t pages = up(bytes, page());
    a.mapped = pages + 2 * APART;
    a.map = (char *)mmap(nullptr, a.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a.map == MAP_FAILED || mprotect(a.map + APART, pages, PROT_READ | PROT_WRITE))
        return emu_error(cudaErrorMemoryAllocation);
    a.base = a.map + APART + pages - up(bytes, ALIGN);
    a.bytes = bytes;
    a.device = device;
    a.pinned = pinned;
    used[device] += charged;
    memset(a.base, 0xff, bytes);
    set_edges(a);
    all[(uintptr_t)a.base] = a;
    changes++;
    if (protecting() && !touching)
        protect(a, PROT_NONE);
    *p = a.base;
    return cudaSuccess;
}

static void retire(const allocation &a)
{
    madvise(a.map + APART, pages_of(a), MADV_DONTNEED);
    mprotect(a.map + APART, pages_of(a), PROT_NONE);
    gone.push_back(a);
    if (gone.size() > KEPT) {
        munmap(gone.front().map, gone.front().mapped);
        gone.pop_front();
    }
}

static cudaError_t release(void *p, bool pinned)
{
    if (!p)
        return cudaSuccess;
    emu_wait_for_all(-1);               /* as the runtime does: nothing that was queued uses it any more */
    emu_touch(true);
    cudaError_t status = cudaSuccess;
    {
        std::lock_guard<std::mutex> lock(emu_mutex);
        auto at = all.find((uintptr_t)p);
        if (at == all.end() || at->second.pinned != pinned) {
            status = emu_refuse(cudaErrorInvalidValue, "%p is given back, and was not allocated so", p);
        } else {
            allocation a = at->second;
            check_edges(a);
            all.erase(at);
            changes++;
            if (!pinned)
                used[a.device] -= up(a.bytes, GRAIN);
            retire(a);
        }
    }
    emu_touch(false);
    return status;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return allocate(p, bytes, false); }
cudaError_t cudaFree(void *p) { return release(p, false); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return allocate(p, bytes, true); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) { return allocate(p, bytes, true); }
cudaError_t cudaFreeHost(void *p) { return release(p, true); }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    int device = emu_current();

    if (device >= emu_devices())
        return emu_error(cudaErrorNoDevice);
    std::lock_guard<std::mutex> lock(emu_mutex);
    *total = emu_memory();
    *free = *total - used[device];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *into, const void *p)
{
    allocation a;

    *into = {};
    into->device = -2;
    into->hostPointer = (void *)p;
    if (!emu_find(p, 1, &a))
        return cudaSuccess;
    into->type = a.pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    into->device = a.device;
    into->devicePointer = (void *)p;
    into->hostPointer = a.pinned ? (void *)p : nullptr;
    return cudaSuccess;
}

/* ---- for the message of a wrong access; without the lock, which its thread may hold ---- */

void emu_describe(const void *address, char *into, size_t size)
{
    uintptr_t at = (uintptr_t)address;

    snprintf(into, size, "it is in no memory that was allocated");
    for (const auto &entry : all) {
        const allocation &a = entry.second;
        const char *kind = a.pinned ? "pinned memory" : "device memory";
        uintptr_t base = (uintptr_t)a.base;
        if (at - (uintptr_t)a.map >= a.mapped)
            continue;
        if (at < base)
            snprintf(into, size, "it is %zu bytes before %zu bytes of %s", (size_t)(base - at), a.bytes, kind);
        else if (at >= base + a.bytes)
            snprintf(into, size, "it is %zu bytes beyond the end of %zu bytes of %s", (size_t)(at - base) - a.bytes,
                     a.bytes, kind);
        else
            snprintf(into, size, "it is device memory, which the host cannot touch");
    }
    for (const allocation &a : gone)
        if (at - (uintptr_t)a.map < a.mapped)
            snprintf(into, size, "it is in %zu bytes that were given back", a.bytes);
}
