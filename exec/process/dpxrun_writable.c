/* dpxrun_writable.c -- what the run is to write, tried before its first step. */
#include "exec/process/dpxrun.h"

#include <errno.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/arch/training.h"

static int can_write_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fail("%s: is a folder: name the file to be written", path);
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    return access(folder, W_OK) < 0 ? fail("%s: cannot be written: %s: %s", path, folder, strerror(errno)) : 0;
}

/* One that is there, or is made in a folder that is. */
static int can_write_folder(const char *path)
{
    char bare[4096];
    struct stat st;

    if (stat(path, &st) == 0)
        return !S_ISDIR(st.st_mode) ? fail("%s: is a file: adapters are saved into a folder", path)
             : access(path, W_OK) < 0 ? fail("%s: cannot be written: %s", path, strerror(errno)) : 0;
    snprintf(bare, sizeof bare, "%s", path);
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = '\0';
    return can_write_file(bare);
}

int dpxrun_can_write(const struct dpxrun *r)
{
    const struct options *o = &r->o;
    bool lora = training_is_lora(&r->plan.train);

    if (o->save && (lora ? can_write_folder : can_write_file)(o->save) < 0)
        return -1;
    if (o->adapters && !lora)
        return fail("--adapters: the plan trains none: \"train\" is not \"lora\"");
    if (scalars_check(r) < 0)
        return -1;
    return (o->save_grads && can_write_file(o->save_grads) < 0) || (o->trace && can_write_file(o->trace) < 0) ? -1 : 0;
}
