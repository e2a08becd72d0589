/* oom_message.c -- reading what PyTorch says when memory is short. */
#include "sim/plan/oom_message.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/input.h"

enum {
    LONGEST = 4096,                     /* of one message, its advice included */
    PROCESSES = 64,                     /* that it names */
};
#define LARGEST_LOG (64 << 20)

/* ---- text ---- */

/* "7.79 GiB" at s: bytes, and what follows.  The half of its last digit into *within. */
static const char *size_at(const char *s, int64_t *bytes, double *within)
{
    static const struct { const char *name; double factor; } units[] = {
        { "GiB", 1073741824. }, { "MiB", 1048576. }, { "KiB", 1024. }, { "bytes", 1. }, { "B", 1. },
    };
    char *end;
    size_t digits = strspn(s, "0123456789.");

    if (digits == 0 || digits > 20 || !isdigit((unsigned char)*s))
        return NULL;
    double x = strtod(s, &end);
    if (end != s + digits || *end != ' ')
        return NULL;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(end + 1, units[i].name, n) || isalpha((unsigned char)end[1 + n]))
            continue;
        if (!(x * units[i].factor < (double)SIZE_LIMIT))
            return NULL;
        *bytes = (int64_t)(x * units[i].factor + .5);
        *within = units[i].factor > 1 ? .005 * units[i].factor + 1 : 0;
        return end + 1 + n;
    }
    return NULL;
}

static bool ends_in(const char *begin, const char *at, const char *words)
{
    size_t n = strlen(words);

    return (size_t)(at - begin) >= n && !memcmp(at - n, words, n);
}

static bool begins(const char *s, const char *words) { return !strncmp(s, words, strlen(words)); }

/* "Process 2006998 has " before `at`. */
static bool another_process(const char *begin, const char *at)
{
    if (!ends_in(begin, at, " has "))
        return false;
    at -= 5;
    const char *digits = at;
    while (digits > begin && isdigit((unsigned char)digits[-1]))
        digits--;
    return digits < at && ends_in(begin, digits, "Process ");
}

/* What a message says beside its figures. */
struct found {
    int64_t unallocated;
    int64_t named[PROCESSES];           /* by processes that it does not call its own */
    int     n;
};

static void named_process(struct found *f, int64_t bytes, struct oom_message *m)
{
    m->others = (m->others < 0 ? 0 : m->others) + bytes;
    if (f->n < PROCESSES)
        f->named[f->n++] = bytes;
}

/* In a container NVML knows the own process by another number: it is among those named.  It holds what PyTorch reserved,
 * and little beside: the least that can be. */
static void find_own(const struct found *f, struct oom_message *m)
{
    int64_t own = -1;

    for (int i = 0; i < f->n; i++)
        if (f->named[i] >= m->reserved && (own < 0 || f->named[i] < own))
            own = f->named[i];
    if (m->process >= 0 || m->reserved < 0 || own <= 0)
        return;
    m->process = own;
    m->others -= own;
}

/* One size of the message, by the words around it. */
static void take(const char *begin, const char *at, const char *after, int64_t bytes, double within, struct oom_message *m,
                 struct found *found)
{
    if (ends_in(begin, at, "Tried to allocate ") && m->tried < 0) {
        m->tried = bytes;
        m->within = within;
    } else if (begins(after, " total capacity") || ends_in(begin, at, "total capacity of ") ||
               ends_in(begin, at, "total capacty of ")) {
        m->total = bytes;
    } else if (begins(after, " already allocated") || begins(after, " is allocated by PyTorch")) {
        m->allocated = bytes;
    } else if (begins(after, " free") || begins(after, " is free")) {
        m->free = bytes;
    } else if (begins(after, " allowed")) {
        m->allowed = bytes;
    } else if (begins(after, " reserved in total")) {
        m->reserved = bytes;
    } else if (begins(after, " cached)") || begins(after, " is reserved by PyTorch but unallocated")) {
        found->unallocated = bytes;
    } else if (begins(after, " allocated in private pools")) {
        m->private_pools = bytes;
    } else if (begins(after, " memory in use")) {
        if (ends_in(begin, at, "this process has "))
            m->process = bytes;
        else if (another_process(begin, at))
            named_process(found, bytes, m);
    }
}

/* The message's text with runs of white space as one blank: terminals and logs wrap it. */
static size_t one_line(const char *from, size_t n, char *to)
{
    size_t k = 0;

    for (size_t i = 0; i < n && from[i] && k < LONGEST; i++) {
        bool space = isspace((unsigned char)from[i]);
        if (space && (k == 0 || to[k - 1] == ' '))
            continue;
        to[k++] = space ? ' ' : from[i];
    }
    to[k] = '\0';
    return k;
}

static const char *find(const char *text, size_t size, const char *words)
{
    size_t n = strlen(words);

    for (size_t i = 0; i + n <= size; i++)
        if (!memcmp(text + i, words, n))
            return text + i;
    return NULL;
}

/* The end of the first message: the next one of a log begins, or the sentence that closes each form. */
static size_t end_of(const char *line, size_t n)
{
    static const char *const ends[] = { "reserved by PyTorch but unallocated", "reserved in total by PyTorch)", " cached)" };
    const char *next = find(line + 1, n - 1, "Tried to allocate ");
    size_t end = next ? (size_t)(next - line) : n;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *at = find(line, end, ends[i]);
        if (at)
            end = (size_t)(at - line) + strlen(ends[i]);
    }
    return end;
}

static int parse_text(const char *where, const char *text, size_t size, struct oom_message *m)
{
    const char *start = find(text, size, "Tried to allocate ");
    char line[LONGEST + 1];
    struct found found = { .unallocated = -1 };
    int64_t bytes;
    double within;

    if (!start && (find(text, size, "out of memory") || find(text, size, "OutOfMemory")))
        return fail("%s: an out-of-memory message without figures (\"Tried to allocate ...\" is what PyTorch's allocator says); "
                    "what failed was no tensor of it", where);
    if (!start)
        return fail("%s: no out-of-memory message of PyTorch in it (\"Tried to allocate ...\"), and no JSON", where);
    size_t n = one_line(start, size - (size_t)(start - text), line);
    line[end_of(line, n)] = '\0';
    for (const char *at = line; *at; at++) {
        if (!isdigit((unsigned char)*at) || (at > line && !strchr(" (;", at[-1])))
            continue;
        const char *after = size_at(at, &bytes, &within);
        if (after)
            take(line, at, after, bytes, within, m, &found);
        if (ends_in(line, at, "GPU ") && m->gpu < 0)
            m->gpu = atoi(at) & 0xffff;
    }
    if (m->reserved < 0 && found.unallocated >= 0 && m->allocated >= 0)
        m->reserved = m->allocated + found.unallocated;
    if (m->process >= 0 && m->others < 0)
        m->others = 0;                  /* the form names every process, and named none */
    find_own(&found, m);
    return m->tried >= 0 ? 0 : fail("%s: \"Tried to allocate\" is followed by no size", where);
}

/* ---- JSON ---- */

static int64_t bytes_of(const json_t *v)
{
    double x = json_number_value(v);

    return json_is_number(v) && x >= 0 && x < (double)SIZE_LIMIT ? (int64_t)x : -1;
}

/* "allocated_bytes.all.peak", in a flat dictionary or in nested ones. */
static int64_t stat(const json_t *j, const char *what, const char *which)
{
    char flat[64];

    snprintf(flat, sizeof flat, "%s.all.%s", what, which);
    const json_t *v = json_object_get(j, flat);
    if (!v)
        v = json_object_get(json_object_get(json_object_get(j, what), "all"), which);
    return v ? bytes_of(v) : -1;
}

static int of_stats(const char *where, const json_t *j, struct oom_message *m)
{
    m->form = OOM_STATS;
    m->allocated = stat(j, "allocated_bytes", "peak");
    m->reserved = stat(j, "reserved_bytes", "peak");
    m->retries = bytes_of(json_object_get(j, "num_alloc_retries"));
    m->ooms = bytes_of(json_object_get(j, "num_ooms"));
    return m->allocated >= 0 && m->reserved >= 0 ? 0 :
           fail("%s: JSON without segments and without allocated_bytes.all.peak and reserved_bytes.all.peak", where);
}

/* The last failed request of a trace. */
static void of_trace(const json_t *trace, struct oom_message *m)
{
    size_t i;
    json_t *v;

    json_array_foreach(trace, i, v) {
        const char *action = json_string_value(json_object_get(v, "action"));
        if (!action || strcmp(action, "oom"))
            continue;
        m->tried = bytes_of(json_object_get(v, "size"));
        m->free = bytes_of(json_object_get(v, "device_free"));
    }
}

static int of_segments(const char *where, const json_t *segments, const json_t *traces, struct oom_message *m)
{
    size_t i;
    json_t *v;

    m->form = OOM_SEGMENTS;
    m->allocated = m->reserved = 0;
    json_array_foreach(segments, i, v) {
        int64_t total = bytes_of(json_object_get(v, "total_size")), used = bytes_of(json_object_get(v, "allocated_size"));
        if (total < 0 || used < 0 || m->reserved > SIZE_LIMIT - total || m->allocated > SIZE_LIMIT - used)
            return fail("%s: segment %zu has no total_size and allocated_size in bytes", where, i);
        m->reserved += total;
        m->allocated += used;
    }
    json_array_foreach(traces, i, v)
        of_trace(v, m);
    if (json_array_size(segments) == 0 && m->tried < 0)
        return fail("%s: the snapshot has no segments", where);
    return 0;
}

static int of_json(const char *where, const json_t *j, struct oom_message *m)
{
    const json_t *segments = json_is_array(j) ? j : json_object_get(j, "segments");

    return json_is_array(segments) ? of_segments(where, segments, json_object_get(j, "device_traces"), m) : of_stats(where, j, m);
}

static int parse_json(const char *where, const char *text, size_t size, struct oom_message *m)
{
    json_error_t e;
    json_t *j = json_loadb(text, size, 0, &e);
    int rc;

    if (!j)
        return fail("%s:%d:%d: malformed JSON", where, e.line, e.column);
    rc = of_json(where, j, m);
    json_decref(j);
    return rc;
}

static const struct oom_message nothing_said = { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, OOM_TEXT };

int oom_message_parse(const char *where, const char *text, size_t size, struct oom_message *out)
{
    size_t i = 0;

    *out = nothing_said;
    while (i < size && isspace((unsigned char)text[i]))
        i++;
    if (i < size && (text[i] == '{' || (text[i] == '[' && !find(text, size, "Tried to allocate "))))
        return parse_json(where, text, size, out);
    return parse_text(where, text, size, out);
}

static int read_message(const char *path, struct oom_message *out)
{
    FILE *f = input_open(strcmp(path, "-") ? path : "/dev/stdin");
    size_t n = 0, room = 1 << 16, got;
    char *text = malloc(room);
    int rc = -1;

    if (!f) {
        free(text);
        return -1;
    }
    while (text && n <= LARGEST_LOG && (got = fread(text + n, 1, room - n, f)) > 0) {
        n += got;
        if (n == room) {
            char *more = realloc(text, room *= 2);
            if (!more)
                free(text);
            text = more;
        }
    }
    if (!text)
        fail("out of memory for %s", path);
    else if (ferror(f))
        fail("%s: %s", path, strerror(errno));
    else if (n > LARGEST_LOG)
        fail("%s: more than 64 MiB: give the message alone", path);
    else
        rc = oom_message_parse(path, text, n, out);
    free(text);
    fclose(f);
    return rc;
}

int oom_message_given(const struct oom_given *given, struct oom_message *out)
{
    if (given->doc) {
        *out = nothing_said;
        return of_json("oom", given->doc, out);
    }
    return given->text ? oom_message_parse("oom_text", given->text, strlen(given->text), out)
                       : read_message(given->path, out);
}
