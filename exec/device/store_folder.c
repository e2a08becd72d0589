/* store_folder.c -- folders of stores: made and locked, removed with their files, also those of runs that crashed.
 *
 * A lock (flock) on a rank's folder lives as long as its process.  The folder above is locked while one is made or looked
 * for: none is seen between mkdtemp() and its lock. */
#define _GNU_SOURCE                 /* O_DIRECTORY, mkdtemp */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "exec/device/store.h"

#define PREFIX "dpx-rank"

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

/* A folder of this user whose lock is free: nobody has it any more.  Whether somebody has. */
static bool sweep_one(int above, const char *name)
{
    int fd = openat(above, name, FOLDER);
    struct stat st;
    bool locked = false;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid()) {
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
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0)
            locked += sweep_one(above, e->d_name);
    if (d)
        closedir(d);
    else if (copy >= 0)
        close(copy);
    return locked;
}

int store_sweep(const char *folder)
{
    int above = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), locked = 0;

    if (above < 0)
        return 0;
    if (flock(above, LOCK_EX) == 0)
        locked = sweep(above);
    close(above);
    return locked;
}

/* A file system without locks has no sweep either: a folder is removed only by whoever got its lock. */
static int make(const char *folder, int rank, char *path, int size)
{
    int n = snprintf(path, (size_t)size, "%s/%s%d-XXXXXX", folder, PREFIX, rank), fd;

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
    return fd;
}

int store_folder_make(const char *folder, int rank, char *path, int size)
{
    int above = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

    if (above < 0)
        return fail("%s: no files can be made in it: %s", folder, strerror(errno));
    flock(above, LOCK_EX);
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
