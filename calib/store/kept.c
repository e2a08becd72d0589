/* kept.c -- where the calibrations that come with dpx lie, and each as a database in memory. */
#define _GNU_SOURCE             /* dladdr() */
#include "calib/store/kept.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calib/store/portable.h"

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

static bool is_there(char *path, size_t size, const char *folder, const char *below, const char *gpu)
{
    return snprintf(path, size, "%s%s/%s.json", folder, below, gpu) < (int)size && access(path, R_OK) == 0;
}

bool kept_find(const char *gpu, char *path, size_t size)
{
    static const char *const below[] = { "/../share/dpx/measured", "/../calib/measured" };
    const char *named = getenv("DPX_MEASURED");
    char folder[4096];

    if (!gpu[0] || strchr(gpu, '/'))
        return false;
    if (named && named[0])
        return is_there(path, size, named, "", gpu);
    for (size_t i = 0; i < sizeof below / sizeof *below && own_folder(folder, sizeof folder); i++)
        if (is_there(path, size, folder, below[i], gpu))
            return true;
    return false;
}

struct db *kept_open(const char *path)
{
    struct db *db = db_open_memory();
    bool refused;
    int known;

    if (!db || portable_import(db, path, &known, &refused) >= 0)
        return db;
    db_close(db);
    return NULL;
}
