/* fake_streams.h -- memory, streams, marks and copies of fake_device.h. */
#ifndef DPX_TESTS_EXEC_FAKE_STREAMS_H
#define DPX_TESTS_EXEC_FAKE_STREAMS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE                     /* MAP_ANONYMOUS: before the first include of all */
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "exec/device/device.h"
#include "exec/device/lanes.h"

struct fake;

struct fake_item {
    struct fake_item *next;
    int (*run)(void *arg, void *device);
    void *arg, *device;                 /* arg is freed after it */
    double takes;                       /* seconds of the stream's clock */
};

struct CUstream_st {
    struct fake *f;
    pthread_t thread;
    bool started;
    pthread_cond_t work;                /* an item came, or the device closes */
    unsigned dawdles;                   /* state of its random numbers */
    struct fake_item *first, **last;
    int64_t queued, done;               /* items */
    int64_t mark_queued, marked;        /* numbers */
    double clock;                       /* with struct fake's kernel_s: when its last item ended */
    double begin[DEVICE_MARKS], end[DEVICE_MARKS];
};

struct fake_map { char *at, *real; int64_t bytes; };

enum { FAKE_MAPS = 64, FAKE_DAWDLE = 16 };      /* one item in so many waits up to 0.2 ms */

struct fake {
    struct device d;
    pthread_mutex_t lock;
    pthread_cond_t change;          /* a mark was made, or a stream is empty */
    bool closing;
    struct CUstream_st stream[NSTREAM];
    struct fake_map map[FAKE_MAPS];
    int64_t used;
    /* Times as a clock of the device's own has them, whatever the machine does: every kernel takes so long, a copy between
     * device and host memory its bytes over `link`, a stream that waits for a mark goes on from there.  0: as it runs.
     * Lanes ask the device to wait only for what they do not know to be done: until `unseen` marks have been made none is. */
    double kernel_s, link;
    int64_t marks, unseen;
};

static inline void fake_bug(const char *what)
{
    fprintf(stderr, "fake device: %s\n", what);
    abort();
}

/* ---- memory ---- */

static inline void *fake_map_memory(struct device *d, int64_t bytes)
{
    struct fake *f = d->self;

    for (int i = 0; i < FAKE_MAPS; i++)
        if (!f->map[i].at) {
            struct fake_map *m = &f->map[i];
            m->bytes = bytes;
            m->at = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            m->real = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(m->real, 0xff, (size_t)bytes);
            f->used += bytes;
            return m->at;
        }
    fake_bug("too many maps");
    return NULL;
}

static inline void fake_unmap(struct device *d, void *p, int64_t bytes)
{
    struct fake *f = d->self;

    for (int i = 0; i < FAKE_MAPS; i++)
        if (f->map[i].at == p) {
            if (f->map[i].bytes != bytes)
                fake_bug("unmapped as something else than it was mapped");
            munmap(f->map[i].at, (size_t)bytes);
            munmap(f->map[i].real, (size_t)bytes);
            f->map[i] = (struct fake_map){ 0 };
            f->used -= bytes;
            return;
        }
    fake_bug("unmapped what is not mapped");
}

/* Where the bytes are that the device has at p. */
static inline void *fake_real(struct fake *f, const void *p)
{
    const char *at = p;

    for (int i = 0; p && i < FAKE_MAPS; i++)
        if (f->map[i].at && at >= f->map[i].at && at < f->map[i].at + f->map[i].bytes)
            return f->map[i].real + (at - f->map[i].at);
    if (p)
        fake_bug("a kernel is given memory that is not the device's");
    return NULL;
}

static inline void *fake_pin(struct device *d, int64_t bytes)
{
    (void)d;
    return malloc((size_t)bytes);
}

static inline void fake_unpin(struct device *d, void *p, int64_t bytes)
{
    (void)d, (void)bytes;
    free(p);
}

/* ---- streams ---- */

static inline void fake_dawdle(struct CUstream_st *s)
{
    unsigned r = (unsigned)rand_r(&s->dawdles);

    if (r % FAKE_DAWDLE == 0)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(r / FAKE_DAWDLE % 200) * 1000 }, NULL);
}

static inline void *fake_work(void *arg)
{
    struct CUstream_st *s = arg;
    struct fake *f = s->f;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!s->first && !f->closing)
            pthread_cond_wait(&s->work, &f->lock);
        if (!s->first)
            break;
        struct fake_item *i = s->first;
        s->first = i->next;
        if (!s->first)
            s->last = &s->first;
        pthread_mutex_unlock(&f->lock);
        fake_dawdle(s);
        if (i->run(i->arg, i->device) < 0)
            fake_bug("what was queued failed");
        pthread_mutex_lock(&f->lock);
        s->clock += i->takes;
        free(i->arg);
        free(i);
        if (++s->done == s->queued)
            pthread_cond_broadcast(&f->change);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Queues run(arg, device); arg becomes the item's. */
static inline int fake_queue_for(struct CUstream_st *s, double takes, int (*run)(void *, void *), void *arg, void *device)
{
    struct fake_item *i = malloc(sizeof *i);

    *i = (struct fake_item){ NULL, run, arg, device, takes };
    pthread_mutex_lock(&s->f->lock);
    *s->last = i;
    s->last = &i->next;
    s->queued++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->f->lock);
    return 0;
}

/* A kernel. */
static inline int fake_queue(struct CUstream_st *s, int (*run)(void *, void *), void *arg, void *device)
{
    return fake_queue_for(s, s->f->kernel_s, run, arg, device);
}

static inline void *fake_copy_of(const void *p, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);

    memcpy(copy, p, bytes);
    return copy;
}

/* Under the lock, for at most a millisecond: `stop` wakes no one. */
static inline void fake_doze(struct fake *f)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&f->change, &f->lock, &t);
}

static inline int fake_drain(struct device *d, struct CUstream_st *s, const atomic_bool *stop)
{
    struct fake *f = d->self;
    bool stopped = false;

    pthread_mutex_lock(&f->lock);
    while (s->done < s->queued && !(stopped = stop && atomic_load(stop)))
        fake_doze(f);
    pthread_mutex_unlock(&f->lock);
    return stopped ? -1 : 0;
}

/* ---- marks ---- */

struct fake_mark { struct CUstream_st *s; int64_t number; struct CUstream_st *waits; };

static inline double fake_now(const struct CUstream_st *s) { return s->f->kernel_s > 0 ? s->clock : lanes_now(); }

static inline int fake_make_mark(void *arg, void *device)
{
    struct fake_mark *m = arg;

    (void)device;
    pthread_mutex_lock(&m->s->f->lock);
    m->s->marked = m->number;
    m->s->end[m->number % DEVICE_MARKS] = fake_now(m->s);
    pthread_cond_broadcast(&m->s->f->change);
    pthread_mutex_unlock(&m->s->f->lock);
    return 0;
}

static inline int fake_mark(struct device *d, enum stream s, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[s], number, NULL };

    pthread_mutex_lock(&f->lock);
    if (number <= m.s->mark_queued)
        fake_bug("marks go back");
    m.s->mark_queued = number;
    f->marks++;
    pthread_mutex_unlock(&f->lock);
    return fake_queue_for(m.s, 0, fake_make_mark, fake_copy_of(&m, sizeof m), NULL);
}

static inline int fake_make_begin(void *arg, void *device)
{
    struct fake_mark *m = arg;

    (void)device;
    m->s->begin[m->number % DEVICE_MARKS] = fake_now(m->s);
    return 0;
}

static inline int fake_begin(struct device *d, enum stream s, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[s], number, NULL };

    return fake_queue_for(m.s, 0, fake_make_begin, fake_copy_of(&m, sizeof m), NULL);
}

static inline int fake_times(struct device *d, enum stream s, int64_t number, double *start, double *end)
{
    struct fake *f = d->self;

    pthread_mutex_lock(&f->lock);
    *start = f->stream[s].begin[number % DEVICE_MARKS];
    *end = f->stream[s].end[number % DEVICE_MARKS];
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static inline int fake_await_mark(void *arg, void *device)
{
    struct fake_mark *m = arg;

    (void)device;
    pthread_mutex_lock(&m->s->f->lock);
    while (m->s->marked < m->number)
        pthread_cond_wait(&m->s->f->change, &m->s->f->lock);
    double then = m->s->end[m->number % DEVICE_MARKS];
    if (m->waits->clock < then)
        m->waits->clock = then;
    pthread_mutex_unlock(&m->s->f->lock);
    return 0;
}

static inline int fake_after(struct device *d, enum stream s, enum stream of, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[of], number, &f->stream[s] };

    pthread_mutex_lock(&f->lock);
    if (m.s->mark_queued < number)
        fake_bug("a stream waits for a mark that was never made");
    pthread_mutex_unlock(&f->lock);
    return fake_queue_for(&f->stream[s], 0, fake_await_mark, fake_copy_of(&m, sizeof m), NULL);
}

static inline int fake_wait(struct device *d, enum stream of, int64_t number, const atomic_bool *stop)
{
    struct fake *f = d->self;

    pthread_mutex_lock(&f->lock);
    if (f->stream[of].mark_queued < number)
        fake_bug("the host waits for a mark that was never made");
    while ((f->stream[of].marked < number || f->marks < f->unseen) && !atomic_load(stop))
        fake_doze(f);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static inline int fake_enter(struct device *d)  { (void)d; return 0; }
/* All streams go on from one moment. */
static inline int fake_anchor(struct device *d)
{
    struct fake *f = d->self;
    double now = 0;

    pthread_mutex_lock(&f->lock);
    for (int s = 0; s < NSTREAM; s++)
        now = f->stream[s].clock > now ? f->stream[s].clock : now;
    for (int s = 0; s < NSTREAM; s++)
        f->stream[s].clock = now;
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static inline struct CUstream_st *fake_stream(struct device *d, enum stream s)
{
    return &((struct fake *)d->self)->stream[s];
}
static inline int64_t fake_used(struct device *d) { return ((struct fake *)d->self)->used; }

/* ---- copies ---- */

struct fake_bytes { int64_t n; void *host; };

static inline double fake_copy_s(const struct CUstream_st *s, int64_t bytes)
{
    return s->f->kernel_s > 0 ? (double)bytes / s->f->link : 0;
}

static inline int fake_run_fetch(void *arg, void *device)
{
    struct fake_bytes *b = arg;

    memcpy(b->host, device, (size_t)b->n);
    return 0;
}

static inline int fake_fetch(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes)
{
    struct fake_bytes b = { bytes, host };

    return fake_queue_for(s, fake_copy_s(s, bytes), fake_run_fetch, fake_copy_of(&b, sizeof b), fake_real(d->self, from));
}

static inline int fake_run_store(void *arg, void *device)
{
    struct fake_bytes *b = arg;

    memcpy(device, b->host, (size_t)b->n);
    return 0;
}

static inline int fake_store(struct device *d, struct CUstream_st *s, void *to, const void *host, int64_t bytes)
{
    struct fake_bytes b = { bytes, (void *)(uintptr_t)host };

    return fake_queue_for(s, fake_copy_s(s, bytes), fake_run_store, fake_copy_of(&b, sizeof b), fake_real(d->self, to));
}

#endif
