/* store.c -- see store.h. */
#define _GNU_SOURCE                 /* O_DIRECT, fallocate, MAP_ANONYMOUS */
#include "exec/device/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/room.h"

struct file { int fd; int64_t begin, bytes, size; char name[128]; };

/* A block under way: `of` bytes of the caller's memory, in place or through `buffer`. */
struct slot {
    struct block_request r;
    char   *buffer, *mem;
    int64_t of, skip;                   /* the caller's bytes begin `skip` bytes into the block */
    bool    busy, through;
};

/* Reads, or writes. */
struct way {
    struct block_io *io;
    struct slot *slot;
    atomic_llong asked, moved;
};

struct store {
    int    folder;
    char   path[1024];
    struct file *file;
    int    n;
    bool   direct;
    struct way way[2];                  /* 1: writes */
    char  *buffers;
    int64_t buffers_bytes, block;
    int    depth;
    void (*progress)(void *arg);
    void  *progress_arg;
};

/* ---- sizes ---- */

static int64_t whole(int64_t bytes) { return (bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN; }

void store_begins(const struct store_file *file, int n, int64_t *begin)
{
    begin[0] = 0;
    for (int i = 0; i < n; i++)
        begin[i + 1] = begin[i] + whole(file[i].bytes);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t largest(const struct store_args *a)
{
    int64_t most = STORE_ALIGN;

    for (int i = 0; i < a->n; i++)
        if (whole(a->file[i].bytes) > most)
            most = whole(a->file[i].bytes);
    return most;
}

/* No block is larger than the largest file. */
static int64_t block_of(const struct store_args *a) { return least(largest(a), a->block > 0 ? a->block : STORE_BLOCK); }

/* Beyond the usual no more blocks are under way than the largest file has. */
static int depth_of(const struct store_args *a)
{
    int64_t blocks = (largest(a) + block_of(a) - 1) / block_of(a);

    return a->depth > STORE_DEPTH ? (int)least(a->depth, blocks > STORE_DEPTH ? blocks : STORE_DEPTH)
                                  : a->depth > 0 ? a->depth : STORE_DEPTH;
}

int64_t store_buffers(const struct store_args *a) { return a->n ? 2 * depth_of(a) * block_of(a) : 0; }

/* ---- files ---- */

/* The file system has them, and where it can promise them they are this file's. */
static int reserve(const struct store *s, const struct file *f)
{
    if (f->size == 0 || fallocate(f->fd, 0, 0, (off_t)f->size) == 0)
        return 0;
    if (errno == EOPNOTSUPP && ftruncate(f->fd, (off_t)f->size) == 0)
        return 0;
    return fail("%s/%s: no room for %lld bytes: %s", s->path, f->name, (long long)f->size, strerror(errno));
}

static int make_file(struct store *s, struct file *f)
{
    int how = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;

    f->fd = s->direct ? openat(s->folder, f->name, how | O_DIRECT, 0600) : -1;
    if (f->fd < 0) {                    /* some file systems make it, and then refuse */
        unlinkat(s->folder, f->name, 0);
        s->direct = false;
        f->fd = openat(s->folder, f->name, how, 0600);
    }
    if (f->fd < 0)
        return fail("%s/%s: cannot be made: %s", s->path, f->name, strerror(errno));
    return reserve(s, f);
}

static int has_room(const struct store *s, int64_t bytes)
{
    struct statvfs v;

    if (fstatvfs(s->folder, &v) == 0 && (int64_t)(v.f_bavail * v.f_frsize) < bytes)
        return fail("%s: no room for %lld bytes, %lld are free", s->path, (long long)bytes,
                    (long long)(v.f_bavail * v.f_frsize));
    return 0;
}

/* One descriptor a file; the soft limit is often 1024. */
static void allow_descriptors(int n)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < (rlim_t)n + 256 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max < (rlim_t)n + 256 ? r.rlim_max : (rlim_t)n + 256;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int make_files(struct store *s, const struct store_args *a)
{
    signal(SIGXFSZ, SIG_IGN);           /* a limit of file sizes is an error that is reported */
    allow_descriptors(a->n);
    s->direct = true;
    s->file = room_new((size_t)a->n + 1, sizeof *s->file);
    for (int i = 0; i < a->n; i++) {
        s->file[i] = (struct file){ .fd = -1, .bytes = a->file[i].bytes, .size = whole(a->file[i].bytes),
                                    .begin = i ? s->file[i - 1].begin + s->file[i - 1].size : 0 };
        snprintf(s->file[i].name, sizeof s->file[i].name, "%s", a->file[i].name);
    }
    s->n = a->n;
    if (has_room(s, store_begin(s, s->n)) < 0)
        return -1;
    for (int i = 0; i < a->n; i++)
        if (make_file(s, &s->file[i]) < 0)
            return -1;
    return 0;
}

static int make_ways(struct store *s, const struct store_args *a)
{
    s->block = block_of(a);
    s->depth = depth_of(a);
    s->buffers_bytes = store_buffers(a);
    s->buffers = mmap(NULL, (size_t)s->buffers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->buffers == MAP_FAILED) {
        s->buffers = NULL;
        return fail("no memory for %lld bytes of buffers for files", (long long)s->buffers_bytes);
    }
    for (int w = 0; w < 2; w++) {
        s->way[w].io = block_io_open(a->io, s->depth);
        if (!s->way[w].io)
            return -1;
        block_io_each(s->way[w].io, a->each);
        s->way[w].slot = room_new((size_t)s->depth, sizeof *s->way[w].slot);
        for (int k = 0; k < s->depth; k++)
            s->way[w].slot[k].buffer = s->buffers + (w * s->depth + k) * s->block;
    }
    return 0;
}

struct store *store_open(const struct store_args *a)
{
    struct store *s = calloc(1, sizeof *s);

    if (!s) {
        fail("out of memory for the bookkeeping of files");
        return NULL;
    }
    s->folder = store_folder_make(a->folder, a->rank, s->path, sizeof s->path);
    if (s->folder >= 0 && make_files(s, a) == 0 && (a->n == 0 || make_ways(s, a) == 0))
        return s;
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    for (int w = 0; w < 2; w++) {
        block_io_close(s->way[w].io);
        free(s->way[w].slot);
    }
    for (int i = 0; i < s->n; i++)
        if (s->file[i].fd >= 0)
            close(s->file[i].fd);
    store_folder_remove(s->folder, s->path);
    if (s->buffers)
        munmap(s->buffers, (size_t)s->buffers_bytes);
    free(s->file);
    free(s);
}

int64_t store_begin(const struct store *s, int i)
{
    return i < s->n ? s->file[i].begin : i > 0 ? s->file[i - 1].begin + s->file[i - 1].size : 0;
}

static const struct file *file_at(const struct store *s, int64_t at)
{
    int lo = 0, hi = s->n - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (s->file[mid].begin <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &s->file[lo];
}

/* ---- a range, block by block ---- */

struct range {
    struct store *s;
    const struct file *f;
    struct way *way;
    char   *mem;
    int64_t from, end, next;            /* in the file; next: of whole blocks */
    bool    write;
    int64_t error;                      /* errno, or ENDED */
};
enum { ENDED = 1 << 20 };

/* The STORE_ALIGN bytes at `at` as they are in the file. */
static int64_t read_edge(const struct file *f, char *to, int64_t at)
{
    ssize_t n;

    do
        n = pread(f->fd, to, STORE_ALIGN, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n < 0 ? errno : n < STORE_ALIGN ? ENDED : 0;
}

/* A block that is written in part keeps the rest; behind the file's last byte there is nothing to keep. */
static int64_t fill_buffer(struct range *g, struct slot *k, int64_t block, int64_t size)
{
    int64_t end = k->skip + k->of, error = 0;

    if (k->skip > 0)
        error = read_edge(g->f, k->buffer, block);
    if (end < size && block + end < g->f->bytes && error == 0 && (k->skip == 0 || size > STORE_ALIGN))
        error = read_edge(g->f, k->buffer + size - STORE_ALIGN, block + size - STORE_ALIGN);
    else if (end < size && block + end >= g->f->bytes)
        memset(k->buffer + end, 0, (size_t)(size - end));
    memcpy(k->buffer + k->skip, k->mem, (size_t)k->of);
    return error;
}

/* The next block of the range.  errno, ENDED, or 0. */
static int64_t prepare(struct range *g, struct slot *k)
{
    int64_t block = g->next, size = least(g->s->block, whole(g->end) - block);

    k->skip = g->from > block ? g->from - block : 0;
    k->of = least(block + size, g->end) - block - k->skip;
    k->mem = g->mem + (block + k->skip - g->from);
    k->through = k->skip > 0 || k->of < size || (uintptr_t)k->mem % STORE_ALIGN != 0;
    k->r = (struct block_request){ .fd = g->f->fd, .write = g->write, .p = k->through ? k->buffer : k->mem, .at = block,
                                   .bytes = size };
    k->busy = true;
    g->next += size;
    return g->write && k->through ? fill_buffer(g, k, block, size) : 0;
}

/* What ended: all of it, or on with the rest.  1: the slot is free. */
static int finish(struct range *g, struct slot *k)
{
    int64_t n = k->r.result > 0 ? k->r.result / STORE_ALIGN * STORE_ALIGN : k->r.result;

    if (k->r.result > 0)
        atomic_fetch_add(&g->way->moved, n);
    if (n == k->r.bytes || g->error) {
        if (!g->write && k->through && !g->error)
            memcpy(k->mem, k->buffer + k->skip, (size_t)k->of);
        return 1;
    }
    if (n <= 0) {
        g->error = n < 0 ? -n : ENDED;
        return 1;
    }
    k->r.p = (char *)k->r.p + n;
    k->r.at += n;
    k->r.bytes -= n;
    return 0;
}

static struct slot *free_slot(const struct store *s, struct way *w)
{
    for (int k = 0; k < s->depth; k++)
        if (!w->slot[k].busy)
            return &w->slot[k];
    return NULL;
}

static int put(struct range *g, struct slot *k, int *busy)
{
    if (block_io_put(g->way->io, &k->r) == 0) {
        ++*busy;
        return 0;
    }
    k->busy = false;
    return -1;
}

static int take(struct range *g, int *busy)
{
    struct block_request *r = block_io_take(g->way->io);
    struct slot *k;

    if (!r)
        return -1;
    --*busy;
    k = (struct slot *)r;               /* its first member */
    if (g->s->progress)
        g->s->progress(g->s->progress_arg);
    if (!finish(g, k))
        return put(g, k, busy);
    k->busy = false;
    return 0;
}

static int blocks(struct range *g)
{
    int busy = 0;

    while ((g->next < g->end && !g->error) || busy > 0) {
        struct slot *k = g->next < g->end && !g->error ? free_slot(g->s, g->way) : NULL;
        if (!k) {
            if (take(g, &busy) < 0)
                return -1;
            continue;
        }
        g->error = prepare(g, k);
        if (g->error)
            k->busy = false;
        else if (put(g, k, &busy) < 0)
            return -1;
    }
    return 0;
}

/* Somebody else's truncation would be read as zeros after the next write behind it. */
static int check_size(const struct store *s, const struct file *f)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0)
        return fail("%s/%s: %s", s->path, f->name, strerror(errno));
    if (st.st_size != f->size)
        return fail("%s/%s: has %lld bytes, and was made with %lld: something else changed it", s->path, f->name,
                    (long long)st.st_size, (long long)f->size);
    return 0;
}

static int transfer(struct store *s, bool write, int64_t at, void *mem, int64_t bytes)
{
    const struct file *f = file_at(s, at);
    struct range g = { .s = s, .f = f, .way = &s->way[write], .mem = mem, .from = at - f->begin,
                       .end = at - f->begin + bytes, .next = (at - f->begin) / STORE_ALIGN * STORE_ALIGN, .write = write };
    const char *does = write ? "writing" : "reading";

    if (bytes == 0)
        return 0;
    if (g.end > f->size)
        return fail("%s %lld bytes of %s/%s at %lld: it ends before that", does, (long long)bytes, s->path, f->name,
                    (long long)g.from);
    if (check_size(s, f) < 0 || blocks(&g) < 0)
        return -1;
    if (g.error)
        return fail("%s %lld bytes of %s/%s: %s", does, (long long)bytes, s->path, f->name,
                    g.error != ENDED ? strerror((int)g.error) : write ? "nothing was written" : "it ends before that");
    atomic_fetch_add(&g.way->asked, bytes);
    return 0;
}

int store_read(struct store *s, int64_t at, void *to, int64_t bytes) { return transfer(s, false, at, to, bytes); }

/* What is written is only read. */
int store_write(struct store *s, int64_t at, const void *from, int64_t bytes)
{
    union { const void *const_p; void *p; } u = { .const_p = from };

    return transfer(s, true, at, u.p, bytes);
}

/* ---- figures ---- */

void store_on_progress(struct store *s, void (*f)(void *arg), void *arg)
{
    s->progress = f;
    s->progress_arg = arg;
}

int64_t store_bytes_read(const struct store *s)     { return (int64_t)atomic_load(&s->way[0].asked); }
int64_t store_bytes_written(const struct store *s)  { return (int64_t)atomic_load(&s->way[1].asked); }
int64_t store_blocks_read(const struct store *s)    { return (int64_t)atomic_load(&s->way[0].moved); }
int64_t store_blocks_written(const struct store *s) { return (int64_t)atomic_load(&s->way[1].moved); }
bool    store_direct(const struct store *s)         { return s->direct; }
const char *store_engine(const struct store *s)     { return s->n ? block_io_name(s->way[0].io) : "none"; }
