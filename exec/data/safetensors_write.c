/* Writing: the header first, since all sizes are known before any value is. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/output.h"
#include "exec/data/safetensors.h"
#include "exec/kernels/half.h"

/* Of one conversion, so that staging fits the stack. */
enum { PIECE = 8192 };

/* What is left of an entry once its header is written. */
struct entry { enum dtype dtype; int64_t numel; };

struct st_writer {
    struct output out;
    char   *path;
    int     n;
    struct entry *entries;
    int     tensor;                     /* the next element to be written: of which entry, */
    int64_t at;                         /* and which one */
};

static int no_memory(const char *path)
{
    return fail("%s: out of memory for its header", path);
}

/* ---- Header ---- */

static json_t *shape_json(const struct st_entry *e)
{
    json_t *shape = json_array();

    for (int d = 0; shape && d < e->ndim; d++)
        if (json_array_append_new(shape, json_integer(e->shape[d])) < 0) {
            json_decref(shape);
            shape = NULL;
        }
    return shape;
}

static int64_t numel_of(const struct st_entry *e)
{
    int64_t numel = 1, bytes;
    bool fits = e->ndim >= 0 && e->ndim <= ST_MAX_DIMS;

    for (int d = 0; fits && d < e->ndim; d++)
        fits = checked_mul(numel, e->shape[d], &numel);
    fits = fits && checked_mul(numel, dtype_bytes(e->dtype), &bytes);
    assert(fits);
    return numel;
}

/* transformers refuses a file whose metadata does not state a format. */
static json_t *header_json(const struct st_entry *entries, int n)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t at = 0;

    for (int i = 0; header && i < n; i++) {
        const struct st_entry *e = &entries[i];
        int64_t end = at + numel_of(e) * dtype_bytes(e->dtype);
        assert(e->dtype == DT_FP32 || e->dtype == DT_BF16);
        assert(!json_object_get(header, e->name));
        json_object_set_new(header, e->name, json_pack("{s:s,s:o,s:[I,I]}",
            "dtype", e->dtype == DT_FP32 ? "F32" : "BF16", "shape", shape_json(e),
            "data_offsets", (json_int_t)at, (json_int_t)end));
        at = end;
    }
    if (header && json_object_size(header) != (size_t)n + 1) {   /* memory ran out on the way */
        json_decref(header);
        header = NULL;
    }
    return header;
}

/* Padded with spaces, so that the data is aligned to 8 bytes. */
static int write_header(struct st_writer *w, const struct st_entry *entries)
{
    json_t *header = header_json(entries, w->n);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    uint64_t length, padded;

    json_decref(header);
    if (!text)
        return no_memory(w->path);
    length = strlen(text);
    padded = (length + 7) / 8 * 8;
    fwrite(&padded, sizeof padded, 1, w->out.f);
    fprintf(w->out.f, "%s%*s", text, (int)(padded - length), "");
    free(text);
    return ferror(w->out.f) ? fail("%s: %s", w->path, strerror(errno)) : 0;
}

/* ---- Interface ---- */

static void release(struct st_writer *w)
{
    free(w->entries);
    free(w->path);
    free(w);
}

static int prepare(struct st_writer *w, const char *path, const struct st_entry *entries, int n)
{
    w->n = n;
    w->path = strdup(path);
    w->entries = calloc((size_t)n + 1, sizeof *w->entries);
    if (!w->path || !w->entries)
        return no_memory(path);
    for (int i = 0; i < n; i++)
        w->entries[i] = (struct entry){ entries[i].dtype, numel_of(&entries[i]) };
    return output_open(&w->out, w->path);
}

struct st_writer *safetensors_create(const char *path, const struct st_entry *entries, int n)
{
    struct st_writer *w = calloc(1, sizeof *w);

    if (!w) {
        no_memory(path);
        return NULL;
    }
    if (prepare(w, path, entries, n) == 0) {
        if (write_header(w, entries) == 0)
            return w;
        safetensors_discard(w);
        return NULL;
    }
    release(w);
    return NULL;
}

/* To where the next element belongs: entries without any are passed over. */
static void skip_complete(struct st_writer *w)
{
    while (w->tensor < w->n && w->at == w->entries[w->tensor].numel) {
        w->tensor++;
        w->at = 0;
    }
}

static void write_bf16(FILE *f, int64_t n, const float *values)
{
    uint16_t raw[PIECE];

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t piece = n - i < PIECE ? n - i : PIECE;
        for (int64_t j = 0; j < piece; j++)
            raw[j] = half_to_bf16(values[i + j]);
        fwrite(raw, sizeof *raw, (size_t)piece, f);
    }
}

int safetensors_write(struct st_writer *w, int tensor, int64_t from, int64_t n, const float *values)
{
    if (n == 0)
        return 0;
    skip_complete(w);
    assert(tensor == w->tensor && from == w->at && n <= w->entries[tensor].numel - from);
    if (w->entries[tensor].dtype == DT_FP32)
        fwrite(values, sizeof *values, (size_t)n, w->out.f);
    else
        write_bf16(w->out.f, n, values);
    w->at += n;
    return ferror(w->out.f) ? fail("%s: %s", w->path, strerror(errno)) : 0;
}

int safetensors_finish(struct st_writer *w)
{
    int rc;

    skip_complete(w);
    assert(w->tensor == w->n);
    rc = output_close(&w->out);
    release(w);
    return rc;
}

void safetensors_discard(struct st_writer *w)
{
    if (!w)
        return;
    output_discard(&w->out);
    release(w);
}
