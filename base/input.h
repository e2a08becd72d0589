/* input.h -- opening a file that the user named, without ever waiting for it.
 *
 *     FILE *f = input_open(path);             text that is read once, from its begin to its end
 *     char *s = input_text(path, most, &size); the same, whole; "-" is standard input
 *     int  fd = input_stream(path);           the same, as a descriptor
 *     int  fd = input_file(path, &size);      a file that is read more than once, or in parts
 *
 * open() of a FIFO waits until another process opens its other end, possibly for ever, and to open a
 * device may set it in motion.  So the kind of file is looked at first, and what is not a regular file is refused
 * by its kind.  Exception, where it is read only once: what the shell has already opened (/dev/stdin, /dev/fd/N,
 * /proc/self/fd/N, hence `<(command)`), and a terminal. */
#ifndef DPX_INPUT_H
#define DPX_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* NULL with the reason on stderr.  Close with fclose(). */
FILE *input_open(const char *path);

/* All bytes, with a NUL behind them; `size` may be NULL.  NULL reported: more than `most` (whole MiB), or a NUL among them, where a reader of C strings
 * would take what stands before it for the whole.  Free with free(). */
char *input_text(const char *path, size_t most, size_t *size);

/* Descriptors are close-on-exec.  -1 with the reason on stderr. */
int input_stream(const char *path);
/* Of a regular file; *size: its bytes, unless `size` is NULL. */
int input_file(const char *path, int64_t *size);

/* From now on this stream is where the program takes its requests from: a file that is named and is it (/dev/stdin,
 * /proc/self/fd/0, `<(command)` of it) is refused, where reading it would take them away.  Of the calling thread. */
void input_own(int fd);

#endif
