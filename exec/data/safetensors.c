/* Reading.  Nothing in a file is trusted: every number of the header is bounded before it is
 * used, and byte ranges must tile the data exactly, as the format demands. */
#include "exec/data/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/input.h"
#include "exec/kernels/half.h"

/* The format's own limit on the header (the Rust crate's MAX_HEADER_SIZE). */
#define LARGEST_HEADER 100000000

/* Of one read, so that staging fits the stack. */
enum { PIECE = 8192 };

/* The dtypes of the format, as far as we know them; a file may hold any of them. */
static const struct { const char *name; int bits; } dtypes[] = {
    { "F32", 32 }, { "BF16", 16 }, { "F16", 16 }, { "F64", 64 },
    { "I64", 64 }, { "I32", 32 }, { "I16", 16 }, { "I8", 8 },
    { "U64", 64 }, { "U32", 32 }, { "U16", 16 }, { "U8", 8 }, { "BOOL", 8 },
    { "C64", 64 }, { "F8_E5M2", 8 }, { "F8_E4M3", 8 }, { "F8_E8M0", 8 },
    { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F4", 4 },
};

/* Bits of an element, or 0. */
static int bits_of(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtype, dtypes[i].name))
            return dtypes[i].bits;
    return 0;
}

/* ---- Bytes ---- */

/* Exactly n bytes from `at`. */
static int read_bytes(const struct safetensors *s, int64_t at, int64_t n, void *into)
{
    for (char *to = into; n > 0; ) {
        ssize_t got = pread(s->fd, to, (size_t)n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail("%s: %s", s->path, strerror(errno));
        if (got == 0)
            return fail("%s: ends at byte %" PRId64 ", where %" PRId64 " more were expected",
                        s->path, at, n);
        to += got;
        at += got;
        n -= got;
    }
    return 0;
}

static int open_file(struct safetensors *s, int64_t *size)
{
    s->fd = input_file(s->path, size);
    return s->fd < 0 ? -1 : 0;
}

/* The first 8 bytes: the header's length, little-endian. */
static int header_length(const struct safetensors *s, int64_t size, int64_t *length)
{
    unsigned char b[8];
    uint64_t n = 0;

    if (size < 8)
        return fail("%s: has %" PRId64 " bytes: not a safetensors file", s->path, size);
    if (read_bytes(s, 0, 8, b) < 0)
        return -1;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | b[i];
    if (n > LARGEST_HEADER)
        return fail("%s: not a safetensors file: its header would have %" PRIu64 " bytes", s->path, n);
    if ((int64_t)n > size - 8)
        return fail("%s: cut short: the header alone has %" PRIu64 " bytes, the file %" PRId64,
                    s->path, n, size);
    *length = (int64_t)n;
    return 0;
}

static json_t *read_header(const struct safetensors *s, int64_t length)
{
    char *text = malloc((size_t)length + 1);
    json_t *header = NULL;
    json_error_t e;

    if (!text)
        fail("%s: out of memory for its header", s->path);
    else if (read_bytes(s, 8, length, text) == 0) {
        header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &e);
        if (!header)
            fail("%s: not a safetensors file: its header is not JSON (byte %d)", s->path, 8 + e.position);
        else if (!json_is_object(header)) {
            fail("%s: not a safetensors file: its header is not a JSON object", s->path);
            json_decref(header);
            header = NULL;
        }
    }
    free(text);
    return header;
}

/* ---- One tensor of the header ---- */

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f;
}

/* Names come from the file: what is printed has no control characters and an end. */
static int refuse(const struct safetensors *s, const char *name, const char *why)
{
    char safe[80];
    size_t n = 0;

    for (; name[n] && n < sizeof safe - 1; n++)
        safe[n] = is_control(name[n]) ? '?' : name[n];
    safe[n] = '\0';
    return fail("%s: tensor \"%s\" %s", s->path, safe, why);
}

static int take_dtype(const struct safetensors *s, const json_t *entry, struct st_tensor *t)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));

    if (!dtype)
        return refuse(s, t->name, "has no dtype");
    if (!bits_of(dtype))
        return refuse(s, t->name, "has a dtype that the format does not know");
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    return 0;
}

static int take_shape(const struct safetensors *s, const json_t *entry, struct st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape"), *extent;
    size_t i;

    if (!json_is_array(shape))
        return refuse(s, t->name, "has no shape");
    if (json_array_size(shape) > ST_MAX_DIMS)
        return refuse(s, t->name, "has more than 8 dimensions");
    t->numel = 1;
    json_array_foreach(shape, i, extent) {
        if (!json_is_integer(extent) || json_integer_value(extent) < 0
            || !checked_mul(t->numel, json_integer_value(extent), &t->numel))
            return refuse(s, t->name, "has a shape that is not a list of sizes");
        t->shape[i] = json_integer_value(extent);
    }
    t->ndim = (int)json_array_size(shape);
    return 0;
}

/* data_offsets count from the end of the header; `data` is there, `size` the file's. */
static int take_range(const struct safetensors *s, const json_t *entry, int64_t data, int64_t size,
                      struct st_tensor *t)
{
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
    int64_t bits;

    if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end)
        || json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return refuse(s, t->name, "has data_offsets that are not [begin, end]");
    if (json_integer_value(end) > size - data)
        return refuse(s, t->name, "ends behind the end of the file: was the file cut short?");
    t->begin = data + json_integer_value(begin);
    t->end = data + json_integer_value(end);
    if (!checked_mul(t->numel, bits_of(t->dtype), &bits) || bits % 8 != 0
        || bits / 8 != t->end - t->begin)
        return refuse(s, t->name, "has another number of bytes than its shape and dtype say");
    return 0;
}

static int take_tensor(struct safetensors *s, const char *name, const json_t *entry, int64_t data,
                       int64_t size)
{
    struct st_tensor *t = &s->tensors[s->ntensors];

    t->name = strdup(name);
    if (!t->name)
        return fail("%s: out of memory for its header", s->path);
    s->ntensors++;
    for (const char *c = name; *c; c++)
        if (is_control(*c))
            return refuse(s, name, "has a control character in its name");
    if (!json_is_object(entry))
        return refuse(s, name, "is not a JSON object");
    if (take_dtype(s, entry, t) < 0 || take_shape(s, entry, t) < 0)
        return -1;
    return take_range(s, entry, data, size, t);
}

/* ---- All of them ---- */

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;      /* an empty one precedes what is there */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* No hole, no overlap, nothing left over: so that no byte of the file has two meanings. */
static int check_tiling(struct safetensors *s, int64_t data, int64_t size)
{
    int64_t at = data;

    qsort(s->tensors, (size_t)s->ntensors, sizeof *s->tensors, by_place);
    for (int i = 0; i < s->ntensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (t->begin < at)
            return refuse(s, t->name, "overlaps another one");
        if (t->begin > at)
            return refuse(s, t->name, "does not begin where the one before it ends");
        at = t->end;
    }
    if (at != size)
        return fail("%s: %" PRId64 " bytes behind the last tensor", s->path, size - at);
    return 0;
}

static int take_header(struct safetensors *s, json_t *header, int64_t data, int64_t size)
{
    const char *name;
    json_t *entry;

    s->tensors = calloc(json_object_size(header) + 1, sizeof *s->tensors);
    if (!s->tensors)
        return fail("%s: out of memory for its header", s->path);
    json_object_foreach(header, name, entry)
        if (strcmp(name, "__metadata__") && take_tensor(s, name, entry, data, size) < 0)
            return -1;
    if (check_tiling(s, data, size) < 0)
        return -1;
    qsort(s->tensors, (size_t)s->ntensors, sizeof *s->tensors, by_name);
    return 0;
}

static int load(struct safetensors *s, const char *path)
{
    int64_t size = 0, length = 0;
    json_t *header;
    int rc;

    s->path = strdup(path);
    if (!s->path)
        return fail("%s: out of memory", path);
    if (open_file(s, &size) < 0 || header_length(s, size, &length) < 0)
        return -1;
    header = read_header(s, length);
    rc = header ? take_header(s, header, 8 + length, size) : -1;
    json_decref(header);
    return rc;
}

struct safetensors *safetensors_open(const char *path)
{
    struct safetensors *s = calloc(1, sizeof *s);

    if (!s) {
        fail("%s: out of memory", path);
        return NULL;
    }
    s->fd = -1;
    if (load(s, path) == 0)
        return s;
    safetensors_close(s);
    return NULL;
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->ntensors; i++)
        free(s->tensors[i].name);
    free(s->tensors);
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    free(s);
}

/* ---- Looking up and reading ---- */

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct st_tensor key = { .name = (char *)(uintptr_t)name };

    return bsearch(&key, s->tensors, (size_t)s->ntensors, sizeof key, by_name);
}

bool safetensors_readable(const struct st_tensor *t)
{
    return !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "BF16") || !strcmp(t->dtype, "F16");
}

/* A few elements of 16 bits. */
static int read_piece(const struct safetensors *s, int64_t at, int64_t n, bool bf16, float *out)
{
    uint16_t raw[PIECE];

    if (read_bytes(s, at, n * 2, raw) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16 ? half_from_bf16(raw[i]) : half_from_fp16(raw[i]);
    return 0;
}

int safetensors_read(const struct safetensors *s, const struct st_tensor *t, int64_t from,
                     int64_t n, float *out)
{
    bool bf16 = !strcmp(t->dtype, "BF16");

    assert(safetensors_readable(t) && from >= 0 && n >= 0 && n <= t->numel - from);
    if (!strcmp(t->dtype, "F32"))
        return read_bytes(s, t->begin + 4 * from, 4 * n, out);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t piece = n - i < PIECE ? n - i : PIECE;
        if (read_piece(s, t->begin + 2 * (from + i), piece, bf16, out + i) < 0)
            return -1;
    }
    return 0;
}
