/* fit.c -- medians of samples become the curves and rates that prices are read from. */
#include "calib/store/fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/sort.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "calib/store/words.h"
#include "model/cluster/cluster.h"

enum { OVERLAP_SIZES = 8 };

/* A series that counts now. */
struct row {
    enum series_kind kind;
    const char *name, *algorithm, *beside;
    int     fn, class;
    enum dtype dtype;
    int64_t ranks, per_node, batch, m, n, k, seq, dim, bytes, threads;
    double  flops, median, mean, spread, confidence, started, probe[2];
    bool    dropout;
    int     set;                /* enum kernel_set of a kernel or pass; -1: one that is not known */
    int     source;             /* of its calibration, in calibration_sources[] */
};

struct rows { struct row *r; int n; struct texts *texts; };

/* ---- reading ---- */

/* The machine that is meant: by its name, or of this host's processor; this host before others, then the one that
 * was calibrated last.  0: none. */
static int find_machine(struct db *db, const struct fit_want *w, const char *cpu, int64_t *id, int64_t *cores,
                        struct texts **t, const char **host)
{
    char here[256] = "";
    struct query q;

    gethostname(here, sizeof here - 1);
    query_open(&q, db, "SELECT m.id, m.cores, m.host FROM machine m JOIN calibration c ON c.machine = m.id"
                       " WHERE m.device = ?1 AND (?2 IS NULL OR m.cpu = ?2 OR m.host = ?4) AND (?4 IS NULL OR m.host = ?4)"
                       " ORDER BY m.host = ?3 DESC, m.cpu IS ?2 DESC, c.started DESC LIMIT 1");
    query_put_text(&q, w->device ? w->device : "cpu");
    query_put_text(&q, w->device ? NULL : cpu);
    query_put_text(&q, here);
    query_put_text(&q, w->machine);
    *id = 0;
    if (query_row(&q)) {
        *id = query_get_int(&q);
        *cores = query_get_int(&q);
        *host = query_get_shown(&q, t);
    }
    return query_close(&q) < 0 ? db_fail(db, "looking for this machine's calibration") : 0;
}

int64_t fit_threads(int64_t threads, int64_t ranks, int64_t cores)
{
    int64_t share = cores / (ranks > 1 ? ranks : 1);

    return threads > 0 ? threads : share > 1 ? share : 1;
}

/* Of how many ranks, and of how many threads each, kernels were timed: the nearest number of ranks,
 * then the threads that are wanted, then the newest. */
static int find_ranks(struct db *db, int64_t machine, const struct fit_want *w, int64_t cores, int64_t *ranks,
                      int64_t *threads)
{
    struct query q;

    query_open(&q, db, "SELECT ranks, threads FROM series WHERE machine = ?1 AND is_now = 1 AND kind = 'kernel'"
                       " AND threads > 0 AND dtype = ?2 GROUP BY ranks, threads"
                       " ORDER BY max(1.0 * ranks / ?3, 1.0 * ?3 / ranks), threads = ?4 DESC,"
                       " max(started) DESC LIMIT 1");
    query_put_int(&q, machine);
    query_put_text(&q, dtype_name(w->precision));
    query_put_int(&q, w->ranks > 0 ? w->ranks : 1);
    query_put_int(&q, fit_threads(w->threads, w->per_node > 0 ? w->per_node : w->ranks, cores));
    *ranks = *threads = 0;
    if (query_row(&q)) {
        *ranks = query_get_int(&q);
        *threads = query_get_int(&q);
    }
    return query_close(&q) < 0 ? db_fail(db, "reading the calibration") : 0;
}

/* What a trace has timed has no threads of its own, and says of which set it is. */
static int set_of(const struct row *r)
{
    bool own = r->threads > 0 || (r->kind != SERIES_KERNEL && r->kind != SERIES_PASS && r->kind != SERIES_OWN);

    for (int set = 0; !own && set < NKERNELS; set++)
        if (!strcmp(kernels_name((enum kernel_set)set), r->algorithm))
            return set;
    return own || !r->algorithm[0] ? KERNELS_DPX : -1;
}

static void read_row(struct query *q, struct row *r, struct texts **t)
{
    const char *fn, *class;
    double low, high;

    r->kind = (enum series_kind)word_find(series_words, query_get_text(q, t));
    r->name = query_get_text(q, t);
    fn = query_get_text(q, t);
    class = query_get_text(q, t);
    r->dtype = (enum dtype)dtype_parse(query_get_text(q, t));
    r->algorithm = query_get_text(q, t);
    r->beside = query_get_text(q, t);
    int64_t *const counts[] = { &r->ranks, &r->per_node, &r->threads, &r->batch, &r->m, &r->n, &r->k, &r->seq, &r->dim,
                                &r->bytes };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = query_get_int(q);
    r->dropout = query_get_int(q) != 0;
    r->flops = query_get_real(q);
    r->median = query_get_real(q);
    r->mean = query_get_real(q);
    low = query_get_real(q);
    high = query_get_real(q);
    r->confidence = query_get_real(q);
    r->started = query_get_real(q);
    r->probe[0] = query_get_real(q);
    r->probe[1] = query_get_real(q);
    r->source = word_find(calibration_sources, query_get_text(q, t));
    r->spread = (high - low) / 2 / r->median;
    r->fn = r->kind == SERIES_KERNEL ? word_find(fn_words, fn) : 0;
    r->class = r->kind == SERIES_KERNEL ? word_find(class_words, class) : 0;
    r->set = set_of(r);
}

/* What this version has no words for (another wrote it) is left out. */
static bool is_known(const struct row *r)
{
    return (int)r->kind >= 0 && r->fn >= 0 && r->class >= 0 && r->set >= 0 && (int)r->dtype >= 0 && r->median > 0;
}

static int read_rows(struct db *db, int64_t machine, int64_t ranks, int64_t threads, struct rows *out)
{
    struct query q;

    query_open(&q, db, "SELECT kind, name, fn, class, dtype, algorithm, beside, ranks, per_node, threads, batch, m, n,"
                       " k, seq, dim, bytes, dropout, flops, median_s, mean_s, p05_s, p95_s, confidence, started,"
                       " probe_before_s, probe_after_s, (SELECT source FROM calibration c WHERE c.id = calibration)"
                       " FROM series WHERE machine = ? AND is_now = 1"
                       " AND (kind = 'collective' OR threads = 0 OR (ranks = ? AND threads = ?))");
    query_put_int(&q, machine);
    query_put_int(&q, ranks);
    query_put_int(&q, threads);
    while (query_row(&q)) {
        out->r = query_array_grow(out->r, out->n, sizeof *out->r);
        read_row(&q, &out->r[out->n], &out->texts);
        out->n += is_known(&out->r[out->n]);
    }
    return query_close(&q) < 0 ? db_fail(db, "reading the calibration") : 0;
}

/* ---- the parts ---- */

/* Products of narrow operands are a trace's, beside whatever precision. */
static bool is_kernel(const struct row *r, const struct measured_device *m)
{
    return r->kind == SERIES_KERNEL && (r->dtype == m->precision || (r->dtype == DT_FP8 && r->set != KERNELS_DPX));
}

#define BY(a, b) if ((a) != (b)) return (a) < (b) ? -1 : 1

static int by_kernel(const void *pa, const void *pb)
{
    const struct measured_kernel *a = pa, *b = pb;

    BY(a->fn, b->fn);
    BY(a->bytes, b->bytes);
    BY(a->kind, b->kind);
    BY(a->m, b->m);
    BY(a->n, b->n);
    BY(a->k, b->k);
    BY(a->batch, b->batch);
    BY(a->seq, b->seq);
    BY(a->dim, b->dim);
    BY(a->dropout, b->dropout);
    BY(a->set, b->set);
    BY(a->what, b->what);
    return 0;
}

/* The same kernel in several places of a program (an output's product with a residual, one without):
 * one point, their mean. */
static int merge_kernels(struct measured_kernel *k, int n)
{
    int to = 0, same = 1;

    for (int i = 1; i < n; i++) {
        if (by_kernel(&k[to], &k[i]) == 0) {
            k[to].s = (k[to].s * same + k[i].s) / (same + 1);
            k[to].spread = fmax(k[to].spread, k[i].spread);
            same++;
            continue;
        }
        k[++to] = k[i];
        same = 1;
    }
    return n ? to + 1 : 0;
}

/* Threads that had to share a core: what is shorter than a time slice then either waits for one or does not.  All ranks compute at once,
 * in the calibration as in a step. */
static bool shares_cores(const struct row *r, const struct measured_device *m)
{
    return r->set == KERNELS_DPX && m->cores > 0 && r->threads * r->per_node > m->cores;
}

/* A step is a sum of kernels.  A trace's samples are of all places of a step where the kernel is, hence the mean; where cores are
 * shared as well, since the median has no wait; else what disturbs is others' work, which the median leaves out. */
static double seconds_of(const struct row *r, const struct measured_device *m)
{
    return r->set != KERNELS_DPX || shares_cores(r, m) ? r->mean : r->median;
}

static void fit_kernels(const struct rows *rows, struct measured_device *m, struct measured_kernel *to)
{
    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        bool traced = r->set != KERNELS_DPX;
        if (!is_kernel(r, m))
            continue;
        to[m->nkernel++] = (struct measured_kernel){
            .fn = (uint8_t)r->fn, .kind = (uint8_t)r->class, .batch = r->batch, .m = r->m, .n = r->n, .k = r->k,
            .seq = r->seq, .dim = r->dim, .scaled = r->dtype == DT_FP8, .dropout = r->dropout, .bytes = r->bytes, .flops = r->flops,
            .set = (uint8_t)r->set, .what = traced ? measured_word(r->name) : 0,
            .s = seconds_of(r, m), .spread = r->spread };
        m->traced[r->set] |= traced;
    }
    sort_stable(to, (size_t)m->nkernel, sizeof *to, by_kernel);
    m->nkernel = merge_kernels(to, m->nkernel);
    m->kernel = to;
}

static int by_bytes(const void *pa, const void *pb)
{
    const struct measured_bytes *a = pa, *b = pb;

    BY(a->set, b->set);
    BY(a->pass, b->pass);
    BY(a->bytes, b->bytes);
    return 0;
}

/* The rows of one kind.  Free r. */
static struct rows rows_of(const struct rows *all, enum series_kind kind)
{
    struct rows some = { .r = malloc((size_t)(all->n + 1) * sizeof *some.r) };

    if (!some.r)
        abort();
    for (int i = 0; i < all->n; i++)
        if (all->r[i].kind == kind)
            some.r[some.n++] = all->r[i];
    return some;
}

static bool has_pass(const struct rows *rows, const struct row *as, enum dtype t)
{
    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        if (r->kind == SERIES_PASS && r->dtype == t && r->set == as->set && !strcmp(r->name, as->name))
            return true;
    }
    return false;
}

/* In the plan's precision; what was timed in fp32 only counts too, as it goes by bytes. */
static void fit_passes(const struct rows *all, struct measured_device *m, struct measured_bytes *to)
{
    struct rows some = rows_of(all, SERIES_PASS);
    const struct rows *rows = &some;

    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        int pass = r->kind == SERIES_PASS ? word_find(pass_words, r->name) : -1;
        if (pass >= 0 && r->dtype == (has_pass(rows, r, m->precision) ? m->precision : DT_FP32))
            to[m->nbytes++] = (struct measured_bytes){ (enum measured_pass)pass, r->bytes, seconds_of(r, m),
                                                       r->spread, (uint8_t)r->set };
    }
    free(some.r);
    sort_stable(to, (size_t)m->nbytes, sizeof *to, by_bytes);
    m->bytes = to;
}

static int op_of(const char *name)
{
    for (int op = 0; op < NCOLL; op++)
        if (!strcmp(coll_name((enum coll_op)op), name))
            return op;
    return -1;
}

static int by_coll(const void *pa, const void *pb)
{
    const struct measured_coll *a = pa, *b = pb;

    BY(a->op, b->op);
    BY(a->dtype, b->dtype);
    BY(a->star, b->star);
    BY(a->ranks, b->ranks);
    BY(a->per_node, b->per_node);
    BY(a->bytes, b->bytes);
    return 0;
}

/* What schedules use: rings, the star, messages, and what a library like NCCL chooses by itself. */
static bool is_used(const char *algorithm)
{
    return !strcmp(algorithm, "ring") || !strcmp(algorithm, "server") || !strcmp(algorithm, SERIES_PAIR) || !strcmp(algorithm, "nccl");
}

static void fit_collectives(const struct rows *rows, struct measured_device *m, struct measured_coll *to)
{
    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        int op = r->kind == SERIES_COLL && is_used(r->algorithm) ? op_of(r->name) : -1;
        if (op >= 0)
            to[m->ncoll++] = (struct measured_coll){
                .op = (enum coll_op)op, .dtype = r->dtype, .star = !strcmp(r->algorithm, "server"), .ranks = r->ranks,
                .per_node = r->per_node, .bytes = r->bytes, .s = r->median, .spread = r->spread,
                .unsure = isfinite(r->confidence) ? r->confidence : 0 };
    }
    sort_stable(to, (size_t)m->ncoll, sizeof *to, by_coll);
    m->coll = to;
}

/* What version 0.1.0 did not write down: it timed one size. */
static int64_t overlap_bytes(const struct row *r) { return r->bytes > 0 ? r->bytes : 8 << 20; }

/* The overlap series `name` beside `beside`, the collective being of so many bytes. */
static const struct row *overlap_row(const struct rows *rows, const char *name, const char *beside, enum dtype t,
                                     int64_t bytes)
{
    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        if (r->kind == SERIES_OVERLAP && r->dtype == t && overlap_bytes(r) == bytes && !strcmp(r->name, name) &&
            !strcmp(r->beside, beside))
            return r;
    }
    return NULL;
}

/* How many times longer than *alone (NULL: not asked for); means, for a kernel on a shared core waits or
 * does not.  Adds the two sampling errors to *square. */
static double slower(const struct rows *rows, const char *name, const char *beside, enum dtype t, int64_t bytes,
                     const struct row **alone, double *square)
{
    char before[80];
    const struct row *a, *b;

    snprintf(before, sizeof before, "alone before %s", beside);
    a = overlap_row(rows, name, before, t, bytes);
    b = overlap_row(rows, name, beside, t, bytes);
    if (alone)
        *alone = a;
    if (!a || !b)
        return 0;
    *square += a->confidence * a->confidence + b->confidence * b->confidence;
    return fmax(b->mean / a->mean, 1);
}

/* Of collectives that had rested before each call, if that was timed: they lose less time, and so
 * what kernels lose to one of them is spread over less. */
static void rested(const struct rows *rows, const char *name, const char *other, enum dtype t, int64_t bytes,
                   struct measured_overlap *o)
{
    char alone[80], beside[80];
    const struct row *a, *b;
    double works = (o->compute - 1) * o->other;

    snprintf(alone, sizeof alone, "alone before %s", name);
    snprintf(beside, sizeof beside, "%s, rested", name);
    a = overlap_row(rows, other, alone, t, bytes);
    b = overlap_row(rows, other, beside, t, bytes);
    if (!a || !b)
        return;
    o->other = fmax(b->mean / a->mean, 1);
    o->compute = 1 + works / o->other;
}

static void add_overlap(const struct rows *rows, enum kernel_class kind, int op, enum dtype t, int64_t bytes,
                        struct measured_device *m, struct measured_overlap *to)
{
    const char *other = op == NCOLL ? "other copy" : coll_name((enum coll_op)op), *name = class_words[kind];
    struct measured_overlap o = { .kind = kind, .op = op, .bytes = bytes };
    const struct row *alone;
    double square = 0;

    o.compute = slower(rows, name, other, t, bytes, NULL, &square);
    o.other = slower(rows, other, name, t, bytes, &alone, &square);
    o.spread = sqrt(square);
    if (o.compute == 0 || o.other == 0)
        return;
    o.alone_s = alone->mean;
    o.ranks = alone->ranks;
    o.per_node = alone->per_node;
    rested(rows, name, other, t, bytes, &o);
    to[m->noverlap++] = o;
}

/* Sizes that were timed of any overlap, ascending. */
static int overlap_sizes(const struct rows *rows, int64_t out[OVERLAP_SIZES])
{
    int n = 0;

    for (int i = 0; i < rows->n; i++) {
        int64_t bytes = overlap_bytes(&rows->r[i]);
        int at = 0;
        if (rows->r[i].kind != SERIES_OVERLAP)
            continue;
        while (at < n && out[at] < bytes)
            at++;
        if ((at < n && out[at] == bytes) || n == OVERLAP_SIZES)
            continue;
        memmove(out + at + 1, out + at, (size_t)(n++ - at) * sizeof *out);
        out[at] = bytes;
    }
    return n;
}

/* In the plan's precision where that was timed. */
static void fit_overlap(const struct rows *all, struct measured_device *m, struct measured_overlap *to)
{
    int64_t sizes[OVERLAP_SIZES];
    struct rows some = rows_of(all, SERIES_OVERLAP);
    const struct rows *rows = &some;
    int n = overlap_sizes(rows, sizes);

    for (int kind = 0; kind < NKERNEL_CLASS; kind++)
        for (int op = 0; op <= NCOLL; op++)
            for (int i = 0; i < n; i++) {
                const char *other = op == NCOLL ? "other copy" : coll_name((enum coll_op)op);
                bool own = overlap_row(rows, class_words[kind], other, m->precision, sizes[i]) != NULL;
                add_overlap(rows, (enum kernel_class)kind, op, own ? m->precision : DT_FP32, sizes[i], m, to);
            }
    free(some.r);
    m->overlap = to;
}

static void fit_own(const struct rows *rows, struct measured_device *m)
{
    struct measured_overheads *o = &m->own;
    struct measured_time *const to[NOWN_WORD] = {
        [OWN_ISSUE_KERNEL] = &o->issue_kernel, [OWN_ISSUE_ENTRY] = &o->issue_entry, [OWN_HANDOVER] = &o->handover,
        [OWN_WAKE] = &o->wake, [OWN_COLD] = &o->cold, [OWN_STEP] = &o->step, [OWN_ALONE] = &m->alone, [OWN_TOGETHER] = &m->together,
    };

    for (int i = 0; i < rows->n; i++) {
        const struct row *r = &rows->r[i];
        bool traced = r->set != KERNELS_DPX;
        int which = r->kind == SERIES_OWN ? word_find(traced ? traced_words : own_words, r->name) : -1;
        if (which >= 0 && traced)
            m->traced_issue[r->set][which] = r->median;
        else if (which >= 0)
            *to[which] = (struct measured_time){ rows->r[i].median, rows->r[i].spread };
    }
}

/* ---- all ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Where the two probes around a series are further apart, one of them met other processes' work, which the
 * median of hundreds of samples did not: the quicker one counts.  No machine drifts further than PACE_MOST. */
#define PROBES_AGREE .10
#define PACE_MOST    1.25

static bool agree(const double probe[2])
{
    double low = fmin(probe[0], probe[1]);

    return low > 0 && fmax(probe[0], probe[1]) <= (1 + PROBES_AGREE) * low;
}

/* What the probe took while the series was timed; 0: not known. */
static double probe_then(const double probe[2])
{
    double low = fmin(probe[0], probe[1]);

    return !(low > 0) ? 0 : agree(probe) ? (probe[0] + probe[1]) / 2 : low;
}

/* What nine changes from a series' probe before to the one after it do not exceed, of ten; where they
 * disagree it was not the machine that changed. */
static double unsteady(const struct rows *rows, double *change)
{
    int n = 0;

    for (int i = 0; i < rows->n; i++) {
        const double *p = rows->r[i].probe;
        if (agree(p))
            change[n++] = fabs(p[1] - p[0]) / (p[0] + p[1]);
    }
    sort_stable(change, (size_t)n, sizeof *change, by_value);
    return n ? change[(int)ceil(.9 * n) - 1] : 0;
}

static void fit_probe(const struct rows *rows, struct measured_device *m)
{
    double *p = malloc((size_t)(rows->n + 1) * sizeof *p);
    struct summary of;
    int n = 0;

    if (!p)
        abort();
    for (int i = 0; i < rows->n; i++) {
        if (probe_then(rows->r[i].probe) > 0)
            p[n++] = probe_then(rows->r[i].probe);
        m->taken = fmax(m->taken, rows->r[i].started);
    }
    if (n > 0) {
        series_summarize(p, n, &of);
        m->probe_s = of.median;
        m->drift = (of.p95 - of.p05) / 2 / of.median;
    }
    m->unsteady = unsteady(rows, p);
    free(p);
}

/* Every series as if the machine had been then what it was at the median probe.  What the executor
 * itself takes is waiting for the kernel more than work, and between nodes the link has a pace of its own:
 * those stay. */
static void at_one_pace(const struct rows *rows, double probe_s)
{
    for (int i = 0; i < rows->n; i++) {
        struct row *r = &rows->r[i];
        double then = probe_then(r->probe);
        bool link = r->kind == SERIES_COLL && r->ranks > r->per_node;
        if (r->kind == SERIES_OWN || r->kind == SERIES_OVERLAP || link || then == 0 || !(probe_s > 0))
            continue;
        double pace = fmin(fmax(probe_s / then, 1 / PACE_MOST), PACE_MOST);
        r->median *= pace;
        r->mean *= pace;
    }
}

/* "dpxcal and of traces": whose series they are. */
static void sources_words(const struct rows *rows, char *to, size_t size)
{
    static const char *const words[] = { "dpxcal", "nccl-tests", "traces" };    /* of calibration_sources[] */
    size_t n = 0;

    to[0] = '\0';
    for (int s = 0; calibration_sources[s]; s++) {
        bool there = false;
        for (int i = 0; i < rows->n && !there; i++)
            there = rows->r[i].source == s;
        if (there)
            n += (size_t)snprintf(to + n, size - n, "%sof %s", n ? " and " : "", words[s]);
    }
}

static void fit_words(const struct rows *rows, const struct fit_want *w, const char *cpu, const char *host,
                      struct measured_device *m)
{
    time_t taken = (time_t)m->taken;
    struct tm day;
    char date[32] = "";

    if (gmtime_r(&taken, &day))
        strftime(date, sizeof date, "%Y-%m-%d", &day);
    snprintf(m->device, sizeof m->device, "%.120s", w->device ? w->device : cpu);
    char sources[64];

    sources_words(rows, sources, sizeof sources);
    snprintf(m->basis, sizeof m->basis, "%d series %.40s on %.70s (%.70s), the newest of %s", rows->n, sources, host, m->device, date);
    if (m->ranks > 0)
        snprintf(m->basis + strlen(m->basis), sizeof m->basis - strlen(m->basis), ", %" PRId64 " x %" PRId64 " thread%s",
                 m->ranks, m->threads, m->threads == 1 ? "" : "s");
}

/* One block for all arrays, each as long as there are rows, which is more than needed. */
static void fit_rows(const struct rows *rows, struct measured_device *m)
{
    size_t n = (size_t)rows->n, overlaps = NKERNEL_CLASS * (NCOLL + 1) * OVERLAP_SIZES;
    char *at = calloc(1, n * (sizeof(struct measured_kernel) + sizeof(struct measured_bytes)
                              + sizeof(struct measured_coll)) + overlaps * sizeof(struct measured_overlap));

    if (!at)
        abort();
    m->store = at;
    fit_probe(rows, m);
    at_one_pace(rows, m->probe_s);
    fit_kernels(rows, m, (struct measured_kernel *)(void *)at);
    at += n * sizeof(struct measured_kernel);
    fit_passes(rows, m, (struct measured_bytes *)(void *)at);
    at += n * sizeof(struct measured_bytes);
    fit_collectives(rows, m, (struct measured_coll *)(void *)at);
    at += n * sizeof(struct measured_coll);
    fit_overlap(rows, m, (struct measured_overlap *)(void *)at);
    fit_own(rows, m);
}

/* What was timed while other processes used the same cores takes longer than the machine needs, all of it by about as
 * much: that does not average out over a step. */
static int fit_late(struct db *db, int64_t machine, struct measured_device *m)
{
    double late = series_lateness(db, machine, m->ranks, m->threads);

    if (isnan(late))
        return -1;
    if (late < SERIES_LATE)
        return 1;
    m->late = 1 - 1 / late;
    m->drift = fmax(m->drift, m->late);
    snprintf(m->warning, sizeof m->warning, "this machine was busy when it was calibrated: its times are up to %.1f times as "
             "long as when it is quiet, and so may predictions be; `dpxcal run` then mends it", late);
    snprintf(m->basis + strlen(m->basis), sizeof m->basis - strlen(m->basis), ", of a busy machine");
    return 1;
}

static int read_machine(struct db *db, const struct fit_want *w, const char *cpu, struct rows *rows,
                        struct measured_device *out)
{
    int64_t machine;
    const char *host = "";

    if (find_machine(db, w, cpu, &machine, &out->cores, &rows->texts, &host) < 0)
        return -1;
    if (machine == 0)
        return 0;
    if (find_ranks(db, machine, w, out->cores, &out->ranks, &out->threads) < 0
        || read_rows(db, machine, out->ranks, out->threads, rows) < 0)
        return -1;
    if (rows->n == 0)
        return 0;
    fit_rows(rows, out);
    fit_words(rows, w, cpu, host, out);
    return w->device ? 1 : fit_late(db, machine, out);
}

int fit_read(struct db *db, const struct fit_want *want, struct measured_device *out)
{
    struct cluster here;
    struct rows rows = { 0 };
    int found;

    memset(out, 0, sizeof *out);
    memset(&here, 0, sizeof here);
    out->precision = want->precision;
    if (!want->device && cluster_of_host(&here, 1) < 0)
        return -1;
    found = read_machine(db, want, here.gpu.title, &rows, out);
    free(rows.r);
    query_texts_free(rows.texts);
    if (found < 1)
        memset(out, 0, sizeof *out);
    return found;
}
