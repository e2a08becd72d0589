/* kineto_load.c -- one pass over the events of a trace: kernels, launches, collectives and marks are kept. */
#include "calib/trace/kineto_load.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"
#include "calib/trace/kineto_class.h"
#include "calib/trace/kineto_products.h"
#include "calib/trace/kineto_windows.h"

/* ---- names ---- */

int kineto_coll(const char *name)
{
    /* In this order: some are parts of others. */
    static const struct { const char *part; int op; } known[] = {
        { "sendrecv", COLL_OTHER }, { "alltoall", COLL_ALL_TO_ALL },
        { "reducescatter", COLL_REDUCE_SCATTER }, { "allreduce", COLL_ALL_REDUCE },
        { "allgather", COLL_ALL_GATHER }, { "broadcast", COLL_BROADCAST }, { "barrier", COLL_BARRIER },
        { "scatter", COLL_SCATTER }, { "gather", COLL_GATHER }, { "reduce", COLL_REDUCE },
    };
    char plain[128];
    size_t n = 0;

    for (; *name && *name != '(' && n + 1 < sizeof plain; name++)
        if (*name != '_' && *name != '-')
            plain[n++] = (char)tolower((unsigned char)*name);
    plain[n] = '\0';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(plain, known[i].part))
            return known[i].op;
    return COLL_OTHER;
}

int kineto_dtype_bytes(const char *dtype)
{
    static const struct { const char *name; int bytes; } known[] = {
        { "Float", 4 }, { "Float32", 4 }, { "Half", 2 }, { "Float16", 2 }, { "BFloat16", 2 }, { "Double", 8 },
        { "Float64", 8 }, { "Byte", 1 }, { "UInt8", 1 }, { "unsigned char", 1 }, { "Char", 1 }, { "Int8", 1 },
        { "signed char", 1 }, { "Bool", 1 }, { "Short", 2 }, { "Int16", 2 }, { "Int", 4 }, { "Int32", 4 },
        { "Long", 8 }, { "Int64", 8 }, { "long int", 8 }, { "Float8_e4m3fn", 1 }, { "Float8_e5m2", 1 },
    };
    const char *colons = strrchr(dtype, ':');

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(colons ? colons + 1 : dtype, known[i].name) == 0)
            return known[i].bytes;
    return 0;
}

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(s, *words) == 0)
            return true;
    return false;
}

static uint64_t hash_of(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);        /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

/* ---- what is kept of the events ---- */

/* A call of a collective on the host. */
struct call {
    int64_t ts, end;
    int64_t bytes, group_size;
    int     op;
    char    dtype[20];
};
struct calls { struct call *at; int64_t n, cap; };

/* A kernel's launch: there are as many as kernels. */
struct launch { int64_t correlation, ts; };
struct launches { struct launch *at; int64_t n, cap; };

/* Of what a trace may have of each: 1.5 GB of kernels and launches.  A step has some ten thousand. */
enum { MOST_KEPT = 1 << 24, MOST_STEPS = 1 << 17 };

/* Of collectives by name and type: where its index is, 0 for none, else the index + 1. */
enum { NAME_SLOTS = 1 << 16 };

struct loader {
    struct kineto   *k;
    struct launches  launches;
    struct calls     comms;
    struct work_list gloo, aten;    /* the host's: dropped where there is a GPU */
    struct kineto_operators operators;
    struct call_key { int64_t correlation, stream, external; } *keys;   /* of k->work, by index */
    int64_t          cap_keys;
    struct marks     marks;
    bool             nccl_on_host;  /* the host called NCCL */
    int32_t         *named;         /* NAME_SLOTS of them: into k->names, by hash */
};

static struct call *call_add(struct calls *c)
{
    c->at = room_for(c->at, c->n, &c->cap, sizeof *c->at);
    memset(&c->at[c->n], 0, sizeof *c->at);
    return &c->at[c->n++];
}

static void launch_add(struct launches *l, int64_t correlation, int64_t ts)
{
    l->at = room_for(l->at, l->n, &l->cap, sizeof *l->at);
    l->at[l->n++] = (struct launch){ correlation, ts };
}

static bool is_named(const struct kineto *k, int i, const char *name, size_t n, const char *dtype)
{
    return strncmp(k->names[i], name, n) == 0 && k->names[i][n] == '\0'
        && strncmp(k->dtypes[i], dtype, sizeof k->dtypes[i] - 1) == 0;
}

static int add_name(struct kineto *k, const char *name, size_t n, const char *dtype)
{
    int i = k->nnames;

    k->names = realloc(k->names, (size_t)(i + 1) * sizeof *k->names);
    k->dtypes = realloc(k->dtypes, (size_t)(i + 1) * sizeof *k->dtypes);
    if (!k->names || !k->dtypes || !(k->names[i] = malloc(n + 1)))
        abort();
    memcpy(k->names[i], name, n);
    k->names[i][n] = '\0';
    snprintf(k->dtypes[i], sizeof *k->dtypes, "%s", dtype);
    k->nnames = i + 1;
    return i;
}

/* Index of a collective's name, without its parameters, and element type.  Few are different; beyond the 32766th
 * all are the last. */
static int16_t intern(struct loader *l, const char *name, const char *dtype)
{
    struct kineto *k = l->k;
    size_t n = strcspn(name, "(");
    char both[sizeof ((struct trace_event *)0)->name + 32];

    if (!l->named && !(l->named = calloc(NAME_SLOTS, sizeof *l->named)))
        abort();
    snprintf(both, sizeof both, "%.*s(%.19s", (int)n, name, dtype);
    for (uint64_t slot = hash_of(both) % NAME_SLOTS;; slot = (slot + 1) % NAME_SLOTS) {
        int i = l->named[slot] - 1;
        if (i < 0 && k->nnames == INT16_MAX)
            return INT16_MAX - 1;
        if (i < 0)
            i = (l->named[slot] = add_name(k, name, n, dtype) + 1) - 1;
        if (is_named(k, i, name, n, dtype))
            return (int16_t)i;
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Bytes of the full buffer: what all-gather gives and reduce-scatter takes is the larger side. */
static int64_t event_bytes(const struct trace_event *e)
{
    int64_t elems = larger(e->args.in_elems, e->args.out_elems), each = kineto_dtype_bytes(e->args.dtype);

    if (elems < 0)
        elems = larger(e->args.dims[0], e->args.dims[1]);
    return elems >= 0 && each > 0 && elems <= INT64_MAX / each ? elems * each : -1;
}

/* 0: not known. */
static int16_t group_size(int64_t n)
{
    return n > 0 && n <= INT16_MAX ? (int16_t)n : 0;
}

/* What the collective is for counts (all_to_all is done with SendRecv); where that says nothing,
 * the kernel. */
static int event_coll(const struct trace_event *e)
{
    int op = kineto_coll(e->args.collective);

    return op != COLL_OTHER ? op : kineto_coll(e->name);
}

/* ---- events ---- */

/* ns: what takes eleven days is no kernel. */
#define LONGEST INT64_C(1000000000000000)

static void add_kernel(struct loader *l, const struct trace_event *e)
{
    bool coll = starts(e->name, "nccl") || starts(e->name, "rccl") || strstr(e->name, "rcclGenericKernel") ||
                e->args.collective[0];
    struct work w = { .start = e->ts, .end = e->ts + e->dur, .launch = e->ts, .bytes = event_bytes(e),
                      .hash = hash_of(e->name), .coll = coll, .name = -1, .what = (uint8_t)kineto_class(e->name) };

    if (coll) {
        w.op = (uint8_t)event_coll(e);
        w.name = intern(l, e->name, e->args.dtype);
        w.group_size = group_size(e->args.group_size);
    }
    kineto_work_add(&l->k->work, &w);
    l->keys = room_for(l->keys, l->k->work.n - 1, &l->cap_keys, sizeof *l->keys);
    l->keys[l->k->work.n - 1] = (struct call_key){ e->args.correlation,
                                                   e->args.stream >= 0 ? e->args.stream : e->tid,
                                                   e->args.external };
}

/* "Memcpy DtoH (Device -> Pinned)": what CUPTI calls the kinds of memory (libkineto/src/cupti_strings.cpp). */
static void add_copy(struct kineto *k, const struct trace_event *e)
{
    bool to_host = strstr(e->name, "Device -> Pinned") != NULL;

    if (e->args.bytes <= 0 || e->dur <= 0 || (!to_host && !strstr(e->name, "Pinned -> Device")))
        return;
    k->copy = room_for(k->copy, k->ncopies, &k->cap_copies, sizeof *k->copy);
    k->copy[k->ncopies++] = (struct kineto_copy){ e->args.bytes, 1e-9 * (double)e->dur, to_host };
}

static void add_comm(struct loader *l, const struct trace_event *e)
{
    struct call *c = call_add(&l->comms);

    c->ts = e->ts;
    c->end = e->ts + e->dur;
    c->op = event_coll(e);
    c->bytes = event_bytes(e);
    c->group_size = e->args.group_size;
    snprintf(c->dtype, sizeof c->dtype, "%.19s", e->args.dtype);
}

static void add_gloo(struct loader *l, const struct trace_event *e)
{
    struct work w = { .start = e->ts, .end = e->ts + e->dur, .launch = e->ts, .bytes = -1,
                      .hash = hash_of(e->name), .coll = true, .op = (uint8_t)kineto_coll(e->name) };

    /* It knows its own input only, which is all there is of an all-reduce. */
    if (w.op == COLL_ALL_REDUCE)
        w.bytes = event_bytes(e);
    w.name = intern(l, e->name, e->args.dtype);
    kineto_work_add(&l->gloo, &w);
}

static void add_host(struct loader *l, const struct trace_event *e)
{
    if (starts(e->name, "aten::")) {
        struct work w = { .start = e->ts, .end = e->ts + e->dur, .launch = e->ts, .bytes = -1,
                          .hash = hash_of(e->name), .name = -1 };
        if (!l->k->gpu)
            kineto_work_add(&l->aten, &w);
        kineto_products_add(l->k, &l->operators, e);
    } else if (starts(e->name, "gloo:") || starts(e->name, "mpi:") || starts(e->name, "ucc:"))
        add_gloo(l, e);
    else if (starts(e->name, "c10d::") || strcmp(e->name, "record_param_comms") == 0)
        add_comm(l, e);
    else if (starts(e->name, "nccl:"))
        l->nccl_on_host = true;
    else
        windows_marks_add(&l->marks, e);
}

static int64_t kept_of(const struct loader *l)
{
    const struct marks *m = &l->marks;

    return l->k->work.n + l->launches.n + l->comms.n + l->gloo.n + l->aten.n + m->nstep + m->noptimizer + m->nbackward
           + l->k->ncopies + l->operators.n;
}

static int add_event(struct loader *l, const struct trace_event *e, const char *path)
{
    static const char *const runtime[] = { "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", NULL };
    static const char *const host[] = { "cpu_op", "user_annotation", "operator", NULL };

    if (e->ph != 'X' || e->dur < 0 || e->dur > LONGEST)
        return 0;
    if (strcasecmp(e->cat, "kernel") == 0) {
        l->k->gpu = true;
        add_kernel(l, e);
    } else if (strcasecmp(e->cat, "gpu_memcpy") == 0) {
        if (strstr(e->name, "Device -> Device"))
            add_kernel(l, e);           /* lives off memory, as a kernel that copies does */
        else
            add_copy(l->k, e);
    } else if (is_one_of(e->cat, runtime)) {
        if (e->args.correlation >= 0)
            launch_add(&l->launches, e->args.correlation, e->ts);
    } else if (is_one_of(e->cat, host))
        add_host(l, e);
    if (kept_of(l) <= MOST_KEPT)
        return 0;
    return fail("%s: more than %d kernels, launches and operators: profile fewer steps", path, MOST_KEPT);
}

/* ---- joining the host's side and the device's ---- */

static int by_correlation(const void *a, const void *b)
{
    const struct launch *x = a, *y = b;

    return x->correlation != y->correlation ? (x->correlation > y->correlation) - (x->correlation < y->correlation)
                                            : (x->ts > y->ts) - (x->ts < y->ts);
}

static int by_ts(const void *a, const void *b)
{
    const struct call *x = a, *y = b;

    return (x->ts > y->ts) - (x->ts < y->ts);
}

static int by_work_start(const void *a, const void *b)
{
    const struct work *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

static void sort(void *at, int64_t n, size_t size, int (*by)(const void *, const void *))
{
    if (n > 1)
        sort_stable(at, (size_t)n, size, by);
}

/* The last of calls (sorted by ts) that begins at t or before and lasts until t; NULL: none. */
static const struct call *call_around(const struct calls *c, int64_t t)
{
    int64_t lo = 0, hi = c->n;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (c->at[mid].ts <= t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && c->at[lo - 1].end >= t ? &c->at[lo - 1] : NULL;
}

/* Older profilers leave a collective's size with the host's record of the call. */
static void size_from_host(struct loader *l, struct work *w)
{
    const struct call *c = call_around(&l->comms, w->launch);

    if (!c || c->bytes < 0)
        return;
    w->bytes = c->bytes;
    w->group_size = group_size(c->group_size);
    w->name = intern(l, l->k->names[w->name], c->dtype);
    if (c->op != COLL_OTHER)
        w->op = (uint8_t)c->op;
}

/* The stream on which most compute runs. */
static int64_t main_stream(const struct loader *l)
{
    enum { MOST = 64 };
    struct { int64_t stream; double busy; } s[MOST];
    int n = 0, best = 0;

    for (int64_t i = 0; i < l->k->work.n; i++) {
        const struct work *w = &l->k->work.at[i];
        int j = 0;
        if (w->coll)
            continue;
        while (j < n && s[j].stream != l->keys[i].stream)
            j++;
        if (j == MOST)
            continue;
        if (j == n) {
            s[n].stream = l->keys[i].stream;
            s[n++].busy = 0;
        }
        s[j].busy += (double)(w->end - w->start);
        if (s[j].busy > s[best].busy)
            best = j;
    }
    return n ? s[best].stream : -1;
}

static void join_gpu(struct loader *l)
{
    int64_t busiest = main_stream(l);

    kineto_products_sort(&l->operators);
    sort(l->launches.at, l->launches.n, sizeof *l->launches.at, by_correlation);
    sort(l->comms.at, l->comms.n, sizeof *l->comms.at, by_ts);
    for (int64_t i = 0; i < l->k->work.n; i++) {
        struct work *w = &l->k->work.at[i];
        struct launch wanted = { .correlation = l->keys[i].correlation, .ts = INT64_MIN };
        int64_t lo = 0, hi = l->launches.n;

        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            if (by_correlation(&l->launches.at[mid], &wanted) < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (wanted.correlation >= 0 && lo < l->launches.n && l->launches.at[lo].correlation == wanted.correlation)
            w->launch = l->launches.at[lo].ts;
        w->side = l->keys[i].stream != busiest;
        w->product = w->what == KINETO_PRODUCT ? kineto_products_find(&l->operators, l->keys[i].external) : 0;
        if (w->product == KINETO_PARTS) {
            w->what = KINETO_STREAMING;
            w->product = 0;
        }
        if (w->coll && w->bytes < 0)
            size_from_host(l, w);
    }
}

/* Calls of one collective that no work has taken yet: the first, and of each the next. */
struct waiting { int64_t first[KINETO_COLLS], *next; };

static struct waiting waiting_of(const struct calls *c)
{
    struct waiting w = { .next = malloc((size_t)(c->n + 1) * sizeof *w.next) };

    if (!w.next)
        abort();
    for (int op = 0; op < KINETO_COLLS; op++)
        w.first[op] = c->n;
    for (int64_t i = c->n - 1; i >= 0; i--) {
        w.next[i] = w.first[c->at[i].op];
        w.first[c->at[i].op] = i;
    }
    return w;
}

/* The first of the kind, or for an all-reduce of reduce-scatters, with which gloo does those. */
static int64_t first_waiting(const struct waiting *w, int op)
{
    int64_t same = w->first[op], scatter = w->first[COLL_REDUCE_SCATTER];

    return op == COLL_ALL_REDUCE && scatter < same ? scatter : same;
}

/* gloo's threads take calls in the order in which they were made: the call of a piece of work is
 * the first one not taken yet, of its kind, from before it began. */
static void join_gloo(struct loader *l)
{
    sort(l->comms.at, l->comms.n, sizeof *l->comms.at, by_ts);
    sort(l->gloo.at, l->gloo.n, sizeof *l->gloo.at, by_work_start);
    struct waiting waiting = waiting_of(&l->comms);
    for (int64_t i = 0; i < l->gloo.n; i++) {
        struct work *w = &l->gloo.at[i];
        int64_t j = first_waiting(&waiting, w->op);
        if (j < l->comms.n && l->comms.at[j].ts <= w->start) {
            const struct call *c = &l->comms.at[j];
            waiting.first[c->op] = waiting.next[j];
            w->op = (uint8_t)c->op;
            w->launch = c->ts;
            if (c->bytes >= 0)
                w->bytes = c->bytes;
        }
        kineto_work_add(&l->k->work, w);
    }
    for (int64_t i = 0; i < l->aten.n; i++)
        kineto_work_add(&l->k->work, &l->aten.at[i]);
    free(waiting.next);
}

/* ---- kernels by name and size ---- */

static int by_kernel(const void *a, const void *b)
{
    const struct work *x = *(const struct work *const *)a, *y = *(const struct work *const *)b;

    if (x->name != y->name)
        return x->name - y->name;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (x->op != y->op)
        return x->op - y->op;
    if (x->group_size != y->group_size)
        return x->group_size - y->group_size;
    return (x > y) - (x < y);           /* sums are over the same order each time */
}

static bool same_kernel(const struct work *a, const struct work *b)
{
    return a->name == b->name && a->bytes == b->bytes && a->op == b->op && a->group_size == b->group_size;
}

static int longest_first(const void *a, const void *b)
{
    const struct kineto_kernel *x = a, *y = b;

    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* The collectives of the steps, equal ones together; *n of them, the caller's to free. */
static const struct work **colls_of(const struct work_list *l, int64_t *n)
{
    const struct work **at;

    *n = 0;
    for (int64_t i = 0; i < l->n; i++)
        *n += l->at[i].coll && l->at[i].window >= 0;
    at = malloc((size_t)(*n + 1) * sizeof *at);
    if (!at)
        abort();
    for (int64_t i = 0, k = 0; i < l->n; i++)
        if (l->at[i].coll && l->at[i].window >= 0)
            at[k++] = &l->at[i];
    sort(at, *n, sizeof *at, by_kernel);
    return at;
}

/* A name is kept once for each element type: intern(). */
static void list_kernels(struct loader *l)
{
    struct kineto *k = l->k;
    int64_t n;
    const struct work **coll = colls_of(&k->work, &n);

    for (int64_t i = 0; i < n; i++)
        k->nkernels += i == 0 || !same_kernel(coll[i - 1], coll[i]);
    k->kernel = calloc((size_t)k->nkernels + 1, sizeof *k->kernel);
    if (!k->kernel)
        abort();
    struct kineto_kernel *to = k->kernel - 1;
    for (int64_t i = 0; i < n; i++) {
        const struct work *w = coll[i];
        if (i == 0 || !same_kernel(coll[i - 1], w))
            *++to = (struct kineto_kernel){ .name = k->names[w->name], .op = w->op, .dtype = k->dtypes[w->name],
                                            .group_size = w->group_size, .bytes = w->bytes };
        to->calls += 1;
        to->seconds += 1e-9 * (double)(w->end - w->start);
    }
    free(coll);
    sort(k->kernel, k->nkernels, sizeof *k->kernel, longest_first);
    for (int i = 0; i < k->nkernels; i++) {
        k->kernel[i].seconds /= k->kernel[i].calls;
        k->kernel[i].calls /= k->nsteps;
    }
}

/* ---- together ---- */

static int nothing(const struct loader *l, const char *path)
{
    if (l->nccl_on_host && !l->k->gpu)
        return fail("%s: NCCL's calls are there, but no kernels: only the host was recorded; profile with "
                    "ProfilerActivity.CUDA as well", path);
    return fail("%s: there are no kernels, operators or collectives in it; profile with ProfilerActivity.CPU "
                "and, on GPUs, ProfilerActivity.CUDA", path);
}

static int measure_steps(struct loader *l, const char *path)
{
    struct kineto *k = l->k;

    if (k->gpu)
        join_gpu(l);
    else
        join_gloo(l);
    if (k->work.n == 0)
        return nothing(l, path);
    k->phases = l->marks.nbackward > 0;
    if (windows_marks_windows(&l->marks, &k->work, &k->window, &k->nsteps, &k->steps_by) < 0)
        return fail("%s: no steps: there is no ProfilerStep, fewer than two optimizer steps, and nothing "
                    "repeats; call the profiler's step() after each training step", path);
    if (k->nsteps > MOST_STEPS)
        return fail("%s: more than %d steps: profile fewer", path, MOST_STEPS);
    windows_marks_assign(&l->marks, &k->work, k->window, k->nsteps);
    k->step = calloc((size_t)k->nsteps, sizeof *k->step);
    if (!k->step)
        abort();
    kineto_measure(&k->work, k->window, k->nsteps, k->phases, k->step);
    k->median = kineto_measures_median(k->step, k->nsteps);
    list_kernels(l);
    return 0;
}

static void loader_free(struct loader *l)
{
    free(l->launches.at);
    free(l->comms.at);
    free(l->gloo.at);
    free(l->aten.at);
    free(l->operators.at);
    free(l->keys);
    free(l->named);
    windows_marks_free(&l->marks);
}

int kineto_load(const char *path, struct kineto *out)
{
    struct loader l = { .k = out };
    struct trace_reader *r = trace_open(path);
    struct trace_event e;
    int rc;

    memset(out, 0, sizeof *out);
    if (!r)
        return -1;
    while ((rc = trace_next(r, &e)) > 0 && (rc = add_event(&l, &e, path)) == 0)
        ;
    out->info = *trace_info(r);
    trace_close(r);
    if (rc == 0)
        rc = measure_steps(&l, path);
    loader_free(&l);
    if (rc < 0)
        kineto_free(out);
    return rc;
}

void kineto_free(struct kineto *k)
{
    for (int i = 0; i < k->nnames; i++)
        free(k->names[i]);
    free(k->names);
    free(k->dtypes);
    free(k->kernel);
    free(k->window);
    free(k->step);
    free(k->work.at);
    free(k->copy);
    free(k->product);
    memset(k, 0, sizeof *k);
}
