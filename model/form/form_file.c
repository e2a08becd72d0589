/* form_file.c -- see form.h: a file is JSON, YAML, TOML or a command, by its name or else by its text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/yaml.h"
#include "model/exchange/titan_text.h"
#include "model/form/form.h"

enum { LARGEST = 16 << 20 };

/* The whole of it, with a NUL behind; NULL reported. */
static char *read_text(const char *path)
{
    FILE *f = input_open(strcmp(path, "-") ? path : "/dev/stdin");
    size_t room = 1 << 16, n = 0;
    char *text = f ? malloc(room) : NULL, *more;

    if (!f)
        return NULL;
    while (text && (n += fread(text + n, 1, room - n - 1, f)) == room - 1 && n < LARGEST) {
        more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    bool bad = !text || ferror(f), good = !bad && n < LARGEST && !memchr(text, '\0', n);
    fclose(f);
    if (good) {
        text[n] = '\0';
        return text;
    }
    fail(bad ? "%s: cannot be read" : "%s: expected text of less than 16 MiB", path);
    free(text);
    return NULL;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

/* The first line that says something. */
static const char *first_word(const char *text)
{
    for (;; text += strcspn(text, "\n")) {
        text += strspn(text, " \t\r\n");
        if (*text != '#')
            return text;
    }
}

/* "[section]" alone on its line, and nothing after it that YAML would take for a list. */
static bool is_section(const char *at)
{
    size_t n = strcspn(at, "\n");
    const char *close = memchr(at, ']', n);

    if (*at != '[' || !close)
        return false;
    close += close[1] == ']' ? 2 : 1;
    close += strspn(close, " \t\r");
    return *close == '\n' || *close == '\0' || *close == '#';
}

/* `key = value`, which no YAML mapping has. */
static bool is_assignment(const char *at)
{
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && !strncmp(at + n + strspn(at + n, " "), "= ", 2);
}

static enum form_text kind_of(const char *path, const char *text)
{
    const char *at = first_word(text);

    if (ends_with(path, ".toml"))
        return FORM_TOML;
    if (ends_with(path, ".sh") || ends_with(path, ".slurm") || ends_with(path, ".sbatch") || !strncmp(text, "#!", 2))
        return FORM_COMMAND;
    if (ends_with(path, ".yaml") || ends_with(path, ".yml"))
        return FORM_YAML;
    if (*at == '{')
        return FORM_JSON;
    if (is_section(at) || is_assignment(at))
        return FORM_TOML;
    size_t word = strcspn(at, " \t\r\n");
    return word > 0 && (at[word - 1] == ':' || *at == '-' || !strncmp(at, "? ", 2)) && strncmp(at, "--", 2) ? FORM_YAML : FORM_COMMAND;
}

static json_t *document(const struct form_file *f)
{
    json_error_t e;
    json_t *doc;

    switch (f->kind) {
    case FORM_JSON:
        doc = json_loads(f->text, JSON_REJECT_DUPLICATES, &e);
        if (!doc)
            fail("%s:%d:%d: %s", f->path, e.line, e.column, e.text);
        return doc;
    case FORM_YAML:
        return yaml_read(f->text, strlen(f->text), f->path);
    case FORM_TOML:
        return titan_text(f->text, f->path);
    case FORM_COMMAND:
        break;
    }
    return json_object();
}

int form_open(const char *path, struct form_file *f)
{
    *f = (struct form_file){ .path = strcmp(path, "-") ? path : "standard input", .text = read_text(path) };
    if (!f->text)
        return -1;
    f->kind = kind_of(path, f->text);
    f->doc = document(f);
    if (!f->doc || json_is_object(f->doc))
        return f->doc ? 0 : (free(f->text), -1);
    fail("%s: expected keys with values: a config, a recipe or a command", f->path);
    form_close(f);
    return -1;
}

void form_from_doc(const json_t *doc, const char *name, struct form_file *f)
{
    *f = (struct form_file){ .path = name, .kind = FORM_JSON, .doc = json_incref((json_t *)(uintptr_t)doc) };
}

void form_close(struct form_file *f)
{
    free(f->text);
    json_decref(f->doc);
    *f = (struct form_file){ .path = "" };
}
