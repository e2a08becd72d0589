/* opts.h -- the command line as a table: one row an option, with parser, help
 * and type in one place and the default in the variable.
 *
 *     struct args a = { .world_size = 8, .top = 10, .precision = DT_BF16 };
 *     const struct opt opts[] = {
 *         OPTS_EXAMPLE("dpxplan eval plan.json --set seq=8k"),
 *         { "PLAN.json",  "the plan",           .str = &a.plan, .positional = true, .required = true },
 *         { "world-size", "ranks",              .i = &a.world_size, .min = 1 },
 *         { "bucket",     "gradient bucket",    .bytes = &a.bucket },
 *         { "precision",  "number format",      .word = &a.precision, .words = precisions },
 *         { "output",     "where to write",     .str = &a.output, .letter = 'o', .value = "FILE" },
 *         { "json",       "one JSON document",  .flag = &a.json },
 *         { 0 }
 *     };
 *     int rc = opts_parse("dpxplan eval", "every figure of one plan", opts, argc, argv);
 *     if (rc != OPTS_OK)
 *         return rc < 0 ? 2 : 0;
 *
 * --help begins with the examples, then come positional rows, what is `often` used, and the others by `group`.
 *
 * `--bucket 25MiB` and `--bucket=25MiB` mean the same, `--` ends the options,
 * and the last of repeated options counts.  Every command has --help and
 * --version without a row of their own, and --help-format=man|bash|zsh, from which
 * `make install` makes manual pages and completion: the table is their only source. */
#ifndef DPX_OPTS_H
#define DPX_OPTS_H

#include <stdbool.h>
#include <stdint.h>

struct json_t;

/* Arguments in their order, KEY=VALUE or (`many`) any; they point into argv. */
struct opt_pairs { int n; const char *at[32]; };

/* A row that is no option: a command that runs, for --help. */
#define OPTS_EXAMPLE(command) { " ", command, .example = true }

/* Exactly one of the pointers is set: one per type, so that the compiler sees a
 * wrong one.  Strings point into argv. */
struct opt {
    const char  *name;          /* without the dashes; of a positional, as help shows it */
    const char  *help;
    bool        *flag;          /* takes no value */
    int64_t     *i;             /* a count: 64, 1.5e9, 8B; at least `min` */
    int64_t     *bytes;         /* 25MiB, 80GB; at least `min` */
    int64_t     *length;        /* tokens of a sequence: 8192, 8k; at least `min` */
    double      *num;           /* finite, not negative */
    char       (*sign)[8];      /* of a number that is money: what stood before or behind it, "$" or "EUR"; "" where nothing did */
    const char **str;
    int         *word;          /* index into `words`; start it with -1 for no default */
    uint64_t    *set;           /* comma-separated: bit k is words[k]; 0 for no default */
    struct opt_pairs *pairs;    /* KEY=VALUE, once or more: `--set a=1 b=2 --set c=3` */
    struct opt_pairs *many;     /* of a positional, the last: it takes all that are left */
    const char *const *words;   /* ended by NULL; of a string: what completion offers */
    const char *(*names)(int i, const char **about);    /* of a string, in the place of words: NULL after the last */
    const struct json_t **doc;  /* of a string: where an object or a list goes that stands in its place (opts_json()) */
    int64_t      min;
    const char  *value;         /* what help calls the value; a name for the type if NULL */
    char         letter;        /* -o, if not 0 */
    bool         required;
    bool         positional;    /* taken in the order of the rows */
    bool         bare;          /* of an option: its name may be left out: `search llama-3.1-8b` for `search --model llama-3.1-8b` */
    bool       (*bare_if)(const char *word);    /* of a bare one: only for such a word, wherever it stands, `search llama-3.1-8b 8xh100` */
    bool         example;       /* OPTS_EXAMPLE() */
    bool         often;         /* among the few that most people use */
    const char  *group;         /* the heading that help lists it under, such as "Money"; NULL: the last one */
};

enum { OPTS_ERROR = -1, OPTS_OK = 0, OPTS_DONE = 1 };

/* Parses argv[1..argc-1] into the table's variables.  OPTS_DONE: --help or
 * --version was asked for and is on stdout.  OPTS_ERROR: the reason is
 * reported, naming the option; the caller exits with 2. */
int opts_parse(const char *command, const char *about, const struct opt *opts,
               int argc, char **argv);

/* The same of a program without commands.  Alone it prints what it is for, its examples and what most people use (OPTS_DONE);
 * `help` is --help, `version` is --version. */
int opts_parse_program(const char *program, const char *about, const struct opt *opts, int argc, char **argv);

/* The same from a JSON object: `global-batch` is the key "global_batch", `PLAN.json` the key "plan".  A number or its
 * text, true or false of a flag; of a list of words text with commas or an array; of KEY=VALUE an object.  null: not
 * given.  Texts that the variables then point to are added to the array `kept`.  0, or -1 with one line that begins with
 * `where`. */
int opts_json(const char *where, const struct opt *opts, struct json_t *request, struct json_t *kept);

/* The table as a list (new reference): {"key", "about", "kind", "words", "value", "default", "group", "often", "required"} of each option.
 * key: as opts_json() has it.  kind: flag, count, bytes, length, number, text, document (or a text that names one), word (one of "words"),
 * words (some of them), pairs (an object), texts (a list).  value: what help calls it.  default, group: null where there is none. */
struct json_t *opts_table_json(const struct opt *opts);

/* "2.10", "$2.10", "2.10 EUR" as the value of an option with a `sign`: the number and its currency.  0, or -1 with one line
 * that begins with `what`. */
int opts_money(const char *what, const char *value, double *out, char (*sign)[8]);

/* A program of several commands. */
struct command {
    const char *name, *about;
    int (*run)(int argc, char **argv);  /* argv[0] is the command's name; returns the exit status */
};

/* A row that is no command: a heading over those that follow. */
#define OPTS_COMMANDS(heading) { heading, NULL, NULL }

/* Runs the command that argv[1] names and returns its exit status.  No command, help, --help and -h print `about` and the commands,
 * `help COMMAND` what COMMAND --help does, version and --version the version; an unknown command is refused (2).
 * Lines of `about` that are indented stay as they are: they are commands that run. */
int opts_command_run(const char *program, const char *about, const struct command *commands,
                int argc, char **argv);

/* A section of the manual page after the commands: the i-th entry's name and text (valid until the next
 * call), false after the last. */
struct opts_section {
    const char *title, *about;
    bool (*entry)(int i, const char **name, const char **text);
};
/* The program's own ones, in their order, at most eight; kept by reference. */
void opts_manual_section(const struct opts_section *s);

/* The one of `words` (ended by NULL) that `typed` was probably meant to be, or
 * NULL when none is near.  For messages about keys and names, too. */
const char *opts_nearest_word(const char *typed, const char *const *words);

/* What --version says after the version, such as "with CUDA": asked for where it is said. */
void opts_version_note(const char *(*note)(void));

#endif
