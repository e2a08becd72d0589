/* opts.c -- the option table against a command line, and the table of commands. */
#include "base/opts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts_internal.h"
#include "base/opts_words.h"
#include "base/size.h"
#include "base/terminal.h"
#include "base/version.h"

/* ---- help ---- */

static const char *(*version_note)(void);

void opts_version_note(const char *(*note)(void)) { version_note = note; }

static void print_version(const char *command)
{
    if (answers_asked()) {
        (void)answer_print(json_pack("{s:i, s:s#, s:s*}", "dpx", 1, "program", command, (int)strcspn(command, " "), "built",
                                     version_note ? version_note() : NULL), 0);
        return;
    }
    printf("%.*s %s%s%s\n", (int)strcspn(command, " "), command, version_text(), version_note ? ", " : "",
           version_note ? version_note() : "");
}

/* ---- parsing ---- */

#define MAX_OPTS 64

struct parser {
    const char       *command, *about;
    const struct opt *opts;
    int               argc, at;
    char            **argv;
    bool              seen[MAX_OPTS];
    const char       *bare[MAX_OPTS];       /* what stood for an option without its name */
};

static bool has_option(const struct parser *p, const char *name, size_t n)
{
    for (const struct opt *o = p->opts; o->name; o++)
        if (opts_is_option(o) && !strncmp(o->name, name, n) && !o->name[n])
            return true;
    return false;
}

/* One row's options that the command has, after what is there. */
static size_t say_ours(const struct parser *p, size_t row, char out[200], size_t used)
{
    const char *write = opts_words[row].write;

    for (const char *at = opts_words[row].options; *at && used < 200; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",");
        if (has_option(p, at, n))
            used += write ? (size_t)snprintf(out + used, 200 - used, "%s%s", used ? " or " : "", write)
                          : (size_t)snprintf(out + used, 200 - used, "%s--%.*s", used ? " or " : "", (int)n, at);
    }
    return used;
}

/* "--global-batch or --micro-batch" of a word of other tools; false: it is none, or the command has none of them. */
static bool in_our_words(const struct parser *p, const char *typed, char out[200])
{
    size_t used = 0;

    for (size_t i = 0; opts_words[i].word; i++)
        if (!strcmp(typed, opts_words[i].word))
            used = say_ours(p, i, out, used);
    return used > 0;
}

static int unknown_option(const struct parser *p, const char *name, size_t len)
{
    const char *words[MAX_OPTS + 4], *near;
    char typed[64], ours[200];
    int n = 0;

    for (const struct opt *o = p->opts; o->name; o++)
        if (opts_is_option(o))
            words[n++] = o->name;
    words[n++] = "help";
    words[n++] = "version";
    words[n++] = "color";
    words[n] = NULL;
    snprintf(typed, sizeof typed, "%.*s", (int)(len < 60 ? len : 60), name);
    for (char *c = typed; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (in_our_words(p, typed, ours))
        return fail("%s: unknown option --%.*s; here it is %s", p->command, (int)(len < 60 ? len : 60), name, ours);
    near = opts_nearest_word(typed, words);
    if (near)
        return fail("%s: unknown option --%s; did you mean --%s?", p->command, typed, near);
    return fail("%s: unknown option --%s; %s --help lists them", p->command, typed, p->command);
}

/* Stores the value of option o: `attached` if not NULL, else the next argument. */
static int take(struct parser *p, const struct opt *o, const char *what, const char *attached)
{
    if (p->bare[o - p->opts])
        return fail("%s: %s beside '%.60s', which stands for it: give one of them", p->command, what, p->bare[o - p->opts]);
    p->seen[o - p->opts] = true;
    if (o->flag) {
        if (attached)
            return fail("%s: %s takes no value", p->command, what);
        *o->flag = true;
        return 0;
    }
    if (!attached) {
        if (p->at >= p->argc || strncmp(p->argv[p->at], "--", 2) == 0) {
            char words[256];

            return fail("%s: %s needs a value: %s", p->command, what,
                        opts_value_name(o, words, sizeof words));
        }
        attached = p->argv[p->at++];
    }
    if (opts_set_value(o, what, attached) < 0)
        return -1;
    while (o->pairs && p->at < p->argc && opts_is_pair(p->argv[p->at]))
        if (opts_set_value(o, what, p->argv[p->at++]) < 0)
            return -1;
    return 0;
}

/* --color WHEN, of every command. */
static int take_colour(struct parser *p, const char *attached)
{
    char words[64];

    if (!attached && p->at < p->argc)
        attached = p->argv[p->at++];
    if (attached && terminal_colour_when(attached))
        return OPTS_OK;
    return fail("%s: --color%s%.40s%s is one of %s", p->command, attached ? " '" : "", attached ? attached : "", attached ? "'" : "",
                opts_join(words, sizeof words, terminal_whens, ", "));
}

/* Not in --help: it is for the build (Makefile, install). */
#define FORMAT "help-format="

static int long_option(struct parser *p, const char *name)
{
    size_t len = strcspn(name, "=");
    const char *attached = name[len] ? name + len + 1 : NULL;

    for (const struct opt *o = p->opts; o->name; o++) {
        char what[64];

        if (!opts_is_option(o) || strlen(o->name) != len || memcmp(o->name, name, len) != 0)
            continue;
        snprintf(what, sizeof what, "--%s", o->name);
        return take(p, o, what, attached);
    }
    if (strcmp(name, "help") == 0) {
        opts_print_help(p->command, p->about, p->opts);
        return OPTS_DONE;
    }
    if (strcmp(name, "version") == 0) {
        print_version(p->command);
        return OPTS_DONE;
    }
    if (len == strlen("color") && strncmp(name, "color", len) == 0)
        return take_colour(p, attached);
    if (attached && strncmp(name, FORMAT, sizeof FORMAT - 1) == 0)
        return opts_print_as(attached, p->command, p->about, p->opts);
    return unknown_option(p, name, len);
}

static int short_option(struct parser *p, const char *arg)
{
    char what[3] = { '-', arg[1], '\0' };

    for (const struct opt *o = p->opts; o->name; o++)
        if (o->letter && o->letter == arg[1])
            return take(p, o, what, arg[2] ? arg + 2 : NULL);
    if (strcmp(arg, "-h") == 0)
        return long_option(p, "help");
    return fail("%s: unknown option %.60s; %s --help lists them", p->command, arg, p->command);
}

/* Takes `arg` for option o, which stands without its name. */
static int take_bare(struct parser *p, const struct opt *o, const char *arg)
{
    p->seen[o - p->opts] = true;
    if (o->bare)
        p->bare[o - p->opts] = arg;
    return opts_set_value(o, o->name, arg);
}

/* What can be nothing else first. */
static int positional(struct parser *p, const char *arg)
{
    for (const struct opt *o = p->opts; o->name; o++)
        if (o->bare_if && !p->seen[o - p->opts] && o->bare_if(arg))
            return take_bare(p, o, arg);
    for (const struct opt *o = p->opts; o->name; o++)
        if ((o->positional || (o->bare && !o->bare_if)) && (!p->seen[o - p->opts] || o->many))
            return take_bare(p, o, arg);
    if (arg[0] >= '1' && arg[0] <= '9' && strchr(arg, 'x') && has_option(p, "cluster", strlen("cluster")))
        return fail("%s: '%.60s' is one argument too many; as a cluster it is --cluster %.60s", p->command, arg, arg);
    return fail("%s: '%.60s' is one argument too many", p->command, arg);
}

static int check_required(const struct parser *p)
{
    for (const struct opt *o = p->opts; o->name; o++)
        if (o->required && !p->seen[o - p->opts])
            return fail("%s: %s%s is missing: %s; %s --help says more", p->command,
                        o->positional ? "" : "--", o->name, o->help, p->command);
    return OPTS_OK;
}

int opts_parse(const char *command, const char *about, const struct opt *opts,
               int argc, char **argv)
{
    struct parser p = { .command = command, .about = about, .opts = opts,
                        .argc = argc, .at = 1, .argv = argv };
    bool options = true;
    int n = 0;

    while (opts[n].name)
        n++;
    assert(n <= MAX_OPTS);
    while (p.at < argc) {
        const char *arg = argv[p.at++];
        int rc;

        if (options && strcmp(arg, "--") == 0) {
            options = false;
            continue;
        }
        if (options && strncmp(arg, "--", 2) == 0)
            rc = long_option(&p, arg + 2);
        else if (options && arg[0] == '-' && arg[1])
            rc = short_option(&p, arg);
        else
            rc = positional(&p, arg);
        if (rc != OPTS_OK)
            return rc;
    }
    return check_required(&p);
}

int opts_parse_program(const char *program, const char *about, const struct opt *opts, int argc, char **argv)
{
    struct parser p = { .command = program, .about = about, .opts = opts, .argc = argc, .argv = argv };

    if (argc < 2) {
        opts_print_overview(program, about, opts);
        return OPTS_DONE;
    }
    if ((argc == 2 && !strcmp(argv[1], "help")) || (!strcmp(argv[1], "version") && (argc == 2 || answers_asked())))
        return long_option(&p, argv[1]);
    return opts_parse(program, about, opts, argc, argv);
}

/* ---- commands ---- */

static bool is_one_of(const char *word, const char *a, const char *b) { return strcmp(word, a) == 0 || strcmp(word, b) == 0; }

int opts_command_run(const char *program, const char *about, const struct command *commands,
                int argc, char **argv)
{
    const char *words[MAX_OPTS + 1], *near;
    char all[512], ask[] = "--help";
    int n = 0;

    for (const struct command *c = commands; c->name; c++) {
        assert(n < MAX_OPTS);
        if (c->run)
            words[n++] = c->name;
    }
    words[n] = NULL;
    if (argc < 2 || is_one_of(argv[1], "--help", "-h") || (strcmp(argv[1], "help") == 0 && (argc == 2 || is_one_of(argv[2], "help", "--help")))) {
        opts_print_commands(program, about, commands);
        return 0;
    }
    bool document = argc == 3 && strcmp(argv[1], "--json") == 0;
    if (is_one_of(argv[1 + document], "--version", "version") || (strcmp(argv[1], "help") == 0 && is_one_of(argv[2], "version", "--version"))) {
        print_version(program);
        return 0;
    }
    if (strcmp(argv[1], "help") == 0) {         /* help COMMAND: COMMAND --help */
        argv[1] = argv[2];
        argv[2] = ask;
        argc = 3;
    }
    if (strncmp(argv[1], "--" FORMAT, sizeof "--" FORMAT - 1) == 0)
        return commands_print_as(argv[1] + sizeof "--" FORMAT - 1, program, about, commands) < 0 ? 2 : 0;
    for (const struct command *c = commands; c->name; c++)
        if (c->run && strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
    near = opts_nearest_word(argv[1], words);
    if (near)
        fail("%s: unknown command '%.60s'; did you mean %s?", program, argv[1], near);
    else
        fail("%s: unknown command '%.60s'; there are %s", program, argv[1],
             opts_join(all, sizeof all, words, ", "));
    return 2;
}
