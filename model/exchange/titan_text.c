/* titan_text.c -- see titan_text.h. */
#include "model/exchange/titan_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/shell.h"
#include "base/toml.h"

struct reader { const json_t *words; size_t at; const char *where; };

static int bad(const struct reader *r, const char *what, const char *word)
{
    return fail("%s: expected %s, not \"%.100s\"", r->where, what, word);
}

/* The word `ahead` of where the reader is; NULL: there is none. */
static const char *word(const struct reader *r, size_t ahead) { return json_string_value(json_array_get(r->words, r->at + ahead)); }

/* ---- options ---- */

/* The object of a path "a.b" below `top`, made where it is not there; NULL: a value stands there. */
static json_t *below(json_t *top, const char *path, size_t n)
{
    for (const char *end = path + n; path < end;) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        size_t len = (size_t)((dot ? dot : end) - path);
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)len, path);
        json_t *next = json_object_get(top, name);
        if (!next && json_object_set_new(top, name, next = json_object()) < 0)
            return NULL;
        if (!json_is_object(next))
            return NULL;
        top = next;
        path += len + (dot != NULL);
    }
    return top;
}

/* What a shell does with the output, or next. */
static bool ends_command(const char *word) { return *word && (strchr("|>&;", *word) || (strchr("12", *word) && word[1] == '>')); }

/* A script's own arguments, "$@" and "${@:2}": whoever runs it gives them. */
static bool is_arguments(const char *word)
{
    size_t dollar = *word == '$', brace = dollar && word[1] == '{';

    return dollar && (word[1 + brace] == '@' || word[1 + brace] == '*');
}

/* tyro takes "activation-checkpoint" and "activation_checkpoint" alike. */
static void underscores(char *name)
{
    for (; *name; name++)
        *name = *name == '-' ? '_' : *name;
}

/* "--parallelism.no-enable-sequence-parallel": section, key and whether it is denied.  "--training.seq_len=8192" as well. */
static int option(struct reader *r, json_t *all)
{
    const char *whole = word(r, 0), *name = whole + 2, *dot = name, *next = word(r, 1);
    size_t n = strcspn(name, "=");
    char key[128], path[256];

    if (n >= sizeof path)
        return bad(r, "--section.key", whole);
    for (const char *c = name; c < name + n; c++)
        dot = *c == '.' ? c + 1 : dot;
    snprintf(path, sizeof path, "%.*s", dot > name ? (int)(dot - 1 - name) : 0, name);
    underscores(path);
    json_t *section = below(all, *path ? path : "\1", strlen(path));
    bool denied = !strncmp(dot, "no-", 3), given = name[n] == '=';
    size_t len = (size_t)(name + n - dot) - (denied ? 3 : 0);
    if (!section || len == 0 || len >= sizeof key)
        return bad(r, "--section.key", whole);
    snprintf(key, sizeof key, "%.*s", (int)len, dot + (denied ? 3 : 0));
    underscores(key);
    if (denied && given)
        return bad(r, "--section.no-key without a value", whole);
    bool flag = !given && (!next || !strncmp(next, "--", 2) || strchr(next, ':') || ends_command(next) || is_arguments(next));
    const char *value = given ? name + n + 1 : next;
    json_object_set_new(section, key, denied ? json_false() : flag ? json_true() : toml_word(value, strlen(value)));
    r->at += given || denied || flag ? 1 : 2;
    return 0;
}

static int subcommand(struct reader *r, json_t *all)
{
    const char *whole = word(r, 0), *colon = strchr(whole, ':');
    char name[128];

    if (!colon || colon - whole >= (int)sizeof name)
        return bad(r, "--section.key VALUE, or name:choice", whole);
    snprintf(name, sizeof name, "%.*s", (int)(colon - whole), whole);
    underscores(name);
    json_t *section = below(all, name, strlen(name));
    if (!section)
        return bad(r, "name:choice", whole);
    json_object_set_new(section, "mode", json_string(colon + 1));
    r->at++;
    return 0;
}

static json_t *options(const json_t *words, size_t from, json_t *all, const char *where)
{
    struct reader r = { words, from, where };
    int rc = 0;

    for (const char *w; rc == 0 && (w = word(&r, 0)) && !ends_command(w);)
        if (is_arguments(w))
            r.at++;
        else
            rc = !strncmp(w, "--", 2) ? option(&r, all) : subcommand(&r, all);
    if (rc == 0)
        return all;
    json_decref(all);
    return NULL;
}

/* ---- commands ---- */

static bool is_run_train(const char *word)
{
    const char *slash = strrchr(word, '/');

    return !strcmp(slash ? slash + 1 : word, "run_train.sh");
}

/* Where the options of a command begin that starts torchtitan: behind ./run_train.sh, -m torchtitan.train, torchtitan/train.py; 0: it is another. */
static size_t starts(const json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *s = json_string_value(json_array_get(words, i)), *before = i > 0 ? json_string_value(json_array_get(words, i - 1)) : "";
        size_t n = strlen(s);
        if (is_run_train(s) || (n >= 8 && !strcmp(s + n - 8, "train.py")) || (!strcmp(before, "-m") && strstr(s, "train")))
            return i + 1;
    }
    return 0;
}

/* run_train.sh's variables: CONFIG_FILE up to 0.2, MODULE and CONFIG since.  Those of a script are in `set`, env's are words before it. */
static void variables(const json_t *set, const json_t *words, size_t program, json_t *all)
{
    static const struct { const char *name, *section, *key; } of[] = {
        { "CONFIG_FILE", "job", "config_file" }, { "MODULE", "", "module" }, { "CONFIG", "", "config" },
    };

    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        const char *value = json_string_value(json_object_get(set, of[k].name));
        size_t n = strlen(of[k].name);
        for (size_t i = 0; i < program; i++) {
            const char *s = json_string_value(json_array_get(words, i));
            if (!strncmp(s, of[k].name, n) && s[n] == '=')
                value = s + n + 1;
        }
        if (value)
            json_object_set_new(below(all, of[k].section, strlen(of[k].section)), of[k].key, json_string(value));
    }
}

/* The last command of a script that starts torchtitan; what the script sets itself is followed. */
static json_t *script(const char *text, const char *where)
{
    struct shell_script s;
    const json_t *words = NULL;
    json_t *all = json_object();

    if (shell_read(text, where, &s) < 0) {
        json_decref(all);
        return NULL;
    }
    for (size_t i = json_array_size(s.commands); i-- > 0 && !words;)
        words = starts(json_array_get(s.commands, i)) ? json_array_get(s.commands, i) : NULL;
    size_t from = starts(words);
    if (!words) {
        fail("%s: no command of it starts torchtitan (run_train.sh, -m torchtitan.train, train.py), and neither is it TOML", where);
        json_decref(all);
        all = NULL;
    } else {
        if (is_run_train(json_string_value(json_array_get(words, from - 1))))
            variables(s.variables, words, from - 1, all);
        all = options(words, from, all, where);
    }
    shell_free(&s);
    return all;
}

/* ---- texts ---- */

/* Does it begin with "[section]" or "key = value"?  A shell's test has a blank behind its bracket, its assignments have none. */
static bool is_toml(const char *at)
{
    size_t bracket = strspn(at, "["), key = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-\"");

    return !*at || (bracket > 0 && !strchr(" \t", at[bracket])) || (key > 0 && at[key] == ' ' && at[key + strspn(at + key, " ")] == '=');
}

/* Behind blanks and comments. */
static const char *first_word(const char *text)
{
    while (*(text += strspn(text, " \t\r\n")) == '#')
        text += strcspn(text, "\n");
    return text;
}

json_t *titan_text(const char *text, const char *where)
{
    const char *at = first_word(text);

    if (is_toml(at))
        return toml_read(text, where);
    if (strncmp(at, "--", 2))
        return script(text, where);
    json_t *words = shell_words(text), *all = words ? options(words, 0, json_object(), where) : NULL;
    if (!words)
        fail("%s: expected options in UTF-8", where);
    json_decref(words);
    return all;
}
