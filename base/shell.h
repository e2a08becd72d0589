/* shell.h -- the commands of a shell script, as far as the script itself says what they are.
 *
 *     struct shell_script s;
 *     if (shell_read(text, "pretrain.sh", &s) < 0)
 *         return 2;
 *     ... s.commands: [["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--num-layers", "32"], ...] ...
 *     shell_free(&s);
 *
 * Nothing is run.  Followed are assignments (NAME=..., export, env, +=), unset, arrays, the values of variables ($NAME, ${NAME},
 * ${NAME:-8}, ${NAME[@]}), arithmetic of whole numbers ($((A * B))), quotes ($'...', too), comments (`# ...`, too), lines that go on,
 * here-documents (left out).  A variable that the script does not set keeps its dollar ("$MASTER_ADDR"); an environment's default
 * (${X:-8}) is taken.  A condition that compares what the script itself sets ([ "$X" = fp8 ], -z, -n, !=) is decided.  Of
 * others, and of case, for and while, it is not known whether their commands run: a variable that is set there keeps an
 * earlier value, else takes the first, and is in `uncertain`. */
#ifndef DPX_SHELL_H
#define DPX_SHELL_H

#include <jansson.h>

struct shell_script {
    json_t *commands;       /* lists of words, in the script's order */
    json_t *variables;      /* what was set at the end: texts, and lists */
    json_t *conditional;    /* names of variables that only a condition sets */
    json_t *uncertain;      /* those of them that a command uses */
};

/* 0, or -1 with the line reported: quotes that do not end, a word that is not UTF-8, more than 1 MiB of words. */
int  shell_read(const char *text, const char *where, struct shell_script *out);
void shell_free(struct shell_script *s);

/* The words of a text that is options alone, one after the other, as people keep them in a file: cut at blanks and ends of
 * lines, quotes taken off; no letter but '#' before a word and '\\' before an end of line means more than
 * itself.  New reference; NULL, nothing reported: a word is not UTF-8. */
json_t *shell_words(const char *text);

/* A word's value: a number, true or false, else the text itself.  New reference. */
json_t *shell_value(const char *word);

/* Options of the words from `from` on by name, '-' as '_', without their dashes: "--lr 1e-4", "--lr=1e-4", "--bf16" (true).
 * Several values are a list; numbers, true and false are values of their kind.  Words before the first option are a list
 * under "".  New reference. */
json_t *shell_options(const json_t *words, size_t from);

#endif
