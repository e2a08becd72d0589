/* input.c -- a file that the user named is opened without waiting for whoever writes a FIFO. */
#include "base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

/* A file that the parent process opened for this program. */
static bool is_handed_over(const char *path)
{
    return !strcmp(path, "/dev/stdin") || !strcmp(path, "/dev/tty") || !strncmp(path, "/dev/fd/", 8) ||
           !strncmp(path, "/proc/self/fd/", 14);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* The stream of this thread's requests; of none: no kind of file. */
static _Thread_local struct stat own;

void input_own(int fd)
{
    if (fstat(fd, &own) < 0)
        own.st_mode = 0;
}

static bool is_own(const struct stat *st) { return own.st_mode && st->st_dev == own.st_dev && st->st_ino == own.st_ino; }

static int check(const char *path, const struct stat *st, bool stream)
{
    if (is_own(st))
        return fail("%s: requests are read from it; give the document itself", path);
    if (S_ISREG(st->st_mode) || (stream && !S_ISDIR(st->st_mode) && is_handed_over(path)))
        return 0;
    return fail("%s: is %s, not a regular file", path, kind_of(st->st_mode));
}

/* O_NONBLOCK: the name may stand for a FIFO between stat() and open().  It is taken off again, for a read must
 * wait for what a pipe is to bring. */
static int open_for(const char *path, bool stream, struct stat *st)
{
    int fd, flags;

    if (stat(path, st) < 0)
        return fail("%s: %s", path, strerror(errno));
    if (check(path, st, stream) < 0)
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail("%s: %s", path, strerror(errno));
    if (fstat(fd, st) < 0 || (flags = fcntl(fd, F_GETFL)) < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        fail("%s: %s", path, strerror(errno));
    else if (check(path, st, stream) == 0)
        return fd;
    close(fd);
    return -1;
}

int input_stream(const char *path)
{
    struct stat st;

    return open_for(path, true, &st);
}

FILE *input_open(const char *path)
{
    int fd = input_stream(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

    if (fd >= 0 && !f) {
        fail("%s: %s", path, strerror(errno));
        close(fd);
    }
    return f;
}

/* What is left of it, at most `most` + 1 bytes, with a NUL behind; NULL: no memory. */
static char *rest_of(FILE *f, size_t most, size_t *size)
{
    size_t room = 1 << 16, n = 0, got;
    char *text = malloc(room), *more;

    while (text && n <= most && (got = fread(text + n, 1, room - n - 1, f)) > 0) {
        n += got;
        if (n < room - 1)
            continue;
        if (!(more = realloc(text, room *= 2)))
            free(text);
        text = more;
    }
    if (text)
        text[n] = '\0';
    *size = n;
    return text;
}

char *input_text(const char *path, size_t most, size_t *size)
{
    FILE *f = input_open(strcmp(path, "-") ? path : "/dev/stdin");
    size_t n = 0;
    char *text = f ? rest_of(f, most, &n) : NULL;

    if (!f)
        return NULL;
    if (!text || ferror(f))
        fail("%s: cannot be read: %s", path, strerror(text ? errno : ENOMEM));
    else if (n > most)
        fail("%s: expected text of at most %zu MiB", path, most >> 20);
    else if (memchr(text, '\0', n))
        fail("%s: expected text in UTF-8: it has bytes of zero", path);
    else {
        fclose(f);
        if (size)
            *size = n;
        return text;
    }
    fclose(f);
    free(text);
    return NULL;
}

int input_file(const char *path, int64_t *size)
{
    struct stat st;
    int fd = open_for(path, false, &st);

    if (fd >= 0 && size)
        *size = (int64_t)st.st_size;
    return fd;
}
