/* progress.c -- see progress.h. */
#include "sim/plan/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"

#define FIRST .8                /* seconds to the first line on a terminal, between two, and between two in a file */
#define AGAIN .25
#define IN_FILE 10
#define SOON 5                  /* once a fifth is done the rest can be told from it */
#define LATE 2                  /* but not while one takes more than twice the mean of those that are done */

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

bool progress_stopped(void) { return stopped; }

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);          /* what pthread_cond_timedwait() goes by */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double progress_left_s(int64_t done, int64_t of, double until_last_s, double spent_s)
{
    if (done <= 0 || done * SOON < of || (spent_s - until_last_s) * (double)done > LATE * until_last_s)
        return -1;
    double left = until_last_s / (double)done * (double)(of - done) - (spent_s - until_last_s);
    return left > 0 ? left : 0;
}

static void say(struct progress *p)
{
    int64_t done = p->done, of = p->of;
    double spent = now() - p->start;
    char line[160];

    if (done != p->seen)
        p->seen = done, p->seen_s = spent;
    double left = progress_left_s(done, of, p->seen_s, spent);

    if (of > 0 && done > 0 && done < of && left < 0)
        snprintf(line, sizeof line, "%" PRId64 " of %" PRId64 " %s, %.0f s", done, of, p->what, spent);
    else if (of > 0 && done > 0 && done < of)
        snprintf(line, sizeof line, "%" PRId64 " of %" PRId64 " %s, %.0f s, about %.0f s to go", done, of, p->what, spent, left);
    else if (done > 0)
        snprintf(line, sizeof line, "%" PRId64 " %s, %.0f s", done, p->what, spent);
    else
        snprintf(line, sizeof line, p->counts ? "no %s yet, %.0f s" : "%s, %.0f s", p->what, spent);
    fprintf(stderr, p->terminal ? "\r%-70.70s" : "%s\n", line);
    p->shown = true;
}

static void *tick(void *arg)
{
    struct progress *p = arg;
    double next = p->start + (p->terminal ? FIRST : IN_FILE);

    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        struct timespec until = { (time_t)next, (long)(1e9 * (next - (double)(time_t)next)) };
        if (pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0 || p->over)
            continue;
        say(p);
        next += p->terminal ? AGAIN : IN_FILE;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The one whose line messages would spoil. */
static struct progress *watched;

static void clear_watched(void)
{
    if (watched)
        progress_clear(watched);
}

void progress_watch(struct progress *p, const char *what)
{
    *p = (struct progress){ .what = what, .start = now(), .terminal = isatty(STDERR_FILENO) };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->ticks = pthread_create(&p->ticker, NULL, tick, p) == 0;
    watched = p;
    fail_clears(clear_watched);
}

void progress_start(struct progress *p, int64_t of, const char *what)
{
    struct sigaction a = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };

    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    progress_watch(p, what);
    pthread_mutex_lock(&p->lock);
    p->of = of;
    p->counts = true;
    pthread_mutex_unlock(&p->lock);
}

void progress_at(struct progress *p, int64_t done, int64_t of)
{
    p->of = of;
    p->done = done;
}

void progress_clear(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    if (p->shown && p->terminal)
        fprintf(stderr, "\r%70s\r", "");
    p->shown = false;
    pthread_mutex_unlock(&p->lock);
}

void progress_end(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->over = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->ticks)
        pthread_join(p->ticker, NULL);
    progress_clear(p);
    watched = NULL;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}
