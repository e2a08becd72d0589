/* parallel.c -- threads that take pieces of work by their number; the first failure, by number, is reported. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

enum { MOST_THREADS = 64 };

struct pieces {
    int64_t n;
    int (*f)(void *of, int64_t i);
    void *of;
    atomic_llong next;
    atomic_bool failed;
    pthread_mutex_t lock;
    int64_t first;                  /* of those that failed; and what it said */
    char why[1024];
};

static _Thread_local bool inside;

static void note(struct pieces *p, int64_t i, const char why[sizeof p->why])
{
    pthread_mutex_lock(&p->lock);
    if (!p->failed || i < p->first) {
        p->first = i;
        memcpy(p->why, why, sizeof p->why);
    }
    p->failed = true;
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    struct pieces *p = arg;
    char why[sizeof p->why] = "";
    bool was = inside;

    struct fail_sink before = fail_divert(why, sizeof why);
    inside = true;
    for (int64_t i; !p->failed && (i = atomic_fetch_add(&p->next, 1)) < p->n; )
        if (p->f(p->of, i) < 0)
            note(p, i, why);
    inside = was;
    fail_restore(before);
    return NULL;
}

static int threads_for(int64_t n, int asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t most = inside ? 1 : asked > 0 ? asked : cores > 0 ? cores : 1;

    most = most > MOST_THREADS ? MOST_THREADS : most;
    return (int)(n < most ? n : most);
}

int parallel_threads(void) { return threads_for(MOST_THREADS, 0); }

int parallel_each(int64_t n, int threads, int (*f)(void *of, int64_t i), void *of)
{
    struct pieces p = { .n = n, .f = f, .of = of, .lock = PTHREAD_MUTEX_INITIALIZER };
    int most = threads_for(n, threads), started = 0;
    pthread_t thread[MOST_THREADS];

    while (started < most - 1 && pthread_create(&thread[started], NULL, work, &p) == 0)
        started++;
    work(&p);                       /* where a thread cannot be had, the others do its pieces */
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&p.lock);
    return p.failed ? fail("%s", p.why) : 0;
}
