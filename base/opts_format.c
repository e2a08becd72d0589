/* opts_format.c -- manual pages and completion for bash and zsh, from the option tables. */
#include "base/opts_internal.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/version.h"

static const char *const programs[] = { "dpxcal", "dpxplan", "dpxrun", "dpxreport", NULL };

/* What a value can be completed with. */
static bool is_file(const struct opt *o)
{
    return o->str && (o->positional || (o->value && (strstr(o->value, "FILE") || strchr(o->value, '.') ||
                                                     strcmp(o->value, "DIR") == 0)));
}

/* The command's own word: "search" of "dpxplan search", "" of "dpxrun". */
static int own_word(const char *command, const char **word)
{
    const char *space = strchr(command, ' ');

    *word = space ? space + 1 : "";
    return (int)strcspn(*word, " ");
}

/* All words that a value can be, with blanks between them. */
static const char *words_of(const struct opt *o, char *buf, size_t size)
{
    const char *name;
    size_t at = 0;

    if (o->words)
        return opts_join(buf, size, o->words, " ");
    buf[0] = '\0';
    for (int i = 0; at < size && (name = o->names(i, NULL)); i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? " " : "", name);
    return buf;
}

static bool has_words(const struct opt *o) { return o->words || o->names; }

/* ---- man(7) ---- */

/* A line that starts with a dot or an apostrophe would be a request. */
static void man_text_of(const char *s, size_t n)
{
    for (bool begin = true; n-- > 0; begin = *s++ == '\n') {
        if (begin && (*s == '.' || *s == '\''))
            fputs("\\&", stdout);
        if (*s == '\\')
            fputs("\\e", stdout);
        else if (*s == '-')
            fputs("\\-", stdout);
        else
            putchar(*s);
    }
}

static void man_text(const char *s) { man_text_of(s, strlen(s)); }

static void man_heading(const char *program, const char *about)
{
    char upper[32], name[256];
    int n = 0;
    size_t len = strcspn(about, ".:;\n");       /* its first words: NAME is one line, for apropos(1) */

    for (; program[n] && n < 31; n++)
        upper[n] = (char)toupper((unsigned char)program[n]);
    upper[n] = '\0';
    snprintf(name, sizeof name, "%c%.*s", tolower((unsigned char)about[0]), (int)len - 1, about + 1);
    printf(".TH %s 1 \"\" \"dpx %s\" \"dpx\"\n.SH NAME\n%s \\- ", upper, version_text(), program);
    man_text(name);
    puts("\n.SH SYNOPSIS");
}

static void man_synopsis(const char *command, const struct opt *opts)
{
    char words[256];

    fputs(".B ", stdout);
    man_text(command);
    putchar('\n');
    for (const struct opt *o = opts; o->name; o++) {
        if (o->example || (!o->positional && !o->required))
            continue;
        fputs(o->required ? "" : "[", stdout);
        if (!o->positional) {
            fputs("\\fB\\-\\-", stdout);
            man_text(o->name);
            fputs("\\fR ", stdout);
        }
        fputs("\\fI", stdout);
        man_text(o->positional ? o->name : opts_value_name(o, words, sizeof words));
        puts(o->required ? "\\fR" : "\\fR]");
    }
    puts("[options]");
}

/* More columns than a line of 80 has for words that cannot be broken. */
enum { MAN_VALUE = 60 };

/* Of many words the value is WORD, and the text names them. */
static void man_row(const char *name, char letter, const char *value, const char *help, const char *extra)
{
    const char *words = value && strlen(value) > MAN_VALUE ? value : NULL;

    fputs(".TP\n", stdout);
    if (letter)
        printf("\\fB\\-%c\\fR, ", letter);
    fputs("\\fB\\-\\-", stdout);
    man_text(name);
    fputs("\\fR", stdout);
    if (value) {
        fputs(" \\fI", stdout);
        man_text(words ? "WORD" : value);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    man_text(help);
    if (words) {
        fputs("; one of ", stdout);
        for (const char *w = words; *w; w += strcspn(w, "|")) {
            w += *w == '|';
            man_text_of(w, strcspn(w, "|"));
            fputs(w[strcspn(w, "|")] ? ", " : "", stdout);
        }
    }
    man_text(extra);
    putchar('\n');
}

static void man_options(const struct opt *opts)
{
    char words[512], extra[640];

    for (const struct opt *o = opts; o->name; o++) {
        if (o->example)
            continue;
        opts_default_text(o, extra, sizeof extra);
        if (o->set)
            snprintf(extra, sizeof extra, " (any of %s)", opts_join(words, sizeof words, o->words, ", "));
        if (!o->positional) {
            man_row(o->name, o->letter, o->flag ? NULL : opts_value_name(o, words, sizeof words), o->help,
                    o->required ? " (required)" : extra);
            continue;
        }
        fputs(".TP\n\\fI", stdout);
        man_text(o->name);
        fputs("\\fR\n", stdout);
        man_text(o->help);
        putchar('\n');
    }
}

static const struct opts_section *sections[8];
static int nsections;

void opts_manual_section(const struct opts_section *s)
{
    assert(nsections < (int)(sizeof sections / sizeof *sections));
    sections[nsections++] = s;
}

static void man_section(const struct opts_section *section)
{
    const char *name, *text;

    printf(".SH %s\n", section->title);
    man_text(section->about);
    putchar('\n');
    for (int i = 0; section->entry(i, &name, &text); i++) {
        fputs(".TP\n\\fB", stdout);
        man_text(name);
        fputs("\\fR\n", stdout);
        man_text(text);
        putchar('\n');
    }
}

static void man_ending(const char *program)
{
    for (int i = 0; i < nsections; i++)
        man_section(sections[i]);
    puts(".SH OPTIONS OF EVERY COMMAND");
    man_row("help", 'h', NULL, "what there is, shortly", "");
    man_row("version", 0, NULL, "the version", "");
    man_row("color", 0, "WHEN", "colours: auto (on a terminal without NO_COLOR), always or never", "");
    puts(".PP\nBytes are written 25MiB, 80GB or 1.5e9, counts 64, 1.5e9 or 8B, lengths in tokens 8192\nor 8k.\n"
         ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nsomething failed\n"
         ".TP\n2\nwrong usage or bad input: one line on standard error says what, where, and what would\n"
         "be right\n"
         ".TP\n3\nthe answer is no: nothing fits; it is printed all the same\n.SH SEE ALSO");
    for (int i = 0, n = 0; programs[i]; i++)
        if (strcmp(programs[i], program) != 0)
            printf("%s\\fB%s\\fR(1)", n++ ? ",\n" : "", programs[i]);
    putchar('\n');
}

static void man_examples(const struct opt *opts)
{
    for (const struct opt *o = opts; o->name; o++)
        if (o->example) {
            fputs(".PP\n.RS 4\n", stdout);
            man_text(o->help);
            puts("\n.RE");
        }
}

static void man_print(const char *command, const char *about, const struct opt *opts)
{
    bool whole = !strchr(command, ' ');

    if (whole)
        man_heading(command, about);
    else {
        fputs(".SS ", stdout);
        man_text(command);
        putchar('\n');
    }
    man_synopsis(command, opts);
    puts(whole ? ".SH DESCRIPTION" : ".PP");
    man_text(about);
    putchar('\n');
    man_examples(opts);
    if (whole)
        puts(".SH OPTIONS");
    man_options(opts);
    if (whole)
        man_ending(command);
}

/* ---- bash ---- */

/* One case for each option with known words, then all options of the command. */
static void bash_cases(const char *command, const struct opt *opts)
{
    const char *word;
    int n = own_word(command, &word);
    char words[8192];               /* all models */

    for (const struct opt *o = opts; o->name; o++) {
        if (!has_words(o) || !opts_is_option(o))
            continue;
        printf("    '%.*s --%s')%s", n, word, o->name, o->set ? " list=1" : "");
        printf(" words='%s' ;;\n", words_of(o, words, sizeof words));
    }
    printf("    '%.*s --color') words='auto always never' ;;\n", n, word);
    for (const struct opt *o = opts; o->name; o++)
        if (!o->flag && !has_words(o) && opts_is_option(o)) {
            printf("    '%.*s --%s'", n, word, o->name);
            if (o->letter)
                printf("|'%.*s -%c'", n, word, o->letter);
            puts(") return ;;");
        }
    printf("    '%.*s '*) words='", n, word);
    for (const struct opt *o = opts; o->name; o++)
        if (opts_is_option(o))
            printf("--%s ", o->name);
        else if (has_words(o))
            printf("%s ", words_of(o, words, sizeof words));
    puts("--help --version --color' ;;");
}

/* Where nothing is known, `-o default` completes file names. */
static void bash_begin(const char *program, bool commands)
{
    printf("# bash completion for %s, from its option tables\n_%s()\n{\n", program, program);
    puts("    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
         "    local words='' list='' before=''\n"
         "    COMPREPLY=()\n"
         "    # bash takes --option=value apart at the sign\n"
         "    if [[ $cur == = ]]; then cur=''\n"
         "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi");
    printf("    local command=%s\n", commands ? "${COMP_WORDS[1]}" : "''");
    if (commands)
        puts("    [[ $COMP_CWORD -gt 1 ]] || command=''");
    puts("    case \"$command $prev\" in");
}

static void bash_end(const char *program)
{
    printf("    esac\n"
           "    if [[ $list && $cur == *,* ]]; then before=${cur%%,*},; cur=${cur##*,}; fi\n"
           "    if [[ $cur == -* || $words != --* ]]; then\n"
           "        COMPREPLY=($(compgen -P \"$before\" -W \"$words\" -- \"$cur\"))\n"
           "    fi\n}\ncomplete -o default -F _%s %s\n", program, program);
}

static void bash_print(const char *command, const char *about, const struct opt *opts)
{
    bool whole = !strchr(command, ' ');

    (void)about;
    if (whole)
        bash_begin(command, false);
    bash_cases(command, opts);
    if (whole)
        bash_end(command);
}

/* ---- zsh ---- */

/* Inside of '...[here]:here:': what _arguments would take for its own is quoted. */
static void zsh_text(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else {
            if (strchr("[]:\\", *s))
                putchar('\\');
            putchar(*s);
        }
    }
}

static void zsh_value(const struct opt *o)
{
    char words[8192];

    putchar(':');
    zsh_text(o->positional ? o->name : has_words(o) && !o->value ? "word"
             : opts_value_name(o, words, sizeof words));
    putchar(':');
    if (o->set)
        printf("_values -s , word %s", words_of(o, words, sizeof words));
    else if (has_words(o))
        printf("(%s)", words_of(o, words, sizeof words));
    else if (is_file(o))
        fputs("_files", stdout);
}

static void zsh_row(const struct opt *o)
{
    if (o->example)
        return;
    fputs(" \\\n        '", stdout);
    if (o->positional) {
        if (!o->required)
            putchar(':');
        zsh_value(o);
        putchar('\'');
        return;
    }
    /* "+" and "=": the value stands apart or right after. */
    if (o->letter)
        printf("(-%c --%s)'{-%c%s,--%s%s}'", o->letter, o->name, o->letter, o->flag ? "" : "+", o->name,
               o->flag ? "" : "=");
    else
        printf("--%s%s", o->name, o->flag ? "" : "=");
    putchar('[');
    zsh_text(o->help);
    putchar(']');
    if (!o->flag)
        zsh_value(o);
    putchar('\'');
}

static void zsh_print(const char *command, const char *about, const struct opt *opts)
{
    const char *word;
    int n = own_word(command, &word);

    (void)about;
    if (n)
        printf("    %.*s)\n", n, word);
    else
        printf("#compdef %s\n", command);
    fputs("    _arguments", stdout);
    for (const struct opt *o = opts; o->name; o++)
        zsh_row(o);
    puts(" \\\n        '(-h --help)'{-h,--help}'[what there is]' '--version[the version]' '--color[colours]:when:(auto always never)'");
    if (n)
        puts("    ;;");
}

/* ---- formats ---- */

typedef void print_fn(const char *command, const char *about, const struct opt *opts);

static const char *const formats[] = { "man", "bash", "zsh", NULL };
enum { FORMAT_MAN, FORMAT_BASH, FORMAT_ZSH };

static int format_of(const char *format)
{
    for (int i = 0; formats[i]; i++)
        if (strcmp(format, formats[i]) == 0)
            return i;
    return fail("--help-format: '%.60s' is not one of man, bash, zsh", format);
}

int opts_print_as(const char *format, const char *command, const char *about, const struct opt *opts)
{
    static print_fn *const print[] = { man_print, bash_print, zsh_print };
    int f = format_of(format);

    if (f < 0)
        return OPTS_ERROR;
    print[f](command, about, opts);
    return OPTS_DONE;
}

static void commands_begin(int f, const char *program, const char *about, const struct command *commands)
{
    if (f == FORMAT_BASH) {
        bash_begin(program, true);
        fputs("    ' '*) words='", stdout);
        for (const struct command *c = commands; c->name; c++)
            printf(c->run ? "%s " : "", c->name);
        puts("help version --help --version' ;;");
    } else if (f == FORMAT_MAN) {
        man_heading(program, about);
        printf(".B %s\n.I COMMAND\n[options]\n.SH COMMANDS\n", program);
    } else {
        printf("#compdef %s\nlocal -a commands\ncommands=(\n", program);
        for (const struct command *c = commands; c->name; c++) {
            if (!c->run)
                continue;
            printf("    '%s:", c->name);
            zsh_text(c->about);
            puts("'");
        }
        puts(")\nif (( CURRENT == 2 )); then\n    _describe command commands\n    return\nfi\n"
             "shift words\n(( CURRENT-- ))\ncase $words[1] in");
    }
}

/* Each command prints its own part: only it knows its table. */
int commands_print_as(const char *format, const char *program, const char *about,
                      const struct command *commands)
{
    int f = format_of(format), rc = 0;
    char ask[64];

    if (f < 0)
        return OPTS_ERROR;
    snprintf(ask, sizeof ask, "--help-format=%s", format);
    commands_begin(f, program, about, commands);
    for (const struct command *c = commands; c->name && rc == 0; c++) {
        char name[64], *argv[] = { name, ask, NULL };
        if (!c->run)
            continue;
        snprintf(name, sizeof name, "%s", c->name);
        rc = c->run(2, argv);
    }
    if (f == FORMAT_MAN)
        man_ending(program);
    else if (f == FORMAT_BASH)
        bash_end(program);
    else
        puts("esac");
    return rc == 0 ? OPTS_DONE : OPTS_ERROR;
}
