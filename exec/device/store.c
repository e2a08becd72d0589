#define _GNU_SOURCE                 /* fallocate */
#include "exec/device/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"

enum { MOST = 1 << 30 };                /* of one call: Linux moves at most 2^31 - 4096 bytes */

struct store {
    int  fd;
    char folder[512];
    atomic_llong read, written;
};

/* The file system has them, and where it can promise them they are this file's. */
static int reserve(const struct store *s, int64_t bytes)
{
    struct statvfs v;

    if (fstatvfs(s->fd, &v) == 0 && (int64_t)(v.f_bavail * v.f_frsize) < bytes)
        return fail("%s: no room for %lld bytes", s->folder, (long long)bytes);
    if (bytes == 0 || fallocate(s->fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno == EOPNOTSUPP && ftruncate(s->fd, (off_t)bytes) == 0)
        return 0;
    return fail("%s: no room for %lld bytes: %s", s->folder, (long long)bytes, strerror(errno));
}

struct store *store_open(const char *folder, int64_t bytes)
{
    struct store *s = calloc(1, sizeof *s);
    char path[1024];
    int rc;

    if (!s) {
        fail("out of memory for a file's bookkeeping");
        return NULL;
    }
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    rc = snprintf(path, sizeof path, "%s/dpx-XXXXXX", folder);
    s->fd = rc < (int)sizeof path ? mkstemp(path) : -1;
    if (s->fd < 0) {
        fail("%s: no file can be made in it: %s", folder, rc < (int)sizeof path ? strerror(errno) : "the name is too long");
        free(s);
        return NULL;
    }
    unlink(path);
    if (reserve(s, bytes) == 0)
        return s;
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    close(s->fd);
    free(s);
}

static size_t part(int64_t left) { return (size_t)(left < MOST ? left : MOST); }

int store_read(struct store *s, int64_t offset, void *to, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; ) {
        ssize_t n = pread(s->fd, (char *)to + at, part(bytes - at), (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail("reading %lld bytes of a file in %s: %s", (long long)bytes, s->folder,
                        n < 0 ? strerror(errno) : "it ends before that");
        at += n;
    }
    atomic_fetch_add(&s->read, bytes);
    return 0;
}

int store_write(struct store *s, int64_t offset, const void *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; ) {
        ssize_t n = pwrite(s->fd, (const char *)from + at, part(bytes - at), (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail("writing %lld bytes of a file in %s: %s", (long long)bytes, s->folder,
                        n < 0 ? strerror(errno) : "nothing was written");
        at += n;
    }
    atomic_fetch_add(&s->written, bytes);
    return 0;
}

int64_t store_bytes_read(const struct store *s)    { return (int64_t)atomic_load(&s->read); }
int64_t store_bytes_written(const struct store *s) { return (int64_t)atomic_load(&s->written); }
