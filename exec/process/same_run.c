/* same_run.c -- documents of all ranks are compared by hash; the first member that differs is named. */
#include "exec/process/same_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/room.h"
#include "exec/data/xxh64.h"

enum { BLOCK = 256 << 10, BLOCKS = 257 };
#define WHOLE ((int64_t)(BLOCKS - 1) * BLOCK)           /* 64 MiB: a file up to this size is read whole */

/* ---- files ---- */

static int read_block(const char *path, int fd, int64_t at, int64_t n, unsigned char *to)
{
    for (int64_t got = 0; got < n; ) {
        ssize_t k = pread(fd, to + got, (size_t)(n - got), (off_t)(at + got));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return fail("%s: %s", path, k < 0 ? strerror(errno) : "became shorter while it was read");
        got += k;
    }
    return 0;
}

/* The hash of the blocks' hashes. */
static int hash_file(const char *path, int fd, int64_t size, uint64_t *hash)
{
    unsigned char *bytes = room_new(BLOCK, 1);
    uint64_t of[BLOCKS] = { 0 };
    int64_t n = size <= WHOLE ? (size + BLOCK - 1) / BLOCK : BLOCKS;
    int rc = 0;

    for (int64_t i = 0; i < n && rc == 0; i++) {
        int64_t at = size <= WHOLE ? i * BLOCK : (size - BLOCK) / (BLOCKS - 1) * i;
        if (size > WHOLE && i == BLOCKS - 1)
            at = size - BLOCK;
        int64_t part = size - at < BLOCK ? size - at : BLOCK;
        rc = read_block(path, fd, at, part, bytes);
        of[i] = xxh64(bytes, (size_t)part);
    }
    *hash = xxh64(of, sizeof of);
    free(bytes);
    return rc;
}

json_t *same_run_file(const char *path)
{
    char why[512] = "", text[24];
    uint64_t hash = 0;
    int64_t size = 0;

    if (!path)
        return json_null();
    fail_capture(why, sizeof why);
    int fd = input_file(path, &size);
    int rc = fd < 0 ? -1 : hash_file(path, fd, size, &hash);
    if (fd >= 0)
        close(fd);
    fail_capture(NULL, 0);
    if (rc < 0)
        return json_string(why);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)size, "hash", text);
}

/* ---- documents ---- */

struct difference { char where[256]; const json_t *a, *b; };

static bool find_in(const json_t *a, const json_t *b, struct difference *d);

static bool find_member(const char *key, const json_t *a, const json_t *b, struct difference *d)
{
    size_t was = strlen(d->where);

    snprintf(d->where + was, sizeof d->where - was, "%s%s", was ? "." : "", key);
    if (find_in(a, b, d))
        return true;
    d->where[was] = '\0';
    return false;
}

/* The first member, in the order of `a`, that is not equal; then what only `b` has. */
static bool find_in(const json_t *a, const json_t *b, struct difference *d)
{
    const char *key;
    json_t *v;

    if (json_equal(a, b))
        return false;
    if (json_is_object(a) && json_is_object(b)) {
        json_object_foreach((json_t *)(uintptr_t)a, key, v)
            if (find_member(key, v, json_object_get(b, key), d))
                return true;
        json_object_foreach((json_t *)(uintptr_t)b, key, v)
            if (!json_object_get(a, key) && find_member(key, NULL, v, d))
                return true;
    }
    d->a = a;
    d->b = b;
    return true;
}

static char *shown(const json_t *j, char *to, size_t size)
{
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(8)) : NULL;

    snprintf(to, size, "%s", !j || json_is_null(j) ? "none" : text ? text : "?");
    free(text);
    return to;
}

static int report(const json_t *mine, const char *theirs, int rank)
{
    json_t *other = json_loads(theirs, 0, NULL);
    struct difference d = { .where = "" };
    char a[160], b[160];

    if (other && find_in(mine, other, &d))
        fail("ranks disagree: rank %d has %s %s, rank 0 has %s: all ranks must be given the same", rank, d.where,
             shown(d.b, b, sizeof b), shown(d.a, a, sizeof a));
    else
        fail("ranks disagree: rank %d is to run something else than rank 0", rank);
    json_decref(other);
    return -1;
}

int same_run_as(const char *other, const json_t *was, const json_t *now)
{
    struct difference d = { .where = "" };
    char a[160], b[160];

    if (!find_in(was, now, &d))
        return 0;
    return fail("%s: is of another run: %s was %s, here it is %s", other, d.where, shown(d.a, a, sizeof a), shown(d.b, b, sizeof b));
}

/* ---- ranks ---- */

static int first_other(const uint64_t *hash, int world)
{
    for (int r = 1; r < world; r++)
        if (hash[2 * r] != hash[0] || hash[2 * r + 1] != hash[1])
            return r;
    return 0;
}

static int exchange(MPI_Comm comm, const json_t *mine, const char *text, uint64_t *all)
{
    uint64_t my[2] = { xxh64(text, strlen(text)), strlen(text) };
    int rank, world, other;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    if (MPI_Allgather(my, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, comm) != MPI_SUCCESS)
        return fail("MPI_Allgather failed while ranks compared what they are to run");
    other = first_other(all, world);
    if (other && rank == other)
        MPI_Send(text, (int)my[1], MPI_CHAR, 0, 0, comm);
    if (other && rank == 0) {
        int n = (int)all[2 * other + 1];
        char *theirs = room_new((size_t)n + 1, 1);
        if (MPI_Recv(theirs, n, MPI_CHAR, other, 0, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            report(mine, theirs, other);
        free(theirs);
    }
    return other ? -1 : 0;
}

int same_run_check(MPI_Comm comm, const json_t *mine)
{
    char *text = json_dumps(mine, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    uint64_t *all;
    int world, rc;

    if (!text)
        abort();                        /* out of memory */
    MPI_Comm_size(comm, &world);
    all = room_new((size_t)world, 2 * sizeof *all);
    rc = exchange(comm, mine, text, all);
    free(all);
    free(text);
    return rc;
}
