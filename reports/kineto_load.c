#include "reports/kineto_load.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/fail.h"
#include "reports/kineto_windows.h"

/* ---- names ---- */

int kineto_coll(const char *name)
{
    /* In this order: some are parts of others. */
    static const struct { const char *part; int op; } known[] = {
        { "sendrecv", COLL_OTHER }, { "alltoall", COLL_OTHER },
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

/* A kernel's launch, or a call of a collective on the host. */
struct call {
    int64_t ts, end, key;           /* key: correlation of a launch */
    int64_t bytes, group_size;
    int     op;
    bool    taken;
    char    dtype[20];
};
struct calls { struct call *at; int64_t n, cap; };

struct loader {
    struct kineto   *k;
    struct calls     launches, comms;
    struct work_list gloo, aten;    /* the host's: dropped where there is a GPU */
    struct call_key { int64_t correlation, stream; } *keys;     /* of k->work, by index */
    int64_t          cap_keys;
    struct marks     marks;
    bool             nccl_on_host;  /* the host called NCCL */
};

static struct call *call_add(struct calls *c)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 1024;
        c->at = realloc(c->at, (size_t)c->cap * sizeof *c->at);
        if (!c->at)
            abort();
    }
    memset(&c->at[c->n], 0, sizeof *c->at);
    return &c->at[c->n++];
}

/* Index of a collective's name and element type: few are different. */
static int16_t intern(struct loader *l, const char *name, const char *dtype)
{
    struct kineto *k = l->k;
    int n = (int)strcspn(name, "(");
    int i;

    for (i = 0; i < k->nnames; i++)
        if (strncmp(k->names[i], name, (size_t)n) == 0 && k->names[i][n] == '\0' &&
            strncmp(l->k->dtypes[i], dtype, sizeof l->k->dtypes[i] - 1) == 0)
            return (int16_t)i;
    if (i == INT16_MAX)
        return INT16_MAX - 1;
    k->names = realloc(k->names, (size_t)(i + 1) * sizeof *k->names);
    l->k->dtypes = realloc(l->k->dtypes, (size_t)(i + 1) * sizeof *l->k->dtypes);
    if (!k->names || !l->k->dtypes || !(k->names[i] = malloc((size_t)n + 1)))
        abort();
    snprintf(k->names[i], (size_t)n + 1, "%s", name);
    snprintf(l->k->dtypes[i], sizeof *l->k->dtypes, "%s", dtype);
    k->nnames = i + 1;
    return (int16_t)i;
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
                      .hash = hash_of(e->name), .coll = coll, .name = -1 };

    if (coll) {
        w.op = (uint8_t)event_coll(e);
        w.name = intern(l, e->name, e->args.dtype);
        w.group_size = (int16_t)e->args.group_size;
    }
    work_add(&l->k->work, &w);
    if (l->k->work.n > l->cap_keys) {
        l->cap_keys = l->k->work.cap;
        l->keys = realloc(l->keys, (size_t)l->cap_keys * sizeof *l->keys);
        if (!l->keys)
            abort();
    }
    l->keys[l->k->work.n - 1] = (struct call_key){ e->args.correlation,
                                                   e->args.stream >= 0 ? e->args.stream : e->tid };
}

static void add_comm(struct loader *l, const struct trace_event *e)
{
    struct call *c = call_add(&l->comms);

    c->ts = e->ts;
    c->end = e->ts + e->dur;
    c->op = event_coll(e);
    c->bytes = event_bytes(e);
    if (c->bytes < 0 && larger(e->args.dims[0], e->args.dims[1]) >= 0)
        c->key = larger(e->args.dims[0], e->args.dims[1]);      /* elements: the type is not said */
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
    work_add(&l->gloo, &w);
}

static void add_host(struct loader *l, const struct trace_event *e)
{
    if (starts(e->name, "aten::")) {
        struct work w = { .start = e->ts, .end = e->ts + e->dur, .launch = e->ts, .bytes = -1,
                          .hash = hash_of(e->name), .name = -1 };
        if (!l->k->gpu)
            work_add(&l->aten, &w);
    } else if (starts(e->name, "gloo:") || starts(e->name, "mpi:") || starts(e->name, "ucc:"))
        add_gloo(l, e);
    else if (starts(e->name, "c10d::") || strcmp(e->name, "record_param_comms") == 0)
        add_comm(l, e);
    else if (starts(e->name, "nccl:"))
        l->nccl_on_host = true;
    else
        marks_add(&l->marks, e);
}

static void add_event(struct loader *l, const struct trace_event *e)
{
    static const char *const runtime[] = { "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", NULL };
    static const char *const host[] = { "cpu_op", "user_annotation", "operator", NULL };

    if (e->ph != 'X' || e->dur < 0 || e->dur > LONGEST)
        return;
    if (strcasecmp(e->cat, "kernel") == 0) {
        l->k->gpu = true;
        add_kernel(l, e);
    } else if (is_one_of(e->cat, runtime)) {
        if (e->args.correlation < 0)
            return;
        struct call *c = call_add(&l->launches);
        c->key = e->args.correlation;
        c->ts = e->ts;
    } else if (is_one_of(e->cat, host))
        add_host(l, e);
}

/* ---- joining the host's side and the device's ---- */

static int by_key(const void *a, const void *b)
{
    const struct call *x = a, *y = b;

    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->ts > y->ts) - (x->ts < y->ts);
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
        qsort(at, (size_t)n, size, by);
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
    w->group_size = (int16_t)c->group_size;
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

    sort(l->launches.at, l->launches.n, sizeof *l->launches.at, by_key);
    sort(l->comms.at, l->comms.n, sizeof *l->comms.at, by_ts);
    for (int64_t i = 0; i < l->k->work.n; i++) {
        struct work *w = &l->k->work.at[i];
        struct call wanted = { .key = l->keys[i].correlation, .ts = INT64_MIN };
        int64_t lo = 0, hi = l->launches.n;

        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            if (by_key(&l->launches.at[mid], &wanted) < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (wanted.key >= 0 && lo < l->launches.n && l->launches.at[lo].key == wanted.key)
            w->launch = l->launches.at[lo].ts;
        w->side = l->keys[i].stream != busiest;
        if (w->coll && w->bytes < 0)
            size_from_host(l, w);
    }
}

/* gloo does a reduce-scatter with its all-reduce. */
static bool can_be(const struct call *c, const struct work *w)
{
    return c->op == w->op || (c->op == COLL_REDUCE_SCATTER && w->op == COLL_ALL_REDUCE);
}

/* gloo's threads take calls in the order in which they were made: the call of a piece of work is
 * the first one not taken yet, of its kind, from before it began. */
static void join_gloo(struct loader *l)
{
    int64_t from = 0;

    sort(l->comms.at, l->comms.n, sizeof *l->comms.at, by_ts);
    sort(l->gloo.at, l->gloo.n, sizeof *l->gloo.at, by_work_start);
    for (int64_t i = 0; i < l->gloo.n; i++) {
        struct work *w = &l->gloo.at[i];
        while (from < l->comms.n && l->comms.at[from].taken)
            from++;
        for (int64_t j = from; j < l->comms.n && l->comms.at[j].ts <= w->start; j++) {
            struct call *c = &l->comms.at[j];
            if (c->taken || !can_be(c, w))
                continue;
            c->taken = true;
            w->op = (uint8_t)c->op;
            w->launch = c->ts;
            if (c->bytes >= 0)
                w->bytes = c->bytes;
            break;
        }
        work_add(&l->k->work, w);
    }
    for (int64_t i = 0; i < l->aten.n; i++)
        work_add(&l->k->work, &l->aten.at[i]);
}

/* ---- kernels by name and size ---- */

static bool same_kernel(const struct loader *l, const struct kineto_kernel *a, const struct work *w)
{
    return a->name == l->k->names[w->name] && a->bytes == w->bytes && a->op == w->op &&
           a->group_size == w->group_size;
}

static int longest_first(const void *a, const void *b)
{
    const struct kineto_kernel *x = a, *y = b;

    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* A name is kept once for each element type: intern(). */
static void list_kernels(struct loader *l)
{
    struct kineto *k = l->k;

    for (int64_t i = 0; i < k->work.n; i++) {
        const struct work *w = &k->work.at[i];
        int j = 0;
        if (!w->coll || w->window < 0)
            continue;
        while (j < k->nkernels && !same_kernel(l, &k->kernel[j], w))
            j++;
        if (j == k->nkernels) {
            k->kernel = realloc(k->kernel, (size_t)(j + 1) * sizeof *k->kernel);
            if (!k->kernel)
                abort();
            k->kernel[k->nkernels++] = (struct kineto_kernel){ .name = k->names[w->name], .op = w->op,
                .dtype = l->k->dtypes[w->name], .group_size = w->group_size, .bytes = w->bytes };
        }
        k->kernel[j].calls += 1;
        k->kernel[j].seconds += 1e-9 * (double)(w->end - w->start);
    }
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
    if (marks_windows(&l->marks, &k->work, &k->window, &k->nsteps, &k->steps_by) < 0)
        return fail("%s: no steps: there is no ProfilerStep, fewer than two optimizer steps, and nothing "
                    "repeats; call the profiler's step() after each training step", path);
    marks_assign(&l->marks, &k->work, k->window, k->nsteps);
    k->step = calloc((size_t)k->nsteps, sizeof *k->step);
    if (!k->step)
        abort();
    measure(&k->work, k->window, k->nsteps, k->phases, k->step);
    k->median = measures_median(k->step, k->nsteps);
    list_kernels(l);
    return 0;
}

static void loader_free(struct loader *l)
{
    free(l->launches.at);
    free(l->comms.at);
    free(l->gloo.at);
    free(l->aten.at);
    free(l->keys);
    marks_free(&l->marks);
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
    while ((rc = trace_next(r, &e)) > 0)
        add_event(&l, &e);
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
    memset(k, 0, sizeof *k);
}
