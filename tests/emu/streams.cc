/* streams.cc -- a stream is a queue and a thread that carries it out; events mark places in queues.
 *
 * What lies in different streams is ordered by events alone, and by the default stream, as CUDA's
 * "legacy default stream" is: its work waits for that of all streams that were not made with
 * cudaStreamNonBlocking, and theirs for its.  DPX_EMU_DELAY: sleeps of a random length between. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "internal.h"

void emu_check_edges();                 /* memory.cc */

std::mutex &emu_mutex = *new std::mutex;
std::condition_variable &emu_changed = *new std::condition_variable;

struct mark { bool done; double when; };
struct item { std::function<void()> run; bool callback; };

struct CUstream_st {
    int device, number;
    bool blocking, closing;
    uint64_t queued, done;              /* operations; they end in the order in which they came */
    std::deque<item> items;
    std::condition_variable more;
};

struct CUevent_st { int device; bool timing; std::shared_ptr<mark> last; };

static std::set<cudaStream_t> &streams = *new std::set<cudaStream_t>;
static std::set<cudaEvent_t> &events = *new std::set<cudaEvent_t>;
static std::map<int, cudaStream_t> &defaults = *new std::map<int, cudaStream_t>;
static int made;
static thread_local bool in_callback;

using lock_t = std::unique_lock<std::mutex>;

static double now()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the threads ---- */

/* Half of the operations wait, up to 0.3 ms. */
static void delay(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    struct timespec t = { 0, (long)(*state >> 33) % 300000 };
    if (*state >> 63)
        nanosleep(&t, nullptr);
}

static void carry_out(cudaStream_t s)
{
    uint64_t delays = (uint64_t)emu_setting("DPX_EMU_DELAY");
    uint64_t state = (delays + (uint64_t)s->number * 7919) * 0x9e3779b97f4a7c15 | 1;
    lock_t lock(emu_mutex);

    for (;;) {
        s->more.wait(lock, [s] { return s->closing || !s->items.empty(); });
        if (s->items.empty())
            break;
        item next = std::move(s->items.front());
        s->items.pop_front();
        lock.unlock();
        if (delays)
            delay(&state);
        in_callback = true;
        if (!next.callback)
            emu_touch(true);
        next.run();
        if (!next.callback)
            emu_touch(false);
        next.run = nullptr;             /* what it holds goes before the operation counts as done */
        lock.lock();
        s->done++;
        emu_changed.notify_all();
    }
    streams.erase(s);
    emu_changed.notify_all();
    lock.unlock();
    delete s;
}

static cudaStream_t make_stream(int device, bool blocking)
{
    cudaStream_t s = new CUstream_st{};
    sigset_t all, before;

    s->device = device;
    s->number = ++made;
    s->blocking = blocking;
    streams.insert(s);
    /* Signals are for the program's own threads, but for those that a wrong access makes. */
    sigfillset(&all);
    for (int mine : { SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGABRT })
        sigdelset(&all, mine);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(carry_out, s).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return s;
}

/* The stream that is meant, or NULL with *status set.  Under the mutex. */
static cudaStream_t stream_of(cudaStream_t s, cudaError_t *status)
{
    if (in_callback) {
        *status = emu_refuse(cudaErrorNotPermitted, "a CUDA call on a stream's thread");
        return nullptr;
    }
    if (s) {
        if (streams.count(s) && !s->closing)
            return s;
        *status = emu_refuse(cudaErrorInvalidResourceHandle, "a stream that is none, or was destroyed");
        return nullptr;
    }
    int device = emu_current();
    if (device >= emu_devices()) {
        *status = emu_error(cudaErrorNoDevice);
        return nullptr;
    }
    cudaStream_t &d = defaults[device];
    if (!d)
        d = make_stream(device, true);
    return d;
}

static void push(cudaStream_t s, std::function<void()> run, bool callback)
{
    s->queued++;
    s->items.push_back({ std::move(run), callback });
    s->more.notify_one();
}

/* As an operation of one stream: waits for what another has had queued so far. */
static void push_wait(cudaStream_t s, cudaStream_t of)
{
    uint64_t until = of->queued;

    if (s == of || of->done >= until)
        return;
    push(s, [of, until] {
        lock_t lock(emu_mutex);
        emu_changed.wait(lock, [=] { return !streams.count(of) || of->done >= until; });
    }, true);
}

static void order_with_default(cudaStream_t s)
{
    auto d = defaults.find(s->device);

    if (!s->blocking || d == defaults.end())
        return;
    if (s != d->second)
        push_wait(s, d->second);
    else
        for (cudaStream_t other : streams)
            if (other->device == s->device && other->blocking)
                push_wait(s, other);
}

static cudaError_t enqueue(cudaStream_t which, std::function<void()> run, bool callback)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;
    cudaStream_t s = stream_of(which, &status);

    if (!s)
        return status;
    order_with_default(s);
    push(s, std::move(run), callback);
    return cudaSuccess;
}

static void wait_idle(lock_t &lock, cudaStream_t s)
{
    uint64_t until = s->queued;

    emu_changed.wait(lock, [=] { return !streams.count(s) || s->done >= until; });
}

void emu_wait_for_all(int device)
{
    lock_t lock(emu_mutex);
    std::vector<cudaStream_t> now(streams.begin(), streams.end());

    if (in_callback)
        emu_die("a CUDA call that waits, on a stream's own thread");
    for (cudaStream_t s : now)
        if (streams.count(s) && (device < 0 || s->device == device))
            wait_idle(lock, s);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    if (emu_current() >= emu_devices())
        return emu_error(cudaErrorNoDevice);
    lock_t lock(emu_mutex);
    *s = make_stream(emu_current(), !(flags & cudaStreamNonBlocking));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    return cudaStreamCreateWithPriority(s, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, cudaStreamDefault, 0); }

/* What is queued is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    lock_t lock(emu_mutex);

    if (!s || !streams.count(s) || s->closing)
        return emu_refuse(cudaErrorInvalidResourceHandle, "destroys a stream that is none");
    s->closing = true;
    s->more.notify_one();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t which)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;
    cudaStream_t s = stream_of(which, &status);

    if (!s)
        return status;
    if (!which)
        order_with_default(s);
    wait_idle(lock, s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t which)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;
    cudaStream_t s = stream_of(which, &status);

    if (!s)
        return status;
    return s->done == s->queued ? cudaSuccess : emu_error(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (emu_current() >= emu_devices())
        return emu_error(cudaErrorNoDevice);
    emu_wait_for_all(emu_current());
    return cudaSuccess;
}

int emu_stream_device(cudaStream_t which)
{
    lock_t lock(emu_mutex);

    return !which ? emu_current() : streams.count(which) ? which->device : -1;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    return enqueue(s, [=] { fn(arg); }, true);
}

cudaError_t emu_enqueue(cudaStream_t s, const char *, void (*run)(void *), void *arg)
{
    return enqueue(s, [=] { run(arg); }, false);
}

/* ---- events ---- */

static bool valid(cudaEvent_t e, cudaError_t *status)
{
    if (events.count(e))
        return true;
    *status = emu_refuse(cudaErrorInvalidResourceHandle, "an event that is none, or was destroyed");
    return false;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    if (emu_current() >= emu_devices())
        return emu_error(cudaErrorNoDevice);
    lock_t lock(emu_mutex);
    *e = new CUevent_st{ emu_current(), !(flags & cudaEventDisableTiming), nullptr };
    events.insert(*e);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;

    if (!valid(e, &status))
        return status;
    events.erase(e);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t which)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;
    cudaStream_t s = stream_of(which, &status);

    if (!s || !valid(e, &status))
        return status;
    if (s->device != e->device)
        return emu_refuse(cudaErrorInvalidResourceHandle, "an event of device %d on a stream of device %d", e->device,
                          s->device);
    std::shared_ptr<mark> m(new mark{});
    e->last = m;
    order_with_default(s);
    push(s, [m] {
        lock_t inner(emu_mutex);
        m->done = true;
        m->when = now();
    }, true);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t which, cudaEvent_t e, unsigned)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;
    cudaStream_t s = stream_of(which, &status);

    if (!s || !valid(e, &status))
        return status;
    std::shared_ptr<mark> m = e->last;
    if (m && !m->done)
        push(s, [m] {
            lock_t inner(emu_mutex);
            emu_changed.wait(inner, [&] { return m->done; });
        }, true);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;

    if (!valid(e, &status))
        return status;
    return !e->last || e->last->done ? cudaSuccess : emu_error(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;

    if (!valid(e, &status))
        return status;
    std::shared_ptr<mark> m = e->last;
    emu_changed.wait(lock, [&] { return !m || m->done; });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    lock_t lock(emu_mutex);
    cudaError_t status = cudaSuccess;

    if (!valid(start, &status) || !valid(end, &status))
        return status;
    if (!start->timing || !end->timing || !start->last || !end->last)
        return emu_refuse(cudaErrorInvalidResourceHandle, "the time of events without timing, or not recorded");
    if (!start->last->done || !end->last->done)
        return emu_error(cudaErrorNotReady);
    *milliseconds = (float)(1e3 * (end->last->when - start->last->when));
    return cudaSuccess;
}

struct emu_alive emu_alive(void)
{
    struct emu_alive n = { emu_count_allocations(false), emu_count_allocations(true), 0, 0 };
    lock_t lock(emu_mutex);

    n.events = (int)events.size();
    for (cudaStream_t s : streams)
        n.streams += !s->closing;
    for (const auto &d : defaults)
        n.streams -= d.second != nullptr;
    return n;
}

/* ---- copies ---- */

/* What `kind` says must be so.  Sets *kind where it is to be found out. */
static bool copy_is_right(const void *dst, const void *src, size_t bytes, enum cudaMemcpyKind *kind)
{
    bool to = emu_device_of(dst) >= 0, from = emu_device_of(src) >= 0;

    if (*kind == cudaMemcpyDefault)
        *kind = from ? to ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost
                     : to ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
    bool want_to = *kind == cudaMemcpyHostToDevice || *kind == cudaMemcpyDeviceToDevice;
    bool want_from = *kind == cudaMemcpyDeviceToHost || *kind == cudaMemcpyDeviceToDevice;
    return to == want_to && from == want_from && (!to || emu_is_device(dst, bytes)) &&
           (!from || emu_is_device(src, bytes));
}

static cudaError_t wrong_copy(const void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return emu_refuse(cudaErrorInvalidValue, "a copy of %zu bytes, kind %d, to %p (%s) from %p (%s)", bytes, (int)kind,
                      dst, emu_device_of(dst) >= 0 ? "device" : "host", src,
                      emu_device_of(src) >= 0 ? "device" : "host");
}

/* Memory that the device cannot reach by itself is staged: what is copied from is free on return, what is
 * copied to is there on return. */
static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s, bool waits)
{
    if (bytes == 0)
        return cudaSuccess;
    if (!dst || !src || !copy_is_right(dst, src, bytes, &kind))
        return wrong_copy(dst, src, bytes, kind);
    bool host_from = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    bool host_to = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    cudaError_t status;
    if (host_from && !host_to && !emu_is_pinned(src, bytes)) {
        if (waits && (status = cudaStreamSynchronize(s)))
            return status;
        auto staged = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
        return enqueue(s, [=] { memcpy(dst, staged->data(), bytes); }, false);
    }
    status = enqueue(s, [=] { memmove(dst, src, bytes); }, false);
    if (status == cudaSuccess && (waits ? host_from || host_to : host_to && !emu_is_pinned(dst, bytes)))
        status = cudaStreamSynchronize(s);
    return status;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
    return copy(dst, src, bytes, kind, s, false);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy(dst, src, bytes, kind, nullptr, true);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s)
{
    if (bytes == 0)
        return cudaSuccess;
    if (!emu_is_device(dst, bytes))
        return emu_refuse(cudaErrorInvalidValue, "sets %zu bytes at %p, which are not device memory", bytes, dst);
    return enqueue(s, [=] { memset(dst, value, bytes); }, false);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes) { return cudaMemsetAsync(dst, value, bytes, nullptr); }

/* ---- kernels ---- */

static std::map<const void *, int> &allowed = *new std::map<const void *, int>;
static std::atomic<long long> launches;

long long emu_launches(void) { return launches; }

size_t emu_shared_allowed(const void *kernel)
{
    lock_t lock(emu_mutex);
    auto at = allowed.find(kernel);

    return at == allowed.end() ? (size_t)SHARED_PLAIN : (size_t)at->second;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || value > SHARED_MOST)
        return emu_refuse(cudaErrorInvalidValue, "%d bytes of shared memory; the emulated device has %d", value,
                          SHARED_MOST);
    lock_t lock(emu_mutex);
    int &now = allowed[kernel];
    now = value > SHARED_PLAIN ? value : SHARED_PLAIN;
    return cudaSuccess;
}

static void check_pointers(const char *name, const emu_pointer_args *args, int device)
{
    for (int i = 0; i < args->n; i++) {
        allocation a;
        if (!args->p[i])
            continue;
        if (!emu_find(args->p[i], 0, &a))
            emu_die("kernel %s is given %p (its pointer %d), which is not device memory", name, args->p[i], i);
        if (!a.pinned && a.device != device)
            emu_die("kernel %s on device %d is given memory of device %d (its pointer %d)", name, device, a.device, i);
    }
}

static bool sizes_are_right(dim3 grid, dim3 block)
{
    return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535 &&
           block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
           (size_t)block.x * block.y * block.z <= MOST_THREADS;
}

void emu_queue_kernel(const char *name, const void *kernel, std::function<void()> thread, dim3 grid, dim3 block,
                      size_t shared, cudaStream_t s, const emu_pointer_args *pointers)
{
    int device = emu_current();

    if (device >= emu_devices()) {
        emu_error(cudaErrorNoDevice);
        return;
    }
    if (!sizes_are_right(grid, block)) {
        emu_refuse(cudaErrorInvalidConfiguration, "%s: grid %u %u %u of blocks %u %u %u", name, grid.x, grid.y, grid.z,
                   block.x, block.y, block.z);
        return;
    }
    if (shared > emu_shared_allowed(kernel)) {
        emu_refuse(cudaErrorInvalidValue, "%s: %zu bytes of shared memory, and %zu are allowed", name, shared,
                   emu_shared_allowed(kernel));
        return;
    }
    if (emu_stream_device(s) != device) {
        emu_refuse(cudaErrorInvalidResourceHandle, "%s: device %d is set, the stream is of %d", name, device,
                   emu_stream_device(s));
        return;
    }
    check_pointers(name, pointers, device);
    auto l = std::make_shared<launch>(launch{ name, kernel, std::move(thread), grid, block, shared });
    enqueue(s, [l] {
        emu_on_device([&] {
            emu_run_grid(*l);
            emu_check_edges();
        });
        launches++;
    }, false);
}
