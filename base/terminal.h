/* terminal.h -- what may be printed where: width, letters beyond ASCII, colour. */
#ifndef DPX_TERMINAL_H
#define DPX_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Columns of the terminal that `f` is; of what is no terminal $COLUMNS, else `otherwise`. */
int terminal_width(FILE *f, int otherwise);

/* Does the locale of the environment (LC_ALL, LC_CTYPE, LANG, the first that is set) print UTF-8? */
bool terminal_utf8(void);

/* "auto", "always" or "never", whatever the environment says; false: it is none of them. */
extern const char *const terminal_whens[];
bool terminal_colour_when(const char *when);

/* "\033[32m" for green and so on on a terminal that takes colour where NO_COLOR is not set (no-color.org), or as terminal_colour_when() said; "" elsewhere; TERMINAL_PLAIN ends it. */
enum terminal_ink { TERMINAL_PLAIN, TERMINAL_BOLD, TERMINAL_RED, TERMINAL_GREEN, TERMINAL_YELLOW };
const char *terminal_ink(FILE *f, enum terminal_ink ink);

#endif
