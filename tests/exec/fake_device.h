/* fake_device.h -- an asynchronous device without one: each stream is a FIFO with a thread of its own,
 * kernels are the host's, run there later.
 *
 * What goes wrong on a real device goes wrong here, and loudly: device memory cannot be read or written
 * by the host (its addresses are mapped to nothing; kernels see the bytes elsewhere); streams
 * dawdle at random, so that a wait that is missing shows; results come with finish() and not
 * before; new memory is full of NaN; to wait for a mark that nobody has made ends the program. */
#ifndef DPX_TESTS_EXEC_FAKE_DEVICE_H
#define DPX_TESTS_EXEC_FAKE_DEVICE_H

#ifndef _GNU_SOURCE
#error "MAP_ANONYMOUS: define _GNU_SOURCE before anything is included"
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "exec/device.h"
#include "exec/exact_sum.h"
#include "exec/kernels_internal.h"
#include "exec/lanes.h"

struct fake;

struct fake_item {
    struct fake_item *next;
    int (*run)(void *arg, void *device);
    void *arg, *device;                 /* arg is freed after it */
};

struct CUstream_st {
    struct fake *f;
    pthread_t thread;
    bool started;
    unsigned dawdles;                   /* state of its random numbers */
    struct fake_item *first, **last;
    int64_t queued, done;               /* items */
    int64_t mark_queued, marked;        /* numbers */
    double begin[DEVICE_MARKS], end[DEVICE_MARKS];
};

struct fake_map { char *at, *real; int64_t bytes; };

enum { FAKE_MAPS = 64, FAKE_DAWDLE = 16 };      /* one item in so many waits up to 0.2 ms */

struct fake {
    struct device d;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool closing;
    struct CUstream_st stream[NSTREAM];
    struct fake_map map[FAKE_MAPS];
    int64_t used;
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
            pthread_cond_wait(&f->change, &f->lock);
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
        free(i->arg);
        free(i);
        pthread_mutex_lock(&f->lock);
        s->done++;
        pthread_cond_broadcast(&f->change);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Queues run(arg, device); arg becomes the item's. */
static inline int fake_queue(struct CUstream_st *s, int (*run)(void *, void *), void *arg, void *device)
{
    struct fake_item *i = malloc(sizeof *i);

    *i = (struct fake_item){ NULL, run, arg, device };
    pthread_mutex_lock(&s->f->lock);
    *s->last = i;
    s->last = &i->next;
    s->queued++;
    pthread_cond_broadcast(&s->f->change);
    pthread_mutex_unlock(&s->f->lock);
    return 0;
}

static inline void *fake_copy_of(const void *p, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);

    memcpy(copy, p, bytes);
    return copy;
}

/* Under the lock, for at most a millisecond: nobody tells of `stop`. */
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

struct fake_mark { struct CUstream_st *s; int64_t number; };

static inline int fake_make_mark(void *arg, void *device)
{
    struct fake_mark *m = arg;

    (void)device;
    pthread_mutex_lock(&m->s->f->lock);
    m->s->marked = m->number;
    m->s->end[m->number % DEVICE_MARKS] = lanes_now();
    pthread_mutex_unlock(&m->s->f->lock);
    return 0;
}

static inline int fake_mark(struct device *d, enum stream s, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[s], number };

    pthread_mutex_lock(&f->lock);
    if (number <= m.s->mark_queued)
        fake_bug("marks go back");
    m.s->mark_queued = number;
    pthread_mutex_unlock(&f->lock);
    return fake_queue(m.s, fake_make_mark, fake_copy_of(&m, sizeof m), NULL);
}

static inline int fake_make_begin(void *arg, void *device)
{
    struct fake_mark *m = arg;

    (void)device;
    m->s->begin[m->number % DEVICE_MARKS] = lanes_now();
    return 0;
}

static inline int fake_begin(struct device *d, enum stream s, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[s], number };

    return fake_queue(m.s, fake_make_begin, fake_copy_of(&m, sizeof m), NULL);
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
    pthread_mutex_unlock(&m->s->f->lock);
    return 0;
}

static inline int fake_after(struct device *d, enum stream s, enum stream of, int64_t number)
{
    struct fake *f = d->self;
    struct fake_mark m = { &f->stream[of], number };

    pthread_mutex_lock(&f->lock);
    if (m.s->mark_queued < number)
        fake_bug("a stream waits for a mark that nobody has made");
    pthread_mutex_unlock(&f->lock);
    return fake_queue(&f->stream[s], fake_await_mark, fake_copy_of(&m, sizeof m), NULL);
}

static inline int fake_wait(struct device *d, enum stream of, int64_t number, const atomic_bool *stop)
{
    struct fake *f = d->self;

    pthread_mutex_lock(&f->lock);
    if (f->stream[of].mark_queued < number)
        fake_bug("the host waits for a mark that nobody has made");
    while (f->stream[of].marked < number && !atomic_load(stop))
        fake_doze(f);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static inline int fake_enter(struct device *d)  { (void)d; return 0; }
static inline int fake_anchor(struct device *d) { (void)d; return 0; }
static inline struct CUstream_st *fake_stream(struct device *d, enum stream s)
{
    return &((struct fake *)d->self)->stream[s];
}
static inline int64_t fake_used(struct device *d) { return ((struct fake *)d->self)->used; }

/* ---- copies ---- */

struct fake_bytes { int64_t n; void *host; };

static inline int fake_run_fetch(void *arg, void *device)
{
    struct fake_bytes *b = arg;

    memcpy(b->host, device, (size_t)b->n);
    return 0;
}

static inline int fake_fetch(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes)
{
    struct fake_bytes b = { bytes, host };

    return fake_queue(s, fake_run_fetch, fake_copy_of(&b, sizeof b), fake_real(d->self, from));
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

    return fake_queue(s, fake_run_store, fake_copy_of(&b, sizeof b), fake_real(d->self, to));
}

/* ---- kernels ---- */

/* A number on its way to the host. */
struct fake_result {
    struct fake_result *next;
    double *to, value;
    struct exact_sum *exact_to, exact;
};

struct fake_kernels {
    struct CUstream_st *s;
    struct kernels *inner;              /* the host's, used by the stream's thread */
    struct fake_result *results, **last;
};

static inline struct fake_kernels *fake_of(struct kernels *k) { return k->self; }
static inline void *fake_at(struct kernels *k, const void *p) { return fake_real(fake_of(k)->s->f, p); }

static inline struct dropout fake_drop(const struct dropout *d) { return d ? *d : (struct dropout){ 0 }; }

/* FIELDS of a struct of arguments, what the call of the host's kernel makes of them (a->). */
#define FAKE_CALL(op, FIELDS, ...) \
    struct fake_##op { struct kernels *k; FIELDS }; \
    static inline int fake_run_##op(void *arg, void *device) \
    { \
        struct fake_##op *a = arg; \
        (void)device; \
        return kernels_ops(a->k)->op(a->k, __VA_ARGS__); \
    }
#define FAKE_QUEUE(op, ...) \
    struct fake_##op a = { fake_of(k)->inner, __VA_ARGS__ }; \
    return fake_queue(fake_of(k)->s, fake_run_##op, fake_copy_of(&a, sizeof a), NULL)
#define AT(p) fake_at(k, p)

FAKE_CALL(embed, int64_t n; int64_t h; const int32_t *ids; const void *table; enum dtype wt; void *x; enum dtype at;,
          a->n, a->h, a->ids, a->table, a->wt, a->x, a->at)
static inline int fake_embed(struct kernels *k, int64_t n, int64_t h, const int32_t *ids, const void *table,
                             enum dtype wt, void *x, enum dtype at)
{
    FAKE_QUEUE(embed, n, h, AT(ids), AT(table), wt, AT(x), at);
}

FAKE_CALL(embed_positions, int64_t n; int64_t h; int64_t seq; const void *table; enum dtype wt; void *x; enum dtype at;
          struct dropout d;, a->n, a->h, a->seq, a->table, a->wt, a->x, a->at, &a->d)
static inline int fake_embed_positions(struct kernels *k, int64_t n, int64_t h, int64_t seq, const void *table,
                                       enum dtype wt, void *x, enum dtype at, const struct dropout *d)
{
    FAKE_QUEUE(embed_positions, n, h, seq, AT(table), wt, AT(x), at, fake_drop(d));
}

FAKE_CALL(dropout_back, int64_t n; void *dx; enum dtype at; struct dropout d;, a->n, a->dx, a->at, &a->d)
static inline int fake_dropout_back(struct kernels *k, int64_t n, void *dx, enum dtype at, const struct dropout *d)
{
    FAKE_QUEUE(dropout_back, n, AT(dx), at, fake_drop(d));
}

FAKE_CALL(embed_back, int64_t n; int64_t h; int64_t vocab; const int32_t *ids; const void *dx; enum dtype at;
          void *dtable; enum dtype gt; enum grad_into into;,
          a->n, a->h, a->vocab, a->ids, a->dx, a->at, a->dtable, a->gt, a->into)
static inline int fake_embed_back(struct kernels *k, int64_t n, int64_t h, int64_t vocab, const int32_t *ids,
                                  const void *dx, enum dtype at, void *dtable, enum dtype gt, enum grad_into into)
{
    FAKE_QUEUE(embed_back, n, h, vocab, AT(ids), AT(dx), at, AT(dtable), gt, into);
}

FAKE_CALL(embed_positions_back, int64_t n; int64_t h; int64_t seq; int64_t rows; const void *dx; enum dtype at;
          void *dtable; enum dtype gt; enum grad_into into;,
          a->n, a->h, a->seq, a->rows, a->dx, a->at, a->dtable, a->gt, a->into)
static inline int fake_embed_positions_back(struct kernels *k, int64_t n, int64_t h, int64_t seq, int64_t rows,
                                            const void *dx, enum dtype at, void *dtable, enum dtype gt,
                                            enum grad_into into)
{
    FAKE_QUEUE(embed_positions_back, n, h, seq, rows, AT(dx), at, AT(dtable), gt, into);
}

FAKE_CALL(norm, enum norm_kind kind; int64_t n; int64_t h; double eps; const void *x; const void *w; const void *b;
          enum dtype wt; void *y; enum dtype at; float *stats;,
          a->kind, a->n, a->h, a->eps, a->x, a->w, a->b, a->wt, a->y, a->at, a->stats)
static inline int fake_norm(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, double eps, const void *x,
                            const void *w, const void *b, enum dtype wt, void *y, enum dtype at, float *stats)
{
    FAKE_QUEUE(norm, kind, n, h, eps, AT(x), AT(w), AT(b), wt, AT(y), at, AT(stats));
}

FAKE_CALL(norm_back, enum norm_kind kind; int64_t n; int64_t h; const void *dy; const void *x; const void *w;
          enum dtype wt; const float *stats; enum dtype at; void *dx; bool add; void *dw; void *db; enum dtype gt;
          enum grad_into into;, a->kind, a->n, a->h, a->dy, a->x, a->w, a->wt, a->stats, a->at, a->dx, a->add,
          a->dw, a->db, a->gt, a->into)
static inline int fake_norm_back(struct kernels *k, enum norm_kind kind, int64_t n, int64_t h, const void *dy,
                                 const void *x, const void *w, enum dtype wt, const float *stats, enum dtype at,
                                 void *dx, bool add, void *dw, void *db, enum dtype gt, enum grad_into into)
{
    FAKE_QUEUE(norm_back, kind, n, h, AT(dy), AT(x), AT(w), wt, AT(stats), at, AT(dx), add, AT(dw), AT(db), gt, into);
}

FAKE_CALL(linear, struct linear l; const void *x; const void *w; const void *b; void *y; const void *residual;
          struct dropout d;, &a->l, a->x, a->w, a->b, a->y, a->residual, &a->d)
static inline int fake_linear(struct kernels *k, const struct linear *l, const void *x, const void *w, const void *b,
                              void *y, const void *residual, const struct dropout *d)
{
    FAKE_QUEUE(linear, *l, AT(x), AT(w), AT(b), AT(y), AT(residual), fake_drop(d));
}

FAKE_CALL(linear_dw, struct linear l; const void *x; const void *dy; void *dw; void *db; enum grad_into into;,
          &a->l, a->x, a->dy, a->dw, a->db, a->into)
static inline int fake_linear_dw(struct kernels *k, const struct linear *l, const void *x, const void *dy, void *dw,
                                 void *db, enum grad_into into)
{
    FAKE_QUEUE(linear_dw, *l, AT(x), AT(dy), AT(dw), AT(db), into);
}

FAKE_CALL(linear_dx, struct linear l; const void *dy; const void *w; void *dx; bool add;,
          &a->l, a->dy, a->w, a->dx, a->add)
static inline int fake_linear_dx(struct kernels *k, const struct linear *l, const void *dy, const void *w, void *dx,
                                 bool add)
{
    FAKE_QUEUE(linear_dx, *l, AT(dy), AT(w), AT(dx), add);
}

FAKE_CALL(rotary, struct attention t; int64_t rotary; const float *f; void *qkv; bool inverse;,
          &a->t, a->rotary, a->f, a->qkv, a->inverse)
static inline int fake_rotary(struct kernels *k, const struct attention *t, int64_t rotary, const float *f, void *qkv,
                              bool inverse)
{
    FAKE_QUEUE(rotary, *t, rotary, AT(f), AT(qkv), inverse);
}

FAKE_CALL(attention, struct attention t; const void *qkv; void *o; float *lse;, &a->t, a->qkv, a->o, a->lse)
static inline int fake_attention(struct kernels *k, const struct attention *t, const void *qkv, void *o, float *lse)
{
    FAKE_QUEUE(attention, *t, AT(qkv), AT(o), AT(lse));
}

FAKE_CALL(attention_back, struct attention t; const void *qkv; const void *o; const float *lse; const void *dout;
          float *delta; void *dqkv;, &a->t, a->qkv, a->o, a->lse, a->dout, a->delta, a->dqkv)
static inline int fake_attention_back(struct kernels *k, const struct attention *t, const void *qkv, const void *o,
                                      const float *lse, const void *dout, float *delta, void *dqkv)
{
    FAKE_QUEUE(attention_back, *t, AT(qkv), AT(o), AT(lse), AT(dout), AT(delta), AT(dqkv));
}

FAKE_CALL(activation, enum activation act; int64_t n; const void *gate; const void *up; void *product; enum dtype at;,
          a->act, a->n, a->gate, a->up, a->product, a->at)
static inline int fake_activation(struct kernels *k, enum activation act, int64_t n, const void *gate, const void *up,
                                  void *product, enum dtype at)
{
    FAKE_QUEUE(activation, act, n, AT(gate), AT(up), AT(product), at);
}

FAKE_CALL(activation_back, enum activation act; int64_t n; const void *gate; const void *up; void *du; void *dgate;
          enum dtype at;, a->act, a->n, a->gate, a->up, a->du, a->dgate, a->at)
static inline int fake_activation_back(struct kernels *k, enum activation act, int64_t n, const void *gate,
                                       const void *up, void *du, void *dgate, enum dtype at)
{
    FAKE_QUEUE(activation_back, act, n, AT(gate), AT(up), AT(du), AT(dgate), at);
}

FAKE_CALL(cross_entropy, int64_t n; int64_t vocab; void *logits; enum dtype at; const int32_t *labels; float *losses;
          double scale;, a->n, a->vocab, a->logits, a->at, a->labels, a->losses, a->scale)
static inline int fake_cross_entropy(struct kernels *k, int64_t n, int64_t vocab, void *logits, enum dtype at,
                                     const int32_t *labels, float *losses, double scale)
{
    FAKE_QUEUE(cross_entropy, n, vocab, AT(logits), at, AT(labels), AT(losses), scale);
}

FAKE_CALL(adamw, struct adamw s; int64_t n; float *p; float *m; float *v; const void *g; enum dtype gt; void *out;
          enum dtype ot;, &a->s, a->n, a->p, a->m, a->v, a->g, a->gt, a->out, a->ot)
static inline int fake_adamw(struct kernels *k, const struct adamw *s, int64_t n, float *p, float *m, float *v,
                             const void *g, enum dtype gt, void *out, enum dtype ot)
{
    FAKE_QUEUE(adamw, *s, n, AT(p), AT(m), AT(v), AT(g), gt, AT(out), ot);
}

FAKE_CALL(copy, int64_t n; void *dst; enum dtype dt; const void *src; enum dtype st; double scale; bool add;,
          a->n, a->dst, a->dt, a->src, a->st, a->scale, a->add)
static inline int fake_copy(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                            double scale, bool add)
{
    FAKE_QUEUE(copy, n, AT(dst), dt, AT(src), st, scale, add);
}

/* ---- results ---- */

static inline struct fake_result *fake_result(struct kernels *k, double *to, struct exact_sum *exact)
{
    struct fake_result *r = calloc(1, sizeof *r);

    r->to = to;
    r->exact_to = exact;
    *fake_of(k)->last = r;
    fake_of(k)->last = &r->next;
    return r;
}

FAKE_CALL(sum_squares, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->value)
static inline int fake_sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum)
{
    FAKE_QUEUE(sum_squares, n, AT(x), dt, fake_result(k, sum, NULL));
}

FAKE_CALL(sum, int64_t n; const float *x; struct fake_result *r;, a->n, a->x, &a->r->value)
static inline int fake_sum(struct kernels *k, int64_t n, const float *x, double *sum)
{
    FAKE_QUEUE(sum, n, AT(x), fake_result(k, sum, NULL));
}

FAKE_CALL(not_finite, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->value)
static inline int fake_not_finite(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *count)
{
    FAKE_QUEUE(not_finite, n, AT(x), dt, fake_result(k, count, NULL));
}

FAKE_CALL(exact_squares, int64_t n; const void *x; enum dtype dt; struct fake_result *r;,
          a->n, a->x, a->dt, &a->r->exact)
static inline int fake_exact_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, struct exact_sum *sum)
{
    FAKE_QUEUE(exact_squares, n, AT(x), dt, fake_result(k, NULL, sum));
}

static inline int fake_finish(struct kernels *k)
{
    struct fake_kernels *q = fake_of(k);

    fake_drain(&q->s->f->d, q->s, NULL);
    while (q->results) {
        struct fake_result *r = q->results;
        if (r->to)
            *r->to += r->value;
        for (int i = 0; r->exact_to && i < NORM_LIMBS; i++)
            r->exact_to->limb[i] += r->exact.limb[i];
        if (r->exact_to)
            exact_carry(r->exact_to);
        q->results = r->next;
        free(r);
    }
    q->last = &q->results;
    return 0;
}

/* ---- between host and device ---- */

FAKE_CALL(zero, int64_t bytes; void *dst;, a->bytes, a->dst)
static inline int fake_zero(struct kernels *k, int64_t bytes, void *dst)
{
    FAKE_QUEUE(zero, bytes, AT(dst));
}

static inline int fake_run_upload(void *arg, void *device)
{
    int64_t bytes;

    memcpy(&bytes, arg, sizeof bytes);
    memcpy(device, (char *)arg + sizeof bytes, (size_t)bytes);
    return 0;
}

static inline int fake_upload(struct kernels *k, int64_t bytes, void *dst, const void *host)
{
    char *arg = malloc(sizeof bytes + (size_t)bytes);

    memcpy(arg, &bytes, sizeof bytes);
    memcpy(arg + sizeof bytes, host, (size_t)bytes);
    return fake_queue(fake_of(k)->s, fake_run_upload, arg, AT(dst));
}

static inline int fake_download(struct kernels *k, int64_t bytes, void *host, const void *src)
{
    struct CUstream_st *s = fake_of(k)->s;

    return fake_fetch(&s->f->d, s, host, src, bytes) < 0 ? -1 : fake_drain(&s->f->d, s, NULL);
}

struct fake_load { struct kernels *k; int64_t n; void *dst; enum dtype dt; float host[]; };

static inline int fake_run_load(void *arg, void *device)
{
    struct fake_load *a = arg;

    (void)device;
    return kernels_ops(a->k)->load(a->k, a->n, a->dst, a->dt, a->host);
}

static inline int fake_load(struct kernels *k, int64_t n, void *dst, enum dtype dt, const float *host)
{
    struct fake_load *a = malloc(sizeof *a + (size_t)n * sizeof *host);

    *a = (struct fake_load){ fake_of(k)->inner, n, AT(dst), dt };
    memcpy(a->host, host, (size_t)n * sizeof *host);
    return fake_queue(fake_of(k)->s, fake_run_load, a, NULL);
}

static inline void fake_close_kernels(struct kernels *k)
{
    struct fake_kernels *q = fake_of(k);

    fake_drain(&q->s->f->d, q->s, NULL);
    for (struct fake_result *r = q->results, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    kernels_close(q->inner);
    free(q);
}

static const struct kernel_ops fake_kernel_ops = {
    .name = "fake",
    .embed = fake_embed, .embed_positions = fake_embed_positions, .dropout_back = fake_dropout_back,
    .embed_back = fake_embed_back, .embed_positions_back = fake_embed_positions_back,
    .norm = fake_norm, .norm_back = fake_norm_back,
    .linear = fake_linear, .linear_dw = fake_linear_dw, .linear_dx = fake_linear_dx,
    .rotary = fake_rotary, .attention = fake_attention, .attention_back = fake_attention_back,
    .activation = fake_activation, .activation_back = fake_activation_back, .cross_entropy = fake_cross_entropy,
    .adamw = fake_adamw, .copy = fake_copy, .sum_squares = fake_sum_squares,
    .sum = fake_sum, .not_finite = fake_not_finite, .exact_squares = fake_exact_squares, .finish = fake_finish,
    .zero = fake_zero, .upload = fake_upload, .download = fake_download, .load = fake_load,
};

static inline struct kernels *fake_kernels(struct device *d, enum stream s, int threads, void *workspace,
                                           int64_t bytes, bool reference)
{
    struct kernels *k = calloc(1, sizeof *k);
    struct fake_kernels *q = calloc(1, sizeof *q);

    q->s = fake_stream(d, s);
    q->inner = kernels_open(threads, fake_real(d->self, workspace), bytes, reference);
    q->last = &q->results;
    k->ops = fake_kernel_ops;
    k->self = q;
    k->close = fake_close_kernels;
    return k;
}

/* ---- the device ---- */

static inline void fake_close(struct device *d)
{
    struct fake *f = d->self;

    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->change);
    pthread_mutex_unlock(&f->lock);
    for (int s = 0; s < NSTREAM; s++)
        pthread_join(f->stream[s].thread, NULL);
    if (f->used)
        fake_bug("memory is still mapped");
    free(f);
}

static const struct device_ops fake_ops = {
    .kind = "fake", .map = fake_map_memory, .unmap = fake_unmap, .pin = fake_pin, .unpin = fake_unpin,
    .enter = fake_enter, .mark = fake_mark, .after = fake_after, .wait = fake_wait, .anchor = fake_anchor,
    .begin = fake_begin, .times = fake_times, .stream = fake_stream, .fetch = fake_fetch, .store = fake_store,
    .drain = fake_drain, .used = fake_used, .kernels = fake_kernels, .close = fake_close,
};

static inline struct device *fake_open(unsigned seed)
{
    struct fake *f = calloc(1, sizeof *f);

    f->d = (struct device){ .ops = &fake_ops, .async = true, .name = "a fake device", .id = "fake", .self = f };
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->change, NULL);
    for (int s = 0; s < NSTREAM; s++) {
        f->stream[s] = (struct CUstream_st){ .f = f, .dawdles = seed * NSTREAM + (unsigned)s };
        f->stream[s].last = &f->stream[s].first;
        if (pthread_create(&f->stream[s].thread, NULL, fake_work, &f->stream[s]) != 0)
            fake_bug("no thread");
    }
    return &f->d;
}

#undef AT
#endif
