/* test_launch.c -- which launcher started a process, and what mpirun's words mean. */
#include "tests/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

#include "base/fail.h"
#include "exec/device/host_info.h"
#include "exec/process/launch.h"
#include "exec/process/mpirun_words.h"

static char folder[] = "/tmp/dpx-launch-XXXXXX", said[1024];

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

/* What a file holds, at most 8 KiB; empty if there is none. */
static const char *text_of(const char *path)
{
    static char text[8192];
    FILE *f = fopen(path, "r");

    text[f ? fread(text, 1, sizeof text - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return text;
}

static void put_text(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

/* As a rank: `rank FOLDER exit N`, `... abort N`, `... signal N`, `... sleep S`. */
static int as_rank(char **argv)
{
    char path[512];
    int  world, me, n = atoi(argv[4]);
    FILE *f;

    MPI_Init(NULL, NULL);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (launch_needed() || launch_check(world) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    snprintf(path, sizeof path, "%s/rank.%d", argv[2], me);
    if (!(f = fopen(path, "w")))
        MPI_Abort(MPI_COMM_WORLD, 1);
    fprintf(f, "%d of %d, %s threads, terminal %d, argument '%s'\n", me, world, getenv("OMP_NUM_THREADS"),
            launch_terminal(), argv[5] ? argv[5] : "");
    fclose(f);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(argv[3], "abort") && me == world - 1) {
        fprintf(stderr, "dpx: what went wrong\n");
        MPI_Abort(MPI_COMM_WORLD, n);
    }
    if (!strcmp(argv[3], "signal") && me == world - 1)
        raise(n);
    if (!strcmp(argv[3], "signal") || !strcmp(argv[3], "abort"))
        pause();
    sleep(!strcmp(argv[3], "sleep") ? (unsigned)n : 0);
    MPI_Finalize();
    return !strcmp(argv[3], "exit") ? n : 0;
}

static void forget_ranks(void)
{
    static const char *const ranks[] = { "rank.0", "rank.1", "rank.2" };

    for (int i = 0; i < 3; i++)
        unlink(in_folder(ranks[i]));
}

/* Runs this program on ranks with stderr in a file; returns the exit status. */
static int launch(const struct launch *l, const char *what, const char *number, const char *extra)
{
    char *argv[] = { (char *)"test", (char *)"rank", folder, (char *)(uintptr_t)what,
                     (char *)(uintptr_t)number, (char *)(uintptr_t)extra, NULL };
    int kept = dup(2), file = open(in_folder("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600), rc;

    forget_ranks();
    dup2(file, 2);
    close(file);
    rc = launch_exec(l, extra ? 6 : 5, argv);
    dup2(kept, 2);
    close(kept);
    return rc;
}

static int ranks_seen(void)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;

    while ((e = readdir(d)))
        n += !strncmp(e->d_name, "rank.", 5);
    closedir(d);
    return n;
}

static void ranks_run_with_the_arguments(void **state)
{
    (void)state;
    assert_int_equal(launch(&(struct launch){ .nranks = 1 }, "exit", "0", NULL), 0);
    assert_int_equal(ranks_seen(), 1);
    assert_int_equal(launch(&(struct launch){ .nranks = 3, .threads = 2 }, "exit", "0",
                            "two words; $HOME 'ü"), 0);
    assert_int_equal(ranks_seen(), 3);
    assert_string_equal(text_of(in_folder("rank.2")),
                        "2 of 3, 2 threads, terminal 0, argument 'two words; $HOME 'ü'\n");
    assert_string_equal(text_of(in_folder("stderr")), "");
}

static void threads_are_the_share_of_the_cores(void **state)
{
    (void)state;
    char expected[64];

    unsetenv("OMP_NUM_THREADS");
    snprintf(expected, sizeof expected, "0 of 2, %d threads", host_cores() > 1 ? host_cores() / 2 : 1);
    assert_int_equal(launch(&(struct launch){ .nranks = 2 }, "exit", "0", NULL), 0);
    assert_non_null(strstr(text_of(in_folder("rank.0")), expected));
    unsetenv("OMP_NUM_THREADS");
}

static void exit_statuses_are_the_ranks(void **state)
{
    (void)state;
    static const char *const codes[] = { "1", "2", "3" };

    for (int i = 0; i < 3; i++) {
        assert_int_equal(launch(&(struct launch){ .nranks = 2 }, "exit", codes[i], NULL), atoi(codes[i]));
        assert_string_equal(text_of(in_folder("stderr")), "");
    }
    assert_int_equal(launch(&(struct launch){ .nranks = 2 }, "exit", "77", NULL), 1);
}

static void an_abort_leaves_the_ranks_own_words(void **state)
{
    (void)state;
    assert_int_equal(launch(&(struct launch){ .nranks = 3 }, "abort", "2", NULL), 2);
    assert_string_equal(text_of(in_folder("stderr")), "dpx: what went wrong\n");
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    assert_int_equal(launch(&(struct launch){ .nranks = 3 }, "signal", "9", NULL), 1);
    if (!strstr(said, "rank 2 on ") || !strstr(said, "was killed by signal 9 (Killed)"))
        fail_msg("'%s'", said);
    assert_string_equal(text_of(in_folder("stderr")), "");
}

/* The exit status of N ranks with a hostfile of this text; NULL: a hostfile that is not there. */
static int with_hosts(const char *text, int nranks)
{
    char path[512];

    snprintf(path, sizeof path, "%s", in_folder(text ? "hosts" : "none"));
    if (text)
        put_text(path, text, 0600);
    return launch(&(struct launch){ .nranks = nranks, .hostfile = path }, "exit", "0", NULL);
}

static void a_hostfile_sets_the_slots(void **state)
{
    (void)state;
    unsetenv("OMPI_MCA_rmaps_base_oversubscribe");      /* of who runs the tests: it lifts the limit */
    assert_int_equal(with_hosts("# here\n\nlocalhost slots=2\n", 2), 0);
    assert_int_equal(ranks_seen(), 2);
    assert_int_equal(with_hosts("localhost slots=2\n", 3), 1);
    assert_non_null(strstr(text_of(in_folder("stderr")), "not enough slots"));
    assert_int_equal(with_hosts("# none\n", 2), 2);
    assert_non_null(strstr(said, "names no machine"));
    assert_int_equal(with_hosts(NULL, 2), 2);
    assert_non_null(strstr(said, "No such file"));
}

static void a_missing_mpirun_is_said_in_one_line(void **state)
{
    (void)state;
    char path[8192], first[sizeof said];
    int  missing, other;

    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", folder, 1);
    missing = launch(&(struct launch){ .nranks = 2 }, "exit", "0", NULL);
    memcpy(first, said, sizeof first);
    put_text(in_folder("mpirun"), "#!/bin/sh\necho HYDRA build details:\n", 0755);
    other = launch(&(struct launch){ .nranks = 2 }, "exit", "0", NULL);
    setenv("PATH", path, 1);

    assert_int_equal(missing, 1);
    assert_non_null(strstr(first, "no mpirun in PATH"));
    assert_non_null(strstr(first, "openmpi-bin"));
    assert_int_equal(other, 1);
    assert_non_null(strstr(said, "mpirun is not Open MPI's"));
    assert_null(strchr(said, '\n'));
}

/* Open MPI 4.1.4 where a rank was killed while it was welcomed: the reader of its own texts failed, and it ended with 2. */
static void an_mpirun_that_fails_itself_is_said(void **state)
{
    (void)state;
    char path[8192];
    int  rc;

    snprintf(path, sizeof path, "%s", getenv("PATH"));
    put_text(in_folder("mpirun"), "#!/bin/sh\n[ \"$1\" = --version ] && echo Open MPI && exit\n"
             "echo input in flex scanner failed >&2\nexit 2\n", 0755);
    setenv("PATH", folder, 1);
    rc = launch(&(struct launch){ .nranks = 2 }, "exit", "0", NULL);
    setenv("PATH", path, 1);
    assert_int_equal(rc, 1);
    assert_string_equal(text_of(in_folder("stderr")), "");
    assert_non_null(strstr(said, "a rank ended before its time, but mpirun failed"));
    unlink(in_folder("mpirun"));
}

static int alive(const char *what)
{
    char command[600];

    /* no `ps`: a small machine has none */
    snprintf(command, sizeof command, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q '[r]ank %s %s'", folder, what);
    return system(command) == 0;
}

/* Sends the signal as soon as ranks run, to the launcher only or to its whole group as timeout does. */
static void interrupted(int sig, bool group)
{
    const struct timespec pause10ms = { 0, 10 * 1000 * 1000 };
    int status;
    pid_t pid;

    forget_ranks();
    if ((pid = fork()) == 0) {
        setpgid(0, 0);
        _exit(launch(&(struct launch){ .nranks = 2 }, "sleep", "3600", NULL));      /* one that is not reached outlasts the test */
    }
    for (int i = 0; i < 6000 && ranks_seen() < 2; i++)
        nanosleep(&pause10ms, NULL);
    kill(pid, sig);
    if (group)
        kill(-pid, sig);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) || (sig == SIGKILL && WIFSIGNALED(status)));
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 128 + sig);
    for (int i = 0; i < 1000 && alive("sleep"); i++)
        nanosleep(&pause10ms, NULL);
    assert_false(alive("sleep"));
    assert_string_equal(text_of(in_folder("stderr")), "");
}

static void a_signal_reaches_all(void **state)
{
    (void)state;
    interrupted(SIGINT, false);
    interrupted(SIGTERM, true);
}

static void no_rank_outlives_a_killed_launcher(void **state)
{
    (void)state;
    interrupted(SIGKILL, false);
}

static void launchers_are_recognised_by_environment(void **state)
{
    (void)state;
    static const char *const under[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK" };

    assert_true(launch_needed());
    for (int i = 0; i < 4; i++) {
        setenv(under[i], "4", 1);
        assert_false(launch_needed());
        unsetenv(under[i]);
    }
    /* A batch script, and one task of srun, are no launcher; four tasks without PMI are. */
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_JOB_ID", "7", 1);
    assert_true(launch_needed());
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_true(launch_needed());
    assert_int_equal(launch_check(1), 0);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_false(launch_needed());
    assert_int_equal(launch_check(4), 0);
    assert_int_equal(launch_check(1), -1);
    assert_non_null(strstr(said, "started 4 processes, but MPI sees a world of 1"));
    unsetenv("SLURM_STEP_ID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_PROCID");
}

#define RULE "--------------------------------------------------------------------------\n"

/* Feeds the text in two pieces, cut anywhere, and compares what remains. */
static void words_become(const char *text, const char *expected)
{
    size_t n = strlen(text);

    for (size_t cut = 0; cut <= n; cut += 7) {
        struct mpirun_words w = { .to = open(in_folder("words"), O_WRONLY | O_CREAT | O_TRUNC, 0600) };
        mpirun_words_add(&w, text, cut);
        mpirun_words_add(&w, text + cut, n - cut);
        mpirun_words_flush(&w);
        close(w.to);
        assert_string_equal(text_of(in_folder("words")), expected);
    }
}

/* Seen: Open MPI 4.1.4 crashed in PMIx_Finalize after SIGINT, its trace cut in the middle of a line. */
static void mpiruns_own_crash_is_dropped_once_it_was_told_to_end(void **state)
{
    static const char trace[] = "[vm:14467] *** Process received signal ***\n[vm:14467] Signal: Segmentation "
                                "fault (11)\n[vm:14467] Signal code: Address not mapped (1)\n[vm:14467] Failing at "
                                "address: (nil)\n[vm:14467] [ 0] /lib/libc.so.6(+0x3c050)[0x7f]\n[vm:14467] [ 9] /lib/x";

    (void)state;
    words_become(trace, trace);
    for (int cut = 0; cut < (int)sizeof trace; cut += 11) {
        struct mpirun_words w = { .ending = true,
                                  .to = open(in_folder("words"), O_WRONLY | O_CREAT | O_TRUNC, 0600) };
        mpirun_words_add(&w, trace, (size_t)cut);
        mpirun_words_add(&w, trace + cut, sizeof trace - 1 - (size_t)cut);
        mpirun_words_flush(&w);
        close(w.to);
        assert_string_equal(text_of(in_folder("words")), "");
    }
}

static void remarks_about_ended_ranks_are_dropped(void **state)
{
    (void)state;
    words_become("dpx: a\n" RULE "MPI_ABORT was invoked on rank 0 in communicator\n\nNOTE: b\n" RULE
                 RULE "prterun has exited due to process rank 0 with PID 0 on node vm\n" RULE "dpx: c\n",
                 "dpx: a\ndpx: c\n");
    words_become("[vm:1] PMIX ERROR: UNREACHABLE in file ../../../../../src/mca/ptl/base/ptl_base_connection_hdlr.c at line 388\ndpx: a\n", "dpx: a\n");
    words_become("[vm:1] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n", "");
    words_become("[vm:1] 2 more processes have sent help message help-mpi-api.txt / mpi-abort\nx", "x");
}

/* Two ranks that abort at once: each line of the two blocks at any place of the other, with what dpx says in between. */
static void two_ranks_that_abort_at_once_leave_what_dpx_says(void **state)
{
    static const char *const block[] = { RULE, "MPI_ABORT was invoked on rank 1 in communicator dpx watchdog\n", "with errorcode 1.\n", "\n",
        "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n",
        "You may or may not see output from other processes, depending on\n", "exactly when Open MPI kills them.\n", RULE };
    enum { N = sizeof block / sizeof *block };

    (void)state;
    for (int said_at = 0; said_at <= 2 * N; said_at += 4)
        for (int mix = 0; mix < 256; mix += 31) {
            char text[4096] = "";
            int a = 0, b = 0;
            for (int k = 0; k <= 2 * N; k++) {
                if (k == said_at)
                    strcat(text, "dpx: rank 2 was stopped\n");
                if (k < 2 * N)
                    strcat(text, block[(b == N || (a < N && (mix >> k % 8 & 1))) ? a++ : b++]);
            }
            words_become(text, "dpx: rank 2 was stopped\n");
        }
    words_become(RULE "mpirun noticed that the job aborted, but has no info as to the process\nthat caused that situation.\n" RULE, "");
}

/* PRRTE 3 sends a NUL after a block. */
static void a_nul_after_a_block_does_not_hide_what_follows(void **state)
{
    (void)state;
    char nul[] = RULE "MPI_ABORT was invoked on rank 0\n" RULE "?dpx: a\n";
    struct mpirun_words w = { .to = open(in_folder("words"), O_WRONLY | O_CREAT | O_TRUNC, 0600) };

    *strchr(nul, '?') = '\0';
    mpirun_words_add(&w, nul, sizeof nul - 1);
    close(w.to);
    assert_string_equal(text_of(in_folder("words")), "dpx: a\n");
}

static void all_else_passes(void **state)
{
    (void)state;
    words_become("one\n\n" RULE "There are not enough slots\n" RULE "step 3\rstep 4",
                 "one\n\n" RULE "There are not enough slots\n" RULE "step 3\rstep 4");
    words_become("input in fle\ninput in flex scanner failed, said a rank\n", "input in fle\ninput in flex scanner failed, said a rank\n");
    words_become("input in flex scanner failed\ndpx: a\n", "dpx: a\n");
    words_become(RULE "a heading, never closed", RULE "a heading, never closed");
    words_become("[vm:1] *** Process received signal ***\n-", "[vm:1] *** Process received signal ***\n-");
}

static int make_folder(void **state)
{
    (void)state;
    fail_capture(said, sizeof said);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[600];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_recognised_by_environment),
        cmocka_unit_test(remarks_about_ended_ranks_are_dropped),
        cmocka_unit_test(two_ranks_that_abort_at_once_leave_what_dpx_says),
        cmocka_unit_test(a_nul_after_a_block_does_not_hide_what_follows),
        cmocka_unit_test(all_else_passes),
        cmocka_unit_test(a_missing_mpirun_is_said_in_one_line),
        cmocka_unit_test(an_mpirun_that_fails_itself_is_said),
        cmocka_unit_test(ranks_run_with_the_arguments),
        cmocka_unit_test(threads_are_the_share_of_the_cores),
        cmocka_unit_test(exit_statuses_are_the_ranks),
        cmocka_unit_test(mpiruns_own_crash_is_dropped_once_it_was_told_to_end),
        cmocka_unit_test(an_abort_leaves_the_ranks_own_words),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_hostfile_sets_the_slots),
        cmocka_unit_test(a_signal_reaches_all),
        cmocka_unit_test(no_rank_outlives_a_killed_launcher),
    };

    if (argc > 4 && !strcmp(argv[1], "rank"))
        return as_rank(argv);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);       /* of the ranks: Open MPI's own */
    return cmocka_run_group_tests_name("exec/launch", tests, make_folder, remove_folder);
}
