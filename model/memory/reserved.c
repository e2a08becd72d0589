/* reserved.c -- see reserved.h. */
#include "model/memory/reserved.h"

#include <string.h>

#include "base/fail.h"
#include "model/plan/graphs.h"
#include "model/plan/loss_check.h"

#define A_DEVICE_WITH_ROOM ((int64_t)1 << 48)

static int  allocate(void *of, int64_t bytes, int stream)        { return caching_allocator_malloc(of, bytes, stream); }
static void release(void *of, int block)                         { caching_allocator_free(of, block); }
static void record(void *of, int block, int stream)              { caching_allocator_record_stream(of, block, stream); }
static void complete(void *of, int stream, int64_t event)        { caching_allocator_complete_until(of, stream, event); }
static int64_t events(void *of, int stream)                      { return caching_allocator_events(of, stream); }
static void empty(void *of)                                      { caching_allocator_empty_cache(of); }
static int64_t state(void *of, int64_t *out)                     { return caching_allocator_state(of, out); }
static int  number(void *of, int block)                          { return caching_allocator_number(of, block); }
static int64_t address(void *of, int block)                      { return caching_allocator_address(of, block); }
static int64_t completed(void *of, int stream)                   { return caching_allocator_completed(of, stream); }
static void keep(void *of, int stream)                           { caching_allocator_keep(of, stream); }
static int  touch(void *of, int64_t bytes, int stream)           { return caching_allocator_touch(of, bytes, stream); }
static int  serve(void *of, const struct caching_step *steps, int n, int stream, int *block, uint64_t *trail)
{
    return caching_allocator_serve(of, steps, n, stream, block, trail);
}
static void watch(void *of, const int *held, int n)              { caching_allocator_watch(of, held, n); }
static bool follow(void *of, const int *held, int n)             { return caching_allocator_follow(of, held, n); }
static bool met(void *of)                                        { return caching_allocator_met(of); }

struct request_target reserved_target(struct caching_allocator *a)
{
    return (struct request_target){ .of = a, .allocate = allocate, .release = release, .record = record, .complete = complete, .events = events,
                                    .stats = caching_allocator_stats(a), .empty = empty, .keep = keep, .touch = touch, .serve = serve,
                                    .watch = watch, .follow = follow, .met = met, .state = state, .number = number, .address = address, .completed = completed };
}

/* Those of the plan's environment, which was checked with the plan. */
static struct caching_options options_of(const struct plan *p)
{
    struct caching_options o = caching_allocator_defaults();

    if (*p->environment.alloc_conf)
        caching_allocator_configure(&o, p->environment.alloc_conf);
    return o;
}

struct request_options reserved_options(const struct plan *p)
{
    return (struct request_options){ .workspace = overhead_workspace(p),
                                     .workspace_kept = overhead_keeps_workspaces(p), .statics = graphs_static_bytes(p), .logits = loss_stays_bytes(p),
                                     .proven = options_of(p).expandable_segments };
}

/* A request that is freed and was never made, or freed twice: the figures would be those of another plan. */
static int check(const struct plan *p, const struct schedules *s, int64_t unmatched)
{
    if (unmatched != 0 && p->model.recorded)
        return fail("%s: programs: they free %lld tensors that they did not make: what was recorded is no whole step", p->model.name, (long long)unmatched);
    return unmatched == 0 ? 0 : fail("internal error: the replay of PyTorch's allocator on rank %lld frees %lld tensors that were never made: "
                                     "please report this plan", (long long)s->rank, (long long)unmatched);
}

/* -1: reported, no replay of this plan. */
static int replay(const struct plan *p, const struct schedules *s, int64_t capacity,
                   const struct caching_options *conf, struct reserved *out)
{
    struct caching_options own = options_of(p);
    struct caching_allocator *a = caching_allocator_new(capacity, conf ? conf : &own);
    const struct caching_stats *c = caching_allocator_stats(a);
    struct request_target t = reserved_target(a);
    struct request_report r;

    requests_walk(p, s, reserved_options(p), &t, &r);
    out->allocated_peak = c->allocated.peak;
    out->active_peak = c->active.peak;
    out->reserved_peak = c->reserved.peak;
    out->idle = c->idle_at_peak;
    out->inactive_split = c->inactive_split.peak;
    out->retries = r.retries;
    out->steady_retries = r.out_of_memory ? 0 : r.steady_retries;
    out->steady_calls = r.out_of_memory ? 0 : r.steady_calls;
    out->requests = r.requests;
    if (r.out_of_memory) {
        out->refused = r.refused;
        out->then_allocated = c->allocated.now;
        out->then_reserved = c->reserved.now;
        out->sched = r.sched;
        out->op = r.op;
        out->iteration = r.iteration;
    }
    out->out_of_memory = r.out_of_memory;
    caching_allocator_delete(a);
    return check(p, s, r.unmatched);
}

bool reserved_is_known(const struct plan *p)
{
    bool followed = p->dialect != DIALECT_PAPER || p->parallel.pipeline < 2;

    return p->kernels != KERNELS_DPX && !p->cluster.is_host && followed;
}

static void see_driver(const struct plan *p, const struct overhead *o, struct reserved *out)
{
    const struct cluster *c = &p->cluster;

    /* The driver's own reserve is in no process. */
    out->driver = out->reserved_peak + o->by[OVERHEAD_OUTSIDE] + c->context -
                  (c->context >= c->gpu.reserved ? c->gpu.reserved : 0);
}

int reserved_within(const struct plan *p, const struct schedules *s, const struct overhead *o,
                    const struct caching_options *conf, struct reserved *out)
{
    const struct cluster *c = &p->cluster;
    int rc = 0;

    memset(out, 0, sizeof *out);
    out->known = reserved_is_known(p);
    if (!out->known)
        return 0;
    out->limit = c->memory - c->context - o->by[OVERHEAD_OUTSIDE];
    out->without_headroom = cluster_available(c) - o->by[OVERHEAD_OUTSIDE];
    out->out_of_memory = true;
    if (out->limit > 0)
        rc = replay(p, s, out->limit, conf, out);
    see_driver(p, o, out);
    out->known = rc == 0;
    return rc;
}

int reserved_of(const struct plan *p, const struct schedules *s, const struct overhead *o,
                const struct caching_options *conf, struct reserved *out)
{
    if (reserved_within(p, s, o, conf, out) < 0)
        return -1;
    if (!out->out_of_memory)
        return 0;
    if (replay(p, s, A_DEVICE_WITH_ROOM, conf, out) < 0) {
        out->known = false;
        return -1;
    }
    if (out->out_of_memory) {           /* no address space has it: what would be reserved is not known */
        memset(out, 0, sizeof *out);
        return 0;
    }
    out->out_of_memory = true;
    see_driver(p, o, out);
    return 0;
}

int reserved_left_of(const struct plan *p, const struct schedules *s, const struct caching_options *conf, struct reserved_left *out)
{
    memset(out, 0, sizeof *out);
    if (!reserved_is_known(p))
        return 0;
    struct caching_options own = options_of(p);
    struct caching_allocator *a = caching_allocator_new(A_DEVICE_WITH_ROOM, conf ? conf : &own);
    const struct caching_stats *c = caching_allocator_stats(a);
    struct request_target t = reserved_target(a);
    struct request_report r;

    t.watch = NULL;                 /* the last step is walked to its end */
    requests_walk(p, s, reserved_options(p), &t, &r);
    out->live = c->allocated.now;
    out->kept = c->reserved.now;
    caching_allocator_empty_cache(a);
    out->emptied = c->reserved.now;
    caching_allocator_delete(a);
    out->known = check(p, s, r.unmatched) == 0;
    return out->known ? 0 : -1;
}

enum verdict reserved_verdict(const struct reserved *r, bool fits)
{
    if (!r->known)
        return fits ? VERDICT_FITS : VERDICT_DOES_NOT_FIT;
    if (r->out_of_memory)
        return VERDICT_DOES_NOT_FIT;
    return r->retries > 0 || r->reserved_peak > r->without_headroom ? VERDICT_TIGHT : VERDICT_FITS;
}

const char *verdict_name(enum verdict v)
{
    static const char *const names[] = { "fits", "tight", "does not fit" };

    return names[v];
}

static json_t *bytes_or_null(bool known, int64_t bytes) { return known ? json_integer(bytes) : json_null(); }

void reserved_into(json_t *memory, const struct reserved *r)
{
    json_object_set_new(memory, "active_peak_bytes", bytes_or_null(r->known, r->active_peak));
    json_object_set_new(memory, "reserved_peak_bytes", bytes_or_null(r->known, r->reserved_peak));
    json_object_set_new(memory, "driver_bytes", bytes_or_null(r->known, r->driver));
    json_object_set_new(memory, "allocator", !r->known ? json_null() :
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "allocated_peak_bytes", (json_int_t)r->allocated_peak,
                  "idle_bytes", (json_int_t)r->idle, "inactive_split_bytes", (json_int_t)r->inactive_split,
                  "retries", (json_int_t)r->retries, "retries_per_step", (json_int_t)r->steady_retries,
                  "limit_bytes", (json_int_t)r->limit));
}
