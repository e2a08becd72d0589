/* block_io_internal.h -- an engine of block_io.h is a file that ends in a table. */
#ifndef DPX_BLOCK_IO_INTERNAL_H
#define DPX_BLOCK_IO_INTERNAL_H

#include "exec/device/block_io.h"

struct block_io_ops {
    const char *name;
    int  (*put)(void *self, struct block_request *r);
    int  (*submit)(void *self);         /* what was put and not submitted; NULL: put() does */
    struct block_request *(*take)(void *self);
    void (*close)(void *self);
};

struct block_io { const struct block_io_ops *ops; void *self; int depth; bool each; };

/* The engine's state, with *ops set; NULL and *why. */
void *block_io_uring_open(int depth, const struct block_io_ops **ops, const char **why);
void *block_io_threads_open(int depth, const struct block_io_ops **ops, const char **why);

#endif
