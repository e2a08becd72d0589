/* watchdog.c -- see watchdog.h.  One thread a rank, awake ten times a second.  All messages are
 * struct note, sent without waiting: the other may be stopped.  At most one question to a rank is
 * under way.  Should MPI itself not come back (a rank was stopped while it held what is shared), an
 * alarm that each turn sets anew ends the process. */
#include "exec/run/watchdog.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/output.h"

enum kind { NOTE_ASK, NOTE_ANSWER, NOTE_FAILED, NOTE_BYE };

/* Where a rank is, or why it failed. */
struct note { int kind; double idle; char host[128]; char text[448]; };

/* A rank on this machine: where the kernel says how its process is, and what to say if that was stopped. */
struct local { int rank; char stat[40], why[400]; };

/* owed: is to be sent once what was sent before has left; -1 nothing. */
struct peer { bool asked; double heard; struct note last, out; int owed; MPI_Request sent; };

struct watchdog {
    MPI_Comm comm;
    int      rank, world;
    double   timeout;
    pthread_t thread;
    struct sigaction before[2];

    pthread_mutex_t lock;               /* what other threads set */
    pthread_cond_t  change;
    struct lanes  *lanes;
    bool           closing, resting, failed;
    char           why[448];
    watchdog_told *told;
    void          *arg;

    /* The thread's own. */
    struct peer *peer;                  /* of rank 0: all; of others: rank 0 alone */
    double  now, since, asked, failed_at, closing_at;
    int64_t progress;
    bool    bye;
    struct note here;                   /* this rank, now */
    struct local *local; int nlocal;    /* the other ranks of this machine */
};

static volatile sig_atomic_t ended_by;

static void on_signal(int sig) { ended_by = sig; }

/* What the alarm says; a handler may not print numbers. */
static char late[160];
static volatile sig_atomic_t chance_taken;
static const struct watchdog *volatile alarmed;

/* One rank after the other, so that one speaks. */
static unsigned later(int rank) { return 2 * (unsigned)(rank < 60 ? rank : 60); }

/* ---- the other ranks of this machine ---- */

/* Only what a signal handler may call.  "PID (NAME) T ...", where a name may have any character. */
static bool is_stopped(const struct local *l)
{
    char text[256];
    int fd = open(l->stat, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    while (n > 2 && text[n - 1] != ')')
        n--;
    return n > 2 && (text[n + 1] == 'T' || text[n + 1] == 't');
}

/* Others may be silent as well, since they wait for it within MPI: the one that is stopped is at fault.  NULL: none here. */
static const struct local *stopped_here(const struct watchdog *w)
{
    for (int i = 0; w && i < w->nlocal; i++)
        if (is_stopped(&w->local[i]))
            return &w->local[i];
    return NULL;
}

static int know_locals(struct watchdog *w)
{
    /* Containers of one host may number their processes apart. */
    struct { char host[128], numbers[40]; int pid; } own = { .pid = (int)getpid() }, *all = calloc((size_t)w->world, sizeof *all);

    memcpy(own.host, w->here.host, sizeof own.host);
    if (readlink("/proc/self/ns/pid", own.numbers, sizeof own.numbers - 1) < 0)
        own.numbers[0] = '\0';
    w->local = calloc((size_t)w->world, sizeof *w->local);
    if (!all || !w->local || MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, all, (int)sizeof own, MPI_BYTE, w->comm) != MPI_SUCCESS) {
        free(all);
        return fail("cannot start the watchdog: a hang would go undetected");
    }
    for (int r = 0; r < w->world; r++) {
        struct local *l = &w->local[w->nlocal];
        if (r == w->rank || strcmp(all[r].host, own.host) || strcmp(all[r].numbers, own.numbers))
            continue;
        *l = (struct local){ .rank = r };
        snprintf(l->stat, sizeof l->stat, "/proc/%d/stat", all[r].pid);
        snprintf(l->why, sizeof l->why, "dpx: rank %d on %s was stopped; for %.0f s (DPX_TIMEOUT) the others have waited for it\n", r,
                 own.host, w->timeout);
        w->nlocal++;
    }
    free(all);
    return 0;
}

/* ---- this rank ---- */

/* "all_reduce (world stream, entry 12); backward (compute stream, entry 9)": what each stream is at. */
static void describe(struct lanes *l, char *to, size_t size)
{
    size_t used = 0;

    snprintf(to, size, "between steps");
    for (int s = 0; l && s < NSTREAM && used + 80 < size; s++) {
        int32_t position = -1;
        const char *what = lanes_at(l, (enum stream)s, &position);
        if (what)
            used += (size_t)snprintf(to + used, size - used, "%s%.40s (%s stream, entry %d)", used ? "; " : "", what,
                                     stream_name((enum stream)s), position);
    }
}

/* With the lock held, so that the lanes stay open meanwhile. */
static void look(struct watchdog *w)
{
    int64_t progress = w->lanes ? lanes_progress(w->lanes) : 0;

    if (progress != w->progress || w->resting) {
        w->progress = progress;
        w->since = w->now;
    }
    w->here.idle = w->now - w->since;
    describe(w->lanes, w->here.text, sizeof w->here.text);
}

/* ---- the end ---- */

static void tell(struct watchdog *w, const char *why, bool by_signal)
{
    watchdog_told *told;
    void *arg;

    pthread_mutex_lock(&w->lock);
    told = w->told;
    arg = w->arg;
    pthread_mutex_unlock(&w->lock);
    if (told)
        told(arg, why, by_signal);
}

static _Noreturn void end_job(struct watchdog *w, const char *why)
{
    fail("%s", why);
    fflush(NULL);
    tell(w, why, false);
    MPI_Abort(w->comm, 1);
    _exit(1);
}

static _Noreturn void end_by_signal(struct watchdog *w)
{
    char why[128];
    int sig = ended_by;

    /* mpirun makes SIGTERM of what it is asked to end by, and of the death of another rank. */
    snprintf(why, sizeof why, sig == SIGINT ? "interrupted by Ctrl-C (signal %d, %s)"
             : sig == SIGHUP ? "its terminal or connection was closed (signal %d, %s)"
             : sig == SIGTERM ? "asked to end (signal %d, %s): by Ctrl-C, kill, a batch system, or since another rank died"
             : "ended by signal %d (%s)", sig, strsignal(sig));
    tell(w, why, true);
    output_abandon_all();
    signal(sig, SIG_DFL);
    raise(sig);
    _exit(1);
}

/* ---- messages ---- */

/* Whether everything has left. */
static bool send_owed(struct watchdog *w)
{
    bool all = true;

    for (int r = 0; r < w->world; r++) {
        struct peer *p = &w->peer[r];
        int left = 1;
        if (p->sent != MPI_REQUEST_NULL)
            MPI_Test(&p->sent, &left, MPI_STATUS_IGNORE);
        if (left && p->owed >= 0) {
            p->out = w->here;
            p->out.kind = p->owed;
            p->owed = -1;
            MPI_Isend(&p->out, (int)sizeof p->out, MPI_BYTE, r, 0, w->comm, &p->sent);
            left = 0;
        }
        all &= left;
    }
    return all;
}

static void send_note(struct watchdog *w, int to, enum kind kind)
{
    w->peer[to].owed = (int)kind;
    send_owed(w);
}

static void hear(struct watchdog *w, int from, const struct note *n)
{
    char why[600];

    w->peer[from].heard = w->now;
    if (n->kind == NOTE_ASK)
        send_note(w, 0, NOTE_ANSWER);
    else if (n->kind == NOTE_BYE)
        w->bye = true;
    else if (n->kind == NOTE_ANSWER) {
        w->peer[from].asked = false;
        w->peer[from].last = *n;
    } else {
        snprintf(why, sizeof why, "rank %d on %s: %s", from, n->host, n->text);
        end_job(w, why);
    }
}

static void receive(struct watchdog *w)
{
    MPI_Status st;
    struct note n;
    int there = 1;

    while (MPI_Iprobe(MPI_ANY_SOURCE, 0, w->comm, &there, &st) == MPI_SUCCESS && there) {
        MPI_Recv(&n, (int)sizeof n, MPI_BYTE, st.MPI_SOURCE, 0, w->comm, MPI_STATUS_IGNORE);
        hear(w, st.MPI_SOURCE, &n);
    }
}

/* ---- rank 0 ---- */

/* Eight times in the time that a rank is given, so that one lost moment does not matter. */
static void ask(struct watchdog *w)
{
    if (w->now - w->asked < (w->timeout < 80 ? w->timeout / 8 : 10))
        return;
    w->asked = w->now;
    for (int r = 1; r < w->world; r++)
        if (!w->peer[r].asked) {
            send_note(w, r, NOTE_ASK);
            w->peer[r].asked = true;
        }
}

static void judge_silent(struct watchdog *w)
{
    char why[1200];

    for (int r = 1; r < w->world; r++) {
        if (w->now - w->peer[r].heard <= w->timeout)
            continue;
        const struct local *stopped = stopped_here(w);
        r = stopped ? stopped->rank : r;
        const struct peer *p = &w->peer[r];
        snprintf(why, sizeof why, "rank %d%s%s has not answered for %.0f s (DPX_TIMEOUT): was it stopped? It was last "
                 "seen at %s; rank 0 is at %s", r, p->last.host[0] ? " on " : "", p->last.host, w->timeout,
                 p->last.text[0] ? p->last.text : "its start", w->here.text);
        end_job(w, why);
    }
}

static void judge_stuck(struct watchdog *w)
{
    char why[2048];
    int used;

    for (int r = 0; r < w->world; r++)
        if ((r ? w->peer[r].last.idle : w->here.idle) < w->timeout)
            return;
    used = snprintf(why, sizeof why, "nothing has finished for %.0f s (DPX_TIMEOUT): rank 0 is at %s", w->timeout,
                    w->here.text);
    for (int r = 1; r < w->world && r < 4; r++)
        used += snprintf(why + used, sizeof why - (size_t)used, "; rank %d at %s", r, w->peer[r].last.text);
    end_job(w, why);
}

/* ---- the others ---- */

/* One after the other, so that one speaks; after rank 0, which may be well and judge those whom it does not hear. */
static void judge_first(struct watchdog *w)
{
    char why[1200];

    if (w->now - w->peer[0].heard <= w->timeout + 3 * w->rank)
        return;
    const struct local *stopped = stopped_here(w);
    if (stopped && stopped->rank > 0) {
        snprintf(why, sizeof why, "rank %d on %s is stopped: rank 0 waits for it and has not asked for %.0f s (DPX_TIMEOUT); "
                 "rank %d is at %s",
                 stopped->rank, w->here.host, w->timeout, w->rank, w->here.text);
        end_job(w, why);
    }
    snprintf(why, sizeof why, "rank 0 has not asked for %.0f s (DPX_TIMEOUT): was it stopped? Rank %d is at %s",
             w->timeout, w->rank, w->here.text);
    end_job(w, why);
}

/* Rank 0 has closed its watchdog and no longer judges this rank, which judges its own progress. */
static void judge_itself(struct watchdog *w)
{
    char why[600];

    if (w->here.idle < w->timeout + 3 * (w->rank - 1))
        return;
    snprintf(why, sizeof why, "rank 0 has ended its run, and nothing has finished on rank %d for %.0f s (DPX_TIMEOUT): "
             "it is at %s; were all ranks given the same options?", w->rank, w->timeout, w->here.text);
    end_job(w, why);
}

/* Rank 0 is to say it; should it not, this one does. */
static void pass_failure(struct watchdog *w, const char *reason)
{
    char why[600];

    if (w->failed_at > 0 && w->now - w->failed_at < 3)
        return;
    if (w->rank == 0 || w->failed_at > 0) {
        snprintf(why, sizeof why, "rank %d on %s: %s", w->rank, w->here.host, reason);
        end_job(w, why);
    }
    w->failed_at = w->now;
    snprintf(w->here.text, sizeof w->here.text, "%s", reason);
    send_note(w, 0, NOTE_FAILED);
}

/* ---- the thread ---- */

/* This process itself was stopped (Ctrl-Z) and goes on: what it has not heard meanwhile says nothing. */
static void forgive(struct watchdog *w, double gap)
{
    if (gap < 2)
        return;
    w->since = w->now;
    for (int r = 0; r < w->world; r++)
        w->peer[r].heard = w->now;
}

/* Rank 0 has its answers, then tells the others that nothing more will be asked. */
static bool may_close(struct watchdog *w)
{
    bool waiting = false;

    if (w->closing_at == 0)
        w->closing_at = w->now;
    for (int r = 1; r < w->world && w->rank == 0; r++)
        waiting |= w->peer[r].asked;
    if (w->now - w->closing_at < 2 && (w->rank ? !w->bye : waiting))
        return false;
    for (int r = 1; r < w->world && w->rank == 0 && !w->bye; r++)
        w->peer[r].owed = NOTE_BYE;
    w->bye = true;
    return send_owed(w) || w->now - w->closing_at > 4;
}

/* One look around; whether it was the last. */
static bool turn(struct watchdog *w)
{
    bool closing, failed;
    char why[sizeof w->why];
    double last = w->now;

    w->now = lanes_now();
    chance_taken = 0;
    alarm((unsigned)w->timeout + 5 + later(w->rank));
    pthread_mutex_lock(&w->lock);
    look(w);
    closing = w->closing;
    failed = w->failed;
    memcpy(why, w->why, sizeof why);
    pthread_mutex_unlock(&w->lock);
    forgive(w, w->now - last);
    if (ended_by && w->rank == 0)
        end_by_signal(w);
    receive(w);
    send_owed(w);
    if (closing)
        return may_close(w);
    if (failed)
        pass_failure(w, why);
    else if (w->rank == 0) {
        ask(w);
        judge_silent(w);
        judge_stuck(w);
    } else if (w->bye) {
        judge_itself(w);
    } else {
        judge_first(w);
    }
    return false;
}

/* A tenth of a second, or until another thread has set something. */
static void sleep_until_change(struct watchdog *w)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100 * 1000 * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    if (!w->closing && !w->failed)
        pthread_cond_timedwait(&w->change, &w->lock, &until);
    pthread_mutex_unlock(&w->lock);
}

static void *watch(void *arg)
{
    struct watchdog *w = arg;

    while (!turn(w)) {
        sleep_until_change(w);
        if (w->closing_at > 0 || w->failed_at > 0)
            nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
    }
    return NULL;
}

/* ---- opening, closing ---- */

static double timeout(void)
{
    const char *text = getenv("DPX_TIMEOUT");
    double t = text ? strtod(text, NULL) : 120;

    return t > 0 ? t : 120;
}

static const int ending[] = { SIGTERM, SIGINT };

static void take_signals(struct watchdog *w)
{
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    sigemptyset(&a.sa_mask);
    for (int i = 0; i < 2 && w->rank == 0; i++) {
        sigaction(ending[i], NULL, &w->before[i]);
        if (w->before[i].sa_handler != SIG_IGN)
            sigaction(ending[i], &a, NULL);
    }
}

/* This process itself may have been stopped until now: it gets a second chance. */
static void on_alarm(int sig)
{
    ssize_t n = 0;

    (void)sig;
    if (chance_taken++) {
        const struct local *stopped = stopped_here(alarmed);
        const char *why = stopped ? stopped->why : late;
        n = write(2, why, strlen(why));
        _exit(1);
    }
    (void)n;
    alarm(2);
}

void watchdog_start(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    int rank = text ? atoi(text) : 0;
    struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

    snprintf(late, sizeof late, "dpx: rank %d: MPI has not come back for %.0f s (DPX_TIMEOUT): was another rank "
             "stopped, or is a machine not reached?\n", rank, timeout());
    sigemptyset(&a.sa_mask);
    sigaction(SIGALRM, &a, NULL);
    alarm((unsigned)timeout() + 8 + later(rank));
}

static int begin(struct watchdog *w, MPI_Comm control, const char *stage)
{
    size_t named;

    if (MPI_Comm_dup(control, &w->comm) != MPI_SUCCESS)
        return fail("MPI_Comm_dup failed");
    MPI_Comm_set_name(w->comm, "dpx watchdog");
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(w->comm, &w->rank);
    MPI_Comm_size(w->comm, &w->world);
    w->peer = calloc((size_t)w->world, sizeof *w->peer);
    if (!w->peer)
        return fail("out of memory for the watchdog");
    gethostname(w->here.host, sizeof w->here.host - 1);
    if (know_locals(w) < 0)
        return -1;
    named = strlen(w->here.host);
    if (stage)
        snprintf(w->here.host + named, sizeof w->here.host - named, " (%s)", stage);
    w->now = w->since = w->asked = lanes_now();
    for (int r = 0; r < w->world; r++)
        w->peer[r] = (struct peer){ .heard = w->now, .owed = -1, .sent = MPI_REQUEST_NULL };
    if (pthread_create(&w->thread, NULL, watch, w) != 0)
        return fail("cannot start the watchdog: a hang would go undetected");
    alarmed = w;
    take_signals(w);
    return 0;
}

static void release(struct watchdog *w)
{
    if (w->comm != MPI_COMM_NULL)
        MPI_Comm_free(&w->comm);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w->peer);
    free(w->local);
    free(w);
}

struct watchdog *watchdog_open(MPI_Comm control, const char *stage)
{
    struct watchdog *w = calloc(1, sizeof *w);
    pthread_condattr_t monotonic;

    if (!w) {
        fail("out of memory for the watchdog");
        return NULL;
    }
    *w = (struct watchdog){ .comm = MPI_COMM_NULL, .resting = true, .timeout = timeout() };
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (begin(w, control, stage) == 0)
        return w;
    release(w);
    return NULL;
}

void watchdog_close(struct watchdog *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    alarm(0);
    alarmed = NULL;
    for (int i = 0; i < 2 && w->rank == 0; i++)
        sigaction(ending[i], &w->before[i], NULL);
    release(w);
}

void watchdog_follow(struct watchdog *w, struct lanes *lanes)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->lanes = lanes;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_rest(struct watchdog *w, bool resting)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->resting = resting;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_tell(struct watchdog *w, watchdog_told *f, void *arg)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->told = f;
    w->arg = arg;
    pthread_mutex_unlock(&w->lock);
}

_Noreturn void watchdog_failed(struct watchdog *w, const char *why)
{
    pthread_mutex_lock(&w->lock);
    snprintf(w->why, sizeof w->why, "%s", why);
    w->failed = true;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
    for (;;)
        pause();
}
