/* shell.c -- see shell.h.  A word is built letter by letter; what a variable gives outside of quotes is cut at blanks. */
#include "base/shell.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/shell_words.h"

enum { LARGEST = 1 << 20, DEEPEST = 16, NAME = 128, BRANCHES = 32 };

/* Is a command run?  Conditions that compare what the script itself sets are decided, others are not known. */
enum runs { RUNS, RUNS_NOT, RUNS_MAYBE };
struct branch { enum runs now, before; };       /* `before`: one of the branches before this one */

struct text { char *s; size_t n, room; };

struct reader {
    const char *at, *where;
    int     line, depth;                /* variables in variables */
    struct  branch branch[BRANCHES];    /* if, case, for and while that are open */
    int     nbranches;
    enum    runs next;                  /* of the command behind && and || */
    size_t  words;                      /* bytes of all words, at most LARGEST */
    struct  shell_script *out;
    json_t *command;                    /* words of the command so far */
    struct text word;
    bool    in_array;
    bool    some;                       /* the word was begun, though it may be empty ("") */
    int     not_text;                   /* the line of a word that is not UTF-8; 0: none was */
    char    heredoc[NAME];              /* the word that ends the here-document that begins with the next line */
    char    reads[NAME];                /* `read NAME <<EOF`: the variable that becomes it; "": none */
};

static int bad(const struct reader *r, const char *what) { return fail("%s:%d: %s", r->where, r->line, what); }

static void put(struct reader *r, char c)
{
    struct text *t = &r->word;

    if (t->n + 1 >= t->room) {
        char *more = realloc(t->s, t->room = t->room ? 2 * t->room : 64);
        if (!more)
            abort();
        t->s = more;
    }
    t->s[t->n++] = c;
    t->s[t->n] = '\0';
    r->some = true;
    r->words++;
}

/* Ends the word; NULL: there is none.  The caller frees it. */
static char *take(struct reader *r)
{
    char *s = r->some ? (r->word.s ? r->word.s : strdup("")) : NULL;

    if (s && r->word.n == 0)
        s[0] = '\0';
    if (!r->some)
        return NULL;
    r->word = (struct text){ 0 };
    r->some = false;
    return s;
}

static void end_word(struct reader *r)
{
    char *s = take(r);

    if (s && json_array_append_new(r->command, json_string(s)) < 0)
        r->not_text = r->line;
    free(s);
}

/* ---- variables ---- */

static const json_t *variable(struct reader *r, const char *name)
{
    if (shell_holds(r->out->conditional, name) && !shell_holds(r->out->uncertain, name))
        json_array_append_new(r->out->uncertain, json_string(name));
    return json_object_get(r->out->variables, name);
}

static enum runs runs(const struct reader *r)
{
    enum runs all = r->next;

    for (int i = 0; i < r->nbranches; i++)
        all = all == RUNS_NOT || r->branch[i].now == RUNS_NOT ? RUNS_NOT : all == RUNS_MAYBE ? RUNS_MAYBE : r->branch[i].now;
    return all;
}

static void set(struct reader *r, const char *name, json_t *value, bool adds)
{
    json_t *before = json_object_get(r->out->variables, name);
    bool maybe = runs(r) == RUNS_MAYBE;

    if (runs(r) == RUNS_NOT) {
        json_decref(value);
        return;
    }
    for (size_t i = json_array_size(r->out->conditional); !maybe && !adds && i-- > 0;)
        if (!strcmp(json_string_value(json_array_get(r->out->conditional, i)), name))
            json_array_remove(r->out->conditional, i);
    if (maybe && !shell_holds(r->out->conditional, name))
        json_array_append_new(r->out->conditional, json_string(name));
    if (maybe && before) {
        json_decref(value);
    } else if (adds && json_is_array(before) && json_is_array(value)) {
        json_array_extend(before, value);
        json_decref(value);
    } else if (adds && json_is_string(before) && json_is_string(value)) {
        size_t n = json_string_length(before) + json_string_length(value);
        char *both = malloc(n + 1);
        if (!both)
            abort();
        snprintf(both, n + 1, "%s%s", json_string_value(before), json_string_value(value));
        json_object_set_new(r->out->variables, name, json_string(both));
        free(both);
        json_decref(value);
    } else {
        json_object_set_new(r->out->variables, name, value);
    }
}

/* ---- values ---- */

static int word_part(struct reader *r, bool quoted);

/* A text into the word; outside of quotes its blanks end words. */
static void give(struct reader *r, const char *s, bool quoted)
{
    for (; *s; s++)
        if (!quoted && (*s == ' ' || *s == '\t' || *s == '\n'))
            end_word(r);
        else
            put(r, *s);
}

/* Text that has variables itself, such as the default of another. */
static int give_text(struct reader *r, const char *s, size_t n, bool quoted)
{
    char *copy = strndup(s, n);
    const char *at = r->at;
    int rc = 0;

    if (!copy)
        abort();
    if (++r->depth > DEEPEST)
        rc = bad(r, "variables in variables, too deep");
    r->at = copy;
    while (rc == 0 && *r->at)
        if (*r->at == '$' || *r->at == '"' || *r->at == '\'' || *r->at == '\\')
            rc = word_part(r, quoted);
        else if (!quoted && (*r->at == ' ' || *r->at == '\n'))
            end_word(r), r->at++;
        else
            put(r, *r->at++);
    r->at = at;
    r->depth--;
    free(copy);
    return rc;
}

static void give_value(struct reader *r, const json_t *v, bool quoted, bool words)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i > 0 && words)
            end_word(r);
        else if (i > 0)
            give(r, " ", quoted);
        give(r, json_string_value(json_array_get(v, i)), quoted);
    }
    if (json_is_string(v))
        give(r, json_string_value(v), quoted);
}

/* ${NAME}, ${NAME[@]}, ${NAME:-default}; others are left as they are. */
static int braced(struct reader *r, bool quoted)
{
    const char *from = r->at - 1, *s = r->at + 1;
    size_t all = shell_closed(s, '{', '}'), n = shell_name_length(s), index = n;
    char name[NAME];

    if (all == 0)
        return bad(r, "\"${\" is not closed");
    if (isdigit((unsigned char)*s) && !n)       /* ${1:-...} */
        n = index = 1;
    snprintf(name, sizeof name, "%.*s", (int)n, s);
    bool list = s[index] == '[' && (s[index + 1] == '@' || s[index + 1] == '*') && s[index + 2] == ']', words = list && s[index + 1] == '@';
    index += list ? 3 : 0;
    const json_t *v = n > 0 ? variable(r, name) : NULL;
    const char *rest = s + index, *end = s + all - 1;
    bool otherwise = (rest[0] == ':' && (rest[1] == '-' || rest[1] == '=')) || rest[0] == '-';
    r->at = s + all;
    if (n > 0 && rest == end && v)
        give_value(r, v, quoted, words && quoted);
    else if (n > 0 && otherwise && v && (json_array_size(v) || json_string_length(v)))
        give_value(r, v, quoted, words && quoted);
    else if (n > 0 && otherwise) {
        rest += *rest == ':' ? 2 : 1;
        return give_text(r, rest, (size_t)(end - rest), quoted);
    } else
        for (; from < r->at; from++)
            put(r, *from);
    return 0;
}

static const char *text_of(void *r, const char *name) { return json_string_value(variable(r, name)); }

static int dollar(struct reader *r, bool quoted)
{
    const char *from = r->at++;
    size_t n;
    char name[NAME], number[32];
    long long x;

    if (*r->at == '{')
        return braced(r, quoted);
    if (r->at[0] == '(') {
        if (!(n = shell_closed(r->at + 1, '(', ')')))
            return bad(r, "\"$(\" is not closed");
        if (r->at[1] == '(' && n > 2 && shell_arithmetic(r->at + 2, n - 3, text_of, r, &x)) {
            snprintf(number, sizeof number, "%lld", x);
            give(r, number, true);
            r->at += n + 1;
            return 0;
        }
        for (r->at += n + 1; from < r->at; from++) {    /* the output of a command: not known */
            r->line += *from == '\n';
            put(r, *from);
        }
        return 0;
    }
    if ((n = shell_name_length(r->at)) == 0 || n >= NAME) {
        put(r, '$');
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", (int)n, r->at);
    r->at += n;
    const json_t *v = variable(r, name);
    if (v)
        give_value(r, v, quoted, false);
    else
        for (; from < r->at; from++)
            put(r, *from);
    return 0;
}

static int double_quoted(struct reader *r)
{
    r->some = true;
    for (r->at++; *r->at != '"';) {
        if (!*r->at)
            return bad(r, "'\"' is not closed");
        if (*r->at == '\\' && r->at[1] == '\n') {
            r->at += 2;
            r->line++;
            put(r, ' ');
        } else if (*r->at == '\\' && r->at[1] && strchr("\"\\$`", r->at[1])) {
            put(r, r->at[1]);
            r->at += 2;
        } else if (*r->at == '$') {
            if (dollar(r, true) < 0)
                return -1;
        } else {
            r->line += *r->at == '\n';
            put(r, *r->at++);
        }
    }
    r->at++;
    return 0;
}

/* $'...', whose backslashes say more than themselves. */
static int ansi_quoted(struct reader *r)
{
    size_t n;
    char *s = shell_ansi(r->at + 2, &n);

    if (!s)
        return bad(r, "\"$'\" is not closed");
    for (const char *end = r->at += 2; end < r->at + n; end++)
        r->line += *end == '\n';
    r->some = true;
    give(r, s, true);
    free(s);
    r->at += n;
    return 0;
}

/* The output of a command is not known; of a comment there is none. */
static void backticks(struct reader *r, size_t n)
{
    bool comment = r->at[1 + strspn(r->at + 1, " \t")] == '#';

    for (const char *end = r->at + n; r->at < end; r->at++) {
        r->line += *r->at == '\n';
        if (!comment)
            put(r, *r->at);
    }
}

/* One piece of a word: a letter, quotes, a variable. */
static int word_part(struct reader *r, bool quoted)
{
    size_t ticks = *r->at == '`' && !quoted ? shell_backticks(r->at) : 0;

    if (r->words > LARGEST)
        return bad(r, "more than 1 MiB of words");
    if (ticks > 0) {
        backticks(r, ticks);
        return 0;
    }
    if (*r->at == '$' && r->at[1] == '\'' && !quoted)
        return ansi_quoted(r);
    if (*r->at == '$')
        return dollar(r, quoted);
    if (*r->at == '"')
        return double_quoted(r);
    if (*r->at == '\'') {
        r->some = true;
        for (r->at++; *r->at != '\''; put(r, *r->at++)) {
            if (!*r->at)
                return bad(r, "\"'\" is not closed");
            r->line += *r->at == '\n';
        }
        r->at++;
        return 0;
    }
    if (*r->at == '\\' && r->at[1]) {
        r->at++;
        r->line += *r->at == '\n';
    }
    put(r, *r->at++);
    return 0;
}

/* ---- commands ---- */

/* [ "$X" = fp8 ], [[ $X == fp8 ]], -z, -n, !=: of words that the script itself gives. */
static enum runs decide(const json_t *command, size_t from)
{
    const char *w[5] = { 0 };
    size_t n = 0;

    for (size_t i = from; i < json_array_size(command); i++) {
        const char *word = json_string_value(json_array_get(command, i));
        if (n == 5 || (word[0] == '$' && word[1]) || strchr(word, '`'))
            return RUNS_MAYBE;
        w[n++] = word;
    }
    if (n < 3 || (strcmp(w[0], "[") && strcmp(w[0], "[[") && strcmp(w[0], "test")))
        return RUNS_MAYBE;
    n -= !strcmp(w[n - 1], "]") || !strcmp(w[n - 1], "]]");
    if (n == 3 && (!strcmp(w[1], "-z") || !strcmp(w[1], "-n")))
        return (w[2][0] == '\0') == (w[1][1] == 'z') ? RUNS : RUNS_NOT;
    bool equal = n == 4 && (!strcmp(w[2], "=") || !strcmp(w[2], "==") || !strcmp(w[2], "-eq")), differs = n == 4 && (!strcmp(w[2], "!=") || !strcmp(w[2], "-ne"));
    if ((!equal && !differs) || strpbrk(w[3], "*?["))
        return RUNS_MAYBE;
    return !strcmp(w[1], w[3]) == equal ? RUNS : RUNS_NOT;
}

static enum runs not(enum runs r) { return r == RUNS ? RUNS_NOT : r == RUNS_NOT ? RUNS : RUNS_MAYBE; }

/* The next branch of an if: run only where none before it was. */
static void next_branch(struct reader *r, enum runs condition)
{
    struct branch *b = r->nbranches > 0 ? &r->branch[r->nbranches - 1] : NULL;

    if (!b)
        return;
    b->before = b->before == RUNS || b->now == RUNS ? RUNS : b->before == RUNS_MAYBE || b->now == RUNS_MAYBE ? RUNS_MAYBE : RUNS_NOT;
    b->now = b->before == RUNS || condition == RUNS_NOT ? RUNS_NOT : b->before == RUNS_MAYBE ? RUNS_MAYBE : condition;
}

static void open_branch(struct reader *r, enum runs now)
{
    if (r->nbranches < BRANCHES)
        r->branch[r->nbranches++] = (struct branch){ now, RUNS_NOT };
}

/* What opens, changes and closes branches, taken off the front of the command; `whole`: the command has ended. */
static void take_keywords(struct reader *r, bool whole)
{
    static const char *const loops[] = { "case", "for", "while", "until", "select", NULL }, *const ifs[] = { "if", NULL }, *const elifs[] = { "elif", NULL };
    static const char *const closes[] = { "fi", "esac", "done", NULL }, *const elses[] = { "else", NULL };
    static const char *const between[] = { "then", "do", "export", "local", "declare", "readonly", "{", "}", "!", NULL };

    for (;;) {
        if (shell_is_word_of(r->command, 0, ifs) || shell_is_word_of(r->command, 0, elifs)) {
            if (!whole)
                return;
            if (shell_is_word_of(r->command, 0, ifs))
                open_branch(r, decide(r->command, 1));
            else
                next_branch(r, decide(r->command, 1));
            json_array_clear(r->command);
            return;
        }
        if (shell_is_word_of(r->command, 0, loops)) {
            if (!whole)
                return;
            open_branch(r, RUNS_MAYBE);
            json_array_clear(r->command);
            return;
        }
        if (shell_is_word_of(r->command, 0, closes))
            r->nbranches -= r->nbranches > 0;
        else if (shell_is_word_of(r->command, 0, elses))
            next_branch(r, RUNS);
        else if (!shell_is_word_of(r->command, 0, between))
            return;
        json_array_remove(r->command, 0);
    }
}

/* Where it is not known whether it runs, neither is whether the variable is set. */
static void unset(struct reader *r, const char *name)
{
    if (name && runs(r) == RUNS)
        json_object_del(r->out->variables, name);
    else if (name && runs(r) == RUNS_MAYBE && json_object_get(r->out->variables, name) && !shell_holds(r->out->conditional, name))
        json_array_append_new(r->out->conditional, json_string(name));
}

/* unset NAME..., env -u NAME */
static void unset_names(struct reader *r)
{
    static const char *const all[] = { "unset", NULL }, *const env[] = { "env", NULL }, *const one[] = { "-u", "--unset", NULL };
    bool each = shell_is_word_of(r->command, 0, all), is_env = shell_is_word_of(r->command, 0, env);

    for (size_t i = 1; i < json_array_size(r->command) && (each || (is_env && shell_is_word_of(r->command, i, one))); i += each ? 1 : 2)
        unset(r, json_string_value(json_array_get(r->command, each ? i : i + 1)));
}

/* `end`: what ends it, whether one that makes the next depend on it. */
static void end_command(struct reader *r, const char *end)
{
    end_word(r);
    take_keywords(r, true);
    size_t before = json_array_size(r->out->commands);
    const char *first = json_string_value(json_array_get(r->command, 0));
    unset_names(r);
    enum runs condition = first ? decide(r->command, 0) : RUNS_MAYBE, now = runs(r);
    if (now != RUNS_NOT && before > 0 && first && !strncmp(first, "--", 2))        /* a line that lacks its backslash: no command begins so */
        json_array_extend(json_array_get(r->out->commands, before - 1), r->command);
    else if (now != RUNS_NOT && json_array_size(r->command) > 0)
        json_array_append(r->out->commands, r->command);
    bool tests = first && (!strcmp(first, "[") || !strcmp(first, "[[") || !strcmp(first, "test"));
    if (first || *end != '&' || end[1] != '&')
        r->next = RUNS;
    if (tests && !strncmp(end, "&&", 2))
        r->next = condition;
    else if (tests && !strncmp(end, "||", 2))
        r->next = not(condition);
    json_decref(r->command);
    r->command = json_array();
}

/* Blanks, comments and lines that go on. */
static void skip(struct reader *r, bool lines)
{
    for (;;) {
        if (shell_joined_line(r->at)) {
            r->at += shell_joined_line(r->at);
            r->line++;
        } else if (*r->at == '#') {
            r->at += strcspn(r->at, "\n");
        } else if (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || (lines && *r->at == '\n')) {
            r->line += *r->at++ == '\n';
        } else {
            return;
        }
    }
}

static bool ends_word(const struct reader *r)
{
    if (*r->at == '(' || *r->at == ')')        /* a bracket in a command's words, which a shell refuses, is of its word: (127,0) */
        return r->in_array || json_array_size(r->command) == 0;
    return !*r->at || strchr(" \t\r\n;&|<>", *r->at) || shell_joined_line(r->at);
}

static int one_word(struct reader *r)
{
    while (!ends_word(r))
        if (word_part(r, false) < 0)
            return -1;
    return 0;
}

/* "( a b c )" behind NAME=. */
static int array(struct reader *r, const char *name, bool adds)
{
    json_t *before = r->command, *words = json_array();
    int rc = 0;

    r->command = words;
    r->in_array = true;
    for (r->at++, skip(r, true); *r->at && *r->at != ')' && rc == 0; skip(r, true)) {
        if (strchr(";&|(<>", *r->at))
            rc = bad(r, "expected words in an array");
        else
            rc = one_word(r);
        end_word(r);
    }
    if (rc == 0 && !*r->at)
        rc = bad(r, "an array is not closed");
    r->in_array = false;
    r->at += rc == 0;
    r->command = before;
    if (rc == 0)
        set(r, name, words, adds);
    else
        json_decref(words);
    return rc;
}

/* NAME=VALUE at the begin of a command: taken, and kept.  1: it is one; 0: not; -1. */
static int assignment(struct reader *r)
{
    size_t n = shell_name_length(r->at);
    bool adds = r->at[n] == '+';
    char name[NAME];

    if (n == 0 || n >= NAME || r->at[n + adds] != '=')
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)n, r->at);
    r->at += n + adds + 1;
    if (*r->at == '(')
        return array(r, name, adds) < 0 ? -1 : 1;
    json_t *before = r->command;
    r->command = json_array();
    r->some = true;
    if (one_word(r) < 0) {
        json_decref(r->command);
        r->command = before;
        return -1;
    }
    /* Blanks of a variable do not end an assignment's word. */
    end_word(r);
    struct text all = { 0 };
    for (size_t i = 0; i < json_array_size(r->command); i++) {
        const char *s = json_string_value(json_array_get(r->command, i));
        size_t m = strlen(s);
        all.s = realloc(all.s, all.n + m + 2);
        if (!all.s)
            abort();
        all.n += (size_t)sprintf(all.s + all.n, "%s%s", i ? " " : "", s);
    }
    set(r, name, json_string(all.s ? all.s : ""), adds);
    free(all.s);
    json_decref(r->command);
    r->command = before;
    return 1;
}

/* "<<EOF": its text comes with the next line.  "> file", "2>&1": the target is no word. */
static int redirect(struct reader *r)
{
    bool here = r->at[0] == '<' && r->at[1] == '<' && r->at[2] != '<';

    if (r->some && r->word.n == 1 && isdigit((unsigned char)r->word.s[0]))
        free(take(r));
    end_word(r);
    r->at += strspn(r->at, "<>&-");
    skip(r, false);
    json_t *before = r->command;
    r->command = json_array();
    int rc = one_word(r);
    end_word(r);
    const char *word = json_string_value(json_array_get(r->command, 0));
    if (here && word)
        snprintf(r->heredoc, sizeof r->heredoc, "%.120s", word);
    const char *first = json_string_value(json_array_get(before, 0));
    if (here && first && !strcmp(first, "read"))
        snprintf(r->reads, sizeof r->reads, "%.120s", json_string_value(json_array_get(before, json_array_size(before) - 1)));
    json_decref(r->command);
    r->command = before;
    return rc;
}

/* A variable becomes the text, its lines that go on joined. */
static int take_heredoc(struct reader *r, const char *text, size_t n)
{
    char *copy = strndup(text, n), name[NAME];
    json_t *before = r->command;

    if (!copy)
        abort();
    for (char *c = copy; *c; c++)
        if (c[0] == '\\' && c[1] == '\n')
            c[0] = c[1] = ' ';
    snprintf(name, sizeof name, "%s", r->reads);
    r->reads[0] = '\0';
    r->command = json_array();
    r->some = true;
    int rc = give_text(r, copy, strlen(copy), true);
    char *all = take(r);
    if (rc == 0)
        set(r, name, json_string(all ? all : ""), false);
    free(all);
    free(copy);
    json_decref(r->command);
    r->command = before;
    return rc;
}

static int skip_heredoc(struct reader *r)
{
    const char *from = r->at;
    int rc = 0;

    while (r->heredoc[0] && *r->at) {
        const char *line = r->at + strspn(r->at, "\t");
        size_t n = strcspn(line, "\n");
        if (n == strlen(r->heredoc) && !strncmp(line, r->heredoc, n)) {
            if (r->reads[0])
                rc = take_heredoc(r, from, (size_t)(r->at - from));
            r->heredoc[0] = '\0';
        }
        r->at = line + n + (line[n] == '\n');
        r->line++;
    }
    r->heredoc[0] = '\0';
    return rc;
}

static bool may_assign(const struct reader *r)
{
    static const char *const before[] = { "export", "local", "declare", "readonly", "then", "else", "do", "{", NULL };
    size_t n = json_array_size(r->command);

    return n == 0 || shell_is_word_of(r->command, n - 1, before) || shell_is_env(r->command);
}

static int step(struct reader *r)
{
    skip(r, false);
    if (!*r->at)
        return 0;
    if (strchr(";&|\n", *r->at) || (ends_word(r) && strchr("()", *r->at))) {
        bool line = *r->at == '\n';
        end_command(r, r->at);
        r->line += line;
        r->at += !strncmp(r->at, "&&", 2) || !strncmp(r->at, "||", 2) ? 2 : 1;
        return line && r->heredoc[0] ? skip_heredoc(r) : 0;
    }
    if (*r->at == '<' || *r->at == '>')
        return redirect(r);
    if (may_assign(r)) {
        take_keywords(r, false);
        int rc = assignment(r);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    if (one_word(r) < 0)
        return -1;
    if (*r->at == '<' || *r->at == '>')
        return redirect(r);
    end_word(r);
    return 0;
}

int shell_read(const char *text, const char *where, struct shell_script *out)
{
    struct reader r = { .at = text, .where = where, .line = 1, .out = out, .command = json_array() };
    int rc = 0;

    *out = (struct shell_script){ json_array(), json_object(), json_array(), json_array() };
    while (*r.at && rc == 0)
        rc = step(&r);
    if (rc == 0)
        end_command(&r, "");
    if (rc == 0 && r.not_text)
        rc = fail("%s:%d: a word is not UTF-8", where, r.not_text);
    json_decref(r.command);
    free(r.word.s);
    if (rc < 0)
        shell_free(out);
    return rc;
}

void shell_free(struct shell_script *s)
{
    json_decref(s->commands);
    json_decref(s->variables);
    json_decref(s->conditional);
    json_decref(s->uncertain);
    *s = (struct shell_script){ 0 };
}
