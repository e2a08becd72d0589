/* A model by what the user typed: a built-in name, a file or a folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "model/builtin.h"
#include "model/fail.h"
#include "model/transformer.h"

/* Larger than any config and smaller than any checkpoint given by mistake. */
#define CONFIG_MAX_BYTES (16 << 20)

static int parse_file(const char *path, json_t **config)
{
    json_error_t e;

    *config = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (*config)
        return 0;
    if (e.line < 1)                             /* not parsed at all: errno has the reason */
        return fail("%s: cannot be read: %s", path, errno ? strerror(errno) : e.text);
    for (char *p = e.text; *p; p++)             /* it may quote the file */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    return fail("%s:%d:%d: malformed JSON: %s", path, e.line, e.column, e.text);
}

static int load_file(const char *path, struct model *out)
{
    struct stat st;
    json_t *config;
    int rc;

    if (stat(path, &st) < 0)
        return fail("%s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode) && st.st_size > CONFIG_MAX_BYTES)
        return fail("%s: has %lld bytes, too many for a config.json", path,
                    (long long)st.st_size);
    errno = 0;
    if (parse_file(path, &config) < 0)
        return -1;
    rc = model_from_config(config, path, out);
    json_decref(config);
    return rc;
}

static int load_folder(const char *path, struct model *out)
{
    size_t n = strlen(path), size = n + sizeof "/config.json";
    char *file = malloc(size);
    int rc;

    if (!file)
        return fail("out of memory for %s", path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(file, size, "%.*s/config.json", (int)n, path);
    rc = load_file(file, out);
    free(file);
    return rc;
}

int model_load(const char *spec, struct model *out)
{
    struct stat st;

    if (builtin_exists(spec))
        return builtin_load(spec, out);
    if (stat(spec, &st) < 0)
        return fail("%s: no built-in model of this name (dpxplan list models shows them), and as "
                    "a config.json or a folder with one: %s", spec, strerror(errno));
    return S_ISDIR(st.st_mode) ? load_folder(spec, out) : load_file(spec, out);
}
