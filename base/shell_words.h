/* shell_words.h -- what the reader of scripts (shell.c) shares with its words. */
#ifndef DPX_SHELL_WORDS_H
#define DPX_SHELL_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* The letters of a variable's name that the text begins with; 0: none. */
size_t shell_name_length(const char *s);

/* How far a bracket goes that was opened before `s`; 0: it is not closed. */
size_t shell_closed(const char *s, char open, char close);

/* Letters of a backslash and the end of the line behind it; 0: another. */
int shell_joined_line(const char *at);

/* Letters of `...` at s, both marks among them; 0: it is not closed. */
size_t shell_backticks(const char *s);

/* What $'...' gives, of the letters behind its quote; *n: how many they are, with the quote that ends them.  The caller frees it; NULL: none does. */
char *shell_ansi(const char *s, size_t *n);

/* A sum or product of whole numbers, variables and sums in parentheses ("$A * 2 + (B - 1)"), products first; false: it is none, or too large.  `text_of`
 * gives a variable's value, NULL: it has none. */
bool shell_arithmetic(const char *s, size_t n, const char *(*text_of)(void *of, const char *name), void *of, long long *out);

/* Is the name in a list of texts? */
bool shell_holds(const json_t *names, const char *name);

/* Is word i of a command one of a list that NULL ends? */
bool shell_is_word_of(const json_t *command, size_t i, const char *const *of);

/* "env", by itself or behind what starts it, and its options: NAME=VALUE behind it are assignments. */
bool shell_is_env(const json_t *command);

#endif
