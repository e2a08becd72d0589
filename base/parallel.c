/* parallel.c -- threads that take pieces of work by their number, those of pieces too; the first failure, by number, is reported. */
#include "base/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/notes.h"

enum { MOST_THREADS = 64 };

/* One parallel_each(). */
struct pieces {
    int64_t n;
    int (*f)(void *of, int64_t i);
    void *of;
    atomic_llong next;
    atomic_bool failed;
    int64_t first;                  /* of those that failed; and what it said */
    char why[1024];
    int most, working;              /* threads that may work at it, and that do */
    json_t *notes;                  /* of those that helped, for the thread whose pieces these are; NULL: none */
    const struct pieces *in;        /* one of whose pieces has these pieces; NULL: nobody's */
    struct pieces *newer;           /* of those that others may help with */
};

/* The threads of a parallel_each() that is nobody's piece: until it ends they help with whatever its pieces share out. */
struct team {
    pthread_mutex_t lock;           /* of all below, and of what pieces say of their threads and failures */
    pthread_cond_t  change;
    struct pieces  *oldest;
    int  most, started, idle;       /* threads: the caller's is among `most` alone */
    bool over;
    pthread_t thread[MOST_THREADS];
};

static _Thread_local struct team *team;
static _Thread_local const struct pieces *at;           /* whose piece this thread works at */

static void note(struct pieces *p, int64_t i, const char why[sizeof p->why])
{
    pthread_mutex_lock(&team->lock);
    if (!p->failed || i < p->first) {
        p->first = i;
        memcpy(p->why, why, sizeof p->why);
    }
    p->failed = true;
    pthread_mutex_unlock(&team->lock);
}

static void work(struct pieces *p)
{
    const struct pieces *was = at;
    char why[sizeof p->why] = "";

    struct fail_sink before = fail_divert(why, sizeof why);
    at = p;
    for (int64_t i; !p->failed && (i = atomic_fetch_add(&p->next, 1)) < p->n; )
        if (p->f(p->of, i) < 0)
            note(p, i, why);
    at = was;
    fail_restore(before);
}

/* ---- with the team's lock ---- */

static bool is_in(const struct pieces *p, const struct pieces *of)
{
    while (p && p != of)
        p = p->in;
    return p != NULL;
}

/* The oldest that has a piece left, of those that pieces of `of` have; NULL: there is none. */
static struct pieces *that_may_be_helped(const struct team *t, const struct pieces *of)
{
    struct pieces *p = t->oldest;

    while (p && (p->next >= p->n || p->failed || p->working >= p->most || (of && !is_in(p->in, of))))
        p = p->newer;
    return p;
}

static void hand_over(struct pieces *p, json_t *notes)
{
    if (json_array_size(notes) > 0 && p->notes)
        json_array_extend(p->notes, notes);
    else if (json_array_size(notes) > 0)
        p->notes = json_incref(notes);
    json_decref(notes);
}

static void help_with(struct team *t, struct pieces *p)
{
    p->working++;
    pthread_mutex_unlock(&t->lock);
    json_t *notes = json_array(), *before = notes_divert(notes);
    work(p);
    notes_divert(before);
    pthread_mutex_lock(&t->lock);
    hand_over(p, notes);
    if (--p->working == 0)
        pthread_cond_broadcast(&t->change);
}

static void rest(struct team *t)
{
    t->idle++;
    pthread_cond_wait(&t->change, &t->lock);
    t->idle--;
}

static void *helper(void *arg)
{
    struct team *t = team = arg;

    pthread_mutex_lock(&t->lock);
    while (!t->over) {
        struct pieces *p = that_may_be_helped(t, NULL);
        if (p)
            help_with(t, p);
        else
            rest(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Where a thread cannot be had, the others do its pieces. */
static void ask_for(struct team *t, int helpers)
{
    for (int more = helpers - t->idle; more > 0 && t->started < t->most - 1; more--, t->started++)
        if (pthread_create(&t->thread[t->started], NULL, helper, t) != 0)
            break;
    pthread_cond_broadcast(&t->change);
}

static void leave(struct team *t, struct pieces *p)
{
    struct pieces **at_it = &t->oldest;

    while (*at_it != p)
        at_it = &(*at_it)->newer;
    *at_it = p->newer;
}

/* ---- */

static int least(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

static int usual_threads(int asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return least(asked > 0 ? asked : cores > 0 ? cores : 1, MOST_THREADS);
}

int parallel_threads(void)
{
    for (const struct pieces *p = at; p; p = p->in)
        if (p->n > 1)
            return 1;
    return team ? team->most : usual_threads(0);
}

int parallel_idle(void)
{
    struct team *t = team;

    if (!t)
        return usual_threads(0) - 1;
    pthread_mutex_lock(&t->lock);
    int idle = t->idle + t->most - 1 - t->started;
    pthread_mutex_unlock(&t->lock);
    return idle;
}

void parallel_wait(bool (*over)(void *of), void *of)
{
    struct team *t = team;

    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    while (!over(of)) {
        struct pieces *part = that_may_be_helped(t, at);
        if (part)
            help_with(t, part);
        else
            rest(t);
    }
    pthread_mutex_unlock(&t->lock);
}

void parallel_changed(void)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->change);
    pthread_mutex_unlock(&team->lock);
}

/* This thread works at the pieces; then, while others are at the last ones, at what these share out. */
static void share_out(struct team *t, struct pieces *p)
{
    struct pieces **last = &t->oldest;

    pthread_mutex_lock(&t->lock);
    while (*last)
        last = &(*last)->newer;
    *last = p;
    p->working = 1;
    ask_for(t, least(p->n, p->most) - 1);
    pthread_mutex_unlock(&t->lock);
    work(p);
    pthread_mutex_lock(&t->lock);
    p->working--;
    while (p->working > 0) {
        struct pieces *part = that_may_be_helped(t, p);
        if (part)
            help_with(t, part);
        else
            rest(t);
    }
    leave(t, p);
    pthread_mutex_unlock(&t->lock);
}

static void do_all(struct team *t, struct pieces *p, int asked)
{
    p->most = asked > 0 ? least(asked, t->most) : t->most;
    if (p->n > 1 && p->most > 1)
        share_out(t, p);
    else
        work(p);
}

static void with_new_team(struct pieces *p, int asked)
{
    struct team t = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER, .most = usual_threads(asked) };

    team = &t;
    do_all(&t, p, asked);
    team = NULL;
    pthread_mutex_lock(&t.lock);
    t.over = true;
    pthread_cond_broadcast(&t.change);
    pthread_mutex_unlock(&t.lock);
    for (int i = 0; i < t.started; i++)
        pthread_join(t.thread[i], NULL);
    pthread_cond_destroy(&t.change);
    pthread_mutex_destroy(&t.lock);
}

/* Threads have notes of their own: what helpers had to say is said by the caller's. */
static void say_notes(struct pieces *p)
{
    const json_t *note;
    size_t i;

    json_array_foreach(p->notes, i, note)
        notes_say_once("%s", json_string_value(note));
    json_decref(p->notes);
}

int parallel_each(int64_t n, int threads, int (*f)(void *of, int64_t i), void *of)
{
    struct pieces p = { .n = n, .f = f, .of = of, .in = at };

    if (team)
        do_all(team, &p, threads);
    else
        with_new_team(&p, threads);
    say_notes(&p);
    return p.failed ? fail("%s", p.why) : 0;
}
