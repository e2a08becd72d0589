/* nccl_text.c -- nccl-tests' text.  The columns are those of its src/util.cu, named in the header line: they
 * have changed with versions and options (`error` became `#wrong`, root came in 2.10, per-iteration
 * columns in 2.18). */
#include "calib/import/nccl_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { TOKENS = 40, LINE = 4096 };

struct text {
    struct nccl_log *log;
    struct nccl_sweep *s;
    struct nccl_spot at;
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
    t->s = nccl_new_sweep(t->log);
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
                    "place and then in place, are wanted", nccl_where(&t->at));
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
        return nccl_add_rank(t->s, &t->at, host, device, group);
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
        return fail("%s: a time of \"%s\" us: expected a decimal number", nccl_where(&t->at), at[0]);
    if (strcmp(at[3], "N/A") && !is_number(at[3], &wrong))
        return fail("%s: \"%s\" for #wrong: expected a number or N/A", nccl_where(&t->at), at[3]);
    if (wrong == 0)
        return nccl_add_time(t->log, p, &t->at, us);
    t->log->nwrong++;
    return 0;
}

static void tell_op(struct text *t, char *const *token, char *const *half)
{
    bool rooted = half - token > 4 && strcmp(token[4], "-1");

    if (t->s->op < 0)
        t->s->op = nccl_op_of_row(!strcmp(token[3], "sum") || !strcmp(token[3], "avg"), rooted, strtod(half[1], NULL),
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
    int type = nccl_dtype_of(token[2]), halves = halves_of(t, token, n), rc = 0;
    int64_t bytes = (errno = 0, strtoll(token[0], NULL, 10));
    char *const *half = token + n - t->after - halves * t->half;

    if (halves == 0) {
        nccl_leave_out(&t->log->cut, &t->at);
        return 0;
    }
    if (errno == ERANGE || bytes > NCCL_MOST_BYTES)
        return fail("%s: a size of %s bytes: at most 2^50 are allowed", nccl_where(&t->at), token[0]);
    if (type < 0)
        nccl_leave_type(t->log, token[2]);
    if (type < 0 || bytes <= 0)
        return 0;
    struct nccl_point *p = nccl_point_of(t->s, bytes, (enum dtype)type);
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

int nccl_read_text(const char *path, struct nccl_log *out)
{
    struct text t = { .log = out, .at = { .path = path } };
    FILE *f = nccl_open(path);
    char line[LINE];
    int rc = 0;

    if (!f)
        return -1;
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
