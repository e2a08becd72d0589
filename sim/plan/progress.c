/* progress.c -- see progress.h. */
#include "sim/plan/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

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

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_start(struct progress *p, int64_t of, const char *what)
{
    struct sigaction a = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };

    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    *p = (struct progress){ .of = of, .what = what, .start = now(), .terminal = isatty(STDERR_FILENO) };
    p->next = p->start + 1;
}

void progress_at(struct progress *p, int64_t done)
{
    double t = now(), spent = t - p->start;

    if (t < p->next || done <= 0 || done >= p->of)
        return;
    fprintf(stderr, "%s%" PRId64 " of %" PRId64 " %s, %.0f s, about %.0f s to go%s", p->terminal ? "\r" : "", done,
            p->of, p->what, spent, spent / (double)done * (double)(p->of - done), p->terminal ? "    " : "\n");
    p->shown = true;
    p->next = p->terminal ? t + .25 : p->start + 2 * spent;
}

void progress_end(struct progress *p)
{
    if (p->shown && p->terminal)
        fputs("\r                                                            \r", stderr);
}
