/* nccl.cc -- NCCL for the emulator: ranks are processes of one machine, which meet in a segment of
 * shared memory that the id names.
 *
 * What dpx must cope with is kept: a non-blocking communicator answers ncclInProgress, a thread of its own
 * puts the work on the stream a moment later, the work is done when the stream comes to it, and waits
 * there for the other ranks.  A rank that dies or aborts is an ncclRemoteError to the others, whose work
 * goes on waiting until it is aborted.
 * Sums are made in rank order, rounded to the type after each addition.  A segment is unlinked when
 * all have come, so that nothing stays behind. */
#include "tests/emu/include/nccl.h"

#include "exec/kernels/half.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_runtime.h>

namespace {

enum { MOST_RANKS = 16, SLOT = 1 << 20, MAIL = 64 << 10 };

/* From one rank to another: filled when put == taken + 1. */
struct mailbox {
    std::atomic<uint64_t> put, taken;
    char data[MAIL];
};

struct segment {
    std::atomic<int>      came;
    std::atomic<int>      pid[MOST_RANKS];
    std::atomic<bool>     gone[MOST_RANKS];         /* aborted */
    std::atomic<bool>     left[MOST_RANKS];         /* closed as it should */
    std::atomic<uint64_t> phase[MOST_RANKS];        /* barriers that a rank has come to */
    mailbox               mail[MOST_RANKS][MOST_RANKS];
    alignas(64) char      slot[MOST_RANKS][SLOT];
};

struct premul { bool used; double scalar; };

/* What a communicator's thread, its streams and its owner share: it lives as long as any of them. */
struct state {
    segment *seg = nullptr;
    std::string name;
    int rank = 0, n = 0;
    bool unlinked = false;
    std::atomic<bool> aborted{ false };
    std::atomic<int>  result{ ncclSuccess };        /* what ncclCommGetAsyncError says, but for: */
    std::atomic<int>  pending{ 0 };                 /* work not yet on its stream */
    std::atomic<int>  queued{ 0 };                  /* on its stream, not done */
    std::map<int, premul> ops;
    int next_op = ncclNumOps;

    std::mutex lock;
    std::condition_variable change;
    std::deque<std::function<void()>> work;
    bool closing = false;

    ~state()
    {
        if (seg)
            munmap(seg, sizeof *seg);
    }
};

typedef std::shared_ptr<state> shared_state;

}  // namespace

struct ncclComm {
    shared_state s;
    std::thread  thread;
    bool         blocking;
};

namespace {

std::string last_error;

/* ---- waiting for the other ranks ---- */

bool is_lost(const state *s, int r)
{
    int pid = s->seg->pid[r];

    if (s->seg->left[r] || r == s->rank)
        return false;
    return s->seg->gone[r] || (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH);
}

/* false: it was aborted.  With a rank lost it waits on, as NCCL's kernels do, until that. */
template <typename F> bool wait_until(state *s, F ready)
{
    for (int i = 0; !ready(); i++) {
        if (s->aborted)
            return false;
        for (int r = 0; r < s->n && i % 64 == 63; r++)
            if (is_lost(s, r))
                s->result = ncclRemoteError;
        if (i < 200)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
}

bool barrier(state *s)
{
    uint64_t phase = ++s->seg->phase[s->rank];

    return wait_until(s, [=] {
        for (int r = 0; r < s->n; r++)
            if (s->seg->phase[r] < phase)
                return false;
        return true;
    });
}

/* ---- elements ---- */

size_t size_of(ncclDataType_t t)
{
    switch (t) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
    }
}

struct bf16 { uint16_t bits; };

float wide(bf16 x)
{
    uint32_t u = (uint32_t)x.bits << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

bf16 narrow(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if (f != f)
        return bf16{ 0x7fff };
    return bf16{ (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16) };
}

/* Bits as exec/kernels/half.h has them. */
struct fp16 { uint16_t bits; };

float wide(fp16 x) { return half_from_fp16(x.bits); }
fp16 narrow16(float f) { return fp16{ half_to_fp16(f) }; }

template <typename T> struct number {
    static double in(T x) { return (double)x; }
    static T add(T a, T b) { return (T)(a + b); }
    static T max(T a, T b) { return a > b ? a : b; }
    static T min(T a, T b) { return a < b ? a : b; }
    static T times(T a, double by) { return (T)(a * (T)by); }
    static T over(T a, int n) { return (T)(a / (T)n); }
};

/* 16 bits: computed in fp32, rounded after each operation. */
template <typename T, T (*rounded)(float)> struct half_number {
    static double in(T x) { return (double)wide(x); }
    static T add(T a, T b) { return rounded(wide(a) + wide(b)); }
    static T max(T a, T b) { return wide(a) > wide(b) ? a : b; }
    static T min(T a, T b) { return wide(a) < wide(b) ? a : b; }
    static T times(T a, double by) { return rounded(wide(a) * (float)by); }
    static T over(T a, int n) { return rounded(wide(a) / (float)n); }
};
template <> struct number<bf16> : half_number<bf16, narrow> {};
template <> struct number<fp16> : half_number<fp16, narrow16> {};

struct reduction { ncclRedOp_t op; premul first; };

/* out[i] = x[0][i] + x[1][i] + ... */
template <typename T> void reduce(const state *s, const reduction &r, T *out, const std::vector<const char *> &x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        T sum = ((const T *)(const void *)x[0])[i];
        for (int k = 1; k < s->n; k++) {
            T next = ((const T *)(const void *)x[(size_t)k])[i];
            sum = r.op == ncclMax ? number<T>::max(sum, next) : r.op == ncclMin ? number<T>::min(sum, next)
                                                                                : number<T>::add(sum, next);
        }
        out[i] = r.op == ncclAvg ? number<T>::over(sum, s->n) : sum;
    }
}

void reduce_type(const state *s, ncclDataType_t t, const reduction &r, void *out, const std::vector<const char *> &x,
                 size_t n)
{
    switch (t) {
    case ncclFloat32:  reduce(s, r, (float *)out, x, n); break;
    case ncclFloat64:  reduce(s, r, (double *)out, x, n); break;
    case ncclBfloat16: reduce(s, r, (bf16 *)out, x, n); break;
    case ncclFloat16:  reduce(s, r, (fp16 *)out, x, n); break;
    case ncclInt32:    reduce(s, r, (int32_t *)out, x, n); break;
    case ncclInt64:    reduce(s, r, (int64_t *)out, x, n); break;
    case ncclUint8:    reduce(s, r, (uint8_t *)out, x, n); break;
    default:           fprintf(stderr, "emulated NCCL: type %d\n", (int)t); abort();
    }
}

template <typename T> void scale(T *x, size_t n, double by)
{
    for (size_t i = 0; i < n; i++)
        x[i] = number<T>::times(x[i], by);
}

void scale_type(ncclDataType_t t, void *x, size_t n, double by)
{
    switch (t) {
    case ncclFloat32:  scale((float *)x, n, by); break;
    case ncclFloat64:  scale((double *)x, n, by); break;
    case ncclBfloat16: scale((bf16 *)x, n, by); break;
    case ncclFloat16:  scale((fp16 *)x, n, by); break;
    default:           fprintf(stderr, "emulated NCCL: a product of type %d\n", (int)t); abort();
    }
}

/* ---- collectives: what the stream runs ---- */

/* Each rank gives `in` parts of `each` elements, and gets `out`. */
struct collective {
    int in, out;
    size_t each;
    const char *send;
    char *recv;
    ncclDataType_t type;
    bool reduces, whole;    /* whole: out of a single rank's slot, `root`'s */
    int root;
    reduction red;
};

/* Elements [at, at + m) of every part. */
bool piece(state *s, const collective &c, size_t at, size_t m)
{
    size_t e = size_of(c.type), bytes = m * e;
    char *mine = s->seg->slot[s->rank];

    for (int i = 0; i < c.in; i++)
        memcpy(mine + (size_t)i * bytes, c.send + ((size_t)i * c.each + at) * e, bytes);
    if (c.red.first.used)
        scale_type(c.type, mine, (size_t)c.in * m, c.red.first.scalar);
    if (!barrier(s))
        return false;
    for (int i = 0; i < c.out; i++) {
        char *to = c.recv + ((size_t)i * c.each + at) * e;
        if (c.reduces) {                    /* this rank's part of every rank's, or the only one */
            std::vector<const char *> x;
            for (int r = 0; r < s->n; r++)
                x.push_back(s->seg->slot[r] + (c.in > 1 ? (size_t)s->rank * bytes : 0));
            reduce_type(s, c.type, c.red, to, x, m);
        } else {
            memcpy(to, s->seg->slot[c.whole ? c.root : i], bytes);
        }
    }
    return barrier(s);
}

bool run_collective(state *s, const collective &c)
{
    int parts = c.reduces && c.in == s->n ? s->n : 1;
    size_t most = SLOT / size_of(c.type) / (size_t)parts;

    for (size_t at = 0; at < c.each; at += most)
        if (!piece(s, c, at, c.each - at < most ? c.each - at : most))
            return false;
    return true;
}

struct message { bool sends; int peer; const char *send; char *recv; size_t bytes, done; };

/* As far as it goes without waiting. */
void advance(state *s, message *m)
{
    mailbox *box = m->sends ? &s->seg->mail[s->rank][m->peer] : &s->seg->mail[m->peer][s->rank];
    size_t n = m->bytes - m->done < MAIL ? m->bytes - m->done : (size_t)MAIL;

    if (m->done == m->bytes || (m->sends ? box->put != box->taken : box->put == box->taken))
        return;
    if (m->sends) {
        memcpy(box->data, m->send + m->done, n);
        ++box->put;
    } else {
        memcpy(m->recv + m->done, box->data, n);
        ++box->taken;
    }
    m->done += n;
}

bool run_messages(state *s, std::vector<message> *all)
{
    return wait_until(s, [=] {
        bool done = true;
        for (message &m : *all) {
            advance(s, &m);
            done = done && m.done == m.bytes;
        }
        return done;
    });
}

/* ---- onto a stream ---- */

struct job { shared_state s; std::function<bool(state *)> run; };

void run_job(void *arg)
{
    std::unique_ptr<job> j((job *)arg);

    if (!j->s->aborted && j->s->result == ncclSuccess)
        j->run(j->s.get());
    --j->s->queued;
}

void put_on_stream(const shared_state &s, cudaStream_t stream, std::function<bool(state *)> run)
{
    ++s->queued;
    if (emu_enqueue(stream, "NCCL", run_job, new job{ s, std::move(run) }) != cudaSuccess)
        s->result = ncclUnhandledCudaError;
    --s->pending;
}

ncclResult_t submit(ncclComm_t c, cudaStream_t stream, std::function<bool(state *)> run)
{
    shared_state s = c->s;

    if (s->result != ncclSuccess)
        return (ncclResult_t)s->result.load();
    ++s->pending;
    if (c->blocking) {
        put_on_stream(s, stream, std::move(run));
        return ncclSuccess;
    }
    {
        std::lock_guard<std::mutex> hold(s->lock);
        s->work.push_back([=] { put_on_stream(s, stream, run); });
    }
    s->change.notify_one();
    return ncclInProgress;
}

/* A moment late, as NCCL may be: whoever marks the stream before sees it in wrong results. */
void serve(shared_state s)
{
    std::unique_lock<std::mutex> hold(s->lock);

    for (;;) {
        s->change.wait(hold, [&] { return s->closing || !s->work.empty(); });
        if (s->work.empty())
            return;
        std::function<void()> next = std::move(s->work.front());
        s->work.pop_front();
        hold.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        next();
        hold.lock();
    }
}

/* ---- groups of sends and receives ---- */

/* Memory of the host is what a device cannot reach. */
bool is_there(const void *p, size_t bytes)
{
    return bytes == 0 || emu_is_device(p, bytes) || emu_is_pinned(p, bytes);
}

struct group { int depth = 0; ncclComm_t comm = nullptr; cudaStream_t stream = nullptr; std::vector<message> all; };

thread_local group now;

ncclResult_t end_group()
{
    auto all = std::make_shared<std::vector<message>>(std::move(now.all));
    ncclComm_t c = now.comm;

    now.all.clear();
    now.comm = nullptr;
    if (!c || all->empty())
        return ncclSuccess;
    return submit(c, now.stream, [=](state *s) { return run_messages(s, all.get()); });
}

ncclResult_t add_message(ncclComm_t c, cudaStream_t stream, const message &m)
{
    if (m.peer < 0 || m.peer >= c->s->n || (now.comm && now.comm != c) ||
        !is_there(m.sends ? m.send : m.recv, m.bytes)) {
        last_error = "a peer or a buffer is wrong";
        return ncclInvalidArgument;
    }
    now.comm = c;
    now.stream = stream;
    now.all.push_back(m);
    return now.depth > 0 ? ncclSuccess : end_group();
}

/* ---- opening ---- */

std::string segment_name(const ncclUniqueId &id)
{
    return std::string(id.internal, strnlen(id.internal, sizeof id.internal));
}

bool map_segment(state *s)
{
    int fd = shm_open(s->name.c_str(), O_RDWR | O_CREAT, 0600);
    void *p = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(segment)) == 0)
        p = mmap(nullptr, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    s->seg = p == MAP_FAILED ? nullptr : (segment *)p;
    return s->seg != nullptr;
}

void meet(shared_state s)
{
    s->seg->pid[s->rank] = (int)getpid();
    ++s->seg->came;
    wait_until(s.get(), [=] { return s->seg->came >= s->n; });
    shm_unlink(s->name.c_str());            /* only the first finds it */
    --s->pending;
}

int new_op(state *s, double scalar)
{
    std::lock_guard<std::mutex> hold(s->lock);

    s->ops[s->next_op] = premul{ true, scalar };
    return s->next_op++;
}

reduction reduction_of(const shared_state &s, ncclRedOp_t op)
{
    std::lock_guard<std::mutex> hold(s->lock);
    auto found = s->ops.find(op);

    return found == s->ops.end() ? reduction{ op, premul{ false, 1 } } : reduction{ ncclSum, found->second };
}

void end_thread(ncclComm_t c)
{
    {
        std::lock_guard<std::mutex> hold(c->s->lock);
        c->s->closing = true;
    }
    c->s->change.notify_one();
    if (c->thread.joinable())
        c->thread.join();
}

ncclResult_t start(ncclComm_t c, cudaStream_t stream, const collective &what)
{
    size_t part = what.each * size_of(what.type);

    if (!is_there(what.send, part * (size_t)what.in) || !is_there(what.recv, part * (size_t)what.out)) {
        last_error = "a buffer is not in device memory";
        return ncclInvalidArgument;
    }
    return submit(c, stream, [=](state *s) { return run_collective(s, what); });
}

}  // namespace

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<int> made{ 0 };
    auto now_ns = std::chrono::steady_clock::now().time_since_epoch().count();

    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/dpx-emu-%d-%d-%lld", (int)getpid(), ++made, (long long)now_ns);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    auto s = std::make_shared<state>();

    if (nranks < 1 || nranks > MOST_RANKS || rank < 0 || rank >= nranks)
        return ncclInvalidArgument;
    s->name = segment_name(id);
    s->rank = rank;
    s->n = nranks;
    if (s->name.compare(0, 9, "/dpx-emu-") != 0) {
        last_error = "this is not an id";
        return ncclInvalidArgument;
    }
    if (!map_segment(s.get())) {
        last_error = "shm_open failed";
        return ncclSystemError;
    }
    ncclComm_t c = new ncclComm{ s, std::thread(), !config || config->blocking != 0 };
    *comm = c;
    ++s->pending;
    if (c->blocking) {
        meet(s);
        return (ncclResult_t)s->result.load();
    }
    s->work.push_back([=] { meet(s); });
    c->thread = std::thread(serve, s);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    *result = (ncclResult_t)comm->s->result.load();
    for (int r = 0; r < comm->s->n && *result == ncclSuccess; r++)
        if (is_lost(comm->s.get(), r))
            *result = ncclRemoteError;
    if (*result == ncclSuccess && comm->s->pending > 0)
        *result = ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    shared_state s = comm->s;

    ++s->pending;
    std::lock_guard<std::mutex> hold(s->lock);
    s->work.push_back([=] {
        while (s->queued > 0 && !s->aborted)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        s->seg->left[s->rank] = true;
        --s->pending;
    });
    s->change.notify_one();
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    comm->s->seg->left[comm->s->rank] = true;
    end_thread(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->s->aborted = true;
    comm->s->seg->gone[comm->s->rank] = true;
    shm_unlink(comm->s->name.c_str());
    end_thread(comm);
    delete comm;                    /* what is queued holds the state, and ends at once */
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const names[] = { "no error", "unhandled cuda error", "unhandled system error", "internal error",
                                         "invalid argument", "invalid usage", "remote process exited or there was a "
                                         "network error", "NCCL operation in progress" };

    return names[r];
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error.c_str();
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm)
{
    double by = type == ncclFloat64 ? *(double *)scalar
              : type == ncclBfloat16 ? (double)wide(*(bf16 *)scalar)
              : type == ncclFloat16 ? (double)wide(*(fp16 *)scalar) : (double)*(float *)scalar;

    *op = (ncclRedOp_t)new_op(comm->s.get(), by);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(comm->s->lock);

    return comm->s->ops.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return start(comm, stream, { 1, 1, n, (const char *)send, (char *)recv, type, true, false, 0,
                                 reduction_of(comm->s, op) });
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return start(comm, stream, { 1, comm->s->rank == root, n, (const char *)send, (char *)recv, type, true, false, root,
                                 reduction_of(comm->s, op) });
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return start(comm, stream, { comm->s->rank == root, 1, n, (const char *)send, (char *)recv, type, false, true, root,
                                 { ncclSum, { false, 1 } } });
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t each, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return start(comm, stream, { 1, comm->s->n, each, (const char *)send, (char *)recv, type, false, false, 0,
                                 { ncclSum, { false, 1 } } });
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t each, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return start(comm, stream, { comm->s->n, 1, each, (const char *)send, (char *)recv, type, true, false, 0,
                                 reduction_of(comm->s, op) });
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return add_message(comm, stream, { true, peer, (const char *)send, nullptr, n * size_of(type), 0 });
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return add_message(comm, stream, { false, peer, nullptr, (char *)recv, n * size_of(type), 0 });
}

ncclResult_t ncclGroupStart(void)
{
    now.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return --now.depth > 0 ? ncclSuccess : end_group();
}
