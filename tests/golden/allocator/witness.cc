// witness.cc -- the allocator of a released torch wheel, run over cudart_stub.c.
//
//     witness traces FIRST LAST        one line a seed: SEED HASH ALLOCATED ACTIVE RESERVED REQUESTED RETRIES OOMS
//     witness events < EVENTS          the counters after the events of a plan (test_reserved.c writes them)
//
// Options of the allocator are read once a process: each seed has a process of its own.
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <c10/util/Exception.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace.h"

extern "C" void stub_complete(int stream);
extern "C" void stub_complete_until(int stream, long event);

namespace alloc = c10::cuda::CUDACachingAllocator;

// Exported, but in no header: the hook that libtorch_cuda sets.
namespace c10::cuda::_internal { void setHasPrimaryContext(bool (*f)(c10::DeviceIndex)); }

static constexpr size_t ALL = 0;        // StatType::AGGREGATE

struct witness { std::vector<void *> blocks; };

static cudaStream_t stream_of(int s) { return reinterpret_cast<cudaStream_t>(static_cast<size_t>(s) << 8); }

static int w_allocate(void *of, int64_t bytes, int stream)
{
    auto *w = static_cast<witness *>(of);
    try {
        w->blocks.push_back(alloc::get()->raw_alloc_with_stream(static_cast<size_t>(bytes), stream_of(stream)));
    } catch (const c10::OutOfMemoryError &) {
        return -1;
    }
    return static_cast<int>(w->blocks.size()) - 1;
}

static void w_release(void *of, int h) { alloc::get()->raw_delete(static_cast<witness *>(of)->blocks[h]); }

static void w_record(void *of, int h, int stream)
{
    void *p = static_cast<witness *>(of)->blocks[h];
    c10::DataPtr owner(p, p, alloc::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
    alloc::get()->recordStream(owner, c10::cuda::getStreamFromExternal(stream_of(stream), 0));
    owner.release_context();
}

static void w_complete(void *, int stream) { stub_complete(stream); }
static void w_empty(void *) { alloc::get()->emptyCache(); }

static void w_count(void *, struct trace_counters *c)
{
    const auto s = alloc::get()->getDeviceStats(0);

    c->allocated = s.allocated_bytes[ALL].current;
    c->active = s.active_bytes[ALL].current;
    c->reserved = s.reserved_bytes[ALL].current;
    c->requested = s.requested_bytes[ALL].current;
    c->inactive_split = s.inactive_split_bytes[ALL].current;
    c->segments = s.segment[ALL].current;
    c->retries = s.num_alloc_retries;
    c->ooms = s.num_ooms;
    c->allocated_peak = s.allocated_bytes[ALL].peak;
    c->active_peak = s.active_bytes[ALL].peak;
    c->reserved_peak = s.reserved_bytes[ALL].peak;
}

static void start(const std::string &conf, int64_t capacity, double fraction)
{
    setenv("PYTORCH_CUDA_ALLOC_CONF", conf.c_str(), 1);
    setenv("PYTORCH_ALLOC_CONF", conf.c_str(), 1);
    setenv("STUB_CAPACITY", std::to_string(capacity).c_str(), 1);
    // Else the handle's type is found out through NVML.
    alloc::CUDAAllocatorConfig::set_expandable_segments_handle_type(alloc::Expandable_Segments_Handle_Type::POSIX_FD);
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    c10::cuda::detail::init_p2p_access_cache(1);
    alloc::get()->init(1);
    if (fraction > 0)
        alloc::get()->setMemoryFraction(fraction, 0);
}

static std::string conf_of(const struct trace_options &o)
{
    std::string conf = o.expandable ? "expandable_segments:True" : "expandable_segments:False";
    char gc[64];

    if (o.max_split_mb)
        conf += ",max_split_size_mb:" + std::to_string(o.max_split_mb);
    if (o.roundup_divisions)
        conf += ",roundup_power2_divisions:" + std::to_string(o.roundup_divisions);
    if (o.large_segment_mb)
        conf += ",large_segment_size_mb:" + std::to_string(o.large_segment_mb);
    if (o.gc_threshold > 0) {
        snprintf(gc, sizeof gc, ",garbage_collection_threshold:%.17g", o.gc_threshold);
        conf += gc;
    }
    return conf;
}

static void one_seed(uint64_t seed)
{
    struct trace_options o = trace_options_of(seed);
    struct trace_counters c;
    witness w;
    struct trace_target t = { &w, w_allocate, w_release, w_record, w_complete, w_empty, w_count };

    start(conf_of(o), o.capacity, o.fraction);
    uint64_t hash = trace_play(seed, &t, &c);
    printf("%llu %016llx %lld %lld %lld %lld %lld %lld\n", (unsigned long long)seed, (unsigned long long)hash,
           (long long)c.allocated, (long long)c.active, (long long)c.reserved, (long long)c.requested,
           (long long)c.retries, (long long)c.ooms);
}

// "CAPACITY EXPANDABLE", then lines "a HANDLE BYTES STREAM", "f HANDLE", "r HANDLE STREAM", "d STREAM EVENT": the stream is done up to its event;
// "e 0": the cache is emptied.
static void events()
{
    long long capacity, bytes;
    int expandable, handle, stream;
    char what;
    std::unordered_map<int, int> of;
    witness w;
    struct trace_counters c;

    if (scanf("%lld %d", &capacity, &expandable) != 2)
        exit(2);
    start(expandable ? "expandable_segments:True" : "expandable_segments:False", capacity, 0);
    while (scanf(" %c %d", &what, &handle) == 2) {
        if (what == 'a' && scanf("%lld %d", &bytes, &stream) == 2)
            of[handle] = w_allocate(&w, bytes, stream);
        else if (what == 'f' && of[handle] >= 0)
            w_release(&w, of[handle]);
        else if (what == 'r' && scanf("%d", &stream) == 1)
            w_record(&w, of[handle], stream);
        else if (what == 'd' && scanf("%lld", &bytes) == 1)
            stub_complete_until(handle, bytes);
        else if (what == 'e')
            alloc::get()->emptyCache();
    }
    w_count(&w, &c);
    printf("%lld %lld %lld %lld %lld %lld %lld %lld\n", (long long)c.allocated, (long long)c.active,
           (long long)c.reserved, (long long)c.allocated_peak, (long long)c.active_peak, (long long)c.reserved_peak,
           (long long)c.retries, (long long)c.ooms);
}

static int in_a_process(void (*f)(uint64_t), uint64_t seed)
{
    int status;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        f(seed);
        fflush(stdout);
        _exit(0);
    }
    return child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && std::string(argv[1]) == "traces") {
        for (uint64_t seed = strtoull(argv[2], nullptr, 10); seed <= strtoull(argv[3], nullptr, 10); seed++)
            if (in_a_process(one_seed, seed)) {
                fprintf(stderr, "seed %llu failed\n", (unsigned long long)seed);
                return 1;
            }
        return 0;
    }
    if (argc == 2 && std::string(argv[1]) == "events") {
        events();
        fflush(stdout);
        _exit(0);
    }
    fprintf(stderr, "usage: witness traces FIRST LAST | events\n");
    return 2;
}
