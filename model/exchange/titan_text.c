/* titan_text.c -- see titan_text.h. */
#include "model/exchange/titan_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/toml.h"

struct reader { const char *at, *where; int line; bool shell; };

static json_t *bad(const struct reader *r, const char *what)
{
    fail("%s:%d: expected %s", r->where, r->line, what);
    return NULL;
}

/* ---- words ---- */

/* A shell's line that goes on: the blanks of its end; 0: it does not. */
static size_t goes_on(const struct reader *r)
{
    return !r->shell || *r->at != '\\' ? 0 : r->at[1] == '\n' ? 1 : r->at[1] == '\r' && r->at[2] == '\n' ? 2 : 0;
}

/* Blanks and comments; with `lines` ends of lines too. */
static void skip(struct reader *r, bool lines)
{
    for (;; r->at++) {
        if (goes_on(r)) {
            r->at += goes_on(r);
            r->line++;
            continue;
        }
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        if (*r->at == '\n' && lines)
            r->line++;
        else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r')
            return;
    }
}

/* ---- options ---- */

static json_t *quoted(struct reader *r)
{
    char quote = *r->at++, text[1024];
    size_t n = 0;

    while (*r->at && *r->at != quote && *r->at != '\n' && n + 1 < sizeof text) {
        if (*r->at == '\\' && quote == '"' && r->at[1] && r->at[1] != '\n') {
            r->at++;
            text[n++] = *r->at == 'n' ? '\n' : *r->at == 't' ? '\t' : *r->at;
            r->at++;
        } else {
            text[n++] = *r->at++;
        }
    }
    if (*r->at != quote)
        return bad(r, "the end of a string on its line");
    r->at++;
    json_t *s = json_stringn(text, n);
    return s ? s : bad(r, "a string in UTF-8");
}

/* The object of a path "a.b" below `top`, made where it is not there; NULL: not UTF-8, or a value stands there. */
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

static size_t word(const char *s) { return strcspn(s, " \t\r\n"); }

/* What a shell does with the output, or next. */
static bool ends_command(const char *at) { return strchr("|>&;", *at) || (strchr("12", *at) && at[1] == '>'); }

/* An option's value, in a shell's quotes where it has them. */
static json_t *option_value(struct reader *r)
{
    if (*r->at == '"' || *r->at == '\'')
        return quoted(r);
    size_t n = word(r->at);
    json_t *v = toml_word(r->at, n);
    r->at += n;
    return v;
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
    const char *name = r->at + 2, *dot = name;
    size_t n = strcspn(name, "= \t\r\n");
    char key[128], path[256];

    if (n >= sizeof path)
        return bad(r, "--section.key"), -1;
    for (const char *c = name; c < name + n; c++)
        dot = *c == '.' ? c + 1 : dot;
    snprintf(path, sizeof path, "%.*s", dot > name ? (int)(dot - 1 - name) : 0, name);
    underscores(path);
    json_t *section = below(all, *path ? path : "\1", strlen(path));
    bool denied = !strncmp(dot, "no-", 3);
    size_t len = (size_t)(name + n - dot) - (denied ? 3 : 0);
    if (!section || len == 0 || len >= sizeof key)
        return bad(r, "--section.key"), -1;
    snprintf(key, sizeof key, "%.*s", (int)len, dot + (denied ? 3 : 0));
    underscores(key);
    r->at = name + n;
    bool given = *r->at == '=';
    if (given)
        r->at++;
    else
        skip(r, true);
    n = word(r->at);
    bool flag = !given && (n == 0 || !strncmp(r->at, "--", 2) || memchr(r->at, ':', n) || ends_command(r->at));
    if (denied && given)
        return bad(r, "--section.no-key without a value"), -1;
    json_t *v = denied ? json_false() : flag ? json_true() : option_value(r);
    if (!v)
        return -1;
    if (json_object_set_new(section, key, v) < 0)
        return bad(r, "--section.key in UTF-8"), -1;
    return 0;
}

static int subcommand(struct reader *r, json_t *all)
{
    size_t n = word(r->at);
    const char *colon = memchr(r->at, ':', n);
    char name[128];

    if (!colon || colon - r->at >= (int)sizeof name)
        return bad(r, "--section.key VALUE, or name:choice"), -1;
    snprintf(name, sizeof name, "%.*s", (int)(colon - r->at), r->at);
    underscores(name);
    json_t *section = below(all, name, strlen(name));
    if (!section || json_object_set_new(section, "mode", json_stringn(colon + 1, (size_t)(r->at + n - colon - 1))) < 0)
        return bad(r, "name:choice in UTF-8"), -1;
    r->at += n;
    return 0;
}

/* ---- commands ---- */

/* Does the word start torchtitan: ./run_train.sh, -m torchtitan.train, torchtitan/train.py? */
static bool launches(const char *at, size_t n)
{
    static const char *const what[] = { "run_train.sh", "torchtitan.train", "torchtitan/train.py" };

    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        size_t m = strlen(what[i]);
        if (n >= m && !memcmp(at + n - m, what[i], m))
            return true;
    }
    return false;
}

/* run_train.sh's variables: CONFIG_FILE up to 0.2, MODULE and CONFIG since. */
static void variable(const struct reader *r, size_t n, json_t *all)
{
    static const struct { const char *name, *section, *key; } of[] = {
        { "CONFIG_FILE=", "job", "config_file" }, { "MODULE=", "", "module" }, { "CONFIG=", "", "config" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        size_t m = strlen(of[i].name);
        const char *from = r->at + m, *to = r->at + n;
        if (n <= m || strncmp(r->at, of[i].name, m))
            continue;
        from += strchr("\"'", *from) != NULL;
        to -= to > from && strchr("\"'", to[-1]) != NULL;
        json_object_set_new(below(all, of[i].section, strlen(of[i].section)), of[i].key, json_stringn(from, (size_t)(to - from)));
    }
}

/* Goes to the options of a command that starts torchtitan; false: the text is none, and nothing was read. */
static bool command(struct reader *r, json_t *all)
{
    struct reader at = *r;
    bool starts = false;

    at.shell = true;
    skip(&at, true);
    if (!strncmp(at.at, "--", 2))                   /* options alone */
        return false;
    for (size_t n; *at.at && *at.at != '[' && !starts; skip(&at, true)) {       /* a section: TOML */
        n = word(at.at);
        starts = launches(at.at, n);
        at.at += n;
    }
    if (!starts)
        return false;
    r->shell = true;
    for (skip(r, true); r->at < at.at; skip(r, true)) {
        size_t n = word(r->at);
        variable(r, n, all);
        r->at += n;
    }
    return true;
}

json_t *titan_text(const char *text, const char *where)
{
    struct reader r = { .at = text, .where = where, .line = 1 };
    json_t *all = json_object();
    bool options = command(&r, all);
    int rc = 0;

    r.shell = true;
    if (!options)
        skip(&r, true);
    if (!options && strncmp(r.at, "--", 2)) {
        json_decref(all);
        return toml_read(text, where);
    }
    for (skip(&r, true); *r.at && rc == 0 && !ends_command(r.at); skip(&r, true))
        rc = !strncmp(r.at, "--", 2) ? option(&r, all) : subcommand(&r, all);
    if (rc == 0)
        return all;
    json_decref(all);
    return NULL;
}
