/* hf_cache.c -- the config.json of a model that the Hugging Face hub's client has fetched to this machine.
 *
 * huggingface_hub keeps "org/name" in models--org--name/, below HF_HUB_CACHE (before: HUGGINGFACE_HUB_CACHE), else HF_HOME/hub, else
 * ~/.cache/huggingface/hub; refs/main names the newest snapshot. */
#include "model/arch/builtin.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void folder(char *out, size_t size)
{
    static const struct { const char *variable, *below; } places[] = {
        { "HF_HUB_CACHE", "" }, { "HUGGINGFACE_HUB_CACHE", "" }, { "HF_HOME", "/hub" }, { "XDG_CACHE_HOME", "/huggingface/hub" }, { "HOME", "/.cache/huggingface/hub" },
    };
    const char *user = getenv("HOME");

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *at = getenv(places[i].variable);
        bool below_home = at && at[0] == '~' && (!at[1] || at[1] == '/');       /* a "~" that no shell expanded: huggingface_hub does */

        snprintf(out, size, "%s%s%s", below_home && user ? user : "", at ? at + below_home : "", places[i].below);
        if (at && *at)
            return;
    }
}

/* A revision is 40 hex digits. */
static bool read_revision(const char *path, char revision[64])
{
    FILE *f = fopen(path, "r");
    bool good = f && fscanf(f, "%63[0-9a-f]", revision) == 1 && strlen(revision) == 40;

    if (f)
        fclose(f);
    return good;
}

static bool is_id(const char *id)
{
    const char *slash = strchr(id, '/');

    return slash && slash > id && slash[1] && !strchr(slash + 1, '/') && !strstr(id, "..") && strlen(id) < 128;
}

/* The one snapshot that is there, of a model fetched by its revision, which leaves no refs/main. */
static bool only_snapshot(const char *folder_of, char *path, size_t size)
{
    char name[1400];
    int n = 0;

    snprintf(name, sizeof name, "%s/snapshots", folder_of);
    DIR *d = opendir(name);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, size, "%.1150s/snapshots/%.200s/config.json", folder_of, e->d_name);
        n++;
    }
    if (d)
        closedir(d);
    return n == 1 && access(path, R_OK) == 0;
}

bool hf_cache_find(const char *id, char *path, size_t size)
{
    char base[1024], model[160], of[1200], file[1400], revision[64];
    size_t n = 0;

    if (!is_id(id))
        return false;
    for (const char *c = id; *c; c++)
        n += (size_t)snprintf(model + n, sizeof model - n, "%s", *c == '/' ? "--" : (char[]){ *c, '\0' });
    folder(base, sizeof base);
    snprintf(of, sizeof of, "%.900s/models--%s", base, model);
    snprintf(file, sizeof file, "%s/refs/main", of);
    if (!read_revision(file, revision))
        return only_snapshot(of, path, size);
    snprintf(path, size, "%s/snapshots/%s/config.json", of, revision);
    return access(path, R_OK) == 0;
}
