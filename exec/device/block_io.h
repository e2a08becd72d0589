/* block_io.h -- several reads and writes of files under way at once: through io_uring, or by threads with pread and
 * pwrite.
 *
 *     struct block_io *io = block_io_open(BLOCK_IO_BEST, 8);
 *     block_io_put(io, &r) ...                         at most `depth` under way
 *     struct block_request *d = block_io_take(io);     one that has ended: d->result
 *     block_io_close(io);
 *
 * One thread uses a block_io.  Requests end in any order. */
#ifndef DPX_BLOCK_IO_H
#define DPX_BLOCK_IO_H

#include <stdbool.h>
#include <stdint.h>

/* BEST: io_uring where it was built in and the kernel allows it, else threads. */
enum block_io_kind { BLOCK_IO_BEST, BLOCK_IO_URING, BLOCK_IO_THREADS };

/* The caller's, and untouched by it, until it was taken.  With O_DIRECT memory, offset and length are multiples of the
 * file system's block. */
struct block_request {
    int     fd;
    bool    write;
    void   *p;
    int64_t at, bytes;
    int64_t result;                     /* bytes moved, which may be fewer, or -errno */
    struct block_request *next;         /* the engine's */
};

struct block_io;

/* NULL with the reason reported. */
struct block_io *block_io_open(enum block_io_kind kind, int depth);
void             block_io_close(struct block_io *io);       /* nothing is under way; accepts NULL */
const char      *block_io_name(const struct block_io *io);  /* "io_uring", "threads" */
/* Requests go to the kernel one by one (true), or, the default, all that were put since, when one is next taken. */
void             block_io_each(struct block_io *io, bool each);

/* 0, or -1 reported. */
int block_io_put(struct block_io *io, struct block_request *r);
/* Waits for one.  NULL reported. */
struct block_request *block_io_take(struct block_io *io);

#endif
