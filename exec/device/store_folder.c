/* store_folder.c -- folders of stores: made and locked, removed with their files, also those of runs that crashed.
 *
 * A lock (flock) on a rank's folder lives as long as its process.  The folder above is locked while one is made or looked
 * for: none is seen between mkdtemp() and its lock.  What is removed has a name as mkdtemp() makes it here and holds MARK:
 * the folder above may be one where people keep their own. */
#define _GNU_SOURCE                 /* O_DIRECTORY, mkdtemp */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "exec/device/store.h"

#define PREFIX "dpx-rank"
#define MARK   ".dpx-offload"       /* an empty file, the first in each */

enum { FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW };

static void empty(int fd)
{
    int copy = dup(fd);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;

    for (struct dirent *e; d && (e = readdir(d)); )
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(fd, e->d_name, 0);
    if (d)
        closedir(d);
    else if (copy >= 0)
        close(copy);
}

/* dpx-rank3-a1B2c3 */
static bool is_made_here(const char *name)
{
    const char *p = name + strlen(PREFIX);
    int n = 0;

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !isdigit((unsigned char)*p))
        return false;
    while (isdigit((unsigned char)*p))
        p++;
    if (*p++ != '-')
        return false;
    while (isalnum((unsigned char)p[n]))
        n++;
    return n == 6 && !p[n];
}

/* Whether a folder of this user is in use: its lock is held. */
static bool sweep_one(int above, const char *name)
{
    int fd = openat(above, name, FOLDER);
    struct stat st;
    bool locked = false;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && faccessat(fd, MARK, F_OK, 0) == 0) {
        locked = flock(fd, LOCK_EX | LOCK_NB) < 0;
        if (!locked) {
            empty(fd);
            unlinkat(above, name, AT_REMOVEDIR);
        }
    }
    close(fd);
    return locked;
}

static int sweep(int above)
{
    int copy = dup(above), locked = 0;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;

    for (struct dirent *e; d && (e = readdir(d)); )
        if (is_made_here(e->d_name))
            locked += sweep_one(above, e->d_name);
    if (d)
        closedir(d);
    else if (copy >= 0)
        close(copy);
    return locked;
}

/* Waits that long at most for the lock that another has; a file system without locks is as if it had it. */
static bool lock_within(int fd, double seconds)
{
    const struct timespec pause = { 0, 20000000 };

    for (double waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; waited += .02) {
        if (waited >= seconds)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

int store_sweep(const char *folder)
{
    int above = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), locked = 0;

    if (above < 0)
        return 0;
    if (lock_within(above, 1))
        locked = sweep(above);
    close(above);
    return locked;
}

/* A file system without locks has no sweep either: a folder is removed only under its lock. */
static int make(const char *folder, int rank, char *path, int size)
{
    int n = snprintf(path, (size_t)size, "%s/%s%d-XXXXXX", folder, PREFIX, rank), fd, mark;

    if (n >= size)
        return fail("%s: no files can be made in it: the name is too long", folder);
    if (!mkdtemp(path))
        return fail("%s: no files can be made in it: %s", folder, strerror(errno));
    fd = open(path, FOLDER);
    if (fd < 0) {
        fail("%s: %s", path, strerror(errno));
        rmdir(path);
        return -1;
    }
    flock(fd, LOCK_EX | LOCK_NB);
    if ((mark = openat(fd, MARK, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) >= 0)
        close(mark);
    return fd;
}

int store_folder_make(const char *folder, int rank, char *path, int size)
{
    int above = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

    if (above < 0)
        return fail("%s: no files can be made in it: %s", folder, strerror(errno));
    if (!lock_within(above, 10)) {
        close(above);
        return fail("%s: another program has had a lock on this folder for 10 seconds: wait for it, or give another folder", folder);
    }
    sweep(above);
    fd = make(folder, rank, path, size);
    close(above);
    return fd;
}

void store_folder_remove(int fd, const char *path)
{
    if (fd < 0)
        return;
    empty(fd);
    rmdir(path);
    close(fd);
}
