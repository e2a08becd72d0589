/* nccl_log.c -- what a log measured, and on what: see nccl_log.h.  Text is read by nccl_text.c, JSON by
 * nccl_json.c. */
#include "calib/import/nccl_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/printable.h"
#include "calib/store/query.h"
#include "model/cluster/cluster.h"

/* No call of a collective is faster than a cycle or takes a day. */
static const double least_us = 1e-3, most_us = 86400e6;

/* ---- what it was ---- */

/* Longer names first: "reduce_scatter_perf" has "reduce" and "scatter" in it. */
static const struct { const char *word; int op; } programs[] = {
    { "all_reduce", COLL_ALL_REDUCE }, { "allreduce", COLL_ALL_REDUCE }, { "all_gather", COLL_ALL_GATHER },
    { "allgather", COLL_ALL_GATHER }, { "reduce_scatter", COLL_REDUCE_SCATTER },
    { "reducescatter", COLL_REDUCE_SCATTER }, { "broadcast", COLL_BROADCAST }, { "alltoall", NCOLL },
    { "sendrecv", NCOLL }, { "hypercube", NCOLL }, { "reduce", COLL_REDUCE }, { "scatter", COLL_SCATTER },
    { "gather", COLL_GATHER },
};

/* The collective that a program's or file's name says; -1 none, NCOLL one that dpx has no use for. */
static int op_in(const char *text)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strstr(text, programs[i].word))
            return programs[i].op;
    return -1;
}

int nccl_op_of_row(bool reduces, bool rooted, double algbw, double busbw, int64_t n)
{
    double shard = n > 1 ? (double)(n - 1) / (double)n : 0;

    if (rooted)
        return reduces ? COLL_REDUCE : COLL_BROADCAST;
    if (!reduces || n < 2 || algbw < 1)         /* two digits: too few of small numbers */
        return -1;
    return busbw / algbw > 1.5 * shard ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER;
}

int nccl_dtype_of(const char *type)
{
    static const struct { const char *word; enum dtype t; } types[] = {
        { "float", DT_FP32 }, { "half", DT_FP16 }, { "bfloat16", DT_BF16 }, { "double", DT_FP64 },
        { "int32", DT_INT32 }, { "int", DT_INT32 }, { "int64", DT_INT64 }, { "uint8", DT_UINT8 }, { "int8", DT_UINT8 },
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].word))
            return (int)types[i].t;
    return -1;
}

const char *nccl_device(const char *device)
{
    char name[64];
    size_t n = 0;

    if (!strncmp(device, "NVIDIA ", 7) || !strncmp(device, "Tesla ", 6))
        device = strchr(device, ' ') + 1;
    for (; device[n] && n + 1 < sizeof name; n++)
        name[n] = device[n] == ' ' ? '-' : (char)tolower((unsigned char)device[n]);
    name[n] = '\0';
    /* Without the last word, again and again: "h200-nvl", "h200". */
    for (char *cut = name; cut; cut = strrchr(name, '-')) {
        const struct gpu *g;
        if (cut != name)
            *cut = '\0';
        if ((g = gpu_find(name)))
            return g->name;
    }
    return NULL;
}

/* ---- building ---- */

struct nccl_sweep *nccl_new_sweep(struct nccl_log *l)
{
    l->sweep = query_array_grow(l->sweep, l->nsweeps, sizeof *l->sweep);
    l->sweep[l->nsweeps] = (struct nccl_sweep){ .op = -1 };
    return &l->sweep[l->nsweeps++];
}

/* A size that was measured again (several cycles, option -N) has more samples. */
struct nccl_point *nccl_point_of(struct nccl_sweep *s, int64_t bytes, enum dtype t)
{
    for (int i = 0; i < s->npoints; i++)
        if (s->point[i].bytes == bytes && s->point[i].dtype == t)
            return &s->point[i];
    s->point = query_array_grow(s->point, s->npoints, sizeof *s->point);
    s->point[s->npoints] = (struct nccl_point){ .bytes = bytes, .dtype = t };
    return &s->point[s->npoints++];
}

const char *nccl_where(const struct nccl_spot *at)
{
    static _Thread_local char words[4200];

    if (at->list)
        snprintf(words, sizeof words, "%.4000s: %s[%d]", at->path, at->list, at->n);
    else
        snprintf(words, sizeof words, "%.4000s:%d", at->path, at->n);
    return words;
}

void nccl_leave_out(struct nccl_left *l, const struct nccl_spot *at)
{
    if (l->n++ == 0)
        l->first = at->n;
}

static void add_seconds(struct nccl_point *p, double seconds)
{
    p->seconds = query_array_grow(p->seconds, p->nseconds, sizeof *p->seconds);
    p->seconds[p->nseconds++] = seconds;
}

/* nccl-tests writes nan where it timed nothing: left out.  What else is beyond reason is no time,
 * so the other columns are in doubt too. */
int nccl_add_time(struct nccl_log *l, struct nccl_point *p, const struct nccl_spot *at, double us)
{
    if (isnan(us))
        nccl_leave_out(&l->untimed, at);
    else if (!(us >= least_us && us <= most_us))
        return fail("%s: a time of %g us: expected a nanosecond (0.001) to a day (8.64e10)", nccl_where(at), us);
    else
        add_seconds(p, us * 1e-6);
    return 0;
}

/* What dpx has no type for is remembered by name. */
void nccl_leave_type(struct nccl_log *l, const char *type)
{
    size_t n = strlen(l->types);
    char word[sizeof l->types];

    printable_copy(word, sizeof word, type);
    if (!strstr(l->types, word) && n + strlen(word) + 3 < sizeof l->types) {
        strcat(l->types, n ? ", " : "");
        strcat(l->types, word);
    }
    l->nuntyped++;
}

static void count_host(struct nccl_sweep *s, const char *host)
{
    for (int64_t i = 0; i < s->nodes; i++)
        if (!strcmp(s->host[i].name, host)) {
            s->host[i].ranks++;
            return;
        }
    s->host = query_array_grow(s->host, (int)s->nodes, sizeof *s->host);
    snprintf(s->host[s->nodes].name, sizeof s->host->name, "%s", host);
    s->host[s->nodes++].ranks = 1;
}

/* Of another kind than the ranks before it: one calibration is of one kind of GPU, and a row is of
 * one communicator. */
int nccl_add_rank(struct nccl_sweep *s, const struct nccl_spot *at, const char *host, const char *device, int group)
{
    char name[sizeof s->device];

    snprintf(name, sizeof name, "%.63s", device);
    if (s->ranks > 0 && strcmp(name, s->device))
        return fail("%s: a rank on \"%s\", the first one on \"%s\": all ranks must have one kind of GPU", nccl_where(at), name,
                    s->device);
    if (s->ranks > 0 && group != s->group)
        return fail("%s: ranks of groups %d and %d: each group of NCCL_TESTS_SPLIT is a communicator of its own, and the rows "
                    "do not tell them apart: repeat the run without it", nccl_where(at), s->group, group);
    if (s->ranks++ == 0) {
        memcpy(s->device, name, sizeof name);
        s->group = group;
        s->line = at->n;
    }
    count_host(s, host);
    return 0;
}

void nccl_log_free(struct nccl_log *l)
{
    for (int i = 0; i < l->nsweeps; i++) {
        free(l->sweep[i].host);
        for (int k = 0; k < l->sweep[i].npoints; k++)
            free(l->sweep[i].point[k].seconds);
        free(l->sweep[i].point);
    }
    free(l->sweep);
    memset(l, 0, sizeof *l);
}

/* ---- reading ---- */

/* Some editors begin a file with a byte order mark.  It is opened twice, so that no pipe can be it. */
FILE *nccl_open(const char *path)
{
    int fd = input_file(path, NULL);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char mark[3];

    if (f && (fread(mark, 1, 3, f) != 3 || memcmp(mark, "\xef\xbb\xbf", 3)))
        rewind(f);
    return f;
}

/* Whether it is; -1 reported. */
static int is_json(const char *path)
{
    FILE *f = nccl_open(path);
    int c = 0;

    if (!f)
        return -1;
    while ((c = fgetc(f)) != EOF && isspace(c))
        ;
    fclose(f);
    return c == '{';
}

/* What it measured: by --op, by the program's name, by the rows, by the file's name. */
static int settle(const char *path, int told, struct nccl_sweep *s)
{
    const char *slash = strrchr(path, '/');
    int named = op_in(s->program), file = op_in(slash ? slash + 1 : path);

    if (named >= 0)
        s->op = named;
    else if (told >= 0)
        s->op = told;
    else if (s->op < 0)
        s->op = file;
    if (s->op == NCOLL)
        return fail("%s: %s: no schedule of dpx has this collective", path, s->program);
    if (s->op < 0)
        return fail("%s: which collective it measured is not said: give --op", path);
    if (s->ranks < 1)
        return fail("%s: the lines that list the ranks (\"# Rank 0 ...\") are missing", path);
    for (int64_t i = 1; i < s->nodes; i++)
        if (s->host[i].ranks != s->host[0].ranks)
            return fail("%s: %lld ranks on node %s and %lld on %s: every node needs the same number", path,
                        (long long)s->host[0].ranks, s->host[0].name, (long long)s->host[i].ranks, s->host[i].name);
    return 0;
}

/* A file is one calibration, and that is of one machine. */
static int same_gpu(const char *path, const struct nccl_sweep *first, const struct nccl_sweep *s)
{
    if (!strcmp(first->device, s->device))
        return 0;
    return fail("%s:%d: a run on \"%s\", that of line %d on \"%s\": a file is of one kind of GPU: import them apart", path,
                s->line, s->device, first->line, first->device);
}

/* The same program on the same ranks once more: one sweep with more samples. */
static void merge_again(struct nccl_log *l, int i)
{
    struct nccl_sweep *s = &l->sweep[i];

    for (int k = 0; k < i; k++) {
        struct nccl_sweep *to = &l->sweep[k];
        if (to->npoints == 0 || to->op != s->op || to->ranks != s->ranks || to->nodes != s->nodes
            || strcmp(to->device, s->device))
            continue;
        for (int p = 0; p < s->npoints; p++) {
            struct nccl_point *of = nccl_point_of(to, s->point[p].bytes, s->point[p].dtype);
            for (int n = 0; n < s->point[p].nseconds; n++)
                add_seconds(of, s->point[p].seconds[n]);
            free(s->point[p].seconds);
        }
        s->npoints = 0;
        return;
    }
}

/* Why nothing of it can be taken. */
static int no_results(const char *path, const struct nccl_log *l)
{
    if (l->nuntyped)
        return fail("%s: results of %s only, which dpx does not use: float, half, bfloat16, double, int32, int64 or int8 is "
                    "wanted", path, l->types);
    if (l->cut.n)
        return fail("%s:%d: a row with another number of columns than the header, and no whole one: the output of nccl-tests "
                    "is wanted, from the first line to the last", path, l->cut.first);
    if (l->nwrong || l->untimed.n || l->sizeless.n)
        return fail("%s: no result of use: %d with wrong values, %d without a time, %d without a size in whole bytes", path,
                    l->nwrong, l->untimed.n, l->sizeless.n);
    return fail("%s: no results of nccl-tests in it: give its whole output, from the first line to the last", path);
}

int nccl_log_read(const char *path, int op, struct nccl_log *out)
{
    int rc = is_json(path), first = -1;

    memset(out, 0, sizeof *out);
    if (rc >= 0)
        rc = rc ? nccl_read_json(path, out) : nccl_read_text(path, out);
    for (int i = 0; rc == 0 && i < out->nsweeps; i++) {
        struct nccl_sweep *s = &out->sweep[i];
        if (s->npoints == 0)
            continue;
        first = first < 0 ? i : first;
        rc = settle(path, op, s);
        if (rc == 0)
            rc = same_gpu(path, &out->sweep[first], s);
        if (rc == 0)
            merge_again(out, i);
    }
    if (rc == 0 && first < 0)
        rc = no_results(path, out);
    if (rc < 0)
        nccl_log_free(out);
    return rc;
}
