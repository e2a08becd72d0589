/* kept.c -- where the fits that come with dpx lie; each file is read once. */
#define _GNU_SOURCE             /* dladdr() */
#include "calib/store/kept.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/room.h"
#include "calib/store/kept_file.h"

/* The file that this code is in: of a library its own, of a program the one that runs. */
static bool own_file(char *to, size_t size)
{
    Dl_info in;
    char real[PATH_MAX];
    const char *name = dladdr(&kept_find, &in) && in.dli_fname ? strrchr(in.dli_fname, '/') : NULL;
    ssize_t n;

    if (name && !strncmp(name, "/libdpx.so", 10))
        return realpath(in.dli_fname, real) && snprintf(to, size, "%s", real) < (int)size;
    n = readlink("/proc/self/exe", to, size - 1);
    if (n > 0)
        to[n] = '\0';
    return n > 0;
}

/* Its folder: PREFIX/bin, PREFIX/lib, or a build folder in the tree. */
static bool own_folder(char *to, size_t size)
{
    char *slash;

    if (!own_file(to, size))
        return false;
    slash = strrchr(to, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

static bool is_there(char *path, size_t size, const char *folder, const char *below, const char *gpu, const char *ending)
{
    return snprintf(path, size, "%s%s/%s.%s", folder, below, gpu, ending) < (int)size && access(path, R_OK) == 0;
}

/* A folder that the user names; exports, which hold samples, were read from there once. */
static bool is_in_named(char *path, size_t size, const char *folder, const char *gpu)
{
    if (is_there(path, size, folder, "", gpu, "fits"))
        return true;
    if (is_there(path, size, folder, "", gpu, "json"))
        notes_say_once("warning: %s is not used: DPX_MEASURED is a folder of fits; `dpxcal fit %s %s/%s.fits` makes them of an export",
                       path, path, folder, gpu);
    return false;
}

/* A program of ours that was copied without what is installed beside it would answer from datasheets, as if it knew no better. */
static void say_if_lost(const char *const below[], size_t n)
{
    char file[4096], path[4200];
    const char *name = own_file(file, sizeof file) ? strrchr(file, '/') : NULL;

    if (!name || (strncmp(name, "/dpx", 4) && strncmp(name, "/libdpx", 7)))
        return;
    file[name - file] = '\0';
    for (size_t i = 0; i < n; i++)
        if (snprintf(path, sizeof path, "%s%s", file, below[i]) < (int)sizeof path && access(path, R_OK) == 0)
            return;
    notes_say_once("warning: %s lies without share/dpx/measured: times of dpx's own kernels rest on datasheets", file);
}

bool kept_find(const char *gpu, char *path, size_t size)
{
    static const char *const below[] = { "/../share/dpx/measured", "/../../share/dpx/measured", "/../calib/measured" };
    const char *named = getenv("DPX_MEASURED");
    char folder[4096];

    if (!gpu[0] || strchr(gpu, '/'))
        return false;
    if (named && named[0])
        return is_in_named(path, size, named, gpu);
    for (size_t i = 0; i < sizeof below / sizeof *below && own_folder(folder, sizeof folder); i++)
        if (is_there(path, size, folder, below[i], gpu, "fits"))
            return true;
    say_if_lost(below, sizeof below / sizeof *below);
    return false;
}

/* ---- read once ---- */

/* Files that were read, the newest first.  None is ever freed: the arrays of its fits are in use. */
struct kept_file {
    struct kept_file *next;
    char   *path;
    struct stat as;                     /* it was, when it was read */
    struct kept_fits fits;
};
static struct kept_file *kept_files;
static pthread_mutex_t   kept_lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* NULL reported. */
static const struct kept_fits *fits_of(const char *path)
{
    struct stat now = { 0 };
    struct kept_file *f = kept_files;

    if (stat(path, &now) < 0)
        return fail("%s: %s", path, strerror(errno)), NULL;
    while (f && (strcmp(f->path, path) || !same_file(&f->as, &now)))
        f = f->next;
    if (f)
        return &f->fits;
    f = room_new(1, sizeof *f);
    f->path = strdup(path);
    f->as = now;
    f->next = kept_files;
    if (!f->path || kept_load(path, &f->fits) < 0) {
        free(f->path);
        free(f);
        return NULL;
    }
    kept_files = f;
    return &f->fits;
}

int kept_read(const char *gpu, const char *path, enum dtype precision, struct measured_device *out)
{
    const struct kept_fits *fits;
    int found = 0;

    pthread_mutex_lock(&kept_lock);
    fits = fits_of(path);
    for (int i = 0; fits && i < fits->n && !found; i++)
        if (fits->of[i].precision == precision) {
            *out = fits->of[i];
            out->store = NULL;          /* which stays ours */
            found = 1;
        }
    pthread_mutex_unlock(&kept_lock);
    if (found && strcmp(out->device, gpu))
        return fail("%s: is of %s, not of %s", path, out->device, gpu);
    return fits ? found : -1;
}
