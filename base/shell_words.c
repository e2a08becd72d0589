/* shell_words.c -- words of a shell as values, options and whole numbers: shell.h and shell_words.h. */
#include "base/shell_words.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/shell.h"

enum { NAME = 128 };

size_t shell_name_length(const char *s)
{
    size_t n = 0;

    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n > 0 && !isdigit((unsigned char)s[0]) ? n : 0;
}

size_t shell_closed(const char *s, char open, char close)
{
    int depth = 1;

    for (size_t i = 0; s[i]; i++) {
        depth += s[i] == open ? 1 : s[i] == close ? -1 : 0;
        if (depth == 0)
            return i + 1;
    }
    return 0;
}

int shell_joined_line(const char *at)
{
    return *at != '\\' ? 0 : at[1] == '\n' ? 2 : at[1] == '\r' && at[2] == '\n' ? 3 : 0;
}

size_t shell_backticks(const char *s)
{
    for (size_t i = 1; s[i]; i++)
        if (s[i] == '\\' && s[i + 1])
            i++;
        else if (s[i] == '`')
            return i + 1;
    return 0;
}

/* Letters by a letter behind a backslash; others, numbers among them, stay as they are written. */
char *shell_ansi(const char *s, size_t *n)
{
    static const char names[] = "abefnrtv\\'\"?", are[] = "\a\b\033\f\n\r\t\v\\'\"?";
    char *out = malloc(strlen(s) + 1), *to = out;

    if (!out)
        abort();
    for (size_t i = 0; s[i]; i++) {
        const char *name = s[i] == '\\' && s[i + 1] ? strchr(names, s[i + 1]) : NULL;
        if (s[i] == '\'') {
            *to = '\0';
            *n = i + 1;
            return out;
        }
        *to++ = name ? are[name - names] : s[i];
        i += name != NULL;
    }
    free(out);
    return NULL;
}

/* Names of variables, and how deep parentheses lie. */
struct sums { const char *(*text_of)(void *of, const char *name); void *of; int depth; };

enum { DEEPEST = 16 };

static bool sum_of(struct sums *c, const char *s, const char *end, long long *out);

/* Up to the parenthesis that closes the one at s; NULL: none does. */
static const char *closing(const char *s, const char *end)
{
    int open = 0;

    for (; s < end; s++) {
        open += *s == '(' ? 1 : *s == ')' ? -1 : 0;
        if (open == 0)
            return s;
    }
    return NULL;
}

/* A number, a variable that is one, or a sum in parentheses.  What follows it; NULL: none of these. */
static const char *operand(struct sums *c, const char *s, const char *end, long long *x)
{
    char name[NAME], *to = NULL;
    size_t len;

    if (*s == '(') {
        const char *close = c->depth < DEEPEST ? closing(s, end) : NULL;
        if (!close)
            return NULL;
        c->depth++;
        bool good = sum_of(c, s + 1, close, x);
        c->depth--;
        return good ? close + 1 : NULL;
    }
    if (isdigit((unsigned char)*s)) {
        *x = strtoll(s, &to, 10);
        return to;
    }
    if ((len = shell_name_length(s)) == 0 || len >= NAME)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)len, s);
    const char *v = c->text_of(c->of, name);
    *x = v ? strtoll(v, &to, 10) : 0;
    return v && to != v && !*to ? s + len : NULL;
}

static bool sum_of(struct sums *c, const char *s, const char *end, long long *out)
{
    long long sum = 0, product = 1, x;
    char op = '*', sign = '+';
    bool some = false;

    while (s < end) {
        s += strspn(s, " \t${}\"");
        if (s >= end)
            break;
        if (!(s = operand(c, s, end, &x)))
            return false;
        if ((op == '/' && x == 0) || x > INT32_MAX || x < -(long long)INT32_MAX || product > INT32_MAX || product < -(long long)INT32_MAX)
            return false;
        product = op == '*' ? product * x : op == '/' ? product / x : op == '%' && x ? product % x : product;
        some = true;
        s += strspn(s, " \t}\"");
        if (s >= end)
            break;
        op = *s++;
        if (op == '+' || op == '-') {
            sum += sign == '-' ? -product : product;
            product = 1;
            sign = op;
            op = '*';
        } else if (op != '*' && op != '/' && op != '%') {
            return false;
        }
    }
    *out = sum + (sign == '-' ? -product : product);
    return some;
}

bool shell_arithmetic(const char *s, size_t n, const char *(*text_of)(void *of, const char *name), void *of, long long *out)
{
    struct sums c = { text_of, of, 0 };

    return sum_of(&c, s, s + n, out);
}

/* ---- options ---- */

/* The word at `text`, of quotes and what stands between them; 0, or -1: it is not UTF-8. */
static int add_word(json_t *out, const char **text)
{
    const char *at = *text, *end;
    char *word = malloc(strlen(at) + 1);
    size_t n = 0;

    if (!word)
        abort();
    while (*at && !strchr(" \t\r\n", *at)) {
        bool quote = *at == '"' || *at == '\'';
        if (quote && (end = strchr(at + 1, *at))) {
            memcpy(word + n, at + 1, (size_t)(end - at) - 1);
            n += (size_t)(end - at) - 1;
            at = end + 1;
        } else {
            word[n++] = *at++;
        }
    }
    int rc = json_array_append_new(out, json_stringn(word, n));
    free(word);
    *text = at;
    return rc;
}

json_t *shell_words(const char *text)
{
    json_t *out = json_array();

    for (int rc = 0; rc == 0;) {
        text += strspn(text, " \t\r\n");
        if (!*text)
            return out;
        if (*text == '\\' && (text[1] == '\n' || text[1] == '\r'))
            text++;
        else if (*text == '#')
            text += strcspn(text, "\n");
        else
            rc = add_word(out, &text);
    }
    json_decref(out);
    return NULL;
}

json_t *shell_value(const char *s)
{
    json_t *mapping = *s == '{' ? json_loads(s, JSON_REJECT_DUPLICATES, NULL) : NULL;
    char *end;

    if (mapping)
        return mapping;
    if (!strcasecmp(s, "true") || !strcasecmp(s, "false"))
        return json_boolean(!strcasecmp(s, "true"));
    errno = 0;
    long long whole = strtoll(s, &end, 10);
    if (*s && *end == '\0' && errno == 0)
        return json_integer(whole);
    double real = strtod(s, &end);
    return *s && *end == '\0' && real - real == 0 ? json_real(real) : json_string(s);
}

static void add(json_t *to, const char *name, json_t *v)
{
    json_t *before = json_object_get(to, name);

    if (!before || json_is_true(before)) {
        json_object_set_new(to, name, v);
        return;
    }
    if (!json_is_array(before)) {
        json_object_set_new(to, name, json_pack("[O]", before));
        before = json_object_get(to, name);
    }
    json_array_append_new(before, v);
}

json_t *shell_options(const json_t *words, size_t from)
{
    json_t *out = json_object();
    char name[NAME] = "";

    for (; from < json_array_size(words); from++) {
        const char *s = json_string_value(json_array_get(words, from));
        if (s[0] != '-' || s[1] != '-' || !s[2]) {
            if (name[0])
                add(out, name, shell_value(s));
            else if (!json_object_get(out, ""))
                json_object_set_new(out, "", json_pack("[s]", s));
            else
                json_array_append_new(json_object_get(out, ""), json_string(s));
            continue;
        }
        size_t n = strcspn(s += 2, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        json_object_set_new(out, name, s[n] ? shell_value(s + n + 1) : json_true());
        if (s[n])
            name[0] = '\0';             /* --name=VALUE takes no further values */
    }
    return out;
}

bool shell_holds(const json_t *names, const char *name)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)(uintptr_t)names, i, v)
        if (!strcmp(json_string_value(v), name))
            return true;
    return false;
}

bool shell_is_word_of(const json_t *command, size_t i, const char *const *of)
{
    const char *s = json_string_value(json_array_get(command, i));

    for (; s && *of; of++)
        if (!strcmp(s, *of))
            return true;
    return false;
}

bool shell_is_env(const json_t *command)
{
    static const char *const starts[] = { "nohup", "exec", "time", "sudo", "srun", "command", "setsid", NULL };
    static const char *const env[] = { "env", "/usr/bin/env", NULL }, *const takes[] = { "-u", "--unset", "-C", "--chdir", NULL };
    size_t n = json_array_size(command), i = shell_is_word_of(command, 0, starts) ? 1 : 0;

    while (i > 0 && i < n && !shell_is_word_of(command, i, env))
        i++;
    if (!shell_is_word_of(command, i, env))
        return false;
    for (i++; i < n; i += 1 + shell_is_word_of(command, i, takes))
        if (*json_string_value(json_array_get(command, i)) != '-')
            return false;
    return i == n;
}
