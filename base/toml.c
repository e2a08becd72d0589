/* toml.c -- see toml.h. */
#include "base/toml.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { DEEPEST = 16, KEY = 128, LONGEST = 1 << 16 };

struct reader { const char *at, *where; int line; };

static json_t *bad(const struct reader *r, const char *what)
{
    fail("%s:%d: expected %s", r->where, r->line, what);
    return NULL;
}

/* Blanks and comments; with `lines` ends of lines too. */
static void skip(struct reader *r, bool lines)
{
    for (;; r->at++) {
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        if (*r->at == '\n' && lines)
            r->line++;
        else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r')
            return;
    }
}

static bool end_of_line(struct reader *r)
{
    skip(r, false);
    return *r->at == '\n' || *r->at == '\0';
}

json_t *toml_word(const char *word, size_t n)
{
    char text[64], *end;
    size_t len = 0;

    for (size_t i = 0; i < n && len + 1 < sizeof text; i++)
        if (word[i] != '_' || !isdigit((unsigned char)word[0]))     /* 1_000 */
            text[len++] = word[i];
    text[len] = '\0';
    if (n >= sizeof text)
        return json_stringn(word, n);
    if (!strcmp(text, "true") || !strcmp(text, "True"))
        return json_true();
    if (!strcmp(text, "false") || !strcmp(text, "False"))
        return json_false();
    if (!strcmp(text, "None"))
        return json_null();
    long long whole = strtoll(text, &end, 10);
    if (*end == '\0' && end > text)
        return json_integer(whole);
    double real = strtod(text, &end);
    return *end == '\0' && end > text && real - real == 0 ? json_real(real) : json_stringn(word, n);
}

/* ---- strings ---- */

/* What a backslash stands for; `to` holds 5 bytes.  Its length in the text, or 0. */
static size_t escape(const char *at, char to[5])
{
    static const char from[] = "btnfre\"\\", into[] = "\b\t\n\f\r\033\"\\";
    const char *simple = *at ? strchr(from, *at) : NULL;
    size_t digits = *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    unsigned long code = 0;

    memset(to, 0, 5);
    if (simple) {
        to[0] = into[simple - from];
        return 1;
    }
    for (size_t i = 1; i <= digits; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return 0;
        code = code * 16 + (unsigned long)(isdigit((unsigned char)at[i]) ? at[i] - '0' : tolower((unsigned char)at[i]) - 'a' + 10);
    }
    if (digits == 0 || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return 0;
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)(n == 1 ? code : (0xF00UL >> n & 0xFF) | code);
    return digits + 1;
}

/* "..." and '...', or three of them around several lines. */
static json_t *quoted(struct reader *r)
{
    char quote = *r->at;
    bool many = r->at[1] == quote && r->at[2] == quote;
    const char *close = many ? (quote == '"' ? "\"\"\"" : "'''") : quote == '"' ? "\"" : "'";
    char *text = malloc(LONGEST + 8), to[5];
    size_t n = 0;

    if (!text)
        abort();
    r->at += many ? 3 : 1;
    if (many && *r->at == '\n') {
        r->at++;
        r->line++;
    }
    while (*r->at && strncmp(r->at, close, strlen(close)) != 0 && (many || *r->at != '\n') && n < LONGEST) {
        if (*r->at == '\\' && quote == '"') {
            size_t blank = strspn(r->at + 1, " \t\r");
            if (many && r->at[1 + blank] == '\n') {             /* a line that goes on */
                for (r->at++; isspace((unsigned char)*r->at); r->at++)
                    r->line += *r->at == '\n';
                continue;
            }
            size_t used = escape(r->at + 1, to);
            if (used == 0) {
                free(text);
                return bad(r, "a letter that a backslash can stand before");
            }
            n += (size_t)sprintf(text + n, "%s", to);
            r->at += used + 1;
        } else {
            r->line += *r->at == '\n';
            text[n++] = *r->at++;
        }
    }
    bool ends = !strncmp(r->at, close, strlen(close));
    r->at += ends ? strlen(close) : 0;
    json_t *s = ends ? json_stringn(text, n) : NULL;
    free(text);
    return s ? s : bad(r, ends ? "a string in UTF-8" : "the end of a string");
}

/* ---- keys ---- */

static bool is_bare(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

/* One part of a dotted key; false reported. */
static bool key_part(struct reader *r, char key[KEY])
{
    size_t n = 0;

    if (*r->at == '"' || *r->at == '\'') {
        json_t *s = quoted(r);
        bool good = s && json_string_length(s) < KEY && strlen(json_string_value(s)) == json_string_length(s);
        if (good)
            strcpy(key, json_string_value(s));
        else if (s)
            bad(r, "a key of less than 128 letters");
        json_decref(s);
        return good;
    }
    while (is_bare(r->at[n]))
        n++;
    if (n == 0 || n >= KEY) {
        bad(r, "[section] or key = value");
        return false;
    }
    memcpy(key, r->at, n);
    key[n] = '\0';
    r->at += n;
    return true;
}

/* The table of `in` under a key, made where it is not there; of an array of tables its last. */
static json_t *table(json_t *in, const char *key)
{
    json_t *next = json_object_get(in, key);

    if (!next && json_object_set_new(in, key, next = json_object()) < 0)
        return NULL;
    if (json_is_array(next))
        next = json_array_get(next, json_array_size(next) - 1);
    return json_is_object(next) ? next : NULL;
}

/* a.b.c: the table that holds c, made where it is not there, and "c".  NULL reported. */
static json_t *dotted(struct reader *r, json_t *in, char key[KEY])
{
    for (int depth = 0;; depth++) {
        if (!key_part(r, key))
            return NULL;
        skip(r, false);
        if (*r->at != '.')
            return in;
        r->at++;
        skip(r, false);
        if (depth >= DEEPEST || !(in = table(in, key)))
            return bad(r, "a table, where there is another value");
    }
}

/* ---- values ---- */

static json_t *value(struct reader *r, int depth);

static json_t *array(struct reader *r, int depth)
{
    json_t *all = json_array(), *one;

    for (r->at++;; r->at++) {
        skip(r, true);
        if (*r->at == ']')
            break;
        if (!(one = value(r, depth + 1))) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, one);
        skip(r, true);
        if (*r->at == ']')
            break;
        if (*r->at != ',') {
            json_decref(all);
            return bad(r, "',' or ']' in an array");
        }
    }
    r->at++;
    return all;
}

static int pair(struct reader *r, json_t *in, int depth);

static json_t *inline_table(struct reader *r, int depth)
{
    json_t *all = json_object();

    for (r->at++;; r->at++) {
        skip(r, true);
        if (*r->at == '}')
            break;
        if (pair(r, all, depth + 1) < 0) {
            json_decref(all);
            return NULL;
        }
        skip(r, true);
        if (*r->at == '}')
            break;
        if (*r->at != ',') {
            json_decref(all);
            return bad(r, "',' or '}' in a table");
        }
    }
    r->at++;
    return all;
}

static json_t *value(struct reader *r, int depth)
{
    size_t n = strcspn(r->at, " \t\r\n,]}#");

    if (depth > DEEPEST)
        return bad(r, "fewer values in values");
    if (*r->at == '"' || *r->at == '\'')
        return quoted(r);
    if (*r->at == '[')
        return array(r, depth);
    if (*r->at == '{')
        return inline_table(r, depth);
    json_t *v = n > 0 ? toml_word(r->at, n) : NULL;
    const char *sign = r->at + (*r->at == '+' || *r->at == '-');
    if (!v || json_is_null(v) || (json_is_string(v) && strncmp(sign, "inf", 3) && strncmp(sign, "nan", 3))) {
        json_decref(v);
        return bad(r, "a string in quotes, a number, true, false, an array or a table");
    }
    r->at += n;
    return v;
}

static int pair(struct reader *r, json_t *in, int depth)
{
    char key[KEY];
    json_t *at = dotted(r, in, key), *v;

    if (!at)
        return -1;
    if (*r->at++ != '=')
        return bad(r, "key = value"), -1;
    skip(r, false);
    if (json_object_get(at, key))
        return bad(r, "a key that was not given before"), -1;
    if (!(v = value(r, depth)))
        return -1;
    return json_object_set_new(at, key, v) == 0 ? 0 : (bad(r, "a key in UTF-8"), -1);
}

/* [a.b] and [[a.b]]. */
static json_t *header(struct reader *r, json_t *all)
{
    bool many = r->at[1] == '[';
    char key[KEY];
    json_t *at, *section;

    r->at += many ? 2 : 1;
    skip(r, false);
    if (!(at = dotted(r, all, key)))
        return NULL;
    if (*r->at != ']' || (many && r->at[1] != ']'))
        return bad(r, "[section]");
    r->at += many ? 2 : 1;
    if (!many)
        return (section = table(at, key)) ? section : bad(r, "a table, where there is another value");
    json_t *list = json_object_get(at, key);
    if (!list)
        json_object_set_new(at, key, list = json_array());
    if (!json_is_array(list))
        return bad(r, "an array of tables, where there is another value");
    json_array_append_new(list, section = json_object());
    return section;
}

json_t *toml_read(const char *text, const char *where)
{
    struct reader r = { text, where, 1 };
    json_t *all = json_object(), *section = all;

    for (skip(&r, true); *r.at; skip(&r, true)) {
        bool good = *r.at == '[' ? (section = header(&r, all)) != NULL : pair(&r, section, 0) == 0;
        if (good && !end_of_line(&r)) {
            bad(&r, "the end of the line");
            good = false;
        }
        if (!good) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
