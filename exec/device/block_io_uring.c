/* block_io_uring.c -- requests through io_uring: the kernel has all of them at once, and no thread waits in each. */
#include "exec/device/block_io_internal.h"

#include <stddef.h>

#ifdef DPX_URING

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static int uring_put(void *self, struct block_request *r)
{
    struct io_uring *ring = self;
    struct io_uring_sqe *e = io_uring_get_sqe(ring);

    if (!e)
        return fail("io_uring has no room for one more request");
    if (r->write)
        io_uring_prep_write(e, r->fd, r->p, (unsigned)r->bytes, (uint64_t)r->at);
    else
        io_uring_prep_read(e, r->fd, r->p, (unsigned)r->bytes, (uint64_t)r->at);
    io_uring_sqe_set_data(e, r);
    return 0;
}

static int uring_submit(void *self)
{
    struct io_uring *ring = self;
    int rc;

    do
        rc = io_uring_submit(ring);
    while (rc == -EINTR || rc == -EAGAIN);
    return rc < 0 ? fail("io_uring_submit: %s", strerror(-rc)) : 0;
}

static struct block_request *uring_take(void *self)
{
    struct io_uring *ring = self;
    struct io_uring_cqe *e;
    int rc;

    do
        rc = io_uring_wait_cqe(ring, &e);
    while (rc == -EINTR);
    if (rc < 0) {
        fail("io_uring_wait_cqe: %s", strerror(-rc));
        return NULL;
    }
    struct block_request *r = io_uring_cqe_get_data(e);
    r->result = e->res;
    io_uring_cqe_seen(ring, e);
    return r;
}

static void uring_close(void *self)
{
    io_uring_queue_exit(self);
    free(self);
}

void *block_io_uring_open(int depth, const struct block_io_ops **ops, const char **why)
{
    static const struct block_io_ops uring = { "io_uring", uring_put, uring_submit, uring_take, uring_close };
    struct io_uring *ring = calloc(1, sizeof *ring);
    int rc = ring ? io_uring_queue_init((unsigned)depth, ring, 0) : -ENOMEM;

    if (rc == 0) {
        *ops = &uring;
        return ring;
    }
    *why = strerror(-rc);
    free(ring);
    return NULL;
}

#else

void *block_io_uring_open(int depth, const struct block_io_ops **ops, const char **why)
{
    (void)depth, (void)ops;
    *why = "this program was built without liburing";
    return NULL;
}

#endif
