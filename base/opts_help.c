/* opts_help.c -- what --help prints: examples first, then what people use, then the rest by groups; no line is over 80 columns. */
#include "base/opts_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/terminal.h"

enum { INDENT = 28, LEFT = INDENT - 4, WIDEST = 80, NARROWEST = 60, VALUE_MOST = 24 };

static int width(void)
{
    int w = terminal_width(stdout, WIDEST);

    return w > WIDEST ? WIDEST : w < NARROWEST ? NARROWEST : w;
}

/* Words of `text` from column `at` on, later lines from column `indent`; an end of line is a blank, two are kept. */
static void print_wrapped(const char *text, int at, int indent)
{
    bool first = true;

    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (!first && at + 1 + n > width()) {
            printf("\n%*s", indent, "");
            at = indent;
            first = true;
        }
        at += printf("%s%.*s", first || n == 0 ? "" : " ", n, text);
        first = false;
        text += n;
        if (!strncmp(text, "\n\n", 2)) {
            fputs("\n\n", stdout);
            at = 0;
            first = true;
        }
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static void print_row(const char *left, const char *help)
{
    int n = printf("  %-*s", LEFT, left);

    if (n > INDENT - 2)
        printf("\n%*s", INDENT, "");
    else
        printf("%*s", INDENT - n, "");
    print_wrapped(help, INDENT, INDENT);
}

/* Many words stand in the text, not beside the option. */
static bool has_many_words(const struct opt *o)
{
    char words[512];

    return o->word && strlen(opts_value_name(o, words, sizeof words)) > VALUE_MOST;
}

/* "--bucket BYTES", "-o, --output FILE", "PLAN.json". */
static const char *spelling(const struct opt *o, char *buf, size_t size)
{
    char letter[8] = "", words[256];
    const char *value = o->flag ? "" : has_many_words(o) ? "WORD" : opts_value_name(o, words, sizeof words);

    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    if (o->positional)
        snprintf(buf, size, "%s%s", o->name, o->many ? "..." : "");
    else
        snprintf(buf, size, "%s--%s%s%s", letter, o->name, *value ? " " : "", value);
    return buf;
}

static void print_option(const struct opt *o)
{
    char left[320], words[640], usual[320], text[2048];
    size_t n = (size_t)snprintf(text, sizeof text, "%s", o->help);

    if (o->set || has_many_words(o))
        n += (size_t)snprintf(text + n, sizeof text - n, "; %s of %s", o->set ? "any" : "one", opts_join(words, sizeof words, o->words, ", "));
    snprintf(text + n, sizeof text - n, "%s", o->required && !o->positional ? " (required)" : opts_default_text(o, usual, sizeof usual));
    print_row(spelling(o, left, sizeof left), text);
}

static void print_usage(const char *command, const struct opt *opts)
{
    char left[320], words[256], text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "usage: %s", command);

    for (const struct opt *o = opts; o->name && n < sizeof text; o++)
        if (o->bare)
            n += (size_t)snprintf(text + n, sizeof text - n, " [--%s] %s", o->name, opts_value_name(o, words, sizeof words));
        else if (o->positional || o->required)
            n += (size_t)snprintf(text + n, sizeof text - n, o->required ? " %s" : " [%s]", spelling(o, left, sizeof left));
    if (n < sizeof text)
        snprintf(text + n, sizeof text - n, " [options]");
    print_wrapped(text, 0, 7);
}

static bool is_before(const struct opt *opts, const struct opt *o)
{
    for (; opts < o; opts++)
        if (opts_is_option(opts) && !opts->often && opts->group && !strcmp(opts->group, o->group))
            return true;
    return false;
}

static void print_group(const struct opt *opts, const char *group)
{
    printf("\n%s\n", group);
    for (const struct opt *o = opts; o->name; o++)
        if (opts_is_option(o) && !o->often && o->group && !strcmp(o->group, group))
            print_option(o);
}

static bool print_often(const struct opt *opts)
{
    bool any = false;

    for (const struct opt *o = opts; o->name; o++)
        if (opts_is_option(o) && o->often) {
            if (!any)
                puts("\nWhat most people use");
            any = true;
            print_option(o);
        }
    return any;
}

static void print_examples(const struct opt *opts)
{
    bool any = false;

    for (const struct opt *o = opts; o->name; o++)
        if (o->example) {
            printf("  %s\n", o->help);
            any = true;
        }
    fputs(any ? "\n" : "", stdout);
}

static void print_positional(const struct opt *opts)
{
    bool any = false;

    for (const struct opt *o = opts; o->name; o++)
        if (o->positional) {
            fputs(any ? "" : "\n", stdout);
            print_option(o);
            any = true;
        }
}

void opts_print_overview(const char *program, const char *about, const struct opt *opts)
{
    print_wrapped(about, 0, 0);
    putchar('\n');
    print_examples(opts);
    print_usage(program, opts);
    print_positional(opts);
    print_often(opts);
    printf("\n`%s help` lists every option, `%s version` prints the version.\n", program, program);
}

void opts_print_help(const char *command, const char *about, const struct opt *opts)
{
    bool sorted;

    print_examples(opts);
    print_usage(command, opts);
    putchar('\n');
    print_wrapped(about, 0, 0);
    print_positional(opts);
    sorted = print_often(opts);
    for (const struct opt *o = opts; o->name; o++)
        if (opts_is_option(o) && !o->often && o->group) {
            sorted = true;
            if (!is_before(opts, o))
                print_group(opts, o->group);
        }
    puts(sorted ? "\nOther" : "");
    for (const struct opt *o = opts; o->name; o++)
        if (opts_is_option(o) && !o->often && !o->group)
            print_option(o);
    print_row("-h, --help", "this text");
    print_row("--version", "the version");
    print_row("--color WHEN", "colours: auto (on a terminal without NO_COLOR), always, never");
    putchar('\n');
    print_wrapped("Bytes are written 25MiB, 80GB or 1.5e9, counts 64, 1.5e9 or 8B, lengths in tokens 8192 or 8k.", 0, 0);
}

/* ---- a program of several commands ---- */

/* Lines that are indented stay as they are. */
static void print_about(const char *about)
{
    char line[512];

    while (*about) {
        int n = (int)strcspn(about, "\n");
        snprintf(line, sizeof line, "%.*s", n, about);
        if (*line == ' ' || *line == '\0')
            puts(line);
        else
            print_wrapped(line, 0, 0);
        about += n + (about[n] == '\n');
    }
}

void opts_print_commands(const char *program, const char *about, const struct command *commands)
{
    enum { NAME = 16 };

    print_about(about);
    printf("\nusage: %s COMMAND [options]\n", program);
    for (const struct command *c = commands; c->name; c++) {
        if (!c->run || c == commands)
            printf(c->run ? "\n" : "\n%s\n", c->name);
        if (!c->run)
            continue;
        printf("  %-*s  ", NAME - 4, c->name);
        print_wrapped(c->about, NAME, NAME);
    }
    printf("\n%s help COMMAND says more; `%s version` prints the version.\n", program, program);
}
