/* safetensors.h -- files of named tensors: reading any part of one, writing them in order.
 *
 *     struct safetensors *s = safetensors_open("model.safetensors");
 *     const struct st_tensor *t = s ? safetensors_find(s, "lm_head.weight") : NULL;
 *     if (t && safetensors_read(s, t, from, n, out) < 0)
 *         ...
 *     safetensors_close(s);
 *
 * The format is Hugging Face's: 8 bytes with the header's length, a JSON header of
 * dtype, shape and byte range of every tensor, the data.  A file that breaks any of its
 * rules is refused when it is opened: whatever was opened holds what it says.
 *
 * Data is read with pread(), not mapped: pages of a mapped file would count as the
 * process's memory, and a file cut short under it would kill it. */
#ifndef DPX_SAFETENSORS_H
#define DPX_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

enum { ST_MAX_DIMS = 8 };

struct st_tensor {
    char   *name;
    char    dtype[12];                  /* as in the file: "F32", "BF16", "F8_E4M3" */
    int     ndim;
    int64_t shape[ST_MAX_DIMS];         /* outermost first */
    int64_t numel;
    int64_t begin, end;                 /* bytes [begin, end) of the file */
};

struct safetensors {
    char   *path;
    int     fd;
    int     ntensors;
    struct st_tensor *tensors;          /* by name, in strcmp()'s order */
};

/* NULL with the reason reported.  Free with safetensors_close(), which accepts NULL. */
struct safetensors *safetensors_open(const char *path);
void safetensors_close(struct safetensors *s);

/* NULL, without a message, if there is none of that name. */
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name);

/* Whether safetensors_read() knows its dtype: F32, BF16 and F16. */
bool safetensors_readable(const struct st_tensor *t);

/* Elements [from, from+n) of one of its tensors, as fp32.  0, or -1.  May be called from
 * several threads at once. */
int safetensors_read(const struct safetensors *s, const struct st_tensor *t, int64_t from,
                     int64_t n, float *out);

/* ---- Writing ----
 *
 *     struct st_writer *w = safetensors_create("out.safetensors", entries, n);
 *     for each entry i, in order, in pieces of any size:
 *         safetensors_write(w, i, from, npiece, values);
 *     safetensors_finish(w);                      or safetensors_discard(w)
 *
 * The file appears under its name, in place of what was there, when it is whole. */

struct st_entry {
    const char *name;
    enum dtype  dtype;                  /* DT_FP32 or DT_BF16 */
    int         ndim;
    int64_t     shape[ST_MAX_DIMS];
};

struct st_writer;

/* Writes the header.  Entries and their names are copied.  NULL with the reason reported. */
struct st_writer *safetensors_create(const char *path, const struct st_entry *entries, int n);

/* Elements [from, from+n) of entry `tensor`, which must follow those written before
 * without a gap.  0, or -1 with the reason reported once; after that only discard. */
int safetensors_write(struct st_writer *w, int tensor, int64_t from, int64_t n,
                      const float *values);

/* Puts the file in its place; every element must have been written.  0, or -1 with what was
 * there before untouched.  Frees the writer in both cases. */
int safetensors_finish(struct st_writer *w);

/* Leaves what was there before.  Accepts NULL. */
void safetensors_discard(struct st_writer *w);

#endif
