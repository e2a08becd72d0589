/* output.h -- files that are whole or not there.
 *
 *     struct output o;
 *     if (output_open(&o, path) < 0)
 *         return -1;
 *     fprintf(o.f, ...);
 *     return output_close(&o);             (or output_discard(&o))
 *
 * What is written has no name until it is whole; then it takes the place of what was there, with its
 * permissions and, where that is allowed, its owner.  A symbolic link stays one: the file that it names,
 * or would, is replaced.  A process that is killed leaves nothing behind.  Where the file system has no
 * nameless files (O_TMPFILE; NFS has not), the name is PATH.dpx-tmp, removed by a signal that ends the
 * process, and after a SIGKILL by the next output to the same path.
 *
 * Devices, pipes and what /dev/stdout names are written as they are. */
#ifndef DPX_OUTPUT_H
#define DPX_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE       *f;
    const char *path;           /* the caller's, for messages: must outlive the output */
    char        target[4096];   /* what is replaced: the path, its links followed; empty: written directly */
    char        beside[4128];   /* where it lies until it is whole; empty: it has no name yet */
};

/* 0, or -1 reported with nothing opened.  An SQLite database is not written over. */
int output_open(struct output *o, const char *path);

/* Whether output_open() would find a place now, before what takes long: 0, or -1 reported.  Nothing is left behind or written. */
int output_check(const char *path);

/* Puts the file in its place.  0, or -1 reported with what was there before untouched. */
int output_close(struct output *o);

/* Gives it up. */
void output_discard(struct output *o);

/* Removes what has a name and is not whole: for a process that is about to end.  Async-signal-safe. */
void output_abandon_all(void);

/* For tests: from now on as where files must have names. */
void output_named(bool named);

#endif
