/* job_files.c -- two folders of the job's own, which a process that outlives mpirun removes. */
#define _GNU_SOURCE             /* nftw */
#include "exec/process/job_files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* By version: the parameters of 4.1, of 5.0's launcher and of 5.0; then where Open MPI looks without them. */
static const struct { const char *set[2], *else_from[3], *usual; } places[NJOB_FOLDER] = {
    [JOB_SESSION] = { { "OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base" }, { "TMPDIR", "TEMP", "TMP" }, "/tmp" },
    [JOB_SHARED] = { { "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory" }, { NULL }, "/dev/shm" },
};

static const char *parent_of(int which)
{
    const char *v;

    for (int i = 0; i < 2; i++)
        if ((v = getenv(places[which].set[i])) && v[0])
            return v;
    for (int i = 0; i < 3 && places[which].else_from[i]; i++)
        if ((v = getenv(places[which].else_from[i])) && v[0])
            return v;
    return places[which].usual;
}

/* ---- the keeper ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    remove(path);
    return 0;
}

/* Ten seconds for an mpirun whose launcher was killed: it gives ranks one between SIGTERM and SIGKILL. */
static void await_end(pid_t mpirun)
{
    const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };

    for (int i = 0; i < 500 && mpirun > 0 && kill(mpirun, 0) == 0; i++)
        nanosleep(&pause, NULL);
}

/* In a session of its own and deaf to signals, for those are meant for the job. */
static _Noreturn void keep(const struct job_files *f, int from)
{
    int null = open("/dev/null", O_RDWR);
    pid_t mpirun = 0, told;
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setsid();
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    while (read(from, &told, sizeof told) == (ssize_t)sizeof told)
        mpirun = told;
    await_end(mpirun);
    for (int w = 0; w < NJOB_FOLDER; w++)
        if (f->folder[w][0])
            nftw(f->folder[w], remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    _exit(0);
}

static int start_keeper(struct job_files *f)
{
    int ends[2];

    if (pipe(ends) < 0)
        return -1;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    f->keeper = fork();
    if (f->keeper == 0) {
        close(ends[1]);
        keep(f, ends[0]);
    }
    close(ends[0]);
    f->to_keeper = ends[1];
    if (f->keeper > 0)
        return 0;
    close(ends[1]);
    return -1;
}

/* ---- before ---- */

static void make_folder(struct job_files *f, int w)
{
    int n = snprintf(f->folder[w], sizeof f->folder[w], "%s/dpx.XXXXXX", parent_of(w));

    if (n >= (int)sizeof f->folder[w] || !mkdtemp(f->folder[w]))
        f->folder[w][0] = '\0';
}

void job_files_make(struct job_files *f)
{
    *f = (struct job_files){ .keeper = 0 };
    /* Orphans of mpirun come to this process, not to init: it can wait until they have ended. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int w = 0; w < NJOB_FOLDER; w++)
        make_folder(f, w);
    if (start_keeper(f) < 0) {
        for (int w = 0; w < NJOB_FOLDER; w++)
            if (f->folder[w][0])
                rmdir(f->folder[w]);
        *f = (struct job_files){ .keeper = 0 };
    }
    for (int w = 0; w < NJOB_FOLDER; w++)
        for (int i = 0; i < 2 && f->folder[w][0]; i++) {
            const char *v = getenv(places[w].set[i]);
            f->before[w][i] = v ? strdup(v) : NULL;
            setenv(places[w].set[i], f->folder[w], 1);
        }
}

void job_files_started(const struct job_files *f, pid_t mpirun)
{
    if (f->keeper > 0 && write(f->to_keeper, &mpirun, sizeof mpirun) < 0)
        return;                 /* then it does not wait for mpirun */
}

/* ---- afterwards ---- */

/* Sends a signal, 0 to ask only, to the children of this process but the keeper; how many they are. */
static int signal_children(pid_t keeper, int signal)
{
    char name[64];
    FILE *f;
    int pid, n = 0;

    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    if (!(f = fopen(name, "r")))
        return 0;
    while (fscanf(f, "%d", &pid) == 1)
        if (pid != keeper) {
            kill(pid, signal);
            n++;
        }
    fclose(f);
    return n;
}

static void await_orphans(pid_t keeper)
{
    const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };

    for (int i = 0; i < 200 && signal_children(keeper, i < 100 ? 0 : SIGKILL) > 0; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        nanosleep(&pause, NULL);
    }
}

void job_files_end(struct job_files *f, bool killed)
{
    if (killed)
        await_orphans(f->keeper);
    if (f->keeper > 0) {
        close(f->to_keeper);
        while (waitpid(f->keeper, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    for (int w = 0; w < NJOB_FOLDER; w++)
        for (int i = 0; i < 2 && f->folder[w][0]; i++) {
            if (f->before[w][i])
                setenv(places[w].set[i], f->before[w][i], 1);
            else
                unsetenv(places[w].set[i]);
            free(f->before[w][i]);
        }
}
