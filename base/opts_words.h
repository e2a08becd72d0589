/* opts_words.h -- options and keys by the names that other tools have for them. */
#ifndef DPX_OPTS_WORDS_H
#define DPX_OPTS_WORDS_H

#include <stdbool.h>

/* What other tools, or other commands, call it, and how it is said here: the options themselves, by commas, or as `write` has it; of them
 * those count that the command has.  A word may have several rows. */
extern const struct opts_word { const char *word, *options, *write; } opts_words[];        /* ended by one without a word */

/* The plan's key for what other tools call `word` ("gradient_accumulation_steps": "accumulation"; "tp": "parallel.tensor"); false: no
 * word of theirs that is known here. */
bool opts_words_key(const char *word, char key[32]);

#endif
