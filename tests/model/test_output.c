/* Outputs are made whole or not at all: what goes wrong on the way (a full disk, here a limit on the size of
 * files; a kill) leaves what was there, and nothing else in the folder. */
#include "tests/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/output.h"

static char folder[] = "/tmp/dpx-output-XXXXXX", said[512];

/* A path in the folder; four at a time. */
static const char *in(const char *name)
{
    static char path[4][512];
    static int at;

    at = (at + 1) % 4;
    snprintf(path[at], sizeof *path, "%s/%s", folder, name);
    return path[at];
}

static int write_text(const char *to, const char *text)
{
    struct output o;

    if (output_open(&o, to) < 0)
        return -1;
    fputs(text, o.f);
    return output_close(&o);
}

static void holds(const char *file, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(file, "r");

    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static int entries(void)
{
    DIR *d = opendir(folder);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;               /* . and .. */
}

static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Writes more than a process may: as on a full disk.  The reason is in `said`. */
static int write_too_much(const char *to)
{
    struct rlimit was, small;
    struct output o;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){ .rlim_cur = 4096, .rlim_max = was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fail_capture(said, sizeof said);
    rc = output_open(&o, to);
    for (int i = 0; i < 100000 && rc == 0; i++)
        fputc('x', o.f);
    rc = rc == 0 ? output_close(&o) : rc;
    fail_capture(NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    return rc;
}

static void a_whole_file_takes_the_old_ones_place(void **state)
{
    (void)state;
    struct output o;

    assert_int_equal(write_text(in("a"), "old"), 0);
    assert_int_equal(output_open(&o, in("a")), 0);
    fputs("new", o.f);
    fflush(o.f);
    holds(in("a"), "old");              /* until it is complete */
    assert_int_equal(output_close(&o), 0);
    holds(in("a"), "new");
    assert_int_equal(entries(), 1);
}

static void one_given_up_leaves_the_old_one(void **state)
{
    (void)state;
    struct output o;

    assert_int_equal(write_text(in("a"), "old"), 0);
    assert_int_equal(output_open(&o, in("a")), 0);
    fputs("new", o.f);
    output_discard(&o);
    holds(in("a"), "old");
    assert_int_equal(entries(), 1);
}

/* Before something long: what could not be written is found, and what is there stays. */
static void a_check_finds_what_cannot_be_written(void **state)
{
    (void)state;
    static const char *const bad[] = { "/nonexistent/a", "/", "/dev", "/proc/version" };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fail_capture(said, sizeof said);
        assert_int_equal(output_check(bad[i]), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(said, bad[i]));
    }
    assert_int_equal(output_check("/dev/null"), 0);
    assert_int_equal(output_check(in("a")), 0);
    assert_int_equal(entries(), 0);
    assert_int_equal(write_text(in("a"), "old"), 0);
    assert_int_equal(output_check(in("a")), 0);
    holds(in("a"), "old");
    assert_int_equal(entries(), 1);
}

static void a_symbolic_link_stays_one(void **state)
{
    (void)state;
    assert_int_equal(write_text(in("a"), "old"), 0);
    assert_int_equal(symlink("a", in("link")), 0);              /* relative to its folder */
    assert_int_equal(symlink(in("link"), in("chain")), 0);
    assert_int_equal(write_text(in("chain"), "through"), 0);
    assert_true(is_link(in("link")) && is_link(in("chain")));
    holds(in("a"), "through");
    assert_int_equal(entries(), 3);
}

static void a_full_disk_keeps_the_file_behind_a_link(void **state)
{
    (void)state;
    assert_int_equal(write_text(in("a"), "good"), 0);
    assert_int_equal(symlink("a", in("link")), 0);
    assert_int_equal(write_too_much(in("link")), -1);
    assert_non_null(strstr(said, "/link: File too large"));
    holds(in("a"), "good");
    assert_int_equal(write_too_much(in("a")), -1);
    holds(in("a"), "good");
    assert_int_equal(entries(), 2);
}

static void the_file_that_a_link_would_name_is_made(void **state)
{
    (void)state;
    assert_int_equal(symlink("a", in("link")), 0);
    assert_int_equal(write_too_much(in("link")), -1);
    assert_int_equal(entries(), 1);
    assert_int_equal(write_text(in("link"), "made"), 0);
    assert_true(is_link(in("link")));
    holds(in("a"), "made");
}

static void links_in_a_circle_are_refused(void **state)
{
    (void)state;
    assert_int_equal(symlink("second", in("first")), 0);
    assert_int_equal(symlink("first", in("second")), 0);
    fail_capture(said, sizeof said);
    assert_int_equal(write_text(in("first"), "x"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "/first: Too many levels of symbolic links"));
    assert_true(is_link(in("first")) && is_link(in("second")));
    assert_int_equal(entries(), 2);
}

static void a_planted_link_is_not_followed(void **state)
{
    (void)state;
    assert_int_equal(write_text(in("victim"), "mine"), 0);
    assert_int_equal(symlink("victim", in("a.tmp")), 0);
    assert_int_equal(symlink("victim", in("a.dpx-tmp")), 0);
    assert_int_equal(write_text(in("a"), "written"), 0);
    holds(in("a"), "written");
    holds(in("victim"), "mine");
    assert_true(is_link(in("a.tmp")) && is_link(in("a.dpx-tmp")));
    assert_int_equal(entries(), 4);
}

static void permissions_stay_those_of_the_old_file(void **state)
{
    (void)state;
    mode_t was = umask(027);
    struct stat st;

    assert_int_equal(write_text(in("a"), "x"), 0);
    assert_int_equal(stat(in("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);          /* 0666 less the mask */
    assert_int_equal(chmod(in("a"), 0604), 0);
    assert_int_equal(write_text(in("a"), "y"), 0);
    assert_int_equal(stat(in("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0604);
    umask(was);
    if (geteuid() == 0) {
        assert_int_equal(chown(in("a"), 12345, 23456), 0);
        assert_int_equal(write_text(in("a"), "z"), 0);
        assert_int_equal(stat(in("a"), &st), 0);
        assert_int_equal(st.st_uid, 12345);
        assert_int_equal(st.st_gid, 23456);
        assert_int_equal(st.st_mode & 0777, 0604);
    }
}

/* A process that a signal ends while it writes. */
static void killed_by(int sig)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct output o;
        if (output_open(&o, in("a")) < 0)
            _exit(0);
        fputs("half", o.f);
        fflush(o.f);
        raise(sig);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sig);
}

static void a_process_that_ends_early_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(write_text(in("a"), "old"), 0);
    killed_by(SIGINT);
    killed_by(SIGTERM);
    killed_by(SIGHUP);
    assert_int_equal(entries(), 1);
    killed_by(SIGKILL);
    holds(in("a"), "old");
    assert_int_equal(write_text(in("a"), "new"), 0);    /* with a name: it takes away what the killed one left */
    holds(in("a"), "new");
    assert_int_equal(entries(), 1);
}

static void two_at_once_do_not_disturb_each_other(void **state)
{
    (void)state;
    struct output first, second;

    assert_int_equal(output_open(&first, in("a")), 0);
    assert_int_equal(output_open(&second, in("a")), 0);
    fputs("first", first.f);
    fputs("second", second.f);
    assert_int_equal(output_close(&second), 0);
    holds(in("a"), "second");
    assert_int_equal(output_close(&first), 0);
    holds(in("a"), "first");
    assert_int_equal(entries(), 1);
}

/* Renaming onto a device would replace it, which root may. */
static void a_device_stays_a_device(void **state)
{
    (void)state;
    struct stat st;

    assert_int_equal(symlink("/dev/full", in("full")), 0);
    assert_int_equal(write_text("/dev/null", "gone"), 0);
    fail_capture(said, sizeof said);
    assert_int_equal(write_text("/dev/full", "no room"), -1);
    assert_non_null(strstr(said, "/dev/full: No space left"));
    assert_int_equal(write_text(in("full"), "no room"), -1);
    assert_non_null(strstr(said, "/full: No space left"));
    fail_capture(NULL, 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_true(is_link(in("full")));
}

static void a_pipe_gets_the_text(void **state)
{
    (void)state;
    char got[16] = "";

    assert_int_equal(mkfifo(in("pipe"), 0600), 0);
    int fd = open(in("pipe"), O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(write_text(in("pipe"), "piped"), 0);
    assert_int_equal(read(fd, got, sizeof got - 1), 5);
    assert_string_equal(got, "piped");
    close(fd);
}

/* A shell's `>file`: the file that is open is written, not another one in its place. */
static void standard_output_is_written_as_it_is(void **state)
{
    (void)state;
    struct stat before, after;
    int fd = open(in("out"), O_WRONLY | O_CREAT, 0600), was;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &before), 0);
    fflush(stdout);
    was = dup(STDOUT_FILENO);
    dup2(fd, STDOUT_FILENO);
    int rc = write_text("/dev/stdout", "said");
    dup2(was, STDOUT_FILENO);
    close(was);
    close(fd);
    assert_int_equal(rc, 0);
    holds(in("out"), "said");
    assert_int_equal(stat(in("out"), &after), 0);
    assert_true(after.st_ino == before.st_ino);
}

static int begin(void **state)
{
    (void)state;
    char fresh[] = "/tmp/dpx-output-XXXXXX";

    if (!mkdtemp(fresh))
        return -1;
    memcpy(folder, fresh, sizeof folder);
    output_named(false);
    return 0;
}

static int begin_named(void **state)
{
    int rc = begin(state);

    output_named(true);
    return rc;
}

static int end(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlink(in(e->d_name));
    if (d)
        closedir(d);
    return rmdir(folder);
}

/* Each as it is, and as on a file system that has no files without a name. */
#define BOTH(test) \
    { #test, test, begin, end, NULL }, { #test ", with a name", test, begin_named, end, NULL }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_whole_file_takes_the_old_ones_place),
        BOTH(one_given_up_leaves_the_old_one),
        BOTH(a_check_finds_what_cannot_be_written),
        BOTH(a_symbolic_link_stays_one),
        BOTH(a_full_disk_keeps_the_file_behind_a_link),
        BOTH(the_file_that_a_link_would_name_is_made),
        BOTH(links_in_a_circle_are_refused),
        BOTH(a_planted_link_is_not_followed),
        BOTH(permissions_stay_those_of_the_old_file),
        BOTH(a_process_that_ends_early_leaves_nothing),
        BOTH(two_at_once_do_not_disturb_each_other),
        BOTH(a_device_stays_a_device),
        BOTH(a_pipe_gets_the_text),
        BOTH(standard_output_is_written_as_it_is),
    };
    return cmocka_run_group_tests_name("model/output", tests, NULL, NULL);
}
