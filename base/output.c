/* output.c -- a file is written beside its place and renamed over it when it is whole. */
#define _GNU_SOURCE             /* O_TMPFILE */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

static bool always_named;

void output_named(bool named) { always_named = named; }

/* ---- what has a name before it is whole ---- */

enum { AT_ONCE = 4 };
static const char *volatile pending[AT_ONCE];
static const int ending[] = { SIGINT, SIGTERM, SIGHUP };
enum { NENDING = sizeof ending / sizeof *ending };

void output_abandon_all(void)
{
    for (int i = 0; i < AT_ONCE; i++)
        if (pending[i])
            unlink(pending[i]);
}

static void on_end(int sig)
{
    output_abandon_all();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Handlers that a program has of its own stay: it calls output_abandon_all(). */
static void remember(const char *beside)
{
    int i = 0;

    while (i < AT_ONCE && pending[i])
        i++;
    if (i == AT_ONCE)
        return;
    pending[i] = beside;
    for (int k = 0; k < NENDING; k++) {
        struct sigaction now, ours = { .sa_handler = on_end };
        if (sigaction(ending[k], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(ending[k], &ours, NULL);
    }
}

static void forget(const char *beside)
{
    bool any = false;

    for (int i = 0; i < AT_ONCE; i++) {
        if (pending[i] == beside)
            pending[i] = NULL;
        any = any || pending[i];
    }
    for (int k = 0; k < NENDING && !any; k++) {
        struct sigaction now;
        if (sigaction(ending[k], NULL, &now) == 0 && now.sa_handler == on_end)
            signal(ending[k], SIG_DFL);
    }
}

/* ---- where it goes ---- */

/* What took hours to measure is not written over by a mistyped word. */
static bool holds_a_database(const char *path)
{
    static const char magic[] = "SQLite format 3";      /* with its end: 16 bytes */
    char head[sizeof magic] = { 0 };
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    bool is = f && fread(head, sizeof head, 1, f) == 1 && memcmp(head, magic, sizeof magic) == 0;

    if (f)
        fclose(f);
    return is;
}

/* One link followed in `path`; -1 with errno. */
static int follow(char *path, size_t size)
{
    char to[4096];
    ssize_t n = readlink(path, to, sizeof to - 1);
    char *slash = strrchr(path, '/');
    size_t folder = slash && to[0] != '/' ? (size_t)(slash + 1 - path) : 0;

    if (n < 0)
        return -1;
    to[n] = '\0';
    if (folder + (size_t)n >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path + folder, to, (size_t)n + 1);
    return 0;
}

/* The name to replace, its links followed, into o->target; empty for what is written as it is.  A link
 * of /proc (/dev/stdout is one) names an open file, which others write to as well. */
static int find_target(struct output *o)
{
    enum { MOST_LINKS = 40 };                   /* as Linux follows */
    struct stat st, proc;
    bool has_proc = stat("/proc", &proc) == 0;

    if (snprintf(o->target, sizeof o->target, "%s", o->path) >= (int)sizeof o->target)
        return fail("%s: the name is too long", o->path);
    for (int links = 0; lstat(o->target, &st) == 0 && S_ISLNK(st.st_mode); links++) {
        if (has_proc && st.st_dev == proc.st_dev) {
            o->target[0] = '\0';
            return 0;
        }
        if (links == MOST_LINKS)
            errno = ELOOP;
        if (links == MOST_LINKS || follow(o->target, sizeof o->target) < 0)
            return fail("%s: %s", o->path, strerror(errno));
    }
    if (stat(o->target, &st) == 0 && !S_ISREG(st.st_mode))
        o->target[0] = '\0';
    return 0;
}

/* ---- where it lies until then ---- */

/* Left by a killed process: our file, and its lock is free. */
static bool remove_stale(const char *beside)
{
    struct stat st;
    int fd = open(beside, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool stale = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()
        && flock(fd, LOCK_EX | LOCK_NB) == 0;

    if (fd >= 0)
        close(fd);
    return stale && unlink(beside) == 0;
}

/* Gives o->beside a name that is free: takes one with `make`, which returns -1 with EEXIST where it is not. */
static int take_name(struct output *o, int (*make)(const char *name, int fd), int fd)
{
    enum { NAMES = 100 };
    int rc = -1;

    for (int k = 0; k < NAMES; k++) {
        snprintf(o->beside, sizeof o->beside, k ? "%s.dpx-tmp%d" : "%s.dpx-tmp", o->target, k);
        rc = make(o->beside, fd);
        bool taken = rc < 0 && errno == EEXIST;
        if (taken && remove_stale(o->beside)) {
            rc = make(o->beside, fd);
            taken = rc < 0 && errno == EEXIST;
        }
        if (!taken)
            break;
    }
    if (rc < 0)
        o->beside[0] = '\0';
    return rc;
}

static int create(const char *name, int fd)
{
    (void)fd;
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

static int give_name(const char *name, int fd)
{
    char self[32];

    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

static int open_nameless(const struct output *o)
{
    char folder[sizeof o->target];
    char *slash;

    if (always_named || access("/proc/self/fd", X_OK) < 0)
        return -1;
    snprintf(folder, sizeof folder, "%s", o->target);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    return open(slash ? folder : ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
}

static int open_beside(struct output *o)
{
    int fd = open_nameless(o);

    if (fd >= 0)
        return fd;
    fd = take_name(o, create, -1);
    if (fd >= 0) {
        flock(fd, LOCK_EX | LOCK_NB);           /* goes with the process: then it is stale */
        remember(o->beside);
    }
    return fd;
}

/* As what it replaces. */
static void take_after(const struct output *o, int fd)
{
    struct stat old, new;

    if (stat(o->target, &old) < 0 || fstat(fd, &new) < 0)
        return;
    bool same = old.st_uid == new.st_uid && old.st_gid == new.st_gid;
    if (!same && fchown(fd, old.st_uid, old.st_gid) < 0 && old.st_gid != new.st_gid
        && fchown(fd, (uid_t)-1, old.st_gid) < 0)
        old.st_mode &= ~(mode_t)070;            /* another group: it gets no more than others */
    fchmod(fd, old.st_mode & 0777);
}

/* ---- together ---- */

int output_open(struct output *o, const char *path)
{
    struct sigaction now;
    int fd;

    o->path = path;
    o->beside[0] = '\0';
    if (holds_a_database(path))
        return fail("%s: is an SQLite database, and is not written over: give another name, or remove it first", path);
    if (find_target(o) < 0)
        return -1;
    /* A file that grows beyond `ulimit -f` is an error like a full disk. */
    if (sigaction(SIGXFSZ, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGXFSZ, SIG_IGN);
    fd = o->target[0] ? open_beside(o) : open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0 && o->target[0])
        take_after(o, fd);
    o->f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (o->f)
        return 0;
    fail("%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

int output_check(const char *path)
{
    struct output o = { .path = path };
    struct stat st;

    if (find_target(&o) < 0)
        return -1;
    if (!o.target[0]) {                 /* a pipe that is opened and closed has ended */
        bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        return folder ? fail("%s: %s", path, strerror(EISDIR)) : access(path, W_OK) < 0 ? fail("%s: %s", path, strerror(errno)) : 0;
    }
    if (output_open(&o, path) < 0)
        return -1;
    output_discard(&o);
    return 0;
}

int output_close(struct output *o)
{
    bool bad = fflush(o->f) != 0 || ferror(o->f);
    int why = errno;

    if (!bad && o->target[0] && !o->beside[0] && take_name(o, give_name, fileno(o->f)) < 0) {
        bad = true;
        why = errno;
    }
    if (fclose(o->f) != 0 && !bad) {
        bad = true;
        why = errno;
    }
    if (!bad && o->target[0] && rename(o->beside, o->target) < 0) {
        bad = true;
        why = errno;
    }
    if (bad && o->beside[0])
        unlink(o->beside);
    forget(o->beside);
    return bad ? fail("%s: %s", o->path, strerror(why)) : 0;
}

void output_discard(struct output *o)
{
    fclose(o->f);
    if (o->beside[0])
        unlink(o->beside);
    forget(o->beside);
}
