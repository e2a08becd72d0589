/* files.c -- JSON read whole, with the file, line and column of what is wrong. */
#include "base/files.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/input.h"

/* Larger than any config and smaller than any checkpoint given by mistake. */
#define LARGEST_JSON (16 << 20)
#define LARGEST_DATA (1 << 30)

/* The whole file, with a NUL behind it; NULL where it cannot be read or, being a pipe that had no size to
 * ask for, holds too much. */
static char *read_all(FILE *f, size_t *n)
{
    size_t room = 1 << 16;
    char *text = malloc(room), *more;

    for (*n = 0; text; ) {
        *n += fread(text + *n, 1, room - *n - 1, f);
        if (*n < room - 1 || *n > LARGEST_JSON)
            break;
        more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (text && (ferror(f) || *n > LARGEST_JSON)) {
        free(text);
        return NULL;
    }
    if (text)
        text[*n] = '\0';
    return text;
}

/* The length of a word that Python writes for a number JSON has none for, or 0. */
static size_t python_number(const char *at)
{
    static const char *const words[] = { "NaN", "Infinity", "-Infinity" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (!strncmp(at, words[i], n) && (!at[n] || strchr(",]} \t\r\n", at[n])))
            return n;
    }
    return 0;
}

/* `text` with such words in quotes, in new memory; strings are left as they are. */
static char *quote_python_numbers(const char *text, size_t *n)
{
    char *quoted = malloc(2 * *n + 1), *to = quoted;
    bool string = false;

    for (const char *at = text; quoted && at < text + *n; ) {
        size_t word = string ? 0 : python_number(at);
        if (word) {
            *to++ = '"';
            memcpy(to, at, word);
            to += word, at += word;
            *to++ = '"';
            continue;
        }
        if (*at == '"')
            string = !string;
        else if (string && *at == '\\' && at + 1 < text + *n)
            *to++ = *at++;
        *to++ = *at++;
    }
    if (quoted)
        *n = (size_t)(to - quoted);
    return quoted;
}

static json_t *load_python(FILE *f, json_error_t *e)
{
    size_t n;
    char *text = read_all(f, &n), *quoted;
    json_t *j = text ? json_loadb(text, n, JSON_REJECT_DUPLICATES, e) : NULL;

    if (text && !j) {                           /* places in messages are the file's if they can be */
        quoted = quote_python_numbers(text, &n);
        j = quoted ? json_loadb(quoted, n, JSON_REJECT_DUPLICATES, e) : NULL;
        free(quoted);
    }
    free(text);
    return j;
}

static json_t *parse(const char *path, FILE *f, bool python)
{
    json_error_t e = { .line = -1, .text = "cannot be read" };
    json_t *j = python ? load_python(f, &e) : json_loadf(f, JSON_REJECT_DUPLICATES, &e);

    if (j)
        return j;
    for (char *p = e.text; *p; p++)             /* it may quote the file */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    fail("%s:%d:%d: malformed JSON: %s", path, e.line, e.column, e.text);
    return NULL;
}

static json_t *read_up_to(const char *path, long long most, const char *meant, bool python)
{
    struct stat st;
    json_t *j = NULL;
    FILE *f = input_open(path);

    if (!f)
        return NULL;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > most)
        fail("%s: has %lld bytes, too many for %s", path, (long long)st.st_size, meant);
    else
        j = parse(path, f, python);
    fclose(f);
    return j;
}

json_t *files_read_json_file(const char *path)
{
    return read_up_to(path, LARGEST_JSON, "a configuration", false);
}

json_t *files_read_json_python(const char *path)
{
    return read_up_to(path, LARGEST_JSON, "a configuration", true);
}

json_t *files_read_json_data(const char *path)
{
    return read_up_to(path, LARGEST_DATA, "a file of measurements", false);
}

/* The path from the root. */
static void whole_path(const char *path, char full[2048])
{
    char here[1024];

    full[0] = '\0';
    if (path[0] == '/')
        snprintf(full, 2048, "%s", path);
    else if (getcwd(here, sizeof here))
        snprintf(full, 2048, "%s/%s", here, path);
}

bool files_is_beside(const char *from, const char *name, const char *found)
{
    char full[2048], beside[4096];

    whole_path(from, full);
    snprintf(beside, sizeof beside, "%.*s/%s", (int)(strrchr(full, '/') ? strrchr(full, '/') - full : 0), full, name);
    return name[0] == '/' || !strcmp(beside, found);
}

void files_find_above(const char *from, const char *name, char *out, size_t size)
{
    char full[2048];

    whole_path(from, full);
    for (char *slash; name[0] != '/' && (slash = strrchr(full, '/')); ) {
        *slash = '\0';
        if ((size_t)snprintf(out, size, "%s/%s", full, name) < size && access(out, R_OK) == 0)
            return;
    }
    snprintf(out, size, "%s", name);
}
