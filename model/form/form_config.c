/* form_config.c -- see form_config.h: the config that a command names, with the command's options over it.
 *
 * `--config FILE` and `-c FILE` of trl, litgpt, tune and Automodel's finetune.py; the first word behind the program of
 * llamafactory-cli, axolotl and alignment-handbook's scripts. */
#include "model/form/form_config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

static bool is_config(const char *s) { return ends_with(s, ".yaml") || ends_with(s, ".yml") || ends_with(s, ".toml"); }

static const char *word(const json_t *words, size_t i) { return i < json_array_size(words) ? json_string_value(json_array_get(words, i)) : ""; }

/* A shell's -c has a command behind it, no file: `srun bash -c "torchrun ..."`. */
static bool is_shells(const json_t *words, size_t at)
{
    static const char *const shells[] = { "bash", "sh", "zsh" };

    while (at > 0 && *word(words, at) == '-')
        at--;
    const char *slash = strrchr(word(words, at), '/'), *program = slash ? slash + 1 : word(words, at);
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(program, shells[i]))
            return true;
    return false;
}

static const char *run_by_shell(const json_t *words)
{
    for (size_t i = 1; i < json_array_size(words); i++)
        if (!strcmp(word(words, i), "-c") && is_shells(words, i))
            return word(words, i + 1);
    return NULL;
}

/* Its name, or NULL: the command names none. */
static const char *named(const json_t *words)
{
    bool option = false;

    for (size_t i = 0; i < json_array_size(words); i++)
        if (!strcmp(word(words, i), "--module") || !strncmp(word(words, i), "--module=", 9))     /* torchtitan's: a name of its registry */
            return NULL;
    for (size_t i = 1; i < json_array_size(words); i++) {
        const char *s = word(words, i);
        if (!strncmp(s, "--config=", 9))
            return s + 9;
        if ((!strcmp(s, "--config") || !strcmp(s, "-c")) && *word(words, i + 1))
            return word(words, i + 1);
        if (!option && *s != '-' && !strchr(s, '=') && is_config(s))        /* a hydra word, x=y.yaml, is a key's value */
            return s;
        option = !strncmp(s, "--", 2) && !strchr(s, '=');
    }
    return NULL;
}

int form_follow(struct form_file *f)
{
    const char *name = named(f->words), *run = run_by_shell(f->words);
    char path[512];

    if (run)
        return fail("%s: what a shell runs (-c \"%.60s%s\") is not read: give that command itself, or a script that has it", f->path, run, strlen(run) > 60 ? " ..." : "");

    if (!name)
        return 0;
    files_find_above(f->path, name, path, sizeof path);
    if (access(path, R_OK) != 0)
        return fail("%s: the command's config, %.200s, is not here: give that file, or put it beside the script", f->path, name);
    struct form_file own;
    if (form_open(path, &own) < 0)
        return -1;
    json_t *doc = json_incref(own.doc);
    form_close(&own);
    json_object_del(f->doc, "config");
    json_object_update_recursive(doc, f->doc);
    json_decref(f->doc);
    f->doc = doc;
    notes_say("dpx: %s: note: the command's config is read, %s, with its options over it", f->path, path);
    return 0;
}
