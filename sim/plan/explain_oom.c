/* explain_oom.c -- why a run died: the figures of PyTorch's message beside the plan's, what it was, and what would make
 * it fit. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "base/sort.h"
#include "sim/plan/commands.h"
#include "sim/plan/oom_message.h"
#include "sim/plan/plan_source.h"
#include "sim/search/advice.h"

enum { MORE_NODES = 64 };               /* times as many are asked about */
#define MiB ((int64_t)1 << 20)
#define A_DEVICE_WITH_ROOM ((int64_t)1 << 48)
/* Drivers round what they say, and the GPU table has one driver's figure: less apart is the same GPU. */
#define SAME_GPU .03
/* Allocated bytes of the same plan lie nearer than this (tests/golden/memory/README.md). */
#define SAME_PLAN .05

static void figure(FILE *to, const char *what, int64_t said, int64_t planned)
{
    fprintf(to, "  %-46s %12s", what, said >= 0 ? size_text(said).s : "-");
    if (planned >= 0)
        fprintf(to, "   %12s", size_text(planned).s);
    fputc('\n', to);
}

/* What the plan's GPU shows PyTorch as total. */
static int64_t total_of(const struct plan *p)
{
    int64_t reserved = p->cluster.gpu.reserved;

    return p->cluster.memory - (reserved < p->cluster.memory ? reserved : 0);
}

static void print_figures(FILE *to, const struct oom_message *m, const struct explained *p)
{
    const struct reserved *r = &p->e.reserved;
    bool peaks = m->form == OOM_STATS, fails = r->known && r->out_of_memory && !peaks;
    const char *beside = fails ? "then; by the plan where it fails" : peaks ? "at the peak" : "then; by the plan at its peak";
    char words[64];

    fprintf(to, "%48s %12s   %12s\n", "", m->form == OOM_TEXT ? "the message" : "the JSON", "the plan");
    figure(to, "device memory", m->total, total_of(&p->plan));
    if (m->tried >= 0)
        figure(to, "the request that failed", m->tried, -1);
    snprintf(words, sizeof words, "allocated %s", beside);
    figure(to, words, m->allocated, fails ? r->then_allocated : p->e.allocated_peak);
    snprintf(words, sizeof words, "reserved %s", beside);
    figure(to, words, m->reserved, fails ? r->then_reserved : r->known ? r->reserved_peak : -1);
    figure(to, "reserved, not allocated", m->reserved >= 0 ? m->reserved - m->allocated : -1, -1);
    figure(to, "free on the device", m->free, -1);
    if (m->process >= 0)
        figure(to, "this process, all of it", m->process, r->known ? r->driver : -1);
    if (m->others > 0)
        figure(to, "other processes on this GPU", m->others, 0);
    if (m->allowed >= 0)
        figure(to, "allowed by set_per_process_memory_fraction", m->allowed, -1);
    if (m->retries > 0)
        fprintf(to, "  the cache was given back to the device %" PRId64 " times\n", m->retries);
}

/* ---- where the plan makes such a request ---- */

/* PyTorch's allocator with room, watched: which request of the plan asks the device for `tried` bytes, with how much
 * allocated? */
struct watch {
    struct request_target to;
    const struct oom_message *m;
    int64_t n, nearest, at, stop;       /* requests so far; the best one's distance and number; where to end */
    int64_t bytes;                      /* of the best one */
};

/* What the allocator would ask of the device for a request (c10/cuda/CUDACachingAllocator.cpp, get_allocation_size()):
 * small ones share 2 MiB, those below 10 MiB 20 MiB, larger ones go in steps of 2 MiB. */
static int64_t asked_for(int64_t bytes)
{
    return bytes <= MiB ? 2 * MiB : bytes < 10 * MiB ? 20 * MiB : (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
}

static int watch_allocate(void *of, int64_t bytes, int stream)
{
    struct watch *w = of;
    int64_t allocated = w->to.stats->allocated.now;

    if (w->n++ == w->stop)
        return -1;
    if (fabs((double)(asked_for(bytes) - w->m->tried)) <= w->m->within) {
        int64_t far = allocated > w->m->allocated ? allocated - w->m->allocated : w->m->allocated - allocated;
        if (w->m->allocated < 0)
            far = 0;
        if (w->at < 0 || far < w->nearest) {
            w->nearest = far;
            w->at = w->n - 1;
            w->bytes = bytes;
        }
    }
    return w->to.allocate(w->to.of, bytes, stream);
}

static void watch_release(void *of, int block)                      { struct watch *w = of; w->to.release(w->to.of, block); }
static void watch_record(void *of, int block, int stream)           { struct watch *w = of; w->to.record(w->to.of, block, stream); }
static void watch_complete(void *of, int stream, int64_t event)     { struct watch *w = of; w->to.complete(w->to.of, stream, event); }
static int64_t watch_events(void *of, int stream)                   { struct watch *w = of; return w->to.events(w->to.of, stream); }
static void watch_empty(void *of)                                   { struct watch *w = of; w->to.empty(w->to.of); }
static void watch_keep(void *of, int stream)                        { struct watch *w = of; w->to.keep(w->to.of, stream); }
static int64_t watch_state(void *of, int64_t *out)                  { struct watch *w = of; return w->to.state(w->to.of, out); }
static int watch_number(void *of, int block)                        { struct watch *w = of; return w->to.number(w->to.of, block); }
static int64_t watch_address(void *of, int block)                   { struct watch *w = of; return w->to.address(w->to.of, block); }
static int64_t watch_completed(void *of, int stream)                { struct watch *w = of; return w->to.completed(w->to.of, stream); }

/* Ends at request number `stop` (-1: never).  Bytes allocated there. */
static int64_t walk(const struct explained *p, struct watch *w, int64_t stop, struct request_report *r)
{
    struct caching_allocator *a = caching_allocator_new(A_DEVICE_WITH_ROOM, NULL);
    struct request_target t;

    w->to = reserved_target(a);
    w->n = 0;
    w->stop = stop;
    t = (struct request_target){ .of = w, .allocate = watch_allocate, .release = watch_release, .record = watch_record, .complete = watch_complete,
                                 .events = watch_events, .stats = w->to.stats, .empty = watch_empty, .keep = watch_keep,
                                 .state = watch_state, .number = watch_number, .address = watch_address, .completed = watch_completed };
    requests_walk(&p->plan, &p->e.schedules, reserved_options(&p->plan), &t, r);
    int64_t allocated = w->to.stats->allocated.now;
    caching_allocator_delete(a);
    return allocated;
}

/* The buffer for which an entry makes such a request, the last of several: most is allocated then.  NULL: it is of a kernel. */
static const char *buffer_of(const struct schedules *s, int op, int64_t bytes)
{
    const struct op *o = &s->ops[op];
    const char *what = NULL;

    for (uint32_t i = 0; i < o->nacts; i++) {
        const struct act *a = &s->acts[o->act0 + i];
        const struct buf *b = &s->bufs[a->buf];
        bool made = (a->what & ACT_ALLOC) && b->space == SPACE_DEVICE && b->bytes == bytes && b->nparts == 0;
        for (int part = 0; part < b->nparts && (a->what & ACT_ALLOC); part++)
            made |= s->parts[b->part0 + part] == bytes;
        if (made)
            what = b->what;
    }
    return what;
}

/* Where the plan makes the request that failed; false: nowhere. */
static bool print_where(FILE *to, const char *begins, const struct oom_message *m, const struct explained *p)
{
    struct watch w = { .m = m, .at = -1 };
    struct request_report r;
    char where[96];

    walk(p, &w, -1, &r);
    if (w.at < 0)
        return false;
    int64_t allocated = walk(p, &w, w.at, &r), bytes = w.bytes;
    const char *what = buffer_of(&p->e.schedules, r.op, bytes);
    evaluation_op_in_words(&p->e.schedules, r.op, r.iteration, where, sizeof where);
    fprintf(to, "%s comes in the %s step, at %s%s%s%s, where the plan has %s allocated.\n", begins, sched_name(r.sched), where,
            what ? " (" : "", what ? what : "", what ? ")" : "", size_text(allocated).s);
    return true;
}

static void print_request(FILE *to, const struct oom_message *m, const struct explained *p)
{
    if (!reserved_is_known(&p->plan) || m->tried < 0)
        return;
    if (!print_where(to, "Such a request", m, p))
        fprintf(to, "No request of the plan asks the device for %s: the allocation that failed is not part of it.\n", size_text(m->tried).s);
}

/* ---- what it was ---- */

/* What one change makes of the plan; false: the plan cannot have it. */
static bool changed(const struct plan *p, const char *pair, struct explained *q)
{
    const char *const pairs[] = { pair };
    char why[200];
    struct fail_sink before = fail_divert(why, sizeof why);
    bool ok = plan_source_with(p, pairs, 1, &q->plan) == 0;

    if (ok && evaluate(&q->plan, &q->e) < 0) {
        plan_free(&q->plan);
        ok = false;
    }
    fail_restore(before);
    return ok;
}

struct guess { const char *change; double off; };        /* off: how far its peak is from what the run held, relative */

static int by_nearness(const void *a, const void *b)
{
    double x = ((const struct guess *)a)->off, y = ((const struct guess *)b)->off;

    return (x > y) - (x < y);
}

/* Whether the plan with this change would hold about as much. */
static bool is_guess(const struct explained *p, int64_t held, struct guess *g)
{
    struct explained q;

    if (!changed(&p->plan, g->change, &q))
        return false;
    g->off = fabs((double)held / (double)q.e.allocated_peak - 1);
    bool is = q.e.allocated_peak > p->e.allocated_peak && g->off < SAME_PLAN;
    evaluation_free(&q.e);
    plan_free(&q.plan);
    return is;
}

static void print_guess(FILE *to, const struct oom_message *m, const struct explained *p, const char *change)
{
    struct explained q;

    if (!changed(&p->plan, change, &q))
        return;
    fprintf(to, "With %s the plan would hold %s at its peak: is that what ran?\n", change, size_text(q.e.allocated_peak).s);
    if (m->tried >= 0 && reserved_is_known(&q.plan))
        print_where(to, "  There such a request", m, &q);
    evaluation_free(&q.e);
    plan_free(&q.plan);
}

/* Which single change of the plan would hold what the run held?  Changes that people forget to write down, and the form of AdamW that
 * their PyTorch took (before 2.0 the loop).  The nearest comes first. */
static void print_what_ran(FILE *to, const struct oom_message *m, const struct explained *p)
{
    char twice[2][64];
    const char *const changes[] = { twice[0], twice[1], "recompute=none", "precision=fp32", "kernels=torch-eager", "optimizer_form=loop",
                                    "optimizer_form=foreach" };
    enum { N = sizeof changes / sizeof *changes };
    struct guess g[N];
    int64_t held = m->allocated + (m->form == OOM_TEXT && m->tried > 0 ? m->tried : 0);
    int n = 0;

    snprintf(twice[0], sizeof twice[0], "micro_batch=%" PRId64, 2 * p->plan.micro_batch);
    snprintf(twice[1], sizeof twice[1], "seq=%" PRId64, 2 * p->plan.seq);
    for (int i = 0; i < N; i++) {
        g[n].change = changes[i];
        n += is_guess(p, held, &g[n]);
    }
    sort_stable(g, (size_t)n, sizeof *g, by_nearness);
    for (int i = 0; i < n; i++)
        print_guess(to, m, p, g[i].change);
}

/* Does the device hold the plan?  Beside it a node's memory may be short. */
static bool on_device(const struct evaluation *e)
{
    return reserved_verdict(&e->reserved, e->m.needed <= e->m.available) != VERDICT_DOES_NOT_FIT;
}

/* What nothing else explains: taken by what PyTorch's allocator does not know, or the run had not come far. */
static void print_unexplained(FILE *to, const struct oom_message *m, const struct explained *p)
{
    const struct reserved *r = &p->e.reserved;
    int64_t outside = m->total >= 0 && m->reserved >= 0 && m->free >= 0 ? m->total - m->reserved - m->free : -1;

    if (outside >= 0 && r->known)
        fprintf(to, "%s were taken outside of PyTorch's allocator (the plan counts on %s), or the plan's peak of %s was yet to come.\n",
               size_text(outside).s, size_text(r->driver - r->reserved_peak).s, size_text(p->e.m.needed).s);
    else
        fprintf(to, "Something outside of PyTorch's allocator took memory, or the plan's peak of %s was yet to come.\n",
               size_text(p->e.m.needed).s);
}

/* Free memory that a request could not have (fragmented), and memory of other processes.  Both may be. */
static void print_causes(FILE *to, const struct oom_message *m, const struct explained *p)
{
    int64_t total = total_of(&p->plan), idle = m->reserved >= 0 ? m->reserved - m->allocated : 0, free = m->free > 0 ? m->free : 0;
    bool failed = m->form == OOM_TEXT && m->tried > 0;      /* the message gives what was allocated without the request */
    int64_t held = m->allocated + (failed ? m->tried : 0), n = 0;

    if (m->others > 0 && (m->tried < 0 || m->others + free + idle >= m->tried) && ++n)
        fprintf(to, "Other processes hold %s of this GPU, without which the request would have been served: end them (nvidia-smi "
               "names them).\n", size_text(m->others).s);
    if (m->allowed >= 0 && m->total >= 0 && m->allowed < m->total && ++n)
        fprintf(to, "set_per_process_memory_fraction() allows %s of %s.\n", size_text(m->allowed).s, size_text(m->total).s);
    if (m->total >= 0 && (double)m->total < (1 - SAME_GPU) * (double)total && ++n)
        fprintf(to, "The GPU has %s; the plan counts on %s (%s).\n", size_text(m->total).s, size_text(total).s, p->plan.cluster.gpu.title);
    if (m->tried >= 0 && idle + free >= m->tried && idle > free && ++n)
        fprintf(to, "Fragmentation: %s were reserved and not used by any tensor, in pieces that %s did not fit into: "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.\n", size_text(idle).s, size_text(m->tried).s);
    if ((double)held > (1 + SAME_PLAN) * (double)p->e.allocated_peak && ++n) {
        fprintf(to, "The run held %s%s, %s more than the plan ever does: the run was not this plan.\n",
               size_text(held).s, failed ? " with the request" : "", size_text(held - p->e.allocated_peak).s);
        print_what_ran(to, m, p);
    } else if (!on_device(&p->e) && ++n) {
        fprintf(to, "The plan foresees it: %s.\n", p->e.why_not);
    }
    if (n == 0 && m->form == OOM_TEXT)
        print_unexplained(to, m, p);
    else if (n == 0)
        fprintf(to, "What was allocated is within the plan's peak.\n");
}

/* ---- what would fit ---- */

/* The fewest nodes on which the plan fits, of twice as many, four times and so on; 0: none.  Where nothing is sharded
 * none will help. */
static int64_t nodes_that_fit(const struct plan *p, struct size_text *needed)
{
    int64_t found = 0;

    for (int64_t n = 2 * p->cluster.nodes; n <= MORE_NODES * p->cluster.nodes && !found; n *= 2) {
        char pair[32], why[200];
        const char *const pairs[] = { pair };
        struct plan q;
        struct evaluation e;
        snprintf(pair, sizeof pair, "nodes=%" PRId64, n);
        struct fail_sink before = fail_divert(why, sizeof why);
        if (plan_source_with(p, pairs, 1, &q) == 0) {
            if (evaluate(&q, &e) == 0) {
                found = e.m.fits ? n : 0;
                *needed = size_text(e.m.needed);
                evaluation_free(&e);
            }
            plan_free(&q);
        }
        fail_restore(before);
    }
    return found;
}

static void print_way(FILE *to, const struct plan *p, bool fits)
{
    char change[160];
    struct size_text needed;

    if (advice_that_fits(p, change, sizeof change)) {
        fprintf(to, "; to %s: %s.\n", fits ? "give it room" : "make it fit", change);
        return;
    }
    int64_t nodes = nodes_that_fit(p, &needed);
    if (nodes)
        fprintf(to, "; no single option is enough; with nodes=%" PRId64 " it fits (%s).\n", nodes, needed.s);
    else
        fprintf(to, "; no single option is enough, nor are up to %d times as many nodes.\n", MORE_NODES);
}

/* The plan where this process has `bytes` of the GPU, as PyTorch sees it. */
static void print_verdict(FILE *to, const char *where, const struct plan *p, int64_t bytes)
{
    struct plan q = *p;                 /* shares the model */
    struct evaluation e;

    q.cluster.memory = bytes + p->cluster.memory - total_of(p);
    fprintf(to, "%s (%s for this process", where, size_text(bytes).s);
    if (q.cluster.memory <= q.cluster.context || cluster_available(&q.cluster) <= 0 || evaluate(&q, &e) < 0) {
        fputs(") nothing fits.\n", to);
        return;
    }
    fprintf(to, ", %s of it usable) ", size_text(cluster_available(&q.cluster)).s);
    if (e.m.elsewhere && spaces_short(&e.m.spaces) >= 0) {
        char why[320];
        spaces_why_not(&e.m.spaces, why, sizeof why);
        fprintf(to, "%s (%s)", on_device(&e) ? "the device holds the plan, its node does not" : "neither the device nor its node holds the plan",
               why);
    } else {
        fprintf(to, "the plan %s", !e.m.fits ? "does not fit" : e.verdict == VERDICT_TIGHT ? "fits tightly" : "fits");
    }
    if (e.m.fits && e.verdict != VERDICT_TIGHT)
        fputs(".\n", to);
    else
        print_way(to, &q, e.m.fits);
    evaluation_free(&e);
}

/* The plan on what this GPU really had for it. */
static void print_remedy(FILE *to, const struct oom_message *m, const struct plan *p)
{
    int64_t total = m->total >= 0 ? m->total : total_of(p);

    fputc('\n', to);
    print_verdict(to, m->others > 0 ? "Once they have ended" : "On this GPU", p, total);
    if (m->others > 0)
        print_verdict(to, "Beside them", p, total > m->others ? total - m->others : 0);
}

void explain_oom(const struct explained *p, const struct oom_message *m, FILE *to)
{
    print_figures(to, m, p);
    fputc('\n', to);
    print_request(to, m, p);
    print_causes(to, m, p);
    print_remedy(to, m, &p->plan);
}
