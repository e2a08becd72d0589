/* caching_allocator.h -- what PyTorch's CUDA caching allocator reserves for a stream of requests.
 *
 *     struct caching_allocator *a = caching_allocator_new(80LL << 30, NULL);
 *     int x = caching_allocator_malloc(a, 100, 0);             100 bytes on stream 0; -1: out of memory
 *     caching_allocator_free(a, x);
 *     caching_allocator_stats(a)->reserved.peak                2097152
 *     caching_allocator_delete(a);
 *
 * The rules are those of c10/cuda/CUDACachingAllocator.cpp, the same in torch 2.11 to 2.15: requests in
 * multiples of 512 bytes; a pool for requests up to 1 MiB and one above; segments of 2 MiB, 20 MiB or the
 * request in multiples of 2 MiB; best fit among the free blocks of the request's own stream; splits and
 * merges within a segment; a block that another stream uses stays active until a later request finds its
 * events completed; when the device is full, every unsplit free segment is given back once and the request
 * tried again.  tests/golden/allocator has traces recorded from the allocator of released wheels.
 *
 * The private pool of CUDA graphs that share one and are captured on one stream is a stream here of which nothing is given back
 * (caching_allocator_keep()).
 *
 * Bytes throughout.  Not here: other private pools (MemPool). */
#ifndef DPX_CACHING_ALLOCATOR_H
#define DPX_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

enum { CACHING_STREAMS = 32 };

/* PYTORCH_CUDA_ALLOC_CONF under its own names; caching_allocator_defaults() are those of torch 2.11 to 2.15. */
struct caching_options {
    bool    expandable_segments;
    int64_t max_split_size;             /* INT64_MAX: unlimited */
    int64_t max_non_split_rounding;
    int64_t large_segment_size;
    int64_t roundup_power2_divisions;   /* 0: off */
    double  garbage_collection_threshold;   /* no effect without a fraction below 1 */
    double  fraction;                   /* of capacity, set_per_process_memory_fraction(); 1: all */
    /* Which of equally large free blocks is taken goes by their addresses.  Those of segments fall, as NVIDIA's driver maps them (580.159 on H100, CUDA 13.0:
     * tests/gpu/h100, history-*.json.gz, whose holes it fills too, which is not followed); this: they rise, as a stub of the driver may hand them out. */
    bool    addresses_rise;
};

struct caching_meter { int64_t now, peak; };

struct caching_stats {
    struct caching_meter allocated;     /* blocks handed out, rounded: memory_allocated() */
    struct caching_meter active;        /* and those freed whose events are pending */
    struct caching_meter reserved;      /* segments, mapped pages: memory_reserved() */
    struct caching_meter requested;     /* as asked for, of active blocks */
    struct caching_meter inactive_split;    /* free parts of split segments; not of expandable ones */
    int64_t segments;                   /* from cudaMalloc; expandable ones are not counted */
    int64_t retries, ooms;              /* num_alloc_retries, num_ooms */
    int64_t device_allocs, device_frees;
    int64_t idle_at_peak;               /* reserved less active once reserved has reached its peak */
};

struct caching_allocator;

struct caching_options caching_allocator_defaults(void);
/* Sets options from text such as "expandable_segments:True,max_split_size_mb:64".  0, or -1 with the reason reported:
 * an unknown key or value, or a key that is not replayed. */
int caching_allocator_configure(struct caching_options *o, const char *conf);

/* A device of `capacity` bytes beside what others hold on it; NULL: the defaults. */
struct caching_allocator *caching_allocator_new(int64_t capacity, const struct caching_options *o);
/* Others on the device take or leave some of it: from now on it has so many bytes.  What is reserved stays. */
void caching_allocator_resize(struct caching_allocator *a, int64_t capacity);
void caching_allocator_delete(struct caching_allocator *a);     /* accepts NULL */

/* A block of at least `bytes` > 0 for `stream`: its handle, valid until it is freed.  -1: out of memory. */
int  caching_allocator_malloc(struct caching_allocator *a, int64_t bytes, int stream);
void caching_allocator_free(struct caching_allocator *a, int block);
/* Both at once, of a block that nobody else sees: 0, or -1 as malloc. */
int  caching_allocator_touch(struct caching_allocator *a, int64_t bytes, int stream);
/* Many of these in a row, on one stream: block[at] becomes a block, is freed, or is touched. */
enum caching_do { CACHING_MALLOC, CACHING_FREE, CACHING_TOUCH };
struct caching_step { int64_t bytes; int32_t at; uint8_t what; };
/* n, or the step that ran out of memory; none behind it is done.  `trail`, NULL or a number to which the addresses of blocks are added. */
int  caching_allocator_serve(struct caching_allocator *a, const struct caching_step *steps, int n, int stream, int *block, uint64_t *trail);
/* record_stream(): the block is used again only after the work issued on `stream` until it is freed. */
void caching_allocator_record_stream(struct caching_allocator *a, int block, int stream);
/* Work of `stream` is done: all that was issued so far, or what was before its event number `event`
 * (counted from 1 as frees record them: caching_allocator_events()). */
void caching_allocator_complete(struct caching_allocator *a, int stream);
void caching_allocator_complete_until(struct caching_allocator *a, int stream, int64_t event);
/* Events that frees have recorded on `stream` so far; and those of them that are done. */
int64_t caching_allocator_events(const struct caching_allocator *a, int stream);
int64_t caching_allocator_completed(const struct caching_allocator *a, int stream);
/* Nothing of this stream's pool is given back to the device, by a full device or an emptied cache: a graph holds its addresses. */
void caching_allocator_keep(struct caching_allocator *a, int stream);
/* torch.cuda.empty_cache(). */
void caching_allocator_empty_cache(struct caching_allocator *a);

/* Requests that are made twice.  Before the first time: caching_allocator_watch(); before the second one caching_allocator_follow(), which
 * returns false where nothing will be known.  Then caching_allocator_met(): is the state what it was at this place the first time, so
 * that the rest would be served as then, no peak rise, and nothing be asked of the device?
 * `held`: the n blocks that the caller holds, both times in the same order. */
void caching_allocator_watch(struct caching_allocator *a, const int *held, int n);
bool caching_allocator_follow(struct caching_allocator *a, const int *held, int n);
bool caching_allocator_met(const struct caching_allocator *a);

/* torch.cuda.reset_peak_memory_stats(). */
void caching_allocator_restart_peaks(struct caching_allocator *a);

/* As of now; valid while the allocator is. */
const struct caching_stats *caching_allocator_stats(const struct caching_allocator *a);

/* Numbers that decide, for the same requests on blocks of the same numbers, the same answers: into out[] (NULL: none), how many there
 * are.  Events count by how many were recorded since.  -1: where lookups are counted no state comes again. */
int64_t caching_allocator_state(struct caching_allocator *a, int64_t *out);
/* Of a block that was there when the state was last written to out[]: its place in the order of addresses. */
int caching_allocator_number(const struct caching_allocator *a, int block);
/* Of a block that is allocated. */
int64_t caching_allocator_address(const struct caching_allocator *a, int block);

/* A block of a segment, handed out or free.  `segment`: the address of its first block. */
struct caching_piece {
    int64_t segment, addr, size, requested;     /* requested: of one that is handed out, or that events hold */
    int     stream;
    bool    small, allocated, pending;          /* pending: freed, and its events are not done */
};
/* Calls take() for each piece that is mapped, in the order of addresses: those of a segment follow each other. */
void caching_allocator_each(const struct caching_allocator *a, void (*take)(void *to, const struct caching_piece *p), void *to);

/* false where an invariant is broken; for tests.  O(blocks). */
bool caching_allocator_check(const struct caching_allocator *a);

#endif
