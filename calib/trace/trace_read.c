/* trace_read.c -- a reader of JSON events that holds one event at a time, plain or gzipped. */
#include "calib/trace/trace_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/fail.h"
#include "base/input.h"

enum { BUFFER = 1 << 16, DEEPEST = 200 };

/* A compressed file of some megabytes may unpack to a thousand times as much, of blanks. */
#define LONGEST_TRACE (INT64_C(16) << 30)

/* Where in the document the next call of trace_next() goes on. */
enum place { AT_START, IN_EVENTS, IN_DOCUMENT, AT_END };

/* `failed` sticks: after it every character is END, so that loops run out by themselves. */
struct trace_reader {
    gzFile        gz;
    char         *path;
    int64_t       line, column, unpacked;
    int           at, n, depth;
    enum place    place;
    bool          bare;             /* the document is the list itself */
    bool          first;            /* no event, or member, was read yet */
    bool          had_events, failed;
    struct trace_info info;
    unsigned char buffer[BUFFER];
};

enum { END = -1 };

/* ---- characters ---- */

static int bad(struct trace_reader *r, const char *what)
{
    if (!r->failed)
        fail("%s: line %" PRId64 ", column %" PRId64 ": %s", r->path, r->line, r->column, what);
    r->failed = true;
    return -1;
}

/* Reads on; false at the end of the file or on an error. */
static bool refill(struct trace_reader *r)
{
    int why = Z_OK, n;

    if (r->failed)
        return false;
    errno = 0;
    n = gzread(r->gz, r->buffer, BUFFER);
    if (n < 0) {
        const char *words = gzerror(r->gz, &why);
        fail("%s: %s", r->path, why == Z_BUF_ERROR ? "the compressed file is cut short"
                              : why == Z_ERRNO || !*words ? strerror(errno) : words);
        r->failed = true;
    }
    r->at = 0;
    r->n = n > 0 ? n : 0;
    r->unpacked += r->n;
    if (r->unpacked > LONGEST_TRACE)
        return bad(r, "the trace has more than 16 GiB: profile fewer steps") == 0;
    return n > 0;
}

static inline int peek(struct trace_reader *r)
{
    return !r->failed && (r->at < r->n || refill(r)) ? r->buffer[r->at] : END;
}

static inline int take(struct trace_reader *r)
{
    int c = peek(r);

    if (c == END)
        return END;
    r->at++;
    r->column++;
    if (c == '\n') {
        r->line++;
        r->column = 1;
    }
    return c;
}

/* The next character that is not white space, not taken. */
static int after_space(struct trace_reader *r)
{
    int c;

    while ((c = peek(r)) == ' ' || c == '\n' || c == '\t' || c == '\r')
        take(r);
    return c;
}

static int unexpected(struct trace_reader *r, const char *wanted)
{
    char what[128];
    int c = peek(r);

    if (c == END)
        snprintf(what, sizeof what, "the trace is cut short: %s expected", wanted);
    else if (c >= ' ' && c < 127)
        snprintf(what, sizeof what, "'%c' where %s was expected", c, wanted);
    else
        snprintf(what, sizeof what, "byte 0x%02x where %s was expected", (unsigned)c, wanted);
    return bad(r, what);
}

/* ---- values ---- */

/* The four digits of \uXXXX. */
static unsigned unicode(struct trace_reader *r)
{
    unsigned code = 0;

    for (int i = 0; i < 4; i++) {
        int c = peek(r);
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            break;
        code = code << 4 | (unsigned)digit;
        take(r);
    }
    return code;
}

static unsigned escaped(struct trace_reader *r)
{
    int c = take(r);

    switch (c) {
    case 'n': case 't': case 'r': case 'b': case 'f': return ' ';
    case 'u': return unicode(r);
    default:  return c == END ? '?' : (unsigned)c;
    }
}

/* Names are code, that is ASCII: what is not comes out as '?', so that a name that was cut, or
 * holds what a terminal obeys, can be printed. */
static char printable(unsigned c)
{
    return c >= ' ' && c < 127 ? (char)c : '?';
}

/* A string, cut at `size`. */
static void string(struct trace_reader *r, char *to, size_t size)
{
    size_t n = 0;
    int c;

    if (after_space(r) != '"') {
        unexpected(r, "a string");
        to[0] = '\0';
        return;
    }
    take(r);
    while ((c = take(r)) != '"' && c != END) {
        unsigned code = c == '\\' ? escaped(r) : (unsigned)c;
        if (n + 1 < size)
            to[n++] = printable(code);
    }
    to[n] = '\0';
    if (c == END)
        unexpected(r, "the end of a string");
}

/* A number or a bare word, as it is spelled. */
static void bare(struct trace_reader *r, char *to, size_t size)
{
    size_t n = 0;
    int c;

    while ((c = peek(r)) != END && (strchr("+-._", c) || (c >= '0' && c <= '9') ||
                                    (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
        if (n + 1 < size)
            to[n++] = (char)c;
        take(r);
    }
    to[n] = '\0';
    if (n == 0)
        unexpected(r, "a value");
}

typedef void member_fn(struct trace_reader *r, const char *key, void *arg);

static bool enter(struct trace_reader *r)
{
    if (++r->depth > DEEPEST)
        bad(r, "nested too deeply");
    return !r->failed;
}

/* Takes a comma, or the end of the list; true when another element follows. */
static bool another(struct trace_reader *r, char end, bool *first)
{
    int c = after_space(r);

    if (c == ',' && !*first) {
        take(r);
        c = after_space(r);
    } else if (c != end && !*first) {
        unexpected(r, end == '}' ? "a comma or '}'" : "a comma or ']'");
        return false;
    }
    *first = false;
    if (c != end)
        return c != END || unexpected(r, end == '}' ? "'}'" : "']'") == 0;
    take(r);
    return false;
}

/* The key of the next member, its colon taken; false after the last. */
static bool next_key(struct trace_reader *r, bool *first, char *key, size_t size)
{
    if (!another(r, '}', first))
        return false;
    string(r, key, size);
    if (after_space(r) != ':')
        unexpected(r, "':'");
    take(r);
    return !r->failed;
}

/* An object: `f` takes the value of each member. */
static void members(struct trace_reader *r, member_fn *f, void *arg)
{
    char key[64];
    bool first = true;

    if (after_space(r) != '{') {
        unexpected(r, "'{'");
        return;
    }
    take(r);
    if (!enter(r))
        return;
    while (next_key(r, &first, key, sizeof key))
        f(r, key, arg);
    r->depth--;
}

/* A list: `f` takes each element; its key is NULL. */
static void elements(struct trace_reader *r, member_fn *f, void *arg)
{
    bool first = true;

    take(r);
    if (!enter(r))
        return;
    while (another(r, ']', &first) && !r->failed)
        f(r, NULL, arg);
    r->depth--;
}

static void skip(struct trace_reader *r, const char *key, void *arg)
{
    char lost[2];
    int c = after_space(r);

    (void)key;
    if (c == '{')
        members(r, skip, arg);
    else if (c == '[')
        elements(r, skip, arg);
    else if (c == '"')
        string(r, lost, sizeof lost);
    else
        bare(r, lost, sizeof lost);
}

/* A word or number, quoted or not; "" for a list or an object. */
static void scalar(struct trace_reader *r, char *to, size_t size)
{
    int c = after_space(r);

    to[0] = '\0';
    if (c == '{' || c == '[')
        skip(r, NULL, NULL);
    else if (c == '"')
        string(r, to, size);
    else
        bare(r, to, size);
}

static int64_t integer(struct trace_reader *r, int64_t otherwise)
{
    char text[32], *end;

    scalar(r, text, sizeof text);
    int64_t n = strtoll(text, &end, 10);
    return end != text && (*end == '\0' || *end == '.') ? n : otherwise;
}

/* Differences of two times must not overflow. */
#define LAST_TIME INT64_C(4000000000000000000)

/* Microseconds, as nanoseconds.  Digit by digit: times since 1970 with nanoseconds have more
 * digits than a double.  0 where it is no time. */
static int64_t nanoseconds(struct trace_reader *r)
{
    char text[40];
    int64_t ns = 0;
    int decimals = -1;

    scalar(r, text, sizeof text);
    if (strpbrk(text, "eEnN")) {
        double us = strtod(text, NULL);
        return us > -4e15 && us < 4e15 ? (int64_t)(us * 1e3) : 0;
    }
    for (const char *s = text + (text[0] == '-'); *s && decimals < 3; s++) {
        if (*s == '.')
            decimals = 0;
        else if (*s < '0' || *s > '9' || ns > LAST_TIME / 10)
            return 0;
        else {
            ns = 10 * ns + (*s - '0');
            decimals += decimals >= 0;
        }
    }
    for (int d = decimals < 0 ? 0 : decimals; d < 3; d++)
        ns = ns <= LAST_TIME / 10 ? 10 * ns : 0;
    return text[0] == '-' ? -ns : ns;
}

/* ---- events ---- */

/* "Input Dims": for each input its dimensions, or for a list of tensors a list of them. */
struct dims {
    int64_t elems;              /* of the tensors of this input */
    int64_t product;            /* of the numbers in the list at hand; -1: none yet */
    struct trace_dims tensor;   /* those numbers; of an input that is one tensor, its own */
};

static void add_dim(struct trace_dims *d, int64_t n)
{
    if (d->n >= 0 && d->n < TRACE_DIMS)
        d->of[d->n++] = n;
    else
        d->n = -1;
}

static void read_dims(struct trace_reader *r, const char *key, void *arg)
{
    struct dims *d = arg;

    (void)key;
    if (after_space(r) != '[') {
        int64_t n = integer(r, 0);
        int64_t so_far = d->product < 0 ? 1 : d->product;
        d->product = n >= 0 && (n == 0 || so_far <= INT64_MAX / n) ? so_far * n : 0;
        add_dim(&d->tensor, n);
        return;
    }
    struct dims inside = { 0, -1, { 0 } };
    elements(r, read_dims, &inside);
    d->elems += inside.product >= 0 ? inside.product : inside.elems;
    d->tensor = inside.tensor;
    if (inside.product < 0)
        d->tensor.n = -1;
}

struct inputs { struct trace_event *e; int n; };

static void read_input(struct trace_reader *r, const char *key, void *arg)
{
    struct inputs *in = arg;
    struct dims d = { 0, -1, { 0 } };

    if (after_space(r) != '[') {
        skip(r, key, NULL);
        return;
    }
    read_dims(r, NULL, &d);
    if (in->n < 2)
        in->e->args.dims[in->n] = d.elems;
    if (in->n < 3)
        in->e->args.input[in->n++] = d.tensor;
}

/* The first input's type that says one: "float", but not "TensorList". */
static void read_type(struct trace_reader *r, const char *key, void *arg)
{
    struct trace_event *e = arg;
    char type[sizeof e->args.dtype];

    (void)key;
    scalar(r, type, sizeof type);
    if (!e->args.dtype[0] && type[0] && strcmp(type, "TensorList") != 0 && strcmp(type, "Scalar") != 0)
        memcpy(e->args.dtype, type, sizeof type);
}

static void read_arg(struct trace_reader *r, const char *key, void *arg)
{
    struct trace_event *e = arg;
    bool list = after_space(r) == '[';

    if (strcmp(key, "correlation") == 0)
        e->args.correlation = integer(r, -1);
    else if (strcmp(key, "External id") == 0)
        e->args.external = integer(r, -1);
    else if (strcmp(key, "stream") == 0)
        e->args.stream = integer(r, -1);
    else if (strcmp(key, "In msg nelems") == 0)
        e->args.in_elems = integer(r, -1);
    else if (strcmp(key, "Out msg nelems") == 0)
        e->args.out_elems = integer(r, -1);
    else if (strcmp(key, "Group size") == 0)
        e->args.group_size = integer(r, 0);
    else if (strcmp(key, "bytes") == 0)
        e->args.bytes = integer(r, -1);
    else if (strcmp(key, "Collective name") == 0)
        scalar(r, e->args.collective, sizeof e->args.collective);
    else if (strcmp(key, "dtype") == 0)
        scalar(r, e->args.dtype, sizeof e->args.dtype);
    else if (strcmp(key, "Process Group Name") == 0)
        scalar(r, e->args.group, sizeof e->args.group);
    else if (strcmp(key, "Input Dims") == 0 && list)
        elements(r, read_input, &(struct inputs){ e, 0 });
    else if (strcmp(key, "Input type") == 0 && list)
        elements(r, read_type, e);
    else
        skip(r, key, NULL);
}

static void read_member(struct trace_reader *r, const char *key, void *arg)
{
    struct trace_event *e = arg;
    char ph[4];

    if (strcmp(key, "ph") == 0) {
        scalar(r, ph, sizeof ph);
        e->ph = ph[0];
    } else if (strcmp(key, "name") == 0)
        scalar(r, e->name, sizeof e->name);
    else if (strcmp(key, "cat") == 0)
        scalar(r, e->cat, sizeof e->cat);
    else if (strcmp(key, "ts") == 0)
        e->ts = nanoseconds(r);
    else if (strcmp(key, "dur") == 0)
        e->dur = nanoseconds(r);
    else if (strcmp(key, "pid") == 0)
        e->pid = integer(r, 0);
    else if (strcmp(key, "tid") == 0)
        e->tid = integer(r, 0);
    else if (strcmp(key, "args") == 0 && after_space(r) == '{')
        members(r, read_arg, e);
    else
        skip(r, key, NULL);
}

/* ---- the document ---- */

static void read_info(struct trace_reader *r, const char *key, void *arg)
{
    struct trace_info *info = arg;

    if (strcmp(key, "rank") == 0)
        info->rank = integer(r, -1);
    else if (strcmp(key, "world_size") == 0)
        info->world_size = integer(r, -1);
    else if (strcmp(key, "backend") == 0)
        scalar(r, info->backend, sizeof info->backend);
    else
        skip(r, key, NULL);
}

/* The first device's name. */
static void read_device(struct trace_reader *r, const char *key, void *arg)
{
    struct trace_info *info = arg;

    if (strcmp(key, "name") == 0 && !info->device[0])
        scalar(r, info->device, sizeof info->device);
    else
        skip(r, key, NULL);
}

static void read_devices(struct trace_reader *r, const char *key, void *arg)
{
    if (after_space(r) == '{')
        members(r, read_device, arg);
    else
        skip(r, key, NULL);
}

static void finish(struct trace_reader *r)
{
    r->place = AT_END;
    if (after_space(r) != END)
        unexpected(r, "the end of the trace");
    else if (!r->had_events && !r->failed)
        bad(r, "there is no \"traceEvents\": not a trace of PyTorch's profiler");
}

/* Opens the document, or reads its members up to the events or the end. */
static void advance(struct trace_reader *r)
{
    char key[64];

    if (r->place == AT_START) {
        int c = after_space(r);
        if (c != '{' && c != '[') {
            unexpected(r, "'{', the start of a trace,");
            return;
        }
        take(r);
        r->bare = r->had_events = c == '[';
        r->place = r->bare ? IN_EVENTS : IN_DOCUMENT;
        r->first = true;
    }
    while (r->place == IN_DOCUMENT) {
        if (!next_key(r, &r->first, key, sizeof key)) {
            finish(r);
        } else if (strcmp(key, "traceEvents") == 0) {
            if (after_space(r) != '[')
                unexpected(r, "'[', the list of events,");
            take(r);
            r->place = IN_EVENTS;
            r->first = r->had_events = true;
        } else if (strcmp(key, "distributedInfo") == 0 && after_space(r) == '{')
            members(r, read_info, &r->info);
        else if (strcmp(key, "deviceProperties") == 0 && after_space(r) == '[')
            elements(r, read_devices, &r->info);
        else
            skip(r, key, NULL);
    }
}

int trace_next(struct trace_reader *r, struct trace_event *e)
{
    while (!r->failed && r->place != AT_END) {
        if (r->place != IN_EVENTS) {
            advance(r);
        } else if (another(r, ']', &r->first)) {
            *e = (struct trace_event){ .args = { .correlation = -1, .external = -1, .stream = -1, .in_elems = -1,
                                                 .out_elems = -1, .bytes = -1, .dims = { -1, -1 } } };
            members(r, read_member, e);
            return r->failed ? -1 : 1;
        } else if (!r->failed && r->bare)
            finish(r);
        else {
            r->place = IN_DOCUMENT;
            r->first = false;
        }
    }
    return r->failed ? -1 : 0;
}

struct trace_reader *trace_open(const char *path)
{
    struct trace_reader *r = calloc(1, sizeof *r);

    if (!r || !(r->path = strdup(path))) {
        fail("out of memory for %s", path);
        free(r);
        return NULL;
    }
    r->line = r->column = 1;
    r->info = (struct trace_info){ .rank = -1, .world_size = -1 };
    int fd = input_stream(path);
    r->gz = fd < 0 ? NULL : gzdopen(fd, "rb");
    if (!r->gz) {
        if (fd >= 0) {
            fail("%s: %s", path, strerror(ENOMEM));
            close(fd);
        }
        trace_close(r);
        return NULL;
    }
    gzbuffer(r->gz, BUFFER);
    return r;
}

const struct trace_info *trace_info(const struct trace_reader *r)
{
    return &r->info;
}

void trace_close(struct trace_reader *r)
{
    if (!r)
        return;
    if (r->gz)
        gzclose(r->gz);
    free(r->path);
    free(r);
}
