/* block_io_threads.c -- requests by threads, as many as may be under way, each in one pread or pwrite. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/device/block_io_internal.h"

struct list { struct block_request *first, *last; };

struct threads {
    pthread_mutex_t lock;
    pthread_cond_t  given, ended;
    struct list     todo, done;
    bool            closing;
    int             n;
    pthread_t       thread[];
};

static void append(struct list *l, struct block_request *r)
{
    r->next = NULL;
    if (l->first)
        l->last->next = r;
    else
        l->first = r;
    l->last = r;
}

static struct block_request *remove_first(struct list *l)
{
    struct block_request *r = l->first;

    l->first = r->next;
    return r;
}

static int64_t move(const struct block_request *r)
{
    ssize_t n;

    do
        n = r->write ? pwrite(r->fd, r->p, (size_t)r->bytes, (off_t)r->at) : pread(r->fd, r->p, (size_t)r->bytes, (off_t)r->at);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static void *work(void *arg)
{
    struct threads *t = arg;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->todo.first && !t->closing)
            pthread_cond_wait(&t->given, &t->lock);
        if (!t->todo.first)
            break;
        struct block_request *r = remove_first(&t->todo);
        pthread_mutex_unlock(&t->lock);
        int64_t result = move(r);
        pthread_mutex_lock(&t->lock);
        r->result = result;
        append(&t->done, r);
        pthread_cond_signal(&t->ended);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int threads_put(void *self, struct block_request *r)
{
    struct threads *t = self;

    pthread_mutex_lock(&t->lock);
    append(&t->todo, r);
    pthread_cond_signal(&t->given);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

static struct block_request *threads_take(void *self)
{
    struct threads *t = self;

    pthread_mutex_lock(&t->lock);
    while (!t->done.first)
        pthread_cond_wait(&t->ended, &t->lock);
    struct block_request *r = remove_first(&t->done);
    pthread_mutex_unlock(&t->lock);
    return r;
}

static void threads_close(void *self)
{
    struct threads *t = self;

    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_broadcast(&t->given);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n; i++)
        pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->given);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void *block_io_threads_open(int depth, const struct block_io_ops **ops, const char **why)
{
    static const struct block_io_ops threads = { "threads", threads_put, NULL, threads_take, threads_close };
    struct threads *t = calloc(1, sizeof *t + (size_t)depth * sizeof *t->thread);

    *why = "out of memory";
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->given, NULL);
    pthread_cond_init(&t->ended, NULL);
    while (t->n < depth && pthread_create(&t->thread[t->n], NULL, work, t) == 0)
        t->n++;
    if (t->n == depth) {
        *ops = &threads;
        return t;
    }
    *why = "cannot start its threads";
    threads_close(t);
    return NULL;
}
