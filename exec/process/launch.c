/* launch.c -- mpirun as a child: found, started, read from, and its exit status made ours.
 *
 * mpirun gets a process group of its own and signals from us alone: from a terminal or from
 * timeout(1) it would get each twice, and take the second for impatience.  Ranks are ended
 * by mpirun: SIGTERM, a second later SIGKILL. */
#define _GNU_SOURCE             /* environ */
#include "exec/process/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/input.h"
#include "exec/device/host_info.h"
#include "exec/process/job_files.h"
#include "exec/process/mpirun_words.h"

/* Set for ranks by launch_exec(): columns of the terminal that it saw. */
#define TERMINAL "DPX_TERMINAL"

static int number_in_env(const char *name)
{
    const char *v = getenv(name);

    return v ? atoi(v) : 0;
}

/* Several tasks of srun without any PMI are under a launcher too; one is the shell of
 * `srun --pty`, from which ranks are to be started. */
bool launch_needed(void)
{
    return !getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK") && !getenv("PMI_SIZE")
        && !getenv("PMI_RANK")
        && !(getenv("SLURM_STEP_ID") && number_in_env("SLURM_STEP_NUM_TASKS") > 1);
}

bool launch_speaks(void)
{
    return launch_needed() || !(getenv(TERMINAL) || number_in_env("OMPI_COMM_WORLD_RANK") || number_in_env("PMIX_RANK") ||
                                number_in_env("PMI_RANK") || number_in_env("SLURM_PROCID"));
}

/* A rank may send a long message once the other has answered that it is ready.  Open MPI 4.1 then hands
 * the kernel the whole message (flag `put`; up to 4 MB of socket buffer), and the answer to what the other
 * wants to send waits behind it: the directions take turns, unless both happen to start at once, and a
 * collective takes one, two or three times as long.  In fragments of 128 KB, before a short socket
 * buffer of 128 KB, answers pass between them.  `make bench` compares. */
void launch_tune_tcp(void)
{
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
    setenv("OMPI_MCA_btl_tcp_sndbuf", "131072", 0);
}

int launch_check(int world_size)
{
    int told = number_in_env("OMPI_COMM_WORLD_SIZE");

    if (!told)
        told = number_in_env("PMI_SIZE");
    if (!told && getenv("SLURM_STEP_ID"))
        told = number_in_env("SLURM_STEP_NUM_TASKS");
    if (!told || told == world_size)
        return 0;
    if (number_in_env("OMPI_COMM_WORLD_RANK") || number_in_env("PMI_RANK") || number_in_env("SLURM_PROCID"))
        return -1;                      /* each is alone: the first of them says it */
    return fail("the launcher started %d processes, but MPI sees a world of %d: start them with `srun "
                "--mpi=pmix` or with the mpirun of the Open MPI that this program was built with",
                told, world_size);
}

int launch_terminal(void)
{
    struct winsize size;

    if (getenv(TERMINAL))
        return number_in_env(TERMINAL);
    if (!launch_needed() || !isatty(2))
        return 0;
    return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* The first line that `path --version` prints; empty if it does not run. */
static void version_line(const char *path, char *line, size_t size)
{
    char  command[PATH_MAX + 64];
    FILE *p;

    /* The path goes by environment: it may hold anything. */
    setenv("DPX_MPIRUN", path, 1);
    snprintf(command, sizeof command, "exec \"$DPX_MPIRUN\" --version 2>/dev/null </dev/null");
    line[0] = '\0';
    if ((p = popen(command, "r")) != NULL) {
        if (!fgets(line, (int)size, p))
            line[0] = '\0';
        pclose(p);
    }
    unsetenv("DPX_MPIRUN");
    line[strcspn(line, "\n")] = '\0';
}

/* The first mpirun of an Open MPI in PATH; Debian has its other names where another MPI's is
 * preferred. */
static int find_mpirun(char *path, size_t size)
{
    static const char *const names[] = { "mpirun", "mpirun.openmpi", "orterun", "prterun" };
    const char *dirs = getenv("PATH");
    char        line[256], other[PATH_MAX] = "";

    for (size_t i = 0; dirs && i < sizeof names / sizeof *names; i++)
        for (const char *d = dirs; d; d = strchr(d, ':') ? strchr(d, ':') + 1 : NULL) {
            int n = (int)strcspn(d, ":");
            snprintf(path, size, "%.*s/%s", n, d, names[i]);
            if (n == 0 || access(path, X_OK) < 0)
                continue;
            version_line(path, line, sizeof line);
            if (strstr(line, "Open MPI") || strstr(line, "PRRTE"))
                return 0;
            snprintf(other, sizeof other, "%s", path);
        }
    if (other[0])
        return fail("%s is not Open MPI's mpirun: install Open MPI (Debian, Ubuntu: openmpi-bin) or put "
                    "its folder first in PATH", other);
    return fail("there is no mpirun in PATH to start ranks with: install Open MPI (Debian, Ubuntu: "
                "apt-get install openmpi-bin), or start under srun");
}

/* A batch system's allocation, over which mpirun spreads the ranks by itself. */
static bool allocated(void)
{
    return getenv("SLURM_JOB_ID") || getenv("PBS_JOBID") || getenv("LSB_JOBID") || getenv("PE_HOSTFILE");
}

/* Lines of a hostfile that name a machine; -1 with the reason reported. */
static int machines_in(const char *hostfile)
{
    int   fd = input_file(hostfile, NULL);      /* mpirun reads it, too */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char  line[1024];
    int   n = 0;

    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        size_t blank = strspn(line, " \t\r\n");
        n += line[blank] != '\0' && line[blank] != '#';
    }
    fclose(f);
    return n ? n : fail("%s: names no machine; it should have lines such as `node7 slots=4`", hostfile);
}

/* Threads of a rank; machines are taken to be alike.  -1 with the reason reported. */
static int threads_of(const struct launch *l)
{
    int machines = l->hostfile ? machines_in(l->hostfile) : number_in_env("SLURM_JOB_NUM_NODES");

    if (machines == 0)
        machines = 1;
    if (machines < 0 || l->threads > 0)
        return machines < 0 ? -1 : l->threads;
    return host_threads((l->nranks + machines - 1) / machines);
}

/* What ranks and mpirun are to know.  Names that a version does not have mean nothing to it:
 * OMPI_ is Open MPI's, PRTE_ the launcher's of 5.0. */
static void set_environment(const struct launch *l, int threads)
{
    char number[16];

    snprintf(number, sizeof number, "%d", threads);
    setenv("OMP_NUM_THREADS", number, 1);
    snprintf(number, sizeof number, "%d", launch_terminal());
    setenv(TERMINAL, number, 1);
    /* Threads that spin for work take the core from those that have some (products at 5 instead of
     * 140 GFLOP/s on two oversubscribed cores). */
    if ((int64_t)threads * l->nranks > host_cores())
        setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
    /* A waiting rank lets others compute: 1.15 times slower compute beside it becomes 1.01. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* Ranks of one machine use shared memory; what TCP would say of the interfaces is of no use. */
    if (!l->hostfile && !allocated())
        setenv("OMPI_MCA_btl", "^tcp", 0);
    /* SIGTSTP and SIGCONT stop and continue the ranks; 5.0 does so by itself. */
    setenv("OMPI_MCA_orte_forward_job_control", "1", 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
}

enum { OWN_ARGS = 24 };

/* The options that 4.1 and 5.0 have in common.  Slots of a hostfile or an allocation are what
 * the user may have; on this machine alone any number of ranks may share the cores. */
static char **command(const struct launch *l, const char *mpirun, const char *self, int argc, char **argv)
{
    static char number[16];
    char **a = calloc((size_t)argc + OWN_ARGS, sizeof *a);
    bool   given = l->hostfile || allocated();
    int    n = 0;

    if (!a)
        abort();
    snprintf(number, sizeof number, "%d", l->nranks);
    const char *own[OWN_ARGS] = {
        mpirun, "-n", number,
        "--map-by", given ? "slot" : "slot:OVERSUBSCRIBE",
        "--bind-to", "none",            /* ranks divide what they may use themselves (cores.h) */
        /* Other machines get only what is named; OMPI_ goes by itself. */
        "-x", "OMP_NUM_THREADS", "-x", TERMINAL,
        l->hostfile ? "--hostfile" : self, l->hostfile, l->hostfile ? self : NULL,
    };
    for (int i = 0; own[i]; i++)
        a[n++] = (char *)(uintptr_t)own[i];
    for (int i = 1; i < argc; i++)
        a[n++] = argv[i];
    return a;
}

static volatile pid_t         child;
static volatile sig_atomic_t  ended_by;         /* the signal that asked us to end */
static volatile time_t        asked;

/* Passes a signal on; one that follows within a second is an echo (timeout(1) sends to us
 * and to our group). */
static void forward(int sig)
{
    int saved = errno;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (sig == SIGTSTP || sig == SIGCONT) {
        kill(child, sig);
        if (sig == SIGTSTP)
            raise(SIGSTOP);
    } else if (!ended_by || now.tv_sec > asked + 1) {
        ended_by = sig;
        asked = now.tv_sec;
        kill(child, sig);
    }
    errno = saved;
}

static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT };
enum { NPASSED = sizeof passed_on / sizeof *passed_on };

static void forward_signals(struct sigaction *old)
{
    struct sigaction a = { .sa_handler = forward, .sa_flags = SA_RESTART };

    sigemptyset(&a.sa_mask);
    for (int i = 0; i < NPASSED; i++) {
        sigaction(passed_on[i], NULL, &old[i]);
        /* What was ignored stays so (nohup). */
        if (old[i].sa_handler != SIG_IGN)
            sigaction(passed_on[i], &a, NULL);
    }
}

static void restore_signals(const struct sigaction *old)
{
    for (int i = 0; i < NPASSED; i++)
        sigaction(passed_on[i], &old[i], NULL);
}

/* In the child: becomes mpirun. */
static void become(char **args, int out, int err, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    /* Should we be killed without a chance to say so. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || getppid() != parent)
        _exit(1);
    execv(args[0], args);
    fail("%s: %s", args[0], strerror(errno));
    _exit(1);
}

enum { STUCK_MS = 5000 };       /* an mpirun that has said that ranks have ended ends within milliseconds */

/* What mpirun writes, on its way to where it belongs. */
struct heard {
    int out, err;               /* pipes to be read; -1: at their end */
    struct mpirun_words words;  /* of stderr */
    int lost;                   /* errno of the first failure to write on stdout; 0: none */
};

static void pass_on(struct heard *h, const char *bytes, size_t n)
{
    while (n > 0 && !h->lost) {
        ssize_t k = write(1, bytes, n);
        if (k < 0 && errno != EINTR)
            h->lost = errno;
        if (k > 0) {
            bytes += k;
            n -= (size_t)k;
        }
    }
}

/* Reads once from each pipe that has something, for `ms` at most; whether there was anything. */
static bool hear(struct heard *h, int ms)
{
    struct pollfd p[2] = { { .fd = h->out, .events = POLLIN }, { .fd = h->err, .events = POLLIN } };
    char bytes[4096];
    bool any = false;

    if (poll(p, 2, ms) <= 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ssize_t n = p[i].revents ? read(p[i].fd, bytes, sizeof bytes) : -1;
        if (n > 0 && i == 0) {
            answer_given();
            pass_on(h, bytes, (size_t)n);
        }
        else if (n > 0)
            mpirun_words_add(&h->words, bytes, (size_t)n);
        else if (n == 0)
            *(i ? &h->err : &h->out) = -1;      /* poll() passes over it */
        any |= n > 0;
    }
    return any;
}

static int64_t milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Passes on what mpirun writes until it has ended; returns how.  Its remote helpers may keep the pipes open for
 * longer.  Open MPI 4.1 with PMIx 4 never ends (PMIx_server_finalize waits for a mutex that nobody gives back)
 * where a rank was killed while it was welcomed; by then it has ended the other ranks and said so. */
static int listen_to(struct heard *h)
{
    int64_t said = 0;           /* when mpirun said that ranks have ended; 0: not yet */
    int status;
    bool ended = false;

    while (!ended) {
        if (hear(h, 200))
            continue;
        mpirun_words_flush(&h->words);
        if (h->words.ended && !said)
            said = milliseconds();
        if (said && milliseconds() > said + STUCK_MS)
            kill(child, SIGKILL);
        ended = waitpid(child, &status, WNOHANG) == child;
    }
    while (hear(h, 0))
        ;
    mpirun_words_flush(&h->words);
    return status;
}

static int exit_of(int status, const struct heard *h)
{
    const struct mpirun_words *w = &h->words;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (ended_by) {             /* who sent it needs no line; a document says it */
        char line[64];
        snprintf(line, sizeof line, "ended by signal %d (%s)", ended_by, strsignal(ended_by));
        fail_copied(line);
        return 128 + ended_by;
    }
    if (w->signal)
        fail("rank %d on %s was killed by signal %d (%s)", w->killed_rank, w->killed_host, w->signal,
             strsignal(w->signal));
    else if (w->failed)
        fail("a rank ended before its time, but mpirun failed when it was to say which and why");
    else if (code < 0)
        fail("mpirun was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (code > 3)
        fail("mpirun ended with status %d", code);
    else if (code == 0 && h->lost)
        fail("standard output: %s: the result could not be written", strerror(h->lost));
    return code >= 0 && code <= 3 && !w->signal && !w->failed && !(code == 0 && h->lost) ? code : 1;
}

static int make_pipes(int out[2], int err[2])
{
    if (pipe(out) < 0)
        return fail("starting mpirun: %s", strerror(errno));
    if (pipe(err) < 0) {
        close(out[0]);
        close(out[1]);
        return fail("starting mpirun: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
        fcntl(err[i], F_SETFD, FD_CLOEXEC);
    }
    return 0;
}

/* Only for ranks of this machine: on others no process would make and remove the folders. */
static int run(char **args, bool alone)
{
    struct heard h = { .words = { .to = 2 } };
    struct sigaction old[NPASSED], old_pipe;
    struct job_files files;
    int   out[2], err[2], status;
    pid_t self = getpid();

    if (make_pipes(out, err) < 0)
        return 1;
    if (alone)
        job_files_make(&files);
    fflush(NULL);
    ended_by = 0;
    child = fork();
    if (child == 0)
        become(args, out[1], err[1], self);
    close(out[1]);
    close(err[1]);
    if (child < 0) {
        fail("starting mpirun: %s", strerror(errno));
        status = 1 << 8;                /* as if it had exited with 1 */
    } else {
        setpgid(child, child);
        if (alone)
            job_files_started(&files, child);
        forward_signals(old);
        /* A reader of stdout that goes away is an error to be reported, not the end of this process. */
        sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, &old_pipe);
        h.out = out[0];
        h.err = err[0];
        status = listen_to(&h);
        sigaction(SIGPIPE, &old_pipe, NULL);
        restore_signals(old);
    }
    close(out[0]);
    close(err[0]);
    if (alone)
        job_files_end(&files, child > 0 && WIFSIGNALED(status));
    return exit_of(status, &h);
}

int launch_exec(const struct launch *l, int argc, char **argv)
{
    char    mpirun[PATH_MAX], self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int     threads, rc;
    char  **args;

    if (n < 0)
        return fail("/proc/self/exe: %s", strerror(errno)), 1;
    self[n] = '\0';
    if ((threads = threads_of(l)) < 0)
        return 2;
    if (find_mpirun(mpirun, sizeof mpirun) < 0)
        return 1;
    set_environment(l, threads);
    args = command(l, mpirun, self, argc, argv);
    rc = run(args, !l->hostfile && !allocated());
    free(args);
    return rc;
}
