/* exec_memory.c -- the memories of a rank: device, pinned host, host, and the file that disk is. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/device/host_info.h"
#include "exec/run/executor_internal.h"

/* ---- files: one for each instance that lies on disk ---- */

/* "12-exp-avg-sub-group-3": families may share their words, not their numbers. */
static void name_file(const struct buf *b, int family, int i, char *to, size_t size)
{
    int n = snprintf(to, size, "%02d-%.60s", family, b->what);

    if (b->of && n > 0)
        snprintf(to + n, size - (size_t)n, "-%.40s-%d", b->of, b->first + i);
    for (char *c = to; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_' && *c != '.')
            *c = '-';
}

static void name_files(struct executor *x)
{
    const struct schedules *s = x->s;
    int64_t room = 0;

    x->first_file = room_new((size_t)s->nbufs + 1, sizeof *x->first_file);
    for (int b = 0; b < s->nbufs; b++) {
        x->first_file[b] = x->nfiles;
        for (int i = 0; s->bufs[b].space == SPACE_DISK && i < s->bufs[b].count; i++) {
            x->file = room_for(x->file, x->nfiles, &room, sizeof *x->file);
            x->file[x->nfiles].bytes = s->bufs[b].bytes;
            name_file(&s->bufs[b], b, i, x->file[x->nfiles].name, sizeof x->file->name);
            x->nfiles++;
        }
    }
    x->file_begin = room_new((size_t)x->nfiles + 1, sizeof *x->file_begin);
    store_begins(x->file, x->nfiles, x->file_begin);
}

int64_t executor_take_file(struct executor *x, int b, int64_t i)
{
    const struct buf *f = &x->s->bufs[b];

    arena_account(x->in[SPACE_DISK], f->bytes, f->category);
    x->comes[SPACE_DISK] += f->bytes;
    return x->file_begin[x->first_file[b] + i];
}

void executor_give_file(struct executor *x, int b, const struct when *last)
{
    const struct buf *f = &x->s->bufs[b];

    arena_account(x->in[SPACE_DISK], -f->bytes, f->category);
    if (x->lanes)
        lanes_release(x->lanes, SPACE_DISK, last, 0, f->bytes);
}

/* A plan of DeepSpeed says how its files are moved: each of aio's threads has a queue of so many blocks. */
static struct store_args store_of(const struct executor *x)
{
    struct store_args a = { .folder = x->a.folder, .rank = (int)x->s->rank, .io = x->a.io, .file = x->file, .n = x->nfiles };
    const struct ds_aio *aio = &x->p->ds.aio;

    if (aio->block_size > 0) {
        int64_t depth = aio->queue_depth * aio->intra_op_parallelism;
        a.block = aio->block_size;
        a.depth = depth < 1 << 20 ? (int)depth : 1 << 20;
        a.each = aio->single_submit;
    }
    return a;
}

static int open_store(struct executor *x)
{
    struct store_args a = store_of(x);

    if (!x->a.folder)
        return fail("the schedule keeps %lld bytes in files, and no folder was given for them",
                    (long long)x->file_begin[x->nfiles]);
    x->store = store_open(&a);
    return x->store ? 0 : -1;
}

/* ---- arenas ---- */

int exec_memory_open(struct executor *x)
{
    for (int m = 0; m < NSPACE; m++)
        if (!(x->in[m] = arena_new(x->a.guarded)))
            return -1;
    x->arena = x->in[SPACE_DEVICE];
    name_files(x);
    for (enum space in = SPACE_PINNED; x->nfiles > 0 && in <= SPACE_HOST; in++)
        arena_align(x->in[in], STORE_ALIGN);        /* files are read and written in place */
    return 0;
}

void exec_memory_close(struct executor *x)
{
    for (int m = 0; m < NSPACE; m++)
        arena_free(x->in[m]);
    store_close(x->store);
    free(x->file);
    free(x->file_begin);
    free(x->first_file);
}

/* Checked on the host before anything is mapped; a device's driver checks its own memory. */
static int has_memory(const struct executor *x)
{
    int64_t need = x->dry_extent[SPACE_PINNED] + x->dry_extent[SPACE_HOST];
    struct host_info h;

    if (!device_async(x->d))
        need += x->dry_extent[SPACE_DEVICE];
    if (need > 0 && host_info(&h) == 0 && h.available > 0 && need > h.available)
        return fail("the arena needs %lld bytes, this machine has %lld left", (long long)need, (long long)h.available);
    return 0;
}

/* Device memory is mapped always, the others where a buffer lies in them. */
static int map_one(struct executor *x, enum space in)
{
    arena_reset(x->in[in]);
    if (in == SPACE_DISK)
        return x->nfiles ? open_store(x) : 0;
    if (in == SPACE_DEVICE)
        return arena_map_on(x->in[in], x->d, x->dry_extent[in]);
    if (x->dry_extent[in] == 0)
        return 0;
    if (in == SPACE_PINNED)
        return arena_map_pinned(x->in[in], x->d, x->dry_extent[in]);
    return arena_map(x->in[in], x->dry_extent[in]);
}

int exec_memory_map(struct executor *x)
{
    if (has_memory(x) < 0)
        return -1;
    for (int m = 0; m < NSPACE; m++)
        if (map_one(x, (enum space)m) < 0)
            return -1;
    return 0;
}

void exec_memory_poison(void *arg, enum space in, int64_t offset, int64_t bytes)
{
    arena_poison(((struct executor *)arg)->in[in], offset, bytes);
}

/* ---- places ---- */

int64_t executor_take_in(struct executor *x, enum space in, int64_t bytes, enum category cat)
{
    int64_t at = arena_take(x->in[in], bytes, cat, &x->now);

    x->comes[in] += bytes;
    if (at >= 0 && in == SPACE_DEVICE && arena_meter(x->arena)->live > x->a.limit) {
        x->over.over = true;
        x->over.total = arena_meter(x->arena)->live;
        return -1;
    }
    return at;
}

void executor_give_in(struct executor *x, enum space in, int64_t at, const struct when *last)
{
    int64_t bytes = arena_bytes(x->in[in], at);

    arena_give(x->in[in], at, last);
    if (x->lanes)
        lanes_release(x->lanes, in, last, at, bytes);
}

int64_t executor_take(struct executor *x, int64_t bytes, enum category cat)
{
    return executor_take_in(x, SPACE_DEVICE, bytes, cat);
}

void executor_give(struct executor *x, int64_t at, const struct when *last)
{
    executor_give_in(x, SPACE_DEVICE, at, last);
}

/* ---- meters ---- */

int64_t executor_extent_in(const struct executor *x, enum space in)
{
    return in == SPACE_DISK ? x->file_begin[x->nfiles] : x->dry_extent[in];
}

int64_t executor_file_buffers(const struct executor *x)
{
    struct store_args a = store_of(x);

    return store_buffers(&a);
}

const struct store *executor_store(const struct executor *x) { return x->store; }
int64_t executor_allocated_peak_in(const struct executor *x, enum space in) { return x->dry_peak[in]; }
const struct arena_meter *executor_meter_in(const struct executor *x, enum space in) { return arena_meter(x->in[in]); }

int64_t executor_held_peak_in(const struct executor *x, enum space in)
{
    return x->lanes ? lanes_held_peak(x->lanes, in) : -1;
}

/* ---- windows through which the host reads and writes ---- */

enum { SEEN = 4 << 20 };                /* bytes of a window */

int executor_host_sees(struct executor *x, struct kernels *k, int64_t n, const void *p, enum dtype t,
              int (*f)(void *, int64_t, int64_t, const void *), void *arg)
{
    int64_t each = SEEN / dtype_bytes(t);
    int rc = 0;

    if (n == 0 || !device_async(x->d))
        return n == 0 ? 0 : f(arg, 0, n, p);
    char *piece = room_new(SEEN, 1);
    for (int64_t at = 0; at < n && rc == 0; at += each) {
        int64_t m = n - at < each ? n - at : each;
        rc = kernels_ops(k)->download(k, m * dtype_bytes(t), piece, (const char *)p + at * dtype_bytes(t));
        if (rc == 0)
            rc = f(arg, at, m, piece);
    }
    free(piece);
    return rc;
}

typedef int params_fn(void *arg, int tensor, int64_t from, int64_t n, const void *p, enum dtype t, bool master);

struct params_seen { params_fn *f; void *arg; int tensor; int64_t from; enum dtype t; bool master; };

static int see_params(void *arg, int64_t first, int64_t n, const void *p)
{
    const struct params_seen *s = arg;

    return s->f(s->arg, s->tensor, s->from + first, n, p, s->t, s->master);
}

/* A buffer for it may be declared and never used. */
static bool holds_master(const struct executor *x)
{
    for (int b = 0; b < x->s->nbufs; b++) {
        const struct layout *l = x->s->bufs[b].layout ? &x->s->layouts[x->s->bufs[b].layout] : NULL;
        for (int k = 0; l && x->inst[b][0].live && k < l->nslices; k++)
            if (x->s->slices[l->slice0 + k].holds == HOLDS_MASTER)
                return true;
    }
    return false;
}

/* Elements of a file, piece by piece. */
static int see_file(const struct executor *x, int64_t at, int64_t n, const struct params_seen *s)
{
    int64_t e = dtype_bytes(s->t), each = SEEN / e;
    char *piece = room_new(SEEN, 1);
    int rc = 0;

    for (int64_t i = 0; i < n && rc == 0; i += each) {
        int64_t m = n - i < each ? n - i : each;
        rc = store_read(x->store, at + i * e, piece, m * e);
        if (rc == 0)
            rc = s->f(s->arg, s->tensor, s->from + i, m, piece, s->t, s->master);
    }
    free(piece);
    return rc;
}

static int see_slice(struct executor *x, const struct slice *c, enum space in, int64_t at, struct params_seen *s)
{
    const void *p = arena_at(x->in[in], at);

    if (c->n == 0)
        return 0;
    if (in == SPACE_DISK)
        return see_file(x, at, c->n, s);
    if (in != SPACE_DEVICE)
        return s->f(s->arg, s->tensor, s->from, c->n, p, s->t, s->master);
    return executor_host_sees(x, x->kernels[STREAM_COMPUTE], c->n, p, s->t, see_params, s);
}

int executor_params(struct executor *x, params_fn *f, void *arg)
{
    enum holds want = holds_master(x) ? HOLDS_MASTER : HOLDS_PARAM;

    for (int b = 0; b < x->s->nbufs; b++) {
        const struct layout *l = x->s->bufs[b].layout ? &x->s->layouts[x->s->bufs[b].layout] : NULL;
        for (int i = 0; l && i < x->s->bufs[b].count; i++)
            for (int k = 0; x->inst[b][i].live && !x->inst[b][i].granted && k < l->nslices; k++) {
                const struct slice *c = &x->s->slices[l->slice0 + k];
                struct params_seen seen = { f, arg, c->tensor + i * l->stride, c->from, (enum dtype)c->dtype,
                                            want == HOLDS_MASTER };
                bool frozen = c->holds == HOLDS_PARAM && tensor_of(x, seen.tensor)->frozen;      /* it has no master */
                seen.master &= !frozen;
                if ((c->holds == want || frozen) &&
                    see_slice(x, c, x->s->bufs[b].space, x->inst[b][i].at + c->at, &seen) < 0)
                    return -1;
            }
    }
    return 0;
}
