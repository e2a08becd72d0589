/* files.h -- JSON in, and output that never leaves half a file behind.
 *
 *     struct output o;
 *     if (output_open(&o, path) < 0)
 *         return -1;
 *     fprintf(o.f, ...);
 *     return output_close(&o);
 *
 * A regular file is written beside its place and renamed into it when it is whole;
 * what is not one (/dev/stdout, a symbolic link) is written through as it is. */
#ifndef DPX_FILES_H
#define DPX_FILES_H

#include <stdio.h>

#include <jansson.h>

struct output {
    FILE       *f;
    const char *path;           /* the caller's: must outlive the output */
    char        beside[4096];   /* empty: written directly */
};

/* The document of a file; duplicate keys are refused.  NULL with the reason, and line
 * and column where there are any, on stderr. */
json_t *json_read_file(const char *path);
/* The same of a file that Python wrote: its NaN, Infinity and -Infinity, which are no JSON,
 * are read as strings of these names, so that whoever needs a number there refuses them. */
json_t *json_read_python(const char *path);
/* The same as json_read_file() of a file that may be larger than any configuration: measurements, up to 1 GiB. */
json_t *json_read_data(const char *path);

/* 0, or -1 with nothing opened.  An SQLite database is not written over. */
int output_open(struct output *o, const char *path);

/* Puts the file in its place.  0, or -1 with what was there before untouched. */
int output_close(struct output *o);

#endif
