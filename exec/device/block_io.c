/* block_io.c -- which engine; what all of them have. */
#include "exec/device/block_io_internal.h"

#include <stdlib.h>

#include "base/fail.h"

struct block_io *block_io_open(enum block_io_kind kind, int depth)
{
    struct block_io *io = calloc(1, sizeof *io);
    const char *why = "out of memory";

    if (io && kind != BLOCK_IO_THREADS)
        io->self = block_io_uring_open(depth, &io->ops, &why);
    if (io && !io->self && kind != BLOCK_IO_URING)
        io->self = block_io_threads_open(depth, &io->ops, &why);
    if (io && io->self) {
        io->depth = depth;
        return io;
    }
    fail("no queue for reading and writing files%s: %s", kind == BLOCK_IO_URING ? " through io_uring" : "", why);
    free(io);
    return NULL;
}

void block_io_close(struct block_io *io)
{
    if (!io)
        return;
    io->ops->close(io->self);
    free(io);
}

const char *block_io_name(const struct block_io *io) { return io->ops->name; }
void block_io_each(struct block_io *io, bool each) { io->each = each; }

int block_io_put(struct block_io *io, struct block_request *r)
{
    if (io->ops->put(io->self, r) < 0)
        return -1;
    return io->each && io->ops->submit ? io->ops->submit(io->self) : 0;
}

struct block_request *block_io_take(struct block_io *io)
{
    if (!io->each && io->ops->submit && io->ops->submit(io->self) < 0)
        return NULL;
    return io->ops->take(io->self);
}
