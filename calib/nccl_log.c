/* nccl_log.c -- see nccl_log.h.  The columns are those of nccl-tests' src/util.cu, told by the
 * header line: they have changed with versions and options (`error` became `#wrong`, root came in
 * 2.10, per-iteration columns in 2.18). */
#include "calib/nccl_log.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "calib/query.h"
#include "model/cluster.h"
#include "model/fail.h"
#include "model/files.h"

enum { TOKENS = 40, LINE = 4096 };

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

/* By what a row says: the reduction, the root, and busbw over algbw (doc/PERFORMANCE.md): 2(n-1)/n
 * for all-reduce, (n-1)/n for reduce-scatter.  All-gather and all-to-all are alike. */
static int op_of_row(bool reduces, bool rooted, double algbw, double busbw, int64_t n)
{
    double shard = n > 1 ? (double)(n - 1) / (double)n : 0;

    if (rooted)
        return reduces ? COLL_REDUCE : COLL_BROADCAST;
    if (!reduces || n < 2 || algbw < 1)         /* two digits: too few of small numbers */
        return -1;
    return busbw / algbw > 1.5 * shard ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER;
}

static int dtype_of(const char *type)
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

static struct nccl_sweep *new_sweep(struct nccl_log *l)
{
    l->sweep = array_grow(l->sweep, l->nsweeps, sizeof *l->sweep);
    l->sweep[l->nsweeps] = (struct nccl_sweep){ .op = -1 };
    return &l->sweep[l->nsweeps++];
}

/* A size that was measured again (several cycles, option -N) has more samples. */
static struct nccl_point *point_of(struct nccl_sweep *s, int64_t bytes, enum dtype t)
{
    for (int i = 0; i < s->npoints; i++)
        if (s->point[i].bytes == bytes && s->point[i].dtype == t)
            return &s->point[i];
    s->point = array_grow(s->point, s->npoints, sizeof *s->point);
    s->point[s->npoints] = (struct nccl_point){ .bytes = bytes, .dtype = t };
    return &s->point[s->npoints++];
}

static void add_seconds(struct nccl_point *p, double microseconds)
{
    if (!(microseconds > 0))
        return;
    p->seconds = array_grow(p->seconds, p->nseconds, sizeof *p->seconds);
    p->seconds[p->nseconds++] = microseconds * 1e-6;
}

static void add_rank(struct nccl_sweep *s, const char *host, const char *device, char *last)
{
    s->ranks++;
    if (strcmp(last, host))             /* ranks are listed by process, those of a node together */
        s->nodes++;
    snprintf(last, 64, "%.63s", host);
    if (s->ranks == 1) {
        snprintf(s->first_host, sizeof s->first_host, "%.63s", host);
        snprintf(s->device, sizeof s->device, "%.63s", device);
    }
}

void nccl_log_free(struct nccl_log *l)
{
    for (int i = 0; i < l->nsweeps; i++) {
        for (int k = 0; k < l->sweep[i].npoints; k++)
            free(l->sweep[i].point[k].seconds);
        free(l->sweep[i].point);
    }
    free(l->sweep);
    memset(l, 0, sizeof *l);
}

/* ---- text ---- */

struct text {
    struct nccl_log *log;
    struct nccl_sweep *s;
    const char *path;
    int  line, tail;            /* columns from the first "time" on */
    bool seen_table;
    char host[64];              /* of the last rank listed */
    char program[64];           /* named before the sweep began: the command */
};

static int split(char *line, char *token[TOKENS])
{
    int n = 0;

    for (char *at = strtok(line, " \t\r\n"); at && n < TOKENS; at = strtok(NULL, " \t\r\n"))
        token[n++] = at;
    return n;
}

static void begin_sweep(struct text *t)
{
    t->s = new_sweep(t->log);
    t->seen_table = false;
    t->host[0] = '\0';
    snprintf(t->s->program, sizeof t->s->program, "%s", t->program);
}

/* "# size count type redop root time algbw busbw #wrong time ...". */
static void read_header(struct text *t, char *line)
{
    char *token[TOKENS];
    int n = split(line, token), i = 0;

    while (i < n && strcmp(token[i], "time") && strcmp(token[i], "cputime"))
        i++;
    t->tail = n - i;
    for (; i < n; i++)
        t->tail += !strcmp(token[i], "timestamp");      /* a date and an hour */
    t->seen_table = true;
}

static void read_comment(struct text *t, char *line)
{
    char host[64], device[64], word[64];

    if (strstr(line, "nccl-tests version") || (strstr(line, "nThread") && (!t->s || t->seen_table))) {
        if (!t->s || t->seen_table || t->s->ranks)
            begin_sweep(t);
        if (sscanf(line, "# nccl-tests version %63s", word) == 1)
            snprintf(t->s->version, sizeof t->s->version, "nccl-tests %.16s", word);
        return;
    }
    if (!t->s)
        begin_sweep(t);
    if (sscanf(line, "# Collective test starting: %63s", word) == 1)
        snprintf(t->s->program, sizeof t->s->program, "%s", word);
    else if (sscanf(line, "# Rank %*d Group %*d Pid %*d on %63s device %*d [%*[^]]] %63[^\r\n]", host, device) == 2
             || sscanf(line, "# Rank %*d Pid %*d on %63s device %*d [%*[^]]] %63[^\r\n]", host, device) == 2)
        add_rank(t->s, host, device, t->host);
    else if (strstr(line, " size ") && strstr(line, "busbw"))
        read_header(t, line);
}

static bool is_zero(const char *wrong)
{
    return !strcmp(wrong, "N/A") || strtod(wrong, NULL) == 0;
}

/* Half of a row's tail: time, algbw, busbw, wrong. */
static void read_half(struct text *t, struct nccl_point *p, char *const *at)
{
    if (is_zero(at[3]))
        add_seconds(p, strtod(at[0], NULL));
    else
        t->log->nwrong++;
}

static int read_row(struct text *t, char *const *token, int n)
{
    int tail = t->tail, first = n - tail, type = dtype_of(token[2]);
    int64_t bytes = strtoll(token[0], NULL, 10);

    if (first < 3) {                    /* in place only */
        tail /= 2;
        first = n - tail;
    }
    if (first < 3 || tail < 4)
        return fail("%s:%d: a row of %d columns, where the header has %d after the first ones", t->path, t->line, n,
                    t->tail);
    if (type < 0 || bytes <= 0)
        return 0;                       /* 8-bit floats; a size of zero */
    struct nccl_point *p = point_of(t->s, bytes, (enum dtype)type);
    read_half(t, p, &token[first]);
    if (tail == t->tail)
        read_half(t, p, &token[first + tail / 2]);
    if (p->nseconds == 0)
        t->s->npoints--;
    if (t->s->op < 0)
        t->s->op = op_of_row(!strcmp(token[3], "sum") || !strcmp(token[3], "avg"),
                             first > 4 && strcmp(token[4], "-1"), strtod(token[first + 1], NULL),
                             strtod(token[first + 2], NULL), t->s->ranks);
    return 0;
}

/* Rows begin with two whole numbers and a type. */
static bool is_row(char *const *token, int n)
{
    for (int i = 0; i < 2 && n > 6; i++)
        if (strspn(token[i], "0123456789") != strlen(token[i]))
            return false;
    return n > 6 && isalpha((unsigned char)token[2][0]);
}

/* What mpirun --tag-output puts before every line. */
static char *untagged(char *line)
{
    char *tag = strstr(line, "<stdout>:");

    return tag ? tag + strlen("<stdout>:") : line;
}

/* The word of which "_perf" is the end. */
static void note_program(struct text *t, const char *line, const char *perf)
{
    const char *from = perf;

    while (from > line && (isalpha((unsigned char)from[-1]) || from[-1] == '_'))
        from--;
    snprintf(t->program, sizeof t->program, "%.*s", (int)(perf - from), from);
}

static int read_line(struct text *t, char *line)
{
    char *token[TOKENS], *perf;
    int n;

    line = untagged(line);
    line += strspn(line, " \t");
    perf = strstr(line, "_perf");
    if (perf)                           /* the command, or "Collective test starting" */
        note_program(t, line, perf);
    if (line[0] == '#') {
        read_comment(t, line);
        return 0;
    }
    if (!t->s || !t->seen_table)
        return 0;
    n = split(line, token);
    return is_row(token, n) ? read_row(t, token, n) : 0;
}

static int read_text(const char *path, struct nccl_log *out)
{
    struct text t = { .log = out, .path = path };
    FILE *f = fopen(path, "r");
    char line[LINE];
    int rc = 0;

    if (!f)
        return fail("%s: %s", path, strerror(errno));
    while (rc == 0 && fgets(line, sizeof line, f)) {
        t.line++;
        rc = read_line(&t, line);
    }
    if (rc == 0 && ferror(f))
        rc = fail("%s: %s", path, strerror(errno));
    fclose(f);
    return rc;
}

/* ---- JSON ---- */

static void read_times(const json_t *row, const char *half, const char *each, struct nccl_log *l, struct nccl_point *p)
{
    const json_t *of = json_object_get(row, half), *list = json_object_get(json_object_get(row, each), "times_us");
    const json_t *time = json_object_get(of, "time"), *wrong = json_object_get(of, "nwrong"), *one;
    size_t i;

    if (json_is_number(wrong) && json_number_value(wrong) > 0) {
        l->nwrong++;
        return;
    }
    if (json_array_size(list) > 0) {
        json_array_foreach(list, i, one)
            add_seconds(p, json_number_value(one));
        return;
    }
    add_seconds(p, json_number_value(json_is_number(time) ? time : json_object_get(of, "cpu_time")));
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

static void read_result(struct nccl_log *l, struct nccl_sweep *s, const json_t *row)
{
    int type = dtype_of(text_of(row, "type"));
    int64_t bytes = json_integer_value(json_object_get(row, "size"));
    const char *redop = text_of(row, "redop"), *root = text_of(row, "root");
    const json_t *of = json_object_get(row, "in_place");

    if (type < 0 || bytes <= 0)
        return;
    struct nccl_point *p = point_of(s, bytes, (enum dtype)type);
    read_times(row, "out_of_place", "out_of_place_per_iter", l, p);
    read_times(row, "in_place", "in_place_per_iter", l, p);
    if (p->nseconds == 0)
        s->npoints--;
    if (s->op < 0)
        s->op = op_of_row(!strcmp(redop, "sum") || !strcmp(redop, "avg"), !strstr(root, "-1"),
                          json_number_value(json_object_get(of, "alg_bw")),
                          json_number_value(json_object_get(of, "bus_bw")), s->ranks);
}

static int read_json(const char *path, struct nccl_log *out)
{
    json_t *j = json_read_data(path), *device, *row;
    const json_t *results = json_object_get(j, "results");
    char last[64] = "";
    size_t i;

    if (!j)
        return -1;
    if (!json_is_array(results)) {
        json_decref(j);
        return fail("%s: JSON without \"results\": not that of nccl-tests; what dpxcal exported is taken without the "
                    "word nccl-tests", path);
    }
    struct nccl_sweep *s = new_sweep(out);
    const char *program = json_string_value(json_array_get(json_object_get(j, "args"), 0));
    snprintf(s->program, sizeof s->program, "%.63s", program ? program : "");
    snprintf(s->version, sizeof s->version, "NCCL %lld",
             (long long)json_integer_value(json_object_get(j, "nccl_version")));
    json_array_foreach(json_object_get(json_object_get(j, "config"), "devices"), i, device)
        add_rank(s, text_of(device, "hostname"), text_of(device, "device_info"), last);
    json_array_foreach(results, i, row)
        read_result(out, s, row);
    json_decref(j);
    return 0;
}

/* ---- both ---- */

static bool is_json(const char *path)
{
    FILE *f = fopen(path, "r");
    int c = 0;

    if (!f)
        return false;
    while ((c = fgetc(f)) != EOF && isspace(c))
        ;
    fclose(f);
    return c == '{';
}

/* What it measured: as told, as the program is called, as the rows look, as the file is called. */
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
    return 0;
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
            struct nccl_point *of = point_of(to, s->point[p].bytes, s->point[p].dtype);
            for (int n = 0; n < s->point[p].nseconds; n++)
                add_seconds(of, 1e6 * s->point[p].seconds[n]);
            free(s->point[p].seconds);
        }
        s->npoints = 0;
        return;
    }
}

int nccl_log_read(const char *path, int op, struct nccl_log *out)
{
    int rc, kept = 0;

    memset(out, 0, sizeof *out);
    rc = is_json(path) ? read_json(path, out) : read_text(path, out);
    for (int i = 0; rc == 0 && i < out->nsweeps; i++) {
        struct nccl_sweep *s = &out->sweep[i];
        if (s->npoints == 0)
            continue;
        rc = settle(path, op, s);
        kept++;
        if (rc == 0)
            merge_again(out, i);
    }
    if (rc == 0 && kept == 0)
        rc = fail("%s: no results of nccl-tests in it: its output is wanted, from the first line to the last", path);
    if (rc < 0)
        nccl_log_free(out);
    return rc;
}
