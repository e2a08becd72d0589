/* bench_disk.c -- files in a folder: written and read as the executor does it (store.h), by sizes; and by depths of the
 * queue and sizes of blocks, which say what a disk could do.  All ranks at once, each with a file of its own.
 *
 * Both are bounded: by the size of the file, by how often it is moved, and by time. */
#define _GNU_SOURCE                 /* O_DIRECT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/lanes.h"
#include "exec/device/store.h"

enum { MOST = 64, LEAST = 3, MOVED = 4 };       /* MOVED: times its file's size, of one series, at most */

static struct series of_files(const struct bench *b, const char *name, int64_t bytes)
{
    return (struct series){ .kind = SERIES_PASS, .name = name, .dtype = DT_FP32, .ranks = b->nranks,
                            .per_node = b->per_node, .threads = b->threads, .bytes = bytes,
                            .started = bench_wall_clock() };
}

static int fewest(int a, int64_t b) { return b < a ? (int)b : a; }

/* Moves `bytes` n times, at one place after another. */
typedef int move_fn(void *self, bool write, int64_t at, char *memory, int64_t bytes);

static int timed(move_fn *move, void *self, bool write, char *memory, int64_t bytes, int64_t file, int n, double *seconds)
{
    for (int i = 0; i < n; i++) {
        int64_t at = i % (file / bytes) * bytes;
        double from = lanes_now();
        if (move(self, write, at, memory, bytes) < 0)
            return -1;
        seconds[i] = lanes_now() - from;
    }
    return 0;
}

static int keep(struct bench *b, struct series *s, move_fn *move, void *self, bool write, char *memory, int64_t file,
                double slice)
{
    int most = fewest(MOST, MOVED * file / s->bytes), known = bench_known(b, s), n;
    double seconds[MOST];

    if (known)
        return known < 0 ? -1 : 0;
    if (timed(move, self, write, memory, s->bytes, file, 1, seconds) < 0)
        return -1;
    n = bench_reps(slice, seconds[0], LEAST, most > LEAST ? most : LEAST);
    if (bench_barrier() < 0 || timed(move, self, write, memory, s->bytes, file, n, seconds) < 0)
        return -1;
    return bench_keep(b, s, seconds, n, false);
}

/* ---- as the executor does ---- */

static int through_store(void *self, bool write, int64_t at, char *memory, int64_t bytes)
{
    return write ? store_write(self, at, memory, bytes) : store_read(self, at, memory, bytes);
}

static int by_size(struct bench *b, struct store *s, char *memory, int64_t file, double seconds)
{
    enum { FIRST = 256 << 10, SIZES = 6 };

    for (int write = 1; write >= 0; write--)
        for (int64_t bytes = FIRST; bytes <= file; bytes *= 4) {
            struct series of = of_files(b, pass_words[write ? MP_DISK_WRITE : MP_DISK_READ], bytes);
            if (keep(b, &of, through_store, s, write, memory, file, seconds / (2 * SIZES)) < 0)
                return -1;
        }
    return bench_flush(b);
}

/* ---- by depth and block ---- */

struct queue { struct block_io *io; int fd, depth; int64_t block; };

static int through_queue(void *self, bool write, int64_t at, char *memory, int64_t bytes)
{
    struct queue *q = self;
    struct block_request r[64], *done;
    int64_t next = 0, ended = 0;

    for (int i = 0; ended < bytes; i++) {
        if (next < bytes && i < q->depth)
            done = &r[i];
        else if (!(done = block_io_take(q->io)))
            return -1;
        else if (done->result != done->bytes)
            return fail("%s a file: %s", write ? "writing" : "reading",
                        done->result < 0 ? strerror((int)-done->result) : "not all of a block");
        else
            ended += done->bytes;
        if (next >= bytes)
            continue;
        *done = (struct block_request){ .fd = q->fd, .write = write, .p = memory + next, .at = at + next, .bytes = q->block };
        next += q->block;
        if (block_io_put(q->io, done) < 0)
            return -1;
    }
    return 0;
}

static int open_file(const char *folder)
{
    char path[1024];
    int n = snprintf(path, sizeof path, "%s/dpxcal-XXXXXX", folder), fd = n < (int)sizeof path ? mkostemp(path, O_DIRECT) : -1;

    if (fd < 0)
        return fail("%s: no file for other queues: %s", folder, strerror(errno));
    unlink(path);
    return fd;
}

static int queues(struct bench *b, const char *folder, char *memory, int64_t most, double seconds)
{
    static const int depths[] = { 1, 4, 8, 32 };
    static const int64_t blocks[] = { 128 << 10, 1 << 20, 4 << 20 };
    int64_t bytes = most < 32 << 20 ? most : 32 << 20;
    int fd = open_file(folder), rc = fd < 0 ? -1 : 0;

    for (int i = 0; i < 12 && rc == 0; i++) {
        struct queue q = { .fd = fd, .depth = depths[i / 3], .block = blocks[i % 3] };
        q.io = block_io_open(BLOCK_IO_BEST, q.depth);
        rc = q.io ? 0 : -1;
        for (int write = 1; write >= 0 && rc == 0; write--) {
            struct series of = of_files(b, write ? "queue_write" : "queue_read", bytes);
            of.m = q.depth;
            of.n = q.block;
            rc = keep(b, &of, through_queue, &q, write, memory, bytes, seconds / 24);
        }
        block_io_close(q.io);
    }
    if (fd >= 0)
        close(fd);
    return rc == 0 ? bench_flush(b) : -1;
}

/* ---- all ---- */

static int all(struct bench *b, const struct bench_item *item, struct store *s, int64_t file, double seconds)
{
    char *memory = aligned_alloc(STORE_ALIGN, (size_t)file);
    int rc;

    if (!memory)
        return fail("no memory for %lld bytes of operands", (long long)file);
    memset(memory, 1, (size_t)file);
    rc = by_size(b, s, memory, file, item->queues ? 0.6 * seconds : seconds);
    if (rc == 0 && item->queues && bench_max(!store_direct(s)) < .5)
        rc = queues(b, item->folder, memory, file, 0.4 * seconds);
    free(memory);
    return rc;
}

/* A folder that cannot be written, or a disk without room, leaves the rest of a calibration as it is. */
int bench_disk(struct bench *b, const struct bench_item *item, double seconds)
{
    struct store_file f = { "dpxcal", item->largest / (4 << 20) * (4 << 20) };
    char why[512];
    int rc = 0;

    fail_capture(why, sizeof why);
    struct store *s = store_open(&(struct store_args){ .folder = item->folder, .rank = b->rank, .file = &f, .n = 1 });
    fail_capture(NULL, 0);
    double missing = bench_max(!s), cached = bench_max(s && !store_direct(s));
    if (missing > .5) {
        if (!s)
            fprintf(stderr, "warning: files are not timed: %s\n", why);
    } else {
        if (cached > .5 && b->rank == 0)
            fprintf(stderr, "warning: %s takes no O_DIRECT: its files are timed as the system's cache has them\n", item->folder);
        rc = all(b, item, s, f.bytes, seconds);
    }
    store_close(s);
    return rc;
}
