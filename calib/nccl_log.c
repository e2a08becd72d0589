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

/* No buffer is larger; no call of a collective is faster than a cycle or takes a day. */
#define MOST_BYTES (INT64_C(1) << 50)
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

/* Where the reader is: a line of text, or a member of a list in JSON. */
struct spot { const char *path, *list; int n; };

static const char *where(const struct spot *at)
{
    static _Thread_local char words[4200];

    if (at->list)
        snprintf(words, sizeof words, "%.4000s: %s[%d]", at->path, at->list, at->n);
    else
        snprintf(words, sizeof words, "%.4000s:%d", at->path, at->n);
    return words;
}

static void leave_out(struct nccl_left *l, const struct spot *at)
{
    if (l->n++ == 0)
        l->first = at->n;
}

static void add_seconds(struct nccl_point *p, double seconds)
{
    p->seconds = array_grow(p->seconds, p->nseconds, sizeof *p->seconds);
    p->seconds[p->nseconds++] = seconds;
}

/* nccl-tests writes nan where it timed nothing: left out.  What else is beyond reason is no time,
 * so the other columns are in doubt too. */
static int add_time(struct nccl_log *l, struct nccl_point *p, const struct spot *at, double us)
{
    if (isnan(us))
        leave_out(&l->untimed, at);
    else if (!(us >= least_us && us <= most_us))
        return fail("%s: a time of %g us: from a nanosecond (0.001) to a day (8.64e10) is wanted", where(at), us);
    else
        add_seconds(p, us * 1e-6);
    return 0;
}

/* What dpx has no type for is remembered by name. */
static void leave_type(struct nccl_log *l, const char *type)
{
    size_t n = strlen(l->types);

    if (!strstr(l->types, type) && n + strlen(type) + 3 < sizeof l->types)
        snprintf(l->types + n, sizeof l->types - n, "%s%s", n ? ", " : "", type);
    l->nuntyped++;
}

static void count_host(struct nccl_sweep *s, const char *host)
{
    for (int64_t i = 0; i < s->nodes; i++)
        if (!strcmp(s->host[i].name, host)) {
            s->host[i].ranks++;
            return;
        }
    s->host = array_grow(s->host, (int)s->nodes, sizeof *s->host);
    snprintf(s->host[s->nodes].name, sizeof s->host->name, "%s", host);
    s->host[s->nodes++].ranks = 1;
}

/* Of another kind than the ranks before it: one calibration is of one kind of GPU, and a row is of
 * one communicator. */
static int add_rank(struct nccl_sweep *s, const struct spot *at, const char *host, const char *device, int group)
{
    char name[sizeof s->device];

    snprintf(name, sizeof name, "%.63s", device);
    if (s->ranks > 0 && strcmp(name, s->device))
        return fail("%s: a rank on \"%s\", the first one on \"%s\": ranks of one kind of GPU are wanted", where(at), name,
                    s->device);
    if (s->ranks > 0 && group != s->group)
        return fail("%s: ranks of groups %d and %d: each group of NCCL_TESTS_SPLIT is a communicator of its own, and the rows "
                    "do not tell them apart: a run without it is wanted", where(at), s->group, group);
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

/* ---- text ---- */

struct text {
    struct nccl_log *log;
    struct nccl_sweep *s;
    struct spot at;
    int  columns, first, half;  /* of a row; before the first "time"; of a half of the others */
    int  halves, after;         /* 1 or 2; after them: a timestamp's */
    bool redop;                 /* the fourth column's name */
    bool seen_table, cut;       /* cut: the line has no end */
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
    snprintf(t->s->program, sizeof t->s->program, "%s", t->program);
}

static bool is_time(const char *column) { return !strcmp(column, "time") || !strcmp(column, "cputime"); }

/* What every version has in a half; a per-iteration report's columns come after. */
static bool is_half(char *const *token, int n)
{
    return n >= 4 && is_time(token[0]) && !strcmp(token[1], "algbw") && !strcmp(token[2], "busbw")
           && (!strcmp(token[3], "#wrong") || !strcmp(token[3], "error"));
}

/* "# size count type redop root time algbw busbw #wrong time ...". */
static int read_header(struct text *t, char *line)
{
    char *token[TOKENS];
    int n = split(line, token), first = 0, second, end = n;

    while (first < n && !is_time(token[first]))
        first++;
    for (second = first + 1; second < n && !is_time(token[second]); )
        second++;
    if (n > 0 && !strcmp(token[n - 1], "timestamp"))
        end--;
    if (second > end)
        second = end;
    t->half = second - first;
    if (first < 4 || strcmp(token[1], "size") || strcmp(token[3], "type") || !is_half(token + first, t->half)
        || (second < end && (end - second != t->half || !is_half(token + second, t->half))))
        return fail("%s: columns in another order than that of nccl-tests: size count type ... time algbw busbw #wrong, out of "
                    "place and then in place, are wanted", where(&t->at));
    t->halves = second < end ? 2 : 1;
    t->after = 2 * (n - end);           /* a date and an hour */
    t->first = first - 1;               /* the # */
    t->columns = end - 1 + t->after;
    t->redop = !strcmp(token[4], "redop");
    t->seen_table = true;
    return 0;
}

static int read_rank(struct text *t, const char *line)
{
    char host[64], device[64];
    int group = 0;

    if (sscanf(line, "# Rank %*d Group %d Pid %*d on %63s device %*d [%*[^]]] %63[^\r\n]", &group, host, device) == 3
        || sscanf(line, "# Rank %*d Pid %*d on %63s device %*d [%*[^]]] %63[^\r\n]", host, device) == 2)
        return add_rank(t->s, &t->at, host, device, group);
    return 0;
}

static int read_comment(struct text *t, char *line)
{
    char word[64];

    if (strstr(line, "nccl-tests version") || (strstr(line, "nThread") && (!t->s || t->seen_table))) {
        if (!t->s || t->seen_table || t->s->ranks)
            begin_sweep(t);
        if (sscanf(line, "# nccl-tests version %63s", word) == 1)
            snprintf(t->s->version, sizeof t->s->version, "nccl-tests %.16s", word);
        return 0;
    }
    if (!t->s)
        begin_sweep(t);
    if (sscanf(line, "# Collective test starting: %63s", word) == 1)
        snprintf(t->s->program, sizeof t->s->program, "%s", word);
    else if (strstr(line, " size ") && strstr(line, "busbw"))
        return read_header(t, line);
    return read_rank(t, line);
}

/* As printf() writes one: the whole word, and not hexadecimal. */
static bool is_number(const char *word, double *value)
{
    char *end;

    *value = strtod(word, &end);
    return end != word && !*end && !strpbrk(word, "xX");
}

/* Half of a row's tail: time, algbw, busbw, wrong. */
static int read_half(struct text *t, struct nccl_point *p, char *const *at)
{
    double us, wrong = 0;

    if (!is_number(at[0], &us))
        return fail("%s: a time of \"%s\" us: a decimal number is wanted", where(&t->at), at[0]);
    if (strcmp(at[3], "N/A") && !is_number(at[3], &wrong))
        return fail("%s: \"%s\" for #wrong: a number or N/A is wanted", where(&t->at), at[3]);
    if (wrong == 0)
        return add_time(t->log, p, &t->at, us);
    t->log->nwrong++;
    return 0;
}

static void tell_op(struct text *t, char *const *token, char *const *half)
{
    bool rooted = half - token > 4 && strcmp(token[4], "-1");

    if (t->s->op < 0)
        t->s->op = op_of_row(!strcmp(token[3], "sum") || !strcmp(token[3], "avg"), rooted, strtod(half[1], NULL),
                             strtod(half[2], NULL), t->s->ranks);
}

/* How many halves a row has: one of two if only in place, 0 if it is not whole.  Some versions leave
 * redop blank where nothing is reduced: a number, root or time, is in its place. */
static int halves_of(const struct text *t, char *const *token, int n)
{
    double number;
    int missing = t->columns - n - (n > 3 && t->redop && is_number(token[3], &number));

    if (t->cut)                         /* its last number may lack digits */
        return 0;
    return missing == 0 ? t->halves : t->halves == 2 && missing == t->half ? 1 : 0;
}

static int read_row(struct text *t, char *const *token, int n)
{
    int type = dtype_of(token[2]), halves = halves_of(t, token, n), rc = 0;
    int64_t bytes = (errno = 0, strtoll(token[0], NULL, 10));
    char *const *half = token + n - t->after - halves * t->half;

    if (halves == 0) {
        leave_out(&t->log->cut, &t->at);
        return 0;
    }
    if (errno == ERANGE || bytes > MOST_BYTES)
        return fail("%s: a size of %s bytes: at most 2^50 are wanted", where(&t->at), token[0]);
    if (type < 0)
        leave_type(t->log, token[2]);
    if (type < 0 || bytes <= 0)
        return 0;
    struct nccl_point *p = point_of(t->s, bytes, (enum dtype)type);
    for (int i = 0; i < halves && rc == 0; i++)
        rc = read_half(t, p, half + i * t->half);
    if (p->nseconds == 0)
        t->s->npoints--;
    tell_op(t, token, half);
    return rc;
}

/* Rows begin with two whole numbers and a type. */
static bool is_row(char *const *token, int n)
{
    for (int i = 0; i < 2 && n > 2; i++)
        if (strspn(token[i], "0123456789") != strlen(token[i]))
            return false;
    return n > 2 && isalpha((unsigned char)token[2][0]);
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
    if (line[0] == '#')                 /* cut: the file ends here, and half a GPU's name is another one */
        return t->cut ? 0 : read_comment(t, line);
    if (!t->s || !t->seen_table)
        return 0;
    n = split(line, token);
    return is_row(token, n) ? read_row(t, token, n) : 0;
}

/* Some editors begin a file with a byte order mark. */
static FILE *open_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char mark[3];

    if (f && (fread(mark, 1, 3, f) != 3 || memcmp(mark, "\xef\xbb\xbf", 3)))
        rewind(f);
    return f;
}

static int read_text(const char *path, struct nccl_log *out)
{
    struct text t = { .log = out, .at = { .path = path } };
    FILE *f = open_text(path);
    char line[LINE];
    int rc = 0;

    if (!f)
        return fail("%s: %s", path, strerror(errno));
    while (rc == 0 && fgets(line, sizeof line, f)) {
        t.at.n++;
        t.cut = !strchr(line, '\n');
        rc = read_line(&t, line);
    }
    if (rc == 0 && ferror(f))
        rc = fail("%s: %s", path, strerror(errno));
    fclose(f);
    return rc;
}

/* ---- JSON ---- */

/* nccl-tests writes "nan" for what has no time. */
static double us_of(const json_t *time) { return json_is_number(time) ? json_number_value(time) : NAN; }

static int read_times(const json_t *row, const char *half, const char *each, struct nccl_log *l, struct nccl_point *p,
                      const struct spot *at)
{
    const json_t *of = json_object_get(row, half), *list = json_object_get(json_object_get(row, each), "times_us");
    const json_t *time = json_object_get(of, "time"), *wrong = json_object_get(of, "nwrong"), *one;
    int rc = 0;
    size_t i;

    if (wrong && !json_is_number(wrong) && !json_is_null(wrong))
        return fail("%s: \"nwrong\" of \"%s\": a number or null is wanted", where(at), half);
    if (json_is_number(wrong) && json_number_value(wrong) != 0) {
        l->nwrong++;
        return 0;
    }
    json_array_foreach(list, i, one)
        if (rc == 0)
            rc = add_time(l, p, at, us_of(one));
    if (json_array_size(list) > 0 || !of || json_is_null(of))      /* null: not measured */
        return rc;
    return add_time(l, p, at, us_of(time ? time : json_object_get(of, "cpu_time")));
}

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

/* The type; -1: the result is left out, -2 reported. */
static int type_of_result(struct nccl_log *l, const json_t *row, const struct spot *at)
{
    const json_t *size = json_object_get(row, "size");
    const char *type = text_of(row, "type");

    if (!json_is_integer(size) || json_integer_value(size) < 0) {
        leave_out(&l->sizeless, at);
        return -1;
    }
    if (json_integer_value(size) > MOST_BYTES)
        return fail("%s: a size of %lld bytes: at most 2^50 are wanted", where(at), (long long)json_integer_value(size)) - 1;
    if (dtype_of(type) < 0)
        leave_type(l, type);
    return json_integer_value(size) > 0 ? dtype_of(type) : -1;
}

static int read_result(struct nccl_log *l, struct nccl_sweep *s, const json_t *row, const struct spot *at)
{
    int type = type_of_result(l, row, at), rc;
    const char *redop = text_of(row, "redop"), *root = text_of(row, "root");
    const json_t *of = json_object_get(row, "in_place");

    if (type < 0)
        return type == -1 ? 0 : -1;
    struct nccl_point *p = point_of(s, json_integer_value(json_object_get(row, "size")), (enum dtype)type);
    rc = read_times(row, "out_of_place", "out_of_place_per_iter", l, p, at);
    if (rc == 0)
        rc = read_times(row, "in_place", "in_place_per_iter", l, p, at);
    if (p->nseconds == 0)
        s->npoints--;
    if (s->op < 0)
        s->op = op_of_row(!strcmp(redop, "sum") || !strcmp(redop, "avg"), !strstr(root, "-1"),
                          json_number_value(json_object_get(of, "alg_bw")),
                          json_number_value(json_object_get(of, "bus_bw")), s->ranks);
    return rc;
}

static int read_device(struct nccl_sweep *s, const json_t *device, const struct spot *at)
{
    const char *host = text_of(device, "hostname");
    char name[64];

    if (!*host)
        return fail("%s: no \"hostname\": without it the nodes cannot be counted", where(at));
    snprintf(name, sizeof name, "%.63s", host);
    return add_rank(s, at, name, text_of(device, "device_info"),
                    (int)json_integer_value(json_object_get(device, "group")));
}

static int read_lists(const char *path, const json_t *j, struct nccl_log *out)
{
    struct spot at = { .path = path, .list = "config.devices" };
    struct nccl_sweep *s = new_sweep(out);
    const char *program = json_string_value(json_array_get(json_object_get(j, "args"), 0));
    const json_t *list = json_object_get(json_object_get(j, "config"), "devices");
    int rc = 0;

    snprintf(s->program, sizeof s->program, "%.63s", program ? program : "");
    snprintf(s->version, sizeof s->version, "NCCL %lld",
             (long long)json_integer_value(json_object_get(j, "nccl_version")));
    for (; rc == 0 && at.n < (int)json_array_size(list); at.n++)
        rc = read_device(s, json_array_get(list, (size_t)at.n), &at);
    list = json_object_get(j, "results");
    at = (struct spot){ .path = path, .list = "results" };
    for (; rc == 0 && at.n < (int)json_array_size(list); at.n++)
        rc = read_result(out, s, json_array_get(list, (size_t)at.n), &at);
    return rc;
}

/* json_read_data() takes a byte order mark for malformed JSON. */
static json_t *load(const char *path)
{
    FILE *f = open_text(path);
    json_error_t e;
    json_t *j = NULL;

    if (!f || ftell(f) == 0)
        j = json_read_data(path);
    else if (!(j = json_loadf(f, JSON_REJECT_DUPLICATES, &e)))
        fail("%s:%d:%d: malformed JSON", path, e.line, e.column);
    if (f)
        fclose(f);
    return j;
}

static int read_json(const char *path, struct nccl_log *out)
{
    json_t *j = load(path);
    int rc;

    if (!j)
        return -1;
    if (json_is_array(json_object_get(j, "results")))
        rc = read_lists(path, j, out);
    else
        rc = fail("%s: JSON without \"results\": not that of nccl-tests; what dpxcal exported is taken without the word "
                  "nccl-tests", path);
    json_decref(j);
    return rc;
}

/* ---- both ---- */

static bool is_json(const char *path)
{
    FILE *f = open_text(path);
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
    for (int64_t i = 1; i < s->nodes; i++)
        if (s->host[i].ranks != s->host[0].ranks)
            return fail("%s: %lld ranks on node %s and %lld on %s: not as many on each, as is wanted", path,
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
            struct nccl_point *of = point_of(to, s->point[p].bytes, s->point[p].dtype);
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
    return fail("%s: no results of nccl-tests in it: its output is wanted, from the first line to the last", path);
}

int nccl_log_read(const char *path, int op, struct nccl_log *out)
{
    int rc, first = -1;

    memset(out, 0, sizeof *out);
    rc = is_json(path) ? read_json(path, out) : read_text(path, out);
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
